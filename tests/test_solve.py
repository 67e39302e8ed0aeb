"""`solve`: special cases with known answers, interruption, starts, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from drolearn import GSSG, PSSG, SGD, Ending, Fixed, Loss, solve
from tests.examples import labelled, softplus, softplus_slope


def test_radius_zero_is_logistic_regression():
    X, y = labelled()
    n = X.shape[0]
    solution = solve(X, y, rho=0.0, l2=0.01, tol=1e-12, max_iter=500)
    other = LogisticRegression(C=1 / (0.01 * n), tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(solution.coef, other.coef_[0], rtol=1e-4, atol=1e-6)
    weights = np.random.default_rng(0).integers(0, 4, n)
    solution = solve(X, y, rho=0.0, l2=0.01, tol=1e-12, max_iter=500, sample_weight=weights)
    other = LogisticRegression(C=1 / (0.01 * weights.sum()), tol=1e-12, max_iter=10_000)
    other.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(solution.coef, other.coef_[0], rtol=1e-4, atol=1e-6)


def test_multinomial_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    y = np.array(["a", "b", "c"])[np.argmax(X[:, :3] + rng.standard_normal((300, 3)), axis=1)]
    solution = solve(X, y, loss="multinomial", rho=0.0, l2=0.01, tol=1e-12, max_iter=500)
    other = LogisticRegression(C=1 / (0.01 * 300), tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(solution.coef, other.coef_, atol=1e-5)
    robust = solve(X, y, loss="multinomial", rho=0.5, l2=0.01, max_iter=500)
    assert robust.converged
    assert robust.value > solution.value
    near = solve(
        X, y, loss="multinomial", rho=0.5, l2=0.01, solver="gssg", max_iter=1000, tol=None,
        random_state=0,
    )  # fmt: skip
    assert near.value == pytest.approx(robust.value, rel=5e-3)


def test_a_custom_loss_equals_the_built_in_one():
    X, y = labelled(1000)
    custom = Loss.custom(softplus, softplus_slope, of="margin", smoothness=0.25)
    solution = solve(X, y, loss=custom, solver="exact", tol=1e-9)
    assert solution.value == pytest.approx(solve(X, y, solver="exact", tol=1e-9).value, rel=1e-8)


def test_interruption_returns_the_best_model():
    X, y = labelled(2000)

    def interrupt(history):
        if len(history.samples) > 2:
            raise KeyboardInterrupt
        return False

    for solver in ("gssg", "lbfgs"):
        solution = solve(X, y, solver=solver, max_iter=1000, tol=None, callback=interrupt)
        assert solution.ending is Ending.INTERRUPTED
        assert solution.value < math.log(2.0)
        assert not solution.converged


def test_without_an_intercept_its_start_is_ignored():
    X, y = labelled(300, 3)
    start = [0, 0, 0, 5.0]
    solution = solve(X, y, solver="gssg", fit_intercept=False, start=start, random_state=0)
    assert solution.intercept == 0.0


def test_a_ball_that_holds_all_weights_warns():
    X, y = labelled(50)
    with pytest.warns(UserWarning, match="the ball holds all weights"):
        solve(X, y, divergence="total-variation", rho=1.0, max_iter=20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [[1.0, math.nan]] * 4}, "Input X contains NaN"),
        ({"X": [[1.0, math.inf]] * 4}, "Input X contains infinity"),
        ({"X": [1.0, 2.0, 3.0, 4.0]}, "Expected 2D array"),
        ({"X": np.empty((0, 2)), "y": []}, "0 sample"),
        ({"y": [1, 1, 1, 1]}, "must have at least two classes. Got one class instead"),
        ({"y": [1.0, math.nan, 1.0, 2.0]}, "The 'y' parameter must not hold NaN"),
        ({"y": [1, 2, 3, 1]}, "must have two classes .* use loss='multinomial'"),
        ({"y": [1, 2, 1]}, "inconsistent numbers of samples"),
        ({"X": [[1.0]], "y": [1]}, "Got one class instead"),
        ({"y": [1.0, math.nan, 1.0, 2.0], "loss": "squared"}, "contains NaN"),
        ({"rho": -0.1}, "The 'rho' parameter must be a number of at least 0"),
        ({"l2": -1.0}, "The 'l2' parameter"),
        ({"solver": "newtn"}, "Did you mean 'newton'"),
        ({"max_iter": 0}, "The 'max_iter' parameter must be a positive, finite number"),
        ({"tol": 2.0}, "The 'tol' parameter must be None or lie between 0 and 1"),
        ({"tau": 1.0, "max_iter": -1}, "The 'max_iter' parameter .* Got -1"),
        ({"tau": 1.0, "max_iter": "many"}, "The 'max_iter' parameter .* Got 'many'"),
        ({"tau": 1.0, "tol": 2.0}, r"The 'tol' parameter .* Got 2\.0"),
        ({"fit_intercept": "no"}, "The 'fit_intercept' parameter must be True or False. Got 'no'"),
        ({"solver": SGD(batch_size=-1)}, "The 'batch_size' parameter"),
        ({"solver": GSSG(batch_size=0)}, "The 'batch_size' parameter"),
        ({"solver": SGD(step_size="big")}, "The 'step_size' setting"),
        ({"solver": SGD(step_size=-1.0)}, "The 'step_size' setting"),
        ({"solver": PSSG(rate=1.0)}, "The 'rate' parameter"),
        ({"solver": GSSG(fire=2.0)}, "The 'fire' parameter"),
        ({"solver": Fixed(7, 2)}, r"Use GSSG\(\), PSSG\(\), SGD\(\) or FSG\(\)"),
        ({"solver": GSSG}, r"Did you mean GSSG\(\)\?"),
        ({"solver": "erm"}, "Use rho=0 for the plain mean"),
        ({"solver": "newton", "divergence": "cvar"}, r"CVaR.* is not: use solver='lbfgs'"),
        ({"solver": "gssg", "groups": np.eye(2, dtype=bool)[[0, 1, 0, 1]]}, "the groups overlap"),
        ({"solver": "pssg", "groups": [0, 1, 0, 1]}, "use solver='gssg' or 'exact'"),
        (
            {"solver": GSSG(inflation=1.0), "groups": [0, 1, 0, 1]},
            "The 'inflation' parameter must be 0 with groups",
        ),
        ({"n_jobs": "a"}, "The 'n_jobs' parameter must be None or an integer"),
        ({"start": [1.0]}, "The 'start' parameter must hold 3 finite numbers"),
        ({"sample_weight": [1.0, 1.0, -1.0, 1.0]}, "must hold finite weights of at least 0"),
        ({"solver": "newton", "divergence": "cvar"}, "use solver='lbfgs'"),
    ],
)
def test_errors(change, message):
    given = {"X": [[1.0, 2.0], [2.0, 1.0], [0.0, 1.0], [1.0, 1.0]], "y": [1, 2, 1, 2], **change}
    with pytest.raises(ValueError, match=message):
        solve(given.pop("X"), given.pop("y"), **given)
