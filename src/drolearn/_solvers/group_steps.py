"""Newton steps for balls over groups.

With L the mean losses of the groups, J their gradients and h the worst case over groups, a step d
minimises a model in which h is exact:

    h(L + J d) + g·d + ½ dᵀ H d,

where g is the gradient of the penalty, and H the Hessian of the weighted loss with penalty.
Newton's method would replace h by a quadratic, which is wrong once a group gets its first weight.

Given weights q of the groups, d = −H⁻¹ (g + Jᵀ q).  With J H⁻¹ Jᵀ = U Uᵀ and a = L − J H⁻¹ g, the q
of the best d are the weights of the worst case of a + U z at the minimum of

    h(a + U z) + ½ ‖z‖²,

which has as many variables as there are groups and reads no rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.groups import Groups
from drolearn._inner.smoothing import Bend, smoothed
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.certificate import Point
from drolearn._solvers.linear_algebra import solve_spd
from drolearn._solvers.problem import Problem

__all__ = ["balanced", "group_direction"]

Array = NDArray[np.float64]

_MOST_STEPS = 200
# The model is smoothed by this multiple of the spread of its losses, then by less and less.
_FIRST_SMOOTHING = 0.3
_LESS_SMOOTHING = 0.1
# The model is minimised to this share of its decrease.
_ACCURACY = 1e-2


def group_direction(problem: Problem, groups: Groups, point: Point, epsilon: float) -> Array:
    """The step that minimises the model, with h smoothed by ε > 0."""
    return _step(problem, groups, point, epsilon)[0]


def balanced(problem: Problem, groups: Groups, point: Point, epsilon: float) -> Point:
    """The point with weights q after a step: they almost balance the gradients of the groups."""
    q = _step(problem, groups, point, epsilon)[1]
    at = problem.with_group_weights(point.at, q)
    gradient = problem.scaled_gradient(problem.gradient(at)) + problem.penalty * point.v
    return Point(point.v, at, point.value, gradient)


def _step(problem: Problem, groups: Groups, point: Point, epsilon: float) -> tuple[Array, Array]:
    """The step d that minimises the model, and the weights q there."""
    at = point.at
    hessian = problem.weighted_hessian(at)
    hessian[np.diag_indices_from(hessian)] += problem.penalty
    jacobian = problem.group_gradients(at)
    g = problem.penalty * point.v
    solved = solve_spd(hessian, np.column_stack([g, jacobian.T]))
    inverse_g, inverse_j = solved[:, 0], solved[:, 1:]
    values, vectors = np.linalg.eigh(jacobian @ inverse_j)
    u = vectors * np.sqrt(np.maximum(values, 0.0))
    a = problem.group_losses(at) - jacobian @ inverse_g
    # The model without a step is h(L); the constant − ½ gᵀ H⁻¹ g is part of it.
    start = at.value + 0.5 * float(g @ inverse_g)
    q = _weights(problem, groups, (a, u), at.shares, start, epsilon)
    return -(inverse_g + inverse_j @ q), q


def _weights(
    problem: Problem,
    groups: Groups,
    model: tuple[Array, Array],
    q: Array,
    start: float,
    epsilon: float,
) -> Array:
    """The weights q at the minimum of h(a + U z) + ½ ‖z‖², from z = −Uᵀ q, for decreasing ε.

    `start` is the value of the model without a step.
    """
    a, u = model
    unit = max(problem.magnitude(start), 1e-300)
    z = -u.T @ q
    spread = unit * float(((a + u @ z) / unit).std())  # squares may overflow
    smoothing = max(_FIRST_SMOOTHING * spread, epsilon)

    def at(z: Array) -> tuple[float, WorstCase, Bend] | None:
        found = smoothed(a + u @ z, problem.rho, problem.divergence, groups.shares, smoothing)
        return None if found is None else (found[0].value + 0.5 * float(z @ z), *found)

    here = at(z)
    for _ in range(_MOST_STEPS):
        if here is None:
            break
        value, worst, bend = here
        q = worst.weights
        gradient = z + u.T @ q
        rounding = 1e-15 * unit
        last = smoothing <= epsilon
        enough = max(_ACCURACY * (start - value), rounding) if last else _ACCURACY * smoothing
        # The objective is at least as convex as ½ ‖z‖².
        if 0.5 * float(gradient @ gradient) <= enough:
            if last:
                break
            smoothing = max(_LESS_SMOOTHING * smoothing, epsilon)
            here = at(z)
            continue
        sides = u.T @ bend.columns
        hessian = (u.T * bend.v) @ u - sides @ bend.inner @ sides.T
        hessian[np.diag_indices_from(hessian)] += 1.0
        direction = -solve_spd(hessian, gradient)
        slope, step = float(direction @ gradient), 1.0
        if last and -slope <= rounding:
            break
        while True:
            here = at(z + step * direction)
            if here is not None and here[0] <= value + 1e-4 * step * slope + 0.1 * rounding:
                break
            step *= 0.5
        z = z + step * direction
    return q
