"""The figure docs/scoreboard.png: every model on every data set, relative to the best baseline."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from benchmarks.scoreboard.rows import QUESTIONS, Rows, best_baseline, measure_of, models, ratio

__all__ = ["draw"]

_SHOWN = ("rare", "time", "unseen", "random")
_COLOURS = {-1: "#0072b2", 0: "#bbbbbb", 1: "#d55e00"}
_VERDICTS = {-1: "better", 0: "not told apart", 1: "worse"}


def draw(data: Rows, file: Path) -> None:
    """Plot one dot for each data set: the error relative to the best baseline's, in per cent."""
    names = [name for name in reversed(models(data)) if name != "boosting"]
    figure, axes = plt.subplots(
        1, len(_SHOWN), figsize=(13.0, 5.2), sharex=True, sharey=True, layout="constrained"
    )
    for axis, question in zip(axes, _SHOWN, strict=True):
        key = measure_of(question)
        for place, model in enumerate(names):
            for rows in data.values():
                base = best_baseline(rows, question, key)
                if base is None or base == model:
                    continue
                found = ratio(rows, question, model, base, key)
                if found is not None:
                    shift = 0.25 * np.sign(found.verdict)
                    axis.plot(found.mean, place - shift, "o", markersize=4.5, alpha=0.8,
                              color=_COLOURS[found.verdict])  # fmt: skip
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.set_xscale("symlog", linthresh=2.0, linscale=0.6)
        ticks = (-30, -10, -3, 0, 3, 10, 30, 100)
        axis.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks], fontsize=8)
        axis.set_title(QUESTIONS[question].short, fontsize=10)
        axis.grid(axis="y", linewidth=0.3)
    axes[0].set_yticks(range(len(names)), names)
    figure.supxlabel("error, per cent above (+) or below (−) the best baseline of the data set")
    dots = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=_VERDICTS[verdict])
        for verdict, colour in _COLOURS.items()
    ]
    figure.legend(handles=dots, loc="outside upper right", ncols=3, frameon=False)
    figure.savefig(file, dpi=110)
    plt.close(figure)
