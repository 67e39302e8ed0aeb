"""The worst case with its corners rounded off.

Where the ball does not bind, or where φ has straight pieces, the robust loss has corners and
descent gets stuck.  Taking a little of a divergence Ψ off rounds them,

    R_ε(z) = max { Σ p z − ε Ψ(P, B) : P in the ball },    R_ε ≤ R ≤ R_ε + ε max Ψ,

and its weights stay in the ball, so that they still prove lower bounds.  Ψ is the divergence of
the ball itself, or χ² where that has no curvature to lend (total variation, CVaR).  For strictly
convex φ the answer is p = b s((z − λ)/α) as ever, with α no smaller than ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.worst_case import WorstCase, inner_maximum
from drolearn.divergence import CVaR, Divergence, TotalVariation

__all__ = ["Bend", "bend_of", "can_smooth", "inverse_of", "smoothed"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Bend:
    """How weights follow losses: ∂p/∂z = diag(v) − C M Cᵀ."""

    v: Array
    columns: Array
    inner: Array


def can_smooth(divergence: Divergence) -> bool:
    """Whether `smoothed` knows how; it does not for a user's own φ with straight pieces."""
    return divergence.strictly_convex or isinstance(divergence, CVaR | TotalVariation)


def smoothed(
    z: Array, rho: float, divergence: Divergence, weights: Array | None, epsilon: float
) -> tuple[WorstCase, Bend] | None:
    """R_ε and how its weights follow the losses, or None if a loss is not finite.

    The `value` of the worst case is R_ε.
    """
    sharp = inner_maximum(divergence, rho, z, weights)
    if sharp is None:
        return None
    b = np.full(z.size, 1.0 / z.size) if weights is None else weights / weights.sum()
    if isinstance(divergence, CVaR):
        p, bend = _cvar(z, b, divergence.level, epsilon)
        psi = _chi2(p, b)
    elif isinstance(divergence, TotalVariation):
        p, bend = _total_variation(z, b, rho, epsilon)
        psi = _chi2(p, b)
    elif sharp.alpha >= epsilon:
        bend = bend_of(divergence, z, sharp.weights, b, sharp.alpha, sharp.lam, both=True)
        return replace(sharp, value=sharp.value - epsilon * sharp.achieved), bend
    else:
        p, lam = _held(divergence, z, b, epsilon)
        bend = bend_of(divergence, z, p, b, epsilon, lam, both=False)
        psi = divergence.between(p, b)
    value = float(p @ z) - epsilon * psi
    return replace(sharp, weights=p, value=value, alpha=epsilon), bend


def _held(divergence: Divergence, z: Array, b: Array, alpha: float) -> tuple[Array, float]:
    """p = b s((z − λ)/α) with Σ p = 1, for a given α; and λ."""
    s, rise = np.empty(z.size), np.empty(z.size)
    held = b > 0.0
    high = float(z[held].max())
    cap = 1.0 / max(float(b[held & (z == high)].sum()), 1e-300)
    # Measured from the largest loss, small distances keep their digits.
    below = z - high

    def excess(lam: float) -> tuple[float, float]:
        _core.follow(divergence.core, (below - lam) / alpha, cap, s, rise)
        return float(b @ s) - 1.0, -float(b @ rise) / alpha

    # At the largest loss no s is above one, and at the smallest none is below.
    lam = _root(excess, float(below[held].min()), 0.0)
    excess(lam)
    p = b * s
    return p / p.sum(), high + lam


def bend_of(
    divergence: Divergence, z: Array, p: Array, b: Array, alpha: float, lam: float, both: bool
) -> Bend:
    """∂p/∂z for strictly convex φ: λ follows, and with `both` α too, as where the ball binds."""
    one, none, out = np.ones(z.size), np.zeros(z.size), np.empty((3, z.size))
    aa, ab, bb = _core.second_order(divergence.core, (z, b), p, (alpha, lam), (one, none), out)
    v, first, second = out
    if not both:
        return Bend(v, first[:, None], np.array([[1.0 / aa if aa > 0.0 else 0.0]]))
    return Bend(v, np.column_stack([first, second]), inverse_of(aa, ab, bb))


