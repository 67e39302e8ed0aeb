"""Exact solvers: all rows at every step, and a certificate at the end.

A solve is a list of stages.  Each goes on from where the last one ended, and a certificate
decides between them whether another one is needed:

    first     L-BFGS, or Newton's method if that was asked for
    newton    Newton's method, where L-BFGS took as long as a few of its steps
    closer    the same to a closer tolerance: the estimate of the gap was too hopeful
    smoothed  minima of the smoothed robust loss, for corners

The scores are linear in θ, so a line search reads the data once, however many points it tries.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.smoothing import can_smooth
from drolearn._solvers.certificate import LARGE, Corner, Point, corner_of, duality_gap, reach
from drolearn._solvers.directions import (
    ROBUST,
    Goal,
    Memory,
    arrive,
    can_newton,
    has_matrix,
    lbfgs_direction,
    newton_cost,
    newton_direction,
    point_at,
    search,
)
from drolearn._solvers.ending import Ending
from drolearn._solvers.problem import Evaluation, Problem, some_rows

__all__ = ["Minimum", "minimise"]

Array = NDArray[np.float64]
Watch = Callable[[int, Array, float, float], bool]

# How many past steps L-BFGS remembers.
_MEMORY = 10
# Endings that the solver came to by itself, with iterations left.
_BY_ITSELF = (Ending.CONVERGED, Ending.STUCK)
# Shares of the rows on which a warm start is found, how closely, and in how many steps.
_SHARES = (16, 4)
_ROUGH = 0.05
_FEW_STEPS = 20
# L-BFGS solves well-conditioned problems to a usual tolerance in fewer steps than this.
_WELL_CONDITIONED = 16
# Steps of Newton's method that cost less than so many of L-BFGS are cheap.
_CHEAP = 4.0
# L-BFGS makes as many steps as this many of Newton's would cost, before those take over.
_PATIENCE = 4.0
_LEAST_PATIENCE = 20
# Tolerances of the stage `closer`, as shares of the one that was missed: Newton's method gains
# digits at no cost, L-BFGS does not.
_CLOSER_NEWTON = (1e-3, 1e-7)
_CLOSER_LBFGS = (0.03,)
# A gap this many times the tolerance counts as uncertified, and not as good enough.
_UNCERTIFIED = 10.0
# How much the smoothing ε falls from one minimum to the next, and where it starts: as a share of
# the spread of the losses.
_LESS_SMOOTHING = 0.1
_FIRST_SMOOTHING = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """Where an exact solver ended."""

    theta: Array
    value: float
    gap: float
    gradient_norm: float
    iterations: int
    ending: Ending
    direction: str
    at: Evaluation


@cache
def _blas() -> Any:
    """The libraries of linear algebra that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def minimise(
    problem: Problem, direction: str, start: Array, tol: float, max_iter: int, watch: Watch
) -> Minimum:
    """Minimise the robust loss to a relative gap of about `tol`.

    `direction` is "newton", "lbfgs", or "exact": L-BFGS for as long as a few steps of Newton's
    method would take, and then those, where the matrix is small.  `watch(iteration, v, value,
    gradient_norm)` is told about every step and returns True to stop; v are scaled coordinates.

    Linear algebra gets one thread: on matrices of this size the libraries of NumPy and SciPy
    would be in each other's way, and `Problem.gram` shares out its rows itself.
    """
    with _blas().limit(limits=1, user_api="blas"):
        return _Solve(problem, direction, tol, max_iter, watch).run(start)


