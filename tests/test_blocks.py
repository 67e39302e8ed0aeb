"""Passes over blocks in one process: worst cases and exact solves from sums over the blocks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

from drolearn import CVaR, worst_case
from drolearn._blocks import LocalBlocks, Pass, partial_totals, total_of
from drolearn._inner.block_search import LossBlock, Search, maximise, weights_of
from drolearn._inner.groups import Groups
from drolearn._solvers.block_problem import BlockProblem, Facts
from drolearn._solvers.block_rows import RowBlock
from drolearn._solvers.directions import ROBUST, Goal, point_at, robust_hessian
from drolearn._solvers.ending import Ending
from drolearn._solvers.exact import minimise
from drolearn._solvers.inputs import make_problem
from drolearn._solvers.radius import radius_that_learns
from drolearn._solvers.zero_model import smallest_ball
from drolearn.divergence import as_divergence
from drolearn.loss import as_loss
from tests.examples import ALL, CUSTOM_BENT, name


@given(st.integers(1, 40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_totals_do_not_depend_on_who_adds_up_what(blocks, workers, random):
    """The order of additions is fixed: with an addition that writes it down, it is the same."""

    def add(first, second):
        return f"({first}+{second})"

    results = {k: f"{k}" for k in range(blocks)}
    whole = total_of(partial_totals(results, add), add)
    owner = [random.randrange(workers) for _ in range(blocks)]
    nodes = {}
    for worker in range(workers):
        held = {k: result for k, result in results.items() if owner[k] == worker}
        nodes.update(partial_totals(held, add))
    assert total_of(nodes, add) == whole
    assert whole.replace("(", "").replace(")", "") == "+".join(map(str, range(blocks)))
    # Neighbours that are added by one worker travel as one result.
    together = partial_totals(results, add)
    assert len(together) == bin(blocks).count("1")


def test_blocks_without_a_result_add_nothing():
    results = {0: None, 1: 2.0, 2: None, 3: None, 4: 3.0}
    total = total_of(partial_totals(results, float.__add__), float.__add__)
    assert total == 5.0
    assert total_of({(0, 0): None}, float.__add__) is None


@dataclass(frozen=True)
class _Length(Pass):
    def of(self, block):
        return len(block)

    def add(self, first, second):
        return first + second


def test_threads_do_not_change_the_result():
    blocks = ["a" * k for k in range(20)]
    for threads in (1, 3):
        engine = LocalBlocks(blocks, threads)
        assert engine.run(_Length()) == 190
        assert engine.rounds == 1


# -- worst cases -------------------------------------------------------------------------------


def loss_blocks(z, b, edges):
    parts = itertools.pairwise([0, *edges, z.size])
    return [LossBlock(z[i:j], None if b is None else b[i:j], i) for i, j in parts]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("divergence", [d for d in ALL if d is not CUSTOM_BENT], ids=name)
def test_the_worst_case_is_that_of_one_machine(divergence, weighted):
    """For any partitioning, with blocks that are empty or have one loss."""
    rng = np.random.default_rng(0)
    z = rng.exponential(size=70_000)
    b = rng.exponential(size=z.size) if weighted else None
    expected = worst_case(z, None if divergence.name == "cvar" else 0.3, divergence, b)
    for edges in ([], [0, 1, 1, 5000, 69_999]):
        blocks = loss_blocks(z, b, edges)
        found = maximise(LocalBlocks(blocks), divergence, expected.rho, z.size)
        assert found.worst.value == pytest.approx(expected.value, rel=1e-12)
        # Custom divergences are solved less accurately.
        exact = divergence.family != "custom"
        p = np.concatenate(
            [weights_of(divergence, found.state, block) for block in blocks if block.z.size]
        )
        assert abs(p - expected.weights).max() <= (1e-11 if exact else 1e-8) * p.max()


def test_a_search_starts_where_the_last_one_ended():
    """Close to the optimum, one sweep finds the multipliers and one writes the weights."""
    z = np.random.default_rng(0).exponential(size=70_000)
    search = Search(as_divergence("chi2"), 0.1, z.size)
    for shift in (0.0, 1e-6, 2e-6):
        moved = z + shift * np.sin(z)
        engine = LocalBlocks(loss_blocks(moved, None, [40_000]))
        found = maximise(engine, search.divergence, 0.1, z.size, search)
        assert found.worst.value == pytest.approx(worst_case(moved, 0.1).value, rel=1e-12)
    assert engine.rounds == 3


def test_losses_that_are_not_finite_have_no_worst_case():
    z = np.array([1.0, np.nan, 2.0, np.inf])
    for part in (z[:2], z[2:]):
        blocks = loss_blocks(np.append(np.ones(3), part), None, [3])
        assert maximise(LocalBlocks(blocks), as_divergence("kl"), 0.1, 5) is None


# -- exact solves ------------------------------------------------------------------------------


def in_blocks(X, y, weights, edges, *, groups=None, reference=None, **settings):
    """The problem on all rows, and the same on blocks."""
    whole = make_problem(X, y, weights, groups, n_jobs=None, reference=reference, **settings)
    parts = itertools.pairwise([0, *edges, y.size])
    b = np.ones(y.size) if weights is None else weights
    totals = None
    if groups is not None:
        totals = b @ groups if groups.ndim == 2 else np.bincount(groups, b)
    if groups is not None and groups.ndim == 2:
        weights = whole.weights
    blocks = []
    for i, j in parts:
        w = None if weights is None else weights[i:j]
        c = None if reference is None else reference[i:j]
        part = make_problem(X[i:j], y[i:j], w, None, n_jobs=None, reference=c, **settings)
        if totals is not None:
            part = replace(part, groups=Groups.part_of(groups[i:j], b[i:j], totals))
        blocks.append(RowBlock(replace(part, m=whole.m), i))
    b = np.ones(y.size) if weights is None else weights
    counts = None
    if groups is not None and groups.ndim == 1:
        counts = np.bincount(groups[b > 0.0], minlength=totals.size)
    facts = Facts(
        n=y.size, d=X.shape[1], sparse=sp.issparse(X), stored=X.size, mass=float(b.sum()),
        least=float(b[b > 0.0].min()), largest_y=float(abs(y).max()),
        y_mean=float(np.average(y, weights=b)), y_square=float(np.average(y * y, weights=b)),
    )  # fmt: skip
    same = {"loss": whole.loss, "divergence": whole.divergence, "rho": whole.rho, "m": whole.m}
    problem = BlockProblem(
        None, np.empty(0), blocks=LocalBlocks(blocks), facts=facts, l2=whole.l2,
        intercept=whole.intercept, reference=None if reference is None else np.empty(0),
        groups=None if totals is None else Groups(totals / totals.sum(), counts=counts), **same,
    )  # fmt: skip
    return whole, problem


def solved(problem, direction="exact", tol=1e-14):
    return minimise(
        problem, direction, problem.zeros(), tol=tol, max_iter=300, watch=lambda *_: False
    )


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6)) * [1.0, 10.0, 0.1, 1.0, 1.0, 1.0] + [0, 5, 0, 0, 0, 0]
    y = X[:, 0] + X[:, 2] + rng.standard_normal(3000)
    return X, y, rng.exponential(size=3000) * (rng.random(3000) < 0.8)


EDGES = [1, 3, 900, 2000, 2999]
CASES = {
    "logistic": ("logistic", "chi2", 0.2, False, False),
    "weights": ("logistic", "kl", 0.1, True, False),
    "squared": ("squared", "chi2", 0.5, True, False),
    "Huber, sparse": ("huber", "hellinger", 0.1, False, True),
    "three classes": ("multinomial", "chi2", 0.1, True, False),
    "the mean": ("logistic", "chi2", 0.0, True, True),
    "hinge": ("smoothed-hinge", "chi2", 0.1, False, False),
}


@pytest.mark.parametrize(
    ("case", "direction"),
    [(case, direction) for case in CASES for direction in ("lbfgs", "newton")
     if (case, direction) != ("three classes", "newton")],
)  # fmt: skip
def test_the_model_is_that_of_one_machine(rows, case, direction):
    loss, divergence, rho, weighted, sparse = CASES[case]
    X, y, weights = rows
    if loss == "multinomial":
        y = np.digitize(y, [-0.5, 0.7]).astype(float)
    elif as_loss(loss).of == "margin":
        y = np.where(y > 0.0, 1.0, -1.0)
    if sparse:
        X = sp.csr_matrix(np.where(abs(X) > 1.0, X, 0.0))
    settings = {
        "rho": rho, "divergence": as_divergence(divergence), "loss": as_loss(loss), "l2": 0.01,
        "fit_intercept": True,
    }  # fmt: skip
    whole, parted = in_blocks(X, y, weights if weighted else None, EDGES, **settings)
    one, many = solved(whole, direction), solved(parted, direction)
    assert many.value == pytest.approx(one.value, rel=1e-12)
    # The objective is flat at the optimum: L-BFGS ends at half of its digits, as does Newton's
    # method where l'' jumps.
    close = 1e-9 if direction == "newton" and loss != "huber" else 1e-6
    np.testing.assert_allclose(many.theta, one.theta, rtol=0.0, atol=close * abs(one.theta).max())
    assert many.gap <= 1e-9 * many.value
    # Other blocks are added up in another order only.
    again = solved(in_blocks(X, y, weights if weighted else None, [1500], **settings)[1], direction)
    assert again.value == pytest.approx(one.value, rel=1e-12)


GROUPS = {
    "chi2": ("logistic", "chi2", 0.3, False),
    "names and weights": ("squared", "kl", 0.1, True),
    "the worst group": ("logistic", "chi2", 100.0, False),
    "overlapping": ("logistic", "chi2", 0.3, True),
    "the mean": ("logistic", "chi2", 0.0, True),
    "total variation": ("logistic", "total-variation", 0.2, False),
    "CVaR": ("squared", CVaR(0.5), None, False),
    "three classes": ("multinomial", "chi2", 0.2, False),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups_have_the_weights_of_one_machine(rows, case):
    """Also where several weights are worst-case weights: those of the saddle point."""
    loss, divergence, rho, weighted = GROUPS[case]
    X, y, weights = rows
    if loss == "multinomial":
        y = np.digitize(y, [-0.5, 0.7]).astype(float)
    elif loss == "logistic":
        y = np.where(y > 0.0, 1.0, -1.0)
    groups = np.digitize(X[:, 3], [-1.0, 0.0, 1.5])
    if case == "overlapping":
        groups = np.column_stack([X[:, 3] > 0.0, X[:, 4] > 1.0, np.ones(y.size, dtype=bool)])
    settings = {
        "rho": rho, "divergence": as_divergence(divergence), "loss": as_loss(loss), "l2": 0.01,
        "fit_intercept": True, "groups": groups,
    }  # fmt: skip
    whole, parted = in_blocks(X, y, weights if weighted else None, EDGES, **settings)
    tol = 1e-6 if loss == "multinomial" or case == "the worst group" else 1e-12
    one, many = solved(whole, tol=tol), solved(parted, tol=tol)
    assert many.ending is one.ending
    assert many.value == pytest.approx(one.value, rel=max(1e-9, 2.0 * tol))
    if case != "the mean":
        close = 1e-3 if tol == 1e-6 else 1e-6
        np.testing.assert_allclose(many.at.shares, one.at.shares, atol=close)


@pytest.mark.parametrize("in_groups", [False, True])
@pytest.mark.parametrize("l2", [0.01, 0.0])
def test_regrets_are_those_of_one_machine(rows, l2, in_groups):
    """Also of classes that can be separated, without a penalty, where losses tend to 0."""
    X, y, weights = rows
    groups = np.digitize(X[:, 3], [-1.0, 0.0]) if in_groups else None
    score = X[:, 0] + (0.0 if l2 == 0.0 else 1.0) * (y - X[:, 0])
    reference = np.random.default_rng(1).exponential(size=y.size)
    y = np.where(score > 0.0, 1.0, -1.0)
    given = {**logistic("chi2", 0.5), "l2": l2, "groups": groups, "reference": reference}
    whole, parted = in_blocks(X, y, weights, EDGES, **given)
    one, many = solved(whole, tol=1e-9), solved(parted, tol=1e-9)
    assert many.ending is one.ending
    assert (one.ending is Ending.SEPARABLE) == (l2 == 0.0)
    # Without a minimum, values depend on the steps, which evaluations in one round change a little.
    assert many.value == pytest.approx(one.value, rel=1e-9 if l2 else 1e-6)
    assert parted.value_without_losses == pytest.approx(whole.value_without_losses, rel=1e-12)
    assert parted.loss_scale(0.0) == pytest.approx(whole.loss_scale(0.0), rel=1e-12)
    alone, expected = parted.without_reference(), whole.without_reference()
    theta = np.full((1, 7), 0.3)
    value = alone.evaluate(alone.scores(theta)).value
    assert value == pytest.approx(expected.evaluate(expected.scores(theta)).value, rel=1e-12)


def test_threads_over_blocks_give_the_same_bits(rows):
    X, y, weights = rows
    settings = {
        "rho": 0.1, "divergence": as_divergence("chi2"), "loss": as_loss("squared"), "l2": 0.01,
        "fit_intercept": True,
    }  # fmt: skip
    _, one = in_blocks(X, y, weights, EDGES, **settings)
    _, two = in_blocks(X, y, weights, EDGES, **settings)
    two.blocks.threads = 2
    first, second = solved(one), solved(two)
    assert first.theta.tobytes() == second.theta.tobytes()
    assert one.blocks.rounds == two.blocks.rounds


@pytest.mark.parametrize("classes", [2, 3])
def test_zero_models_are_found_and_proved(rows, classes):
    """Also the default radius depends on the smallest ball in which the zero model is optimal."""
    X, _, weights = rows
    y = np.random.default_rng(1).integers(0, classes, 3000)
    targets = y.astype(float) if classes > 2 else np.where(y > 0, 1.0, -1.0)
    loss = as_loss("multinomial" if classes > 2 else "logistic")
    settings = {
        "rho": 1.0, "divergence": as_divergence("chi2"), "loss": loss, "l2": 0.001,
        "fit_intercept": True,
    }  # fmt: skip
    whole, parted = in_blocks(X, targets, weights, EDGES, **settings)
    assert smallest_ball(parted).rho == pytest.approx(smallest_ball(whole).rho, rel=1e-9)
    one, many = solved(whole, tol=1e-6), solved(parted, tol=1e-6)
    assert many.ending is one.ending
    assert not many.theta.any()
    learns = radius_that_learns(whole, one.theta)
    assert radius_that_learns(parted, many.theta) == pytest.approx(learns, rel=1e-9)


def test_a_block_computes_again_what_it_has_lost(rows):
    """After any pass, blocks may be made again: the bits stay the same."""
    X, y, weights = rows
    settings = {
        "rho": 0.1, "divergence": as_divergence("kl"), "loss": as_loss("squared"), "l2": 0.01,
        "fit_intercept": True,
    }  # fmt: skip
    _, parted = in_blocks(X, y, weights, EDGES, **settings)
    _, lossy = in_blocks(X, y, weights, EDGES, **settings)
    engine, run = lossy.blocks, lossy.blocks.run

    def forgetful(task):
        engine.blocks = [RowBlock(block.problem, block.first) for block in engine.blocks]
        return run(task)

    engine.run = forgetful
    for direction in ("lbfgs", "newton"):
        assert solved(parted, direction).theta.tobytes() == solved(lossy, direction).theta.tobytes()


def margin_rows(rows):
    X, y, weights = rows
    return X, np.where(y > 0.0, 1.0, -1.0), weights


def logistic(divergence, rho):
    return {
        "rho": rho, "divergence": as_divergence(divergence), "loss": as_loss("logistic"),
        "l2": 0.01, "fit_intercept": True,
    }  # fmt: skip


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_smoothed_loss_is_that_of_one_machine(rows, divergence, weighted):
    """With its gradient and Hessian, where the ball binds (small ε) and where it does not."""
    X, y, weights = margin_rows(rows)
    whole, parted = in_blocks(
        X, y, weights if weighted else None, EDGES, **logistic(divergence, 0.3)
    )
    v = np.linspace(-0.3, 0.5, 7)
    alpha = point_at(whole, v, ROBUST).at.worst.alpha
    for epsilon in (0.1 * alpha, 10.0 * alpha):
        goal = Goal(epsilon=epsilon)
        one, many = point_at(whole, v, goal), point_at(parted, v, goal)
        assert many.value == pytest.approx(one.value, rel=1e-12)
        np.testing.assert_allclose(many.gradient, one.gradient, rtol=1e-9, atol=1e-12)
        hessian = robust_hessian(whole, one, goal)
        np.testing.assert_allclose(
            robust_hessian(parted, many, goal), hessian, rtol=1e-8, atol=1e-10 * abs(hessian).max()
        )
    unit = whole.loss_scale(one.value)
    assert parted.spread(many.at, unit) == pytest.approx(whole.spread(one.at, unit), rel=1e-9)


def test_balls_close_to_their_corner_end_as_on_one_machine():
    """Almost all weight is on a few rows: the robust loss has to be smoothed."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), np.where(y > 0, 1.0, -1.0)
    whole, parted = in_blocks(X, y, None, [100, 300], **{**logistic("kl", 10.0), "l2": 1.0})
    one, many = solved(whole, tol=1e-6), solved(parted, tol=1e-6)
    assert many.ending is one.ending is Ending.CONVERGED
    assert many.value == pytest.approx(one.value, rel=2e-6)
    assert many.gap <= 1e-6 * many.value


