"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Data", "Divergence", "Drop", "Groups", "Json", "Model", "Target", "Task", "Trust"]

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
        help="chi2, kl, reverse-kl, hellinger, jensen-shannon, triangular, total-variation, or "
        "cvar with its level, as cvar:0.1, or extremile:3 or exponential:2."
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
