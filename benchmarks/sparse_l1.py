"""L1 penalties on sparse text: exact fits beside scikit-learn.  The table of l1.md.

python -m benchmarks sparse_l1
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks import datasets
from benchmarks.machine import save
from drolearn import solve

#: C and ρ of the fits.
FITS = ((1.0, 0.0), (1.0, 0.1), (10.0, 0.0), (10.0, 0.1), (100.0, 0.0))
#: The tolerances of liblinear, in this order, until its objective is as close as that of drolearn's
#: default tolerance promises.
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
CLOSE = 1e-6


def objective(X: Any, y: np.ndarray, w: np.ndarray, l1: float) -> float:
    """Return the mean logistic loss plus the penalty."""
    return float(np.logaddexp(0.0, -y * (X @ w)).mean() + l1 * abs(w).sum())


def fitted(X: Any, y: np.ndarray, **settings: Any) -> tuple[np.ndarray, float]:
    """Return the coefficients of scikit-learn with an l1 penalty, and the CPU seconds."""
    model = LogisticRegression(penalty="l1", fit_intercept=False, random_state=0, **settings)
    start = time.process_time()
    model.fit(X, y)
    return model.coef_[0], time.process_time() - start


def measure() -> list[dict[str, Any]]:
    """Fit rcv1_27k without an intercept, which liblinear would penalise."""
    X, y = datasets.load("rcv1_27k")
    X = X.astype(np.float64)
    solve(X[:1000], y[:1000], rho=0.1, l1=0.01)  # imports what is imported on first use
    runs = []
    for C, rho in FITS:
        l1 = 1.0 / (C * y.size)
        start = time.process_time()
        found = solve(X, y, rho=rho, l1=l1, fit_intercept=False)
        run = {
            "C": C,
            "rho": rho,
            "seconds": time.process_time() - start,
            "value": found.value,
            "gap": found.gap / found.value,
            "ending": found.ending.name,
            "used": int((found.coef != 0.0).sum()),
        }
        if rho == 0.0:
            for tol in TOLERANCES:
                w, seconds = fitted(X, y, C=C, solver="liblinear", tol=tol, max_iter=5000)
                excess = objective(X, y, w, l1) / found.value - 1.0
                if tol == TOLERANCES[0]:
                    run |= {"default_seconds": seconds, "default_excess": excess}
                run |= {"liblinear": seconds, "tol": tol, "excess": excess}
                if excess <= CLOSE:
                    break
        runs.append(run)
        print(run, flush=True)
    return runs


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of docs/l1.md."""
    lines = [
        f"rcv1_27k (27,613 rows, 47,236 columns, 78 numbers in a row), logistic loss, χ², no "
        f"intercept, l1 = 1/(C·N), CPU seconds of one run each on one thread. *Excess* is the "
        f"objective relative to ours. *liblinear* first has its default tolerance, then the first "
        f"of 1e-4, 1e-5 … 1e-8 with an excess of at most {CLOSE:g}. It proves no gap.",
        "",
        "| C | ρ | used columns | value | gap | s | liblinear: s | excess | closer: s | excess |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        cells = [
            f"{run['C']:g}", f"{run['rho']:g}", f"{run['used']:,}", f"{run['value']:.8f}",
            f"{run['gap']:.0e}", f"{run['seconds']:.2f}",
        ]  # fmt: skip
        for seconds, excess in (("default_seconds", "default_excess"), ("liblinear", "excess")):
            known = seconds in run
            cells += [f"{run[seconds]:.2f}", f"{run[excess]:+.0e}"] if known else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and save."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn, on names and unfinished fits
        runs = measure()
    save("sparse_l1", [], runs=runs)


if __name__ == "__main__":
    main()
