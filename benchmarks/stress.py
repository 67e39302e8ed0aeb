"""The cost of stress tests: a curve relative to one worst case, and a report on Adult."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks.machine import save
from drolearn import ChiSquare, StressReport, stress_test, worst_case
from drolearn.datasets import load_adult
from drolearn.stress.balls import as_balls
from drolearn.stress.html import _libraries
from drolearn.stress.worst_cases import Sample, worst_cases

ROWS, REPEATS = 10**6, 3


def cpu_seconds(tasks: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median CPU seconds of each task; tasks alternate, each after an untimed run."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    with threadpool_limits(1):
        for _ in range(REPEATS):
            for name, task in tasks.items():
                task()
                start = time.process_time()
                task()
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _page(report: StressReport) -> str:
    """The HTML report as the first of a process makes it: later ones reuse the scripts."""
    _libraries.cache_clear()
    return report.to_html()


def main() -> None:
    """Measure, and write results/stress.json."""
    losses = np.random.default_rng(0).exponential(size=ROWS)
    sample, balls = Sample(losses), as_balls(ChiSquare(), None)
    adult = load_adult()
    model = LogisticRegression(max_iter=1000).fit(adult.X[~adult.is_test], adult.y[~adult.is_test])
    X, y = adult.X[adult.is_test], adult.y[adult.is_test]
    groups = (X[:, :4] > 0.0).astype(int)
    adult_report = stress_test(model, X, y, groups=groups, random_state=0)
    frame = pd.DataFrame(X, columns=adult.feature_names.tolist())
    seconds = cpu_seconds(
        {
            "one": lambda: worst_case(losses, rho=1.0),
            "sort": lambda: np.sort(losses),
            "curve": lambda: worst_cases(sample, balls),
            "report": lambda: stress_test(losses=losses),
            "adult": lambda: stress_test(model, X, y, groups=groups, random_state=0),
            "html": lambda: _page(adult_report),
            "all": lambda: stress_test(
                model, X, y, groups=groups, divergence="all", random_state=0
            ),
            "over": lambda: stress_test(
                model, X, y, groups=groups, over=frame, random_state=0
            ).to_html(),
        }
    )
    one = {"against": "one worst case", "threads": 1, "note": "10⁶ exponential losses, ρ = 1"}
    rows = [
        {
            "what": "χ² curve of 200 radii with standard errors",
            "ratio": seconds["curve"] / seconds["one"],
            "bar": "≤ 40 ×",
            **one,
        },
        {
            "what": "numpy.sort of the losses",
            "ratio": seconds["sort"] / seconds["one"],
            "bar": "",
            **one,
        },
        {
            "what": "`stress_test(losses=losses)`",
            "ratio": seconds["report"] / seconds["one"],
            "bar": "",
            **one,
        },
        {
            "what": "`stress_test` on Adult's test part",
            "ratio": seconds["adult"],
            "against": "s",
            "bar": "≤ 5",
            "threads": 1,
            "note": "15,060 rows, groups of four columns and their combinations",
        },
        {
            "what": "`stress_test` and `to_html` on Adult's test part",
            "ratio": seconds["adult"] + seconds["html"],
            "against": "s",
            "bar": "≤ 5",
            "threads": 1,
            "note": "the first report of a process, which packs the scripts of the charts",
        },
        {
            "what": '`stress_test(divergence="all")` on Adult\'s test part',
            "ratio": seconds["all"],
            "against": "s",
            "bar": "≤ 5",
            "threads": 1,
            "note": "15,060 rows, groups of four columns and their combinations",
        },
        {
            "what": "`stress_test` over all columns of Adult's test part, and `to_html`",
            "ratio": seconds["over"],
            "against": "s",
            "bar": "≤ 5",
            "threads": 1,
            "note": "the same with `over=` 119 columns",
        },
    ]
    save("stress", rows)
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
