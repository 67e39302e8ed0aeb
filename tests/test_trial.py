"""Single runs of the experiments on Adult, with the quick settings."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import datasets
from drolearn.paper import trial
from drolearn.paper.protocol import Search

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def rows(adult_runs):
    """One row per method."""
    runs = [*adult_runs(), *adult_runs("library")]
    return {run.method: trial.perform(run) for run in {run.key: run for run in runs}.values()}


def test_runs_are_reproducible(adult_runs, rows):
    for run in adult_runs():
        again = trial.perform(run)
        for name in ("test_error", "robust_loss", "samples", "penalty", "at_errors"):
            np.testing.assert_equal(again[name], rows[run.method][name], err_msg=run.method)


def test_content_of_the_rows(rows):
    paper, library = {"gssg", "pssg", "erm"}, {"gssg_library", "pssg_library", "estimator"}
    assert set(rows) == {*paper, *library, "default", "exact"}
    for row in rows.values():
        assert row["n_train"] == round(0.8 * 45222)
        assert row["n_train"] + row["n_test"] == 45222
        assert row["d"] == 119
        assert row["test_error"] == row["at_errors"][-1]
        assert len(row["at_errors"]) == len(row["at_samples"]) == len(row["at_seconds"])
        assert np.all(np.diff(row["at_samples"]) > 0.0)
        assert np.all(np.diff(row["at_seconds"]) >= 0.0)
        assert row["cpu"] is not None
        assert "scikit-learn" in row["versions"]
        assert re.fullmatch("([0-9a-f]{7,})?", row["revision"])
    assert rows["exact"]["robust_loss"] < min(rows[m]["robust_loss"] for m in ("gssg", "pssg"))
    assert rows["exact"]["robust_loss"] < rows["gssg_library"]["robust_loss"]
    assert rows["gssg_library"]["robust_loss"] < rows["gssg"]["robust_loss"]
    assert rows["exact"]["test_error"] < 0.17
    assert rows["erm"]["penalty"] < 1.0
    assert rows["gssg"]["samples"] >= 2e4


@pytest.mark.parametrize("sparse", [False, True])
def test_scaling_depends_on_training_rows_only(adult_runs, sparse):
    run = replace(adult_runs()[0], scaling="none")
    if sparse:
        run = replace(run, dataset="text_like", documents=120, tests=20, rows=100)
    train, test = trial.divide(run)
    assert sp.issparse(train.X) == sparse
    largest = abs(dense(train.X)).max(axis=0)
    columns = dense(test.X) / np.where(largest > 0.0, largest, 1.0)
    norms = np.linalg.norm(columns, axis=1, keepdims=True)
    expected = {
        "columns": columns,
        "rows": dense(test.X) / np.linalg.norm(dense(test.X), axis=1, keepdims=True),
        "both": columns / norms,
    }
    for scaling, want in expected.items():
        scaled_train, scaled_test = trial.divide(replace(run, scaling=scaling))
        np.testing.assert_allclose(dense(scaled_test.X), want, rtol=1e-6)
        if scaling == "columns":
            assert abs(scaled_train.X).max() == 1.0


def dense(X):
    return X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)


def test_all_rows_are_used(adult_runs):
    train, test = trial.divide(adult_runs()[0])
    assert train.y.size + test.y.size == datasets.load("adult").y.size


def test_held_out_rows_are_training_rows_of_the_tables(adult_runs):
    run = adult_runs("choices", scaling="none")[0]
    table = adult_runs(scaling="none")[0]
    train, held_out = trial.divide(run)
    all_training, _ = trial.divide(table)
    rows = np.vstack([train.X, held_out.X])
    assert rows.shape[0] == round(0.75 * 45222)
    np.testing.assert_array_equal(rows, all_training.X[: rows.shape[0]])


def test_the_search_lowers_the_penalty_until_nothing_improves(protocol, adult_runs):
    run = next(run for run in adult_runs() if run.method == "erm")
    settings = run.settings | {"first": 1e-3, "last": 1e-3}
    assert trial.perform(replace(run, settings=settings))["penalty"] == 1e-3
    one = trial.perform(replace(run, settings=run.settings | {"patience": 1}))
    three = trial.perform(run)
    assert one["samples"] < three["samples"]
    assert isinstance(protocol.methods["erm"], Search)
