"""The command `drolearn datasets`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["datasets"]


def datasets(
    fetch: Annotated[
        list[str] | None,
        typer.Option(help="Download this data set into the cache; can be repeated."),
    ] = None,
) -> None:
    """List the data sets with size, licence, source, and where each would be loaded from.

    \b
    Examples:
      drolearn datasets
      drolearn datasets --fetch hiv1
    """
    from rich.console import Console
    from rich.table import Table

    from drolearn.datasets import CATALOGUE, folder, where
    from drolearn.datasets import fetch as fetch_dataset

    console = Console()
    for name in fetch or []:
        console.print(f"{name}: {fetch_dataset(name)}", soft_wrap=True)
    if fetch:
        return
    table = Table(box=None, pad_edge=False)
    for head in ("name", "N", "d", "licence", "source", "loaded from", "description"):
        table.add_column(head, overflow="fold", no_wrap=head in ("name", "N", "d"))
    for entry in CATALOGUE.values():
        table.add_row(
            entry.name, str(entry.n), str(entry.d), entry.licence, entry.home, where(entry.name),
            entry.about,
        )  # fmt: skip
    console.print(table)
    place = folder()
    if place is None:
        console.print("DROLEARN_DATA is not set.")
        return
    known = {entry.file for entry in CATALOGUE.values()}
    others = sorted(path.name for path in place.glob("*.npz") if path.name not in known)
    console.print(f"Other files in DROLEARN_DATA: {', '.join(others) or 'none'}.")
