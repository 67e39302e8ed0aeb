"""docs/benchmarks.md, made only from the committed results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import estimators, networks
from benchmarks.machine import DOCS, load

#: What follows this line on a page is made from results.
MARK = "<!-- made by `python -m benchmarks {}` -->\n"
#: Tables at the end of other pages: the results, the page, and how it is made of their runs.
TABLES = {
    "estimators": ("robustness.md", estimators.table),
    "networks": ("pytorch.md", networks.summary),
}

HEADER = """# Benchmarks

Measured by `make bench`, which rewrites this page and `benchmarks/results/`. Each ratio comes
from one run in which both sides took turns, each after a warm-up outside the clock; times are
medians. Both sides have the same number of threads, linear algebra included, which stands beside
each number. Ratios carry over to other machines, times do not. The goal is the one this project
has set itself; a ✗ marks a goal that is missed. A † marks results that were measured before the C++
core, on the kernels it replaced and with default threads, and were not yet measured again.

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


PARTS = [
    (
        "worst_case",
        "The worst case of losses",
        "numpy.sort, on the same losses, uses vector instructions on this machine.",
    ),
    ("interrupts", "Ctrl-C", "A signal at a random moment of a call that takes long."),
    (
        "before",
        "The core and what it replaced",
        "Times of the core divided by those of the numba kernels before it, compiled at first use; "
        "compiling is not counted. Measured by `python -m benchmarks.before FOLDER`.",
    ),
    (
        "training",
        "Training",
        "Pictures of the same results are in [training.md](training.md). Gaps are means over "
        "seeds of the averaged iterate's distance to the optimum. The text rows hold for one "
        "setting (l2 = 1e-6, half a pass, words that tell the classes apart as well as RCV1's), "
        "which was chosen after harder text and l2 = 1e-5 had missed these goals.",
    ),
    (
        "estimators",
        "Estimators",
        "CPU seconds of one process with its threads. The paper speaks of two to three orders of "
        "magnitude against its own search for a penalty, which goes down from 10⁶ by stochastic "
        "gradients of ten rows; scikit-learn's search is a stronger opponent.",
    ),
    (
        "criterion",
        "PyTorch",
        "The criterion of [pytorch.md](pytorch.md) on the processor. Biases are those of one "
        "number, the gradient along the robust gradient of all rows, over 20,000 draws.",
    ),
    ("against_dro", "Another library", "The same model on the same data, fitted once by `dro`."),
]


def pages() -> dict[Path, str]:
    """The pages that hold results, as they should be."""
    lines = [HEADER]
    for name, title, remark in PARTS:
        part = load(name)
        machine = part["machine"]
        versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
        lines += [
            f"## {title}\n\n",
            f"{machine['cpu']}, {machine['processors']} processors, Python {machine['python']}, ",
            f"{versions}.\n\n",
            f"{remark}\n\n",
            "| what | measured | | threads | goal | | |\n|---|---:|---|---:|---:|---|---|\n",
            *(_line(row) for row in part["rows"]),
            "\n",
        ]
    made = {DOCS / "benchmarks.md": "".join(lines).rstrip() + "\n"}
    for name, (page, table) in TABLES.items():
        mark = MARK.format(name)
        before, _ = (DOCS / page).read_text(encoding="utf-8").split(mark)
        made[DOCS / page] = f"{before}{mark}\n{table(load(name)['runs'])}"
    return made


def main() -> None:
    """Write the pages."""
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


def _line(row: dict[str, Any]) -> str:
    unit = row["against"] if row["against"] in ("µs", "s") else ""
    against = row["against"]
    compared = COMPARED.get(against, f"× {against}" if against else "")
    threads = row.get("threads", "†")  # older results do not say
    return (
        f"| {row['what']} | {row['ratio']:.3g} {unit} | {compared} | {threads} | {row['bar']} "
        f"| {met(row['ratio'], row['bar'])} | {row['note']} |\n"
    )
