"""Threads: equal bits, concurrent callers, forks, and the interpreter's lock."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from drolearn import _core, worst_case
from drolearn._solvers.linear_algebra import _blas, single_threaded_blas

module = sys.modules["drolearn._inner.worst_case"]
LOSSES = np.logaddexp(0.0, np.random.default_rng(0).standard_normal(150_000))


def test_concurrent_calls():
    """A call that finds the threads busy runs on its own thread."""
    expected = worst_case(LOSSES, 0.1).weights
    with ThreadPoolExecutor(4) as callers:
        results = callers.map(lambda _: worst_case(LOSSES, 0.1, n_jobs=2).weights, range(24))
        assert all(np.array_equal(weights, expected) for weights in results)


def _solve_in_child(queue) -> None:
    queue.put(worst_case(LOSSES, 0.1, n_jobs=2).value)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork():
    """A child has the parent's pool but none of its threads."""
    expected = worst_case(LOSSES, 0.1, n_jobs=2).value
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_solve_in_child, args=(queue,))
    child.start()
    child.join(timeout=120)
    assert child.exitcode == 0
    assert queue.get() == expected


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_threads_are_running():
    """A child forked during a call does not wait for threads it does not have."""
    z, stop = np.tile(LOSSES, 8), threading.Event()

    def work() -> None:
        while not stop.is_set():
            worst_case(z, 0.1, n_jobs=2)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                ok = worst_case(LOSSES, 0.1, n_jobs=2).value > 0.0
                os._exit(0 if ok else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        worker.join()


def test_equal_bits_for_any_number_of_threads():
    rng = np.random.default_rng(1)
    for threads in (2, 3, 4, 7):
        for base in (None, rng.exponential(size=LOSSES.size)):
            one, more = np.empty(LOSSES.size), np.empty(LOSSES.size)
            for divergence in ("chi2", "kl", "jensen-shannon", "cvar"):
                core = module.as_divergence(divergence).core
                alone = _core.solve(core, 0.1, LOSSES, base, one, 1)
                assert _core.solve(core, 0.1, LOSSES, base, more, threads) == alone
                assert np.array_equal(one, more)


def test_the_interpreter_lock_is_released():
    """Other Python threads run while the core works."""
    z, ticks, stop = np.tile(LOSSES, 20), 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1

    other = threading.Thread(target=tick)
    other.start()
    before = ticks
    worst_case(z, 0.1, "hellinger")
    during = ticks - before
    stop.set()
    other.join()
    assert during > 100


def test_a_process_that_ends_while_threads_wait():
    program = (
        "import numpy as np\n"
        "from drolearn import worst_case\n"
        "worst_case(np.random.default_rng(0).random(300_000), 0.1, 'hellinger', n_jobs=2)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_few_losses_use_one_thread(monkeypatch):
    used = []
    original = _core.solve
    monkeypatch.setattr(_core, "solve", lambda *a: used.append(a[-1]) or original(*a))
    monkeypatch.setattr(module, "_THREADS_FROM", {"chi2": 1 << 22, "kl": 1 << 19})
    for divergence in ("chi2", "kl", "total-variation"):
        worst_case(LOSSES, 0.1, divergence, n_jobs=2)
    assert used == [1, 1, min(2, os.cpu_count() or 1)]


def test_blas_has_one_thread_until_the_last_fit_ends():
    """Fits of several threads overlap: the first that ends must not give the others two threads."""

    def blas_threads() -> list[int]:
        return [each["num_threads"] for each in _blas().info() if each["user_api"] == "blas"]

    with _blas().limit(limits=2, user_api="blas"):
        before = blas_threads()
        assert 2 in before  # other packages may bring libraries that know one thread only
        first, second = single_threaded_blas(), single_threaded_blas()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before
