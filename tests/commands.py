"""Commands on a folder with tables and a model, for the tests of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file

from drolearn import cli

__all__ = ["fit_command", "folder_of_tables", "loaded", "run_in_folder"]


@pytest.fixture(scope="module", name="folder")
def folder_of_tables(tmp_path_factory) -> Path:
    """A folder with one table in all formats, and models that were fitted to it."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    n = 240
    age, job = rng.integers(18, 80, n), rng.choice(["cook", "nurse", "clerk"], n)
    score = (age - 50) / 15 + (job == "nurse") + rng.standard_normal(n)
    frame = pd.DataFrame(
        {
            "age": age,
            "job": job,
            "sex": rng.choice(["f", "m"], n),
            "since": pd.date_range("2015-01-01", periods=n, freq="9h"),
            "hours": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 60, n)),
            "rich": np.where(score > 0.5, "yes", "no"),
            "pay": 10.0 * score,
        }
    )
    frame.loc[[3, 8], "job"] = None
    frame.to_csv(folder / "people.csv", index=False)
    frame.to_parquet(folder / "people.parquet")
    frame.to_feather(folder / "people.feather")
    X = rng.standard_normal((n, 4))
    y = np.where(X[:, 0] + rng.standard_normal(n) > 0, 1, -1)
    np.savez(
        folder / "arrays.npz", format="dense", X=X, y=y, sex=frame["sex"].to_numpy(dtype=str),
        feature_names=np.array(["a", "b", "c", "d"]),
    )  # fmt: skip
    dump_svmlight_file(X, y, str(folder / "rows.svm"), zero_based=False)
    assert cli.run(cli.app, [*fit_command(folder), "--out", str(folder / "model.skops")]) == 0
    return folder


def fit_command(folder: Path, *more: str) -> list[str]:
    """The command that fits a classifier to the table."""
    return ["fit", str(folder / "people.csv"), "--target", "rich", "--drop", "pay", *more]


@pytest.fixture(name="ran")
def run_in_folder(capsys, folder, monkeypatch):
    """Run a command in the folder; return what it prints, and check the exit code."""
    monkeypatch.chdir(folder)

    def run(*arguments, code=0):
        capsys.readouterr()
        found = cli.run(cli.app, [str(each) for each in arguments])
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed.out if code == 0 else printed.err

    return run


def loaded(ran: Any, *arguments: Any) -> Any:
    """The JSON that a command prints."""
    return json.loads(ran(*arguments, "--json"))
