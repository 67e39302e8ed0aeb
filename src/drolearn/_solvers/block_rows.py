"""What solvers compute for one block of rows, as passes over all blocks.

Every pass carries the model θ.  A block keeps scores, losses and worst-case weights of the last
one, and computes them again if it does not have them: results are the same after a block has moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._blocks import Pass
from drolearn._inner.block_search import Survey, joined, survey_of, sweep_of
from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.columns import Columns, Moments
from drolearn._solvers.problem import Evaluation, Problem
from drolearn._solvers.subsample import subsample_between
from drolearn._solvers.zero_model import (
    dual_hessian,
    dual_weights,
    has_small_matrix,
    moment_of,
    products_of,
)
from drolearn.divergence import Divergence

__all__ = [
    "At", "BaselinePass", "DualPass", "GradientPass", "GroupGradientsPass", "GroupLossPass",
    "HessianPass", "Look", "LookPass", "Mean", "MeanPass", "MomentsPass", "RowBlock", "Rows",
    "RowsPass", "SecondOrderPass", "Smooth", "SmoothPass", "SmoothedPass", "SpreadPass",
    "SweepPass", "ZeroDualPass", "ZeroNewtonPass", "shares_of",
]  # fmt: skip

Array = NDArray[np.float64]


class RowBlock:
    """Some consecutive rows, and what was computed last for them.

    Parameters
    ----------
    problem : Problem
        The problem on these rows alone.
    first : int
        The number of rows in all blocks before this one.
    """

    def __init__(self, problem: Problem, first: int) -> None:
        self.problem, self.first = problem, first
        self.theta: Array | None = None
        self.of: Any = None  # what the weights p were computed from
        self.scores = self.z = self.slopes = self.p = np.empty(0)
        self.measured: Columns | None = None
        self.drawn: Any = None  # the rows of the last draw, see `block_steps`

    @property
    def b(self) -> Array | None:
        """The weights of the rows."""
        return self.problem.weights

    @property
    def groups(self) -> Groups:
        """The groups of the rows, with weights that are shares of whole groups."""
        if self.problem.groups is None:
            raise RuntimeError("There are no groups.")
        return self.problem.groups

    @property
    def mass(self) -> float:
        """The sum of the weights."""
        return float(self.problem.n if self.b is None else self.b.sum())

    def look(self, theta: Array) -> None:
        """Compute scores, losses and slopes at θ."""
        if self.theta is None or not np.array_equal(self.theta, theta):
            self.theta, self.of = theta, None
            self.scores = self.problem.scores(theta)
            self.z, self.slopes = self.problem.losses_at(self.scores)

    def sweep(self, divergence: Divergence, state: bytes) -> Array:
        """Sweep over the losses once, and keep the weights if the sweep writes them."""
        if self.p.size != self.z.size:
            self.p = np.empty(self.z.size)
        self.of = state, None, None
        return sweep_of(divergence, state, self, self.p)

    def weigh(self, at: At) -> Array:
        """Compute the worst-case weights at θ."""
        self.look(at.theta)
        if self.of != at[2:]:
            if at.group_weights is not None:
                self.p, self.of = self.groups.rows(np.frombuffer(at.group_weights)), at[2:]
            elif at.smooth is not None:
                base, s, _ = self.smooth(at.divergence, at.smooth)
                self.p, self.of = base * s, at[2:]
            else:
                self.sweep(at.divergence, at.state)
        return self.p

    def smooth(self, divergence: Divergence, smooth: Smooth) -> tuple[Array, Array, Array]:
        """Compute the base weights, s((z − λ)/α), and its derivative."""
        base, t = shares_of(self, smooth.mass), ((self.z - smooth.top) - smooth.lam) / smooth.alpha
        s, rise = np.empty(t.size), np.empty(t.size)
        _core.follow(divergence.core, t, smooth.cap, s, rise)
        return base, s / smooth.total, rise

    def scaled(self, columns: Columns) -> Problem:
        """Return the problem in the scaled coordinates of all rows."""
        known = self.measured
        if known is None or not all(map(np.array_equal, known, columns)):
            rows = self.problem.rows
            self.measured, self.problem = columns, replace(self.problem, measured=columns)
            vars(self.problem)["rows"] = rows  # checked already
        return self.problem

    def evaluation(self, at: At, share: float = 1.0) -> Evaluation:
        """Return the evaluation of these rows, with weights divided by a share."""
        p = self.weigh(at) / share
        none = WorstCase(p, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, at.divergence)
        return Evaluation(self.scores, self.z, self.slopes, none, 0.0, p, None)


class Smooth(NamedTuple):
    """Weights p = b s((z − λ)/α) / total of the smoothed robust loss, where α is given."""

    alpha: float
    top: float
    """The largest loss."""
    lam: float
    """λ minus the largest loss."""
    mass: float
    """The sum of the weights of all rows."""
    cap: float
    """The largest s that is possible."""
    total: float = 1.0
    in_ball: bool = False
    """Whether α and λ are those of the worst case, so that both depend on the losses."""


class At(NamedTuple):
    """A model, and what its worst-case weights are computed from.

    That is the state of the search before it wrote the weights, or the multipliers if the robust
    loss is smoothed, or the weights of the groups.
    """

    theta: Array
    divergence: Divergence
    state: bytes
    smooth: Smooth | None = None
    group_weights: bytes | None = None


class Look(NamedTuple):
    """The range of the losses at a model."""

    survey: Survey
    largest_slope: float

    def joined(self, other: Look) -> Look:
        """Join two parts."""
        largest = max(self.largest_slope, other.largest_slope)
        return Look(self.survey + other.survey, largest)


@dataclass(frozen=True)
class LookPass(Pass[RowBlock, Look]):
    """Compute losses at θ, and their range."""

    theta: Array

    def of(self, block: RowBlock) -> Look:
        block.look(self.theta)
        return Look(survey_of(block, 0), float(abs(block.slopes).max()))

    def add(self, first: Look, second: Look) -> Look:
        return first.joined(second)


class Sums(NamedTuple):
    """Sums of a sweep, and Σ p ∇l if it was asked for."""

    sweep: Array
    gradient: Array | None


@dataclass(frozen=True)
class SweepPass(Pass[RowBlock, Sums]):
    """One sweep over the losses at θ; with `gradient`, as if it wrote the final weights."""

    at: At
    gradient: bool

    def of(self, block: RowBlock) -> Sums:
        block.look(self.at.theta)
        sums = block.sweep(self.at.divergence, self.at.state)
        if not self.gradient:
            return Sums(sums, None)
        return Sums(sums, block.problem.data_gradient(block.slopes, block.p))

    def add(self, first: Sums, second: Sums) -> Sums:
        sweep = joined(self.at.divergence, self.at.state, first.sweep, second.sweep)
        if first.gradient is None or second.gradient is None:
            return Sums(sweep, None)
        return Sums(sweep, first.gradient + second.gradient)


class _Sum(Pass[RowBlock, Any]):
    """A pass whose results are tuples of numbers or arrays that are added up."""

    def add(self, first: Any, second: Any) -> Any:
        return tuple(a + b for a, b in zip(first, second, strict=True))


class Mean(NamedTuple):
    """The losses at a model, Σ b l and Σ b ∇l."""

    look: Look
    total: float
    gradient: Array


@dataclass(frozen=True)
class MeanPass(Pass[RowBlock, Mean]):
    """Compute losses at θ, and the sums of the mean loss and its gradient."""

    theta: Array

    def of(self, block: RowBlock) -> Mean:
        look = LookPass(self.theta).of(block)
        total = float(block.z.sum() if block.b is None else block.b @ block.z)
        b = np.ones(block.z.size) if block.b is None else block.b
        return Mean(look, total, block.problem.data_gradient(block.slopes, b))

    def add(self, first: Mean, second: Mean) -> Mean:
        look = first.look.joined(second.look)
        return Mean(look, first.total + second.total, first.gradient + second.gradient)


@dataclass(frozen=True)
class GroupLossPass(Pass[RowBlock, tuple[Look, Array]]):
    """Compute losses at θ; their range, and the sums that make the mean losses of the groups."""

    theta: Array

    def of(self, block: RowBlock) -> tuple[Look, Array]:
        look = LookPass(self.theta).of(block)
        return look, block.groups.means(block.z)

    def add(self, first: tuple[Look, Array], second: tuple[Look, Array]) -> tuple[Look, Array]:
        return first[0].joined(second[0]), first[1] + second[1]


@dataclass(frozen=True)
class GroupGradientsPass(_Sum):
    """The gradients of the mean losses of the groups at θ."""

    theta: Array

    def of(self, block: RowBlock) -> tuple[Array]:
        block.look(self.theta)
        groups, problem = block.groups, block.problem
        return (
            np.array(
                [
                    problem.data_gradient(block.slopes, groups.within(g))
                    for g in range(groups.shares.size)
                ]
            ),
        )


@dataclass(frozen=True)
class SmoothPass(_Sum):
    """Σ b s and Σ b ds/dt of smoothed weights."""

    theta: Array
    divergence: Divergence
    smooth: Smooth

    def of(self, block: RowBlock) -> tuple[float, float]:
        block.look(self.theta)
        base, s, rise = block.smooth(self.divergence, self.smooth)
        return float(base @ s), float(base @ rise)


@dataclass(frozen=True)
class SmoothedPass(_Sum):
    """D, Σ p (z − top) and Σ p ∇l of smoothed weights."""

    theta: Array
    divergence: Divergence
    smooth: Smooth

    def of(self, block: RowBlock) -> tuple[float, float, Array]:
        p = block.weigh(At(self.theta, self.divergence, b"", self.smooth))
        base = shares_of(block, self.smooth.mass)
        first = float(p @ (block.z - self.smooth.top))
        gradient = block.problem.data_gradient(block.slopes, p)
        return self.divergence.between(p, base), first, gradient


@dataclass(frozen=True)
class SpreadPass(_Sum):
    """Σ x and Σ x² of the losses x at θ divided by a unit."""

    theta: Array
    unit: float

    def of(self, block: RowBlock) -> tuple[float, float]:
        block.look(self.theta)
        x = block.z / self.unit
        return float(x.sum()), float(x @ x)


@dataclass(frozen=True)
class GradientPass(_Sum):
    """Σ p ∇l."""

    at: At

    def of(self, block: RowBlock) -> tuple[Array]:
        p = block.weigh(self.at)
        return (block.problem.data_gradient(block.slopes, p),)


class Rows(NamedTuple):
    """Parts of some rows, in order."""

    X: list[Any]
    y: list[Array]
    weights: list[Array]
    reference: list[Array]


@dataclass(frozen=True)
class RowsPass(Pass[RowBlock, Rows]):
    """The rows of `subsample(n, count)`."""

    n: int
    count: int

    def of(self, block: RowBlock) -> Rows | None:
        problem, first = block.problem, block.first
        chosen = subsample_between(self.n, self.count, first, first + problem.n) - first
        if not chosen.size:
            return None
        weights = [] if block.b is None else [block.b[chosen]]
        reference = [] if problem.reference is None else [problem.reference[chosen]]
        return Rows([problem.X[chosen]], [problem.y[chosen]], weights, reference)

    def add(self, first: Rows, second: Rows) -> Rows:
        return Rows(*(one + other for one, other in zip(first, second, strict=True)))


@dataclass(frozen=True)
class MomentsPass(Pass[RowBlock, Moments]):
    """Moments of the columns on every `stride`-th row of positive weight."""

    stride: int
    mean: Array | None

    def of(self, block: RowBlock) -> Moments | None:
        rows = np.arange(-block.first % self.stride, block.problem.n, self.stride)
        if block.b is not None:
            rows = rows[block.b[rows] > 0.0]
        return block.problem.moments(rows, self.mean) if rows.size else None

    def add(self, first: Moments, second: Moments) -> Moments:
        return Moments(
            first.total + second.total,
            first.square + second.square,
            np.maximum(first.largest, second.largest),
            first.weight + second.weight,
            first.rows + second.rows,
        )


@dataclass(frozen=True)
class SecondOrderPass(_Sum):
    """The parts of `Problem.second_order`."""

    at: At
    columns: Columns
    multipliers: tuple[float, float] | None
    mass: float

    def of(self, block: RowBlock) -> tuple[Array, ...] | None:
        share = block.mass / self.mass
        if share == 0.0:
            return None
        # The problem of a block divides weights by their sum in this block.
        problem, at = block.scaled(self.columns), block.evaluation(self.at, share)
        return tuple(share * part for part in problem.second_order(at, self.multipliers))


@dataclass(frozen=True)
class HessianPass(_Sum):
    """`Problem.weighted_hessian`."""

    at: At
    columns: Columns

    def of(self, block: RowBlock) -> tuple[Array]:
        problem, at = block.scaled(self.columns), block.evaluation(self.at)
        return (problem.weighted_hessian(at),)


@dataclass(frozen=True)
class DualPass(_Sum):
    """`Problem.dual_sums`."""

    at: At
    columns: Columns
    delta: Array | None

    def of(self, block: RowBlock) -> tuple[float, Array]:
        problem, at = block.scaled(self.columns), block.evaluation(self.at)
        return problem.dual_sums(at, self.delta)


@dataclass(frozen=True)
class BaselinePass(_Sum):
    """Σ b l of a model without coefficients, whose scores are all equal to a constant."""

    constant: float

    def of(self, block: RowBlock) -> tuple[float]:
        problem = block.problem
        scores = np.full(problem.n * problem.m, self.constant)
        z, _ = problem.loss.of_scores(scores, problem.y)
        return (float(z.sum() if block.b is None else block.b @ z),)


@dataclass(frozen=True)
class ZeroDualPass(_Sum):
    """Σ p a, Σ p, D and Σ h of the weights of `drolearn._solvers.zero_model` times a factor."""

    point: Array
    columns: Columns
    cap: float
    mass: float
    factor: float = 1.0

    def of(self, block: RowBlock) -> tuple[Array, float, float, float]:
        problem, b = block.scaled(self.columns), shares_of(block, self.mass)
        p, h = dual_weights(problem, b, self.point, self.cap)
        p = self.factor * p
        divergence = problem.divergence.between(p, b)
        return moment_of(problem, p), float(p.sum()), divergence, float(h.sum())


@dataclass(frozen=True)
class ZeroNewtonPass(_Sum):
    """The matrix H of the zero model's dual function, or its product with a vector."""

    point: Array
    columns: Columns
    cap: float
    mass: float
    direction: Array | None = None

    def of(self, block: RowBlock) -> tuple[Array]:
        problem, b = block.scaled(self.columns), shares_of(block, self.mass)
        _, h = dual_weights(problem, b, self.point, self.cap)
        if self.direction is None and has_small_matrix(problem):
            return (dual_hessian(problem, h),)
        if self.direction is None:
            raise RuntimeError("A product needs a direction.")
        change = h * (products_of(problem, self.direction[:-1]) + self.direction[-1])
        return (np.append(moment_of(problem, change), change.sum()),)


def shares_of(block: RowBlock, mass: float) -> Array:
    """The weights of the rows as shares of all rows."""
    if block.b is None:
        return np.full(block.problem.n, 1.0 / mass)
    return block.b / mass
