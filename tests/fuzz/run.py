"""`python -m tests.fuzz.run csv=20000 drl=20000` lets atheris call targets as often.

atheris sees which lines of Python a call has reached, and changes inputs that reach new ones. An
input that fails is kept in build/fuzz.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["RUNS"]

#: How often atheris calls each target in `make soak`: 10⁶ calls, most of targets that are fast.
RUNS = {
    **dict.fromkeys(["worst_case", "search", "weights", "passes", "losses", "steps"], 158_000),
    **dict.fromkeys(["svm", "npz", "drl", "toml", "parquet", "feather"], 5000),
    **{"csv": 7000, "exact": 5000, "gssg": 5000, "skops": 5000},
}
_INSTRUMENTED = ["drolearn", "tests", "tomllib", "zipfile", "skops"]
_KEPT = Path(__file__).parents[2] / "build" / "fuzz"


def main() -> None:
    """Call targets, each in a fork of this process: imports with instruments take long."""
    import atheris

    runs = dict(each.split("=") for each in sys.argv[1:])
    # atheris cannot instrument what the finder of an editable installation loads.
    sys.meta_path.insert(0, PathFinder)
    # How numbers are made from bytes says nothing about drolearn, and takes most of the time.
    with atheris.instrument_imports(include=_INSTRUMENTED, exclude=["tests.fuzz.source"]):
        from tests.fuzz import core, readers

        made = {name: (core if name in core.CORE else readers).seeds_of(name) for name in runs}
        for name, seeds in made.items():
            for seed in seeds:  # imports what targets import when they run
                (core.CORE | readers.READERS)[name](seed)
    _KEPT.mkdir(parents=True, exist_ok=True)
    for name, seeds in made.items():
        print(f"Target {name}", file=sys.stderr, flush=True)
        child = os.fork()
        if child == 0:
            _fuzz((core.CORE | readers.READERS)[name], seeds, name, runs[name])
        _, status = os.waitpid(child, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            sys.exit(f"The target {name} ended with {code}: an input may be in {_KEPT}.")


def _fuzz(target: Callable[[bytes], None], seeds: list[bytes], name: str, runs: str) -> None:
    """Call a target, and end this process."""
    import atheris

    with tempfile.TemporaryDirectory() as corpus:
        for k, seed in enumerate(seeds):
            (Path(corpus) / str(k)).write_bytes(seed)
        options = [f"-atheris_runs={runs}", "-timeout=60", "-seed=1", "-rss_limit_mb=4096"]
        options.append(f"-artifact_prefix={_KEPT}/{name}-")
        # The clock of -timeout would end a process that takes long to exit.
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.0)
        atheris.Setup([sys.argv[0], *options, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
