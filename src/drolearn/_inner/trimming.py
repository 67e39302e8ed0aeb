"""Trimming: the worst share ε of the rows is ignored before the worst case is taken.

    R_ε(z) = min { R(z; b') : 0 ≤ b' ≤ b, Σ b' = (1 − ε) Σ b }

where R(z; b') is the worst case in the ball around b'/Σ b'.  It grows with every loss, and depends
only on how much weight each loss has.  So the minimum takes the weight ε from the largest losses;
the row at the threshold loses a part of its weight.  With groups, ε is taken from each of them, and
their shares stay: the mean of every group is then as small as it can be.

R_ε is not convex in z, but R(z; b') is for every fixed b'.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._validation import float_or_nan

__all__ = ["as_trim", "kept_weights"]

Array = NDArray[np.float64]

# A part of a row below this share of it is a rounding error of the sums.
_DUST = 1e-9


def as_trim(trim: Any, overlapping: bool = False) -> float:
    """Check ε, and return it; `overlapping` says that rows are in several groups."""
    share = float_or_nan(trim)
    if not 0.0 <= share < 1.0:
        raise ValueError(
            f"The 'trim' parameter, the share of the rows to ignore, must be at least 0 and below "
            f"1. Got {trim!r} instead."
        )
    if share > 0.0 and overlapping:
        raise ValueError(
            f"The 'trim' parameter must be 0 for groups that overlap, as a row may be trimmed in "
            f"one of its groups and not in another. Got {trim!r} instead."
        )
    return share


def kept_weights(
    z: Array, weights: Array | None, trim: float, groups: NDArray[np.int64] | None = None
) -> Array:
    """The weights b' that are left: at most `weights`, and at most 1 for rows without weights.

    Of equal losses, that of the first row is removed first.
    """
    n = z.size
    b = np.ones(n) if weights is None else weights
    of = np.zeros(n, dtype=np.int64) if groups is None else groups
    order = np.lexsort((-z, of))
    in_order, of = b[order], of[order]
    first = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    sizes = np.diff(np.append(first, n))
    before = np.append(0.0, np.cumsum(in_order))
    removed = np.repeat(before[first] + trim * np.add.reduceat(in_order, first), sizes)
    share = np.clip(before[1:] - removed, 0.0, in_order)
    share[share < _DUST * in_order] = 0.0
    whole = share > (1.0 - _DUST) * in_order
    share[whole] = in_order[whole]
    kept = np.empty(n)
    kept[order] = share
    if not math.isfinite(float(before[-1])) or not kept.any():
        raise RuntimeError("Weights of rows must be finite, and some must be kept.")
    return kept
