"""Exact solvers: all rows at every step, and a certificate at the end.

Both solvers are one loop and differ in the direction they take: Newton's, with the Hessian
of the robust loss, or that of a limited memory of past steps (L-BFGS).  The scores are
linear in θ, so a line search reads the data once, however many points it tries.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from drolearn import _kernels
from drolearn.problem import Evaluation, Problem
from drolearn.smooth import bend_of, can_smooth, inverse_of
from drolearn.worst_case import WorstCase, thread_count

__all__ = ["Exact", "can_newton", "minimise"]

Array = NDArray[np.float64]
Memory = deque[tuple[Array, Array, float]]
Watch = Callable[[int, Array, float, float], bool]

# How many past steps L-BFGS remembers.
_MEMORY = 10
# More columns than this have no matrix of their own.
_LARGE = 2000
# More groups than this have none either.
_MANY = 100
# Ends that somebody else wanted.
_BROKEN_OFF = ("stopped", "interrupted")


class Goal(NamedTuple):
    """What goes down: the robust loss, the plain mean, or one with its corners rounded off."""

    plain: bool = False
    epsilon: float = 0.0


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


@cache
def _blas() -> Any:
    """The libraries of linear algebra that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def minimise(
    problem: Problem, direction: str, start: Array, tol: float, max_iter: int, watch: Watch
) -> Exact:
    """Minimise the robust loss to a relative gap of about `tol`, see `_minimise`.

    Linear algebra gets no more threads than passes over the data: on matrices of this size
    the two libraries of NumPy and SciPy would be in each other's way.
    """
    threads = 1 if problem.n_jobs is None else thread_count(problem.n_jobs)
    with _blas().limit(limits=threads, user_api="blas"):
        return _minimise(problem, direction, start, tol, max_iter, watch)


