"""Timing, and the description of the machine that is stored with each result."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from drolearn._storage import replacing
from drolearn.paper.trial import cpu

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"


def describe() -> dict[str, Any]:
    """Return the CPU, the number of processors and the versions of the libraries."""
    names = ("drolearn", "numpy", "scipy", "scikit-learn", "cvxpy", "clarabel", "torch")
    return {
        "cpu": cpu(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in names},
    }


def side_by_side(
    tasks: dict[str, Callable[[], Any]], repeats: int = 15, threads: int = 1
) -> dict[str, float]:
    """Return the median seconds of each task, with the same number of threads for all.

    The tasks alternate. An untimed run of the same task precedes each timed one: otherwise a task
    would be timed with caches that another one has filled.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    with threadpool_limits(limits=threads):
        for _ in range(repeats):
            for name, task in tasks.items():
                task()
                start = time.perf_counter()
                task()
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def save(name: str, rows: list[dict[str, Any]], **more: Any) -> None:
    """Write the rows, the machine and any data for plots to results/name.json."""
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": describe(), "rows": rows, **more}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    with replacing(RESULTS / f"{name}.json") as file:
        file.write(f"{text}\n".encode())


def load(name: str) -> dict[str, Any]:
    """Read results/name.json; an empty dictionary if there is no such file."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
