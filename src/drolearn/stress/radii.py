"""How large a radius is: the changes of the mix of groups that a ball of this radius holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn.divergence import CVaR, Divergence
from drolearn.shifts.mix import radius_of
from drolearn.stress.balls import Ball, as_balls
from drolearn.stress.groups import Partition
from drolearn.stress.text import group_name, percent

__all__ = ["named_changes"]

# The groups with the largest shares: a table of hundreds of changes would help nobody.
_MOST_GROUPS = 6


def named_changes(
    divergences: Mapping[str, Divergence],
    partitions: list[Partition],
    used: NDArray[np.bool_] | slice,
    weights: NDArray[np.float64] | None,
) -> list[dict[str, Any]]:
    """One row for each divergence and change: the share of a group doubles, halves, becomes half.

    These are the groups of single columns, not of combinations.
    """
    table = []
    columns = partitions[:-1] if len(partitions) > 1 else partitions
    for partition in columns:
        mass = None if weights is None else weights[used]
        shares = np.bincount(partition.codes[used], mass, minlength=len(partition.names))
        shares = shares / shares.sum()
        present = np.flatnonzero(shares)
        for k in np.argsort(-shares, kind="stable")[:_MOST_GROUPS].tolist():
            share = float(shares[k])
            for change, after in _changes(share).items():
                if change == "becomes half" and present.size == 2 and share > 0.5:
                    continue  # the same as that of the other group
                radii = radius_of(present, {k: after}, shares[present])
                for name, divergence in divergences.items():
                    if isinstance(divergence, CVaR):
                        ball = Ball(divergence, np.nan, radii.cvar_level)
                    else:
                        rho = divergence.between(radii.mix, radii.shares)
                        [ball] = as_balls(divergence, [rho])
                    table.append(
                        {
                            "divergence": name,
                            "column": partition.column,
                            "group": partition.names[k],
                            "share": share,
                            "change": change,
                            "changed_to": after,
                            "rho": ball.rho,
                            "covers": ball.share,
                            "meaning": _sentence(partition, k, share, change, after),
                        }
                    )
    place = {name: k for k, name in enumerate(divergences)}

    def size(row: dict[str, Any]) -> tuple[int, float]:
        rho = row["rho"]
        return place[row["divergence"]], -row["covers"] if np.isnan(rho) else rho

    return sorted(table, key=size)


def _changes(share: float) -> dict[str, float]:
    """The shares after changes that are possible for a group of this share."""
    if not 0.0 < share < 1.0:  # the only group, or one without weight
        return {}
    changes = {"halves": 0.5 * share}
    if share <= 0.5:
        changes["doubles"] = 2.0 * share
    if all(abs(0.5 - other) > 1e-9 for other in (share, *changes.values())):
        changes["becomes half"] = 0.5
    return changes


def _sentence(partition: Partition, k: int, share: float, change: str, after: float) -> str:
    return (
        f"{partition.column}: the share of {group_name(partition.names[k])} {change}, "
        f"from {percent(share)} to {percent(after)}"
    )
