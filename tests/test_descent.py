"""The loop of all stochastic solvers: its steps, accuracy, random numbers and step sizes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import (
    FSG,
    GSSG,
    PSSG,
    SGD,
    Constant,
    Decay,
    Ending,
    Fixed,
    Full,
    Growing,
    Multilevel,
    solve,
    worst_case,
)
from drolearn._inner.groups import Groups
from tests.examples import STOCHASTIC, labelled, stochastic

# -- against NumPy -------------------------------------------------------------------------------

STEP = Decay(0.5, 20.0)
#: A solver, the draws it makes of 60 rows, and its bound on corrections.
METHODS = {
    "multilevel": (
        GSSG(3, tame=False, fire=1.0, step_size=STEP),
        Multilevel(60, batch_size=3),
        math.inf,
    ),
    "tamed": (
        GSSG(3, fire=1.0, step_size=STEP),
        Multilevel(60, batch_size=3, warm=2000),
        1.0,
    ),
    "fixed": (SGD(5, step_size=STEP), Fixed(60, 5), math.inf),
    "growing": (
        PSSG(5, rate=1.05, average=True, step_size=STEP),
        Growing(60, 5, rate=1.05),
        math.inf,
    ),
    "full": (FSG(average=True, step_size=STEP), Full(60), math.inf),
}
PASSES = 40


def sixty_rows(weighted: bool):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 7)) * (rng.random((60, 7)) < 0.6)
    X = X.astype(np.float32).astype(np.float64)
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(60) > 0, 1.0, -1.0)
    base = rng.exponential(size=60) * (rng.random(60) < 0.8) if weighted else None
    return X, y, base


#: Groups of 42, 15, 2 and 1 rows.
SIXTY_GROUPS = np.random.default_rng(4).permutation(np.repeat([0, 1, 2, 3], [42, 15, 2, 1]))


@lru_cache
def reference(name: str, weighted: bool, l2: float, seed: int, grouped: bool = False):
    """The last iterate and the average after `PASSES` passes, as the mathematics defines them."""
    _, method, clip = METHODS[name]
    X, y, base = sixty_rows(weighted)
    if grouped:
        method = replace(method, groups=Groups.make(SIXTY_GROUPS, base))
    rng, n = np.random.default_rng(seed), X.shape[0]
    A = np.column_stack([X, np.ones(n)])
    theta, total, weight, norm = np.zeros(A.shape[1]), np.zeros(A.shape[1]), 0.0, 0.0
    penalty = np.append(np.full(X.shape[1], l2), 0.0)

    def gradients(draw, at):
        """Of the base block and of the correction."""
        rows = draw.indices
        margin = y[rows] * (A[rows] @ at)
        z, slope = np.logaddexp(0.0, -margin), -y[rows] / (1.0 + np.exp(margin))
        if base is None:
            u = draw.weights(z) * slope
        elif base[rows].any():
            u = draw.weights(z, "chi2", base[rows]) * slope
        else:
            u = np.zeros(rows.size)
        parts = slice(draw.batch_size), slice(draw.batch_size, None)
        return [A[rows[part]].T @ u[part] for part in parts]

    drawn = step = 0
    while drawn < PASSES * n:
        gamma = float(STEP(np.array(step)))
        draw = method.draw(rng, step)
        first, more = gradients(draw, theta)
        if step < 100 or step % 8 == 0:
            norm += (np.linalg.norm(first) - norm) / min(step + 1, 100)
        bound = clip * norm * math.sqrt(1 + step / 100)
        extra = np.linalg.norm(more)
        more = more * (bound / extra if extra > bound else 1.0)
        theta = (theta - gamma * (first + more)) / (1 + gamma * penalty)
        total, weight = total + gamma * theta, weight + gamma
        drawn, step = drawn + draw.indices.size, step + 1
    assert step <= 1024  # later iterates would have more weight in the average
    return theta, total / weight


@pytest.mark.parametrize("form", ["C", "F", "float32", "csr"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weighted", [False, True])
def test_iterates_equal_those_of_numpy(form, method, weighted):
    X, y, base = sixty_rows(weighted)
    data = {
        "C": X,
        "F": np.asfortranarray(X),
        "float32": X.astype(np.float32),
        "csr": sp.csr_matrix(X),
    }[form]
    solution = solve(
        data, y, l2=0.03, sample_weight=base, solver=METHODS[method][0], max_iter=PASSES, tol=None,
        random_state=7,
    )  # fmt: skip
    theta, average = reference(method, weighted, 0.03, 7)
    np.testing.assert_allclose(solution.state.theta[0], theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(solution.state.averaged[0], average, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", ["C", "csr"])
@pytest.mark.parametrize("method", ["multilevel", "tamed", "fixed", "full"])
@pytest.mark.parametrize("weighted", [False, True])
def test_iterates_over_groups_equal_those_of_numpy(form, method, weighted):
    X, y, base = sixty_rows(weighted)
    solution = solve(
        X if form == "C" else sp.csr_matrix(X), y, l2=0.03, sample_weight=base,
        groups=SIXTY_GROUPS, solver=METHODS[method][0], max_iter=PASSES, tol=None, random_state=7,
    )  # fmt: skip
    theta, average = reference(method, weighted, 0.03, 7, grouped=True)
    np.testing.assert_allclose(solution.state.theta[0], theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(solution.state.averaged[0], average, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("solver", STOCHASTIC)
def test_dense_and_sparse_data_give_the_same_iterates(solver, l2):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((500, 6)) * (rng.random((500, 6)) < 0.5)
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(500) > 0, 1, -1)
    settings = {
        "solver": stochastic(solver, step_size=0.05),
        "random_state": 0,
        "tol": None,
        "max_iter": 5,
    }
    dense = solve(X, y, l2=l2, **settings)
    sparse = solve(sp.csr_matrix(X), y, l2=l2, **settings)
    np.testing.assert_allclose(sparse.state.theta, dense.state.theta, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(sparse.state.averaged, dense.state.averaged, rtol=1e-8, atol=1e-12)


def test_averages_of_sparse_models_stay_accurate_when_the_penalty_shrinks_them_fast():
    # In a thousand steps the penalty alone shrinks coefficients by a factor of 1e-40 and more: the
    # running sums must not lose the digits of the average.
    rng = np.random.default_rng(5)
    X = rng.standard_normal((500, 6)) * (rng.random((500, 6)) < 0.5)
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(500) > 0, 1, -1)
    settings = {
        "solver": GSSG(batch_size=8, step_size=0.1),
        "random_state": 0,
        "tol": None,
        "max_iter": 60,
    }
    dense = solve(X, y, l2=1.0, **settings)
    sparse = solve(sp.csr_matrix(X), y, l2=1.0, **settings)
    assert dense.state.tally.step > 1000
    np.testing.assert_allclose(sparse.state.theta, dense.state.theta, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(sparse.state.averaged, dense.state.averaged, rtol=1e-8, atol=1e-12)


# -- accuracy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", STOCHASTIC)
def test_stochastic_solvers_come_within_two_percent(solver):
    X, y = labelled(3000, 8)
    best = solve(X, y, rho=0.5, tol=1e-10).value
    solution = solve(X, y, rho=0.5, solver=solver, max_iter=100, tol=None, random_state=0)
    assert best * (1 - 1e-9) <= solution.value <= best * 1.02
    assert solution.converged
    assert solution.passes == pytest.approx(100, rel=0.05)
    assert solution.history.samples == sorted(solution.history.samples)


def test_anchors_reach_accuracies_that_plain_draws_do_not():
    X, y = labelled(4000, 4, flips=0.2)
    best = solve(X, y, rho=0.1, tol=1e-13, max_iter=500).value
    gaps = {}
    for solver in ("gssg", "gssg-anchor"):
        solution = solve(X, y, solver=solver, max_iter=150, tol=None, random_state=0)
        gaps[solver] = solution.value / best - 1
    assert gaps["gssg-anchor"] < 1e-9
    assert gaps["gssg"] > 1e-7


def test_anchors_do_not_stop_while_steps_are_being_halved():
    X, y = labelled(1000)
    weights = (np.random.default_rng(1).random(1000) < 0.05) * 1.0
    best = solve(X, y, l2=0.1, sample_weight=weights).value
    solution = solve(
        X, y, l2=0.1, sample_weight=weights, solver="gssg-anchor", random_state=0, max_iter=500
    )
    assert solution.value <= best * 1.01 or not solution.converged


def test_multilevel_draws_have_less_bias_than_fixed_batches():
    X, y = labelled(4000, 4, flips=0.1)
    best = solve(X, y, rho=0.1, divergence="kl", tol=1e-10).value
    gaps = []
    for method in (GSSG(batch_size=8, fire=1.0), SGD(batch_size=8)):
        solution = solve(
            X, y, rho=0.1, divergence="kl", solver=method, max_iter=500, tol=None, random_state=0
        )
        gaps.append(solution.value / best - 1)
    assert gaps[0] < 0.25 * gaps[1]


@pytest.mark.parametrize("solver", STOCHASTIC)
@pytest.mark.parametrize("l2", [0.1, 10.0, 1e4])
def test_large_penalties(solver, l2):
    X, y = labelled(1000)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    best = solve(X, y, l2=l2, tol=1e-9).value
    solution = solve(X, y, l2=l2, solver=solver, random_state=0, max_iter=200)
    assert solution.value <= best * 1.005, solution.status


def test_periodic_rows_do_not_mislead_the_choice_of_the_best_iterate():
    """The robust loss is watched on a subsample, which must not follow the period of the rows."""
    rng, n = np.random.default_rng(0), 65_536
    y = (np.arange(n) % 4 == 0) * 1
    X = rng.standard_normal((n, 5)) + 0.5 * y[:, None]
    best = solve(X, y).value
    for solver in ("gssg", "sgd"):
        assert solve(X, y, solver=solver, max_iter=10, random_state=0).value <= best * 1.01


def test_settings_of_the_paper():
    """One row per batch, no taming, inflated radii, step sizes 5000/(5000 + t), random start."""
    X, y = labelled(1000)
    best = solve(X, y, solver="exact", tol=1e-9).value
    plain = GSSG(1, fire=1.0, inflation=1.0, tame=False, average=True, step_size=Decay())
    start = np.random.default_rng(0).uniform(-1, 1, 6)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    solution = solve(scaled, y, solver=plain, start=start, max_iter=300, tol=None, random_state=0)
    assert solution.value < 1.15 * best


def test_level_probabilities_can_be_tuned():
    X, y = labelled(4000)
    solver = GSSG(batch_size=16, r="auto", fire=1.0)
    solution = solve(X, y, solver=solver, random_state=0, max_iter=50, tol=None)
    assert len(solution.state.probabilities) == Multilevel(4000, batch_size=16).sizes.size - 1
    assert 0.0 < sum(solution.state.probabilities) <= 1.0


# -- random numbers and threads ------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads():
    X, y = labelled(30_000, 12)
    for solver in ("gssg-anchor", "gssg", "exact"):
        results = [
            solve(X, y, solver=solver, random_state=3, max_iter=4, n_jobs=n_jobs, tol=None)
            for n_jobs in (None, 2, 3)
        ]
        for other in results[1:]:
            np.testing.assert_array_equal(results[0].coef, other.coef)
            assert results[0].value == other.value


def test_generators_of_all_kinds():
    X, y = labelled(200)
    a = solve(X, y, solver="gssg", random_state=np.random.RandomState(1), max_iter=5)
    b = solve(X, y, solver="gssg", random_state=np.random.RandomState(1), max_iter=5)
    np.testing.assert_array_equal(a.coef, b.coef)
    rng = np.random.Generator(np.random.Philox(1))
    solve(X, y, solver="gssg", random_state=rng, max_iter=5)
    assert rng.random() != np.random.Generator(np.random.Philox(1)).random()  # it has advanced
    for wrong in (-1, 1.5, "a"):
        with pytest.raises(ValueError, match="The 'random_state' parameter"):
            solve(X, y, solver="gssg", random_state=wrong)


# -- step sizes ----------------------------------------------------------------------------------


def test_schedules():
    t = np.array([0.0, 5000.0])
    assert Decay()(t).tolist() == [1.0, 0.5]
    assert Constant(0.3)(t).tolist() == [0.3, 0.3]


@pytest.mark.parametrize("step", [lambda t: -t, lambda t: np.ones((2, 2)), lambda t: None])
def test_step_functions_are_checked(step):
    X, y = labelled(100)
    with pytest.raises(ValueError, match="'step_size' setting must be a function"):
        solve(X, y, solver=SGD(step_size=step))
    assert solve(X, y, solver=SGD(step_size=lambda t: 1e-3), max_iter=5).value < 10.0


@pytest.mark.parametrize("sparse", [False, True])
def test_divergence_is_reported_and_the_best_model_kept(sparse):
    X, y = labelled(500)
    data = sp.csr_matrix(X) if sparse else X
    solution = solve(
        data, y - 0.5, loss="squared", solver=SGD(step_size=1e4), max_iter=50, random_state=0
    )
    assert solution.ending is Ending.DIVERGED
    assert not solution.converged
    assert np.isfinite(solution.coef).all()
    assert solution.value <= worst_case(0.5 * (y - 0.5) ** 2).value + 1e-12


def test_every_call_of_the_core_draws_whole_numbers_of_rows():
    """With 104 columns a call draws 2e7/104 = 192,307.7 rows, which must be rounded up."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 104)).astype(np.float32)
    y = np.where(X[:, 0] + rng.standard_normal(2000) > 0, 1, -1)
    solution = solve(X, y, solver=SGD(batch_size=16), max_iter=1300, tol=None, random_state=0)
    assert solution.passes >= 1300
