"""The scikit-learn estimators: their cost, and whether robustness improves results."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from joblib import Parallel, delayed, parallel_config
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks import datasets
from benchmarks.machine import load, save, side_by_side
from benchmarks.worst_case import Row, row
from drolearn import RobustClassifier, RobustClassifierCV, worst_case
from drolearn._estimators.folds import _FoldSolver
from drolearn._solvers.inputs import as_start, make_problem
from drolearn._solvers.solve import run
from drolearn.divergence import as_divergence
from drolearn.loss import as_loss

SEEDS = 10
#: The default search of LogisticRegressionCV for the penalty.
SEARCH: Any = {"Cs": 10, "use_legacy_attributes": False, "l1_ratios": (0,)}


def search() -> list[Row]:
    """CPU time of a search for the penalty of a plain model, relative to one robust fit."""
    rows = []
    for name in ("adult", "hiv1", "covtype.binary"):
        X, y = datasets.load(name, standardised=True)
        RobustClassifier(l2=0.0).fit(X, y)  # warm-up
        with threadpool_limits(1):
            began = time.process_time()
            robust = RobustClassifier(l2=0.0).fit(X, y)
            ours = time.process_time() - began
            began = time.process_time()
            plain: Any = LogisticRegressionCV(**SEARCH, cv=10, max_iter=1000).fit(X, y)
            theirs = time.process_time() - began
        margins = y * plain.decision_function(X)
        loss = worst_case(np.logaddexp(0.0, -margins), 0.1).value
        note = (
            f"{theirs:.1f} against {ours:.2f} CPU seconds; robust loss {loss:.4f} against "
            f"{robust.robust_loss_:.4f}"
        )
        what = f"CPU time of LogisticRegressionCV(Cs=10, cv=10), {name}"
        rows.append(row(what, "RobustClassifier(l2=0)", theirs / ours, "≥ 20", note))
    return rows


def path() -> list[Row]:
    """CPU time of a grid of 7 radii and 7 penalties, five folds, and its largest gap."""
    X, y = datasets.load("adult", standardised=True)
    grid = RobustClassifierCV(l2s=np.logspace(4, -4, 7), cv=5)
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    with threadpool_limits(1):
        for _ in range(3):
            for name, model in (
                ("ours", grid),
                ("theirs", LogisticRegressionCV(**SEARCH, cv=5)),
            ):
                began = time.process_time()
                model.fit(X, y)
                seconds[name].append(time.process_time() - began)
    ours, theirs = (float(np.median(each)) for each in seconds.values())
    note = (
        f"{ours:.1f} against {theirs:.1f} CPU seconds; largest relative gap of the 245 models "
        f"{_largest_gap(grid, X, y):.1e}"
    )
    what = "CPU time of RobustClassifierCV, 7 radii × 7 penalties, 5 folds, adult"
    return [row(what, "LogisticRegressionCV(Cs=10, cv=5)", ours / theirs, "≤ 2", note)]


def _largest_gap(grid: RobustClassifierCV, X: np.ndarray, y: np.ndarray) -> float:
    """The largest relative gap of all models in all folds, against exact solves to 1e-7."""
    found: list[float] = []
    solve_candidate = _FoldSolver.solve

    def checked(self: _FoldSolver, problem: Any, ball: int, starts: Any) -> Any:
        result = solve_candidate(self, problem, ball, starts)
        best = run(
            problem, problem.zeros(), solver="exact", max_iter=500, tol=1e-7,
            random_state=None, watch=None,
        )  # fmt: skip
        found.append((result[0].value - best.value) / problem.loss_scale(best.value))
        return result

    with patch.object(_FoldSolver, "solve", checked):
        grid.fit(X, y)
    return max(found)


def face() -> list[Row]:
    """Time that the estimator adds to the solver, for 1,000 rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 20))
    y = np.where(X[:, 0] + rng.standard_normal(1000) > 0, 1.0, -1.0)

    def solver_only() -> None:
        problem = make_problem(
            X, y, None, None, rho=0.1, divergence=as_divergence("chi2"),
            loss=as_loss("logistic"), l2=0.0, fit_intercept=True, n_jobs=None,
        )  # fmt: skip
        run(
            problem, as_start(problem, None), solver="auto", max_iter=100, tol=1e-6,
            random_state=None, watch=None,
        )  # fmt: skip

    tasks = {"fit": lambda: RobustClassifier(l2=0.0).fit(X, y), "solver": solver_only}
    seconds = side_by_side(tasks, 101)
    fit, solver = 1e6 * seconds["fit"], 1e6 * seconds["solver"]
    note = f"{fit:.0f} against {solver:.0f} µs, 1,000 × 20"
    what = "time of RobustClassifier.fit minus that of the solver alone"
    return [row(what, "µs", fit - solver, "≤ 2000", note)]


