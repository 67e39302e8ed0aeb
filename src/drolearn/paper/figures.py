"""Figures from rows: means over the runs with their 95% intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drolearn._storage import replacing
from drolearn.paper.protocol import Artefact, Draws, Protocol
from drolearn.paper.rows import Rows, column, interval, seconds_to, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves", "growth", "save"]

Array = NDArray[np.float64]
_AXES = {"samples": "samples drawn", "seconds": "CPU seconds"}


def curves(protocol: Protocol, name: str, dataset: str, rows: Rows) -> Figure | None:
    """Test errors of a data set against samples or seconds, one panel for each radius.

    None if there are no rows.
    """
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    rows = select(rows, runs, dataset=dataset)
    if not rows:
        return None
    figure, panels = _panels(len(artefact.rho))
    for panel, rho in zip(panels, artefact.rho, strict=True):
        for method in artefact.methods:
            part = select(rows, runs, method=method, rho=rho)
            if part:
                _curve(panel, protocol, method, artefact, part)
        panel.set_xscale("log")
        panel.set_xlabel(_AXES[artefact.x])
        panel.set_title(f"{dataset}, ρ = {rho:g}")
        panel.grid(alpha=0.3)
        panel.set_ylim(bottom=0.0)
    panels[0].set_ylabel("share of test rows that are misclassified")
    panels[-1].legend(frameon=False)
    return figure


def _curve(panel: Axes, protocol: Protocol, method: str, artefact: Artefact, rows: Rows) -> None:
    """The test errors of a method: a band, or a point for methods evaluated only at the end."""
    settings = protocol.methods[method]
    style: dict[str, Any] = {"color": settings.colour, "label": settings.label}
    tracks = [(np.asarray(row[f"at_{artefact.x}"]), np.asarray(row["at_errors"])) for row in rows]
    if all(at.size == 1 for at, _ in tracks):
        at = interval(float(x[0]) for x, _ in tracks)
        error = interval(float(errors[0]) for _, errors in tracks)
        half = 0.0 if np.isnan(error.half) else error.half
        panel.errorbar([at.mean], [error.mean], [half], fmt="o", markersize=4, **style)
        return
    grid, errors = _on_a_grid(tracks)
    bands = [interval(column) for column in errors.T]
    mean = np.array([each.mean for each in bands])
    half = np.nan_to_num(np.array([each.half for each in bands]))
    line = "-" if isinstance(settings, Draws) else "--"
    panel.plot(grid, mean, line, linewidth=1.3, **style)
    panel.fill_between(grid, mean - half, mean + half, color=settings.colour, alpha=0.2, lw=0)


def _on_a_grid(tracks: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Errors of all runs at common points; each run keeps its error until the next evaluation."""
    first = max(float(x[x > 0.0][0]) for x, _ in tracks)
    last = float(np.median([x[-1] for x, _ in tracks]))
    grid = np.geomspace(first, max(last, 1.0001 * first), 120)
    resampled = [
        errors[np.clip(np.searchsorted(x, grid * (1.0 + 1e-12), "right") - 1, 0, None)]
        for x, errors in tracks
    ]
    return grid, np.array(resampled)


def growth(protocol: Protocol, name: str, rows: Rows) -> Figure | None:
    """CPU seconds to fixed test errors against the number of rows; None without rows."""
    artefact, runs = protocol.artefacts[name], protocol.runs(name)
    if not select(rows, runs):
        return None
    figure, panels = _panels(len(artefact.targets))
    for panel, target in zip(panels, artefact.targets, strict=True):
        for method in artefact.methods:
            settings = protocol.methods[method]
            sizes, means, halves, missed = [], [], [], []
            for size in artefact.sizes:
                part = select(rows, runs, method=method, n_train=size)
                times = [seconds_to(row, target) for row in part]
                if times and np.isfinite(times).all():
                    time = interval(times)
                    sizes.append(size)
                    means.append(time.mean)
                    halves.append(np.nan_to_num(time.half))
                elif times:
                    missed.append((size, float(np.mean(column(part, "seconds")))))
            low = np.minimum(halves, 0.9 * np.array(means)) if means else []
            panel.errorbar(
                sizes, means, [low, halves] if means else None, color=settings.colour,
                label=settings.label, marker="o", markersize=4, linewidth=1.3, capsize=2,
            )  # fmt: skip
            if missed:
                x, y = zip(*missed, strict=True)
                panel.plot(x, y, "^", color=settings.colour, markerfacecolor="none")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("training rows N")
        panel.set_title(f"to a test error of {100 * target:g}%")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("CPU seconds (△: not reached)")
    panels[-1].legend(frameon=False)
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.0 + 4.2 * count, 3.8), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, sharey=True)[0])


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a PNG and an SVG; the same figure always gives the same bytes."""
    import matplotlib

    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with matplotlib.rc_context({"svg.hashsalt": "drolearn"}):
        with replacing(paths[0]) as file:
            figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
        with replacing(paths[1]) as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
    return paths
