"""Losses with groups on a cluster, and the sums that stress tests need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._blocks import Pass
from drolearn._inner.block_search import BlockWorstCase, Survey, survey_of, weights_of
from drolearn._inner.worst_case import WorstCase
from drolearn.dask._losses import MakeLosses
from drolearn.divergence import CVaR
from drolearn.stress.columns import columns_of
from drolearn.stress.worst_cases import dual_integrand, refuse_huge

__all__ = [
    "GroupPass", "InfluencePass", "KnowPass", "Known", "MakeStressBlock", "StressBlock",
    "SurveyPass", "joined_groups",
]  # fmt: skip

Array = NDArray[np.float64]
# Rows that are worked on at a time, so that temporary arrays stay in the cache.
_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class StressBlock:
    """Losses with positive weights, and the number of the combination of groups of each row."""

    z: Array
    b: Array | None
    first: int
    codes: NDArray[np.int64] | None

    def base(self, rows: slice, mass: float) -> Array:
        """The weights of some rows as shares of all rows."""
        if self.b is None:
            return np.full(self.z[rows].size, 1.0 / mass)
        return self.b[rows] / mass


@dataclass(frozen=True, slots=True)
class MakeStressBlock:
    """Makes a block from a partition; None if no row has weight."""

    numbers: dict[Any, int] | None = None
    """The combinations of groups, once they are known."""
    starts: dict[int, int] | None = None
    dust: float = 0.0

    def __call__(self, number: int, data: tuple[Any, Any, Any], threads: int) -> Any:
        """Check the losses of one partition."""
        known = {number: 0} if self.starts is None else self.starts
        made = MakeLosses(known, self.dust)(number, data[:2], threads)
        if made is None:
            return None
        z, b, names, codes = made.z, made.b, [], None
        refuse_huge("losses", z, f" of partition {number}")
        n = z.size
        if data[2] is not None:
            names, codes = _combinations(data[2], z.size, f"partition {number}")
        if b is not None:
            used = b > 0.0
            z, b = z[used], b[used]
            codes = None if codes is None else codes[used]
        if self.starts is None:
            return (number, n, StressBlock(z, b, 0, codes), names) if z.size else None
        if codes is not None and self.numbers is not None:
            codes = np.array([self.numbers.get(name, 0) for name in names])[codes]
        return StressBlock(z, b, made.first, codes) if z.size else None


def _combinations(
    groups: Any, n: int, where: str
) -> tuple[list[tuple[Any, ...]], NDArray[np.int64]]:
    """The combinations of names in some rows, and the number of that of each row."""
    columns = [_as_list(values) for values in columns_of(groups, "group").values()]
    for values in columns:
        if len(values) != n:
            raise ValueError(
                f"The 'groups' parameter must name the group of each of the {n} rows of {where}. "
                f"Got {len(values)} instead."
            )
    numbers: dict[tuple[Any, ...], int] = {}
    codes = [numbers.setdefault(row, len(numbers)) for row in zip(*columns, strict=True)]
    return list(numbers), np.array(codes, dtype=np.int64)


def _as_list(values: Any) -> list[Any]:
    """Names as Python objects, with None for missing ones."""
    import pandas as pd

    array = np.asarray(values, dtype=object)
    return [None if missing else name for name, missing in zip(array, pd.isna(array), strict=True)]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of some partitions."""

    rows: dict[int, int]
    """The number of rows with weight of each partition."""
    every: int
    """The number of all rows."""
    mass: float
    squares: float
    total: float
    zero_one: bool
    groups: dict[tuple[Any, ...], None]


class KnowPass(Pass[Any, Known]):
    """Counts, sums of weights, and the combinations of groups that occur."""

    def of(self, block: tuple[int, int, StressBlock, list[Any]]) -> Known:
        number, every, losses, names = block
        z, b = losses.z, losses.b
        if losses.codes is not None:
            names = [names[k] for k in np.unique(losses.codes)]
        return Known(
            {number: z.size},
            every,
            float(z.size if b is None else b.sum()),
            float(z.size if b is None else b @ b),
            float(z.sum() if b is None else b @ z),
            bool(np.all((z == 0.0) | (z == 1.0))),
            dict.fromkeys(names),
        )

    def add(self, first: Known, second: Known) -> Known:
        return Known(
            {**first.rows, **second.rows},
            first.every + second.every,
            first.mass + second.mass,
            first.squares + second.squares,
            first.total + second.total,
            first.zero_one and second.zero_one,
            {**first.groups, **second.groups},
        )


