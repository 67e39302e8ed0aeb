"""Does any stochastic run diverge? All data sets, raw and standardised, at three radii."""

from __future__ import annotations

import math
import sys
import time
import warnings

from benchmarks import datasets
from benchmarks.machine import load, save
from drolearn import solve

SEEDS = 10


def main(*names: str) -> None:
    """Run three passes of each stochastic solver on all data sets or those named.

    Stores the worst robust loss over the seeds (ten for gssg, one for fsg, three for the others).
    Prints the settings in which the returned model or the averaged iterate is worse than the zero
    model.
    """
    stored = load("taming").get("rows", [])
    rows = [row for row in stored if names and row["data"] not in names]
    runs = 0
    began = time.perf_counter()
    warnings.simplefilter("ignore")
    for name in names or datasets.TWO_CLASSES:
        for standardised in (False, True):
            X, y = datasets.load(name, standardised)
            for solver in ("gssg", "gssg-anchor", "sgd", "pssg", "fsg"):
                repeats = 1 if solver == "fsg" else SEEDS if solver == "gssg" else 3
                for rho in (0.01, 0.1, 1.0):
                    states = [
                        solve(
                            X, y, rho=rho, solver=solver, max_iter=3, tol=None, random_state=seed
                        ).state
                        for seed in range(repeats)
                    ]
                    losses = [_robust_losses(X, y, rho, state) for state in states]
                    runs += len(losses)
                    rows.append(
                        {
                            "data": name,
                            "standardised": standardised,
                            "solver": solver,
                            "rho": rho,
                            "worst": max(best for best, _ in losses),
                            "worst_average": max(average for _, average in losses),
                            "runs": len(losses),
                        }
                    )
                    last = rows[-1]
                    if not last["worst"] <= math.log(2.0) or not last["worst_average"] <= 0.7:
                        print(last, flush=True)
        print(f"{name}: {runs} runs, {time.perf_counter() - began:.0f} s", flush=True)
    rows.sort(key=lambda row: datasets.TWO_CLASSES.index(row["data"]))
    save("taming", rows)


def _robust_losses(X, y, rho, state):
    """Robust losses of the returned model and of the average of the iterates."""
    import numpy as np

    from drolearn import worst_case

    values = []
    for theta in (state.best[0], state.averaged[0]):
        z = np.logaddexp(0.0, -y * (X @ theta[:-1] + theta[-1]))
        values.append(worst_case(z, rho).value if np.isfinite(z).all() else math.inf)
    return values


if __name__ == "__main__":
    main(*sys.argv[1:])
