"""Balls that move the shares of groups of rows, and not single rows.

With L_g the weighted mean loss of group g, the robust loss is the worst case of the L_g with
the shares of the groups as weights; rows keep their weights within a group.
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
    """Groups of rows: whose row it is, what share each has, and how rows share its weight."""

    of: NDArray[np.int64]
    shares: Array
    inside: Array

    @staticmethod
    def make(of: NDArray[np.int64], weights: Array | None) -> Groups:
        """Groups of rows with weights, which are equal if none are given."""
        share = np.full(of.size, 1.0 / of.size) if weights is None else weights / weights.sum()
        shares = np.bincount(of, share).astype(np.float64)
        # A group without weight has no share to move.
        inside = np.where(share > 0.0, share, 0.0)
        inside /= np.where(shares > 0.0, shares, 1.0)[of]
        return Groups(of, shares, inside)

    def means(self, z: Array) -> Array:
        """The mean loss of each group."""
        return np.bincount(self.of, self.inside * z, self.shares.size).astype(np.float64)

    def spread(self, each: WorstCase) -> WorstCase:
        """A worst case of groups as one of rows."""
        return replace(each, weights=each.weights[self.of] * self.inside)
