"""Generated data sets."""

from __future__ import annotations

import numpy as np

from drolearn import datasets


def test_text_like_documents():
    X, y = datasets.text_like(2000, columns=500, words=20, seed=3)
    again, labels = datasets.text_like(2000, columns=500, words=20, seed=3)
    assert (again != X).nnz == 0
    np.testing.assert_array_equal(y, labels)
    assert set(y.tolist()) == {-1, 1}
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
