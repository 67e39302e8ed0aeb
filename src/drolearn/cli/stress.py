"""The command `drolearn stress`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from drolearn.cli.options import Data, Divergence, Groups, Json, Model, Target, Trust

__all__ = ["stress"]


def stress(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="File of the report: .json or .html.")],
    target: Target = "y",
    groups: Groups = None,
    divergence: Divergence = "chi2",
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Write a report on how the loss of a model grows with a shift of the data.

    Use rows that the model was not fitted to.

    \b
    Examples:
      drolearn stress model.skops test.csv --target income --groups sex,race --out report.json
      drolearn stress model.skops test.parquet --target income --out report.html
    """
    from drolearn.cli.evaluate import stress_report
    from drolearn.cli.models import as_divergence
    from drolearn.cli.report import show
    from drolearn.cli.running import check_out

    check_out(out, [".json", ".html"])
    report = stress_report(model, data, target, groups, as_divergence(divergence), None, trust)
    _write(report, out)
    content: dict[str, Any] = {"out": str(out), "loss": report.losses[0], "rows": report.rows}
    content |= {"break_even": report.break_even.to_dict("records")}
    show(content, as_json, lambda _: print(f"{report!r}\nWrote {out}."))


def _write(report: Any, out: Path) -> None:
    """Write the report completely, or not at all."""
    from drolearn._storage import replacing

    text = report.to_json() + "\n" if out.suffix == ".json" else report.to_html()
    with replacing(out) as file:
        file.write(text.encode())
