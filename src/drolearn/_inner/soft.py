"""Soft balls: worst cases with a price for the divergence instead of a radius.

    S = max { Σ p z − τ D(P, B) : Σ p = 1, p ≥ 0 }

For KL this is the tilted loss τ log Σ b e^{z/τ}.  A ball of radius ρ with the multiplier α has the
same weights as the soft ball with τ = α, whose divergence is ρ.

For strictly convex φ the weights are p = b s((z − λ)/τ), and the core finds the multiplier λ.  For
every λ, S ≤ λ + τ Σ b φ*((z − λ)/τ) with φ*(t) = max s t − φ(s): the gap is the difference.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.worst_case import WorstCase, inner_maximum
from drolearn.divergence import Divergence, TotalVariation

__all__ = ["soft_maximum"]

Array = NDArray[np.float64]

# Losses whose differences are below this share of τ have their mean as value.
_NEGLIGIBLE = 1e-16


def soft_maximum(divergence: Divergence, tau: float, z: Array, weights: Array | None) -> WorstCase:
    """The worst case of a soft ball; losses are finite, and weights are checked."""
    spread = float(np.ptp(z if weights is None else z[weights > 0.0]))
    # The value is the mean plus about variance/τ.  Where that is lost in rounding, τ D would be
    # that of rounded weights.  A custom φ may be flat at 1.
    lost = 0.0 < spread <= _NEGLIGIBLE * tau and divergence.family != "custom"
    if tau in (0.0, math.inf) or lost:
        hard = inner_maximum(divergence, math.inf if tau == 0.0 else 0.0, z, weights)
        if hard is None:
            raise RuntimeError("Losses of a soft ball must be finite.")
        return _result(hard.weights, hard.value, hard.achieved, tau, hard.lam, hard.gap, divergence)
    b = np.full(z.size, 1.0 / z.size) if weights is None else weights / weights.sum()
    if isinstance(divergence, TotalVariation):
        return _total_variation(divergence, tau, z, b)
    # Losses relative to the largest one keep their digits.
    top = float(z[b > 0.0].max())
    below = np.where(b > 0.0, z - top, 0.0)
    p = np.empty(z.size)
    lam, achieved = _core.weigh(divergence.core, below, b, tau, p)
    primal = float(p @ below) - tau * achieved
    gap = max(_dual(divergence, tau, below, b, lam) - primal, 0.0)
    return _result(p, top + primal, achieved, tau, top + lam, gap, divergence)


def _dual(divergence: Divergence, tau: float, z: Array, b: Array, lam: float) -> float:
    """λ + τ Σ b φ*((z − λ)/τ), for losses of which the largest is 0.

    No optimal weight has s above that of the largest loss, so φ* is a maximum over s up to that.
    """
    used = b > 0.0
    t, base = (z[used] - lam) / tau, b[used]
    s, rise = np.empty(t.size), np.empty(t.size)
    _core.follow(divergence.core, t, 1.0 / float(base[z[used] == 0.0].sum()), s, rise)
    product = np.where(s > 0.0, s * t, 0.0)
    return lam + tau * float(base @ (product - divergence.phi(s)))


def _total_variation(divergence: Divergence, tau: float, z: Array, b: Array) -> WorstCase:
    """Mass moves to the largest loss from all losses that are smaller by more than τ."""
    top = float(z[b > 0.0].max())
    largest, moved = (z == top) & (b > 0.0), z < top - tau
    mass = float(b[moved].sum())
    p = np.where(moved, 0.0, b)
    p[largest] += mass * b[largest] / b[largest].sum()
    value = float(b @ np.where(b > 0.0, np.maximum(z, top - tau), 0.0))
    return _result(p, value, mass, tau, top - 0.5 * tau, 0.0, divergence)


def _result(
    p: Array, value: float, achieved: float, tau: float, lam: float, gap: float, phi: Divergence
) -> WorstCase:
    return WorstCase(p, value, achieved, tau, lam, gap, achieved, phi)
