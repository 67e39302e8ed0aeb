"""Steps of stochastic solvers on rows in blocks.

The rows of small draws are brought to this process, those of many steps in one round, and the core
makes these steps.  For large draws, the blocks keep the rows and add up losses, worst cases and
gradients, and the core makes the step along the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, islice
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
from drolearn._inner.worst_case import inner_maximum
from drolearn._solvers.block_draws import (
    SplitDraw,
    fetched_draws,
    members_of,
    part_of,
    split_draw,
    split_level,
)
from drolearn._solvers.block_problem import BlockProblem
from drolearn._solvers.block_rows import RowBlock
from drolearn._solvers.draws import Draw, Full, Method
from drolearn._solvers.multilevel import Multilevel
from drolearn._solvers.problem import Problem
from drolearn.divergence import Divergence

__all__ = ["gradient_of_draw", "run_block_steps", "squares_of_level"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Draws of more stored numbers than this stay in the blocks; one round brings at most as many.
_FETCHED = 2_000_000
# One round carries at most this many numbers of rows: draws times groups times blocks.
_PLANNED = 50_000


class Model(Protocol):
    """The model that steps change in place, its average, its anchor, and what is counted."""

    theta: Array
    average: Array
    anchor: Array
    drift: Array
    tally: _core.Tally


# -- rows that stay in the blocks ----------------------------------------------------------------


class _Drawn:
    """The rows of a draw in one block, and their losses and slopes at the last model."""

    def __init__(self, block: RowBlock, draw: SplitDraw, k: int) -> None:
        self.seed, whole = draw.seed, block.problem
        parts = draw.chosen(k, members_of(block))
        rows = np.concatenate(parts)
        self.edges = np.cumsum([0, *(part.size for part in parts)])
        self.b = None if whole.weights is None else whole.weights[rows]
        groups = whole.groups
        self.of = None if groups is None or groups.of is None else groups.of[rows]
        # A copy of most rows would double the memory that they take.
        self.at: Any = rows
        self.problem = whole
        if 2 * rows.size < whole.n:
            self.problem, self.at = part_of(whole, rows), np.arange(rows.size)
        self.theta: Array | None = None
        self.z = self.slopes = np.empty(0)

    def look(self, theta: Array) -> None:
        """Compute losses and slopes at θ."""
        if self.theta is None or not np.array_equal(self.theta, theta):
            z, self.slopes = self.problem.losses_at(self.problem.scores(theta))
            self.theta, self.z = theta, z[self.at]

    def rows(self, span: slice) -> slice:
        """The rows of some parts."""
        return slice(self.edges[span.start], self.edges[span.stop])

    def losses(self, span: slice) -> LossBlock:
        """The losses of some parts."""
        rows = self.rows(span)
        return LossBlock(self.z[rows], None if self.b is None else self.b[rows], 0)

    def gradient(self, weights: Array) -> Array:
        """Σ weight × ∇l."""
        total = np.bincount(self.at, weights, self.problem.n).astype(np.float64)
        return self.problem.data_gradient(self.slopes, total)


@dataclass(frozen=True)
class _DrawnPass(Pass[RowBlock, Any]):
    """What passes over the rows of a large draw share."""

    draw: SplitDraw
    firsts: Counts
    theta: Array

    def drawn(self, block: RowBlock) -> _Drawn | None:
        """The rows of the draw in a block, which keeps them until the next draw."""
        k = int(np.searchsorted(self.firsts, block.first))
        if not self.draw.used[k]:
            return None
        if block.drawn is None or block.drawn.seed != self.draw.seed:
            block.drawn = _Drawn(block, self.draw, k)
        block.drawn.look(self.theta)
        return block.drawn


@dataclass(frozen=True)
class _DrawnSurveyPass(_DrawnPass):
    """The ranges of the losses in each signed block."""

    def of(self, block: RowBlock) -> list[Survey | None] | None:
        drawn = self.drawn(block)
        if drawn is None:
            return None
        parts = [drawn.losses(span) for span in self.draw.spans]
        return [survey_of(part, 0) if part.z.size else None for part in parts]

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
            losses = drawn.losses(self.draw.spans[k])
            out = np.empty(losses.z.size)
            found.append(sweep_of(self.divergence, state, losses, out) if out.size else None)
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
class _DrawnGroupsPass(_DrawnPass):
    """Σ b and Σ b l of each group in each signed block: shape (signed blocks, 2, groups)."""

    groups: int

    def of(self, block: RowBlock) -> Array | None:
        drawn = self.drawn(block)
        if drawn is None or drawn.of is None:
            return None
        sums = np.zeros((len(self.draw.spans), 2, self.groups))
        for k, span in enumerate(self.draw.spans):
            rows, losses = drawn.rows(span), drawn.losses(span)
            b = np.ones(losses.z.size) if losses.b is None else losses.b
            for j, values in enumerate((b, b * losses.z)):
                sums[k, j] = np.bincount(drawn.of[rows], values, self.groups)
        return sums

    def add(self, first: Array, second: Array) -> Array:
        return first + second


@dataclass(frozen=True)
class _DrawnGradientPass(_DrawnPass):
    """The gradients of the base block and of the correction, from weights of the signed blocks."""

    divergence: Divergence
    weights: list[bytes | Array | None]
    """For each signed block, the state of its search, or the weight of a unit of b in each group.
    None for a block without weight."""
    release: bool

    def of(self, block: RowBlock) -> Array | None:
        drawn = self.drawn(block)
        if drawn is None:
            return None
        weights = np.zeros(drawn.z.size)
        for k, (span, given) in enumerate(zip(self.draw.spans, self.weights, strict=True)):
            losses, rows = drawn.losses(span), drawn.rows(span)
            if given is None or not losses.z.size:
                continue
            if isinstance(given, bytes):
                p = weights_of(self.divergence, given, losses)
            elif drawn.of is not None:
                p = given[drawn.of[rows]] * (1.0 if losses.b is None else losses.b)
            else:
                raise RuntimeError("There are no groups.")
            weights[rows] += self.draw.blocks[k, 2] * p
        both, end = [weights, np.zeros(weights.size)], drawn.edges[1]
        both[1][end:], weights[end:] = weights[end:], 0.0
        if self.release:
            block.drawn = None
        return np.array([drawn.gradient(part) for part in both])

    def add(self, first: Array, second: Array) -> Array:
        return first + second


class _Gradients(NamedTuple):
    """The gradients of the base block and of the correction, or the status of a failure."""

    values: Array | None
    status: int = _core.OK


def _gradients_in_blocks(
    problem: BlockProblem, draw: SplitDraw, theta: Array, release: bool = True
) -> _Gradients:
    """The gradients of a draw whose rows stay where they are."""
    run, where = problem.blocks.run, (draw, problem.layout.firsts, theta)
    weights: list[bytes | Array | None] = []
    if problem.groups is not None:
        sums = run(_DrawnGroupsPass(*where, problem.groups.shares.size))
        if not np.isfinite(sums).all():
            return _Gradients(None, _core.NOT_FINITE)
        for (mass, total), radius in zip(sums, draw.blocks[:, 3], strict=True):
            some = mass > 0.0
            means = np.divide(total, mass, out=np.zeros(mass.size), where=some)
            shares = np.where(some, problem.groups.shares, 0.0)
            worst = inner_maximum(problem.divergence, float(radius), means, shares)
            if worst is None:
                return _Gradients(None, _core.NOT_FINITE)
            q = worst.weights
            weights.append(np.divide(q, mass, out=np.zeros(mass.size), where=some))
    else:
        surveys = run(_DrawnSurveyPass(*where))
        if any(np.isnan(survey.row[0]) for survey in surveys):
            return _Gradients(None, _core.NOT_FINITE)
        # Signed blocks without any weight count as zero, as in the core.
        used = [k for k, survey in enumerate(surveys) if survey.row[4] > 0.0]
        sizes = draw.blocks[:, 1] - draw.blocks[:, 0]
        searches = [
            Search(problem.divergence, float(draw.blocks[k, 3]), int(sizes[k])).begin(surveys[k])
            for k in used
        ]

        def sweep(left: list[tuple[int, bytes]]) -> list[Array]:
            states = [(used[k], state) for k, state in left]
            return run(_DrawnSweepsPass(*where, problem.divergence, states))

        states = run_searches(searches, sweep)[0]
        if any(search.answer()[0] != _core.OK for search in searches):
            return _Gradients(None, _core.NOT_SOLVED)
        found = dict(zip(used, states, strict=True))
        weights = [found.get(k) for k in range(len(surveys))]
    return _Gradients(run(_DrawnGradientPass(*where, problem.divergence, weights, release)))


def _gradients(
    problem: BlockProblem, draw: SplitDraw | None, theta: Array, release: bool = True
) -> _Gradients:
    """The gradients of a large draw; None stands for a draw of all rows."""
    if draw is not None and not (len(draw.blocks) == 1 and draw.rows == problem.layout.rows):
        return _gradients_in_blocks(problem, draw, theta, release)
    at = problem.evaluate_or_none(problem.scores(theta))
    if at is None:
        return _Gradients(None, _core.NOT_FINITE)
    gradient = problem.gradient(at)
    return _Gradients(np.array([gradient, np.zeros_like(gradient)]))


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
    made = 0
    while made < gammas.size and state.tally.samples < limit:
        draws = _planned(problem, method, state, rng, (gammas.size - made, limit))
        small = [draw for draw in draws if draw is not None and _is_small(problem, draw)]
        here, given = fetched_draws(problem, small) if small else (None, [])
        rest = iter(given)
        for is_small, stretch in groupby(draws, lambda draw: _is_small(problem, draw)):
            some = list(stretch)
            settings = gammas[made : made + len(some)], clip, omega, limit
            if is_small and here is not None:
                status = _steps_here(here, list(islice(rest, len(some))), state, settings)
            else:
                status = _steps_in_blocks(problem, some, state, settings)
            if status != _core.OK:
                return status
            made += len(some)
    return _core.OK


def _planned(
    problem: BlockProblem,
    method: Method,
    state: Model,
    rng: np.random.Generator,
    most: tuple[int, float],
) -> list[SplitDraw | None]:
    """The draws of the next steps; None for a step on all rows."""
    count, limit = most
    if isinstance(method, Full):
        return [None]
    sizes = problem.layout.sizes
    count = min(count, max(_PLANNED // sizes.size, 1))
    draws: list[SplitDraw | None] = []
    rows = 0
    while len(draws) < count and state.tally.samples + rows < limit:
        draw = split_draw(method, sizes, rng, state.tally.step + len(draws))
        draws.append(draw)
        rows += draw.rows
        if rows * problem.row_size > _FETCHED:
            break
    return draws


def _is_small(problem: BlockProblem, draw: SplitDraw | None) -> bool:
    return draw is not None and draw.rows * problem.row_size <= _FETCHED


def _steps_here(
    here: Problem, draws: list[Draw], state: Model, steps: tuple[Array, float, float, float]
) -> int:
    """Steps with draws of rows in this process."""
    loop = here.descent(Full(here.n, rho=here.rho, groups=here.groups).plan)
    anchor = (state.anchor, state.drift) if state.anchor.shape[0] else None
    given = [(draw.indices, draw.blocks, draw.batch_size) for draw in draws]
    gammas, clip, omega, limit = steps
    settings = (np.ascontiguousarray(gammas), float(clip), float(omega), float(limit))
    return loop.follow(given, (state.theta, state.average), anchor, settings, state.tally)


def _steps_in_blocks(
    problem: BlockProblem,
    draws: list[SplitDraw | None],
    state: Model,
    steps: tuple[Array, float, float, float],
) -> int:
    """Steps with draws whose rows stay in the blocks."""
    gammas, clip, omega, limit = steps
    mean, scale, _ = problem.columns
    anchored, status = bool(state.anchor.shape[0]), _core.OK
    for draw, gamma in zip(draws, gammas, strict=True):
        found = _gradients(problem, draw, state.theta, release=not anchored)
        if found.values is not None and anchored:
            there = _gradients(problem, draw, state.anchor)
            values = None if there.values is None else found.values - there.values
            found = _Gradients(values, there.status)
        if found.values is None:
            return found.status
        base, correction = found.values
        rows = (problem.n, 0) if draw is None else (draw.base, draw.rows - draw.base)
        status = _core.step_along(
            (base, correction if rows[1] else None), rows, state.drift if anchored else None,
            (mean, scale, problem.l2), (state.theta, state.average),
            (np.array([gamma]), float(clip), float(omega), float(limit)), state.tally,
        )  # fmt: skip
        if status != _core.OK:
            break
    return status


# -- gradients of single draws -------------------------------------------------------------------


def gradient_of_draw(problem: Problem, draw: Draw, theta: Array) -> Array:
    """The scaled gradient of a draw of rows in this process."""
    part = problem.subset(draw.indices)
    if part.weights is not None and not part.weights.any():
        return np.zeros(problem.size)
    z, slopes = part.losses_at(part.scores(theta))
    weights = draw.weights(z, problem.divergence, part.weights)
    return part.scaled_gradient(part.data_gradient(slopes, weights))


def squares_of_level(
    problem: BlockProblem,
    method: Multilevel,
    rng: np.random.Generator,
    theta: Array,
    level: int,
    count: int,
) -> list[float]:
    """The squared norms of the scaled gradients of some draws of one level."""
    squares: list[float] = []
    most = max(int(_FETCHED / (int(method.costs[level]) * problem.row_size)), 1)
    most = min(most, max(_PLANNED // problem.layout.sizes.size, 1))
    while len(squares) < count:
        number = min(most, count - len(squares))
        draws = [split_level(method, problem.layout.sizes, rng, level) for _ in range(number)]
        if _is_small(problem, draws[0]):
            here, given = fetched_draws(problem, draws)
            gradients = [gradient_of_draw(here, draw, theta) for draw in given]
        else:
            found = _gradients_in_blocks(problem, draws[0], theta)
            if found.values is None:
                raise RuntimeError("No worst case was found for the losses of a draw.")
            gradients = [problem.scaled_gradient(found.values.sum(axis=0))]
        squares += [float(np.sum(np.square(gradient))) for gradient in gradients]
    return squares
