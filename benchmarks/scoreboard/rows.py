"""Comparisons of stored rows: the best baseline, and differences to it with intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from benchmarks.scoreboard.models import BASELINES

__all__ = [
    "MEASURES",
    "QUESTIONS",
    "Difference",
    "Rows",
    "best_baseline",
    "by_group",
    "difference",
    "is_classification",
    "mean_of",
    "measure_of",
    "models",
    "ratio",
    "values",
    "with_question",
]

#: The rows of all data sets.
Rows = dict[str, list[dict[str, Any]]]


class Question(NamedTuple):
    """What changes between training and test."""

    title: str
    short: str


#: In the order of the page.
QUESTIONS = {
    "rare": Question(
        "A known group is rare in training (5%), and half of the test rows",
        "a known group was rare:\nerror of the worse part",
    ),
    "time": Question(
        "The test rows are later than the training rows",
        "the future:\nerror of the worst block",
    ),
    "unseen": Question(
        "A domain was never seen: each is left out in turn", "an unseen domain:\nits error"
    ),
    "random": Question(
        "Nothing changes: random splits", "random splits:\nerror of the worst domain"
    ),
}
MEASURES = {
    "worst_error": "error of the worst domain",
    "worst_loss": "loss of the worst domain",
    "tail_error": "error of the worst 10% of rows",
    "tail_loss": "loss of the worst 10% of rows",
    "error": "error",
    "loss": "loss",
}


class Difference(NamedTuple):
    """The mean over splits of a difference between two models, with a 95% interval."""

    mean: float
    half: float
    """Half the width of the interval; infinite for one split."""

    @property
    def verdict(self) -> int:
        """−1 if it is better, 1 if it is worse, 0 if the interval contains 0."""
        return 0 if abs(self.mean) <= self.half else int(np.sign(self.mean))

    def text(self, digits: int) -> str:
        """The difference as text; bold if the interval does not contain 0."""
        half = f" ± {self.half:.{digits}f}" if np.isfinite(self.half) else ""
        found = f"{self.mean:+.{digits}f}{half}"
        return f"**{found}**" if self.verdict else found


def values(rows: list[dict[str, Any]], question: str, model: str, key: str) -> dict[str, float]:
    """Return a measure of a model for every split."""
    return {
        row["split"]: row[key]
        for row in rows
        if (row["question"], row["model"]) == (question, model) and row[key] is not None
    }


def mean_of(
    rows: list[dict[str, Any]], question: str, model: str, key: str, split: str = ""
) -> float:
    """Return the mean of a measure over splits whose names begin with `split`; NaN without any."""
    found = [
        value
        for name, value in values(rows, question, model, key).items()
        if name.startswith(split)
    ]
    return float(np.mean(found)) if found else float("nan")


def is_classification(rows: list[dict[str, Any]]) -> bool:
    """Whether the rows are of a classification task."""
    return any(row["calibration"] is not None for row in rows)


def measure_of(question: str) -> str:
    """Return the measure that answers a question; an unseen domain is one domain."""
    return "error" if question == "unseen" else "worst_error"


def with_question(data: Rows, question: str) -> Rows:
    """Return the data sets with rows of a question."""
    return {
        name: rows
        for name, rows in data.items()
        if any(row["question"] == question for row in rows)
    }


def by_group(data: Rows) -> Rows:
    """Return the rows of each data set with a rare group, apart for each group."""
    found: Rows = {}
    for name, rows in data.items():
        for row in rows:
            if row["question"] == "rare":
                group = row["split"].rpartition("/")[0]
                found.setdefault(f"{name}, {group}", []).append(row)
    return found


def models(data: Rows) -> list[str]:
    """Return all models in the order in which they were run, boosting last."""
    order: dict[str, None] = {}
    for rows in data.values():
        order |= dict.fromkeys(row["model"] for row in rows)
    last = [model for model in order if model == "boosting"]
    return [*(model for model in order if model not in last), *last]


def best_baseline(rows: list[dict[str, Any]], question: str, key: str) -> str | None:
    """Return the model without a ball whose mean over splits is smallest, if there are splits."""
    means = {base: mean_of(rows, question, base, key) for base in BASELINES}
    known = {base: mean for base, mean in means.items() if np.isfinite(mean)}
    return min(known, key=lambda base: known[base]) if known else None


def difference(
    rows: list[dict[str, Any]], question: str, model: str, base: str, key: str
) -> Difference | None:
    """Compare paired splits: points of error, losses, or for regression per cent.

    The interval is Student's.  None if the model has no splits.
    """
    if not is_classification(rows):
        return ratio(rows, question, model, base, key)
    pairs = _paired(rows, question, (model, base), key)
    factor = 100.0 if key.endswith("error") else 1.0
    return _interval({split: factor * (ours - theirs) for split, (ours, theirs) in pairs.items()})


def ratio(
    rows: list[dict[str, Any]], question: str, model: str, base: str, key: str
) -> Difference | None:
    """Compare paired splits in per cent of the baseline's mean."""
    pairs = _paired(rows, question, (model, base), key)
    mean = np.mean([theirs for _, theirs in pairs.values()]) if pairs else np.nan
    return _interval(
        {split: float(100.0 * (ours - theirs) / mean) for split, (ours, theirs) in pairs.items()}
    )


def _paired(
    rows: list[dict[str, Any]], question: str, pair: tuple[str, str], key: str
) -> dict[str, tuple[float, float]]:
    """A measure of two models on the splits that both have."""
    ours, theirs = (values(rows, question, model, key) for model in pair)
    return {split: (ours[split], theirs[split]) for split in ours if split in theirs}


def _interval(found: dict[str, float]) -> Difference | None:
    """The mean over groups of the means over their splits, with Student's interval.

    The name of a split is "group/seed", or has no group.  Groups are not a sample, so the variance
    is that of the splits of a group.
    """
    groups: dict[str, list[float]] = {}
    for split, value in found.items():
        groups.setdefault(split.rpartition("/")[0], []).append(value)
    if not groups:
        return None
    mean = float(np.mean([np.mean(group) for group in groups.values()]))
    freedom = sum(len(group) - 1 for group in groups.values())
    if min(map(len, groups.values())) < 2:
        return Difference(mean, np.inf)
    variance = sum(np.var(group, ddof=1) / len(group) for group in groups.values())
    return Difference(mean, float(student.ppf(0.975, freedom) * np.sqrt(variance)) / len(groups))
