"""Against the `dro` library's χ² model on the same problem.

`dro` asks for torch, xgboost and more; only its linear model is needed here:

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

from benchmarks.machine import save
from benchmarks.training import robust, synthetic
from benchmarks.worst_case import row
from drolearn import solve


def main() -> None:
    """One fit of `dro`, some of ours."""
    folder = os.environ.get("DRO_FOLDER")
    if not folder:
        print("against_dro: set DRO_FOLDER to measure this; the stored result stays.")
        return
    for name in ("dro", "dro.linear_model"):  # packages without running their __init__
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules[name] = package
    model = import_module("dro.linear_model.chi2_dro").Chi2DRO(50, model_type="logistic")
    X, y = synthetic()
    rho = 0.1
    model.update({"eps": rho})
    began = time.perf_counter()
    model.fit(X, y)
    theirs = time.perf_counter() - began
    found = solve(X, y, rho=rho, tol=1e-6)
    times = []
    for _ in range(15):
        began = time.perf_counter()
        solve(X, y, rho=rho, tol=1e-6)
        times.append(time.perf_counter() - began)
    ours = float(np.median(times))
    # Their radius means what it means there: what counts is the robust loss of both models.
    other = robust(X, y, np.append(np.ravel(model.theta), model.b), rho)
    note = f"{theirs:.1f} s; robust loss {other:.6f}, ours {found.value:.6f}"
    save(
        "against_dro",
        [row("dro 0.4.3, χ², 32,000 × 50", "drolearn", theirs / ours, "≥ 400 ×", note)],
    )


if __name__ == "__main__":
    main()
