"""When the zero model is optimal.

At the zero model all losses are equal, so every weights p in the ball are worst-case weights.  The
zero model is optimal if some of them have a zero gradient:

    Σ p a = 0,  Σ p = 1,  p ≥ 0,    D(P, B) ≤ ρ,

with a = y x̃ for two classes and a = (1/m − e_y) ⊗ x̃ for m classes, where x̃ is a row of X, followed
by 1 if there is an intercept.  Neither the penalty nor the loss matters.  Newton's method finds the
smallest D on the dual problem, which has one variable μ for each coefficient:

    max over μ, ν:  ν − Σ b φ*(t),    t = ν + a·μ,    p = b (φ')⁻¹(t).

No p exceeds 1, so (φ')⁻¹ is cut off at 1/min b; φ* is then finite everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._solvers.linear_algebra import MAX_COLUMNS, solve_spd
from drolearn._solvers.problem import Problem

__all__ = [
    "DualPoint",
    "SharedBall",
    "SmallestBall",
    "ZeroDual",
    "conjugate_gradients",
    "dual_hessian",
    "dual_weights",
    "has_small_matrix",
    "least_moved_mass",
    "moment_of",
    "needs_no_columns",
    "products_of",
    "smallest_ball",
]

Array = NDArray[np.float64]

_STEPS = 200
_CG_STEPS = 500
# The norm of Σ p a, in scaled coordinates, at which to stop.
_BALANCED = 1e-10
# The norm that counts as zero if rounding errors prevent that.  If φ(0) is infinite and there are
# no weights, the dual value grows without end, but slowly, and the norm tends to zero.
_ALMOST_BALANCED = 1e-5
_ALMOST_BALANCED_POSITIVE = 1e-9
_STEPS_POSITIVE = 60
# Where some p tend to 0, the norm decreases slowly: it is enough if it is small and the dual value
# rises by less than this share.
_NEARLY_BALANCED = 1e-8
_LEVEL = 1e-9
# Below this rise of the dual value, its rounding errors hide whether a step is good.
_ROUNDING = 1e-12


class SmallestBall(NamedTuple):
    """The smallest ball in which the zero model is optimal."""

    rho: float
    """Its radius; infinite if there is none."""
    weights: Array
    """The weights p with Σ p a = 0 and this divergence."""
    residual: float
    """The norm of Σ p a in scaled coordinates."""


_NONE = SmallestBall(math.inf, np.empty(0), math.inf)


@dataclass(frozen=True, slots=True, eq=False)
class DualPoint:
    """The dual function at one point."""

    point: Array
    value: float
    mass: float
    """Σ p."""
    gradient: Array
    """Minus the derivatives in μ and ν: Σ p a and Σ p − 1."""
    p: Array
    curvature: Array
    """b ds/dt of the rows."""


class ZeroDual(Protocol):
    """The dual function of a problem."""

    smallest: float
    """The smallest positive base weight."""

    def evaluate(self, point: Array) -> DualPoint:
        """The dual function at (μ, ν)."""
        ...

    def newton_step(self, at: DualPoint) -> Array:
        """H⁻¹ g with H = Σ h (a, 1)(a, 1)ᵀ, h the curvature of the rows."""
        ...

    def ball(self, at: DualPoint) -> tuple[float, Array]:
        """The divergence of the weights p / Σ p, and these weights if they are in this process."""
        ...


class SharedBall:
    """`smallest_ball` of problems that differ only in radius, penalty and loss."""

    def __init__(self) -> None:
        self.searched, self.ball = -1.0, _NONE

    def within(self, problem: Problem) -> SmallestBall:
        """Return the smallest ball if it is not larger than that of the problem."""
        if self.ball.rho == math.inf and problem.rho > self.searched:
            self.searched, self.ball = problem.rho, smallest_ball(problem, problem.rho)
        return self.ball


def smallest_ball(problem: Problem, at_most: float = math.inf) -> SmallestBall:
    """The smallest ball in which the zero model is optimal, for a strictly convex divergence.

    Balls of a radius above `at_most` count as none, and the search ends once it is proved that only
    these are left.
    """
    dual: ZeroDual = problem.zero_dual or _RowDual(problem)
    at = dual.evaluate(np.zeros(problem.size + 1))
    # No weights have a larger divergence; a dual value above it proves that there are none.
    largest = min(at_most, problem.divergence.maximum(dual.smallest))
    positive = math.isinf(problem.divergence.phi_zero)
    for _ in range(_STEPS_POSITIVE if positive else _STEPS):
        if at.value > largest * (1.0 + 1e-9):
            return _NONE
        if float(np.linalg.norm(at.gradient)) <= _BALANCED:
            break
        step = -dual.newton_step(at)
        slope = -float(step @ at.gradient)  # the dual value rises by this
        level = not positive and slope <= _LEVEL * at.value
        if level and float(np.linalg.norm(at.gradient)) <= _NEARLY_BALANCED:
            break
        length, new = 1.0, dual.evaluate(at.point + step)
        while new.value < at.value + 1e-4 * length * slope and slope > _ROUNDING:
            length *= 0.5
            new = dual.evaluate(at.point + length * step)
            if length < 1e-10:
                break
        closer = float(np.linalg.norm(new.gradient)) < float(np.linalg.norm(at.gradient))
        if slope <= _ROUNDING and not closer:
            break
        at = new
    residual = float(np.linalg.norm(at.gradient[:-1]))
    enough = _ALMOST_BALANCED_POSITIVE if positive else _ALMOST_BALANCED
    if not (at.mass > 0.0 and residual <= enough):
        return _NONE
    return SmallestBall(*dual.ball(at), residual)


def directions_of(problem: Problem) -> Array:
    """The factors of x̃ in a: y for two classes, else 1/m − e_y, one row after the other."""
    if problem.m == 1:
        return problem.y
    factors = np.full((problem.n, problem.m), 1.0 / problem.m)
    factors[np.arange(problem.n), problem.y.astype(np.int64)] -= 1.0
    return factors.ravel()


def products_of(problem: Problem, mu: Array) -> Array:
    """a·μ of all rows."""
    products = directions_of(problem) * problem.scores(problem.to_model(mu))
    return products if problem.m == 1 else products.reshape(-1, problem.m).sum(axis=1)


def moment_of(problem: Problem, p: Array) -> Array:
    """Σ p a."""
    return problem.scaled_gradient(problem.data_gradient(directions_of(problem), p))


class _RowDual:
    """The dual function of a problem whose rows are in this process."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.b = problem, problem.base_weights
        self.smallest = float(self.b[self.b > 0.0].min())

    def evaluate(self, point: Array) -> DualPoint:
        p, curvature = dual_weights(self.problem, self.b, point, 1.0 / self.smallest)
        mass = float(p.sum())
        gradient = np.append(moment_of(self.problem, p), mass - 1.0)
        # φ*(t) = s t − φ(s)
        value = self.problem.divergence.between(p, self.b) - float(point @ gradient)
        return DualPoint(point, value, mass, gradient, p, curvature)

    def newton_step(self, at: DualPoint) -> Array:
        problem, h = self.problem, at.curvature
        if not has_small_matrix(problem):

            def product(direction: Array) -> Array:
                change = h * (products_of(problem, direction[:-1]) + direction[-1])
                return np.append(moment_of(problem, change), change.sum())

            return conjugate_gradients(product, at.gradient, float(h.sum()))
        return solve_spd(dual_hessian(problem, h), at.gradient)

    def ball(self, at: DualPoint) -> tuple[float, Array]:
        p = at.p / float(at.p.sum())
        return self.problem.divergence.between(p, self.b), p


