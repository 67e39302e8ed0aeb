"""Divergences: φ and the properties of φ that solvers use.

The whole library uses one convention.  The ball of radius ρ around base weights b is the set of all
weights p with

    D(P, B) = Σ bₙ φ(pₙ/bₙ) ≤ ρ,        φ convex, φ(1) = 0.

=====================  =========================================  ==========================
name                   φ(s)                                       D(P, B)
=====================  =========================================  ==========================
"chi2"                 (s − 1)²                                   Pearson's χ²
"kl"                   s log s − s + 1                            KL(P, B)
"reverse-kl"           −log s + s − 1                             KL(B, P)
"hellinger"            ½ (√s − 1)²                                squared Hellinger distance
"jensen-shannon"       ½ (s log s − (1 + s) log((1 + s)/2))       Jensen-Shannon divergence
"triangular"           (s − 1)²/(s + 1)                           triangular discrimination
"total-variation"      ½ abs(s − 1)                               the mass that is moved
"cvar"                 0 up to s = 1/level, ∞ beyond              0: there is no radius
`CressieRead(k)`       (sᵏ − k s + k − 1) / (k (k − 1))           power divergence
`Divergence.custom`    given by the user
=====================  =========================================  ==========================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from drolearn._divergence_base import Divergence
from drolearn._validation import as_radius, did_you_mean, float_or_nan

__all__ = [
    "KL",
    "CVaR",
    "ChiSquare",
    "CressieRead",
    "Divergence",
    "Hellinger",
    "JensenShannon",
    "ReverseKL",
    "TotalVariation",
    "Triangular",
    "as_divergence",
    "radius_for",
]

Array = NDArray[np.float64]
DEFAULT_RADIUS = 0.1


@dataclass(frozen=True)
class ChiSquare(Divergence):
    """Pearson's χ² divergence, φ(s) = (s − 1)².

    Examples
    --------
    >>> from drolearn import ChiSquare, worst_case
    >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=ChiSquare()).value, 6)
    2.68313
    """

    name: ClassVar[str] = "chi2"
    family: ClassVar[str] = "chi2"
    phi_zero: ClassVar[Any] = 1.0
    curvature: ClassVar[Any] = 2.0

    def _phi(self, s: Array, t: Array) -> Array:
        return t * t

    def _far(self, p: Array, base: Array) -> Array:
        return (p / np.sqrt(base)) ** 2


@dataclass(frozen=True)
class KL(Divergence):
    """Kullback-Leibler divergence of P from B, φ(s) = s log s − s + 1.

    Examples
    --------
    >>> from drolearn import KL, worst_case
    >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=KL()).value, 6)
    2.993432
    """

    name: ClassVar[str] = "kl"
    family: ClassVar[str] = "kl"
    phi_zero: ClassVar[Any] = 1.0

    def _phi(self, s: Array, t: Array) -> Array:
        near = t * np.log1p(t) - _x_minus_log1p(t)
        return np.where(np.abs(t) <= 0.25, near, s * np.log(s) - t)

    def _far(self, p: Array, base: Array) -> Array:
        return p * (np.log(p) - np.log(base) - 1.0)


@dataclass(frozen=True)
class ReverseKL(Divergence):
    """Kullback-Leibler divergence of B from P, φ(s) = −log s + s − 1.

    As φ(0) is infinite, no row ever loses all its mass.

    Examples
    --------
    >>> from drolearn import ReverseKL, worst_case
    >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=ReverseKL()).value, 6)
    3.007241
    """

    name: ClassVar[str] = "reverse-kl"
    family: ClassVar[str] = "reverse-kl"
    phi_zero: ClassVar[Any] = math.inf
    slope_infinity: ClassVar[Any] = 1.0

    def _phi(self, s: Array, t: Array) -> Array:
        return np.where(np.abs(t) <= 0.25, _x_minus_log1p(t), t - np.log(s))


@dataclass(frozen=True)
class Hellinger(Divergence):
    """Squared Hellinger distance, φ(s) = ½ (√s − 1)².

    Examples
    --------
    >>> from drolearn import Hellinger, worst_case
    >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=Hellinger()).value, 6)
    3.957317
    """

    name: ClassVar[str] = "hellinger"
    family: ClassVar[str] = "hellinger"
    phi_zero: ClassVar[Any] = 0.5
    slope_infinity: ClassVar[Any] = 0.5
    curvature: ClassVar[Any] = 0.25

    def _phi(self, s: Array, t: Array) -> Array:
        return 0.5 * (t / (1.0 + np.sqrt(s))) ** 2


@dataclass(frozen=True)
class JensenShannon(Divergence):
    """Jensen-Shannon divergence, φ(s) = ½ (s log s − (1 + s) log((1 + s)/2)).

    Examples
    --------
    >>> from drolearn import JensenShannon, worst_case
    >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=JensenShannon()).value, 6)
    3.974483
    """

    name: ClassVar[str] = "jensen-shannon"
    family: ClassVar[str] = "jensen-shannon"
    phi_zero: ClassVar[Any] = 0.5 * math.log(2.0)
    slope_infinity: ClassVar[Any] = 0.5 * math.log(2.0)
    curvature: ClassVar[Any] = 0.25

    def _phi(self, s: Array, t: Array) -> Array:
        # With log(1 + t) = t − r(t): φ = ½ (½ t² − s r(t) + (1 + s) r(½ t)).
        near = 0.5 * t * t - s * _x_minus_log1p(t) + (1.0 + s) * _x_minus_log1p(0.5 * t)
        mean = np.log(0.5 + 0.5 * s)
        return 0.5 * np.where(np.abs(t) <= 0.25, near, s * (np.log(s) - mean) - mean)


@dataclass(frozen=True)
class Triangular(Divergence):
    """Triangular discrimination, φ(s) = (s − 1)²/(s + 1).

    Twice the χ² divergence of P from the mean of P and B.  It is symmetric in P and B, and at most
    2.

    Examples
    --------
    >>> from drolearn import Triangular, worst_case
    >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=Triangular()).value, 6)
    3.009403
    """

    name: ClassVar[str] = "triangular"
    family: ClassVar[str] = "triangular"
    phi_zero: ClassVar[Any] = 1.0
    slope_infinity: ClassVar[Any] = 1.0
    curvature: ClassVar[Any] = 1.0

    def _phi(self, s: Array, t: Array) -> Array:
        return t * (t / (s + 1.0))


@dataclass(frozen=True)
class TotalVariation(Divergence):
    """Total variation distance, φ(s) = ½ |s − 1|.

    The worst case moves the mass ρ from the smallest losses to the largest.

    Examples
    --------
    >>> from drolearn import TotalVariation, worst_case
    >>> worst_case([1.0, 2.0, 3.0, 4.0], rho=0.25, divergence=TotalVariation()).value
    3.25
    """

    name: ClassVar[str] = "total-variation"
    family: ClassVar[str] = "total-variation"
    phi_zero: ClassVar[Any] = 0.5
    slope_infinity: ClassVar[Any] = 0.5
    strictly_convex: ClassVar[Any] = False

    def _phi(self, s: Array, t: Array) -> Array:
        return 0.5 * np.abs(t)


@dataclass(frozen=True)
class CVaR(Divergence):
    """Conditional value at risk: p may be at most 1/level times the base weight.

    The worst case is the mean of the worst `level` of the data: CVaR(0.1) averages over the worst
    tenth.  φ is zero up to s = 1/level and infinite beyond, so there is no radius: leave `rho`
    None.

    Parameters
    ----------
    level : float, default=0.1
        The share of the data to average over, above 0 and at most 1.

    Examples
    --------
    >>> from drolearn import CVaR, worst_case
    >>> worst_case([1.0, 2.0, 3.0, 4.0], divergence=CVaR(0.5)).value
    3.5
    """

    level: float = 0.1
    name: ClassVar[str] = "cvar"
    family: ClassVar[str] = "cvar"
    phi_zero: ClassVar[Any] = 0.0
    strictly_convex: ClassVar[Any] = False
    has_radius: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 < float_or_nan(self.level) <= 1.0:
            raise ValueError(
                f"The 'level' parameter of CVaR must be a number above 0 and at most 1, "
                f"the share of the data to average over. Got {self.level!r} instead."
            )

    def _parameter(self) -> float:
        return float(self.level)

    def _phi(self, s: Array, t: Array) -> Array:
        # The worst-case weights themselves may exceed the limit by a rounding error.
        return np.where(s <= (1.0 + 1e-12) / self.level, 0.0, math.inf)


@dataclass(frozen=True)
class CressieRead(Divergence):
    """Power divergence, φ(s) = (sᵏ − k s + k − 1) / (k (k − 1)).

    k = 2 is half of χ², k = 1 is KL, k = ½ is four times the squared Hellinger distance and
    k = 0 is reverse KL.  The larger k, the more evenly the worst case spreads.

    Parameters
    ----------
    k : float, default=2.0
        The power, from -100 to 100.

    Examples
    --------
    >>> from drolearn import CressieRead, worst_case
    >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=CressieRead(1.5)).value, 6)
    2.98113
    """

    k: float = 2.0
    name: ClassVar[str] = "cressie-read"

    def __post_init__(self) -> None:
        if not abs(float_or_nan(self.k)) <= 100.0:
            raise ValueError(
                f"The 'k' parameter of CressieRead must be a number from -100 to 100. "
                f"Got {self.k!r} instead."
            )

    @property
    def family(self) -> str:  # type: ignore[override]
        """The name of the divergence in the core."""
        return {0.0: "reverse-kl", 1.0: "kl"}.get(self.k, "cressie-read")

    @property
    def phi_zero(self) -> float:  # type: ignore[override]
        """The value φ(0)."""
        return 1.0 / self.k if self.k > 0.0 else math.inf

    @property
    def slope_infinity(self) -> float:  # type: ignore[override]
        """The limit of φ(s)/s."""
        return 1.0 / (1.0 - self.k) if self.k < 1.0 else math.inf

    def _parameter(self) -> float:
        return float(self.k)

    def _origin(self) -> float:
        # Next to k = 1 the pole is far away, and measuring from it would only cost digits.
        if self.family == "cressie-read" and abs(self.k - 1.0) < 0.125:
            return 0.0
        return 0.0 if self.k == 1.0 else 1.0 / (1.0 - self.k)

    def _phi(self, s: Array, t: Array) -> Array:
        k, log, small = self.k, np.log(s), np.abs(t) <= 0.25
        log = np.where(small, np.log1p(t), log)
        remainder = _x_minus_log1p(t)  # t − log s
        if k > 0.5:  # accurate next to k = 1
            power = _expm1_ratio(k - 1.0, log)
            near = t * log - remainder + s * _expm1_ratio(k - 1.0, log, minus_x=True)
            return np.where(small, near, s * power - t) / k
        # accurate next to k = 0
        near = _expm1_ratio(k, log, minus_x=True) - remainder
        return np.where(small, near, _expm1_ratio(k, log) - t) / (k - 1.0)

    def _far(self, p: Array, base: Array) -> Array:
        if self.k < 1.0:
            return self.slope_infinity * p
        if self.k == 1.0:
            return KL()._far(p, base)
        return np.exp(self.k * np.log(p) + (1.0 - self.k) * np.log(base)) / (
            self.k * (self.k - 1.0)
        )


def _x_minus_log1p(x: Array) -> Array:
    """x − log(1 + x), also for small x.

    With q = x/(2 + x), log(1 + x) = 2 artanh q, so x − log(1 + x) = x q − 2 q³ Σ q²ʲ/(2j + 3).
    """
    small = np.abs(x) <= 0.25  # then q² ≤ 0.021, and ten terms suffice
    y = np.where(small, x, 0.0)
    q = y / (2.0 + y)
    total = np.zeros_like(q)
    for j in reversed(range(10)):
        total = total * q * q + 1.0 / (2 * j + 3)
    return np.where(small, y * q - 2.0 * q**3 * total, x - np.log1p(x))


def _expm1_minus_x(x: Array) -> Array:
    """eˣ − 1 − x, also for small x, where it is Σ xʲ/j! from j = 2 on."""
    small = np.abs(x) <= 0.5  # fifteen terms suffice
    y = np.where(small, x, 0.0)
    total = np.ones_like(y)
    for j in reversed(range(3, 17)):
        total = 1.0 + total * y / j
    return np.where(small, 0.5 * y * y * total, np.expm1(x) - x)


def _expm1_ratio(k: float, x: Array, minus_x: bool = False) -> Array:
    """(eᵏˣ − 1)/k, or that minus x; for k = 0 the limit."""
    if k == 0.0:
        return np.zeros_like(x) if minus_x else x
    return (_expm1_minus_x(k * x) if minus_x else np.expm1(k * x)) / k


_NAMED = (ChiSquare, KL, ReverseKL, Hellinger, JensenShannon, Triangular, TotalVariation, CVaR)
#: The classes of all divergences but custom ones.
CLASSES: tuple[type[Divergence], ...] = (*_NAMED, CressieRead)
_BY_NAME: dict[str, Divergence] = {cls.name: cls() for cls in _NAMED}


_ALSO_CALLED = {
    "tv": "'total-variation'",
    "total": "'total-variation'",
    "js": "'jensen-shannon'",
    "chi-square": "'chi2'",
    "chi-squared": "'chi2'",
    "pearson": "'chi2'",
    "burg": "'reverse-kl'",
    "cressie-read": "CressieRead(k)",
    "spectral": "Spectral(spectrum)",
    "extremile": "Extremile(r)",
    "exponential": "Exponential(r)",
}


NAMES = tuple(_BY_NAME)


def radius_for(divergence: Divergence, rho: float | None) -> float:
    """The radius of a ball: None is 0.1, and CVaR and spectral risks have no radius: only None."""
    if not divergence.has_radius:
        if rho is not None:
            name = type(divergence).__name__
            what = "level" if isinstance(divergence, CVaR) else "parameter"
            raise ValueError(
                f"The 'rho' parameter must be None for {name}, which has no radius: its {what} "
                f"says how far it goes. Got {rho!r} instead; use {divergence!r} without rho."
            )
        return 0.0
    return DEFAULT_RADIUS if rho is None else as_radius(rho)


def as_divergence(divergence: str | Divergence) -> Divergence:
    """Return a divergence object for a name or an object.

    Parameters
    ----------
    divergence : str or Divergence
        One of the names in the table of :mod:`drolearn.divergence`, or a divergence object.

    Returns
    -------
    Divergence
        The divergence of that name, or the object itself.

    Raises
    ------
    ValueError
        If there is no divergence of that name; the message suggests a similar one.

    Examples
    --------
    >>> from drolearn.divergence import as_divergence
    >>> as_divergence("kl")
    KL()
    """
    if isinstance(divergence, str) and divergence in _BY_NAME:
        return _BY_NAME[divergence]
    if isinstance(divergence, Divergence):
        if not divergence.family:
            raise ValueError(
                f"The 'divergence' parameter must be a built-in divergence; make your own with "
                f"Divergence.custom. Got {divergence!r} instead."
            )
        return divergence
    hint = ""
    if isinstance(divergence, str):
        plain = divergence.lower().replace("_", "-").replace(" ", "-")
        alias = _ALSO_CALLED.get(plain)
        hint = f" Did you mean {alias}?" if alias else did_you_mean(plain, NAMES)
    elif isinstance(divergence, type) and issubclass(divergence, Divergence):
        hint = f" Did you mean {divergence.__name__}()?"
    listed = ", ".join(repr(name) for name in NAMES)
    raise ValueError(
        f"The 'divergence' parameter must be one of {listed} or a Divergence object. "
        f"Got {divergence!r} instead.{hint}"
    )
