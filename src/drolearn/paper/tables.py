"""Tables from rows: means, intervals, and the published numbers beside them.

Nothing is computed here but means of what the rows say.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drolearn import datasets
from drolearn._solvers.ending import Ending
from drolearn.paper.protocol import Protocol, Published, Run, Search

Rows = Sequence[dict[str, Any]]

__all__ = [
    "Cell",
    "Interval",
    "Rows",
    "Table",
    "best",
    "choices",
    "column",
    "interval",
    "percent",
    "published_errors",
    "results",
    "seconds_to",
    "select",
]


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95% interval, NaN where one run tells nothing of it."""

    mean: float
    half: float
    runs: int = 0

    def meets(self, other: Interval, printed: float = 0.0) -> bool:
        """Whether both have a number in common; `printed` is the unit of the last digit of one.

        What was printed as 5.9 ± 0.1 with unit 0.1 may have reached from 5.75 to 6.1.
        """
        reach = np.nan_to_num(self.half) + np.nan_to_num(other.half) + printed
        return bool(abs(self.mean - other.mean) <= reach + 1e-9)

    def text(self, form: str | None = ".1f") -> str:
        """As it is printed; without a form, with two digits, or all before the point."""
        mean, half = (_brief(x) if form is None else f"{x:{form}}" for x in (self.mean, self.half))
        return mean if math.isnan(self.half) else f"{mean} ± {half}"


def _brief(x: float) -> str:
    return f"{x:.0f}" if abs(x) >= 99.5 else f"{x:.2g}"


def interval(values: Iterable[float]) -> Interval:
    """Student's 95% interval of the mean.

    Examples
    --------
    >>> from drolearn.paper.tables import interval
    >>> interval([5.0, 6.0, 7.0]).text()
    '6.0 ± 2.5'
    """
    from scipy.stats import t as student

    numbers = np.asarray(list(values), dtype=np.float64)
    if numbers.size < 2:
        return Interval(float(numbers.mean()), math.nan, numbers.size)
    reach = student.ppf(0.975, numbers.size - 1) * numbers.std(ddof=1) / math.sqrt(numbers.size)
    return Interval(float(numbers.mean()), float(reach), numbers.size)


def percent(shares: Iterable[float]) -> Interval:
    """The interval of shares, in percent."""
    return interval(100.0 * share for share in shares)


def best(found: dict[Any, Interval], among: Iterable[Any] | None = None) -> set[Any]:
    """Those that the paper prints in bold: the least mean, and all whose intervals meet its own.

    The least is sought `among` some; others join if they meet it or lie below.

    Examples
    --------
    >>> from drolearn.paper.tables import Interval, best
    >>> hiv1 = {"GSSG": Interval(6.1, 0.5), "PSSG": Interval(5.9, 0.1), "ERM": Interval(5.6, 0.0)}
    >>> sorted(best(hiv1))
    ['ERM', 'GSSG']
    """
    known = [found[name] for name in (found if among is None else among) if name in found]
    if not known:
        return set()
    least = min(known, key=lambda each: each.mean)
    return {n for n, each in found.items() if each.mean <= least.mean or each.meets(least)}


def select(rows: Rows, runs: Sequence[Run], **values: Any) -> Rows:
    """The rows of some runs whose columns have these values."""
    keys = {run.key for run in runs}
    return [row for row in rows if row["key"] in keys and has(row, values)]


