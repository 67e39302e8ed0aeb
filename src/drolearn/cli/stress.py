"""The command `drolearn stress`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from drolearn.cli.options import Data, Groups, Json, Model, Target, Trust, Weights

__all__ = ["stress"]


def stress(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="File of the report: .json or .html.")],
    target: Target = "y",
    groups: Groups = None,
    over: Annotated[
        str | None,
        typer.Option(help="Columns that describe bad sub-populations, with commas; or all."),
    ] = None,
    weights: Weights = None,
    divergence: Annotated[
        str, typer.Option(help="As for drolearn evaluate; several with commas, or all.")
    ] = "chi2",
    rho: Annotated[
        list[float] | None,
        typer.Option(min=0.0, help="Radius; can be repeated. The default is 200 radii."),
    ] = None,
    loss: Annotated[
        str,
        typer.Option(help="log, zero-one, brier, squared, absolute; several with commas, or all."),
    ] = "auto",
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    worst_rows: Annotated[
        int, typer.Option(min=0, help="Rows with the largest losses to list: think of privacy.")
    ] = 0,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Write a report on how the loss of a model grows with a shift of the data.

    Use rows that the model was not fitted to.

    \b
    Examples:
      drolearn stress model.skops test.csv --target income --groups sex,race --out report.json
      drolearn stress model.skops test.parquet --target income --over all --out report.html
      drolearn stress model.skops test.csv --target income --divergence all --out report.json
    """
    from drolearn.cli.evaluate import ModelTest
    from drolearn.cli.report import show
    from drolearn.cli.running import check_out
    from drolearn.cli.tables import names_of

    check_out(out, [".json", ".html"])
    balls = _divergences(divergence, rho)
    test = ModelTest(model, data, target, groups, weights, trust)
    features: Any = over
    if over not in (None, "all"):
        features = {name: test.table.column(name, "--over") for name in names_of(over)}
    report = test.report(
        divergence=balls, rhos=rho or None, over=features, level=level, worst_rows=worst_rows,
        loss=names_of(loss) if "," in loss else loss,
    )  # fmt: skip
    _write(report, out)
    content: dict[str, Any] = {"out": str(out), "losses": report.losses, "rows": report.rows}
    content |= {"break_even": report.break_even.to_dict("records")}
    show(content, as_json, lambda _: print(f"{report!r}\nWrote {out}."))


def _divergences(text: str, rho: list[float] | None) -> list[Any]:
    """The divergences in a list with commas."""
    from drolearn.cli.models import as_divergence
    from drolearn.cli.running import InputError
    from drolearn.cli.tables import names_of
    from drolearn.divergence import NAMES

    names = NAMES if text == "all" else names_of(text)
    found = [as_divergence(name) for name in names]
    for each in found:
        if each.family == "spectral":
            raise InputError(
                f"A report needs balls of many radii or levels. Got {each!r} instead: use drolearn "
                f"evaluate, or another --divergence."
            )
        if rho and not each.has_radius:
            raise InputError(f"{each!r} has no radius: leave --rho out, or choose chi2.")
    return found


def _write(report: Any, out: Path) -> None:
    """Write the report completely, or not at all."""
    from drolearn._storage import replacing

    text = report.to_json() + "\n" if out.suffix == ".json" else report.to_html()
    with replacing(out) as file:
        file.write(text.encode())
