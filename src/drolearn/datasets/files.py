"""Files of data sets: the folder they are in, and how they are read and written.

A file `name.npz` holds `y`, which is ±1 or numbers to predict, and `format`: "dense" (with `X`) or
"csr" (with `data`, `indices`, `indptr`, `shape`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from drolearn._storage import replacing

__all__ = ["DataError", "Dataset", "folder", "read_rows", "write_rows"]


class DataError(RuntimeError):
    """A data set cannot be loaded; the message says why and what to do.

    Examples
    --------
    >>> from drolearn.datasets import DataError, load
    >>> try:
    ...     load("hiv")
    ... except DataError as error:
    ...     print(error)
    There is no data set 'hiv': did you mean 'hiv1'?
    """


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Features and labels of a classification problem, or features and numbers to predict.

    Attributes
    ----------
    name : str
        Name in the catalogue, or the name given to :func:`drolearn.datasets.read`.
    X : ndarray or scipy.sparse.csr_matrix of shape (n, d), float32
        Features.
    y : ndarray of shape (n,)
        Labels, +1 or -1 (int8), or numbers to predict (float32).
    source : str
        Where the data was read from: a path, "package" or "generated".

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn.datasets import Dataset
    >>> X = np.zeros((2, 3), dtype=np.float32)
    >>> Dataset("example", X, np.array([1, -1], dtype=np.int8), "memory").X.shape
    (2, 3)
    """

    name: str
    X: Any
    y: NDArray[Any]
    source: str


def folder() -> Path | None:
    """Return the folder that the environment variable DROLEARN_DATA names.

    Returns
    -------
    pathlib.Path or None
        The folder, or None if DROLEARN_DATA is not set.

    Raises
    ------
    DataError
        If DROLEARN_DATA is set to something that is not a folder.

    Examples
    --------
    >>> import os, tempfile
    >>> from unittest import mock
    >>> from drolearn.datasets import folder
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with mock.patch.dict(os.environ, DROLEARN_DATA=path):
    ...         print(str(folder()) == path)
    True
    """
    named = os.environ.get("DROLEARN_DATA")
    if named and not Path(named).is_dir():
        raise DataError(
            f"DROLEARN_DATA is {named!r}, which is not a folder: set it to a folder of data sets, "
            f"or unset it."
        )
    return Path(named) if named else None


def read_rows(path: Path, name: str) -> tuple[Any, NDArray[Any]]:
    """Read X and y from a file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            y = stored["y"]
            if str(stored["format"]) != "csr":
                return np.ascontiguousarray(stored["X"], dtype=np.float32), y
            parts = (stored["data"], stored["indices"], stored["indptr"])
            X = sp.csr_matrix(parts, shape=tuple(stored["shape"]), dtype=np.float32)
            X.check_format(full_check=True)
            return X, y
    except FileNotFoundError:
        raise DataError(
            f"{path} does not exist: set DROLEARN_DATA to the folder that contains {path.name}."
        ) from None
    except Exception as error:  # a damaged file can fail in any way
        raise DataError(
            f"{path} is damaged or not a data set ({' '.join(str(error).split())[:100]}): delete "
            f"it and run `drolearn datasets --fetch {name}`, or replace it with a good copy."
        ) from error


def write_rows(target: Path, X: Any, y: NDArray[Any]) -> None:
    """Write X and y atomically, in the format that `read_rows` reads."""
    content: dict[str, Any] = {"format": np.array("dense"), "y": y}
    if sp.issparse(X):
        X = sp.csr_matrix(X)
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        content |= {"format": np.array("csr"), "shape": np.array(X.shape), **parts}
    else:
        content["X"] = X
    with replacing(target) as file:
        np.savez_compressed(file, **content)
