"""Numbers in sentences of README.md and docs: each is computed again from the committed results.

Tables are generated, and `test_repository.py` compares them.  If a sentence here is no longer true
after new measurements, change the sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.machine import load
from benchmarks.scoreboard.goals import goals
from benchmarks.scoreboard.run import stored
from benchmarks.scoreboard.tasks import DATA

ROOT = Path(__file__).parents[1]
#: A page, and a part of a sentence on it.
Claim = tuple[str, str]


def _scoreboard() -> Iterator[Claim]:
    data = {name: rows for name in DATA if (rows := stored(name))}
    [measured] = [found for what, found, _ in goals(data) if "bike_hour" in what]
    below = [round(float(part.split("%")[0])) for part in measured.split(", ")]
    yield ("README.md", f"{below[0]}% below Ridge's and {below[1]}% below reweighting's")
    for page in ("README.md", "docs/README.md", "docs/which-method.md"):
        yield (page, f"{len(data)} data sets with natural shifts")


def _five_data_sets() -> Iterator[Claim]:
    def mean(data: str, model: str, key: str) -> float:
        return float(np.mean([r[key] for r in runs if (r["data"], r["model"]) == (data, model)]))

    words = ["none", "one", "two", "three", "four", "five"]
    runs = load("estimators")["runs"]
    names = sorted({run["data"] for run in runs})
    small = "robust, ρ = 0.1"
    rise = {name: mean(name, small, "error") - mean(name, "plain", "error") for name in names}
    largest = round(max(map(abs, rise.values())), 1)
    yield ("README.md", f"at ρ = 0.1 it stays within {largest} points of the plain model")
    yield ("docs/robustness.md", f"stays within {largest} points of the plain model")
    fall = {n: mean(n, "plain", "robust_loss") - mean(n, small, "robust_loss") for n in names}
    fewer = words[sum(change > 0 for change in fall.values())]
    yield ("README.md", f"falls on {fewer} of the {words[len(names)]} data sets")
    assert max(fall, key=lambda name: fall[name]) == "electricity", "in docs/robustness.md"
    zero = [n for n in names if round(mean(n, "robust, ρ = 1", "robust_loss"), 3) == 0.693]
    yield ("README.md", f"no model beats the zero model on {words[len(zero)]} of the data sets")
    yield ("docs/robustness.md", f"On {zero[0]}, {zero[2]} and {zero[1]}, no model is better")


def _speed() -> Iterator[Claim]:
    rows = load("training")["rows"]
    equal = [
        row for row in rows if " at equal accuracy, " in row["what"] and "mean" not in row["what"]
    ]
    low, high = (f(row["ratio"] for row in equal) for f in (min, max))
    number = {6: "six"}[len({row["what"].split("accuracy, ")[1] for row in equal})]
    yield ("README.md", f"a fit at equal accuracy takes {low:.1f} to {high:.1f} times")
    yield ("README.md", f"take {low:.1f} to {high:.1f} times as long as `LogisticRegression`")
    yield ("README.md", f"at equal accuracy, on {number} data sets")
    [dro] = load("against_dro")["rows"]
    yield ("README.md", f"in {round(dro['ratio'], -2):,.0f} times the time on 32,000 × 50")
    risks = {(run["risk"], run["l2"]): run for run in load("spectral")["runs"]}
    seconds = risks["CVaR(0.75)", 1.0]["seconds"]
    yield ("README.md", f"drolearn {seconds:.2f} s with a duality gap")


def _default_settings() -> Iterator[Claim]:
    number = len({run["data"] for run in load("defaults")["rows"]})
    yield ("docs/README.md", f"beside scikit-learn's on {number} data sets")
    yield ("docs/which-method.md", f"all default settings on {number} data sets")
    radii = [row["chi2"] for row in load("zero_models")["radii"].values()]
    yield ("docs/worst-case.md", f"has these radii for {len(radii)} data sets")
    assert sum(0.095 <= radius <= 3.0 for radius in radii) > 0.7 * len(radii), "most of them"


def _networks() -> Iterator[Claim]:
    def final(task: str, method: str, key: str, optimiser: str = "SGD") -> float:
        wanted = (task, optimiser, method)
        [run] = [
            r
            for r in load("networks")["runs"]
            if (r["task"], r["optimiser"], r["method"]) == wanted
        ]
        return float(np.mean([seed[-1] for seed in run[key]]))

    def fall(task: str, key: str, digits: int) -> str:
        before, after = (final(task, method, key) for method in ("mean", "fixed, ρ = 1"))
        return f"{before:.{digits}f}% to {after:.{digits}f}%"

    for task in ("digits", "mnist"):
        yield ("docs/pytorch.md", f"from {fall(task, 'rare', 0)} and from {fall(task, 'error', 1)}")
    known = final("mnist", "digits known, ρ = 1", "rare")
    yield ("docs/pytorch.md", f"most if there is enough data: to {known:.0f}%")


def _intervals() -> Iterator[Claim]:
    runs = load("coverage")["runs"]
    light = [
        run["both"]
        for run in runs
        if run["n"] >= 500
        and run["rho"] <= 1.0
        and run["losses"] not in ("Pareto, index 3", "Adult")
    ]
    low, high = 100 * min(light), 100 * max(light)
    yield ("docs/stress.md", f"in {low:.1f}% to {high:.1f}% of the samples")
    [adult] = [r["both"] for r in runs if (r["losses"], r["n"], r["rho"]) == ("Adult", 5000, 1.0)]
    yield ("docs/stress.md", f"On Adult, {100 * adult:.1f}% of the intervals hold")
    yield ("docs/stress.md", f"it is down to {100 * min(r['both'] for r in runs):.1f}%")
    bounds = load("slices")["runs"]["bounds"]
    held = [100 * run["holds"] for run in bounds]
    yield ("docs/slices.md", f"`low` holds in {min(held):.0f}% to {max(held):.0f}% of the samples")


def _other_pages() -> Iterator[Claim]:
    rows = load("taming")["rows"]
    yield ("docs/training.md", f"None of its {sum(row['runs'] for row in rows):,} runs returns")
    assert max(row["worst"] for row in rows) <= math.log(2.0), "worse than the zero model"
    times = {run["rows"]: run["time"] for run in load("dask")["runs"]}
    large, small = (
        "met" if times[n] <= goal else "missed" for n, goal in ((10**7, 1.3), (10**6, 2.5))
    )
    yield (
        "docs/dask.md",
        f"1.3 × at 10⁷ rows is {large}, and that of 2.5 × at 10⁶ rows is {small}",
    )


CLAIMS = [
    _scoreboard,
    _five_data_sets,
    _speed,
    _default_settings,
    _networks,
    _intervals,
    _other_pages,
]


@pytest.mark.parametrize("claims", CLAIMS, ids=lambda claims: claims.__name__.strip("_"))
def test_sentences_follow_from_the_committed_results(claims: Any):
    for page, sentence in claims():
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert sentence in text, f"{page} should say: {sentence}"
