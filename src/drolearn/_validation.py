"""Checks of arguments, each in one place; every error is one sentence."""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "as_count",
    "as_generator",
    "as_groups",
    "as_losses",
    "as_number",
    "as_radius",
    "as_reals",
    "as_vector",
    "as_weights",
    "did_you_mean",
    "distinct",
    "float_or_nan",
    "is_number",
    "refuse_masked",
    "refuse_missing",
    "refuse_not_finite",
    "thread_count",
]

Array = NDArray[np.float64]
_FLOAT64 = np.dtype(np.float64)

# -- single values ---------------------------------------------------------------------


def did_you_mean(given: object, names: Iterable[str]) -> str:
    """A hint at the closest known name, or an empty string."""
    close = difflib.get_close_matches(str(given), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


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


def as_count(parameter: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """An integer of at least `least` and at most `most`."""
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not integer or value < least or (most is not None and value > most):
        accepted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(
            f"The '{parameter}' parameter must be an integer {accepted}. Got {value!r} instead."
        )
    return int(value)


def as_radius(rho: float, parameter: str = "rho") -> float:
    """A number of at least 0, which may be infinite."""
    if type(rho) is float and rho >= 0.0:
        return rho
    try:
        radius = math.nan if isinstance(rho, (str, bool)) else float(rho)
    except (TypeError, ValueError, OverflowError):
        radius = math.nan
    if not radius >= 0.0:
        raise ValueError(
            f"The '{parameter}' parameter must be a number of at least 0. Got {rho!r} instead."
        )
    return radius


def thread_count(n_jobs: int) -> int:
    """The number of threads for `n_jobs`."""
    from joblib import effective_n_jobs

    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(
            f"The 'n_jobs' parameter must be None or an integer other than 0. "
            f"Got {n_jobs!r} instead."
        )
    return min(effective_n_jobs(int(n_jobs)), os.cpu_count() or 1)


def as_generator(random_state: Any) -> np.random.Generator:
    """A new generator; one that was given is advanced by one draw."""
    if isinstance(random_state, np.random.Generator):
        return np.random.default_rng(int(random_state.integers(2**62)))
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(2**31 - 1)))
    integer = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if random_state is None or (integer and random_state >= 0):
        return np.random.default_rng(random_state)
    raise ValueError(
        f"The 'random_state' parameter must be None, an integer of at least 0, a Generator or a "
        f"RandomState. Got {random_state!r} instead."
    )


# -- arrays ----------------------------------------------------------------------------


