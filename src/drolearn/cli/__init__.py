"""The command line: `drolearn reproduce` and `drolearn datasets`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable
except ModuleNotFoundError as error:  # pragma: no cover - tried in a process of its own
    sys.exit(f"The command line needs {error.name}: pip install 'drolearn[paper]'.")

from drolearn import datasets as sets
from drolearn._storage import alone, replacing

if TYPE_CHECKING:
    from drolearn.paper.protocol import Protocol, Run
    from drolearn.paper.runner import Failure, Store
    from drolearn.paper.tables import Rows

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    help="Distributionally robust learning: the paper's experiments and their data.",
)  # fmt: skip


def main() -> None:
    """Run the command line; every error that has a remedy is one sentence."""
    try:
        app()
    except (sets.DataError, ValueError, BlockingIOError, ChildProcessError) as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        sys.exit(f"This command needs {error.name}: pip install 'drolearn[paper]'.")
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        sys.exit(
            f"The files of this command cannot be written or read ({error.strerror}{place}): make "
            f"room, or choose another folder with --out or DROLEARN_CACHE; finished runs are kept."
        )


@app.command()
def datasets(
    fetch: Annotated[
        list[str] | None, typer.Option(help="Bring this data set into the cache; repeatable.")
    ] = None,
) -> None:
    """List the data sets: size, licence, and where each would come from now."""
    console = Console()
    for name in fetch or []:
        console.print(f"{name}: {sets.fetch(name)}", soft_wrap=True)
    if fetch:
        return
    table = RichTable(box=None, pad_edge=False)
    for head in ("name", "N", "d", "licence", "home", "comes from", "what it is"):
        table.add_column(head, overflow="fold", no_wrap=head in ("name", "N", "d"))
    for entry in sets.CATALOGUE.values():
        table.add_row(
            entry.name, str(entry.n), str(entry.d), entry.licence, entry.home,
            sets.where(entry.name), entry.about,
        )  # fmt: skip
    console.print(table)
    there = sets.folder()
    if there is None:
        console.print("DROLEARN_DATA names no folder of data sets.")
        return
    known = {entry.file for entry in sets.CATALOGUE.values()}
    others = sorted(path.name for path in there.glob("*.npz") if path.name not in known)
    console.print(f"Other files of DROLEARN_DATA: {', '.join(others) or 'none'}.")


@app.command()
def reproduce(
    what: Annotated[
        list[str], typer.Argument(help="figure1 … figure4, table1, table2, scaling, choices, all")
    ],
    quick: Annotated[bool, typer.Option(help="Few seeds and samples: minutes, not hours.")] = False,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Only this data set; repeatable, or with commas.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Permutations of each data set.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for rows, tables, figures.")] = None,
    protocol: Annotated[Path | None, typer.Option(help="Another TOML file.")] = None,
    page: Annotated[Path | None, typer.Option(help="Page whose claims are made anew.")] = None,
) -> None:
    """Make tables and figures of the paper.  Stopped at any moment, the same command goes on."""
    # What is missing or wrong must be known before the runs, not after.
    import pyarrow  # noqa: F401
    from matplotlib.colors import is_color_like

    from drolearn.paper import claims
    from drolearn.paper.protocol import read_protocol
    from drolearn.paper.runner import Store, available

    console = Console()
    plan = read_protocol(protocol)
    for name, method in plan.methods.items():
        if not is_color_like(method.colour):
            raise typer.BadParameter(f"{method.colour!r} is no colour (methods.{name}.colour).")
    names = list(plan.artefacts) if "all" in what else list(dict.fromkeys(what))
    for name in names:
        if name not in plan.artefacts:
            raise typer.BadParameter(f"{name!r} is none of {', '.join([*plan.artefacts, 'all'])}.")
    only = [name for given in datasets or [] for name in given.split(",") if name]
    for name in only:
        if name not in plan.datasets:
            raise typer.BadParameter(f"{name!r} is no data set of {', '.join(plan.datasets)}.")
    if page is not None:
        claims.with_claims(page.read_text("utf-8"), "")
    plan = plan.hurried(only) if quick else plan
    # Data sets and seeds narrow what is run; tables and claims show all rows there are.
    todo = plan.narrowed(only, seeds)
    runs = {run.key: run for name in names for run in todo.runs(name)}
    if not runs:
        raise typer.BadParameter(f"{', '.join(names)} has no runs with {', '.join(only)}.")
    folder = out or Path("results") / ("quick" if quick else "paper")
    store = Store(folder)
    with alone(folder):
        with console.status("Looking for the data sets"):
            reasons = available(run.dataset for run in runs.values())
        for reason in reasons.values():
            console.print(f"[yellow]Left out:[/] {escape(reason)}", soft_wrap=True)
        left = [run for run in runs.values() if run.dataset not in reasons]
        failures = _watch(console, left, store, jobs or os.cpu_count() or 1)
        reasons |= {each.dataset: each.reason for each in failures if each.of_data}
        store.gather()
        rows = store.rows()
        for name in names:
            for path in write(plan, name, rows, reasons, store.folder):
                console.print(f"wrote {path}", soft_wrap=True)
        text = claims.claims(plan, rows)
        _save(store.folder / "claims.md", claims.beside_the_rows(text))
        if page is not None:
            _save(page, claims.with_claims(page.read_text("utf-8"), text))
    if failures:
        sys.exit(
            f"{len(failures)} runs failed, the first of them {failures[0].key!r} "
            f"({failures[0].reason}); the others are kept, and the same command tries these again."
        )


def _save(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def _watch(console: Console, runs: list[Run], store: Store, jobs: int) -> list[Failure]:
    """Make all runs that are not done, with a bar that says how long it will take."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from drolearn.paper.runner import perform_all

    done = store.keys()
    left = [run for run in runs if run.key not in done]
    console.print(
        f"{len(runs)} runs, {len(runs) - len(left)} of them done before; rows in {store.folder}",
        soft_wrap=True,
    )
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with Progress(*columns, console=console, speed_estimate_period=600.0) as progress:
        task = progress.add_task("runs", total=len(left))

        def tell(outcome: Run | Failure) -> None:
            progress.update(task, advance=1, description=outcome.key.rsplit(" ", 1)[0])
            if not console.is_terminal and progress.tasks[0].completed % 10 == 0:
                console.print(progress.get_renderable())  # a log shows no bar that moves

        try:
            return perform_all(left, store, jobs, tell)
        except KeyboardInterrupt:
            progress.stop()
            kept = len(set(store.keys()) & {run.key for run in runs})
            console.print(
                f"Stopped: {kept} of {len(runs)} runs are kept in {store.folder}; the same command "
                f"goes on.",
                soft_wrap=True,
            )
            raise typer.Exit(130) from None


