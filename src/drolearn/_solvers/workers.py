"""Threads for work that NumPy does, safe to interrupt.

`concurrent.futures` waits with Python code.  In Python 3.11, a signal in the middle of it ends in
"RuntimeError: cannot release un-acquired lock" instead of KeyboardInterrupt.  Here, the main thread
only calls methods of `SimpleQueue`, which are written in C.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["ordered_map"]

Result = TypeVar("Result")
# A task is a function, its argument, a queue for the result, and a list that is not empty once
# nobody waits for the result any more.
_Tasks = SimpleQueue[tuple[Callable[[int], Any], int, SimpleQueue[Any], list[bool]]]

# The tasks of each pool by its number of threads.  Pools are kept for the life of the process.
_pools: dict[int, _Tasks] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a child has none of the threads


def ordered_map(function: Callable[[int], Result], count: int, threads: int) -> Iterator[Result]:
    """The results of function(0), …, function(count − 1) in order, computed by several threads."""
    if threads == 1 or count == 1:
        yield from map(function, range(count))
        return
    tasks, results = _pool(threads), SimpleQueue[tuple[int, Any, BaseException | None]]()
    abandoned: list[bool] = []
    finished: dict[int, Any] = {}
    try:
        for k in range(count):
            tasks.put((function, k, results, abandoned))
        for k in range(count):
            while k not in finished:
                index, result, error = results.get()
                if error is not None:
                    raise error
                finished[index] = result
            yield finished.pop(k)
    finally:
        abandoned.append(True)


def _pool(threads: int) -> _Tasks:
    """The tasks of the pool with this many threads."""
    if threads not in _pools:
        tasks: _Tasks = SimpleQueue()
        for _ in range(threads):
            start_new_thread(_work, (tasks,))
        _pools[threads] = tasks
    return _pools[threads]


def _work(tasks: _Tasks) -> None:
    """What each thread does: one task after the other."""
    while True:
        function, argument, results, abandoned = tasks.get()
        if not abandoned:
            try:
                results.put((argument, function(argument), None))
            except BaseException as error:  # raised again where the result is awaited
                results.put((argument, None, error))
        del function, results, abandoned  # do not keep the data alive while waiting
