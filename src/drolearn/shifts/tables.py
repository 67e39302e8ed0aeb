"""Two tables of one kind as one: arrays, sparse matrices or data frames of pandas and polars."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from drolearn._validation import did_you_mean

__all__ = ["column_names", "permuted", "stacked", "with_categories"]


def stacked(X_old: Any, X_new: Any) -> tuple[Any, int]:
    """The rows of both tables, and the number of rows of the first."""
    old, new = _as_table("X_old", X_old), _as_table("X_new", X_new)
    kind, other = _kind(old), _kind(new)
    if kind != other:
        raise ValueError(
            f"The 'X_new' parameter must be of the same kind as 'X_old', {kind}. "
            f"Got {other} instead."
        )
    if old.shape[1] != new.shape[1]:
        raise ValueError(
            f"The 'X_new' parameter must have the {old.shape[1]} columns of 'X_old'. "
            f"Got {new.shape[1]} columns instead."
        )
    if kind == "a data frame":
        return _frames(old, new), old.shape[0]
    if kind == "a sparse matrix":
        return sp.vstack([old, new], format="csr"), old.shape[0]
    return np.concatenate([old, new]), old.shape[0]


def column_names(X: Any) -> list[Any]:
    """The names of a data frame's columns, or the indices of an array's."""
    return list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1]))


def with_categories(X: Any) -> Any:
    """A data frame whose columns of text are categories; other tables as they are."""
    if not hasattr(X, "columns"):
        return X
    text = X.select_dtypes(include=["object", "string"]).columns
    return X.astype(dict.fromkeys(text, "category"))


def permuted(X: Any, column: int, order: NDArray[np.int64]) -> Any:
    """A copy of a table in which one column has its values in another order."""
    if sp.issparse(X):
        moved = X[order][:, [column]]
        return sp.hstack([X[:, :column], moved, X[:, column + 1 :]], format="csr")
    changed = X.copy()
    if hasattr(X, "columns"):
        changed.isetitem(column, X.iloc[order, column].array)
    else:
        changed[:, column] = X[order, column]
    return changed


def _kind(X: Any) -> str:
    if hasattr(X, "columns"):
        return "a data frame"
    return "a sparse matrix" if sp.issparse(X) else "an array"


def _as_table(parameter: str, X: Any) -> Any:
    """An array, a CSR matrix or a pandas data frame with at least one row and one column."""
    table: Any = X.to_pandas() if hasattr(X, "to_pandas") else X
    if sp.issparse(table):
        table = sp.csr_matrix(table)
    elif not hasattr(table, "columns"):
        table = np.asarray(table)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"The '{parameter}' parameter must be a table with at least one row and one column. "
            f"Got {type(X).__name__} of shape {table.shape} instead."
        )
    return table


def _frames(old: Any, new: Any) -> Any:
    """The rows of both data frames; columns are matched by name."""
    import pandas as pd  # imported when used: it is optional

    if not old.columns.is_unique:
        twice = old.columns[old.columns.duplicated()][0]
        raise ValueError(f"The 'X_old' parameter must not have two columns named {twice!r}.")
    missing = [name for name in old.columns if name not in new.columns]
    if missing:
        extra = [name for name in new.columns if name not in old.columns]
        raise ValueError(
            f"The 'X_new' parameter must have the columns of 'X_old'. Got no column "
            f"{missing[0]!r}.{did_you_mean(missing[0], map(str, extra))}"
        )
    return pd.concat([old, new[list(old.columns)]], ignore_index=True)
