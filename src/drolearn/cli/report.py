"""Results for people, as tables, and for programs, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["busy", "pairs", "show", "table"]


def show(content: dict[str, Any], as_json: bool, text: Callable[[Any], None]) -> None:
    """Print a result: JSON, or whatever `text` prints to a console of rich."""
    if as_json:
        print(json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False))
        return
    from rich.console import Console

    text(Console(soft_wrap=True, highlight=False))


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    """A table of rich; numbers have three digits."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for place, head in enumerate(heads):
        made.add_column(head, justify="right" if place else "left", overflow="fold")
    for row in rows:
        made.add_row(*(escape(_cell(value)) for value in row))
    return made


def pairs(rows: Iterable[tuple[str, Any]]) -> Any:
    """Names and values in two columns."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows:
        value = value.tolist() if hasattr(value, "tolist") else value
        shown = ", ".join(map(str, value)) if isinstance(value, list) else _cell(value)
        made.add_row(name.replace("_", " "), escape(shown))
    return made


def busy(what: str) -> Any:
    """Say on a terminal what the command does, while it does it."""
    from rich.console import Console

    return Console(stderr=True).status(what)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """A value as JSON has it: no NumPy types, and null for numbers that are not finite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
