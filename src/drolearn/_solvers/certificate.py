"""Certificates: how far the optimum can be, and whether it is to know nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.problem import Evaluation, Problem

__all__ = ["LARGE", "Corner", "Point", "corner_of", "duality_gap", "reach", "solve_spd"]

Array = NDArray[np.float64]

# More columns than this have no matrix of their own.
LARGE = 2000


@dataclass(slots=True)
class Point:
    """A point in scaled coordinates, with all that is known there."""

    v: Array
    at: Evaluation
    value: float
    gradient: Array


class Corner(NamedTuple):
    """The model that knows nothing, as an optimum: its gap, what is missing to balance, itself."""

    gap: float
    rest: float
    at: Evaluation


def duality_gap(problem: Problem, point: Point, tol: float, value: float | None = None) -> float:
    """A duality gap: no model has a robust loss below value − gap.

    The value is that of the point, unless another is given.  The worst-case weights p stay in
    the ball for every model, so

        F(θ) ≥ Σ p l(θ) + ½ Σ penalty v² ≥ −Σ p l*(u) − ½ Σ penalty (v − δ)²

    for all u and δ with X̃ᵀ(p u) = −penalty (v − δ).  What is missing to equality (rounding; the
    gradient, where there is no penalty and no matrix) counts times `reach`, ten times the norm
    of v or more: the bound then holds for all models within that norm.  First u = l' with
    δ = g/penalty; if that is not good enough and the matrix is small, δ is Newton's step on the
    weighted loss and u = l' − l'' X̃δ.
    """
    conjugate = problem.loss.conjugate
    if conjugate is None:
        return math.nan
    at, p, penalty = point.at, point.at.worst.weights, problem.penalty
    reached = point.value if value is None else value

    def bound(u: Array, delta: Array, rest: Array) -> float:
        total = 0.0
        for rows in _some_at_a_time(problem.n):
            held = p[rows] > 0.0
            own = slice(rows.start * problem.m, rows.stop * problem.m)
            values = conjugate(u[own], problem.y[rows])[held]
            total += float(p[rows][held] @ values)
        if not math.isfinite(total):
            return math.inf
        lower = -total - 0.5 * float(penalty @ (point.v - delta) ** 2)
        slack = float(np.linalg.norm(rest)) * reach(problem, point)
        return max(reached - lower, 0.0) + slack

    free = penalty <= 1e-100  # g/penalty and its square must be numbers
    delta = np.divide(point.gradient, penalty, out=np.zeros_like(penalty), where=~free)
    best = bound(at.slopes, delta, point.gradient * free)
    if best <= 0.1 * tol * problem.unit(reached) or problem.d > LARGE or problem.m > 1:
        return best
    bend = problem.loss.bends(at.scores, problem.y, problem.threads)
    hessian, _ = problem.gram(p * bend)
    hessian[np.diag_indices_from(hessian)] += penalty
    for ridge in (1e-12, 1e-9, 1e-6):
        # Directions in which the data say nothing must not carry rounding far away.
        delta = solve_spd(hessian, point.gradient, ridge)
        if not float(np.linalg.norm(delta)) <= 1e3 * reach(problem, point):
            continue  # hardly any curvature: Newton's step leads nowhere
        u = at.slopes - bend * problem.scores(problem.to_model(delta))
        rest = problem.scaled_gradient(problem.data_gradient(p * u))
        best = min(best, bound(u, delta, rest + penalty * (point.v - delta)))
        if best <= tol * problem.unit(reached):
            break
    return best


def corner_of(problem: Problem, point: Point) -> Corner | None:
    """The model that knows nothing, if it is the optimum.

    In large balls it often is.  All losses are equal there, the robust loss has a corner, and
    descent creeps towards it.  It is optimal if weights in the ball balance the data,

        Σ p y x̃ = 0,  Σ p = 1,  p ≥ 0,

    and the closest such weights in χ² are p = b (1 + y x̃·μ + ν)₊, found by Newton's method.
    """
    if problem.groups is not None:
        return None
    zero = problem.evaluate(problem.scores(problem.zeros()))
    if problem.loss.of != "margin" or problem.d > LARGE or point.value < 0.97 * zero.value:
        return None
    n, y, size = problem.n, problem.y, problem.d + 2
    weights = problem.weights
    b = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    mu, p, side = np.zeros(size), b, np.zeros(size - 1)
    for _ in range(30):
        tilt = 1.0 + y * problem.scores(problem.to_model(mu[:-1])) + mu[-1]
        p = b * np.maximum(tilt, 0.0)
        side = problem.scaled_gradient(problem.data_gradient(p * y))
        miss = np.append(side, p.sum() - 1.0)
        if np.linalg.norm(miss) <= 1e-12:
            break
        active = b * (tilt > 0.0)
        matrix = np.zeros((size, size))
        matrix[:-1, :-1] = problem.gram(active)[0]
        matrix[-1, :-1] = problem.scaled_gradient(problem.data_gradient(active * y))
        matrix[:-1, -1] = matrix[-1, :-1]
        matrix[-1, -1] = active.sum()
        mu -= solve_spd(matrix, miss)
    total = p.sum()
    if not total > 0.0:
        return None
    rest = abs(float(zero.slopes[0])) * float(np.linalg.norm(side)) / total
    inside = problem.divergence.between(p / total, b) <= problem.rho * (1.0 + 1e-12)
    if not inside or not rest <= 1e-9:
        return None
    gap = rest * reach(problem, point)
    return Corner(gap, rest, zero)


def reach(problem: Problem, point: Point) -> float:
    """How far from zero, in scaled coordinates, a certificate has to hold."""
    return 10.0 * max(float(np.linalg.norm(point.v)), problem.breadth)


def _some_at_a_time(n: int) -> Iterator[slice]:
    """All rows, in parts that do not take much room."""
    return (slice(first, first + 65_536) for first in range(0, n, 65_536))


def solve_spd(matrix: Array, right: Array, relative: float = 1e-12) -> Array:
    """matrix⁻¹ right for a matrix that is positive definite but for rounding."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve  # imported when used: it is heavy

    diagonal = np.einsum("ii->i", matrix)
    largest = max(float(diagonal.max()), 1e-300)
    if largest <= 1e-290:  # no curvature at all
        return right.copy()
    ridge = relative * largest
    # Columns without any variation have an empty row: they stay where they are.
    diagonal[diagonal <= 0.0] = largest
    while True:
        try:
            damped = matrix.copy()
            damped[np.diag_indices_from(damped)] += ridge
            return cho_solve(cho_factor(damped, lower=True, overwrite_a=True), right)
        except LinAlgError:
            ridge *= 100.0