def test_a_sample_has_the_same_rows_for_any_blocks(rows):
    X, y, weights = margin_rows(rows)
    for count in (10, 100, 1400, 2900):
        whole, parted = in_blocks(X, y, weights, EDGES, **logistic("chi2", 0.1))
        one, many = whole.sample(count), parted.sample(count)
        assert (one.X == many.X).all()
        assert (one.y == many.y).all()
        assert (one.weights == many.weights).all()
    parted = replace(parted, facts=replace(parted.facts, stored=parted.n * 10**6))
    assert parted.sample(2900).n <= parted.most_sampled == 32


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger", "jensen-shannon"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_trial_takes_one_round_and_its_error_is_small(rows, divergence, classes):
    """Multipliers are predicted; if they were wrong, a search makes the result the same."""
    X, y, weights = margin_rows(rows)
    settings = logistic(divergence, 0.1 if divergence in ("chi2", "kl") else 0.01)
    if classes == 3:
        y = np.digitize(X[:, 0], [-0.5, 0.7]).astype(float)
        settings["loss"] = as_loss("multinomial")
    whole, parted = in_blocks(X, y, weights, EDGES, **settings)
    rng = np.random.default_rng(0)
    theta = parted.zeros() + 0.1 * rng.standard_normal(parted.zeros().shape)
    parted.evaluate(parted.scores(theta))
    one_round, last = 0, whole.evaluate(whole.scores(theta))
    for size in (0.1, 0.01, 0.01, 1e-3, 1e-4, 1e-5, 10.0, 0.1, 0.01):
        theta = theta + size * rng.standard_normal(theta.shape)
        before = parted.blocks.rounds
        many = parted.trial(parted.scores(theta))
        one_round += parted.blocks.rounds - before == 1
        one = whole.evaluate(whole.scores(theta))
        # The error is a share of the change since the last model.
        assert abs(many.value - one.value) <= 1e-3 * abs(one.value - last.value) + 1e-13
        gradient, moved = whole.gradient(one), whole.gradient(one) - whole.gradient(last)
        assert abs(many.gradient - gradient).max() <= 1e-2 * abs(moved).max()
        exact = parted.refined(many)
        assert exact.value == pytest.approx(one.value, rel=1e-12)
        assert exact.worst.alpha == pytest.approx(one.worst.alpha, rel=1e-8)
        np.testing.assert_allclose(parted.gradient(exact), gradient, rtol=1e-9)
        assert parted.refined(exact) is exact
        last = one
    assert one_round >= 5


