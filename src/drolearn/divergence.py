"""Divergences: what φ is, and the facts the solver needs to know about it.

One convention holds everywhere in the library.  The ball of radius ρ around base weights b
holds all weights p with

    D(P, B) = Σ bₙ φ(pₙ/bₙ) ≤ ρ,        φ convex, φ(1) = 0.

=====================  =========================================  ==========================
name                   φ(s)                                       D(P, B)
=====================  =========================================  ==========================
"chi2"                 (s − 1)²                                   Pearson's χ²
"kl"                   s log s − s + 1                            KL(P, B)
"reverse-kl"           −log s + s − 1                             KL(B, P)
"hellinger"            ½ (√s − 1)²                                squared Hellinger distance
"jensen-shannon"       ½ (s log s − (1 + s) log((1 + s)/2))       Jensen-Shannon divergence
"total-variation"      ½ |s − 1|                                  the mass that is moved
"cvar"                 0 up to s = 1/level, ∞ beyond              0: the radius has no effect
`CressieRead(k)`       (sᵏ − k s + k − 1) / (k (k − 1))           power divergence
`Divergence.custom`    the user's own
=====================  =========================================  ==========================
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._custom import (
    ArrayFunction,
    UserFunction,
    check_picklable,
    limit_at_zero,
    slope_at_one,
    try_out,
)

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
    "as_divergence",
]

Array = NDArray[np.float64]


class Divergence:
    """A convex φ with φ(1) = 0, and the facts about it that solvers use.

    Attributes
    ----------
    name : str
        What it is called.
    phi_zero : float
        φ(0): what it costs to take all mass away; may be infinite.
    slope_infinity : float
        The limit of φ(s)/s: what it costs to pile up mass; may be infinite.
    strictly_convex : bool
        Whether the worst-case weights are unique.
    curvature : float
        φ''(1), which sets the size of a small ball.

    Examples
    --------
    >>> from drolearn import ChiSquare, CressieRead
    >>> ChiSquare().phi([0.0, 1.0, 3.0])
    array([1., 0., 4.])
    >>> round(ChiSquare().between([0.5, 0.5], [0.25, 0.75]), 6)
    0.333333
    >>> round(CressieRead(3).maximum(0.01), 6)  # all mass on a row of base weight 0.01
    1666.5
    """

    name: ClassVar[str] = ""
    family: ClassVar[str] = ""  # what the core calls it
    phi_zero: ClassVar[Any] = math.nan
    slope_infinity: ClassVar[Any] = math.inf
    strictly_convex: ClassVar[Any] = True
    curvature: ClassVar[Any] = 1.0

    def phi(self, s: ArrayLike) -> Array:
        """φ(s), element by element; infinite for s < 0."""
        s = np.asarray(s, dtype=np.float64)
        with np.errstate(all="ignore"):
            inside = self._phi(np.where(s <= 0.0, 1.0, s))
            return np.where(s > 0.0, inside, np.where(s == 0.0, self.phi_zero, math.inf))

    def _phi(self, s: Array) -> Array:
        raise NotImplementedError

    def between(self, p: ArrayLike, base: ArrayLike) -> float:
        """D(P, B) = Σ b φ(p/b) of weights that each sum to one; infinite where only P has mass."""
        p, base = np.asarray(p, dtype=np.float64), np.asarray(base, dtype=np.float64)
        if p.ndim != 1 or p.shape != base.shape:
            raise ValueError(
                f"'p' and 'base' must be vectors of one length. "
                f"Got shapes {p.shape} and {base.shape} instead."
            )
        if np.any(p[base == 0.0] > 0.0):
            return math.inf
        p, base = p[base > 0.0], base[base > 0.0]
        return float(np.sum(base * self.phi(p / base)))

    def maximum(self, peak: float) -> float:
        """The divergence of all mass on rows of base weight `peak`; no ball is larger."""
        if not 0.0 < peak <= 1.0:
            raise ValueError(
                f"The 'peak' parameter must lie above 0 and be at most 1. Got {peak!r} instead."
            )
        if self.phi_zero == math.inf:
            return math.inf if peak < 1.0 else 0.0
        return float(peak * self.phi(1.0 / peak) + (1.0 - peak) * self.phi_zero)

    @cached_property
    def core(self) -> _core.Divergence:
        """The divergence as the core sees it."""
        return _core.Divergence(
            self.family,
            self._parameter(),
            self._origin(),
            float(self.phi_zero),
            float(self.curvature),
            not self.strictly_convex,
        )

    def __getstate__(self) -> dict[str, Any]:
        """All but the core's object, which is made anew on arrival."""
        return {key: value for key, value in self.__dict__.items() if key != "core"}

    def _parameter(self) -> float:
        return 0.0

    def _origin(self) -> float:
        """Where the tilt is measured from: the slope at infinity, if φ has one."""
        return 0.0 if self.slope_infinity == math.inf else float(self.slope_infinity)

    @staticmethod
    def custom(
        phi: ArrayFunction,
        dphi: ArrayFunction,
        dphi_inverse: ArrayFunction,
        *,
        phi_zero: float | None = None,
        slope_infinity: float = math.inf,
        strictly_convex: bool = True,
        name: str = "custom",
    ) -> Divergence:
        """Your own φ from three functions of arrays.

        Parameters
        ----------
        phi, dphi : function
            φ and its derivative, for s > 0.  φ must be convex with φ(1) = 0.
        dphi_inverse : function
            The s ≥ 0 that minimises φ(s) − t s, for every t: where dphi(s) = t if there is
            such an s, else zero below the range of dphi, and infinity (or any very large
            number) above it.  Where φ has straight pieces, any of the possible s.
        phi_zero : float, optional
            φ(0), if `phi(0.0)` does not say it; may be infinite.
        slope_infinity : float
            The limit of dphi(s) for large s, if it is finite: the search is then faster.
        strictly_convex : bool
            False if φ has straight pieces.  The search is then a nested bisection, hundreds
            of times slower.
        name : str
            What to call it.

        The functions take an array of numbers and return as many, as NumPy's functions do: write
        ``np.log(s)``, not ``math.log(s)``.  A :class:`scipy.LowLevelCallable` of the signature
        ``double (double)``, from Cython, ctypes or numba's cfunc, runs at compiled speed.

        They are tried out when the divergence is made; what is not convex, not finite, or does not
        fit together, is refused with the point where it fails.  To pickle the divergence, give
        functions that can be pickled (not lambdas).

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import Divergence, worst_case
        >>> kl = Divergence.custom(lambda s: s * np.log(s) - s + 1, np.log, np.exp, phi_zero=1.0,
        ...                        name="my-kl")
        >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=kl).value, 6)
        2.993432
        """
        return _Custom(phi, dphi, dphi_inverse, phi_zero, slope_infinity, strictly_convex, name)


