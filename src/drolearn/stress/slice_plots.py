"""Plots of sub-populations with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from drolearn.stress.palette import COLOURS
from drolearn.stress.plots import axes, label
from drolearn.stress.text import confidence

__all__ = ["plot_bracket", "plot_slices"]


def plot_bracket(report: Any, table: Any, ax: Any) -> Any:
    """How bad a sub-population of each share is: bounds from below and above, and estimates."""
    table = _known(table)
    ax = axes(ax, (6.4, 4.0))
    several = table["model"].nunique() > 1
    for k, (name, part) in enumerate(table.groupby("model", sort=False)):
        colour, before = COLOURS[k % len(COLOURS)], f"{name}: " if several else ""
        ax.fill_between(part["share"], part["low"], part["high"], color=colour, alpha=0.12, lw=0)
        found, rows = f"{before}worst sub-population found", f"{before}worst rows"
        ax.plot(part["share"], part["loss"], color=colour, marker="o", label=found)
        ax.plot(part["share"], part["cvar"], color=colour, linestyle="--", label=rows)
    ax.set_xscale("log")
    ax.invert_xaxis()
    shares = sorted(table["share"].unique())
    ax.set_xticks(shares, [f"{share:.0%}" for share in shares])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("share of the rows")
    ax.set_ylabel(label(report, table))
    ax.legend(edgecolor="none")
    ax.set_title(f"Bracket, each end at {confidence(report.level)}", fontsize="medium", loc="left")
    return ax


def plot_slices(report: Any, table: Any, ax: Any) -> Any:
    """Losses of sub-populations with their lower bounds, and of the other rows."""
    table = _known(table)
    texts = [f"{row.slice}  ({row.share:.0%})" for row in table.itertuples()]
    lines = [text.replace(" and ", "\nand ") for text in texts]
    ax = axes(ax, (7.0, 1.4 + 0.2 * sum(2 + line.count("\n") for line in lines)))
    models = list(dict.fromkeys(table["model"]))
    y = np.arange(len(table))
    for k, model in enumerate(models):
        chosen = (table["model"] == model).to_numpy()
        part, colour = table[chosen], COLOURS[k % len(COLOURS)]
        below = np.maximum(part["loss"] - part["low"], 0.0).fillna(0.0)
        ends = np.vstack([below, np.zeros(len(part))])
        ax.errorbar(
            part["loss"], y[chosen], xerr=ends, fmt="o", markersize=4, color=colour, label=model
        )
        ax.plot(part["others"], y[chosen], "|", color=colour, markersize=9)
    ax.set_yticks(y, lines)
    ax.invert_yaxis()
    ax.set_xlabel(f"{label(report, table)}; | all other rows")
    if len(models) > 1:
        ax.legend(edgecolor="none")
    ax.set_title(
        f"Sub-populations, {confidence(report.level)} lower bounds", fontsize="medium", loc="left"
    )
    return ax


def _known(table: Any) -> Any:
    if table.empty:
        raise ValueError(
            "There are no sub-populations to plot: pass over= to stress_test, with features that "
            "tell rows apart."
        )
    return table
