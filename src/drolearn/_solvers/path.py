"""Exact solves of many similar problems, as on a path over radii and penalties.

The Hessian X̃ᵀ diag(p l'') X̃ of the weighted loss changes little from one problem to the next.
L-BFGS therefore starts with the inverse of one that was formed for a neighbour, and needs a few
steps.  It is formed again once that takes more steps than it saves.  There is no certificate: half
the decrement g·H⁻¹g is the gap to second order.  The Hessian of the robust loss is larger, so this
is an overestimate where they differ; next to a corner of the robust loss it is unbounded, and would
be useless for other problems.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.certificate import Point
from drolearn._solvers.directions import (
    Inverse,
    can_newton,
    newton_cost,
    point_of,
)
from drolearn._solvers.ending import Ending
from drolearn._solvers.exact import Minimum, minimise
from drolearn._solvers.iterations import Iterates, Run, can_separate
from drolearn._solvers.problem import Problem

__all__ = ["Path", "Start"]

Array = NDArray[np.float64]

# A Hessian is formed if that costs less than this many steps of L-BFGS.
_AFFORDABLE = 30.0
# Steps with one Hessian before it is formed again, and how often that happens in one problem.
_STEPS = 8
_HESSIANS = 4
# A Hessian is formed again after a solve with more steps than this share of its cost.
_SAVED = 0.7
# The ridge of the inverse, relative to the largest diagonal entry.
_RIDGE = 1e-10


class Start(NamedTuple):
    """A model to start from, and its scores if they are known."""

    theta: Array
    scores: Array | None = None


class Path:
    """Solves problems on the same rows, one after the other."""

    def __init__(self) -> None:
        # Hessians of the weighted loss without penalty: the last one of each ball, or of the ball
        # before it.  None is formed when it is needed.
        self.hessians: dict[int, Array | None] = {}

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Whether forming a Hessian now and then is worth its cost."""
        cheap = can_newton(problem) and newton_cost(problem) <= _AFFORDABLE
        return cheap and not can_separate(problem)

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
        for _ in range(_HESSIANS):
            run.iterates.forget()
            run.iterates.inverse = self._inverse(problem, ball, run.point)
            last = run.iterates.steps
            run.iterate(tol, min(last + _STEPS, max_iter))
            if run.iterates.steps - last > _SAVED * newton_cost(problem):
                self.hessians[ball] = None
            if run.ending is not Ending.EXHAUSTED or run.iterates.steps >= max_iter:
                break
        point = run.point
        if run.ending is not Ending.CONVERGED or run.near_corner:
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

    def _best(self, problem: Problem, starts: list[Start]) -> Point | None:
        """The point with the smallest value; None if there is none."""
        best, best_value, v = None, math.inf, np.empty(0)
        for theta, scores in starts:
            at = problem.evaluate_or_none(problem.scores(theta) if scores is None else scores)
            if at is not None and at.value + problem.penalty_at(theta) < best_value:
                best, best_value = at, at.value + problem.penalty_at(theta)
                v = problem.from_model(theta)
        return None if best is None else point_of(problem, v, best)

    def _inverse(self, problem: Problem, ball: int, point: Point) -> Inverse:
        """The inverse of the Hessian; it is formed if there is none for this ball."""
        from scipy.linalg import cho_factor, cho_solve  # imported when used: it is heavy

        hessian = self.hessians.get(ball, self.hessians.get(ball - 1))
        if hessian is None:
            curvature = problem.loss.bends(point.at.scores, problem.y, problem.threads)
            hessian = problem.gram(point.at.worst.weights * curvature)[0]
        self.hessians[ball] = hessian
        matrix = hessian.copy()
        diagonal = np.einsum("ii->i", matrix)
        diagonal[diagonal <= 0.0] = 1.0  # constant columns
        diagonal += problem.penalty + _RIDGE * float(diagonal.max())
        factor = cho_factor(matrix, lower=True, overwrite_a=True)
        return lambda vector: cho_solve(factor, vector)

    def _without_path(self, problem: Problem, start: Array, tol: float, max_iter: int) -> Minimum:
        """Solve one problem with a certificate."""
        return minimise(problem, "exact", start, tol=tol, max_iter=max_iter, watch=lambda *_: False)
