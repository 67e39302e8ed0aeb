"""Robust regret: losses minus those of a reference model, in `solve`."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import GSSG, SGD, Ending, Exact, solve, worst_case
from drolearn.loss import as_loss
from tests.examples import labelled

EXACT = ["exact", "lbfgs", "newton"]
LOSSES = ["logistic", "squared-hinge", "smoothed-hinge", "squared", "huber", "multinomial"]
DIVERGENCES = ["chi2", "kl", "hellinger", "reverse-kl"]


def noisy(n=2000, loss="logistic"):
    """Rows, labels, and the losses of the model that made the labels, which is not linear."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5))
    score = 2.0 * X[:, 0] * (X[:, 1] > 0) + X[:, 2]
    if as_loss(loss).of == "residual":
        y = score + rng.standard_normal(n) * (1.0 + (X[:, 3] > 1))
        return X, y, as_loss(loss).of_scores(score, y)[0]
    if loss == "multinomial":
        scores = np.column_stack([score, np.zeros(n), -score])
        y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(np.float64)
        return X, y, as_loss(loss).of_scores(scores.ravel(), y)[0]
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-score)), 1.0, -1.0)
    return X, y, as_loss(loss).of_scores(score, y)[0]


# -- what is minimised ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rho", [0.0, 0.3, 2.0])
def test_a_constant_reference_changes_the_value_only(loss, rho):
    X, y, _ = noisy(500, loss)
    plain = solve(X, y, loss=loss, rho=rho, l2=0.01, tol=1e-9, max_iter=500)
    moved = solve(
        X, y, loss=loss, rho=rho, l2=0.01, tol=1e-9, max_iter=500, reference_losses=np.full(500, 3)
    )
    assert moved.value == pytest.approx(plain.value - 3.0, abs=1e-7)
    np.testing.assert_allclose(moved.theta, plain.theta, atol=1e-3)


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("loss", LOSSES[:-1])
def test_the_plain_model_as_reference_is_optimal_in_every_ball(loss, divergence, solver):
    """No model has a smaller mean loss, so the smallest regret is 0, to which no tolerance is
    relative.
    """
    X, y, _ = noisy(500, loss)
    plain = solve(X, y, loss=loss, rho=0.0, tol=1e-12, max_iter=500)
    problem = {"loss": loss, "divergence": divergence, "rho": 0.2, "solver": solver}
    reference = as_loss(loss).of_scores(X @ plain.coef + plain.intercept, y)[0]
    solution = solve(X, y, **problem, reference_losses=reference)
    assert solution.converged, solution.status
    assert -1e-9 <= solution.value <= 1e-5
    assert solution.gap <= 1e-5 * plain.value
    better = solve(X, y, **problem, reference_losses=reference + 1.0)
    assert better.converged
    assert better.value == pytest.approx(-1.0, abs=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("rho", [0.1, 0.3])
def test_gaps_bound_the_distance_to_the_optimum(loss, divergence, rho):
    X, y, reference = noisy(600, loss)
    solution = solve(X, y, loss=loss, divergence=divergence, rho=rho, reference_losses=reference)
    assert solution.converged, solution.status
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-3, 1e-2, 0.1):
        theta = solution.theta * (1.0 + size * rng.standard_normal(solution.theta.shape))
        scores = np.ascontiguousarray(X @ theta[:, :-1].T + theta[:, -1])
        z = as_loss(loss).of_scores(scores.ravel(), y)[0]
        value = worst_case(z - reference, rho, divergence).value
        assert value >= solution.value - solution.gap - 1e-12


@pytest.mark.parametrize("rho", [0.3, 1.0, 5.0])
def test_noise_that_no_model_avoids_does_not_lead_to_the_zero_model(rho):
    """Without a reference these balls hold the weights that leave nothing to learn."""
    X, y, reference = noisy(4000)
    zero = solve(X, y, rho=rho, l2=1 / 4000)
    assert zero.ending is Ending.ZERO_MODEL
    plain = solve(X, y, rho=0.0, l2=1 / 4000)
    solution = solve(X, y, rho=rho, l2=1 / 4000, reference_losses=reference)
    assert solution.converged
    assert np.linalg.norm(solution.coef) > 0.2 * np.linalg.norm(plain.coef)


