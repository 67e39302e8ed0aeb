"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Data", "Divergence", "Drop", "Groups", "Json", "Loss", "Model", "Target", "Task", "Trust",
    "Weights",
]  # fmt: skip

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Table: .csv, .parquet, .feather or .arrow, .svm or .libsvm, .npz; - reads CSV from "
        "standard input.",
    ),
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model file: .skops or .drl; pickles only with --trust."),
]
Target = Annotated[str, typer.Option(help="Column to predict; in .svm and .npz files it is y.")]
Groups = Annotated[
    str | None, typer.Option(help="Columns that name the group of each row, with commas.")
]
Divergence = Annotated[
    str,
    typer.Option(
        help="chi2, kl, reverse-kl, hellinger, jensen-shannon, triangular, total-variation; with a "
        "number cressie-read:1.5, cvar:0.1, extremile:3, exponential:2; or spectral:1,2,5."
    ),
]
Weights = Annotated[
    str | None, typer.Option(help="Column with the weight of each row; it is not a feature.")
]
Loss = Annotated[
    str,
    typer.Option(
        help="log, zero-one, brier, squared, absolute; the default is log, zero-one for models "
        "without probabilities, or squared for regression."
    ),
]
Drop = Annotated[str | None, typer.Option(help="Columns that the model must not use, with commas.")]
Task = Annotated[
    str,
    typer.Option(
        help="classification, regression, or auto: regression if the target has fractions or more "
        "than 20 different numbers."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Open a pickle (.pkl, .joblib), which runs whatever code is in it: only if you know "
        "who made it.",
    ),
]
