"""Draws of rows in blocks: how many rows each block chooses, and rows that are brought here.

The rows of a draw are split over the blocks by the multivariate hypergeometric law, and each block
chooses its rows at random: together they are a uniform draw without replacement of all rows, or of
the rows of each group.  The numbers of rows and a seed come from the generator of the solve, so the
bits do not depend on where the blocks are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._blocks import Pass
from drolearn._inner.groups import Groups
from drolearn._solvers.block_problem import BlockProblem
from drolearn._solvers.block_rows import RowBlock
from drolearn._solvers.draws import Draw, Method, block_radius
from drolearn._solvers.multilevel import Multilevel
from drolearn._solvers.problem import Problem

__all__ = ["SplitDraw", "fetched_draws", "members_of", "part_of", "split_draw", "split_level"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


class SplitDraw(NamedTuple):
    """The rows of a step, and signed blocks of them.

    The parts of a draw are the base block, and the left half, the right half and the rest of a
    correction; its rows are those of the parts, one after the other.
    """

    seed: int
    counts: Counts
    """How many rows: shape (parts, groups, blocks), with one group if the ball reweights rows."""
    twice: NDArray[np.bool_]
    """Groups whose single row is in both halves; it is counted in the left one."""
    blocks: Array
    """Start, stop, coefficient and radius of signed blocks, as those of a `Draw`."""
    base: int
    """The number of rows in the base block."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.blocks[:, 1].max())

    @property
    def spans(self) -> list[slice]:
        """The parts of each signed block."""
        of_base = [slice(0, 1)] if self.base else []
        return of_base + [slice(1, 4), slice(1, 2), slice(2, 3)][: len(self.blocks) - len(of_base)]

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which blocks have rows of the draw."""
        return self.counts.sum(axis=(0, 1)) > 0

    def lengths(self) -> Counts:
        """How many rows of each part are in each block: shape (parts, blocks)."""
        lengths = self.counts.sum(axis=1)
        if len(lengths) > 1:
            lengths[2] += self.counts[1, self.twice].sum(axis=0)
        return lengths

    def chosen(self, k: int, members: Sequence[int | Counts]) -> list[Counts]:
        """The rows of the k-th block in each part; `members` are the rows of each group."""
        rng = np.random.Generator(np.random.PCG64([self.seed, k]))
        parts: list[list[Counts]] = [[] for _ in self.counts]
        for group, (rows, twice) in enumerate(zip(members, self.twice, strict=True)):
            base, *more = self.counts[:, group, k]
            # The base block and the correction are drawn independently.
            found = [rng.choice(rows, base, replace=False)]
            if more:
                drawn = rng.choice(rows, sum(more), replace=False)
                found += np.split(drawn, np.cumsum(more)[:-1])
                if twice:
                    found[2] = found[1]
            for part, each in zip(parts, found, strict=True):
                part.append(each)
        return [np.concatenate(part) for part in parts]


def split_draw(method: Method, sizes: Counts, rng: np.random.Generator, step: float) -> SplitDraw:
    """Draw the rows of a step; `sizes` are numbers of rows of the groups in the blocks."""
    level, weight = 0, 1.0
    if isinstance(method, Multilevel) and method.level_probabilities.size:
        u = rng.random()
        if step < method.warm:
            u *= method.warm / max(step, 1.0)
        chances = np.cumsum(method.level_probabilities)
        level = int(np.searchsorted(chances, u, side="right")) + 1
        if level > chances.size:
            level = 0
        else:
            weight = 1.0 / float(method.level_probabilities[level - 1])
    return _draw_of(method, sizes, rng, method._base_rows(step), (level, weight))


def split_level(
    method: Multilevel, sizes: Counts, rng: np.random.Generator, level: int
) -> SplitDraw:
    """Draw only the base block, or only a correction, not divided by its probability."""
    base = method._base_rows(0.0)
    return _draw_of(method, sizes, rng, base if level == 0 else 0 * base, (level, 1.0))


def _draw_of(
    method: Method,
    sizes: Counts,
    rng: np.random.Generator,
    base: Counts,
    correction: tuple[int, float],
) -> SplitDraw:
    """A base block with some rows of each group, and a correction of a level with a weight."""
    start, (level, weight) = int(base.sum()), correction
    counts, twice = [_split(sizes, base, rng)], np.zeros(base.size, dtype=bool)
    blocks = [(0, start, 1.0, block_radius(method, start))] if start else []
    if level and isinstance(method, Multilevel):
        of_groups, halves = method.group_sizes[level], method.group_sizes[level - 1]
        whole = _split(sizes, of_groups, rng)
        left = _split(whole, halves, rng)
        twice = (of_groups == halves) & (of_groups > 0)  # half of one row is that row
        right = _split(whole - left, np.where(twice, 0, halves), rng)
        counts += [left, right, whole - left - right]
        size, half = int(method.sizes[level]), int(method.sizes[level - 1])
        smaller = block_radius(method, half)
        blocks += [
            (start, start + int(method.costs[level]), weight, block_radius(method, size)),
            (start, start + half, -0.5 * weight, smaller),
            (start + half, start + 2 * half, -0.5 * weight, smaller),
        ]
    signed = np.array(blocks, dtype=np.float64)
    return SplitDraw(int(rng.integers(2**63)), np.array(counts), twice, signed, start)


def _split(sizes: Counts, counts: Counts, rng: np.random.Generator) -> Counts:
    """How many of `counts` rows of each group, without replacement, are in each block."""
    return np.array(
        [
            rng.multivariate_hypergeometric(each, count, method="marginals")
            for each, count in zip(sizes, counts, strict=True)
        ]
    )


def members_of(block: RowBlock) -> Sequence[int | Counts]:
    """The rows of each group with weight, or their number if they are all."""
    groups = block.problem.groups
    return [block.problem.n] if groups is None else groups.members


def part_of(problem: Problem, rows: Counts) -> Problem:
    """The problem of some rows of a block, without groups and scaling of the columns."""
    b, c = problem.weights, problem.reference
    return replace(
        problem,
        X=problem.X[rows],
        y=problem.y[rows],
        weights=None if b is None else b[rows],
        reference=None if c is None else c[rows],
        groups=None,
    )


# -- rows that are brought to this process -----------------------------------------------------


class _Rows(NamedTuple):
    """Rows of one block: those of all parts of several draws."""

    X: Any
    y: Array
    weights: Array | None
    reference: Array | None
    groups: Counts | None


@dataclass(frozen=True)
class _FetchPass(Pass[RowBlock, list[_Rows]]):
    """The rows of several draws."""

    draws: list[SplitDraw]
    firsts: Counts

    def of(self, block: RowBlock) -> list[_Rows] | None:
        k, problem = int(np.searchsorted(self.firsts, block.first)), block.problem
        members = members_of(block)
        rows = [part for draw in self.draws if draw.used[k] for part in draw.chosen(k, members)]
        if not rows:
            return None
        some = np.concatenate(rows)
        found, groups = part_of(problem, some), problem.groups
        of = None if groups is None or groups.of is None else groups.of[some]
        return [_Rows(found.X, found.y, found.weights, found.reference, of)]

    def add(self, first: list[_Rows], second: list[_Rows]) -> list[_Rows]:
        return first + second


def fetched_draws(problem: BlockProblem, draws: list[SplitDraw]) -> tuple[Problem, list[Draw]]:
    """Bring the rows of some draws here, in one round: a problem on them, and draws of its rows."""
    pieces: list[_Rows] = problem.blocks.run(_FetchPass(draws, problem.layout.firsts))
    X = _joined([piece.X for piece in pieces], problem.sparse)
    y = np.concatenate([piece.y for piece in pieces])
    weights, reference, of = (
        None if values[0] is None else np.concatenate(values)
        for values in zip(*(piece[2:] for piece in pieces), strict=True)
    )
    groups = None
    if of is not None and problem.groups is not None:
        groups = Groups(problem.groups.shares, of, np.ones(of.size))
    here = replace(
        problem.without_rows(), X=X, y=y, weights=weights, reference=reference, groups=groups
    )
    # The rows came block by block, for each block draw by draw.  This sorts them by draw and part.
    lengths = [draw.lengths() for draw in draws]
    parts = np.concatenate(lengths)
    keys = np.repeat(np.tile(np.arange(len(parts)), parts.shape[1]), parts.T.ravel())
    ends = np.cumsum([each.sum() for each in lengths])

    def as_draw(draw: SplitDraw, rows: Counts) -> Draw:
        given = None if of is None or groups is None else (of[rows], groups.shares)
        return Draw(rows, draw.blocks, draw.base, given)

    chosen = np.split(np.argsort(keys, kind="stable"), ends[:-1])
    return here, [as_draw(draw, rows) for draw, rows in zip(draws, chosen, strict=True)]


def _joined(parts: list[Any], sparse: bool) -> Any:
    if not sparse:
        return np.concatenate(parts)
    from scipy.sparse import vstack  # imported when used: it is heavy

    return vstack(parts, format="csr")
