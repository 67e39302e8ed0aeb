"""Groups of rows, by column and by combination: losses, and shares in the worst case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn.divergence import ChiSquare
from drolearn.shifts.mix import worst_mix
from drolearn.stress.balls import Ball, ball_of_share
from drolearn.stress.columns import Partition, as_partition, columns_of
from drolearn.stress.intervals import intervals
from drolearn.stress.worst_cases import Sample, solve_ball, worst_cases

__all__ = ["as_partitions", "group_rows"]


def as_partitions(groups: Any, n: int) -> list[Partition]:
    """The groups of each column, and of the combinations that occur if there are several."""
    if groups is None:
        return []
    columns = {
        name: np.asarray(values, dtype=object)
        for name, values in columns_of(groups, "group").items()
    }
    if not columns:
        raise ValueError("The 'groups' parameter must have at least one column. Got none instead.")
    for values in columns.values():
        if values.shape != (n,):
            raise ValueError(
                f"The 'groups' parameter must name the group of each of the {n} rows. "
                f"Got columns of {len(values)} rows instead."
            )
    found = [as_partition(name, values) for name, values in columns.items()]
    if len(found) == 1:
        return found
    every = np.column_stack([each.codes for each in found])
    present, codes = np.unique(every, axis=0, return_inverse=True)
    names = [tuple(each.names[k] for each, k in zip(found, row, strict=True)) for row in present]
    return [*found, Partition(", ".join(columns), names, codes.ravel())]


def group_rows(
    sample: Sample,
    used: NDArray[np.bool_] | slice,
    partitions: list[Partition],
    halves: Mapping[str, Ball],
    level: float,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """One row of the table for each divergence and group, the largest losses first.

    `used` are the rows of the sample: partitions are those of all rows.  Worst cases are those of
    the balls in `halves`, one for each divergence.
    """
    table: dict[str, list[dict[str, Any]]] = {name: [] for name in halves}
    cases = {name: solve_ball(ball, sample.z, sample.weights) for name, ball in halves.items()}
    for partition in partitions:
        present, codes = np.unique(partition.codes[used], return_inverse=True)
        groups = [
            {"column": partition.column, "group": partition.names[code], **rest}
            for code, rest in zip(
                present, _losses_of_groups(sample, codes, level, rng), strict=True
            )
        ]
        order = sorted(range(len(groups)), key=lambda k: -groups[k]["loss"])
        for name, ball in halves.items():
            shares = np.bincount(codes, cases[name].weights)
            rho = None if np.isnan(ball.rho) else ball.rho
            mix = worst_mix(sample.z, codes, rho, ball.divergence, sample.weights).weights
            worst = {"worst_share": shares.tolist(), "worst_mix": mix.tolist()}
            table[name] += [
                {"divergence": name, **groups[k], **{key: each[k] for key, each in worst.items()}}
                for k in order
            ]
    return [row for rows in table.values() for row in rows]


def _losses_of_groups(
    sample: Sample, codes: NDArray[np.int64], level: float, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Shares, losses and intervals of groups that are numbered from 0 on."""
    base, mean = sample.base, ball_of_share(ChiSquare(), 1.0)
    rows = []
    # Sorted once: a comparison of all rows with each of thousands of groups takes longer.
    ends_of_groups = np.cumsum(np.bincount(codes))[:-1]
    for inside in np.split(np.argsort(codes, kind="stable"), ends_of_groups):
        part = sample.part(inside)
        found = worst_cases(part, [mean])
        ends = intervals(part, [mean], found, level, rng)
        rows.append(
            {
                "rows": inside.size,
                "share": float(base[inside].sum()),
                "loss": float(found.value[0]),
                "low": float(ends.low[0]),
                "high": float(ends.high[0]),
                "error": float(found.wrong[0]),
                "method": ends.method[0],
                "note": ends.note[0],
            }
        )
    return rows
