"""The intervals of radius_between where the divergence is known: the table of docs/shifts.md.

python -m benchmarks shifts    # some minutes
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks.machine import save
from drolearn import radius_between
from drolearn.divergence import as_divergence

Samples = tuple[np.ndarray, np.ndarray]
NAMES = {"chi2": "χ²", "kl": "KL", "total-variation": "total variation"}
MODELS: dict[str, Any] = {"logistic": LogisticRegression(), "default": None}
REPEATS = {"logistic": 200, "default": 80}
ROWS, FEATURES = 1000, 5
DISTANCES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
OLD_MIX, NEW_MIX = (0.5, 0.3, 0.15, 0.05), (0.3, 0.3, 0.2, 0.2)


def normal(distance: float, rng: np.random.Generator) -> Samples:
    """Return normal rows, the new ones moved along the first feature."""
    old, new = rng.standard_normal((2, ROWS, FEATURES))
    new[:, 0] += distance
    return old, new


def groups(rng: np.random.Generator) -> Samples:
    """Return rows that only name a group, one column for each; the new ones have another mix."""
    one = np.eye(len(OLD_MIX))
    old, new = (one[rng.choice(len(mix), ROWS, p=mix)] for mix in (OLD_MIX, NEW_MIX))
    return old, new


def cases() -> list[tuple[str, Any, dict[str, float]]]:
    """Return the title, the function that draws samples, and the divergences of each case."""
    found: list[tuple[str, Any, dict[str, float]]] = []
    for distance in DISTANCES:
        truth = {
            "chi2": math.expm1(distance**2),
            "kl": distance**2 / 2.0,
            "total-variation": math.erf(distance / math.sqrt(8.0)),
        }
        title = f"normal, {distance:g} apart" if distance else "no shift"
        found.append((title, lambda rng, distance=distance: normal(distance, rng), truth))
    mixes = np.array(NEW_MIX), np.array(OLD_MIX)
    found.append(("mix of groups", groups, {n: as_divergence(n).between(*mixes) for n in NAMES}))
    return found


def measure(model: str, case: int) -> list[dict[str, Any]]:
    """Draw many pairs of samples; compare estimates and intervals with the divergence."""
    title, draw, truth = cases()[case]
    shifts = []
    for seed in range(REPEATS[model]):
        old, new = draw(np.random.default_rng([case, seed]))
        shifts.append(radius_between(old, new, MODELS[model], random_state=seed, features=[]))
    rows = []
    for name, true in truth.items():
        low, high = np.array([shift.intervals[name] for shift in shifts]).T
        rows.append(
            {
                "case": title,
                "model": model,
                "divergence": name,
                "repeats": len(shifts),
                "truth": true,
                "mean": float(np.mean([shift[name] for shift in shifts])),
                "found": float(np.mean(low > 0.0)),
                "low": float(np.mean(low <= true)),
                "inside": float(np.mean((low <= true) & (true <= high))),
            }
        )
    return rows


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    repeats = {run["model"]: run["repeats"] for run in runs}
    lines = [
        f"{ROWS:,} old and {ROWS:,} new rows of {FEATURES} features (of "
        f"{len(OLD_MIX)} groups in the last case), 95% intervals.\n*logistic* is "
        f"`LogisticRegression()`, {repeats['logistic']} pairs of samples; *default* is "
        f"`estimator=None`, {repeats['default']} pairs.\n",
        "| samples | estimator | divergence | truth | mean estimate | shift found "
        "| lower end ≤ truth | truth in the interval |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        shares = (f"{100.0 * run[key]:.1f}%" for key in ("found", "low", "inside"))
        lines.append(
            f"| {run['case']} | {run['model']} | {NAMES[run['divergence']]} | {run['truth']:.3g} "
            f"| {run['mean']:.3g} | {' | '.join(shares)} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all cases, and the default estimator on three of them."""
    every = range(len(DISTANCES) + 1)
    chosen = [("logistic", case) for case in every]
    chosen += [("default", case) for case in (0, DISTANCES.index(1.0), every[-1])]
    runs = []
    with threadpool_limits(1):
        for model, case in chosen:
            runs += measure(model, case)
            print(*runs[-3:], sep="\n", flush=True)
    save("shifts", [], runs=runs)


if __name__ == "__main__":
    main()
