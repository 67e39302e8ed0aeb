"""Exact solves with an l1 penalty, compared with scikit-learn, cvxpy and optimality conditions."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, LogisticRegression

from drolearn import (
    CVaR,
    Ending,
    Exact,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressor,
    RobustRegressorCV,
    Spectral,
    solve,
)

DIVERGENCES = ["chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon"]
_DATA = os.environ.get("DROLEARN_DATA", "")


def _data(n: int = 300, d: int = 12, seed: int = 0) -> tuple[Any, Any, Any]:
    """Columns of different units and means; four of them matter."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.uniform(-3, 3, d))
    X = (rng.standard_normal((n, d)) + rng.standard_normal(d)) * scale
    f = (X[:, :4] / scale[:4]).sum(axis=1) - 1.0
    return X, np.where(f + rng.logistic(size=n) > 0, 1, -1), f + rng.standard_normal(n)


def _is_optimal(X: Any, solution: Any, y: Any, l1: float, l2: float) -> bool:
    """Whether a model of the logistic loss satisfies the conditions on its subgradients."""
    X = X.toarray() if sp.issparse(X) else X
    margin = y * (X @ solution.coef + solution.intercept)
    slope = -y / (1.0 + np.exp(margin)) * solution.worst.weights
    gradient, w = X.T @ slope + l2 * solution.coef, solution.coef
    used = w != 0.0
    tight = 1e-5 * l1
    return bool(
        abs(slope.sum()) < 1e-6
        and np.all(abs(gradient[~used]) <= l1 + tight)
        and np.allclose(gradient[used], -l1 * np.sign(w[used]), atol=tight)
    )


