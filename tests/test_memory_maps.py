"""Estimators on read-only memory maps: the rows are not copied."""

from __future__ import annotations

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
