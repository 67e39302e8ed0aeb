"""Data sets that are generated."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["text_like"]


def text_like(
    rows: int, columns: int = 47_236, words: int = 76, seed: int = 0
) -> tuple[Any, NDArray[np.int8]]:
    """Documents of two classes whose words follow Zipf laws that differ by class.

    Each document draws its words (about `words` different ones) from a law of ranks
    1/(rank + 10); in each class a tenth of the words is up to e² times as frequent as in the
    other.  Values are log counts times inverse document frequencies, rows have norm one, and
    4% of the labels are flipped: the size and shape of RCV1.
    """
    rng = np.random.default_rng(seed)
    law = 1.0 / (np.arange(columns) + 10.0)
    law = law[rng.permutation(columns)]
    tilt = rng.uniform(-1.0, 1.0, columns) * (rng.random(columns) < 0.2)
    y = np.where(rng.random(rows) < 0.47, 1, -1)
    lengths = rng.poisson(1.06 * words, rows)
    indptr, indices, data = [0], [], []
    cumulative = {s: np.cumsum(law * np.exp(s * tilt)) for s in (1, -1)}
    step = 20_000
    for first in range(0, rows, step):
        last = min(first + step, rows)
        for sign in (1, -1):  # one stream of words for each class, cut into documents
            cumulative[sign] /= cumulative[sign][-1]
        own = lengths[first:last]
        document = np.repeat(np.arange(last - first), own)
        u = rng.random(document.size)
        up = y[first:last][document] == 1
        word = np.where(
            up, np.searchsorted(cumulative[1], u), np.searchsorted(cumulative[-1], u)
        ).astype(np.int64)
        key, count = np.unique(document * columns + word, return_counts=True)
        indices.append((key % columns).astype(np.int32))
        data.append((1.0 + np.log(count)).astype(np.float32))
        ends = np.searchsorted(key // columns, np.arange(last - first), side="right")
        indptr.extend((indptr[-1] + ends).tolist())
    X = sp.csr_matrix(
        (np.concatenate(data), np.concatenate(indices), np.array(indptr, dtype=np.int64)),
        shape=(rows, columns),
    )
    X.indptr = X.indptr.astype(np.int32)
    frequency = np.bincount(X.indices, minlength=columns)
    X.data *= np.log(rows / np.maximum(frequency, 1.0)).astype(np.float32)[X.indices]
    squares = np.add.reduceat(np.append(X.data, 0.0) ** 2, X.indptr[:-1])
    squares = np.where(np.diff(X.indptr) > 0, squares, 1.0)
    X.data /= np.repeat(np.sqrt(squares), np.diff(X.indptr)).astype(np.float32)
    flip = rng.random(rows) < 0.04
    return X, np.where(flip, -y, y).astype(np.int8)
