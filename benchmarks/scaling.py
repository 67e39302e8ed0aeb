"""Rounds of exact fits on a cluster: measured, predicted and simulated: docs/scaling.md.

python -m benchmarks scaling

A round of W workers on N rows of d columns takes about

    T = fixed + W · task + N d · number / W,

where `number` is the time for a stored number and `task` the work of client and scheduler for one
task.  Both are measured in CPU seconds, so that other processes on the machine do not count.
"""

from __future__ import annotations

import pickle
import statistics
import time
from typing import Any

import numpy as np
from dask.delayed import delayed
from distributed import Client, LocalCluster

from benchmarks import dask_ml, rounds
from benchmarks.dask import COLUMNS, cpu_seconds, rows
from benchmarks.machine import DOCS, load, save
from drolearn._blocks import Pass
from drolearn.dask import RobustClassifier, _engine

SIZES, PARTITIONS = (10**5, 10**6, 10**7), 16
#: Workers in one process, for the work of client and scheduler.
MANY = (1, 2, 4, 8)


class Nothing(Pass[Any, int]):
    """A pass that counts blocks."""

    def of(self, block: Any) -> int:
        return 1

    def add(self, first: int, second: int) -> int:
        return first + second


def _make(number: int, data: Any, threads: int) -> Any:
    return data


def overhead(workers: int, rounds: int = 20) -> float:
    """Return the CPU seconds of a round without rows: client, scheduler and workers together."""
    settings = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with (
        LocalCluster(n_workers=workers, **settings) as cluster,
        Client(cluster) as client,
    ):
        parts = [delayed(int)(k) for k in range(workers)]
        with _engine.DaskBlocks(client, parts, _make) as blocks:
            seconds = []
            for _ in range(rounds):
                start = time.process_time()
                blocks.run(Nothing())
                seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def measure(client: Client, n: int, workers: int) -> dict[str, Any]:
    """Return what a round of an exact fit costs."""
    held = rows(client, n, "float32", PARTITIONS)
    clf = RobustClassifier(rho=0.1, solver="lbfgs", max_iter=6, tol=None, client=client)
    sent: list[int] = []
    received: list[int] = []
    submit, total_of = _engine.DaskBlocks._submit, _engine.total_of

    def counting_submit(self: Any, part: Any, task: Any) -> Any:
        sent.append(len(pickle.dumps(task)))
        return submit(self, part, task)

    def counting_total(nodes: Any, add: Any) -> Any:  # what all workers have returned
        received.append(len(pickle.dumps(nodes)))
        return total_of(nodes, add)

    _engine.DaskBlocks._submit, _engine.total_of = counting_submit, counting_total
    try:
        start, cpu_start, here = time.perf_counter(), cpu_seconds(client), time.process_time()
        clf.fit(*held)
        here = time.process_time() - here
        seconds, cpu = time.perf_counter() - start, cpu_seconds(client) - cpu_start
    finally:
        _engine.DaskBlocks._submit, _engine.total_of = submit, total_of
    del held
    rounds = len(received)
    return {
        "rows": n,
        "workers": workers,
        "rounds": rounds,
        "iterations": clf.n_iter_,
        "tasks": len(sent) / rounds,
        "received": statistics.median(received),
        "largest": max(received),
        "sent": statistics.median(sent),
        "cpu": cpu / rounds,
        "on_workers": (cpu - here) / rounds,
        "seconds": seconds / rounds,
    }


# -- simulated clusters ----------------------------------------------------------------------------


def simulated(
    rng: np.random.Generator, workers: int, numbers: float, costs: dict[str, float], slow: float
) -> float:
    """Return the seconds of one round.

    The scheduler sends one task after the other and takes results one after the other.  Messages
    have an exponential latency besides a fixed one.  A worker needs a time that varies by 5%, and
    with probability `slow` ten times that.
    """
    task, latency = 0.5 * costs["task"], costs["latency"]
    sent = task * np.arange(1, workers + 1)
    work = numbers / workers * costs["number"] * np.exp(0.05 * rng.standard_normal(workers))
    work = np.where(rng.random(workers) < slow, 10.0 * work, work)
    travel = 2.0 * latency + rng.exponential(latency, (2, workers)).sum(axis=0)
    arrived = np.sort(sent + work + travel)
    # Each result is taken when it has arrived and those before it are taken.
    places = np.arange(workers)
    taken = np.maximum.accumulate(arrived - task * places) + task * (places + 1)
    return float(taken[-1])


def simulation(costs: dict[str, float], rounds: int = 200) -> list[dict[str, Any]]:
    """Return the median seconds of a round for 10 to 1,000 workers."""
    found = []
    for n in (10**9, 10**10, 10**11):
        for slow in (0.0, 0.001):
            for workers in (10, 20, 50, 100, 200, 500, 1000):
                rng = np.random.default_rng(0)
                numbers = float(n) * COLUMNS
                times = [simulated(rng, workers, numbers, costs, slow) for _ in range(rounds)]
                ideal = numbers * costs["number"] / workers
                found.append(
                    {
                        "rows": n,
                        "slow": slow,
                        "workers": workers,
                        "seconds": float(np.mean(times)),
                        "ideal": ideal,
                        "gigabytes": 4e-9 * numbers / workers,
                    }
                )
    return found


