"""Describable sub-populations with a large loss: found on some rows, judged on the others.

A slice is chosen for its loss on the rows that were searched, where it is therefore too large.  The
other rows had no part in the choice: of them, the mean of the slice and its interval are those of
any group that was fixed in advance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drolearn._validation import did_you_mean
from drolearn.divergence import ChiSquare
from drolearn.stress.balls import ball_of_share
from drolearn.stress.conditions import Slice, describe, rows_of
from drolearn.stress.features import Feature
from drolearn.stress.intervals import intervals
from drolearn.stress.search import find_slices
from drolearn.stress.sliceline_engine import find_slices_with_sliceline
from drolearn.stress.worst_cases import Sample, worst_cases

__all__ = ["ENGINES", "SHARES", "Judged", "as_engine", "both_sides", "judged_slices", "split"]

#: The shares for which the worst slice is searched.
SHARES = (0.5, 0.3, 0.2, 0.1, 0.05)
ENGINES = ("search", "sliceline")

# The search uses at most this many rows; more find nothing else, and judge better.
_SEARCHED = 20_000
# A slice must have this many rows in each half, on average.
_FEWEST = 20.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A slice, and what the rows that were not searched say about it.

    Parameters
    ----------
    target : float
        The share for which it was searched.
    slice : tuple of Condition or None
        The slice; None if there are too few rows to search.
    text : str
        The slice in words.
    share, rows, loss, low, others : float
        Its share, number of rows, mean loss, the lower end of a one-sided interval, and the mean
        loss of the other rows; all of rows that were not searched.
    method, note : str
        How the interval was computed, and what limits it.
    """

    target: float
    slice: Slice | None
    text: str = ""
    share: float = math.nan
    rows: int = 0
    loss: float = math.nan
    low: float = math.nan
    others: float = math.nan
    method: str = ""
    note: str = ""

    @property
    def sentence(self) -> str:
        """The slice in a sentence."""
        against = "" if math.isnan(self.others) else f" against {_number(self.others)}"
        share = f"{self.share:.0%}" if self.share >= 0.01 else f"{self.share:.1%}"
        return f"{self.text}: {share} of rows, loss {_number(self.loss)}{against}"


def as_engine(slices: str) -> str:
    """The name of a way to search."""
    if slices not in ENGINES:
        raise ValueError(
            f"The 'slices' parameter must be 'search' or 'sliceline'. "
            f"Got {slices!r} instead.{did_you_mean(slices, ENGINES)}"
        )
    return slices


def split(n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows are searched: a random half of them, or fewer if there are very many."""
    searched = np.zeros(n, dtype=bool)
    searched[rng.permutation(n)[: min(n // 2, _SEARCHED)]] = True
    return searched


def both_sides(level: float) -> float:
    """The level of the two-sided interval of which each end holds with this probability."""
    return max(2.0 * level - 1.0, 0.0)


def judged_slices(
    sample: Sample,
    features: Sequence[Feature],
    searched: NDArray[np.bool_],
    level: float,
    rng: np.random.Generator,
    engine: str = "search",
    shares: Sequence[float] = SHARES,
) -> list[Judged]:
    """The worst slice of each share: found on the searched rows, judged on the others."""
    rows = sample.part(searched).rows if searched.any() else 0.0
    usable = [share for share in shares if share * rows >= _FEWEST]
    found: list[Slice] = []
    if usable and engine == "sliceline":
        if sample.weights is not None and np.ptp(sample.weights) > 0.0:
            raise ValueError(
                "The 'slices' parameter must be 'search' with sample weights: sliceline has none."
            )
        found = find_slices_with_sliceline(features, searched, sample.z[searched], usable)
    elif usable:
        part = sample.part(searched)
        found = find_slices(features, searched, part.z, part.base, usable)
    by_share = dict(zip(usable, found, strict=True))
    # Slices of several shares are judged once, so that their intervals agree.
    judged = {
        chosen: _judge(sample, chosen, features, ~searched, level, rng)
        for chosen in dict.fromkeys(found)
    }
    few = f"fewer than {_FEWEST:.0f} rows in each half"
    return [
        Judged(share, by_share[share], *judged[by_share[share]])
        if share in by_share
        else Judged(share, None, note=few)
        for share in shares
    ]


def _judge(
    sample: Sample,
    chosen: Slice,
    features: Sequence[Feature],
    held_out: NDArray[np.bool_],
    level: float,
    rng: np.random.Generator,
) -> tuple[str, float, int, float, float, float, str, str]:
    """The fields of `Judged` from `text` on."""
    text = describe(chosen, features)
    inside = rows_of(chosen, features, sample.z.size)[held_out]
    rest = sample.part(held_out)
    if not inside.any():
        return text, 0.0, 0, math.nan, math.nan, math.nan, "", "no rows outside the search"
    part = rest.part(inside)
    mean = [ball_of_share(ChiSquare(), 1.0)]
    found = worst_cases(part, mean)
    ends = intervals(part, mean, found, both_sides(level), rng)
    share = float(rest.base[inside].sum())
    others = math.nan
    if not inside.all():
        other = rest.part(~inside)
        others = float(other.base @ other.z)
    loss, low = float(found.value[0]), float(ends.low[0])
    return text, share, part.z.size, loss, low, others, ends.method[0], ends.note[0]


def _number(loss: float) -> str:
    """A loss with two digits after the point, or three significant ones."""
    if loss == 0.0 or 0.1 <= abs(loss) < 1000.0:
        return f"{loss:.2f}"
    return f"{loss:,.0f}" if abs(loss) >= 1000.0 else f"{loss:.2g}"
