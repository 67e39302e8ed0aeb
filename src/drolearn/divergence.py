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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _kernels

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
    code: ClassVar[int] = -1
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
    def spec(self) -> _kernels.Spec:
        """The divergence as compiled code sees it."""
        return _kernels.Spec(
            code=self.code,
            straight=int(not self.strictly_convex),
            k=self._parameter(),
            origin=self._origin(),
            phi_zero=float(self.phi_zero),
            curvature=float(self.curvature),
            slope_one=0.0,
            phi=0,
            dphi=0,
            inverse=0,
        )

    def _parameter(self) -> float:
        return 0.0

    def _origin(self) -> float:
        """Where the tilt is measured from: the slope at infinity, if φ has one."""
        return 0.0 if self.slope_infinity == math.inf else float(self.slope_infinity)

    @staticmethod
    def custom(
        phi: Callable[[float], float],
        dphi: Callable[[float], float],
        dphi_inverse: Callable[[float], float],
        *,
        phi_zero: float | None = None,
        slope_infinity: float = math.inf,
        strictly_convex: bool = True,
        name: str = "custom",
    ) -> Divergence:
        """Your own φ from three plain Python functions of a float.

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

        The functions are compiled once, when the divergence is made, and may use `math` and
        numpy's scalar functions.  They are then tried out; what is not convex, not finite, or
        does not fit together, is refused with the point where it fails.  To pickle the
        divergence, give functions that can be pickled (not lambdas).

        Examples
        --------
        >>> from math import exp, log
        >>> from drolearn import Divergence, worst_case
        >>> kl = Divergence.custom(lambda s: s * log(s) - s + 1, lambda s: log(s),
        ...                        lambda t: exp(t), phi_zero=1.0, name="my-kl")
        >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=kl).value, 6)
        2.993432
        """
        return _Custom(phi, dphi, dphi_inverse, phi_zero, slope_infinity, strictly_convex, name)


@dataclass(frozen=True)
class ChiSquare(Divergence):
    """φ(s) = (s − 1)²."""

    name: ClassVar[str] = "chi2"
    code: ClassVar[int] = _kernels.CHI2
    phi_zero: ClassVar[Any] = 1.0
    curvature: ClassVar[Any] = 2.0

    def _phi(self, s: Array) -> Array:
        return (s - 1.0) ** 2


@dataclass(frozen=True)
class KL(Divergence):
    """φ(s) = s log s − s + 1."""

    name: ClassVar[str] = "kl"
    code: ClassVar[int] = _kernels.KL
    phi_zero: ClassVar[Any] = 1.0

    def _phi(self, s: Array) -> Array:
        return s * np.log(s) - s + 1.0


@dataclass(frozen=True)
class ReverseKL(Divergence):
    """φ(s) = −log s + s − 1: no row ever loses all its mass."""

    name: ClassVar[str] = "reverse-kl"
    code: ClassVar[int] = _kernels.REVERSE_KL
    phi_zero: ClassVar[Any] = math.inf
    slope_infinity: ClassVar[Any] = 1.0

    def _phi(self, s: Array) -> Array:
        return s - 1.0 - np.log(s)


@dataclass(frozen=True)
class Hellinger(Divergence):
    """φ(s) = ½ (√s − 1)²."""

    name: ClassVar[str] = "hellinger"
    code: ClassVar[int] = _kernels.HELLINGER
    phi_zero: ClassVar[Any] = 0.5
    slope_infinity: ClassVar[Any] = 0.5
    curvature: ClassVar[Any] = 0.25

    def _phi(self, s: Array) -> Array:
        return 0.5 * (np.sqrt(s) - 1.0) ** 2


@dataclass(frozen=True)
class JensenShannon(Divergence):
    """φ(s) = ½ (s log s − (1 + s) log((1 + s)/2))."""

    name: ClassVar[str] = "jensen-shannon"
    code: ClassVar[int] = _kernels.JENSEN_SHANNON
    phi_zero: ClassVar[Any] = 0.5 * math.log(2.0)
    slope_infinity: ClassVar[Any] = 0.5 * math.log(2.0)
    curvature: ClassVar[Any] = 0.25

    def _phi(self, s: Array) -> Array:
        return 0.5 * (s * np.log(s) - (1.0 + s) * np.log(0.5 * (1.0 + s)))