def draw(found: list[dict[str, Any]]) -> None:
    """Write docs/scaling.png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for k, n in enumerate(sorted({run["rows"] for run in found})):
        for slow, style in ((0.0, "-"), (0.001, "--")):
            runs = [run for run in found if run["rows"] == n and run["slow"] == slow]
            label = f"{n:.0e} rows" + (", stragglers" if slow else "")
            workers, seconds = zip(*((run["workers"], run["seconds"]) for run in runs), strict=True)
            axes.loglog(workers, seconds, style, color=f"C{k}", label=label)
        ideal = [run["ideal"] for run in found if run["rows"] == n and run["slow"] == 0.0]
        axes.loglog(workers, ideal, ":", color=f"C{k}", linewidth=1)
    axes.set_xlabel("workers")
    axes.set_ylabel("seconds for a round")
    axes.legend(fontsize=8)
    figure.savefig(DOCS / "scaling.png", dpi=150)


# -- the page --------------------------------------------------------------------------------------


def costs_of(runs: list[dict[str, Any]], overheads: list[dict[str, Any]]) -> dict[str, float]:
    """Return the constants of the formula, from the smallest and the largest measurement."""
    x = np.array([run["workers"] for run in overheads], dtype=np.float64)
    seconds = np.array([run["seconds"] for run in overheads])
    task, fixed = np.polyfit(x, seconds, 1)
    large = next(run for run in runs if run["rows"] == max(SIZES) and run["workers"] == 1)
    number = large["on_workers"] / (large["rows"] * COLUMNS)
    return {"fixed": fixed, "task": task, "number": number, "latency": 5e-4}


def table(runs: list[dict[str, Any]], costs: dict[str, float]) -> str:
    """Return the table of measured and predicted rounds."""
    lines = [
        "| rows | workers | rounds | tasks in a round | kB of a task | kB received | for the start "
        "| CPU ms of a round on workers | predicted | ratio | of client and scheduler "
        "| elapsed |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        expected = run["rows"] * COLUMNS * costs["number"]
        lines.append(
            f"| {run['rows']:,} | {run['workers']} | {run['rounds']} | {run['tasks']:.1f} "
            f"| {run['sent'] / 1000:.1f} | {run['received'] / 1000:.1f} "
            f"| {run['largest'] / 1000:,.0f} | {1000 * run['on_workers']:.1f} "
            f"| {1000 * expected:.1f} | {run['on_workers'] / expected:.2f} "
            f"| {1000 * (run['cpu'] - run['on_workers']):.1f} | {1000 * run['seconds']:.0f} |"
        )
    return "\n".join([*lines, ""])


def simulated_table(found: list[dict[str, Any]]) -> str:
    """Return the table of simulated rounds."""
    lines = [
        "| rows | workers | GB for a worker | seconds of a round | with stragglers | share of "
        "the time that is work | with stragglers |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    pairs = {(run["rows"], run["workers"], run["slow"]): run for run in found}
    for (n, workers, slow), run in pairs.items():
        if slow or workers not in (10, 100, 1000):
            continue
        late = pairs[n, workers, 0.001]
        lines.append(
            f"| {n:.0e} | {workers:,} | {run['gigabytes']:,.2f} | {run['seconds']:.3g} "
            f"| {late['seconds']:.3g} | {run['ideal'] / run['seconds']:.0%} "
            f"| {run['ideal'] / late['seconds']:.0%} |"
        )
    return "\n".join([*lines, ""])


def page(runs: list[dict[str, Any]]) -> str:
    """Return the tables of the page."""
    content = load("scaling")
    costs = content["costs"]
    empty = ", ".join(
        f"{1000 * each['seconds']:.0f} (W = {each['workers']})" for each in content["overheads"]
    )
    return "\n".join(
        [
            f"A round without rows takes {empty} ms of CPU time (client, scheduler and workers "
            f"together), about {1000 * costs['task']:.1f} ms more for each worker. A stored number "
            f"takes {1e9 * costs['number']:.2f} ns.\n",
            table(runs, costs),
            "Simulated, with these costs, latencies of 0.5 ms and an exponential one of the same "
            "mean, each way:\n",
            simulated_table(content["simulation"]),
            rounds.section(load("rounds")["runs"]),
            dask_ml.section(load("dask_ml")),
        ]
    )


def main() -> None:
    """Measure, simulate, and write results/scaling.json and docs/scaling.png."""
    overheads = [{"workers": workers, "seconds": overhead(workers)} for workers in MANY]
    print(overheads, flush=True)
    runs = []
    for workers in (1, 2):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, memory_limit=None, dashboard_address=":0"
            ) as cluster,
            Client(cluster) as client,
        ):
            for n in SIZES:
                runs.append(measure(client, n, workers))
                print(runs[-1], flush=True)
    costs = costs_of(runs, overheads)
    found = simulation(costs)
    save("scaling", [], runs=runs, overheads=overheads, costs=costs, simulation=found)
    draw(found)


if __name__ == "__main__":
    main()