def test_values_increase_with_the_radius():
    X, y, reference = noisy()
    values = [
        solve(X, y, rho=rho, l2=1e-3, reference_losses=reference).value
        for rho in (0.0, 0.01, 0.1, 1.0, 5.0)
    ]
    assert all(small < large for small, large in pairwise(values))


# -- weights, groups, storage of the data --------------------------------------------------------


@pytest.mark.parametrize("solver", EXACT)
def test_a_weight_of_two_is_the_same_as_two_rows(solver):
    X, y, reference = noisy(400)
    weights = np.random.default_rng(1).integers(0, 3, 400)
    rows = np.repeat(np.arange(400), weights)
    settings = {"rho": 0.5, "l2": 0.01, "solver": solver, "tol": 1e-10, "max_iter": 500}
    weighted = solve(X, y, sample_weight=weights, reference_losses=reference, **settings)
    repeated = solve(X[rows], y[rows], reference_losses=reference[rows], **settings)
    assert weighted.value == pytest.approx(repeated.value, abs=1e-9)


@pytest.mark.parametrize("form", [sp.csr_matrix, lambda X: X.astype(np.float32)])
def test_sparse_and_single_precision_data(form):
    X, y, reference = noisy(500)
    X = np.round(4.0 * X) * (np.random.default_rng(0).random(X.shape) < 0.5)
    expected = solve(X, y, rho=0.5, l2=0.01, tol=1e-9, reference_losses=reference)
    found = solve(form(X), y, rho=0.5, l2=0.01, tol=1e-9, reference_losses=reference)
    assert found.value == pytest.approx(expected.value, abs=1e-8)


def test_only_mean_losses_of_the_reference_matter_to_groups():
    X, y, reference = noisy()
    g = np.random.default_rng(0).integers(0, 4, y.size)
    means = np.bincount(g, reference) / np.bincount(g)
    of_rows = solve(X, y, rho=0.5, groups=g, reference_losses=reference)
    of_groups = solve(X, y, rho=0.5, groups=g, reference_losses=means[g])
    assert of_rows.converged
    assert of_groups.converged
    assert of_rows.value == pytest.approx(of_groups.value, abs=2e-6)


def test_groups_that_overlap():
    X, y, reference = noisy(600)
    g = np.random.default_rng(0).random((600, 3)) < 0.6
    solution = solve(X, y, rho=math.inf, groups=g, reference_losses=reference, l2=1e-3)
    assert solution.converged, solution.status
    z = as_loss("logistic").of_scores(X @ solution.coef + solution.intercept, y)[0] - reference
    groups = [z[g[:, k]].mean() for k in range(3)] + [z[~g.any(axis=1)].mean()]
    assert solution.worst.value == pytest.approx(max(groups), abs=1e-9)


def test_many_rows_start_from_a_subsample():
    X, y, reference = noisy(40_000)
    solution = solve(X, y, rho=1.0, reference_losses=reference, solver="exact")
    lbfgs = solve(X, y, rho=1.0, reference_losses=reference, solver="lbfgs", start=np.ones(6))
    assert solution.converged
    assert lbfgs.converged
    assert solution.value == pytest.approx(lbfgs.value, abs=2e-6)


def test_separable_classes_have_the_infimum_at_infinity():
    X, _ = labelled(300)
    reference = np.random.default_rng(0).exponential(size=300)
    solution = solve(X, X[:, 0] > 0.0, rho=0.5, reference_losses=reference)
    assert solution.ending is Ending.SEPARABLE
    infimum = worst_case(-reference, 0.5).value
    assert infimum < solution.value
    assert solution.gap == pytest.approx(solution.value - infimum, abs=1e-12)


