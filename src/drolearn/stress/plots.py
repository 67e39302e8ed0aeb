"""Plots of stress reports with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["plot_curve", "plot_groups"]

# Colours of Okabe and Ito, which colour-blind people can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# More groups would not be legible.
_MOST_GROUPS = 40


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(
            "Plots need matplotlib. Install it with pip install 'drolearn[stress]'."
        ) from None
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def _label(report: Any) -> str:
    return f"regret, {report.loss}" if report.regret else f"loss, {report.loss}"


def plot_curve(report: Any, ax: Any) -> Any:
    """Robust losses with intervals; the upper axis shows the share that a ball covers."""
    ax = _axes(ax, (6.4, 4.0))
    by_share = report.curve["rho"].isna().all()
    for k, (name, curve) in enumerate(report.curve.groupby("model", sort=False)):
        place = curve["share"] if by_share else curve["rho"]
        colour = _COLOURS[k % len(_COLOURS)]
        ax.plot(place, curve["loss"], color=colour, label=str(name))
        ends = curve[["low", "high"]].replace([np.inf, -np.inf], np.nan)
        ax.fill_between(place, ends["low"], ends["high"], color=colour, alpha=0.18, linewidth=0)
    if by_share:
        ax.set_xscale("log")
        ax.invert_xaxis()
        ax.set_xlabel("share of the rows")
    else:
        positive = report.curve["rho"][report.curve["rho"] > 0.0]
        if not positive.empty:
            ax.set_xscale("symlog", linthresh=max(float(positive.min()), 1e-3))
        ax.set_xlabel("radius ρ")
    ax.set_ylabel(_label(report))
    if report.curve["model"].nunique() > 1:
        ax.legend(frameon=False)
    ax.set_title(f"Worst case with {report.level:.0%} intervals", fontsize="medium")
    return ax


def plot_groups(report: Any, ax: Any) -> Any:
    """Mean losses of groups with intervals, one line for each."""
    table = report.groups
    if table.empty:
        raise ValueError("There are no groups to plot: pass groups= to stress_test.")
    models = list(dict.fromkeys(table["model"]))
    first = table[table["model"] == models[0]].head(_MOST_GROUPS)
    names = list(zip(first["column"], first["group"], strict=True))
    ax = _axes(ax, (6.4, 1.2 + 0.28 * len(names)))
    for k, model in enumerate(models):
        part = table[table["model"] == model].set_index(["column", "group"])
        shown = [part.loc[[name]].iloc[0] for name in names]
        y = np.arange(len(names)) + 0.7 * (k - 0.5 * (len(models) - 1)) / len(models)
        loss = np.array([row["loss"] for row in shown])
        ends = np.array([[row["loss"] - row["low"], row["high"] - row["loss"]] for row in shown])
        ends = np.where(np.isfinite(ends), ends, 0.0)
        ax.errorbar(
            loss, y, xerr=ends.T, fmt="o", markersize=4, capsize=2, label=model,
            color=_COLOURS[k % len(_COLOURS)],
        )  # fmt: skip
    ax.set_yticks(np.arange(len(names)), [f"{column}: {_text(name)}" for column, name in names])
    ax.invert_yaxis()
    ax.set_xlabel(_label(report))
    if len(models) > 1:
        ax.legend(frameon=False)
    left = len(table[table["model"] == models[0]]) - len(names)
    more = f", {left} more groups not shown" if left else ""
    ax.set_title(f"Groups with {report.level:.0%} intervals{more}", fontsize="medium")
    return ax


def _text(name: Any) -> str:
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
