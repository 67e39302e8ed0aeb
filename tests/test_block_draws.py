"""Draws of rows in blocks: the law of the rows, gradients, and solves by draws."""

from __future__ import annotations

import numpy as np
import pytest

from drolearn import Fixed, Growing, Multilevel
from drolearn._blocks import LocalBlocks
from drolearn._solvers import block_draws
from drolearn._solvers.block_draws import run_block_steps, split_draw
from drolearn._solvers.block_rows import RowBlock
from drolearn._solvers.descent import State
from drolearn._solvers.solve import run
from drolearn._solvers.solvers import GSSG, PSSG, SGD
from drolearn._solvers.step_sizes import Constant, step_sizes_at
from tests.test_blocks import in_blocks, logistic

EDGES = [1, 400, 401, 900]
SIZES = np.diff([0, *EDGES, 1000])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 4)) * [1.0, 3.0, 0.5, 1.0] + [0.0, 2.0, 0.0, 0.0]
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(1000) > 0.0, 1.0, -1.0)
    return X, y, rng.exponential(size=1000) * (rng.random(1000) < 0.9)


def indices(split):
    """The rows of each part of a split, in the order in which they are fetched."""
    starts = np.array([0, *EDGES])
    chosen = [split.chosen(k, int(n)) for k, n in enumerate(SIZES)]
    return [
        np.concatenate([starts[k] + parts[p] for k, parts in enumerate(chosen)])
        for p in range(split.counts.shape[0])
    ]


def test_a_draw_has_the_rows_of_the_method():
    """Without replacement, all rows alike, in disjoint halves."""
    rng = np.random.default_rng(0)
    method = Multilevel(1000, batch_size=30, fire=1.0)
    levels, seen = np.zeros(method.sizes.size), np.zeros(1000)
    for _ in range(1500):
        draw = split_draw(method, SIZES, rng, 0.0)
        (base,) = indices(draw.base)
        assert base.size == np.unique(base).size == method.sizes[0]
        seen[base] += 1.0
        parts = indices(draw.correction)
        every = np.concatenate(parts)
        level = int(np.searchsorted(method.sizes, every.size))
        levels[level] += 1.0
        assert every.size == np.unique(every).size == method.sizes[level]
        assert parts[0].size == parts[1].size == method.sizes[level - 1]
        assert draw.correction_blocks[0, 2] == 1.0 / method.level_probabilities[level - 1]
    expected = 1500 * method.sizes[0] / 1000
    chi2 = ((seen - expected) ** 2 / expected).sum() / (1.0 - method.sizes[0] / 1000)
    assert abs(chi2 - 999.0) < 5.0 * np.sqrt(2.0 * 999.0)
    frequencies = levels[1:] / 1500
    errors = np.sqrt(method.level_probabilities / 1500)
    assert (abs(frequencies - method.level_probabilities) < 5.0 * errors).all()


