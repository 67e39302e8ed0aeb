"""The command `drolearn evaluate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from drolearn.cli.options import Data, Divergence, Groups, Json, Model, Target, Trust

__all__ = ["evaluate", "stress_report"]


def evaluate(
    model: Model,
    data: Data,
    target: Target = "y",
    groups: Groups = None,
    divergence: Divergence = "chi2",
    rho: Annotated[
        list[float] | None,
        typer.Option(min=0.0, help="Radius; can be repeated. The default is 0, 0.1, 1 and 9."),
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Compute the loss of a model on a table, its worst cases, and the losses of groups.

    Use rows that the model was not fitted to. The loss is the log loss, the error rate for models
    without probabilities, or half the squared error for regression.

    \b
    Examples:
      drolearn evaluate model.skops test.csv --target income
      drolearn evaluate model.skops test.csv --target income --groups sex,race --rho 0 --rho 1
    """
    from drolearn.cli.models import as_divergence
    from drolearn.cli.report import show, table

    chosen = as_divergence(divergence)
    radii = rho if rho else [0.0, 0.1, 1.0, 9.0] if chosen.has_radius else None
    report = stress_report(model, data, target, groups, chosen, radii, trust)
    curve = report.curve.drop(columns="model")
    content: dict[str, Any] = {"loss": report.losses[0], "divergence": report.divergences[0]}
    content |= {"rows": report.rows, "level": report.level, "curve": curve.to_dict("records")}
    if groups is not None:
        content["groups"] = report.groups.drop(columns="model").to_dict("records")

    def text(console: Any) -> None:
        heads = ["rho", "share", "loss", "low", "high", "error"]
        what = f"loss {report.losses[0]!r}, {report.divergences[0]} balls"
        console.print(f"{report.rows:,} rows, {what}")
        console.print(table(heads, curve[heads].itertuples(index=False)))
        if groups is not None:
            heads = ["column", "group", "rows", "loss", "low", "high", "error"]
            console.print("\n", table(heads, report.groups[heads].itertuples(index=False)), sep="")

    show(content, as_json, text)


def stress_report(
    model: Any,
    data: str,
    target: str,
    groups: str | None,
    divergence: Any,
    rhos: list[float] | None,
    trust: bool,
) -> Any:
    """The stress test of a model in a file on a table in a file."""
    from drolearn.cli.models import load_model, rows_for
    from drolearn.cli.report import busy
    from drolearn.cli.running import warnings_shown
    from drolearn.cli.tables import read, split
    from drolearn.stress.analysis import stress_test

    fitted = load_model(model, trust)
    with warnings_shown(), busy("Computing worst cases"):
        found = read(data)
        rows = split(found, target, groups, None)
        X = rows_for(fitted, found)
        options: dict[str, Any] = {"divergence": divergence, "rhos": rhos, "random_state": 0}
        return stress_test({"model": fitted}, X, rows.y, groups=rows.groups, **options)
