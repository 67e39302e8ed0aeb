"""Robust fits against what a user would pick instead: CPU seconds of one process, one thread.

    pip install '.[benchmark]'          # in an environment of its own
    python -m benchmarks peers

Peers that cannot be imported are left out, and the command says so.  All robust peers solve the
same problem, and the robust loss of each model is written beside its time: a fast answer that is
not the optimum is visible.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import types
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, SGDClassifier
from threadpoolctl import threadpool_limits

from benchmarks.estimators import SEARCH
from benchmarks.machine import save
from benchmarks.worst_case import Row, row
from drolearn import RobustClassifier, solve, worst_case

RHO = 0.1
Model = tuple[np.ndarray, float]


def data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features and labels with 5% noise."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d) / np.sqrt(d)
    y = np.where(X @ w + 0.7 * rng.standard_normal(n) > 0, 1, -1)
    return X, np.where(rng.random(n) < 0.05, -y, y)


def cpu(task: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the least CPU seconds of a task, after one untimed run unless it is run once."""
    result = task() if repeats > 1 else None
    times = []
    for _ in range(repeats):
        began = time.process_time()
        result = task()
        times.append(time.process_time() - began)
    return min(times), result


# -- the same robust model -------------------------------------------------------------


def with_cvxpy(X: np.ndarray, y: np.ndarray) -> Model:
    """The dual of the χ² problem in cvxpy, solved by Clarabel, as its documentation suggests."""
    import cvxpy as cp

    n = y.size
    w, c, eta, s = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable(), cp.Variable(n)
    # R = min over η of η + √(1 + ρ) · (mean of (z − η)₊²)^½
    z = cp.logistic(-cp.multiply(y, X @ w + c))
    value = eta + np.sqrt((1.0 + RHO) / n) * cp.norm2(s)
    cp.Problem(cp.Minimize(value), [s >= z - eta, s >= 0]).solve(solver="CLARABEL")
    return np.asarray(w.value), float(c.value)  # type: ignore[arg-type]


def with_scipy(X: np.ndarray, y: np.ndarray) -> Model:
    """The same dual minimised jointly over (w, c, η) by SciPy's L-BFGS, with exact gradients."""
    root, d = np.sqrt(1.0 + RHO), X.shape[1]

    def dual(v: np.ndarray) -> tuple[float, np.ndarray]:
        w, c, eta = v[:d], v[d], v[d + 1]
        margin = y * (X @ w + c)
        excess = np.maximum(np.logaddexp(0.0, -margin) - eta, 0.0)
        norm = np.sqrt(np.mean(excess**2))
        p = root * excess / (norm * y.size) if norm > 0.0 else np.zeros(y.size)
        slopes = -y * expit(-margin) * p
        gradient = np.concatenate([X.T @ slopes, [slopes.sum(), 1.0 - p.sum()]])
        return float(eta + root * norm), gradient

    start = np.zeros(d + 2)
    found = minimize(dual, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000})
    return found.x[:d], float(found.x[d])


def with_dro(X: np.ndarray, y: np.ndarray) -> Model:
    """The χ² model of `dro`, which uses cvxpy.

    Only this module is imported: importing all of `dro` needs torchvision, xgboost and more.
    """
    found = importlib.util.find_spec("dro")
    if found is None:
        raise ImportError("dro is not installed")
    for name in ("dro", "dro.linear_model"):
        package = types.ModuleType(name)
        folder = Path(next(iter(found.submodule_search_locations or [])), *name.split(".")[1:])
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    model = import_module("dro.linear_model.chi2_dro").Chi2DRO(X.shape[1], model_type="logistic")
    model.update({"eps": RHO})
    model.fit(X, y)
    return np.ravel(model.theta), float(model.b)


def robust_loss(X: np.ndarray, y: np.ndarray, model: Model) -> float:
    """The robust loss of a linear model."""
    w, c = model
    return worst_case(np.logaddexp(0.0, -y * (X @ w + c)), RHO).value


def same_model() -> list[Row]:
    """cvxpy, SciPy and `dro` against drolearn on problems of the size that each can solve."""
    rows = []
    for name, fit, n, d in (
        ("SciPy's L-BFGS on the dual", with_scipy, 32_000, 50),
        ("cvxpy + Clarabel on the dual", with_cvxpy, 2_000, 20),
        ("dro", with_dro, 2_000, 20),
    ):
        X, y = data(n, d)
        ours, solution = cpu(lambda X=X, y=y: solve(X, y, rho=RHO, tol=1e-6), 5)
        try:
            theirs, model = cpu(lambda fit=fit, X=X, y=y: fit(X, y), 1)
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        excess = robust_loss(X, y, model) / solution.value - 1.0
        note = f"{theirs:.3g} s; robust loss {excess:+.0e} relative to drolearn's"
        rows.append(row(_with_version(name, n, d), "drolearn", theirs / ours, "", note))
    return rows


