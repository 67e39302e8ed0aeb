"""drolearn against the χ² model of the `dro` library on the same problem.

pip install '.[benchmark]'          # in an environment of its own
python -m benchmarks against_dro
"""

from __future__ import annotations

import importlib.util
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.exact_fits import synthetic
from benchmarks.machine import save
from benchmarks.peers import RHO, with_dro
from benchmarks.training import robust
from benchmarks.worst_case import row
from drolearn import solve


def main() -> None:
    """Time one fit of `dro` and the median of 15 fits of drolearn."""
    if importlib.util.find_spec("dro") is None:
        print("against_dro: skipped, the stored result is kept. Install dro to measure it.")
        return
    X, y = synthetic()
    times = []
    with threadpool_limits(1):
        began = time.perf_counter()
        w, c = with_dro(X, y)
        theirs = time.perf_counter() - began
        solution = solve(X, y, rho=RHO, tol=1e-6)
        for _ in range(15):
            began = time.perf_counter()
            solve(X, y, rho=RHO, tol=1e-6)
            times.append(time.perf_counter() - began)
    ours = float(np.median(times))
    # `dro` may define the radius differently, so compare the robust losses of the two models.
    other = robust(X, y, np.append(w, c), RHO)
    note = f"{theirs:.1f} s; robust loss {other:.6f}, drolearn {solution.value:.6f}"
    save(
        "against_dro",
        [row("dro 0.4.3, χ², 32,000 × 50", "drolearn", theirs / ours, "≥ 400 ×", note)],
    )


if __name__ == "__main__":
    main()
