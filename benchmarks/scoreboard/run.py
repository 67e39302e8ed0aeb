"""Fit all models to all tasks; rows are in results/scoreboard, one file for each data set.

python -m benchmarks.scoreboard.run                      # all that is missing; takes hours
python -m benchmarks.scoreboard.run --trees              # boosted trees; takes half an hour
python -m benchmarks.scoreboard.run --only compas        # some data sets
python -m benchmarks.scoreboard.run --forget compas      # run them again
python -m benchmarks.scoreboard.run --report             # only write the page
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from benchmarks import boosting
from benchmarks.machine import DOCS, RESULTS, describe, load
from benchmarks.scoreboard.figure import draw
from benchmarks.scoreboard.models import BASELINES, TREES, Fit, fit_all, fit_trees, names
from benchmarks.scoreboard.page import page, trees_page
from benchmarks.scoreboard.tasks import DATA, Task, tasks
from drolearn._storage import replacing

_FOLDER = RESULTS / "scoreboard"
_RESAMPLES = 1000
_WORST = 0.1  # the share of test rows with the largest losses


def _file(name: str, trees: bool) -> Path:
    return _FOLDER / ("trees" if trees else "") / f"{name}.json"


def stored(name: str, trees: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a data set that were measured."""
    file = _file(name, trees)
    return json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []


def run_task(task: Task, trees: bool, done: Collection[str] = ()) -> list[dict[str, Any]]:
    """Fit the models to one task that were not; return one row for each."""
    data, train, test = task.rows()
    every = TREES if trees else names(data.classification)
    missing = [name for name in every if name not in done]
    if not missing:
        return []
    # Random splits have intervals over splits; where there is one split, its rows are resampled,
    # which needs the losses of the baselines again.
    resampled = task.question in ("unseen", "time")
    wanted = [name for name in every if name in missing or (resampled and name in BASELINES)]
    with threadpool_limits(1):
        fits = (fit_trees if trees else fit_all)(data, train, test, wanted)
    domains = data.domains[test]
    intervals = _intervals(task, fits) if resampled else {}
    of_rows = np.mean if data.classification else _root_mean
    rows = []
    for name in missing:
        fit = fits[name]
        parts = [(fit.losses[domains == d], fit.errors[domains == d]) for d in np.unique(domains)]
        tail = np.argsort(fit.losses)[-max(1, round(_WORST * test.size)) :]
        rows.append(
            {
                "question": task.question,
                "split": task.split,
                "model": name,
                "loss": float(fit.losses.mean()),
                "error": float(of_rows(fit.errors)),
                "worst_loss": max(float(losses.mean()) for losses, _ in parts),
                "worst_error": max(float(of_rows(errors)) for _, errors in parts),
                "tail_loss": float(fit.losses[tail].mean()),
                "tail_error": float(of_rows(fit.errors[tail])),
                "auc": fit.auc,
                "calibration": fit.calibration,
                "norm": fit.norm,
                "seconds": fit.seconds,
            }
            | ({"to": intervals[name]} if resampled else {})
        )
    return rows


def _root_mean(squares: np.ndarray) -> float:
    return float(np.sqrt(squares.mean()))


def _intervals(task: Task, fits: dict[str, Fit]) -> dict[str, dict[str, list[float]]]:
    """95% intervals of the differences of mean loss and error to each baseline.

    The bootstrap is paired: all models have the same resamples of the test rows.  Errors of
    regression are root mean squares.
    """
    n = next(iter(fits.values())).losses.size
    seed = zlib.crc32(f"{task.data} {task.question} {task.split}".encode())
    rng = np.random.default_rng(seed)
    both = np.array([[fit.losses, fit.errors] for fit in fits.values()]).reshape(-1, n)
    means = np.empty((_RESAMPLES, both.shape[0]))
    for k in range(_RESAMPLES):
        means[k] = both @ np.bincount(rng.integers(n, size=n), minlength=n) / n
    means = means.reshape(_RESAMPLES, len(fits), 2)
    if all(np.isnan(fit.calibration) for fit in fits.values()):  # regression
        means[:, :, 1] = np.sqrt(means[:, :, 1])
    places = {name: k for k, name in enumerate(fits)}

    def interval(k: int, other: int) -> list[float]:
        ends = np.quantile(means[:, k] - means[:, other], [0.025, 0.975], axis=0)
        return [float(f"{end:.4g}") for end in ends.T.ravel()]

    return {
        name: {base: interval(k, places[base]) for base in BASELINES if base in places}
        for name, k in places.items()
    }


def measure(only: list[str], minutes: float, trees: bool) -> None:
    """Run the tasks that are missing, and save after each.

    Within `joblib.parallel_config("dask")`, the workers of a cluster run them.
    """
    deadline = time.monotonic() + 60.0 * minutes
    for name in only or DATA:
        rows, file = stored(name, trees), _file(name, trees)
        file.parent.mkdir(exist_ok=True)
        done: dict[tuple[str, str], set[str]] = {}
        for row in rows:
            done.setdefault((row["question"], row["split"]), set()).add(row["model"])
        jobs = (
            delayed(_run)(task, trees, done.get((task.question, task.split), set()), deadline)
            for task in tasks(name)
        )
        done_jobs: Any = Parallel(return_as="generator")(jobs)
        for task, new in done_jobs:
            if new is None:
                return
            if not new:
                continue  # all models were fitted before
            rows += [{key: _short(value) for key, value in row.items()} for row in new]
            lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
            machine = json.dumps(describe())
            text = f'{{"machine": {machine},\n"rows": [\n{lines}\n]}}\n'
            with replacing(file) as part:
                part.write(text.encode())
            seconds = sum(row["seconds"] for row in new)
            print(f"{name:26s} {task.question:8s} {task.split:20s} {seconds:6.1f} s", flush=True)


def _run(
    task: Task, trees: bool, done: Collection[str], deadline: float
) -> tuple[Task, list[dict[str, Any]] | None]:
    """Run one task, unless no time is left."""
    return task, run_task(task, trees, done) if time.monotonic() < deadline else None


def _short(value: Any) -> Any:
    """Numbers with six digits, so that files stay small; None for NaN, which JSON lacks."""
    if not isinstance(value, float):
        return value
    return None if np.isnan(value) else float(f"{value:.6g}")


def pages() -> dict[Path, str]:
    """Return the pages that follow from the rows, by file."""
    data, of_trees = (
        {name: rows for name in DATA if (rows := stored(name, trees))} for trees in (False, True)
    )
    months = boosting.verdict(load("boosting")["runs"])
    return {
        DOCS / "scoreboard.md": page(data),
        DOCS / "scoreboard-trees.md": trees_page(of_trees, data, months),
    }


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--forget", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after this time")
    parser.add_argument("--trees", action="store_true", help="boosted trees, not linear models")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    for name in arguments.forget:
        _file(name, arguments.trees).unlink(missing_ok=True)
    if not arguments.report:
        measure(arguments.only, arguments.minutes, arguments.trees)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    draw({name: rows for name in DATA if (rows := stored(name))}, DOCS / "scoreboard.png")


if __name__ == "__main__":
    main()
