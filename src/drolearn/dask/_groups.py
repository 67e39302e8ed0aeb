"""Groups of rows on a cluster: names that partitions find, and their numbers in all rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._validation import as_groups

__all__ = ["FoundGroups", "GroupNames", "memberships"]

Array = NDArray[np.float64]
# Stands for rows in no group of a Boolean matrix.
_NONE = -1


def memberships(groups: Any, n: int, where: str) -> tuple[list[Any], NDArray[Any], list[Any]]:
    """The groups in some rows as keys, the membership of the rows, and the names of the columns.

    Keys are names, tuples of names, or numbers of columns of a Boolean matrix.
    """
    try:
        names, membership = as_groups(groups, n)
    except ValueError as error:
        raise ValueError(f"{error} Found in {where}.") from None
    if membership.ndim == 1:
        return names.tolist(), membership, []
    columns = list(getattr(groups, "columns", range(np.shape(groups)[1])))
    keys = list(range(len(columns)))
    return keys + [_NONE] * (names.size - len(keys)), membership, columns


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """The groups of some partitions."""

    weights: dict[Any, dict[Any, float]] = field(default_factory=dict)
    """For each group, the weight of each class; of None in regression."""
    columns: list[Any] = field(default_factory=list)
    """The columns of a Boolean matrix; empty for names."""

    @staticmethod
    def of(groups: Any, classes: NDArray[Any] | None, w: Array, where: str) -> FoundGroups:
        """Find the groups of one partition."""
        keys, membership, columns = memberships(groups, w.size, where)
        weights: dict[Any, dict[Any, float]] = {key: {} for key in keys}
        names, codes = [None], np.zeros(w.size, dtype=np.int64)
        if classes is not None:
            found, codes = np.unique(classes, return_inverse=True)
            names = found.tolist()
        for k, name in enumerate(names):
            of_class = np.where(codes == k, w, 0.0)
            if membership.ndim == 1:
                totals = np.bincount(membership, of_class, len(keys))
            else:
                totals = of_class @ membership
            for key, total in zip(keys, totals.tolist(), strict=True):
                weights[key][name] = total
        return FoundGroups(weights, columns)

    def __add__(self, other: FoundGroups) -> FoundGroups:
        if self.columns != other.columns:
            raise ValueError(
                f"The 'groups' parameter must have the same columns in all partitions. "
                f"Got {self.columns} and {other.columns} instead."
            )
        weights = {key: dict(of_classes) for key, of_classes in self.weights.items()}
        for key, of_classes in other.weights.items():
            known = weights.setdefault(key, {})
            for name, weight in of_classes.items():
                known[name] = known.get(name, 0.0) + weight
        return FoundGroups(weights, self.columns)

    def names(self, class_weights: dict[Any, float] | None) -> GroupNames:
        """Number the groups, and add up their weights."""
        if self.columns:
            keys = sorted(self.weights, key=lambda key: (key == _NONE, key))
            names = np.empty(len(keys), dtype=object)
            names[:] = ["none" if key == _NONE else self.columns[key] for key in keys]
        else:
            keys, names = _in_order(list(self.weights))
        totals = np.array(
            [
                sum(
                    weight * (1.0 if class_weights is None else class_weights[name])
                    for name, weight in self.weights[key].items()
                )
                for key in keys
            ]
        )
        return GroupNames(names, {key: k for k, key in enumerate(keys)}, totals)


def _in_order(keys: list[Any]) -> tuple[list[Any], NDArray[Any]]:
    """Keys and names in the order that they have in memory."""
    if not isinstance(keys[0], tuple):
        names, codes = as_groups(np.array(keys), len(keys))
    else:
        table = _Columns([np.array(column) for column in zip(*keys, strict=True)])
        names, codes = as_groups(table, len(keys))
    return [keys[k] for k in np.argsort(codes)], names


class _Columns:
    """Columns of names, each of its own type, as in a dataframe."""

    def __init__(self, columns: list[NDArray[Any]]) -> None:
        self.by_number = columns
        self.columns = range(len(columns))

    def __getitem__(self, number: int) -> NDArray[Any]:
        return self.by_number[number]

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.column_stack([column.astype(object) for column in self.by_number])


@dataclass(frozen=True, slots=True, eq=False)
class GroupNames:
    """The groups of all rows."""

    names: NDArray[Any]
    numbers: dict[Any, int]
    totals: Array
    """The weight of each group."""

    def membership(self, groups: Any, n: int, where: str) -> NDArray[Any]:
        """The numbers of the groups of some rows, or a Boolean matrix with a column for each."""
        keys, membership, columns = memberships(groups, n, where)
        numbers = np.array([self.numbers[key] for key in keys])
        if not columns:
            return numbers[membership]
        whole = np.zeros((n, self.names.size), dtype=bool)
        whole[:, numbers] = membership
        return whole
