"""The command `drolearn fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drolearn.cli.options import Data, Divergence, Drop, Groups, Json, Target, Task, Weights

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
    weights: Weights = None,
    divergence: Divergence = "chi2",
    tau: Annotated[
        float | None,
        typer.Option(min=0.0, help="Price of a soft ball, instead of --rho; smaller: more robust."),
    ] = None,
    trim: Annotated[
        float,
        typer.Option(min=0.0, help="Share of the rows, those of the largest losses, to ignore."),
    ] = 0.0,
    loss: Annotated[
        str | None, typer.Option(help="logistic, squared-hinge, smoothed-hinge; squared, huber.")
    ] = None,
    l2: Annotated[
        float | None, typer.Option(min=0.0, help="Penalty; the default is one over the rows.")
    ] = None,
    l1: Annotated[
        float, typer.Option(min=0.0, help="Penalty that makes coefficients exactly 0.")
    ] = 0.0,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose radius and penalty l2 by cross-validation.")
    ] = False,
    regret: Annotated[
        bool, typer.Option("--regret", help="Minimise the robust regret beside boosted trees.")
    ] = False,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Give all classes the same total weight.")
    ] = False,
    solver: Annotated[
        str, typer.Option(help="auto, exact, lbfgs, newton, gssg, gssg-anchor, pssg, fsg, sgd.")
    ] = "auto",
    max_iter: Annotated[float, typer.Option(help="Most passes over the data.")] = 200.0,
    tol: Annotated[float, typer.Option(help="Relative accuracy of the objective.")] = 1e-6,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the folds and of solvers that draw rows.")
    ] = 0,
    jobs: Annotated[
        int | None, typer.Option(help="Threads, or processes of --tune; -1 for all processors.")
    ] = None,
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
      drolearn fit people.csv --target income --divergence kl --tau 0.5 --l1 0.01 --out model.skops
      cat people.csv | drolearn fit - --target income --tune --out model.skops --json
    """
    from drolearn._files.models import save
    from drolearn.cli.models import as_divergence
    from drolearn.cli.report import busy, pairs, show
    from drolearn.cli.running import InputError, check_out, warnings_shown
    from drolearn.cli.tables import read, split, task_of

    check_out(out, [".skops"])
    settings: dict[str, Any] = {
        "rho": rho, "divergence": as_divergence(divergence), "tau": tau, "trim": trim, "l1": l1,
        "l2": "auto" if l2 is None else l2, "solver": solver, "max_iter": max_iter, "tol": tol,
        "random_state": seed, "n_jobs": jobs, "reference": "auto" if regret else None,
    }  # fmt: skip
    if loss is not None:
        settings["loss"] = loss
    if tune:
        _leave_to_tuning(settings)
    elif tau is not None and rho is not None:
        raise InputError("--tau, the price of a soft ball, replaces --rho: give one of them.")
    with busy("Reading the data"):
        rows = split(read(data), target, groups, drop, weights)
    chosen = task_of(rows.y, task)
    if chosen == "classification":
        settings["class_weight"] = "balanced" if balanced else None
    elif balanced:
        raise InputError("--balanced is for classes, but the task is regression: leave it out.")
    estimator = _estimator(chosen, tune, settings)
    with warnings_shown() as messages, busy("Fitting"):
        pipeline = _fitted(estimator, rows, checkpoint)
    save(pipeline, out)
    model = pipeline[-1]
    content = {
        "model": str(out), "task": chosen, "target": target, "rows": len(rows.y),
        "columns": rows.X.shape[1], "features": model.n_features_in_,
        "classes": getattr(model, "classes_", None), "groups": model.groups_,
        "divergence": repr(model.divergence_), "rho": model.rho_, "tau": model.tau_,
        "trim": model.trim or None, "l2": model.l2_, "l1": model.l1_ or None,
        "robust_loss": model.robust_loss_, "robust_regret": model.robust_regret_,
        "converged": model.converged_, "status": model.status_, "warnings": messages,
    }  # fmt: skip
    hidden = ("warnings",)
    shown = [
        (name, value) for name, value in content.items() if name not in hidden and value is not None
    ]
    show(content, as_json, lambda console: console.print(pairs(shown)))


def _leave_to_tuning(settings: dict[str, Any]) -> None:
    """Refuse what cross-validation chooses or does not have, and remove it."""
    from drolearn.cli.running import InputError

    usual = {"rho": None, "l2": "auto", "l1": 0.0, "tau": None, "trim": 0.0}
    for name, value in usual.items():
        if settings.pop(name) != value:
            raise InputError(
                f"--tune chooses the radius of a ball and the penalty l2: leave --{name} out."
            )
    if settings["divergence"].family == "spectral":
        raise InputError(
            f"--tune needs a divergence with a radius, or cvar. Got {settings['divergence']!r} "
            f"instead: leave --tune out."
        )


def _estimator(task: str, tune: bool, settings: dict[str, Any]) -> Any:
    """The estimator with its settings."""
    from drolearn import RobustClassifier, RobustClassifierCV, RobustRegressor, RobustRegressorCV

    if task == "classification":
        return RobustClassifierCV(**settings) if tune else RobustClassifier(**settings)
    return RobustRegressorCV(**settings) if tune else RobustRegressor(**settings)


def _fitted(estimator: Any, rows: Rows, checkpoint: Path | None) -> Any:
    """The fitted pipeline; the folder of checkpoints is not a part of the model."""
    from dataclasses import replace

    from drolearn import Exact
    from drolearn._solvers.choice import as_solver
    from drolearn.cli.models import prepared

    solver = estimator.solver
    if checkpoint is not None:
        chosen = as_solver(solver) or Exact()
        estimator.set_params(solver=replace(chosen, checkpoint=checkpoint))
    pipeline = prepared(estimator, rows.X)
    name = pipeline.steps[-1][0]
    arguments = {"groups": rows.groups, "sample_weight": rows.weights}
    given = {f"{name}__{key}": each for key, each in arguments.items() if each is not None}
    pipeline.fit(rows.X, rows.y, **given)
    pipeline[-1].set_params(solver=solver)
    return pipeline
