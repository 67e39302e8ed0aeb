"""The command line.

Each command is in a module of its own, which imports what it needs when it runs: `drolearn --help`
is as fast as typer.

fit, predict, evaluate, info   models in files
compare, demo                  baselines and robust models on one table
stress                         the report of a stress test
reproduce, datasets            the paper's experiments and their data
tables, models, report         reading data; pipelines and model files; tables for people and JSON
options, running               options of several commands; errors and exit codes
"""

from __future__ import annotations

import sys
from typing import Annotated

try:
    import typer
except ModuleNotFoundError as error:  # pragma: no cover - tested in a subprocess
    sys.exit(f"The command line needs {error.name}: pip install 'drolearn[cli]'.")

from drolearn.cli.compare import compare
from drolearn.cli.datasets import datasets
from drolearn.cli.demo import demo
from drolearn.cli.evaluate import evaluate
from drolearn.cli.fit import fit
from drolearn.cli.info import info
from drolearn.cli.predict import predict
from drolearn.cli.reproduce import reproduce
from drolearn.cli.running import run
from drolearn.cli.stress import stress

__all__ = ["app", "main"]

# Help without markup: with it, typer imports three times as many modules.
app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)


def _print_version(asked: bool) -> None:
    if asked:
        from drolearn import __version__

        print(f"drolearn {__version__}")
        raise typer.Exit


@app.callback()
def drolearn(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; for all commands.")
    ] = False,
) -> None:
    """Distributionally robust learning: fit, evaluate and compare models; the paper's results.

    \b
    Exit codes:
      0    done
      1    failed: a file cannot be written, a download or a fit failed, a package is missing
      2    wrong usage or bad input: an option, a column, a file that cannot be read
      130  stopped by Ctrl-C
    """


for command in (fit, predict, evaluate, info, compare, stress, demo, reproduce, datasets):
    app.command()(command)


def main() -> None:
    """Run the command line."""
    sys.exit(run(app, sys.argv[1:] or ["--help"]))
