"""The command `drolearn reproduce`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drolearn.cli.options import Json
from drolearn.cli.report import show

if TYPE_CHECKING:
    from rich.console import Console

    from drolearn.paper.protocol import Protocol, Run
    from drolearn.paper.runner import Failure, Store

__all__ = ["reproduce"]

#: Packages that are imported late; a missing one must be reported before the runs start.
_LATE_IMPORTS = ("jinja2", "loky", "matplotlib", "pandas", "pyarrow", "tabulate")


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="figure1 … figure4, table1, table2, library, scaling, large, choices, or all."
        ),
    ],
    quick: Annotated[
        bool, typer.Option(help="Few seeds and samples: minutes instead of hours.")
    ] = False,
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Run only this data set; can be repeated or list names with commas."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of permutations of each data set.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel runs; default: all processors.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for rows, tables and figures; default: results/paper, or results/quick."
        ),
    ] = None,
    protocol: Annotated[
        Path | None, typer.Option(help="TOML file with the experiments; default: the paper's.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Markdown page in which to rewrite the claims.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Reproduce tables and figures of the paper. If stopped, the same command continues.

    \b
    Examples:
      drolearn reproduce table1 --quick
      drolearn reproduce all --out results/paper
    """
    from rich.console import Console

    plan, names, only = _checked(what, datasets, protocol, page)
    plan = plan.hurried(only) if quick else plan
    # --datasets and --seeds restrict what is run; tables and claims use all rows in the folder.
    runs = list(
        {r.key: r for name in names for r in plan.narrowed(only, seeds).runs(name)}.values()
    )
    if not runs:
        on = f" on {', '.join(only)}" if only else ""
        raise typer.BadParameter(
            f"{', '.join(names)} has no runs{on}: choose other artefacts or data sets."
        )
    folder = out or Path("results") / ("quick" if quick else "paper")
    console = Console(stderr=as_json)  # standard output is for JSON only
    done = _reproduce(plan, names, runs, folder, jobs or os.cpu_count() or 1, page, console)
    failures = done.failures
    if as_json:
        show(
            {
                "folder": str(folder), "runs": len(runs), "files": list(map(str, done.files)),
                "left_out": done.reasons, "failed": {each.key: each.reason for each in failures},
            },
            True,
            lambda _: None,
        )  # fmt: skip
    if failures:
        sys.exit(
            f"{len(failures)} of {len(runs)} runs failed, the first is {failures[0].key!r} "
            f"({failures[0].reason}): run the same command to repeat them; finished runs are kept."
        )


def _checked(
    what: list[str], datasets: list[str] | None, protocol: Path | None, page: Path | None
) -> tuple[Protocol, list[str], list[str]]:
    """The protocol, artefacts and data sets; all that can be wrong is reported before the runs."""
    missing = [name for name in _LATE_IMPORTS if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(name=missing[0])
    from matplotlib.colors import is_color_like

    from drolearn.paper.claims import with_claims
    from drolearn.paper.protocol import read_protocol

    plan = read_protocol(protocol)
    for name, method in plan.methods.items():
        if not is_color_like(method.colour):
            raise typer.BadParameter(
                f"methods.{name}.colour is {method.colour!r}, which matplotlib does not know: use "
                f"a name such as 'black' or a code such as '#1f77b4'."
            )
    names = list(plan.artefacts) if "all" in what else list(dict.fromkeys(what))
    only = [name for given in datasets or [] for name in given.split(",") if name]
    for given, known in ((names, [*plan.artefacts, "all"]), (only, list(plan.datasets))):
        for name in given:
            if name not in known:
                raise typer.BadParameter(f"{name!r} is unknown: choose from {', '.join(known)}.")
    if page is not None:
        with_claims(page.read_text("utf-8"), "")
    return plan, names, only


@dataclass(frozen=True)
class _Done:
    """Files that were written, data sets that were left out, and runs that failed."""

    files: list[Path]
    reasons: dict[str, str]
    failures: list[Failure]


def _reproduce(
    plan: Protocol, names: list[str], runs: list[Run], folder: Path, jobs: int, page: Path | None,
    console: Console,
) -> _Done:  # fmt: skip
    """Make the runs, and write tables, figures and claims."""
    from rich.markup import escape

    from drolearn._storage import locked
    from drolearn.paper import claims
    from drolearn.paper.output import write_artefact, write_text
    from drolearn.paper.runner import Store, available

    store = Store(folder)
    written: list[Path] = []
    with locked(folder):
        with console.status("Looking for the data sets"):
            reasons = available(run.dataset for run in runs)
        for reason in reasons.values():
            console.print(f"[yellow]Left out:[/] {escape(reason)}", soft_wrap=True)
        possible = [run for run in runs if run.dataset not in reasons]
        failures = _run_with_progress(console, possible, store, jobs)
        reasons |= {each.dataset: each.reason for each in failures if each.of_data}
        store.gather()
        rows = store.rows()
        for name in names:
            for path in write_artefact(plan, name, rows, reasons, folder):
                console.print(f"wrote {path}", soft_wrap=True)
                written.append(path)
        text = claims.claims(plan, rows)
        write_text(folder / "claims.md", claims.beside_the_rows(text))
        if page is not None:
            write_text(page, claims.with_claims(page.read_text("utf-8"), text))
    return _Done([*written, folder / "claims.md"], reasons, failures)


def _run_with_progress(console: Console, runs: list[Run], store: Store, jobs: int) -> list[Failure]:
    """Make all runs that are not done, with a progress bar."""
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
    todo = [run for run in runs if run.key not in done]
    console.print(
        f"{len(runs)} runs, {len(runs) - len(todo)} of them done before; rows in {store.folder}",
        soft_wrap=True,
    )
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with Progress(*columns, console=console, speed_estimate_period=600.0) as progress:
        task = progress.add_task("runs", total=len(todo))

        def report(outcome: Run | Failure) -> None:
            progress.update(task, advance=1, description=outcome.key.rsplit(" ", 1)[0])
            if not console.is_terminal and progress.tasks[0].completed % 10 == 0:
                console.print(progress.get_renderable())  # a log file shows no moving bar

        try:
            return perform_all(todo, store, jobs, report)
        except KeyboardInterrupt:
            progress.stop()
            kept = len(store.keys() & {run.key for run in runs})
            console.print(
                f"Stopped: {kept} of {len(runs)} runs are kept in {store.folder}; run the same "
                f"command to continue.",
                soft_wrap=True,
            )
            raise typer.Exit(130) from None
