"""Directions and line searches of the exact solvers."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.smoothing import bend_of, inverse_of
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.certificate import LARGE, Point, solve_spd
from drolearn._solvers.problem import Evaluation, Problem

__all__ = [
    "ROBUST",
    "Goal", "Memory",
    "arrive", "can_newton", "has_matrix", "lacks_for_newton", "lbfgs_direction",
    "newton_cost", "newton_direction", "point_at", "search",
]  # fmt: skip

Array = NDArray[np.float64]
Memory = deque[tuple[Array, Array, float]]

# More groups than this have no matrix of their own.
_MANY_GROUPS = 100


class Goal(NamedTuple):
    """What is minimised: the robust loss, the plain mean, or the smoothed robust loss."""

    plain: bool = False
    epsilon: float = 0.0


ROBUST = Goal()


def point_at(problem: Problem, v: Array, goal: Goal, scores: Array | None = None) -> Point:
    """Value and gradient at v, in scaled coordinates."""
    if scores is None:
        scores = problem.scores(problem.to_model(v))
    return arrive(problem, v, problem.evaluate(scores, *goal))


def arrive(problem: Problem, v: Array, at: Evaluation) -> Point:
    """The point of an evaluation, with its gradient."""
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * v
    return Point(v, at, _value(problem, v, at), gradient)


def _value(problem: Problem, v: Array, at: Evaluation) -> float:
    return at.value + 0.5 * float(problem.penalty @ (v * v))


# -- line search -----------------------------------------------------------------------


def search(
    problem: Problem, point: Point, way: Array, slope: float, goal: Goal, scaled: bool
) -> Point | None:
    """A step that decreases the value enough and flattens the slope (weak Wolfe conditions).

    Bisection between a step that is too long and one that is too short; it also works at
    corners of the robust loss.
    """
    moved = problem.scores(problem.to_model(way))  # how the scores change along the way
    step = 1.0
    if not scaled:
        step = min(1.0, problem.breadth / max(float(np.linalg.norm(way)), 1e-300))
    low, high = 0.0, math.inf
    best: tuple[Array, Evaluation] | None = None
    for _ in range(50):
        v = point.v + step * way
        scores = step * moved
        scores += point.at.scores
        at = problem.evaluate_or_none(scores, *goal)
        if at is None or not _value(problem, v, at) <= point.value + 1e-4 * step * slope:
            high = step
        else:
            best = (v, at)
            along = _directional(problem, at, moved) + float(problem.penalty @ (v * way))
            if along >= 0.9 * slope:
                break
            low = step
        step = 0.5 * (low + high) if high < math.inf else 2.0 * step
        if high - low <= 1e-14 * step:
            break
    return None if best is None else arrive(problem, *best)


def _directional(problem: Problem, at: Evaluation, moved: Array) -> float:
    each = at.slopes * moved
    if problem.m > 1:
        each = each.reshape(-1, problem.m).sum(axis=1)
    return float(at.worst.weights @ each)


# -- L-BFGS ----------------------------------------------------------------------------


def lbfgs_direction(gradient: Array, memory: Memory) -> Array:
    """−H g by the two-loop recursion."""
    q = -gradient
    if not memory:
        return q
    factors, buffer = [], np.empty_like(q)
    for change, turn, curvature in reversed(memory):
        a = float(change @ q) / curvature
        q -= np.multiply(turn, a, out=buffer)
        factors.append(a)
    change, turn, curvature = memory[-1]
    q *= curvature / float(turn @ turn)
    for (change, turn, curvature), a in zip(memory, reversed(factors), strict=True):
        q += np.multiply(change, a - float(turn @ q) / curvature, out=buffer)
    return q


# -- Newton ----------------------------------------------------------------------------


def can_newton(problem: Problem) -> bool:
    """Whether the Hessian exists and is of a size to work with."""
    return not lacks_for_newton(problem)


def lacks_for_newton(problem: Problem) -> str:
    """What the problem lacks for Newton's method, and what to use instead; "" if nothing."""
    reasons = (
        (problem.m > 1, f"one score for each row, and the {problem.m} classes need as many"),
        (
            not problem.divergence.strictly_convex,
            f"a strictly convex divergence, which {problem.divergence!r} is not",
        ),
        (problem.d > LARGE, f"at most {LARGE} columns, and X has {problem.d}"),
        (
            problem.groups is not None and problem.groups.shares.size > _MANY_GROUPS,
            f"at most {_MANY_GROUPS} groups",
        ),
    )
    missing = next((text for lacking, text in reasons if lacking), "")
    return missing and f"solver='newton' needs {missing}: use solver='lbfgs'."


def has_matrix(problem: Problem) -> bool:
    few = problem.groups is None or problem.groups.shares.size <= _MANY_GROUPS
    return problem.m == 1 and problem.d <= LARGE and few


def newton_cost(problem: Problem) -> float:
    """What a step of Newton's method costs, in steps of L-BFGS."""
    n, d, row = problem.n, problem.d + 1, problem.row_size
    dense = not problem.sparse
    # Seconds, as measured; their ratio is much the same elsewhere.
    matrix = n * d * (d * 5e-11 + 7e-10) if dense else n * row * row * 1.5e-9
    step = 1.3e-9 * n * row + 1.5e-8 * n + 2e-4
    return 1.0 + (matrix + d**3 * 1e-10) / step


def newton_direction(problem: Problem, point: Point, goal: Goal) -> Array:
    """−H⁻¹ g with the Hessian of the robust loss,

    X̃ᵀ diag(p l'') X̃ + Jᵀ (∂p/∂z) J + penalty,   J the gradients of what the ball moves.
    """
    at, worst, groups = point.at, point.at.worst, problem.groups
    curve = problem.loss.bends(at.scores, problem.y, problem.threads)
    if goal.plain or problem.plain:
        hessian, _ = problem.gram(worst.weights * curve)
    elif groups is not None:
        alpha, losses = _floored(worst), groups.means(at.losses)
        bend = at.bend or bend_of(
            problem.divergence, losses, at.shares, groups.shares, alpha, worst.lam, both=True
        )
        hessian, _ = problem.gram(worst.weights * curve)
        means = problem.group_gradients(at)
        sides = means.T @ bend.columns
        hessian += (means.T * bend.v) @ means - sides @ bend.inner @ sides.T
    elif at.bend is not None:
        h = worst.weights * curve + at.bend.v * at.slopes**2
        hessian, sides = problem.gram(h, *(at.bend.columns * at.slopes[:, None]).T)
        hessian -= sides @ at.bend.inner @ sides.T
    else:  # the same without arrays in between
        out, multipliers = np.empty((3, problem.n)), (_floored(worst), worst.lam)
        losses, derivatives = (at.losses, problem.weights), (at.slopes, curve)
        m = _core.second_order(
            problem.divergence.core, losses, worst.weights, multipliers, derivatives, out,
            problem.threads,
        )  # fmt: skip
        hessian, sides = problem.gram(*out)
        hessian -= sides @ inverse_of(*m) @ sides.T
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    return -solve_spd(hessian, point.gradient)


def _floored(worst: WorstCase) -> float:
    """α, or a little of the value: next to a corner it vanishes, and the Hessian with it."""
    return max(worst.alpha, 1e-6 * max(abs(worst.value), 1e-300))
