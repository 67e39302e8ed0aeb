"""The comparisons behind docs/scoreboard.md: baselines, intervals, and sentences."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from benchmarks.scoreboard import run
from benchmarks.scoreboard.models import BASELINES, RISKS, TREES, names
from benchmarks.scoreboard.page import page, trees_page
from benchmarks.scoreboard.rows import best_baseline, by_group, difference, ratio
from benchmarks.scoreboard.tasks import Data, Task
from scipy.stats import ttest_1samp


def rows_of(
    question: str, errors: dict[str, dict[str, float]], classification: bool = True
) -> list[dict[str, Any]]:
    """Rows with the given errors of models, by split."""
    return [
        {
            "question": question,
            "split": split,
            "model": model,
            **dict.fromkeys(("loss", "error", "worst_loss", "worst_error"), error),
            **dict.fromkeys(("tail_loss", "tail_error", "norm", "seconds", "auc"), error),
            "calibration": 0.1 if classification else None,
            "to": {"plain": [-0.1, 0.1, -0.1, 0.1], "weights": [-0.1, 0.1, 0.01, 0.1]},
        }
        for model, of_splits in errors.items()
        for split, error in of_splits.items()
    ]


def test_the_best_baseline_has_the_smallest_mean_and_no_ball() -> None:
    errors = {"plain": {"0": 0.3, "1": 0.3}, "weights": {"0": 0.1, "1": 0.4}}
    rows = rows_of("random", errors | {"groups 1": {"0": 0.0, "1": 0.0}})
    assert best_baseline(rows, "random", "error") == "weights"
    assert best_baseline(rows, "time", "error") is None


def test_intervals_without_groups_are_those_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(6), rng.random(6)
    splits = [str(k) for k in range(6)]
    rows = rows_of(
        "random",
        {
            "a": dict(zip(splits, ours, strict=True)),
            "plain": dict(zip(splits, theirs, strict=True)),
        },
    )
    found = difference(rows, "random", "a", "plain", "loss")
    expected = ttest_1samp(ours - theirs, 0.0).confidence_interval(0.95)
    assert found is not None
    np.testing.assert_allclose([found.mean - found.half, found.mean + found.half], expected)


def test_differences_between_groups_do_not_widen_the_interval() -> None:
    """Two groups whose gains differ, but hardly vary: the mean gain is certain."""
    theirs = {"a/0": 0.5, "a/1": 0.5, "b/0": 0.5, "b/1": 0.5}
    ours = {"a/0": 0.1, "a/1": 0.101, "b/0": 0.45, "b/1": 0.451}
    rows = rows_of("rare", {"plain": theirs, "groups, all": ours})
    found = difference(rows, "rare", "groups, all", "plain", "error")
    assert found is not None
    assert found.mean == pytest.approx(-22.45)
    assert found.verdict == -1
    assert found.half < 1.0
    assert set(by_group({"data": rows})) == {"data, a", "data, b"}


def test_one_split_has_no_verdict_and_regression_is_in_per_cent() -> None:
    rows = rows_of("time", {"plain": {"0.4": 10.0}, "a": {"0.4": 8.0}}, classification=False)
    found = difference(rows, "time", "a", "plain", "error")
    assert found == ratio(rows, "time", "a", "plain", "error")
    assert found is not None
    assert found.mean == pytest.approx(-20.0)
    assert found.verdict == 0
    assert found.text(1) == "-20.0"


@pytest.mark.parametrize(("error", "says"), [(0.1, "helps most"), (0.9, "no ball helps")])
def test_the_summary_follows_the_numbers(error: float, says: str) -> None:
    splits = [str(k) for k in range(3)]
    noise = {split: 0.001 * k for k, split in enumerate(splits)}
    errors = {
        "plain": dict.fromkeys(splits, 0.5),
        "weights": dict.fromkeys(splits, 0.6),
        "groups 1": {split: error + noise[split] for split in splits},
        "boosting": dict.fromkeys(splits, 0.4),
        "regret 1": dict.fromkeys(splits, 0.9),
        "regret 5": dict.fromkeys(splits, 0.9),
    }
    text = page({"data": rows_of("random", errors) + rows_of("unseen", errors)})
    summary = [line for line in text.splitlines() if line.startswith("- **")]
    assert len(summary) == 3
    assert all(says in line for line in summary[:2])
    assert "better / not told apart / worse" in text


def test_other_risks_are_compared_with_the_ball_that_they_change() -> None:
    splits = {f"a/{k}": 0.001 * k for k in range(3)}
    levels = dict.fromkeys(names(True), 0.5) | {"rows, χ² 0.3": 0.4, "rows, soft": 0.3}
    errors = {
        model: {split: level + noise * (1 + place) for split, noise in splits.items()}
        for place, (model, level) in enumerate(levels.items())
    }
    rows = rows_of("random", errors) + rows_of("rare", errors)
    text = page({"data": rows})
    assert "on 1 and higher on 0 of 1 data sets for *rows, soft*" in text
    assert "on 0 and higher on 1 of 1 data sets for *rows, trim*" in text
    assert "below 1% of plain's: nowhere." in text
    counts = "| 1 / 0 / 0 | 0 / 0 / 0 | 0 / 0 / 0 | 1 / 0 / 0 |"
    assert f"| rows, soft | rows, χ² 0.3 | error {counts}" in text
    zero = [row | {"norm": 0.0} if row["model"] == "rows, trim" else row for row in rows]
    assert "below 1% of plain's: *rows, trim* on data." in page({"data": zero})


def test_pages_name_what_was_not_run() -> None:
    errors = {model: {str(k): 0.1 + 0.001 * k for k in range(3)} for model in TREES}
    few = {"a": rows_of("random", errors)}
    more = rows_of("random", {model: dict.fromkeys("0123", 0.5) for model in names(True)})
    text = trees_page(few, {"a": more, "b": more}, "As expected.")
    assert "Not complete yet: a (*plain* 3, *weights* 3, *groups 1* 3, " in text
    assert "*groups, all, regret* 3 of 4 splits); b." in text
    assert "four splits in time: As expected." in text
    assert "boosting |" not in text
    assert "Not complete" not in trees_page(few, few, "")
    assert "Not complete" not in page({"a": more})
    without = [row for row in more if row["model"] != "rows, trim" or row["split"] == "0"]
    assert "Not complete yet: a (*rows, trim* 1 of 4 splits)." in page({"a": without})


@pytest.mark.parametrize("classification", [True, False])
def test_a_later_model_changes_no_number(classification: bool, monkeypatch) -> None:
    """Models that are added afterwards have the rows of a run with all models."""
    rng = np.random.default_rng(0)
    X, domains = rng.standard_normal((200, 3)), np.array(["a", "b"] * 100)
    y = X[:, 0] + rng.standard_normal(200)
    y = np.where(y > 0.0, 1.0, -1.0) if classification else y
    data = Data(X, y, domains, classification)
    halves = np.arange(120), np.arange(120, 200)
    monkeypatch.setattr(Task, "rows", lambda self: (data, *halves))
    task = Task("data", "time", "0.6")

    def rows(done: Collection[str]) -> dict[str, dict[str, Any]]:
        found = {row["model"]: row for row in run.run_task(task, False, done)}
        for row in found.values():
            del row["seconds"]
        return found

    slow = {"boosting", *(name for name in names(classification) if "regret" in name)}
    first = rows(slow | set(RISKS))
    assert set(first) == set(names(classification)) - slow - set(RISKS)
    later = rows(slow | set(first))
    assert set(later) == set(RISKS)
    together = rows(slow)
    assert repr(together) == repr({name: (first | later)[name] for name in together})
    assert set(later["rows, trim"]["to"]) == set(BASELINES) & set(names(classification))
    assert rows(names(classification)) == {}
