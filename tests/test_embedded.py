"""The copy of Adult that is part of the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import drolearn
from drolearn.datasets import load_adult


def test_adult_has_the_documented_content():
    adult = load_adult()
    assert adult.X.shape == (45222, 104)
    assert adult.X.dtype == np.float32
    assert np.isfinite(adult.X).all()
    assert {int(label) for label in np.unique(adult.y)} == {-1, 1}
    assert adult.is_test.sum() == 15060
    assert set(adult.sex) == {"Male", "Female"}
    assert "White" in set(adult.race)
    assert len(set(adult.race)) == 5
    assert adult.feature_names[0] == "age"


def test_adult_is_smaller_than_a_megabyte():
    assert (Path(drolearn.__file__).parent / "datasets" / "adult.npz").stat().st_size < 2**20
