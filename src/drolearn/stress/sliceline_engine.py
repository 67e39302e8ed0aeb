"""The search for slices with the package sliceline, which tries all pairs of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn.stress.conditions import Condition, Slice
from drolearn.stress.features import Feature, Numbers, cuts
from drolearn.stress.search import required_share

__all__ = ["find_slices_with_sliceline"]

# Numbers are cut into this many intervals.
_PARTS = 10
# Conditions of a slice; with three, sliceline needs more memory than most machines have.
_DEPTH = 2


def find_slices_with_sliceline(
    features: Sequence[Feature],
    rows: NDArray[np.bool_],
    z: NDArray[np.float64],
    shares: Sequence[float],
) -> list[Slice]:
    """As `find_slices`, for rows of equal weight."""
    finder = _require_sliceline()
    losses = z - z.min()  # sliceline expects errors of at least 0
    if losses.max() == 0.0:
        return [()] * len(shares)
    ends = [cuts(f.values[rows], _PARTS) if isinstance(f, Numbers) else None for f in features]
    codes = np.column_stack(
        [_codes(feature, end, rows) for feature, end in zip(features, ends, strict=True)]
    )
    found: list[Slice] = []
    for share in shares:
        least = math.ceil(required_share(share, z.size) * z.size)
        # With alpha=1, the score of a slice is its mean error.
        search = finder(alpha=1.0, k=1, max_l=_DEPTH, min_sup=least, verbose=False)
        search.fit(codes, losses)
        best = search.top_slices_[0] if len(search.top_slices_) else []
        chosen = [
            condition
            for k, code in enumerate(best)
            if code is not None
            for condition in _conditions(k, int(code), ends[k])
        ]
        found.append(tuple(sorted(chosen)))
    return found


def _require_sliceline() -> Any:
    try:
        from sliceline.slicefinder import Slicefinder
    except ImportError:
        raise ImportError(
            "slices='sliceline' needs sliceline. Install it with pip install 'drolearn[slices]'."
        ) from None
    return Slicefinder


def _codes(
    feature: Feature, ends: NDArray[np.float64] | None, rows: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The number of each row's value or interval; missing numbers have the last one."""
    if not isinstance(feature, Numbers):
        return feature.codes[rows]
    assert ends is not None
    values = feature.values[rows]
    return np.where(np.isnan(values), ends.size + 1, np.searchsorted(ends, values))


def _conditions(k: int, code: int, ends: NDArray[np.float64] | None) -> list[Condition]:
    """The conditions of one value of a feature."""
    if ends is None:
        return [Condition(k, "=", float(code))]
    if code > ends.size:
        return [Condition(k, "missing")]
    lower = [Condition(k, ">", float(ends[code - 1]))] if code > 0 else []
    upper = [Condition(k, "≤", float(ends[code]))] if code < ends.size else []
    return lower + upper
