"""Two commits side by side, with one thread each.

    make bench-compare BEFORE=main AFTER=HEAD
    python -m benchmarks.compare main HEAD --only sparse --rounds 20

Each commit is checked out in a git worktree, built, and installed into a folder of its own in
build/compare, which later calls use again.  Each version runs in a process of its own, and the two
alternate task by task.  A ratio is that of CPU times: the geometric mean over the rounds, with
Student's 95% interval.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from benchmarks.machine import describe

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "build" / "compare"

# Runs in both processes.  Reads names of tasks; prints the CPU seconds of each, the least of a few
# runs, as other processes only add time.  Tasks that a version cannot do are not listed.
WORKER = """
import sys, time, warnings
# Import the package of PYTHONPATH, not the editable installation of this checkout.
sys.meta_path = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
import numpy as np
from threadpoolctl import threadpool_limits
import scipy.sparse as sp
import drolearn
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
NAMES = ("chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon", "total-variation", "cvar")


class Side:
    """A process that runs the tasks with the package of one folder."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        program = f"NAMES = {NAMES!r}\n{WORKER}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.package, *self.tasks = self._read().split("|")
        if not self.package.startswith(str(folder)):
            raise RuntimeError(
                f"Imported {self.package or 'nothing'}, which is not in {folder}: check PYTHONPATH."
            )

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def seconds(self, task: str) -> float:
        """Return the least time of a task."""
        assert self.process.stdin is not None
        self.process.stdin.write(task + "\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def installed(commit: str) -> tuple[str, Path]:
    """Build a commit in a worktree; return its short name and the folder with its package."""
    command = ["git", "rev-parse", "--short", f"{commit}^{{commit}}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"git knows no commit {commit!r}: give a hash, a branch or a tag.")
    name = found.stdout.strip()
    folder = BUILT / name
    if not folder.exists():
        worktree, unfinished = BUILT / f"{name}-source", BUILT / f"{name}-unfinished"
        print(f"Building {name} in {worktree}", flush=True)
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        if not worktree.exists():
            command = ["git", "worktree", "add", "--quiet", "--detach", str(worktree), name]
            subprocess.run(command, cwd=ROOT, check=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--no-build-isolation", "--upgrade", "--target", str(unfinished)]
        subprocess.run([*pip, str(worktree)], cwd=ROOT, check=True)
        unfinished.rename(folder)
        command = ["git", "worktree", "remove", "--force", str(worktree)]
        subprocess.run(command, cwd=ROOT, check=True)
    return name, folder


def ratio(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of after/before, and its 95% interval."""
    logs = np.log(np.asarray(after) / np.asarray(before))
    half = student.ppf(0.975, logs.size - 1) * logs.std(ddof=1) / math.sqrt(logs.size)
    low, middle, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
    return float(middle), float(low), float(high)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time two commits; print a table and write build/compare/BEFORE-AFTER.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", default="HEAD", help="a commit; by default HEAD")
    parser.add_argument("--rounds", type=int, default=10, help="by default 10; at least 2")
    parser.add_argument("--only", default="", help="run only the tasks whose name contains this")
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error(f"--rounds must be at least 2, as intervals need it, not {options.rounds}")
    commits = [installed(commit) for commit in (options.before, options.after)]
    before, after = (Side(folder) for _, folder in commits)
    tasks = [t for t in after.tasks if t in before.tasks and options.only in t]
    if not tasks:
        raise SystemExit(f"No task contains {options.only!r}. Tasks: {'; '.join(after.tasks)}.")
    title = f"CPU time of {commits[1][0]} / {commits[0][0]}, one thread"
    print(f"{title:52s} {'ratio':>6s}   95% interval      ms")
    rows: list[dict[str, Any]] = []
    for task in tasks:
        pairs = [(before.seconds(task), after.seconds(task)) for _ in range(options.rounds)]
        old, new = zip(*pairs, strict=True)
        middle, low, high = ratio(old, new)
        mark = "faster" if high < 1.0 else "slower" if low > 1.0 else ""
        least = 1e3 * min(new)
        print(
            f"{task:52s} {middle:6.3f}   {low:.3f} to {high:.3f}  {least:8.3g}  {mark}", flush=True
        )
        rows.append({"task": task, "ratio": middle, "low": low, "high": high,
                     "before": min(old), "after": min(new)})  # fmt: skip
    for side in (before, after):
        side.close()
    content = {"before": commits[0][0], "after": commits[1][0], "rounds": options.rounds,
               "machine": describe(), "rows": rows}  # fmt: skip
    path = BUILT / f"{commits[0][0]}-{commits[1][0]}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
