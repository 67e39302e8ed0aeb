"""Threads for NumPy's work: order, exceptions, interrupted callers, forks."""

from __future__ import annotations

import os
import threading
import time

import pytest

from drolearn._solvers.workers import ordered_map


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order(threads):
    def late_at_first(k: int) -> int:
        time.sleep(0.01 * (k % 3 == 0))
        return k * k

    assert list(ordered_map(late_at_first, 12, threads)) == [k * k for k in range(12)]
    assert list(ordered_map(late_at_first, 0, threads)) == []


def test_several_threads_work_at_once():
    both = threading.Barrier(2)
    assert sorted(ordered_map(lambda _: both.wait(timeout=30), 2, 2)) == [0, 1]


def test_exceptions_reach_the_caller_and_the_pool_survives():
    def fail(k: int) -> float:
        return 1.0 / (k - 3)

    with pytest.raises(ZeroDivisionError):
        list(ordered_map(fail, 8, 2))
    assert list(ordered_map(abs, 3, 2)) == [0, 1, 2]


def test_tasks_nobody_waits_for_are_dropped():
    done = []

    def slow(k: int) -> None:
        time.sleep(0.02)
        done.append(k)

    results = ordered_map(slow, 50, 2)
    next(results)
    results.close()  # as after Ctrl-C
    assert list(ordered_map(abs, 3, 2)) == [0, 1, 2]  # does not wait for the other tasks
    assert len(done) < 25


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_its_own_threads():
    assert list(ordered_map(abs, 3, 2)) == [0, 1, 2]
    child = os.fork()
    if child == 0:
        os._exit(0 if list(ordered_map(abs, 3, 2)) == [0, 1, 2] else 1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0
            return
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child waits for threads that it does not have")
