"""Steps of the exact solvers with an l1 penalty.

In scaled coordinates the objective is

    F(v) = R(v) + ½ Σ penalty v² + Σ λ |v|,    λ = l1 √D, and 0 for intercepts,

as w = √D v: a coefficient is 0 in the units of the user where v is 0.  A proximal Newton step
minimises the quadratic model of the smooth part plus the exact l1 penalty,

    g·d + ½ d·H d + Σ λ |v + d|,

by coordinate descent.  Scores are linear in the step, so the line search reads the data once.  An
orthant-wise step (OWL-QN) uses L-BFGS on the face of the orthant that holds v, and a projection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.smoothing import Bend, bend_of
from drolearn._solvers.certificate import Point
from drolearn._solvers.directions import Goal, Memory, lbfgs_direction, robust_hessian
from drolearn._solvers.linear_algebra import solve_spd
from drolearn._solvers.problem import Evaluation, Problem

__all__ = [
    "Part", "as_columns", "excess", "fenchel_gaps", "model_hessian", "orthant_step", "point_for",
    "proximal_direction", "proximal_step", "second_order_gap", "slope_along", "subgradient",
]  # fmt: skip

Array = NDArray[np.float64]

# Coordinate descent makes this many sweeps before the face that it has found is solved directly.
_SWEEPS = 20
_FACES = 10
# It ends with a sweep that lowers the model by less than this share of the first one.
_PRECISE = 1e-8
_HALVINGS = 50
# The ridge of the Newton step of a dual point, relative to the diagonal: it limits the step in
# directions without curvature.
_DUAL_RIDGE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some columns of a problem, and their scaled coordinates."""

    problem: Problem
    columns: NDArray[np.int64]
    coordinates: NDArray[np.int64]

    @staticmethod
    def of(problem: Problem, columns: NDArray[np.int64]) -> Part:
        """The problem on these columns and the intercept; all of it where that saves little."""
        d, m = problem.d, problem.m
        if 2 * columns.size >= d:
            return Part(problem, np.arange(d), np.arange(problem.size))
        grid = np.arange(m)[:, None] * (d + 1) + np.append(columns, d)
        return Part(problem.with_columns(columns), columns, grid.ravel())

    def covers(self, columns: NDArray[np.int64]) -> bool:
        """Whether all these columns are in it."""
        return bool(np.isin(columns, self.columns, assume_unique=True).all())


def point_for(problem: Problem, v: Array, at: Evaluation) -> Point:
    """Value, and the gradient of the smooth part."""
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * v
    return Point(v, at, at.value + penalty_of(problem, v), gradient)


def penalty_of(problem: Problem, v: Array) -> float:
    """Both penalties in scaled coordinates."""
    return 0.5 * float(problem.penalty @ (v * v)) + float(problem.l1_penalty @ abs(v))


# -- optimality ------------------------------------------------------------------------


def excess(problem: Problem, point: Point) -> Array:
    """The subgradient of F of the smallest norm, in absolute value; all 0 at the optimum."""
    return abs(subgradient(problem, point))


def subgradient(problem: Problem, point: Point) -> Array:
    """The subgradient of F of the smallest norm."""
    g, penalty = point.gradient, problem.l1_penalty
    shrunk = np.copysign(np.maximum(abs(g) - penalty, 0.0), g)
    return np.where(point.v != 0.0, g + penalty * np.sign(point.v), shrunk)


def fenchel_gaps(problem: Problem, point: Point, bound: float, highest: float) -> float:
    """Σ h(v) + h*(−s) + s v ≥ 0 over the coordinates, with h = penalty/2 v² + λ|v|.

    s is the gradient of the weighted loss Σ p l, so that Σ p l ≥ Σ p l(θ) + s·(v' − v) for every
    model v': this sum bounds by how much F can be lower.
    """
    v, quadratic, penalty = point.v, problem.penalty, problem.l1_penalty
    s = point.gradient - quadratic * v
    # Computed without cancellation where s = −λ sign(v).
    own = (penalty * np.sign(v) + s) * v + 0.5 * quadratic * v * v
    return max(_with_conjugate(problem, own, s, bound, highest), 0.0)


