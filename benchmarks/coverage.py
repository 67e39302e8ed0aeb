"""How often intervals of robust losses contain the truth: the table of docs/stress.md.

python -m benchmarks coverage    # about 15 minutes; resumes after a stop
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections import Counter
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import bernoulli, expon, lognorm, lomax, norm
from threadpoolctl import threadpool_limits

from benchmarks.machine import load, save
from benchmarks.slices import adult
from drolearn import ChiSquare, mean_upper_bound, worst_case
from drolearn.stress.balls import as_balls
from drolearn.stress.intervals import as_sample, intervals
from drolearn.stress.worst_cases import worst_cases

REPEATS, LEVEL = 3000, 0.95
SIZES, RADII = (500, 100, 5000), (0.0, 0.1, 1.0, 9.0)


class Logistic:
    """Log losses log(1 + exp(−m)) of normal margins m."""

    margin = norm(1.5, 1.5)

    def isf(self, q: Any) -> Any:
        """Return the loss that is exceeded with probability q."""
        return np.logaddexp(0.0, -self.margin.ppf(q))

    def sf(self, z: float) -> float:
        """Return the probability of a loss above z."""
        return float(self.margin.cdf(-np.log(np.expm1(z)))) if z > 0.0 else 1.0


class Adult:
    """Log losses of logistic regression on Adult's test part, drawn with replacement."""

    @functools.cached_property
    def rows(self) -> Any:
        """All losses, in decreasing order."""
        return np.sort(adult()[1])[::-1]

    def isf(self, q: Any) -> Any:
        """Return the loss that is exceeded with probability q."""
        return self.rows[(q * self.rows.size).astype(np.int64)]


#: Titles and distributions; the fourth moment of "Pareto, index 3" is infinite.
LOSSES: dict[str, Any] = {
    "logistic": Logistic(),
    "exponential": expon(),
    "lognormal": lognorm(1.0),
    "Pareto, index 6": lomax(6.0),
    "Pareto, index 3": lomax(3.0),
    "0/1, 5% wrong": bernoulli(0.05),
    "Adult": Adult(),
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
    if isinstance(losses, Adult):
        return worst_case(losses.rows, rho).value
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
    u = rng.random(n)
    return losses.isf(u if isinstance(losses, Adult) else 1.0 - u)


def measure(title: str, n: int) -> list[dict[str, Any]]:
    """Draw many samples, and count the intervals, bounds and notes."""
    losses, balls = LOSSES[title], as_balls(ChiSquare(), RADII)
    true = np.array([truth(losses, rho) for rho in RADII])
    rng = np.random.default_rng([zlib.crc32(title.encode()), n])
    low, high, both, noted = np.zeros((4, len(balls)))
    bound, methods = 0, [Counter[str]() for _ in balls]
    for _ in range(REPEATS):
        sample = as_sample(draw(losses, n, rng), None)
        ends = intervals(sample, balls, worst_cases(sample, balls), LEVEL, rng)
        below, above = ends.low <= true, true <= ends.high
        low += below
        high += above
        both += below & above
        noted += [bool(text) for text in ends.note]
        for counter, method in zip(methods, ends.method, strict=True):
            counter[method] += 1
        bound += mean_upper_bound(sample.z, LEVEL) >= true[0]
    return [
        {
            "losses": title,
            "n": n,
            "rho": rho,
            "methods": dict(methods[k]),
            "repeats": REPEATS,
            "truth": float(true[k]),
            "both": float(both[k] / REPEATS),
            "low": float(low[k] / REPEATS),
            "high": float(high[k] / REPEATS),
            "noted": float(noted[k] / REPEATS),
            "bound": float(bound / REPEATS) if rho == 0.0 else None,
        }
        for k, rho in enumerate(RADII)
    ]


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        f"{runs[0]['repeats']:,} samples of n rows each, χ² balls. *contains* is the share of "
        f"the intervals that contain the\nrobust loss of the population, nominally 95%; *low* and "
        f"*high* are the shares of lower ends below it and of upper ends\nabove it, nominally "
        f"97.5%. *method* is that of most intervals. *noted* is the share of the intervals with a "
        f"note beside them.\n*bound* is `mean_upper_bound`, nominally 95%.\n",
        "| losses | n | ρ | method | contains | low | high | noted | bound |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        bound = "" if run["bound"] is None else f"{100.0 * run['bound']:.1f}%"
        shares = " | ".join(f"{100.0 * run[key]:.1f}%" for key in ("both", "low", "high", "noted"))
        lines.append(
            f"| {run['losses']} | {run['n']:,} | {run['rho']:g} "
            f"| {max(run['methods'], key=run['methods'].get)} | {shares} "
            f"| {bound} |"
        )
    return "\n".join([*lines, ""])


def order(run: dict[str, Any]) -> tuple[Any, ...]:
    """Return the place of a run in the table."""
    return list(LOSSES).index(run["losses"]), run["n"], run["rho"]


def main() -> None:
    """Measure all distributions and sizes; those in results/coverage.json are kept."""
    with threadpool_limits(1):
        for n, title in itertools.product(SIZES, LOSSES):
            if (title, n) not in {(run["losses"], run["n"]) for run in stored()}:
                runs = sorted([*stored(), *measure(title, n)], key=order)
                save("coverage", [], runs=runs)
                print(title, n, flush=True)


def stored() -> list[dict[str, Any]]:
    """Return the runs that are measured already."""
    return load("coverage").get("runs", [])


if __name__ == "__main__":
    main()
