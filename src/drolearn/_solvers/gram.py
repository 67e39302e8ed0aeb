"""Gram matrices of dense rows, by threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._solvers.workers import ordered_map

__all__ = ["over_slabs"]

Array = NDArray[np.float64]

# Gram matrices are sums over this many slabs of rows, added in order, so the result has the same
# bits for any number of threads.  Large matrices use fewer slabs to save memory.
_SLABS = 16
_SLAB_NUMBERS = 1 << 24


def over_slabs(
    rows: _core.Rows, h: Array, right: Array, columns: tuple[Array, Array], threads: int
) -> Iterator[tuple[Array, Array]]:
    """X̃ᵀ diag(h) X̃ and X̃ᵀ right for each slab of rows, in order.

    `columns` are the means and scales of the columns of X̃, the intercept last.
    """
    n, size = h.size, columns[1].size
    slabs = max(min(_SLABS, _SLAB_NUMBERS // size**2), 1)
    step = max(64, (1 << 17) // size)

    def work(slab: int) -> tuple[Array, Array]:
        total, side = np.zeros((size, size)), np.zeros((size, right.shape[1]))
        last = n * (slab + 1) // slabs
        buffer = np.empty((step, size))
        for first in range(n * slab // slabs, last, step):
            chosen = slice(first, min(first + step, last))
            root = np.sqrt(h[chosen])
            part = buffer[: root.size]
            rows.scaled(columns, first, root, part)
            total += part.T @ part
            if right.shape[1]:
                zero = np.zeros((root.size, right.shape[1]))
                positive = root[:, None] > 0.0
                side += part.T @ np.divide(right[chosen], root[:, None], out=zero, where=positive)
        return total, side

    return ordered_map(work, slabs, threads)
