"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["alone", "replacing"]


@contextmanager
def alone(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Be the only process that works in a folder; the system lets go when it ends, however."""
    lock = Path(folder) / ".lock"
    with lock.open("ab") as file:
        try:
            if os.name == "nt":  # pragma: no cover
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BlockingIOError(
                f"Another process is at work in {folder}: wait for it, or choose another folder."
            ) from error
        yield


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` when all went well.

    Until then, and if anything goes wrong, what was there before stays; a process that is killed
    leaves at most a hidden file that ends in ".part".
    """
    target = Path(path)
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, 0o666 & ~mask)  # temporary files are private, results are not
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
