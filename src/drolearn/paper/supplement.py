"""What stands below the claims: the methods of this library, and the versions of the rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from drolearn._solvers.ending import Ending
from drolearn.paper.rows import Results, column, percent
from drolearn.paper.tables import Table

__all__ = ["methods_of_the_library", "versions"]


def methods_of_the_library(results: Results) -> str:
    """The methods as printed beside the same methods of this library; "" without rows."""
    table = Table(
        "ρ = 0.1: test error in percent, robust loss on the training rows minus the exact minimum, "
        "and CPU seconds; means of the runs",
        ["data set", "method", "test error", "above the minimum", "CPU seconds"],
    )
    methods = ("gssg", "gssg_library", "pssg", "pssg_library", "exact", "estimator")
    worse = []
    for dataset in results.datasets("library"):
        by_method = results.by_method("library", methods, dataset=dataset)
        least = {
            row["seed"]: row["robust_loss"]
            for row in by_method.get("exact", ())
            if row["ending"] == Ending.CONVERGED.value
        }
        errors = {m: percent(column(rows, "test_error")) for m, rows in by_method.items()}
        for method, rows in by_method.items():
            known = [row for row in rows if row["seed"] in least and method != "estimator"]
            above = [row["robust_loss"] - least[row["seed"]] for row in known]
            shown = f"{np.mean(above):.2g}" if above else "–"
            seconds = f"{np.mean(column(rows, 'seconds')):.2g}"
            cells = [errors[method].text(".2f"), shown, seconds]
            table.rows.append([dataset, results.label(method), *cells])
        endings = {row["ending"] for row in by_method.get("exact", ())}
        if endings == {Ending.SEPARABLE.value} and {"gssg", "gssg_library"} <= errors.keys():
            printed, ours = errors["gssg"], errors["gssg_library"]
            if ours.mean > printed.mean and not ours.overlaps(printed):
                worse.append(dataset)
    if not table.rows:
        return ""
    parts = [
        "## The methods as printed, and as this library has them",
        "GSSG and PSSG above follow the paper: last iterates, no taming, its step sizes. "
        '`solve(solver="gssg")` and `solve(solver="pssg")` choose step sizes from the data and '
        "draw at least 64 rows; GSSG also tames its corrections and averages its iterates "
        "([how](training.md)). They draw as many rows in all. `RobustClassifier(rho)` has a "
        "penalty and an intercept, so its minimum is another one. A – also means that the exact "
        "solver found no minimum: the training rows can be separated, or it reached its limit of "
        "iterations.",
        table.markdown(),
    ]
    if worse:
        parts.append(
            f"On {' and '.join(worse)} the rows can be separated, and without a penalty a model "
            f"depends on the steps that led to it: those of this library, in scaled coordinates, "
            f"lead to a higher test error. Set `l2`; estimators have a penalty by default.\n"
        )
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def versions(results: Results) -> str:
    """Which code and which machine made the rows of this page."""
    artefacts = list(results.protocol.artefacts)
    used = {row["key"]: row for name in artefacts for row in results.of(name)}
    made: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in used.values():
        of = json.loads(row["versions"])
        key = (row.get("revision") or "not recorded", of["drolearn"], of["numpy"],
               of["scipy"], of["scikit-learn"], row["cpu"])  # fmt: skip
        made.setdefault(key, []).append(row)
    if not made:
        return ""
    table = Table(
        "Rows by the code and the processor that made them",
        ["commit", "drolearn", "numpy", "scipy", "scikit-learn", "processor", "rows", "of"],
    )
    for key, rows in sorted(made.items()):
        keys = {row["key"] for row in rows}
        parts = [
            f"{name} ({', '.join(sorted({row['dataset'] for row in mine}))})"
            for name in artefacts
            if (mine := [row for row in results.of(name) if row["key"] in keys])
        ]
        table.rows.append([*key, str(len(rows)), "; ".join(parts)])
    if any(not row.get("revision") for row in used.values()):
        table.notes.append("Rows without a commit are older than the C++ core.")
    return f"## Versions\n\n{table.markdown()}"
