"""Blocks of rows on the workers of a Dask cluster.

Each worker holds its blocks in one object, and a pass is one task for each worker.  The partitions
that the blocks are made from stay in the cluster's memory during a fit (without a copy, where a
block uses the arrays of its partition).  If a worker is lost, Dask computes its partitions again
from the collection, and other workers make the blocks again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar
from uuid import uuid4

from dask._task_spec import GraphNode
from distributed import CancelledError, Client, Future, get_worker, wait
from fsspec.core import OpenFile

from drolearn._blocks import Blocks, Nodes, Pass, partial_totals, total_of

__all__ = ["DaskBlocks", "LostWorkersError", "Make"]

Block = TypeVar("Block")
Result = TypeVar("Result")
# Makes a block from the number of a partition, its data, and the number of threads of the worker;
# None if the partition has no rows.
Make = Callable[[int, Any, int], Any]

# Seconds to wait for results before looking for lost workers.
_CHECK_EVERY = 0.5
# Seconds to wait for a worker when there is none: at first, and after all were lost.
_FIRST_WORKER = 60.0
_NEXT_WORKER = 5.0


class LostWorkersError(RuntimeError):
    """Error that a cluster has lost all its workers, or its connection, during a computation.

    Examples
    --------
    >>> from drolearn.dask import LostWorkersError
    >>> issubclass(LostWorkersError, RuntimeError)
    True
    """


class _Held(Generic[Block]):
    """The blocks of one worker, by number."""

    def __init__(self, blocks: dict[int, Block]) -> None:
        self.blocks = blocks

    def __sizeof__(self) -> int:
        # The arrays are those of the partitions, whose size Dask knows.
        return 64


def _hold(make: Make, numbers: Sequence[int], *partitions: Any) -> _Held[Any]:
    """Make the blocks of one worker."""
    threads = get_worker().state.nthreads
    made = {k: make(k, data, threads) for k, data in zip(numbers, partitions, strict=True)}
    return _Held({k: block for k, block in made.items() if block is not None})


def _run(held: _Held[Any], task: Pass[Any, Any]) -> Nodes:
    """Compute a pass for the blocks of one worker."""
    return partial_totals({k: task.of(block) for k, block in held.blocks.items()}, task.add)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some blocks, and the worker that holds them."""

    worker: str
    numbers: list[int]
    held: Future


