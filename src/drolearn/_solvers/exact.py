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
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.smoothing import bend_of, can_smooth, inverse_of
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.certificate import (
    LARGE,
    Corner,
    Point,
    corner_of,
    duality_gap,
    reach,
    solve_spd,
)
from drolearn._solvers.ending import Ending
from drolearn._solvers.problem import Evaluation, Problem

__all__ = ["Minimum", "can_newton", "lacks_for_newton", "minimise"]

Array = NDArray[np.float64]
Memory = deque[tuple[Array, Array, float]]
Watch = Callable[[int, Array, float, float], bool]

# How many past steps L-BFGS remembers.
_MEMORY = 10
# More groups than this have no matrix of their own.
_MANY = 100
# Endings that the solver came to by itself, with iterations left.
_BY_ITSELF = (Ending.CONVERGED, Ending.STUCK)


class Goal(NamedTuple):
    """What goes down: the robust loss, the plain mean, or one with its corners rounded off."""

    plain: bool = False
    epsilon: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """Where an exact solver ended."""

    theta: Array
    value: float
    gap: float
    gradient_norm: float
    iterations: int
    ending: Ending
    direction: str
    at: Evaluation


@dataclass(slots=True)
class _Walk:
    """A way downhill, and how far it has come."""

    point: Point
    steps: int = 0
    ending: Ending = Ending.STOPPED


@cache
def _blas() -> Any:
    """The libraries of linear algebra that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def minimise(
    problem: Problem, direction: str, start: Array, tol: float, max_iter: int, watch: Watch
) -> Minimum:
    """Minimise the robust loss to a relative gap of about `tol`, see `_minimise`.

    Linear algebra gets one thread: on matrices of this size the libraries of NumPy and SciPy
    would be in each other's way, and `Problem.gram` shares out its rows itself.
    """
    with _blas().limit(limits=1, user_api="blas"):
        return _minimise(problem, direction, start, tol, max_iter, watch)


def _minimise(
    problem: Problem, direction: str, start: Array, tol: float, max_iter: int, watch: Watch
) -> Minimum:
    """Minimise the robust loss to a relative gap of about `tol`.

    `direction` is "newton", "lbfgs", or "exact": L-BFGS for as long as a few steps of Newton's
    method would take, and then those, where the matrix is small.  `watch(iteration, v, value,
    gradient_norm)` is told about every step and returns True to stop; v are scaled coordinates.
    """
    goal, patience, later = Goal(), max_iter, False
    if direction == "exact":
        direction, later = "lbfgs", can_newton(problem)
        if later or not problem.divergence.strictly_convex:
            wait = max(20, round(4.0 * _price(problem))) if later else 20
            patience = min(wait, max(max_iter // 2, 1))
    v = problem.from_model(start)
    walk = _set_out(problem, v, direction, max_iter)
    v = walk.point.v
    _follow(problem, direction, walk, tol, min(walk.steps + patience, max_iter), goal, watch)
    if walk.ending in (Ending.EXHAUSTED, Ending.STUCK):
        corner = corner_of(problem, walk.point)
        if corner is not None:
            return _at_corner(problem, corner, walk, direction)
        if later and not _next_to_corner(walk.point):
            direction = "newton"
            # Half of what is left: at a corner, Newton's method would use up all.
            _follow(problem, direction, walk, tol, (walk.steps + max_iter) // 2, goal, watch)
    # Who stops it does not wait for the best certificate.
    gap = duality_gap(problem, walk.point, math.inf if walk.ending.asked_for else tol)
    if gap > tol * problem.unit(walk.point.value) and not walk.ending.asked_for:
        corner = corner_of(problem, walk.point)
        if corner is not None:
            return _at_corner(problem, corner, walk, direction)
        hopeful = walk.ending in _BY_ITSELF and not _next_to_corner(walk.point)
        if problem.d <= LARGE and problem.m == 1 and hopeful:
            # The estimate was too hopeful, and the certificate decides.  L-BFGS may need
            # Newton's method for the last digits; that one may have run into a corner.
            if later:
                direction = "newton"
            elif direction == "newton" and np.linalg.norm(walk.point.v) < 1e-2 * np.linalg.norm(v):
                direction, walk.point = "lbfgs", _look(problem, v, goal)
            limit = (walk.steps + max_iter) // 2
            for closer in (1e-3, 1e-7) if direction == "newton" else (0.03,):
                _follow(problem, direction, walk, closer * tol, limit, goal, watch)
                gap = duality_gap(problem, walk.point, tol)
                if (
                    gap <= tol * problem.unit(walk.point.value)
                    or walk.ending is not Ending.CONVERGED
                ):
                    break
    # Certificates of many columns or classes are too coarse to decide about smooth losses.
    fine = problem.d <= LARGE and problem.m == 1
    edged = not problem.divergence.strictly_convex or _next_to_corner(walk.point)
    missed = not gap <= tol * problem.unit(walk.point.value)
    doubtful = missed and (fine or edged or walk.ending is Ending.STUCK)
    if doubtful and not walk.ending.asked_for:
        cornered = can_smooth(problem.divergence) and not problem.plain
        if cornered and walk.steps < max_iter:
            direction = "newton" if _has_matrix(problem) else "lbfgs"
            gap = _round_off(problem, direction, walk, tol, max_iter, watch)
        elif walk.ending in _BY_ITSELF and gap > 10.0 * tol * problem.unit(walk.point.value):
            walk.ending = Ending.UNCERTIFIED
    point = walk.point
    if walk.ending is Ending.EXHAUSTED:
        # A few steps may lead up where the robust loss is concerned.
        none = _look(problem, np.zeros_like(v), goal, np.zeros(problem.n * problem.m))
        if none.value < point.value:
            gap, point = max(gap - (point.value - none.value), 0.0), none
    return Minimum(
        problem.to_model(point.v),
        point.value,
        gap,
        float(np.linalg.norm(point.gradient)),
        walk.steps,
        walk.ending,
        direction,
        point.at,
    )


def _at_corner(problem: Problem, corner: Corner, walk: _Walk, direction: str) -> Minimum:
    """The model that knows nothing, proved to be the best."""
    gap, rest, at = corner
    zeros = problem.zeros()
    return Minimum(zeros, at.value, gap, rest, walk.steps, Ending.ZERO_MODEL, direction, at)


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


def _next_to_corner(point: Point) -> bool:
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
        proved = duality_gap(problem, walk.point, tol, sharp.value)
        if sharp.value < best.value:
            best = sharp
        bound = max(bound, sharp.value - (near if math.isnan(proved) else proved))
        gap = max(best.value - bound, 0.0)
        closed = gap <= tol * problem.unit(best.value)
        if (
            closed
            or walk.ending is not Ending.CONVERGED
            or epsilon <= 1e-13 * problem.unit(best.value)
        ):
            break
        epsilon *= 0.1
    walk.point = best
    if closed:
        walk.ending = Ending.CONVERGED
    elif walk.ending in _BY_ITSELF:
        walk.ending = Ending.UNCERTIFIED
    return math.nan if problem.loss.conjugate is None else gap


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
            problem.groups is not None and problem.groups.shares.size > _MANY,
            f"at most {_MANY} groups",
        ),
    )
    missing = next((text for lacking, text in reasons if lacking), "")
    return missing and f"solver='newton' needs {missing}: use solver='lbfgs'."


def _has_matrix(problem: Problem) -> bool:
    few = problem.groups is None or problem.groups.shares.size <= _MANY
    return problem.m == 1 and problem.d <= LARGE and few


def _price(problem: Problem) -> float:
    """What a step of Newton's method costs, in steps of L-BFGS."""
    n, d, row = problem.n, problem.d + 1, problem.row_size
    dense = not problem.sparse
    # Seconds, as measured; their ratio is much the same elsewhere.
    matrix = n * d * (d * 5e-11 + 7e-10) if dense else n * row * row * 1.5e-9
    step = 1.3e-9 * n * row + 1.5e-8 * n + 2e-4
    return 1.0 + (matrix + d**3 * 1e-10) / step


