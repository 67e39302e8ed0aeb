"""Exact solvers: gradients of all rows, and a certificate at the end.

A solve is a list of stages.  Each continues where the last one ended, and a certificate check
after each stage decides whether the next one is needed:

    first     L-BFGS, or Newton's method if the user chose it
    newton    Newton's method, once L-BFGS has cost as much as a few Newton steps
    closer    the same method to a smaller tolerance: the gap was underestimated
    smoothed  minima of the smoothed robust loss, where the robust loss is not differentiable

Scores are linear in θ, so a line search reads the data once, for any number of trial steps.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.certificate import (
    Point,
    ZeroModel,
    can_certify_closely,
    duality_gap,
    optimal_zero_model,
    saddle_weights,
)
from drolearn._solvers.directions import (
    ROBUST,
    Goal,
    can_newton,
    has_hessian,
    newton_cost,
    point_at,
    point_of,
)
from drolearn._solvers.ending import Ending
from drolearn._solvers.group_steps import balanced
from drolearn._solvers.iterations import Iterates, Run, can_separate
from drolearn._solvers.linear_algebra import single_threaded_blas
from drolearn._solvers.problem import Evaluation, Problem
from drolearn._solvers.warm_start import constant_start, warm_start

__all__ = ["STAGES", "ExactState", "Minimum", "minimise"]

Array = NDArray[np.float64]
Watch = Callable[[int, Array, float, float], bool]

# L-BFGS hands over to Newton's method after as many steps as this many Newton steps cost.
_PATIENCE = 4.0
_LEAST_PATIENCE = 20
# Tolerances of the stage `closer`, relative to the tolerance that was missed: Newton's method
# converges quadratically and can afford much smaller ones than L-BFGS.  The first suffices where
# a column separates the classes of some rows, and each step divides the gap by e only.
_CLOSER_NEWTON = (0.1, 1e-3, 1e-7)
_CLOSER_LBFGS = (0.03,)
# A gap of more than this many times the tolerance is reported as uncertified.
_UNCERTIFIED = 10.0
# The first smoothing ε, relative to the standard deviation of the losses, and the factor by which
# it decreases.
_FIRST_SMOOTHING = 0.3
_LESS_SMOOTHING = 0.1
# Endings that are neither asked for nor a lack of iterations.
_BY_ITSELF = (Ending.CONVERGED, Ending.STUCK)
# The logistic loss of a margin of 0.1.
_SEPARATED = math.log1p(math.exp(-0.1))
#: The methods of the stages.
STAGES = ("first", "newton", "closer", "smoothed")
# Seconds between two saves, and how many times as long as the save itself that must be.
_SAVE_EVERY = 1.0
_SAVE_SHARE = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """The result of an exact solver."""

    theta: Array
    value: float
    gap: float
    gradient_norm: float
    iterations: int
    ending: Ending
    direction: str
    at: Evaluation


@dataclass(frozen=True, slots=True, eq=False)
class ExactState:
    """Everything that a solve needs to continue from an iteration, to the same bits."""

    stage: int
    """The number of the stage."""
    stage_start: int
    """The number of steps at which the stage started."""
    part: int
    """The number of the tolerance within the stage `closer`."""
    direction: str
    steps: int
    reported: int
    hints: int
    epsilon: float
    bound: float
    values: list[float]
    v: Array
    scores: Array
    v_start: Array
    changes: Array
    gradient_changes: Array
    curvatures: list[float]
    best_v: Array
    """The best point of the stage `smoothed`; empty before that stage, as are its scores."""
    best_scores: Array
    dual_shares: Array
    """The weights of rows or groups that prove the lower bound; empty before that stage."""


def minimise(
    problem: Problem,
    direction: str,
    start: Array | ExactState,
    *,
    tol: float,
    max_iter: int,
    watch: Watch,
    save: Callable[[ExactState], None] | None = None,
    certify: bool = True,
) -> Minimum:
    """Minimise the robust loss to a relative gap of about `tol`.

    `direction` is "newton", "lbfgs", or "exact": L-BFGS, then Newton's method where the Hessian is
    small.  `start` is a model, or a state that `save` was called with.
    `watch(iteration, v, value, gradient_norm)` is called at every step and returns True to stop; v
    are scaled coordinates.  Ctrl-C also stops, with the best point so far.  Without `certify`, an
    estimated gap suffices where the robust loss is smooth.

    BLAS uses one thread: its matrices are small here, and `Problem.gram` uses threads itself.
    """
    with single_threaded_blas():
        solve = _Solve(problem, direction, tol, max_iter, watch, save)
        solve.certify = certify
        return solve.run(start)


class _Solve(Run):
    """One solve: the current iterates, and the stages."""

    v_start: Array
    certify = True

    def __init__(
        self,
        problem: Problem,
        direction: str,
        tol: float,
        max_iter: int,
        watch: Watch,
        save: Callable[[ExactState], None] | None,
    ) -> None:
        super().__init__(problem, "lbfgs" if direction == "exact" else direction)
        self.tol, self.max_iter, self.watch, self.save = tol, max_iter, watch, save
        self.may_switch = direction == "exact" and can_newton(problem)
        self.patience = max_iter
        if self.may_switch or (direction == "exact" and not problem.divergence.strictly_convex):
            steps = _PATIENCE * newton_cost(problem) if self.may_switch else 0.0
            self.patience = min(max(_LEAST_PATIENCE, round(steps)), max(max_iter // 2, 1))
        self.stage = self.stage_start = self.part = 0
        self.keep_memory = False  # whether the next stage starts with the memory of a subsample
        self.resuming = False  # whether the next stage continues one that was saved
        self.gap: float | None = None  # of the current point; None: not computed
        self.zero_model: ZeroModel | None = None
        self.zero_model_checked_at: Point | None = None
        # Of the stage `smoothed`: the best point, the largest lower bound, and ε.
        self.best: Point | None = None
        self.bound, self.epsilon = -math.inf, 0.0
        self.dual_shares = np.empty(0)  # the weights of rows or groups that prove the lower bound
        self.separable = False  # whether the current model separates the classes
        self.reported = -1  # the last step that was reported
        self.state: ExactState | None = None  # before the current iteration
        self.saved_at, self.save_seconds = time.monotonic(), 0.0

    def run(self, start: Array | ExactState) -> Minimum:
        """All stages, until a certificate is good enough."""
        if isinstance(start, ExactState):
            self.restore(start)
        else:
            self.set_up(self.problem.from_model(start))
        try:
            for stage in range(self.stage, len(STAGES)):
                if not self.resuming:
                    self.stage, self.stage_start, self.part = stage, self.iterates.steps, 0
                getattr(self, STAGES[stage])()
                if self.certified():
                    break
        except KeyboardInterrupt:
            self.ending, self.gap = Ending.INTERRUPTED, None
        if self.save is not None and self.state is not None:
            self.save(self.state)
        return self.finalize()

    # -- where to start ----------------------------------------------------------------

    def set_up(self, v: Array) -> None:
        """Start from v; if that is zero, from a subsample's solution or a few plain steps."""
        problem = self.problem
        if np.any(v):
            self.iterates = Iterates(point_at(problem, v, ROBUST))
        elif constant := constant_start(problem):
            self.iterates = Iterates(point_at(problem, constant[0], ROBUST, constant[1]))
        elif warm := warm_start(problem, self.direction, self.may_switch, self.tol):
            self.direction, self.keep_memory = warm.direction, True
            self.iterates = Iterates(warm.point, memory=warm.memory)
        else:
            self.leave_zero(self.max_iter)
        self.v_start = self.point.v

    # -- stages ------------------------------------------------------------------------

    def first(self) -> None:
        """L-BFGS, or Newton's method if the user chose it."""
        self.descend(self.tol, min(self.stage_start + self.patience, self.max_iter))

    def newton(self) -> None:
        """Newton's method, if L-BFGS has not converged."""
        if not self.resuming:
            done = self.ending in (Ending.CONVERGED, Ending.ZERO_MODEL)
            if done or not self.may_switch or self.near_corner:
                return
            self.direction = "newton"
        # Half of the remaining steps: close to a corner, Newton's method would use them all.
        self.descend(self.tol, (self.stage_start + self.max_iter) // 2)

    def closer(self) -> None:
        """Smaller tolerances, if the certificate shows that the gap was underestimated."""
        if not self.resuming:
            missed = self.ending in _BY_ITSELF and self.known_gap() > self.allowed
            if not missed or self.near_corner or not can_certify_closely(self.problem):
                return
            if self.may_switch:
                self.direction = "newton"
            elif self.direction == "newton":
                moved = float(np.linalg.norm(self.point.v))
                if moved < 1e-2 * float(np.linalg.norm(self.v_start)):  # drawn to the zero model
                    self.direction = "lbfgs"
                    self.iterates.point = point_at(self.problem, self.v_start, ROBUST)
        shares = _CLOSER_NEWTON if self.direction == "newton" else _CLOSER_LBFGS
        while self.part < len(shares):
            self.descend(shares[self.part] * self.tol, (self.stage_start + self.max_iter) // 2)
            if self.certified() or self.ending is not Ending.CONVERGED:
                break
            self.part += 1

    def smoothed(self) -> None:
        """Minimise R_ε for decreasing ε.

        The weights of R_ε lie in the ball and, unlike those of R, tend to weights that balance the
        gradients of tied losses: their duality gap tends to 0.
        """
        problem = self.problem
        if not self.resuming and not self.enter_smoothed():
            return
        while True:
            goal = Goal(epsilon=self.epsilon)
            if not self.resuming:
                self.iterates.point = point_at(problem, self.point.v, goal)
            gap = self.minimise_smoothed(goal)
            best = self.best or self.point
            closed = gap <= self.tol * problem.loss_scale(best.value)
            vanished = self.epsilon <= 1e-13 * problem.loss_scale(best.value)
            if closed or vanished or self.ending is not Ending.CONVERGED:
                break
            self.epsilon *= _LESS_SMOOTHING
        self.iterates.point = best
        self.gap = math.nan if problem.loss.conjugate is None else gap
        if self.ending.asked_for:
            return
        if closed:
            self.ending = Ending.CONVERGED
        elif self.ending in _BY_ITSELF:
            self.ending = Ending.UNCERTIFIED

    def enter_smoothed(self) -> bool:
        """Whether smoothing is needed and possible; sets the first ε."""
        problem = self.problem
        not_smooth = not problem.divergence.strictly_convex or self.near_corner
        # For smooth losses only a close certificate can show that more is to be gained.
        if not (can_certify_closely(problem) or not_smooth or self.ending is Ending.STUCK):
            return False
        gap = self.known_gap()
        if gap <= self.allowed:
            return False
        exhausted = self.iterates.steps >= self.max_iter
        if not problem.can_smooth or problem.plain or exhausted:
            if self.ending in _BY_ITSELF and gap > _UNCERTIFIED * self.allowed:
                self.ending = Ending.UNCERTIFIED
            return False
        self.direction = "newton" if has_hessian(problem) else "lbfgs"
        self.best = self.point
        scale = problem.loss_scale(self.point.value)
        spread = scale * max(problem.spread(self.point.at, scale), 1e-3)  # squares may overflow
        self.epsilon = _FIRST_SMOOTHING * spread
        return True

    def minimise_smoothed(self, goal: Goal) -> float:
        """Minimise R_ε for one ε, update the best point and lower bound; the gap between them."""
        problem, tol, best = self.problem, self.tol, self.best or self.point
        share = min(goal.epsilon / problem.loss_scale(best.value), 1.0)
        # The Hessian grows like 1/ε: small gradients need tiny Newton decrements.
        inner_tol = max(1e-2 * tol * share, 1e-15)
        groups = problem.groups if self.direction == "newton" else None
        if groups is not None:
            inner_tol = max(1e-2 * share, 0.1 * tol)
        elif self.direction != "newton":
            inner_tol = min(max(0.05 * tol, 0.1 * share), 1e-3)
        self.descend(inner_tol, self.max_iter, goal)
        sharp = point_at(problem, self.point.v, ROBUST)
        # Without a certificate: the difference R − R_ε is known, and the gap of R_ε is estimated.
        estimate = sharp.value - self.point.value + inner_tol * problem.loss_scale(sharp.value)
        dual = self.point
        if groups is not None:
            unit = tol * problem.loss_scale(sharp.value)
            dual = balanced(problem, groups, dual, 1e-2 * min(goal.epsilon, unit))
        proved = duality_gap(problem, dual, tol, sharp.value)
        if sharp.value < best.value:
            self.best = best = sharp
        gap = estimate if math.isnan(proved) else proved
        if sharp.value - gap > self.bound:
            self.bound, self.dual_shares = sharp.value - gap, dual.at.shares
        return max(best.value - self.bound, 0.0)

    # -- between stages ----------------------------------------------------------------

    @property
    def allowed(self) -> float:
        """The duality gap that corresponds to `tol`."""
        return self.tol * self.problem.loss_scale(self.point.value)

    def known_gap(self) -> float:
        """The duality gap at the current point."""
        if self.gap is None:
            at = self.problem.refined(self.point.at)
            if at is not self.point.at:
                self.iterates.point = point_of(self.problem, self.point.v, at)
            # After a stop the cheapest certificate has to do.
            tol = math.inf if self.ending.asked_for else self.tol
            self.gap = duality_gap(self.problem, self.point, tol)
        return self.gap

    def certified(self) -> bool:
        """Whether no further stage is needed: the gap is small, or the zero model is optimal."""
        if self.ending.asked_for or self.ending in (Ending.UNCERTIFIED, Ending.SEPARABLE):
            return True
        if self.ending is Ending.CONVERGED:
            smooth = self.problem.divergence.strictly_convex and not self.near_corner
            if smooth and not self.certify:
                self.gap = math.nan
                return True
            gap = self.known_gap()
            if not gap > self.allowed:
                return not math.isnan(gap)
        if self.zero_model_checked_at is not self.point:
            self.zero_model_checked_at = self.point
            self.zero_model = optimal_zero_model(self.problem, self.point)
        if self.zero_model is not None:
            self.ending = Ending.ZERO_MODEL
        return self.zero_model is not None

    def finalize(self) -> Minimum:
        """The best point, with its certificate."""
        problem, steps = self.problem, self.iterates.steps
        if self.zero_model is not None:
            gap, norm, at = self.zero_model
            return Minimum(
                problem.zeros(), at.value, gap, norm, steps, self.ending, self.direction, at
            )
        point = self.best or self.point  # the point of a smoothed loss has another value
        self.iterates.point = point
        gap = self.known_gap()
        point = self.point  # refined
        if self.ending is Ending.EXHAUSTED and gap <= self.allowed:
            self.ending = Ending.CONVERGED
        if self.ending is Ending.EXHAUSTED:
            # The first steps decrease the plain mean, and may increase the robust loss.
            scores = problem.zero_scores()
            zero = point_at(problem, np.zeros_like(point.v), ROBUST, scores)
            if zero.value < point.value:
                gap, point = max(gap - (point.value - zero.value), 0.0), zero
        at = point.at
        if problem.groups is not None and self.dual_shares.size and point is self.best:
            # Where losses of groups are equal, all weights of these groups are worst-case weights;
            # those of the saddle point also balance the gradients.
            shares = saddle_weights(problem, point, self.dual_shares)
            at = problem.with_group_weights(at, shares)
        return Minimum(
            problem.to_model(point.v),
            point.value,
            gap,
            float(np.linalg.norm(point.gradient)),
            steps,
            self.ending,
            self.direction,
            at,
        )

    # -- iterations --------------------------------------------------------------------

    def descend(self, tol: float, limit: int, goal: Goal = ROBUST) -> None:
        """Iterate as a part of a stage: with reports, and from a saved state if there is one."""
        self.gap = None
        if not (self.resuming or self.keep_memory):
            self.iterates.forget()
        self.resuming = self.keep_memory = False
        self.iterate(tol, limit, goal, lambda: self.report(goal))
        if self.separable:
            # All losses tend to 0.
            infimum = self.problem.value_without_losses
            self.ending, self.gap = Ending.SEPARABLE, self.point.value - infimum

    def report(self, goal: Goal) -> bool:
        """Call `watch` once for every step, and `save` from time to time; True to stop."""
        point, steps = self.point, self.iterates.steps
        new, self.reported = self.reported != steps, steps
        if self.separates():
            self.separable = True
            return True
        if self.save is not None:
            self.state = self.snapshot()
        stop = False
        if new:
            norm, value = float(np.linalg.norm(point.gradient)), point.value
            if goal.epsilon > 0.0:  # report the value without smoothing
                value += self.problem.evaluate(point.at.scores).value - point.at.value
            stop = self.watch(steps, point.v, value, norm)
        if self.save is not None and self.state is not None:
            began = time.monotonic()
            if began - self.saved_at >= max(_SAVE_EVERY, _SAVE_SHARE * self.save_seconds):
                self.save(self.state)
                self.saved_at = time.monotonic()
                self.save_seconds = self.saved_at - began
        return stop

    def separates(self) -> bool:
        """Whether the model separates the classes of all rows with a margin, without a penalty."""
        return can_separate(self.problem) and self.problem.largest_loss(self.point.at) <= _SEPARATED

    # -- checkpoints -------------------------------------------------------------------

    def snapshot(self) -> ExactState:
        """The state before the current iteration."""
        iterates, none = self.iterates, np.empty(0)
        memory = list(iterates.memory)
        return ExactState(
            stage=self.stage,
            stage_start=self.stage_start,
            part=self.part,
            direction=self.direction,
            steps=iterates.steps,
            reported=self.reported,
            hints=iterates.hints,
            epsilon=self.epsilon,
            bound=self.bound,
            values=list(iterates.values),
            v=self.point.v,
            scores=self.point.at.scores,
            v_start=self.v_start,
            changes=np.array([change for change, _, _ in memory]),
            gradient_changes=np.array([change for _, change, _ in memory]),
            curvatures=[curvature for _, _, curvature in memory],
            best_v=none if self.best is None else self.best.v,
            best_scores=none if self.best is None else self.best.at.scores,
            dual_shares=self.dual_shares,
        )

    def restore(self, state: ExactState) -> None:
        """Continue from a state that was saved."""
        self.stage, self.stage_start, self.part = state.stage, state.stage_start, state.part
        self.direction, self.v_start, self.reported = state.direction, state.v_start, state.reported
        self.bound, self.epsilon = state.bound, state.epsilon
        self.dual_shares = state.dual_shares
        goal = Goal(epsilon=self.epsilon)
        self.iterates = Iterates(
            point_at(self.problem, state.v, goal, state.scores), state.steps, hints=state.hints
        )
        memory = zip(state.changes, state.gradient_changes, state.curvatures, strict=True)
        self.iterates.memory.extend(memory)
        self.iterates.values = deque(state.values, self.iterates.values.maxlen)
        if state.best_v.size:
            self.best = point_at(self.problem, state.best_v, ROBUST, state.best_scores)
        self.resuming = True