def _minimise(
    problem: Problem, direction: str, start: Array, tol: float, max_iter: int, watch: Watch
) -> Exact:
    """Minimise the robust loss to a relative gap of about `tol`.

    `direction` is "newton", "lbfgs", or "exact": L-BFGS for as long as a few steps of Newton's
    method would take, and then those, where the matrix is small.  `watch(iteration, v, value,
    gradient_norm)` is told about every step and returns True to stop; v are scaled coordinates.
    """
    goal, patience, later = Goal(), max_iter, False
    if direction == "exact":
        direction, later = "lbfgs", can_newton(problem)
        if later or not problem.divergence.strictly_convex:
            wait = max(20, round(6.0 * _price(problem))) if later else 20
            patience = min(wait, max(max_iter // 2, 1))
    v = problem.from_model(start)
    walk = _set_out(problem, v, direction, max_iter)
    v = walk.point.v
    _follow(problem, direction, walk, tol, min(walk.steps + patience, max_iter), goal, watch)
    if walk.reason in ("exhausted", "stuck"):
        corner = _corner(problem, walk.point)
        if corner is not None:
            return replace(corner, iterations=walk.steps, direction=direction)
        if later and not _next_to_corner(walk.point):
            direction = "newton"
            # Half of what is left: at a corner, Newton's method would use up all.
            _follow(problem, direction, walk, tol, (walk.steps + max_iter) // 2, goal, watch)
    # Who stops it does not wait for the best certificate.
    gap = _gap(problem, walk.point, math.inf if walk.reason in _BROKEN_OFF else tol)
    if gap > tol * problem.unit(walk.point.value) and walk.reason not in _BROKEN_OFF:
        corner = _corner(problem, walk.point)
        if corner is not None:
            return replace(corner, iterations=walk.steps, direction=direction)
        hopeful = walk.reason in ("converged", "stuck") and not _next_to_corner(walk.point)
        if problem.d <= _LARGE and problem.m == 1 and hopeful:
            # The estimate was too hopeful, and the certificate decides.  L-BFGS may need
            # Newton's method for the last digits; that one may have run into a corner.
            if later:
                direction = "newton"
            elif direction == "newton" and np.linalg.norm(walk.point.v) < 1e-2 * np.linalg.norm(v):
                direction, walk.point = "lbfgs", _look(problem, v, goal)
            limit = (walk.steps + max_iter) // 2
            for closer in (1e-3, 1e-7) if direction == "newton" else (0.03,):
                _follow(problem, direction, walk, closer * tol, limit, goal, watch)
                gap = _gap(problem, walk.point, tol)
                if gap <= tol * problem.unit(walk.point.value) or walk.reason != "converged":
                    break
    # Certificates of many columns or classes are too coarse to decide about smooth losses.
    fine = problem.d <= _LARGE and problem.m == 1
    edged = not problem.divergence.strictly_convex or _next_to_corner(walk.point)
    missed = not gap <= tol * problem.unit(walk.point.value)
    doubtful = missed and (fine or edged or walk.reason == "stuck")
    if doubtful and walk.reason not in _BROKEN_OFF:
        cornered = can_smooth(problem.divergence) and not problem.plain
        if cornered and walk.steps < max_iter:
            direction = "newton" if _has_matrix(problem) else "lbfgs"
            gap = _round_off(problem, direction, walk, tol, max_iter, watch)
        elif walk.reason != "exhausted" and gap > 10.0 * tol * problem.unit(walk.point.value):
            walk.reason = "uncertified"
    point = walk.point
    if walk.reason == "exhausted":
        # A few steps may lead up where the robust loss is concerned.
        none = _look(problem, np.zeros_like(v), goal, np.zeros(problem.n * problem.m))
        if none.value < point.value:
            gap, point = max(gap - (point.value - none.value), 0.0), none
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


def _set_out(problem: Problem, v: Array, direction: str, max_iter: int) -> _Walk:
    """Where to start from: here, or a few steps of the plain mean away from zero.

    Where all losses are equal the robust loss has a corner, which quasi-Newton methods do not
    leave.
    """
    goal = Goal()
    if np.any(v):
        return _Walk(_look(problem, v, goal))
    none = np.zeros(problem.n * problem.m)
    if problem.plain:
        return _Walk(_look(problem, v, goal, none))
    away = _Walk(_look(problem, v, Goal(plain=True), none))
    few = min(2 if direction == "newton" else 4, max_iter)
    _follow(problem, direction, away, 1e-2, few, Goal(plain=True), None)
    return _Walk(_look(problem, away.point.v, goal, away.point.at.scores), away.steps)


def _next_to_corner(point: _Point) -> bool:
    """Whether the ball has almost ceased to bind: losses that carry weight are almost equal."""
    return point.at.worst.alpha < 1e-3 * abs(point.at.worst.value)


def _round_off(
    problem: Problem, direction: str, walk: _Walk, tol: float, max_iter: int, watch: Watch
) -> float:
    """Go down to a corner along the minima of R_ε as ε falls; a duality gap.

    Weights of R_ε are in the ball and, unlike the sharp ones, come to balance the gradients of
    the losses that tie: the bound they give meets the value.
    """
    best, bound = walk.point, -math.inf
    moved = best.at.losses if problem.groups is None else problem.groups.means(best.at.losses)
    epsilon = 0.3 * max(float(moved.std()), 1e-3 * problem.unit(best.value))
    while True:
        goal = Goal(epsilon=epsilon)
        walk.point = _look(problem, walk.point.v, goal)
        share = min(epsilon / problem.unit(best.value), 1.0)
        # The Hessian grows like 1/ε: gradients are only small where decrements are tiny.
        aim = max(1e-2 * tol * share, 1e-15)
        if direction != "newton":
            aim = min(max(0.05 * tol, 0.1 * share), 1e-3)
        _follow(problem, direction, walk, aim, max_iter, goal, watch)
        sharp = _look(problem, walk.point.v, Goal())
        # How far R_ε is below R is known; how far its own minimum is was asked to be `aim`.
        near = sharp.value - walk.point.value + aim * problem.unit(sharp.value)
        proved = _gap(problem, walk.point, tol, sharp.value)
        if sharp.value < best.value:
            best = sharp
        bound = max(bound, sharp.value - (near if math.isnan(proved) else proved))
        gap = max(best.value - bound, 0.0)
        closed = gap <= tol * problem.unit(best.value)
        if closed or walk.reason != "converged" or epsilon <= 1e-13 * problem.unit(best.value):
            break
        epsilon *= 0.1
    walk.point = best
    if closed:
        walk.reason = "converged"
    elif walk.reason in ("converged", "stuck"):
        walk.reason = "uncertified"
    return math.nan if problem.loss.conjugate is None else gap


def can_newton(problem: Problem) -> bool:
    """Whether the Hessian exists and is of a size to work with."""
    return problem.divergence.strictly_convex and _has_matrix(problem)


def _has_matrix(problem: Problem) -> bool:
    few = problem.groups is None or problem.groups.shares.size <= _MANY
    return problem.m == 1 and problem.d <= _LARGE and few


def _price(problem: Problem) -> float:
    """What a step of Newton's method costs, in steps of L-BFGS."""
    n, d, row = problem.n, problem.d + 1, problem.row_size
    dense = problem.csr is None
    matrix = n * d * (d * 1.2e-10 + 1e-9) if dense else n * row * row * 1.5e-9
    step = 2e-9 * n * row + 3e-8 * n
    return 1.0 + (matrix + d**3 * 1e-10) / step


# -- the way down ----------------------------------------------------------------------


def _look(problem: Problem, v: Array, goal: Goal, scores: Array | None = None) -> _Point:
    if scores is None:
        scores = problem.scores(problem.to_model(v))
    at = problem.evaluate(scores, *goal)
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
    goal: Goal,
    watch: Watch | None,
) -> None:
    """Go on until the end; Ctrl-C ends it too, with what was found so far."""
    try:
        walk.reason = _descend(problem, direction, walk, tol, max_iter, goal, watch)
    except KeyboardInterrupt:
        if watch is None:
            raise
        walk.reason = "interrupted"


def _descend(
    problem: Problem,
    direction: str,
    walk: _Walk,
    tol: float,
    max_iter: int,
    goal: Goal,
    watch: Watch | None,
) -> str:
    memory: Memory = deque(maxlen=_MEMORY)
    values: deque[float] = deque(maxlen=11)
    newton, small, told = direction == "newton", 0, -1
    bounded = not problem.loss.functions
    while True:
        point = walk.point
        values.append(point.value)
        if watch is not None and told != walk.steps:
            told = walk.steps
            norm, value = float(np.linalg.norm(point.gradient)), point.value
            if goal.epsilon > 0.0:
                value += problem.evaluate(point.at.scores).value - point.at.value
            if watch(walk.steps, point.v, value, norm):
                return "stopped"
        if newton:
            way = _newton_direction(problem, point, goal)
        else:
            way = _lbfgs_direction(point.gradient, memory)
        slope = float(way @ point.gradient)
        if not slope < 0.0:
            memory.clear()
            way, slope = -point.gradient, -float(point.gradient @ point.gradient)
        # Half the decrement of Newton's method is the gap, to second order; the memory of
        # L-BFGS is a rougher guide, so it has to say so twice, and the trend must agree.
        allowed = tol * problem.unit(point.value)
        close = -0.5 * slope <= 0.5 * allowed and (newton or _to_come(values) <= 0.3 * allowed)
        small = small + 1 if close else 0
        if not newton and not memory:
            # Nothing is known of the curvature: only a slope that is flat wherever models may be
            # will do.
            flat = math.sqrt(-slope) * _reach(problem, point) <= allowed
            small = 2 if flat else 0
        elif not newton and -0.5 * slope <= 1e-3 * allowed:
            small = 2  # far below what is asked
        if bounded and point.value <= allowed:
            small = 2  # no loss is below zero
        if small >= (1 if newton else 2) or slope == 0.0:
            return "converged"
        if walk.steps >= max_iter:
            return "exhausted"
        if len(values) > 5 and values[-6] - values[-1] <= 1e-15 * abs(values[-1]):
            return "converged"  # only rounding is left
        found = _search(problem, point, way, slope, goal, bool(newton or memory))
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


def _to_come(values: deque[float]) -> float:
    """What all further steps will bring, if they shrink as the last five did to the five before.

    No less than a third of the last five: a pause is not the end.
    """
    if len(values) < 11:
        return 0.6 * (values[-6] - values[-1]) if len(values) > 5 else 0.0
    before, last = values[0] - values[5], values[5] - values[10]
    return max(last * last / (before - last), 0.3 * last) if last < before else math.inf


def _search(
    problem: Problem, point: _Point, way: Array, slope: float, goal: Goal, scaled: bool
) -> _Point | None:
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
        at = _evaluate_or_none(problem, scores, goal)
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


def _evaluate_or_none(problem: Problem, scores: Array, goal: Goal) -> Evaluation | None:
    """The evaluation, unless the step was so long that losses overflow."""
    try:
        return problem.evaluate(scores, *goal)
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


def _newton_direction(problem: Problem, point: _Point, goal: Goal) -> Array:
    """−H⁻¹ g with the Hessian of the robust loss,

    X̃ᵀ diag(p l'') X̃ + Jᵀ (∂p/∂z) J + penalty,   J the gradients of what the ball moves.
    """
    at, worst, groups = point.at, point.at.worst, problem.groups
    curve = np.empty(problem.n)
    _kernels.bends_of(problem.loss.spec, at.scores, problem.y, curve)
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
        h, first, second = (np.empty(problem.n) for _ in range(3))
        spec, alpha = problem.divergence.spec, _floored(worst)
        m = _kernels.second_order(
            spec, at.losses, worst.weights, problem.base, alpha, worst.lam, at.slopes, curve,
            h, first, second,
        )  # fmt: skip
        hessian, sides = problem.gram(h, first, second)
        hessian -= sides @ inverse_of(*m) @ sides.T
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    return -_solve_spd(hessian, point.gradient)


def _floored(worst: WorstCase) -> float:
    """α, or a little of the value: next to a corner it vanishes, and the Hessian with it."""
    return max(worst.alpha, 1e-6 * max(abs(worst.value), 1e-300))


def _solve_spd(matrix: Array, right: Array, relative: float = 1e-12) -> Array:
    """matrix⁻¹ right for a matrix that is positive definite but for rounding."""
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


# -- certificates ----------------------------------------------------------------------


def _gap(problem: Problem, point: _Point, tol: float, value: float | None = None) -> float:
    """A duality gap: no model has a robust loss below value − gap.

    The value is that of the point, unless another is given.  The worst-case weights p stay in
    the ball for every model, so

        F(θ) ≥ Σ p l(θ) + ½ Σ penalty v² ≥ −Σ p l*(u) − ½ Σ penalty (v − δ)²

    for all u and δ with X̃ᵀ(p u) = −penalty (v − δ).  What is missing to equality (rounding; the
    gradient, where there is no penalty and no matrix) counts times ten times the norm of v, and
    at least ten: the bound then holds for all models within that norm.  First u = l' with
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
        slack = float(np.linalg.norm(rest)) * _reach(problem, point)
        return max(reached - lower, 0.0) + slack

    free = penalty <= 0.0
    delta = np.divide(point.gradient, penalty, out=np.zeros_like(penalty), where=~free)
    best = bound(at.slopes, delta, point.gradient * free)
    if best <= 0.1 * tol * problem.unit(reached) or problem.d > _LARGE or problem.m > 1:
        return best
    bend = np.empty(problem.n)
    _kernels.bends_of(problem.loss.spec, at.scores, problem.y, bend)
    hessian, _ = problem.gram(p * bend)
    hessian[np.diag_indices_from(hessian)] += penalty
    for ridge in (1e-12, 1e-9, 1e-6):
        # Directions in which the data say nothing must not carry rounding far away.
        delta = _solve_spd(hessian, point.gradient, ridge)
        if not float(np.linalg.norm(delta)) <= 1e3 * _reach(problem, point):
            continue  # hardly any curvature: Newton's step leads nowhere
        u = at.slopes - bend * problem.scores(problem.to_model(delta))
        rest = problem.scaled_gradient(problem.data_gradient(p * u))
        best = min(best, bound(u, delta, rest + penalty * (point.v - delta)))
        if best <= tol * problem.unit(reached):
            break
    return best


def _some_at_a_time(n: int) -> Iterator[slice]:
    """All rows, in parts that do not take much room."""
    return (slice(first, first + 65_536) for first in range(0, n, 65_536))


def _reach(problem: Problem, point: _Point) -> float:
    """How far from zero, in scaled coordinates, a certificate has to hold."""
    return 10.0 * max(float(np.linalg.norm(point.v)), problem.breadth)


def _corner(problem: Problem, point: _Point) -> Exact | None:
    """The model that knows nothing, if it is the optimum.

    In large balls it often is.  All losses are equal there, the robust loss has a corner, and
    descent creeps towards it.  It is optimal if weights in the ball balance the data,

        Σ p y x̃ = 0,  Σ p = 1,  p ≥ 0,

    and the closest such weights in χ² are p = b (1 + y x̃·μ + ν)₊, found by Newton's method.
    """
    if problem.groups is not None:
        return None
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
    gap = rest * _reach(problem, point)
    return Exact(problem.zeros(), zero.value, gap, rest, 0, True, "corner", "", zero)
