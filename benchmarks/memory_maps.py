"""Fits on data larger than memory, from read-only memory maps: docs/memory.md.

python -m benchmarks memory_maps              # 20 GB in a temporary folder, deleted afterwards

Each fit runs in a process of its own.  RssAnon of /proc/<pid>/status, the memory that is not a
part of a file, is read 50 times a second from outside.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import save

ROWS, COLUMNS = 5_000_000, 1000
#: Arguments of the estimators.
FITS: dict[str, dict[str, Any]] = {
    "lbfgs": {"solver": "lbfgs", "max_iter": 10},
    "gssg": {"solver": "gssg", "max_iter": 0.05, "tol": None},
}


def write(folder: Path, n: int, d: int) -> None:
    """Write rows as float32 and labels, some rows at a time."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(d, dtype=np.float32) / np.sqrt(d, dtype=np.float32)
    X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(n, d))
    y = np.empty(n, dtype=np.int8)
    for first in range(0, n, 50_000):
        rows = rng.standard_normal((min(50_000, n - first), d), dtype=np.float32)
        X[first : first + len(rows)] = rows
        y[first : first + len(rows)] = rows @ w + rng.standard_normal(len(rows)) > 0.0
    X.flush()
    np.save(folder / "y.npy", y)


def anonymous(pid: int) -> int:
    """Return the bytes in memory of a process that are not a part of a file; 0 after its end."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("RssAnon")]
    return 1024 * int(found[0]) if found else 0


def fit(name: str, folder: str) -> None:
    """Fit, and print what was found; runs in a process of its own."""
    from drolearn import RobustClassifier

    X = np.load(Path(folder) / "X.npy", mmap_mode="r")
    y = np.load(Path(folder) / "y.npy")
    clf = RobustClassifier(rho=0.1, random_state=0, n_jobs=2, **FITS[name])
    start = time.perf_counter()
    clf.fit(X, y)
    seconds = time.perf_counter() - start
    found = {"seconds": seconds, "passes": clf.history_.samples[-1] / len(y)}
    print(json.dumps(found | {"objective": float(clf.objective_), "status": clf.status_}))


def measure(name: str, folder: str) -> dict[str, Any]:
    """Run `fit` in a process, and watch its memory."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.memory_maps", name, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, anonymous(process.pid))
            time.sleep(0.02)
        output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise RuntimeError(f"The fit with {name!r} ended with code {process.returncode}.")
    return {"solver": name, "anonymous": peak, **json.loads(output)}


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        "| rows × columns | file | solver | passes | robust loss | minutes | anonymous memory |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for run in runs:
        size = 4 * run["rows"] * run["columns"] / 1e9
        lines.append(
            f"| {run['rows']:,} × {run['columns']:,} float32 | {size:.1f} GB | {run['solver']} "
            f"| {run['passes']:.3g} | {run['objective']:.4f} | {run['seconds'] / 60:.1f} "
            f"| {run['anonymous'] / 2**30:.2f} GiB |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure fits on 20 GB, and write results/memory_maps.json."""
    runs = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        write(Path(folder), ROWS, COLUMNS)
        for name in FITS:
            runs.append({"rows": ROWS, "columns": COLUMNS, **measure(name, folder)})
            print(runs[-1], flush=True)
            save("memory_maps", [], runs=runs)


if __name__ == "__main__":
    fit(*sys.argv[1:])
