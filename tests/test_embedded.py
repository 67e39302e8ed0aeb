"""The copy of Adult that is part of the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import drolearn
from drolearn.datasets import load, load_adult


def test_adult_has_the_documented_content():
    adult = load_adult()
    assert adult.X.shape == (45222, 119)
    assert adult.X.dtype == np.float32
    assert adult.X.flags.c_contiguous
    assert np.isfinite(adult.X).all()
    assert {int(label) for label in np.unique(adult.y)} == {-1, 1}
    assert adult.is_test.sum() == 15060
    assert set(adult.sex) == {"Male", "Female"}
    assert "White" in set(adult.race)
    assert len(set(adult.race)) == 5
    assert adult.feature_names.shape == (119,)
    assert adult.feature_names[0] == "age"
    numbers = adult.feature_names[(adult.X > 1).any(axis=0)].tolist()
    assert numbers == ["age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week"]


def test_one_hot_columns_of_groups_and_education_match_their_names():
    adult = load_adult()
    column = dict(zip(adult.feature_names.tolist(), adult.X.T, strict=True))
    np.testing.assert_array_equal(column["sex_Female"] == 1, adult.sex == "Female")
    np.testing.assert_array_equal(column["race_White"] == 1, adult.race == "White")
    np.testing.assert_array_equal(column["education-num_13"], column["education_Bachelors"])
    np.testing.assert_array_equal(column["education-num_1"], column["education_Preschool"])
    years = [name for name in column if name.startswith("education-num_")]
    assert len(years) == 16
    assert (sum(column[name] for name in years) == 1).all()


def assert_equal_to_the_package(X, y):
    adult = load_adult()
    for found, expected in ((X, adult.X), (y, adult.y)):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_load_and_load_adult_agree(empty_cache):
    loaded = load("adult")
    assert loaded.source == "package"
    assert_equal_to_the_package(loaded.X, loaded.y)


def test_load_from_the_folder_and_load_adult_agree(data_folder):
    loaded = load("adult")
    assert loaded.source == str(data_folder / "adult_d119.npz")
    assert_equal_to_the_package(loaded.X, loaded.y)
    with np.load(data_folder / "adult_d119.npz") as stored:
        for name in ("sex", "race", "is_test", "feature_names"):
            np.testing.assert_array_equal(getattr(load_adult(), name), stored[name])


def test_adult_is_smaller_than_a_megabyte():
    assert (Path(drolearn.__file__).parent / "datasets" / "adult.npz").stat().st_size < 2**20
