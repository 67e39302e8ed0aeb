"""Numbers and arrays from bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

__all__ = ["Source"]


class Source:
    """Numbers and arrays from bytes; zeros when they have been used up."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        found = self._content[self._place : self._place + count]
        self._place += count
        return found.ljust(count, b"\0")

    def integer(self, low: int, high: int) -> int:
        """An integer from low to high."""
        return low + int.from_bytes(self.take(2), "little") % (high - low + 1)

    def choice(self, options: Any) -> Any:
        """One of the options."""
        return options[self.integer(0, len(options) - 1)]

    def number(self) -> float:
        """A float64: any one, or one that is likely to matter."""
        kind = self.integer(0, 5)
        if kind == 0:
            return struct.unpack("<d", self.take(8))[0]
        if kind == 1:
            return self.choice(
                [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e308, 5e-324, 1e-17]
            )
        return (self.integer(0, 65535) - 20000) / 256.0

    def numbers(self, count: int) -> Any:
        """A vector; most are of tame numbers, of which most are positive."""
        if self.integer(0, 2):
            tame = np.frombuffer(self.take(count), np.uint8)
            return (tame.astype(np.float64) - self.choice([0, 0, 50])) / 32.0
        return np.array([self.number() for _ in range(count)], dtype=np.float64)

    def size(self, usual: int) -> int:
        """A size that is mostly the right one."""
        return usual if self.integer(0, 11) else self.integer(0, 8)

    def vector(self, usual: int) -> Any:
        """A vector that mostly has the right size."""
        return self.numbers(self.size(usual))

    def maybe(self, usual: int) -> Any:
        """A vector, or None."""
        return self.vector(usual) if self.integer(0, 1) else None

    def matrix(self, *usual: int) -> Any:
        """A matrix that mostly has the right shape."""
        shape = [self.size(each) for each in usual]
        return self.numbers(shape[0] * shape[1]).reshape(shape)

    def integers(self, count: int, most: int) -> Any:
        """A vector of int64, mostly from 0 to most."""
        low = 0 if self.integer(0, 7) else -2
        return np.array([self.integer(low, most - low) for _ in range(count)], dtype=np.int64)
