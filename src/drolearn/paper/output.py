"""Files of tables and figures, made from rows."""

from __future__ import annotations

from pathlib import Path

from drolearn._storage import replacing
from drolearn.paper import figures, tables
from drolearn.paper.protocol import Protocol
from drolearn.paper.rows import Rows

__all__ = ["write_artefact", "write_text"]


def write_artefact(
    protocol: Protocol, name: str, rows: Rows, reasons: dict[str, str], folder: Path
) -> list[Path]:
    """Write the files of one artefact and return their paths.

    `reasons` says why some data sets could not be loaded.
    """
    artefact = protocol.artefacts[name]
    if artefact.kind in ("table", "choices"):
        make = tables.results if artefact.kind == "table" else tables.choices
        of_artefact = {d: reason for d, reason in reasons.items() if d in artefact.datasets}
        made = make(protocol, name, rows, of_artefact)
        contents = {
            "md": "\n".join(table.markdown() for table in made),
            "tex": "\n".join(table.latex() for table in made),
            "csv": made[0].csv(*made[1:]),
        }
        for ending, text in contents.items():
            write_text(folder / f"{name}.{ending}", text)
        return [folder / f"{name}.{ending}" for ending in contents]
    written: list[Path] = []
    for dataset in artefact.datasets:
        title = f"{name}_{dataset}" if protocol.datasets[dataset].stands_for else name
        if artefact.kind == "scaling":
            figure = figures.growth(protocol, name, rows)
        else:
            figure = figures.curves(protocol, name, dataset, rows)
        written += figures.save(figure, folder, title) if figure is not None else []
    return written


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text.encode())
