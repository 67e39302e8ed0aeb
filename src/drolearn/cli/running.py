"""How a command runs: its exit code, and errors as one sentence without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

__all__ = [
    "BAD_INPUT", "DONE", "FAILED", "INTERRUPTED", "InputError", "check_out", "run",
    "warnings_shown",
]  # fmt: skip

#: The exit codes; the help of `drolearn` explains them.
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
# Both names exist in all versions of typer; the classes behind them moved.
_UsageError: Any = typer.BadParameter.__mro__[2]


class InputError(ValueError):
    """A file or an option that a command cannot use; the message says what to do."""


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command and return its exit code; errors are printed as one sentence."""
    debug = "--debug" in arguments
    given = [each for each in arguments if each != "--debug"]
    try:
        code = _help(app, given) if given[1:] == ["--help"] else None
        if code is None:
            code = app(given, prog_name="drolearn", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except SystemExit as ended:
        return _say(ended.code, FAILED) if isinstance(ended.code, str) else int(ended.code or DONE)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if debug:
            raise
        return _say(*_described(error))


def _help(app: typer.Typer, arguments: list[str]) -> int | None:
    """Print the help of a command; None if there is no such command.

    Called through its group, a command would first parse the options of the group, for which typer
    imports pydantic; that takes longer than all else.
    """
    group: Any = typer.main.get_command(app)
    command = group.commands.get(arguments[0])
    if command is None:
        return None
    command(["--help"], prog_name=f"drolearn {arguments[0]}", standalone_mode=False)
    return DONE


def _described(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of an error."""
    from drolearn.datasets import DataError

    if isinstance(error, _UsageError):
        usage: Any = error
        place = usage.ctx.command_path if usage.ctx is not None else "drolearn"
        message = usage.format_message().rstrip(".")
        return f"{message}: see {place} --help.", BAD_INPUT
    if isinstance(error, DataError | BlockingIOError | ChildProcessError):
        return str(error), FAILED
    if isinstance(error, ValueError):
        return str(error), BAD_INPUT
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"This command needs {error.name}: pip install 'drolearn[cli,paper]'.", FAILED
    if isinstance(error, ImportError):
        return str(error), FAILED
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return (
            f"A file cannot be read or written ({error.strerror or error}{place}): free some "
            f"space, or choose another folder with --out or DROLEARN_CACHE; finished runs and "
            f"older files are kept.",
            FAILED,
        )
    if isinstance(error, MemoryError):
        return "The memory does not suffice: use fewer rows or columns.", FAILED
    return (
        f"The command failed unexpectedly ({type(error).__name__}: {error}): run it again with "
        f"--debug to see where, and report that.",
        FAILED,
    )


def _say(message: str, code: int) -> int:
    """Print a message on one line of stderr; return the code."""
    print(" ".join(message.split()), file=sys.stderr)
    return code


def check_out(out: Path, endings: Sequence[str]) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if out.suffix not in endings:
        raise InputError(f"--out must end in {' or '.join(endings)}. Got {out.name!r} instead.")
    if not out.parent.is_dir():
        raise InputError(f"There is no folder {str(out.parent)!r} for --out: create it first.")


@contextmanager
def warnings_shown() -> Iterator[list[str]]:
    """Collect warnings for users, each once, and print them to stderr at the end.

    Warnings for developers, such as those of deprecated names, are dropped.
    """
    import warnings

    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    for each in caught:
        message = " ".join(str(each.message).split())
        if issubclass(each.category, UserWarning) and message not in messages:
            messages.append(message)
            print(f"Warning: {message}", file=sys.stderr)
