"""How fast Ctrl-C ends a call: seconds from the signal to the exception."""

from __future__ import annotations

import numpy as np
from tests.interrupted import waits

from benchmarks.machine import save
from benchmarks.worst_case import Row, row

CALLS = {"worst-case": "worst_case", "exact": "exact fits", "stochastic": "stochastic fits"}


def main() -> None:
    """Send 200 signals to each type of call and write results/interrupts.json."""
    rows: list[Row] = []
    for call, label in CALLS.items():
        waited, ending = waits(call, 200)
        if len(waited) < 200:
            raise RuntimeError(ending)
        note = f"median {np.median(waited):.3f} s; 200 signals, one and two threads"
        rows.append(row(f"Ctrl-C in {label}: longest wait", "s", max(waited), "≤ 0.2", note, ""))
    save("interrupts", rows)