@pytest.mark.parametrize(("l1", "l2"), [(0.02, 0.0), (0.02, 0.01), (0.1, 0.0), (1e-3, 1e-3)])
def test_plain_logistic_regression_is_that_of_scikit_learn(l1: float, l2: float) -> None:
    X, y, _ = _data()
    X = X / X.std(axis=0)  # saga needs that
    C = 1.0 / (y.size * (l1 + l2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the names of arguments change in scikit-learn 1.8
        theirs = LogisticRegression(
            penalty="elasticnet", l1_ratio=l1 / (l1 + l2), C=C, solver="saga", tol=1e-10,
            max_iter=20_000,
        ).fit(X, y)  # fmt: skip
    solution = solve(X, y, rho=0.0, l1=l1, l2=l2, tol=1e-13)
    assert solution.ending is Ending.CONVERGED
    assert solution.gap <= 1e-9
    np.testing.assert_allclose(solution.coef, theirs.coef_[0], atol=1e-6)
    np.testing.assert_array_equal(solution.coef != 0.0, theirs.coef_[0] != 0.0)


@pytest.mark.parametrize(("alpha", "ratio"), [(0.05, 1.0), (0.2, 0.5)])
@pytest.mark.parametrize("sparse", [False, True])
def test_plain_regression_is_that_of_scikit_learn(alpha: float, ratio: float, sparse: bool) -> None:
    X, _, y = _data()
    X = X / X.std(axis=0)
    theirs = ElasticNet(alpha=alpha, l1_ratio=ratio, tol=1e-12, max_iter=100_000).fit(X, y)
    ours = RobustRegressor(rho=0.0, l1=alpha * ratio, l2=alpha * (1 - ratio), tol=1e-14)
    ours.fit(sp.csr_matrix(X) if sparse else X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    assert float(ours.intercept_) == pytest.approx(float(theirs.intercept_), abs=1e-7)


@pytest.mark.parametrize(
    "name", ["sms_spam_tfidf", pytest.param("rcv1_27k", marks=pytest.mark.slow)]
)
def test_sparse_text_is_that_of_liblinear(name: str) -> None:
    file = Path(_DATA) / f"{name}.npz"
    if not _DATA or not file.exists():
        pytest.skip("needs the data set in the folder DROLEARN_DATA")
    stored = np.load(file)
    X = sp.csr_matrix((stored["data"], stored["indices"], stored["indptr"]), tuple(stored["shape"]))
    y = np.where(stored["y"] == np.unique(stored["y"])[1], 1, -1)
    l1 = 1.0 / y.size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = LogisticRegression(
            penalty="l1", solver="liblinear", tol=1e-8, fit_intercept=False, max_iter=1000
        ).fit(X, y)
    solution = solve(X, y, rho=0.0, l1=l1, fit_intercept=False, tol=1e-7)
    w = theirs.coef_[0]
    value = np.logaddexp(0.0, -y * (X @ w)).mean() + l1 * abs(w).sum()
    assert solution.value == pytest.approx(value, rel=1e-6)
    assert 0 < int((solution.coef != 0.0).sum()) < 0.1 * X.shape[1]


def _text(n: int = 1500, d: int = 3000) -> tuple[Any, Any]:
    """Rows of 40 words of very different frequencies, 60 of which matter."""
    rng = np.random.default_rng(5)
    frequency = 1.0 / np.arange(1, d + 1) ** 0.7
    words = rng.choice(d, size=(n, 40), p=frequency / frequency.sum())
    rows = np.repeat(np.arange(n), 40)
    X = sp.csr_matrix((rng.uniform(0.1, 1.0, n * 40), (rows, words.ravel())), shape=(n, d))
    w = np.zeros(d)
    w[rng.choice(400, 60, replace=False)] = 3.0 * rng.standard_normal(60)
    return X, np.where(X @ w + rng.logistic(size=n) > 0, 1, -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_text_with_hundreds_of_used_columns_is_that_of_liblinear(dtype: Any) -> None:
    X, y = _text()
    X = X.astype(dtype)
    l1 = 1.0 / (5.0 * y.size)
    ours = solve(X, y, rho=0.0, l1=l1, fit_intercept=False)
    assert ours.ending is Ending.CONVERGED
    assert ours.gap <= 1e-5 * ours.value
    assert int((ours.coef != 0.0).sum()) > 500  # so that no Hessian is formed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = LogisticRegression(
            penalty="l1", C=5.0, solver="liblinear", tol=1e-8, fit_intercept=False, max_iter=5000
        ).fit(X.astype(np.float64), y)
    w = theirs.coef_[0]
    value = np.logaddexp(0.0, -y * (X @ w)).mean() + l1 * abs(w).sum()
    assert ours.value == pytest.approx(value, rel=1e-6)


def test_text_with_an_intercept_is_that_of_rows_with_a_column_of_ones() -> None:
    X, y = _text()
    l1 = 1.0 / (5.0 * y.size)
    ours = solve(X, y, rho=0.0, l1=l1)
    assert ours.gap <= 1e-5 * ours.value
    # The penalty of a large column of ones is negligible.
    ones = sp.csr_matrix(np.full((y.size, 1), 1e5))
    other = solve(sp.hstack([X, ones], format="csr"), y, rho=0.0, l1=l1, fit_intercept=False)
    assert other.value == pytest.approx(ours.value, rel=3e-6)


@pytest.mark.parametrize("divergence", ["chi2", "kl"])
def test_robust_text_with_hundreds_of_used_columns_is_optimal(divergence: str) -> None:
    X, y = _text()
    l1 = 1.0 / (5.0 * y.size)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, y.size)
    settings: dict[str, Any] = {"rho": 0.1, "divergence": divergence, "sample_weight": weights}
    ours = solve(X, y, l1=l1, l2=1e-4, **settings)
    assert ours.gap <= 1e-5 * ours.value
    assert int((ours.coef != 0.0).sum()) > 500
    orthants = solve(X, y, l1=l1, l2=1e-4, solver="lbfgs", max_iter=400, tol=1e-4, **settings)
    assert orthants.value == pytest.approx(ours.value, rel=2e-4)
    assert orthants.value >= ours.value - ours.gap


def test_groups_of_text_are_optimal_with_hundreds_of_used_columns() -> None:
    X, y = _text()
    groups = np.random.default_rng(1).integers(0, 3, y.size)
    ours = solve(X, y, l1=1.0 / (5.0 * y.size), l2=1e-4, rho=0.02, groups=groups)
    assert ours.gap <= 1e-4 * ours.value
    assert int((ours.coef != 0.0).sum()) > 500


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("sparse", [False, True])
def test_robust_models_satisfy_the_optimality_conditions(divergence: str, sparse: bool) -> None:
    X, y, _ = _data()
    given = sp.csr_matrix(X) if sparse else X
    solution = solve(given, y, rho=0.02, divergence=divergence, l1=0.02, l2=1e-3, tol=1e-9)
    assert solution.ending is Ending.CONVERGED
    assert _is_optimal(X, solution, y, 0.02, 1e-3)


def _judged(X: Any, y: Any, loss: str, l1: float, l2: float, divergence: Any, b: Any) -> float:
    """The optimum that cvxpy finds, for a χ² ball of radius 0.5 or a level of CVaR."""
    cp = pytest.importorskip("cvxpy")
    w, c, t = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable()
    f = X @ w + c
    z = cp.logistic(-cp.multiply(y, f)) if loss == "logistic" else 0.5 * cp.square(f - y)
    if isinstance(divergence, CVaR):
        robust = t + cp.sum(cp.multiply(b, cp.pos(z - t))) / divergence.level
    else:
        root = cp.multiply(np.sqrt(b), cp.pos(z - t))
        robust = t + np.sqrt(1.5) * cp.norm(root, 2)
    problem = cp.Problem(cp.Minimize(robust + l1 * cp.norm1(w) + 0.5 * l2 * cp.sum_squares(w)))
    problem.solve(solver="CLARABEL")
    return float(problem.value)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("divergence", ["chi2", CVaR(0.3)])
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")
def test_robust_values_are_those_of_cvxpy(loss: str, divergence: Any) -> None:
    X, classes, numbers = _data(120, 6)
    X = X / X.std(axis=0) * np.linspace(0.5, 2.0, 6)
    y = classes if loss == "logistic" else numbers
    b = np.random.default_rng(1).uniform(0.5, 1.5, y.size)
    rho = None if isinstance(divergence, CVaR) else 0.5
    l1 = 0.05
    solution = solve(
        X, y, rho=rho, divergence=divergence, loss=loss, l1=l1, l2=1e-3, sample_weight=b, tol=1e-6
    )
    judged = _judged(X, y, loss, l1, 1e-3, divergence, b / b.sum())
    assert solution.value == pytest.approx(judged, rel=3e-6)
    assert solution.value - solution.gap <= judged + 1e-6


def test_groups_and_total_variation_have_small_gaps() -> None:
    X, y, _ = _data()
    groups = np.digitize(X[:, 5], np.quantile(X[:, 5], [0.3, 0.6]))
    for settings in (
        {"groups": groups, "rho": 0.2},
        {"groups": groups, "rho": np.inf},
        {"divergence": "total-variation", "rho": 0.05},
    ):
        solution = solve(X, y, l1=0.01, l2=1e-3, **settings)
        assert solution.ending is Ending.CONVERGED
        assert solution.gap <= 2e-6 * solution.value


def test_several_classes() -> None:
    X, _, f = _data()
    X = X / X.std(axis=0)
    y = np.digitize(f, [-1.0, 1.0])
    solution = solve(X, y, loss="multinomial", rho=0.05, l1=0.02, tol=1e-8)
    assert solution.ending is Ending.CONVERGED
    assert 0 < int((solution.coef != 0.0).sum()) < solution.coef.size
    plain = solve(X, y, loss="multinomial", rho=0.0, l1=0.02, tol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = LogisticRegression(
            penalty="elasticnet", l1_ratio=1.0, C=1 / (0.02 * y.size), solver="saga", tol=1e-9,
            max_iter=10_000,
        ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(plain.coef, theirs.coef_, atol=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.1])
def test_orthants_and_newton_agree(rho: float) -> None:
    X, y, _ = _data()
    newton = solve(X, y, rho=rho, l1=0.02, tol=1e-8, solver="newton")
    orthants = solve(X, y, rho=rho, l1=0.02, tol=1e-6, solver="lbfgs", max_iter=1000)
    assert orthants.solver == "lbfgs"
    assert orthants.ending is Ending.CONVERGED
    assert orthants.value == pytest.approx(newton.value, rel=2e-6)
    np.testing.assert_array_equal(orthants.coef != 0.0, newton.coef != 0.0)


def test_units_of_columns_belong_to_the_penalty() -> None:
    # Multiplying a column by k and its l1 by k leaves predictions as they are: with one column the
    # penalty of the other model is l1/k.
    X, y, _ = _data(d=4)
    one = X[:, :1] / X[:, 0].std()
    plain = solve(one, y, rho=0.1, l1=0.05, tol=1e-9)
    scaled = solve(1000.0 * one, y, rho=0.1, l1=50.0, tol=1e-9)
    np.testing.assert_allclose(1000.0 * scaled.coef, plain.coef, rtol=1e-6)


def test_a_large_penalty_leaves_the_intercept_alone() -> None:
    X, y, _ = _data()
    X = X / X.std(axis=0)
    y[:100] = 1
    solution = solve(X, y, rho=0.0, l1=10.0)
    assert not solution.coef.any()
    share = float((y == 1).mean())
    assert solution.intercept == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
    assert solution.ending is Ending.CONVERGED


def test_no_l1_changes_no_bit() -> None:
    X, y, _ = _data()
    np.testing.assert_array_equal(solve(X, y, l1=0.0).theta, solve(X, y).theta)


def test_weight_two_is_a_row_twice_and_weight_zero_none() -> None:
    X, y, _ = _data()
    X = X / X.std(axis=0)
    weights = np.random.default_rng(3).integers(0, 3, y.size)
    weighted = solve(X, y, rho=0.1, l1=0.02, sample_weight=weights, tol=1e-9)
    repeated = solve(
        np.repeat(X, weights, axis=0), np.repeat(y, weights), rho=0.1, l1=0.02, tol=1e-9
    )
    np.testing.assert_allclose(weighted.coef, repeated.coef, atol=1e-6)


def test_soft_balls_and_references_take_l1() -> None:
    X, y, _ = _data()
    soft = solve(X, y, tau=1.0, l1=0.02)
    hard = solve(X, y, rho=soft.worst.achieved, l1=0.02)
    np.testing.assert_allclose(soft.coef, hard.coef, atol=1e-3)
    c = np.random.default_rng(0).uniform(0, 1, y.size)
    regret = solve(X, y, rho=0.2, l1=0.02, reference_losses=c)
    assert regret.ending is Ending.CONVERGED


def test_the_sparsest_path_is_searched_by_cross_validation() -> None:
    X, y, numbers = _data()
    X = X / X.std(axis=0)
    search = RobustClassifierCV(rhos=[0.0, 0.05], l1s=[0.1, 1.0, 10.0], cv=3).fit(X, y)
    assert search.scores_.shape == (3, 2, 3)
    assert search.l2s_.tolist() == [0.0]
    assert search.l1_ == pytest.approx(search.best_l1_ / y.size)
    assert set(search.cv_results_["l1"]) == {0.1, 1.0, 10.0}
    both = RobustRegressorCV(rhos=[0.0], l2s=[0.1, 1.0], l1s=[0.0, 5.0], cv=2).fit(X, numbers)
    assert both.scores_.shape == (2, 1, 4)
    alone = RobustRegressorCV(rhos=[0.0], l2s=[0.1, 1.0], cv=2).fit(X, numbers)
    np.testing.assert_allclose(both.scores_[:, :, 1::2], alone.scores_, rtol=1e-3)
    assert "l1" not in alone.cv_results_


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"l1": -1.0}, "The 'l1' parameter must be a finite number of at least 0. Got -1.0"),
        ({"l1": np.nan}, "The 'l1' parameter must be a finite number"),
        ({"l1": np.inf}, "The 'l1' parameter must be a finite number"),
        ({"l1": "auto"}, "The 'l1' parameter must be a finite number"),
        ({"l1": 0.1, "solver": "gssg"}, "solver='gssg' takes no l1 penalty"),
        ({"l1": 0.1, "solver": "pssg"}, "solver='pssg' takes no l1 penalty"),
        ({"l1": 0.1, "solver": Exact(checkpoint="x")}, "The 'checkpoint' setting must be None"),
    ],
)
def test_what_l1_does_not_go_with(settings: dict[str, Any], message: str) -> None:
    X, y, _ = _data(40, 3)
    with pytest.raises(ValueError, match=re.escape(message)):
        solve(X, y, **settings)