@dataclass(frozen=True)
class ChiSquare(Divergence):
    """φ(s) = (s − 1)²."""

    name: ClassVar[str] = "chi2"
    family: ClassVar[str] = "chi2"
    phi_zero: ClassVar[Any] = 1.0
    curvature: ClassVar[Any] = 2.0

    def _phi(self, s: Array) -> Array:
        return (s - 1.0) ** 2


@dataclass(frozen=True)
class KL(Divergence):
    """φ(s) = s log s − s + 1."""

    name: ClassVar[str] = "kl"
    family: ClassVar[str] = "kl"
    phi_zero: ClassVar[Any] = 1.0

    def _phi(self, s: Array) -> Array:
        return s * np.log(s) - s + 1.0


@dataclass(frozen=True)
class ReverseKL(Divergence):
    """φ(s) = −log s + s − 1: no row ever loses all its mass."""

    name: ClassVar[str] = "reverse-kl"
    family: ClassVar[str] = "reverse-kl"
    phi_zero: ClassVar[Any] = math.inf
    slope_infinity: ClassVar[Any] = 1.0

    def _phi(self, s: Array) -> Array:
        return s - 1.0 - np.log(s)


@dataclass(frozen=True)
class Hellinger(Divergence):
    """φ(s) = ½ (√s − 1)²."""

    name: ClassVar[str] = "hellinger"
    family: ClassVar[str] = "hellinger"
    phi_zero: ClassVar[Any] = 0.5
    slope_infinity: ClassVar[Any] = 0.5
    curvature: ClassVar[Any] = 0.25

    def _phi(self, s: Array) -> Array:
        return 0.5 * (np.sqrt(s) - 1.0) ** 2


