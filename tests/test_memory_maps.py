"""Estimators on read-only memory maps: the rows are not copied."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import RobustClassifier


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 50))
    return X, np.where(X[:, 0] + rng.standard_normal(40_000) > 0.0, 1, 0)


def saved(folder, name, array):
    """The array as a read-only memory map."""
    np.save(folder / f"{name}.npy", array)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


def peak(X, y, solver):
    """The most memory that a fit allocates, in numbers of 8 bytes for each row; and the model."""
    clf = RobustClassifier(rho=0.1, solver=solver, max_iter=10, tol=1e-3, random_state=0)
    tracemalloc.start()
    try:
        clf.fit(X, y)
        return tracemalloc.get_traced_memory()[1] / (8 * y.size), clf
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("solver", ["lbfgs", "gssg"])
def test_memory_maps_are_not_copied(rows, tmp_path, solver, kind, dtype):
    """A fit needs fewer numbers for each row than a copy of its 50 columns would."""
    X, y = rows
    if kind == "dense":
        given = X = X.astype(dtype)
        mapped = saved(tmp_path, "X", X)
    else:
        given = sp.csr_matrix(X.astype(dtype))
        parts = {part: getattr(given, part) for part in ("data", "indices", "indptr")}
        maps = [saved(tmp_path, name, array) for name, array in parts.items()]
        mapped = sp.csr_matrix(tuple(maps), shape=given.shape)
        assert not mapped.data.flags.writeable
    numbers, clf = peak(mapped, y, solver)
    copy = 50 * np.dtype(dtype).itemsize / 8
    assert numbers < 0.8 * copy
    assert clf.coef_.tobytes() == peak(given, y, solver)[1].coef_.tobytes()


# Fits rows in the current folder, and prints by how many bytes its anonymous memory has grown.
PROGRAM = """
import sys, threading, time
import numpy as np, scipy.sparse as sp
from drolearn import RobustClassifier

def anonymous():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))

kind, solver = sys.argv[1:]
parts = [np.load(f"{name}.npy", mmap_mode="r") for name in ("X", "data", "indices", "indptr")]
y = np.load("y.npy")
X = parts[0] if kind == "dense" else sp.csr_matrix(tuple(parts[1:]), shape=parts[0].shape)
clf = RobustClassifier(rho=0.1, solver=solver, max_iter=1, tol=None, l2=1e-3, random_state=0)
clf.fit(X[:100].copy(), np.arange(100) % 2)
start = most = anonymous()
done = threading.Event()

def watch():
    global most
    while not done.wait(0.002):
        most = max(most, anonymous())

thread = threading.Thread(target=watch)
thread.start()
clf.fit(X, y)
done.set()
thread.join()
print(max(most, anonymous()) - start)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_anonymous_memory_of_a_fit_is_a_fraction_of_the_file(tmp_path):
    """As the system counts it, with all that the core allocates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_000, 200), dtype=np.float32)
    y = (X[:, 0] + rng.standard_normal(100_000) > 0.0).astype(np.int64)
    csr = sp.csr_matrix(X)
    arrays = {"X": X, "y": y, "data": csr.data, "indices": csr.indices, "indptr": csr.indptr}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    for kind, solver in (("dense", "lbfgs"), ("csr", "lbfgs"), ("dense", "gssg")):
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, kind, solver]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert int(done.stdout) < 0.4 * X.nbytes, (kind, solver)
