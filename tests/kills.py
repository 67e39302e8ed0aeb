"""Commands that are killed: a process forks one process for each command.

Without that process, every command would spend seconds on imports before there is anything to kill.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

__all__ = ["Commands"]

# Exact solvers save once a second; here they save after each iteration.
_PROGRAM = """
import json, os, sys
import skops.io, skrub, vl_convert
import drolearn._files.models, drolearn.cli.models, drolearn.stress.analysis
import drolearn._solvers.exact as exact
from drolearn import cli

exact._SAVE_EVERY = exact._SAVE_SHARE = 0.0
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.setsid()
        output = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os._exit(cli.run(cli.app, json.loads(line)))
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Commands:
    """Runs commands of drolearn in a folder, in processes of their own, and kills them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        assert self._line() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, *arguments: object) -> float:
        """Run a command that succeeds; return its seconds."""
        began = time.monotonic()
        code = self.kill_after(None, *arguments)
        assert code == 0, (self._folder / "log.txt").read_text(encoding="utf-8")
        return time.monotonic() - began

    def kill_after(self, seconds: float | None, *arguments: object) -> int:
        """Kill a command after some seconds; return 0 if it ended before, or -9."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(each) for each in arguments]) + "\n")
        self._process.stdin.flush()
        child = int(self._line())
        if seconds is not None:
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        code = int(self._line())
        _wait_for_others(child)
        return code

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _wait_for_others(session: int) -> None:
    """Wait until all processes that a command started have ended, and removed what they share."""
    deadline = time.monotonic() + 60.0
    while _running(session) or list(Path("/dev/shm").glob(f"sem.loky-{session}-*")):
        assert time.monotonic() < deadline, "a killed command left a process or a semaphore"
        time.sleep(0.05)


def _running(session: int) -> list[int]:
    """The processes of a session that have not ended; none where the system does not list them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # Fields after the name, which is in brackets: state, parent, group, session.
            state, _, _, of = path.read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state not in "ZX":
                found.append(int(path.parent.name))
    return found
