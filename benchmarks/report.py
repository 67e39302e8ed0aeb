"""docs/benchmarks.md, made only from the committed results."""

from __future__ import annotations

import json

from benchmarks.machine import DOCS, RESULTS

HEADER = """# Benchmarks

Measured by `make bench`, which rewrites this page and `benchmarks/results/`. Each ratio comes
from one run in which both sides took turns, after a warm-up outside the clock; times are
medians. Ratios carry over to other machines, times do not.

"""


def main() -> None:
    """Write the page."""
    stored = json.loads((RESULTS / "worst_case.json").read_text(encoding="utf-8"))
    machine = stored["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        HEADER,
        "## The worst case of losses\n\n",
        f"{machine['cpu']}, {machine['processors']} processors, Python {machine['python']}, ",
        f"{versions}.\n\n",
        "A ratio to `numpy.sort` is the time of this library over the time of sorting the same\n",
        "losses (numpy sorts with vector instructions on this machine); a row against `drolearn`\n",
        "or `one thread` says how many times faster drolearn, or two threads, are.\n\n",
        "| what | against | measured | asked | |\n|---|---|---:|---:|---|\n",
    ]
    for row in stored["rows"]:
        lines.append(
            f"| {row['what']} | {row['against']} | {row['ratio']:.3g} | {row['bar']} "
            f"| {row['note']} |\n"
        )
    (DOCS / "benchmarks.md").write_text("".join(lines), encoding="utf-8")
