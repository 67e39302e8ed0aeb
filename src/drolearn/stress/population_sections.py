"""What the report for the browser says about sub-populations, features and single rows."""

from __future__ import annotations

from typing import Any

from drolearn.stress.parts import Column, Section, bar, make_row
from drolearn.stress.text import confidence, interval, number, percent

__all__ = ["bracket_section", "features_section", "slices_section", "worst_rows_section"]


def slices_section(report: Any) -> Section | None:
    """Sub-populations that can be described, on which losses are large."""
    if report.slices.empty:
        return None
    columns = [
        Column("Sub-population", numbers=False, names_row=True),
        Column("Share"),
        Column("Rows"),
        Column("Loss"),
        Column(f"At least, {confidence(report.level)}"),
        Column("Loss of the others"),
        Column("Note", numbers=False),
    ]
    rows = [
        make_row(
            row, row.slice, bar(row.share), f"{row.rows:,}", number(row.loss), number(row.low),
            number(row.others), row.note,
        )
        for row in report.slices.itertuples()
    ]  # fmt: skip
    return Section(
        "slices",
        "Where the model is bad",
        [
            "Sub-populations that the features can describe. Each was found on one half of the "
            "rows; the numbers are of the other half, so chance did not select them.",
        ],
        "Sub-populations with large losses",
        columns,
        rows,
    )


def bracket_section(report: Any) -> Section | None:
    """How bad a sub-population of each share is, at least and at most."""
    if report.bracket.empty:
        return None
    columns = [
        Column("Share of the rows", numbers=False, names_row=True),
        Column("Worst found, at least"),
        Column("Worst found"),
        Column("Worst rows"),
        Column("Worst rows, at most"),
        Column("Which", numbers=False),
        Column("Note", numbers=False),
    ]
    rows = [
        make_row(
            row, percent(row.share), number(row.low), number(row.loss), number(row.cvar),
            number(row.high), row.slice, row.note,
        )
        for row in report.bracket.itertuples()
    ]  # fmt: skip
    return Section(
        "bracket",
        "Between what can be described and single rows",
        [
            "The worst sub-population of a share lies between the worst that was found and the "
            "worst rows. Single rows are mostly bad by chance, as with wrong labels: the truth is "
            "often nearer to the lower end.",
        ],
        "Mean losses of the worst sub-population of at least this share",
        columns,
        rows,
    )


def features_section(report: Any) -> Section | None:
    """The losses by each feature, and which values have more weight in the worst case."""
    if report.features.empty:
        return None
    columns = [
        Column("Value", numbers=False, names_row=True),
        Column("Rows"),
        Column("Loss"),
        Column(f"{confidence(report.level)} interval"),
        Column("Wrong labels"),
        Column("Share now"),
        Column("Share in the worst case"),
        Column("Note", numbers=False),
    ]
    rows = [
        make_row(
            row, f"{row.feature}: {row.value}", f"{row.rows:,}", number(row.loss),
            interval(row.low, row.high), percent(row.error), bar(row.share),
            bar(row.worst_share), row.note,
        )
        for row in report.features.itertuples()
    ]  # fmt: skip
    return Section(
        "features",
        "Feature by feature",
        [
            "The mean loss for each value of a feature, and its share of the rows: now, and in the "
            "worst case over single rows of the ball that holds every half of the rows.",
        ],
        "Losses and shares of the values of each feature, the largest losses first",
        columns,
        rows,
    )


def worst_rows_section(report: Any) -> Section | None:
    """The rows with the largest weights, if they were asked for."""
    if report.worst_rows.empty:
        return None
    rows = [
        make_row(row, f"{row.row:,}", number(row.loss), percent(row.weight))
        for row in report.worst_rows.itertuples()
    ]
    return Section(
        "worst_rows",
        "Single rows",
        ["The rows with the largest weights in the ball that holds every half of the rows."],
        "Rows with the largest weights, counted from 0",
        [Column("Row", numbers=False, names_row=True), Column("Loss"), Column("Weight")],
        rows,
    )