_FIT = """
import re, sys, numpy as np
from drolearn import RobustClassifier
def peak():
    # ru_maxrss would include the peak of the parent process.
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
solver, dtype, columns = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = 2**30 // (columns * np.dtype(dtype).itemsize)
rng = np.random.default_rng(0)
X = np.empty((rows, columns), dtype)
for first in range(0, rows, 10_000):
    X[first : first + 10_000] = rng.standard_normal((min(10_000, rows - first), columns), "f")
y = np.where(X[:, 0] + rng.standard_normal(rows, "f") > 0, 1, -1).astype(np.int8)
how = {"l2": 0.0, "solver": solver, "tol": None, "random_state": 0}
RobustClassifier(max_iter=1, **how).fit(X[:1000], y[:1000])
before = peak()
RobustClassifier(max_iter=3, **how).fit(X, y)
print((peak() - before) / X.nbytes)
"""


def memory() -> list[Row]:
    """Peak memory that a fit adds to 1 GiB of data, as a fraction of the data."""
    rows = []
    for solver, dtype, columns in (
        ("exact", "float64", 100), ("gssg", "float64", 100), ("exact", "float32", 100),
        ("exact", "float64", 50),
    ):  # fmt: skip
        command = [sys.executable, "-c", _FIT, solver, dtype, str(columns)]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        what = f"extra peak memory of fit, solver={solver!r}, 1 GiB of {dtype}, {columns} columns"
        rows.append(row(what, "the data", float(shown), "≤ 0.3"))
    return rows


# -- does robustness help? ----------------------------------------------------------------------


def _codes(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1]


