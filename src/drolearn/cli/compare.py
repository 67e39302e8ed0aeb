"""The command `drolearn compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drolearn.cli.options import Data, Divergence, Drop, Groups, Json, Target, Task

if TYPE_CHECKING:
    from drolearn.cli.tables import Rows

__all__ = ["compare", "show_comparison"]

_PICTURES = (".png", ".svg", ".pdf")
_HEADS = ("model", "loss", "error", "robust loss", "worst group", "loss there")


def compare(
    data: Data,
    target: Target = "y",
    groups: Groups = None,
    divergence: Divergence = "chi2",
    rho: Annotated[float, typer.Option(min=0.0, help="Radius of the balls.")] = 0.1,
    splits: Annotated[int, typer.Option(min=1, help="Random splits, 3/4 for training.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
    task: Task = "auto",
    drop: Drop = None,
    out: Annotated[
        Path | None, typer.Option(help="Picture: .png, .svg or .pdf; the default is none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare plain, tuned, reweighted and robust models on random splits of a table.

    Losses are those of test rows: the log loss, or half the squared error. plain is a linear model
    of scikit-learn, tuned has its penalty chosen by cross-validation, temperature scales the scores
    of plain for the robust loss, reweighted gives all groups the same weight. robust has a ball
    over rows, groups one over groups, and regret a ball over the losses minus those of boosted
    trees.

    \b
    Examples:
      drolearn compare people.csv --target income
      drolearn compare people.csv --target income --groups sex,race --rho 1 --out compare.png
    """
    from drolearn.cli.report import busy
    from drolearn.cli.tables import read, split, task_of

    with busy("Reading the data"):
        rows = split(read(data), target, groups, drop)
    chosen = task_of(rows.y, task)
    show_comparison(rows, chosen, divergence, rho, splits, seed, out, as_json)


def show_comparison(
    rows: Rows, task: str, divergence: str, rho: float, splits: int, seed: int, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Compare models on splits of the rows; print the table, and draw the picture."""
    from drolearn.cli.comparison import compared, draw
    from drolearn.cli.models import as_divergence
    from drolearn.cli.report import busy, show, table
    from drolearn.cli.running import InputError, check_out, warnings_shown

    chosen = as_divergence(divergence)
    if out is not None:
        check_out(out, _PICTURES)
        if chosen.family == "spectral":
            raise InputError(
                f"The picture shows balls of many radii or levels. Got {chosen!r} instead: leave "
                f"--out out, or choose another --divergence."
            )
    with warnings_shown(), busy("Fitting"):
        found = compared(rows, task, chosen, rho, splits, seed)
        if out is not None:
            draw(found, out)
    content: dict[str, Any] = {
        "task": task, "loss": found.loss, "divergence": divergence, "rho": found.rho,
        "splits": splits, "rows": len(rows.y), "test_rows": found.test_rows,
        "models": found.table.to_dict("records"), "picture": None if out is None else str(out),
    }  # fmt: skip

    def text(console: Any) -> None:
        named = "log loss" if found.loss == "log" else "half the squared error"
        console.print(f"{len(rows.y):,} rows, {named} of test rows, mean of {splits} splits")
        heads = list(_HEADS)
        shown: Any = found.table.rename(columns=lambda name: name.replace("_", " "))
        heads = [head for head in heads if shown[head].notna().any()]
        console.print(table(heads, shown[heads].itertuples(index=False)))
        if out is not None:
            console.print(f"Wrote {out}.")

    show(content, as_json, text)
