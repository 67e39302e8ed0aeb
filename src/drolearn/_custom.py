"""Functions of the user: a φ or a loss of one's own, checked before anything rests on it.

A function takes an array of numbers and returns as many, as NumPy's functions do.  A
:class:`scipy.LowLevelCallable` of the signature ``double (double)`` is taken too and runs at
compiled speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
ArrayFunction = Callable[[Array], ArrayLike]

_SIGNATURES = ("double (double)", "double (double, void *)")
# What every function is tried with: numbers around one, where φ and losses are finite.
_PROBE = np.array([0.5, 1.0, 2.0])


class UserFunction:
    """A function of the user as NumPy and the core call it.

    `core` is what the core takes: a function of arrays that it may write to, or the capsule of a
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
        """The function's values at numbers that it cannot change."""
        return self._evaluate(x.copy())

    def _evaluate(self, x: Array) -> Array:
        """The function's values as a contiguous float64 array of the same length."""
        with np.errstate(all="ignore"):
            values = self._function(x)
        try:
            found = np.asarray(values, dtype=np.float64)
            if found.shape != x.shape:
                found = np.broadcast_to(found, x.shape)  # a constant may be one number
        except (TypeError, ValueError):
            raise ValueError(
                f"The '{self.parameter}' parameter must return one number for each number it is "
                f"given. Got {type(values).__name__} for an array of {x.size} numbers instead."
            ) from None
        return np.ascontiguousarray(found)

    def at(self, x: float) -> float:
        """The value at one number."""
        return float(self(np.array([float(x)]))[0])

    def _try(self) -> None:
        """Refuse functions of single numbers; let other exceptions pass."""
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
    """A compiled function of one number as a function of arrays, for checks in Python."""
    import ctypes

    if type(function).__name__ == "PyCapsule":  # Cython's
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        name = ctypes.pythonapi.PyCapsule_GetName
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
        function = kind(get(function, name(function)))
    return lambda x: [function(float(v)) for v in x]


def check_picklable(*functions: UserFunction) -> None:
    """Raise an error that names a function which cannot leave this process.

    Python functions are left to the pickler: pickle takes those of a module, cloudpickle all.
    """
    import pickle

    for function in functions:
        if function.compiled:
            raise pickle.PicklingError(
                f"The '{function.parameter}' function {function.source!r} cannot be pickled: it is "
                f"compiled code of this process. Give a function of arrays of a module instead."
            )


def limit_at_zero(f: UserFunction, given: float | None) -> float:
    """φ(0), as given or as φ itself says."""
    at_zero, close = f.at(0.0), f.at(1e-300)
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


def try_out(
    f: UserFunction,
    df: UserFunction,
    g: UserFunction,
    phi_zero: float,
    slope_infinity: float,
    strictly_convex: bool,
) -> None:
    """Refuse a φ that is not convex, is not zero at one, or does not fit its derivative."""
    if not abs(f.at(1.0)) <= 1e-12:
        raise ValueError(f"phi(1) must be 0. Got phi(1) = {f.at(1.0)!r} instead.")
    grid = np.exp(np.linspace(-9.0, 9.0, 361))
    values, slopes = f(grid), df(grid)
    for name, found in (("phi", values), ("dphi", slopes)):
        if not np.isfinite(found).all():
            s = grid[~np.isfinite(found)][0]
            raise ValueError(
                f"{name} must be finite for every s > 0. It is {found[~np.isfinite(found)][0]} "
                f"at s = {s:.6g}; for a limit on the weights themselves, use CVaR."
            )
    inverses = g(slopes)
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
        if strictly_convex and not abs(max(inverses[i], 0.0) - s) <= 1e-6 * s:
            raise ValueError(
                f"dphi_inverse must undo dphi. At s = {s:.6g}, dphi is {slopes[i]:.6g}, but "
                f"dphi_inverse({slopes[i]:.6g}) is {inverses[i]:.6g}; if phi has straight "
                f"pieces, pass strictly_convex=False."
            )
    far = df.at(1e100)
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
        s = min(max(g.at(t), 0.0), float(grid[-1]))
        height = phi_zero if s == 0.0 else f.at(s)
        best = heights - t * points
        if height - t * s > best.min() + 1e-7 * (1.0 + abs(t) * s + abs(height)):
            raise ValueError(
                f"dphi_inverse(t) must be the s that minimises phi(s) - t*s. At t = {t:.6g} it "
                f"is {g.at(t):.6g}, but s = {points[best.argmin()]:.6g} is better."
            )


def slope_at_one(f: UserFunction, df: UserFunction, strictly_convex: bool) -> float:
    """φ'(1), or where φ has a corner at one, a slope in the middle of it.

    s − 1 times any number may be added to φ without changing D, so solvers take this slope
    for zero.  What is then straight at one leaves more than one P with D = 0, and is refused.
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