def dual_weights(problem: Problem, b: Array, point: Array, cap: float) -> tuple[Array, Array]:
    """The weights p of the rows, and their curvature b ds/dt."""
    t = float(point[-1]) + products_of(problem, point[:-1])
    s, rise = np.empty(t.size), np.empty(t.size)
    _core.follow(problem.divergence.core, t, cap, s, rise)
    return b * s, b * rise


def has_small_matrix(problem: Problem) -> bool:
    """Whether Newton's method forms the matrix H."""
    return problem.m == 1 and problem.d <= MAX_COLUMNS


def dual_hessian(problem: Problem, h: Array) -> Array:
    """H = Σ h (a, 1)(a, 1)ᵀ, for two classes."""
    size = problem.size + 1
    matrix = np.empty((size, size))
    matrix[:-1, :-1] = problem.gram(h)[0]
    matrix[-1, :-1] = matrix[:-1, -1] = moment_of(problem, h)
    matrix[-1, -1] = h.sum()
    return matrix


def conjugate_gradients(product: Callable[[Array], Array], right: Array, total: float) -> Array:
    """H⁻¹ right from products with H; `total` is the sum of the curvatures."""
    x, residual = np.zeros_like(right), right.copy()
    direction, square = residual, float(residual @ residual)
    enough = 1e-4 * square
    ridge = 1e-12 * max(total, 1e-300)
    for _ in range(_CG_STEPS):
        if square <= enough * min(math.sqrt(enough), 1.0):
            break
        image = product(direction) + ridge * direction
        step = square / float(direction @ image)
        x += step * direction
        residual = residual - step * image
        last, square = square, float(residual @ residual)
        direction = residual + (square / last) * direction
    return x


def least_moved_mass(problem: Problem) -> float:
    """The radius of `smallest_ball` for total variation, by linear programming.

    With p = b + u − v, u ≥ 0 and 0 ≤ v ≤ b, it is the smallest Σ u for which Σ p a = 0, Σ p = 1.
    """
    from scipy.optimize import linprog  # imported when used: it is heavy

    b = problem.base_weights
    used = np.flatnonzero(b)
    part, b = problem.subset(used), b[used]
    X = part.X if not part.sparse else part.X.toarray()
    rows = np.column_stack([X, np.ones(used.size)]) if part.intercept else np.asarray(X)
    rows = rows / np.maximum(abs(rows).max(axis=0), 1e-300)
    factors = directions_of(part).reshape(used.size, -1)
    a = (factors[:, :, None] * rows[:, None, :]).reshape(used.size, -1)
    balance = np.column_stack([a, np.ones(used.size)]).T
    found = linprog(
        np.concatenate([np.ones(used.size), np.zeros(used.size)]),
        A_eq=np.hstack([balance, -balance]),
        b_eq=np.append(-(b @ a), 0.0),
        bounds=[(0.0, None)] * used.size + [(0.0, share) for share in b],
        method="highs",
    )
    return float(found.fun) if found.status == 0 else math.inf


def needs_no_columns(problem: Problem, theta: Array, value: float, tol: float) -> bool:
    """Whether a robust model is no better than its intercept alone, within the tolerance.

    With a reference the losses of the zero model differ, so the test above does not apply.
    """
    if problem.plain:
        return False
    v = problem.from_model(theta).reshape(problem.m, -1)
    v[:, :-1] = 0.0
    alone = problem.objective(problem.to_model(v.ravel()))
    return alone - value <= 2.0 * tol * problem.loss_scale(value)
