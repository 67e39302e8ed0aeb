"""The catalogue of data sets: where they are read from, sizes, names, the cache."""

from __future__ import annotations

import os

import numpy as np
import pytest

from drolearn import datasets
from drolearn.datasets import catalogue


def test_the_folder_comes_before_cache_and_package(monkeypatch, tmp_path, empty_cache):
    packaged = datasets.load("adult")
    assert packaged.source == "package"
    changed = packaged.X.copy()
    changed[0, 0] += 1.0
    np.savez(tmp_path / "adult_d119.npz", format="dense", X=changed, y=packaged.y)
    monkeypatch.setenv("DROLEARN_DATA", str(tmp_path))
    loaded = datasets.load("adult")
    assert loaded.source == str(tmp_path / "adult_d119.npz")
    assert loaded.X[0, 0] == packaged.X[0, 0] + 1.0


def test_a_folder_that_does_not_exist(monkeypatch, empty_cache):
    monkeypatch.setenv("DROLEARN_DATA", str(empty_cache / "nowhere"))
    with pytest.raises(datasets.DataError, match="is not a folder: set it to a folder"):
        datasets.load("adult")


def test_unknown_names(empty_cache):
    with pytest.raises(datasets.DataError, match="did you mean 'hiv1'"):
        datasets.load("hiv")
    with pytest.raises(datasets.DataError, match="drolearn datasets"):
        datasets.load("nothing like it")
    with pytest.raises(datasets.DataError, match=r"needs no download: call load\('text_like'\)"):
        datasets.fetch("text_like")
    with pytest.raises(datasets.DataError, match=r"no public source: put rcv1_27k\.npz into"):
        datasets.fetch("rcv1_27k")
    with pytest.raises(datasets.DataError, match="DROLEARN_DATA"):
        datasets.load("rcv1_27k")


def test_sizes_are_those_of_the_paper(data_folder):
    assert len(datasets.CATALOGUE) == 17
    for name in ("tr31.wc", "hiv1", "bioresponse", "adult", "rcv1_27k", "bike_hour"):
        entry, loaded = datasets.CATALOGUE[name], datasets.load(name)
        assert loaded.X.shape == (entry.n, entry.d)
        assert datasets.where(name).startswith(str(data_folder))


def test_files_of_other_names_are_read_without_checks(data_folder):
    adult = datasets.read("adult", data_folder / "adult.npz")
    assert adult.X.shape == (45222, 104)  # that of the paper has 119 columns
    assert datasets.read("skin_nonskin", data_folder / "skin_nonskin.npz").X.shape == (245057, 3)
    with pytest.raises(datasets.DataError, match="does not exist"):
        datasets.read("nothing", data_folder / "nothing.npz")


def test_numbers_to_predict_must_be_finite(monkeypatch, tmp_path, empty_cache):
    bike = datasets.load("bike_hour")
    assert bike.y.dtype == np.float32
    bike.y[3] = np.nan
    np.savez(tmp_path / "bike_hour.npz", format="dense", X=bike.X, y=bike.y)
    monkeypatch.setenv("DROLEARN_DATA", str(tmp_path))
    with pytest.raises(datasets.DataError, match="values that are not finite: replace the file"):
        datasets.load("bike_hour")


# -- the cache -----------------------------------------------------------------------------------


@pytest.fixture
def cached(monkeypatch, empty_cache):
    """The cache, and a list with one item for each download of a small data set "hiv1"."""
    downloads = []

    def get():
        downloads.append(1)
        return np.eye(2, 3, dtype=np.float32), np.array([1, -1], dtype=np.int8)

    entry = datasets.Entry("hiv1", 2, 3, "a.server", "none", "two rows", get)
    monkeypatch.setitem(datasets.CATALOGUE, "hiv1", entry)
    return empty_cache, downloads


def test_fetch_keeps_a_good_copy_and_replaces_a_damaged_one(cached):
    cache, downloads = cached
    assert datasets.fetch("hiv1") == cache / "hiv1.npz"
    assert datasets.fetch("hiv1") == cache / "hiv1.npz"
    assert len(downloads) == 1
    (cache / "hiv1.npz").write_bytes(b"damaged")
    datasets.fetch("hiv1")
    assert len(downloads) == 2
    np.testing.assert_array_equal(datasets.load("hiv1").X, np.eye(2, 3))
    assert [path.name for path in cache.iterdir()] == ["hiv1.npz"]


def test_a_cache_that_cannot_be_written_is_named(cached, monkeypatch):
    cache, downloads = cached
    cache.write_text("a file where the folder should be")
    with pytest.raises(datasets.DataError, match="set DROLEARN_CACHE to another folder") as caught:
        datasets.fetch("hiv1")
    assert str(cache) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not downloads

    def denied(*_, **__):
        raise PermissionError("[Errno 13] Permission denied. | A long text.")

    monkeypatch.setattr(os, "makedirs", denied)
    monkeypatch.setenv("DROLEARN_CACHE", str(cache.with_name("other")))
    with pytest.raises(datasets.DataError, match=r"other \(Permission denied\): free some space"):
        datasets.fetch("hiv1")


def test_without_pooch_the_data_of_the_package_loads(cached, monkeypatch):
    monkeypatch.setattr(catalogue, "_cache", lambda: None)
    assert datasets.load("adult").source == "package"
    with pytest.raises(datasets.DataError, match=r"needs pooch: run pip install 'drolearn\[paper"):
        datasets.load("hiv1")
