"""Time of each solver to three accuracies on every data set: is "auto" close to the best?"""

from __future__ import annotations

import math
import sys
import time
import warnings
from typing import Any

import numpy as np

from benchmarks import datasets
from benchmarks.machine import DOCS, load, save
from drolearn import solve

METHODS = ("newton", "lbfgs", "gssg", "gssg-anchor", "sgd", "pssg", "auto")
TARGETS = (1e-2, 1e-3, 1e-6)


PASSES = (0.25, 0.5, 1, 2, 4, 8, 12)


def first_time(X, y, l2: float, solver: str, target: float, optimum: float) -> tuple[float, str]:
    """Return the seconds to reach the target (infinity if never) and the solver that was used.

    The target is a relative gap of the robust loss on all rows. Exact solvers are stopped when they
    reach it. Stochastic solvers do not evaluate all rows, so their time is that of the shortest run
    whose result reaches it.
    """
    goal = optimum * (1.0 + target)
    exact = solver in ("newton", "lbfgs")
    if solver == "auto":
        first = solve(X, y, l2=l2, solver="auto", tol=0.5 * target, max_iter=12, callback=bool)
        exact = first.solver in ("newton", "lbfgs")
        solver = "auto" if exact else first.solver
    solution = None
    for passes in (150,) if exact else PASSES:
        began = time.perf_counter()
        solution = solve(
            X, y, l2=l2, solver=solver, tol=0.5 * target if exact else None,
            random_state=0, max_iter=passes,
            callback=(lambda history: history.value[-1] <= goal) if exact else None,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        if solution.value <= goal:
            return seconds, solution.solver
    return math.inf, "" if solution is None else solution.solver


def main(*names: str) -> None:
    """Time all data sets or those named; write results/profile.json and docs/profile.png."""
    warnings.simplefilter("ignore")
    stored = load("profile").get("rows", [])
    order = sorted(datasets.TWO_CLASSES, key=_size)  # small ones first
    rows: list[dict[str, Any]] = [row for row in stored if names and row["data"] not in names]
    for name in [name for name in order if name in (names or order)]:
        X, y = datasets.load(name, standardised=True)
        l2 = 1e-4 if X.shape[1] > 300 else 1e-6
        optimum = solve(X, y, l2=l2, solver="exact", tol=1e-9, max_iter=2000).value
        for target in TARGETS:
            rough = ("gssg", "sgd", "pssg") if target < 1e-4 else ()
            large = ("newton",) if X.shape[1] > 2000 else ()
            methods = [method for method in METHODS if method not in rough + large]
            times = dict.fromkeys(methods, math.inf)
            chosen = ""
            for _ in range(3):  # alternate, to spread the noise over all methods
                for method in methods:
                    taken, used = first_time(X, y, l2, method, target, optimum)
                    times[method] = min(times[method], taken)
                    chosen = used if method == "auto" else chosen
            best = min((t for m, t in times.items() if m != "auto"), default=math.inf)
            rows.append(
                {
                    "data": name,
                    "target": target,
                    "seconds": {m: t if math.isfinite(t) else None for m, t in times.items()},
                    "chosen": chosen,
                    # None: no method reached the target.
                    "ratio": times["auto"] / best if math.isfinite(best) else None,
                }
            )
            print(
                f"{name:20s} {target:.0e} auto = {chosen:7s} {times['auto'] / best:5.2f} × best; "
                + ", ".join(f"{m} {t * 1e3:.0f}" for m, t in times.items()),
                flush=True,
            )
        rows.sort(key=lambda row: order.index(row["data"]))
        save("profile", rows)
    plot(rows)


def _size(name: str) -> int:
    return datasets.path(name).stat().st_size


def plot(rows: list[dict[str, Any]]) -> None:
    """Draw the share of data sets on which each method is within a factor of the best."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(TARGETS), figsize=(13, 4), layout="constrained", sharey=True)
    factors = np.logspace(0, 2, 200)
    for axis, target in zip(axes, TARGETS, strict=True):
        part = [row for row in rows if row["target"] == target]
        for method in METHODS:
            ratios = []
            for row in part:
                times = {m: t for m, t in row["seconds"].items() if t is not None}
                best = min((t for m, t in times.items()), default=math.inf)
                ratios.append(times.get(method, math.inf) / best)
            share = [np.mean(np.array(ratios) <= factor) for factor in factors]
            axis.semilogx(factors, share, label=method, linewidth=3 if method == "auto" else 1.2)
        axis.set(title=f"to a relative gap of {target:.0e}", xlabel="times the best")
    axes[0].set_ylabel("share of data sets")
    axes[0].legend()
    figure.savefig(DOCS / "profile.png", dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
