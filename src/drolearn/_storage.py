"""Files that are there whole or not at all."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["alone", "replacing"]


@contextmanager
def alone(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Be the only process that works in a folder; the lock ends with the process, however."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(Path(folder) / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise BlockingIOError(
            f"Another process is at work in {folder}: wait for it, or choose another folder."
        ) from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` when all went well.

    Until then, and if anything goes wrong, what was there before stays.  A process that is killed
    leaves at most a hidden file that ends in ".part"; the next one to write removes it.
    """
    target = Path(path)
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
        os.chmod(part, 0o666 & ~mask)  # temporary files are private, results are not
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _remove_leftovers(target: Path) -> None:
    """Remove unfinished files of processes that are no more."""
    for part in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        pid = part.name.removesuffix(".part").split(".")[-2]
        if pid.isdigit() and not _alive(int(pid)):
            part.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    """Whether there is a process of this number, ours or somebody else's."""
    if os.name == "nt":  # pragma: no cover - signal 0 would end the process there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
