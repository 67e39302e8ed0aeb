"""Partitions of Dask collections: the rows, labels and weights of each block."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import delayed
from dask.utils import is_dataframe_like, is_series_like

from drolearn.dask._parquet import is_path, read_files

__all__ = [
    "Partition",
    "as_vector",
    "column_names",
    "grouped_losses",
    "is_collection",
    "losses_and_weights",
    "map_rows",
    "map_rows_and_labels",
    "partitions_of",
    "with_columns",
]


class Partition(NamedTuple):
    """The data of one partition.

    Weights are None if all rows have the same, as are groups and losses of a reference if there
    are none.
    """

    X: Any
    y: Any
    weights: Any
    groups: Any
    reference: Any


def is_collection(values: Any) -> bool:
    """Whether values are a Dask array, dataframe or series, or the path of Parquet files."""
    return (
        is_path(values) or isinstance(values, da.Array) or _is_frame(values) or _is_series(values)
    )


def _is_frame(values: Any) -> bool:
    return is_dask_collection(values) and is_dataframe_like(values)


def _is_series(values: Any) -> bool:
    return is_dask_collection(values) and is_series_like(values)


def column_names(X: Any) -> list[Any] | None:
    """The names of the columns of a dataframe; None for an array."""
    return list(X.columns) if _is_frame(X) else None


def with_columns(X: Any, **others: Any) -> tuple[Any, dict[str, Any]]:
    """Read X if it is a path, and take what is named as columns out of it."""
    frame = read_files(X) if is_path(X) else X
    found, used = {}, []
    for parameter, value in others.items():
        several = isinstance(value, list) and all(isinstance(name, str) for name in value)
        if not (isinstance(value, str) or several):
            found[parameter] = value
            continue
        names = value if isinstance(value, list) else [value]
        known = column_names(frame)
        missing = [name for name in names if name not in (known or [])]
        if missing:
            columns = "an array, which has no names" if known is None else f"the columns {known}"
            raise ValueError(
                f"The '{parameter}' parameter must be a collection or a column of X. "
                f"Got {missing[0]!r}; X has {columns}."
            )
        found[parameter] = frame[value]
        used += names
    return frame.drop(columns=list(dict.fromkeys(used))) if used else frame, found


def partitions_of(
    X: Any, y: Any, sample_weight: Any = None, groups: Any = None, reference_losses: Any = None
) -> list[Any]:
    """The partitions as delayed objects."""
    X = as_rows(X)
    y = as_vector("y", y)
    parts = [_delayed("X", X, X), _delayed("y", y, X)]
    given = {
        "sample_weight": (sample_weight, as_vector),
        "groups": (groups, _as_columns),
        "reference_losses": (reference_losses, as_vector),
    }
    for parameter, (values, form) in given.items():
        if values is None:
            parts.append([None] * len(parts[0]))
        else:
            parts.append(_delayed(parameter, form(parameter, values), X))
    return [delayed(Partition)(*part) for part in zip(*parts, strict=True)]


def as_rows(X: Any) -> Any:
    """A Dask dataframe, or a Dask array whose blocks are whole rows."""
    if _is_frame(X):
        return X
    if not isinstance(X, da.Array) or X.ndim != 2:
        shape = f" of {X.ndim} dimensions" if isinstance(X, da.Array) else ""
        raise TypeError(
            f"The 'X' parameter must be a Dask array of two dimensions or a Dask dataframe. Got "
            f"{type(X).__name__}{shape} instead: use dask.array.from_array, or the estimators of "
            f"drolearn for data in memory."
        )
    whole: Any = {1: -1}
    return X.rechunk(whole) if X.numblocks[1] > 1 else X


def losses_and_weights(
    z: Any, b: Any, parameter: str = "sample_weight"
) -> tuple[list[Any], Any, Any]:
    """The partitions as delayed pairs, and both as arrays with the same chunks.

    `parameter` is the name of the second vector in errors.
    """
    z, b = _as_array(z), None if b is None else _as_array(b)
    first = _delayed("losses", z, z)
    if b is None:
        second = [None] * len(first)
    else:
        b = _aligned(parameter, b, z)
        second = _delayed(parameter, b, z)
    return [delayed(_pair)(*part) for part in zip(first, second, strict=True)], z, b


def grouped_losses(z: Any, b: Any, groups: Any) -> list[Any]:
    """The partitions of losses, weights and groups as delayed triples; the last two may be None."""
    z = _as_array(z)
    parts = [_delayed("losses", z, z)]
    for parameter, values in (("sample_weight", b), ("groups", groups)):
        if values is None:
            parts.append([None] * len(parts[0]))
            continue
        values = _as_array(values) if parameter != "groups" else _as_columns(parameter, values)
        parts.append(_delayed(parameter, values, z))
    return [delayed(_triple)(*part) for part in zip(*parts, strict=True)]


def _triple(z: Any, b: Any, groups: Any) -> tuple[Any, Any, Any]:
    return z, b, groups


def _pair(first: Any, second: Any) -> tuple[Any, Any]:
    return first, second


def _as_array(values: Any) -> Any:
    return values if isinstance(values, da.Array) else values.to_dask_array()


def as_vector(parameter: str, values: Any) -> Any:
    """A Dask array of one dimension or a Dask series."""
    if _is_frame(values) and len(values.columns) == 1:
        values = values[values.columns[0]]
    if isinstance(values, da.Array) and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    vector = _is_series(values) or (isinstance(values, da.Array) and values.ndim == 1)
    if not vector:
        raise TypeError(
            f"The '{parameter}' parameter must be a Dask array of one dimension or a Dask series. "
            f"Got {type(values).__name__} instead."
        )
    return values


def _as_columns(parameter: str, values: Any) -> Any:
    """A Dask array, series or dataframe of names, or of truth values; whole rows in each block."""
    if _is_frame(values) or _is_series(values):
        return values
    if not isinstance(values, da.Array) or values.ndim not in (1, 2):
        raise TypeError(
            f"The '{parameter}' parameter must be a Dask array, series or dataframe. "
            f"Got {type(values).__name__} instead."
        )
    whole: Any = {1: -1}
    return values.rechunk(whole) if values.ndim == 2 and values.numblocks[1] > 1 else values


def _aligned(parameter: str, values: Any, X: Any) -> Any:
    """The collection in the chunks of X, if both are arrays of known sizes."""
    if not (isinstance(values, da.Array) and isinstance(X, da.Array)):
        return values
    sizes = (*values.chunks[0], *X.chunks[0])
    if values.chunks[0] == X.chunks[0] or any(math.isnan(size) for size in sizes):
        return values
    if values.shape[0] != X.shape[0]:
        raise ValueError(
            f"The '{parameter}' parameter must have one entry for each of the {X.shape[0]} rows. "
            f"Got {values.shape[0]} instead."
        )
    same: Any = {0: X.chunks[0]}
    return values.rechunk(same)


def _delayed(parameter: str, values: Any, X: Any) -> list[Any]:
    """The partitions of a collection that belongs to X."""
    values = _aligned(parameter, values, X)
    count, needed = values.npartitions, X.npartitions
    if count != needed:
        raise ValueError(
            f"The '{parameter}' parameter must have as many partitions as X, {needed}. "
            f"Got {count} instead: repartition it, or call compute_chunk_sizes()."
        )
    collection: Any = values
    if not isinstance(values, da.Array):
        # Only columns that are needed are read.  Further optimisation would join small files, of X
        # and y not in the same way.
        return collection.simplify().to_delayed(optimize_graph=False)
    return list(np.ravel(collection.to_delayed()))


def map_rows(function: Any, X: Any, *, name: str, width: int | None, dtype: Any) -> Any:
    """Apply a function of rows to each partition, lazily; `width` is the number of columns."""
    if _is_frame(X):
        X = X.to_dask_array()
    X = as_rows(X)
    if width is None:
        return X.map_blocks(function, token=name, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype))
    chunks = (X.chunks[0], (width,))
    meta = np.empty((0, width), dtype)
    return X.map_blocks(function, token=name, dtype=dtype, chunks=chunks, meta=meta)


def map_rows_and_labels(function: Any, X: Any, y: Any) -> Any:
    """A vector from rows and labels, computed partition by partition when it is needed."""
    y = as_vector("y", y)
    X, y = as_rows(_as_array(X)), _as_array(y)
    y = _aligned("y", y, X)
    _delayed("y", y, X)  # refuses other numbers of partitions
    return da.blockwise(
        function, "i", X, "ij", y, "i", concatenate=True, align_arrays=False,
        dtype=np.float64, meta=np.empty(0),
    )  # fmt: skip
