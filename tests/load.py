"""Eight fits of different kinds, alone and in other threads and processes.

`python -m tests.load alone` prints what they find, as JSON; `fork 8`, `forkserver 8` and `spawn 8`
start as many processes of that kind; `memory 1000` makes a thousand fits and prints the resident
memory before and after.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from drolearn import RobustClassifier, RobustClassifierCV, RobustRegressor, worst_case

__all__ = ["COUNT", "fit"]


def _rows(n: int, d: int = 8) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + rng.standard_normal(n), np.arange(n) % 3


def _classifier(X: Any, t: Any, groups: Any = None, **settings: Any) -> Any:
    options: dict[str, Any] = {} if groups is None else {"groups": groups}
    model = RobustClassifier(**{"rho": 0.2, **settings})
    return model.fit(X, t > 0, **options)


def _sparse(X: Any) -> Any:
    return sp.csr_matrix(X * (abs(X) > 1.0))


_STOCHASTIC: dict[str, Any] = {"tol": None, "max_iter": 20, "random_state": 0, "l2": 1e-3}
_FITS: list[Callable[[Any, Any, Any], Any]] = [
    lambda X, t, g: _classifier(X, t, solver="newton", n_jobs=2),
    lambda X, t, g: _classifier(_sparse(X), t, solver="lbfgs", divergence="kl", rho=0.05),
    lambda X, t, g: _classifier(X, t, g, n_jobs=2),
    lambda X, t, g: _classifier(X, t, solver="gssg", **_STOCHASTIC),
    lambda X, t, g: _classifier(_sparse(X), t, solver="gssg-anchor", n_jobs=2, **_STOCHASTIC),
    lambda X, t, g: RobustRegressor(rho=0.5, divergence="hellinger").fit(X, t),
    lambda X, t, g: _classifier(X, t, divergence="total-variation", rho=0.05),
    lambda X, t, g: RobustClassifierCV(rhos=[0.0, 0.1], l2s=[1e-2], cv=2).fit(X, t > 0),
]
COUNT = len(_FITS)
_QUICK = 6  # the first ones take 2 ms, total variation 40 ms


def fit(k: int, n: int = 2000) -> str:
    """Make the k-th fit and a worst case; return a checksum of all bits that they find."""
    X, t, groups = _rows(n)
    model = _FITS[k](X, t, groups)
    losses = np.abs(model.predict(X) - t) + t**2
    found = (model.coef_, model.intercept_, model.robust_loss_, model.gap_)
    parts = (*found, worst_case(losses, 0.3, n_jobs=2).weights)
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest()


def _in_processes(method: str, workers: int) -> list[str]:
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["tests.load"])
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        return list(pool.map(fit, range(COUNT)))


def _resident(rows: int, fits: int) -> int:
    """Resident bytes after as many small fits."""
    for k in range(fits):
        fit(k % _QUICK, rows)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def main() -> None:
    """Print what the arguments ask for."""
    kind, *numbers = sys.argv[1:]
    if kind == "memory":
        fits = int(numbers[0])
        print(json.dumps([_resident(100, 300), _resident(100, fits)]))
        return
    alone = [fit(k) for k in range(COUNT)]
    if kind != "alone":  # also after fits in this process, whose threads a fork does not copy
        alone = [alone, _in_processes(kind, *map(int, numbers))]
    print(json.dumps(alone))


if __name__ == "__main__":
    main()
