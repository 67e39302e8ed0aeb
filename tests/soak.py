"""How much the tests of faults, loads and random input try: `make soak` tries more."""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["SOAK", "usually"]

T = TypeVar("T")

#: Whether `make soak` runs the tests.
SOAK = os.environ.get("DROLEARN_SOAK", "") not in ("", "0")


def usually(few: T, many: T) -> T:
    """`few` in all tests, `many` in `make soak`."""
    return many if SOAK else few
