"""The page docs/scoreboard.md, made from the stored rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from benchmarks.scoreboard.goals import goals
from benchmarks.scoreboard.models import BASELINES, RISKS, TREES, names
from benchmarks.scoreboard.rows import (
    MEASURES,
    QUESTIONS,
    Rows,
    best_baseline,
    by_group,
    difference,
    is_classification,
    mean_of,
    measure_of,
    models,
    values,
    with_question,
)

__all__ = ["page", "trees_page"]

_ZERO = 0.01  # of plain's norm: less is a zero model


def page(data: Rows) -> str:
    """Return the whole page, for the data sets that were run."""
    lines = [
        "# Scoreboard: robust models on natural shifts",
        "",
        *_summary(data),
        *_risks_sentence(data),
        *_boosting_sentence(data),
        "",
        "![The error of every model on every data set, relative to the best baseline]"
        "(scoreboard.png)",
        "",
        *_INTRODUCTION,
        *_unfinished(data, _splits(data), None),
        "## Goals",
        "",
        "What this project wanted to reach, before it was measured. Means over splits.",
        "",
        *_table(["goal", "measured", "reached"], goals(data)),
    ]
    lines += ["## Other risks beside balls", "", *_risks(data)]
    return "\n".join([*lines, *_questions(data)]).rstrip() + "\n"


def trees_page(data: Rows, linear: Rows, of_months: str) -> str:
    """Return the page of boosted trees.

    All splits of linear models are to be run.  `of_months` says how months as groups do on
    electricity.
    """
    lines = [
        "# Scoreboard: boosted trees on natural shifts",
        "",
        *_summary(data),
        "",
        *_TREES,
        "Electricity, with months as groups and the round that is best on validation months",
        f"([boosting.md](boosting.md#measured)), four splits in time: {of_months}",
        "",
        *_unfinished(data, _splits(linear), TREES),
        *_questions(data),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _questions(data: Rows) -> list[str]:
    """The tables of all questions, and calibration errors."""
    lines = []
    for question, (title, _) in QUESTIONS.items():
        part = with_question(data, question)
        if part:
            lines += [f"## {title}", "", *_question(part, question)]
    return [*lines, "## Calibration errors, random splits", "", *_calibration(data)]


def _splits(data: Rows) -> dict[str, int]:
    """The number of splits of every data set."""
    return {
        name: len({(row["question"], row["split"]) for row in rows}) for name, rows in data.items()
    }


def _unfinished(data: Rows, splits: dict[str, int], every: Collection[str] | None) -> list[str]:
    """Which models were not run on all splits of a data set; `every` is None for linear models."""
    found = []
    for name, count in splits.items():
        rows = data.get(name, [])
        done = Counter(row["model"] for row in rows)
        expected = names(is_classification(rows)) if every is None else every
        short = [f"*{model}* {done[model]}" for model in expected if done[model] < count]
        if short:
            found.append(f"{name} ({', '.join(short)} of {count} splits)" if rows else name)
    return [f"Not complete yet: {'; '.join(found)}.", ""] if found else []


def _summary(data: Rows) -> list[str]:
    """What the tables say, one sentence for each question, from the counts."""
    lines = []
    for question, (title, _) in QUESTIONS.items():
        part = with_question(data, question)
        if not part:
            continue
        key = measure_of(question)
        balls = [m for m in models(part) if m not in BASELINES and m != "boosting"]
        counts = {model: _verdicts(part, question, model, key) for model in balls}
        best = max(balls, key=lambda model: counts[model].count(-1) - counts[model].count(1))
        wins, losses = counts[best].count(-1), counts[best].count(1)
        says = f"*{best}* helps most" if wins > losses else "no ball helps on balance"
        least = "" if wins > losses else f", and *{best}* does least harm"
        lines.append(
            f"- **{title}**: {says}{least}; its {MEASURES[key]} is lower than that of the best "
            f"baseline on {wins} and higher on {losses} of {len(part)} data sets."
        )
    return lines


def _boosting_sentence(data: Rows) -> list[str]:
    """How often another model class does more than a ball."""
    part = with_question(data, "unseen")
    if not part:
        return []
    verdicts = _verdicts(part, "unseen", "boosting", "error")
    return [
        f"- **Another model class**: boosted trees, without a ball, have a lower error on unseen "
        f"domains than the best linear baseline on {verdicts.count(-1)} and a higher one on "
        f"{verdicts.count(1)} of {len(part)} data sets."
    ]


def _risks_sentence(data: Rows) -> list[str]:
    """On how many data sets another risk is better and worse than the ball that it changes."""
    part = with_question(data, "rare")
    counts = {
        model: _verdicts(part, "rare", model, "worst_error", ball) for model, ball in RISKS.items()
    }
    says = [
        f"{found.count(-1)} and higher on {found.count(1)} of {len(found)} data sets for *{model}*"
        for model, found in counts.items()
        if found
    ]
    if not says:
        return []
    return [
        f"- **[Other risks](#other-risks-beside-balls), where a known group is rare**: beside the "
        f"ball that each changes, the error of the worst domain is lower on {', on '.join(says)}."
    ]


def _risks(data: Rows) -> list[str]:
    """Other risks beside the ball that each changes, for every question."""
    parts = {question: with_question(data, question) for question in QUESTIONS}
    lines = []
    for model, ball in RISKS.items():
        for kind in ("error", "loss"):
            line = [model, ball, kind]
            for question, part in parts.items():
                key = measure_of(question).replace("error", kind)
                found = _verdicts(part, question, model, key, ball)
                line.append(_counted(found))
            lines.append(line)
    return [
        "Each changes one thing about a ball. The number of data sets on which it is better / not",
        "told apart / worse than that ball, by the error or loss of the worst domain, and for",
        "unseen domains by their own:",
        "",
        *_table(
            ["model", "ball", "measure", "rare group", "future", "unseen domain", "random splits"],
            lines,
        ),
        "A ball that is too large for noisy labels leaves a zero model. On random splits, the mean",
        f"norm of the coefficients is below {100.0 * _ZERO:g}% of plain's: {_zero_models(data)}.",
        "",
    ]


def _zero_models(data: Rows) -> str:
    """On which data sets the other risks, and balls over rows, have nearly zero coefficients."""
    found = {
        model: [
            name
            for name, rows in data.items()
            if mean_of(rows, "random", model, "norm")
            < _ZERO * mean_of(rows, "random", "plain", "norm")
        ]
        for model in dict.fromkeys((*RISKS.values(), *RISKS))
    }
    says = [f"*{model}* on {', '.join(sets)}" for model, sets in found.items() if sets]
    return "; ".join(says) or "nowhere"


def _counted(verdicts: list[int]) -> str:
    return " / ".join(str(verdicts.count(verdict)) for verdict in (-1, 0, 1))


def _verdicts(
    data: Rows, question: str, model: str, key: str, beside: str | None = None
) -> list[int]:
    """Of every data set: −1 if the model is better than another, 1 if it is worse.

    The other is the best baseline unless it is named.
    """
    found = []
    for rows in data.values():
        base = beside or best_baseline(rows, question, key)
        compared = difference(rows, question, model, base, key) if base else None
        if compared is not None:
            found.append(compared.verdict)
    return found


def _question(data: Rows, question: str) -> list[str]:
    """All tables of one question."""
    splits = sum(len(values(rows, question, "plain", "loss")) for rows in data.values())
    lines = [
        f"{len(data)} data sets, {splits} splits. The number of data sets on which a model is "
        "better / not told apart / worse than the best baseline:",
        "",
        *_counts(data, question),
    ]
    if question in ("unseen", "time"):
        what = "domains" if question == "unseen" else "splits"
        lines += [f"The same for the error of single {what}, by a bootstrap of the test rows:", ""]
        lines += _resampled(data, question)
    if question == "rare":
        lines += ["Difference in error of the worse part, for each rare group:", ""]
        lines += _differences(by_group(data), question, "worst_error")
    for key, name in MEASURES.items():
        if question == "unseen" and key.startswith("worst"):
            continue  # the test rows are one domain
        lines += [f"Difference in {name}:", "", *_differences(data, question, key)]
    return lines


def _counts(data: Rows, question: str) -> list[str]:
    """How many times each model is better and worse than the best baseline."""
    lines = []
    for model in models(data):
        line = [model]
        for key in MEASURES:
            line.append(_counted(_verdicts(data, question, model, key)))
        seconds = [
            np.median(list(found.values()))
            for rows in data.values()
            if (found := values(rows, question, model, "seconds"))
        ]
        lines.append([*line, f"{np.median(seconds):.2f}"])
    return _table(["model", *MEASURES.values(), "CPU s"], lines)


def _differences(data: Rows, question: str, key: str) -> list[str]:
    """The difference of every model on every data set to the best baseline."""
    columns, lines = models(data), []
    for name, rows in data.items():
        base = best_baseline(rows, question, key)
        if base is None:
            continue
        value = mean_of(rows, question, base, key)
        percent = key.endswith("error") and is_classification(rows)
        shown = f"{100.0 * value:.1f}%" if percent else f"{value:.4g}"
        digits = 1 if percent or not is_classification(rows) else 3
        line = [name, f"{base} {shown}"]
        for model in columns:
            found = None if model == base else difference(rows, question, model, base, key)
            line.append("0" if model == base else "" if found is None else found.text(digits))
        lines.append(line)
    return _table(["data", "best baseline", *columns], lines)


def _resampled(data: Rows, question: str) -> list[str]:
    """On how many splits each model is better and worse, by the bootstrap of their rows."""
    lines = []
    for model in models(data):
        counts = np.zeros(3, dtype=np.int64)
        for rows in data.values():
            base = best_baseline(rows, question, "error")
            for row in rows:
                if base and (row["question"], row["model"]) == (question, model) and model != base:
                    counts[_side(row, base)] += 1
        lines.append([model, *map(str, counts)])
    return _table(["model", "better", "not told apart", "worse"], lines)


def _side(row: dict[str, Any], base: str) -> int:
    """0, 1 or 2 if the interval of the difference in error is below, around or above 0."""
    low, high = row["to"][base][2:]
    return 0 if high < 0.0 else 2 if low > 0.0 else 1


def _calibration(data: Rows) -> list[str]:
    """Mean calibration errors of random splits."""
    columns, lines = models(data), []
    for name, rows in data.items():
        if is_classification(rows):
            means = [mean_of(rows, "random", model, "calibration") for model in columns]
            lines.append([name, *("" if np.isnan(mean) else f"{mean:.3f}" for mean in means)])
    return _table(["data", *columns], lines)


def _table(header: Iterable[str], lines: Iterable[Iterable[str]]) -> list[str]:
    head = list(header)
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(line) + " |" for line in lines),
        "",
    ]


_INTRODUCTION = [
    "`python -m benchmarks.scoreboard.run` makes this page; it takes hours and resumes after a",
    "stop. A ball protects against other mixes of what was in the training rows: that is the first",
    "question. The second and third ask for more than a ball promises. The fourth shows what",
    "robustness costs where nothing changes.",
    "",
    "Each model is compared with the *best baseline* of the data set: the model without a ball",
    "that is best on the test rows, which favours the baselines. Differences are points of error,",
    "log losses, or for regression per cent of the baseline's RMSE or squared loss. They are means",
    "over splits or domains with 95% intervals; bold ones exclude 0.",
    "",
    "- *plain* is `LogisticRegression()` or `Ridge()`; *tuned* chooses the penalty by",
    "  cross-validation; *temperature* multiplies plain scores by one number that is best for the",
    "  robust loss (ρ = 0.1) of training rows; *weights* gives all domains the same total weight;",
    "  *Huber* is `HuberRegressor()`; *boosting* is scikit-learn's gradient boosting, which is",
    "  also the reference of regret (a random forest for amazon_reviews_4domains, whose 5,000",
    "  columns would take it minutes).",
    "  [Boosted trees with a ball](scoreboard-trees.md) have a page of their own.",
    "- *rows* are balls over rows; *regret* subtracts the losses of the reference; *groups* are",
    "  balls over the domains of the training rows, *all* with a radius that holds all mixes.",
    "- Other risks were set beforehand, like all models: *soft* is a soft χ² ball whose τ is the",
    "  mean training loss of the best constant model; *Extremile* is `Extremile(2)`, whose weights",
    "  have the χ² divergence 1/3; *trim* ignores 5% of the rows in the ball *rows, χ² 0.3*; *l1*",
    "  replaces the l2 penalty of *groups 1* by an l1 penalty, as large as the standard error of",
    "  a coefficient's slope at the constant model.",
    "- The domain of a row is the state, hospital, year, group or area that comes with the data.",
    "  Where the question is the future, it is one of 24 equal blocks of rows in order of time.",
    "- At most 30,000 rows of each data set, 100,000 for random splits of covtype; linear models",
    "  have scikit-learn's penalty C = 1.",
    "",
]
_TREES = [
    "`python -m benchmarks.scoreboard.run --trees` makes this page. Data sets, splits and",
    "measures are those of the [scoreboard of linear models](scoreboard.md); the models are",
    "boosted trees of LightGBM with default settings, 100 rounds. Differences are points of",
    "error, log losses, or for regression per cent of the baseline's RMSE or squared loss. They",
    "are means over splits or domains with 95% intervals; bold ones exclude 0. The best baseline",
    "is the better of *plain* and *weights* on the test rows, which favours the baselines.",
    "",
    "- *plain* is `LGBMClassifier()` or `LGBMRegressor()`; *weights* gives all domains the same",
    "  total weight.",
    "- *groups 1* and *groups, all* are `RobustBoostingClassifier` and `RobustBoostingRegressor`",
    "  with balls over the domains of the training rows ([boosting.md](boosting.md)), *all* with",
    "  a radius that holds all mixes. *regret* subtracts cross-fitted losses of the plain trees.",
    "",
    "The balls see losses of training rows. Trees fit those of a small group as well as those of",
    "a large one, so a group that is hard on new rows need not have a large weight.",
    "",
]
