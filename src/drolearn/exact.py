"""Exact solvers: all rows at every step, and a certificate at the end.

Both solvers are one loop and differ in the direction they take: Newton's, with the Hessian
of the robust loss, or that of a limited memory of past steps (L-BFGS).  The scores are
linear in θ, so a line search reads the data once, however many points it tries.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from drolearn import _kernels
from drolearn.problem import Evaluation, Problem

__all__ = ["Exact", "minimise"]

Array = NDArray[np.float64]
# How many past steps L-BFGS remembers.
_MEMORY = 20


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """Where an exact solver ended."""

    theta: Array
    value: float
    gap: float
    gradient_norm: float
    iterations: int
    converged: bool
    reason: str


@dataclass(slots=True)
class _Point:
    """A point in scaled coordinates, with all that is known there."""

    v: Array
    at: Evaluation
    value: float
    gradient: Array


def minimise(
    problem: Problem,
    direction: str,
    start: Array,
    tol: float,
    max_iter: int,
    watch: Callable[[int, Array, float, float], bool],
    certify: bool = True,
) -> Exact:
    """Minimise the robust loss to a relative gap of about `tol`.

    `watch(iteration, theta, value, gradient_norm)` is told about every step and returns True
    to stop.
    """
    v = problem.from_model(start)
    if problem.rho > 0.0 and not np.any(v):
        # Where all losses are equal the robust loss has a corner, and quasi-Newton methods
        # do not leave it.  A few steps on the plain mean do.
        v = _walk(problem, direction, v, 1e-2, 2 if direction == "newton" else 8, 0.0, None)[0].v
    point, steps, reason, decrement = _walk(
        problem, direction, v, tol, max_iter, problem.rho, watch
    )
    theta = problem.to_model(point.v)
    gap = _gap(problem, point) if certify else decrement
    return Exact(
        theta,
        point.value,
        gap,
        float(np.linalg.norm(point.gradient)),
        steps,
        reason == "converged",
        reason,
    )


def _look(problem: Problem, v: Array, scores: Array, rho: float) -> _Point:
    at = problem.evaluate(scores, rho)
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * v
    return _Point(v, at, at.value + 0.5 * float(problem.penalty @ (v * v)), gradient)


def _walk(
    problem: Problem,
    direction: str,
    v: Array,
    tol: float,
    max_iter: int,
    rho: float,
    watch: Callable[[int, Array, float, float], bool] | None,
) -> tuple[_Point, int, str, float]:
    point = _look(problem, v, problem.scores(problem.to_model(v)), rho)
    memory: deque[tuple[Array, Array, float]] = deque(maxlen=_MEMORY)
    newton = direction == "newton"
    steps, small, decrement = 0, 0, math.inf
    while True:
        if watch is not None and watch(
            steps, point.v, point.value, float(np.linalg.norm(point.gradient))
        ):
            return point, steps, "stopped", decrement
        if newton:
            way = _newton_direction(problem, point, rho)
        else:
            way = _lbfgs_direction(point.gradient, memory)
        slope = float(way @ point.gradient)
        if not slope < 0.0:
            memory.clear()
            way, slope = -point.gradient, -float(point.gradient @ point.gradient)
        decrement = -0.5 * slope
        # Half the decrement of Newton's method is the gap, to second order; the memory of
        # L-BFGS is a rougher guide, so it has to say so three times.
        close = decrement <= tol * max(abs(point.value), 1e-12) * (0.5 if newton else 0.25)
        small = small + 1 if close else 0
        if small >= (1 if newton else 3) or slope == 0.0:
            return point, steps, "converged", decrement
        if steps >= max_iter:
            return point, steps, "exhausted", decrement
        found = _search(problem, point, way, slope, rho, bool(newton or memory))
        if found is None:
            if memory:
                memory.clear()
                continue
            return point, steps, "stuck", decrement
        steps += 1
        change, turn = found.v - point.v, found.gradient - point.gradient
        curvature = float(change @ turn)
        if curvature > 1e-10 * float(np.linalg.norm(change) * np.linalg.norm(turn)):
            memory.append((change, turn, curvature))
        point = found


def _search(
    problem: Problem, point: _Point, way: Array, slope: float, rho: float, scaled: bool
) -> _Point | None:
    """A step that decreases the value enough and flattens the slope (weak Wolfe conditions).

    Bisection between a step that is too long and one that is too short; it also works at
    corners of the robust loss.
    """
    moved = problem.scores(_linear(problem, way))
    step = 1.0 if scaled else min(1.0, 1.0 / max(float(np.linalg.norm(way)), 1e-300))
    low, high = 0.0, math.inf
    best: tuple[float, Evaluation] | None = None
    for _ in range(50):
        v = point.v + step * way
        at = _evaluate_or_none(problem, point.at.scores + step * moved, rho)
        value = math.inf
        if at is not None:
            value = at.value + 0.5 * float(problem.penalty @ (v * v))
        if not value <= point.value + 1e-4 * step * slope:
            high = step
        else:
            assert at is not None
            best = (step, at)
            along = _directional(problem, at, moved) + float(problem.penalty @ (v * way))
            if along >= 0.9 * slope:
                break
            low = step
        step = 0.5 * (low + high) if high < math.inf else 2.0 * step
        if high - low <= 1e-14 * step:
            break
    if best is None:
        return None
    step, at = best
    v = point.v + step * way
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * v
    value = at.value + 0.5 * float(problem.penalty @ (v * v))
    return _Point(v, at, value, gradient)


def _linear(problem: Problem, way: Array) -> Array:
    """The direction as a model, whose scores are the change of the scores."""
    return problem.to_model(way)


def _evaluate_or_none(problem: Problem, scores: Array, rho: float) -> Evaluation | None:
    """The evaluation, unless the step was so long that losses overflow."""
    try:
        return problem.evaluate(scores, rho)
    except ValueError:
        return None


def _directional(problem: Problem, at: Evaluation, moved: Array) -> float:
    if problem.m == 1:
        return float(at.worst.weights @ (at.slopes * moved))
    each = (at.slopes * moved).reshape(-1, problem.m).sum(axis=1)
    return float(at.worst.weights @ each)


def _lbfgs_direction(gradient: Array, memory: deque[tuple[Array, Array, float]]) -> Array:
    """−H g by the two-loop recursion."""
    q = -gradient
    if not memory:
        return q
    factors = []
    for change, turn, curvature in reversed(memory):
        a = float(change @ q) / curvature
        q = q - a * turn
        factors.append(a)
    change, turn, curvature = memory[-1]
    q = q * (curvature / float(turn @ turn))
    for (change, turn, curvature), a in zip(memory, reversed(factors), strict=True):
        q = q + (a - float(turn @ q) / curvature) * change
    return q


def _newton_direction(problem: Problem, point: _Point, rho: float) -> Array:
    """−H⁻¹ g with the Hessian of the robust loss, see `_kernels.second_order`."""
    at, n = point.at, problem.n
    bend, h, first, second = (np.empty(n) for _ in range(4))
    _kernels.bends_of(problem.loss.spec, at.scores, problem.y, bend)
    worst = at.worst
    # Next to a corner α vanishes; a little of it keeps the Hessian finite.
    alpha = max(worst.alpha, 1e-6 * max(abs(worst.value), 1e-300)) if rho > 0.0 else math.inf
    spec = problem.divergence.spec
    aa, ab, bb = _kernels.second_order(
        spec,
        at.losses,
        worst.weights,
        problem.base,
        alpha,
        worst.lam,
        at.slopes,
        bend,
        h,
        first,
        second,
    )
    hessian = problem.gram(h)
    if aa > 0.0:
        columns = np.column_stack(
            [
                problem.scaled_gradient(problem.data_gradient(first)),
                problem.scaled_gradient(problem.data_gradient(second)),
            ]
        )
        hessian -= columns @ np.linalg.pinv(np.array([[aa, ab], [ab, bb]])) @ columns.T
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    return -_solve_spd(hessian, point.gradient)


def _solve_spd(matrix: Array, right: Array) -> Array:
    """matrix⁻¹ right for a matrix that is positive definite but for rounding."""
    diagonal = np.einsum("ii->i", matrix)
    largest = max(float(diagonal.max()), 1e-300)
    ridge = 1e-12 * largest
    # Columns without any variation have an empty row: they stay where they are.
    diagonal[diagonal <= 0.0] = largest
    while True:
        try:
            damped = matrix.copy()
            damped[np.diag_indices_from(damped)] += ridge
            return cho_solve(cho_factor(damped, lower=True, overwrite_a=True), right)
        except LinAlgError:
            ridge *= 100.0


def _gap(problem: Problem, point: _Point) -> float:
    """A duality gap: no model has a robust loss below value − gap.

    The worst-case weights p stay in the ball for every model, so

        F(θ) ≥ Σ p l(θ) + ½ Σ penalty v² ≥ −Σ p l*(u) − ½ Σ penalty (v − δ)²

    for all u with X̃ᵀ(p u) = −penalty (v − δ).  With δ Newton's step on the weighted loss,
    u = l' − l'' X̃δ is such a u; rounding, or what the penalty leaves open, is counted times
    the norm of v.
    """
    at, p = point.at, point.at.worst.weights
    if problem.m > 1 or problem.loss.conjugate is None:
        return math.nan
    n, penalty = problem.n, problem.penalty
    bend = np.empty(n)
    _kernels.bends_of(problem.loss.spec, at.scores, problem.y, bend)
    hessian = problem.gram(p * bend)
    hessian[np.diag_indices_from(hessian)] += penalty
    delta = _solve_spd(hessian, point.gradient)
    u = at.slopes - bend * problem.scores(problem.to_model(delta))
    rest = problem.scaled_gradient(problem.data_gradient(p * u))
    rest += penalty * (point.v - delta)
    conjugate = problem.loss.conjugate(u, problem.y)
    held = conjugate[p > 0.0]
    if not np.isfinite(held).all():
        return math.inf
    lower = -float(p[p > 0.0] @ held) - 0.5 * float(penalty @ (point.v - delta) ** 2)
    slack = float(np.linalg.norm(rest) * np.linalg.norm(point.v))
    return max(point.value - lower, 0.0) + slack
