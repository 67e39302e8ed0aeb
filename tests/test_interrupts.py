"""Ctrl-C and timers: a signal ends a call with the exception of its handler, at any moment."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.interrupted import SET_UP, timers, waits

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process"),
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
]
CALLS = [("worst-case", 96), ("exact", 48), ("stochastic", 64)]


@pytest.mark.parametrize(("call", "repeats"), CALLS)
def test_ctrl_c_at_any_moment(call, repeats):
    """Every SIGINT becomes a KeyboardInterrupt; `benchmarks.interrupts` measures how soon."""
    waited, ending = waits(call, repeats)
    assert len(waited) == repeats, ending
    assert ending.startswith("exit code 0"), ending


@pytest.mark.parametrize(("call", "repeats"), CALLS)
def test_a_timer_whose_handler_raises(call, repeats):
    """Any exception of a signal handler is raised as it is."""
    run = timers(call, repeats)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("slowest")


def test_ctrl_c_keeps_the_best_model():
    """`solve` returns its best model; estimators keep it and raise KeyboardInterrupt."""
    program = f"""{SET_UP}
import os, threading
X = rng.standard_normal((100_000, 20))
y = X[:, 0] + rng.standard_normal(100_000) > 0
def later():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=later).start()
solution = solve(X, y, solver="gssg", tol=None, max_iter=10_000, random_state=0)
assert solution.ending is Ending.INTERRUPTED, solution.status
assert solution.value < 0.69
model = RobustClassifier(l2=0.0, solver="gssg", tol=None, max_iter=10_000, random_state=0)
threading.Thread(target=later).start()
try:
    model.fit(X, y)
except KeyboardInterrupt:
    assert model.robust_loss_ < 0.69
    print("kept")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "kept\n", run.stderr
