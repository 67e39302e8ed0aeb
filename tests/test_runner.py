"""Rows on disk, and many runs in parallel."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from drolearn.paper.runner import Failure, Store, available, perform_all
from tests.examples import disk_full

pytestmark = pytest.mark.xdist_group("processes")


def a_row(key, **more):
    return {"key": key, "dataset": "hiv1", "method": "gssg", "rho": 0.1, "n": 1, **more}


def test_rows_are_kept_once(tmp_path):
    store = Store(tmp_path)
    assert store.rows() == []
    for key in ("b", "a", "b"):
        store.add(a_row(key))
    assert [row["key"] for row in store.rows()] == ["a", "b"]
    store.gather()
    assert not list((tmp_path / "parts").glob("*"))
    store.add(a_row("b"))  # as if killed between moving rows and deleting parts
    store.add(a_row("c"))
    assert [row["key"] for row in Store(tmp_path).rows()] == ["a", "b", "c"]
    assert store.file.stat().st_mode & 0o044


def test_a_full_disk_loses_no_row(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.add(a_row("a"))
    store.gather()
    store.add(a_row("b"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk_full)
        with pytest.raises(OSError, match="No space"):
            store.gather()
        with pytest.raises(OSError, match="No space"):
            store.add(a_row("c"))
    assert [row["key"] for row in store.rows()] == ["a", "b"]
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]


def test_a_damaged_file_is_named(tmp_path):
    store = Store(tmp_path)
    store.file.write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"is damaged .*: delete it"):
        store.rows()


def test_finished_runs_are_not_repeated(adult_runs, tmp_path):
    store = Store(tmp_path)
    runs = [run for run in adult_runs() if run.method in ("gssg", "pssg")]
    reported = []
    assert perform_all(runs[:1], store, 1, reported.append) == []
    assert perform_all(runs, store, 2, reported.append) == []
    assert sorted(run.key for run in reported) == sorted(run.key for run in runs)
    assert perform_all(runs, store, 2, lambda _: pytest.fail("repeated")) == []


def test_a_failing_run_does_not_stop_the_others(adult_runs, tmp_path, empty_cache):
    good = adult_runs()[0]
    bad = replace(good, dataset="rcv1_27k")
    failures = perform_all([bad, good], Store(tmp_path), 1)
    assert [failure.key for failure in failures] == [bad.key]
    assert isinstance(failures[0], Failure)
    assert Store(tmp_path).keys() == {good.key}
    assert list(available(["adult", "rcv1_27k"])) == ["rcv1_27k"]
