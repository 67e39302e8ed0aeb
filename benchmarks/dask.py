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
from distributed import Client, LocalCluster, wait

import drolearn
from benchmarks.machine import save
from drolearn.dask import RobustClassifier, _engine

COLUMNS, REPEATS = 50, 3
#: Rows, type and number of partitions.
SIZES = [
    (10**5, "float32", 4),
    (10**6, "float32", 4),
    (10**6, "float32", 64),
    (10**7, "float32", 16),
]


def rows(client: Any, n: int, kind: str, partitions: int) -> Any:
    """Return rows and labels on the workers."""
    workers: Any = sorted(client.ncores())
    columns, labels = [], []
    for k in range(partitions):
        # Dask may compute all of a small collection on one worker: say where each partition goes.
        size, where = n * (k + 1) // partitions - n * k // partitions, workers[k % len(workers)]
        rng: Any = da.random.default_rng(k)
        whole: Any = -1  # one block
        X: Any = rng.standard_normal((size, COLUMNS), chunks=whole, dtype=kind)
        noise = rng.standard_normal(size, chunks=whole)
        y: Any = (X[:, :10].sum(axis=1) + 4.0 * noise > 0.0).astype(np.int8)
        X, y = client.persist([X, y], workers=[where])
        columns.append(X)
        labels.append(y)
    held = client.persist([da.concatenate(columns), da.concatenate(labels)])
    wait(held)
    return held


class Counter:
    """Counts the rounds, the tasks and the bytes of all results of a fit."""

    def __init__(self) -> None:
        self.rounds = self.tasks = self.bytes = 0

    def __enter__(self) -> Counter:
        blocks: Any = _engine.DaskBlocks
        self.run, self.total_of = blocks.run, _engine.total_of

        def run(engine: Any, task: Any) -> Any:
            before = engine.tasks
            result = self.run(engine, task)
            self.rounds, self.tasks = self.rounds + 1, self.tasks + engine.tasks - before
            return result

        def total_of(nodes: Any, add: Any) -> Any:  # what all workers have returned
            self.bytes += len(pickle.dumps(nodes))
            return self.total_of(nodes, add)

        blocks.run, _engine.total_of = run, total_of
        return self

    def __exit__(self, *error: object) -> None:
        _engine.DaskBlocks.run, _engine.total_of = self.run, self.total_of


def cpu_seconds(client: Client) -> float:
    """Return the CPU seconds of this process and of all workers so far."""
    workers: Any = client.run(time.process_time)
    return time.process_time() + sum(workers.values())


def measure(client: Any, n: int, kind: str, partitions: int) -> dict[str, Any]:
    """Return the ratio of the times of both sides, which alternate, and the counts."""
    held = rows(client, n, kind, partitions)
    # `compute` would collect all blocks on one worker first.
    blocks: Any = (client.compute(list(part.to_delayed().ravel())) for part in held)
    X, y = (np.concatenate(client.gather(each)) for each in blocks)
    clf = RobustClassifier(rho=0.1, client=client)
    local = drolearn.RobustClassifier(rho=0.1, n_jobs=2)
    with Counter() as counter:  # also warms up
        clf.fit(*held)
    local.fit(X, y)
    seconds: dict[str, list[float]] = {"dask": [], "local": []}
    cpu: dict[str, list[float]] = {"dask": [], "local": []}
    for _ in range(REPEATS):
        for name, fit in (("dask", lambda: clf.fit(*held)), ("local", lambda: local.fit(X, y))):
            start, cpu_start = time.perf_counter(), cpu_seconds(client)
            fit()
            seconds[name].append(time.perf_counter() - start)
            cpu[name].append(cpu_seconds(client) - cpu_start)
    return {
        "rows": n,
        "dtype": kind,
        "partitions": partitions,
        "time": statistics.median(seconds["dask"]) / statistics.median(seconds["local"]),
        "cpu": statistics.median(cpu["dask"]) / statistics.median(cpu["local"]),
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
        "| rows × columns | partitions | time | CPU time | rounds | passes | in one process "
        "| tasks | bytes | objective |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        lines.append(
            f"| {run['rows']:,} × {COLUMNS} {run['dtype']} | {run['partitions']} "
            f"| {run['time']:.2f} × | {run['cpu']:.2f} × | {run['rounds']} | {run['iterations']} "
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
