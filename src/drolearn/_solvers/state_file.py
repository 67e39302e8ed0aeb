"""States of solvers as files: arrays and JSON in one NumPy archive."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from drolearn._storage import replacing

__all__ = ["load_state", "save_state"]

T = TypeVar("T")


def save_state(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write arrays and JSON values to a file, completely or not at all."""
    import json

    arrays: dict[str, Any] = {
        name: value for name, value in content.items() if isinstance(value, np.ndarray)
    }
    others = {name: value for name, value in content.items() if name not in arrays}
    with replacing(path) as file:
        np.savez(file, about=np.array(json.dumps(others)), **arrays)


def load_state(path: str | os.PathLike[str], make: Callable[[dict[str, Any]], T]) -> T:
    """Read a file that `save_state` wrote, and make an object of its content."""
    import json
    import struct
    import zipfile

    # What a damaged file can raise: a missing entry or key, a value of the wrong type, numbers that
    # cannot be parsed, a compression method that does not exist, an early end, a broken archive.
    damaged = (
        LookupError, TypeError, ValueError, RuntimeError, EOFError, OverflowError, struct.error,
        zipfile.BadZipFile,
    )  # fmt: skip
    # Read here: damage can make np.load seek to places for which files raise an OSError.
    file = io.BytesIO(Path(path).read_bytes())
    try:
        with np.load(file, allow_pickle=False) as stored:
            content = {name: stored[name] for name in stored.files}
        content.update(json.loads(str(content.pop("about"))))
        return make(content)
    except damaged as error:
        raise ValueError(
            f"{os.fspath(path)!r} is not a checkpoint of drolearn, or is damaged: delete it to "
            f"start again."
        ) from error
