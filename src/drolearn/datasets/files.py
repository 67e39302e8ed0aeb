"""Files of data sets: where they lie, how they are read and written.

A file `name.npz` holds `format`, which is "dense" (with `X`) or "csr" (with `data`, `indices`,
`indptr`, `shape`), and `y`, which is ±1.
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

__all__ = ["DataError", "Dataset", "cache", "folder", "read_rows", "write_dataset"]


class DataError(RuntimeError):
    """A data set cannot be had, and what can be done about it."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Rows and labels.

    Attributes
    ----------
    name : str
    X : array or CSR matrix of shape (n, d), float32
    y : array of shape (n,), int8
        +1 or -1.
    source : str
        Where it came from.
    """

    name: str
    X: Any
    y: NDArray[np.int8]
    source: str


def folder() -> Path | None:
    """The folder that DROLEARN_DATA names, if it does."""
    named = os.environ.get("DROLEARN_DATA")
    if named and not Path(named).is_dir():
        raise DataError(f"DROLEARN_DATA names {named!r}, which is no folder: mend or unset it.")
    return Path(named) if named else None


def cache() -> Path | None:
    """The folder of fetched data sets: DROLEARN_CACHE, or the usual place of the system."""
    named = os.environ.get("DROLEARN_CACHE")
    if named:
        return Path(named)
    try:
        import pooch
    except ModuleNotFoundError:  # without it nothing is fetched, and so nothing kept
        return None
    return Path(pooch.os_cache("drolearn"))


def read_rows(path: Path, name: str) -> tuple[Any, NDArray[np.int8]]:
    """X and y of a file."""
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
            f"{path} is not there: set DROLEARN_DATA to the folder that holds {path.name}."
        ) from None
    except Exception as error:  # files can be damaged in any way
        raise DataError(
            f"{path} is damaged or not a data set ({' '.join(str(error).split())[:100]}): delete "
            f"it and run `drolearn datasets --fetch {name}`, or put a good copy there."
        ) from error


def write_dataset(target: Path, found: Dataset) -> None:
    """A file of the folder's form, or none."""
    content: dict[str, Any] = {"format": np.array("dense"), "y": found.y}
    if sp.issparse(found.X):
        X = sp.csr_matrix(found.X)
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        content |= {"format": np.array("csr"), "shape": np.array(X.shape), **parts}
    else:
        content["X"] = found.X
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        np.savez_compressed(file, **content)
