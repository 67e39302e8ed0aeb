"""The command `drolearn predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from drolearn.cli.options import Data, Json, Model, Trust

__all__ = ["predict"]


def predict(
    model: Model,
    data: Data,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add the probabilities of the classes.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="File: .csv or .parquet; the default prints CSV.")
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Predict the target of each row of a table.

    The table must have the columns of the training data; others are ignored.

    \b
    Examples:
      drolearn predict model.skops new.csv
      drolearn predict model.skops new.csv --proba --out predictions.parquet
      cat new.csv | drolearn predict model.skops - --json
    """
    import pandas as pd

    from drolearn.cli.models import load_model, rows_for
    from drolearn.cli.report import show
    from drolearn.cli.running import InputError, check_out, warnings_shown
    from drolearn.cli.tables import read

    if out is not None:
        check_out(out, [".csv", ".parquet"])
    fitted = load_model(model, trust)
    with warnings_shown():
        rows = rows_for(fitted, read(data))
        found: dict[str, Any] = {"prediction": fitted.predict(rows)}
        if proba:
            if not hasattr(fitted, "predict_proba"):
                raise InputError("The model has no probabilities: leave --proba out.")
            columns = fitted.predict_proba(rows).T
            found |= {f"p({k})": each for k, each in zip(fitted.classes_, columns, strict=True)}
    frame = pd.DataFrame(found)
    if out is None:
        content = {name: frame[name].to_numpy() for name in frame.columns}
        text = frame.to_csv(index=False).rstrip("\n")
        show(content, as_json, lambda _: print(text))
        return
    _write(frame, out)
    content = {"out": str(out), "rows": len(frame)}
    show(content, as_json, lambda console: console.print(f"Wrote {len(frame)} rows to {out}."))


def _write(frame: Any, out: Path) -> None:
    """Write a frame completely, or not at all."""
    from drolearn._storage import replacing

    with replacing(out) as file:
        if out.suffix == ".csv":
            file.write(frame.to_csv(index=False).encode())
        else:
            frame.to_parquet(file, index=False)
