"""Subsamples of rows: at random, but always the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["subsample", "subsample_between"]


def subsample(n: int, count: int) -> NDArray[np.int64]:
    """About `count` of n rows, at random but always the same; all rows if n ≤ 2 · count."""
    if n <= 2 * count:
        return np.arange(n)
    chosen = np.zeros(n, dtype=bool)
    chosen[np.random.default_rng(0).integers(0, n, count)] = True
    return np.flatnonzero(chosen)


def subsample_between(n: int, count: int, first: int, stop: int) -> NDArray[np.int64]:
    """The rows of `subsample(n, count)` from `first` to before `stop`."""
    if n <= 2 * count:
        return np.arange(first, stop)
    drawn = np.random.default_rng(0).integers(0, n, count)
    return np.unique(drawn[(first <= drawn) & (drawn < stop)])
