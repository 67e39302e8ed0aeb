"""Spectral risks: weighted means of the sorted losses, with weights that grow with the rank.

A spectrum is a function σ ≥ 0 on [0, 1] that does not decrease and has the integral 1.  For losses
z₍₁₎ ≤ … ≤ z₍ₙ₎ with base weights b₍ᵢ₎ and cumulative weights Bᵢ = b₍₁₎ + … + b₍ᵢ₎,

    R(z) = Σ σᵢ z₍ᵢ₎,    σᵢ = ∫ σ(u) du from Bᵢ₋₁ to Bᵢ,

and rows of equal losses share their σᵢ in proportion to b.  With g(t) = ∫ σ(u) du from 1 − t to 1,
the weight of the worst share t of the data, R is a worst case:

    R(z) = max { Σ p z : Σ_A p ≤ g(Σ_A b) for every set A of rows, Σ p = 1 }.

=====================  =========================================  ==============================
risk                   σ(u)                                       g(t)
=====================  =========================================  ==============================
`Extremile(r)`         r uʳ⁻¹                                     1 − (1 − t)ʳ
`Exponential(r)`       r e^(r u) / (eʳ − 1)                       (1 − e^(−r t)) / (1 − e⁻ʳ)
`Spectral(spectrum)`   given by the user
`CVaR(level)`          1/level from 1 − level on, 0 below         min(t/level, 1)
=====================  =========================================  ==============================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._divergence_base import Divergence
from drolearn._validation import as_vector, float_or_nan

__all__ = ["Exponential", "Extremile", "Spectral", "SpectralRisk"]

Array = NDArray[np.float64]

# A spectrum given as a function is replaced by its means over this many parts of [0, 1].
_PARTS = 4096
# Nodes of the Gauss-Legendre rule on each part.
_NODES = 8


class SpectralRisk(Divergence):
    """Base class of spectral risks: a subclass defines `tail`.

    A spectral risk stands where a divergence stands, as CVaR does.  Its set of weights p is not a
    ball of a φ-divergence: there is no φ and no radius.
    """

    family: ClassVar[str] = "spectral"
    strictly_convex: ClassVar[Any] = False
    has_radius: ClassVar[bool] = False

    def tail(self, share: ArrayLike) -> Array:
        """Compute g(t), the weight of the worst share t of the data.

        Parameters
        ----------
        share : array-like of float
            Shares t from 0 to 1.

        Returns
        -------
        ndarray of float64
            The weights g(t), from g(0) = 0 to g(1) = 1.

        Examples
        --------
        >>> from drolearn import Extremile
        >>> Extremile(2).tail([0.0, 0.5, 1.0])
        array([0.  , 0.75, 1.  ])
        """
        return self._tail(np.clip(np.asarray(share, dtype=np.float64), 0.0, 1.0))

    def _tail(self, share: Array) -> Array:
        raise NotImplementedError(f"{type(self).__name__} has no spectrum: use Spectral(spectrum).")

    def phi(self, s: ArrayLike) -> NoReturn:
        """Raise an error: a spectral risk has no φ.

        Parameters
        ----------
        s : array-like of float
            Not used.

        Raises
        ------
        ValueError
            Always.

        Examples
        --------
        >>> from drolearn import Extremile
        >>> try:
        ...     Extremile(2).phi(1.0)
        ... except ValueError as error:
        ...     print(error)
        Extremile(r=2) has no φ: spectral risks are no φ-divergences; use 'tail', or a divergence.
        """
        raise ValueError(
            f"{self!r} has no φ: spectral risks are no φ-divergences; use 'tail', or a divergence."
        )

    def between(self, p: ArrayLike, base: ArrayLike) -> float:
        """Tell whether weights are in the set of the risk: 0 if they are, infinity if not.

        Parameters
        ----------
        p : array-like of shape (n,)
            Weights p, which sum to one.
        base : array-like of shape (n,)
            Base weights b ≥ 0, which sum to one.

        Returns
        -------
        float
            0 or infinity; rounding errors of 1e-9 in the weights are allowed.

        Examples
        --------
        >>> from drolearn import Extremile
        >>> Extremile(2).between([0.25, 0.75], [0.5, 0.5])
        0.0
        >>> Extremile(2).between([0.2, 0.8], [0.5, 0.5])
        inf
        """
        return super().between(p, base)

    def _terms(self, p: Array, base: Array) -> Array:
        # The sets of the largest p/b have the largest Σ p for their Σ b.
        order = np.argsort(-p / base, kind="stable")
        allowed = self.tail(np.minimum(np.cumsum(base[order]), 1.0))
        inside = bool(np.all(np.cumsum(p[order]) <= allowed + 1e-9))
        return np.zeros(1) if inside else np.array([math.inf])

    def maximum(self, peak: float) -> float:
        """Compute the divergence of all mass on rows of base weight `peak`.

        Parameters
        ----------
        peak : float
            Total base weight of the rows, above 0 and at most 1.

        Returns
        -------
        float
            0 if all mass may be there, else infinity.

        Raises
        ------
        ValueError
            If `peak` is not above 0 and at most 1.

        Examples
        --------
        >>> from drolearn import Extremile
        >>> Extremile(2).maximum(0.5)
        inf
        """
        mass = float_or_nan(peak)
        if not 0.0 < mass <= 1.0:
            raise ValueError(
                f"The 'peak' parameter must lie above 0 and be at most 1. Got {peak!r} instead."
            )
        return 0.0 if float(self.tail(mass)) == 1.0 else math.inf

    @cached_property
    def core(self) -> NoReturn:
        """Raise an error: algorithms that draw or partition rows do not apply."""
        raise ValueError(
            f"{self!r} needs the order of all losses: use worst_case, an exact solver, an ensemble "
            f"or RobustLoss on whole batches, or a divergence such as CVaR."
        )


@dataclass(frozen=True, repr=False)
class Spectral(SpectralRisk):
    """A spectral risk: the mean of the sorted losses with the weights of a spectrum.

    Parameters
    ----------
    spectrum : array-like of shape (k,), or callable
        Numbers of at least 0 that do not decrease: the weights of k equal parts of the data, from
        the smallest losses to the largest; only their proportions matter.  For k losses of equal
        weight they are the weights of the sorted losses.  Or the function σ of an array of numbers
        between 0 and 1; its means over 4,096 equal parts are used.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Spectral, worst_case
    >>> losses = [4.0, 1.0, 2.0, 3.0]
    >>> worst_case(losses, divergence=Spectral([0.1, 0.2, 0.3, 0.4])).value
    3.0
    >>> worst_case(losses, divergence=Spectral([0, 0, 1, 1])).value  # CVaR(0.5)
    3.5
    >>> round(worst_case(losses, divergence=Spectral(np.exp)).value, 6)  # Exponential(1)
    2.807095
    """

    spectrum: Any
    name: ClassVar[str] = "spectral"

    def __post_init__(self) -> None:
        given = self.spectrum
        if not callable(given) and np.ndim(given) != 1:
            raise ValueError(
                f"The 'spectrum' parameter of Spectral must be a list of numbers, or a function of "
                f"arrays. Got {given!r} instead."
            )
        values = _means_of(given) if callable(given) else as_vector("spectrum", given)
        what = "The 'spectrum' parameter of Spectral must"
        if values.size == 0 or not np.isfinite(values).all():
            wrong = "none" if values.size == 0 else values[~np.isfinite(values)][0]
            raise ValueError(f"{what} hold at least one number, all finite. Got {wrong} instead.")
        if values[0] < 0.0 or not values[-1] > 0.0 or bool(np.any(np.diff(values) < 0.0)):
            falls = np.flatnonzero(np.diff(values) < 0.0)
            found = f"a sum of {values.sum():g}" if values[-1] <= 0.0 else f"{values[0]:g} first"
            if falls.size:
                k = int(falls[0])
                found = f"{values[k + 1]:g} after {values[k]:g}"
            raise ValueError(
                f"{what} hold numbers of at least 0 that do not decrease, with a positive sum: "
                f"larger losses must not count less. Got {found} instead."
            )
        object.__setattr__(self, "spectrum", tuple(values.tolist()))

    def _tail(self, share: Array) -> Array:
        # A sum of large numbers might overflow.
        falling = np.array(self.spectrum[::-1]) / self.spectrum[-1]
        reached = np.concatenate([[0.0], np.cumsum(falling)])
        parts = len(self.spectrum)
        return np.interp(share * parts, np.arange(parts + 1.0), reached / reached[-1])

    def __repr__(self) -> str:
        if len(self.spectrum) > 8:
            return f"Spectral(<{len(self.spectrum)} weights>)"
        return f"Spectral([{', '.join(f'{value:.6g}' for value in self.spectrum)}])"


@dataclass(frozen=True)
class Extremile(SpectralRisk):
    """The extremile: the expected largest of r losses drawn at random.

    The spectrum is σ(u) = r uʳ⁻¹.  r = 1 is the mean, and large r approach the largest loss.  For
    whole numbers r it is the mean of the largest of r losses, drawn with replacement.

    Parameters
    ----------
    r : float, default=2.0
        The number of draws, at least 1; it need not be a whole number.

    Examples
    --------
    >>> from drolearn import Extremile, worst_case
    >>> worst_case([0.0, 1.0], divergence=Extremile(2)).value
    0.75
    """

    r: float = 2.0
    name: ClassVar[str] = "extremile"

    def __post_init__(self) -> None:
        if not 1.0 <= float_or_nan(self.r) < math.inf:
            raise ValueError(
                f"The 'r' parameter of Extremile must be a finite number of at least 1, the number "
                f"of draws. Got {self.r!r} instead."
            )

    def _tail(self, share: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            return -np.expm1(float(self.r) * np.log1p(-share))


@dataclass(frozen=True)
class Exponential(SpectralRisk):
    """The exponential spectral risk: weights grow exponentially with the rank.

    The spectrum is σ(u) = r e^(r u) / (eʳ − 1): the largest loss counts eʳ times as much as the
    smallest.  r = 0 is the mean.

    Parameters
    ----------
    r : float, default=1.0
        The growth of the weights, at least 0.

    Examples
    --------
    >>> from drolearn import Exponential, worst_case
    >>> round(worst_case([0.0, 1.0], divergence=Exponential(1)).value, 6)
    0.622459
    """

    r: float = 1.0
    name: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        if not 0.0 <= float_or_nan(self.r) < math.inf:
            raise ValueError(
                f"The 'r' parameter of Exponential must be a finite number of at least 0. "
                f"Got {self.r!r} instead."
            )

    def _tail(self, share: Array) -> Array:
        r = float(self.r)
        if r < 1e-17:  # up to rounding the mean
            return share.copy()
        return np.expm1(-r * share) / math.expm1(-r)


def _means_of(function: Callable[[Array], Any]) -> Array:
    """The means of a function over equal parts of [0, 1], by a Gauss-Legendre rule on each."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    places = (np.arange(_PARTS)[:, None] + 0.5 * (1.0 + nodes)) / _PARTS
    values = np.asarray(function(places.ravel()), dtype=np.float64)
    if values.shape != (places.size,):
        raise ValueError(
            f"The 'spectrum' parameter of Spectral must be a function of arrays that returns as "
            f"many numbers. Got the shape {values.shape} for {places.size} numbers instead."
        )
    means = values.reshape(places.shape) @ (0.5 * weights)
    # Where σ is constant, means differ by rounding errors.
    level = np.maximum.accumulate(means)
    return np.where(level - means <= 1e-13 * np.abs(level), level, means)
