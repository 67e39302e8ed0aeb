"""Targets of extreme size: a solution without warnings, or an error that names y."""

import numpy as np
import pytest

from drolearn import RobustRegressor, solve

SOLVERS = ["exact", "lbfgs", "newton", "gssg", "sgd", "fsg"]


def make_data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, X[:, 0] + 0.1 * rng.standard_normal(60)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("size", [1e150, 1e155, 1e200, 1e300])
@pytest.mark.parametrize("solver", SOLVERS)
def test_targets_whose_squares_overflow_are_named(solver, size, loss):
    X, y = make_data()
    with pytest.raises(ValueError, match="The 'y' parameter must hold numbers of at most 1e\\+140"):
        solve(X, size * y, loss=loss, solver=solver, random_state=0)
    with pytest.raises(ValueError, match="rescale y, for example with StandardScaler"):
        RobustRegressor(loss=loss, solver=solver, random_state=0).fit(X, size * y)


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation"])
@pytest.mark.parametrize("size", [1e-140, 1e-70, 1e70, 1e139])
def test_solutions_scale_with_the_targets(size, divergence):
    X, y = make_data()
    expected = solve(X, y, loss="squared", divergence=divergence, rho=0.3)
    scaled = solve(X, size * y, loss="squared", divergence=divergence, rho=0.3)
    assert scaled.converged
    np.testing.assert_allclose(scaled.coef / size, expected.coef, rtol=0, atol=1e-3)
    np.testing.assert_allclose(scaled.value / size / size, expected.value, rtol=2e-6)


def test_large_targets_of_rows_without_weight_are_ignored():
    X, y = make_data()
    y[0] = 1e300
    weights = np.r_[0.0, np.ones(59)]
    without = solve(X[1:], y[1:], loss="squared")
    np.testing.assert_allclose(
        solve(X, y, loss="squared", sample_weight=weights).coef, without.coef, atol=1e-6
    )