def as_reals(parameter: str, values: ArrayLike, shape: str = "an array") -> Array:
    """A float64 array of any shape; `shape` says in errors what is expected."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            if any(value is None for value in array.ravel()):
                raise TypeError("None would become NaN")
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"The '{parameter}' parameter must be {shape} of real numbers. "
            f"Got {type(values).__name__} instead, which cannot be converted."
        ) from None
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"The '{parameter}' parameter must hold real numbers. "
            f"Got an array of type {array.dtype} instead."
        )
    with np.errstate(over="ignore"):  # of long doubles, which become infinite
        return array.astype(np.float64, copy=False)


def as_vector(parameter: str, values: ArrayLike) -> Array:
    """A contiguous float64 vector; no copy is made if it is one already."""
    if type(values) is np.ndarray and values.dtype == _FLOAT64 and values.ndim == 1:
        return np.ascontiguousarray(values)
    refuse_masked(parameter, values)
    array = as_reals(parameter, values, "a vector")
    if array.ndim != 1:
        raise ValueError(
            f"The '{parameter}' parameter must be one-dimensional, one number for each row. "
            f"Got an array of shape {array.shape} instead."
        )
    return np.ascontiguousarray(array)


def as_losses(losses: ArrayLike) -> Array:
    """The losses as a vector; they need not be finite."""
    z = as_vector("losses", losses)
    if z.size == 0:
        raise ValueError("The 'losses' parameter must hold at least one number. Got none instead.")
    return z


def as_weights(weights: ArrayLike, size: int, parameter: str = "sample_weight") -> Array:
    """Weights of rows, of at least 0 and with a finite, positive sum."""
    b = as_vector(parameter, weights)
    if b.size != size:
        raise ValueError(
            f"The '{parameter}' parameter must have one weight for each of the {size} rows. "
            f"Got {b.size} instead."
        )
    low, high = b.min(), b.max()
    if not (low >= 0.0 and high < math.inf):
        wrong = np.flatnonzero(~((b >= 0.0) & (b < math.inf)))[0]
        raise ValueError(
            f"The '{parameter}' parameter must hold finite weights of at least 0. "
            f"Got {b[wrong]} at index {wrong} instead."
        )
    if high == 0.0:
        raise ValueError(
            f"The '{parameter}' parameter must have a positive sum. Got only zeros instead."
        )
    if not 1e-100 < high < 1e100:  # rescale, so that sums neither overflow nor underflow
        with np.errstate(under="ignore"):
            b = np.ldexp(b, -math.frexp(high)[1])
    return b


def as_groups(groups: Any, n: int, parameter: str = "groups") -> tuple[NDArray[Any], NDArray[Any]]:
    """The names of the groups in order, and the membership of the rows.

    One or several columns of names make disjoint groups: the membership is the number of each row's
    group, and the name of a combination is a tuple.  A Boolean matrix makes groups that may
    overlap: it is the membership, with one more column, "none", for rows in no group.
    """
    given = np.asarray(groups)
    if given.ndim not in (1, 2) or given.shape[0] != n or given.size == 0:
        raise ValueError(
            f"The '{parameter}' parameter must name the group of each of the {n} rows. "
            f"Got an array of shape {given.shape} instead."
        )
    if given.ndim == 2 and given.dtype == np.bool_:
        names = np.empty(given.shape[1], dtype=object)
        names[:] = list(getattr(groups, "columns", range(given.shape[1])))
        alone = ~given.any(axis=1)
        if alone.any():
            given, names = np.column_stack([given, alone]), np.append(names, "none")
        return names, given
    columns = _columns(groups, given)
    # NumPy turns None and NaN in lists of strings into strings.
    as_given = [np.asarray(groups, dtype=object).ravel()] if isinstance(groups, list) else columns
    for column in as_given:
        not_finite = column.dtype.kind == "f" and not np.isfinite(column).all()
        if not_finite or _has_missing(column):
            raise ValueError(
                f"The '{parameter}' parameter must not hold missing values or infinity: use a "
                f"separate name for rows for which it is unknown."
            )
    if len(columns) == 1:
        return distinct(parameter, columns[0])
    found = [distinct(parameter, column) for column in columns]
    combinations, codes = np.unique(
        np.column_stack([code for _, code in found]), axis=0, return_inverse=True
    )
    names = np.empty(len(combinations), dtype=object)
    values = [each.tolist() for each, _ in found]
    names[:] = [tuple(each[k] for each, k in zip(values, row, strict=True)) for row in combinations]
    return names, codes.ravel()


def _columns(groups: Any, given: NDArray[Any]) -> list[NDArray[Any]]:
    """The columns of names, each of its own type if they come from a data frame."""
    if given.ndim == 1:
        return [given]
    if hasattr(groups, "columns") and hasattr(groups, "__getitem__"):
        return [np.asarray(groups[name]) for name in groups.columns]
    return list(given.T)


def refuse_masked(parameter: str, values: Any) -> None:
    """Refuse a masked array of which some entries are masked."""
    # NumPy imports numpy.ma when it is first used; before that, no array can be masked.
    masked = "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray)
    if masked and np.ma.is_masked(values):
        raise ValueError(
            f"The '{parameter}' parameter must not have masked entries. "
            f"Got {np.ma.count_masked(values)} of them; use .compressed() or .filled() first."
        )


def refuse_not_finite(parameter: str, values: Array) -> None:
    """Refuse numbers of which some are NaN or infinite; rows are counted along the first axis."""
    finite = np.isfinite(values)
    if not finite.all():
        wrong = tuple(np.argwhere(~finite)[0])
        raise ValueError(
            f"The '{parameter}' parameter must hold finite numbers. "
            f"Got {values[wrong]} in row {wrong[0]} instead."
        )


def refuse_missing(parameter: str, values: NDArray[Any]) -> None:
    """Refuse values of which some are missing."""
    if _has_missing(values):
        count = sum(_has_missing(values[i : i + 1]) for i in range(values.size))
        raise ValueError(
            f"The '{parameter}' parameter must not hold missing values. Got {count} of them."
        )


def _has_missing(values: NDArray[Any]) -> bool:
    """Whether some values are missing: NaN, NaT (which differ from themselves), None, pandas.NA."""
    if values.dtype.kind != "O":
        return bool(np.any(values != values))

    def missing(value: Any) -> bool:
        try:
            return value is None or bool(value != value)
        except (TypeError, ValueError):  # comparisons of pandas.NA have no truth value
            return True

    return any(map(missing, values))


def distinct(parameter: str, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct values in order, and the index of each value among them.

    Several times as fast as `np.unique(return_inverse=True)`.  Values must not be missing.
    """
    if values.size and values.dtype.kind in "iufb":
        low, high = values.min(), values.max()
        is_high = values == high
        if low < high and np.all(is_high | (values == low)):  # two classes: no need to sort
            return np.array([low, high], dtype=values.dtype), is_high.astype(np.int64)
    try:
        classes = np.unique(values)
        return classes, np.searchsorted(classes, values)
    except TypeError as error:
        raise ValueError(
            f"The '{parameter}' parameter must hold labels of one type, all strings or all "
            f"numbers. Got a mix of types that cannot be sorted."
        ) from error
