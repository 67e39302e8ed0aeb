"""Parquet files as collections, with one partition for each file."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["is_path", "read_files"]


def is_path(values: Any) -> bool:
    """Whether values are the path of files."""
    return isinstance(values, str | os.PathLike)


def read_files(path: Any) -> Any:
    """A Dask dataframe of a Parquet file, a folder of them, or those that match a pattern."""
    import dask.dataframe as dd
    from fsspec.core import url_to_fs
    from pyarrow.parquet import ParquetFile

    text = os.fspath(path)
    system, place = url_to_fs(text)
    if any(sign in place for sign in "*?["):
        files = system.glob(place)
    elif system.isdir(place):
        files = system.glob(f"{place.rstrip('/')}/**/*.parquet")
    else:
        files = [place] if system.exists(place) else []
    if not files:
        raise FileNotFoundError(
            f"The 'X' parameter must name a Parquet file, a folder with some, or a pattern that "
            f"matches some. Got {text!r}, where there are none."
        )
    names = [system.unstrip_protocol(file) for file in sorted(files)]
    try:
        with system.open(sorted(files)[0]) as file:
            meta = ParquetFile(file).schema_arrow.empty_table().to_pandas()
    except Exception as error:
        raise _cannot_read(names[0], error) from None
    return dd.from_map(_read, names, meta=meta, label="read-parquet")


def _read(name: str) -> Any:
    """Read one file; an error names it."""
    import pandas as pd

    try:
        return pd.read_parquet(name)
    except Exception as error:
        raise _cannot_read(name, error) from None


def _cannot_read(name: str, error: Exception) -> OSError:
    return OSError(f"{name} cannot be read: {type(error).__name__}: {error}")
