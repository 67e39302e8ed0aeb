"""How often intervals of robust losses contain the truth: the table of docs/stress.md.

python -m benchmarks coverage    # about 20 minutes; resumes after a stop
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import bernoulli, expon, lognorm, lomax, norm
from threadpoolctl import threadpool_limits

from benchmarks.machine import load, save
from drolearn import ChiSquare, mean_upper_bound, worst_case
from drolearn.stress.balls import as_balls
from drolearn.stress.intervals import as_sample, intervals, note
from drolearn.stress.worst_cases import worst_cases

REPEATS, LEVEL = 3000, 0.95
RADII = (0.0, 0.1, 1.0, 9.0)


class Logistic:
    """Log losses log(1 + exp(−m)) of normal margins m."""

    margin = norm(1.5, 1.5)

    def isf(self, q: Any) -> Any:
        """Return the loss that is exceeded with probability q."""
        return np.logaddexp(0.0, -self.margin.ppf(q))

    def sf(self, z: float) -> float:
        """Return the probability of a loss above z."""
        return float(self.margin.cdf(-np.log(np.expm1(z)))) if z > 0.0 else 1.0


#: Titles and distributions; the fourth moment of the last is infinite.
LOSSES: dict[str, Any] = {
    "logistic": Logistic(),
    "exponential": expon(),
    "lognormal": lognorm(1.0),
    "Pareto, index 6": lomax(6.0),
    "Pareto, index 3": lomax(3.0),
    "0/1, 5% wrong": bernoulli(0.05),
}


def tail(losses: Any, eta: float, power: int) -> float:
    """Return E (z − η)₊ʲ, as an integral over log probabilities."""
    mass = losses.sf(eta)
    value, _ = quad(
        lambda t: (losses.isf(mass * np.exp(-t)) - eta) ** power * mass * np.exp(-t),
        0.0, 80.0, limit=1000, epsabs=0.0, epsrel=1e-10,
    )  # fmt: skip
    return value


def truth(losses: Any, rho: float) -> float:
    """Return the robust loss of the population in a χ² ball."""
    if losses is LOSSES["0/1, 5% wrong"]:
        return worst_case([0.0, 1.0], rho, sample_weight=[0.95, 0.05]).value
    mean = tail(losses, 0.0, 1)  # all losses are positive
    if rho == 0.0:
        return mean
    deviation = np.sqrt(tail(losses, 0.0, 2) - mean**2)

    def excess(eta: float) -> float:
        if eta < 0.0:  # all rows have weight
            return deviation**2 / (mean - eta) ** 2 - rho
        return tail(losses, eta, 2) / tail(losses, eta, 1) ** 2 - 1.0 - rho

    eta = float(brentq(excess, mean - 2.0 * deviation / np.sqrt(rho), losses.isf(1e-7)))  # type: ignore[arg-type]
    if eta < 0.0:
        return mean + deviation * np.sqrt(rho)
    return eta + tail(losses, eta, 2) / tail(losses, eta, 1)


def draw(losses: Any, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n losses."""
    if losses is LOSSES["0/1, 5% wrong"]:
        return (rng.random(n) < 0.05).astype(np.float64)
    return losses.isf(1.0 - rng.random(n))


def measure(title: str, n: int, radii: tuple[float, ...]) -> list[dict[str, Any]]:
    """Draw many samples, and count the intervals, bounds and notes."""
    losses, balls = LOSSES[title], as_balls(ChiSquare(), radii)
    true = np.array([truth(losses, rho) for rho in radii])
    rng = np.random.default_rng([zlib.crc32(title.encode()), n])
    low, high, both = np.zeros((3, len(balls)))
    bound, methods = 0, [""] * len(balls)
    mean = truth(losses, 0.0)
    for _ in range(REPEATS):
        sample = as_sample(draw(losses, n, rng), None)
        ends = intervals(sample, balls, worst_cases(sample, balls), LEVEL, rng)
        below, above = ends.low <= true, true <= ends.high
        low += below
        high += above
        both += below & above
        methods = ends.method
        bound += mean_upper_bound(sample.z, LEVEL) >= mean
    return [
        {
            "losses": title,
            "n": n,
            "rho": rho,
            "method": methods[k],
            "repeats": REPEATS,
            "truth": float(true[k]),
            "both": float(both[k] / REPEATS),
            "low": float(low[k] / REPEATS),
            "high": float(high[k] / REPEATS),
            "bound": float(bound / REPEATS) if rho == 0.0 else None,
        }
        for k, rho in enumerate(radii)
    ]


def noted(title: str, n: int, rho: float) -> float:
    """Return the share of the samples whose interval has a note beside it."""
    balls = as_balls(ChiSquare(), [rho])
    rng = np.random.default_rng([zlib.crc32(title.encode()), n, 1])
    count = 0
    for _ in range(REPEATS):
        sample = as_sample(draw(LOSSES[title], n, rng), None)
        if not sample.zero_one:
            count += bool(note(balls[0], worst_cases(sample, balls), 0))
    return count / REPEATS


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        f"{runs[0]['repeats']:,} samples of n rows each, χ² balls. *contains* is the share of "
        f"the intervals that contain the\nrobust loss of the population, nominally 95%; *low* and "
        f"*high* are the shares of lower ends below it and of upper ends\nabove it, nominally "
        f"97.5%. *noted* is the share of the intervals with a note beside them. *bound* is "
        f"`mean_upper_bound`, nominally 95%.\n",
        "| losses | n | ρ | method | contains | low | high | noted | bound |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        bound = "" if run["bound"] is None else f"{100.0 * run['bound']:.1f}%"
        shares = " | ".join(f"{100.0 * run[key]:.1f}%" for key in ("both", "low", "high", "noted"))
        lines.append(
            f"| {run['losses']} | {run['n']:,} | {run['rho']:g} | {run['method']} | {shares} "
            f"| {bound} |"
        )
    return "\n".join([*lines, ""])


def parts() -> list[tuple[str, int, tuple[float, ...]]]:
    """Return what is measured at a time: the cheap parts, then the bootstrap of many rows."""
    sizes = [(500, RADII), (100, RADII), (5000, RADII[:3]), (5000, RADII[3:])]
    return [(title, n, radii) for n, radii in sizes for title in LOSSES]


def order(run: dict[str, Any]) -> tuple[Any, ...]:
    """Return the place of a run in the table."""
    return list(LOSSES).index(run["losses"]), run["n"], run["rho"]


def main() -> None:
    """Measure all distributions and sizes; those in results/coverage.json are kept."""
    with threadpool_limits(1):
        for title, n, radii in parts():
            known = {(run["losses"], run["n"], run["rho"]) for run in stored()}
            if (title, n, radii[0]) not in known:
                new = measure(title, n, radii)
                save("coverage", [], runs=sorted([*stored(), *new], key=order))
                print(title, n, radii, flush=True)
        runs = stored()
        for run in runs:
            run.setdefault("noted", noted(run["losses"], run["n"], run["rho"]))
        save("coverage", [], runs=runs)


def stored() -> list[dict[str, Any]]:
    """Return the runs that are measured already."""
    return load("coverage").get("runs", [])


if __name__ == "__main__":
    main()
