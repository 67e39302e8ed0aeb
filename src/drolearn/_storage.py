"""Locked folders and atomic writes."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["locked", "replacing"]


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of a folder; the system releases it even if this process is killed."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(Path(folder) / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise BlockingIOError(
            f"Another process is using {folder}: wait until it ends, or choose another folder."
        ) from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file atomically: `path` is replaced when the block ends without an error.

    Until then, and after an error, the old content stays.  A killed process leaves at most a
    hidden file ending in ".part", which the next write to the same path removes.  An OSError names
    `path`, not that file.
    """
    target = Path(path)
    try:
        with _part_of(target) as file:
            yield file
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(".part"):
            error.filename = str(target)
            if error.filename2 is not None:  # of `os.replace`; None would be printed as a name
                del error.filename2
        raise


@contextmanager
def _part_of(target: Path) -> Iterator[BinaryIO]:
    """A file next to the target, which replaces it at the end."""
    _remove_leftovers(target)
    prefix = f".{target.name}.{os.getpid()}."
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, 0o666 & ~mask)  # mkstemp makes private files; results are not private
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _remove_leftovers(target: Path) -> None:
    """Remove unfinished files of processes that have ended."""
    for part in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        pid = part.name.removesuffix(".part").split(".")[-2]
        if pid.isdigit() and not _is_running(int(pid)):
            part.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    """Whether a process has this id, whoever owns it."""
    if os.name == "nt":  # pragma: no cover - on Windows, signal 0 would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
