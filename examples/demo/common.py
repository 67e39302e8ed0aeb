"""What all parts use: means with intervals, comparisons in words, and runs in parallel."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import t as student

# Colours of Okabe and Ito, which all readers can tell apart.
BLACK, ORANGE, BLUE, GREEN = "#000000", "#E69F00", "#0072B2", "#009E73"
RED, PINK, GREY = "#D55E00", "#CC79A7", "#777777"


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95% interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: ArrayLike) -> Interval:
        """The interval of Student's t for the mean of repeated runs."""
        runs = np.asarray(values, dtype=np.float64)
        error = runs.std(ddof=1) / math.sqrt(runs.size)
        return cls(float(runs.mean()), float(student.ppf(0.975, runs.size - 1) * error))

    @classmethod
    def of_change(cls, new: ArrayLike, old: ArrayLike) -> Interval:
        """The change from `old` to `new` in percent, run by run."""
        return cls.of(100.0 * (np.asarray(new) / np.asarray(old) - 1.0))

    def __format__(self, form: str) -> str:
        return f"{self.mean:{form}} ± {self.half:{form}}"


def compared(difference: Interval, unit: str, other: str) -> str:
    """Say in words whether something is lower or higher than `other`."""
    # One digit after the point, or two if the interval would be rounded to zero.
    digits = 2 if difference.half < 0.05 else 1
    size = f"{abs(difference.mean):.{digits}f} ± {difference.half:.{digits}f}{unit}"
    side = "lower" if difference.mean < 0.0 else "higher"
    if abs(difference.mean) <= difference.half:
        return f"not clearly different from {other} ({size} {side})"
    return f"{size} {side} than {other}"


def new_table(title: str, *heads: str) -> Table:
    """An empty table whose first column is text and whose other columns are numbers."""
    table = Table(title=title)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left")
    return table


def run_all(run: Callable[[int], Any], runs: int, label: str, console: Console) -> list[Any]:
    """Call `run` with the seeds 0, 1, … in parallel processes, with a progress bar."""
    jobs = min(os.cpu_count() or 1, runs)
    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        with _blocked_interrupts():
            results: Any = Parallel(return_as="generator")(delayed(run)(i) for i in range(runs))
        return list(track(results, label, runs, console=console, transient=True))


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Start processes that do not see Ctrl-C: this process ends them, without their tracebacks.

    Processes inherit the signals that are blocked. One that comes here is delivered at the end.
    """
    if sys.platform == "win32":  # has no masks of signals
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
