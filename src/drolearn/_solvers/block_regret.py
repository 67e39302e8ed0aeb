"""Losses of a reference model on rows in blocks: what a problem needs to know of them besides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drolearn._blocks import Blocks, Pass
from drolearn._inner.block_search import LossBlock, maximise
from drolearn._inner.worst_case import inner_maximum
from drolearn._solvers.block_rows import RowBlock

if TYPE_CHECKING:
    from drolearn._solvers.block_problem import BlockProblem

__all__ = ["LargestLossPass", "losses_alone", "value_of_reference"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _OnChanged(Pass[RowBlock, Any]):
    """A pass over what a function makes of each block."""

    task: Pass[Any, Any]
    change: Callable[[RowBlock], Any]

    def of(self, block: RowBlock) -> Any:
        return self.task.of(self.change(block))

    def add(self, first: Any, second: Any) -> Any:
        return self.task.add(first, second)


class _Changed(Blocks[Any]):
    """Blocks as a function changes them, in each pass anew."""

    def __init__(self, blocks: Blocks[RowBlock], change: Callable[[RowBlock], Any]) -> None:
        self.blocks, self.change = blocks, change

    def run(self, task: Pass[Any, Any]) -> Any:
        """Return the total of a pass over all blocks."""
        self.rounds += 1
        return self.blocks.run(_OnChanged(task, self.change))


def _without_reference(block: RowBlock) -> RowBlock:
    return RowBlock(replace(block.problem, reference=None), block.first)


def _reference_as_losses(block: RowBlock) -> LossBlock:
    if block.problem.reference is None:
        raise RuntimeError("There is no reference.")
    return LossBlock(-block.problem.reference, block.b, block.first)


def losses_alone(problem: BlockProblem) -> BlockProblem:
    """The same problem without a reference."""
    blocks = _Changed(problem.blocks, _without_reference)
    return replace(problem, reference=None, blocks=blocks)


def value_of_reference(problem: BlockProblem) -> float:
    """The robust regret if all losses were 0, see `Problem.value_without_losses`."""
    if problem.groups is not None:
        means, shares = problem.blocks.run(_GroupReferencePass()), problem.groups.shares
        radius = 0.0 if problem.plain else problem.rho
        worst = inner_maximum(problem.divergence, radius, means, shares)
    else:
        blocks = _Changed(problem.blocks, _reference_as_losses)
        found = maximise(blocks, problem.divergence, problem.rho, problem.n)
        worst = None if found is None else found.worst
    return -math.inf if worst is None else worst.value


class _GroupReferencePass(Pass[RowBlock, Array]):
    """The means of −c in the groups."""

    def of(self, block: RowBlock) -> Array:
        return block.groups.means(_reference_as_losses(block).z)

    def add(self, first: Array, second: Array) -> Array:
        return first + second


@dataclass(frozen=True)
class LargestLossPass(Pass[RowBlock, float]):
    """The largest loss at θ of a row with positive weight, without the reference."""

    theta: Array

    def of(self, block: RowBlock) -> float | None:
        block.look(self.theta)
        losses = block.z if block.problem.reference is None else block.z + block.problem.reference
        losses = losses if block.b is None else losses[block.b > 0.0]
        return float(losses.max()) if losses.size else None

    def add(self, first: float, second: float) -> float:
        return max(first, second)
