"""`RobustRegressor` against scikit-learn's; units, outliers, weights, errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression, Ridge

from drolearn import Loss, RobustRegressor


def test_radius_zero_is_linear_regression(regression):
    X, y = regression
    ours = RobustRegressor(rho=0.0, l2=0.0, tol=1e-13).fit(X, y)
    np.testing.assert_allclose(ours.coef_, LinearRegression().fit(X, y).coef_, atol=1e-6)
    ours = RobustRegressor(rho=0.0, l2=0.1, tol=1e-13).fit(X, y)
    np.testing.assert_allclose(ours.coef_, Ridge(0.1 * 600).fit(X, y).coef_, atol=1e-6)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_default_penalty_is_that_of_ridge(regression, weighted, container):
    X, y = regression
    weight = 3.0 * np.random.default_rng(1).random(600) if weighted else None
    ours = RobustRegressor(0.0, tol=1e-13, max_iter=1000).fit(container(X), y, weight)
    theirs = Ridge(1.0, tol=1e-12, solver="sparse_cg" if container is not np.asarray else "auto")
    theirs.fit(container(X), y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-6)


def test_regression_without_noise_converges(three_classes):
    X = three_classes[0]
    for exact in (X.astype(np.float32), X):
        y = 1e6 + exact @ np.arange(8.0, dtype=exact.dtype)
        model = RobustRegressor(l2=0.0).fit(exact, y)
        assert model.converged_
        np.testing.assert_allclose(model.coef_, np.arange(8.0), atol=0.1)


@pytest.mark.parametrize("unit", [1e-20, 1e-6, 1.0, 1e6, 1e40])
def test_units_of_y_do_not_matter(regression, unit):
    X, y = regression
    scaled = RobustRegressor(0.2).fit(X, y * unit)
    assert scaled.converged_
    np.testing.assert_allclose(scaled.coef_ / unit, RobustRegressor(0.2).fit(X, y).coef_, rtol=1e-9)


def test_huber_regression(three_classes):
    X = three_classes[0]
    rng = np.random.default_rng(0)
    y = X @ np.ones(8) + 0.1 * rng.standard_normal(600)
    y[:20] += 100.0
    robust = RobustRegressor(rho=0.0, loss="huber").fit(X, y)
    np.testing.assert_allclose(robust.coef_, 1.0, atol=0.1)


@pytest.mark.parametrize("tol", [0.1, 1e-6])
@pytest.mark.parametrize("rho", [0.0, 0.1])
def test_huber_with_large_numbers(rho, tol):
    """Almost all residuals are on the straight pieces of the loss."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 3))
    y = 3e5 + 1e5 * X[:, 0] + 5e4 * rng.standard_t(3, 500)
    model = RobustRegressor(rho, loss="huber", l2=0.0, tol=tol, max_iter=500).fit(X, y)
    assert model.converged_
    assert model.gap_ <= tol * model.objective_
    assert abs(model.coef_[0] - 1e5) < 2e4


def test_rows_without_weight_are_ignored(three_classes):
    X = three_classes[0]
    y, weight = X[:, 0].copy(), np.ones(600)
    y[0], weight[0] = 1e200, 0.0
    some = RobustRegressor().fit(X, y, weight)
    np.testing.assert_allclose(some.coef_, RobustRegressor().fit(X[1:], y[1:]).coef_, atol=1e-9)


def test_errors(regression):
    X, y = regression
    with pytest.raises(ValueError, match=r"positive sum|[Zz]ero"):
        RobustRegressor().fit(X, y, np.zeros(600))
    with pytest.raises(ValueError, match="another loss of the residual"):
        RobustRegressor(loss=Loss.smoothed_hinge()).fit(X, y)


@pytest.mark.parametrize("constant", [1.0, 0.1, -7.0, 1e5, 1e-8])
@pytest.mark.parametrize("rho", [0.0, 0.1, 10.0])
def test_constant_targets_are_fitted_to_rounding(regression, constant, rho):
    X, y = regression
    ours = RobustRegressor(rho).fit(X, np.full(y.size, constant))  # no ConvergenceWarning
    assert ours.converged_
    np.testing.assert_allclose(ours.predict(X), constant, rtol=1e-12)
