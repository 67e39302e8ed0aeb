"""Exact solves of many similar problems, as on a path over radii and penalties.

The Hessian X̃ᵀ diag(p l'') X̃ of the weighted loss changes little from one problem to the next.
L-BFGS therefore starts with the inverse of one that was formed for a neighbour, and needs a few
steps.  It is formed again once that takes more steps than it saves, and where the curvature of the
losses differs: it tends to 0 with the penalty if the classes are separable.  There is no
certificate: half the decrement g·H⁻¹g is the gap to second order.  The Hessian of the robust loss
is larger, so this is an overestimate where they differ; next to a corner of the robust loss it is
unbounded, and would be useless for other problems.

Where Hessians are too large, L-BFGS starts with the steps of the problem before.  The change of the
gradient in these steps is corrected for the other penalty.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.certificate import Point, curvature_of
from drolearn._solvers.directions import Inverse, newton_cost, point_of
from drolearn._solvers.ending import Ending
from drolearn._solvers.exact import Minimum, minimise
from drolearn._solvers.iterations import Iterates, Run, can_separate
from drolearn._solvers.linear_algebra import MAX_COLUMNS
from drolearn._solvers.problem import Problem

__all__ = ["Path", "Start"]

Array = NDArray[np.float64]

# A Hessian is formed if that costs less than this many steps of L-BFGS.
_AFFORDABLE = 300.0
# A Hessian is formed again after this many steps, and after steps that cost this share of it; how
# often that happens in one problem.
_STEPS = 8
_PATIENCE = 0.25
_HESSIANS = 6
# A Hessian is formed again after a solve with more steps than this share of its cost.
_SAVED = 0.7
# It is also formed again if the sum of the curvatures has changed by more than this factor.
_SIMILAR = 2.0
# Without Hessians the gap is extrapolated from the last steps, which may underestimate it tenfold.
_SHARE = 0.1
# The ridge of the inverse, relative to the largest diagonal entry.
_RIDGE = 1e-10


class Start(NamedTuple):
    """A model to start from, and its scores if they are known."""

    theta: Array
    scores: Array | None = None

    def moved(self, along: Start, origin: Start) -> Start:
        """Return self + along − origin; scores are linear in θ."""
        theta = self.theta + (along.theta - origin.theta)
        if self.scores is None or along.scores is None or origin.scores is None:
            return Start(theta)
        return Start(theta, self.scores + (along.scores - origin.scores))


class _Hessian(NamedTuple):
    """A Hessian of the weighted loss without penalty, and the curvature at its point."""

    matrix: Array
    curvature: float

    def similar(self, curvature: float) -> bool:
        """Whether losses with this curvature have about the same Hessian."""
        return self.curvature <= _SIMILAR * curvature and curvature <= _SIMILAR * self.curvature


class Path:
    """Solves problems on the same rows, one after the other."""

    def __init__(self) -> None:
        # The last Hessian of each ball, or of the ball before it.
        self.hessians: dict[int, _Hessian] = {}
        # The last steps of L-BFGS without a Hessian, and the penalty of their problem.
        self.steps: list[tuple[Array, Array]] = []
        self.penalty = np.empty(0)

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Whether problems on a path are solved faster than one by one."""
        smooth = problem.divergence.strictly_convex and not problem.l1
        return smooth and not can_separate(problem)

    @staticmethod
    def forms_hessians(problem: Problem) -> bool:
        """Whether forming a Hessian now and then is worth its cost."""
        return problem.size <= MAX_COLUMNS and newton_cost(problem) <= _AFFORDABLE

    def minimise(
        self, problem: Problem, ball: int, starts: list[Start], tol: float, max_iter: int
    ) -> Minimum:
        """Minimise from the best of some models; from zero, and at corners, by `exact.minimise`.

        `ball` is the number of the ball on the path.
        """
        point = self._best(problem, starts)
        if point is None:
            return self._without_path(problem, problem.zeros(), tol, max_iter)
        run = Run(problem, "lbfgs")
        run.iterates = Iterates(point)
        if self.forms_hessians(problem):
            self._with_hessians(run, ball, tol, max_iter)
        else:
            self._with_steps(run, tol, max_iter)
        point = run.point
        used_up = run.ending is Ending.EXHAUSTED and run.iterates.steps >= max_iter
        smooth = not (run.near_corner or (used_up and run.near_zero_model))
        if not smooth or not (used_up or run.ending is Ending.CONVERGED):
            return self._without_path(problem, problem.to_model(point.v), tol, max_iter)
        return Minimum(
            problem.to_model(point.v),
            point.value,
            math.nan,
            float(np.linalg.norm(point.gradient)),
            run.iterates.steps,
            run.ending,
            "lbfgs",
            point.at,
        )

    def _with_hessians(self, run: Run, ball: int, tol: float, max_iter: int) -> None:
        """Iterate with the Hessian of a neighbour, or with new ones."""
        iterates, cost = run.iterates, newton_cost(run.problem)
        for _ in range(_HESSIANS):
            hessian = self._hessian(run.problem, ball, run.point)
            iterates.forget()
            iterates.inverse = _inverse(run.problem, hessian)
            last = iterates.steps
            run.iterate(tol, min(last + max(_STEPS, round(_PATIENCE * cost)), max_iter))
            exhausted = run.ending is Ending.EXHAUSTED
            if exhausted or iterates.steps - last > _SAVED * cost:
                del self.hessians[ball]
            similar = hessian.similar(curvature_of(run.problem, run.point.at))
            if iterates.steps >= max_iter or (similar and not exhausted):
                break

    def _best(self, problem: Problem, starts: list[Start]) -> Point | None:
        """The point with the smallest value; None if there is none."""
        best, best_value, v = None, math.inf, np.empty(0)
        for theta, scores in starts:
            at = problem.evaluate_or_none(problem.scores(theta) if scores is None else scores)
            if at is not None and at.value + problem.penalty_at(theta) < best_value:
                best, best_value = at, at.value + problem.penalty_at(theta)
                v = problem.from_model(theta)
        return None if best is None else point_of(problem, v, best)

    def _hessian(self, problem: Problem, ball: int, point: Point) -> _Hessian:
        """The Hessian of this ball or the one before; it is formed if the curvature differs."""
        curvature = curvature_of(problem, point.at)
        for known in (self.hessians.get(ball), self.hessians.get(ball - 1)):
            if known is not None and known.similar(curvature):
                self.hessians[ball] = known
                return known
        self.hessians[ball] = found = _Hessian(problem.weighted_hessian(point.at), curvature)
        return found

    def _with_steps(self, run: Run, tol: float, max_iter: int) -> None:
        """Iterate with the steps of the last problem in the memory of L-BFGS."""
        penalty, memory = run.problem.penalty, run.iterates.memory
        for change, gradient_change in self.steps:
            corrected = gradient_change + (penalty - self.penalty) * change
            run.iterates.remember(change, corrected)
        run.iterate(_SHARE * tol, max_iter)
        self.steps = [(change, gradient_change) for change, gradient_change, _ in memory]
        self.penalty = penalty

    def _without_path(self, problem: Problem, start: Array, tol: float, max_iter: int) -> Minimum:
        """Solve one problem with a certificate."""
        return minimise(problem, "exact", start, tol=tol, max_iter=max_iter, watch=lambda *_: False)


def _inverse(problem: Problem, hessian: _Hessian) -> Inverse:
    """The inverse of the Hessian with the penalty of a problem."""
    from scipy.linalg import cho_factor, cho_solve  # imported when used: it is heavy

    matrix = hessian.matrix.copy()
    diagonal = np.einsum("ii->i", matrix)
    diagonal[diagonal <= 0.0] = 1.0  # constant columns
    diagonal += problem.penalty + _RIDGE * float(diagonal.max())
    factor = cho_factor(matrix, lower=True, overwrite_a=True)
    return lambda vector: cho_solve(factor, vector)
