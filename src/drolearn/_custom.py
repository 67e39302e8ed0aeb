"""Users' functions for a custom φ or a custom loss, and the checks of them.

A function takes an array of numbers and returns an array of the same length, as NumPy's functions
do.  A :class:`scipy.LowLevelCallable` of the signature ``double (double)`` is accepted too and runs
at compiled speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._validation import as_number

Array = NDArray[np.float64]
ArrayFunction = Callable[[Array], ArrayLike]

_SIGNATURES = ("double (double)", "double (double, void *)")
# Every function is called with these numbers first: φ and losses are finite there.
_PROBE = np.array([0.5, 1.0, 2.0])
# Gauss' rule with three points on [0, 1].
_GAUSS_POINTS = np.array([0.5 - math.sqrt(0.15), 0.5, 0.5 + math.sqrt(0.15)])
_GAUSS_WEIGHTS = np.array([5.0, 8.0, 5.0]) / 18.0


class UserFunction:
    """A user's function, with checks of what it returns.

    `core` is what the core calls: a function of arrays that it may overwrite, or the capsule of a
    compiled function.
    """

    def __init__(self, parameter: str, source: Any) -> None:
        self.parameter, self.source = parameter, source
        self.core: Any = self._evaluate
        self.compiled = False
        signature = getattr(source, "signature", None)
        if isinstance(source, tuple) and signature is not None:  # a LowLevelCallable
            if signature not in _SIGNATURES:
                raise ValueError(
                    f"The '{parameter}' parameter must have the signature 'double (double)' if it "
                    f"is a LowLevelCallable. Got {signature!r} instead."
                )
            self.core, self.compiled = tuple.__getitem__(source, 0), True
            self._function = _from_c(getattr(source, "function"))  # noqa: B009
        elif callable(source):
            self._function = source
        else:
            raise ValueError(
                f"The '{parameter}' parameter must be a function of an array, such as "
                f"lambda s: np.log(s), or a scipy.LowLevelCallable. Got {source!r} instead."
            )
        self._try()

    def __call__(self, x: Array) -> Array:
        """The values at x; the function gets a copy of x."""
        return self._evaluate(x.copy())

    def _evaluate(self, x: Array) -> Array:
        """The values at x as a contiguous float64 array of the same length."""
        with np.errstate(all="ignore"):
            result = self._function(x)
            try:
                values = np.asarray(result)
                if values.dtype.kind == "c":
                    raise TypeError("complex numbers")
                values = values.astype(np.float64, copy=False)
                if values.shape != x.shape:
                    values = np.broadcast_to(values, x.shape)  # a constant may be one number
            except (TypeError, ValueError):
                raise ValueError(
                    f"The '{self.parameter}' parameter must return one number for each number it "
                    f"is given. Got {type(result).__name__} for an array of {x.size} numbers "
                    f"instead."
                ) from None
        return np.ascontiguousarray(values)

    def at(self, x: float) -> float:
        """The value at one number."""
        return float(self(np.array([float(x)]))[0])

    def _try(self) -> None:
        """Reject functions of single numbers; other exceptions are passed on."""
        try:
            self(_PROBE)
        except (TypeError, ValueError) as error:
            try:
                float(self._function(1.0))  # type: ignore[arg-type]
            except Exception:
                raise error from None
            raise ValueError(
                f"The '{self.parameter}' parameter must be a function of an array. Got "
                f"{self.source!r}, which takes single numbers only: write np.log(s) instead of "
                f"math.log(s), and np.where(s < 1, a, b) instead of a if s < 1 else b."
            ) from error


def _from_c(function: Any) -> ArrayFunction:
    """A compiled function of one number as a function of arrays, for the checks."""
    import ctypes

    if type(function).__name__ == "PyCapsule":  # from Cython
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        name = ctypes.pythonapi.PyCapsule_GetName
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        signature = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
        function = signature(get(function, name(function)))
    return lambda x: [function(float(v)) for v in x]


def check_picklable(*functions: UserFunction) -> None:
    """Raise an error for compiled functions, which cannot be pickled.

    Python functions are left to the pickler: pickle takes those of a module, cloudpickle all.
    """
    import pickle

    for function in functions:
        if function.compiled:
            raise pickle.PicklingError(
                f"The '{function.parameter}' function {function.source!r} cannot be pickled: it is "
                f"compiled code of this process. Pass a function of arrays from a module instead."
            )


def limit_at_zero(f: UserFunction, phi_zero: float | None) -> float:
    """φ(0): the given value, checked against φ, or φ(0.0)."""
    at_zero, close = f.at(0.0), f.at(1e-300)
    if phi_zero is None:
        if math.isnan(at_zero):
            raise ValueError(
                "phi(0.0) is nan, so 'phi_zero', the limit of phi at zero, must be given; "
                "it may be math.inf."
            )
        return at_zero
    limit = as_number("phi_zero", phi_zero)
    fits = close > 10.0 if limit == math.inf else abs(limit - close) <= 0.05 * (1.0 + abs(close))
    if not fits:
        raise ValueError(
            f"The 'phi_zero' parameter must be the limit of phi at zero. Got {phi_zero!r}, but "
            f"phi(1e-300) is {close:.6g}."
        )
    return limit


def check_phi(
    f: UserFunction,
    df: UserFunction,
    g: UserFunction,
    phi_zero: float,
    slope_infinity: float,
    strictly_convex: bool,
) -> None:
    """Reject a φ that is not convex or not zero at one, and functions that do not fit together."""
    if not abs(f.at(1.0)) <= 1e-12:
        raise ValueError(f"phi(1) must be 0. Got phi(1) = {f.at(1.0)!r} instead.")
    grid = np.exp(np.linspace(-9.0, 9.0, 361))
    values, slopes = f(grid), df(grid)
    for name, numbers in (("phi", values), ("dphi", slopes)):
        if not np.isfinite(numbers).all():
            s, wrong = grid[~np.isfinite(numbers)][0], numbers[~np.isfinite(numbers)][0]
            raise ValueError(
                f"{name} must be finite for every s > 0. It is {wrong} at s = {s:.6g}; for a "
                f"limit on the weights themselves, use CVaR."
            )
    with np.errstate(all="ignore"):
        _check_slopes(grid, values, slopes, g(slopes) if strictly_convex else None)
    far = df.at(1e100)
    if slope_infinity < math.inf and not abs(far - slope_infinity) <= 0.05 * (1.0 + abs(far)):
        raise ValueError(
            f"The 'slope_infinity' parameter must be the limit of dphi. Got {slope_infinity!r}, "
            f"but dphi(1e100) is {far:.6g}."
        )
    with np.errstate(all="ignore"):
        _check_inverse(f, g, np.append(0.0, grid), np.append(phi_zero, values), slopes)


def _check_slopes(grid: Array, values: Array, slopes: Array, inverses: Array | None) -> None:
    """Check convexity, that dphi is the derivative of phi, and that dphi_inverse inverts dphi."""
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
        if inverses is not None and not abs(max(inverses[i], 0.0) - s) <= 1e-6 * s:
            raise ValueError(
                f"dphi_inverse must undo dphi. At s = {s:.6g}, dphi is {slopes[i]:.6g}, but "
                f"dphi_inverse({slopes[i]:.6g}) is {inverses[i]:.6g}; if phi has straight "
                f"pieces, pass strictly_convex=False."
            )


def _check_inverse(
    f: UserFunction, g: UserFunction, points: Array, heights: Array, slopes: Array
) -> None:
    """Check that dphi_inverse(t) minimises φ(s) − t s, also between and beyond the slopes.

    Dual values are upper bounds only if it does.
    """
    step = 0.1 * (1.0 + slopes[-1] - slopes[0])
    between = 0.5 * (slopes[1:] + slopes[:-1])
    for t in [slopes[0] - step, *between[::4], slopes[-1] + step]:
        s = min(max(g.at(t), 0.0), float(points[-1]))
        height = heights[0] if s == 0.0 else f.at(s)
        best = heights - t * points
        if height - t * s > best.min() + 1e-7 * (1.0 + abs(t) * s + abs(height)):
            raise ValueError(
                f"dphi_inverse(t) must be the s that minimises phi(s) - t*s. At t = {t:.6g} it "
                f"is {g.at(t):.6g}, but s = {points[best.argmin()]:.6g} is better."
            )


def slope_at_one(f: UserFunction, df: UserFunction, strictly_convex: bool) -> float:
    """φ'(1); if φ has a corner at 1, the mean of the slopes on both sides.

    Adding a multiple of s − 1 to φ does not change D, so solvers subtract this slope.  A φ that is
    linear around 1 is rejected: then more than one P would have D = 0.
    """
    slope = df.at(1.0)
    if not strictly_convex:
        slope = 0.5 * (df.at(1.0 - 2.0**-30) + df.at(1.0 + 2.0**-30))
    for s in (0.95, 1.05):
        if not f.at(s) - slope * (s - 1.0) > 1e-12:
            raise ValueError(
                f"phi must be curved, or have a corner, at 1, so that only equal weights have "
                f"divergence 0. It is straight from 1 to {s}."
            )
    return slope


def phi_near_one(df: UserFunction, slope: float, excess: Array) -> Array:
    """φ(s) − φ'(1)(s − 1) for small s − 1 = `excess`, as the integral of φ'(v) − φ'(1).

    φ itself has lost its digits there: it is about (s − 1)².
    """
    exact = excess[:, None] * _GAUSS_POINTS
    v = 1.0 + exact
    rounded = v - 1.0
    slopes = df(v.ravel()).reshape(v.shape) - slope
    # φ'(v) − φ'(1) is almost proportional to v − 1: correct it for the rounding of v.
    ratio = np.divide(exact, rounded, out=np.zeros_like(exact), where=rounded != 0.0)
    return excess * ((slopes * ratio) @ _GAUSS_WEIGHTS)
