"""Exact solvers: no false convergence, and starts on a subsample."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from drolearn import Ending, RobustClassifier, solve
from tests.examples import labelled


def test_newton_does_not_stop_at_a_corner_of_the_robust_loss():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 3))
        y = X[:, 0] + rng.standard_normal(40) > 0
        for loss in ("logistic", "smoothed-hinge"):
            best = solve(X, y, rho=0.5, divergence="kl", loss=loss, solver="lbfgs", max_iter=1000)
            solution = solve(
                X, y, rho=0.5, divergence="kl", loss=loss, solver="newton", max_iter=1000
            )
            assert solution.value <= best.value * (1 + 1e-4) or not solution.converged
            assert solution.value - solution.gap <= best.value * (1 + 1e-9)


@pytest.mark.parametrize("order", ["random", "sorted", "rare"])
@pytest.mark.parametrize("solver", ["exact", "lbfgs", "newton"])
def test_a_start_on_a_subsample_leads_to_the_same_optimum(order, solver):
    """On many rows, solvers start on a sixteenth and a quarter of them."""
    X, y = labelled(40_000, 4, flips=0.1)
    if order == "sorted":
        rows = np.argsort(y, kind="stable")
        X, y = X[rows], y[rows]
    elif order == "rare":  # a subsample may hold only one of the classes
        y = np.where(np.arange(y.size) < 5, 1, -1)
    solution = solve(X, y, l2=1e-3, solver=solver, tol=1e-9)
    from_all_rows = solve(X, y, l2=1e-3, solver=solver, tol=1e-9, start=np.full(5, 1e-3))
    assert solution.converged, solution.status
    assert solution.value == pytest.approx(from_all_rows.value, rel=1e-8)
    np.testing.assert_allclose(solution.theta, from_all_rows.theta, atol=1e-3)


# -- separable classes ---------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["exact", "lbfgs", "newton"])
@pytest.mark.parametrize("rho", [0.0, 0.1])
def test_separable_classes_without_penalty_have_no_optimum(solver, rho):
    X, _ = labelled()
    y = np.where(X[:, 0] > 1.0, 1, -1)
    solution = solve(X, y, rho=rho, solver=solver, max_iter=500)
    assert solution.ending is Ending.SEPARABLE
    assert not solution.converged
    assert "Use l2 > 0" in solution.status
    assert (y * (X @ solution.coef + solution.intercept) >= 0.1).all()
    assert solution.gap == pytest.approx(solution.value)  # the infimum is 0
    with pytest.warns(ConvergenceWarning, match="classes are separable and l2 is 0"):
        clf = RobustClassifier(rho, l2=0, solver=solver, max_iter=500).fit(X, y)
    assert not clf.converged_
    penalised = solve(X, y, rho=rho, l2=1e-3, solver=solver, max_iter=500)
    assert penalised.ending is Ending.CONVERGED


def test_separable_classes_of_other_losses_and_weights():
    X, _ = labelled()
    y = np.where(X[:, 0] > 1.0, 1, -1)
    hinge = solve(X, y, loss="squared-hinge", max_iter=500)  # its optimum is 0, and reached
    assert hinge.ending is Ending.CONVERGED
    assert hinge.value <= 1e-9
    y[:3] = -y[:3]
    assert solve(X, y, max_iter=500).ending is not Ending.SEPARABLE
    weight = np.ones(y.size)
    weight[:3] = 0.0  # rows without weight do not count
    assert solve(X, y, sample_weight=weight, max_iter=500).ending is Ending.SEPARABLE
    three = np.digitize(X[:, 0], [0.0, 2.0])
    wide = np.column_stack([X[:, 0], X[:, 0] ** 2])
    ending = solve(wide, three, loss="multinomial", max_iter=2000).ending
    assert ending is Ending.SEPARABLE


@pytest.mark.parametrize("solver", ["lbfgs", "newton", "exact"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_small_gap_at_the_last_iteration_is_convergence(loss, solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 8))
    y = X @ np.ones(8) + rng.standard_normal(400)
    for steps in range(1, 12):
        solution = solve(
            X, y if loss == "squared" else y > 0, loss=loss, l2=0.01, solver=solver,
            max_iter=steps, tol=1e-4,
        )  # fmt: skip
        assert solution.converged == (solution.gap <= 1e-4 * solution.value)