def test_streams_take_no_l1() -> None:
    X, y, _ = _data(40, 3)
    with pytest.raises(AttributeError, match="needs l1=0, as draws take no l1 penalty"):
        RobustClassifier(rho=0.1, l2=0.1, l1=0.1).partial_fit(X, y)


def test_constant_columns_and_more_columns_than_rows() -> None:
    X, y, _ = _data(40, 90, seed=4)
    X = X / X.std(axis=0)
    X[:, 7] = 3.0
    fitted = RobustClassifier(rho=0.1, l1=0.03, l2=0.0).fit(X, y)
    assert fitted.converged_
    assert fitted.coef_[0, 7] == 0.0
    assert 0 < (fitted.coef_ != 0.0).sum() < 40


def test_a_callback_stops_and_sees_falling_values() -> None:
    X, y, _ = _data()
    values: list[float] = []
    stopped = solve(
        X, y, rho=0.0, l1=1e-3, callback=lambda h: values.append(h.value[-1]) or len(values) == 3
    )
    assert stopped.ending is Ending.STOPPED
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("divergence", ["chi2", "total-variation"])
@pytest.mark.parametrize("calls", [1, 2, 6])
def test_a_stop_and_ctrl_c_leave_a_model_with_a_gap(divergence: str, calls: int) -> None:
    X, y, _ = _data()
    seen = 0

    def count(interrupt: bool) -> bool:
        nonlocal seen
        seen += 1
        if interrupt and seen == calls:
            raise KeyboardInterrupt
        return seen == calls

    arguments: dict[str, Any] = {"rho": 0.05, "divergence": divergence, "l1": 0.005}
    stopped = solve(X, y, callback=lambda _: count(False), **arguments)
    assert (seen, stopped.ending) == (calls, Ending.STOPPED)
    seen = 0
    interrupted = solve(X, y, callback=lambda _: count(True), **arguments)
    assert (seen, interrupted.ending) == (calls, Ending.INTERRUPTED)
    optimum = solve(X, y, **arguments).value
    for found in (stopped, interrupted):
        assert found.value - found.gap <= optimum + 1e-9


def test_spectral_risks_of_several_classes():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((60, 3)), np.arange(60) % 3
    X[:, 0] += y
    risk = Spectral(np.arange(60.0) ** 2)
    solution = solve(X, y, rho=None, divergence=risk, loss="multinomial", l2=0.05, l1=0.01)
    assert solution.converged
    theta = cp.Variable((4, 3))
    scores = np.column_stack([X, np.ones(60)]) @ theta
    losses = cp.log_sum_exp(scores, axis=1) - scores[np.arange(60), y]
    weights = np.array(risk.spectrum) / sum(risk.spectrum)
    drops = np.diff(weights, prepend=0.0)
    value = sum(drops[k] * cp.sum_largest(losses, 60 - k) for k in range(60))
    penalty = 0.025 * cp.sum_squares(theta[:3]) + 0.01 * cp.norm1(theta[:3])
    judge = cp.Problem(cp.Minimize(value + penalty))
    judge.solve(solver="CLARABEL")
    assert solution.value == pytest.approx(float(judge.value), rel=2e-6)