@dataclass(frozen=True)
class JensenShannon(Divergence):
    """φ(s) = ½ (s log s − (1 + s) log((1 + s)/2))."""

    name: ClassVar[str] = "jensen-shannon"
    family: ClassVar[str] = "jensen-shannon"
    phi_zero: ClassVar[Any] = 0.5 * math.log(2.0)
    slope_infinity: ClassVar[Any] = 0.5 * math.log(2.0)
    curvature: ClassVar[Any] = 0.25

    def _phi(self, s: Array) -> Array:
        return 0.5 * (s * np.log(s) - (1.0 + s) * np.log(0.5 * (1.0 + s)))


@dataclass(frozen=True)
class TotalVariation(Divergence):
    """φ(s) = ½ |s − 1|: mass ρ moves from the smallest losses to the largest."""

    name: ClassVar[str] = "total-variation"
    family: ClassVar[str] = "total-variation"
    phi_zero: ClassVar[Any] = 0.5
    slope_infinity: ClassVar[Any] = 0.5
    strictly_convex: ClassVar[Any] = False

    def _phi(self, s: Array) -> Array:
        return 0.5 * np.abs(s - 1.0)


@dataclass(frozen=True)
class CVaR(Divergence):
    """No row may have more than 1/level times its base weight.

    The worst case is then the mean of the worst `level` of the data: CVaR(0.1) looks at the
    worst tenth.  φ is zero or infinite, so the ball is the same for every radius.

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

    def __post_init__(self) -> None:
        if not _is_number(self.level) or not 0.0 < self.level <= 1.0:
            raise ValueError(
                f"The 'level' parameter of CVaR must be a number above 0 and at most 1, "
                f"the share of the data to look at. Got {self.level!r} instead."
            )

    def _parameter(self) -> float:
        return float(self.level)

    def _phi(self, s: Array) -> Array:
        # The worst-case weights themselves may lie a rounding above the limit.
        return np.where(s <= (1.0 + 1e-12) / self.level, 0.0, math.inf)


@dataclass(frozen=True)
class CressieRead(Divergence):
    """φ(s) = (sᵏ − k s + k − 1) / (k (k − 1)).

    k = 2 is half of χ², k = 1 is KL, k = ½ is four times the squared Hellinger distance and
    k = 0 is reverse KL; the larger k, the more evenly the worst case spreads.
    """

    k: float = 2.0
    name: ClassVar[str] = "cressie-read"

    def __post_init__(self) -> None:
        if not _is_number(self.k) or not abs(self.k) <= 100.0:
            raise ValueError(
                f"The 'k' parameter of CressieRead must be a number from -100 to 100. "
                f"Got {self.k!r} instead."
            )

    @property
    def family(self) -> str:  # type: ignore[override]
        return {0.0: "reverse-kl", 1.0: "kl"}.get(self.k, "cressie-read")

    @property
    def phi_zero(self) -> float:  # type: ignore[override]
        return 1.0 / self.k if self.k > 0.0 else math.inf

    @property
    def slope_infinity(self) -> float:  # type: ignore[override]
        return 1.0 / (1.0 - self.k) if self.k < 1.0 else math.inf

    def _parameter(self) -> float:
        return float(self.k)

    def _origin(self) -> float:
        # Next to k = 1 the pole is far away, and would only cost digits.
        if self.family == "cressie-read" and abs(self.k - 1.0) < 0.5:
            return 0.0
        return 0.0 if self.k == 1.0 else 1.0 / (1.0 - self.k)

    def _phi(self, s: Array) -> Array:
        k, log = self.k, np.log(s)
        if k > 0.5:  # exact next to k = 1
            t = np.expm1((k - 1.0) * log) / (k - 1.0) if k != 1.0 else log
            return (1.0 - s + s * t) / k
        power = np.expm1(k * log) / k if k != 0.0 else log  # exact next to k = 0
        return (power - (s - 1.0)) / (k - 1.0)


class _Custom(Divergence):
    """The user's own φ, tried out."""

    family: ClassVar[str] = "custom"

    def __init__(
        self,
        phi: ArrayFunction,
        dphi: ArrayFunction,
        dphi_inverse: ArrayFunction,
        phi_zero: float | None,
        slope_infinity: float,
        strictly_convex: bool,
        name: str,
    ) -> None:
        self._arguments = (
            phi,
            dphi,
            dphi_inverse,
            phi_zero,
            slope_infinity,
            strictly_convex,
            name,
        )
        self.name = str(name)  # type: ignore[misc]
        self.strictly_convex = bool(strictly_convex)  # type: ignore[misc]
        self.slope_infinity = float(slope_infinity)  # type: ignore[misc]
        f, df = UserFunction("phi", phi), UserFunction("dphi", dphi)
        g = UserFunction("dphi_inverse", dphi_inverse)
        self._functions = (f, df, g)
        self.phi_zero = limit_at_zero(f, phi_zero)  # type: ignore[misc]
        try_out(f, df, g, self.phi_zero, self.slope_infinity, self.strictly_convex)
        self._slope_one = slope_at_one(f, df, self.strictly_convex)
        bend = (df.at(1.0 + 1e-4) - df.at(1.0 - 1e-4)) / 2e-4
        self.curvature = bend if 0.0 < bend < math.inf else 1.0  # type: ignore[misc]

    def _phi(self, s: Array) -> Array:
        return self._functions[0](s.ravel()).reshape(s.shape)

    @cached_property
    def core(self) -> _core.Divergence:
        slope_one = self._slope_one
        # Straight pieces are searched by bisection, which needs no pole.
        finite = self.strictly_convex and self.slope_infinity < math.inf
        return _core.Divergence(
            self.family,
            0.0,
            self.slope_infinity - slope_one if finite else 0.0,
            self.phi_zero + slope_one,
            self.curvature,
            not self.strictly_convex,
            (slope_one, *(function.core for function in self._functions)),
        )

    def __repr__(self) -> str:
        return f"Divergence.custom(name={self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Custom) and self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        check_picklable(*self._functions)
        return _Custom, self._arguments  # made anew on arrival


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


