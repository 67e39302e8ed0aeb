"""Exact fits on two local Dask workers against one process with two threads: docs/dask.md.

python -m benchmarks dask
"""

from __future__ import annotations

import pickle
import statistics
import time
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import drolearn
from benchmarks.machine import save
from drolearn.dask import RobustClassifier, _engine

COLUMNS, REPEATS = 50, 3
#: Rows, type and number of partitions.
SIZES = [(10**5, "float32", 4), (10**6, "float32", 4), (10**6, "float32", 64)]


def rows(n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels, the same for any number of partitions."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32).astype(kind, copy=False)
    noise = 4.0 * rng.standard_normal(n)
    return X, (X[:, :10].sum(axis=1) + noise > 0.0).astype(np.int8)


class Counter:
    """Counts the bytes of all results and the tasks of the next fit."""

    def __init__(self) -> None:
        self.bytes = self.tasks = self.rounds = 0

    def __enter__(self) -> Counter:
        self.run, self.run_on = _engine.DaskBlocks.run, _engine._run

        def run(engine: Any, task: Any) -> Any:
            before = engine.tasks
            result = self.run(engine, task)
            self.rounds, self.tasks = self.rounds + 1, self.tasks + engine.tasks - before
            # Each worker returns the sums of the largest parts of the tree that it holds.
            self.bytes += len(pickle.dumps(result)) * (engine.tasks - before)
            return result

        _engine.DaskBlocks.run = run
        return self

    def __exit__(self, *error: object) -> None:
        _engine.DaskBlocks.run = self.run


def measure(client: Client, n: int, kind: str, partitions: int) -> dict[str, Any]:
    """Return the ratio of the times of both sides, which alternate, and the counts."""
    X, y = rows(n, kind)
    size = -(-n // partitions)
    held = client.persist([da.from_array(X, chunks=(size, COLUMNS)), da.from_array(y, chunks=size)])
    clf = RobustClassifier(rho=0.1, client=client)
    local = drolearn.RobustClassifier(rho=0.1, n_jobs=2)
    with Counter() as counter:  # also warms up
        clf.fit(*held)
    local.fit(X, y)
    seconds: dict[str, list[float]] = {"dask": [], "local": []}
    for _ in range(REPEATS):
        for name, fit in (("dask", lambda: clf.fit(*held)), ("local", lambda: local.fit(X, y))):
            start = time.perf_counter()
            fit()
            seconds[name].append(time.perf_counter() - start)
    return {
        "rows": n,
        "dtype": kind,
        "partitions": partitions,
        "ratio": statistics.median(seconds["dask"]) / statistics.median(seconds["local"]),
        "rounds": clf.n_rounds_,
        "iterations": clf.n_iter_,
        "local_iterations": local.n_iter_,
        "bytes": counter.bytes / counter.rounds,
        "tasks": counter.tasks / counter.rounds,
        "difference": abs(clf.objective_ - local.objective_) / local.objective_,
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        "| rows × columns | partitions | time against one process | rounds | passes | passes in "
        "one process | tasks | bytes | difference of the objective |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        lines.append(
            f"| {run['rows']:,} × {COLUMNS} {run['dtype']} | {run['partitions']} "
            f"| {run['ratio']:.2f} × | {run['rounds']} | {run['iterations']} "
            f"| {run['local_iterations']} | {run['tasks']:.1f} | {run['bytes']:,.0f} "
            f"| {run['difference']:.0e} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all sizes, and write results/dask.json."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        runs = []
        for n, kind, partitions in SIZES:
            runs.append(measure(client, n, kind, partitions))
            print(runs[-1], flush=True)
            save("dask", [], runs=runs)


if __name__ == "__main__":
    main()