class _Solve:
    """One solve: the point it has reached, and the stages that lead on from there."""

    point: Point

    def __init__(
        self, problem: Problem, direction: str, tol: float, max_iter: int, watch: Watch
    ) -> None:
        self.problem, self.tol, self.max_iter, self.watch = problem, tol, max_iter, watch
        self.may_switch = direction == "exact" and can_newton(problem)
        self.direction = "lbfgs" if direction == "exact" else direction
        self.patience = max_iter
        if self.may_switch or (direction == "exact" and not problem.divergence.strictly_convex):
            steps = _PATIENCE * newton_cost(problem) if self.may_switch else 0.0
            self.patience = min(max(_LEAST_PATIENCE, round(steps)), max(max_iter // 2, 1))
        self.steps, self.ending = 0, Ending.STOPPED
        self.gap: float | None = None  # None: not computed at this point
        self.zero_model: Corner | None = None
        self.carried: Memory | None = None  # what L-BFGS remembers of a part of the rows
        self.last_memory: Memory | None = None
        self.checked: Point | None = None  # the point at which the zero model was looked at

    def run(self, start: Array) -> Minimum:
        """All stages, until the certificate is good enough."""
        self.setup(self.problem.from_model(start))
        for stage in (self.first, self.newton, self.closer, self.smoothed):
            stage()
            if self.certified():
                break
        return self.finalize()

    # -- stages ------------------------------------------------------------------------

    def setup(self, v: Array) -> None:
        """Where to start from: v, a solution on some of the rows, or a few steps from zero."""
        if np.any(v):
            self.point = point_at(self.problem, v, ROBUST)
        elif not self.warm_start():
            self.leave_zero()
        self.v_start = self.point.v

    def leave_zero(self) -> None:
        """A few steps of the plain mean away from the zero model.

        Where all losses are equal the robust loss has a corner, which quasi-Newton methods do
        not leave.
        """
        problem = self.problem
        v, scores = np.zeros(problem.size), np.zeros(problem.n * problem.m)
        if problem.plain:
            self.point = point_at(problem, v, ROBUST, scores)
            return
        plain = Goal(plain=True)
        self.point = point_at(problem, v, plain, scores)
        few = min(2 if self.direction == "newton" else 4, self.max_iter)
        self.descend(1e-2, few, plain, quiet=True)
        self.point = point_at(problem, self.point.v, ROBUST, self.point.at.scores)

    def warm_start(self) -> bool:
        """Start from a solution on a sixteenth of the rows, and on a quarter of them.

        If L-BFGS finds the first one soon, the problem is well conditioned: L-BFGS goes on with all
        rows and with its memory, as all rows have about the same curvature.  Otherwise Newton's
        method does the rest, where its steps are cheap.  Returns False where rows are few or where
        this leads nowhere.
        """
        problem = self.problem
        sizes = [problem.n // share for share in _SHARES]
        if problem.groups is not None or sizes[0] < max(2000, 20 * (problem.d + 1)):
            return False
        solve = self.on_some_rows(sizes[0])
        if solve is None:
            return False
        solve.leave_zero()
        if self.direction == "lbfgs":
            solve.descend(self.tol, _WELL_CONDITIONED, quiet=True)
        if solve.ending is not Ending.CONVERGED or self.direction == "newton":
            if not can_newton(problem) or newton_cost(problem) > _CHEAP:
                return False
            if self.direction == "lbfgs" and not self.may_switch:
                return False
            solve.direction = "newton"
            solve.descend(solve.tol, _FEW_STEPS, quiet=True)
            if solve.leads_nowhere:
                return False
            before, solve = solve, self.on_some_rows(sizes[1])
            if solve is None:
                return False
            solve.direction, solve.point = "newton", point_at(solve.problem, before.point.v, ROBUST)
            solve.descend(solve.tol, _FEW_STEPS, quiet=True)
        at = problem.evaluate_or_none(problem.scores(problem.to_model(solve.point.v)))
        if solve.leads_nowhere or at is None or at.value >= 0.995 * problem.level:
            return False
        self.point, self.direction = arrive(problem, solve.point.v, at), solve.direction
        self.carried = solve.last_memory
        return True

    def on_some_rows(self, size: int) -> _Solve | None:
        """The same on some rows, to the accuracy that these have; None if labels are missing."""
        problem = self.problem
        part = problem.subset(some_rows(problem.n, size))
        if not _has_all_labels(part, problem):
            return None
        # Some rows differ from all by about d/size, relatively.
        rough = max(self.tol, _ROUGH * (problem.d + 1) / size)
        return _Solve(part, "lbfgs", rough, _FEW_STEPS, lambda *_: False)

    @property
    def leads_nowhere(self) -> bool:
        """Whether the zero model may be the optimum: other stages look into that."""
        return self.next_to_corner or self.point.value >= 0.995 * self.problem.level

    def first(self) -> None:
        """L-BFGS, or Newton's method if that was asked for."""
        self.descend(self.tol, min(self.steps + self.patience, self.max_iter))

    def newton(self) -> None:
        """Newton's method, if L-BFGS has taken long enough."""
        if not self.may_switch or self.ending in (Ending.CONVERGED, Ending.ZERO_MODEL):
            return
        if self.next_to_corner:
            return
        self.direction = "newton"
        # Half of what is left: at a corner, Newton's method would use up all.
        self.descend(self.tol, (self.steps + self.max_iter) // 2)

    def closer(self) -> None:
        """Closer tolerances, where the certificate shows that the estimate was too hopeful."""
        problem = self.problem
        fine = problem.d <= LARGE and problem.m == 1
        missed = self.ending in _BY_ITSELF and self.known_gap() > self.allowed
        if not missed or self.next_to_corner or not fine:
            return
        if self.may_switch:
            self.direction = "newton"
        elif self.direction == "newton":
            moved = float(np.linalg.norm(self.point.v))
            if moved < 1e-2 * float(np.linalg.norm(self.v_start)):  # it has run into a corner
                self.direction, self.point = "lbfgs", point_at(problem, self.v_start, ROBUST)
        limit = (self.steps + self.max_iter) // 2
        for share in _CLOSER_NEWTON if self.direction == "newton" else _CLOSER_LBFGS:
            self.descend(share * self.tol, limit)
            if self.certified() or self.ending is not Ending.CONVERGED:
                break

    def smoothed(self) -> None:
        """Down to a corner along the minima of R_ε as ε falls.

        Weights of R_ε are in the ball and, unlike the sharp ones, come to balance the gradients
        of the losses that tie: the bound they give meets the value.
        """
        problem, tol = self.problem, self.tol
        # Certificates of many columns or classes are too coarse to decide about smooth losses.
        fine = problem.d <= LARGE and problem.m == 1
        edged = not problem.divergence.strictly_convex or self.next_to_corner
        if not (fine or edged or self.ending is Ending.STUCK):
            return
        gap = self.known_gap()
        if gap <= self.allowed:
            return
        if not can_smooth(problem.divergence) or problem.plain or self.steps >= self.max_iter:
            if self.ending in _BY_ITSELF and gap > _UNCERTIFIED * self.allowed:
                self.ending = Ending.UNCERTIFIED
            return
        self.direction = "newton" if has_matrix(problem) else "lbfgs"
        best, bound = self.point, -math.inf
        moved = best.at.losses if problem.groups is None else problem.groups.means(best.at.losses)
        spread = max(float(moved.std()), 1e-3 * problem.unit(best.value))
        epsilon = _FIRST_SMOOTHING * spread
        while True:
            goal = Goal(epsilon=epsilon)
            self.point = point_at(problem, self.point.v, goal)
            share = min(epsilon / problem.unit(best.value), 1.0)
            # The Hessian grows like 1/ε: gradients are only small where decrements are tiny.
            aim = max(1e-2 * tol * share, 1e-15)
            if self.direction != "newton":
                aim = min(max(0.05 * tol, 0.1 * share), 1e-3)
            self.descend(aim, self.max_iter, goal)
            sharp = point_at(problem, self.point.v, ROBUST)
            # How far R_ε is below R is known; how far its own minimum is was asked to be `aim`.
            near = sharp.value - self.point.value + aim * problem.unit(sharp.value)
            proved = duality_gap(problem, self.point, tol, sharp.value)
            if sharp.value < best.value:
                best = sharp
            bound = max(bound, sharp.value - (near if math.isnan(proved) else proved))
            gap = max(best.value - bound, 0.0)
            closed = gap <= tol * problem.unit(best.value)
            vanished = epsilon <= 1e-13 * problem.unit(best.value)
            if closed or vanished or self.ending is not Ending.CONVERGED:
                break
            epsilon *= _LESS_SMOOTHING
        self.point, self.gap = best, math.nan if problem.loss.conjugate is None else gap
        if closed:
            self.ending = Ending.CONVERGED
        elif self.ending in _BY_ITSELF:
            self.ending = Ending.UNCERTIFIED

    # -- between stages ----------------------------------------------------------------

    @property
    def allowed(self) -> float:
        """The gap that is asked for."""
        return self.tol * self.problem.unit(self.point.value)

    @property
    def next_to_corner(self) -> bool:
        """Whether the ball hardly binds: losses that carry weight are almost equal."""
        worst = self.point.at.worst
        return worst.alpha < 1e-3 * abs(worst.value)

    def known_gap(self) -> float:
        """The duality gap at this point."""
        if self.gap is None:
            # Who stops the solver does not wait for the best certificate.
            tol = math.inf if self.ending.asked_for else self.tol
            self.gap = duality_gap(self.problem, self.point, tol)
        return self.gap

    def certified(self) -> bool:
        """Whether no further stage is needed: the gap is small, or the zero model is optimal."""
        if self.ending.asked_for or self.ending is Ending.UNCERTIFIED:
            return True
        if self.ending is Ending.CONVERGED:
            gap = self.known_gap()
            if not gap > self.allowed:
                return not math.isnan(gap)
        if self.checked is not self.point:
            self.checked = self.point
            self.zero_model = corner_of(self.problem, self.point)
        if self.zero_model is not None:
            self.ending = Ending.ZERO_MODEL
        return self.zero_model is not None

    def finalize(self) -> Minimum:
        """The best point, with what is known of it."""
        problem, point = self.problem, self.point
        if self.zero_model is not None:
            gap, norm, at = self.zero_model
            return Minimum(
                problem.zeros(), at.value, gap, norm, self.steps, self.ending, self.direction, at
            )
        gap = self.known_gap()
        if self.ending is Ending.EXHAUSTED:
            # A few steps may lead up where the robust loss is concerned.
            zero = point_at(
                problem, np.zeros_like(point.v), ROBUST, np.zeros(problem.n * problem.m)
            )
            if zero.value < point.value:
                gap, point = max(gap - (point.value - zero.value), 0.0), zero
        return Minimum(
            problem.to_model(point.v),
            point.value,
            gap,
            float(np.linalg.norm(point.gradient)),
            self.steps,
            self.ending,
            self.direction,
            point.at,
        )

    # -- iterations --------------------------------------------------------------------

    def descend(self, tol: float, limit: int, goal: Goal = ROBUST, quiet: bool = False) -> None:
        """Iterate to a relative gap of about `tol`, or until so many steps are made in all.

        Ctrl-C ends it too, with what was found so far.
        """
        self.gap = None
        try:
            self.ending = self._iterate(tol, limit, goal, None if quiet else self.watch)
        except KeyboardInterrupt:
            if quiet:
                raise
            self.ending = Ending.INTERRUPTED

    def _iterate(self, tol: float, limit: int, goal: Goal, watch: Watch | None) -> Ending:
        problem, newton = self.problem, self.direction == "newton"
        memory: Memory = self.carried if self.carried is not None else deque(maxlen=_MEMORY)
        self.carried, self.last_memory = None, memory
        values: deque[float] = deque(maxlen=11)
        progress = _Progress(problem, newton)
        told = -1
        while True:
            point = self.point
            values.append(point.value)
            if watch is not None and told != self.steps:
                told = self.steps
                if self._tell(watch, goal):
                    return Ending.STOPPED
            if newton:
                way = newton_direction(problem, point, goal)
            else:
                way = lbfgs_direction(point.gradient, memory)
            slope = float(way @ point.gradient)
            if not slope < 0.0:
                memory.clear()
                way, slope = -point.gradient, -float(point.gradient @ point.gradient)
            if slope == 0.0 or progress.converged(point, slope, values, bool(memory), tol):
                return Ending.CONVERGED
            if self.steps >= limit:
                return Ending.EXHAUSTED
            if len(values) > 5 and values[-6] - values[-1] <= 1e-15 * abs(values[-1]):
                return Ending.CONVERGED  # only rounding is left
            found = search(problem, point, way, slope, goal, scaled=bool(newton or memory))
            if found is None:
                if memory:
                    memory.clear()
                    continue
                return Ending.STUCK
            change, turn = found.v - point.v, found.gradient - point.gradient
            if newton and progress.foreseen(point, slope, np.array_equal(change, way), tol):
                self.point, self.steps = found, self.steps + 1
                return Ending.CONVERGED
            curvature = float(change @ turn)
            if curvature > 1e-10 * float(np.linalg.norm(change) * np.linalg.norm(turn)):
                memory.append((change, turn, curvature))
            self.point, self.steps = found, self.steps + 1

    def _tell(self, watch: Watch, goal: Goal) -> bool:
        """Tell the watch about the point; whether it asks to stop."""
        point = self.point
        norm, value = float(np.linalg.norm(point.gradient)), point.value
        if goal.epsilon > 0.0:  # the value without smoothing
            value += self.problem.evaluate(point.at.scores).value - point.at.value
        return watch(self.steps, point.v, value, norm)


class _Progress:
    """Whether the gap is estimated to be small enough."""

    def __init__(self, problem: Problem, newton: bool) -> None:
        self.problem, self.newton = problem, newton
        # A loss of the library is never negative; one of a user may be.
        self.bounded = not problem.loss.functions
        # Where a certificate will decide, one hint is enough.
        self.decided = newton or has_matrix(problem)
        self.enough, self.hints = 1 if self.decided else 2, 0
        self.before = 1.0  # the relative gap of the step before, to second order

    def foreseen(self, point: Point, slope: float, whole: bool, tol: float) -> bool:
        """Whether a step of Newton's method has led close enough, without another matrix.

        Near the optimum gaps fall as gap ← c · gap², with c as in the step before.  The certificate
        decides whether that was right.
        """
        unit = self.problem.unit(point.value)
        before, self.before = self.before, -0.5 * slope / unit
        if not whole or not 0.0 < self.before < before:
            return False
        rate = max(self.before / before**2, 1.0)
        return rate * self.before**2 <= 0.1 * tol

    def converged(
        self, point: Point, slope: float, values: deque[float], remembers: bool, tol: float
    ) -> bool:
        """Half the decrement of Newton's method is the gap, to second order.

        The memory of L-BFGS is a rougher guide, so it may have to say so twice, and the trend must
        agree.
        """
        allowed = tol * self.problem.unit(point.value)
        close = -0.5 * slope <= 0.5 * allowed
        if not self.decided:
            close = close and _to_come(values) <= 0.3 * allowed
        self.hints = self.hints + 1 if close else 0
        if not self.newton and not remembers:
            # Nothing is known of the curvature: only a slope that is flat wherever models may be
            # will do.
            flat = math.sqrt(-slope) * reach(self.problem, point) <= allowed
            self.hints = 2 if flat else 0
        elif not self.newton and -0.5 * slope <= 1e-3 * allowed:
            self.hints = 2  # far below what is asked
        if self.bounded and point.value <= allowed:
            self.hints = 2  # no loss is below zero
        return self.hints >= self.enough


def _has_all_labels(part: Problem, whole: Problem) -> bool:
    """Whether some rows have weight, and all classes that there are."""
    if part.weights is not None and not part.weights.any():
        return False
    if whole.loss.of == "residual":
        return True
    return np.unique(part.y).size == np.unique(whole.y).size


def _to_come(values: deque[float]) -> float:
    """What all further steps will bring, if they shrink as the last five did to the five before.

    No less than a third of the last five: a pause is not the end.
    """
    if len(values) < 11:
        return 0.6 * (values[-6] - values[-1]) if len(values) > 5 else 0.0
    before, last = values[0] - values[5], values[5] - values[10]
    return max(last * last / (before - last), 0.3 * last) if last < before else math.inf
