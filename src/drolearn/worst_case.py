"""The worst case of a vector of losses: the heart of the library.

    R = max { Σ pₙ zₙ : Σ bₙ φ(pₙ/bₙ) ≤ ρ, Σ pₙ = 1, p ≥ 0 }

Losses in, weights and a certificate out.  Everything else feeds this or uses it.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn.divergence import Divergence, as_divergence

__all__ = ["WorstCase", "worst_case"]

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
    base: ArrayLike | None = None,
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
    base : array-like of shape (n,), optional
        Weights b ≥ 0 of the rows (sample weights), by position and of any sum; equal if not
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
    >>> worst_case([1.0, 2.0], rho=0.1, divergence="kl", base=[3, 1]).weights.round(3)
    array([0.543, 0.457])
    """
    z = as_losses(losses)
    radius = as_radius(rho)
    kind = as_divergence(divergence)
    b = None if base is None else without_dust(kind, as_base(base, z.size))
    threads = 1
    if n_jobs is not None:
        threads = thread_count(n_jobs)
        if z.size < _THREADS_FROM.get(kind.family, _THREADS_FROM_OTHERS):
            threads = 1
    out = np.empty(z.size)
    answer = _core.solve(kind.core, radius, z, b, out, threads)
    status, value, achieved, alpha, lam, gap, sweeps = answer
    if status == _core.NOT_FINITE:
        raise ValueError(not_finite(z))
    if status == _core.NOT_SOLVED:
        found = f" in {sweeps} passes (D = {achieved:.3g}, gap {gap:.3g})"
        raise RuntimeError(not_solved(kind, radius, found))
    return WorstCase(out, value, achieved, alpha, lam, gap, radius, kind)


def thread_count(n_jobs: int) -> int:
    """How many threads are meant."""
    from joblib import effective_n_jobs

    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(
            f"The 'n_jobs' parameter must be None or an integer other than 0. "
            f"Got {n_jobs!r} instead."
        )
    return min(effective_n_jobs(int(n_jobs)), os.cpu_count() or 1)


# -- what may be given -----------------------------------------------------------------


def as_vector(parameter: str, values: ArrayLike) -> Array:
    """A contiguous float64 vector, copied only if it is not one already."""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.ndim == 1:
        return np.ascontiguousarray(values)
    # Without numpy.ma, which NumPy imports when it is first used, nothing is masked.
    masked = "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray)
    if masked and np.ma.is_masked(values):
        raise ValueError(
            f"The '{parameter}' parameter must not have masked entries. "
            f"Got {np.ma.count_masked(values)} of them; use .compressed() or .filled() first."
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"The '{parameter}' parameter must be a vector of real numbers. "
            f"Got {type(values).__name__} instead, which does not convert to one."
        ) from None
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"The '{parameter}' parameter must hold real numbers. "
            f"Got an array of type {array.dtype} instead."
        )
    if array.ndim != 1:
        raise ValueError(
            f"The '{parameter}' parameter must be one-dimensional, one number for each row. "
            f"Got an array of shape {array.shape} instead."
        )
    return np.ascontiguousarray(array, dtype=np.float64)


def as_losses(losses: ArrayLike) -> Array:
    """The losses, finite or not, as a vector."""
    z = as_vector("losses", losses)
    if z.size == 0:
        raise ValueError("The 'losses' parameter must hold at least one number. Got none instead.")
    return z


def as_radius(rho: float) -> float:
    """A radius of at least 0."""
    try:
        radius = math.nan if isinstance(rho, str | bool) else float(rho)
    except (TypeError, ValueError, OverflowError):
        radius = math.nan
    if not radius >= 0.0:
        raise ValueError(
            f"The 'rho' parameter must be a number of at least 0. Got {rho!r} instead."
        )
    return radius


def as_base(base: ArrayLike, size: int, parameter: str = "base") -> Array:
    """Base weights that can be summed."""
    b = as_vector(parameter, base)
    if b.size != size:
        raise ValueError(
            f"The '{parameter}' parameter must have one weight for each of the {size} rows. "
            f"Got {b.size} instead."
        )
    low, high = b.min(), b.max()
    if not (low >= 0.0 and high < math.inf):
        wrong = np.flatnonzero(~((b >= 0.0) & (b < math.inf)))[0]
        raise ValueError(
            f"The '{parameter}' parameter must hold finite weights of at least 0. "
            f"Got {b[wrong]} at index {wrong} instead."
        )
    if high == 0.0:
        raise ValueError(
            f"The '{parameter}' parameter must have a positive sum. Got only zeros instead."
        )
    if not 1e-100 < high < 1e100:  # sums of the raw weights must neither overflow nor vanish
        b = np.ldexp(b, -math.frexp(high)[1])
    return b


def without_dust(kind: Divergence, b: Array) -> Array:
    """Base weights, of which χ² loses those too small to matter.

    p² ≤ (1 + ρ) b: weights this small cannot hold mass that shows in a double, but would cost
    all digits of the others.
    """
    if kind.family != "chi2":
        return b
    return np.where(b < 1e-34 * b.sum(), 0.0, b)


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
