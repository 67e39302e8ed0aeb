"""drolearn against the χ² model of the `dro` library on the same problem.

`dro` depends on torch, xgboost and more. Only its linear model is needed here:

    pip install --no-deps --target FOLDER dro==0.4.3
    DRO_FOLDER=FOLDER python -m benchmarks against_dro
"""

from __future__ import annotations

import os
import sys
import time
import types
from importlib import import_module
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.exact_fits import synthetic
from benchmarks.machine import save
from benchmarks.training import robust
from benchmarks.worst_case import row
from drolearn import solve


def main() -> None:
    """Time one fit of `dro` and the median of 15 fits of drolearn."""
    folder = os.environ.get("DRO_FOLDER")
    if not folder:
        print("against_dro: skipped, the stored result is kept. Set DRO_FOLDER to measure it.")
        return
    for name in ("dro", "dro.linear_model"):  # import without running __init__
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules[name] = package
    model = import_module("dro.linear_model.chi2_dro").Chi2DRO(50, model_type="logistic")
    X, y = synthetic()
    rho = 0.1
    model.update({"eps": rho})
    times = []
    with threadpool_limits(1):
        began = time.perf_counter()
        model.fit(X, y)
        theirs = time.perf_counter() - began
        solution = solve(X, y, rho=rho, tol=1e-6)
        for _ in range(15):
            began = time.perf_counter()
            solve(X, y, rho=rho, tol=1e-6)
            times.append(time.perf_counter() - began)
    ours = float(np.median(times))
    # `dro` may define the radius differently, so compare the robust losses of the two models.
    other = robust(X, y, np.append(np.ravel(model.theta), model.b), rho)
    note = f"{theirs:.1f} s; robust loss {other:.6f}, drolearn {solution.value:.6f}"
    save(
        "against_dro",
        [row("dro 0.4.3, χ², 32,000 × 50", "drolearn", theirs / ours, "≥ 400 ×", note)],
    )


if __name__ == "__main__":
    main()
