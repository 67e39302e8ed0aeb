"""The base class of divergences, and divergences with a user's φ."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._custom import (
    ArrayFunction,
    UserFunction,
    check_phi,
    check_picklable,
    limit_at_zero,
    phi_near_one,
    slope_at_one,
)
from drolearn._validation import as_number, as_reals, as_vector, float_or_nan

__all__ = ["CustomDivergence", "Divergence"]

Array = NDArray[np.float64]


class Divergence:
    """A φ-divergence D(P, B) = Σ b φ(p/b) with a convex φ, φ(1) = 0.

    This is the base class.  Use one of its subclasses, such as :class:`ChiSquare` or
    :class:`KL`, or define a φ with :meth:`custom`.

    Attributes
    ----------
    name : str
        The name of the divergence, as in ``worst_case(losses, divergence=name)``.
    phi_zero : float
        φ(0), the cost per base weight of removing all mass; may be infinite.
    slope_infinity : float
        The limit of φ(s)/s, the cost of adding mass where the base weight is small; may be
        infinite.
    strictly_convex : bool
        Whether φ is strictly convex.  Then the worst-case weights are unique.
    curvature : float
        φ''(1).  For small radii the ball is an ellipsoid, and φ''(1) sets its size.
    has_radius : bool
        Whether balls have a radius.  CVaR and spectral risks have none.

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
    family: ClassVar[str] = ""  # the name in the core
    phi_zero: ClassVar[Any] = math.nan
    slope_infinity: ClassVar[Any] = math.inf
    strictly_convex: ClassVar[Any] = True
    curvature: ClassVar[Any] = 1.0
    has_radius: ClassVar[bool] = True

    def phi(self, s: ArrayLike) -> Array:
        """Evaluate φ element by element.

        Parameters
        ----------
        s : array-like of float
            Ratios s = p/b, of any shape.

        Returns
        -------
        ndarray of float64
            The values φ(s), of the shape of `s`.  They are infinite for s < 0, and accurate
            relative to φ(s) next to s = 1.

        Examples
        --------
        >>> from drolearn import KL
        >>> KL().phi([0.0, 1.0, 2.0]).round(3)
        array([1.   , 0.   , 0.386])
        """
        s = as_reals("s", s)
        regular = ~((s <= 0.0) | (s == math.inf))
        with np.errstate(all="ignore"):
            safe = np.where(regular, s, 1.0)
            limits = np.where(s == 0.0, self.phi_zero, self._limit() * (s > 0.0))
            limits = np.where(s < 0.0, math.inf, limits)
            return np.where(regular, self._phi(safe, safe - 1.0), limits)

    def _phi(self, s: Array, t: Array) -> Array:
        """φ(s) for 0 < s < ∞, with t = s − 1 given accurately."""
        raise NotImplementedError(
            f"{type(self).__name__} has no phi: use a divergence such as KL(), or Divergence.custom"
        )

    def _limit(self) -> float:
        """φ(∞)."""
        return math.inf

    def between(self, p: ArrayLike, base: ArrayLike) -> float:
        """Compute the divergence D(P, B) = Σ b φ(p/b).

        Parameters
        ----------
        p : array-like of shape (n,)
            Weights p, which sum to one.
        base : array-like of shape (n,)
            Base weights b ≥ 0, which sum to one.

        Returns
        -------
        float
            The divergence.  It is infinite if a row with b = 0 has p > 0, or if p < 0 somewhere.
            The relative error is small also where p is next to b.

        Raises
        ------
        ValueError
            If the vectors are empty, differ in length, hold values that are not finite, or if a
            base weight is negative.

        Examples
        --------
        >>> from drolearn import KL, TotalVariation
        >>> round(KL().between([0.5, 0.5], [0.25, 0.75]), 6)
        0.143841
        >>> TotalVariation().between([0.5, 0.5], [0.25, 0.75])
        0.25
        """
        p, base = as_vector("p", p), as_vector("base", base)
        if p.size == 0 or p.shape != base.shape:
            raise ValueError(
                f"'p' and 'base' must be vectors of one length, with at least one number. "
                f"Got shapes {p.shape} and {base.shape} instead."
            )
        for parameter, values in (("p", p), ("base", base)):
            if not np.isfinite(values).all():
                raise ValueError(
                    f"The '{parameter}' parameter must hold finite numbers. "
                    f"Got {values[~np.isfinite(values)][0]} instead."
                )
        if base.min() < 0.0:
            raise ValueError(
                f"The 'base' parameter must hold weights of at least 0. Got {base.min()} instead."
            )
        if p.min() < 0.0 or np.any(p[base == 0.0] > 0.0):
            return math.inf
        return float(np.sum(self._terms(p[base > 0.0], base[base > 0.0])))

    def _terms(self, p: Array, base: Array) -> Array:
        """b φ(p/b) for p ≥ 0 and b > 0, accurate where p is next to b."""
        with np.errstate(all="ignore"):
            s, t = p / base, (p - base) / base
            regular = (s > 0.0) & (s < math.inf)
            phi = self._centred_phi(np.where(regular, s, 1.0), np.where(regular, t, 0.0))
            phi = np.where(s == 0.0, self._centred_zero(), phi)
            overflow = (s > 1.0) & (np.isinf(s) | np.isinf(phi))
            return np.where(overflow, self._far(p, base), base * phi)

    def _centred_phi(self, s: Array, t: Array) -> Array:
        """φ(s) − φ'(1)(s − 1), whose sum is the same as that of φ(s)."""
        return self._phi(s, t)

    def _centred_zero(self) -> float:
        """φ(0) + φ'(1)."""
        return float(self.phi_zero)

    def _far(self, p: Array, base: Array) -> Array:
        """The limit of b φ(p/b) for large p/b, where p/b or φ overflows."""
        return self.slope_infinity * p

    def maximum(self, peak: float) -> float:
        """Compute the divergence of all mass on rows of base weight `peak`.

        This is the largest divergence that a worst case can have if the largest loss has the base
        weight `peak`: a ball of at least this radius puts all mass on the largest loss.

        Parameters
        ----------
        peak : float
            Total base weight of the rows with the largest loss, above 0 and at most 1.

        Returns
        -------
        float
            The divergence; infinite if φ(0) is infinite and `peak` is below 1.

        Raises
        ------
        ValueError
            If `peak` is not above 0 and at most 1.

        Examples
        --------
        >>> from drolearn import ChiSquare
        >>> ChiSquare().maximum(0.25)
        3.0
        """
        mass = float_or_nan(peak)
        if not 0.0 < mass <= 1.0:
            raise ValueError(
                f"The 'peak' parameter must lie above 0 and be at most 1. Got {peak!r} instead."
            )
        if mass == 1.0:
            return 0.0
        if self.phi_zero == math.inf:
            return math.inf
        top = self._terms(np.array([1.0]), np.array([mass]))
        return float(top[0] + (1.0 - mass) * self._centred_zero())

    @cached_property
    def core(self) -> _core.Divergence:
        """The divergence for the compiled core."""
        return _core.Divergence(
            self.family,
            self._parameter(),
            self._origin(),
            float(self.phi_zero),
            float(self.curvature),
            not self.strictly_convex,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all attributes but `core`, which is created again when needed."""
        return {key: value for key, value in self.__dict__.items() if key != "core"}

    def _parameter(self) -> float:
        return 0.0

    def _origin(self) -> float:
        """The core stores t = φ'(s) relative to this: the slope at infinity if it is finite."""
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
        """Define a divergence by three functions of arrays.

        The functions take an array of numbers and return as many, as NumPy's functions do: write
        ``np.log(s)``, not ``math.log(s)``.  A :class:`scipy.LowLevelCallable` of the signature
        ``double (double)``, from Cython, ctypes or numba's cfunc, runs at compiled speed.

        The functions are checked on a grid.  To pickle the divergence, pass functions that can be
        pickled (not lambdas).

        Parameters
        ----------
        phi : callable
            The function φ for s > 0.  It must be convex with φ(1) = 0.
        dphi : callable
            The derivative of φ for s > 0.
        dphi_inverse : callable
            The s ≥ 0 that minimises φ(s) − t s, for every t: where dphi(s) = t if there is
            such an s, else zero below the range of dphi, and infinity (or any very large
            number) above it.  If φ has straight pieces, any of the minimisers.
        phi_zero : float, default=None
            The limit of φ at zero, if ``phi(0.0)`` is NaN; may be infinite.
        slope_infinity : float, default=inf
            The limit of dphi(s) for large s, if it is finite; the search is then faster.
        strictly_convex : bool, default=True
            Pass False if φ has straight pieces.  The search is then a nested bisection, hundreds
            of times slower.
        name : str, default="custom"
            The name of the divergence.

        Returns
        -------
        Divergence
            The divergence, for use wherever a divergence is accepted.

        Raises
        ------
        ValueError
            If φ is not convex or not finite, or if the functions do not fit together; the message
            names a point where the check fails.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import Divergence, worst_case
        >>> kl = Divergence.custom(lambda s: s * np.log(s) - s + 1, np.log, np.exp, phi_zero=1.0,
        ...                        name="my-kl")
        >>> round(worst_case([0.0, 1.0, 5.0], rho=0.1, divergence=kl).value, 6)
        2.993432
        """
        return CustomDivergence(
            phi, dphi, dphi_inverse, phi_zero, slope_infinity, strictly_convex, name
        )


class CustomDivergence(Divergence):
    """A divergence with the user's φ, see `Divergence.custom`."""

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
        self.slope_infinity = as_number("slope_infinity", slope_infinity)  # type: ignore[misc]
        f, df = UserFunction("phi", phi), UserFunction("dphi", dphi)
        g = UserFunction("dphi_inverse", dphi_inverse)
        self._functions = (f, df, g)
        self.phi_zero = limit_at_zero(f, phi_zero)  # type: ignore[misc]
        check_phi(f, df, g, self.phi_zero, self.slope_infinity, self.strictly_convex)
        self._slope_one = slope_at_one(f, df, self.strictly_convex)
        curvature = (df.at(1.0 + 1e-4) - df.at(1.0 - 1e-4)) / 2e-4
        self.curvature = curvature if 0.0 < curvature < math.inf else 1.0  # type: ignore[misc]

    def _phi(self, s: Array, t: Array) -> Array:
        return self._functions[0](s.ravel()).reshape(s.shape)

    def _limit(self) -> float:
        slope = self._functions[1].at(1e100)
        return math.copysign(math.inf, slope) if slope != 0.0 else self._functions[0].at(math.inf)

    def _centred_phi(self, s: Array, t: Array) -> Array:
        phi = self._phi(s, t) - self._slope_one * t
        near = np.abs(t) <= 1e-3
        if self.strictly_convex and near.any():
            phi[near] = phi_near_one(self._functions[1], self._slope_one, t[near])
        return phi

    def _centred_zero(self) -> float:
        return self.phi_zero + self._slope_one

    def _far(self, p: Array, base: Array) -> Array:
        return (self.slope_infinity - self._slope_one) * p

    @cached_property
    def core(self) -> _core.Divergence:
        slope_one = self._slope_one
        # Nested bisection, for straight pieces, does not use the slope at infinity.
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
        return isinstance(other, CustomDivergence) and self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        check_picklable(*self._functions)
        return CustomDivergence, self._arguments
