"""Search directions and the line search of the exact solvers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.groups import Groups
from drolearn._inner.smoothing import bend_of, inverse_of
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.certificate import Point
from drolearn._solvers.group_steps import group_direction
from drolearn._solvers.linear_algebra import MAX_COLUMNS, solve_spd
from drolearn._solvers.problem import Evaluation, Problem
from drolearn.spectral import SpectralRisk

__all__ = [
    "ROBUST",
    "Goal", "Inverse", "Memory",
    "can_newton", "has_few_parts", "has_hessian", "hessian_parts",
    "lacks_for_newton", "lbfgs_direction", "line_search",
    "newton_cost", "newton_direction", "point_at", "point_of", "robust_hessian",
]  # fmt: skip

Array = NDArray[np.float64]
# Past steps of L-BFGS: change of v, change of the gradient, and their inner product.
Memory = deque[tuple[Array, Array, float]]
Inverse = Callable[[Array], Array]

# The Hessian of a ball over groups has one gradient for each group.
_MAX_GROUPS = 100
# U of `hessian_parts` has one column for each group.
_FEW_GROUPS = 20


class Goal(NamedTuple):
    """What is minimised: the robust loss, the plain mean, or the smoothed robust loss."""

    plain: bool = False
    epsilon: float = 0.0


ROBUST = Goal()


def point_at(problem: Problem, v: Array, goal: Goal, scores: Array | None = None) -> Point:
    """Value and gradient at v."""
    if scores is None:
        scores = problem.scores(problem.to_model(v))
    return point_of(problem, v, problem.evaluate(scores, *goal))


def point_of(problem: Problem, v: Array, at: Evaluation) -> Point:
    """The point v for which `at` was evaluated, with its gradient."""
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * v
    return Point(v, at, _objective(problem, v, at), gradient)


def _objective(problem: Problem, v: Array, at: Evaluation) -> float:
    return at.value + 0.5 * float(problem.penalty @ (v * v))


# -- line search -----------------------------------------------------------------------


def line_search(
    problem: Problem, point: Point, direction: Array, slope: float, goal: Goal, scaled: bool
) -> Point | None:
    """A step that satisfies the weak Wolfe conditions, or None if there is none.

    Bisection between a step that is too long and one that is too short.  It also works where the
    robust loss is not differentiable.  Scores are linear in v, so the data are read once.
    `scaled` says that the direction has the right length for a first step of 1.
    """
    score_change = problem.scores(problem.to_model(direction))
    step = 1.0
    if not scaled:
        length = max(float(np.linalg.norm(direction)), 1e-300)
        step = min(1.0, problem.typical_norm / length)
    low, high = 0.0, math.inf
    best: tuple[Array, Evaluation] | None = None
    for _ in range(50):
        v = point.v + step * direction
        scores = step * score_change
        scores += point.at.scores
        at = problem.trial(scores, *goal)
        if at is None or not _objective(problem, v, at) <= point.value + 1e-4 * step * slope:
            high = step
        else:
            best = (v, at)
            new_slope = problem.derivative_along(at, score_change)
            if new_slope + float(problem.penalty @ (v * direction)) >= 0.9 * slope:
                break
            low = step
        step = 0.5 * (low + high) if high < math.inf else 2.0 * step
        if high - low <= 1e-14 * step:
            break
    return None if best is None else point_of(problem, *best)


# -- L-BFGS ----------------------------------------------------------------------------


def lbfgs_direction(gradient: Array, memory: Memory, inverse: Inverse | None = None) -> Array:
    """−H g by the two-loop recursion.

    `inverse` multiplies a vector by a first approximation of H; without it, that is a multiple of
    the identity.
    """
    q = -gradient
    if not memory:
        return q if inverse is None else inverse(q)
    factors, buffer = [], np.empty_like(q)
    for change, gradient_change, curvature in reversed(memory):
        a = float(change @ q) / curvature
        q -= np.multiply(gradient_change, a, out=buffer)
        factors.append(a)
    change, gradient_change, curvature = memory[-1]
    if inverse is None:
        q *= curvature / float(gradient_change @ gradient_change)
    else:
        q = inverse(q)
    for (change, gradient_change, curvature), a in zip(memory, reversed(factors), strict=True):
        q += np.multiply(change, a - float(gradient_change @ q) / curvature, out=buffer)
    return q


# -- Newton ----------------------------------------------------------------------------


def _lacks_for_hessian(problem: Problem) -> str:
    """The condition for forming Hessians that the problem violates; "" if none."""
    if problem.m > 1:
        return f"one score for each row, and the {problem.m} classes need as many"
    if problem.d > MAX_COLUMNS:
        return f"at most {MAX_COLUMNS} columns, and X has {problem.d}"
    if problem.groups is not None and problem.groups.shares.size > _MAX_GROUPS:
        return f"at most {_MAX_GROUPS} groups, and there are {problem.groups.shares.size}"
    return ""


def has_hessian(problem: Problem) -> bool:
    """Whether the Hessian of the smoothed robust loss can be formed."""
    return not _lacks_for_hessian(problem)


def lacks_for_newton(problem: Problem) -> str:
    """What the problem lacks for Newton's method, and what to use instead; "" if nothing."""
    missing = _lacks_for_hessian(problem)
    if not missing and not problem.divergence.strictly_convex:
        missing = f"a strictly convex divergence, which {problem.divergence!r} is not"
    return missing and f"solver='newton' needs {missing}: use solver='lbfgs'."


