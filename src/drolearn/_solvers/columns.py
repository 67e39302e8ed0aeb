"""The mean and the scale of each column, which make scaled coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Columns", "Moments", "Scaling", "columns_of", "refuse_extreme"]

Array = NDArray[np.float64]
Scaling = Literal["exact", "draws", "none"]
Columns = tuple[Array, Array, float]


class Moments(NamedTuple):
    """Weighted sums over some rows, minus a mean if one is given."""

    total: Array
    square: Array
    largest: Array
    """The largest absolute values."""
    weight: float
    rows: int


def columns_of(
    moments: Callable[[Array | None], Moments],
    n: int,
    *,
    sparse: bool,
    intercept: bool,
    scaling: Scaling,
    smoothness: float,
    l2: float,
) -> Columns:
    """Mean, scale D and trace, see `Problem.columns`, from the moments of some of the n rows."""
    total, square, largest, weight, rows = moments(None)
    mean = np.zeros(total.size)
    refuse_extreme(largest)
    if not sparse and intercept and scaling != "none":
        mean = total / weight
        _, square, largest, _, _ = moments(mean)
    elif intercept and scaling == "exact":
        # Centre a sparse column only if its squares about the mean exceed rounding errors.
        # Stochastic solvers do not centre: each step would touch all columns.
        about = square - total * (total / weight)
        mean = np.where(about > 1e-8 * square, total / weight, 0.0)
        square = np.where(about > 1e-8 * square, about, square)
    if scaling == "none":
        scale = np.append(np.ones(total.size), float(intercept))
        return np.zeros(total.size), scale, float(square.sum() / weight) + intercept
    rms = np.sqrt(square / weight)
    # The deviations of a constant column are rounding errors.
    rms[rms <= 1e-13 * abs(mean)] = 0.0
    if scaling == "draws":
        spread = rms * largest
    else:
        # At a fitted model the mean second derivative is far below the largest one.
        bend = 0.04 * smoothness
        spread = np.where(rms > 0.0, bend * rms**2 + l2, 0.0)
    if sparse and rows < n:
        # A column that is zero on the subsample is rare, but not constant.
        rare = largest.max(initial=0.0) ** 2
        rare /= math.sqrt(rows) if scaling == "draws" else rows
        spread[spread == 0.0] = rare + l2 * (scaling == "exact")
    with np.errstate(divide="ignore", over="ignore"):
        scale = np.where(spread > 1e-290, 1.0 / spread, 0.0)
    if sparse and scaling == "draws":
        scale = _powers_of_two(scale)
    mean[scale == 0.0] = 0.0
    trace = float(scale @ rms**2) + intercept
    intercept_scale = 1.0 if scaling == "draws" else 25.0 / smoothness
    return mean, np.append(scale, intercept_scale * intercept), max(trace, 1e-300)


def refuse_extreme(largest: Array) -> None:
    """Reject columns, by their largest absolute values, whose squares overflow or vanish."""
    if largest.max(initial=0.0) > 1e140 or np.any((largest > 0.0) & (largest < 1e-140)):
        wrong = int(np.argmax((largest > 1e140) | ((largest > 0.0) & (largest < 1e-140))))
        raise ValueError(
            f"The 'X' parameter must have columns with largest absolute values between 1e-140 "
            f"and 1e140, so that squares do not overflow. Column {wrong} has "
            f"{largest[wrong]:.3g}: rescale it, for example with StandardScaler."
        )


def _powers_of_two(scale: Array) -> Array:
    """Scales rounded to powers of two, at most 200 different ones.

    Sparse steps process columns of equal scale together.  Capping the range only shortens the
    steps of some columns.
    """
    positive = scale > 0.0
    if not positive.any():
        return scale
    exponent = np.round(np.log2(scale[positive]))
    rounded = np.zeros_like(scale)
    rounded[positive] = np.exp2(np.minimum(exponent, exponent.min() + 200.0))
    return rounded
