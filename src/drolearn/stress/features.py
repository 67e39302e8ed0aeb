"""Features that describe sub-populations: numbers with readable cuts, and categories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._validation import did_you_mean
from drolearn.stress.columns import MISSING, Partition, as_partition, columns_of

__all__ = ["Feature", "Numbers", "as_features", "bins", "cuts", "number_text"]

Array = NDArray[np.float64]

# A table of a feature has at most this many values; the others are joined ...
_VALUES = 10
# ... and so are values of fewer rows than this share.
_RARE = 0.01
OTHER = "other"


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A feature of numbers.

    Parameters
    ----------
    column : str
        Its name.
    values : array of shape (n,)
        The number of each row; NaN where it is missing.
    """

    column: str
    values: Array


#: Numbers, or categories as groups of rows.
Feature = Numbers | Partition


def as_features(
    over: Any, X: Any, n: int, used: NDArray[np.bool_] | slice = slice(None)
) -> list[Feature]:
    """The features that `over` names or holds, with one value for each of n rows.

    Only the rows that are `used` are kept.
    """
    columns = _columns(over, X)
    if not columns:
        raise ValueError("The 'over' parameter must have at least one column. Got none instead.")
    found = [_feature(name, column, n) for name, column in columns.items()]
    return [
        Numbers(each.column, each.values[used])
        if isinstance(each, Numbers)
        else Partition(each.column, each.names, each.codes[used])
        for each in found
    ]


def _columns(over: Any, X: Any) -> dict[str, Any]:
    """The columns that are named, or given."""
    names = [over] if isinstance(over, str) else over
    if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        return columns_of(over, "feature")
    if X is None:
        raise ValueError(
            f"The 'over' parameter names columns of X, which was not given. Pass X, or a frame of "
            f"the features. Got {over!r} instead."
        )
    if names == ["all"] and hasattr(X, "tocsr"):
        raise ValueError(
            "The 'over' parameter must not be 'all' for a sparse X: pass a frame of some features."
        )
    if names == ["all"]:
        return columns_of(X, "feature")
    if not hasattr(X, "columns"):
        raise ValueError(
            f"The 'over' parameter names columns, but X has no names. Pass a frame of the "
            f"features. Got {over!r} instead."
        )
    known = {str(column): column for column in X.columns}
    for name in names:
        if name not in known:
            raise ValueError(
                f"The 'over' parameter must name columns of X. "
                f"Got {name!r} instead.{did_you_mean(name, known)}"
            )
    return {name: X[known[name]] for name in names}


def _feature(name: str, column: Any, n: int) -> Feature:
    """Numbers if there are more than two; truth values, names and categories otherwise."""
    import pandas as pd

    values = np.asarray(column)
    if values.shape != (n,):
        raise ValueError(
            f"The 'over' parameter must have one value for each of the {n} rows. "
            f"Got an array of shape {values.shape} for {name!r} instead."
        )
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if values.dtype.kind in "Mm" or kind.startswith(("date", "time", "period")):
        raise ValueError(
            f"The 'over' parameter must hold numbers, truth values or names; of times, pass the "
            f"year, the month or the hour. Got times for {name!r} instead."
        )
    is_category = str(getattr(column, "dtype", "")) == "category"
    if is_category or kind not in ("integer", "floating", "mixed-integer-float"):
        try:
            return as_partition(name, values.astype(object))
        except TypeError:
            raise ValueError(
                f"The 'over' parameter must hold numbers, truth values or names. "
                f"Got other objects for {name!r} instead."
            ) from None
    nullable: Any = pd.array(values, dtype="Float64")  # None, NaN and pandas.NA are missing
    numbers = nullable.to_numpy(np.float64, na_value=np.nan)
    if np.unique(numbers[~np.isnan(numbers)]).size > 2:
        return Numbers(name, numbers)
    two = as_partition(name, numbers)
    two.names = [each if each == MISSING else _short(each) for each in two.names]
    return two


def cuts(values: Array, parts: int) -> Array:
    """Readable numbers near the quantiles at 1/parts, 2/parts …, in increasing order.

    From each quantile up to the one half a step above it, the number with the fewest digits.
    """
    known = np.sort(values[np.isfinite(values)])
    if known.size == 0:
        return np.empty(0)
    at = np.arange(2, 2 * parts) / (2 * parts)
    points = np.quantile(known, at, method="inverted_cdf")
    found = {_readable(low, high) for low, high in zip(points[::2], points[1::2], strict=True)}
    ends = np.array(sorted(found))
    # Of cuts between the same two numbers, one is kept; the largest number is not cut off.
    below, first = np.unique(np.searchsorted(known, ends, side="right"), return_index=True)
    return ends[first[below < known.size]]


def _readable(low: float, high: float) -> float:
    """The number with the fewest digits from low to high."""
    if low <= 0.0 <= high:
        return 0.0
    top = math.floor(math.log10(max(abs(low), abs(high))))
    for exponent in range(top, top - 18, -1):
        for digit in (10, 5, 1):  # multiples of 10, of 5 and of 1 at this place
            step = digit * 10.0 ** (exponent - (digit > 1))
            nearest = float(f"{round((0.5 * low + 0.5 * high) / step) * step:.15g}")
            if low <= nearest <= high:
                return nearest
    return low


def number_text(number: float) -> str:
    """A number as people write it: without an exponent unless it is very large or small."""
    return f"{_short(number):.15g}"


def _short(number: float) -> float | int:
    """An integer where the number is one."""
    return int(number) if float(number).is_integer() and abs(number) < 1e15 else float(number)


def bins(feature: Feature, base: Array, parts: int = 5) -> Partition:
    """A few groups of rows: intervals of numbers, or values with the rare ones joined.

    `base` are the weights of the rows, of sum 1.
    """
    if isinstance(feature, Numbers):
        return _intervals(feature, parts)
    shares = np.bincount(feature.codes, base, len(feature.names))
    order = np.argsort(-shares, kind="stable")
    kept = np.zeros(shares.size, dtype=bool)
    kept[order[:_VALUES]] = True
    kept &= shares >= _RARE
    if np.sum(~kept) < 2:  # one value needs no other name
        return feature
    place = np.where(kept, np.cumsum(kept) - 1, kept.sum())
    names = [name for name, keep in zip(feature.names, kept, strict=True) if keep]
    return Partition(feature.column, [*names, OTHER], place[feature.codes])


def _intervals(feature: Numbers, parts: int) -> Partition:
    """Intervals between the cuts, and the missing values."""
    ends = cuts(feature.values, parts)
    texts = [number_text(end) for end in ends]
    names = ["all"] if not texts else [f"≤ {texts[0]}"]
    names += [f"{low} to {high}" for low, high in pairwise(texts)]
    names += [f"> {texts[-1]}"] if texts else []
    missing = np.isnan(feature.values)
    codes = np.where(missing, len(names), np.searchsorted(ends, feature.values))
    return Partition(feature.column, [*names, MISSING] if missing.any() else names, codes)
