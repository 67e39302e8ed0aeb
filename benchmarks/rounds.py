"""Rounds of exact fits on a cluster, with and without evaluations in one round: docs/scaling.md.

python -m benchmarks rounds

Counts only, which do not depend on the machine or on what else it does.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks import datasets
from benchmarks.machine import save
from drolearn._solvers import block_problem, block_trials
from drolearn.dask import RobustClassifier, _engine

SETS = ("adult", "electricity", "synthetic")
#: Divergence and radius of each ball.
BALLS = (("chi2", 0.1), ("kl", 0.1), ("hellinger", 0.01), ("chi2", 1.0))
#: Rows and columns of the synthetic set.
SYNTHETIC, PARTITIONS = (10**6, 50), 4
#: Passes that compute a robust loss and its gradient.
OF_EVALUATIONS = ("TrialPass", "LookPass", "SweepPass", "GradientPass")


def rows(name: str) -> tuple[Any, Any]:
    """Return standardised columns of float32 and labels as Dask arrays."""
    if name == "synthetic":
        rng = np.random.default_rng(0)
        X = rng.standard_normal(SYNTHETIC, dtype=np.float32)
        y = np.where(X[:, :10].sum(axis=1) + 4.0 * rng.standard_normal(X.shape[0]) > 0.0, 1, -1)
    else:
        X, y = datasets.load(name, standardised=True)
        X = X.astype(np.float32)
    size: Any = -(-y.size // PARTITIONS)
    whole: Any = (size, X.shape[1])
    return da.from_array(X, chunks=whole), da.from_array(y, chunks=size)


class Passes:
    """Counts the passes of a fit by their names; without `trials`, all evaluations search."""

    def __init__(self, trials: bool) -> None:
        self.trials = trials
        self.patched: Any = _engine.DaskBlocks, block_trials.Trials, block_problem.BlockProblem
        self.names: Counter[str] = Counter()
        self.evaluations = 0

    def __enter__(self) -> Passes:
        blocks, trials_of, problems = self.patched
        self.run, self.of, self.robust = blocks.run, trials_of.of, problems._robust

        def run(engine: Any, task: Any) -> Any:
            self.names[type(task).__name__] += 1
            return self.run(engine, task)

        def of(trials: Any, theta: Any) -> Any:
            found = self.of(trials, theta) if self.trials else (None, None)
            self.evaluations += found[0] is not None
            return found

        def robust(problem: Any, *known: Any) -> Any:
            self.evaluations += 1
            return self.robust(problem, *known)

        blocks.run, trials_of.of, problems._robust = run, of, robust
        return self

    def __exit__(self, *error: object) -> None:
        blocks, trials_of, problems = self.patched
        blocks.run, trials_of.of, problems._robust = self.run, self.of, self.robust


def measure(client: Client, name: str, data: tuple[Any, Any], ball: Any) -> dict[str, Any]:
    """Return the counts of a fit with and without evaluations in one round."""
    found: dict[str, Any] = {"name": name, "divergence": ball[0], "rho": ball[1]}
    for key, trials in (("before", False), ("after", True)):
        clf = RobustClassifier(ball[1], divergence=ball[0], client=client)
        with Passes(trials) as passes, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of balls in which the zero model is optimal
            clf.fit(*data)
        of_evaluations = sum(passes.names[each] for each in OF_EVALUATIONS)
        found[key] = {
            "rounds": clf.n_rounds_,
            "iterations": clf.n_iter_,
            "evaluations": passes.evaluations,
            "of_evaluations": of_evaluations,
            "objective": clf.objective_,
        }
    return found


def section(runs: list[dict[str, Any]]) -> str:
    """Return the section of the page."""
    lines = [
        "| data | ball | iterations | rounds of an evaluation | with a search | rounds of the fit "
        "| with a search | objective |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        before, after = run["before"], run["after"]
        count = before["evaluations"]
        difference = abs(after["objective"] / before["objective"] - 1.0)
        lines.append(
            f"| {run['name']} | {run['divergence']}, ρ = {run['rho']:g} | {after['iterations']} "
            f"| {after['of_evaluations'] / count:.1f} | {before['of_evaluations'] / count:.1f} "
            f"| {after['rounds']} | {before['rounds']} | {difference:.0e} |"
        )
    return (
        "## Rounds\n\nCounted by `python -m benchmarks rounds`: exact fits with the default "
        f"tolerance, {PARTITIONS} partitions; the synthetic set has {SYNTHETIC[0]:,} rows and "
        f"{SYNTHETIC[1]} columns. *with a search*: all evaluations search for the worst case, "
        "instead of predicting its multipliers. *objective* is the relative difference of both. "
        "In some balls of radius 1 the zero model is optimal, and many rounds prove it.\n\n"
        + "\n".join([*lines, ""])
    )


def main() -> None:
    """Count the rounds of all fits, and write results/rounds.json."""
    runs: list[dict[str, Any]] = []
    with Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        for name in SETS:
            data = rows(name)
            # In the large ball, the synthetic set takes hundreds of rounds to prove a zero model.
            for ball in BALLS[: 3 if name == "synthetic" else 4]:
                runs.append(measure(client, name, data, ball))
                print(runs[-1], flush=True)
                save("rounds", [], runs=runs)


if __name__ == "__main__":
    main()
