"""Rows of runs: selections, means with intervals, and times to a test error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drolearn import datasets
from drolearn.paper.protocol import Protocol, Run

Rows = Sequence[dict[str, Any]]

__all__ = [
    "Interval",
    "Results",
    "Rows",
    "column",
    "error_at_tenth",
    "errors_at",
    "interval",
    "percent",
    "seconds_to",
    "select",
    "settling_time",
]


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95% interval, which is NaN for a single run."""

    mean: float
    half: float
    runs: int = 0

    def overlaps(self, other: Interval, rounding: float = 0.0) -> bool:
        """Whether the intervals overlap; `rounding` is the unit of the last printed digit.

        With rounding 0.1, a printed 5.9 ± 0.1 may have been anything from 5.75 to 6.1.
        """
        reach = np.nan_to_num(self.half) + np.nan_to_num(other.half) + rounding
        return bool(abs(self.mean - other.mean) <= reach + 1e-9)

    def text(self, form: str | None = ".1f") -> str:
        """Mean ± half-width; if `form` is None with two digits, or as an integer from 100 on."""
        mean, half = (_brief(x) if form is None else f"{x:{form}}" for x in (self.mean, self.half))
        return mean if math.isnan(self.half) else f"{mean} ± {half}"


def _brief(x: float) -> str:
    return f"{x:.0f}" if abs(x) >= 99.5 else f"{x:.2g}"


def interval(values: Iterable[float]) -> Interval:
    """Student's 95% interval of the mean.

    Examples
    --------
    >>> from drolearn.paper.rows import interval
    >>> interval([5.0, 6.0, 7.0]).text()
    '6.0 ± 2.5'
    """
    from scipy.stats import t as student

    numbers = np.asarray(list(values), dtype=np.float64)
    if numbers.size < 2:
        return Interval(float(numbers.mean()), math.nan, numbers.size)
    half = student.ppf(0.975, numbers.size - 1) * numbers.std(ddof=1) / math.sqrt(numbers.size)
    return Interval(float(numbers.mean()), float(half), numbers.size)


def percent(shares: Iterable[float]) -> Interval:
    """The interval of shares, in percent."""
    return interval(100.0 * share for share in shares)


def select(rows: Rows, runs: Sequence[Run], **values: Any) -> Rows:
    """The rows of some runs whose columns have these values."""
    keys = {run.key for run in runs}
    return [row for row in rows if row["key"] in keys and _has(row, values)]


def _has(row: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether a row has these values."""
    return all(row[name] == value for name, value in values.items())


def seconds_to(row: dict[str, Any], target: float) -> float:
    """CPU seconds until two evaluations in a row had a test error ≤ `target`, or infinity.

    A single evaluation may be low by chance, in particular if the iterates are noisy.
    """
    below = np.asarray(row["at_errors"]) <= target
    reached = np.flatnonzero(below[1:] & below[:-1])
    return float(np.asarray(row["at_seconds"])[reached[0] + 1]) if reached.size else math.inf


def column(rows: Rows, name: str) -> list[float]:
    """One value of every row."""
    return [row[name] for row in rows]


class Results:
    """The rows of a protocol, by artefact."""

    def __init__(self, protocol: Protocol, rows: Rows) -> None:
        self.protocol, self.rows = protocol, rows
        self._by_artefact: dict[str, Rows] = {}

    def of(self, artefact: str, **values: Any) -> Rows:
        """Rows of an artefact with these values; none if the protocol does not have it."""
        if artefact not in self.protocol.artefacts:
            return []
        if artefact not in self._by_artefact:
            self._by_artefact[artefact] = select(self.rows, self.protocol.runs(artefact))
        return [row for row in self._by_artefact[artefact] if _has(row, values)]

    def by_method(self, artefact: str, methods: Iterable[str], **values: Any) -> dict[str, Rows]:
        """Rows of these methods; methods without rows are left out."""
        parts = {method: self.of(artefact, method=method, **values) for method in methods}
        return {method: rows for method, rows in parts.items() if rows}

    def label(self, method: str) -> str:
        """Name of a method in tables and figures."""
        return self.protocol.methods[method].label

    def datasets(self, artefact: str) -> list[str]:
        """Data sets with rows, the smallest first."""
        names = {row["dataset"] for row in self.of(artefact)}
        return sorted(names, key=lambda name: datasets.CATALOGUE[name].n)


def errors_at(rows: Rows, samples: float) -> Interval | None:
    """Test errors in percent after so many samples; None before the first evaluation."""
    errors = []
    for row in rows:
        at = np.searchsorted(np.asarray(row["at_samples"]), samples * 1.001, "right") - 1
        if at < 0:
            return None
        errors.append(np.asarray(row["at_errors"])[at])
    return percent(errors)


def settling_time(row: dict[str, Any], slack: float = 0.005) -> float:
    """CPU seconds after which the test error stays within half a point of the last one."""
    errors = np.asarray(row["at_errors"])
    outside = np.flatnonzero(errors > errors[-1] + slack)
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    return float(np.asarray(row["at_seconds"])[first])


def error_at_tenth(row: dict[str, Any]) -> float:
    """The error at a tenth of the samples."""
    at = np.asarray(row["at_samples"])
    return float(np.asarray(row["at_errors"])[np.searchsorted(at, at[-1] / 10.0)])