@pytest.mark.parametrize("large", [False, True], ids=["fetched", "in the blocks"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("divergence", ["chi2", "kl"])
def test_steps_are_those_of_one_machine_with_the_same_rows(
    rows, monkeypatch, large, weighted, divergence
):
    """Every step, with its correction, clipping and average."""
    if large:
        monkeypatch.setattr(block_draws, "_FETCHED", 0)
    X, y, weights = rows
    whole, parted = in_blocks(
        X, y, weights if weighted else None, EDGES, **logistic(divergence, 0.5)
    )
    method = Multilevel(1000, batch_size=30, fire=0.5, rho=0.5)
    theta, count = np.full((1, 5), 0.01), 12
    gammas = step_sizes_at(Constant(0.3), np.arange(float(count)))
    state = State.new(theta, np.random.default_rng(7))
    settings = (gammas, 1.0, 0.2, np.inf)
    assert run_block_steps(parted, method, state, np.random.default_rng(7), settings) == 0
    # The same steps with the gradients of one machine.
    rng, again = np.random.default_rng(7), State.new(theta, np.random.default_rng(7))
    draws = [split_draw(method, SIZES, rng, float(step)) for step in range(count)]
    for draw, gamma in zip(draws, gammas, strict=True):
        gradients = []
        for split, blocks in (draw[:2], draw[2:]):
            if split is not None:
                part = whole.subset(np.concatenate(indices(split)))
                gradient, _ = block_draws._signed_gradient(part, blocks, again.theta)
                gradients.append(gradient)
        assert block_draws._make_step(whole, again, gradients, (gamma, 1.0, 0.2))
    np.testing.assert_allclose(state.theta, again.theta, rtol=1e-9)
    np.testing.assert_allclose(state.average, again.average, rtol=1e-9)
    assert state.tally.corrections == again.tally.corrections > 0
    assert state.tally.clipped == again.tally.clipped
    assert state.tally.samples == sum(draw.rows for draw in draws)


def test_gradients_are_unbiased(rows):
    """The mean of many draws is the gradient of all rows, within its standard error."""
    X, y, _ = rows
    whole, _ = in_blocks(X, y, None, EDGES, **logistic("chi2", 0.5))
    theta = np.array([[0.5, -0.1, 0.2, 0.0, 0.1]])
    expected = whole.gradient(whole.evaluate(whole.scores(theta))).ravel()
    method, rng = Multilevel(1000, batch_size=100, fire=1.0, rho=0.5), np.random.default_rng(0)
    found = []
    for _ in range(1000):
        draw = split_draw(method, SIZES, rng, 0.0)
        total = 0.0
        for split, blocks in (draw[:2], draw[2:]):
            part = whole.subset(np.concatenate(indices(split)))
            total = total + block_draws._signed_gradient(part, blocks, theta)[0].ravel()
        found.append(total)
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (abs(np.mean(found, axis=0) - expected) < 4.0 * error).all()
    # A biased estimate would be seen.
    base = Fixed(1000, 8, rho=0.5)
    draws = [split_draw(base, SIZES, rng, 0.0) for _ in range(4000)]
    parts = [whole.subset(np.concatenate(indices(draw.base))) for draw in draws]
    biased = [
        block_draws._signed_gradient(part, draw.base_blocks, theta)[0].ravel()
        for part, draw in zip(parts, draws, strict=True)
    ]
    error = np.std(biased, axis=0) / np.sqrt(len(biased))
    assert (abs(np.mean(biased, axis=0) - expected) > 4.0 * error).any()


def test_batches_grow():
    method = Growing(1000, 10, rate=1.01)
    rng = np.random.default_rng(0)
    sizes = [split_draw(method, SIZES, rng, step).rows for step in (0.0, 100.0, 1e6)]
    assert sizes == [10, 27, 1000]


@pytest.mark.parametrize("solver", [GSSG(batch_size=32), PSSG(batch_size=32), SGD(batch_size=256)])
def test_solvers_come_close_to_the_optimum(rows, solver):
    """And the same seed gives the same bits, also with blocks that forget what they have."""
    X, y, weights = rows
    whole, parted = in_blocks(X, y, weights, EDGES, **logistic("chi2", 0.2))
    settings = {"tol": None, "random_state": 3, "watch": None}
    found = run(parted, parted.zeros(), solver=solver, max_iter=60.0, **settings)
    best = run(whole, whole.zeros(), solver="exact", max_iter=200, **settings)
    biased = isinstance(solver, SGD)
    assert found.value <= best.value * (1.02 if biased else 1.005)
    engine = LocalBlocks([RowBlock(each.problem, each.first) for each in parted.blocks.blocks], 2)
    run_again = in_blocks(X, y, weights, EDGES, **logistic("chi2", 0.2))[1]
    object.__setattr__(run_again, "blocks", engine)
    again = run(run_again, parted.zeros(), solver=solver, max_iter=60.0, **settings)
    assert again.theta.tobytes() == found.theta.tobytes()