# -- stochastic solvers --------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "sparse", "three classes", "weighted", "squared"])
@pytest.mark.parametrize(
    ("solver", "passes", "share"),
    [
        ("gssg-anchor", 60, 1e-4),
        ("gssg", 60, 5e-3),
        (GSSG(r="auto"), 60, 5e-3),
        ("pssg", 200, 1e-2),
        ("fsg", 500, 1e-2),
        (SGD(256), 60, 1e-2),
    ],
    ids=str,
)
def test_stochastic_solvers_reach_the_optimum(solver, passes, share, form):
    loss = {"three classes": "multinomial", "squared": "squared"}.get(form, "logistic")
    X, y, reference = noisy(2000, loss)
    if form == "sparse":
        X = sp.csr_matrix(X * (np.random.default_rng(0).random(X.shape) < 0.5))
    settings = {"rho": 0.5, "l2": 0.01, "loss": loss, "reference_losses": reference}
    if form == "weighted":
        settings["sample_weight"] = np.random.default_rng(0).exponential(size=2000)
    best = solve(X, y, solver="exact", **settings)
    zero = as_loss(loss).of_scores(np.zeros(2000 * (3 if loss == "multinomial" else 1)), y)[0]
    run = {"solver": solver, "max_iter": passes, "tol": None, "random_state": 0}
    found = solve(X, y, **run, **settings)
    assert best.value - best.gap <= found.value <= best.value + share * zero.mean()
    again = solve(X, y, **run, **settings)
    np.testing.assert_array_equal(found.theta, again.theta)


@pytest.mark.parametrize("solver", ["gssg", "gssg-anchor", "fsg", "sgd"])
def test_stochastic_solvers_with_groups(solver):
    X, y, reference = noisy()
    g = (X[:, 0] > 0) + 2 * (X[:, 3] > 1.0)
    settings = {"rho": 0.5, "l2": 0.01, "groups": g, "reference_losses": reference}
    best = solve(X, y, solver="exact", **settings)
    found = solve(X, y, solver=solver, max_iter=100, tol=None, random_state=0, **settings)
    assert best.value - best.gap <= found.value <= best.value + 0.01


@pytest.mark.parametrize("solver", ["gssg", "fsg"])
def test_a_stochastic_solver_ends_at_a_regret_of_zero(solver):
    """The improvement of a pass is compared with the loss, not with a regret of about 0."""
    X, y, _ = noisy()
    plain = solve(X, y, rho=0.0, tol=1e-12, l2=0.01)
    reference = as_loss("logistic").of_scores(X @ plain.coef + plain.intercept, y)[0]
    solution = solve(
        X, y, rho=0.2, l2=0.01, solver=solver, max_iter=2000, tol=1e-4, random_state=0,
        reference_losses=reference,
    )  # fmt: skip
    assert solution.ending is Ending.CONVERGED


# -- checkpoints and errors ----------------------------------------------------------------------


@pytest.mark.parametrize("solver", [Exact, GSSG])
def test_a_checkpoint_belongs_to_one_reference(tmp_path, solver):
    X, y, reference = noisy(300)
    for losses in (None, reference, 2.0 * reference):
        solve(
            X, y, reference_losses=losses, solver=solver(checkpoint=tmp_path), random_state=0,
            max_iter=5, tol=None,
        )  # fmt: skip
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (np.zeros(3), "must have one loss for each of the 300 rows. Got 3 instead"),
        (np.r_[np.zeros(299), math.nan], "must hold finite numbers. Got nan in row 299"),
        (np.r_[math.inf, np.zeros(299)], "must hold finite numbers. Got inf in row 0"),
        (np.zeros((300, 2)), "must be one-dimensional"),
        (["a"] * 300, "must hold real numbers"),
    ],
)
def test_wrong_reference_losses(losses, message):
    X, y, _ = noisy(300)
    with pytest.raises(ValueError, match=f"The 'reference_losses' parameter {message}"):
        solve(X, y, reference_losses=losses)


def test_a_ball_of_all_weights_is_told():
    X, y, reference = noisy(300)
    with pytest.warns(UserWarning, match="the robust regret is the largest single regret"):
        solve(X, y, rho=1e3, reference_losses=reference, l2=0.1)
