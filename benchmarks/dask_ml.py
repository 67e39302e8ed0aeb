"""Exact robust fits against dask-ml's LogisticRegression on one cluster: docs/scaling.md.

python -m benchmarks dask_ml     # needs: pip install dask-ml
"""

from __future__ import annotations

import time
import warnings
from importlib.metadata import version
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import drolearn
from benchmarks.dask import COLUMNS, cpu_seconds
from benchmarks.machine import save
from drolearn.dask import RobustClassifier

SIZES, PARTITIONS, LIMIT = (10**5, 10**6), 8, 1e-9
#: Solvers of dask-ml; its default, "admm", takes five times as long as "lbfgs".
SOLVERS = ("lbfgs", "newton")


def excess(clf: Any, coef: Any, intercept: Any, X: Any, y: Any, best: float) -> float:
    """Return how far the objective of `clf`, with other coefficients, is above the optimum."""
    clf.coef_, clf.intercept_ = np.atleast_2d(coef), np.atleast_1d(intercept)
    value = clf.worst_case(X, y).value + 0.5 * clf.l2_ * float(np.sum(clf.coef_**2))
    return value / best - 1.0


def measure(client: Client, n: int) -> list[dict[str, Any]]:
    """Return time and accuracy of all, on the same rows in the cluster's memory."""
    from dask_ml.linear_model import LogisticRegression  # pyright: ignore

    size = n // PARTITIONS
    chunks: Any = (size, COLUMNS)
    X = da.random.default_rng(0).standard_normal((n, COLUMNS), chunks=chunks)
    noise = da.random.default_rng(1).standard_normal(n, chunks=chunks[:1])
    y = (X[:, :10].sum(axis=1) + 4.0 * noise > 0.0).astype(np.int8)
    X, y = client.persist([X, y])
    rows, labels = X.compute(), y.compute()
    fits: dict[str, Any] = {f"dask_ml, {name}": LogisticRegression(solver=name) for name in SOLVERS}
    for rho in (0.0, 0.1):
        fits[f"drolearn, ρ = {rho:g}"] = RobustClassifier(rho, tol=LIMIT, client=client)
    judges = {}
    for rho in (0.0, 0.1):
        judges[rho] = drolearn.RobustClassifier(rho, tol=1e-10).fit(rows, labels)
    best = {rho: judge.objective_ for rho, judge in judges.items()}
    found = []
    for name, clf in fits.items():
        rho = 0.1 if name.endswith("0.1") else 0.0
        clf.fit(X, y)  # warms up
        start, cpu = time.perf_counter(), cpu_seconds(client)
        clf.fit(X, y)
        seconds, cpu = time.perf_counter() - start, cpu_seconds(client) - cpu
        gap = excess(judges[rho], clf.coef_, clf.intercept_, rows, labels, best[rho])
        found.append({"rows": n, "name": name, "seconds": seconds, "cpu": cpu, "gap": gap})
        print(found[-1], flush=True)
    return found


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        "| rows × columns | model | time | CPU time | relative gap to its optimum |",
        "|---|---|---:|---:|---:|",
    ]
    for run in runs:
        robust = next(
            each for each in runs if each["rows"] == run["rows"] and each["name"].endswith("0.1")
        )
        lines.append(
            f"| {run['rows']:,} × {COLUMNS} | {run['name']} "
            f"| {run['seconds'] / robust['seconds']:.2f} × | {run['cpu'] / robust['cpu']:.2f} × "
            f"| {run['gap']:.1e} |"
        )
    return "\n".join([*lines, ""])


def section(content: dict[str, Any]) -> str:
    """Return the section of the page."""
    versions = ", ".join(f"{name} {number}" for name, number in content["libraries"].items())
    return (
        f"## Beside dask-ml\n\n{versions}, measured by `python -m benchmarks.dask_ml`. "
        f"`LogisticRegression` of dask-ml and plain and robust fits of drolearn, on the same "
        f"rows of float64 in the memory of two local workers, {PARTITIONS} partitions, the same "
        f"penalty. Times are divided by those of the robust fit; each is that of a second fit. "
        f"dask-ml also penalises the intercept, which is about 0 here.\n\n"
        f"{table(content['runs'])}"
    )


def main() -> None:
    """Measure, and write results/dask_ml.json."""
    warnings.simplefilter("ignore")
    libraries = {name: version(name) for name in ("dask", "dask-ml", "dask-glm")}
    runs: list[dict[str, Any]] = []
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=None, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        for n in SIZES:
            runs += measure(client, n)
            save("dask_ml", [], runs=runs, libraries=libraries)


if __name__ == "__main__":
    main()