def test_trials_give_up_where_an_exact_search_is_needed(rows):
    """Close to a corner few rows have all the weight, and steps of the multipliers are long."""
    X, y, _ = margin_rows(rows)
    for divergence, rho in (("hellinger", 1.9), ("kl", 7.0), ("chi2", 1e-8), (CUSTOM_BENT, 0.1)):
        whole, parted = in_blocks(X, y, None, EDGES, **logistic(divergence, rho))
        theta = np.full((1, 7), 0.1)
        parted.evaluate(parted.scores(theta))
        for _ in range(3):
            theta = theta + 0.3
            many, one = parted.trial(parted.scores(theta)), whole.evaluate(whole.scores(theta))
            assert many.value == pytest.approx(one.value, rel=1e-9)
    huge = parted.trial(np.full((1, 7), 1e300))
    assert huge is None or np.isfinite(huge.value)


def test_what_blocks_cannot_do_is_said(rows):
    X, y, _ = rows
    settings = {
        "rho": 0.1, "divergence": as_divergence("chi2"), "loss": as_loss("squared"), "l2": 0.01,
        "fit_intercept": True,
    }  # fmt: skip
    whole, parted = in_blocks(X, 1e130 * y, None, EDGES, **settings)
    with pytest.raises(TypeError, match="not one of blocks"):
        parted.gradient(whole.evaluate(whole.zero_scores()))
    huge = np.full((1, 7), 1e300)
    with pytest.raises(ValueError, match="The losses overflow"):
        parted.evaluate(huge)


def test_cvar_of_blocks_needs_no_radius():
    z = np.arange(10.0)
    found = maximise(LocalBlocks(loss_blocks(z, None, [3])), CVaR(0.5), 0.0, 10)
    assert found.worst.value == 7.0
