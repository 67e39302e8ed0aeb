"""Lost workers, Ctrl-C and two fits at once, with worker processes on this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import drolearn
from drolearn._solvers import block_steps
from drolearn.dask import LostWorkersError, RobustRegressor, _engine, worst_case

pytestmark = [
    pytest.mark.xdist_group("dask"),
    # Connections to a process that was killed are not closed by anybody.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    # LocalCluster gives up a worker so long after it was killed, even if the worker has been back
    # since and is then killed once more.
    patient = {"distributed.deploy.lost-worker-timeout": "1 hour"}
    with (
        dask.config.set(patient),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=30)
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.standard_normal(600)
    # Two partitions, one of them small: the workers have different loads.
    return da.from_array(X, chunks=((580, 20), 3)), da.from_array(y, chunks=((580, 20),))


def estimator(client, **settings):
    return RobustRegressor(rho=0.1, solver="lbfgs", tol=1e-4, client=client, **settings)


def in_round(monkeypatch, *numbers, action):
    """Call `action` with the engine once while each round of these numbers is under way."""
    submit = _engine.DaskBlocks._submit
    called = []

    def submit_and_act(self, part, task):
        future = submit(self, part, task)
        if self.rounds in numbers and self.rounds not in called:
            called.append(self.rounds)
            action(self, part)
        return future

    monkeypatch.setattr(_engine.DaskBlocks, "_submit", submit_and_act)
    return called


def wait_until_empty(client):
    """Wait until the workers hold nothing and do nothing; fail if they do not get there."""
    end = time.monotonic() + 15.0
    while time.monotonic() < end:
        if not (any(client.has_what().values()) or any(client.processing().values())):
            return
        time.sleep(0.05)
    raise AssertionError((client.has_what(), client.processing()))


def kill(client, worker):
    process = client.run(os.getpid, workers=[worker])[worker]
    os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("case", ["exact", "draws that are fetched", "draws in the blocks"])
def test_workers_killed_twice_change_no_bit(client, data, monkeypatch, case):
    """In the first round and later: their partitions are computed elsewhere."""
    settings, c = {}, None
    if case != "exact":
        settings = {"solver": "gssg-anchor", "max_iter": 6, "random_state": 0}
        monkeypatch.setattr(block_steps, "_FETCHED", 600 if "fetched" in case else 0)
        c = abs(data[1])  # the losses of a reference

    def fit():
        reg = estimator(client).set_params(**settings)
        return reg.set_params(tol=None if settings else 1e-4).fit(*data, reference_losses=c)

    def act(_, part):
        client.wait_for_workers(2, timeout=60)
        kill(client, part.worker)

    expected = fit()
    killed = in_round(monkeypatch, 1, 12, action=act)
    found = fit()
    assert killed == [1, 12]
    assert found.coef_.tobytes() == expected.coef_.tobytes()
    assert found.n_rounds_ == expected.n_rounds_
    wait_until_empty(client)


def test_ctrl_c_leaves_no_task_behind(client, data, monkeypatch):
    """The best model so far is kept, as on one machine."""
    interrupted = in_round(monkeypatch, 20, action=lambda *_: signal.raise_signal(signal.SIGINT))
    reg = estimator(client)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            reg.fit(*data)
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupted
    assert np.isfinite(reg.coef_).all()
    assert "Interrupted" in reg.status_
    wait_until_empty(client)


@pytest.mark.parametrize("chunks", [(600,), (0, 3, 0, 597, 0)])
def test_idle_workers_empty_and_skewed_partitions(client, data, chunks):
    """One partition for two workers, or most rows in one partition and none in others."""
    X, y = (part.compute() for part in data)
    local = drolearn.RobustRegressor(rho=0.1, solver="newton", tol=None).fit(X, y)
    reg = RobustRegressor(rho=0.1, solver="newton", tol=None, client=client)
    reg.fit(da.from_array(X, chunks=(chunks, 3)), da.from_array(y, chunks=(chunks,)))
    np.testing.assert_allclose(reg.coef_, local.coef_, rtol=1e-7)
    wait_until_empty(client)


def test_a_worker_that_joins_late_replaces_a_lost_one(data, monkeypatch):
    """It joins during a fit, then the only other worker is killed for good: same bits."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        expected = estimator(client).fit(*data)
        first = next(iter(cluster.workers.values()))

        def act(engine, part):
            if engine.rounds == 3:
                cluster.scale(2)
                client.wait_for_workers(2, timeout=60)
            else:
                cluster.sync(first.close, timeout=1.0)

        joined = in_round(monkeypatch, 3, 8, action=act)
        found = estimator(client).fit(*data)
        assert joined == [3, 8]
        assert found.coef_.tobytes() == expected.coef_.tobytes()


def test_other_workers_can_replace_all_that_there_were(data, monkeypatch):
    """Dask would not run tasks that name lost workers and became ready while there was none."""
    monkeypatch.setattr(_engine, "_NEXT_WORKER", 60.0)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        expected = estimator(client).fit(*data)
        first = next(iter(cluster.workers.values()))

        def act(engine, part):
            cluster.sync(first.close, timeout=1.0)
            while client.ncores():
                time.sleep(0.05)
            cluster.scale(2)

        replaced = in_round(monkeypatch, 8, action=act)
        found = estimator(client).fit(*data)
        assert replaced == [8]
        assert found.coef_.tobytes() == expected.coef_.tobytes()


