"""The objective of a robust linear model on rows in blocks: a `Problem` that sees only sums.

The scores of a model are represented by the model itself: they are linear in it, so all that exact
solvers do with scores (adding a step to them) gives the same with models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._blocks import Blocks
from drolearn._inner.block_search import Sample, Search, Survey
from drolearn._inner.smoothing import smoothed
from drolearn._inner.worst_case import WorstCase, inner_maximum
from drolearn._solvers.block_layout import Layout, LayoutPass
from drolearn._solvers.block_regret import LargestLossPass, losses_alone, value_of_reference
from drolearn._solvers.block_rows import (
    At,
    BaselinePass,
    DualPass,
    GradientPass,
    GroupGradientsPass,
    GroupLossPass,
    HessianPass,
    Look,
    LookPass,
    MeanPass,
    MomentsPass,
    RowBlock,
    RowsPass,
    SecondOrderPass,
    Smooth,
    SmoothedPass,
    SmoothPass,
    SpreadPass,
    SweepPass,
    ZeroDualPass,
    ZeroNewtonPass,
)
from drolearn._solvers.block_trials import Multipliers, Trials
from drolearn._solvers.columns import Columns, Moments
from drolearn._solvers.linear_algebra import solve_spd
from drolearn._solvers.problem import Evaluation, Problem
from drolearn._solvers.zero_model import DualPoint, conjugate_gradients, has_small_matrix
from drolearn.divergence import as_divergence

__all__ = ["BlockEvaluation", "BlockProblem", "Facts"]

Array = NDArray[np.float64]
_NONE = np.empty(0)
# Column statistics come from a subsample of rows with about this many numbers.
_MEASURED = 5_000_000
# Samples of large data have at most a quarter of this many numbers, in this process.
_SAMPLED = 32_000_000
# Worst cases are predicted from about this many rows.
_PREDICTED_ROWS = 8192
# Steps of the search for λ of a smoothed robust loss.
_MOST_ROOT_STEPS = 500


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of all rows."""

    n: int
    d: int
    sparse: bool
    stored: int
    """Stored numbers of X."""
    mass: float
    """Sum of the weights."""
    least: float
    """Smallest positive weight."""
    largest_y: float
    y_mean: float
    """Weighted mean of y."""
    y_square: float
    """Weighted mean of y²."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockEvaluation(Evaluation):
    """The robust loss at one model.

    Vectors of rows stay in the blocks, and are empty here; with groups, `losses` and `shares` are
    those of the groups.
    """

    gradient: Array
    """∇R without penalty."""
    at: At
    row: Array
    """The survey of the losses, see `Survey`."""
    largest_slope: float


@dataclass(frozen=True, eq=False)
class BlockProblem(Problem):
    """The robust loss of linear models on rows in blocks.

    Parameters
    ----------
    blocks : Blocks
        The blocks, of type `RowBlock`.
    facts : Facts
        What is known of all rows.

    With reference losses, which are in the blocks, `reference` is an empty array.
    """

    blocks: Blocks[RowBlock] = field(kw_only=True)
    facts: Facts = field(kw_only=True)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.facts.n

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.facts.d

    @property
    def sparse(self) -> bool:
        """Whether the data are sparse matrices."""
        return self.facts.sparse

    @property
    def local(self) -> bool:
        """Whether the rows are in this process."""
        return False

    @property
    def row_size(self) -> float:
        """Mean number of stored numbers in a row."""
        return max(self.facts.stored / self.n, 1.0)

    @cached_property
    def columns(self) -> Columns:
        """Mean and scale of the columns, see `Problem.columns`."""
        if self.measured is not None:
            return self.measured
        stride = max(int(self.n * self.row_size / _MEASURED), 1)
        columns = self._columns_of(stride)
        if stride > 1 and not self.sparse and not columns[1][:-1].all():
            # A column that is constant on the subsample may vary on the other rows.
            columns = self._columns_of(1)
        return columns

    @property
    def most_sampled(self) -> float:
        """The largest number of rows that `sample` returns: this process must hold them."""
        return max(_SAMPLED / self.row_size, 1.0)

    def sample(self, count: int) -> Problem:
        """The problem on about `count` rows, brought to this process."""
        rows = self.blocks.run(RowsPass(self.n, int(min(count, self.most_sampled))))
        if self.sparse:
            from scipy.sparse import vstack  # imported when used: it is heavy

            X = vstack(rows.X, format="csr")
        else:
            X = np.concatenate(rows.X)
        weights, reference = (
            np.concatenate(parts) if parts else None for parts in (rows.weights, rows.reference)
        )
        known = {"X": X, "y": np.concatenate(rows.y), "weights": weights, "reference": reference}
        return replace(self.without_rows(), **known)

    def without_rows(self) -> Problem:
        """A problem in this process that needs X, y and weights."""
        return Problem(
            None,
            _NONE,
            loss=self.loss,
            divergence=self.divergence,
            rho=self.rho,
            l2=self.l2,
            intercept=self.intercept,
            m=self.m,
            n_jobs=self.n_jobs,
            scaling=self.scaling,
            measured=self.columns,
        )

    @cached_property
    def layout(self) -> Layout:
        """The rows of the blocks that draws choose from."""
        firsts, sizes = self.blocks.run(LayoutPass())
        if self.groups is not None:  # groups whose share is too small to count are not drawn
            sizes = np.where(self.groups.shares[:, None] > 0.0, sizes, 0)
        return Layout(firsts, sizes)

    def moments(self, rows: Any, mean: Array | None) -> Moments:
        """Moments of every `rows`-th row."""
        return self.blocks.run(MomentsPass(rows, mean))

    # -- values and gradients ------------------------------------------------------------

    @cached_property
    def robust_search(self) -> Search:
        """Searches of the worst case in the ball."""
        return Search(self.divergence, self.rho, self.n)

    def zero_scores(self) -> Array:
        """The zero model."""
        return self.zeros()

    def scores(self, theta: Array) -> Array:
        """The model itself, which represents its scores."""
        return np.ascontiguousarray(theta)

    @cached_property
    def sampled(self) -> Problem | None:
        """The rows on which worst cases are predicted before those of the blocks are known."""
        count = min(_PREDICTED_ROWS, self.n // 4, int(self.most_sampled) // 16)
        return self.sample(count) if count > 0 else None

    def _sample_of_losses(self, theta: Array) -> Sample | None:
        part = self.sampled
        if part is None:
            return None
        z = part.losses_at(part.scores(theta))[0]
        return (z, part.weights) if np.isfinite(z).all() else None

    def evaluate_or_none(
        self, scores: Array, plain: bool = False, epsilon: float = 0.0
    ) -> BlockEvaluation | None:
        """Robust loss and its gradient at the model `scores`; None if a loss is not finite."""
        theta = scores.copy()
        if plain or self.plain:
            return self._mean(theta)
        if self.groups is not None:
            return self._of_groups(theta, epsilon)
        sharp = self._robust(theta)
        return sharp if sharp is None or epsilon == 0.0 else self._smoothed(sharp, epsilon)

    def _robust(
        self, theta: Array, look: Look | None = None, start: Multipliers | None = None
    ) -> BlockEvaluation | None:
        """The robust loss and its gradient; `start` are multipliers that are close."""
        search, gradient, run = self.robust_search, None, self.blocks.run
        look = look or run(LookPass(theta))
        sample = None if start else self._sample_of_losses(theta)

        def sweep(state: bytes, k: int) -> Array:
            nonlocal gradient
            last = search.expects_weights(state, k)
            sums = run(SweepPass(At(theta, search.divergence, state), last))
            gradient = sums.gradient
            return sums.sweep

        found = search.maximise(look.survey, sweep, sample, start)
        if found is None:
            return None
        at = At(theta, search.divergence, found.state)
        if gradient is None:
            gradient = run(GradientPass(at))[0]
        worst = found.worst
        # D and ρ differ by rounding: to first order, this is the value at D = ρ.  Line searches
        # close to the optimum need these digits.
        if 0.0 < worst.alpha < math.inf:
            value = worst.value + worst.alpha * (worst.rho - worst.achieved)
            worst = replace(worst, value=value)
        self.trials.start(theta, Multipliers(worst.alpha, worst.lam), worst.value, gradient)
        return _evaluation(at, worst, gradient, look)

    @cached_property
    def trials(self) -> Trials:
        """Evaluations in one round."""

        def guess(theta: Array) -> Multipliers | None:
            sample = self._sample_of_losses(theta)
            return None if sample is None else Multipliers(*self.robust_search.guess(sample)[0])

        facts, scaled = self.facts, self.scaled_gradient
        return Trials(
            self.blocks, self.divergence, self.rho, facts.mass, facts.least, guess, scaled
        )

    def trial(
        self, scores: Array, plain: bool = False, epsilon: float = 0.0
    ) -> BlockEvaluation | None:
        """The robust loss and its gradient, in one round if multipliers are predicted well."""
        if plain or self.plain or epsilon > 0.0 or self.groups is not None:
            return self.evaluate_or_none(scores, plain, epsilon)
        theta = scores.copy()
        found, look = self.trials.of(theta)
        if found is None or look is None:
            return self._robust(theta, look)
        (alpha, lam), rho = found.multipliers, self.rho
        worst = WorstCase(_NONE, found.value, rho, alpha, lam, 0.0, rho, self.divergence)
        at = At(theta, self.divergence, b"", self.trials.smooth(found.multipliers))
        return _evaluation(at, worst, found.gradient, look)

    def refined(self, at: Evaluation) -> Evaluation:
        """The same evaluation without the error of a `trial`."""
        at = _of_blocks(at)
        smooth, look = at.at.smooth, Look(Survey(at.row, [], []), at.largest_slope)
        if smooth is None or not smooth.in_ball:
            return at
        return self._robust(at.scores, look, Multipliers(smooth.alpha, smooth.lam)) or at

    def _of_groups(self, theta: Array, epsilon: float) -> BlockEvaluation | None:
        """The robust loss over groups: this process solves the worst case of their mean losses."""
        look, losses = self.blocks.run(GroupLossPass(theta))
        if self.groups is None or np.isnan(look.survey.row[0]):
            return None
        bend, shares = None, self.groups.shares
        if epsilon > 0.0:
            found = smoothed(losses, self.rho, self.divergence, shares, epsilon)
            worst, bend = found or (None, None)
        else:
            worst = inner_maximum(self.divergence, self.rho, losses, shares)
        if worst is None:
            return None
        q = worst.weights
        at = At(theta, self.divergence, b"", None, q.tobytes())
        gradient = self.blocks.run(GradientPass(at))[0]
        found = _evaluation(at, replace(worst, weights=_NONE), gradient, look)
        return replace(found, losses=losses, shares=q, bend=bend)

    def group_losses(self, at: Evaluation) -> Array:
        """The mean losses of the groups."""
        return _of_blocks(at).losses

    def with_group_weights(self, at: Evaluation, q: Array) -> BlockEvaluation:
        """The evaluation with other weights of the groups."""
        at = _of_blocks(at)
        where = at.at._replace(group_weights=q.tobytes())
        return replace(at, shares=q, at=where, gradient=self.blocks.run(GradientPass(where))[0])

    def group_gradients(self, at: Evaluation) -> Array:
        """Scaled gradients of the mean losses of the groups, one row each; for m = 1."""
        gradients = self.blocks.run(GroupGradientsPass(_of_blocks(at).at.theta))[0]
        return np.array([self.scaled_gradient(each) for each in gradients])

    def _smoothed(self, sharp: BlockEvaluation, epsilon: float) -> BlockEvaluation:
        """R_ε, see `drolearn._inner.smoothing`, from the evaluation of R at the same model.

        Where the ball binds, α ≥ ε and the weights are those of R.  Elsewhere α = ε, and λ solves
        Σ p = 1 by Newton's method inside a bracket.
        """
        worst, divergence, theta = sharp.worst, self.divergence, sharp.scores
        if worst.alpha >= epsilon:
            value = worst.value - epsilon * worst.achieved
            return replace(sharp, worst=replace(worst, value=value), value=value)
        run, (_, bottom, top, peak, mass) = self.blocks.run, sharp.row
        # s ≤ 1 for λ = top, and s ≥ 1 for the smallest loss.
        low, high, lam, before, total = bottom - top, 0.0, 0.0, math.inf, 1.0
        smooth = Smooth(epsilon, top, lam, mass, mass / max(peak, 1e-300))
        for _ in range(_MOST_ROOT_STEPS):
            total, rise = run(SmoothPass(theta, divergence, smooth))
            low, high = (lam, high) if total >= 1.0 else (low, lam)
            size = abs(math.log(total))
            newton = lam + epsilon * math.log(total) * total / rise if rise > 0.0 else math.nan
            inside = low < newton < high and size <= 0.5 * before
            following = newton if inside else 0.5 * (low + high)
            if size <= 1e-15 or high - low <= 4e-16 * abs(lam) or following == lam:
                break
            before, lam = size, following
            smooth = smooth._replace(lam=lam)
        smooth = smooth._replace(total=total)
        achieved, first, gradient = run(SmoothedPass(theta, divergence, smooth))
        value = top + first - epsilon * achieved
        smoothed = replace(worst, value=value, alpha=epsilon, lam=top + lam)
        at = At(theta, divergence, b"", smooth)
        return replace(sharp, worst=smoothed, value=value, at=at, gradient=gradient)

    def _mean(self, theta: Array) -> BlockEvaluation | None:
        """The mean loss and its gradient, in one pass."""
        look, total, gradient = self.blocks.run(MeanPass(theta))
        if np.isnan(look.survey.row[0]):
            return None
        mass, chi2 = float(look.survey.row[4]), as_divergence("chi2")
        state = Search(chi2, 0.0, self.n).start(look.survey)
        mean = total / mass
        worst = WorstCase(_NONE, mean, 0.0, math.inf, mean, 0.0, 0.0, chi2)
        return _evaluation(At(theta, chi2, state), worst, gradient / mass, look)

    def gradient(self, at: Evaluation) -> Array:
        """∇R without penalty."""
        return _of_blocks(at).gradient

    def derivative_along(self, at: Evaluation, score_change: Array) -> float:
        """The derivative of R along a change of the model."""
        return float(np.sum(_of_blocks(at).gradient * score_change))

    @property
    def can_smooth(self) -> bool:
        """Whether the robust loss can be smoothed."""
        if self.groups is not None:
            return super().can_smooth
        return self.divergence.strictly_convex

    def spread(self, at: Evaluation, unit: float) -> float:
        """The standard deviation of the losses of the units of the ball, divided by a unit."""
        if self.groups is not None:
            return super().spread(at, unit)
        total, square = self.blocks.run(SpreadPass(_of_blocks(at).at.theta, unit))
        return math.sqrt(max(square / self.n - (total / self.n) ** 2, 0.0))

    def largest_loss(self, at: Evaluation) -> float:
        """The largest loss of a row with positive weight."""
        if self.reference is not None:
            return self.blocks.run(LargestLossPass(_of_blocks(at).at.theta))
        return float(_of_blocks(at).row[2])

    @property
    def value_without_losses(self) -> float:
        """The robust loss if all losses were 0: with a reference, that of −c."""
        return 0.0 if self.reference is None else value_of_reference(self)

    def without_reference(self) -> BlockProblem:
        """The same problem without a reference."""
        return self if self.reference is None else losses_alone(self)

    def largest_slope(self, at: Evaluation) -> float:
        """The largest derivative of a loss in a score, in absolute value."""
        return _of_blocks(at).largest_slope

    @cached_property
    def baseline_loss(self) -> float:
        """The mean loss of the zero model, or of predicting mean y in regression with intercept."""
        if self.loss.of != "residual":  # all classes have the same loss
            z, _ = self.loss.of_scores(np.zeros(self.m), np.ones(1))
            return abs(float(z[0]))
        constant = self.facts.y_mean if self.intercept else 0.0
        return abs(self.blocks.run(BaselinePass(constant))[0] / self.facts.mass)

    @cached_property
    def typical_norm(self) -> float:
        """The order of magnitude of ‖v‖ at a solution: 1, or the root mean square of y."""
        return 1.0 if self.loss.of != "residual" else math.sqrt(self.facts.y_square)

    def _not_finite(self, scores: Array) -> str:
        if self.loss.of == "residual":
            return (
                f"The losses overflow: y goes up to {self.facts.largest_y:.3g}. "
                f"Rescale y, for example with StandardScaler."
            )
        return "The losses are not finite: rescale X, for example with StandardScaler."

    # -- Hessians and certificates -------------------------------------------------------

    def second_order(
        self, at: Evaluation, multipliers: tuple[float, float] | None
    ) -> tuple[Array, Array, Array]:
        """The parts of the Hessian of R, see `Problem.second_order`."""
        where = _of_blocks(at).at
        if where.smooth is not None:
            multipliers = where.smooth.alpha, where.smooth.top + where.smooth.lam
        task = SecondOrderPass(where, self.columns, multipliers, self.facts.mass)
        hessian, sides, m = self.blocks.run(task)
        if where.smooth is None or where.smooth.in_ball:
            return hessian, sides, m
        # α is given: only λ depends on the losses.
        return hessian, sides * [1.0, 0.0], m * [[1.0, 0.0], [0.0, 0.0]]

    def weighted_hessian(self, at: Evaluation) -> Array:
        """The Hessian of the weighted loss Σ p l without penalty."""
        return self.blocks.run(HessianPass(_of_blocks(at).at, self.columns))[0]

    def dual_sums(self, at: Evaluation, delta: Array | None) -> tuple[float, Array]:
        """Sums of the duality gap, see `Problem.dual_sums`."""
        return self.blocks.run(DualPass(_of_blocks(at).at, self.columns, delta))

    @property
    def zero_dual(self) -> BlockZeroDual:
        """The dual function of the smallest ball in which the zero model is optimal."""
        return BlockZeroDual(self)


def _evaluation(at: At, worst: WorstCase, gradient: Array, look: Look) -> BlockEvaluation:
    return BlockEvaluation(
        at.theta, _NONE, _NONE, worst, worst.value, _NONE, None,
        gradient, at, look.survey.row, look.largest_slope,
    )  # fmt: skip


def _of_blocks(at: Evaluation) -> BlockEvaluation:
    if not isinstance(at, BlockEvaluation):
        raise TypeError("The evaluation is not one of blocks.")
    return at


class BlockZeroDual:
    """The dual function of `smallest_ball` on rows in blocks."""

    def __init__(self, problem: BlockProblem) -> None:
        self.problem = problem
        self.smallest = problem.facts.least / problem.facts.mass
        self.settings = (problem.columns, 1.0 / self.smallest, problem.facts.mass)

    def evaluate(self, point: Array) -> DualPoint:
        """The dual function at (μ, ν)."""
        moment, mass, divergence, curvature = self._sums(point)
        gradient = np.append(moment, mass - 1.0)
        value = divergence - float(point @ gradient)
        return DualPoint(point, value, mass, gradient, _NONE, np.array([curvature]))

    def newton_step(self, at: DualPoint) -> Array:
        """H⁻¹ g; for many columns or classes by products with H, one pass each."""
        run = self.problem.blocks.run
        task = ZeroNewtonPass(at.point, *self.settings)
        if has_small_matrix(self.problem):
            return solve_spd(run(task)[0], at.gradient)

        def product(direction: Array) -> Array:
            return run(replace(task, direction=direction))[0]

        return conjugate_gradients(product, at.gradient, float(at.curvature[0]))

    def ball(self, at: DualPoint) -> tuple[float, Array]:
        """The divergence of p / Σ p; the weights stay in the blocks."""
        return self._sums(at.point, 1.0 / at.mass)[2], _NONE

    def _sums(self, point: Array, factor: float = 1.0) -> tuple[Array, float, float, float]:
        return self.problem.blocks.run(ZeroDualPass(point, *self.settings, factor))
