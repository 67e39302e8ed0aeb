"""Is solver="auto" close to the best? Time to three accuracies on every data set."""

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
    """Seconds until the robust loss on all rows is within the target, or infinity; the method.

    Exact solvers are stopped as soon as they are there.  Methods that draw rows see only some
    of them: their time is that of the shortest run that ends there.
    """
    goal = optimum * (1.0 + target)
    exact = solver in ("newton", "lbfgs")
    if solver == "auto":
        few = solve(X, y, l2=l2, solver="auto", tol=0.5 * target, max_iter=12, callback=bool)
        exact = few.solver in ("newton", "lbfgs")
        solver = "auto" if exact else few.solver
    found, taken = None, math.inf
    for passes in (150,) if exact else PASSES:
        began = time.perf_counter()
        found = solve(
            X, y, l2=l2, solver=solver, tol=0.5 * target if exact else None,
            random_state=0, max_iter=passes,
            callback=(lambda history: history.value[-1] <= goal) if exact else None,
        )  # fmt: skip
        taken = time.perf_counter() - began
        if found.value <= goal:
            return taken, found.solver
    return math.inf, "" if found is None else found.solver


def main(*names: str) -> None:
    """All data sets, or those that are named; the ratios of times to the best method's."""
    warnings.simplefilter("ignore")
    stored = load("profile").get("rows", [])
    # The small ones first.
    order = sorted(datasets.names(), key=_size)
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
            for _ in range(3):  # in turns: a busy moment of the machine hits all alike
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
                    # None: nobody got there.
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
    """Share of the problems each method solves within a factor of the best."""
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
