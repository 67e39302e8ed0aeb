"""docs/benchmarks.md, made only from the committed results."""

from __future__ import annotations

import json

from benchmarks.machine import DOCS, RESULTS

HEADER = """# Benchmarks

Measured by `make bench`, which rewrites this page and `benchmarks/results/`. Each ratio comes
from one run in which both sides took turns, each after a warm-up outside the clock; times are
medians. Ratios carry over to other machines, times do not. The goal is the one this project has
set itself; a ✗ marks a goal that is missed.

"""
COMPARED = {
    "µs": "",
    "s": "",
    "drolearn": "times slower than drolearn",
    "one thread": "times faster than one thread",
}


def met(measured: float, goal: str) -> str:
    """Whether a goal such as '≤ 0.1' or '≥ 20 ×' is met; empty without a goal."""
    if not goal:
        return ""
    sign, number = goal.split()[:2]
    reached = measured >= float(number) if sign == "≥" else measured <= float(number)
    return "✓" if reached else "✗"


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
        "numpy.sort, on the same losses, uses vector instructions on this machine.\n\n",
        "| what | measured | | goal | | |\n|---|---:|---|---:|---|---|\n",
    ]
    for row in stored["rows"]:
        unit = row["against"] if row["against"] in ("µs", "s") else ""
        compared = COMPARED.get(row["against"], f"× {row['against']}")
        lines.append(
            f"| {row['what']} | {row['ratio']:.3g} {unit} | {compared} | {row['bar']} "
            f"| {met(row['ratio'], row['bar'])} | {row['note']} |\n"
        )
    (DOCS / "benchmarks.md").write_text("".join(lines), encoding="utf-8")
