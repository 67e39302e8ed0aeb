"""Warm starts of exact solvers: the solution on a subsample of the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.certificate import Point
from drolearn._solvers.directions import ROBUST, Memory, can_newton, newton_cost, point_at, point_of
from drolearn._solvers.ending import Ending
from drolearn._solvers.iterations import Iterates, Run, near_baseline
from drolearn._solvers.problem import Problem

__all__ = ["WarmStart", "constant_start", "warm_start"]

Array = NDArray[np.float64]

# The problem is solved on n/16 and n/4 rows (n at most `most_sampled`), if n/16 is at least this
# many rows, and this many for each column.  The tolerance is _ROUGH · d/rows, about the sampling
# error of the value.
_SHARES = (16, 4)
_LEAST_ROWS = 2000
_ROWS_PER_COLUMN = 20
_ROUGH = 0.05
_STEPS = 20
# A subsample that L-BFGS solves in fewer steps than this is well conditioned.
_WELL_CONDITIONED = 16
# A Newton step counts as cheap if it costs less than this many steps of L-BFGS.
_CHEAP = 4.0


class WarmStart(NamedTuple):
    """A point, the method to continue with, and the memory of L-BFGS."""

    point: Point
    direction: str
    memory: Memory


def warm_start(problem: Problem, direction: str, may_switch: bool, tol: float) -> WarmStart | None:
    """The solution on a subsample; None if that is not possible or of no use.

    If L-BFGS solves n/16 rows in a few steps, the problem is well conditioned.  L-BFGS then
    continues on all rows with the memory of the subsample, whose curvature is about the same.
    Otherwise Newton's method solves n/16 and n/4 rows, where its steps are cheap.
    """
    least = max(_LEAST_ROWS, _ROWS_PER_COLUMN * (problem.d + 1))
    if problem.groups is not None or _rows(problem, _SHARES[0]) < least:
        return None
    run = _on_subsample(problem, _SHARES[0])
    if run is None:
        return None
    run.leave_zero(_STEPS)
    if direction == "lbfgs":
        run.iterate(tol, _WELL_CONDITIONED)
    if run.ending is not Ending.CONVERGED or direction == "newton":
        cheap = can_newton(problem) and newton_cost(problem) <= _CHEAP
        if not cheap or not (direction == "newton" or may_switch):
            return None
        run = _newton(problem, run, tol)
    if run is None or run.near_zero_model:
        return None
    at = problem.evaluate_or_none(problem.scores(problem.to_model(run.point.v)))
    if at is None or near_baseline(problem, at.value):
        return None
    point = point_of(problem, run.point.v, at)
    return WarmStart(point, run.direction, run.iterates.memory)


def constant_start(problem: Problem) -> tuple[Array, Array] | None:
    """The model of regressions whose targets are all equal, and its scores; None for others.

    Steps would end at rounding errors of the targets, which no tolerance is relative to.
    """
    regression = problem.loss.of == "residual" and problem.reference is None
    if not (problem.local and regression and problem.intercept):
        return None
    y = problem.y if problem.weights is None else problem.y[problem.weights > 0.0]
    if y.min() < y.max():
        return None
    model = problem.zeros()
    model[:, -1] = y[0]
    return problem.from_model(model), np.full(problem.n, y[0])


def _rows(problem: Problem, share: int) -> int:
    """n/share rows, or fewer of large data on a cluster."""
    return int(min(problem.n, problem.most_sampled)) // share


def _on_subsample(problem: Problem, share: int) -> Run | None:
    """The problem on a subsample; None if that lacks weight or a class."""
    part = problem.sample(_rows(problem, share))
    if part.weights is not None and not part.weights.any():
        return None
    if problem.loss.of != "residual" and np.unique(part.y).size < max(problem.m, 2):
        return None
    return Run(part, "lbfgs")


def _newton(problem: Problem, run: Run, tol: float) -> Run | None:
    """Newton's method on the subsample of `run`, then on a larger one."""
    rough = _ROUGH * (problem.d + 1)
    run.direction = "newton"
    run.iterates.forget()
    run.iterate(max(tol, rough / _rows(problem, _SHARES[0])), _STEPS)
    larger = None if run.near_zero_model else _on_subsample(problem, _SHARES[1])
    if larger is None:
        return None
    larger.direction = "newton"
    larger.iterates = Iterates(point_at(larger.problem, run.point.v, ROBUST))
    larger.iterate(max(tol, rough / _rows(problem, _SHARES[1])), _STEPS)
    return larger
