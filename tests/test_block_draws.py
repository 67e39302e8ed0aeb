"""Draws of rows in blocks: the law of the rows, steps, and solves by draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import FSG, Fixed, Full, Growing, Multilevel
from drolearn._blocks import LocalBlocks
from drolearn._solvers import block_steps
from drolearn._solvers.block_draws import members_of, split_draw, split_level
from drolearn._solvers.block_rows import RowBlock
from drolearn._solvers.block_steps import gradient_of_draw, run_block_steps
from drolearn._solvers.descent import State
from drolearn._solvers.draws import Draw
from drolearn._solvers.solve import run
from drolearn._solvers.solvers import GSSG, PSSG, SGD
from drolearn._solvers.step_sizes import Constant, step_sizes_at
from drolearn.loss import as_loss
from tests.test_blocks import in_blocks, logistic

EDGES = [1, 400, 401, 900]
SIZES = np.diff([0, *EDGES, 1000])[None]
#: Groups of 600, 300, 99 and 1 rows.
GROUPS = np.random.default_rng(4).permutation(np.repeat([0, 1, 2, 3], [600, 300, 99, 1]))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 4)) * [1.0, 3.0, 0.5, 1.0] + [0.0, 2.0, 0.0, 0.0]
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(1000) > 0.0, 1.0, -1.0)
    weights = rng.exponential(size=1000) * (rng.random(1000) < 0.9)
    weights[GROUPS == 3] = 1.0
    return X, y, weights


def indices(draw, members=None):
    """The rows of each part of a draw among all rows; `members` of each group in each block."""
    starts = [0, *EDGES]
    members = members or [[int(n)] for n in SIZES[0]]
    chosen = [draw.chosen(k, of_block) for k, of_block in enumerate(members)]
    parts = range(draw.counts.shape[0])
    return [np.concatenate([starts[k] + c[p] for k, c in enumerate(chosen)]) for p in parts]


def as_draw(draw, problem, members=None):
    """The same rows as a draw of one machine."""
    rows, groups = np.concatenate(indices(draw, members)), problem.groups
    given = None if groups is None else (groups.of[rows], groups.shares)
    return Draw(rows, draw.blocks, draw.base, given)


def test_a_draw_has_the_rows_of_the_method():
    """Without replacement, all rows alike, in disjoint halves."""
    rng = np.random.default_rng(0)
    method = Multilevel(1000, batch_size=30, fire=1.0)
    levels, seen = np.zeros(method.sizes.size), np.zeros(1000)
    for _ in range(1500):
        draw = split_draw(method, SIZES, rng, 0.0)
        base, *parts = indices(draw)
        assert base.size == draw.base == np.unique(base).size == method.sizes[0]
        seen[base] += 1.0
        every = np.concatenate(parts)
        level = int(np.searchsorted(method.sizes, every.size))
        levels[level] += 1.0
        assert every.size == np.unique(every).size == method.sizes[level]
        assert parts[0].size == parts[1].size == method.sizes[level - 1]
        assert draw.blocks[1, 2] == 1.0 / method.level_probabilities[level - 1]
        assert draw.rows == base.size + every.size
    expected = 1500 * method.sizes[0] / 1000
    chi2 = ((seen - expected) ** 2 / expected).sum() / (1.0 - method.sizes[0] / 1000)
    assert abs(chi2 - 999.0) < 5.0 * np.sqrt(2.0 * 999.0)
    frequencies = levels[1:] / 1500
    errors = np.sqrt(method.level_probabilities / 1500)
    assert (abs(frequencies - method.level_probabilities) < 5.0 * errors).all()


def grouped(rows, weighted=True):
    """The problem with groups, and what draws need to know of the groups in the blocks."""
    X, y, weights = rows
    whole, parted = in_blocks(
        X, y, weights if weighted else None, EDGES, groups=GROUPS, **logistic("chi2", 0.5)
    )
    return whole, parted, [members_of(block) for block in parted.blocks.blocks]


def test_a_draw_of_groups_has_the_rows_of_each_group(rows):
    """Half as many in each half, the single row of a group in both, rows of weight 0 in none."""
    whole, parted, members = grouped(rows)
    method = Multilevel(1000, batch_size=30, fire=1.0, groups=parted.groups)
    here = replace(method, groups=whole.groups)
    np.testing.assert_array_equal(method.group_sizes, here.group_sizes)
    np.testing.assert_array_equal(method.costs, here.costs)
    rng, seen = np.random.default_rng(0), np.zeros(1000)
    for _ in range(300):
        draw = split_draw(method, parted.layout.sizes, rng, 0.0)
        base, left, right, rest = indices(draw, members)
        np.testing.assert_array_equal(np.bincount(GROUPS[base], minlength=4), method.group_sizes[0])
        seen[base] += 1.0
        counts = np.bincount(GROUPS[left], minlength=4)
        np.testing.assert_array_equal(counts, np.bincount(GROUPS[right], minlength=4))
        level = int(np.flatnonzero(method.sizes == left.size)[0]) + 1
        np.testing.assert_array_equal(counts, method.group_sizes[level - 1])
        assert draw.rows == method.sizes[0] + method.costs[level]
        shared = np.intersect1d(left, right)
        assert GROUPS[shared].tolist() == [3]
        assert np.intersect1d(np.concatenate([left, right]), rest).size == 0
    of_first = seen[(GROUPS == 0) & (rows[2] > 0.0)]
    expected = of_first.mean()
    chi2 = ((of_first - expected) ** 2 / expected).sum()
    assert abs(chi2 - of_first.size) < 5.0 * np.sqrt(2.0 * of_first.size)
    assert not seen[rows[2] == 0.0].any()


# -- steps ---------------------------------------------------------------------------------------

# The divergence, weights, and what else differs from dense rows of two classes.
STEPS = {
    "chi2": ("chi2", False, ""),
    "KL and weights": ("kl", True, ""),
    "an anchor": ("chi2", True, "anchor"),
    "groups": ("chi2", True, "groups"),
    "a reference": ("chi2", True, "reference"),
    "groups and an anchor": ("kl", False, "groups anchor"),
    "sparse": ("chi2", False, "sparse"),
    "a sparse anchor": ("chi2", True, "sparse anchor"),
    "three classes": ("chi2", True, "classes"),
}


@pytest.mark.parametrize("fetched", [2_000_000, 800, 0], ids=["all", "some", "none"])
@pytest.mark.parametrize("case", STEPS)
def test_steps_are_those_of_one_machine_with_the_same_rows(rows, monkeypatch, fetched, case):
    """Every step, with its correction, clipping and average; the same bits if rows are fetched.

    Rows are fetched for all draws, for those of up to 200 rows, or for none.
    """
    monkeypatch.setattr(block_steps, "_FETCHED", fetched)
    divergence, weighted, what = STEPS[case]
    X, y, weights = rows
    settings = {**logistic(divergence, 0.5), "groups": GROUPS if "groups" in what else None}
    if "sparse" in what:
        X = sp.csr_matrix(np.where(abs(X) > 1.0, X, 0.0))
    if "classes" in what:
        y = np.digitize(X[:, 0], [-0.5, 0.5]).astype(float)
        settings["loss"] = as_loss("multinomial")
    if "reference" in what:
        settings["reference"] = np.random.default_rng(1).exponential(size=1000)
    whole, parted = in_blocks(X, y, weights if weighted else None, EDGES, **settings)
    whole = replace(whole, scaling="draws")
    groups = parted.groups
    if whole.groups is not None:  # sums of blocks differ by rounding
        groups = replace(groups, shares=whole.groups.shares)
    parted = replace(parted, scaling="draws", measured=whole.columns, groups=groups)
    method = Multilevel(1000, batch_size=30, fire=0.5, rho=0.5, groups=parted.groups)
    theta, count = np.full((whole.m, 5), 0.01), 12
    gammas = step_sizes_at(Constant(0.3), np.arange(float(count)))
    numbers = (gammas, 1.0, 0.2, np.inf)
    state = State.new(theta, np.random.default_rng(7))
    again = State.new(theta, np.random.default_rng(7))
    anchor = None
    if "anchor" in what:
        point = theta + 0.1
        drift = whole.gradient(whole.evaluate(whole.scores(point)))
        drift[:, :-1] -= whole.columns[0] * drift[:, -1:]
        state.anchor, state.drift = anchor = point, drift
    assert run_block_steps(parted, method, state, np.random.default_rng(7), numbers) == 0
    rng, members = np.random.default_rng(7), [members_of(b) for b in parted.blocks.blocks]
    draws = [split_draw(method, parted.layout.sizes, rng, float(step)) for step in range(count)]
    given = [as_draw(draw, whole, members) for draw in draws]
    loop = whole.descent(Full(1000, groups=whole.groups).plan)
    steps = [(draw.indices, draw.blocks, draw.batch_size) for draw in given]
    model = (again.theta, again.average)
    assert loop.follow(steps, model, anchor, numbers, again.tally) == 0
    if fetched < 2_000_000:
        np.testing.assert_allclose(state.theta, again.theta, rtol=1e-9)
        np.testing.assert_allclose(state.average, again.average, rtol=1e-9)
    else:
        assert state.theta.tobytes() == again.theta.tobytes()
        assert state.average.tobytes() == again.average.tobytes()
    assert state.tally.corrections == again.tally.corrections > 0
    assert state.tally.clipped == again.tally.clipped
    assert state.tally.samples == again.tally.samples == sum(draw.rows for draw in draws)
    assert abs(state.theta - theta).max() > 0.01


def test_the_rows_of_many_steps_come_in_one_round(rows):
    _, parted = in_blocks(*rows, EDGES, **logistic("chi2", 0.5))
    assert parted.columns[1].all()
    method, state = (
        Multilevel(1000, batch_size=30, fire=0.1),
        State.new(np.zeros((1, 5)), np.random.default_rng(0)),
    )
    before, numbers = parted.blocks.rounds, (np.full(500, 0.01), 1.0, 0.0, np.inf)
    assert run_block_steps(parted, method, state, np.random.default_rng(0), numbers) == 0
    assert state.tally.step == 500
    assert parted.blocks.rounds - before == 2  # the sizes of the blocks, and the rows


def test_given_draws_are_those_of_the_generator(rows):
    """The core makes the same bits whether it draws rows itself or is given them."""
    whole, _, _ = grouped(rows)
    for groups in (None, whole.groups):
        problem = replace(whole, groups=groups)
        method = Multilevel(1000, batch_size=30, fire=0.5, rho=0.5, groups=groups)
        numbers = (np.full(20, 0.1), 1.0, 0.5, np.inf)
        one, two = (State.new(np.zeros((1, 5)), np.random.default_rng(1)) for _ in range(2))
        rng = np.random.default_rng(1)
        loop, bits = problem.descent(method.plan), rng.bit_generator
        loop.run(bits.capsule, (one.theta, one.average), None, numbers, one.tally)
        rng = np.random.default_rng(1)
        draws = [method.draw(rng, step) for step in range(20)]
        given = [(draw.indices, draw.blocks, draw.batch_size) for draw in draws]
        loop.follow(given, (two.theta, two.average), None, numbers, two.tally)
        assert one.theta.tobytes() == two.theta.tobytes()
        assert one.average.tobytes() == two.average.tobytes()


def test_given_draws_are_checked(rows):
    whole, _, _ = grouped(rows)
    loop = whole.descent(Full(1000).plan)
    state = State.new(np.zeros((1, 5)), np.random.default_rng(0))
    block = np.array([[0.0, 2.0, 1.0, 0.1]])
    wrong = {
        "must have one for each step": [],
        "must have row numbers": [(np.array([0, 1000]), block, 2)],
        "must have rows of the draw": [(np.array([0, 1]), block, 3)],
        "must lie within the rows": [(np.array([0]), block, 1)],
    }
    numbers = (np.ones(1), 1.0, 0.0, np.inf)
    for message, draws in wrong.items():
        with pytest.raises(ValueError, match=message):
            loop.follow(draws, (state.theta, state.average), None, numbers, state.tally)


@pytest.mark.parametrize("in_groups", [False, True])
def test_gradients_are_unbiased(rows, in_groups):
    """The mean of many draws is the gradient of all rows, within its standard error."""
    whole, parted, members = grouped(rows)
    if not in_groups:
        whole, members = in_blocks(*rows[:2], None, EDGES, **logistic("chi2", 0.5))[0], None
    theta = np.array([[0.5, -0.1, 0.2, 0.0, 0.1]])
    expected = whole.scaled_gradient(whole.gradient(whole.evaluate(whole.scores(theta))))
    sizes = parted.layout.sizes if in_groups else SIZES
    groups = parted.groups if in_groups else None
    method, rng = Multilevel(1000, batch_size=100, rho=0.5, groups=groups), np.random.default_rng(0)

    def mean_of(method, count):
        found = []
        for _ in range(count):
            draw = as_draw(split_draw(method, sizes, rng, 0.0), whole, members)
            found.append(gradient_of_draw(replace(whole, groups=None), draw, theta))
        return np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(count)

    mean, error = mean_of(method, 1000)
    assert (abs(mean - expected) < 4.0 * error).all()
    # A biased estimate would be seen.
    mean, error = mean_of(Fixed(1000, 8, rho=0.5, groups=groups), 4000)
    assert (abs(mean - expected) > 4.0 * error).any()


def test_batches_grow():
    method = Growing(1000, 10, rate=1.01)
    rng = np.random.default_rng(0)
    sizes = [split_draw(method, SIZES, rng, step).rows for step in (0.0, 100.0, 1e6)]
    assert sizes == [10, 27, 1000]


@pytest.mark.parametrize("large", [False, True], ids=["fetched", "in the blocks"])
def test_levels_have_the_second_moments_of_one_machine(rows, monkeypatch, large):
    """`r="auto"` chooses its probabilities from them."""
    X, y, weights = rows
    whole, parted = in_blocks(X, y, weights, EDGES, **logistic("chi2", 0.5))
    method, theta = Multilevel(1000, batch_size=100, rho=0.5), np.full((1, 5), 0.2)
    draw = split_level(method, SIZES, np.random.default_rng(0), 2)
    assert draw.base == 0
    assert draw.rows == method.sizes[2]
    if large:
        monkeypatch.setattr(block_steps, "_FETCHED", 0)
    rng, again = np.random.default_rng(1), np.random.default_rng(1)
    for level in range(method.sizes.size):
        found = block_steps.squares_of_level(parted, method, rng, theta, level, 3)
        draws = [as_draw(split_level(method, SIZES, again, level), whole) for _ in range(3)]
        expected = [np.sum(gradient_of_draw(whole, each, theta) ** 2) for each in draws]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


# -- solves --------------------------------------------------------------------------------------

SOLVERS = {
    "gssg": (GSSG(batch_size=32), 1.005),
    "an anchor": (GSSG(batch_size=32, anchor=True), 1.0 + 1e-6),
    "tuned levels": (GSSG(batch_size=32, r="auto"), 1.005),
    "pssg": (PSSG(batch_size=32), 1.005),
    "fsg": (FSG(), 1.01),
    "sgd": (SGD(batch_size=256), 1.02),
}


@pytest.mark.parametrize(
    ("case", "in_groups"),
    # Growing batches have no groups.
    [
        (case, grouped)
        for case in SOLVERS
        for grouped in (False, True)
        if (case, grouped) != ("pssg", True)
    ],
)
def test_solvers_come_close_to_the_optimum(rows, case, in_groups):
    """And the same seed gives the same bits, also with blocks that forget what they have."""
    solver, close = SOLVERS[case]
    X, y, weights = rows
    given = {**logistic("chi2", 0.2), "groups": GROUPS if in_groups else None}
    whole, parted = in_blocks(X, y, weights, EDGES, **given)
    settings = {"tol": None, "random_state": 3, "watch": None}
    found = run(parted, parted.zeros(), solver=solver, max_iter=60.0, **settings)
    best = run(whole, whole.zeros(), solver="exact", max_iter=200, **settings)
    assert found.value <= best.value * close
    blocks = [RowBlock(each.problem, each.first) for each in parted.blocks.blocks]
    run_again = in_blocks(X, y, weights, EDGES, **given)[1]
    object.__setattr__(run_again, "blocks", LocalBlocks(blocks, 2))
    again = run(run_again, parted.zeros(), solver=solver, max_iter=60.0, **settings)
    assert again.theta.tobytes() == found.theta.tobytes()


def test_steps_on_all_rows_are_those_of_one_machine(rows):
    X, y, weights = rows
    whole, parted = in_blocks(X, y, weights, EDGES, **logistic("kl", 0.2))
    settings = {"solver": "fsg", "max_iter": 20, "tol": None, "random_state": 0, "watch": None}
    one = run(whole, whole.zeros(), **settings)
    many = run(parted, parted.zeros(), **settings)
    np.testing.assert_allclose(many.theta, one.theta, rtol=1e-9)
    assert many.passes == one.passes == 20


def test_overlapping_groups_need_an_exact_solver(rows):
    X, y, weights = rows
    groups = np.column_stack([X[:, 0] > 0.0, X[:, 1] > 0.0, np.ones(1000, dtype=bool)])
    _, parted = in_blocks(X, y, weights, EDGES, groups=groups, **logistic("chi2", 0.2))
    with pytest.raises(ValueError, match="the groups overlap: use solver='exact'"):
        run(parted, parted.zeros(), solver="gssg", max_iter=1, tol=None, random_state=0, watch=None)
