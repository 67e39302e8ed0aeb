"""Blocks of rows, and passes over all of them: the interface between algorithms and an engine.

An algorithm describes a pass as a :class:`Pass`: what to compute for one block, and how to add up
two results.  An engine, a subclass of :class:`Blocks`, computes the pass for all blocks, in this
process or on a cluster.  Algorithms use nothing else of an engine.

Results are added up in the fixed order of a binary tree over the numbers of the blocks.  Workers
add up what they can of the tree, so a pass returns a few results for each worker; but the bits do
not depend on which worker has which block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

__all__ = ["Blocks", "LocalBlocks", "Nodes", "Pass", "partial_totals", "total_of"]

Block = TypeVar("Block")
Result = TypeVar("Result")
# Totals of parts of the tree: (level, k) is the total of blocks k·2^level … (k + 1)·2^level − 1.
Nodes = dict[tuple[int, int], Any]


class Pass(ABC, Generic[Block, Result]):
    """One pass over all blocks.

    A pass must be a function of its fields and the block alone: an engine may repeat it, for
    example after a worker was lost.  Passes are sent to workers, so they must be small.
    """

    @abstractmethod
    def of(self, block: Block) -> Result | None:
        """Return the result for one block; None adds nothing."""

    @abstractmethod
    def add(self, first: Result, second: Result) -> Result:
        """Add up the results of two neighbouring parts of the rows."""


class Blocks(ABC, Generic[Block]):
    """All blocks of some rows."""

    rounds = 0
    """The number of passes so far."""

    @abstractmethod
    def run(self, task: Pass[Block, Result]) -> Result:
        """Return the total of a pass over all blocks."""


class LocalBlocks(Blocks[Block]):
    """Blocks in this process, which threads share.

    Parameters
    ----------
    blocks : iterable
        The blocks, in order.
    threads : int, default=1
        Threads that work on the blocks.  The result does not depend on their number.
    """

    def __init__(self, blocks: Iterable[Block], threads: int = 1) -> None:
        self.blocks, self.threads = list(blocks), threads

    def run(self, task: Pass[Block, Result]) -> Result:
        """Return the total of a pass over all blocks."""
        self.rounds += 1
        if self.threads > 1:
            with ThreadPoolExecutor(self.threads) as pool:
                results = list(pool.map(task.of, self.blocks))
        else:
            results = [task.of(block) for block in self.blocks]
        return total_of(partial_totals(dict(enumerate(results)), task.add), task.add)


def partial_totals(results: Mapping[int, Any], add: Callable[[Any, Any], Any]) -> Nodes:
    """Return the totals of the largest complete parts of the tree among some numbered results."""
    return _merged({(0, number): result for number, result in results.items()}, add)


def total_of(nodes: Nodes, add: Callable[[Any, Any], Any]) -> Any:
    """Return the total of all blocks, from the nodes of all workers."""
    merged = _merged(nodes, add)
    total = None
    for level, k in sorted(merged, key=lambda node: node[1] << node[0]):
        total = _sum(total, merged[level, k], add)
    return total


def _merged(nodes: Nodes, add: Callable[[Any, Any], Any]) -> Nodes:
    """Replace pairs of siblings by their parent, from the leaves upwards."""
    merged = dict(nodes)
    for level in range(max((k.bit_length() + level for level, k in nodes), default=0)):
        for k in sorted(k for at, k in merged if at == level and not k & 1):
            if (level, k + 1) in merged:
                first, second = merged.pop((level, k)), merged.pop((level, k + 1))
                merged[level + 1, k >> 1] = _sum(first, second, add)
    return merged


def _sum(first: Any, second: Any, add: Callable[[Any, Any], Any]) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return add(first, second)
