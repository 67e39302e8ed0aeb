"""Optimality certificates: a duality gap, and a proof that the zero model is optimal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.problem import Evaluation, Problem

__all__ = [
    "MAX_COLUMNS",
    "Point",
    "ZeroModel",
    "can_certify_closely",
    "duality_gap",
    "norm_bound",
    "optimal_zero_model",
    "solve_spd",
]

Array = NDArray[np.float64]

# Matrices of d × d are formed only up to this many columns.
MAX_COLUMNS = 2000


@dataclass(slots=True)
class Point:
    """A point v in scaled coordinates, with value and gradient of the objective there."""

    v: Array
    at: Evaluation
    value: float
    gradient: Array


class ZeroModel(NamedTuple):
    """The zero model as an optimum: its duality gap, subgradient norm and evaluation."""

    gap: float
    gradient_norm: float
    at: Evaluation


def can_certify_closely(problem: Problem) -> bool:
    """Whether `duality_gap` can use the Hessian, which gives gaps close to the true one."""
    return problem.d <= MAX_COLUMNS and problem.m == 1


def duality_gap(problem: Problem, point: Point, tol: float, value: float | None = None) -> float:
    """A duality gap: no model has an objective below value − gap.

    `value` defaults to that of the point.  The worst-case weights p of the point lie in the ball,
    so for every model, and for all u and δ with X̃ᵀ(p u) = −penalty (v − δ),

        F(θ) ≥ Σ p l(θ) + ½ Σ penalty v² ≥ −Σ p l*(u) − ½ Σ penalty (v − δ)².

    The residual of that equation (rounding errors, and the gradient where there is neither a
    penalty nor a matrix) is multiplied by `norm_bound`: the bound then holds for all models within
    that norm.  The first try is u = l' with δ = g/penalty.  If its gap is too large and the matrix
    is small enough, δ is the Newton step for the weighted loss and u = l' − l'' X̃δ, moved to where
    l* is finite.  That matters if a column separates the classes of some rows: l' tends to 0 there,
    and l' − l'' X̃δ may have the wrong sign.
    """
    conjugate = problem.loss.conjugate
    if conjugate is None:
        return math.nan
    at, p, penalty = point.at, point.at.worst.weights, problem.penalty
    reached = point.value if value is None else value

    def bound(u: Array, delta: Array, residual: Array) -> float:
        total = 0.0
        for rows in _chunks(problem.n):
            positive = p[rows] > 0.0
            scores = slice(rows.start * problem.m, rows.stop * problem.m)
            values = conjugate(u[scores], problem.y[rows])[positive]
            total += float(p[rows][positive] @ values)
        if not math.isfinite(total):
            return math.inf
        lower = -total - 0.5 * float(penalty @ (point.v - delta) ** 2)
        slack = float(np.linalg.norm(residual)) * norm_bound(problem, point)
        return max(reached - lower, 0.0) + slack

    free = penalty <= 1e-100  # g/penalty and its square would overflow
    delta = np.divide(point.gradient, penalty, out=np.zeros_like(penalty), where=~free)
    best = bound(at.slopes, delta, point.gradient * free)
    if best <= 0.1 * tol * problem.loss_scale(reached) or not can_certify_closely(problem):
        return best
    curvature = problem.loss.bends(at.scores, problem.y, problem.threads)
    hessian, _ = problem.gram(p * curvature)
    hessian[np.diag_indices_from(hessian)] += penalty
    for ridge in (1e-12, 1e-9, 1e-6):
        # A larger ridge limits the step in directions without curvature.
        delta = solve_spd(hessian, point.gradient, ridge)
        if not float(np.linalg.norm(delta)) <= 1e3 * norm_bound(problem, point):
            continue
        u = at.slopes - curvature * problem.scores(problem.to_model(delta))
        u = problem.loss.clip_slopes(u, problem.y)
        residual = problem.scaled_gradient(problem.data_gradient(p * u))
        best = min(best, bound(u, delta, residual + penalty * (point.v - delta)))
        if best <= tol * problem.loss_scale(reached):
            break
    return best


def optimal_zero_model(problem: Problem, point: Point) -> ZeroModel | None:
    """The zero model, if it is the optimum; None if it is not, or if that cannot be proved.

    In large balls it often is.  All losses are equal there, the robust loss is not differentiable,
    and descent methods approach it slowly.  It is optimal if there are weights in the ball with

        Σ p y x̃ = 0,  Σ p = 1,  p ≥ 0.

    The closest such weights in χ² are p = b (1 + y x̃·μ + ν)₊, found by Newton's method.
    """
    if problem.groups is not None:
        return None
    zero = problem.evaluate(problem.scores(problem.zeros()))
    if problem.loss.of != "margin" or problem.d > MAX_COLUMNS or point.value < 0.97 * zero.value:
        return None
    n, y, size = problem.n, problem.y, problem.d + 2
    weights = problem.weights
    b = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    mu, p, moment = np.zeros(size), b, np.zeros(size - 1)
    for _ in range(30):
        tilt = 1.0 + y * problem.scores(problem.to_model(mu[:-1])) + mu[-1]
        p = b * np.maximum(tilt, 0.0)
        moment = problem.scaled_gradient(problem.data_gradient(p * y))
        residual = np.append(moment, p.sum() - 1.0)
        if np.linalg.norm(residual) <= 1e-12:
            break
        active = b * (tilt > 0.0)
        matrix = np.zeros((size, size))
        matrix[:-1, :-1] = problem.gram(active)[0]
        matrix[-1, :-1] = problem.scaled_gradient(problem.data_gradient(active * y))
        matrix[:-1, -1] = matrix[-1, :-1]
        matrix[-1, -1] = active.sum()
        mu -= solve_spd(matrix, residual)
    total = p.sum()
    if not total > 0.0:
        return None
    gradient_norm = abs(float(zero.slopes[0])) * float(np.linalg.norm(moment)) / total
    inside = problem.divergence.between(p / total, b) <= problem.rho * (1.0 + 1e-12)
    if not inside or not gradient_norm <= 1e-9:
        return None
    return ZeroModel(gradient_norm * norm_bound(problem, point), gradient_norm, zero)


def norm_bound(problem: Problem, point: Point) -> float:
    """The norm in scaled coordinates up to which a certificate holds."""
    return 10.0 * max(float(np.linalg.norm(point.v)), problem.typical_norm)


def _chunks(n: int) -> Iterator[slice]:
    """Slices of 65,536 rows, to keep temporary arrays small."""
    return (slice(first, first + 65_536) for first in range(0, n, 65_536))


def solve_spd(matrix: Array, right: Array, relative: float = 1e-12) -> Array:
    """matrix⁻¹ right for a matrix that is positive semidefinite up to rounding.

    A ridge of `relative` times the largest diagonal entry is added, and a larger one if the
    factorisation fails.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve  # imported when used: it is heavy

    diagonal = np.einsum("ii->i", matrix)
    largest = max(float(diagonal.max()), 1e-300)
    if largest <= 1e-290:  # no curvature at all
        return right.copy()
    ridge = relative * largest
    # Constant columns have an empty row; their coefficients do not move.
    diagonal[diagonal <= 0.0] = largest
    while True:
        try:
            damped = matrix.copy()
            damped[np.diag_indices_from(damped)] += ridge
            return cho_solve(cho_factor(damped, lower=True, overwrite_a=True), right)
        except LinAlgError:
            ridge *= 100.0
