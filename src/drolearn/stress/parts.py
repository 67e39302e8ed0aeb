"""The pieces of the report for the browser: sections with tables of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drolearn.stress.text import percent

__all__ = ["KEYS", "Cell", "Column", "Row", "Section", "bar", "make_row"]

#: The columns of tables that the switches of the page choose.
KEYS = ["model", "loss_name", "divergence"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, whether it holds numbers, and whether its cells name the row."""

    title: str
    numbers: bool = True
    names_row: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell; `share` draws a bar of this length from 0 to 1."""

    text: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Cells, and what they belong to: the switches show and hide rows by it."""

    cells: list[Cell]
    model: str | None = None
    loss: str | None = None
    divergence: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page.

    Parameters
    ----------
    table : str
        The name of the table of the report.
    title : str
        The heading.
    text : list of str
        Paragraphs above the table.
    caption : str
        The caption of the table.
    columns : list of Column
        The columns.
    rows : list of Row
        The rows.
    chart : str
        What the chart shows, for those who do not see it; empty for no chart.
    above, below : str
        What the axes of the chart are.
    """

    table: str
    title: str
    text: list[str]
    caption: str
    columns: list[Column]
    rows: list[Row]
    chart: str = ""
    above: str = ""
    below: str = ""


def make_row(row: Any, *cells: str | Cell) -> Row:
    """A row of the page for a row of a table."""
    made = [each if isinstance(each, Cell) else Cell(each) for each in cells]
    keys = (getattr(row, name, None) for name in KEYS)
    return Row(made, *keys)


def bar(share: float) -> Cell:
    """A share with a bar."""
    return Cell(percent(share), share)