@dataclass(frozen=True)
class SurveyPass(Pass[StressBlock, Survey]):
    """The range of the losses and a sample of them."""

    stride: int

    def of(self, block: StressBlock) -> Survey:
        return survey_of(block, self.stride)

    def add(self, first: Survey, second: Survey) -> Survey:
        return first + second


@dataclass(frozen=True)
class InfluencePass(Pass[StressBlock, tuple[Array, Array]]):
    """Sums for each worst case: its influence function ψ, and its weights p.

    These are Σ b ψ, Σ b² ψ, Σ b² ψ², Σ p², Σ p of positive losses, the largest loss, and b² ψ²,
    b² ψ and b² there; then Σ p of each combination of groups.
    """

    found: list[BlockWorstCase]
    mass: float
    groups: int

    def of(self, block: StressBlock) -> tuple[Array, Array]:
        sums = np.zeros((len(self.found), 9))
        shares = np.zeros((len(self.found), self.groups))
        for k, (worst, state) in enumerate(self.found):
            p = weights_of(worst.divergence, state, block)
            for first in range(0, p.size, _AT_ONCE):
                rows = slice(first, first + _AT_ONCE)
                sums[k, :5] += self._of_rows(worst, block, p, rows)
            at = int(np.argmax(block.z))
            one = slice(at, at + 1)
            b = float(block.base(one, self.mass)[0])
            psi = float(_centred(worst, block.z[one], p[one] / b)[0])
            sums[k, 5:] = block.z[at], (b * psi) ** 2, b * b * psi, b * b
            if block.codes is not None:
                shares[k] = np.bincount(block.codes, p, self.groups)
        return sums, shares

    def _of_rows(self, worst: WorstCase, block: StressBlock, p: Array, rows: slice) -> list[float]:
        b, z, p = block.base(rows, self.mass), block.z[rows], p[rows]
        psi = _centred(worst, z, p / b)
        bb = b * b
        wrong = float(p[z > 0.0].sum())
        return [float(b @ psi), float(bb @ psi), float(bb @ psi**2), float(p @ p), wrong]

    def add(self, first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        (one, shares), (other, more) = first, second
        total = one.copy()
        total[:, :5] += other[:, :5]
        later = other[:, 5] > one[:, 5]
        total[later, 5:] = other[later, 5:]
        return total, shares + more


def _centred(worst: WorstCase, z: Array, s: Array) -> Array:
    """ψ − R, up to rounding; 0 where all mass is on the largest loss."""
    cvar = isinstance(worst.divergence, CVaR)
    if worst.alpha == math.inf or (cvar and worst.divergence.level == 1.0):  # type: ignore[attr-defined]
        return z - worst.value
    if worst.alpha == 0.0 and not cvar:
        return np.zeros(z.size)
    constant = worst.value - worst.lam - (0.0 if cvar else worst.alpha * worst.rho)
    return dual_integrand(worst, z, s) - constant


@dataclass(frozen=True)
class GroupPass(Pass[StressBlock, Array]):
    """Sums of each combination of groups, where x is the loss minus a centre.

    These are the rows, Σ b, Σ b x, Σ b², Σ b² x, Σ b² x², the smallest and largest x, and b there.
    """

    mass: float
    groups: int
    centre: float

    def of(self, block: StressBlock) -> Array:
        codes, x = block.codes, block.z - self.centre
        if codes is None:
            raise RuntimeError("There are no groups.")
        b = block.base(slice(None), self.mass)
        columns = [np.ones(x.size), b, b * x, b * b, b * b * x, b * b * x * x]
        sums = [np.bincount(codes, column, self.groups) for column in columns]
        low, high = np.full(self.groups, math.inf), np.full(self.groups, -math.inf)
        np.minimum.at(low, codes, x)
        np.maximum.at(high, codes, x)
        largest, at = np.unique(codes[x == high[codes]], return_index=True)
        of_largest = np.zeros(self.groups)
        of_largest[largest] = b[x == high[codes]][at]
        return np.array([*sums, low, high, of_largest], dtype=np.float64)

    def add(self, first: Array, second: Array) -> Array:
        return joined_groups(first, second)


def joined_groups(first: Array, second: Array) -> Array:
    low, high = np.minimum(first[6], second[6]), np.maximum(first[7], second[7])
    of_largest = np.where(second[7] > first[7], second[8], first[8])
    return np.vstack([first[:6] + second[:6], low, high, of_largest])
