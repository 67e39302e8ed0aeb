"""Runs in parallel processes, and their rows on disk.

The process that makes a run writes its row atomically to a file in `parts/`; when all runs are
done, the rows move to `runs.parquet`.  A stopped or killed command loses no finished run, and
the same command continues.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
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
    """A run that failed, and why; `of_data` if its data set could not be loaded."""

    key: str
    dataset: str
    reason: str
    of_data: bool = False


class Store:
    """The rows in a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.file, self.parts = self.folder / "runs.parquet", self.folder / "parts"
        self.parts.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Write one row atomically."""
        name = hashlib.sha256(row["key"].encode()).hexdigest()[:24]
        _write([row], self.parts / f"{name}.parquet")

    def rows(self) -> list[Row]:
        """All rows, sorted by key, without duplicates."""
        paths = [self.file, *self._parts()]
        by_key = {row["key"]: row for path in paths if path.exists() for row in _read(path)}
        return [by_key[key] for key in sorted(by_key)]

    def keys(self) -> set[str]:
        """Keys of the finished runs."""
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
            f"{path} is damaged ({' '.join(str(error).split())[:100]}): delete it and run the same "
            f"command, which repeats its runs."
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
    """Fetch the data sets that are not on this machine; the reasons for those that fail."""
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
    report: Callable[[Run | Failure], None] = lambda outcome: None,
) -> list[Failure]:
    """Make the runs that the store does not have in `jobs` processes; return those that failed.

    Even with one job the runs have their own process, so their clock counts nothing else.  Within
    ``joblib.parallel_config("dask")`` they are made by the workers of the cluster, which need one
    thread each and the same folder.
    """
    from loky import ProcessPoolExecutor, as_completed
    from loky.process_executor import TerminatedWorkerError

    done = store.keys()
    todo = [run for run in runs if run.key not in done]
    failures = []
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    cluster = _executor_on_cluster()
    executor: Any = cluster or ProcessPoolExecutor(
        max(min(jobs, len(todo)), 1),
        initializer=_end_with,
        initargs=(os.getpid(),),
        env=threads,
    )
    try:
        futures = [executor.submit(_perform, run, store.folder) for run in todo]
        for future in as_completed(futures):
            outcome = future.result()
            if isinstance(outcome, Failure):
                failures.append(outcome)
            report(outcome)
    except TerminatedWorkerError as error:
        remedy = f"with fewer --jobs than {jobs}" if jobs > 1 else "when more memory is free"
        raise ChildProcessError(
            f"A worker process was killed, most likely because memory ran out: run the same "
            f"command {remedy}; finished runs are kept in {store.folder}."
        ) from error
    finally:
        if cluster:
            executor.shutdown(wait=False)
        else:
            executor.shutdown(kill_workers=True)
    return failures


def _executor_on_cluster() -> Any:
    """The workers of the cluster within `joblib.parallel_config("dask")`; None elsewhere."""
    from joblib.parallel import get_active_backend

    client = getattr(get_active_backend()[0], "client", None)
    if client is None:
        return None
    most = max(client.nthreads().values(), default=1)
    if most > 1:
        raise ValueError(
            f"The clocks of the paper's runs need workers with one thread each. Got {most} "
            f"threads: use LocalCluster(threads_per_worker=1) or dask worker --nthreads 1."
        )
    return client.get_executor(pure=False)


def _end_with(parent: int) -> None:
    """Let this process end soon after its parent; loky's workers would wait for it forever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)  # soon enough, and nothing beside the CPU time of a run
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _perform(run: Run, folder: Path) -> Run | Failure:
    """Make one run and write its row."""
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(1):
            row = perform(run)
    except Exception as error:  # a failed run must not stop the others
        reason = " ".join(str(error).split()) or type(error).__name__
        return Failure(run.key, run.dataset, reason, isinstance(error, datasets.DataError))
    Store(folder).add(row)
    return run
