"""What is reported of sub-populations: slices, the bracket, features, and the worst rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn.divergence import ChiSquare, CVaR
from drolearn.stress.balls import Ball, ball_of_share
from drolearn.stress.features import Feature, bins
from drolearn.stress.groups import group_rows
from drolearn.stress.intervals import intervals
from drolearn.stress.slices import SHARES, both_sides, judged_slices, split
from drolearn.stress.worst_cases import Sample, solve_ball, worst_cases

__all__ = ["SubPopulations", "upper_sides"]

_SLICES = ["slice", "share", "rows", "loss", "low", "others", "sentence", "method", "note"]
_BRACKET = ["share", "low", "loss", "cvar", "high", "chi2", "slice", "slice_share", "note"]
_FEATURES = ["divergence", "feature", "value", "rows", "share", "loss", "low", "high", "error"]
_FEATURES += ["worst_share", "worst_mix", "method", "note"]
_ROWS = ["divergence", "row", "loss", "weight"]
# What the tables begin with; features and rows also depend on the ball.
_KEYS = ["model", "loss_name"]


class SubPopulations:
    """The tables of sub-populations, to which models are added one after the other.

    Parameters
    ----------
    features : sequence of Feature
        The features of the rows with weight.
    places : array of int
        The positions of these rows among all.
    balls : mapping of str to Ball
        The ball of worst-case shares and weights for each divergence.
    level : float
        The confidence level.
    engine : str
        How to search for slices.
    worst_rows : int
        The number of rows in the table of the rows with the largest weights.
    rng : numpy.random.Generator
        The source of random numbers.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        places: NDArray[np.int64],
        balls: Mapping[str, Ball],
        level: float,
        engine: str,
        worst_rows: int,
        rng: np.random.Generator,
    ) -> None:
        self.features, self.places, self.balls, self.level = features, places, balls, level
        self.engine, self.worst_rows, self.rng = engine, worst_rows, rng
        # All models are judged on the same rows.
        self.searched = split(places.size, rng)
        self.slices: list[dict[str, Any]] = []
        self.bracket: list[dict[str, Any]] = []
        self.by_feature: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []

    def add(self, keys: Mapping[str, str], sample: Sample) -> None:
        """Add the losses of one model; `keys` are the names of both."""
        for name, ball in self.balls.items() if self.worst_rows else ():
            weights = solve_ball(ball, sample.z, sample.weights).weights
            # Of rows with equal weights, those with the largest losses, and of these the first.
            for k in np.lexsort((-sample.z, -weights))[: self.worst_rows]:
                row = {"row": self.places[k], "loss": sample.z[k], "weight": weights[k]}
                self.rows.append({**keys, "divergence": name, **row})
        if not self.features:
            return
        partitions = [bins(feature, sample.base) for feature in self.features]
        for row in group_rows(sample, slice(None), partitions, self.balls, self.level, self.rng):
            named = {"feature": row.pop("column"), "value": row.pop("group")}
            self.by_feature.append({**keys, **named, **row})
        found = judged_slices(
            sample, self.features, self.searched, self.level, self.rng, self.engine
        )
        # A slice may be the worst of several shares.
        for each in reversed({each.slice: each for each in reversed(found) if each.slice}.values()):
            row = {name: getattr(each, name) for name in _SLICES[1:]}
            self.slices.append({**keys, "slice": each.text, **row})
        for each, above in zip(found, upper_sides(sample, self.level, self.rng), strict=True):
            below = {"share": each.target, "low": each.low, "loss": each.loss, "note": each.note}
            named = {"slice": each.text, "slice_share": each.share}
            self.bracket.append({**keys, **below, **above, **named})

    def frames(self) -> dict[str, Any]:
        """The tables by name."""
        import pandas as pd

        tables = {
            "slices": (self.slices, _SLICES),
            "bracket": (self.bracket, _BRACKET),
            "features": (self.by_feature, _FEATURES),
            "worst_rows": (self.rows, _ROWS),
        }
        return {
            name: pd.DataFrame(rows, columns=[*_KEYS, *columns])
            for name, (rows, columns) in tables.items()
        }


def upper_sides(sample: Sample, level: float, rng: np.random.Generator) -> list[dict[str, float]]:
    """For each share, the worst case of any rows of this share, its upper bound, and that of χ²."""
    tails = [Ball(CVaR(share), math.nan, share) for share in SHARES]
    found = worst_cases(sample, tails)
    high = intervals(sample, tails, found, both_sides(level), rng).high
    wider = worst_cases(sample, [ball_of_share(ChiSquare(), share) for share in SHARES]).value
    return [
        {"cvar": float(one), "high": float(end), "chi2": float(other)}
        for one, end, other in zip(found.value, high, wider, strict=True)
    ]
