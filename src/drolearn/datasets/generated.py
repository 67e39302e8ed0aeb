"""Generated data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["text_like"]

#: Documents generated at a time; it bounds the memory for words that are not yet counted.
_CHUNK = 20_000


def text_like(
    rows: int, columns: int = 47_236, words: int = 76, seed: int = 0
) -> tuple[Any, NDArray[np.int8]]:
    """Generate documents of two classes; the defaults have RCV1's number of columns and density.

    Word frequencies follow a Zipf law, 1/(rank + 10).  A fifth of the words depends on the class:
    each of them is up to e² times as frequent in one class as in the other.  Values are log
    counts times inverse document frequencies, rows have norm one, and 4% of the labels are
    flipped.

    Parameters
    ----------
    rows : int
        Number of documents.
    columns : int, default=47236
        Number of words in the vocabulary.
    words : int, default=76
        Approximate number of distinct words in a document.
    seed : int, default=0
        Seed of the random numbers.

    Returns
    -------
    X : scipy.sparse.csr_matrix of shape (rows, columns), float32
        Term weights.
    y : ndarray of shape (rows,), int8
        Labels, +1 or -1.

    Examples
    --------
    >>> from drolearn.datasets import text_like
    >>> X, y = text_like(1000, columns=500, words=20)
    >>> X.shape, sorted(set(y.tolist()))
    ((1000, 500), [-1, 1])
    """
    rng = np.random.default_rng(seed)
    frequencies = 1.0 / (np.arange(columns) + 10.0)
    frequencies = frequencies[rng.permutation(columns)]
    tilt = rng.uniform(-1.0, 1.0, columns) * (rng.random(columns) < 0.2)
    y = np.where(rng.random(rows) < 0.47, 1, -1)
    lengths = rng.poisson(1.06 * words, rows)
    indptr, indices, data = [0], [], []
    cumulative = {s: np.cumsum(frequencies * np.exp(s * tilt)) for s in (1, -1)}
    for first in range(0, rows, _CHUNK):
        last = min(first + _CHUNK, rows)
        for sign in (1, -1):
            cumulative[sign] /= cumulative[sign][-1]
        document = np.repeat(np.arange(last - first), lengths[first:last])
        u = rng.random(document.size)
        is_positive = y[first:last][document] == 1
        word = np.where(
            is_positive, np.searchsorted(cumulative[1], u), np.searchsorted(cumulative[-1], u)
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
    document_counts = np.bincount(X.indices, minlength=columns)
    X.data *= np.log(rows / np.maximum(document_counts, 1.0)).astype(np.float32)[X.indices]
    squares = np.add.reduceat(np.append(X.data, 0.0) ** 2, X.indptr[:-1])
    squares = np.where(np.diff(X.indptr) > 0, squares, 1.0)
    X.data /= np.repeat(np.sqrt(squares), np.diff(X.indptr)).astype(np.float32)
    flip = rng.random(rows) < 0.04
    return X, np.where(flip, -y, y).astype(np.int8)