def write(
    plan: Protocol, name: str, rows: Rows, reasons: dict[str, str], folder: Path
) -> list[Path]:
    """The files of one artefact, made from rows."""
    from drolearn.paper import figures, tables

    artefact = plan.artefacts[name]
    written: list[Path] = []
    if artefact.kind in ("table", "choices"):
        make = tables.results if artefact.kind == "table" else tables.choices
        own = {d: why for d, why in reasons.items() if d in artefact.datasets}
        made = make(plan, name, rows, own)
        contents = {
            "md": "\n".join(table.markdown() for table in made),
            "tex": "\n".join(table.latex() for table in made),
            "csv": _joined([table.csv() for table in made]),
        }
        for ending, text in contents.items():
            written.append(folder / f"{name}.{ending}")
            _save(written[-1], text)
        return written
    for dataset in artefact.datasets:
        title = f"{name}_{dataset}" if plan.datasets[dataset].stands_for else name
        if artefact.kind == "scaling":
            figure = figures.growth(plan, name, rows)
        else:
            figure = figures.curves(plan, name, dataset, rows)
        written += figures.save(figure, folder, title) if figure is not None else []
    return written


def _joined(parts: list[str]) -> str:
    """Tables of the same columns, one header."""
    return parts[0] + "".join(part.split("\n", 1)[1] for part in parts[1:])
