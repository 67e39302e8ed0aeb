"""Columns of tables, and the groups that the values of a column make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MISSING", "Partition", "as_partition", "columns_of"]

#: The name of the group of rows of which the value is missing.
MISSING = "missing"


class Partition:
    """Disjoint groups of all rows.

    Parameters
    ----------
    column : str
        The name of the column, or of several with commas.
    names : list
        The names of the groups.
    codes : array of shape (n,)
        The number of each row's group.
    """

    def __init__(self, column: str, names: list[Any], codes: NDArray[np.int64]) -> None:
        self.column, self.names, self.codes = column, names, codes


def columns_of(table: Any, name: str) -> dict[str, Any]:
    """Columns by name: of a frame of pandas or polars, a dict, an array or one column.

    `name` is that of a single column without a name.
    """
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        return {str(column): table[column] for column in table.columns}
    if isinstance(table, Mapping):
        return {str(column): values for column, values in table.items()}
    if getattr(table, "name", None) is not None:  # a series
        return {str(table.name): table}
    # An array of objects: NumPy would turn numbers beside strings into strings.
    array = table if isinstance(table, np.ndarray) else np.asarray(table, dtype=object)
    if array.ndim == 2:
        return {f"column {k}": array[:, k] for k in range(array.shape[1])}
    return {name: array}


def as_partition(column: str, values: NDArray[Any]) -> Partition:
    """The groups of equal values, in order; missing values are the last group."""
    import pandas as pd

    codes, uniques = pd.factorize(values, use_na_sentinel=True)
    names = list(uniques)
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:  # a mix of types
        order = sorted(range(len(names)), key=lambda k: str(names[k]))
    place = np.empty(len(names) + 1, dtype=np.int64)
    place[order] = np.arange(len(names))
    place[-1] = len(names)  # pandas numbers missing values −1
    names = [names[k] for k in order]
    if np.any(codes < 0):
        names.append(MISSING)
    return Partition(column, names, place[codes])
