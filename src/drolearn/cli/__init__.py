"""The command line: `drolearn reproduce` and `drolearn datasets`."""

from __future__ import annotations

import sys

try:
    import rich  # noqa: F401
    import typer
except ModuleNotFoundError as error:  # pragma: no cover - tested in a subprocess
    sys.exit(f"The command line needs {error.name}: pip install 'drolearn[paper]'.")

from drolearn.cli import datasets, reproduce
from drolearn.datasets import DataError

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    help="Distributionally robust learning: the paper's experiments and their data.",
)  # fmt: skip
app.command("datasets")(datasets.datasets)
app.command("reproduce")(reproduce.reproduce)


def main() -> None:
    """Run the command line; print expected errors as one sentence, without a traceback."""
    try:
        app()
    except (DataError, ValueError, BlockingIOError, ChildProcessError) as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        sys.exit(f"This command needs {error.name}: pip install 'drolearn[paper]'.")
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        sys.exit(
            f"A file cannot be read or written ({error.strerror}{place}): free some space, or "
            f"choose another folder with --out or DROLEARN_CACHE; finished runs are kept."
        )