@pytest.mark.filterwarnings("ignore:The inplace keyword:Warning")  # in Dask, with pandas 3.1
def test_a_partition_that_cannot_be_read_names_its_file(client, tmp_path):
    """A Parquet folder with one damaged file; small files are not joined."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((80, 3)), columns=["a", "b", "y"])
    dd.from_pandas(frame, npartitions=4).to_parquet(tmp_path / "rows")
    rows = dd.read_parquet(tmp_path / "rows")
    expected = drolearn.RobustRegressor(rho=0.1).fit(frame[["a", "b"]], frame["y"])
    reg = RobustRegressor(rho=0.1, client=client)
    reg.fit(rows[["a", "b"]], rows["y"])
    np.testing.assert_allclose(reg.coef_, expected.coef_, rtol=1e-3, atol=1e-4)
    damaged = sorted((tmp_path / "rows").glob("*.parquet"))[2]
    damaged.write_bytes(damaged.read_bytes()[:-8])
    for fit in (
        lambda: reg.fit(rows[["a", "b"]], rows["y"]),
        lambda: reg.fit(str(tmp_path / "rows"), "y", sample_weight="b"),
    ):
        with pytest.raises(RuntimeError, match=f"Partition 2 .*{damaged.name}") as raised:
            fit()
        assert str(raised.value).count("part.0.parquet") == 0  # no other file is named
    wait_until_empty(client)


def test_a_damaged_line_of_text_names_its_file(client, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 2)), columns=["a", "y"])
    for k in range(3):
        frame.to_csv(tmp_path / f"{k}.csv", index=False)
    (tmp_path / "2.csv").write_text("a,y\n1.0,x\n2.0,3.0\n")
    with pytest.raises(RuntimeError, match=r"Partition 2 could not be computed from \S*2\.csv'"):
        estimator(client).fit(dd.read_csv(tmp_path / "*.csv"), "y")


def test_a_client_that_is_not_the_default_is_enough(cluster, data):
    """Neither where there is no other client, nor where a later one has another event loop."""
    with Client(cluster, set_as_default=False) as client:
        expected = estimator(client).fit(*data)
        with Client(processes=False, n_workers=1, dashboard_address=":0"):
            found = estimator(client).fit(*data)
        assert found.coef_.tobytes() == expected.coef_.tobytes()


def test_results_that_take_long_to_arrive_are_not_asked_for_again(client, data, monkeypatch):
    """Large results on slow networks need longer than the time between two checks."""
    monkeypatch.setattr(_engine, "_CHECK_EVERY", 1e-4)
    asked = []
    gather = Client.gather
    monkeypatch.setattr(
        Client, "gather", lambda self, *a, **k: asked.append(1) or gather(self, *a, **k)
    )
    reg = estimator(client).fit(*data)
    assert len(asked) <= 2 * reg.n_rounds_  # each of two parts at most once


def test_two_fits_at_once_do_not_disturb_each_other(client, data):
    X, y = data
    alone = [estimator(client).fit(X, y), estimator(client).fit(X, -2.0 * y)]
    start = threading.Barrier(2)

    def fit(target):
        start.wait()
        return estimator(client).fit(X, target)

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(fit, [y, -2.0 * y]))
    for one, other in zip(alone, both, strict=True):
        assert one.coef_.tobytes() == other.coef_.tobytes()
    wait_until_empty(client)


def test_what_the_user_persisted_stays(client, data):
    """A fit releases its own results only."""
    X, y = client.persist(data)
    estimator(client).fit(X, y)
    worst_case(y, 0.1)

    def held():
        return {key for keys in client.has_what().values() for key in keys}

    end = time.monotonic() + 15.0
    while len(held()) > 4 and time.monotonic() < end:
        time.sleep(0.05)
    assert len(held()) == 4  # two partitions of two collections
    assert np.isfinite(X.sum().compute())
    del X, y
    wait_until_empty(client)


def test_without_workers_an_error_comes_soon(cluster, client, data, monkeypatch):
    """The last test of this cluster, which ends without workers."""
    monkeypatch.setattr(_engine, "_NEXT_WORKER", 1.0)

    def kill_all(*_):
        for nanny in cluster.workers.values():  # each would restart a worker that is only killed
            cluster.sync(nanny.close, timeout=1.0)

    lost = in_round(monkeypatch, 24, action=kill_all)
    reg, start = estimator(client), time.monotonic()
    with pytest.raises(LostWorkersError, match=r"no worker for 1 seconds.* hold the last iterate"):
        reg.fit(*data)
    assert lost
    assert time.monotonic() - start < 60.0  # a bound against hanging, not a measurement
    assert reg.coef_.any()
    assert np.isfinite(reg.coef_).all()
    assert "Lost all workers" in reg.status_
    assert not reg.converged_


def test_a_client_that_is_closed_is_named(data):
    with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
        pass
    with pytest.raises(LostWorkersError, match="connection to the cluster was lost"):
        estimator(client).fit(*data)
