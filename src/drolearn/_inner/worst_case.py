"""The worst case of a vector of losses.

    R = max { Σ pₙ zₙ : Σ bₙ φ(pₙ/bₙ) ≤ ρ, Σ pₙ = 1, p ≥ 0 }

`worst_case` checks its arguments; solvers call `inner_maximum`, which does not.  Soft balls, with a
price τ for the divergence instead of a radius, are in `soft`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._inner.trimming import as_trim, kept_weights
from drolearn._validation import as_losses, as_radius, as_weights, thread_count
from drolearn.divergence import Divergence, as_divergence, radius_for

__all__ = ["WorstCase", "inner_maximum", "worst_case"]

Array = NDArray[np.float64]

# From this many losses on, more threads are faster.  The solvers of χ² and KL take about a
# nanosecond per loss and are limited by memory, so they need more losses.
_THREADS_FROM = {"chi2": 1 << 22, "kl": 1 << 19}
_THREADS_FROM_OTHERS = 1 << 17


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The result of :func:`worst_case`: weights, value and certificate.

    Parameters
    ----------
    weights : ndarray of shape (n,)
        Worst-case weights p, float64.  They sum to one, and are exactly zero where the optimum
        is zero.
    value : float
        The robust loss Σ p z; for a soft ball Σ p z − τ D(P, B).
    achieved : float
        The divergence D(P, B) of the weights before they are rounded to float64; see Notes.
    alpha : float
        The multiplier α of the constraint D ≤ ρ, which is the derivative of the value in ρ.  It
        is zero if the constraint does not bind (all mass on the largest loss, equal losses,
        CVaR), and infinite for ρ = 0.  For a soft ball it is τ.
    lam : float
        The multiplier λ of the constraint Σ p = 1.  For strictly convex φ,
        p = b (φ')⁻¹((z − λ)/α) where that is positive.
    gap : float
        Duality gap: no weights in the ball have a mean loss above value + gap.  For a soft ball, no
        weights have Σ p z − τ D above that.
    rho : float
        The radius ρ; 0 for CVaR, which has none.  For a soft ball it is the divergence of the
        weights: they are the worst case of the ball of that radius, too.
    divergence : Divergence
        The divergence.

    Notes
    -----
    If the constraint binds, `achieved` equals ρ with a relative error below 1e-9.  So does the
    divergence of the float64 weights for ρ ≥ 1e-12.  Below, rounding p to float64 limits it: the
    relative error is at most about 2⁻⁵² √(2 φ''(1)/ρ), which is 1.4e-8 for χ² at ρ = 1e-15.

    For total variation, rounding leaves an absolute error of about 2e-16 for every ρ.  For a custom
    φ, the accuracy is that of its functions.  If nearly all base weight is on the largest loss,
    reverse KL would need weights below the smallest float64, and D stays below ρ.

    Examples
    --------
    >>> from drolearn import worst_case
    >>> wc = worst_case([0.1, 0.2, 0.3, 4.0], rho=0.5)
    >>> round(wc.value, 5), wc.gap < 1e-9
    (2.31458, True)
    >>> round(float(wc.weights.sum()), 9), wc.divergence
    (1.0, ChiSquare())
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
    rho: float | None = None,
    divergence: str | Divergence = "chi2",
    sample_weight: ArrayLike | None = None,
    *,
    tau: float | None = None,
    trim: float = 0.0,
    n_jobs: int | None = None,
) -> WorstCase:
    """Maximise the weighted mean of the losses over a φ-divergence ball.

    Solves max { Σ p z : Σ b φ(p/b) ≤ ρ, Σ p = 1, p ≥ 0 } exactly, in time proportional to
    the number of losses, and returns the weights with a duality gap as certificate.

    Parameters
    ----------
    losses : array-like of shape (n,)
        Finite numbers z.  Contiguous float64 arrays are not copied.
    rho : float, default=None
        Radius ρ ≥ 0 of the ball; None is 0.1.  0 gives the weighted mean, as does any radius below
        1e-15; `math.inf` gives the largest loss.  CVaR has no radius: leave it None.
    divergence : str or Divergence, default="chi2"
        A name or an object, see :mod:`drolearn.divergence`; or a spectral risk such as
        ``Extremile(3)``, which has no radius either, see :mod:`drolearn.spectral`.
    sample_weight : array-like of shape (n,), default=None
        Base weights b ≥ 0 with any positive sum; None for equal weights.  A row of weight 2
        counts like two equal rows, a row of weight 0 does not count (but its loss must be finite
        too).
    tau : float, default=None
        Price τ ≥ 0 of a soft ball, instead of `rho`: the result maximises Σ p z − τ D(P, B).  Small
        prices approach the largest loss, large ones the mean.  For KL the value is the tilted loss
        τ log Σ b exp(z/τ).
    trim : float, default=0.0
        Share of the base weight to ignore: that of the largest losses, such as outliers.  The ball
        is then around the other rows, and the weights of ignored rows are 0.
    n_jobs : int, default=None
        Number of threads: None for one, -1 for all processors.  Threads are used only where they
        are faster: from 4 million losses on for χ², half a million for KL, 131,072 for others.
        The result does not depend on their number.

    Returns
    -------
    WorstCase
        The weights, the value, the multipliers and the duality gap.

    Raises
    ------
    ValueError
        If the losses are empty or not finite, or if another argument is not valid.
    RuntimeError
        If the search fails, which needs an inconsistent custom φ, or losses or base weights of
        extreme range.

    Examples
    --------
    >>> from drolearn import worst_case
    >>> wc = worst_case([0.1, 0.2, 0.3, 4.0], rho=0.5)
    >>> wc.weights.round(3)
    array([0.137, 0.148, 0.159, 0.556])
    >>> round(wc.value, 3), round(wc.achieved, 12)
    (2.315, 0.5)
    >>> worst_case([0.1, 0.2, 0.3, 4.0], rho=5.0).weights  # the ball contains all weights
    array([0., 0., 0., 1.])
    >>> round(worst_case([0.1, 0.2, 0.3, 4.0], rho=0.5, trim=0.25).value, 3)  # without 4.0
    0.258
    >>> worst_case([1.0, 2.0], rho=0.1, divergence="kl", sample_weight=[3, 1]).weights.round(3)
    array([0.543, 0.457])
    >>> round(worst_case([1.0, 2.0], divergence="kl", tau=0.5).value, 3)  # ½ log (½ e² + ½ e⁴)
    1.717
    """
    z = as_losses(losses)
    chosen = as_divergence(divergence)
    by_default = type(trim) is float and trim == 0.0  # to check it takes a sixth of a small call
    if not by_default and as_trim(trim) > 0.0:
        if not np.isfinite(z).all():
            raise ValueError(not_finite(z))
        given = None if sample_weight is None else as_weights(sample_weight, z.size)
        sample_weight = kept_weights(z, given, float(trim))
    if tau is not None:
        return _soft(z, rho, chosen, sample_weight, tau)
    radius = radius_for(chosen, rho)
    b = None
    if sample_weight is not None:
        b = without_dust(chosen, radius, as_weights(sample_weight, z.size))
    worst = inner_maximum(chosen, radius, z, b, 1 if n_jobs is None else thread_count(n_jobs))
    if worst is None:
        raise ValueError(not_finite(z))
    return worst


def _soft(
    z: Array, rho: float | None, divergence: Divergence, sample_weight: Any, tau: float
) -> WorstCase:
    """The worst case of a soft ball."""
    from drolearn._inner.soft import soft_maximum  # it imports this module

    price = check_soft(tau, rho, divergence)
    if not np.isfinite(z).all():
        raise ValueError(not_finite(z))
    b = None
    if sample_weight is not None:
        b = without_dust(divergence, 0.0, as_weights(sample_weight, z.size))
    return soft_maximum(divergence, price, z, b)


def check_soft(tau: float, rho: float | None, divergence: Divergence) -> float:
    """Check the price of a soft ball, and return it."""
    if rho is not None:
        raise ValueError(
            f"The 'tau' parameter, the price of a soft ball, replaces 'rho': pass one of them. Got "
            f"tau={tau!r} and rho={rho!r} instead."
        )
    price = as_radius(tau, "tau")
    if divergence.family in ("cvar", "custom", "spectral") and not divergence.strictly_convex:
        raise ValueError(
            f"The 'tau' parameter needs a strictly convex divergence or total variation. Got "
            f"{divergence!r} instead; use a ball."
        )
    return price


def inner_maximum(
    divergence: Divergence, rho: float, z: Array, weights: Array | None, threads: int = 1
) -> WorstCase | None:
    """The worst case without checks of the arguments, or None if a loss is not finite.

    `z` and `weights` are contiguous float64 vectors of one length; for χ², `without_dust` has
    removed weights that are too small.
    """
    if divergence.family == "spectral":
        from drolearn._inner.spectral import spectral_maximum  # it imports this module

        return spectral_maximum(divergence, z, weights)  # type: ignore[arg-type]
    if threads > 1 and z.size < _THREADS_FROM.get(divergence.family, _THREADS_FROM_OTHERS):
        threads = 1
    p = np.empty(z.size)
    answer = _core.solve(divergence.core, rho, z, weights, p, threads)
    status, value, achieved, alpha, lam, gap, sweeps = answer
    if status == _core.NOT_FINITE:
        return None
    if status == _core.NOT_SOLVED:
        details = f" in {sweeps} passes (D = {achieved:.3g}, gap {gap:.3g})"
        raise RuntimeError(not_solved(divergence, rho, details))
    # Ten losses are solved in half a microsecond. The `__init__` of a frozen dataclass, or a call
    # of `update`, takes longer than these lines.
    worst = object.__new__(WorstCase)
    fields = worst.__dict__
    fields["weights"] = p
    fields["value"] = value
    fields["achieved"] = achieved
    fields["alpha"] = alpha
    fields["lam"] = lam
    fields["gap"] = gap
    fields["rho"] = rho
    fields["divergence"] = divergence
    return worst


def without_dust(divergence: Divergence, rho: float, b: Array) -> Array:
    """For χ², set base weights to zero that are too small to matter.

    In a χ² ball p² ≤ (1 + ρ) b.  Below 1e-34 of the total, p is lost in the rounding of the other
    weights, but p²/b would cost D its digits.
    """
    if divergence.family != "chi2":
        return b
    dust = 1e-34 * float(b.sum()) / (1.0 + rho)
    return b if b.min() >= dust else np.where(b < dust, 0.0, b)


def not_solved(divergence: Divergence, rho: float, details: str = "") -> str:
    """The error message for a search that has failed."""
    if divergence.family == "custom":
        hint = "check that dphi_inverse(t) minimises phi(s) - t*s for every t"
    else:
        hint = "a radius, losses or base weights of extreme range are the likely reason"
    return f"No worst case was found for {divergence!r} with rho={rho!r}{details}; {hint}."


def not_finite(z: Array) -> str:
    """The error message for losses that are not finite."""
    nan, infinite = int(np.isnan(z).sum()), int(np.isinf(z).sum())
    first = int(np.flatnonzero(~np.isfinite(z))[0])
    return (
        f"The 'losses' parameter must hold finite numbers. Got {nan} NaN and {infinite} infinite "
        f"of {z.size} instead, the first at index {first} ({z[first]})."
    )
