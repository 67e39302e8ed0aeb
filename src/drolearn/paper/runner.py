"""Runs on all processors, and their rows on disk.

A finished run is a file of one row in `parts/`, written whole or not at all by the process that
made it; when all are made, the rows move to `runs.parquet`.  Whatever stops the work, and when:
what was finished is there, and the same command does the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drolearn import datasets
from drolearn._storage import replacing
from drolearn.paper.protocol import Run
from drolearn.paper.trial import perform

Row = dict[str, Any]

__all__ = ["Failure", "Store", "available", "perform_all"]


@dataclass(frozen=True)
class Failure:
    """A run that could not be made, and why."""

    key: str
    dataset: str
    reason: str
    of_data: bool = False


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
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: [row.get(name) for row in rows] for name in names}
        table = pyarrow.Table.from_pydict(columns)
        pyarrow.parquet.write_table(table, file, compression="zstd")


def available(names: Iterable[str]) -> dict[str, str]:
    """Reasons why data sets cannot be loaded, after an attempt to fetch those not at hand."""
    reasons = {}
    for name in dict.fromkeys(names):
        try:
            entry = datasets.CATALOGUE[name]
            if entry.inside is None and datasets.where(name) == entry.home:
                datasets.fetch(name)
        except datasets.DataError as error:
            reasons[name] = str(error)
    return reasons


def perform_all(
    runs: Iterable[Run],
    store: Store,
    jobs: int,
    tell: Callable[[Run | Failure], None] = lambda run: None,
) -> list[Failure]:
    """Make the runs that the store lacks in `jobs` processes; those that failed.

    Every run has a process to itself, even if there is only one: its clock counts nothing else.
    """
    from joblib.externals.loky import ProcessPoolExecutor, as_completed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    done = store.keys()
    left = [run for run in runs if run.key not in done]
    failures = []
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    executor = ProcessPoolExecutor(max_workers=max(min(jobs, len(left)), 1), env=threads)
    try:
        parent = os.getpid()
        waiting = [executor.submit(_perform, run, store.folder, parent) for run in left]
        for future in as_completed(waiting):
            outcome = future.result()
            if isinstance(outcome, Failure):
                failures.append(outcome)
            tell(outcome)
    except TerminatedWorkerError as error:
        raise ChildProcessError(
            f"A process that made a run was killed, most likely for want of memory: finished runs "
            f"are kept in {store.folder}; go on with fewer --jobs than {jobs}."
        ) from error
    finally:
        executor.shutdown(kill_workers=True)
    return failures


def _perform(run: Run, folder: Path, parent: int) -> Run | Failure:
    """One run, kept by the process that made it."""
    from threadpoolctl import threadpool_limits

    if os.getppid() != parent:  # nobody waits for this any more
        os._exit(1)
    try:
        with threadpool_limits(1):
            row = perform(run)
    except Exception as error:  # one run must not take the others with it
        said = " ".join(str(error).split()) or type(error).__name__
        return Failure(run.key, run.dataset, said, isinstance(error, datasets.DataError))
    Store(folder).add(row)
    return run
