"""Real data sets from the folder DROLEARN_DATA, raw or standardised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from drolearn.datasets import folder as data_folder
from drolearn.datasets import read, text_like

__all__ = ["TWO_CLASSES", "load", "names", "path", "text_like"]

#: The sets with two classes on which solvers are compared.
TWO_CLASSES = (
    "a9a", "adult", "adult_d119", "bioresponse", "compas", "covtype.binary", "crime",
    "electricity", "german.numer_scale", "hiv1", "ijcnn1", "la1s.wc", "madelon",
    "mnist10k_odd_even", "rcv1_27k", "skin_nonskin", "sms_spam_tfidf", "spambase", "tr31.wc", "w8a",
)  # fmt: skip


def path(name: str) -> Path:
    """Return the file of a data set."""
    folder = data_folder()
    if folder is None:
        raise SystemExit("These benchmarks need data sets: set DROLEARN_DATA to their folder.")
    return folder / f"{name}.npz"


def names() -> list[str]:
    """Return the names of all data sets in the folder."""
    return sorted(file.name.removesuffix(".npz") for file in path("*").parent.glob("*.npz"))


def load(name: str, standardised: bool = False) -> tuple[Any, np.ndarray]:
    """Return X (C order or CSR) and y = ±1.

    Standardised dense columns have mean 0 and variance 1; sparse ones have maximum 1 and are not
    centred.
    """
    data = read(name, path(name))
    X, y = data.X, data.y.astype(np.float64)
    if not standardised:
        return X, y
    if sp.issparse(X):
        largest = abs(X).max(axis=0).toarray().ravel()
        return sp.csr_matrix(X @ sp.diags(1.0 / np.where(largest > 0.0, largest, 1.0))), y
    X = X.astype(np.float64)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), y