def can_newton(problem: Problem) -> bool:
    """Whether Newton's method works on the robust loss itself."""
    return not lacks_for_newton(problem)


def newton_cost(problem: Problem) -> float:
    """The cost of a Newton step, in steps of L-BFGS."""
    n, m, d, row = problem.n, problem.m, problem.d + 1, problem.row_size
    # Seconds as measured on one machine; only their ratio matters, which varies little.
    block = n * row * row * 1.5e-9 if problem.sparse else n * d * (d * 5e-11 + 7e-10)
    matrix = block * m * (m + 1) / 2  # one block for each pair of classes
    step = m * (1.3e-9 * n * row + 1.5e-8 * n) + 2e-4
    return 1.0 + (matrix + problem.size**3 * 1e-10) / step


def newton_direction(problem: Problem, point: Point, goal: Goal) -> Array:
    """−H⁻¹ g with the Hessian of the robust loss and of the penalty, or a step for groups."""
    if problem.groups is not None and goal.epsilon > 0.0:
        return group_direction(problem, problem.groups, point, goal.epsilon)
    hessian = robust_hessian(problem, point, goal)
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    return -solve_spd(hessian, point.gradient)


def robust_hessian(problem: Problem, point: Point, goal: Goal = ROBUST) -> Array:
    """The Hessian of the robust loss,

    X̃ᵀ diag(p l'') X̃ + Jᵀ (∂p/∂z) J,

    where z are the losses of the rows or groups that the ball reweights, and J their gradients.
    """
    at, worst = point.at, point.at.worst
    if goal.plain or problem.plain:
        return problem.second_order(at, None)[0]
    if problem.groups is not None:
        gradients, inner = _change_of_groups(problem, problem.groups, at)
        return problem.weighted_hessian(at) + gradients.T @ inner @ gradients
    if at.bend is None:
        hessian, sides, m = problem.second_order(at, _multipliers(problem, worst))
        return hessian - sides @ inverse_of(m[0, 0], m[0, 1], m[1, 1]) @ sides.T
    curvature = problem.loss.bends(at.scores, problem.y, problem.threads)
    h = worst.weights * curvature + at.bend.v * at.slopes**2
    if isinstance(problem.divergence, SpectralRisk):
        columns = at.bend.columns * at.slopes[:, None]
        return problem.gram(h)[0] - problem.gram_of_sums(columns.tocsc(), at.bend.inner.diagonal())
    hessian, sides = problem.gram(h, *(at.bend.columns * at.slopes[:, None]).T)
    return hessian - sides @ at.bend.inner @ sides.T


def has_few_parts(problem: Problem) -> bool:
    """Whether `hessian_parts` has a few columns U."""
    many = problem.groups is not None and problem.groups.shares.size > _FEW_GROUPS
    return problem.m == 1 and not many and not isinstance(problem.divergence, SpectralRisk)


def hessian_parts(problem: Problem, at: Evaluation, goal: Goal) -> tuple[Array, Array, Array]:
    """h, U and K of the Hessian X̃ᵀ diag(h) X̃ + U K Uᵀ of `robust_hessian`, without forming it.

    Where the robust loss has none, it is the Hessian of the weighted loss.  Not for spectral risks,
    whose U has too many columns.
    """
    worst, none = at.worst, np.empty((problem.size, 0))
    curvature = problem.loss.bends(at.scores, problem.y, problem.threads)
    h = worst.weights * curvature
    smooth = at.bend is not None or problem.divergence.strictly_convex
    if goal.plain or problem.plain or not smooth:
        return h, none, np.empty((0, 0))
    if problem.groups is not None:
        gradients, inner = _change_of_groups(problem, problem.groups, at)
        return h, np.ascontiguousarray(gradients.T), inner
    if at.bend is None:
        (h, *columns), m = problem.second_order_rows(at, _multipliers(problem, worst))
        inner = inverse_of(m[0, 0], m[0, 1], m[1, 1])
    else:
        h += at.bend.v * at.slopes**2
        columns, inner = (at.bend.columns * at.slopes[:, None]).T, at.bend.inner
    sides = [problem.scaled_gradient(problem.data_gradient(column)) for column in columns]
    return h, np.column_stack(sides), -inner


def _change_of_groups(problem: Problem, groups: Groups, at: Evaluation) -> tuple[Array, Array]:
    """The gradients G of the groups, one row each, and ∂q/∂z of their weights q."""
    losses = problem.group_losses(at)
    alpha, lam = _multipliers(problem, at.worst)
    bend = at.bend or bend_of(
        problem.divergence, losses, at.shares, groups.shares, alpha, lam, both=True
    )
    change = np.diag(bend.v) - bend.columns @ bend.inner @ bend.columns.T
    return problem.group_gradients(at), change


def _multipliers(problem: Problem, worst: WorstCase) -> tuple[float, float]:
    """α and λ; α is at least a small share of the value, as the Hessian needs 1/α."""
    return max(worst.alpha, 1e-6 * max(problem.magnitude(worst.value), 1e-300)), worst.lam
