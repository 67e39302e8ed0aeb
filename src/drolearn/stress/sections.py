"""What the report for the browser says about each table: headlines, tables of text, explanations.

Each table of a report that people should see has one function here, which returns a `Section`, or
None if the table is empty.  The page shows those in `SECTIONS`, in this order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from drolearn.stress.parts import KEYS, Column, Section, bar, make_row
from drolearn.stress.population_sections import (
    bracket_section,
    features_section,
    slices_section,
    worst_rows_section,
)
from drolearn.stress.text import confidence, group_name, interval, number, percent

__all__ = ["SECTIONS", "Figure", "Headline", "headlines", "sections"]

# Rows of a curve that the table shows; the file has all.
_SHARES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)
_MOST_ROWS = 12
# As in charts.js.
_CHART_GROUPS = 30
# A group with fewer rows makes no headline: its loss is large or small by chance.
_HEADLINE_ROWS = 30


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that stands out, what it is, and its interval or a note."""

    value: str
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The most important numbers of one model, loss and divergence."""

    model: str
    loss: str
    divergence: str
    figures: list[Figure] = field(default_factory=list)


def headlines(report: Any) -> list[Headline]:
    """The mean loss, two worst cases, break-even, and the group with the largest loss."""
    even = {_keys(row): row for row in report.break_even.itertuples()}
    groups = dict(iter(report.groups.groupby(KEYS, sort=False))) if len(report.groups) else {}
    found = []
    for _, curve in report.curve.groupby(KEYS, sort=False):
        keys = _keys(curve.iloc[0])
        figures = [_worst(row, report.level) for row in _headline_rows(curve)]
        if keys in even:
            row = even[keys]
            figures.append(_break_even(row))
        if keys in groups:
            table = groups[keys]
            table = table[table["rows"] >= _HEADLINE_ROWS]
            if len(table):
                row = table.loc[table["loss"].idxmax()]
                name = f"{row['column']}: {group_name(row['group'])}"
                detail = f"{name} ({row['rows']:,} rows), {interval(row['low'], row['high'])}"
                figures.append(Figure(number(row["loss"]), "largest mean loss of a group", detail))
        found.append(Headline(*keys, figures=figures))
    return found


def curve_section(report: Any) -> Section | None:
    """The robust loss at some radii."""
    what = "regret" if report.regret else "loss"
    columns = [
        Column("Every subset of", numbers=False, names_row=True),
        Column("Radius ρ"),
        Column(f"Worst-case {what}"),
        Column(f"{confidence(report.level)} interval"),
        Column("Wrong labels"),
        Column("Effective rows"),
        Column("Note", numbers=False),
    ]
    rows = [
        make_row(
            row, _share(row), number(row.rho), number(row.loss), interval(row.low, row.high),
            percent(row.error), f"{row.rows:,.0f}", row.note,
        )
        for row in _by_size(report.curve).itertuples()
    ]  # fmt: skip
    return Section(
        "curve",
        f"How the {what} grows with a shift",
        [
            "Each point is the largest mean loss over all reweightings of the rows within a ball "
            "of radius ρ. The larger ρ, the larger the shift that is allowed. The band is the "
            f"confidence interval at {confidence(report.level)} for each point.",
        ],
        f"The worst-case {what} at some radii",
        columns,
        rows,
        f"Curves of the worst-case {what} against the size of the shift, with intervals. "
        "The slider below and the table have the numbers.",
        " in the worst case",
        "Larger shifts are on the right. The ball holds every subset with this share of the rows; "
        "below it, the radius ρ.",
    )


def groups_section(report: Any) -> Section | None:
    """The losses of groups, and who has more weight in the worst case."""
    if report.groups.empty:
        return None
    columns = [
        Column("Group", numbers=False, names_row=True),
        Column("Rows"),
        Column("Loss"),
        Column(f"{confidence(report.level)} interval"),
        Column("Wrong labels"),
        Column("Share now"),
        Column("Share in the worst case"),
        Column("Share in the worst mix"),
        Column("Note", numbers=False),
    ]
    number_of_groups = len(report.groups[["column", "group"]].drop_duplicates())
    some = f"The chart shows {_CHART_GROUPS} of {number_of_groups} groups; the table has all."
    rows = [
        make_row(
            row, f"{row.column}: {group_name(row.group)}", f"{row.rows:,}", number(row.loss),
            interval(row.low, row.high), percent(row.error), *map(bar, (row.share, row.worst_share,
            row.worst_mix)), row.note,
        )
        for row in _by_group(report.groups).itertuples()
    ]  # fmt: skip
    return Section(
        "groups",
        "Who is hurt",
        [
            "The mean loss of each group, and its share of the rows: now, in the worst case over "
            "single rows, and in the worst mix of whole groups. Both worst cases are those of the "
            "ball that holds every half of the rows. A group whose share grows is hurt by shifts.",
        ],
        "Losses and shares of the groups, the largest losses first",
        columns,
        rows,
        "The mean loss of each group with its interval. The table has the numbers.",
        " of each group, mean and interval",
        some if number_of_groups > _CHART_GROUPS else "",
    )


def break_even_section(report: Any) -> Section | None:
    """The radius from which on a shift can make the model worse than the baseline."""
    if report.break_even.empty:
        return None
    columns = [
        Column("Model", numbers=False, names_row=True),
        Column("Mean loss"),
        Column("Mean loss of the baseline"),
        Column("Radius ρ"),
        Column("Every subset of"),
        Column("In words", numbers=False),
    ]
    rows = [
        make_row(
            row, row.model, number(row.loss), number(row.baseline), number(row.rho),
            percent(row.share), row.meaning,
        )
        for row in report.break_even.itertuples()
    ]  # fmt: skip
    return Section(
        "break_even",
        "Break-even",
        [
            "In every ball smaller than this, the model is better than the baseline, whatever the "
            "shift. Unless another one was given, the baseline is the best constant prediction.",
        ],
        "The smallest shift that makes the model worse than the baseline",
        columns,
        rows,
    )


def radii_section(report: Any) -> Section | None:
    """The changes of the mix of groups that balls hold."""
    if report.radii.empty:
        return None
    columns = [
        Column("Change of the mix", numbers=False, names_row=True),
        Column("Share now"),
        Column("Share then"),
        Column("Radius ρ"),
        Column("Every subset of"),
    ]
    rows = [
        make_row(
            row, row.meaning.split(", from ")[0], percent(row.share), percent(row.changed_to),
            number(row.rho), percent(row.covers),
        )
        for row in report.radii.itertuples()
    ]  # fmt: skip
    return Section(
        "radii",
        "How large is a radius?",
        [
            "A ball of this radius holds the change, and every other change of the same size: the "
            "loss after the change is at most the worst-case loss at this radius.",
        ],
        "Radii of changes that have a name, the smallest first",
        columns,
        rows,
    )


SECTIONS = (
    curve_section,
    groups_section,
    slices_section,
    bracket_section,
    features_section,
    worst_rows_section,
    break_even_section,
    radii_section,
)


def sections(report: Any) -> list[Section]:
    """The sections of the tables that are not empty, without columns that say nothing."""
    made = [make(report) for make in SECTIONS]
    return [_without_empty_columns(section) for section in made if section is not None]


def _without_empty_columns(section: Section) -> Section:
    kept = [
        k
        for k, column in enumerate(section.columns)
        if column.names_row or any(row.cells[k].text not in ("", "–") for row in section.rows)
    ]
    rows = [replace(row, cells=[row.cells[k] for k in kept]) for row in section.rows]
    return replace(section, columns=[section.columns[k] for k in kept], rows=rows)


def _keys(row: Any) -> tuple[str, str, str]:
    return row.model, row.loss_name, row.divergence


def _share(row: Any) -> str:
    return percent(row.share) if not math.isnan(row.share) else "–"


def _break_even(row: Any) -> Figure:
    if 0.0 < row.share < 1.0 or (row.rho > 0.0 and math.isfinite(row.rho)):
        label = f"break-even, {'level' if math.isnan(row.rho) else 'radius ρ'}"
        detail = "better than the baseline in every smaller ball"
        if not math.isnan(row.share):
            detail += f", so on every subset of {percent(row.share)} of the rows"
        return Figure(number(row.share if math.isnan(row.rho) else row.rho), label, detail)
    return Figure("always" if row.share == 0.0 else "none", "break-even", row.meaning)


def _size(row: Any) -> str:
    """A radius, or the level for CVaR."""
    if math.isnan(row.rho):
        return f"level {number(row.share)}"
    return f"ρ = {number(row.rho)}"


def _by_size(curve: Any) -> Any:
    """Some balls of each curve, and for each ball all models."""
    import pandas as pd  # reports are made of its frames

    parts = []
    for k, (_, part) in enumerate(curve.groupby(KEYS, sort=False)):
        chosen = _some_rows(part)
        parts.append(chosen.assign(place=range(len(chosen)), curve=k))
    return pd.concat(parts).sort_values(["place", "curve"], kind="stable")


def _by_group(groups: Any) -> Any:
    """All models next to each other, groups in the order of the first model."""
    keys = ["loss_name", "divergence", "column", "group"]
    rows = list(zip(*(groups[key] for key in keys), strict=True))
    order = {row: k for k, row in enumerate(dict.fromkeys(rows))}
    place = [order[row] for row in rows]
    return groups.assign(place=place).sort_values("place", kind="stable")


def _some_rows(curve: Any) -> Any:
    """Few enough rows to read: those of round shares, or of the radii of KL that belong to them."""
    if len(curve) <= _MOST_ROWS:
        return curve
    place = curve["share"] if curve["share"].notna().all() else (-curve["rho"]).map(math.exp)
    return curve.loc[list(dict.fromkeys((place - share).abs().idxmin() for share in _SHARES))]


def _headline_rows(curve: Any) -> list[Any]:
    """The smallest ball, and those of a half and of a tenth of the rows, or the largest one."""
    chosen = [curve.index[0]]
    for share in (0.5, 0.1):
        away = (curve["share"] - share).abs()
        if away.min() <= 0.02 * share:
            chosen.append(away.idxmin())
    if len(chosen) == 1:
        chosen.append(curve.index[-1])
    return list(curve.loc[list(dict.fromkeys(chosen))].itertuples())


def _worst(row: Any, level: float) -> Figure:
    if row.rho == 0.0 or row.share == 1.0:
        label = "mean loss"
    elif abs(row.share - 0.5) < 0.02:
        label = "no half of the rows has a larger mean loss"
    elif abs(row.share - 0.1) < 0.01:
        label = "no tenth of the rows has a larger mean loss"
    else:
        label = f"worst case at {_size(row)}"
    ends = interval(row.low, row.high)
    return Figure(
        number(row.loss),
        label,
        "no interval" if ends == "–" else f"{confidence(level)} interval {ends}",
    )
