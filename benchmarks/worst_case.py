"""How fast is the worst case of losses? Ratios, measured side by side in one run."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cvxpy as cp
import numpy as np
from numba import njit

from benchmarks.machine import save, side_by_side
from drolearn import CressieRead, Divergence, _kernels, worst_case
from drolearn.divergence import as_divergence

Row = dict[str, Any]


def row(what: str, against: str, ratio: float, bar: str, note: str = "") -> Row:
    """One line of the table; `ratio` is a time divided by another, or a factor."""
    print(f"{what:58s} {ratio:10.4g}   (asked: {bar}) {note}", flush=True)
    return {"what": what, "against": against, "ratio": ratio, "bar": bar, "note": note}


def logistic_losses(size: int) -> np.ndarray:
    """Losses such as a trained classifier has them: most small, some large."""
    return np.logaddexp(0.0, -1.5 - 2.0 * np.random.default_rng(0).standard_normal(size))


def bisection(z: np.ndarray, rho: float, tolerance: float) -> np.ndarray:
    """What users write today: χ² weights by bisection on the threshold η, in NumPy."""
    low, high = z.min() - (z.max() - z.min()) * (1.0 + 1.0 / math.sqrt(rho)), z.max()
    while high - low > tolerance:
        eta = 0.5 * (low + high)
        u = np.maximum(z - eta, 0.0)
        if np.mean(u * u) > (1.0 + rho) * np.mean(u) ** 2:
            high = eta
        else:
            low = eta
    u = np.maximum(z - low, 0.0)
    return u / u.sum()


def against_sorting() -> list[Row]:
    """One thread, 10⁶ losses: into a preallocated output, and through Python."""
    z = logistic_losses(10**6)
    none, out, work = np.empty(0), np.empty(z.size), np.empty(_kernels.WORK)

    def kernel(divergence: str | Divergence, rho: float):
        spec = as_divergence(divergence).spec
        return lambda: _kernels.solve(spec, z, none, rho, work, out)

    tasks = {
        "sort": lambda: np.sort(z),
        "χ² kernel, ρ = 0.1": kernel("chi2", 0.1),
        "χ² Python function, ρ = 0.1": lambda: worst_case(z, 0.1),
        "χ² kernel, ρ = 10": kernel("chi2", 10.0),
        "KL kernel, ρ = 0.1": kernel("kl", 0.1),
        "reverse KL kernel, ρ = 0.1": kernel("reverse-kl", 0.1),
        "Hellinger kernel, ρ = 0.1": kernel("hellinger", 0.1),
        "Jensen-Shannon kernel, ρ = 0.1": kernel("jensen-shannon", 0.1),
        "Cressie-Read (k = 3) kernel, ρ = 0.1": kernel(CressieRead(3), 0.1),
        "Cressie-Read (k = 1.2) kernel, ρ = 0.1": kernel(CressieRead(1.2), 0.1),
        "total variation kernel, ρ = 0.1": kernel("total-variation", 0.1),
        "CVaR (worst tenth) kernel": kernel("cvar", 0.1),
    }
    bars = ["", "≤ 0.1", "≤ 0.2", "≤ 0.5", "≤ 0.6", *(["≤ 5"] * 5), "", ""]
    seconds = side_by_side(tasks)
    sort = seconds.pop("sort")
    return [
        row(f"{name}, 10⁶ losses", "numpy.sort", time / sort, bar, f"{1e3 * time:.2f} ms")
        for (name, time), bar in zip(seconds.items(), bars[1:], strict=True)
    ]


def with_threads() -> list[Row]:
    """Two threads against one, and what two unrelated solves at once reach on this machine."""
    rows = []
    with ThreadPoolExecutor(2) as pool:
        for size, label in ((10**6, "10⁶"), (10**7, "10⁷")):
            z = logistic_losses(size)
            pair = [(z.copy(), np.empty(size), np.empty(_kernels.WORK)) for _ in range(2)]
            for name in ("chi2", "kl", "jensen-shannon"):
                spec = as_divergence(name).spec

                def alone(part, spec=spec):
                    losses, out, work = part
                    return _kernels.solve(spec, losses, np.empty(0), 0.1, work, out)

                tasks = {
                    "one": lambda z=z, name=name: worst_case(z, 0.1, name),
                    "two": lambda z=z, name=name: worst_case(z, 0.1, name, n_jobs=2),
                    "alone": lambda alone=alone, pair=pair: alone(pair[0]),
                    "pair": lambda alone=alone, pair=pair: list(pool.map(alone, pair)),
                }
                seconds = side_by_side(tasks, repeats=25 if size == 10**6 else 9)
                gain = seconds["one"] / seconds["two"]
                ceiling = 2.0 * seconds["alone"] / seconds["pair"]
                note = f"two unrelated solves at once: {ceiling:.2f} times one"
                what = f"{name}, {label} losses, two threads"
                rows.append(row(what, "one thread", gain, "≥ 1.6 ×", note))
    return rows


@njit
def _many(spec, blocks, rho, work, out):
    none, total = np.empty(0), 0.0
    for i in range(blocks.shape[0]):
        answer = _kernels.Answer(*_kernels.solve(spec, blocks[i], none, rho, work, out))
        total += answer.value
    return total


def ten_losses() -> list[Row]:
    """Microseconds for ten losses, from compiled code and from Python."""
    blocks = logistic_losses(20_000).reshape(2000, 10)
    work, out = np.empty(_kernels.WORK), np.empty(10)
    rows = []
    for name in ("chi2", "kl", "reverse-kl"):
        spec = as_divergence(name).spec
        seconds = side_by_side(
            {
                "compiled": lambda spec=spec: _many(spec, blocks, 0.1, work, out),
                "python": lambda name=name: [worst_case(b, 0.1, name) for b in blocks],
            }
        )
        compiled, python = (1e6 * seconds[key] / len(blocks) for key in ("compiled", "python"))
        rows.append(row(f"{name}, 10 losses, compiled caller", "µs", compiled, "≤ 1 µs"))
        rows.append(row(f"{name}, 10 losses, Python function", "µs", python, "≤ 30 µs"))
    return rows


def against_others() -> list[Row]:
    """Against a bisection in NumPy and against cvxpy with Clarabel."""
    z = logistic_losses(10**6)
    seconds = side_by_side(
        {"bisection": lambda: bisection(z, 0.1, 1e-8), "drolearn": lambda: worst_case(z, 0.1)}, 5
    )
    gain = seconds["bisection"] / seconds["drolearn"]
    rows = [row("χ², 10⁶ losses, NumPy bisection at 1e-8", "drolearn", gain, "≥ 20 ×")]
    z = logistic_losses(10**4)
    p = cp.Variable(z.size, nonneg=True)
    ball: Any = [cp.sum(p) == 1.0, cp.sum_squares(p * z.size - 1.0) / z.size <= 0.1]
    problem = cp.Problem(cp.Maximize(z @ p), ball)

    def judge() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver="CLARABEL")

    seconds = side_by_side({"cvxpy": judge, "drolearn": lambda: worst_case(z, 0.1)}, 5)
    gain, wc = seconds["cvxpy"] / seconds["drolearn"], worst_case(z, 0.1)
    error = abs(float(problem.value) - wc.value)  # type: ignore[arg-type]
    note = f"duality gap {wc.gap:.0e}; cvxpy is {error:.0e} away from the certified value"
    rows.append(row("χ², 10⁴ losses, cvxpy + Clarabel", "drolearn", gain, "≥ 500 ×", note))
    return rows


def _process(program: str, cache: str) -> float:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return time.perf_counter() - start


def new_process() -> list[Row]:
    """Seconds from the start of a process to its first answer, and the cost of the import."""
    first = "from drolearn import worst_case; worst_case([1.0, 2.0, 3.0])"
    with tempfile.TemporaryDirectory() as cache:
        cold = _process(first, cache)
        warm = statistics.median(_process(first, cache) for _ in range(7))
    curve = first.replace("3.0])", "3.0], divergence='reverse-kl')")
    with tempfile.TemporaryDirectory() as cache:
        cold_curve = _process(curve, cache)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(7):
            ours.append(_process("import drolearn", cache))
            theirs.append(_process("import sklearn.linear_model, numba", cache))
    ratio = statistics.median(ours) / statistics.median(theirs)
    return [
        row("new process to first χ² answer, everything compiled", "s", cold, "< 15 s"),
        row("new process to first reverse KL answer, compiled", "s", cold_curve, "< 15 s"),
        row("new process to first answer, warm cache", "s", warm, "< 1 s"),
        row("import drolearn", "import sklearn.linear_model, numba", ratio, "≤ 1.3"),
    ]


def main() -> None:
    """Measure everything and write results/worst_case.json."""
    rows = []
    for part in (against_sorting, with_threads, ten_losses, against_others, new_process):
        rows += part()
    save("worst_case", rows)
