"""Boosted trees with robust objectives on electricity, in time: the table of docs/boosting.md.

python -m benchmarks boosting    # about two minutes; needs the extra [boosting]
"""

from __future__ import annotations

import statistics
import time
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks import datasets
from benchmarks.machine import save
from drolearn.boosting import robust_objective

#: The data cover 31 months in order; a month has the same number of rows.
MONTHS = 31
#: Each split trains on this share of the rows and is tested on the next quarter.
SPLITS = (0.4, 0.5, 0.6, 0.7)
VALIDATION_MONTHS = 3
ROUNDS, STRIDE, REPEATS = 400, 10, 9
SETTINGS = {"num_leaves": 31, "learning_rate": 0.1, "verbose": -1, "num_threads": 1, "seed": 0}
#: Titles, and the arguments of the objective with months as groups; None for LightGBM's own.
METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "months of equal weight": None,
    "months, ρ = 1": {"rho": 1.0},
    "months, ρ = 10": {"rho": 10.0},
    "months, ρ = 10, not damped": {"rho": 10.0, "step": 1.0},
}


def train(method: str, X: np.ndarray, y: np.ndarray, months: np.ndarray) -> Any:
    """Fit boosted trees."""
    import lightgbm

    arguments, weight = METHODS[method], None
    if method == "months of equal weight":
        weight = 1.0 / np.bincount(months)[months]
        weight /= weight.mean()
    objective: Any = "binary"
    if arguments is not None:
        objective = robust_objective(**arguments, groups=months)
    data = lightgbm.Dataset(X, y, weight=weight)
    return lightgbm.train({**SETTINGS, "objective": objective}, data, ROUNDS)


def curve(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the error and the mean log loss after every few rounds."""
    scores, found = np.zeros(y.size), []
    for first in range(0, ROUNDS, STRIDE):
        scores += model.predict(X, raw_score=True, start_iteration=first, num_iteration=STRIDE)
        losses = np.logaddexp(0.0, np.where(y > 0.0, -scores, scores))
        found.append((np.mean((scores > 0.0) != (y > 0.0)), losses.mean()))
    return np.array(found)


def read() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y = 0 or 1, and the month of each row."""
    with np.load(datasets.path("electricity")) as file:
        X, y = file["X"].astype(np.float64), (file["y"] > 0).astype(np.float64)
    return X, y, np.arange(y.size) * MONTHS // y.size


def measure(share: float) -> list[dict[str, Any]]:
    """Fit all methods on one split; the round is the best one on the last months before it."""
    X, y, months = read()
    rows, first = np.arange(y.size), round(share * y.size)
    late = months > months[first - 1] - VALIDATION_MONTHS
    training, validation = rows[(rows < first) & ~late], rows[(rows < first) & late]
    test = rows[first : first + y.size // 4]
    results = []
    for method in METHODS:
        model = train(method, X[training], y[training], months[training])
        chosen = int(curve(model, X[validation], y[validation])[:, 0].argmin())
        found = curve(model, X[test], y[test])
        results.append(
            {
                "split": share,
                "method": method,
                "round": (chosen + 1) * STRIDE,
                "error": float(found[chosen, 0]),
                "loss": float(found[chosen, 1]),
                "last_error": float(found[-1, 0]),
                "last_loss": float(found[-1, 1]),
            }
        )
    return results


def cost() -> dict[str, Any]:
    """Return the CPU time of the robust objective, divided by that of LightGBM's own."""
    X, y, months = read()
    ratios, seconds = [], []
    for repeat in range(REPEATS + 1):
        spent = []
        for method in ("plain", "months, ρ = 10"):
            start = time.process_time()
            train(method, X, y, months)
            spent.append(time.process_time() - start)
        if repeat:  # the first one warms up
            ratios.append(spent[1] / spent[0])
            seconds.append(spent[0])
    return {
        "method": "cost",
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "seconds": statistics.median(seconds),
        "rows": int(y.size),
        "rounds": ROUNDS,
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    spent = next(run for run in runs if run["method"] == "cost")
    lines = [
        "Error in % at the chosen round, for each share of the rows before the test; their mean; "
        f"mean log loss at the chosen round and after {ROUNDS} rounds.\n",
        f"| method | {' | '.join(f'{share:g}' for share in SPLITS)} | mean | loss | loss at "
        f"{ROUNDS} |",
        f"|---|{'---:|' * (len(SPLITS) + 3)}",
    ]
    means = {}
    for method in METHODS:
        mine = [run for run in runs if run["method"] == method]
        errors = [100.0 * run["error"] for run in mine]
        means[method] = statistics.mean(errors)
        losses = [statistics.mean(run[key] for run in mine) for key in ("loss", "last_loss")]
        cells = [f"{value:.1f}" for value in (*errors, means[method])]
        cells += [f"{value:.3g}" for value in losses]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    best = min(means["months, ρ = 1"], means["months, ρ = 10"])
    gain = means["plain"] - best
    lines += [
        "",
        f"The better damped objective is {abs(gain):.1f} points "
        f"{'below' if gain >= 0.0 else 'above'} plain boosting on average; the "
        f"goal of 3 points is {'met' if gain >= 3.0 else 'missed'}.",
        f"CPU time: {spent['ratio']:.2f} times that of LightGBM's own objective (median of "
        f"{len(spent['ratios'])} pairs in one run; {spent['rows']:,} rows, {spent['rounds']} "
        f"rounds, one thread); the goal of at most 1.3 is "
        f"{'met' if spent['ratio'] <= 1.3 else 'missed'}.",
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all splits and the cost."""
    runs = [run for share in SPLITS for run in measure(share)]
    libraries = {"lightgbm": version("lightgbm")}
    save("boosting", [], runs=[*runs, cost()], libraries=libraries)


if __name__ == "__main__":
    main()
