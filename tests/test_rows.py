"""Means of rows, with intervals."""

from __future__ import annotations

import numpy as np

from drolearn.paper.rows import interval


def test_intervals():
    four = interval([1.0, 2.0, 3.0, 4.0])
    assert four.mean == 2.5
    np.testing.assert_allclose(four.half, 3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2, rtol=1e-6)
    assert np.isnan(interval([1.0]).half)
    assert interval([1.0]).text() == "1.0"
