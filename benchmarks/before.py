"""The C++ core against the numba kernels that it replaced, with one thread each.

    git worktree add ../before 0b85624                # the last commit with numba
    python -m benchmarks.before ../before             # with numba installed

Each version runs in a separate process, and the two alternate task by task.  Times are CPU times,
and minima over several runs, because noise only adds time.  `benchmarks.compare` compares two
commits that both have the core.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.compare import Side, installed
from benchmarks.machine import save
from benchmarks.worst_case import Row, row

# Goals of individual tasks; for all others the goal is at most 1.1 times the old time.
_GOALS = {"chi2, 2,000 × 10 losses": "≤ 0.3", "kl, 2,000 × 10 losses": "≤ 0.4"}


def main(folder: str, rounds: str = "5") -> None:
    """Compare HEAD with the worktree in `folder` and write results/before.json."""
    before, after = Side(Path(folder).resolve() / "src"), Side(installed("HEAD")[1])
    rows: list[Row] = []
    for task in after.tasks:
        pairs = [(before.seconds(task), after.seconds(task)) for _ in range(int(rounds))]
        old, new = np.min(pairs, axis=0)
        note = f"{_time(new)}, before {_time(old)}"
        rows.append(row(task, "the numba kernels", new / old, _GOALS.get(task, "≤ 1.1"), note))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True
    ).stdout.strip()
    save("before", rows, before=commit)
    print(json.dumps({"slowest": max(line["ratio"] for line in rows)}))


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


if __name__ == "__main__":
    main(*sys.argv[1:])
