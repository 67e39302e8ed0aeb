"""Plots of stress reports with matplotlib; colours are those of the report for the browser."""

from __future__ import annotations

from typing import Any

import numpy as np

from drolearn.stress.palette import COLOURS
from drolearn.stress.text import confidence, group_name, percent

__all__ = ["axes", "label", "plot_curve", "plot_groups"]

# More groups would not be legible.
_MOST_GROUPS = 40
# Shares at which a curve has ticks.
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)


def axes(ax: Any, size: tuple[float, float]) -> Any:
    """The axes that were given, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(
            "Plots need matplotlib. Install it with pip install 'drolearn[stress]'."
        ) from None
    ax = plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#e3e3e3", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax


def label(report: Any, table: Any) -> str:
    """The name of the losses of a table."""
    return f"{'regret' if report.regret else 'loss'}, {table['loss_name'].iloc[0]}"


def plot_curve(report: Any, table: Any, ax: Any) -> Any:
    """Robust losses with intervals; ticks show the radius and the share that a ball covers."""
    ax = axes(ax, (6.4, 4.0))
    by_share = table["rho"].isna().all()
    used = len(ax.get_lines())  # lines of other reports in the same axes keep their colours
    for k, (name, curve) in enumerate(table.groupby("model", sort=False)):
        curve = curve[np.isfinite(curve["share" if by_share else "rho"])]
        place = curve["share" if by_share else "rho"]
        colour = COLOURS[(used + k) % len(COLOURS)]
        style = "-" if used + k < len(COLOURS) else "--"
        ax.plot(place, curve["loss"], style, color=colour, linewidth=1.8, label=str(name))
        ends = curve[["low", "high"]].replace([np.inf, -np.inf], np.nan)
        ax.fill_between(place, ends["low"], ends["high"], color=colour, alpha=0.15, linewidth=0)
    if by_share:
        ax.set_xscale("log")
        if not ax.xaxis_inverted():
            ax.invert_xaxis()
        ax.set_xlabel("share of the rows")
    else:
        ax.set_xlabel("radius ρ, and the share of which the ball holds every subset")
        if table["divergence"].iloc[0] == "chi2":
            # log(1 + ρ) is minus the logarithm of the share: small and large balls are legible.
            ax.set_xscale("function", functions=(np.log1p, np.expm1))
    _share_ticks(ax, table, by_share)
    ax.set_ylabel(label(report, table))
    if used or table["model"].nunique() > 1:
        ax.legend(edgecolor="none")
    ax.set_title(
        f"Worst case in {table['divergence'].iloc[0]} balls, {confidence(report.level)} intervals",
        fontsize="medium", loc="left",
    )  # fmt: skip
    return ax


def _share_ticks(ax: Any, table: Any, by_share: bool) -> None:
    """Ticks at round shares, unless the curve has other radii; those too close are left out."""
    transform = ax.get_xaxis().get_transform()
    reach = float(np.ptp(transform.transform(np.asarray(ax.get_xlim(), dtype=float))))
    curve, places, names = table.dropna(subset=["share"]), [], []
    for share in _SHARES if len(curve) else ():
        row = curve.loc[(curve["share"] - share).abs().idxmin()]
        if abs(row["share"] - share) > 0.02 * share:
            continue
        x = float(row["share"] if by_share else row["rho"])
        if places and abs(np.diff(transform.transform(np.array([x, places[-1]])))) < 0.08 * reach:
            continue
        places.append(x)
        names.append(percent(share) if by_share else f"{x:.3g}\n{percent(share)}")
    if len(places) > 2:
        ax.set_xticks(places, names)
        ax.set_xticks([], minor=True)


def plot_groups(report: Any, table: Any, ax: Any) -> Any:
    """Mean losses of groups with intervals, one line for each."""
    if table.empty:
        raise ValueError("There are no groups to plot: pass groups= to stress_test.")
    models = list(dict.fromkeys(table["model"]))
    first = table[table["model"] == models[0]].head(_MOST_GROUPS)
    names = list(zip(first["column"], first["group"], strict=True))
    ax = axes(ax, (6.4, 1.2 + 0.28 * len(names)))
    for k, model in enumerate(models):
        part = table[table["model"] == model].set_index(["column", "group"])
        shown = [part.loc[[name]].iloc[0] for name in names]
        y = np.arange(len(names)) + 0.7 * (k - 0.5 * (len(models) - 1)) / len(models)
        loss = np.array([row["loss"] for row in shown])
        ends = np.array([[row["loss"] - row["low"], row["high"] - row["loss"]] for row in shown])
        ends = np.where(np.isfinite(ends), ends, 0.0)
        ax.errorbar(
            loss, y, xerr=ends.T, fmt="o", markersize=4.5, elinewidth=1.6, label=model,
            color=COLOURS[k % len(COLOURS)],
        )  # fmt: skip
        share = part["share"].groupby(level=0, sort=False).first().index[0]
        whole = part.xs(share, level=0)
        mean = float((whole["share"] * whole["loss"]).sum())
        ax.axvline(mean, color=COLOURS[k % len(COLOURS)], linewidth=1.0, linestyle=":")
    ax.set_yticks(
        np.arange(len(names)), [f"{column}: {group_name(name)}" for column, name in names]
    )
    ax.invert_yaxis()
    ax.set_xlabel(label(report, table))
    if len(models) > 1:
        ax.legend(edgecolor="none")
    left = len(table[table["model"] == models[0]]) - len(names)
    more = f", {left} more groups not shown" if left else ""
    ax.set_title(
        f"Groups with {confidence(report.level)} intervals, dotted: mean{more}",
        fontsize="medium",
        loc="left",
    )
    return ax
