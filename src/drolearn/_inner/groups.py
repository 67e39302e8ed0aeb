"""Balls that change the weights of groups of rows instead of single rows.

With L_g the weighted mean loss of group g, the robust loss is the worst case of the L_g with the
weights of the groups as base weights.  Within a group, rows keep their relative weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.worst_case import WorstCase

__all__ = ["Groups"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of rows.

    Parameters
    ----------
    of : array of shape (n,)
        The group number of each row.
    shares : array of shape (number of groups,)
        The weight of each group; the sum is one.
    inside : array of shape (n,)
        The weight of each row within its group; the sum over each group is one.
    """

    of: NDArray[np.int64]
    shares: Array
    inside: Array

    @staticmethod
    def make(of: NDArray[np.int64], weights: Array | None) -> Groups:
        """Make groups of rows with these weights; None for equal weights."""
        share = np.full(of.size, 1.0 / of.size) if weights is None else weights / weights.sum()
        shares = np.bincount(of, share).astype(np.float64)
        # The rows of a group of weight zero have weight zero.
        inside = np.where(share > 0.0, share, 0.0)
        inside /= np.where(shares > 0.0, shares, 1.0)[of]
        return Groups(of, shares, inside)

    def means(self, z: Array) -> Array:
        """The mean loss of each group."""
        return np.bincount(self.of, self.inside * z, self.shares.size).astype(np.float64)

    def spread(self, worst: WorstCase) -> WorstCase:
        """The worst case of rows that corresponds to a worst case of groups."""
        return replace(worst, weights=worst.weights[self.of] * self.inside)
