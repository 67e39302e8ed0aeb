"""States of solvers as files: arrays and JSON in one NumPy archive."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from drolearn._storage import replacing

__all__ = ["load_state", "made_of", "require", "save_state"]

T = TypeVar("T")

# What the annotations of a state's fields accept. Arrays are of float64; a list holds numbers.
_ACCEPTED: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "Array": (np.ndarray,),
    "list[float]": (list,),
}


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
    import tokenize
    import zipfile

    # What a damaged file can raise: a missing entry or key, a value of the wrong type, numbers that
    # cannot be parsed, a compression method that does not exist, an early end, a broken archive, a
    # size that no memory has.
    damaged = (
        tokenize.TokenError,  # of NumPy, which reads headers of damaged arrays as Python
        LookupError, TypeError, ValueError, RuntimeError, EOFError, OverflowError, struct.error,
        AttributeError, MemoryError, zipfile.BadZipFile,
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


def made_of(cls: type[T], content: dict[str, Any]) -> T:
    """An object of a dataclass from a file; a ValueError if a field has a value of another type."""
    for item in fields(cls):  # type: ignore[arg-type]
        value: Any = content[item.name]
        kind = str(item.type)
        if kind in _ACCEPTED:
            require(type(value) in _ACCEPTED[kind], f"{item.name} is not of the type {kind}")
        if kind == "Array":
            require(value.dtype == np.float64, f"{item.name} does not hold numbers of float64")
        if kind == "list[float]":
            numbers = all(type(each) in (int, float) for each in value)
            require(numbers, f"{item.name} holds something that is not a number")
    return cls(**content)


def require(condition: bool, message: str) -> None:
    """Raise a ValueError, which `load_state` explains, if a condition does not hold."""
    if not condition:
        raise ValueError(message)
