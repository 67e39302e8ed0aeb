"""Conditions on features: which rows meet them, and how they read in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drolearn.stress.columns import MISSING
from drolearn.stress.features import Feature, Numbers, cuts, number_text

__all__ = ["Condition", "Slice", "compatible", "conditions_of", "describe", "rows_of"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """A condition on one feature.

    Parameters
    ----------
    feature : int
        The number of the feature.
    sign : {">", "≤", "=", "≠", "missing"}
        A comparison with a number, or with one of the categories; "missing" is for numbers.
    value : float
        The number, or the number of the category.
    """

    feature: int
    sign: Literal[">", "≤", "=", "≠", "missing"]
    value: float = 0.0

    def rows(self, features: Sequence[Feature]) -> Mask:
        """Whether each row meets the condition."""
        feature = features[self.feature]
        if isinstance(feature, Numbers):
            if self.sign == "missing":
                return np.isnan(feature.values)
            # Comparisons with NaN are false: a missing number meets neither condition.
            return feature.values > self.value if self.sign == ">" else feature.values <= self.value
        same = feature.codes == int(self.value)
        return same if self.sign == "=" else ~same


#: A sub-population: the rows that meet all conditions, which are sorted; all rows without any.
Slice = tuple[Condition, ...]


def conditions_of(
    features: Sequence[Feature], rows: Mask, base: NDArray[np.float64], least: float
) -> list[Condition]:
    """Conditions that some of these rows meet and others do not, for slices of a share `least`.

    `base` are the weights of these rows, of sum 1.  Numbers are cut at quantiles that are `least`
    apart.  Values of fewer rows are left out: no slice of this share can have them.
    """
    found: list[Condition] = []
    for k, feature in enumerate(features):
        if isinstance(feature, Numbers):
            values = feature.values[rows]
            for cut in cuts(values, round(1.0 / least)):
                found += [Condition(k, "≤", float(cut)), Condition(k, ">", float(cut))]
            if np.isnan(values).any():
                found.append(Condition(k, "missing"))
            continue
        shares = np.bincount(feature.codes[rows], base)
        if np.count_nonzero(shares) == 1:
            continue
        frequent = np.flatnonzero(shares >= least)
        found += [Condition(k, "=", float(code)) for code in frequent]
        if np.count_nonzero(shares) > 2:  # of two values, "is not one" means "is the other"
            found += [Condition(k, "≠", float(code)) for code in frequent]
    return found


def compatible(one: Condition, other: Condition) -> bool:
    """Whether both say more than one: of different features, or the two ends of an interval."""
    if one.feature != other.feature:
        return True
    if {one.sign, other.sign} != {">", "≤"}:
        return False
    low, high = (one, other) if one.sign == ">" else (other, one)
    return low.value < high.value


def rows_of(chosen: Slice, features: Sequence[Feature], n: int) -> Mask:
    """Whether each of n rows is in a slice."""
    inside = np.ones(n, dtype=bool)
    for condition in chosen:
        inside &= condition.rows(features)
    return inside


def describe(chosen: Slice, features: Sequence[Feature]) -> str:
    """A slice in words, such as "30 < age ≤ 45 and sex = m"."""
    if not chosen:
        return "all rows"
    parts = []
    for k in dict.fromkeys(condition.feature for condition in chosen):
        own = {condition.sign: condition for condition in chosen if condition.feature == k}
        feature = features[k]
        if isinstance(feature, Numbers):
            texts = {sign: number_text(each.value) for sign, each in own.items()}
            if len(own) == 2:
                parts.append(f"{texts['>']} < {feature.column} ≤ {texts['≤']}")
                continue
            [(sign, text)] = texts.items()
            end = "is missing" if sign == "missing" else f"{sign} {text}"
        else:
            [(sign, each)] = own.items()
            name = feature.names[int(each.value)]
            end = f"{sign} {name}"
            if name is MISSING:
                end = "is missing" if sign == "=" else "is not missing"
        parts.append(f"{feature.column} {end}")
    return " and ".join(parts)
