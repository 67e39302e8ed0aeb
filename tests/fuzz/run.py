"""`python -m tests.fuzz.run csv 100000` lets atheris call one target as often.

atheris sees which lines of Python a call has reached, and changes inputs that reach new ones.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

__all__ = ["RUNS"]

#: How often atheris calls each target in `make soak`: 10⁶ calls.
RUNS = {
    **dict.fromkeys(["worst_case", "search", "weights", "passes", "losses", "steps"], 100_000),
    **dict.fromkeys(["csv", "svm", "npz", "drl"], 70_000),
    **dict.fromkeys(["toml", "parquet", "feather"], 30_000),
    **dict.fromkeys(["exact", "gssg", "skops"], 10_000),
}
_INSTRUMENTED = ["drolearn", "tests", "tomllib", "zipfile", "skops"]


def main() -> None:
    """Call a target."""
    import atheris

    name, runs = sys.argv[1], int(sys.argv[2])
    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.fuzz import core, readers

        targets = core if name in core.CORE else readers
        target, seeds = (core.CORE | readers.READERS)[name], targets.seeds_of(name)
        for seed in seeds:  # imports what targets import when they run
            target(seed)
    with tempfile.TemporaryDirectory() as corpus:
        for k, seed in enumerate(seeds):
            (Path(corpus) / str(k)).write_bytes(seed)
        options = [f"-atheris_runs={runs}", "-timeout=60", "-seed=1", "-rss_limit_mb=4096"]
        atheris.Setup([sys.argv[0], *options, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