def has(row: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether a row has these values."""
    return all(row[name] == value for name, value in values.items())


def seconds_to(row: dict[str, Any], target: float) -> float:
    """CPU seconds until the test error was at most `target` at two looks in a row, or infinity.

    One look alone may be luck, the more so for methods whose iterates are noisy.
    """
    below = np.asarray(row["at_errors"]) <= target
    reached = np.flatnonzero(below[1:] & below[:-1])
    return float(np.asarray(row["at_seconds"])[reached[0] + 1]) if reached.size else math.inf


def column(rows: Rows, name: str) -> list[float]:
    """One number of every row."""
    return [row[name] for row in rows]


@dataclass(frozen=True)
class Cell:
    """What was measured and what was published."""

    measured: str = "–"
    published: str = ""
    bold: bool = False
    published_bold: bool = False

    def markdown(self) -> str:
        """In Markdown: measured (published)."""
        mark = "**" if self.bold else ""
        text = f"{mark}{self.measured}{mark}"
        mark = "**" if self.published_bold else ""
        return f"{text} ({mark}{self.published}{mark})" if self.published else text

    def latex(self) -> str:
        """In LaTeX: measured (published)."""

        def number(text: str, bold: bool) -> str:
            text = text.replace("±", r"\pm").replace("–", r"\text{--}")
            return rf"$\mathbf{{{text}}}$" if bold else f"${text}$"

        text = number(self.measured, self.bold)
        if self.published:
            return f"{text} ({number(self.published, self.published_bold)})"
        return text


@dataclass
class Table:
    """A table in three forms."""

    title: str
    columns: list[str]
    rows: list[list[str | Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)

    def markdown(self) -> str:
        """With the notes below."""
        lines = [f"**{self.title}**", "", _line(self.columns)]
        lines.append(_line(["---"] + ["--:"] * (len(self.columns) - 1)))
        for row in self.rows:
            lines.append(_line(c.markdown() if isinstance(c, Cell) else c for c in row))
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]).rstrip() + "\n"

    def latex(self) -> str:
        """A tabular with booktabs."""
        lines = [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        lines += [" & ".join(map(_escape, self.columns)) + r" \\", r"\midrule"]
        for row in self.rows:
            cells = (c.latex() if isinstance(c, Cell) else _escape(c) for c in row)
            lines.append(" & ".join(cells) + r" \\")
        lines.append(r"\bottomrule")
        width = len(self.columns)
        for note in self.notes:
            lines.append(rf"\multicolumn{{{width}}}{{p{{\linewidth}}}}{{{_escape(note)}}} \\")
        return "\n".join([*lines, r"\end{tabular}", ""])

    def csv(self) -> str:
        """One line for each number."""
        out = io.StringIO()
        names = list(dict.fromkeys(name for record in self.records for name in record))
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return out.getvalue()


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape(text: str) -> str:
    for plain, tex in (
        ("\\", r"\textbackslash "), ("_", r"\_"), ("%", r"\%"), ("&", r"\&"), ("#", r"\#"),
        ("√(d/N)", r"$\sqrt{d/N}$"), ("ρ", r"$\rho$"), ("–", "--"), ("†", r"$^\dag$"),
        ("‡", r"$^\ddag$"), ("±", r"$\pm$"), ("×", r"$\times$"),
    ):  # fmt: skip
        text = text.replace(plain, tex)
    return text


def results(protocol: Protocol, name: str, rows: Rows, reasons: dict[str, str]) -> list[Table]:
    """Test errors of an artefact of kind "table", and CPU seconds if it has one radius."""
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    # The paper's methods first, radius by radius, then the search, then this library's.
    keys = [(m, rho) for rho in artefact.rho for m in artefact.methods if m in ("gssg", "pssg")]
    keys += [(m, 0.0) for m in artefact.methods if isinstance(protocol.methods[m], Search)]
    rest = [m for m in artefact.methods if (m, 0.0) not in keys and m not in ("gssg", "pssg")]
    keys += [(m, rho) for rho in artefact.rho for m in rest]
    many = len(artefact.rho) > 1
    heads = [
        protocol.methods[m].label + (f", ρ = {rho:g}" if many and rho else "") for m, rho in keys
    ]
    about = "measured (published)"
    errors = Table(
        f"{artefact.title}: test errors in percent, {about}",
        ["data set", "N", "d", "√(d/N)", *heads],
    )
    seconds = Table(f"{artefact.title}: CPU seconds, {about}", ["data set", "N", "d", *heads])
    for dataset in artefact.datasets:
        own, note = select(rows, runs, dataset=dataset), ""
        entry = datasets.CATALOGUE[dataset]
        given = protocol.datasets[dataset]
        published = given.published
        label = dataset
        if given.stands_for:
            published = protocol.datasets[given.stands_for].published
            label += " †"
            errors.notes.append(
                f"† {dataset}: {entry.about}; the published numbers are those of "
                f"{given.stands_for} with {datasets.CATALOGUE[given.stands_for].n} rows."
            )
        if dataset in reasons:
            label += " ‡"
            note = f"‡ {reasons[dataset]}"
            errors.notes.append(note)
        elif len(own) < len(keys) * protocol.splits[artefact.split].seeds:
            planned = len(keys) * protocol.splits[artefact.split].seeds
            note = f"{dataset}: {len(own)} of {planned} runs are done."
            errors.notes.append(note)
        errors.notes += _endings(protocol, dataset, own)
        parts = {
            key: part
            for key in keys
            if (part := [row for row in own if (row["method"], row["rho"]) == key])
        }
        first = [label, str(entry.n), str(entry.d)]
        found = {key: percent(column(part, "test_error")) for key, part in parts.items()}
        known = {}
        for key in keys:
            if published and (said := published_errors(published, *key)):
                known[key] = said
        cells = _cells(errors, dataset, "test error", keys, found, known, ".1f", note)
        errors.rows.append([*first, f"{math.sqrt(entry.d / entry.n):.2f}", *cells])
        if not many:
            found = {key: interval(column(part, "seconds")) for key, part in parts.items()}
            times = published.seconds if published else {}
            known = {key: Interval(times[key[0]], math.nan) for key in keys if key[0] in times}
            cells = _cells(seconds, dataset, "CPU seconds", keys, found, known, None, note)
            seconds.rows.append([*first, *cells])
    errors.notes.append(
        "In bold: the least of the paper's methods, and all whose intervals meet its own or that "
        "lie below."
    )
    seconds.notes = [note for note in errors.notes if note[0] in "†‡"]
    return [errors] if many else [errors, seconds]


def _endings(protocol: Protocol, dataset: str, rows: Rows) -> list[str]:
    """Which runs did not end as they should."""
    notes = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [Ending(row["ending"]) for row in rows if row["method"] == method]
        label = protocol.methods[method].label
        for ending, text in _UNUSUAL.items():
            if ending in own:
                count = own.count(ending)
                notes.append(f"{dataset}: {count} of {len(own)} runs of {label} {text}.")
    return notes


_UNUSUAL = {
    Ending.DIVERGED: "left all bounds",
    Ending.EXHAUSTED: "used up their iterations",
    Ending.STUCK: "found no better step",
    Ending.UNCERTIFIED: "ended without a certificate",
}


def published_errors(published: Published, method: str, rho: float) -> Interval | None:
    """The test error that the paper gives, if it does."""
    if method == "erm":
        return Interval(*published.erm)
    by_radius = {"gssg": published.gssg, "pssg": published.pssg}.get(method, {})
    said = by_radius.get(f"{rho:g}")
    return Interval(*said) if said else None


def _cells(
    table: Table,
    dataset: str,
    quantity: str,
    keys: Sequence[tuple[str, float]],
    found: dict[Any, Interval],
    known: dict[Any, Interval],
    form: str | None,
    note: str,
) -> list[Cell]:
    """The cells of a row of a table, recorded for its CSV."""
    ours, theirs = best(found, [key for key in keys if key in known]), best(known)
    if quantity != "test error":  # the paper prints the least time in bold, and only that
        ours, theirs = _least(found), _least(known)
    cells = []
    for key in keys:
        mine, other = found.get(key), known.get(key)
        cells.append(
            Cell(
                "–" if mine is None else mine.text(form),
                "" if other is None else other.text(form),
                key in ours,
                key in theirs,
            )
        )
        table.records.append(
            {
                "data set": dataset,
                "quantity": quantity,
                "method": key[0],
                "rho": key[1] or "",
                "measured": "" if mine is None else f"{mine.mean:.6g}",
                "measured ±": "" if mine is None or math.isnan(mine.half) else f"{mine.half:.6g}",
                "runs": 0 if mine is None else mine.runs,
                "published": "" if other is None else other.mean,
                "published ±": "" if other is None or math.isnan(other.half) else other.half,
                "best": key in ours,
                "note": note,
            }
        )
    return cells


def _least(found: dict[Any, Interval]) -> set[Any]:
    return {min(found, key=lambda key: found[key].mean)} if found else set()


def choices(protocol: Protocol, name: str, rows: Rows, reasons: dict[str, str]) -> list[Table]:
    """What was tried, judged on held-out training rows, at the end and at a tenth of it."""
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    heads = [protocol.methods[m].label for m in artefact.methods]
    table = Table(
        f"{artefact.title}: errors in percent at the end (at a tenth of the samples)",
        ["data set", "scaling", "intercept", "c", *heads],
    )
    fields = ("dataset", "scaling", "intercept", "inflation")
    found = select(rows, runs)
    variants = dict.fromkeys(tuple(row[field] for field in fields) for row in found)
    place = {dataset: at for at, dataset in enumerate(artefact.datasets)}
    for key in sorted(variants, key=lambda key: (place[key[0]], *map(str, key[1:]))):
        values = dict(zip(fields, key, strict=True))
        chosen = key[1] == protocol.datasets[key[0]].scaling and not key[2]
        cells: list[str | Cell] = []
        for method in artefact.methods:
            own = select(found, runs, method=method, **values)
            final = percent(column(own, "test_error"))
            early = percent(_early(row) for row in own)
            own_c = getattr(protocol.methods[method], "inflation", None) == key[3]
            cells.append(Cell(final.text(), f"{early.mean:.1f}", chosen and own_c))
            record = values | {"method": method, "error": f"{final.mean:.6g}"}
            record |= {"error at a tenth": f"{early.mean:.6g}", "runs": final.runs}
            table.records.append(record)
        table.rows.append([key[0], key[1], "yes" if key[2] else "no", f"{key[3]:g}", *cells])
    table.notes.append("In bold: what the protocol uses.")
    table.notes += reasons.values()
    return [table]


def _early(row: dict[Any, Any]) -> float:
    """The error at a tenth of the samples."""
    at = np.asarray(row["at_samples"])
    return float(np.asarray(row["at_errors"])[np.searchsorted(at, at[-1] / 10.0)])
