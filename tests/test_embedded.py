"""The data sets that are part of the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tools.embed import embed

import drolearn
from drolearn.datasets import load, load_adult, load_bike_hour

PACKAGE = Path(drolearn.__file__).parent / "datasets"


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


def test_bike_hour_has_the_documented_content():
    bike = load_bike_hour()
    assert bike.X.shape == (17379, 57)
    assert bike.X.dtype == bike.y.dtype == np.float32
    assert bike.X.flags.c_contiguous
    assert bike.X.min() == 0.0
    assert bike.X.max() == 1.0
    assert (bike.y.min(), bike.y.max()) == (1.0, 977.0)
    assert (np.diff(bike.year) >= 0).all()
    assert set(bike.year.tolist()) == {2011, 2012}
    names = bike.feature_names.tolist()
    assert len(set(names)) == 57
    for prefix, levels in (("season", 4), ("mnth", 12), ("hr", 24), ("weekday", 7)):
        columns = [j for j, name in enumerate(names) if name.startswith(f"{prefix}=")]
        assert len(columns) == levels
        assert (bike.X[:, columns].sum(axis=1) == 1.0).all()
    # In the afternoon it is warmer than at night, which only the right names show.
    temperature, hour = (bike.X[:, names.index(name)] for name in ("temp", "hr=15"))
    assert temperature[hour == 1].mean() > temperature.mean() + 0.05


def test_load_and_load_bike_hour_agree(empty_cache):
    loaded, bike = load("bike_hour"), load_bike_hour()
    assert loaded.source == "package"
    np.testing.assert_array_equal(loaded.X, bike.X)
    np.testing.assert_array_equal(loaded.y, bike.y)


def test_load_from_the_folder_and_load_bike_hour_agree(data_folder):
    loaded, bike = load("bike_hour"), load_bike_hour()
    assert loaded.source == str(data_folder / "bike_hour.npz")
    assert loaded.y.dtype == bike.y.dtype
    np.testing.assert_array_equal(loaded.X, bike.X)
    np.testing.assert_array_equal(loaded.y, bike.y)


def test_the_files_of_the_package_are_those_that_the_tool_writes(data_folder, tmp_path):
    embed(data_folder, tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(path.name for path in PACKAGE.glob("*.npz"))
    for name in made:
        with np.load(tmp_path / name) as written, np.load(PACKAGE / name) as packaged:
            assert written.files == packaged.files
            for array in written.files:
                assert written[array].dtype == packaged[array].dtype
                np.testing.assert_array_equal(written[array], packaged[array])


def test_files_of_the_package_are_small():
    assert (PACKAGE / "adult.npz").stat().st_size < 2**20
    assert (PACKAGE / "bike_hour.npz").stat().st_size < 300_000
