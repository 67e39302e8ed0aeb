"""Exact solves with an l1 penalty.

    F(θ) = R(losses of X w + c) + l2/2 ‖w‖² + l1 ‖w‖₁

A round takes the columns that are used or that break the optimality conditions the most, makes
proximal Newton steps on them, and computes the gradient of all columns and the duality gap.  The
coefficients of most columns stay exactly 0, so the Hessians are small.  Where they are too large to
be formed, steps on sparse data need only products with columns (`column_steps`), and L-BFGS steps
on orthants (OWL-QN) use all columns of dense data and of several classes.

The gap needs no second solve.  The worst-case weights p of the point lie in the ball, and losses
are convex, so F is at least the linearised weighted loss plus the penalties, whose minimum is known
in closed form; see `fenchel_gaps`.  At the optimum this bound is exact if R is differentiable
there.  If it is not, minima of the smoothed robust loss give weights whose bound tends to the
optimum.  The bound is of first order: an objective that is right to nine digits may have a gap of
1e-3.  `second_order_gap` proves more, for the price of one Hessian.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.smoothing import can_smooth
from drolearn._solvers.certificate import Point, norm_bound, optimal_zero_model
from drolearn._solvers.column_steps import ColumnModel, Columns
from drolearn._solvers.directions import ROBUST, Goal, Memory, has_few_parts, newton_cost
from drolearn._solvers.ending import Ending
from drolearn._solvers.exact import Minimum, Watch
from drolearn._solvers.l1_steps import (
    Part,
    as_columns,
    excess,
    fenchel_gaps,
    model_hessian,
    orthant_step,
    point_for,
    proximal_direction,
    proximal_step,
    second_order_gap,
    slope_along,
)
from drolearn._solvers.linear_algebra import single_threaded_blas
from drolearn._solvers.problem import Problem
from drolearn._solvers.subsample import subsample

__all__ = ["minimise_sparse"]

Array = NDArray[np.float64]

# A round takes at least this many columns, and at most this many times as many as are used.
_LEAST_COLUMNS = 64
_GROWTH = 2
# L-BFGS is used where a Hessian has more coordinates than this, and where a proximal Newton step
# costs more than this many of its steps.
_MOST_COORDINATES = 4000
_AFFORDABLE = 3000.0
# Steps on sparse columns are used from this many coordinates on: no Hessian is formed.  Each sweeps
# over the columns until a sweep lowers the model by less than a share of the first one, but so many
# times; and a decrease of its model by less than a share of the gap that is allowed suggests that
# only the certificate is missing.
_COLUMN_COORDINATES = 500
_COLUMN_PRECISION, _COLUMN_SWEEPS = 1e-2, 10
_NEAR = 0.03
# A solve on columns ends after this many certificates of second order: where the objective is
# almost flat in some directions, the gap can stay far above the error of the value.
_CERTIFICATES = 2
# The largest matrix of `second_order_gap`.
_MOST_CERTIFIED = 8000
_MEMORY = 10
_LEAST_CURVATURE = 1e-10
# A round ends once the decrease of its model is below this share of the first one.
_ROUGH = 1e-2
# The ridge of the Hessian, relative to its largest diagonal entry.  It grows where full steps do
# not lower the objective, as for separable classes, where the curvature tends to 0.
_LEAST_RIDGE, _RIDGE, _MOST_RIDGE = 1e-12, 1e-6, 1e2
# Tolerances of the rounds, relative to the gap that is allowed: smaller ones if it stays large.
_FIRST_TOLERANCE = 0.1
_SMALLER = 1e-2
_LEAST_TOLERANCE = 1e-16
# A gap of more than this many times the tolerance is reported as uncertified.
_UNCERTIFIED = 10.0
# This many steps in a row next to a corner of the robust loss end its stage.
_CORNERS = 8
# As in `exact`: the first smoothing, relative to the standard deviation of the losses.
_FIRST_SMOOTHING = 0.3
_LESS_SMOOTHING = 0.1
# The problem is first solved on n/16 rows if these are at least this many, and this many for each
# column, to a tolerance of this number times columns per row.
_SHARE = 16
_LEAST_ROWS = 2000
_ROWS_PER_COLUMN = 20
_SAMPLING = 0.05


def minimise_sparse(
    problem: Problem,
    direction: str,
    start: Array,
    *,
    tol: float,
    max_iter: int,
    watch: Watch,
) -> Minimum:
    """Minimise the robust loss with an l1 penalty to a relative gap of about `tol`.

    `direction` is "newton", "lbfgs", or "exact": Newton steps where they are affordable.  `watch`
    is called as by `exact.minimise`.
    """
    with single_threaded_blas():
        return _Solve(problem, direction, tol, max_iter, watch).run(start)


class _Solve:
    """One solve: the current point, and the stages."""

    point: Point

    def __init__(
        self, problem: Problem, direction: str, tol: float, max_iter: int, watch: Watch
    ) -> None:
        self.problem, self.direction, self.tol, self.max_iter = problem, direction, tol, max_iter
        self.watch = watch
        self.used = "lbfgs" if direction == "lbfgs" else "newton"
        self.steps = 0
        self.ending = Ending.CONVERGED
        self.gap = math.inf
        self.ridge = _LEAST_RIDGE
        self.promised = math.inf  # the decrease of the last model
        self.reported = -1  # the last step that was reported
        self.corners = 0  # how many of the last steps were next to a corner of R
        self.best: Point | None = None
        self.part: Part | None = None
        self.columns: Columns | None = None

    def run(self, start: Array) -> Minimum:
        """All stages, until a certificate is good enough."""
        problem = self.problem
        try:
            self.set_up(problem.from_model(start))
            if self.ending.asked_for:
                self.gap = self.gap_of(self.point)
            elif problem.divergence.strictly_convex or problem.plain:
                # At a corner of R the steps would not end: some are left for smoothed losses.
                half = self.max_iter if problem.plain else max(self.max_iter // 2, 1)
                self.descend(ROBUST, self.tol, half)
            else:
                self.gap = self.gap_of(self.point)
            # The gap of a solve on columns is that of its steps, unless there is a corner.
            corner = self.corners > _CORNERS or problem.groups is not None
            corner = corner or not problem.divergence.strictly_convex
            smoothable = self.columns is None or corner
            if not self.finished() and not self.at_zero() and smoothable:
                self.smoothed()
        except KeyboardInterrupt:
            self.ending = Ending.INTERRUPTED
            last = self.best or getattr(self, "point", None)
            self.best = None
            self.point = self.at(problem.from_model(start) if last is None else last.v, ROBUST)
            self.gap = self.gap_of(self.point)
        return self.finalize()

    def at(self, v: Array, goal: Goal, scores: Array | None = None) -> Point:
        """The point of a goal."""
        problem = self.problem
        if scores is None:
            scores = problem.scores(problem.to_model(v))
        return point_for(problem, v, problem.evaluate(scores, *goal))

    @property
    def allowed(self) -> float:
        """The duality gap that corresponds to `tol`."""
        return self.tol * self.problem.loss_scale(self.point.value)

    def finished(self) -> bool:
        """Whether the gap is small, or the solve was stopped."""
        return self.ending.asked_for or self.gap <= self.allowed

    # -- stages ------------------------------------------------------------------------

    def set_up(self, v: Array) -> None:
        """Start from v; if that is zero, from a subsample or from a few steps on the plain mean."""
        problem = self.problem
        if not np.any(v):
            v = self.of_subsample()
        if np.any(v) or problem.plain:
            self.point = self.at(v, ROBUST)
            return
        plain = Goal(plain=True)
        self.point = self.at(v, plain, problem.zero_scores())
        self.descend(plain, 1e-2, min(3, self.max_iter))
        self.point = self.at(self.point.v, ROBUST, self.point.at.scores)

    def of_subsample(self) -> Array:
        """The solution on a part of the rows, in scaled coordinates; zero if there are too few."""
        problem, zero = self.problem, np.zeros(self.problem.size)
        rows = problem.n // _SHARE
        least = max(_LEAST_ROWS, _ROWS_PER_COLUMN * (problem.d + 1))
        if problem.groups is not None or rows < least:
            return zero
        part = problem.subset(subsample(problem.n, rows))
        weights_left = part.weights is None or bool(part.weights.any())
        few_classes = problem.loss.of != "residual" and np.unique(part.y).size < max(problem.m, 2)
        if not weights_left or few_classes:
            return zero
        tol = max(self.tol, _SAMPLING * (problem.d + 1) / rows)
        solve = _Solve(part, self.direction, tol, 20, lambda *_: False)
        return part.from_model(solve.run(part.zeros()).theta)

    def descend(self, goal: Goal, tol: float, limit: int) -> None:
        """Rounds until the relative gap of the goal is at most `tol`; sets `gap` and `ending`."""
        share, least, tries = _FIRST_TOLERANCE, _NEAR, 0
        self.promised = math.inf
        memory: Memory = deque(maxlen=_MEMORY)
        while True:
            self.gap = self.gap_of(self.point)
            self.ending = Ending.CONVERGED
            # The values fall, and with them what is allowed.
            allowed = tol * self.problem.loss_scale(self.point.value)
            if self.gap > allowed and self.columns is not None and self.promised <= least * allowed:
                self.gap = min(self.gap, self.closer_gap())
                least, tries = 0.1 * self.promised / allowed, tries + 1
            if self.gap <= allowed or tries == _CERTIFICATES:
                return
            if self.steps >= limit:
                self.ending = Ending.EXHAUSTED
                return
            before = self.steps
            part = self.next_part()
            if part is None and self.on_columns:
                self.used = "newton"
                self.ending = self.column_round(goal, allowed, limit)
            elif part is None:
                self.used = "lbfgs"
                self.ending = self.orthant_round(memory, goal)
            else:
                self.used = "newton"
                self.ending = self.newton_round(part, goal, share * allowed, limit)
            if self.ending.asked_for or self.ending is Ending.EXHAUSTED:
                self.gap = self.gap_of(self.point)
                return
            if self.steps == before:  # the model promises less than the tolerance
                if self.ending is Ending.STUCK or not self.promised > _LEAST_TOLERANCE * allowed:
                    return
                share = _SMALLER * min(share, self.promised / allowed)

    def smoothed(self) -> None:
        """Minimise R_ε for decreasing ε, whose weights tend to those of the saddle point."""
        problem, tol = self.problem, self.tol
        if problem.plain or not can_smooth(problem.divergence) or self.steps >= self.max_iter:
            return
        losses = self.point.at.losses
        if problem.groups is not None:
            losses = problem.groups.means(losses)
        scale = problem.loss_scale(self.point.value)
        epsilon = _FIRST_SMOOTHING * max(scale * float((losses / scale).std()), 1e-3 * scale)
        self.best, bound = self.point, self.point.value - self.gap
        zero = self.at(np.zeros(problem.size), ROBUST, problem.zero_scores())
        if zero.value <= self.point.value:
            self.best = zero
        while True:
            goal, scale = Goal(epsilon=epsilon), problem.loss_scale(self.best.value)
            self.point = self.at(self.point.v, goal)
            share = min(epsilon / scale, 1.0)
            half = (self.steps + self.max_iter + 1) // 2  # so that one ε does not use all steps
            self.descend(goal, max(min(0.1 * share, 1e-3), 0.1 * tol), half)
            sharp = self.at(self.point.v, ROBUST, self.point.at.scores)
            bound = max(bound, sharp.value - self.gap_of(self.point, sharp.value))
            if sharp.value < self.best.value:
                self.best = sharp
            self.gap = max(self.best.value - bound, 0.0)
            closed = self.gap <= tol * scale
            used_up = self.steps >= self.max_iter or epsilon <= 1e-13 * scale
            if closed or used_up or self.ending.asked_for:
                break
            epsilon *= _LESS_SMOOTHING
        self.point = self.best
        if not self.ending.asked_for:
            exhausted = self.steps >= self.max_iter and not closed
            self.ending = Ending.EXHAUSTED if exhausted else Ending.CONVERGED
            if closed and problem.equal_at_zero and not np.any(self.best.v):
                self.ending = Ending.ZERO_MODEL

    # -- rounds ------------------------------------------------------------------------

    def next_part(self) -> Part | None:
        """The columns of the next round; None if their Hessian is too large."""
        problem = self.problem
        if self.direction == "lbfgs":
            return None
        # Where R has corners, steps on columns are for Hessians that are too large only.
        smooth = problem.plain or (problem.divergence.strictly_convex and problem.rho < math.inf)
        cheap = self.on_columns and smooth and problem.groups is None
        limit = _COLUMN_COORDINATES if cheap else _MOST_COORDINATES
        columns = self.next_columns(limit // problem.m - 1)
        if self.part is None or not self.part.covers(columns):
            if (columns.size + 1) * problem.m > limit:
                return None
            self.part = Part.of(problem, columns)
        part = self.part.problem
        affordable = part.size <= limit and newton_cost(part) <= _AFFORDABLE
        forced = self.direction == "newton" and not self.on_columns
        return self.part if affordable or forced else None

    def next_columns(self, most: int | None = None) -> NDArray[np.int64]:
        """The columns that are used or break the optimality conditions the most; at most `most`
        if this leaves some besides those in use.
        """
        problem = self.problem
        violation = as_columns(problem, excess(problem, self.point))
        used = as_columns(problem, abs(self.point.v)) > 0.0
        needed = int(used.sum())
        count = max(_LEAST_COLUMNS, _GROWTH * needed)
        if most is not None and needed + _LEAST_COLUMNS <= most:
            count = min(count, most)
        order = np.argsort(-np.where(used, math.inf, violation), kind="stable")[:count]
        return np.sort(order[used[order] | (violation[order] > 0.0)])

    @property
    def on_columns(self) -> bool:
        """Whether steps on sparse columns are possible."""
        return self.problem.sparse and self.direction != "lbfgs" and has_few_parts(self.problem)

    def column_round(self, goal: Goal, allowed: float, limit: int) -> Ending:
        """A proximal Newton step on sparse columns; sets the point."""
        problem, point = self.problem, self.point
        if self.report(point, point.v, goal):
            return Ending.STOPPED
        if self.steps >= limit or self.at_corner(point, goal):
            return Ending.EXHAUSTED
        self.columns = self.columns or Columns.of(problem)
        coordinates = np.append(self.next_columns(), problem.d)
        model = ColumnModel(self.columns, point, goal, coordinates, self.ridge)
        direction = model.minimise(_COLUMN_PRECISION, _COLUMN_SWEEPS)
        slope = slope_along(problem, point, direction)
        self.promised = -slope
        if not -slope > _LEAST_TOLERANCE * allowed:
            return Ending.CONVERGED
        new, step = proximal_step(problem, point, direction, slope, goal)
        if new is None:
            return Ending.STUCK
        self.adapt_ridge(step)
        self.point, self.steps = new, self.steps + 1
        return Ending.CONVERGED

    def newton_round(self, part: Part, goal: Goal, tolerance: float, limit: int) -> Ending:
        """Proximal Newton steps on some columns; sets the point."""
        small = point_for(part.problem, self.point.v[part.coordinates], self.point.at)
        penalty, least = part.problem.l1_penalty, tolerance
        ending = Ending.CONVERGED
        while True:
            if self.report(small, self.whole(part, small), goal):
                ending = Ending.STOPPED
                break
            hessian = model_hessian(part.problem, small.at, goal)
            diagonal = np.einsum("ii->i", hessian)
            diagonal += part.problem.penalty
            diagonal += self.ridge * float(diagonal.max())
            direction = proximal_direction(hessian, small.gradient, penalty, small.v)
            slope = slope_along(part.problem, small, direction)
            self.promised = -slope
            if not -slope > least:
                break
            if self.steps >= limit or self.at_corner(small, goal):
                ending = Ending.EXHAUSTED
                break
            new, step = proximal_step(part.problem, small, direction, slope, goal)
            if new is None:
                ending = Ending.STUCK
                break
            self.adapt_ridge(step)
            small, self.steps = new, self.steps + 1
            least = max(least, -_ROUGH * slope) if least == tolerance else least
        self.point = point_for(self.problem, self.whole(part, small), small.at)
        return ending

    def adapt_ridge(self, step: float) -> None:
        """A smaller ridge after a full step, a larger one after a shorter step."""
        if step == 1.0:
            self.ridge = max(0.1 * self.ridge, _LEAST_RIDGE)
        else:
            self.ridge = min(max(self.ridge, _RIDGE) * max(10.0, 0.5 / step), _MOST_RIDGE)

    def at_corner(self, small: Point, goal: Goal) -> bool:
        """Whether the last steps all were next to a corner of R, where it has no Hessian."""
        worst = small.at.worst
        near = goal == ROBUST and worst.alpha < 1e-3 * self.problem.magnitude(worst.value)
        self.corners = self.corners + 1 if near and not self.problem.plain else 0
        return self.corners > _CORNERS

    def whole(self, part: Part, small: Point) -> Array:
        """The coordinates of all columns."""
        v = self.point.v.copy()
        v[part.coordinates] = small.v
        return v

    def orthant_round(self, memory: Memory, goal: Goal) -> Ending:
        """One step of L-BFGS on an orthant; sets the point."""
        if self.report(self.point, self.point.v, goal):
            return Ending.STOPPED
        new = orthant_step(self.problem, self.point, memory, goal)
        if new is None and memory:
            memory.clear()
            new = orthant_step(self.problem, self.point, memory, goal)
        if new is None:
            return Ending.STUCK
        change, bent = new.v - self.point.v, new.gradient - self.point.gradient
        curvature = float(change @ bent)
        if curvature > _LEAST_CURVATURE * float(np.linalg.norm(change) * np.linalg.norm(bent)):
            memory.append((change, bent, curvature))
        self.point, self.steps = new, self.steps + 1
        return Ending.CONVERGED

    def report(self, point: Point, v: Array, goal: Goal) -> bool:
        """Call `watch` once for every step; True to stop."""
        if self.reported == self.steps:
            return False
        self.reported = self.steps
        value = point.value
        if goal.epsilon > 0.0:  # the value without smoothing
            value += self.problem.evaluate(point.at.scores).value - point.at.value
        return self.watch(self.steps, v, value, float(np.linalg.norm(point.gradient)))

    # -- the certificate ---------------------------------------------------------------

    def gap_of(self, point: Point, value: float | None = None) -> float:
        """The duality gap that the weights of a point prove, for a value; by default its own."""
        problem, at = self.problem, point.at
        gap = fenchel_gaps(problem, point, *self.bounds(point)) + at.worst.gap
        if value is None:
            return gap
        # The value of a smoothed loss is not the weighted loss of its weights.
        mean = float(at.worst.weights @ at.losses)
        return max(value - (mean + point.value - at.value) + gap, 0.0)

    def closer_gap(self) -> float:
        """`second_order_gap` after steps on columns; infinite where the Hessian is too large."""
        problem, point = self.problem, self.point
        if problem.loss.conjugate is None or np.count_nonzero(point.v) > _MOST_CERTIFIED:
            return math.inf
        return second_order_gap(problem, point, *self.bounds(point)) + point.at.worst.gap

    def bounds(self, point: Point) -> tuple[float, float]:
        """The norms of models for which certificates hold: of v, and of its l1 penalty."""
        highest = math.inf
        if self.problem.loss.conjugate is not None:  # not a custom loss: it is at least 0
            highest = point.value - self.problem.value_without_losses
        return norm_bound(self.problem, point), highest

    def at_zero(self) -> bool:
        """Whether the zero model is proved to be optimal; sets point, gap and ending."""
        zero = optimal_zero_model(self.problem, self.point)
        if zero is None:
            return False
        self.point = self.at(np.zeros(self.problem.size), ROBUST, self.problem.zero_scores())
        self.gap, self.ending = zero.gap, Ending.ZERO_MODEL
        return True

    def finalize(self) -> Minimum:
        """The best point, with its certificate."""
        problem, point = self.problem, self.best or self.point
        allowed = self.tol * problem.loss_scale(point.value)
        if self.ending in (Ending.CONVERGED, Ending.STUCK):
            small = self.gap <= _UNCERTIFIED * allowed or self.gap <= 1e-12 * abs(point.value)
            self.ending = Ending.CONVERGED if small else Ending.UNCERTIFIED
        norm = float(np.linalg.norm(excess(problem, point)))
        v = point.v.reshape(problem.m, -1).copy()
        if problem.m > 1:  # only differences of the intercepts of classes matter
            v[:, -1] -= v[:, -1].mean()
        return Minimum(
            problem.to_model(v), point.value, self.gap, norm, self.steps, self.ending,
            self.used, point.at,
        )  # fmt: skip
