"""Run the benchmarks and write the documentation pages made from their results.

python -m benchmarks                    # everything
python -m benchmarks worst_case profile # some parts
"""

import sys

from benchmarks import (
    against_dro,
    boosting,
    command_line,
    coverage,
    criterion,
    dask,
    domains,
    estimators,
    growth,
    interrupts,
    memory_maps,
    networks,
    peers,
    profile,
    regret,
    report,
    rounds,
    scaling,
    shifts,
    slices,
    sparse_l1,
    spectral,
    streams,
    stress,
    taming,
    training,
    trimming,
    worst_case,
)

PARTS = {
    "worst_case": worst_case,
    "interrupts": interrupts,
    "command_line": command_line,
    "training": training,
    "estimators": estimators,
    "criterion": criterion,
    "networks": networks,
    "against_dro": against_dro,
    "peers": peers,
    "growth": growth,
    "profile": profile,
    "taming": taming,
    "shifts": shifts,
    "stress": stress,
    "coverage": coverage,
    "slices": slices,
    "regret": regret,
    "domains": domains,
    "dask": dask,
    "boosting": boosting,
    "memory_maps": memory_maps,
    "streams": streams,
    "spectral": spectral,
    "sparse_l1": sparse_l1,
    "trimming": trimming,
    "scaling": scaling,
    "rounds": rounds,
}
names = sys.argv[1:] or list(PARTS)
unknown = [name for name in names if name not in PARTS]
if unknown:
    raise SystemExit(f"No benchmark is called {unknown[0]!r}. Use some of {', '.join(PARTS)}.")
for name in names:
    PARTS[name].main()
report.main()
