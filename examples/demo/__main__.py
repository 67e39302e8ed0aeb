"""Run the demo: `python -m examples.demo`."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console

PICTURE = "demo.png"


def demo(console: Console) -> None:
    """Run all parts, print their tables and write the picture."""
    start = time.perf_counter()
    with console.status("Loading libraries"):
        # Imported here, so that Ctrl-C has the same effect during these seconds.
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        from . import curve, methods, shift
    parts: tuple[Any, ...] = (shift, curve, methods)
    figure, panels = plt.subplots(1, len(parts), figsize=(16.5, 5.4), layout="constrained")
    for part, axes in zip(parts, panels, strict=True):
        console.rule(f"[bold]{part.TITLE}", align="left")
        console.print(part.intro() + "\n", highlight=False)
        result = part.compute(console)
        console.print(part.table(result))
        console.print("\n" + part.explain(result) + "\n", highlight=False)
        part.draw(axes, result)
        axes.set_title(part.PANEL, fontsize=12)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("Shaded areas and bars are 95% intervals over random splits.", fontsize=9)
    figure.savefig(PICTURE, dpi=130)
    seconds = time.perf_counter() - start
    console.print(f"Wrote the picture [bold]{PICTURE}[/bold]. The demo took {seconds:.0f} s.")


def main() -> None:
    """Run the demo; Ctrl-C ends it with one line."""
    console = Console(width=max(100, Console().width))
    try:
        demo(console)
    except KeyboardInterrupt:
        console.print("Stopped.")
        sys.exit(130)


if __name__ == "__main__":
    main()
