"""Duality gaps, and proofs that the zero model is optimal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from drolearn import Ending, RobustClassifier, solve, worst_case
from drolearn.loss import as_loss
from tests.examples import labelled


@pytest.mark.parametrize("rho", [0.0, 1e-6, 0.01, 0.5, 3.0, 10.0])
@pytest.mark.parametrize("divergence", ["chi2", "kl", "jensen-shannon", "hellinger"])
def test_gaps_bound_the_distance_to_the_optimum(rho, divergence):
    X, y = labelled()
    rho = min(rho, {"kl": 5.0, "jensen-shannon": 0.3, "hellinger": 0.3}.get(divergence, rho))
    solution = solve(X, y, rho=rho, divergence=divergence, solver="exact", tol=1e-8, max_iter=300)
    assert solution.gap <= 1e-5 * solution.value, solution.status
    rng = np.random.default_rng(0)
    for _ in range(20):  # no model nearby is better than the gap allows
        w = solution.coef * (1 + 0.01 * rng.standard_normal(5))
        z = np.logaddexp(0.0, -y * (X @ w + solution.intercept))
        assert worst_case(z, rho, divergence).value >= solution.value - solution.gap - 1e-12


def test_the_gap_is_valid_next_to_the_zero_model():
    X, y = labelled()
    best = solve(X, y).value
    solution = solve(
        X, y, solver="exact", start=[1e-6, 0, 0, 0, 0, 0], callback=lambda history: True
    )
    assert solution.value - solution.gap <= best


def test_in_a_huge_ball_the_zero_model_is_optimal():
    X, y = labelled(flips=0.4)
    solution = solve(X, y, rho=10.0)
    assert solution.value == pytest.approx(math.log(2.0), rel=1e-12)
    assert solution.gap < 1e-9
    assert solution.ending is Ending.ZERO_MODEL
    assert "The zero model is optimal" in solution.status


@pytest.mark.parametrize("loss", ["logistic", "squared-hinge", "smoothed-hinge"])
def test_a_column_that_separates_some_rows_is_certified(loss):
    """Its coefficient tends to infinity, and the slopes of these rows to zero."""
    X, y = labelled(n=400)
    X = np.column_stack([X, (np.arange(400) < 12) & (y > 0)])
    solution = solve(X, y, l2=1e-9, loss=loss, solver="newton", max_iter=200)
    assert solution.ending is Ending.CONVERGED
    better = solve(X, y, l2=1e-9, loss=loss, solver="newton", tol=1e-12, max_iter=200)
    assert 0.0 <= solution.value - better.value <= solution.gap + 1e-12
    assert solution.gap <= 1e-6 * solution.value


@pytest.mark.parametrize(
    "loss", ["logistic", "squared-hinge", "smoothed-hinge", "squared", "huber"]
)
def test_clipped_slopes_have_a_finite_conjugate(loss):
    loss = as_loss(loss)
    rng = np.random.default_rng(0)
    y = rng.standard_normal(200) if loss.of == "residual" else rng.choice([-1.0, 1.0], 200)
    u = 3.0 * rng.standard_normal(200)
    clipped = loss.clip_slopes(u, y)
    assert np.isfinite(loss.conjugate(clipped, y)).all()
    finite = np.isfinite(loss.conjugate(u, y))
    np.testing.assert_array_equal(clipped[finite], u[finite])


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits])
@pytest.mark.parametrize("rho", [0.0, 0.1])
def test_the_gap_of_several_classes_is_close(load, rho):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    clf = RobustClassifier(rho).fit(X, y)
    assert clf.converged_
    assert clf.gap_ <= 1e-6 * clf.objective_
    better = RobustClassifier(rho, tol=1e-9, max_iter=5000).fit(X, y)
    assert -1e-12 <= clf.objective_ - better.objective_ <= clf.gap_ + 1e-12


def test_the_gap_of_several_classes_and_groups_is_close():
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    clf = RobustClassifier(0.3).fit(X, y, groups=np.arange(y.size) % 4)
    assert clf.converged_
    assert clf.gap_ <= 1e-6 * clf.objective_
