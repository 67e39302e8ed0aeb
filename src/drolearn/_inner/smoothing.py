"""Smooth approximations of the worst case.

The robust loss has corners where the ball does not bind and where φ has straight pieces, and
descent methods get stuck there.  Subtracting a small multiple of a divergence Ψ makes it smooth:

    R_ε(z) = max { Σ p z − ε Ψ(P, B) : P in the ball },    R_ε ≤ R ≤ R_ε + ε max Ψ.

The weights stay in the ball, so they still give lower bounds.  Ψ is the divergence of the ball, or
χ² if that is not strictly convex (total variation, CVaR, spectral risks).  For strictly convex φ
the weights are p = b s((z − λ)/α) with α ≥ ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.spectral import Blocks, smoothed_weights
from drolearn._inner.worst_case import WorstCase, inner_maximum
from drolearn.divergence import CVaR, Divergence, TotalVariation
from drolearn.spectral import SpectralRisk

__all__ = ["Bend", "bend_of", "can_smooth", "inverse_of", "smoothed"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Bend:
    """The derivative of the weights in the losses: ∂p/∂z = diag(v) − C M Cᵀ.

    Parameters
    ----------
    v : array of shape (n,)
        The diagonal.
    columns : array or sparse matrix of shape (n, k)
        The matrix C; sparse for spectral risks, where k may be as large as n/2 and every row of C
        has one entry.
    inner : array or sparse matrix of shape (k, k)
        The matrix M; diagonal if it is sparse.
    """

    v: Array
    columns: Any
    inner: Any


def can_smooth(divergence: Divergence) -> bool:
    """Whether `smoothed` supports a divergence; it does not if a custom φ has straight pieces."""
    known = isinstance(divergence, CVaR | TotalVariation | SpectralRisk)
    return divergence.strictly_convex or known


def smoothed(
    z: Array, rho: float, divergence: Divergence, weights: Array | None, epsilon: float
) -> tuple[WorstCase, Bend] | None:
    """R_ε and the derivative of its weights, or None if a loss is not finite.

    The `value` of the worst case is R_ε.
    """
    exact = inner_maximum(divergence, rho, z, weights)
    if exact is None:
        return None
    b = np.full(z.size, 1.0 / z.size) if weights is None else weights / weights.sum()
    if isinstance(divergence, CVaR):
        p, bend = _cvar(z, b, divergence.level, epsilon)
        psi = _chi2(p, b)
    elif isinstance(divergence, TotalVariation):
        p, bend = _total_variation(z, b, rho, epsilon)
        psi = _chi2(p, b)
    elif isinstance(divergence, SpectralRisk):
        p, blocks = smoothed_weights(divergence, z, b, epsilon)
        bend, psi = _bend_of_blocks(blocks, z.size, epsilon), _chi2(p, b)
    elif exact.alpha >= epsilon:
        bend = bend_of(divergence, z, exact.weights, b, exact.alpha, exact.lam, both=True)
        return replace(exact, value=exact.value - epsilon * exact.achieved), bend
    else:
        p = np.empty(z.size)
        lam, psi = _core.weigh(divergence.core, z, b, epsilon, p)
        bend = bend_of(divergence, z, p, b, epsilon, lam, both=False)
    value = float(p @ z) - epsilon * psi
    return replace(exact, weights=p, value=value, alpha=epsilon), bend


def bend_of(
    divergence: Divergence, z: Array, p: Array, b: Array, alpha: float, lam: float, both: bool
) -> Bend:
    """∂p/∂z for strictly convex φ.

    λ depends on z; with `both`, α does too, which is the case where the ball binds.
    """
    ones, zeros, out = np.ones(z.size), np.zeros(z.size), np.empty((3, z.size))
    aa, ab, bb = _core.second_order(divergence.core, (z, b), p, (alpha, lam), (ones, zeros), out)
    v, first, second = out
    if not both:
        return Bend(v, first[:, None], np.array([[1.0 / aa if aa > 0.0 else 0.0]]))
    return Bend(v, np.column_stack([first, second]), inverse_of(aa, ab, bb))


def inverse_of(aa: float, ab: float, bb: float) -> Array:
    """The pseudoinverse of M = [aa, ab; ab, bb] from `_core.second_order`."""
    return np.linalg.pinv(np.array([[aa, ab], [ab, bb]])) if aa > 0.0 else np.zeros((2, 2))


def _chi2(p: Array, b: Array) -> float:
    positive = b > 0.0
    return float(np.sum((p[positive] - b[positive]) ** 2 / b[positive]))


def _piecewise_linear(b: Array, sets: list[NDArray[np.bool_]], epsilon: float) -> Bend:
    """∂p/∂z if the weights of each set have the slope b/2ε and a constant sum."""
    columns = np.column_stack([b * part for part in sets]) / (2.0 * epsilon)
    total = columns.sum(axis=0)
    inner = np.diag(np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0))
    return Bend(columns.sum(axis=1), columns, inner)


def _bend_of_blocks(blocks: Blocks, n: int, epsilon: float) -> Bend:
    """∂p/∂z of a smoothed spectral risk; weights of blocks of one row are constant."""
    from scipy.sparse import csc_array  # imported when used: it is heavy

    lengths = np.diff(blocks.starts, append=blocks.order.size)
    several = lengths > 1
    chosen = np.repeat(several, lengths)
    rows, slopes = blocks.order[chosen], blocks.base[chosen] / (2.0 * epsilon)
    starts = np.concatenate([[0], np.cumsum(lengths[several])])
    v = np.zeros(n)
    v[rows] = slopes
    if rows.size == 0:
        return Bend(v, csc_array((n, 1)), csc_array((1, 1)))
    count = starts.size - 1
    columns = csc_array((slopes, rows, starts), shape=(n, count))
    inner = 1.0 / np.add.reduceat(slopes, starts[:-1])
    every = np.arange(count + 1)
    return Bend(v, columns, csc_array((inner, every[:-1], every), shape=(count, count)))


def _cvar(z: Array, b: Array, level: float, epsilon: float) -> tuple[Array, Bend]:
    """p = b · (1 + (z − λ)/2ε, clipped to [0, 1/level])."""
    top = 1.0 / level

    def parts(lam: float) -> tuple[Array, NDArray[np.bool_]]:
        s = 1.0 + (z - lam) / (2.0 * epsilon)
        return np.clip(s, 0.0, top), (s > 0.0) & (s < top)

    def excess(lam: float) -> float:
        return float(b @ parts(lam)[0]) - 1.0

    weighted = z[b > 0.0]
    low, high = float(weighted.min()) - 2.0 * epsilon * top, float(weighted.max()) + 2.0 * epsilon
    with np.errstate(over="ignore"):
        s, moving = parts(_root(excess, low, high))
    p = b * s
    return p / p.sum(), _piecewise_linear(b, [moving], epsilon)


def _total_variation(z: Array, b: Array, rho: float, epsilon: float) -> tuple[Array, Bend]:
    """Move at most the mass ρ from losses below one threshold to losses above another.

    p = b (1 + (z − u)₊/2ε − min(1, (l − z)₊/2ε)), with u ≥ l if the ball binds and u = l if not.
    """
    width, rho = 2.0 * epsilon, min(rho, 1.0)
    positive = b > 0.0
    low, high = float(z[positive].min()) - width, float(z[positive].max()) + width

    def added(u: float) -> float:
        return float(b @ np.maximum(z - u, 0.0)) / width - rho

    def removed(lower: float) -> float:
        return rho - float(b @ np.clip((lower - z) / width, 0.0, 1.0))

    def unconstrained(lam: float) -> float:
        return float(b @ np.maximum(1.0 + (z - lam) / width, 0.0)) - 1.0

    far = high + width * (1.0 + rho)
    with np.errstate(over="ignore"):
        u = _root(added, low - width * rho, far)
        lower = _root(removed, low, far) if rho < 1.0 else far
        if lower >= u:  # the optimum moves less than ρ: the ball does not bind
            lam = _root(unconstrained, low - width, far)
            s = np.maximum(1.0 + (z - lam) / width, 0.0)
            bend = _piecewise_linear(b, [(s > 0.0) & positive], epsilon)
        else:
            s = 1.0 + np.maximum(z - u, 0.0) / width - np.clip((lower - z) / width, 0.0, 1.0)
            below = (z < lower) & (z > lower - width)
            bend = _piecewise_linear(b, [(z > u) & positive, below & positive], epsilon)
    p = b * s
    return p / p.sum(), bend


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a decreasing function with f(low) ≥ 0 ≥ f(high), up to rounding."""
    from scipy.optimize import root_scalar  # imported when used: it is heavy

    if not f(low) > 0.0:
        return low
    if not f(high) < 0.0:
        return high
    tight = 4.0 * np.finfo(np.float64).eps
    return float(root_scalar(f, bracket=(low, high), xtol=1e-300, rtol=tight).root)
