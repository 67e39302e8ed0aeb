"""Files that are written completely or not at all, and folders for one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from drolearn._storage import locked, replacing
from tests.examples import dead_process, disk_full


def write(path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def interrupted_write(path) -> None:
    with replacing(path) as file:
        file.write(b"half of the n")
        raise KeyboardInterrupt


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "results"
    for content in (b"old", b"new"):
        write(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
    if os.name != "nt":
        mask = os.umask(0o022)
        try:
            write(path, b"readable")
        finally:
            os.umask(mask)
        assert path.stat().st_mode & 0o777 == 0o644


def test_an_error_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "results"
    write(path, b"old")
    with pytest.raises(KeyboardInterrupt):
        interrupted_write(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk_full)
        with pytest.raises(OSError, match=r"No space left.*: '.*results'"):
            write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="unfinished files are never removed on Windows")
def test_unfinished_files_of_dead_processes_are_removed(tmp_path):
    """Also for names with dots and characters that mean something in patterns."""
    for name in ("results", "a.b.npz", "[x]*.npz"):
        left = tmp_path / f".{name}.{dead_process()}.abc123.part"
        left.write_bytes(b"half")
        write(tmp_path / name, b"new")
        assert not left.exists()


def test_unfinished_files_of_running_processes_are_kept(tmp_path):
    path = tmp_path / "results"
    for pid in (os.getpid(), os.getppid()):
        unfinished = tmp_path / f".{path.name}.{pid}.abc123.part"
        unfinished.write_bytes(b"half")
        write(path, b"new")
        assert unfinished.read_bytes() == b"half"


def test_two_writers_of_one_file(tmp_path):
    """The file that is finished last stays, and both are complete."""
    path = tmp_path / "results"
    with replacing(path) as first:
        first.write(b"first")
        write(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_name_the_file_and_nothing_else(tmp_path):
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    for path in (tmp_path / "missing" / "results", folder):
        with pytest.raises(OSError, match=r"'[^']*'$") as caught:
            write(path, b"results")
        assert str(caught.value).endswith(f": {str(path)!r}")


def test_a_folder_is_locked_for_other_processes_until_the_block_ends(tmp_path):
    pytest.importorskip("filelock")
    program = f"from drolearn._storage import locked\nwith locked({str(tmp_path)!r}): pass"
    command = [sys.executable, "-c", program]
    with locked(tmp_path):
        refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "BlockingIOError" in refused.stderr
    assert subprocess.run(command).returncode == 0
