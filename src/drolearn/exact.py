"""Exact solvers: all rows at every step, and a certificate at the end.

Both solvers are one loop and differ in the direction they take: Newton's, with the Hessian
of the robust loss, or that of a limited memory of past steps (L-BFGS).  The scores are
linear in θ, so a line search reads the data once, however many points it tries.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from drolearn import _kernels
from drolearn.problem import Evaluation, Problem

__all__ = ["Exact", "can_newton", "minimise"]

Array = NDArray[np.float64]
Memory = deque[tuple[Array, Array, float]]
Watch = Callable[[int, Array, float, float], bool]

# How many past steps L-BFGS remembers.
_MEMORY = 10
# More columns than this have no matrix of their own.
_LARGE = 2000


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
    direction: str
    at: Evaluation


@dataclass(slots=True)
class _Point:
    """A point in scaled coordinates, with all that is known there."""

    v: Array
    at: Evaluation
    value: float
    gradient: Array


@dataclass(slots=True)
class _Walk:
    """A way downhill, and how far it has come."""

    point: _Point
    steps: int = 0
    reason: str = "stopped"


def minimise(
    problem: Problem, direction: str, start: Array, tol: float, max_iter: int, watch: Watch
) -> Exact:
    """Minimise the robust loss to a relative gap of about `tol`.

    `direction` is "newton", "lbfgs", or "exact": L-BFGS for as long as a few steps of Newton's
    method would take, and then those, where the matrix is small.  `watch(iteration, v, value,
    gradient_norm)` is told about every step and returns True to stop; v are scaled coordinates.
    """
    patience = max_iter
    if direction == "exact":
        direction = "lbfgs"
        if can_newton(problem):
            patience = min(max_iter, max(20, round(6.0 * _price(problem))))
    v = problem.from_model(start)
    if problem.rho > 0.0 and not np.any(v):
        # Where all losses are equal the robust loss has a corner, and quasi-Newton methods
        # do not leave it.  A few steps on the plain mean do.
        away = _Walk(_look(problem, v, 0.0))
        _follow(problem, direction, away, 1e-2, 2 if direction == "newton" else 4, 0.0, None)
        v = away.point.v
    walk = _Walk(_look(problem, v, problem.rho))
    _follow(problem, direction, walk, tol, patience, problem.rho, watch)
    if walk.reason in ("exhausted", "stuck"):
        corner = _corner(problem, walk.point)
        if corner is not None:
            return replace(corner, iterations=walk.steps, direction=direction)
        if patience < max_iter:
            direction = "newton"
            _follow(problem, direction, walk, tol, max_iter, problem.rho, watch)
    gap = _gap(problem, walk.point, tol)
    if gap > tol * abs(walk.point.value) and walk.reason != "stopped":
        corner = _corner(problem, walk.point)
        if corner is not None:
            return replace(corner, iterations=walk.steps, direction=direction)
        if problem.d <= _LARGE and walk.reason in ("converged", "stuck"):
            # The estimate was too hopeful, and the certificate decides.  L-BFGS may need
            # Newton's method for the last digits; that one may have run into a corner.
            if patience < max_iter:
                direction = "newton"
            elif direction == "newton" and np.linalg.norm(walk.point.v) < 1e-2 * np.linalg.norm(v):
                direction, walk.point = "lbfgs", _look(problem, v, problem.rho)
            _follow(problem, direction, walk, 0.03 * tol, max_iter, problem.rho, watch)
            gap = _gap(problem, walk.point, tol)
            if walk.reason in ("converged", "stuck") and gap > 10.0 * tol * walk.point.value:
                walk.reason = "uncertified"
    point = walk.point
    return Exact(
        problem.to_model(point.v),
        point.value,
        gap,
        float(np.linalg.norm(point.gradient)),
        walk.steps,
        walk.reason == "converged",
        walk.reason,
        direction,
        point.at,
    )


def can_newton(problem: Problem) -> bool:
    """Whether the Hessian exists and is of a size to work with."""
    return problem.divergence.strictly_convex and problem.m == 1 and problem.d <= _LARGE


def _price(problem: Problem) -> float:
    """What a step of Newton's method costs, in steps of L-BFGS."""
    n, d, row = problem.n, problem.d + 1, problem.row_size
    dense = problem.csr is None
    matrix = n * d * (d * 1.2e-10 + 1e-9) if dense else n * row * row * 1.5e-9
    step = 2e-9 * n * row + 3e-8 * n
    return 1.0 + (matrix + d**3 * 1e-10) / step


# -- the way down ----------------------------------------------------------------------


def _look(problem: Problem, v: Array, rho: float) -> _Point:
    at = problem.evaluate(problem.scores(problem.to_model(v)), rho)
    return _arrive(problem, v, at)


