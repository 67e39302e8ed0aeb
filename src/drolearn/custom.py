"""A user's own φ: compiled, and tried out before anything rests on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cfunc
from numba.core.errors import NumbaError

Function = Callable[[float], float]


def compiled(parameter: str, function: Function) -> Any:
    """The function as a C function of one double."""
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


def limit_at_zero(f: Function, given: float | None) -> float:
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


def try_out(
    f: Function,
    df: Function,
    g: Function,
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


def slope_at_one(f: Function, df: Function, strictly_convex: bool) -> float:
    """φ'(1), or where φ has a corner at one, a slope in the middle of it.

    s − 1 times any number may be added to φ without changing D, so solvers take this slope
    for zero.  What is then straight at one leaves more than one P with D = 0, and is refused.
    """
    slope = df(1.0) if strictly_convex else 0.5 * (df(1.0 - 2.0**-30) + df(1.0 + 2.0**-30))
    for s in (0.95, 1.05):
        if not f(s) - slope * (s - 1.0) > 1e-12:
            raise ValueError(
                f"phi must be curved, or have a corner, at 1, so that only equal weights have "
                f"divergence 0. It is straight from 1 to {s}."
            )
    return slope
