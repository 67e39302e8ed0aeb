"""Zip files of a few members: names, sizes and checksums are checked before anything is used.

Members are stored without compression.  A file then cannot unpack to more than its own size.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._files.errors import ModelFileError

__all__ = [
    "DAMAGED", "DTYPE", "MANIFEST", "array_of", "bytes_of", "check_array", "checksum", "json_of",
    "pack", "read_bytes", "unpack",
]  # fmt: skip

#: The member that lists the others.
MANIFEST = "manifest.json"
LARGEST_FILE = 2**32
LARGEST_TEXT = 2**26
MOST_MEMBERS = 10_000
#: What a damaged file can raise when it is read.
DAMAGED = (
    zipfile.BadZipFile, EOFError, LookupError, OverflowError, RuntimeError, TypeError, ValueError,
    struct.error, AttributeError, MemoryError,
)  # fmt: skip
# Booleans, numbers, strings, times: types without Python objects and without fields.
DTYPE = re.compile(r"[<>|=]?[biufSUMm][0-9]+(\[[0-9A-Za-z]+\])?")


def read_bytes(path: Path) -> bytes:
    """The content of a file, unless it is too large for a model."""
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ModelFileError(
            f"{str(path)!r} is larger than {LARGEST_FILE:,} bytes, the limit for model files."
        )
    return content


def pack(members: Mapping[str, bytes]) -> bytes:
    """Write a zip file; the same members give the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return file.getvalue()


def unpack(content: bytes, path: Path, names: re.Pattern[str]) -> dict[str, bytes]:
    """Read the members of a zip file, of which the names must match a pattern."""
    shown = str(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            _check(infos, len(content), shown, names)
            return {info.filename: archive.read(info) for info in infos}
    except ModelFileError:
        raise
    except DAMAGED as error:
        raise ModelFileError(
            f"{shown!r} is not a model file, or is cut off or damaged: use another copy."
        ) from error


def _check(infos: list[zipfile.ZipInfo], size: int, shown: str, names: re.Pattern[str]) -> None:
    """Refuse names and sizes that no writer of model files makes, before any member is read."""
    if len(infos) > MOST_MEMBERS:
        raise ModelFileError(
            f"{shown!r} has {len(infos):,} members, more than the {MOST_MEMBERS:,} that a model "
            f"file may have: do not trust it."
        )
    found = set()
    for info in infos:
        if not names.fullmatch(info.filename):
            raise ModelFileError(
                f"{shown!r} has a member of the name {info.filename!r}, which model files do not "
                f"have: do not trust it."
            )
        if info.filename in found:
            raise ModelFileError(
                f"{shown!r} has two members of the name {info.filename!r}: do not trust it."
            )
        found.add(info.filename)
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ModelFileError(
                f"{shown!r} has a compressed or encrypted member, {info.filename!r}: model files "
                f"are not compressed; do not trust it."
            )
        limit = LARGEST_TEXT if info.filename == MANIFEST else size
        if info.file_size != info.compress_size or info.file_size > limit:
            raise ModelFileError(
                f"{shown!r} has an oversized member: {info.filename!r} claims {info.file_size:,} "
                f"bytes in a file of {size:,}; do not trust it."
            )
    total = sum(info.file_size for info in infos)
    if total > size:
        raise ModelFileError(
            f"{shown!r} has oversized members: they claim {total:,} bytes in a file of {size:,}; "
            f"do not trust it."
        )


def checksum(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def bytes_of(value: NDArray[Any] | dict[str, Any]) -> bytes:
    """An array in NumPy's format, or a dictionary as JSON."""
    if isinstance(value, dict):
        return json.dumps(value, indent=1, allow_nan=False).encode()
    file = io.BytesIO()
    np.lib.format.write_array(file, value, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def json_of(content: bytes) -> dict[str, Any]:
    """A dictionary from JSON; a ValueError for anything else."""
    if len(content) > LARGEST_TEXT:
        raise ValueError(f"a text of {len(content):,} bytes is too large")
    try:
        value = json.loads(content, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("a text is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("a text is not a JSON object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def array_of(content: bytes) -> NDArray[Any]:
    """An array from NumPy's format; a ValueError for anything else."""
    shape, fortran, dtype, offset = _header(content)
    if not DTYPE.fullmatch(dtype.str):
        raise ValueError(f"an array has the type {str(dtype)[:40]!r}, which is not allowed")
    order = "F" if fortran else "C"
    data = np.ndarray(shape, dtype, buffer=content, offset=offset, order=order)
    return data.copy(order="K")  # aligned, and can be written to


def check_array(content: bytes) -> None:
    """Raise a ValueError if the size that a header claims is not that of the content.

    `numpy.load` reserves memory for what is claimed.
    """
    _header(content)


def _header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type, and the place of the data, of which the size is right."""
    file = io.BytesIO(content)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        reader = readers[np.lib.format.read_magic(file)]
        shape, fortran, dtype = reader(file, max_header_size=10_000)
    except Exception as error:  # NumPy parses the header as Python, which can fail in any way
        raise ValueError("the header of an array cannot be read") from error
    size, offset = dtype.itemsize, file.tell()
    for length in shape:
        if length < 0:
            raise ValueError("an array has a negative length")
        size *= length
    if size != len(content) - offset:
        raise ValueError(f"an array of shape {shape} does not have the size of its content")
    return shape, fortran, dtype, offset