def _arrive(problem: Problem, v: Array, at: Evaluation) -> _Point:
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * v
    return _Point(v, at, _value(problem, v, at), gradient)


def _value(problem: Problem, v: Array, at: Evaluation) -> float:
    return at.value + 0.5 * float(problem.penalty @ (v * v))


def _follow(
    problem: Problem,
    direction: str,
    walk: _Walk,
    tol: float,
    max_iter: int,
    rho: float,
    watch: Watch | None,
) -> None:
    """Go on until the end; Ctrl-C ends it too, with what was found so far."""
    try:
        walk.reason = _descend(problem, direction, walk, tol, max_iter, rho, watch)
    except KeyboardInterrupt:
        if watch is None:
            raise
        walk.reason = "stopped"


def _descend(
    problem: Problem,
    direction: str,
    walk: _Walk,
    tol: float,
    max_iter: int,
    rho: float,
    watch: Watch | None,
) -> str:
    memory: Memory = deque(maxlen=_MEMORY)
    values: deque[float] = deque(maxlen=6)
    newton, small, told = direction == "newton", 0, -1
    while True:
        point = walk.point
        values.append(point.value)
        if watch is not None and told != walk.steps:
            told = walk.steps
            norm = float(np.linalg.norm(point.gradient))
            if watch(walk.steps, point.v, point.value, norm):
                return "stopped"
        if newton:
            way = _newton_direction(problem, point, rho)
        else:
            way = _lbfgs_direction(point.gradient, memory)
        slope = float(way @ point.gradient)
        if not slope < 0.0:
            memory.clear()
            way, slope = -point.gradient, -float(point.gradient @ point.gradient)
        # Half the decrement of Newton's method is the gap, to second order; the memory of
        # L-BFGS is a rougher guide, so it has to say so three times, and the last five steps
        # must have brought as little.
        allowed = tol * max(abs(point.value), 1e-12)
        close = -0.5 * slope <= (0.5 if newton else 0.1) * allowed
        if not newton and len(values) == 6:
            close = close and values[0] - values[-1] <= 0.5 * allowed
        small = small + 1 if close else 0
        if not newton and -0.5 * slope <= 1e-3 * allowed:
            small = 3  # far below what is asked
        if small >= (1 if newton else 3) or slope == 0.0:
            return "converged"
        if walk.steps >= max_iter:
            return "exhausted"
        if len(values) == 6 and values[0] - values[-1] <= 1e-15 * abs(values[-1]):
            return "converged"  # only rounding is left
        found = _search(problem, point, way, slope, rho, bool(newton or memory))
        if found is None:
            if memory:
                memory.clear()
                continue
            return "stuck"
        change, turn = found.v - point.v, found.gradient - point.gradient
        curvature = float(change @ turn)
        if curvature > 1e-10 * float(np.linalg.norm(change) * np.linalg.norm(turn)):
            memory.append((change, turn, curvature))
        walk.point, walk.steps = found, walk.steps + 1


def _search(
    problem: Problem, point: _Point, way: Array, slope: float, rho: float, scaled: bool
) -> _Point | None:
    """A step that decreases the value enough and flattens the slope (weak Wolfe conditions).

    Bisection between a step that is too long and one that is too short; it also works at
    corners of the robust loss.
    """
    moved = problem.scores(problem.to_model(way))  # how the scores change along the way
    step = 1.0 if scaled else min(1.0, 1.0 / max(float(np.linalg.norm(way)), 1e-300))
    low, high = 0.0, math.inf
    best: tuple[Array, Evaluation] | None = None
    for _ in range(50):
        v = point.v + step * way
        at = _evaluate_or_none(problem, point.at.scores + step * moved, rho)
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
    return None if best is None else _arrive(problem, *best)


def _evaluate_or_none(problem: Problem, scores: Array, rho: float) -> Evaluation | None:
    """The evaluation, unless the step was so long that losses overflow."""
    try:
        return problem.evaluate(scores, rho)
    except ValueError:
        return None


def _directional(problem: Problem, at: Evaluation, moved: Array) -> float:
    each = at.slopes * moved
    if problem.m > 1:
        each = each.reshape(-1, problem.m).sum(axis=1)
    return float(at.worst.weights @ each)


# -- directions ------------------------------------------------------------------------


