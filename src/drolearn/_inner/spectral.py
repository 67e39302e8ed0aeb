"""The worst case of a spectral risk: the mean of the sorted losses with the weights of a spectrum.

    R(z) = max { Σ p z : p(A) ≤ g(b(A)) for all A, p(all) = 1 } = Σ σᵢ z₍ᵢ₎

With the losses in decreasing order and Tⱼ the base weight of the j largest, every p of this set has

    Σ p z = z₍ₙ₎ + Σⱼ (z₍ⱼ₎ − z₍ⱼ₊₁₎) p(j largest) ≤ z₍ₙ₎ + Σⱼ (z₍ⱼ₎ − z₍ⱼ₊₁₎) g(Tⱼ),

which is the dual value; its multipliers are the differences of the losses.

The smoothed risk is R_ε(z) = max Σ p z − ε Σ (p − b)²/b over the same set.  With y = 1 + z/2ε and
w = σ/b in the order of the losses, its weights are p = b (y − v), where v is the non-increasing
vector that is closest to y − w in the mean square with weights b: an isotonic regression.  Rows of
equal v form a block, within which

    p = b (w̄ + (z − z̄)/2ε),    w̄ and z̄ the means of the block with weights b,

so p = σ where a block has one row, and ∂p/∂z = (diag(b) − b bᵀ/Σb)/2ε in other blocks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.worst_case import WorstCase
from drolearn.spectral import SpectralRisk

__all__ = ["Blocks", "smoothed_weights", "spectral_maximum"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Blocks(NamedTuple):
    """The rows of positive weight in decreasing order of their losses, in blocks."""

    order: Indices
    """The rows."""
    starts: Indices
    """Where each block starts in `order`."""
    base: Array
    """Base weights in this order."""

    def of_rows(self) -> Indices:
        """The number of the block of each row in this order."""
        lengths = np.diff(self.starts, append=self.order.size)
        return np.repeat(np.arange(self.starts.size), lengths)

    def sums(self, values: Array) -> Array:
        """The sum over each block of values in this order."""
        return np.add.reduceat(values, self.starts)


def spectral_maximum(risk: SpectralRisk, z: Array, weights: Array | None) -> WorstCase | None:
    """The worst case of a spectral risk, or None if a loss is not finite."""
    if not np.isfinite(z).all():
        return None
    # A power of two changes no digit, and differences of the losses do not overflow.
    exponent = math.frexp(float(abs(z).max()))[1]
    scaled = np.ldexp(z, -exponent)
    order, base = _sorted(scaled, weights)
    d = scaled[order]
    top = float(d[0])
    d -= top
    blocks = Blocks(order, _starts(d), base)
    sigma = _spectrum(risk, base)
    p_sorted = sigma
    if blocks.starts.size < order.size:  # rows of equal losses share their weight
        p_sorted = base * (blocks.sums(sigma) / blocks.sums(base))[blocks.of_rows()]
    p = np.zeros(z.size)
    p[order] = p_sorted
    value = float(p_sorted @ d)
    dual = float(d[-1] - np.diff(d) @ np.cumsum(sigma)[:-1])
    least, gap = top + float(d[-1]), max(dual - value, 0.0)
    found = (math.ldexp(number, exponent) for number in (top + value, least, gap))
    robust, lam, proved = found
    return WorstCase(p, robust, 0.0, 0.0, lam, proved, 0.0, risk)


def smoothed_weights(
    risk: SpectralRisk, z: Array, b: Array, epsilon: float
) -> tuple[Array, Blocks]:
    """The weights of R_ε, and the blocks on which they depend; Σ b must be 1."""
    from sklearn.isotonic import isotonic_regression  # imported when used: it is heavy

    order, base = _sorted(z, b)
    d = z[order] - z[order[0]]
    sigma = _spectrum(risk, base)
    with np.errstate(over="ignore"):
        y = np.maximum(d / (2.0 * epsilon), -1e300) - sigma / base
    v: Any = isotonic_regression(y, sample_weight=base, increasing=False)
    blocks = Blocks(order, _starts(v), base)
    mass, place = blocks.sums(base), blocks.of_rows()
    # Relative to the first loss of a block, small differences keep their digits.
    below = d - d[blocks.starts][place]
    mean = blocks.sums(base * below) / mass
    level = blocks.sums(sigma) / mass
    p_sorted = base * (level[place] + (below - mean[place]) / (2.0 * epsilon))
    p = np.zeros(z.size)
    p[order] = np.maximum(p_sorted, 0.0)
    return p / p.sum(), blocks


def _sorted(z: Array, weights: Array | None) -> tuple[Indices, Array]:
    """The rows of positive weight in decreasing order of their losses, and their base weights."""
    order = np.argsort(-z)
    if weights is None:
        return order, np.full(z.size, 1.0 / z.size)
    share = weights / weights.sum()
    order = order[share[order] > 0.0]
    return order, share[order]


def _spectrum(risk: SpectralRisk, base: Array) -> Array:
    """The weights σᵢ of rows in decreasing order of their losses; Σ base must be 1."""
    reached = np.cumsum(base)
    reached[-1] = 1.0
    return np.maximum(np.diff(risk.tail(reached), prepend=0.0), 0.0)


def _starts(values: Array) -> Indices:
    """Where runs of equal values start."""
    return np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
