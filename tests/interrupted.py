"""Programs that are interrupted again and again, and how long each signal takes to arrive."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np

#: Seconds after which a program ends if a signal was lost or a call does not return.
LIMIT = 60

SET_UP = f"""
import faulthandler, signal, sys, time
import numpy as np
from drolearn import Divergence, Ending, RobustClassifier, solve, worst_case
# A process that was started in the background ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)

def limit():
    # After {LIMIT} seconds, writes where all threads are and ends the process; each call starts
    # the time anew.
    faulthandler.dump_traceback_later({LIMIT}, exit=True)
"""

# What is interrupted.  One call takes longer than a signal takes to arrive.
_CALLS = {
    "worst-case": """
z = rng.exponential(size=2_000_000)
few = z[:1000].copy()
mine = Divergence.custom(lambda s: s * np.log(s) - s + 1, np.log, np.exp, phi_zero=1.0)
names = ["chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon", "total-variation", "cvar", mine]
def call(k):
    rho = None if names[k % 8] == "cvar" else 0.1
    worst_case(z, rho, names[k % 8], n_jobs=1 + k // 8 % 2)
    worst_case(few, rho, names[k % 8])
""",
    "exact": """
X = rng.standard_normal((200_000, 20))
y = X[:, 0] + rng.standard_normal(200_000) > 0
def call(k):
    solver, n_jobs = ["newton", "lbfgs"][k % 2], 1 + k // 2 % 2
    RobustClassifier(rho=0.3, solver=solver, tol=1e-12, n_jobs=n_jobs).fit(X, y)
""",
    "stochastic": """
import scipy.sparse as sp
X = rng.standard_normal((100_000, 20))
y = X[:, 0] + rng.standard_normal(100_000) > 0
kinds = [X, sp.csr_matrix(X * (abs(X) > 1.0))]
def call(k):
    solver = ["gssg", "fsg", "pssg", "gssg-anchor"][k % 4]
    RobustClassifier(
        rho=0.3, solver=solver, tol=None, max_iter=1000, random_state=0, n_jobs=1 + k // 4 % 2
    ).fit(kinds[k // 8 % 2], y)
""",
}

_LOOP = """
def interrupted(k):
    print("ready", flush=True)
    while True:
        call(k)

for k in range(REPEATS):
    limit()
    try:
        interrupted(k)
    except KeyboardInterrupt:
        now = time.monotonic()
        print("interrupted", now, flush=True)
"""

_TIMER = """
class Alarm(Exception):
    pass

def handler(number, frame):
    raise Alarm

signal.signal(signal.SIGALRM, handler)
slowest = 0.0
for k in range(REPEATS):
    limit()
    try:
        began = time.monotonic()
        wait = rng.uniform(0.001, 0.1)
        signal.setitimer(signal.ITIMER_REAL, wait)
        while True:
            call(k)
    except Alarm:
        slowest = max(slowest, time.monotonic() - began - wait)
print("slowest", slowest, flush=True)
"""


def command(call: str, loop: str, repeats: int) -> list[str]:
    """The command that interrupts a call in a loop."""
    return [sys.executable, "-c", f"REPEATS = {repeats}\n{SET_UP}{_CALLS[call]}{loop}"]


def waits(call: str, repeats: int) -> tuple[list[float], str]:
    """Seconds from each SIGINT to its KeyboardInterrupt; fewer if the process ended before."""
    rng, sent, waited = np.random.default_rng(0), 0.0, []
    program = command(call, _LOOP, repeats)
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        for line in run.stdout:
            if line.startswith("ready"):
                time.sleep(rng.uniform(0.0, 0.15))
                sent = time.monotonic()
                run.send_signal(signal.SIGINT)
            else:
                waited.append(float(line.split()[1]) - sent)
        errors = run.stderr.read()
    return waited, f"exit code {run.returncode}: {errors}"


def timers(call: str, repeats: int) -> subprocess.CompletedProcess[str]:
    """Run a program with as many timers, whose handler raises."""
    return subprocess.run(command(call, _TIMER, repeats), capture_output=True, text=True)
