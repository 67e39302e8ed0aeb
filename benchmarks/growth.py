"""How fits grow with rows, columns, non-zeros and threads: CPU seconds, and bytes of memory.

    python -m benchmarks growth

Each line is the cost at a size divided by that at a quarter of it: 4 is linear growth.  Threads are
compared by wall-clock time, which needs a quiet machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.machine import save
from benchmarks.peers import cpu, data
from benchmarks.worst_case import Row, row
from drolearn import solve, worst_case


def _least(task: Callable[[], Any]) -> float:
    return cpu(task, 5)[0]


def _growth(what: str, sizes: tuple[str, str], small: float, large: float, bar: str) -> Row:
    note = f"{1e3 * small:.3g} ms and {1e3 * large:.3g} ms"
    return row(
        f"{what}: {sizes[1]} against {sizes[0]}", "the smaller one", large / small, bar, note
    )


def growth() -> list[Row]:
    """CPU time of four times as many losses, rows, columns and non-zeros."""
    rows = []
    z = np.random.default_rng(0).exponential(size=4 * 10**6)
    for name in ("chi2", "kl"):
        small, large = (
            _least(lambda n=n, k=name: worst_case(z[:n], 0.1, k)) for n in (10**6, z.size)
        )
        sizes = ("10⁶", "4·10⁶")
        rows.append(_growth(f"worst_case, {name}, losses", sizes, small, large, "≤ 5"))
        rows[-1]["note"] += "; 8 and 32 MB: the larger array does not stay in the cache"
    X, y = data(100_000, 20)
    drawn = {"solver": "gssg", "max_iter": 2, "tol": None, "random_state": 0}
    fit: dict[str, Any] = {"exact": {"solver": "lbfgs"}, "gssg": drawn}
    for name, options in fit.items():
        small, large = (
            _least(lambda n=n, o=options: solve(X[:n], y[:n], l2=1e-3, **o))
            for n in (25_000, 100_000)
        )
        work = ", two passes" if name == "gssg" else ""
        what = f"{name}{work}, d = 20, rows"
        rows.append(_growth(what, ("25,000", "100,000"), small, large, "≤ 5"))
    X, y = data(20_000, 200)
    small, large = (
        _least(lambda d=d: solve(np.ascontiguousarray(X[:, :d]), y, l2=1e-3, solver="lbfgs"))
        for d in (50, 200)
    )
    rows.append(_growth("exact, 20,000 rows, columns", ("50", "200"), small, large, "≤ 5"))
    rng = np.random.default_rng(0)
    sparse = [sp.random(20_000, 5_000, density, "csr", rng=0) for density in (0.005, 0.02)]
    labels = [np.where(part @ rng.standard_normal(5_000) > 0, 1, -1) for part in sparse]
    small, large = (
        _least(lambda A=A, b=b: solve(A, b, l2=1e-5, solver="gssg", max_iter=2, tol=None,
                                      random_state=0))
        for A, b in zip(sparse, labels, strict=True)
    )  # fmt: skip
    what, sizes = "gssg, two passes, 20,000 × 5,000, non-zeros of a row", ("25", "100")
    return [*rows, _growth(what, sizes, small, large, "≤ 5")]


_MEMORY = """
import json, resource, sys
import numpy as np
from drolearn import solve
n, solver = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
X = rng.standard_normal((n, 50))
y = np.where(X[:, 0] + rng.standard_normal(n) > 0, 1, -1)
solve(X[:1000], y[:1000], l2=1e-3, solver=solver, max_iter=2, tol=None, random_state=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
solve(X, y, l2=1e-3, solver=solver, max_iter=5, tol=None, random_state=0)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([1024 * (after - before), X.nbytes]))
"""


def memory() -> list[Row]:
    """Memory that a fit adds to the data, in new processes."""
    rows = []
    for solver in ("lbfgs", "newton", "gssg"):
        command = [sys.executable, "-c", _MEMORY, "500000", solver]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        extra, size = json.loads(run.stdout)
        what = f"extra peak memory of {solver}, 500,000 × 50 in float64"
        rows.append(row(what, "the data", extra / size, "≤ 0.6", f"data: {size / 2**20:.0f} MiB"))
    return rows


def threads() -> list[Row]:
    """Wall-clock time with two threads divided by that with one, alternating."""
    X, y = data(200_000, 50)
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(6):
        for jobs, seconds in times.items():
            began = time.perf_counter()
            solve(X, y, l2=1e-3, solver="lbfgs", n_jobs=jobs)
            seconds.append(time.perf_counter() - began)
    ratio = min(times[2][1:]) / min(times[1][1:])
    return [
        row("exact, 200,000 × 50: time with n_jobs=2", "n_jobs=1", ratio, "≤ 1.05", "", "2 and 1")
    ]


def main() -> None:
    """Run all parts and write results/growth.json."""
    with threadpool_limits(1):
        rows = [*growth(), *memory()]
    save("growth", [*rows, *threads()])


if __name__ == "__main__":
    main()