def second_order_gap(problem: Problem, point: Point, bound: float, highest: float) -> float:
    """A gap whose error is of second order in the distance to the optimum.

    As in `certificate.duality_gap`, u = l' − l'' X̃δ with a Newton step δ, here on the coordinates
    that are not 0 or break their optimality condition: the gradient of Σ p u x̃ is then almost
    feasible.
    """
    violated = subgradient(problem, point)
    part = Part.of(problem, np.flatnonzero(as_columns(problem, abs(point.v) + abs(violated))))
    some = part.coordinates
    hessian = part.problem.weighted_hessian(point.at)
    hessian[np.diag_indices_from(hessian)] += part.problem.penalty
    delta = np.zeros_like(point.v)
    delta[some] = solve_spd(hessian, violated[some], _DUAL_RIDGE)
    total, s = problem.dual_sums(point.at, delta)
    if not math.isfinite(total):
        return math.inf
    conjugate = _with_conjugate(problem, np.zeros_like(s), s, bound, highest)
    return max(point.value + total + conjugate, 0.0)


def _with_conjugate(problem: Problem, own: Array, s: Array, bound: float, highest: float) -> float:
    """Σ own + h*(−s), where h*(−s) is the maximum of −s v − h(v) over models v.

    A model that is better than the point has |v| ≤ bound and, as its robust loss is at least the
    infimum of R, Σ λ|v| ≤ highest.  Either of them bounds the sum over the penalised coordinates.
    """
    quadratic, penalty = problem.penalty, problem.l1_penalty
    e = np.maximum(abs(s) - penalty, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.where(e > 0.0, np.minimum(e / quadratic, bound), 0.0)
    conjugate = (e - 0.5 * quadratic * size) * size
    penalised = penalty > 0.0
    free = float((own + conjugate)[~penalised].sum())
    one_by_one = float(np.maximum(own + conjugate, 0.0)[penalised].sum())
    with np.errstate(over="ignore"):
        share = float((e[penalised] / penalty[penalised]).max(initial=0.0))
    if math.isinf(highest) or math.isinf(share):
        return free + one_by_one
    return free + min(one_by_one, float(own[penalised].sum()) + share * max(highest, 0.0))


# -- the quadratic model ---------------------------------------------------------------


def model_hessian(problem: Problem, at: Evaluation, goal: Goal) -> Array:
    """The Hessian of the smooth part of F without penalty, also for several classes.

    Where the robust loss has none, it is the Hessian of the weighted loss.
    """
    plain = goal.plain or problem.plain
    if not plain and at.bend is None and not problem.divergence.strictly_convex:
        return problem.weighted_hessian(at)
    if problem.m == 1:
        return robust_hessian(problem, Point(np.empty(0), at, at.value, np.empty(0)), goal)
    hessian = problem.weighted_hessian(at)
    return hessian if plain else hessian + _change_of_weights(problem, at)


def _change_of_weights(problem: Problem, at: Evaluation) -> Array:
    """Jᵀ (∂p/∂z) J for several classes, with J the gradients of the losses in the ball."""
    groups, worst = problem.groups, at.worst
    alpha = max(worst.alpha, 1e-6 * max(problem.magnitude(worst.value), 1e-300))
    losses = at.losses if groups is None else groups.means(at.losses)
    base = problem.base_weights if groups is None else groups.shares
    bend = at.bend or bend_of(
        problem.divergence, losses, at.shares, base, alpha, worst.lam, both=True
    )
    if groups is None:
        diagonal, sides = _rows_of_classes(problem, at, bend)
    else:
        gradients = problem.group_gradients(at)
        diagonal, sides = (gradients.T * bend.v) @ gradients, gradients.T @ bend.columns
    return diagonal - sides @ bend.inner @ sides.T


def _rows_of_classes(problem: Problem, at: Evaluation, bend: Bend) -> tuple[Array, Array]:
    """Jᵀ diag(v) J and Jᵀ C for a ball over rows."""
    m, size = problem.m, problem.d + 1
    slopes = at.slopes.reshape(-1, m)
    # Spectral risks have one column for each block of equal weights, as a sparse matrix.
    columns = bend.columns if isinstance(bend.columns, np.ndarray) else bend.columns.toarray()
    total = np.empty((m, size, m, size))
    for k in range(m):
        for other in range(k + 1):
            h = bend.v * slopes[:, k] * slopes[:, other]
            block = problem.gram(np.maximum(h, 0.0))[0]
            if k != other:
                block = block - problem.gram(np.maximum(-h, 0.0))[0]
            total[k, :, other], total[other, :, k] = block, block.T
    sides = [
        problem.scaled_gradient(problem.data_gradient((slopes * column[:, None]).ravel()))
        for column in columns.T
    ]
    return total.reshape(m * size, m * size), np.column_stack(sides)


def proximal_direction(hessian: Array, gradient: Array, penalty: Array, v: Array) -> Array:
    """The minimiser of g·d + ½ d·H d + Σ λ |v + d|.

    Coordinate descent finds the signs of the solution soon, but converges slowly where H is badly
    conditioned: the face of these signs is then minimised directly, up to the first change of sign.
    """
    d, slope = np.zeros_like(v), gradient.copy()
    sweep = _core.coordinate_descent(hessian, penalty, v, d, slope, 1, 0.0)
    aim = _PRECISE * max(float(-(gradient @ d)), 1e-300)
    for _ in range(_FACES):
        sweep = _core.coordinate_descent(hessian, penalty, v, d, slope, _SWEEPS, aim)
        if sweep < _SWEEPS:
            break
        _solve_face(hessian, penalty, v, d, slope)
        slope = gradient + hessian @ d
    return d


def _solve_face(hessian: Array, penalty: Array, v: Array, d: Array, slope: Array) -> None:
    """Change d to the minimum over the coordinates that are not 0, up to a change of sign."""
    w = v + d
    free = np.flatnonzero(((w != 0.0) | (penalty == 0.0)) & (hessian.diagonal() > 0.0))
    if not free.size:
        return
    signs = np.sign(w[free]) * (penalty[free] > 0.0)
    right = -(slope[free] + penalty[free] * signs)
    change = solve_spd(np.ascontiguousarray(hessian[np.ix_(free, free)]), right)
    towards = (signs != 0.0) & (signs * change < 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = np.where(towards, -w[free] / change, math.inf)
    step = min(1.0, float(reach.min()))
    d[free] += step * change
    crossed = free[reach <= step]
    d[crossed] = -v[crossed]


# -- steps -----------------------------------------------------------------------------


def proximal_step(
    problem: Problem, point: Point, direction: Array, slope: float, goal: Goal
) -> tuple[Point | None, float]:
    """The first of the steps 1, ½, ¼ … that lowers F enough; None if none does."""
    score_change = problem.scores(problem.to_model(direction))
    # Close to the optimum a step changes F by less than rounding errors, but still the gradient.
    rounding = 2e-15 * abs(point.value) if -slope < 1e-10 * abs(point.value) else 0.0
    step = 1.0
    for _ in range(_HALVINGS):
        v = point.v + step * direction
        at = problem.evaluate_or_none(point.at.scores + step * score_change, *goal)
        if at is not None:
            value = at.value + penalty_of(problem, v)
            if value <= point.value + 1e-4 * step * slope + rounding:
                return point_for(problem, v, at), step
        step *= 0.5
    return None, step


def slope_along(problem: Problem, point: Point, direction: Array) -> float:
    """The change of F along a direction, with its smooth part linearised."""
    penalty = problem.l1_penalty @ (abs(point.v + direction) - abs(point.v))
    return float(point.gradient @ direction) + float(penalty)


def orthant_step(problem: Problem, point: Point, memory: Memory, goal: Goal) -> Point | None:
    """A step of L-BFGS on the face of the orthant that holds v; None if none lowers F."""
    downhill = subgradient(problem, point)
    penalised = problem.l1_penalty > 0.0
    direction = lbfgs_direction(downhill, memory)
    direction[penalised & (direction * downhill >= 0.0)] = 0.0
    orthant = np.where(point.v != 0.0, np.sign(point.v), -np.sign(downhill))
    step = 1.0
    if not memory:
        step = min(1.0, problem.typical_norm / max(float(np.linalg.norm(direction)), 1e-300))
    for _ in range(_HALVINGS):
        v = point.v + step * direction
        v[penalised & (v * orthant <= 0.0)] = 0.0
        at = problem.evaluate_or_none(problem.scores(problem.to_model(v)), *goal)
        if at is not None:
            value = at.value + penalty_of(problem, v)
            if value <= point.value + 1e-4 * float(downhill @ (v - point.v)):
                return point_for(problem, v, at)
        step *= 0.5
    return None


def as_columns(problem: Problem, of_coordinates: Array) -> Array:
    """The largest number of each column, over its coordinates of all classes."""
    return of_coordinates.reshape(problem.m, -1)[:, :-1].max(axis=0)
