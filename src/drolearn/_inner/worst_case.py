"""The worst case of a vector of losses: the heart of the library.

    R = max { Σ pₙ zₙ : Σ bₙ φ(pₙ/bₙ) ≤ ρ, Σ pₙ = 1, p ≥ 0 }

Losses in, weights and a certificate out.  Everything else feeds this or uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._validation import as_losses, as_radius, as_weights, thread_count
from drolearn.divergence import Divergence, as_divergence

__all__ = ["WorstCase", "inner_maximum", "worst_case"]

Array = NDArray[np.float64]

# With fewer losses than this a second thread brings nothing: a solver that needs a nanosecond
# for each is limited by memory.
_THREADS_FROM = {"chi2": 1 << 22, "kl": 1 << 19}
_THREADS_FROM_OTHERS = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class WorstCase:
    """The worst reweighting of some losses within a ball, with its certificate.

    Attributes
    ----------
    weights : array of shape (n,)
        p*, float64, summing to one; exact zeros where the optimum has them.
    value : float
        The robust loss Σ p* z.
    achieved : float
        D(P*, B), at most `rho`.
    alpha, lam : float
        The multipliers of the ball and of Σ p = 1.  For strictly convex φ,
        p = b (φ')⁻¹((z − λ)/α) where that is positive.  α is the rate at which the value
        grows with ρ: zero where the ball does not bind (all mass on the largest loss, equal
        losses, CVaR), and infinite for ρ = 0.
    gap : float
        Duality gap: no weights in the ball have a loss above value + gap.
    rho : float
        The radius that was asked for.
    divergence : Divergence
        The divergence that was asked for.
    """

    weights: Array
    value: float
    achieved: float
    alpha: float
    lam: float
    gap: float
    rho: float
    divergence: Divergence

    def __repr__(self) -> str:
        return (
            f"WorstCase(value={self.value:.6g}, achieved={self.achieved:.6g}, "
            f"rho={self.rho:.6g}, gap={self.gap:.2g}, n={self.weights.size}, "
            f"divergence={self.divergence!r})"
        )


def worst_case(
    losses: ArrayLike,
    rho: float = 0.1,
    divergence: str | Divergence = "chi2",
    sample_weight: ArrayLike | None = None,
    *,
    n_jobs: int | None = None,
) -> WorstCase:
    """The worst average of the losses over all weights within a φ-divergence ball.

    Solves max { Σ p z : Σ b φ(p/b) ≤ ρ, Σ p = 1, p ≥ 0 } exactly, in time proportional to
    the number of losses, and returns the weights with a duality gap as certificate.

    Parameters
    ----------
    losses : array-like of shape (n,)
        Finite numbers z.  float64 arrays are read in place; others are converted.
    rho : float, default=0.1
        Radius ρ ≥ 0 of the ball.  0 gives the average (so does all below 1e-15), `math.inf`
        the largest loss; CVaR has no radius, and ignores it.
    divergence : str or Divergence, default="chi2"
        A name or an object, see :mod:`drolearn.divergence`.
    sample_weight : array-like of shape (n,), optional
        Weights b ≥ 0 of the rows, by position and of any sum; equal if not
        given.  A row of weight 2 counts like the same row twice, one of weight 0 like no row
        (but its loss must be a finite number too).
    n_jobs : int, optional
        Threads: None for one, -1 for all processors.  They are used where they pay, from
        4 million losses on for χ², half a million for KL, 131,072 for others.  The result is
        the same to the bit.

    Returns
    -------
    WorstCase
        With `weights`, `value`, `achieved`, `alpha`, `lam` and `gap`.

    Examples
    --------
    >>> from drolearn import worst_case
    >>> wc = worst_case([0.1, 0.2, 0.3, 4.0], rho=0.5)
    >>> wc.weights.round(3)
    array([0.137, 0.148, 0.159, 0.556])
    >>> round(wc.value, 3), round(wc.achieved, 12)
    (2.315, 0.5)
    >>> worst_case([0.1, 0.2, 0.3, 4.0], rho=5.0).weights  # a ball this large has it all
    array([0., 0., 0., 1.])
    >>> worst_case([1.0, 2.0], rho=0.1, divergence="kl", sample_weight=[3, 1]).weights.round(3)
    array([0.543, 0.457])
    """
    z = as_losses(losses)
    radius = as_radius(rho)
    kind = as_divergence(divergence)
    b = None
    if sample_weight is not None:
        b = without_dust(kind, radius, as_weights(sample_weight, z.size))
    found = inner_maximum(kind, radius, z, b, 1 if n_jobs is None else thread_count(n_jobs))
    if found is None:
        raise ValueError(not_finite(z))
    return found


def inner_maximum(
    divergence: Divergence, rho: float, z: Array, weights: Array | None, threads: int = 1
) -> WorstCase | None:
    """The worst case of losses that need no check, or None if one of them is not finite.

    All solvers call this at every point.  `z` and `weights` are contiguous float64 vectors of
    one length; weights too small for χ² were dropped before (`without_dust`).
    """
    if z.size < _THREADS_FROM.get(divergence.family, _THREADS_FROM_OTHERS):
        threads = 1
    p = np.empty(z.size)
    answer = _core.solve(divergence.core, rho, z, weights, p, threads)
    status, value, achieved, alpha, lam, gap, sweeps = answer
    if status == _core.NOT_FINITE:
        return None
    if status == _core.NOT_SOLVED:
        where = f" in {sweeps} passes (D = {achieved:.3g}, gap {gap:.3g})"
        raise RuntimeError(not_solved(divergence, rho, where))
    return WorstCase(p, value, achieved, alpha, lam, gap, rho, divergence)


def without_dust(kind: Divergence, rho: float, b: Array) -> Array:
    """Weights of rows without those that are too small to matter for χ².

    In a χ² ball p² ≤ (1 + ρ) b.  Where that is below 1e-34, p does not show in a double, but its
    square, divided by b, would cost all digits of the others.
    """
    if kind.family != "chi2":
        return b
    return np.where((1.0 + rho) * b < 1e-34 * b.sum(), 0.0, b)


def not_solved(kind: Divergence, rho: float, found: str = "") -> str:
    """What to say when the search for the worst case has given up."""
    if kind.family == "custom":
        hint = "check that dphi_inverse(t) minimises phi(s) - t*s for every t"
    else:
        hint = "base weights or losses that differ by hundreds of digits are the likely reason"
    return f"No worst case was found for {kind!r} with rho={rho!r}{found}; {hint}."


def not_finite(z: Array) -> str:
    """What to say about losses that are not finite."""
    nan, infinite = int(np.isnan(z).sum()), int(np.isinf(z).sum())
    first = int(np.flatnonzero(~np.isfinite(z))[0])
    return (
        f"The 'losses' parameter must hold finite numbers. Got {nan} NaN and {infinite} infinite "
        f"of {z.size} instead, the first at index {first} ({z[first]})."
    )
