"""Iterations of the exact solvers from one point, until the gap is estimated to be small."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.certificate import Point, norm_bound
from drolearn._solvers.directions import (
    ROBUST,
    Goal,
    Inverse,
    Memory,
    has_hessian,
    lbfgs_direction,
    line_search,
    newton_direction,
    point_at,
)
from drolearn._solvers.ending import Ending
from drolearn._solvers.problem import Problem

__all__ = ["Iterates", "Run", "can_separate", "near_baseline"]

Array = NDArray[np.float64]

# Past steps that L-BFGS keeps.
_MEMORY = 10
# A step enters the memory if its curvature is at least this share of what its length allows.
_LEAST_CURVATURE = 1e-10
# With an approximate Hessian and no certificate, half the decrement must be this share of the
# allowed gap.
_ENOUGH = 0.1
# A robust loss above this share of the baseline suggests that the zero model is optimal.
_NEAR_BASELINE = 0.995


@dataclass
class Iterates:
    """The current point, and what the next iteration depends on besides it."""

    point: Point
    steps: int = 0
    memory: Memory = field(default_factory=lambda: deque(maxlen=_MEMORY))
    values: deque[float] = field(default_factory=lambda: deque(maxlen=11))
    """The last values of the objective."""
    hints: int = 0
    """How many times in a row the gap was estimated to be small."""
    inverse: Inverse | None = None
    """Multiplies a vector by an inverse of the Hessian of a similar problem, for L-BFGS."""

    def forget(self) -> None:
        """Drop everything that belongs to an earlier objective or tolerance."""
        self.memory = deque(maxlen=_MEMORY)
        self.values.clear()
        self.hints = 0

    def remember(self, change: Array, gradient_change: Array) -> None:
        """Add a step to the memory, unless it has no curvature."""
        curvature = float(change @ gradient_change)
        largest = float(np.linalg.norm(change) * np.linalg.norm(gradient_change))
        if curvature > _LEAST_CURVATURE * largest:
            self.memory.append((change, gradient_change, curvature))


class Run:
    """Iterations on one problem, from a point that is set before."""

    iterates: Iterates

    def __init__(self, problem: Problem, direction: str) -> None:
        self.problem, self.direction = problem, direction
        self.ending = Ending.STOPPED

    @property
    def point(self) -> Point:
        """The current point."""
        return self.iterates.point

    @property
    def near_corner(self) -> bool:
        """Whether losses with positive weight are almost equal: R is close to a corner."""
        worst = self.point.at.worst
        return worst.alpha < 1e-3 * self.problem.magnitude(worst.value)

    @property
    def near_zero_model(self) -> bool:
        """Whether the zero model may be optimal."""
        return self.near_corner or near_baseline(self.problem, self.point.value)

    def leave_zero(self, most_steps: int) -> None:
        """Make a few steps from zero on the plain mean.

        At zero all losses may be equal, and the robust loss is not differentiable.
        """
        problem = self.problem
        v, scores = np.zeros(problem.size), problem.zero_scores()
        if problem.plain:
            self.iterates = Iterates(point_at(problem, v, ROBUST, scores))
            return
        plain = Goal(plain=True)
        self.iterates = Iterates(point_at(problem, v, plain, scores))
        steps = min(2 if self.direction == "newton" else 4, most_steps)
        self.iterate(1e-2, steps, plain)
        self.iterates.point = point_at(problem, self.point.v, ROBUST, self.point.at.scores)
        self.iterates.forget()

    def iterate(
        self,
        tol: float,
        limit: int,
        goal: Goal = ROBUST,
        report: Callable[[], bool] = lambda: False,
    ) -> None:
        """Iterate until the relative gap is about `tol`, or until `limit` steps are made in all.

        `report` is called before every iteration and returns True to stop.
        """
        self.ending = _iterate(
            self.problem, self.iterates, self.direction == "newton", goal, tol, limit, report
        )


def near_baseline(problem: Problem, value: float) -> bool:
    """Whether a robust loss is hardly below that of the zero model; regrets tell nothing."""
    return problem.reference is None and value >= _NEAR_BASELINE * problem.baseline_loss


def can_separate(problem: Problem) -> bool:
    """Whether the loss may tend to 0 without reaching it, as it does for separable classes."""
    unpenalised = problem.l2 == 0.0 and problem.l1 == 0.0
    return unpenalised and problem.loss.kind in ("logistic", "multinomial")


def _iterate(
    problem: Problem,
    iterates: Iterates,
    newton: bool,
    goal: Goal,
    tol: float,
    limit: int,
    report: Callable[[], bool],
) -> Ending:
    """`Run.iterate`, which changes `iterates` in place."""
    while True:
        if report():
            return Ending.STOPPED
        point, memory, values = iterates.point, iterates.memory, iterates.values
        values.append(point.value)
        if newton:
            direction = newton_direction(problem, point, goal)
        else:
            direction = lbfgs_direction(point.gradient, memory, iterates.inverse)
        slope = float(direction @ point.gradient)
        if not slope < 0.0:
            memory.clear()
            direction, slope = -point.gradient, -float(point.gradient @ point.gradient)
        if slope == 0.0 or _converged(problem, iterates, slope, newton, tol):
            return Ending.CONVERGED
        if iterates.steps >= limit:
            return Ending.EXHAUSTED
        if len(values) > 5 and values[-6] - values[-1] <= 1e-15 * problem.magnitude(values[-1]):
            return Ending.CONVERGED  # only rounding errors are left
        scaled = bool(newton or memory or iterates.inverse)
        new = line_search(problem, point, direction, slope, goal, scaled)
        if new is None:
            if not memory:
                return Ending.STUCK
            memory.clear()
            continue
        iterates.remember(new.v - point.v, new.gradient - point.gradient)
        iterates.point, iterates.steps = new, iterates.steps + 1


def _converged(
    problem: Problem, iterates: Iterates, slope: float, newton: bool, tol: float
) -> bool:
    """Whether the gap is estimated to be small enough.

    Half the Newton decrement is the gap to second order.  L-BFGS only approximates the decrement:
    unless a close certificate follows, its estimate must be small twice in a row, and the trend of
    the values must agree.
    """
    point, values = iterates.point, iterates.values
    allowed = tol * problem.loss_scale(point.value)
    if iterates.inverse is not None:  # the decrement is almost that of Newton's method
        return -0.5 * slope <= _ENOUGH * allowed
    if not newton and _bound(problem, point) <= allowed:
        return True
    certificate_follows = newton or has_hessian(problem)
    close = -0.5 * slope <= 0.5 * allowed
    if not certificate_follows:
        close = close and _expected_decrease(values) <= 0.3 * allowed
    iterates.hints = iterates.hints + 1 if close else 0
    if not newton and not iterates.memory:
        # The curvature is unknown, so the gap is bounded by slope times distance.
        flat = math.sqrt(-slope) * norm_bound(problem, point) <= allowed
        iterates.hints = 2 if flat else 0
    elif not newton and -0.5 * slope <= 1e-3 * allowed:
        iterates.hints = 2  # far below the tolerance
    may_be_negative = problem.loss.functions or problem.reference is not None
    if not may_be_negative and point.value <= allowed:
        iterates.hints = 2  # the losses of the library are never negative
    return iterates.hints >= (1 if certificate_follows else 2)


def _bound(problem: Problem, point: Point) -> float:
    """A bound of the gap, as the objective is at least as convex as its penalty.

    It holds within `norm_bound`, which coordinates without a penalty need.
    """
    g, penalty = point.gradient, problem.penalty
    free = penalty <= 1e-100
    bent = np.divide(g * g, penalty, out=np.zeros_like(g), where=~free)
    return 0.5 * float(bent.sum()) + float(np.linalg.norm(g[free])) * norm_bound(problem, point)


def _expected_decrease(values: deque[float]) -> float:
    """The decrease of all further steps, extrapolated from the last ten as a geometric series.

    At least 0.3 times the decrease of the last five, as progress may pause.  Ten steps are needed:
    from the solution of a similar problem, the first steps are short.
    """
    if len(values) < 11:
        return math.inf
    before, last = values[0] - values[5], values[5] - values[10]
    return max(last * last / (before - last), 0.3 * last) if last < before else math.inf
