"""The search for describable sub-populations with a large loss.

A beam search over conjunctions of conditions: the best slices of each share are extended by one
more condition.  All pairs of a slice and a condition are evaluated by products of matrices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drolearn.stress.conditions import Condition, Slice, compatible, conditions_of
from drolearn.stress.features import Feature

__all__ = ["find_slices", "required_share"]

Array = NDArray[np.float64]

# At most this many conditions in a slice: more are hard to understand.
_DEPTH = 3
# Slices of each share that are extended.
_BEAM = 10
# Of more conditions, those whose rows differ most in loss from the others are used.
_CONDITIONS = 400
# Slices are compared by mean − this many standard errors: of very many, the one with the largest
# mean is often a small one by chance ...
_ERRORS = 3.0
# ... and a condition more has to raise this number by this many standard errors.
_GAIN = 1.0
# Rows that are converted at a time.
_CHUNK = 4096


def find_slices(
    features: Sequence[Feature],
    rows: NDArray[np.bool_],
    z: Array,
    base: Array,
    shares: Sequence[float],
) -> list[Slice]:
    """For each share, the slice of at least this share with the largest loss.

    `rows` are those to search in; `z` and `base` are their losses and weights.
    """
    conditions = conditions_of(features, rows, base, min(shares))
    if not conditions or np.ptp(z) == 0.0:
        return [()] * len(shares)
    z = z - base @ z
    z /= np.abs(z).max()
    met = np.column_stack([condition.rows(features)[rows] for condition in conditions])
    met, conditions = _screened(met, conditions, z, base)
    return _Search(met, conditions, z, base, shares).run()


def required_share(share: float, rows: float) -> float:
    """The share in a sample of so many rows that shows a share of the population, at 95%."""
    return min(share + 1.645 * math.sqrt(share * (1.0 - share) / rows), 1.0)


def _screened(
    met: NDArray[np.bool_], conditions: list[Condition], z: Array, base: Array
) -> tuple[NDArray[np.bool_], list[Condition]]:
    """The conditions with the largest differences in loss, relative to their standard errors.

    The mean loss is 0.
    """
    if len(conditions) <= _CONDITIONS:
        return met, conditions
    share, total = _products(met, np.column_stack([base, base * z]))
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.abs(total) / np.sqrt(share * (1.0 - share))
    score = np.where(np.isfinite(score), score, 0.0).round(12)
    best = np.sort(np.argsort(-score, kind="stable")[:_CONDITIONS])
    return met[:, best], [conditions[k] for k in best]


def _products(met: NDArray[np.bool_], columns: Array) -> Array:
    """columnsᵀ · met in chunks of rows, shape (columns, conditions)."""
    total = np.zeros((columns.shape[1], met.shape[1]))
    for start in range(0, len(met), _CHUNK):
        part = slice(start, start + _CHUNK)
        total += columns[part].T @ met[part].astype(np.float64)
    return total


class _Search:
    """One search.

    Parameters
    ----------
    met : Boolean array of shape (n, k)
        Which rows meet which conditions.
    conditions : list of k Condition
        The conditions.
    z, base : array of shape (n,)
        The losses, of mean 0 and size 1, and the weights of the rows.
    shares : sequence of float
        The shares that slices must have.
    """

    def __init__(
        self,
        met: NDArray[np.bool_],
        conditions: list[Condition],
        z: Array,
        base: Array,
        shares: Sequence[float],
    ) -> None:
        self.met, self.conditions = met, conditions
        self.z, self.base = z, base
        self.rows = 1.0 / float(base @ base)
        self.required = [required_share(share, self.rows) for share in shares]
        pairs = [[compatible(one, other) for other in conditions] for one in conditions]
        self.compatible = np.array(pairs)

    def run(self) -> list[Slice]:
        """The best slice of each share."""
        deviation = math.sqrt(float(self.base @ self.z**2))
        everything = -_ERRORS * deviation / math.sqrt(self.rows)
        best: list[tuple[float, tuple[int, ...]]] = [(everything, ()) for _ in self.required]
        parents: list[tuple[int, ...]] = [()]
        for _ in range(_DEPTH):
            share, score, error = self._evaluate(parents)
            children: dict[tuple[int, ...], None] = {}
            for k, required in enumerate(self.required):
                found = self._best(parents, np.where(share >= required, score, -np.inf))
                children.update(dict.fromkeys(chosen for _, _, chosen in found))
                if found:
                    value, place, chosen = found[0]
                    if value > best[k][0] + _GAIN * error.flat[place]:
                        best[k] = (value, chosen)
            if not children:
                break
            parents = list(children)
        return [tuple(sorted(self.conditions[k] for k in chosen)) for _, chosen in best]

    def _evaluate(self, parents: list[tuple[int, ...]]) -> tuple[Array, Array, Array]:
        """Share, score and standard error of each parent with each condition."""
        inside = np.column_stack([self.met[:, list(chosen)].all(axis=1) for chosen in parents])
        allowed = np.array([self.compatible[list(chosen)].all(axis=0) for chosen in parents])
        share, first, second = (
            _products(self.met, inside * moment[:, None])
            for moment in (self.base, self.base * self.z, self.base * self.z**2)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = first / share
            spread = np.sqrt(np.maximum(second / share - mean * mean, 0.0))
            error = spread / np.sqrt(self.rows * share)
        usable = allowed & (share > 0.0)
        return np.where(usable, share, 0.0), np.where(usable, mean - _ERRORS * error, 0.0), error

    def _best(
        self, parents: list[tuple[int, ...]], score: Array
    ) -> list[tuple[float, int, tuple[int, ...]]]:
        """The slices with the largest scores; the same rows in other words count once."""
        # Rounded, so that ties do not depend on the order of summation.
        order = np.argsort(-score.ravel().round(12), kind="stable")
        found: list[tuple[float, int, tuple[int, ...]]] = []
        seen: set[float] = set()
        for place in itertools.islice(order.tolist(), 6 * _BEAM):
            value = float(score.flat[place])
            key = round(value, 12)
            if value == -math.inf or len(found) == _BEAM:
                break
            if key not in seen:
                seen.add(key)
                parent, condition = divmod(place, score.shape[1])
                found.append((value, place, tuple(sorted((*parents[parent], condition)))))
        return found