_BY_NAME: dict[str, Divergence] = {
    kind.name: kind()
    for kind in (ChiSquare, KL, ReverseKL, Hellinger, JensenShannon, TotalVariation, CVaR)
}


_ALSO_CALLED = {
    "tv": "'total-variation'",
    "js": "'jensen-shannon'",
    "chi-square": "'chi2'",
    "chi-squared": "'chi2'",
    "pearson": "'chi2'",
    "burg": "'reverse-kl'",
    "cressie-read": "CressieRead(k)",
}


NAMES = tuple(_BY_NAME)


def as_divergence(divergence: str | Divergence) -> Divergence:
    """A divergence from its name, or as it is."""
    if isinstance(divergence, Divergence):
        if not divergence.family:
            raise ValueError(
                f"The 'divergence' parameter must be a divergence that the solver knows; make "
                f"your own with Divergence.custom. Got {divergence!r} instead."
            )
        return divergence
    names = NAMES
    hint = ""
    if isinstance(divergence, str):
        if divergence in _BY_NAME:
            return _BY_NAME[divergence]
        plain = divergence.lower().replace("_", "-").replace(" ", "-")
        close = difflib.get_close_matches(plain, names, 1, 0.5)
        if plain in _ALSO_CALLED or close:
            hint = f" Did you mean {_ALSO_CALLED.get(plain) or repr(close[0])}?"
    elif isinstance(divergence, type) and issubclass(divergence, Divergence):
        hint = f" Did you mean {divergence.__name__}()?"
    listed = ", ".join(repr(name) for name in names)
    raise ValueError(
        f"The 'divergence' parameter must be one of {listed} or a Divergence object. "
        f"Got {divergence!r} instead.{hint}"
    )
