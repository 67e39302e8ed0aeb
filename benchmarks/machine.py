"""What a measurement was made on, and how times are taken."""

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

from drolearn.paper.trial import cpu

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"


def describe() -> dict[str, Any]:
    """Versions, processor and number of processors."""
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
    """Median seconds of each task, in turns, all with the same number of threads.

    Each run follows one of the same task outside the clock, so that nobody pays for the state
    in which another has left the caches.
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
    """Write rows, machine and whatever pictures are made of to results/name.json."""
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": describe(), "rows": rows, **more}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """What was saved under a name, or nothing."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
