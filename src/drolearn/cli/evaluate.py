"""The command `drolearn evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from drolearn.cli.options import (
    Data,
    Divergence,
    Groups,
    Json,
    Loss,
    Model,
    Target,
    Trust,
    Weights,
)  # fmt: skip

__all__ = ["ModelTest", "evaluate"]


def evaluate(
    model: Model,
    data: Data,
    target: Target = "y",
    groups: Groups = None,
    weights: Weights = None,
    divergence: Divergence = "chi2",
    rho: Annotated[
        list[float] | None,
        typer.Option(min=0.0, help="Radius; can be repeated. The default is 0, 0.1, 1 and 9."),
    ] = None,
    loss: Loss = "auto",
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Compute the loss of a model on a table, its worst cases, and the losses of groups.

    Use rows that the model was not fitted to. The squared loss is half the squared error.

    \b
    Examples:
      drolearn evaluate model.skops test.csv --target income
      drolearn evaluate model.skops test.csv --target income --groups sex,race --rho 0 --rho 1
      drolearn evaluate model.skops test.csv --target income --loss brier --divergence extremile:3
    """
    from drolearn.cli.models import as_divergence
    from drolearn.cli.report import show, table
    from drolearn.cli.running import InputError

    chosen = as_divergence(divergence)
    if rho and not chosen.has_radius:
        raise InputError(f"{chosen!r} has no radius: leave --rho out, or choose chi2.")
    if loss == "all" or "," in loss:
        raise InputError(f"--loss must be one loss. Got {loss!r} instead: use drolearn stress.")
    test = ModelTest(model, data, target, groups, weights, trust)
    is_one_risk = ":" in divergence and not chosen.has_radius  # else a curve of all levels of CVaR
    if is_one_risk:
        report = test.report(loss=loss, divergence="chi2", rhos=[0.0])
        curve = report.curve.assign(divergence=chosen.name)
        curve.loc[1, ["divergence", "loss"]] = chosen.name, test.worst_case(loss, chosen)
    else:
        radii = rho if rho else [0.0, 0.1, 1.0, 9.0] if chosen.has_radius else None
        report = test.report(loss=loss, divergence=chosen, rhos=radii)
        curve = report.curve
    curve = curve.drop(columns="model")
    content: dict[str, Any] = {"loss": report.losses[0], "divergence": chosen.name}
    content |= {"rows": report.rows, "level": report.level, "curve": curve.to_dict("records")}
    if groups is not None:
        content["groups"] = report.groups.drop(columns="model").to_dict("records")

    def text(console: Any) -> None:
        heads = ["rho", "share", "loss", "low", "high", "error"]
        balls = f"the mean and {chosen!r}" if is_one_risk else f"{chosen.name} balls"
        console.print(f"{report.rows:,} rows, loss {report.losses[0]!r}, {balls}")
        console.print(table(heads, curve[heads].itertuples(index=False)))
        if groups is not None:
            heads = ["column", "group", "rows", "loss", "low", "high", "error"]
            console.print("\n", table(heads, report.groups[heads].itertuples(index=False)), sep="")

    show(content, as_json, text)


class ModelTest:
    """A model in a file, and a table in a file to test it on."""

    def __init__(
        self, model: Path, data: str, target: str, groups: str | None, weights: str | None,
        trust: bool,
    ) -> None:  # fmt: skip
        from drolearn.cli.models import load_model, rows_for
        from drolearn.cli.report import busy
        from drolearn.cli.tables import read, split

        self._model = load_model(model, trust)
        with busy("Reading the data"):
            self.table = read(data)
        self._rows = split(self.table, target, groups, None, weights)
        self._X = rows_for(self._model, self.table)

    def report(self, **options: Any) -> Any:
        """The stress test with these options."""
        from drolearn.cli.report import busy
        from drolearn.cli.running import warnings_shown
        from drolearn.stress.analysis import stress_test

        rows = self._rows
        options |= {"groups": rows.groups, "sample_weight": rows.weights, "random_state": 0}
        with warnings_shown(), busy("Computing worst cases"):
            return stress_test({"model": self._model}, self._X, rows.y, **options)

    def worst_case(self, loss: str, divergence: Any) -> float:
        """The worst case of the losses of all rows for a divergence without a curve."""
        from drolearn import worst_case
        from drolearn.stress.scores import score

        rows, models = self._rows, {"model": self._model}
        [scored] = score(models, self._X, rows.y, None, loss, rows.weights, None)
        found = worst_case(scored.losses, None, divergence, sample_weight=rows.weights)
        return found.value
