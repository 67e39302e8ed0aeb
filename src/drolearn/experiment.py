"""Runs on all processors, and their rows on disk.

A finished run is a file of one row in `parts/`, written whole or not at all by the process that
made it; now and then the rows move to `runs.parquet`.  Whatever stops the work, and when: what
was finished is there, and the same command does the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drolearn import data
from drolearn.protocol import Run
from drolearn.storage import replacing
from drolearn.trial import perform

Row = dict[str, Any]

__all__ = ["Failure", "Store", "available", "perform_all"]


@dataclass(frozen=True)
class Failure:
    """A run that could not be made, and why."""

    key: str
    dataset: str
    reason: str


class Store:
    """The rows of a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.file, self.parts = self.folder / "runs.parquet", self.folder / "parts"
        self.parts.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Keep a row, all of it or nothing."""
        name = hashlib.sha256(row["key"].encode()).hexdigest()[:24]
        _write([row], self.parts / f"{name}.parquet")

    def rows(self) -> list[Row]:
        """All rows, each once, in the order of their keys."""
        paths = [self.file, *self._parts()]
        found = {row["key"]: row for path in paths if path.exists() for row in _read(path)}
        return [found[key] for key in sorted(found)]

    def keys(self) -> set[str]:
        """The runs that are done."""
        return {row["key"] for row in self.rows()}

    def gather(self) -> None:
        """Move all rows into one file."""
        parts = self._parts()
        if parts:
            _write(self.rows(), self.file)
        for part in parts:
            part.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        return sorted(self.parts.glob("*.parquet"))


def _read(path: Path) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(
            f"{path} is damaged ({' '.join(str(error).split())[:100]}): delete it, and the same "
            f"command makes its runs again."
        ) from error


def _write(rows: list[Row], target: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    with replacing(target) as file:
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, file, compression="zstd")


def available(names: Iterable[str]) -> dict[str, str]:
    """Reasons why data sets cannot be loaded, after an attempt to fetch those not at hand."""
    reasons = {}
    for name in dict.fromkeys(names):
        try:
            entry = data.CATALOGUE.get(name)
            if entry is None or data.where(name) == entry.home != "generated":
                data.fetch(name)
        except data.DataError as error:
            reasons[name] = str(error)
    return reasons


def perform_all(
    runs: Iterable[Run],
    store: Store,
    jobs: int,
    tell: Callable[[Run | Failure], None] = lambda run: None,
) -> list[Failure]:
    """Make the runs that the store lacks, `jobs` at a time; those that failed."""
    from joblib import Parallel, delayed, parallel_config
    from threadpoolctl import threadpool_limits

    done = store.keys()
    left = [run for run in runs if run.key not in done]
    failures = []
    with parallel_config(backend="loky", inner_max_num_threads=1), threadpool_limits(1):
        parallel = Parallel(n_jobs=min(jobs, max(len(left), 1)), return_as="generator_unordered")
        outcomes: Any = parallel(delayed(_perform)(run, store.folder) for run in left)
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                failures.append(outcome)
            tell(outcome)
    return failures


def _perform(run: Run, folder: Path) -> Run | Failure:
    """One run, kept by the process that made it."""
    try:
        row = perform(run)
    except (data.DataError, ValueError, RuntimeError, MemoryError) as error:
        return Failure(run.key, run.dataset, str(error) or type(error).__name__)
    Store(folder).add(row)
    return run
