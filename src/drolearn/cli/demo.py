"""The command `drolearn demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drolearn.cli.options import Json

__all__ = ["demo"]

_ROWS = 4000


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Picture: .png, .svg or .pdf; the default is none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare baselines and robust models on data that comes with the package.

    The data is a sample of Adult (UCI, CC BY 4.0): who earns more than 50,000 dollars, with groups
    by sex and race. It is not downloaded.

    \b
    Examples:
      drolearn demo
      drolearn demo --out demo.png
    """
    import numpy as np
    import pandas as pd

    from drolearn.cli.compare import show_comparison
    from drolearn.cli.tables import Rows
    from drolearn.datasets import load_adult

    adult = load_adult()
    rows = np.sort(np.random.default_rng(0).choice(adult.y.size, _ROWS, replace=False))
    X = pd.DataFrame(adult.X[rows], columns=adult.feature_names.tolist())
    groups = pd.DataFrame({"sex": adult.sex[rows], "race": adult.race[rows]})
    y = np.where(adult.y[rows] > 0, "above 50,000", "below")
    show_comparison(Rows(X, y, groups), "classification", "chi2", 0.1, 1, 0, out, as_json)
