"""`partial_fit` on a stream, with windows of several sizes: docs/streams.md.

python -m benchmarks streams
"""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np

from benchmarks.machine import save
from drolearn import GSSG, RobustRegressor, worst_case

ROWS, COLUMNS, CALL, SEEDS, RHO, BATCH = 200_000, 20, 10_000, 4, 1.0, 16
LEVELS = (0, 1, 2, 4, 6, 8, 10)


def rows() -> tuple[Any, Any]:
    """Return rows whose noise is skewed, and larger where the first column is large."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    noise = rng.exponential(size=ROWS) * np.exp(0.5 * X[:, 0])
    return X, X @ rng.standard_normal(COLUMNS) + noise


def measure(X: Any, y: Any, level: int, best: Any) -> dict[str, Any]:
    """Return what streams with this window reach, and the bias of its objective."""
    size = BATCH << level
    excess, seconds, held = [], [], 0
    for seed in range(SEEDS):
        solver = GSSG(batch_size=BATCH, max_level=level, fire=0.3, tame=False)
        reg = RobustRegressor(RHO, l2=0, solver=solver, random_state=seed)
        start = time.process_time()
        for first in range(0, ROWS, CALL):
            reg.partial_fit(X[first : first + CALL], y[first : first + CALL])
        seconds.append(time.process_time() - start)
        excess.append(reg.worst_case(X, y).value / best.robust_loss_ - 1.0)
        held = len(pickle.dumps(reg))
    losses = best.losses(X, y)
    blocks = losses[: ROWS // size * size].reshape(-1, size)[: 1_000_000 // size]
    mean = float(np.mean([worst_case(block, RHO).value for block in blocks]))
    return {
        "level": level,
        "rows": size,
        "bias": 1.0 - mean / best.robust_loss_,
        "excess": float(np.mean(excess)),
        "error": float(np.std(excess, ddof=1) / np.sqrt(SEEDS)),
        "seconds": float(np.median(seconds)),
        "bytes": held,
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        "| max_level | rows of the window | objective too small by | robust loss of the model, "
        "above the optimum | µs for a row | size of the pickle |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        lines.append(
            f"| {run['level']} | {run['rows']:,} | {run['bias']:.2%} "
            f"| {run['excess']:.2%} ± {run['error']:.2%} | {run['seconds'] / ROWS * 1e6:.2f} "
            f"| {run['bytes'] / 1000:,.0f} kB |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all windows, and write results/streams.json."""
    X, y = rows()
    best = RobustRegressor(RHO, l2=0).fit(X, y)
    runs = []
    for level in LEVELS:
        runs.append(measure(X, y, level, best))
        print(runs[-1], flush=True)
        save("streams", [], runs=runs)


if __name__ == "__main__":
    main()