def _with_version(name: str, n: int, d: int) -> str:
    library = {"dro": "dro", "cvxpy + Clarabel on the dual": "cvxpy"}.get(name)
    return f"{name}{' ' + version(library) if library else ''}, χ², {n:,} × {d}"


# -- what a user would fit instead -----------------------------------------------------


def instead() -> list[Row]:
    """Plain and searched models of scikit-learn, and Wasserstein robustness of `skwdro`."""
    X, y = data(32_000, 50)
    ours, robust = cpu(lambda: RobustClassifier(RHO).fit(X, y), 5)
    value = robust_loss(X, y, (robust.coef_[0], float(robust.intercept_[0])))
    tasks: dict[str, tuple[Callable[[], Any], int]] = {
        "LogisticRegression (lbfgs)": (lambda: LogisticRegression().fit(X, y), 5),
        "LogisticRegression (newton-cholesky)": (
            lambda: LogisticRegression(solver="newton-cholesky").fit(X, y), 5),
        "SGDClassifier (log loss, default stop)": (
            lambda: SGDClassifier(loss="log_loss", random_state=0).fit(X, y), 3),
        "LogisticRegressionCV (10 penalties, 5 folds)": (
            lambda: LogisticRegressionCV(cv=5, scoring="neg_log_loss", **SEARCH).fit(X, y), 1),
    }  # fmt: skip
    rows = []
    for name, (fit, repeats) in tasks.items():
        seconds, model = cpu(fit, repeats)
        other = robust_loss(X, y, (model.coef_[0], float(model.intercept_[0])))
        note = f"{seconds:.3g} s; robust loss {other:.4f}, drolearn {value:.4f}"
        rows.append(row(f"{name}, 32,000 × 50", "RobustClassifier", seconds / ours, "", note))
    return [*rows, *_wasserstein()]


def _wasserstein() -> list[Row]:
    """`skwdro`: another kind of ball, so only the times can be compared."""
    try:
        cls = import_module("skwdro.linear_models").LogisticRegression
    except ImportError as error:
        print(f"skwdro: left out, {error}")
        return []
    X, y = data(500, 10)
    ours, _ = cpu(lambda: RobustClassifier(RHO).fit(X, y), 5)
    theirs, _ = cpu(lambda: cls(rho=0.1, random_state=0).fit(X, y), 1)
    what = f"skwdro {version('skwdro')}, Wasserstein, 500 × 10"
    return [row(what, "RobustClassifier", theirs / ours, "", f"{theirs:.3g} s; another ball")]


def groups() -> list[Row]:
    """`fairlearn`: equal error rates of two groups; drolearn: the least loss of the worse group."""
    try:
        reductions = import_module("fairlearn.reductions")
    except ImportError as error:
        print(f"fairlearn: left out, {error}")
        return []
    X, y = data(10_000, 10)
    group = np.where(np.random.default_rng(1).random(y.size) < 0.1, "few", "many")
    y = np.where((group == "few") & (X[:, 0] > 0.0), -y, y)  # the few have labels of their own
    y = (y > 0).astype(int)

    def equal_rates() -> Any:
        method = reductions.ExponentiatedGradient(
            LogisticRegression(), reductions.ErrorRateParity()
        )
        return method.fit(X, y, sensitive_features=group)

    ours, robust = cpu(lambda: RobustClassifier(np.inf).fit(X, y, groups=group), 5)
    theirs, fair = cpu(equal_rates, 1)
    guesses = {
        "fairlearn": fair.predict(X, random_state=0),  # it draws one of its models for each row
        "drolearn": robust.predict(X),
    }
    worse = {
        name: max(np.mean(guess[group == g] != y[group == g]) for g in ("few", "many"))
        for name, guess in guesses.items()
    }
    note = ", ".join(f"{name} {100.0 * error:.1f}%" for name, error in worse.items())
    what = f"fairlearn {version('fairlearn')}, equal error rates, two groups, 10,000 × 10"
    against = "RobustClassifier with groups"
    return [
        row(what, against, theirs / ours, "", f"{theirs:.3g} s; error of the worse group: {note}")
    ]


def main() -> None:
    """Run all parts and write results/peers.json."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save("peers", [*same_model(), *instead(), *groups()])


if __name__ == "__main__":
    main()
