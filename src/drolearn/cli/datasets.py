"""The command `drolearn datasets`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from drolearn.cli.options import Json

__all__ = ["datasets"]


def datasets(
    fetch: Annotated[
        list[str] | None,
        typer.Option(help="Download this data set into the cache; can be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the data sets with size, licence, source, and where each would be loaded from.

    \b
    Examples:
      drolearn datasets
      drolearn datasets --fetch hiv1
      drolearn datasets --json
    """
    from drolearn.cli.report import show
    from drolearn.datasets import CATALOGUE, where
    from drolearn.datasets import fetch as fetch_dataset

    if fetch:
        files = {name: str(fetch_dataset(name)) for name in fetch}

        def text(console: Any) -> None:
            for name, file in files.items():
                console.print(f"{name}: {file}")

        show({"fetched": files}, as_json, text)
        return
    entries = [
        {
            "name": entry.name, "rows": entry.n, "columns": entry.d, "licence": entry.licence,
            "source": entry.home, "loaded_from": str(where(entry.name)), "about": entry.about,
        }
        for entry in CATALOGUE.values()
    ]  # fmt: skip
    show({"datasets": entries, "other_files": _others()}, as_json, lambda _: _print(entries))


def _others() -> list[str]:
    """The data sets in DROLEARN_DATA that the catalogue does not have."""
    from drolearn.datasets import CATALOGUE, folder

    known, place = {entry.file for entry in CATALOGUE.values()}, folder()
    files = [] if place is None else place.glob("*.npz")
    return sorted(path.name for path in files if path.name not in known)


def _print(entries: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from drolearn.datasets import folder

    console, table = Console(), Table(box=None, pad_edge=False)
    for head in ("name", "N", "d", "licence", "source", "loaded from", "description"):
        table.add_column(head, overflow="fold", no_wrap=head in ("name", "N", "d"))
    for entry in entries:
        table.add_row(*map(str, entry.values()))
    console.print(table)
    if folder() is None:
        console.print("DROLEARN_DATA is not set.")
        return
    console.print(f"Other files in DROLEARN_DATA: {', '.join(_others()) or 'none'}.")