class DaskBlocks(Blocks[Block]):
    """Blocks on the workers of a cluster, a context manager that releases them at its end.

    Parameters
    ----------
    client : Client
        The client of the cluster.
    partitions : list of Delayed
        The data of each block.
    make : callable
        Makes a block from number, data and threads; None where there are no rows.
    """

    def __init__(self, client: Client, partitions: Iterable[Any], make: Make) -> None:
        self.client: Any = client  # its methods are coroutines too
        self.make = make
        self.tasks = 0
        """The number of tasks of all passes."""
        self.parts: list[_Part] = []
        self.partitions: list[Future] = []
        self.named: set[str] = set()
        """The workers that the tasks of the partitions name."""
        self._collections = list(partitions)

    def __enter__(self) -> Self:
        try:
            # Where workers are named, be it all of them, Dask computes each partition where its
            # data are. Otherwise it may place all of them on one worker.
            workers = self._alive(_FIRST_WORKER)
            self.named = set(workers)
            self.partitions = list(
                self.client.compute(self._collections, workers=workers, allow_other_workers=True)
            )
            self._wait_for_partitions()
            where: dict[str, list[int]] = defaultdict(list)
            holders = self.client.who_has(self.partitions)
            alive = sorted(self._alive(_NEXT_WORKER))
            for k, partition in enumerate(self.partitions):
                workers = holders.get(partition.key) or (alive[k % len(alive)],)
                # Of several copies, use that on the worker with the fewest partitions.
                where[min(workers, key=lambda worker: (len(where[worker]), worker))].append(k)
            self.parts = [self._hold(worker, part) for worker, part in where.items() if part]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all that the cluster holds for these blocks."""
        for future in (*(part.held for part in self.parts), *self.partitions):
            future.release()
        self.parts, self.partitions = [], []

    def remake(self, make: Make) -> None:
        """Make all blocks again, from the same partitions."""
        self.make, old = make, self.parts
        self.parts = [self._hold(part.worker, part.numbers) for part in old]
        for part in old:
            part.held.release()

    def run(self, task: Pass[Block, Result]) -> Result:
        """Return the total of a pass over all blocks, with one task for each worker."""
        self.rounds += 1
        nodes: Nodes = {}
        waiting = {part: self._submit(part, task) for part in self.parts}
        try:
            while waiting:
                for part, result in self._finished(waiting).items():
                    nodes.update(result)
                    waiting.pop(part).release()
                if lost := self._lost(waiting):
                    for part in lost:
                        waiting.pop(part).release()
                    waiting.update((new, self._submit(new, task)) for new in self._replace(lost))
        except CancelledError as error:
            raise LostWorkersError(_closed()) from error
        finally:
            if waiting and self.client.status == "running":
                self.client.cancel(list(waiting.values()), force=True)
        return total_of(nodes, task.add)

    # -- workers -------------------------------------------------------------------------

    def _submit(self, part: _Part, task: Pass[Any, Any]) -> Future:
        self.tasks += 1
        key = f"drolearn-{type(task).__name__}-{uuid4().hex}"
        return self.client.submit(_run, part.held, task, key=key, workers=[part.worker])

    def _finished(self, waiting: dict[_Part, Future]) -> dict[_Part, Nodes]:
        """Return the results of tasks that end within some time, in one message.

        A result without a timeout would wait for ever for a worker that was lost.
        """
        self._wait(waiting.values())
        done = {part: future for part, future in waiting.items() if future.done()}
        if not done:
            return {}
        results = self.client.gather(list(done.values()), asynchronous=True)
        loop = self.client.loop.asyncio_loop
        gathering = asyncio.run_coroutine_threadsafe(_result_of(results), loop)
        try:
            while not concurrent.futures.wait([gathering], _CHECK_EVERY).done:
                if self._lost(done):
                    return {}
            return dict(zip(done, gathering.result(), strict=True))
        finally:
            gathering.cancel()  # has no effect if it is done

    def _wait(self, futures: Iterable[Future]) -> bool:
        """Wait for some time; whether all futures are done."""
        with self.client.as_current(), suppress(TimeoutError):
            wait(list(futures), timeout=_CHECK_EVERY)
            return True
        return False

    def _hold(self, worker: str, numbers: list[int]) -> _Part:
        data = [self.partitions[k] for k in numbers]
        key = f"drolearn-hold-{uuid4().hex}"
        held = self.client.submit(_hold, self.make, numbers, *data, key=key, workers=[worker])
        return _Part(worker, numbers, held)

    def _wait_for_partitions(self) -> None:
        """Wait until all partitions are in memory; raise the error of one that failed."""
        try:
            while not self._wait(self.partitions):
                self._alive(_NEXT_WORKER)
        except CancelledError as error:
            raise LostWorkersError(_closed()) from error
        for k, partition in enumerate(self.partitions):
            if partition.status == "error":
                error: Any = partition.exception()
                files = ", ".join(map(repr, _files_of(self._collections[k])))
                read = f" from {files}" if files else ""
                raise RuntimeError(
                    f"Partition {k} could not be computed{read}: {type(error).__name__}: {error}"
                ) from error

    def _alive(self, patience: float) -> list[str]:
        """Return the workers; raise an error if there is none for some time."""
        end = time.monotonic() + patience
        while True:
            if self.client.status != "running":
                raise LostWorkersError(_closed())
            try:
                workers = list(self.client.ncores())
            except (OSError, CancelledError) as error:
                raise LostWorkersError(_closed()) from error
            if workers:
                return workers
            if time.monotonic() > end:
                raise LostWorkersError(
                    f"The cluster has had no worker for {patience:g} seconds: start workers, and "
                    f"fit again."
                )
            time.sleep(0.05)

    def _lost(self, waiting: Iterable[_Part]) -> list[_Part]:
        """Return the parts whose worker is gone."""
        parts = list(waiting)
        if not parts:
            return []
        alive = set(self._alive(_NEXT_WORKER))
        return [part for part in parts if part.worker not in alive]

    def _replace(self, lost: list[_Part]) -> list[_Part]:
        """Give the blocks of lost workers to all others."""
        workers = sorted(self._alive(_NEXT_WORKER))
        numbers = sorted(number for part in lost for number in part.numbers)
        for part in lost:
            part.held.release()
        self.parts = [part for part in self.parts if part not in lost]
        if not self.named & set(workers):
            self._compute_again(numbers, workers)
        share = -(-len(numbers) // len(workers))
        chunks = [numbers[i : i + share] for i in range(0, len(numbers), share)]
        new = [self._hold(worker, chunk) for worker, chunk in zip(workers, chunks, strict=False)]
        self.parts += new
        return new

    def _compute_again(self, numbers: list[int], workers: list[str]) -> None:
        """Submit partitions again, as their tasks name workers that are all gone.

        Dask never runs tasks that became ready while there was no worker, if they name others than
        those that join later.
        """
        for k in numbers:
            self.partitions[k].release()
        self.client.sync(asyncio.sleep, 0.0)  # the releases are sent before what follows
        self.named |= set(workers)
        again = self.client.compute(
            [self._collections[k] for k in numbers], workers=workers, allow_other_workers=True
        )
        for k, partition in zip(numbers, again, strict=True):
            self.partitions[k] = partition


async def _result_of(results: Awaitable[Any]) -> Any:
    return await results


def _files_of(partition: Any) -> list[str]:
    """Return the files that the tasks of a partition name."""
    found: dict[str, None] = {}
    graph, keys, needed = dict(partition.__dask_graph__()), list(partition.__dask_keys__()), set()
    while keys:  # the graph may have the tasks of other partitions, too
        key = keys.pop()
        if key in graph and key not in needed:
            needed.add(key)
            keys += graph[key].dependencies if isinstance(graph[key], GraphNode) else []

    def visit(value: Any) -> None:
        if isinstance(value, str):
            if "://" in value or os.path.isfile(value):
                found[value] = None
        elif isinstance(value, os.PathLike):
            visit(os.fspath(value))
        elif isinstance(value, dict):
            visit(list(value.values()))
        elif isinstance(value, list | tuple):
            for item in value:
                visit(item)
        elif isinstance(value, GraphNode):
            visit([getattr(value, name, None) for name in ("args", "kwargs", "value")])
        elif isinstance(value, OpenFile):
            visit(value.full_name)

    visit([graph[key] for key in needed])
    return list(found)


def _closed() -> str:
    return (
        "The connection to the cluster was lost: check that its scheduler runs and that the client "
        "is open, and fit again."
    )
