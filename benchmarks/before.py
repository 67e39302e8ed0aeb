"""The C++ core against the numba kernels that it replaced, with one thread each.

    git worktree add ../before 0b85624                # the last commit with numba
    python -m benchmarks.before ../before             # with numba installed

Each version runs in a separate process, and the two alternate task by task. Times are CPU times, and
minima over several runs, because noise only adds time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import save
from benchmarks.worst_case import Row, row

HERE = Path(__file__).parents[1]

# Runs in both worktrees. Reads the name of a task and prints its fastest time in seconds.
_WORKER = """
import sys, time, warnings
import numpy as np
from threadpoolctl import threadpool_limits
import scipy.sparse as sp
from drolearn import CressieRead, solve, worst_case
warnings.simplefilter("ignore")
threadpool_limits(1)
rng = np.random.default_rng(0)
million = np.logaddexp(0.0, -1.5 - 2.0 * rng.standard_normal(10**6))
weights = rng.exponential(size=10**6)
blocks = million[:20_000].reshape(2000, 10)
X = rng.standard_normal((32_000, 50))
single = X.astype(np.float32)
y = np.where(X @ rng.standard_normal(50) * 0.4 + 0.5 * rng.standard_normal(32_000) > 0, 1, -1)
sparse = sp.random(20_000, 5_000, 0.01, "csr", random_state=0)
labels = np.where(sparse @ rng.standard_normal(5_000) > 0, 1, -1)
three = np.argmax(X[:, :3] + rng.standard_normal((32_000, 3)), axis=1)
named = {name: name for name in NAMES}
named |= {"cressie-read 3": CressieRead(3), "cressie-read 1.2": CressieRead(1.2)}
old = "rho: float = " in worst_case.__doc__ or worst_case.__defaults__[0] is not None
radius = lambda name: None if name == "cvar" and not old else 0.1
tasks = {}
for name, divergence in named.items():
    for label, base in (("", None), (", weighted", weights)):
        tasks[f"{name}, 10⁶ losses{label}"] = lambda k=divergence, r=radius(name), b=base: (
            worst_case(million, r, k, b))
    tasks[f"{name}, 2,000 × 10 losses"] = lambda k=divergence, r=radius(name): [
        worst_case(b, r, k) for b in blocks]
tasks["chi2, 10⁶ losses, ρ = 10"] = lambda: worst_case(million, 10.0)
drawn = {"tol": None, "random_state": 0}
for solver in ("lbfgs", "newton"):
    tasks[f"{solver}, 32,000 × 50"] = lambda s=solver: solve(X, y, solver=s)
    tasks[f"{solver}, 32,000 × 50, float32"] = lambda s=solver: solve(single, y, solver=s)
for solver in ("gssg", "gssg-anchor", "sgd", "pssg", "fsg"):
    tasks[f"{solver}, 32,000 × 50, 5 passes"] = lambda s=solver: solve(
        X, y, solver=s, max_iter=5, **drawn)
    tasks[f"{solver}, sparse 20,000 × 5,000, 5 passes"] = lambda s=solver: solve(
        sparse, labels, l2=1e-5, solver=s, max_iter=5, **drawn)
tasks["lbfgs, sparse 20,000 × 5,000"] = lambda: solve(
    sparse, labels, l2=1e-4, solver="lbfgs", tol=1e-4)
tasks["multinomial, 32,000 × 50"] = lambda: solve(X, three, loss="multinomial", l2=1e-3)
import drolearn
print("|".join([drolearn.__file__, *tasks]), flush=True)
for line in sys.stdin:
    task = tasks[line.strip()]
    task()
    times, began = [], time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < 0.3 and len(times) < 50):
        start = time.process_time()
        task()
        times.append(time.process_time() - start)
    print(min(times), flush=True)
"""
_NAMES = ("chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon", "total-variation", "cvar")
# Goals of individual tasks; for all others the goal is at most 1.1 times the old time.
_GOALS = {"chi2, 2,000 × 10 losses": "≤ 0.3", "kl, 2,000 × 10 losses": "≤ 0.4"}


class Side:
    """A process that runs the tasks with the package of one worktree."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # Import the package from the folder, not from the editable installation of this one.
        plain = (
            "import sys; sys.meta_path = [f for f in sys.meta_path if hasattr(f, '__self__') or "
        )
        plain += "not type(f).__name__.startswith('ScikitBuild')]\n"
        program = f"{plain if folder != HERE else ''}NAMES = {_NAMES!r}\n{_WORKER}"
        self.process = subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes)
        self.package, *self.tasks = self._read().split("|")
        if not self.package.startswith(str(folder)):
            raise RuntimeError(
                f"Imported {self.package}, which is not in {folder}: check PYTHONPATH."
            )

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def seconds(self, task: str) -> float:
        """Return the fastest time of a task."""
        assert self.process.stdin is not None
        self.process.stdin.write(task + "\n")
        self.process.stdin.flush()
        return float(self._read())


def main(folder: str, rounds: str = "5") -> None:
    """Compare this worktree with the one in `folder` and write results/before.json."""
    before, after = Side(Path(folder).resolve()), Side(HERE)
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
