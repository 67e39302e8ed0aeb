"""Where the rows are that draws choose from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._blocks import Pass
from drolearn._solvers.block_rows import RowBlock

__all__ = ["Layout", "LayoutPass"]


class Layout(NamedTuple):
    """The first row of each block, and the rows of each group in it that draws choose from."""

    firsts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """Shape (groups, blocks); one group if the ball reweights rows."""

    @property
    def rows(self) -> int:
        """The number of rows that draws choose from."""
        return int(self.sizes.sum())


class LayoutPass(Pass[RowBlock, Layout]):
    """Find how many rows each block has; with disjoint groups, how many with weight in each."""

    def of(self, block: RowBlock) -> Layout:
        groups, sizes = block.problem.groups, np.array([block.problem.n])
        if groups is not None:
            sizes = groups.sizes
        return Layout(np.array([block.first]), sizes[:, None])

    def add(self, first: Layout, second: Layout) -> Layout:
        return Layout(*(np.concatenate(both, axis=-1) for both in zip(first, second, strict=True)))
