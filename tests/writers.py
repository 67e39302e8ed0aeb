"""All that writes files, in a folder that is full or read-only.

`python -m tests.writers full` and `read-only` write everything twice, the second time with the
fault, and print what happens as JSON: the error of each writer, and which files have changed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import drolearn
from drolearn import GSSG, Exact, cli
from drolearn.cli.comparison import Comparison, draw
from drolearn.datasets.files import write_rows
from drolearn.paper.output import write_text
from drolearn.paper.runner import Store

_RNG = np.random.default_rng(0)
_X = _RNG.standard_normal((300, 2))
_Y = np.where(_X[:, 0] + _RNG.standard_normal(300) > 0, "yes", "no")


def _writers() -> dict[str, Callable[[int], Any]]:
    """What is written, for two different contents."""
    frame = pd.DataFrame(_X, columns=["a", "b"]).assign(y=_Y)
    frame.to_csv("data.csv", index=False)

    def model(k: int) -> Any:
        return drolearn.RobustClassifier(rho=0.1 + 0.1 * k).fit(frame[["a", "b"]], _Y)

    def report(k: int) -> Any:
        return drolearn.stress_test(losses=np.arange(20.0 + k), random_state=0)

    def compared(k: int) -> Any:
        losses = {"plain": np.arange(20.0 + k)}
        return Comparison(frame, losses, "log", drolearn.ChiSquare(), 0.1, 20)

    def command(*arguments: str) -> None:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = cli.run(cli.app, list(arguments))
        if code != 0:
            raise OSError(f"exit code {code}: {said.getvalue()}")

    def solver(cls: Any, k: int) -> None:
        drolearn.solve(
            _X, _Y == "yes", rho=0.1, solver=cls(checkpoint="state"), tol=1e-12, random_state=0,
            max_iter=3 + 3 * k,
        )  # fmt: skip

    data = ["predict", "model.skops", "data.csv", "--out"]
    return {
        "save .drl": lambda k: drolearn.save(model(k), "model.drl"),
        "save .skops": lambda k: drolearn.save(model(k), "model.skops"),
        "checkpoint of an exact solver": lambda k: solver(Exact, k),
        "checkpoint of a stochastic solver": lambda k: solver(GSSG, k),
        "report.to_json": lambda k: report(k).to_json("api.json"),
        "report.to_html": lambda k: report(k).to_html("api.html"),
        "picture of compare": lambda k: draw(compared(k), Path("compare.png")),
        "rows of reproduce": lambda k: Store("paper").add({"key": "a", "value": float(k)}),
        "all rows of reproduce": lambda _: Store("paper").gather(),
        "tables of reproduce": lambda k: write_text(Path("table.md"), f"{k} " * 5000),
        "data set": lambda k: write_rows(Path("set.npz"), _X + k, np.arange(300)),
        "drolearn fit": lambda k: command(
            "fit", "data.csv", "--rho", f"0.{k + 1}", "--out", "cli.skops", "--checkpoint", "cli"
        ),
        "drolearn predict, CSV": lambda k: command(*data, "new.csv", *["--proba"] * k),
        "drolearn predict, Parquet": lambda k: command(*data, "new.parquet", *["--proba"] * k),
        "drolearn stress, JSON": lambda k: command(
            "stress", "model.skops", "data.csv", "--out", "report.json", *["--groups", "a"] * k
        ),
        "drolearn stress, HTML": lambda k: command(
            "stress", "model.skops", "data.csv", "--out", "report.html", *["--groups", "a"] * k
        ),
    }


def _contents() -> dict[str, str]:
    """All files, hidden ones too."""
    return {str(path): path.read_bytes().hex() for path in Path().rglob("*") if path.is_file()}


def main() -> None:
    """Write everything, then with the fault."""
    fault = sys.argv[1]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        writers = _writers()
        for write in writers.values():
            write(0)
        Store("paper").add({"key": "b", "value": 1.0})  # for `gather` to move
        folders = [Path(folder), *(path for path in Path(folder).rglob("*") if path.is_dir())]
        before, errors = _contents(), {}
        if fault == "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
        else:
            for each in folders:
                each.chmod(0o555)
        try:
            for name, write in writers.items():
                try:
                    write(1)
                except OSError as error:
                    errors[name] = str(error)
                except Exception as error:
                    errors[name] = f"{type(error).__name__}: {error}"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            for each in folders:
                each.chmod(0o755)
        after = _contents()
        os.chdir("/")
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    print(json.dumps({"writers": list(writers), "errors": errors, "changed": changed}))


if __name__ == "__main__":
    main()
