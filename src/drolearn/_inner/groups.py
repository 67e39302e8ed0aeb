"""Balls that change the weights of groups of rows instead of single rows.

With L_g the weighted mean loss of group g, the robust loss is the worst case of the L_g with the
shares of the groups as base weights.  Within a group, rows keep their relative weights.

Groups may overlap.  The share of a group is then proportional to the weight of its rows, and
radius 0 is the mean over memberships: a row in two groups counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.worst_case import WorstCase, worst_case
from drolearn.divergence import Divergence

__all__ = ["Groups", "worst_of_rows"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of rows, disjoint (`of` and `inside`, or `counts`) or overlapping (`matrix`).

    Parameters
    ----------
    shares : array of shape (number of groups,)
        The weight of each group; the sum is one.
    of : array of shape (n,) or None
        The group number of each row.
    inside : array of shape (n,) or None
        The weight of each row within its group; the sum over each group is one.
    matrix : sparse matrix of shape (number of groups, n) or None
        The weight of each row within each group; every row of the matrix sums to one.
    counts : array of shape (number of groups,) or None
        The number of rows with weight of each group, if the rows are elsewhere.
    """

    shares: Array
    of: NDArray[np.int64] | None = None
    inside: Array | None = None
    matrix: Any = None
    counts: NDArray[np.int64] | None = None

    @staticmethod
    def make(membership: NDArray[Any], weights: Array | None) -> Groups:
        """Make groups of rows with these weights; None for equal weights.

        `membership` is the group number of each row, or a Boolean matrix of rows × groups.
        """
        n = membership.shape[0]
        share = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
        if membership.ndim == 2:
            return _overlapping(membership, share)
        shares = np.bincount(membership, share).astype(np.float64)
        # The rows of a group of weight zero have weight zero.
        inside = np.where(share > 0.0, share, 0.0)
        inside /= np.where(shares > 0.0, shares, 1.0)[membership]
        return Groups(shares, membership, inside)

    @staticmethod
    def part_of(membership: NDArray[Any], weights: Array | None, totals: Array) -> Groups:
        """Groups of some rows, where `totals` are the weights of the groups of all rows.

        The results of `means` then add up to the means of all rows.
        """
        b = np.ones(membership.shape[0]) if weights is None else weights
        inverse = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0.0)
        shares = totals / totals.sum()
        if membership.ndim == 2:
            from scipy.sparse import csr_array  # imported when used: it is heavy

            return Groups(shares, matrix=csr_array((membership.T * b) * inverse[:, None]))
        return Groups(shares, membership, b * inverse[membership])

    def means(self, z: Array) -> Array:
        """The mean loss of each group."""
        if self.of is None or self.inside is None:
            return self.matrix @ z
        return np.bincount(self.of, self.inside * z, self.shares.size).astype(np.float64)

    def rows(self, q: Array) -> Array:
        """The weights of rows that correspond to weights q of groups."""
        if self.of is None or self.inside is None:
            return self.matrix.T @ q
        return q[self.of] * self.inside

    def as_matrix(self) -> Any:
        """The weight of each row within each group, as a sparse matrix of groups × rows."""
        if self.of is None or self.inside is None:
            return self.matrix
        from scipy.sparse import csr_array  # imported when used: it is heavy

        shape = (self.shares.size, self.of.size)
        return csr_array((self.inside, (self.of, np.arange(self.of.size))), shape=shape)

    def spread(self, worst: WorstCase) -> WorstCase:
        """The worst case of rows that corresponds to a worst case of groups."""
        return replace(worst, weights=self.rows(worst.weights))

    @property
    def members(self) -> list[NDArray[np.int64]]:
        """The rows of each disjoint group that have weight; none of a group without a share."""
        if self.of is None or self.inside is None:
            raise RuntimeError("Groups that overlap are not a partition of the rows.")
        order = np.argsort(self.of, kind="stable")
        used = (self.inside > 0.0) & (self.shares > 0.0)[self.of]
        order = order[used[order]]
        counts = np.bincount(self.of[order], minlength=self.shares.size)
        return np.split(order, np.cumsum(counts)[:-1])

    @property
    def disjoint(self) -> bool:
        """Whether no row is in two groups."""
        return self.of is not None or self.counts is not None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows with weight of each disjoint group; 0 for one without a share."""
        if self.counts is not None:
            return self.counts
        return np.array([rows.size for rows in self.members])

    def part(self, rows: NDArray[np.int64]) -> Groups:
        """The disjoint groups of some rows, with the shares that the groups have of all rows."""
        if self.of is None or self.inside is None:
            raise RuntimeError("Groups that overlap are not a partition of the rows.")
        of, inside = self.of[rows], self.inside[rows]
        totals = np.bincount(of, inside, self.shares.size)
        return Groups(self.shares, of, inside / np.where(totals > 0.0, totals, 1.0)[of])

    def within(self, group: int) -> Array:
        """The weights of all rows within one group; zero for rows of others."""
        one = np.zeros(self.shares.size)
        one[group] = 1.0
        return self.rows(one)


def worst_of_rows(
    z: Array,
    rho: float | None,
    divergence: Divergence,
    weights: Array | None,
    groups: Groups | None,
    *,
    tau: float | None = None,
    n_jobs: int | None = None,
) -> WorstCase:
    """The worst case of the losses of rows in a ball over rows, or over groups if there are some.

    Groups have the weights of their rows already.
    """
    if groups is None:
        return worst_case(z, rho, divergence, weights, tau=tau, n_jobs=n_jobs)
    return groups.spread(worst_case(groups.means(z), rho, divergence, groups.shares, tau=tau))


def _overlapping(membership: NDArray[np.bool_], share: Array) -> Groups:
    from scipy.sparse import csr_array  # imported when used: it is heavy

    weighted = membership.T * share
    totals = weighted.sum(axis=1)
    inverse = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0.0)
    return Groups(totals / totals.sum(), matrix=csr_array(weighted * inverse[:, None]))
