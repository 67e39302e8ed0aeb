"""Tables from rows: means with intervals, beside the published numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drolearn import datasets
from drolearn._solvers.ending import Ending
from drolearn.paper.protocol import Artefact, Protocol, Published, Search
from drolearn.paper.rows import (
    Interval,
    Rows,
    column,
    error_at_tenth,
    interval,
    percent,
    select,
)

if TYPE_CHECKING:
    from pandas import DataFrame

#: A column of a table: method and radius.
Key = tuple[str, float]

__all__ = ["Cell", "Table", "best", "choices", "published_errors", "results"]


def best(means: dict[Any, Interval], among: Iterable[Any] | None = None) -> set[Any]:
    """Names that the paper's rule prints in bold.

    The lowest mean `among` some names (by default all), and every mean that is lower than that or
    whose interval overlaps with it.

    Examples
    --------
    >>> from drolearn.paper.rows import Interval
    >>> from drolearn.paper.tables import best
    >>> hiv1 = {"GSSG": Interval(6.1, 0.5), "PSSG": Interval(5.9, 0.1), "ERM": Interval(5.6, 0.0)}
    >>> sorted(best(hiv1))
    ['ERM', 'GSSG']
    """
    candidates = [means[name] for name in (means if among is None else among) if name in means]
    if not candidates:
        return set()
    least = min(candidates, key=lambda each: each.mean)
    return {n for n, each in means.items() if each.mean <= least.mean or each.overlaps(least)}


@dataclass(frozen=True)
class Cell:
    """A measured and a published number."""

    measured: str = "–"
    published: str = ""
    bold: bool = False
    published_bold: bool = False

    def markdown(self) -> str:
        """In Markdown: measured (published)."""
        return self._text(lambda text, bold: f"**{text}**" if bold else text)

    def latex(self) -> str:
        """In LaTeX: measured (published)."""

        def number(text: str, bold: bool) -> str:
            text = text.replace("±", r"\pm").replace("–", r"\text{--}")
            return rf"$\mathbf{{{text}}}$" if bold else f"${text}$"

        return self._text(number)

    def _text(self, number: Callable[[str, bool], str]) -> str:
        text = number(self.measured, self.bold)
        if self.published:
            return f"{text} ({number(self.published, self.published_bold)})"
        return text


@dataclass
class Table:
    """A table for Markdown, LaTeX and CSV; `records` are the lines of the CSV."""

    title: str
    columns: list[str]
    rows: list[list[str | Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)

    def markdown(self) -> str:
        """Title, table and notes."""
        frame = self._frame(lambda cell: cell.markdown() if isinstance(cell, Cell) else cell)
        # Without disable_numparse, tabulate would print 0.30 as 0.3.
        align = ["left"] + ["right"] * (len(self.columns) - 1)
        table = frame.to_markdown(index=False, disable_numparse=True, colalign=align)
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"**{self.title}**\n\n{table}\n\n{notes}".rstrip() + "\n"

    def latex(self) -> str:
        """A tabular with booktabs, and the notes below its last rule."""
        frame = self._frame(lambda cell: cell.latex() if isinstance(cell, Cell) else _escape(cell))
        frame.columns = [_escape(name) for name in self.columns]
        form = "l" + "r" * (len(self.columns) - 1)
        table = frame.to_latex(index=False, escape=False, column_format=form)
        span = rf"\multicolumn{{{len(self.columns)}}}{{p{{\linewidth}}}}"
        notes = "".join(f"{span}{{{_escape(note)}}} \\\\\n" for note in self.notes)
        return table.replace(r"\end{tabular}", notes + r"\end{tabular}")

    def csv(self, *others: Table) -> str:
        """One line for each number of this table, and of others with the same columns."""
        from pandas import DataFrame

        records = [record for table in (self, *others) for record in table.records]
        return DataFrame(records).to_csv(index=False, lineterminator="\n")

    def _frame(self, text: Callable[[str | Cell], str]) -> DataFrame:
        from pandas import DataFrame

        return DataFrame([[text(cell) for cell in row] for row in self.rows], columns=self.columns)


def _escape(text: str) -> str:
    for plain, tex in (
        ("\\", r"\textbackslash "), ("_", r"\_"), ("%", r"\%"), ("&", r"\&"), ("#", r"\#"),
        ("√(d/N)", r"$\sqrt{d/N}$"), ("ρ", r"$\rho$"), ("–", "--"), ("†", r"$^\dag$"),
        ("‡", r"$^\ddag$"), ("±", r"$\pm$"), ("×", r"$\times$"),
    ):  # fmt: skip
        text = text.replace(plain, tex)
    return text


def results(protocol: Protocol, name: str, rows: Rows, reasons: dict[str, str]) -> list[Table]:
    """Test errors of an artefact of kind "table", and CPU seconds if it has a single radius.

    `reasons` says why some data sets could not be loaded.
    """
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    keys, single = _keys(protocol, artefact), len(artefact.rho) == 1
    heads = [
        protocol.methods[m].label + (f", ρ = {rho:g}" if rho and not single else "")
        for m, rho in keys
    ]
    about = "measured (published)"
    errors = Table(
        f"{artefact.title}: test errors in percent, {about}",
        ["data set", "N", "d", "√(d/N)", *heads],
    )
    seconds = Table(f"{artefact.title}: CPU seconds, {about}", ["data set", "N", "d", *heads])
    for dataset in artefact.datasets:
        of_dataset = select(rows, runs, dataset=dataset)
        published, label, notes = _substitute(protocol, dataset)
        note = ""
        planned = len(keys) * protocol.splits[artefact.split].seeds
        if dataset in reasons:
            label += " ‡"
            note = f"‡ {reasons[dataset]}"
        elif len(of_dataset) < planned:
            note = f"{dataset}: {len(of_dataset)} of {planned} runs are done."
        errors.notes += [*notes, *([note] if note else [])]
        errors.notes += _endings(protocol, dataset, of_dataset)
        parts = {
            key: part
            for key in keys
            if (part := [row for row in of_dataset if (row["method"], row["rho"]) == key])
        }
        entry = datasets.CATALOGUE[dataset]
        first = [label, str(entry.n), str(entry.d)]
        line = _Line(dataset, keys, note)
        means = {key: percent(column(part, "test_error")) for key, part in parts.items()}
        cells = line.errors(errors, means, published)
        errors.rows.append([*first, f"{math.sqrt(entry.d / entry.n):.2f}", *cells])
        if single:
            means = {key: interval(column(part, "seconds")) for key, part in parts.items()}
            seconds.rows.append([*first, *line.seconds(seconds, means, published)])
    errors.notes.append(
        "In bold: the lowest mean of the paper's methods, and every mean that is lower or whose "
        "interval overlaps with it."
    )
    seconds.notes = [note for note in errors.notes if note[0] in "†‡"]
    return [errors, seconds] if single else [errors]


def _keys(protocol: Protocol, artefact: Artefact) -> list[Key]:
    """Columns: the paper's methods by radius, then the search, then this library's solvers."""
    paper = [m for m in artefact.methods if m in ("gssg", "pssg")]
    searches = [m for m in artefact.methods if isinstance(protocol.methods[m], Search)]
    others = [m for m in artefact.methods if m not in (*paper, *searches)]
    return [
        *((m, rho) for rho in artefact.rho for m in paper),
        *((m, 0.0) for m in searches),
        *((m, rho) for rho in artefact.rho for m in others),
    ]


def _substitute(protocol: Protocol, dataset: str) -> tuple[Published | None, str, list[str]]:
    """Published numbers of a data set, its label, and a note if it stands in for another."""
    data = protocol.datasets[dataset]
    if not data.stands_for:
        return data.published, dataset, []
    note = (
        f"† {dataset}: {datasets.CATALOGUE[dataset].about}; the published numbers are those of "
        f"{data.stands_for} with {datasets.CATALOGUE[data.stands_for].n} rows."
    )
    return protocol.datasets[data.stands_for].published, f"{dataset} †", [note]


def _endings(protocol: Protocol, dataset: str, rows: Rows) -> list[str]:
    """Notes about runs that did not converge or use all their samples."""
    notes = []
    for method in dict.fromkeys(row["method"] for row in rows):
        endings = [Ending(row["ending"]) for row in rows if row["method"] == method]
        label = protocol.methods[method].label
        for ending, text in _UNUSUAL.items():
            if ending in endings:
                count = endings.count(ending)
                notes.append(f"{dataset}: {count} of {len(endings)} runs of {label} {text}.")
    return notes


_UNUSUAL = {
    Ending.SEPARABLE: "separate the training rows, so there is no optimum",
    Ending.DIVERGED: "diverged",
    Ending.EXHAUSTED: "reached the iteration limit",
    Ending.STUCK: "stopped where no step improved the objective",
    Ending.UNCERTIFIED: "ended without a certificate",
}


def published_errors(published: Published, method: str, rho: float) -> Interval | None:
    """The test error in the paper, if it has one for this method and radius."""
    if method == "erm":
        return Interval(*published.erm)
    by_radius = {"gssg": published.gssg, "pssg": published.pssg}.get(method, {})
    error = by_radius.get(f"{rho:g}")
    return Interval(*error) if error else None


@dataclass(frozen=True)
class _Line:
    """One data set of a table: makes its cells and records them for the CSV."""

    dataset: str
    keys: list[Key]
    note: str

    def errors(
        self, table: Table, means: dict[Key, Interval], published: Published | None
    ) -> list[Cell]:
        """Test errors; the lowest and those that overlap with it are bold."""
        known: dict[Key, Interval] = {}
        for key in self.keys:
            if published and (error := published_errors(published, *key)):
                known[key] = error
        bold = best(means, [key for key in self.keys if key in known])
        return self._cells(table, "test error", (means, bold), (known, best(known)), ".1f")

    def seconds(
        self, table: Table, means: dict[Key, Interval], published: Published | None
    ) -> list[Cell]:
        """CPU seconds; as in the paper, only the least is bold."""
        times = published.seconds if published else {}
        known = {key: Interval(times[key[0]], math.nan) for key in self.keys if key[0] in times}
        return self._cells(
            table, "CPU seconds", (means, _least(means)), (known, _least(known)), None
        )

    def _cells(
        self,
        table: Table,
        quantity: str,
        measured: tuple[dict[Key, Interval], set[Key]],
        published: tuple[dict[Key, Interval], set[Key]],
        form: str | None,
    ) -> list[Cell]:
        (means, bold), (known, known_bold) = measured, published
        cells = []
        for key in self.keys:
            mine, other = means.get(key), known.get(key)
            cells.append(
                Cell(
                    "–" if mine is None else mine.text(form),
                    "" if other is None else other.text(form),
                    key in bold,
                    key in known_bold,
                )
            )
            table.records.append(
                {
                    "data set": self.dataset,
                    "quantity": quantity,
                    "method": key[0],
                    "rho": key[1] or "",
                    "measured": "" if mine is None else f"{mine.mean:.6g}",
                    "measured ±": ""
                    if mine is None or math.isnan(mine.half)
                    else f"{mine.half:.6g}",
                    "runs": 0 if mine is None else mine.runs,
                    "published": "" if other is None else other.mean,
                    "published ±": "" if other is None or math.isnan(other.half) else other.half,
                    "best": key in bold,
                    "note": self.note,
                }
            )
        return cells


def _least(means: dict[Key, Interval]) -> set[Key]:
    return {min(means, key=lambda key: means[key].mean)} if means else set()


def choices(protocol: Protocol, name: str, rows: Rows, reasons: dict[str, str]) -> list[Table]:
    """Errors of all variants on held-out training rows."""
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    heads = [protocol.methods[m].label for m in artefact.methods]
    table = Table(
        f"{artefact.title}: errors in percent at the end (at a tenth of the samples)",
        ["data set", "scaling", "intercept", "c", *heads],
    )
    fields = ("dataset", "scaling", "intercept", "inflation")
    rows = select(rows, runs)
    variants = dict.fromkeys(tuple(row[field] for field in fields) for row in rows)
    order = {dataset: at for at, dataset in enumerate(artefact.datasets)}
    for key in sorted(variants, key=lambda key: (order[key[0]], *map(str, key[1:]))):
        dataset, scaling, intercept, inflation = key
        values = dict(zip(fields, key, strict=True))
        chosen = scaling == protocol.datasets[dataset].scaling and not intercept
        cells: list[str | Cell] = []
        for method in artefact.methods:
            part = select(rows, runs, method=method, **values)
            final = percent(column(part, "test_error"))
            early = percent(error_at_tenth(row) for row in part)
            default = getattr(protocol.methods[method], "inflation", None) == inflation
            cells.append(Cell(final.text(), f"{early.mean:.1f}", chosen and default))
            record = values | {"method": method, "error": f"{final.mean:.6g}"}
            record |= {"error at a tenth": f"{early.mean:.6g}", "runs": final.runs}
            table.records.append(record)
        table.rows.append(
            [dataset, scaling, "yes" if intercept else "no", f"{inflation:g}", *cells]
        )
    table.notes.append("In bold: what the protocol uses.")
    table.notes += reasons.values()
    return [table]
