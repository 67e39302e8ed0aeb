"""Work of joblib on a Dask cluster: cross-validation, the paper's grid, the scoreboard."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.model_selection import cross_val_score

from drolearn import RobustClassifier, RobustClassifierCV
from drolearn.paper.runner import Store, perform_all

pytestmark = [
    pytest.mark.xdist_group("dask"),
    # Dask's own threads close sockets after the test that opened them.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(scope="module")
def client():
    settings = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **settings) as cluster, Client(cluster) as client:
        yield client


def tasks_of(client):
    """The names of all tasks that the cluster has run."""
    events = client.run_on_scheduler(lambda dask_scheduler: dict(dask_scheduler.task_prefixes))
    return " ".join(events)


def test_cross_validation_has_the_same_bits(client, two_classes):
    X, y = two_classes
    clf = RobustClassifierCV(rhos=[0.0, 0.1], cv=3)
    here = clf.fit(X, y).coef_.tobytes()
    scores = cross_val_score(RobustClassifier(), X, y)
    with joblib.parallel_config("dask"):
        assert clf.fit(X, y).coef_.tobytes() == here
        np.testing.assert_array_equal(cross_val_score(RobustClassifier(), X, y), scores)
    assert "score_fold" in tasks_of(client)


def test_the_grid_of_the_paper(client, adult_runs, tmp_path):
    runs = [run for run in adult_runs() if run.method in ("gssg", "pssg")]
    store = Store(tmp_path)
    with joblib.parallel_config("dask"):
        assert perform_all(runs, store, 1) == []
    assert store.keys() == {run.key for run in runs}
    assert "perform" in tasks_of(client)


def test_the_clocks_of_the_grid_need_workers_with_one_thread(adult_runs, tmp_path):
    settings = {"threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with (
        LocalCluster(n_workers=1, **settings) as cluster,
        Client(cluster),
        joblib.parallel_config("dask"),
        pytest.raises(ValueError, match="workers with one thread each"),
    ):
        perform_all(adult_runs()[:1], Store(tmp_path), 1)


def test_the_scoreboard(client, tmp_path, monkeypatch):
    """All tasks of a data set, with a model that takes no time."""
    from benchmarks.scoreboard import run
    from benchmarks.scoreboard.tasks import Task

    some = [Task("compas", "random", str(k)) for k in range(3)]
    monkeypatch.setattr(run, "_FOLDER", tmp_path)
    monkeypatch.setattr(run, "tasks", lambda name: some)

    def run_task(task, trees, done):
        if "none" in done:
            return []
        return [{"question": task.question, "split": task.split, "model": "none", "seconds": 0.0}]

    monkeypatch.setattr(run, "run_task", run_task)
    with joblib.parallel_config("dask"):
        run.measure(["compas"], 1.0, trees=False)
        run.measure(["compas"], 1.0, trees=False)  # again: nothing is missing
    assert [row["split"] for row in run.stored("compas")] == ["0", "1", "2"]
