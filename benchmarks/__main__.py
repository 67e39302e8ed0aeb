"""Measure, then write the page: all of it, or the parts that are named."""

import sys

from benchmarks import (
    against_dro,
    criterion,
    estimators,
    interrupts,
    networks,
    profile,
    report,
    taming,
    training,
    worst_case,
)

PARTS = {
    "worst_case": worst_case,
    "interrupts": interrupts,
    "training": training,
    "estimators": estimators,
    "criterion": criterion,
    "networks": networks,
    "against_dro": against_dro,
    "profile": profile,
    "taming": taming,
}
for name in sys.argv[1:] or PARTS:
    PARTS[name].main()
report.main()
