"""Optimality certificates: a duality gap, and a proof that the zero model is optimal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.linear_algebra import MAX_COLUMNS, solve_spd
from drolearn._solvers.problem import Evaluation, Problem
from drolearn._solvers.zero_model import SharedBall, SmallestBall, smallest_ball
from drolearn.divergence import as_divergence

__all__ = [
    "Point",
    "ZeroModel",
    "can_certify_closely",
    "curvature_of",
    "duality_gap",
    "norm_bound",
    "optimal_zero_model",
    "saddle_weights",
]

Array = NDArray[np.float64]

# The weight of equations against distances in `saddle_weights`, and the violation that is allowed.
_STRICT = 1e5
_BALANCED = 1e-6
# If the zero model is optimal, a value below this share of its loss is not reached.
_NEAR_ZERO_MODEL = 0.97
# From this penalty of a scaled coordinate on, the scaling is that of the penalty, and gradients are
# tiny in it for all weights of the rows.
_DOMINATES = 0.999


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
    return problem.size <= MAX_COLUMNS


def duality_gap(problem: Problem, point: Point, tol: float, value: float | None = None) -> float:
    """A duality gap: no model has an objective below value − gap.

    `value` defaults to that of the point.  The worst-case weights p of the point lie in the ball,
    so for every model, and for all u and δ with X̃ᵀ(p u) = −penalty (v − δ),

        F(θ) ≥ Σ p l(θ) + ½ Σ penalty v² ≥ −Σ p l*(u) − ½ Σ penalty (v − δ)².

    With a reference, whose losses c do not depend on the model, −Σ p c is added to both bounds.
    The residual of that equation (rounding errors, and the gradient where there is neither a
    penalty nor a matrix) is multiplied by `norm_bound`: the bound then holds for all models within
    that norm.  The first try is u = l' with δ = g/penalty.  If its gap is too large and the matrix
    is small enough, δ is the Newton step for the weighted loss and u = l' − l'' X̃δ, moved to where
    l* is finite.  That matters if a column separates the classes of some rows: l' tends to 0 there,
    and l' − l'' X̃δ may have the wrong sign.
    """
    if problem.loss.conjugate is None:
        return math.nan
    at, penalty = point.at, problem.penalty
    reached = point.value if value is None else value

    def bound(total: float, delta: Array, residual: Array) -> float:
        if not math.isfinite(total):
            return math.inf
        lower = -total - 0.5 * float(penalty @ (point.v - delta) ** 2)
        slack = float(np.linalg.norm(residual)) * norm_bound(problem, point)
        return max(reached - lower, 0.0) + slack

    free = penalty <= 1e-100  # g/penalty and its square would overflow
    delta = np.divide(point.gradient, penalty, out=np.zeros_like(penalty), where=~free)
    best = bound(problem.dual_sums(at, None)[0], delta, point.gradient * free)
    if best <= 0.1 * tol * problem.loss_scale(reached) or not can_certify_closely(problem):
        return best
    hessian = problem.weighted_hessian(at)
    hessian[np.diag_indices_from(hessian)] += penalty
    for ridge in (1e-12, 1e-9, 1e-6):
        # A larger ridge limits the step in directions without curvature.
        delta = solve_spd(hessian, point.gradient, ridge)
        if not float(np.linalg.norm(delta)) <= 1e3 * norm_bound(problem, point):
            continue
        total, residual = problem.dual_sums(at, delta)
        best = min(best, bound(total, delta, residual + penalty * (point.v - delta)))
        if best <= tol * problem.loss_scale(reached):
            break
    return best


def curvature_of(problem: Problem, at: Evaluation) -> float:
    """Σ p l'', for m classes with the trace of l'': a measure of the size of the Hessian."""
    if problem.m == 1:
        return float(at.worst.weights @ problem.loss.bends(at.scores, problem.y, problem.threads))
    q = problem.probabilities(at)
    return float(at.worst.weights @ (q * (1.0 - q)).sum(axis=1))


def optimal_zero_model(problem: Problem, point: Point) -> ZeroModel | None:
    """The zero model, if it is the optimum; None if it is not, or if that cannot be proved.

    In large balls it often is.  All losses are equal there, the robust loss is not differentiable,
    and descent methods approach it slowly.  With a reference they differ, and there is no corner.
    """
    if not problem.equal_at_zero or point.value < _NEAR_ZERO_MODEL * problem.baseline_loss:
        return None
    ball, radius = _closest_weights(problem)
    if problem.rho < radius * (1.0 - 1e-12):
        return None
    zero = problem.evaluate(problem.scores(problem.zeros()))
    gradient_norm = problem.largest_slope(zero) * ball.residual
    gap = gradient_norm * norm_bound(problem, point)
    return ZeroModel(gap, gradient_norm, zero) if gap <= 1e-6 * zero.value else None


def saddle_weights(problem: Problem, point: Point, shares: Array) -> Array:
    """The weights of groups at the saddle point that are closest to the base shares in χ².

    `shares` are approximate weights of the saddle point.  They balance the gradients of the groups:
    Σ q ∇L = −penalty v.  If several weights do so, have the same worst case and lie in the ball,
    the result is the closest of them; otherwise it is `shares`.
    """
    from scipy.optimize import nnls  # imported when used: it is heavy

    groups = problem.groups
    if groups is None or problem.m > 1:
        return shares
    gradients, base = problem.group_gradients(point.at), groups.shares
    losses = problem.group_losses(point.at)
    used = base > 0.0
    equations = np.vstack([gradients.T, losses, np.ones(base.size)])[:, used]
    right = np.concatenate([-problem.penalty * point.v, [point.at.value, 1.0]])
    size = np.maximum(abs(equations).max(axis=1), 1e-300)
    equations, right = equations / size[:, None], right / size
    root = np.sqrt(base[used])
    matrix = np.vstack([_STRICT * equations, np.diag(1.0 / root)])
    closest = np.zeros(base.size)
    closest[used] = nnls(matrix, np.concatenate([_STRICT * right, root]))[0]
    closest /= max(float(closest.sum()), 1e-300)

    def violation(q: Array) -> float:
        return float(np.linalg.norm(equations @ q[used] - right))

    inside = problem.divergence.between(closest, base) <= problem.rho * (1.0 + 1e-9)
    balanced = violation(closest) <= max(2.0 * violation(shares), _BALANCED)
    return closest if inside and balanced else shares


def _closest_weights(problem: Problem) -> tuple[SmallestBall, float]:
    """Weights for which the zero model is optimal, and the radius of a ball that holds them.

    For total variation and CVaR they are the closest ones in χ²; others may be closer.
    """
    if problem.zero_dual is None and problem.l2 and float(problem.penalty.max()) > _DOMINATES:
        problem = replace(problem, l2=0.0, measured=None)
    if problem.divergence.strictly_convex:
        ball = (problem.shared_ball or SharedBall()).within(problem)
        return ball, ball.rho
    ball = smallest_ball(replace(problem, divergence=as_divergence("chi2")))
    if ball.rho == math.inf:
        return ball, math.inf
    return ball, problem.divergence.between(ball.weights, problem.base_weights)


def norm_bound(problem: Problem, point: Point) -> float:
    """The norm in scaled coordinates up to which a certificate holds."""
    return 10.0 * max(float(np.linalg.norm(point.v)), problem.typical_norm)
