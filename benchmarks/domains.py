"""Whether validation domains predict test domains: the table of docs/domains.md.

python -m benchmarks domains    # some minutes

Data sets that are in results/domains.json already are not run again.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold, TimeSeriesSplit
from threadpoolctl import threadpool_limits

from benchmarks import datasets
from benchmarks.machine import load, save
from drolearn import DomainAgreement, RobustClassifierCV, ZeroModelWarning, domain_agreement

GRID: dict[str, Any] = {"rhos": (0.0, 0.01, 0.03, 0.1, 0.3), "l2s": (1.0, 10.0, 100.0)}
# Data whose rows are in order of time, with the number of equal blocks and of those to test; and
# data with domains, by the name of their array.
TIME = {"electricity": (24, 8), "noaa_weather": (20, 8), "bank_additional": (20, 8)}
DOMAINS = {"heart_disease_4sites": "site", "oulad": "module", "diabetes130": "admission_source"}
WAYS = {"domains": "validation domains", "random": "random folds"}
_MOST_ROWS = 8_000


def data(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return standardised rows, labels and domains; at most 8,000 rows, in their order."""
    X, y = datasets.load(name, standardised=True)
    rows = np.unique(np.linspace(0, y.size - 1, min(y.size, _MOST_ROWS)).astype(np.int64))
    if name in TIME:
        size = rows.size // TIME[name][0]
        rows = rows[: size * TIME[name][0]]
        domains = np.arange(rows.size) // size
    else:
        with np.load(datasets.path(name)) as stored:
            domains = stored[DOMAINS[name]][rows]
        names, counts = np.unique(domains, return_counts=True)
        # A domain of few rows would be tested on noise.
        kept = np.isin(domains, names[counts >= 50])
        rows, domains = rows[kept], domains[kept]
    return X[rows], y[rows], domains


def agreement(name: str, way: str) -> DomainAgreement:
    """Test the choices of one way of validation on domains that are left out."""
    X, y, domains = data(name)
    tests = None
    by_domain: Any = LeaveOneGroupOut()
    if name in TIME:
        blocks, last = TIME[name]
        size = y.size // blocks
        tests, by_domain = TimeSeriesSplit(last, test_size=size), TimeSeriesSplit(5, test_size=size)
    # Tests have one domain, and then both scores are minus its mean loss.
    random = StratifiedKFold(5, shuffle=True, random_state=0)
    settings = {"cv": by_domain, "scoring": "worst-domain"}
    if way == "random":
        settings = {"cv": random, "scoring": "neg_log_loss"}
    search = RobustClassifierCV(**GRID, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroModelWarning)
        return domain_agreement(search, X, y, domains, tests=tests)


def main() -> None:
    """Measure the data sets that are missing."""
    runs = load("domains").get("runs", [])
    for name in (*TIME, *DOMAINS):
        if any(run["data"] == name for run in runs):
            continue
        for way in WAYS:
            with threadpool_limits(1):
                found = agreement(name, way)
            print(name, way, found, sep="\n", flush=True)
            numbers = ("correlation", "regret", "random_regret", "gain")
            runs.append(
                {
                    "data": name,
                    "way": way,
                    "domains": found.domains,
                    "rho": found.candidates["rho"][found.chosen].tolist(),
                    "l2": found.candidates["l2"][found.chosen].tolist(),
                    "loss": (-found.test.max(axis=1)).tolist(),
                    **{number: getattr(found, number).tolist() for number in numbers},
                }
            )
        save("domains", [], runs=runs)


def interval(numbers: list[float], digits: int = 3, sign: str = "") -> str:
    """Return the mean over the tests and twice its standard error."""
    error = 2.0 * float(np.std(numbers, ddof=1)) / len(numbers) ** 0.5
    return f"{np.mean(numbers):{sign}.{digits}f} ± {error:.{digits}f}"


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    radii = ", ".join(f"{rho:g}" for rho in GRID["rhos"])
    penalties = ", ".join(f"{l2:g}" for l2 in GRID["l2s"])
    lines = [
        f"Radii {radii}; penalties {penalties} times 1/N. Means over the tests with twice their "
        f"standard error.\nAt most 8,000 rows of each set, domains of at least 50 "
        f"rows, columns standardised.\n",
        "| data | tests | validated on | rank correlation | best loss | regret of the choice "
        "| of a random candidate | gain over ρ = 0 | chose ρ = 0 |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        kind = "blocks in time" if run["data"] in TIME else DOMAINS[run["data"]]
        cells = [
            f"{run['data']} ({kind})",
            str(len(run["regret"])),
            WAYS[run["way"]],
            interval(run["correlation"], 2, "+"),
            f"{np.mean(run['loss']):.3f}",
            interval(run["regret"]),
            f"{np.mean(run['random_regret']):.3f}",
            interval(run["gain"], 3, "+"),
            f"{100.0 * np.mean(np.array(run['rho']) == 0.0):.0f}%",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    better = sum(np.mean(run["regret"]) < np.mean(run["random_regret"]) for run in runs)
    gained = [run for run in runs if np.mean(run["gain"]) > 0.0]
    lost = [run for run in runs if np.mean(run["gain"]) < 0.0]
    lines += [
        "",
        f"In {better} of {len(runs)} rows the choice has a smaller regret than a random candidate. "
        f"Choosing the ball, and not only the\npenalty, has lowered the mean loss of the test "
        f"domains in {len(gained)} rows, raised it in {len(lost)}, and changed nothing in the "
        f"others.",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
