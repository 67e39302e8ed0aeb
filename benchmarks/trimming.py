"""Trimming with 5% flipped labels on compas and adult: the table of docs/trimming.md.

python -m benchmarks trimming    # about three minutes
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy.special import stdtrit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks import datasets
from benchmarks.machine import save
from drolearn import RobustClassifier, ZeroModelWarning, worst_case

DATA, SPLITS, TEST = ("compas", "adult"), 10, 0.25
FLIPPED, RHO = 0.05, 0.03
#: Every split draws as many rows of larger data sets.
MOST_ROWS = 12_000
#: Labels are flipped at random, or where a model of the clean labels is sure of them.
KINDS = ("none", "at random", "sure labels")
#: Arguments of the estimator, and the method that each is compared with.
METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({"rho": 0.0}, ""),
    "plain, smoothed hinge": ({"rho": 0.0, "loss": "smoothed-hinge"}, "plain"),
    "plain, trim = 0.05": ({"rho": 0.0, "trim": 0.05}, "plain"),
    "ball": ({"rho": RHO}, ""),
    "ball, smoothed hinge": ({"rho": RHO, "loss": "smoothed-hinge"}, "ball"),
    "ball, trim = 0.05": ({"rho": RHO, "trim": 0.05}, "ball"),
    "ball, trim = 0.1": ({"rho": RHO, "trim": 0.1}, "ball"),
}


def flip(X: np.ndarray, y: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return which labels to flip."""
    wrong = np.zeros(y.size, dtype=bool)
    count = round(FLIPPED * y.size)
    if kind == "at random":
        wrong[rng.choice(y.size, count, replace=False)] = True
    elif kind == "sure labels":
        sure = y * LogisticRegression(max_iter=1000).fit(X, y).decision_function(X)
        wrong[rng.choice(np.argsort(-sure)[: 4 * count], count, replace=False)] = True
    return wrong


def one_split(name: str, kind: str, seed: int) -> list[dict[str, Any]]:
    """Fit all methods to training rows with flipped labels, and test them on clean rows."""
    X, y = datasets.load(name)
    if y.size > MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(y.size, MOST_ROWS, replace=False))
        X, y = X[rows], y[rows]
    parts: list[Any] = train_test_split(X, y, test_size=TEST, random_state=seed, stratify=y)
    X, X_test, y, y_test = parts
    scaled: Any = StandardScaler().fit(X.astype(np.float64)).transform
    X, X_test = scaled(X), scaled(X_test)
    wrong = flip(X, y, kind, np.random.default_rng(seed))
    noisy = np.where(wrong, -y, y)
    results = []
    for method, (arguments, _) in METHODS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZeroModelWarning)
            model = RobustClassifier(**arguments).fit(X, noisy)
        scores = model.decision_function(X_test)
        losses = np.logaddexp(0.0, -y_test * scores)
        trim, found = arguments.get("trim", 0.0), math.nan
        if trim and wrong.any():
            largest = np.argsort(-model.losses(X, noisy))[: round(trim * y.size)]
            found = float(wrong[largest].sum() / wrong.sum())
        results.append(
            {
                "data": name,
                "labels": kind,
                "seed": seed,
                "method": method,
                "error": 100.0 * float(np.mean(model.predict(X_test) != y_test)),
                "loss": float(losses.mean()),
                "robust": worst_case(losses, RHO).value,
                "found": found if math.isfinite(found) else None,
                "converged": bool(model.converged_),
            }
        )
    return results


def table(runs: list[dict[str, Any]]) -> str:
    """Return the tables of the page."""
    parts = []
    for name in DATA:
        for kind in KINDS:
            mine = [run for run in runs if run["data"] == name and run["labels"] == kind]
            title = "labels as they are" if kind == "none" else f"5% flipped, {kind}"
            parts += [
                f"**{name}, {title}**\n",
                f"| method | error, % | log loss | robust log loss, ρ = {RHO:g} | flipped labels "
                "among the trimmed rows, % |",
                "|---|---:|---:|---:|---:|",
            ]
            parts += [_line(mine, method) for method in METHODS]
            parts.append("")
    return "\n".join(parts)


def _line(runs: list[dict[str, Any]], method: str) -> str:
    """Return a line: the mean, and the difference to the method that it is compared with."""
    other = METHODS[method][1]

    def values(of: str, number: str) -> np.ndarray:
        return np.array([run[number] for run in runs if run["method"] == of])

    cells = []
    for number, digits in (("error", 2), ("loss", 3), ("robust", 3)):
        if "hinge" in method and number != "error":
            cells.append("")  # its scores are no log odds
            continue
        cell = f"{values(method, number).mean():.{digits}f}"
        if other:
            difference = values(method, number) - values(other, number)
            cell += f" ({difference.mean():+.{digits}f} ± {_half_width(difference):.{digits}f})"
        cells.append(cell)
    found = [run["found"] for run in runs if run["method"] == method and run["found"] is not None]
    cells += [f"{100.0 * np.mean(found):.0f}" if found else ""]
    return f"| {method} | {' | '.join(cells)} |"


def _half_width(difference: np.ndarray) -> float:
    """Half of a 95% interval; the variance accounts for splits that share rows."""
    k = difference.size
    error = math.sqrt((1.0 / k + TEST / (1.0 - TEST)) * float(difference.var(ddof=1)))
    return float(stdtrit(k - 1, 0.975)) * error


def main() -> None:
    """Measure all splits."""
    runs = []
    with threadpool_limits(1):
        for name in DATA:
            for kind in KINDS:
                for seed in range(SPLITS):
                    runs += one_split(name, kind, seed)
                print(name, kind, flush=True)
    save("trimming", [], runs=runs)


if __name__ == "__main__":
    main()
