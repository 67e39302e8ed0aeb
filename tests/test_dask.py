"""Estimators and worst cases on a Dask cluster of two workers: results, conventions, errors."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import time

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from dask.utils import key_split
from distributed import Client, LocalCluster
from sklearn.base import clone

import drolearn
from drolearn.dask import RobustClassifier, RobustRegressor, stress_test, worst_case
from tests.examples import Count, needs_callbacks

pytestmark = [
    pytest.mark.xdist_group("dask"),
    # Dask's own threads close sockets after the test that opened them.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
TIGHT = {"rho": 0.2, "solver": "newton", "tol": None, "l2": 0.01}


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def _nothing_stays_in_memory(client):
    """After every test, the workers hold nothing and have nothing to do."""
    yield
    end = time.monotonic() + 10.0
    while (any(client.has_what().values()) or any(client.processing().values())) and (
        time.monotonic() < end
    ):
        time.sleep(0.02)
    assert not any(client.has_what().values())
    assert not any(client.processing().values())


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 4)) * [1.0, 3.0, 0.2, 1.0] + [0.0, 5.0, 0.0, 1.0]
    y = X[:, 0] + 4.0 * X[:, 2] + rng.standard_normal(1500)
    return X, y, rng.exponential(size=1500)


def same(cluster_model, local_model, close=1e-9):
    """Whether two models are equal up to rounding."""
    size = abs(local_model.coef_).max()
    np.testing.assert_allclose(cluster_model.coef_, local_model.coef_, rtol=0.0, atol=close * size)
    np.testing.assert_allclose(
        cluster_model.intercept_, local_model.intercept_, rtol=0.0, atol=10.0 * close * size
    )
    assert cluster_model.objective_ == pytest.approx(local_model.objective_, rel=1e-9)


def test_a_classifier_is_that_of_one_machine(client, data):
    """With weights as a collection, columns in several chunks and other chunks of y."""
    X, y, weights = data
    labels = np.where(y > 0.5, "yes", "no")
    local = drolearn.RobustClassifier(class_weight="balanced", **TIGHT).fit(X, labels, weights)
    dX, dy = da.from_array(X, chunks=(400, 3)), da.from_array(labels, chunks=500)
    clf = RobustClassifier(class_weight="balanced", client=client, **TIGHT)
    clf.fit(dX, dy, da.from_array(weights, chunks=1500))
    same(clf, local, close=1e-6)  # the objective is flat at the optimum
    assert clf.objective_ == pytest.approx(local.objective_, rel=1e-12)
    assert clf.gap_ <= 1e-9
    assert clf.n_rounds_ > 0
    assert clf.classes_.tolist() == ["no", "yes"]
    for method in ("predict", "predict_proba", "decision_function"):
        lazy = getattr(clf, method)(dX)
        assert isinstance(lazy, da.Array)
        expected = getattr(clf, method)(X)  # of data in memory
        assert type(expected) is np.ndarray
        assert lazy.shape == expected.shape
        assert lazy.dtype == expected.dtype
        if method == "predict":
            assert (lazy.compute() == expected).all()
        else:
            np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)
    np.testing.assert_allclose(clf.losses(dX, dy).compute(), clf.losses(X, labels), rtol=1e-12)
    wider = clf.worst_case(dX, dy, rho=0.5, sample_weight=da.from_array(weights, chunks=300))
    assert wider.value == pytest.approx(clf.worst_case(X, labels, 0.5, weights).value, rel=1e-12)


def test_a_regressor_of_dataframes_of_unknown_lengths(client, data):
    X, y, weights = data
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, w=weights)
    ddf = dd.from_pandas(frame, npartitions=5)
    ddf = ddf[ddf.w > 0.3]  # lengths are unknown, and one column is left out
    kept = weights > 0.3
    local = drolearn.RobustRegressor(**TIGHT).fit(
        pd.DataFrame(X[kept], columns=list("abcd")), y[kept], weights[kept]
    )
    reg = RobustRegressor(**TIGHT).fit(ddf[list("abcd")], ddf["y"], ddf["w"])
    same(reg, local, close=1e-8)
    assert reg.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_allclose(
        reg.predict(ddf[list("abcd")]).compute(),
        local.predict(frame[kept][list("abcd")]),
        atol=1e-7,
    )
    with pytest.raises(ValueError, match="must have the columns"):
        reg.predict(ddf[list("dcba")])


def test_sparse_blocks_three_classes_and_empty_partitions(client, data):
    """CSR blocks, one without rows, one of a single class, and classes that are given."""
    X, y, _ = data
    labels = np.digitize(np.sort(y), [-1.0, 1.0])  # sorted: partitions lack classes
    X = sp.csr_matrix(np.where(abs(X) > 1.0, X, 0.0)[np.argsort(y)])
    sizes = (300, 0, 700, 500)
    edges = np.cumsum((0, *sizes))
    blocks = [da.from_array(X[i:j], chunks=-1, asarray=False) for i, j in itertools.pairwise(edges)]
    dX, dy = da.concatenate(blocks), da.from_array(labels, chunks=(sizes,))
    settings = {"rho": 0.1, "tol": 1e-13, "l2": 0.01}
    clf = RobustClassifier(**settings).fit(dX, dy, classes=[2, 1, 0])
    same(clf, drolearn.RobustClassifier(**settings).fit(X, labels), close=1e-6)
    assert clf.predict_proba(dX).compute().shape == (1500, 3)
    with pytest.raises(ValueError, match="must hold all labels of y"):
        RobustClassifier().fit(dX, dy, classes=[0, 1])


def names_of_groups(X, kind):
    """Groups in memory, and as a collection in four partitions, of which two lack a group."""
    names = np.where(X[:, 3] > 1.5, "north", np.where(X[:, 0] > 0.0, "east", "west"))
    names[:400] = "east"
    if kind == "names":
        return names, da.from_array(names, chunks=400)
    frame = pd.DataFrame({"place": names, "old": X[:, 1] > 6.0, "size": np.digitize(X[:, 2], [0])})
    if kind == "several columns":
        return frame, dd.from_pandas(frame, chunksize=400, sort=False)
    frame = pd.DataFrame({"old": X[:, 1] > 6.0, "east": names == "east"})
    matrix = frame.to_numpy()
    assert not matrix.any(axis=1).all()  # some rows are in no group
    return frame, da.from_array(matrix, chunks=(400, 1))


@pytest.mark.parametrize("kind", ["names", "several columns", "overlapping"])
def test_groups_are_those_of_one_machine(client, data, kind):
    """Their names, shares and weights; a partition may lack some of them."""
    X, y, weights = data
    groups, collection = names_of_groups(X, kind)
    labels = np.where(y > 0.5, "yes", "no")
    settings = {"rho": 0.2, "tol": 1e-13, "l2": 0.01, "class_weight": "balanced"}
    if kind == "overlapping":
        groups = groups.to_numpy()
    local = drolearn.RobustClassifier(**settings).fit(X, labels, weights, groups)
    dX, dy = da.from_array(X, chunks=(400, 4)), da.from_array(labels, chunks=400)
    clf = RobustClassifier(**settings).fit(dX, dy, da.from_array(weights, chunks=400), collection)
    assert clf.groups_.tolist() == local.groups_.tolist()
    assert clf.objective_ == pytest.approx(local.objective_, rel=1e-9)
    np.testing.assert_allclose(clf.group_weights_, local.group_weights_, rtol=1e-6)
    same(clf, local, close=1e-6)
    assert clf.to_local().groups_.tolist() == local.groups_.tolist()


def test_the_worst_group_has_the_weights_of_the_saddle_point(client, data):
    """CVaR of groups, which have equal losses at the optimum."""
    X, y, _ = data
    groups, collection = names_of_groups(X, "names")
    settings = {"divergence": drolearn.CVaR(0.2), "l2": 0.01, "tol": 1e-9}
    local = drolearn.RobustRegressor(**settings).fit(X, y, groups=groups)
    reg = RobustRegressor(**settings)
    reg.fit(da.from_array(X, chunks=(400, 4)), da.from_array(y, chunks=400), groups=collection)
    assert reg.objective_ == pytest.approx(local.objective_, rel=1e-9)
    np.testing.assert_allclose(reg.group_weights_, local.group_weights_, atol=1e-6)


def test_the_default_radius_is_that_of_one_machine(client, data):
    """It depends on the smallest ball in which nothing can be learned."""
    X, _, _ = data
    y = (np.random.default_rng(0).random(1500) < 0.5 + 0.05 * np.sign(X[:, 0])).astype(int)
    local = drolearn.RobustClassifier(tol=1e-3).fit(X, y)
    clf = RobustClassifier(tol=1e-3).fit(
        da.from_array(X, chunks=(700, 4)), da.from_array(y, chunks=700)
    )
    assert local.rho_ < 0.1
    assert clf.rho_ == pytest.approx(local.rho_, rel=1e-9)


@pytest.mark.parametrize("divergence", ["chi2", "kl", drolearn.CVaR(0.1)])
def test_worst_cases_are_those_of_one_machine(client, divergence):
    """Weights are lazy, in the chunks of the losses; one partition is empty."""
    rng = np.random.default_rng(0)
    z, b = rng.exponential(size=50_000), rng.random(50_000)
    rho = None if isinstance(divergence, drolearn.CVaR) else 0.3
    expected = drolearn.worst_case(z, rho, divergence, b)
    losses = da.from_array(z, chunks=((20_000, 0, 29_999, 1),))
    found = worst_case(losses, rho, divergence, da.from_array(b, chunks=9_000))
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert isinstance(found.weights, da.Array)
    assert found.weights.chunks == losses.chunks
    np.testing.assert_allclose(
        found.weights.compute(), expected.weights, rtol=1e-9, atol=1e-12 * expected.weights.max()
    )


@pytest.mark.parametrize("zero_one", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_stress_tests_have_the_numbers_of_one_machine(client, zero_one, weighted):
    """Curve, groups and radii; intervals where memory does not use the bootstrap."""
    rng = np.random.default_rng(0)
    z, b = rng.exponential(size=6000), rng.random(6000) * (rng.random(6000) < 0.9)
    z = (z > 1.5).astype(float) if zero_one else z
    frame = pd.DataFrame({"place": rng.choice(["a", "b", "c"], 6000, p=[0.7, 0.2, 0.1])})
    frame["old"] = rng.random(6000) > 0.5
    frame.loc[4000:4900, "place"] = None
    settings = {"divergence": ["chi2", "kl"], "rhos": [0, 0.1, 1e9]}
    local = drolearn.stress_test(
        losses=z, groups=frame, sample_weight=b if weighted else None, random_state=0, **settings
    )
    report = stress_test(
        da.from_array(z, chunks=1500),
        groups=dd.from_pandas(frame, chunksize=1500, sort=False),
        sample_weight=da.from_array(b, chunks=2500) if weighted else None,
        **settings,
    )
    assert report.rows == local.rows == 6000
    assert (report.losses, report.divergences) == (local.losses, local.divergences)
    for table in ("curve", "groups", "radii"):
        expected, found = getattr(local, table), getattr(report, table)
        assert list(found.columns) == list(expected.columns)
        same_method = slice(None)
        if "method" in expected:
            same_method = (expected["method"] == found["method"]).to_numpy()
            assert same_method.sum() >= 4
            assert set(found["method"]) <= {"influence", "binomial", ""}
        for column in expected:
            x, y = expected[column], found[column]
            if column in ("low", "high"):
                x, y = x[same_method], y[same_method]
            if x.dtype.kind == "f":
                np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-12)
            elif column != "method":
                assert y.astype(str).tolist() == x.astype(str).tolist()
    assert report.break_even.empty
    assert "kl" in report.to_json()


def test_wrong_arguments_of_stress_tests_are_named(client):
    z = da.from_array(np.arange(10.0), chunks=5)
    with pytest.raises(ValueError, match="at least one number with a positive weight"):
        stress_test(z, sample_weight=0.0 * z)
    with pytest.raises(ValueError, match="'groups' parameter must have as many partitions"):
        stress_test(z, groups=dd.from_pandas(pd.Series(["a"] * 10), npartitions=1))
    with pytest.raises(ValueError, match="inf at index 0 of partition 0"):
        stress_test(da.from_array(damaged(np.arange(10.0), 0, np.inf), chunks=5))
    with pytest.raises(ValueError, match=r"to 1e\+120.*e\+150 at row 4 of partition [01]"):
        stress_test(1e150 * z)
    with pytest.raises(TypeError, match="'losses' parameter must be a Dask array"):
        stress_test([1.0, 2.0])


def test_results_do_not_depend_on_the_workers(client, data):
    """The same blocks on one worker, or on two, give the same bits, with a task for each."""
    X, y, _ = data
    dX, dy = da.from_array(X, chunks=(250, 4)), da.from_array(y, chunks=250)
    models = {}
    for workers in ([0], [0, 1]):
        names = [list(client.ncores())[k] for k in workers]
        held = client.persist([dX, dy], workers=names)
        models[len(workers)] = RobustRegressor(rho=0.1, tol=1e-2, client=client).fit(*held)
        del held
    assert models[1].coef_.tobytes() == models[2].coef_.tobytes()
    assert models[1].n_rounds_ == models[2].n_rounds_


def test_tasks_of_a_round_do_not_grow_with_the_partitions(client, data, monkeypatch):
    from drolearn.dask import _engine

    X, y, _ = data
    engines = []
    enter = _engine.DaskBlocks.__enter__
    monkeypatch.setattr(
        _engine.DaskBlocks, "__enter__", lambda self: engines.append(self) or enter(self)
    )
    for chunks in (375, 50):
        RobustRegressor(rho=0.1, tol=0.5).fit(
            da.from_array(X, chunks=(chunks, 4)), da.from_array(y, chunks=chunks)
        )
    for engine in engines:
        assert 1 <= engine.tasks / engine.rounds <= len(client.ncores())


def test_estimators_that_hold_a_client_are_copied_and_pickled(client, data):
    X, y, _ = data
    reg = RobustRegressor(rho=0.1, divergence="kl", tol=0.1, client=client)
    copy = clone(reg)
    assert copy.client is client
    assert copy.get_params() == reg.get_params()
    reg.fit(da.from_array(X, chunks=(500, 4)), da.from_array(y, chunks=500))
    loaded = pickle.loads(pickle.dumps(reg))
    assert loaded.client is None
    assert loaded.client_ is client  # the one that was made last
    assert loaded.coef_.tobytes() == reg.coef_.tobytes()
    local = reg.to_local()
    assert type(local) is drolearn.RobustRegressor
    assert "client" not in local.get_params()
    assert local.predict(X).tobytes() == reg.predict(X).tobytes()
    program = (
        "import pickle, sys; model = pickle.load(sys.stdin.buffer); "
        "print(model.predict([[1.0] * 4]).shape, 'dask' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(local), capture_output=True, check=True
    )
    assert done.stdout.split() == [b"(1,)", b"False"]


@pytest.mark.parametrize("fetched", [2_000_000, 200], ids=["fetched", "in the blocks"])
def test_multilevel_draws_on_a_cluster(client, data, monkeypatch, fetched):
    """The same bits for any number of workers; rows of many steps come in one round."""
    monkeypatch.setattr("drolearn._solvers.block_steps._FETCHED", fetched)
    X, y, _ = data
    settings = {"rho": 0.1, "l2": 0.01, "max_iter": 20 if fetched > 200 else 2, "tol": None}
    exact = drolearn.RobustRegressor(rho=0.1, l2=0.01).fit(X, y)
    dX, dy = da.from_array(X, chunks=(400, 4)), da.from_array(y, chunks=400)
    coefs = []
    for workers in ([0], [0, 1]):
        held = client.persist([dX, dy], workers=[list(client.ncores())[k] for k in workers])
        reg = RobustRegressor(solver="gssg", random_state=0, client=client, **settings)
        coefs.append(reg.fit(*held).coef_)
        del held
    assert coefs[0].tobytes() == coefs[1].tobytes()
    assert reg.solver_ == "gssg"
    if fetched > 200:
        assert reg.n_rounds_ < 60  # of some 200 steps
        assert reg.objective_ < 1.02 * exact.objective_


@pytest.mark.parametrize("in_groups", [False, True])
@pytest.mark.parametrize("solver", ["gssg-anchor", "fsg", drolearn.GSSG(r="auto"), "sgd"])
def test_other_stochastic_solvers_on_a_cluster(client, data, solver, in_groups):
    """Anchors, all rows in every step, tuned levels, and draws from each group."""
    X, y, weights = data
    names = names_of_groups(X, "names")[0] if in_groups else None
    settings = {"rho": 0.1, "l2": 0.01, "max_iter": 60}
    exact = drolearn.RobustRegressor(rho=0.1, l2=0.01).fit(X, y, weights, names)
    parts = [da.from_array(part, chunks=400) for part in (y, weights)]
    of = None if names is None else da.from_array(names, chunks=400)
    reg = RobustRegressor(solver=solver, tol=None, random_state=0, client=client, **settings)
    reg.fit(da.from_array(X, chunks=(400, 4)), *parts, groups=of)
    close = {"gssg-anchor": 1e-6, "fsg": 2e-2}.get(str(solver), 3e-2)
    assert reg.objective_ < (1.0 + close) * exact.objective_
    if in_groups:
        assert reg.groups_.tolist() == exact.groups_.tolist()
        np.testing.assert_allclose(reg.group_weights_, exact.group_weights_, atol=0.05)


@pytest.mark.parametrize("in_groups", [False, True])
def test_regrets_are_those_of_one_machine(client, data, in_groups):
    """Losses of a reference as a collection, in exact fits, draws, worst cases and stress tests."""
    X, y, weights = data
    c = np.random.default_rng(1).exponential(size=1500)
    names = names_of_groups(X, "names")[0] if in_groups else None
    local = drolearn.RobustRegressor(**TIGHT).fit(X, y, weights, names, reference_losses=c)
    dX, dy, db, dc = (da.from_array(a, chunks=(400, *a.shape[1:])) for a in (X, y, weights, c))
    of = None if names is None else da.from_array(names, chunks=400)
    reg = RobustRegressor(**TIGHT).fit(dX, dy, db, of, reference_losses=dc.rechunk(700))
    same(reg, local, close=1e-6)
    assert reg.robust_loss_ == pytest.approx(local.robust_loss_, rel=1e-9)
    close = 1e-9 * local.robust_loss_
    assert reg.robust_regret_ == pytest.approx(local.robust_regret_, abs=close)
    found = reg.worst_case(dX, dy, 0.3, db, reference_losses=dc)
    expected = reg.to_local().worst_case(X, y, 0.3, weights, reference_losses=c)
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    settings = {"rho": 0.2, "l2": 0.01, "solver": "gssg", "random_state": 0, "max_iter": 40}
    drawn = RobustRegressor(tol=None, **settings).fit(dX, dy, db, of, reference_losses=dc)
    assert drawn.objective_ - local.objective_ < 0.03 * local.robust_loss_
    assert drawn.robust_regret_ < drawn.robust_loss_
    if in_groups:
        return
    z, rhos = reg.losses(X, y), [0.0, 0.5]
    report = stress_test(reg.losses(dX, dy), reference_losses=dc, rhos=rhos, sample_weight=db)
    expected = drolearn.stress_test(losses=z, reference_losses=c, rhos=rhos, sample_weight=weights)
    assert report.regret
    np.testing.assert_allclose(report.curve["loss"], expected.curve["loss"], rtol=1e-8)
    assert report.curve["error"].isna().all()


def test_reference_losses_of_other_rows_are_refused(client, data):
    X, y, _ = data
    dX, dy = da.from_array(X, chunks=(500, 4)), da.from_array(y, chunks=500)
    with pytest.raises(ValueError, match=r"'reference_losses'.*one entry for each of the 1500"):
        RobustRegressor().fit(dX, dy, reference_losses=dy[1:])
    wrong = da.from_array(damaged(y, 700, np.nan), chunks=500)
    with pytest.raises(ValueError, match=r"'reference_losses'.*nan in row 200 of partition 1"):
        RobustRegressor().fit(dX, dy, reference_losses=wrong)
    with pytest.raises(ValueError, match="'reference_losses' parameter must be None for several"):
        stress_test({"one": dy, "two": dy}, reference_losses=dy)
    with pytest.raises(RuntimeError, match=r"Partition 1 .*'reference_losses'.* Got nan"):
        stress_test(dy, reference_losses=wrong)


def test_parquet_folders_and_columns_by_name(client, data, tmp_path):
    """A path stands for a dataframe; y, weights and groups may be columns of it."""
    X, y, weights = data
    names = names_of_groups(X, "names")[0]
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, w=weights, place=names)
    for k in range(3):
        frame[500 * k : 500 * k + 500].to_parquet(tmp_path / f"part-{k}.parquet")
    local = drolearn.RobustRegressor(**TIGHT).fit(frame[list("abcd")], y, weights, names)
    for path in (tmp_path, f"{tmp_path}/part-?.parquet", dd.from_pandas(frame, npartitions=3)):
        reg = RobustRegressor(**TIGHT).fit(path, "y", sample_weight="w", groups=["place"])
        assert reg.feature_names_in_.tolist() == list("abcd")
        assert reg.objective_ == pytest.approx(local.objective_, rel=1e-9)
    predicted, losses = reg.predict(str(tmp_path)), reg.losses(str(tmp_path), "y")
    np.testing.assert_allclose(predicted.compute(), reg.predict(frame[list("abcd")]), rtol=1e-12)
    np.testing.assert_allclose(losses.compute(), reg.losses(frame[list("abcd")], y), rtol=1e-9)
    worst = reg.worst_case(str(tmp_path), "y", sample_weight="w")
    expected = reg.to_local().worst_case(frame[list("abcd")], y, sample_weight=weights)
    assert worst.value == pytest.approx(expected.value, rel=1e-9)
    with pytest.raises(ValueError, match="'y' parameter must be a collection or a column of X"):
        RobustRegressor().fit(tmp_path, "z")
    with pytest.raises(ValueError, match="an array, which has no names"):
        RobustRegressor().fit(da.from_array(X, chunks=500), "y")
    with pytest.raises(
        FileNotFoundError, match=r"Got '/nowhere/\*\.parquet', where there are none"
    ):
        RobustRegressor().fit("/nowhere/*.parquet", "y")
    (tmp_path / "part-1.parquet").write_bytes(b"no Parquet file")
    with pytest.raises(RuntimeError, match=r"Partition 1 .*part-1\.parquet cannot be read"):
        RobustRegressor().fit(tmp_path, "y", sample_weight="w", groups="place")
    (tmp_path / "part-0.parquet").write_bytes(b"no Parquet file")
    with pytest.raises(OSError, match=r"part-0\.parquet cannot be read"):
        RobustRegressor().fit(tmp_path, "y", sample_weight="w", groups="place")


def test_progress_is_printed_by_the_client(client, data, capsys):
    """And tasks have names in the dashboard."""
    X, y, _ = data
    dX, dy = da.from_array(X, chunks=(500, 4)), da.from_array(y, chunks=500)
    names = []
    submit = client.submit

    def named(*args, **kwargs):
        names.append(key_split(kwargs["key"]))
        return submit(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "submit", named)
        reg = RobustRegressor(rho=0.1, tol=1e-2, verbose=1, client=client).fit(dX, dy)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 2
    assert f"{reg.n_iter_:.2f} passes" in lines[-1]
    assert all("[RobustRegressor]" in line and "robust loss" in line for line in lines)
    assert {"drolearn-hold", "drolearn-FoundPass", "drolearn-LookPass"} <= set(names)


@needs_callbacks
def test_callbacks_are_called_and_can_stop_a_fit(client, data):
    X, y, _ = data
    dX, dy = da.from_array(X, chunks=(500, 4)), da.from_array(y, chunks=500)
    every, two = Count(), Count(stop_after=2)
    reg = RobustRegressor(rho=0.1, solver="lbfgs", tol=1e-6).set_callbacks(every).fit(dX, dy)
    assert every.seen == reg.n_iter_ > 2
    assert every.ended == 1
    assert every.models[-1].coef_.tobytes() == reg.coef_.tobytes()
    reg = RobustRegressor(rho=0.1, solver="lbfgs", tol=1e-6).set_callbacks(two).fit(dX, dy)
    assert two.seen == 2
    assert reg.ending_ is drolearn.Ending.STOPPED


def damaged(values, at, value):
    values = values.copy()
    values[at] = value
    return values


# What is damaged, the settings, and what the error says.
WRONG = {
    "NaN in X": ("X", (700, 1), np.nan, {}, "'X'.*nan in row 200 of partition 1"),
    "infinite y": ("y", 1400, np.inf, {}, "'y'.*inf in row 400 of partition 2"),
    "negative weight": ("w", 3, -1.0, {}, "at least 0. Got -1.0 in partition 0"),
    "no weight": ("w", slice(None), 0.0, {}, "positive sum"),
    "large y": ("y", 0, 1e200, {}, "at most 1e.140"),
    "a checkpoint": ("", 0, 0, {"solver": drolearn.GSSG(checkpoint="x")}, "have no checkpoint"),
    "corners": ("", 0, 0, {"divergence": drolearn.CVaR(0.1)}, "must be strictly convex"),
    "a reference": ("", 0, 0, {"reference": "auto"}, "to fit, as 'reference_losses'"),
    "l1": ("", 0, 0, {"l1": 0.1}, "'l1'.*must be 0.0 on a cluster"),
    "trim": ("", 0, 0, {"trim": 0.1}, "'trim'.*must be 0.0 on a cluster"),
    "stored weights": ("", 0, 0, {"store_weights": True}, "'store_weights'.*must be False"),
    "no client": ("", 0, 0, {"client": 3}, "'client' parameter must be a synchronous"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(client, data, case):
    what, at, value, settings, message = case
    given = dict(zip("Xyw", data, strict=True))
    if what:
        given[what] = damaged(given[what], at, value)
    parts = [da.from_array(part, chunks=(500, *part.shape[1:])) for part in given.values()]
    with pytest.raises(ValueError, match=message):
        RobustRegressor(**settings).fit(*parts)


def test_classes_must_be_a_list_of_labels(client, data):
    dX = da.from_array(data[0], chunks=(500, 4))
    for classes in (5, "no", [[0, 1]]):
        with pytest.raises(ValueError, match="'classes' parameter must be a list of labels"):
            RobustClassifier(0.1).fit(dX, dX[:, 0] > 0.0, classes=classes)


def test_wrong_collections_are_named(client, data):
    X, y, _ = data
    dX, dy = da.from_array(X, chunks=(500, 4)), da.from_array(y, chunks=500)
    with pytest.raises(TypeError, match=r"Got ndarray instead: use dask\.array\.from_array"):
        RobustRegressor().fit(X, dy)
    with pytest.raises(TypeError, match="'y' parameter must be a Dask array of one dimension"):
        RobustRegressor().fit(dX, y)
    with pytest.raises(TypeError, match="'groups' parameter must be a Dask array"):
        RobustRegressor().fit(dX, dy, groups=y)
    with pytest.raises(ValueError, match=r"'groups'.*missing values.* Found in partition 1"):
        RobustRegressor().fit(dX, dy, groups=da.from_array(damaged(y, 502, np.nan), chunks=500))
    with pytest.raises(ValueError, match="at least two classes"):
        RobustClassifier().fit(dX, dy > -1e9)
    with pytest.raises(ValueError, match="must hold numbers"):
        RobustRegressor().fit(dX, dy.astype(str))
    with pytest.raises(ValueError, match="one entry for each of the 1500 rows"):
        RobustRegressor().fit(dX, dy[1:])
    unknown = dX[dX[:, 0] > -1e9]
    with pytest.raises(ValueError, match="as many partitions as X, 3"):
        RobustRegressor().fit(unknown, dy.rechunk(100))
    with pytest.raises(ValueError, match="nan at index 2 of partition 1"):
        worst_case(da.from_array(damaged(y, 502, np.nan), chunks=500))
    with pytest.raises(ValueError, match="at least one row"):
        RobustRegressor().fit(dX[:0], dy[:0])

    def fails(block):
        raise OSError("no such file: part-7.parquet")

    with pytest.raises(RuntimeError, match=r"Partition 0 could not be computed.*part-7"):
        RobustRegressor().fit(dX.map_blocks(fails, dtype=float, meta=X[:0]), dy)


def test_without_dask_one_sentence_says_how_to_install_it():
    program = "import sys; sys.modules['distributed'] = None; import drolearn.dask"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ImportError: drolearn.dask needs Dask, of which 'distributed' is not installed: "
        "pip install 'drolearn[dask]'"
    )