def inverse_of(aa: float, ab: float, bb: float) -> Array:
    """M⁺ of `_core.second_order`."""
    return np.linalg.pinv(np.array([[aa, ab], [ab, bb]])) if aa > 0.0 else np.zeros((2, 2))


def _chi2(p: Array, b: Array) -> float:
    held = b > 0.0
    return float(np.sum((p[held] - b[held]) ** 2 / b[held]))


def _straight(b: Array, sets: list[NDArray[np.bool_]], epsilon: float) -> Bend:
    """Weights of each set move with slope b/2ε, and keep its sum."""
    columns = np.column_stack([b * part for part in sets]) / (2.0 * epsilon)
    total = columns.sum(axis=0)
    inner = np.diag(np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0))
    return Bend(columns.sum(axis=1), columns, inner)


def _cvar(z: Array, b: Array, level: float, epsilon: float) -> tuple[Array, Bend]:
    """p = b · (1 + (z − λ)/2ε cut to [0, 1/level])."""
    top = 1.0 / level

    def parts(lam: float) -> tuple[Array, NDArray[np.bool_]]:
        s = 1.0 + (z - lam) / (2.0 * epsilon)
        return np.clip(s, 0.0, top), (s > 0.0) & (s < top)

    def excess(lam: float) -> tuple[float, float]:
        s, moving = parts(lam)
        return float(b @ s) - 1.0, -float(b @ moving) / (2.0 * epsilon)

    held = z[b > 0.0]
    low, high = float(held.min()) - 2.0 * epsilon * top, float(held.max()) + 2.0 * epsilon
    s, moving = parts(_root(excess, low, high))
    p = b * s
    return p / p.sum(), _straight(b, [moving], epsilon)


def _total_variation(z: Array, b: Array, rho: float, epsilon: float) -> tuple[Array, Bend]:
    """Mass ρ goes from below one threshold to above another, or as much as pays.

    p = b (1 + (z − u)₊/2ε − min(1, (l − z)₊/2ε)), with u ≥ l where the ball binds, and else
    u = l.
    """
    width, rho = 2.0 * epsilon, min(rho, 1.0)
    held = b > 0.0
    low, high = float(z[held].min()) - width, float(z[held].max()) + width

    def up(u: float) -> tuple[float, float]:
        return float(b @ np.maximum(z - u, 0.0)) / width - rho, -float(b @ (z > u)) / width

    def down(at: float) -> tuple[float, float]:
        moving = (z < at) & (z > at - width)
        taken = float(b @ np.clip((at - z) / width, 0.0, 1.0))
        return rho - taken, -float(b @ moving) / width

    def free(lam: float) -> tuple[float, float]:
        s = 1.0 + (z - lam) / width
        return float(b @ np.maximum(s, 0.0)) - 1.0, -float(b @ (s > 0.0)) / width

    far = high + width * (1.0 + rho)
    u = _root(up, low - width * rho, far)
    at = _root(down, low, far) if rho < 1.0 else far
    if at >= u:  # more than ρ would go, and come: the ball does not bind
        lam = _root(free, low - width, far)
        s = np.maximum(1.0 + (z - lam) / width, 0.0)
        bend = _straight(b, [(s > 0.0) & held], epsilon)
    else:
        s = 1.0 + np.maximum(z - u, 0.0) / width - np.clip((at - z) / width, 0.0, 1.0)
        below = (z < at) & (z > at - width)
        bend = _straight(b, [(z > u) & held, below & held], epsilon)
    p = b * s
    return p / p.sum(), bend


def _root(f: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """The zero of a falling function with f(low) ≥ 0 ≥ f(high): Newton's method in a bracket."""
    x = high
    for _ in range(200):
        value, slope = f(x)
        if value > 0.0:
            low = x
        elif value < 0.0:
            high = x
        else:
            return x
        step = x - value / slope if slope < 0.0 else low
        x = step if low < step < high else 0.5 * (low + high)
        if high - low <= 4e-16 * max(abs(low), abs(high)):
            break
    return x