# -- the way down ----------------------------------------------------------------------


def _look(problem: Problem, v: Array, goal: Goal, scores: Array | None = None) -> Point:
    if scores is None:
        scores = problem.scores(problem.to_model(v))
    at = problem.evaluate(scores, *goal)
    return _arrive(problem, v, at)


def _arrive(problem: Problem, v: Array, at: Evaluation) -> Point:
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * v
    return Point(v, at, _value(problem, v, at), gradient)


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
        walk.ending = _descend(problem, direction, walk, tol, max_iter, goal, watch)
    except KeyboardInterrupt:
        if watch is None:
            raise
        walk.ending = Ending.INTERRUPTED


def _descend(
    problem: Problem,
    direction: str,
    walk: _Walk,
    tol: float,
    max_iter: int,
    goal: Goal,
    watch: Watch | None,
) -> Ending:
    memory: Memory = deque(maxlen=_MEMORY)
    values: deque[float] = deque(maxlen=11)
    newton, small, told = direction == "newton", 0, -1
    bounded = not problem.loss.functions
    # Where a certificate will decide, one hint is enough.
    decided = newton or _has_matrix(problem)
    enough = 1 if decided else 2
    while True:
        point = walk.point
        values.append(point.value)
        if watch is not None and told != walk.steps:
            told = walk.steps
            norm, value = float(np.linalg.norm(point.gradient)), point.value
            if goal.epsilon > 0.0:
                value += problem.evaluate(point.at.scores).value - point.at.value
            if watch(walk.steps, point.v, value, norm):
                return Ending.STOPPED
        if newton:
            way = _newton_direction(problem, point, goal)
        else:
            way = _lbfgs_direction(point.gradient, memory)
        slope = float(way @ point.gradient)
        if not slope < 0.0:
            memory.clear()
            way, slope = -point.gradient, -float(point.gradient @ point.gradient)
        # Half the decrement of Newton's method is the gap, to second order; the memory of
        # L-BFGS is a rougher guide, so it may have to say so twice, and the trend must agree.
        allowed = tol * problem.unit(point.value)
        close = -0.5 * slope <= 0.5 * allowed
        if not decided:
            close = close and _to_come(values) <= 0.3 * allowed
        small = small + 1 if close else 0
        if not newton and not memory:
            # Nothing is known of the curvature: only a slope that is flat wherever models may be
            # will do.
            flat = math.sqrt(-slope) * reach(problem, point) <= allowed
            small = 2 if flat else 0
        elif not newton and -0.5 * slope <= 1e-3 * allowed:
            small = 2  # far below what is asked
        if bounded and point.value <= allowed:
            small = 2  # no loss is below zero
        if small >= enough or slope == 0.0:
            return Ending.CONVERGED
        if walk.steps >= max_iter:
            return Ending.EXHAUSTED
        if len(values) > 5 and values[-6] - values[-1] <= 1e-15 * abs(values[-1]):
            return Ending.CONVERGED  # only rounding is left
        found = _search(problem, point, way, slope, goal, bool(newton or memory))
        if found is None:
            if memory:
                memory.clear()
                continue
            return Ending.STUCK
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
    return None if best is None else _arrive(problem, *best)


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


def _newton_direction(problem: Problem, point: Point, goal: Goal) -> Array:
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
