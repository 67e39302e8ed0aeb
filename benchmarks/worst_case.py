"""Speed of `worst_case`, as ratios measured side by side in one run."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cvxpy as cp
import numpy as np

from benchmarks.machine import save, side_by_side
from drolearn import CressieRead, Divergence, _core, worst_case
from drolearn.divergence import as_divergence

Row = dict[str, Any]


def row(what: str, against: str, ratio: float, bar: str, note: str = "", threads: str = "1") -> Row:
    """Return one line of the results and print it.

    `ratio` is the measured number, `against` what it is relative to (or its unit), `bar` the goal.
    """
    print(f"{what:58s} {ratio:10.4g}   (goal: {bar}) {note}", flush=True)
    return {
        "what": what, "against": against, "ratio": ratio, "bar": bar, "note": note,
        "threads": threads,
    }  # fmt: skip


def logistic_losses(size: int) -> np.ndarray:
    """Return losses like those of a trained classifier: most are small, some are large."""
    return np.logaddexp(0.0, -1.5 - 2.0 * np.random.default_rng(0).standard_normal(size))


def bisection(z: np.ndarray, rho: float, tolerance: float) -> np.ndarray:
    """χ² weights by bisection on the threshold η in NumPy, as users write it today."""
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
    """10⁶ losses with one thread: the compiled kernel and the Python function."""
    z = logistic_losses(10**6)
    out = np.empty(z.size)

    def kernel(divergence: str | Divergence, rho: float):
        core = as_divergence(divergence).core
        return lambda: _core.solve(core, rho, z, None, out)

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
    bars = ["", "≤ 0.1", "", "≤ 0.15", "≤ 0.55", *(["≤ 2.5"] * 7)]
    seconds = side_by_side(tasks)
    sort = seconds.pop("sort")
    return [
        row(f"{name}, 10⁶ losses", "numpy.sort", time / sort, bar, f"{1e3 * time:.2f} ms")
        for (name, time), bar in zip(seconds.items(), bars[1:], strict=True)
    ]


def with_threads() -> list[Row]:
    """Speed-up with two threads, relative to that of two independent solves at the same time.

    The latter is the most that this machine can gain.
    """
    rows = []
    with ThreadPoolExecutor(2) as pool:
        for size, label in ((10**6, "10⁶"), (10**7, "10⁷")):
            z = logistic_losses(size)
            pair = [(z.copy(), np.empty(size)) for _ in range(2)]
            for name in ("chi2", "kl", "jensen-shannon"):
                core = as_divergence(name).core

                def alone(part, core=core):
                    return _core.solve(core, 0.1, part[0], None, part[1])

                tasks = {
                    "one": lambda z=z, name=name: worst_case(z, 0.1, name),
                    "two": lambda z=z, name=name: worst_case(z, 0.1, name, n_jobs=2),
                    "alone": lambda alone=alone, pair=pair: alone(pair[0]),
                    "pair": lambda alone=alone, pair=pair: list(pool.map(alone, pair)),
                }
                seconds = side_by_side(tasks, repeats=25 if size == 10**6 else 9)
                gain = seconds["one"] / seconds["two"]
                ceiling = 2.0 * seconds["alone"] / seconds["pair"]
                note = f"{gain:.2f} × and {ceiling:.2f} ×"
                bar = "≥ 0.9" if (name, size) == ("kl", 10**7) else ""
                what = f"{name}, {label} losses: speed-up with n_jobs=2"
                against = "speed-up of two independent solves"
                rows.append(row(what, against, gain / ceiling, bar, note, "2"))
                what = f"{name}, {label} losses: time with n_jobs=2"
                rows.append(row(what, "n_jobs=1", 1.0 / gain, "≤ 1.05", "", "2 and 1"))
    return rows


def ten_losses() -> list[Row]:
    """Microseconds for ten losses: the compiled core alone, and the Python function."""
    blocks = logistic_losses(20_000).reshape(2000, 10)
    out = np.empty(10)
    rows = []
    for name in ("chi2", "kl", "reverse-kl"):
        core = as_divergence(name).core
        seconds = side_by_side(
            {
                "core": lambda core=core: [_core.solve(core, 0.1, b, None, out) for b in blocks],
                "python": lambda name=name: [worst_case(b, 0.1, name) for b in blocks],
            }
        )
        compiled, python = (1e6 * seconds[key] / len(blocks) for key in ("core", "python"))
        rows.append(row(f"{name}, 10 losses, compiled core", "µs", compiled, ""))
        rows.append(row(f"{name}, 10 losses, Python function", "µs", python, "≤ 30 µs"))
    return rows


def against_others() -> list[Row]:
    """drolearn against a bisection in NumPy and against cvxpy with Clarabel."""
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

    def solve_with_cvxpy() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.solve(solver="CLARABEL")

    seconds = side_by_side({"cvxpy": solve_with_cvxpy, "drolearn": lambda: worst_case(z, 0.1)}, 5)
    gain, wc = seconds["cvxpy"] / seconds["drolearn"], worst_case(z, 0.1)
    error = abs(float(problem.value) - wc.value)  # type: ignore[arg-type]
    note = f"duality gap {wc.gap:.0e}; cvxpy differs from the certified value by {error:.0e}"
    rows.append(row("χ², 10⁴ losses, cvxpy + Clarabel", "drolearn", gain, "≥ 500 ×", note))
    return rows


def process(program: str) -> float:
    """Return the seconds that a new process takes to run a program."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


_DATA = "import numpy as np; X = np.random.default_rng(0).random((200, 5)); y = X[:, 0] > 0.5; "
STARTS = {
    "process start to the end of the first worst_case": (
        "from drolearn import worst_case; worst_case([1.0, 2.0, 3.0])",
        "import numpy, scipy",
        "≤ 1.2",
    ),
    "process start to the end of the first RobustClassifier().fit": (
        _DATA + "from drolearn import RobustClassifier; RobustClassifier().fit(X, y)",
        _DATA + "from sklearn.linear_model import LogisticRegression as L; L().fit(X, y)",
        "≤ 1.25",
    ),
    "import drolearn": ("import drolearn", "import sklearn.linear_model", ""),
}


def new_process() -> list[Row]:
    """Seconds from the start of a process to its first result, including imports."""
    rows = []
    for what, (ours, theirs, bar) in STARTS.items():
        times: dict[str, list[float]] = {ours: [], theirs: []}
        for _ in range(15):
            for program, taken in times.items():
                taken.append(process(program))
        seconds, reference = (statistics.median(times[program]) for program in (ours, theirs))
        against = "the same with LogisticRegression" if "LogisticRegression" in theirs else theirs
        rows.append(row(what, against, seconds / reference, bar, f"{seconds:.2f} s"))
    return rows


def main() -> None:
    """Run all benchmarks of this module and write results/worst_case.json."""
    rows = []
    for part in (against_sorting, with_threads, ten_losses, against_others, new_process):
        rows += part()
    save("worst_case", rows)
