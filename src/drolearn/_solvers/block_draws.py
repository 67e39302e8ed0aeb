"""Steps of stochastic solvers on rows in blocks.

The rows of a draw are split over the blocks by the multivariate hypergeometric law, and each block
chooses its rows at random: together they are a uniform draw without replacement of all rows.  The
numbers of rows and a seed come from the generator of the solve, so the bits do not depend on where
the blocks are.

The rows of small draws are brought to this process, those of many steps in one round.  For large
draws, the blocks keep the rows, and add up losses, worst cases and gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._blocks import Pass
from drolearn._inner.block_search import (
    LossBlock,
    Search,
    Survey,
    joined,
    run_searches,
    survey_of,
    sweep_of,
    weights_of,
)
from drolearn._solvers.block_problem import BlockProblem
from drolearn._solvers.block_rows import RowBlock
from drolearn._solvers.draws import Fixed, Growing, Method, block_radius
from drolearn._solvers.multilevel import Multilevel
from drolearn._solvers.problem import Problem
from drolearn.divergence import Divergence

__all__ = ["Split", "SplitDraw", "run_block_steps", "split_draw"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Draws of more stored numbers than this stay in the blocks; one round brings at most as many.
_FETCHED = 2_000_000
# One round carries at most this many numbers of rows: draws times blocks.
_PLANNED = 50_000


class Model(Protocol):
    """The model that steps change in place, its average, and what is counted."""

    theta: Array
    average: Array
    tally: _core.Tally


class Split(NamedTuple):
    """Rows without replacement: for each part of a block or correction, how many of each block."""

    seed: int
    counts: Counts
    """Shape (parts, blocks).  The parts of a correction are left half, right half, and the rest."""

    def chosen(self, k: int, n: int) -> list[Counts]:
        """The rows of the k-th block, which has n of them, for each part."""
        counts = self.counts[:, k]
        rng = np.random.Generator(np.random.PCG64([self.seed, k]))
        rows = rng.choice(n, int(counts.sum()), replace=False)
        return np.split(rows, np.cumsum(counts)[:-1])


class SplitDraw(NamedTuple):
    """The base block of a step, and its correction if it has one, as signed blocks of rows.

    Signed blocks have start, stop, coefficient and radius, as those of a `Draw`.
    """

    base: Split
    base_blocks: Array
    correction: Split | None
    correction_blocks: Array

    @property
    def rows(self) -> int:
        """The number of rows."""
        more = 0 if self.correction is None else int(self.correction.counts.sum())
        return int(self.base.counts.sum()) + more


def split_draw(method: Method, sizes: Counts, rng: np.random.Generator, step: float) -> SplitDraw:
    """Draw the rows of a step; `sizes` are the numbers of rows of the blocks."""
    if not isinstance(method, Multilevel):
        if not isinstance(method, Fixed):
            raise TypeError(f"Blocks cannot draw rows for {method!r}.")
        size = float(min(method.batch_size, method.n))
        if isinstance(method, Growing):
            with np.errstate(over="ignore"):
                size = min(size * float(np.power(method.rate, step)), float(method.n))
        return SplitDraw(*_base(method, int(size), sizes, rng), None, np.empty((0, 4)))
    levels, level = np.cumsum(method.level_probabilities), 0
    if levels.size:
        u = rng.random()
        if step < method.warm:
            u *= method.warm / max(step, 1.0)
        level = int(np.searchsorted(levels, u, side="right")) + 1
    base = _base(method, int(method.sizes[0]), sizes, rng)
    if level == 0 or level > levels.size:
        return SplitDraw(*base, None, np.empty((0, 4)))
    size, half = int(method.sizes[level]), int(method.sizes[level - 1])
    whole = _split(sizes, size, rng)
    left = _split(whole, half, rng)
    right = _split(whole - left, half, rng)
    split = Split(_seed(rng), np.stack([left, right, whole - left - right]))
    weight = 1.0 / float(method.level_probabilities[level - 1])
    blocks = [
        (0, size, weight, block_radius(method, size)),
        (0, half, -0.5 * weight, block_radius(method, half)),
        (half, 2 * half, -0.5 * weight, block_radius(method, half)),
    ]
    return SplitDraw(*base, split, np.array(blocks, dtype=np.float64))


def _base(
    method: Method, size: int, sizes: Counts, rng: np.random.Generator
) -> tuple[Split, Array]:
    split = Split(0, _split(sizes, size, rng)[None])._replace(seed=_seed(rng))
    return split, np.array([[0.0, size, 1.0, block_radius(method, size)]])


def _split(sizes: Counts, count: int, rng: np.random.Generator) -> Counts:
    """How many of `count` rows without replacement are in each block."""
    return rng.multivariate_hypergeometric(sizes, count, method="marginals")


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


# -- rows that are brought to this process -----------------------------------------------------


@dataclass(frozen=True)
class _SizesPass(Pass[RowBlock, dict[int, int]]):
    """The first row of each block, and its number of rows."""

    def of(self, block: RowBlock) -> dict[int, int]:
        return {block.first: block.problem.n}

    def add(self, first: dict[int, int], second: dict[int, int]) -> dict[int, int]:
        return {**first, **second}


class _Piece(NamedTuple):
    """The rows of one split in one block; `edges` divide them into the parts."""

    X: Any
    y: Array
    weights: Array | None
    edges: Counts


@dataclass(frozen=True)
class _FetchPass(Pass[RowBlock, list[list[_Piece]]]):
    """The rows of several splits."""

    splits: list[Split]
    firsts: Counts

    def of(self, block: RowBlock) -> list[list[_Piece]]:
        k, problem = int(np.searchsorted(self.firsts, block.first)), block.problem
        found: list[list[_Piece]] = []
        for split in self.splits:
            if not split.counts[:, k].any():
                found.append([])
                continue
            parts = split.chosen(k, problem.n)
            rows = np.concatenate(parts)
            edges = np.cumsum([0, *(part.size for part in parts)])
            weights = None if block.b is None else block.b[rows]
            found.append([_Piece(problem.X[rows], problem.y[rows], weights, edges)])
        return found

    def add(self, first: list[list[_Piece]], second: list[list[_Piece]]) -> list[list[_Piece]]:
        return [one + other for one, other in zip(first, second, strict=True)]


def _assembled(template: Problem, pieces: list[_Piece]) -> Problem:
    """The problem on fetched rows, the parts one after the other."""
    parts = len(pieces[0].edges) - 1
    slices = [
        (piece, slice(piece.edges[p], piece.edges[p + 1])) for p in range(parts) for piece in pieces
    ]
    if template.sparse:
        from scipy.sparse import vstack  # imported when used: it is heavy

        X = vstack([piece.X[rows] for piece, rows in slices], format="csr")
    else:
        X = np.concatenate([piece.X[rows] for piece, rows in slices])
    y = np.concatenate([piece.y[rows] for piece, rows in slices])
    weights = None
    if pieces[0].weights is not None:
        weights = np.concatenate(
            [piece.weights[rows] for piece, rows in slices if piece.weights is not None]
        )
    return replace(template, X=X, y=y, weights=weights)


def _signed_gradient(problem: Problem, blocks: Array, theta: Array) -> tuple[Array | None, int]:
    """The gradient of signed blocks of these rows; and a status."""
    z, slopes = problem.losses_at(problem.scores(theta))
    weights = np.empty(z.size)
    status = _core.signed_weights(
        problem.divergence.core, z, problem.weights, blocks, weights, None
    )
    return (problem.data_gradient(slopes, weights) if status == _core.OK else None), status


# -- rows that stay in the blocks ----------------------------------------------------------------


class _Drawn(NamedTuple):
    """The rows of a draw in one block, with their losses and slopes at a model."""

    problem: Problem
    z: Array
    slopes: Array
    edges: Counts

    def losses(self, blocks: Array, k: int) -> tuple[LossBlock, slice]:
        """The losses of the rows in the k-th signed block of a correction: all, left, or right."""
        one = len(blocks) == 1 or k == 0
        rows = slice(0, self.z.size) if one else slice(self.edges[k - 1], self.edges[k])
        b = self.problem.weights
        return LossBlock(self.z[rows], None if b is None else b[rows], 0), rows


@dataclass(frozen=True)
class _DrawnPass(Pass[RowBlock, Any]):
    """What passes over the rows of a large draw share."""

    split: Split
    blocks: Array
    firsts: Counts
    theta: Array

    def drawn(self, block: RowBlock) -> _Drawn | None:
        """The rows of the draw in a block, which keeps them until the next draw."""
        k = int(np.searchsorted(self.firsts, block.first))
        if not self.split.counts[:, k].any():
            return None
        key = self.split.seed, self.theta.tobytes()
        if block.drawn is None or block.drawn[0] != key:
            parts = self.split.chosen(k, block.problem.n)
            rows = np.concatenate(parts)
            weights = None if block.b is None else block.b[rows]
            problem = block.problem
            part = replace(problem, X=problem.X[rows], y=problem.y[rows], weights=weights)
            z, slopes = part.losses_at(part.scores(self.theta))
            edges = np.cumsum([0, *(each.size for each in parts)])
            block.drawn = key, _Drawn(part, z, slopes, edges)
        return block.drawn[1]


@dataclass(frozen=True)
class _DrawnSurveyPass(_DrawnPass):
    """The ranges of the losses in each signed block."""

    def of(self, block: RowBlock) -> list[Survey | None] | None:
        drawn = self.drawn(block)
        if drawn is None:
            return None
        found: list[Survey | None] = []
        for k in range(len(self.blocks)):
            losses, _ = drawn.losses(self.blocks, k)
            found.append(survey_of(losses, 0) if losses.z.size else None)
        return found

    def add(self, first: list[Survey | None], second: list[Survey | None]) -> list[Survey | None]:
        pairs = zip(first, second, strict=True)
        return [b if a is None else a if b is None else a + b for a, b in pairs]


@dataclass(frozen=True)
class _DrawnSweepsPass(_DrawnPass):
    """One sweep of the searches of some of the signed blocks."""

    divergence: Divergence
    searches: list[tuple[int, bytes]]

    def of(self, block: RowBlock) -> list[Array | None] | None:
        drawn, found = self.drawn(block), []
        if drawn is None:
            return None
        for k, state in self.searches:
            losses, _ = drawn.losses(self.blocks, k)
            out = np.empty(losses.z.size)
            sums = sweep_of(self.divergence, state, losses, out) if out.size else None
            found.append(sums)
        return found

    def add(self, first: list[Array | None], second: list[Array | None]) -> list[Array | None]:
        both = []
        for (_, state), one, other in zip(self.searches, first, second, strict=True):
            if one is None or other is None:
                both.append(other if one is None else one)
            else:
                both.append(joined(self.divergence, state, one, other))
        return both


@dataclass(frozen=True)
class _DrawnGradientPass(_DrawnPass):
    """The gradient of the signed blocks, from the states of their searches."""

    divergence: Divergence
    states: list[bytes]

    def of(self, block: RowBlock) -> Array | None:
        drawn = self.drawn(block)
        if drawn is None:
            return None
        weights = np.zeros(drawn.z.size)
        for k, state in enumerate(self.states):
            losses, rows = drawn.losses(self.blocks, k)
            if losses.z.size:
                weights[rows] += self.blocks[k, 2] * weights_of(self.divergence, state, losses)
        block.drawn = None
        return drawn.problem.data_gradient(drawn.slopes, weights)

    def add(self, first: Array, second: Array) -> Array:
        return first + second


def _large_gradient(
    problem: BlockProblem, split: Split, blocks: Array, firsts: Counts, theta: Array
) -> tuple[Array | None, int]:
    """`_signed_gradient` of rows that stay where they are."""
    run, divergence, where = problem.blocks.run, problem.divergence, (split, blocks, firsts, theta)
    surveys = run(_DrawnSurveyPass(*where))
    if any(np.isnan(survey.row[0]) for survey in surveys):
        return None, _core.NOT_FINITE
    searches = [
        Search(divergence, float(radius), int(stop - start)).begin(survey)
        for (start, stop, _, radius), survey in zip(blocks, surveys, strict=True)
    ]
    states = run_searches(searches, lambda left: run(_DrawnSweepsPass(*where, divergence, left)))[0]
    if any(search.answer()[0] != _core.OK for search in searches):
        return None, _core.NOT_SOLVED
    return run(_DrawnGradientPass(*where, divergence, states)), _core.OK


# -- steps ---------------------------------------------------------------------------------------


def run_block_steps(
    problem: BlockProblem,
    method: Method,
    state: Model,
    rng: np.random.Generator,
    steps: tuple[Array, float, float, float],
) -> int:
    """`descent.run_steps` on rows in blocks."""
    gammas, clip, omega, limit = steps
    found: dict[int, int] = problem.blocks.run(_SizesPass())
    firsts = np.array(sorted(found))
    sizes = np.array([found[first] for first in firsts.tolist()])
    template, made = problem.without_rows(), 0
    while made < gammas.size and state.tally.samples < limit:
        draws: list[SplitDraw] = []
        rows, room = 0, min(gammas.size - made, max(_PLANNED // sizes.size, 1))
        while len(draws) < room and state.tally.samples + rows < limit:
            draws.append(split_draw(method, sizes, rng, state.tally.step + len(draws)))
            rows += draws[-1].rows
            if rows * problem.row_size > _FETCHED:
                break
        small = [
            split
            for draw in draws
            for split in (draw.base, draw.correction)
            if split is not None and _is_small(problem, split)
        ]
        fetched = iter(problem.blocks.run(_FetchPass(small, firsts)) if small else [])
        for draw in draws:
            parts = []
            for split, blocks in draw[:2], draw[2:]:
                if split is None:
                    continue
                if _is_small(problem, split):
                    part = _assembled(template, next(fetched))
                    gradient, status = _signed_gradient(part, blocks, state.theta)
                else:
                    gradient, status = _large_gradient(problem, split, blocks, firsts, state.theta)
                if gradient is None:
                    return status
                parts.append(gradient)
            if not _make_step(problem, state, parts, (float(gammas[made]), clip, omega)):
                return _core.NOT_FINITE
            state.tally.samples += draw.rows
            made += 1
    return _core.OK


def _is_small(problem: BlockProblem, split: Split) -> bool:
    return int(split.counts.sum()) * problem.row_size <= _FETCHED


def _make_step(
    problem: BlockProblem, state: Model, parts: list[Array], settings: tuple[float, float, float]
) -> bool:
    """One step along the gradient of the base block and of the correction, as in descent.hpp.

    False if the gradient is not finite.
    """
    gamma, clip, omega = settings
    tally, (mean, scale, _), base = state.tally, problem.columns, parts[0]
    size = float(np.linalg.norm(problem.scaled_gradient(base)))
    if tally.step < 100.0 or tally.step % 8.0 == 0.0:
        tally.base_norm += (size - tally.base_norm) / min(tally.step + 1.0, 100.0)
    gradient = base
    for extra in parts[1:]:
        length = float(np.linalg.norm(problem.scaled_gradient(extra)))
        bound = clip * tally.base_norm * np.sqrt(1.0 + tally.step / 100.0)
        tally.corrections += 1.0
        factor = 1.0
        if length > bound:
            factor = bound / length
            tally.clipped += 1.0
        gradient = base + factor * extra
    if not np.isfinite(gradient).all():
        return False
    theta, lengths = state.theta, gamma * scale[:-1]
    w = theta[:, :-1]
    moved = (w - lengths * (gradient[:, :-1] - mean * gradient[:, -1:])) / (
        1.0 + lengths * problem.l2
    )
    # The columns are centred: a change of a coefficient changes the intercept by −mean times that.
    theta[:, -1] += (w - moved) @ mean - gamma * scale[-1] * gradient[:, -1]
    theta[:, :-1] = moved
    state.average += omega * gamma * theta
    tally.averaged += omega * gamma
    tally.step += 1.0
    return True