@dataclass(frozen=True)
class TotalVariation(Divergence):
    """φ(s) = ½ |s − 1|: mass ρ moves from the smallest losses to the largest."""

    name: ClassVar[str] = "total-variation"
    code: ClassVar[int] = _kernels.TOTAL_VARIATION
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
    code: ClassVar[int] = _kernels.CVAR
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
    def code(self) -> int:  # type: ignore[override]
        return {0.0: _kernels.REVERSE_KL, 1.0: _kernels.KL}.get(self.k, _kernels.CRESSIE_READ)

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
        if self.code == _kernels.CRESSIE_READ and abs(self.k - 1.0) < 0.5:
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
    """The user's own φ, compiled and tried out."""

    code: ClassVar[int] = _kernels.CUSTOM

    def __init__(
        self,
        phi: Callable[[float], float],
        dphi: Callable[[float], float],
        dphi_inverse: Callable[[float], float],
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
        self._f = _compiled("phi", phi)
        self._df = _compiled("dphi", dphi)
        self._g = _compiled("dphi_inverse", dphi_inverse)
        f, df, g = self._f.ctypes, self._df.ctypes, self._g.ctypes
        self.phi_zero = _limit_at_zero(f, phi_zero)  # type: ignore[misc]
        _try_out(f, df, g, self.phi_zero, self.slope_infinity, self.strictly_convex)
        # s − 1 times any number may be added to φ without changing D: take φ'(1) = 0, or where
        # φ has a corner at one, a slope in the middle of it.
        corner = 0.5 * (df(1.0 - 2.0**-30) + df(1.0 + 2.0**-30))
        self._slope_one = df(1.0) if self.strictly_convex else corner
        for s in (0.95, 1.05):
            if not f(s) - self._slope_one * (s - 1.0) > 1e-12:
                raise ValueError(
                    f"phi must be curved, or have a corner, at 1, so that only equal weights have "
                    f"divergence 0. It is straight from 1 to {s}."
                )
        bend = (df(1.0 + 1e-4) - df(1.0 - 1e-4)) / 2e-4
        self.curvature = bend if 0.0 < bend < math.inf else 1.0  # type: ignore[misc]

    def _phi(self, s: Array) -> Array:
        f = self._f.ctypes
        return np.array([f(x) for x in s.ravel()], dtype=np.float64).reshape(s.shape)

    @cached_property
    def spec(self) -> _kernels.Spec:
        slope_one = self._slope_one
        # Straight pieces are searched by bisection, which needs no pole.
        finite = self.strictly_convex and self.slope_infinity < math.inf
        return _kernels.Spec(
            code=self.code,
            straight=int(not self.strictly_convex),
            k=0.0,
            origin=self.slope_infinity - slope_one if finite else 0.0,
            phi_zero=self.phi_zero + slope_one,
            curvature=self.curvature,
            slope_one=slope_one,
            phi=self._f.address,
            dphi=self._df.address,
            inverse=self._g.address,
        )

    def __repr__(self) -> str:
        return f"Divergence.custom(name={self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Custom) and self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Custom, self._arguments  # addresses do not travel: compiled anew on arrival


def _compiled(parameter: str, function: Callable[[float], float]) -> Any:
    """The function as a C function of one double."""
    from numba import cfunc
    from numba.core.errors import NumbaError

    try:
        return cfunc("float64(float64)", error_model="numpy")(function)
    except (NumbaError, TypeError, ValueError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reasons = [line for line in lines if not line.startswith("Failed in nopython")]
        reason = reasons[0] if reasons else type(error).__name__
        raise ValueError(
            f"The '{parameter}' parameter must be a Python function of one float, such as "
            f"lambda s: math.log(s), that uses only arithmetic, math and numpy's scalar "
            f"functions. Got {function!r}, which cannot be compiled: {reason}"
        ) from error


def _limit_at_zero(f: Callable[[float], float], given: float | None) -> float:
    """φ(0), as given or as φ itself says."""
    at_zero, close = f(0.0), f(1e-300)
    if given is None:
        if math.isnan(at_zero):
            raise ValueError(
                "phi(0.0) is nan, so 'phi_zero', the limit of phi at zero, must be given; "
                "it may be math.inf."
            )
        return at_zero
    limit = float(given)
    fits = close > 10.0 if limit == math.inf else abs(limit - close) <= 0.05 * (1.0 + abs(close))
    if not fits:
        raise ValueError(
            f"The 'phi_zero' parameter must be the limit of phi at zero. Got {given!r}, but "
            f"phi(1e-300) is {close:.6g}."
        )
    return limit


def _try_out(
    f: Callable[[float], float],
    df: Callable[[float], float],
    g: Callable[[float], float],
    phi_zero: float,
    slope_infinity: float,
    strictly_convex: bool,
) -> None:
    """Refuse a φ that is not convex, is not zero at one, or does not fit its derivative."""
    if not abs(f(1.0)) <= 1e-12:
        raise ValueError(f"phi(1) must be 0. Got phi(1) = {f(1.0)!r} instead.")
    grid = np.exp(np.linspace(-9.0, 9.0, 361))
    values, slopes = (np.array([function(s) for s in grid]) for function in (f, df))
    for name, found in (("phi", values), ("dphi", slopes)):
        if not np.isfinite(found).all():
            s = grid[~np.isfinite(found)][0]
            raise ValueError(
                f"{name} must be finite for every s > 0. It is {found[~np.isfinite(found)][0]} "
                f"at s = {s:.6g}; for a limit on the weights themselves, use CVaR."
            )
    for i in range(1, grid.size - 1):
        s, size = grid[i], 1e-9 * (1.0 + abs(values[i - 1 : i + 2]).max())
        before = (values[i] - values[i - 1]) / (s - grid[i - 1])
        after = (values[i + 1] - values[i]) / (grid[i + 1] - s)
        slack = size / (s - grid[i - 1])
        if before > after + slack:
            raise ValueError(
                f"phi must be convex. It is not at s = {s:.6g}, where its slope falls from "
                f"{before:.6g} to {after:.6g}."
            )
        if not before - slack <= slopes[i] <= after + slack:
            raise ValueError(
                f"dphi must be the derivative of phi. At s = {s:.6g} it is {slopes[i]:.6g}, "
                f"but the slope of phi lies between {before:.6g} and {after:.6g}."
            )
        if strictly_convex and abs(max(g(slopes[i]), 0.0) - s) > 1e-6 * s:
            raise ValueError(
                f"dphi_inverse must undo dphi. At s = {s:.6g}, dphi is {slopes[i]:.6g}, but "
                f"dphi_inverse({slopes[i]:.6g}) is {g(slopes[i]):.6g}; if phi has straight "
                f"pieces, pass strictly_convex=False."
            )
    far = df(1e100)
    if slope_infinity < math.inf and not abs(far - slope_infinity) <= 0.05 * (1.0 + abs(far)):
        raise ValueError(
            f"The 'slope_infinity' parameter must be the limit of dphi. Got {slope_infinity!r}, "
            f"but dphi(1e100) is {far:.6g}."
        )
    # Duality rests on this one: the inverse minimises φ(s) − t s, also between the slopes of
    # the grid and beyond them.
    points, heights = np.append(0.0, grid), np.append(phi_zero, values)
    step = 0.1 * (1.0 + slopes[-1] - slopes[0])
    between = 0.5 * (slopes[1:] + slopes[:-1])
    for t in [slopes[0] - step, *between[::4], slopes[-1] + step]:
        s = min(max(g(t), 0.0), float(grid[-1]))
        height = phi_zero if s == 0.0 else f(s)
        best = heights - t * points
        if height - t * s > best.min() + 1e-7 * (1.0 + abs(t) * s + abs(height)):
            raise ValueError(
                f"dphi_inverse(t) must be the s that minimises phi(s) - t*s. At t = {t:.6g} it "
                f"is {g(t):.6g}, but s = {points[best.argmin()]:.6g} is better."
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


_BY_NAME: dict[str, Callable[[], Divergence]] = {
    kind.name: kind
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


def as_divergence(divergence: str | Divergence) -> Divergence:
    """A divergence from its name, or as it is."""
    if isinstance(divergence, Divergence):
        if divergence.code < 0:
            raise ValueError(
                f"The 'divergence' parameter must be a divergence that the solver knows; make "
                f"your own with Divergence.custom. Got {divergence!r} instead."
            )
        return divergence
    names = list(_BY_NAME)
    hint = ""
    if isinstance(divergence, str):
        if divergence in _BY_NAME:
            return _BY_NAME[divergence]()
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
