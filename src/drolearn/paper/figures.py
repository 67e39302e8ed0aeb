"""Figures from rows: means over the runs with bands of their 95% intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drolearn._storage import replacing
from drolearn.paper.protocol import Artefact, Draws, Protocol
from drolearn.paper.tables import Rows, column, interval, seconds_to, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves", "growth", "save"]

Array = NDArray[np.float64]
_AXES = {"samples": "samples drawn", "seconds": "CPU seconds"}


def curves(protocol: Protocol, name: str, dataset: str, rows: Rows) -> Figure | None:
    """Test errors of a data set against samples or seconds, one panel for each radius."""
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    rows = select(rows, runs, dataset=dataset)
    if not rows:
        return None
    figure, panels = _panels(len(artefact.rho))
    for panel, rho in zip(panels, artefact.rho, strict=True):
        for method in artefact.methods:
            own = select(rows, runs, method=method, rho=rho)
            if own:
                _curve(panel, protocol, method, artefact, own)
        panel.set_xscale("log")
        panel.set_xlabel(_AXES[artefact.x])
        panel.set_title(f"{dataset}, ρ = {rho:g}")
        panel.grid(alpha=0.3)
        panel.set_ylim(bottom=0.0)
    panels[0].set_ylabel("share of test rows that are misclassified")
    panels[-1].legend(frameon=False)
    return figure


def _curve(panel: Axes, protocol: Protocol, method: str, artefact: Artefact, rows: Rows) -> None:
    how = protocol.methods[method]
    style: dict[str, Any] = {"color": how.colour, "label": how.label}
    tracks = [(np.asarray(row[f"at_{artefact.x}"]), np.asarray(row["at_errors"])) for row in rows]
    if all(at.size == 1 for at, _ in tracks):
        at = interval(float(x[0]) for x, _ in tracks)
        error = interval(float(errors[0]) for _, errors in tracks)
        reach = 0.0 if np.isnan(error.half) else error.half
        panel.errorbar([at.mean], [error.mean], [reach], fmt="o", markersize=4, **style)
        return
    grid, errors = _on_a_grid(tracks)
    bands = [interval(column) for column in errors.T]
    middle = np.array([each.mean for each in bands])
    reach = np.nan_to_num(np.array([each.half for each in bands]))
    line = "-" if isinstance(how, Draws) else "--"
    panel.plot(grid, middle, line, linewidth=1.3, **style)
    panel.fill_between(grid, middle - reach, middle + reach, color=how.colour, alpha=0.2, lw=0)


def _on_a_grid(tracks: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Errors of all runs at common points: each keeps its last until the next look."""
    first = max(float(x[x > 0.0][0]) for x, _ in tracks)
    last = float(np.median([x[-1] for x, _ in tracks]))
    grid = np.geomspace(first, max(last, 1.0001 * first), 120)
    held = [
        errors[np.clip(np.searchsorted(x, grid * (1.0 + 1e-12), "right") - 1, 0, None)]
        for x, errors in tracks
    ]
    return grid, np.array(held)


def growth(protocol: Protocol, name: str, rows: Rows) -> Figure | None:
    """CPU seconds to fixed test errors against the number of rows."""
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    if not select(rows, runs):
        return None
    figure, panels = _panels(len(artefact.targets))
    for panel, target in zip(panels, artefact.targets, strict=True):
        for method in artefact.methods:
            how = protocol.methods[method]
            sizes, means, reaches, missed = [], [], [], []
            for size in artefact.sizes:
                own = select(rows, runs, method=method, n_train=size)
                times = [seconds_to(row, target) for row in own]
                if times and np.isfinite(times).all():
                    each = interval(times)
                    sizes.append(size)
                    means.append(each.mean)
                    reaches.append(np.nan_to_num(each.half))
                elif times:
                    missed.append((size, float(np.mean(column(own, "seconds")))))
            low = np.minimum(reaches, 0.9 * np.array(means)) if means else []
            panel.errorbar(
                sizes, means, [low, reaches] if means else None, color=how.colour, label=how.label,
                marker="o", markersize=4, linewidth=1.3, capsize=2,
            )  # fmt: skip
            if missed:
                x, y = zip(*missed, strict=True)
                panel.plot(x, y, "^", color=how.colour, markerfacecolor="none")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("training rows N")
        panel.set_title(f"to a test error of {100 * target:g}%")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("CPU seconds (△: not yet there)")
    panels[-1].legend(frameon=False)
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.0 + 4.2 * count, 3.8), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, sharey=True)[0])


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """A PNG and an SVG that do not change when nothing has changed."""
    import matplotlib

    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with matplotlib.rc_context({"svg.hashsalt": "drolearn"}):
        with replacing(paths[0]) as file:
            figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
        with replacing(paths[1]) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
    return paths
