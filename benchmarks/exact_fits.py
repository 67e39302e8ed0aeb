"""Exact robust fits against scikit-learn's plain logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks import datasets
from benchmarks.machine import side_by_side
from benchmarks.worst_case import Row, row
from drolearn import solve


def synthetic() -> tuple[np.ndarray, np.ndarray]:
    """Return 32,000 × 50 normal features and labels with 5% noise."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((32_000, 50)), rng.standard_normal(50)
    y = np.where(X @ w * 0.4 + 0.5 * rng.standard_normal(32_000) > 0, 1, -1)
    return X, np.where(rng.random(32_000) < 0.05, -y, y)


def exact() -> list[Row]:
    """Robust fits against plain ones, at scikit-learn's default tolerance and at others."""
    return [*_on_synthetic_data(), *_on_covtype(), *_on_text()]


def _on_synthetic_data() -> list[Row]:
    X, y = synthetic()
    tasks: dict[str, Any] = {
        "plain": lambda: LogisticRegression(C=1e6).fit(X, y),
        "chi2": lambda: solve(X, y, solver="exact", tol=1e-6),
        "kl": lambda: solve(X, y, divergence="kl", solver="exact", tol=1e-6),
    }
    seconds = side_by_side(tasks, repeats=9)
    rows = []
    for divergence in ("chi2", "kl"):
        note = f"{tasks[divergence]().status} {seconds[divergence] * 1e3:.0f} ms"
        what = f"exact {divergence}, 32,000 × 50, to a relative gap of 1e-6"
        ratio = seconds[divergence] / seconds["plain"]
        rows.append(row(what, "LogisticRegression", ratio, "≤ 0.8", note))
    return rows


def _on_covtype() -> list[Row]:
    X, y = datasets.load("covtype.binary", standardised=True)
    tasks: dict[str, Any] = {
        "plain": lambda: LogisticRegression(C=1e6, max_iter=1000).fit(X, y),
        "robust": lambda: solve(X, y, solver="exact", tol=1e-6),
    }
    seconds = side_by_side(tasks, repeats=2)
    ratio, note = seconds["robust"] / seconds["plain"], tasks["robust"]().status
    return [row("exact chi2, covtype, to 1e-6", "LogisticRegression", ratio, "≤ 2", note)]


def _on_text() -> list[Row]:
    X, y = datasets.load("rcv1_27k")
    C = 1.0 / (1e-5 * X.shape[0])
    # LogisticRegression stops at a relative gap of about 1e-3 by default and 1e-6 at tol=2e-6.
    tasks: dict[str, Any] = {
        "plain, 1e-3": lambda: LogisticRegression(C=C, max_iter=1000).fit(X, y),
        "robust, 1e-3": lambda: solve(X, y, l2=1e-5, solver="exact", tol=1e-3),
        "plain, 1e-6": lambda: LogisticRegression(C=C, tol=2e-6, max_iter=1000).fit(X, y),
        "robust, 1e-6": lambda: solve(X, y, l2=1e-5, solver="exact", tol=1e-6),
    }
    seconds = side_by_side(tasks, repeats=3)
    rows = []
    for gap, against in (
        ("1e-3", "LogisticRegression at its default"),
        ("1e-6", "LogisticRegression(tol=2e-6)"),
    ):
        reached = _plain_gap(X, y, tasks[f"plain, {gap}"]())
        note = f"relative gap of LogisticRegression: {reached:.0e}"
        what = f"exact chi2, rcv1_27k, l2 = 1e-5, to {gap}"
        ratio = seconds[f"robust, {gap}"] / seconds[f"plain, {gap}"]
        rows.append(row(what, against, ratio, "≤ 1.5", note))
    return rows


def _plain_gap(X, y, model) -> float:
    """Relative gap of a plain model with l2 = 1e-5."""
    best = solve(X, y, rho=0.0, l2=1e-5, tol=1e-10, max_iter=1000).value
    w, c = model.coef_[0], model.intercept_[0]
    return float(np.logaddexp(0.0, -y * (X @ w + c)).mean() + 0.5e-5 * (w @ w)) / best - 1.0


