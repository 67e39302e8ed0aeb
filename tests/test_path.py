"""Exact solves along a path of radii and penalties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from drolearn._solvers.inputs import as_problem
from drolearn._solvers.path import Path, Start
from drolearn._solvers.solve import run, run_next
from tests.examples import labelled


def _problem(X, y, rho, l2, **options):
    return as_problem(
        X, y, rho=rho, l2=l2, fit_intercept=True, sample_weight=None, n_jobs=None,
        **{"divergence": "chi2", "loss": "logistic", "groups": None, **options},
    )  # fmt: skip


@pytest.mark.parametrize("divergence", ["chi2", "kl", "jensen-shannon"])
@pytest.mark.parametrize("flips", [0.05, 0.3, 0.45])
def test_every_point_of_a_path_is_accurate(divergence, flips):
    """Also after balls in which the zero model is optimal, where the robust Hessian explodes."""
    X, y = labelled(n=500, flips=flips)
    path, previous = Path(), {}
    first = _problem(X, y, 0.0, 1.0)
    for l2 in (10.0, 0.1, 1e-3, 1e-6):
        start = None
        for k, rho in enumerate((0.0, 0.01, 0.1, 0.3, 1.0)):
            problem = _problem(X, y, rho, l2, divergence=divergence)
            starts = [one for one in (start, previous.get(k)) if one is not None]
            solution, start = run_next(path, problem, k, starts, max_iter=300, tol=1e-4)
            previous[k] = start
            best = run(
                problem, problem.zeros(), solver="exact", max_iter=500, tol=1e-8,
                random_state=None, watch=None,
            )  # fmt: skip
            assert solution.converged
            assert solution.value <= best.value + 1e-4 * first.loss_scale(best.value), (rho, l2)
            np.testing.assert_allclose(start.scores, problem.scores(start.theta), rtol=1e-9)


def test_the_best_start_is_used():
    X, y = labelled(n=500)
    problem = _problem(X, y, 0.1, 1e-3)
    good, _ = run_next(Path(), problem, 0, [], max_iter=300, tol=1e-10)
    bad = Start(10.0 * np.ones_like(good.theta))
    again, _ = run_next(Path(), problem, 0, [bad, Start(good.theta)], max_iter=300, tol=1e-4)
    assert again.passes <= 1.0
    np.testing.assert_allclose(again.theta, good.theta, rtol=1e-9)


def test_paths_over_groups_and_squares():
    X, y = labelled(n=500)
    path = Path()
    for k, rho in enumerate((0.0, 0.1)):
        problem = _problem(X, X[:, 0] + y, rho, 1e-3, loss="squared", groups=y > 0)
        found, _ = run_next(path, problem, k, [], max_iter=300, tol=1e-6)
        best = run(
            problem, problem.zeros(), solver="exact", max_iter=500, tol=1e-9,
            random_state=None, watch=None,
        )  # fmt: skip
        assert found.value == pytest.approx(best.value, rel=1e-5)
        assert math.isfinite(found.value)


def _labels(rng, scores):
    """Classes drawn with the probabilities of a softmax."""
    return (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(float)


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse", "wide"])
def test_paths_of_several_classes_are_accurate(kind, separable):
    """Also with more columns than a Hessian may have, and where the curvature tends to zero."""
    rng = np.random.default_rng(1)
    n, d = (150, 2500) if kind == "wide" else (200, 6)
    X = rng.standard_normal((n, d)) * (1.0 if kind == "dense" else rng.random((n, d)) < 0.2)
    scores = 2.0 * X[:, :3]
    y = scores.argmax(axis=1).astype(float) if separable else _labels(rng, scores)
    rows = X if kind == "dense" else csr_matrix(X)
    path, models = Path(), []
    for l2 in (1.0, 0.1, 1e-2, 1e-3, 1e-4):
        models.append([])
        for k, rho in enumerate((0.0, 0.03, 0.3)):
            problem = _problem(rows, y, rho, l2, loss="multinomial")
            assert Path.suits(problem)
            assert Path.forms_hessians(problem) is (kind != "wide")
            near = [row[k] for row in models[-2:] if len(row) > k]
            solution, start = run_next(path, problem, k, near, max_iter=500, tol=1e-4)
            models[-1].append(start)
            best = run(
                problem, problem.zeros(), solver="exact", max_iter=2000, tol=1e-7,
                random_state=None, watch=None,
            )  # fmt: skip
            # Without Hessians a solution next to a corner may be less accurate, and says so.
            assert solution.converged or (kind == "wide" and rho > 0.0)
            allowed = (1e-4 if solution.converged else 1e-3) * problem.loss_scale(best.value)
            assert solution.value <= best.value + allowed, (rho, l2)


def test_starts_are_extrapolated_linearly():
    rng = np.random.default_rng(0)
    X, y = labelled(n=50)
    problem = _problem(X, y, 0.0, 1.0)
    theta = rng.standard_normal((3, *problem.zeros().shape))
    first, second, third = (Start(one, problem.scores(one)) for one in theta)
    moved = first.moved(second, third)
    np.testing.assert_allclose(moved.theta, theta[0] + theta[1] - theta[2])
    np.testing.assert_allclose(moved.scores, problem.scores(moved.theta))
    assert first.moved(Start(theta[1]), third).scores is None