def cases() -> dict[str, Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Return functions that load X, y and the group of each row."""

    def grouped(name: str, *columns: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = datasets.load(name)
        with np.load(datasets.path(name)) as stored:
            names = stored[columns[0]].astype(str)
            for other in columns[1:]:
                names = np.char.add(np.char.add(names, " "), stored[other].astype(str))
        return X, y, _codes(names)

    def covtype() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = datasets.load("covtype.binary")
        return X, y, X[:, 10:14].argmax(axis=1)  # the four wilderness areas

    def electricity() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = datasets.load("electricity")
        return X, y, np.arange(y.size) // 1488  # months of 31 days, 48 half hours a day

    return {
        "adult": lambda: grouped("adult", "sex", "race"),
        "compas": lambda: grouped("compas", "sex", "race"),
        "crime": lambda: grouped("crime", "group"),
        "electricity": electricity,
        "covtype": covtype,
    }


def split(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows: 80/20 at random.

    For electricity, the training rows are 80% of the first 70% and the test rows are the rest.
    """
    rng = np.random.default_rng(seed)
    if name != "electricity":
        order = rng.permutation(n)
        if name == "covtype":
            order = order[:100_000]
        return order[: order.size * 4 // 5], order[order.size * 4 // 5 :]
    past = int(0.7 * n)
    return rng.choice(past, past * 4 // 5, replace=False), np.arange(past, n)


def evaluate(name: str, seed: int) -> list[dict[str, Any]]:
    """Return errors and losses of all models on one split."""
    warnings.simplefilter("ignore")
    X, y, groups = cases()[name]()
    train, test = split(name, y.size, seed)
    scaler = StandardScaler().fit(X[train])
    X_train, X_test = scaler.transform(X[train]), scaler.transform(X[test])
    common: dict[str, Any] = {"solver": "newton-cholesky", "max_iter": 1000}
    folds: dict[str, Any] = {"max_iter": 300, "exclude_zero": False}
    robust: dict[str, Any] = {"l2": 0.0, "max_iter": 300}  # no penalty: show the effect of the ball
    models: dict[str, Any] = {
        "plain": LogisticRegression(C=1e6, **common),
        "tuned": LogisticRegressionCV(**SEARCH, cv=5, **common),
        "robust, ρ = 0.1": RobustClassifier(0.1, **robust),
        "robust, ρ = 1": RobustClassifier(1.0, **robust),
        "robust, ρ by loss": RobustClassifierCV(l2s=[0], scoring="loss", **folds),
        "robust, ρ by robust loss": RobustClassifierCV(l2s=[0], scoring="robust", **folds),
        "groups known": RobustClassifier(1.0, **robust),
    }
    rows = []
    for label, model in models.items():
        began = time.process_time()
        known = {"groups": groups[train]} if label == "groups known" else {}
        model.fit(X_train, y[train], **known)
        margins = y[test] * model.decision_function(X_test)
        wrong, losses = model.predict(X_test) != y[test], np.logaddexp(0.0, -margins)
        sizes = np.bincount(groups[test])
        errors, means = (
            np.bincount(groups[test], each)[sizes >= 50] / sizes[sizes >= 50]
            for each in (wrong, losses)
        )
        rows.append(
            {
                "data": name,
                "seed": seed,
                "model": label,
                "error": 100 * float(wrong.mean()),
                "worst_group": 100 * float(errors.max()),
                "worst_group_loss": float(means.max()),
                "robust_loss": worst_case(losses, 0.1).value,
                "rho": float(getattr(model, "rho_", 0.0)),
                "seconds": time.process_time() - began,
            }
        )
    return rows


def pays() -> list[dict[str, Any]]:
    """Evaluate all models on all data sets with ten seeds each."""
    jobs = [(name, seed) for name in cases() for seed in range(SEEDS)]
    with parallel_config("loky", inner_max_num_threads=1):
        results: Any = Parallel(n_jobs=2)(delayed(evaluate)(*job) for job in jobs)
    return [line for lines in results for line in lines]


def interval(values: list[float], digits: int) -> str:
    """Format the mean ± half the width of its 95% interval."""
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def table(rows: list[dict[str, Any]]) -> str:
    """Format the runs as a Markdown table."""
    lines = [
        "| data | model | error, % | worst-group error, % | worst-group loss "
        "| robust loss, ρ = 0.1 | median ρ |\n|---|---|---:|---:|---:|---:|---:|\n"
    ]
    digits = {"error": 1, "worst_group": 1, "worst_group_loss": 3, "robust_loss": 3}
    for data in dict.fromkeys(line["data"] for line in rows):
        for model in dict.fromkeys(line["model"] for line in rows):
            runs = [line for line in rows if (line["data"], line["model"]) == (data, model)]
            cells = [
                interval([line[key] for line in runs], places) for key, places in digits.items()
            ]
            rho = np.median([line["rho"] for line in runs])
            shown = f"{rho:.3g}" if model.startswith(("robust", "groups")) else ""
            lines.append(f"| {data} | {model} | {' | '.join(cells)} | {shown} |\n")
    return "".join(lines)


PARTS = {"search": search, "path": path, "face": face, "memory": memory}


def main(*names: str) -> None:
    """Run all parts or those named; write results/estimators.json."""
    warnings.simplefilter("ignore")
    stored = load("estimators")
    rows = [line for line in stored.get("rows", []) if names and line["part"] not in names]
    runs = stored.get("runs", [])
    for name in names or (*PARTS, "pays"):
        if name == "pays":
            runs = pays()
        else:
            rows += [{**line, "part": name} for line in PARTS[name]()]
        rows.sort(key=lambda line: list(PARTS).index(line["part"]))
        save("estimators", rows, runs=runs)
    if runs:
        print(table(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