def robust_and_plain() -> list[Row]:
    """Exact fits against the faster of scikit-learn's solvers at equal accuracy, C = 10⁴.

    The tolerance of scikit-learn is the largest of 1e-4/3^k at which its relative gap is at most
    1e-6.
    """
    sets: dict[str, Any] = {
        "synthetic": synthetic,
        "adult": lambda: datasets.load("adult", standardised=True),
        "electricity": lambda: datasets.load("electricity", standardised=True),
        "ijcnn1": lambda: datasets.load("ijcnn1", standardised=True),
        "covtype.binary": lambda: datasets.load("covtype.binary", standardised=True),
        "skin_nonskin, float32": lambda: _single(*datasets.load("skin_nonskin", standardised=True)),
    }
    rows, ratios = [], []
    for name, get in sets.items():
        X, y = get()
        X = X if isinstance(X, np.ndarray) else X.toarray()
        for divergence, robust, plain, default, against, gaps in _at_equal_accuracy(X, y, 1e4):
            ratios.append(robust / plain)
            what = f"exact {divergence} at equal accuracy, {name}, {X.shape[0]:,} × {X.shape[1]}"
            note = (
                f"{robust * 1e3:.0f} ms; relative gaps {gaps[0]:.1e} (drolearn) and {gaps[1]:.1e}; "
                f"{robust / default:.2f} × its time at the default tol"
            )
            rows.append(row(what, f"LogisticRegression ({against})", ratios[-1], "≤ 1.3", note))
    mean = float(np.exp(np.mean(np.log(ratios))))
    what = "exact fits at equal accuracy, geometric mean"
    return [*rows, row(what, "LogisticRegression", mean, "≤ 1")]


def _at_equal_accuracy(X, y, C):
    """For each divergence: the divergence, the seconds of drolearn, the seconds of the fastest
    scikit-learn solver at equal accuracy and at its default tolerance, that solver, and the
    relative gaps of both.
    """
    l2 = 1.0 / (C * y.size)
    best = solve(X, y, rho=0.0, l2=l2, tol=1e-12, max_iter=1000).value

    def fit(solver: str, tol: float) -> Any:
        return LogisticRegression(C=C, solver=solver, tol=tol, max_iter=5000).fit(X, y)

    tasks: dict[str, Any] = {}
    gaps: dict[str, float] = {}
    for solver in ("lbfgs", "newton-cholesky"):
        tol = 1e-4
        while True:
            model = fit(solver, tol)
            w, c = model.coef_[0].astype(np.float64), float(model.intercept_[0])
            value = np.logaddexp(0.0, -y * (X @ w + c)).mean() + 0.5 * l2 * (w @ w)
            if value <= best * (1.0 + 1e-6) or tol < 1e-12:
                break
            tol /= 3.0
        gaps[f"{solver}, tol={tol:.1e}"] = value / best - 1.0
        tasks[f"{solver}, tol={tol:.1e}"] = lambda solver=solver, tol=tol: fit(solver, tol)
        tasks[f"{solver}, default tol"] = lambda solver=solver: fit(solver, 1e-4)
    plain = list(tasks)
    for divergence in ("chi2", "kl"):
        tasks[divergence] = lambda divergence=divergence: solve(
            X, y, l2=l2, divergence=divergence, solver="exact", tol=1e-6, max_iter=500
        )
    seconds = side_by_side(tasks, repeats=5)
    equal, against = min((seconds[task], task) for task in plain if "default" not in task)
    default = min(seconds[task] for task in plain if "default" in task)
    results = []
    for divergence in ("chi2", "kl"):
        solution = tasks[divergence]()
        both_gaps = (solution.gap / solution.value, gaps[against])
        results.append((divergence, seconds[divergence], equal, default, against, both_gaps))
    return results


def _single(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return X.astype(np.float32), y
