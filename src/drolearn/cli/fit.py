"""The command `drolearn fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drolearn.cli.options import Data, Divergence, Drop, Groups, Json, Target, Task

if TYPE_CHECKING:
    from drolearn.cli.tables import Rows

__all__ = ["fit"]


def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="File of the fitted pipeline; ends in .skops.")],
    target: Target = "y",
    rho: Annotated[
        float | None,
        typer.Option(min=0.0, help="Radius of the ball; the default is that of RobustClassifier."),
    ] = None,
    groups: Groups = None,
    divergence: Divergence = "chi2",
    loss: Annotated[
        str | None, typer.Option(help="logistic, squared-hinge, smoothed-hinge; squared, huber.")
    ] = None,
    l2: Annotated[
        float | None, typer.Option(min=0.0, help="Penalty; the default is one over the rows.")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose radius and penalty by cross-validation.")
    ] = False,
    regret: Annotated[
        bool, typer.Option("--regret", help="Minimise the robust regret beside boosted trees.")
    ] = False,
    task: Task = "auto",
    drop: Drop = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder in which a stopped fit continues.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a robust linear model to a table, and save the pipeline.

    Dates, categories, texts and missing values are prepared by skrub's tabular_pipeline. Columns of
    --groups are features too, unless --drop names them; missing values are a group of their own.

    \b
    Examples:
      drolearn fit people.csv --target income --rho 0.1 --out model.skops
      drolearn fit people.parquet --target income --groups sex,race --rho 1 --out model.skops
      drolearn fit rides.csv --target count --divergence cvar:0.2 --out model.skops
      cat people.csv | drolearn fit - --target income --tune --out model.skops --json
    """
    from drolearn._files.models import save
    from drolearn.cli.report import busy, pairs, show
    from drolearn.cli.running import check_out, warnings_shown
    from drolearn.cli.tables import read, split, task_of

    check_out(out, [".skops"])
    with busy("Reading the data"):
        rows = split(read(data), target, groups, drop)
    chosen = task_of(rows.y, task)
    settings: dict[str, Any] = {} if loss is None else {"loss": loss}
    if regret:
        settings["reference"] = "auto"
    estimator = _estimator(chosen, tune, divergence, rho, l2, settings)
    with warnings_shown() as messages, busy("Fitting"):
        pipeline = _fitted(estimator, rows, checkpoint)
    save(pipeline, out)
    model = pipeline[-1]
    content = {
        "model": str(out), "task": chosen, "target": target, "rows": len(rows.y),
        "columns": rows.X.shape[1], "features": model.n_features_in_,
        "classes": getattr(model, "classes_", None), "groups": model.groups_,
        "divergence": repr(model.divergence_), "rho": model.rho_, "l2": model.l2_,
        "robust_loss": model.robust_loss_, "robust_regret": model.robust_regret_,
        "converged": model.converged_, "status": model.status_, "warnings": messages,
    }  # fmt: skip
    hidden = ("warnings",)
    shown = [
        (name, value) for name, value in content.items() if name not in hidden and value is not None
    ]
    show(content, as_json, lambda console: console.print(pairs(shown)))


def _estimator(
    task: str, tune: bool, divergence: str, rho: float | None, l2: float | None, settings: Any
) -> Any:
    """The estimator with its settings."""
    from drolearn import RobustClassifier, RobustClassifierCV, RobustRegressor, RobustRegressorCV
    from drolearn.cli.models import as_divergence
    from drolearn.cli.running import InputError

    settings = {"divergence": as_divergence(divergence), **settings}
    if tune:
        if rho is not None or l2 is not None:
            raise InputError("--tune chooses radius and penalty: leave --rho and --l2 out.")
        cls: Any = RobustClassifierCV if task == "classification" else RobustRegressorCV
        return cls(**settings)
    cls = RobustClassifier if task == "classification" else RobustRegressor
    return cls(rho, l2="auto" if l2 is None else l2, **settings)


def _fitted(estimator: Any, rows: Rows, checkpoint: Path | None) -> Any:
    """The fitted pipeline; the folder of checkpoints is not a part of the model."""
    from drolearn import Exact
    from drolearn.cli.models import prepared

    solver = estimator.solver
    if checkpoint is not None:
        estimator.set_params(solver=Exact(checkpoint=checkpoint))
    pipeline = prepared(estimator, rows.X)
    name = pipeline.steps[-1][0]
    arguments = {} if rows.groups is None else {f"{name}__groups": rows.groups}
    pipeline.fit(rows.X, rows.y, **arguments)
    pipeline[-1].set_params(solver=solver)
    return pipeline
