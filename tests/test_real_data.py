"""Losses of a linear model on real data, where it can be found."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from drolearn import worst_case
from tests.examples import ALL, CUSTOM_BENT

FOLDER = os.environ.get("DROLEARN_DATA")
FILES = sorted(Path(FOLDER).glob("*.npz")) if FOLDER else []


def logistic_losses(path: Path) -> np.ndarray:
    """Losses of the difference of the class means as a linear model, on raw features."""
    with np.load(path) as stored:
        if str(stored["format"]) == "csr":
            parts = (stored["data"], stored["indices"], stored["indptr"])
            X = sparse.csr_array(parts, shape=tuple(stored["shape"]))
        else:
            X = stored["X"]
        y = stored["y"].astype(float)
    theta = X.T @ (y / np.abs(y).sum())
    return np.logaddexp(0.0, -y * (X @ theta))


@pytest.mark.slow
@pytest.mark.skipif(not FILES, reason="DROLEARN_DATA does not name a folder with data sets")
def test_certified_on_real_losses():
    for path in FILES:
        z = logistic_losses(path)
        spread = z.max() - z.min()
        for divergence in ALL:
            if divergence is CUSTOM_BENT:  # bisection: too slow for this many losses
                continue
            for rho in (0.01, 0.1, 1.0):
                wc = worst_case(z, rho, divergence)
                assert wc.gap <= 1e-10 * max(1.0, spread), (path.name, divergence)
                assert wc.achieved <= rho * (1.0 + 1e-9), (path.name, divergence)
                assert abs(wc.weights.sum() - 1.0) <= 1e-12, (path.name, divergence)