def _lbfgs_direction(gradient: Array, memory: Memory) -> Array:
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
    at, worst = point.at, point.at.worst
    bend, h, first, second = (np.empty(problem.n) for _ in range(4))
    _kernels.bends_of(problem.loss.spec, at.scores, problem.y, bend)
    # Next to a corner α vanishes; a little of it keeps the Hessian finite.
    alpha = max(worst.alpha, 1e-6 * max(abs(worst.value), 1e-300)) if rho > 0.0 else math.inf
    aa, ab, bb = _kernels.second_order(
        problem.divergence.spec,
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
    hessian, columns = problem.gram(h, first, second)
    if aa > 0.0:
        hessian -= columns @ np.linalg.pinv(np.array([[aa, ab], [ab, bb]])) @ columns.T
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    return -_solve_spd(hessian, point.gradient)


def _solve_spd(matrix: Array, right: Array, relative: float = 1e-12) -> Array:
    """matrix⁻¹ right for a matrix that is positive definite but for rounding."""
    diagonal = np.einsum("ii->i", matrix)
    largest = max(float(diagonal.max()), 1e-300)
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


# -- certificates ----------------------------------------------------------------------


def _gap(problem: Problem, point: _Point, tol: float) -> float:
    """A duality gap: no model has a robust loss below value − gap.

    The worst-case weights p stay in the ball for every model, so

        F(θ) ≥ Σ p l(θ) + ½ Σ penalty v² ≥ −Σ p l*(u) − ½ Σ penalty (v − δ)²

    for all u and δ with X̃ᵀ(p u) = −penalty (v − δ).  What is missing to equality (rounding; the
    gradient, where there is no penalty and no matrix) counts times ten times the norm of v, and
    at least ten: the bound then holds for all models within that norm.  First u = l' with
    δ = g/penalty; if that is not good enough and the matrix is small, δ is Newton's step on the
    weighted loss and u = l' − l'' X̃δ.
    """
    conjugate = problem.loss.conjugate
    if problem.m > 1 or conjugate is None:
        return math.nan
    at, p, penalty = point.at, point.at.worst.weights, problem.penalty
    held = p > 0.0

    def bound(u: Array, delta: Array, rest: Array) -> float:
        values = conjugate(u, problem.y)[held]
        if not np.isfinite(values).all():
            return math.inf
        lower = -float(p[held] @ values) - 0.5 * float(penalty @ (point.v - delta) ** 2)
        slack = float(np.linalg.norm(rest)) * _reach(point)
        return max(point.value - lower, 0.0) + slack

    free = penalty <= 0.0
    delta = np.divide(point.gradient, penalty, out=np.zeros_like(penalty), where=~free)
    best = bound(at.slopes, delta, point.gradient * free)
    if best <= 0.1 * tol * abs(point.value) or problem.d > _LARGE:
        return best
    bend = np.empty(problem.n)
    _kernels.bends_of(problem.loss.spec, at.scores, problem.y, bend)
    hessian, _ = problem.gram(p * bend)
    hessian[np.diag_indices_from(hessian)] += penalty
    for ridge in (1e-12, 1e-9, 1e-6):
        # Directions in which the data say nothing must not carry rounding far away.
        delta = _solve_spd(hessian, point.gradient, ridge)
        u = at.slopes - bend * problem.scores(problem.to_model(delta))
        rest = problem.scaled_gradient(problem.data_gradient(p * u))
        best = min(best, bound(u, delta, rest + penalty * (point.v - delta)))
        if best <= tol * abs(point.value):
            break
    return best


def _reach(point: _Point) -> float:
    """How far from zero, in scaled coordinates, a certificate has to hold."""
    return 10.0 * max(float(np.linalg.norm(point.v)), 1.0)


def _corner(problem: Problem, point: _Point) -> Exact | None:
    """The model that knows nothing, if it is the optimum.

    In large balls it often is.  All losses are equal there, the robust loss has a corner, and
    descent creeps towards it.  It is optimal if weights in the ball balance the data,

        Σ p y x̃ = 0,  Σ p = 1,  p ≥ 0,

    and the closest such weights in χ² are p = b (1 + y x̃·μ + ν)₊, found by Newton's method.
    """
    zero = problem.evaluate(problem.scores(problem.zeros()))
    if problem.loss.of != "margin" or problem.d > _LARGE or point.value < 0.97 * zero.value:
        return None
    n, y, size = problem.n, problem.y, problem.d + 2
    b = problem.base / problem.base.sum() if problem.base.size else np.full(n, 1.0 / n)
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
        mu -= _solve_spd(matrix, miss)
    total = p.sum()
    if not total > 0.0:
        return None
    rest = abs(float(zero.slopes[0])) * float(np.linalg.norm(side)) / total
    inside = problem.divergence.between(p / total, b) <= problem.rho * (1.0 + 1e-12)
    if not inside or not rest <= 1e-9:
        return None
    gap = rest * _reach(point)
    return Exact(problem.zeros(), zero.value, gap, rest, 0, True, "corner", "", zero)
