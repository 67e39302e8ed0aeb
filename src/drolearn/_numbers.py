"""Arrays of real numbers, and differences of functions without cancellation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "as_number",
    "as_reals",
    "expm1_minus_x",
    "float_or_nan",
    "is_number",
    "x_minus_log1p",
]

Array = NDArray[np.float64]


def is_number(value: object) -> bool:
    """Whether a value is a real number; booleans are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def float_or_nan(value: object) -> float:
    """A real number as a float; NaN for anything else, and for integers that are too large."""
    try:
        return float(value) if is_number(value) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.nan


def as_number(parameter: str, value: object) -> float:
    """A real number or an infinity as a float."""
    number = float_or_nan(value)
    if math.isnan(number):
        raise ValueError(f"The '{parameter}' parameter must be a number. Got {value!r} instead.")
    return number


def as_reals(parameter: str, values: ArrayLike) -> Array:
    """A float64 array of any shape."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            if any(value is None for value in array.ravel()):
                raise TypeError("None would become NaN")
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"The '{parameter}' parameter must hold real numbers. "
            f"Got {type(values).__name__} instead, which does not convert to an array of them."
        ) from None
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"The '{parameter}' parameter must hold real numbers. "
            f"Got an array of type {array.dtype} instead."
        )
    with np.errstate(over="ignore"):  # a long double may be too large
        return array.astype(np.float64, copy=False)


def x_minus_log1p(x: Array) -> Array:
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


def expm1_minus_x(x: Array) -> Array:
    """eˣ − 1 − x, also for small x, where it is Σ xʲ/j! from j = 2 on."""
    small = np.abs(x) <= 0.5  # fifteen terms suffice
    y = np.where(small, x, 0.0)
    total = np.ones_like(y)
    for j in reversed(range(3, 17)):
        total = 1.0 + total * y / j
    return np.where(small, 0.5 * y * y * total, np.expm1(x) - x)
