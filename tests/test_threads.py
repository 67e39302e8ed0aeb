"""Threads: the same bits, whatever happens around them."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from drolearn import KL, _kernels, worst_case

module = sys.modules["drolearn.worst_case"]
LOSSES = np.logaddexp(0.0, np.random.default_rng(0).standard_normal(150_000))


def test_many_callers_at_once():
    """Whoever finds the threads busy works alone."""
    expected = worst_case(LOSSES, 0.1).weights
    with ThreadPoolExecutor(4) as callers:
        found = callers.map(lambda _: worst_case(LOSSES, 0.1, n_jobs=2).weights, range(24))
        assert all(np.array_equal(weights, expected) for weights in found)


def _in_a_child(queue) -> None:
    queue.put(worst_case(LOSSES, 0.1, n_jobs=2).value)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork():
    """The child has the parent's pool but none of its threads."""
    expected = worst_case(LOSSES, 0.1, n_jobs=2).value
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_a_child, args=(queue,))
    child.start()
    child.join(timeout=120)
    assert child.exitcode == 0
    assert queue.get() == expected


def test_ctrl_c_before_the_first_thread_takes_part():
    """Nobody waits for a thread that never came, and the next call works."""

    def interrupted(*arguments):
        if arguments[-2] == 0:
            raise KeyboardInterrupt
        return _kernels.share_plain(*arguments)

    expected = worst_case(LOSSES, 0.1, "kl", n_jobs=2).weights
    work, out = np.empty(_kernels.WORK), np.empty(LOSSES.size)
    with pytest.raises(KeyboardInterrupt):
        module._solve_threaded(
            _kernels.solve_plain, interrupted, KL().spec, LOSSES, np.empty(0), 0.1, work, out, 2
        )
    names = [thread.name for thread in threading.enumerate()]
    assert any(name.startswith("drolearn") for name in names)
    assert np.array_equal(worst_case(LOSSES, 0.1, "kl", n_jobs=2).weights, expected)


def test_threads_are_used_only_where_they_pay(monkeypatch):
    used = []
    original = module._solve_threaded
    monkeypatch.setattr(
        module, "_solve_threaded", lambda *a: used.append(a[2].code) or original(*a)
    )
    monkeypatch.setattr(module, "_THREADS_FROM", {_kernels.CHI2: 1 << 22, _kernels.KL: 1 << 19})
    for divergence in ("chi2", "kl", "total-variation"):
        worst_case(LOSSES, 0.1, divergence, n_jobs=2)
    assert used == [_kernels.TOTAL_VARIATION]


_INTERRUPTED = """
import numpy as np
from drolearn import worst_case
z = np.random.default_rng(0).exponential(size=2_000_000)
cases = [("chi2", None), ("hellinger", None), ("kl", 2), ("jensen-shannon", 2)]
for name, n_jobs in cases:
    worst_case(z, 0.1, name, n_jobs=n_jobs)  # compiled before the first signal
for _ in range(15):
    for name, n_jobs in cases:
        try:
            print("ready", flush=True)
            for _ in range(10_000):
                worst_case(z, 0.1, name, n_jobs=n_jobs)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_at_any_moment_raises_keyboard_interrupt():
    """Each SIGINT ends a call in KeyboardInterrupt; none ends the process."""
    rng = np.random.default_rng(0)
    lines = []
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            lines.append(line.strip())
            if lines[-1] == "ready":
                time.sleep(rng.uniform(0.0, 0.1))
                process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 0, errors
    assert lines == ["ready", "interrupted"] * 60
