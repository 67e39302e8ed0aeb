"""Model files: what is loaded is what was saved, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold

from drolearn import (
    GSSG,
    SGD,
    Constant,
    CressieRead,
    CVaR,
    Decay,
    Divergence,
    Exact,
    History,
    Loss,
    ModelFileError,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressor,
    RobustRegressorCV,
    Spectral,
    load,
    save,
)
from drolearn._files import attributes
from drolearn.divergence import CLASSES, NAMES
from tests.examples import CUSTOM_KL, disk_full, softplus, softplus_slope
from tests.fixtures import make_models

FIXTURES = Path(__file__).parent / "fixtures"

divergences = st.one_of(
    st.sampled_from([*NAMES, *(cls() for cls in CLASSES)]),
    st.builds(CressieRead, st.sampled_from([-1, 0.5, 1.0, np.float32(1.5), 3])),
    st.builds(CVaR, st.floats(0.1, 1.0)),
)
labels = st.sampled_from(
    [
        [False, True], ["no", "yes"], [-1, 1], [0.0, 2.0], ["a", "bb", "ccc"], [3, 5, 2**40],
        np.array([1, 2], dtype=np.int8), np.array(["x", "y"], dtype=object), ["é", "𝜑"],
    ]
)  # fmt: skip
solvers = st.sampled_from(
    [
        "auto", "lbfgs", Exact(checkpoint=None), GSSG(batch_size=8, probabilities=(0.1, 0.1)),
        SGD(step_size=Decay(0.1)), SGD(step_size=Constant(0.01), batch_size=np.int64(8)),
    ]
)  # fmt: skip


def same(a, b) -> bool:
    """Whether two values have the same type and the same bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype.kind == "O":
            return all(map(same, a.ravel(), b.ravel()))
        return a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float | np.floating):
        return a == b or (np.isnan(a) and np.isnan(b))
    if isinstance(a, History | KFold):
        return same(vars(a), vars(b))
    return a == b


def data(seed=0, n=60, d=3):
    """Rows, and a noisy score of them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + rng.standard_normal(n)


def classes(score, names):
    """Labels, one of `names` for each row; all of them occur."""
    return np.asarray(names)[np.digitize(score, np.linspace(-0.5, 0.5, len(names) + 1)[1:-1])]


def check_round_trip(model, X, folder, ending=".drl"):
    """Save and load a model, and compare all that a user can see."""
    path = folder / f"model{ending}"
    save(model, path)
    loaded = load(path)
    assert type(loaded) is type(model)
    assert repr(loaded) == repr(model)
    assert same(loaded.get_params(), model.get_params())
    assert same(vars(loaded), vars(model))
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            assert same(getattr(loaded, method)(X), getattr(model, method)(X))
    return loaded


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


# -- round trips ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::drolearn.ZeroModelWarning")
@settings(max_examples=60, deadline=None)
@given(
    divergences, labels, solvers, st.sampled_from(["logistic", Loss.smoothed_hinge(0.3)]),
    st.sampled_from([np.float32, np.float64]), st.booleans(),
)  # fmt: skip
def test_classifiers(folder, divergence, names, solver, loss, dtype, store_weights):
    X, score = data()
    model = RobustClassifier(
        divergence=divergence, solver=solver, max_iter=3, random_state=0, tol=1e-2, l2=0.1,
        loss="logistic" if len(names) > 2 else loss, store_weights=store_weights,
    )  # fmt: skip
    model.fit(X.astype(dtype), classes(score, names))
    check_round_trip(model, X.astype(dtype), folder)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@settings(max_examples=30, deadline=None)
@given(
    divergences, st.sampled_from(["squared", "huber", Loss.huber(np.float64(0.7))]),
    st.sampled_from([np.float32, np.float64]), st.booleans(),
)  # fmt: skip
def test_regressors(folder, divergence, loss, dtype, fit_intercept):
    X, score = data()
    model = RobustRegressor(divergence=divergence, loss=loss, fit_intercept=fit_intercept)
    check_round_trip(model.fit(X.astype(dtype), score), X.astype(dtype), folder)


@pytest.mark.filterwarnings("ignore::drolearn.ZeroModelWarning")
@pytest.mark.parametrize("divergence", ["chi2", "cvar"])
@pytest.mark.parametrize("estimator", [RobustClassifierCV, RobustRegressorCV])
def test_cross_validation(folder, estimator, divergence):
    X, score = data()
    grid = {"levels": np.array([1.0, 0.5])} if divergence == "cvar" else {"rhos": (0, 0.1)}
    model = estimator(**grid, l2s=[1.0, 0.1], cv=KFold(3), divergence=divergence)
    y = score > 0 if estimator is RobustClassifierCV else score
    loaded = check_round_trip(model.fit(X, y), X, folder)
    assert clone(loaded).fit(X, y).rho_ == model.rho_


@pytest.mark.parametrize("groups", ["one", "two", "overlap", "frame"])
def test_groups_of_all_kinds(folder, groups):
    pandas = pytest.importorskip("pandas")
    X, score = data()
    given_groups = {
        "one": np.repeat(["a", "b"], 30),
        "two": [["a", k % 2 > 0] for k in range(60)],
        "overlap": np.column_stack([X[:, 0] > 0, X[:, 1] > 0]),
        "frame": pandas.DataFrame({"sex": ["f", "m"] * 30, "old": [1, 1, 0] * 20}),
    }[groups]
    frame = pandas.DataFrame(X, columns=["a", "b", "ü"])
    model = RobustClassifier(class_weight={True: 2.0, False: 1}).fit(
        frame, score > 0, groups=given_groups
    )
    loaded = check_round_trip(model, frame, folder)
    assert loaded.feature_names_in_.tolist() == ["a", "b", "ü"]


def test_settings_of_all_kinds(folder):
    """Paths, splitters, and what is set after the fit."""
    X, score = data()
    model = RobustClassifierCV(cv=3, l2s=[1.0], rhos=[0.0]).fit(X, score > 0)
    model.set_params(cv=GroupKFold(4), solver=Exact(checkpoint=Path("some") / "folder"))
    path = folder / "settings.drl"
    save(model, path)
    loaded = load(path)
    assert loaded.solver == model.solver
    assert vars(loaded.cv) == vars(model.cv)


def test_a_loaded_model_goes_on(folder):
    """It can be fitted again from where it was, and does what the saved one does."""
    X, score = data()
    model = RobustClassifier(warm_start=True, rho=0.05).fit(X, score > 0)
    loaded = check_round_trip(model, X, folder)
    assert loaded.worst_case(X, score > 0).value == model.worst_case(X, score > 0).value
    model.set_params(rho=0.1).fit(X, score > 0)
    assert same(loaded.set_params(rho=0.1).fit(X, score > 0).coef_, model.coef_)


def test_the_same_model_gives_the_same_file(folder):
    X, score = data()
    model = RobustRegressor().fit(X, score)
    for name in ("a.drl", "b.drl"):
        save(model, folder / name)
    save(load(folder / "a.drl"), folder / "c.drl")
    assert len({(folder / name).read_bytes() for name in ("a.drl", "b.drl", "c.drl")}) == 1


def test_every_attribute_of_a_fit_is_known():
    """A new attribute must be added to the list of the file format."""
    for model in make_models.models().values():
        fitted = set(vars(model)) - set(model.get_params(deep=False))
        assert fitted <= set(attributes.names(model))


# -- files of former versions --------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.drl")), ids=lambda path: path.stem)
def test_files_of_all_versions_are_read(path):
    _, version, name = path.stem.split("-", 2)
    want = json.loads((FIXTURES / f"version-{version}.json").read_text(encoding="utf-8"))[name]
    model = load(path)
    got = model.predict(make_models.rows())
    if name.startswith("regressor"):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        assert got.tolist() == want
    assert model.status_


# -- what cannot be saved ------------------------------------------------------------------------


def test_users_functions_are_refused(folder):
    X, score = data()
    slopes = {"of": "margin", "smoothness": 0.25}
    for parameter, value in (
        ("divergence", CUSTOM_KL),
        ("loss", Loss.custom(softplus, softplus_slope, **slopes)),
        ("solver", SGD(step_size=lambda t: 0.1 / (1.0 + t))),
    ):
        model = RobustClassifier(**{parameter: value}, tol=None, max_iter=2).fit(X, score > 0)
        with pytest.raises(ModelFileError, match=f"'{parameter}'.*function.*use pickle"):
            save(model, folder / "model.drl")


def test_objects_that_a_drl_file_cannot_describe(folder):
    X, score = data()
    model = RobustRegressor(random_state=np.random.RandomState(0)).fit(X, score)
    with pytest.raises(ModelFileError, match=r"'random_state'.*cannot describe.*use \.skops"):
        save(model, folder / "model.drl")
    model = RobustRegressor().fit(X, score)
    model.remark_ = "mine"
    with pytest.raises(ModelFileError, match=r"'remark_'.*ends in \.skops"):
        save(model, folder / "model.drl")
    with pytest.raises(ModelFileError, match=r"holds one of RobustClassifier.*Got Divergence"):
        save(Divergence(), folder / "model.drl")


def test_models_that_are_not_fitted_or_not_finite(folder):
    X, score = data()
    with pytest.raises(ModelFileError, match="no 'coef_': fit the model"):
        save(RobustRegressor(), folder / "model.drl")
    model = RobustRegressor().fit(X, score)
    for name, value, words in (
        ("coef_", np.array([0.0, np.nan, 1.0]), "not finite in 'coef_'"),
        ("intercept_", np.float64(np.inf), "not finite in 'intercept_'"),
        ("coef_", np.zeros(2), r"shape \(2,\) instead of \(3,\) in 'coef_'"),
    ):
        broken = clone(model).fit(X, score)
        setattr(broken, name, value)
        with pytest.raises(ModelFileError, match=words):
            save(broken, folder / "model.drl")


@pytest.mark.parametrize("path", ["model.pkl", "model", "model.drl.gz", "", 5, b"model.drl"])
def test_names_of_files(path):
    for use in (lambda: save(RobustRegressor(), path), lambda: load(path)):
        with pytest.raises(ModelFileError, match=r"must (end in \.drl or \.skops|be the name)"):
            use()


# -- disks and networks --------------------------------------------------------------------------


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    X, score = data()
    path = tmp_path / "model.drl"
    model = RobustRegressor().fit(X, score)
    save(model, path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save(model.fit(2 * X, score), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on the size of files")
def test_a_full_disk(tmp_path):
    """A limit on the size of files stands for a full disk."""
    program = f"""
import resource, signal, sys
import numpy as np
from drolearn import RobustRegressor, save
X = np.random.default_rng(0).standard_normal((60, 30000))
model = RobustRegressor(max_iter=2, tol=None).fit(X[:, :3], X[:, 0])
save(model, {str(tmp_path / "model.drl")!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
large = RobustRegressor(max_iter=2, tol=None).fit(X, X[:, 0])
try:
    save(large, {str(tmp_path / "model.drl")!r})
except OSError as error:
    print(error.strerror)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "File too large\n", run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.drl"]
    assert load(tmp_path / "model.drl").n_features_in_ == 3


def test_optimised_python_without_home_and_network(tmp_path):
    """`python -O`, a home folder that does not exist, and sockets that raise errors."""
    program = """
import socket
def refuse(*_, **__):
    raise AssertionError("a network call")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
import sys, os
import drolearn, numpy as np
X = np.arange(12.0).reshape(6, 2) % 5
for model in (drolearn.RobustClassifier(), drolearn.RobustRegressor()):
    model.fit(X, [0, 1, 1, 0, 1, 0])
    drolearn.save(model, sys.argv[1])
    assert_same = drolearn.load(sys.argv[1]).predict(X) == model.predict(X)
    if not assert_same.all() or __debug__:
        raise SystemExit("wrong")
"""
    environment = {**os.environ, "HOME": str(tmp_path / "nowhere")}
    command = [sys.executable, "-O", "-c", program, str(tmp_path / "model.drl")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert not (tmp_path / "nowhere").exists()


# -- pipelines -----------------------------------------------------------------------------------


@pytest.fixture
def skops():
    return pytest.importorskip("skops.io")


@pytest.mark.parametrize("estimator", [RobustClassifier, RobustRegressor])
def test_pipelines(skops, folder, estimator):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, score = data()
    model = estimator(
        divergence=CressieRead(1.5), solver=GSSG(step_size=Constant(0.01)), tol=None, max_iter=2
    )
    pipeline = make_pipeline(StandardScaler(), model)
    pipeline.fit(X, score > 0 if estimator is RobustClassifier else score)
    save(pipeline, folder / "pipeline.skops")
    loaded = load(folder / "pipeline.skops")
    assert same(loaded.predict(X), pipeline.predict(X))
    assert same(vars(loaded[-1]), vars(pipeline[-1]))
    with zipfile.ZipFile(folder / "pipeline.skops") as archive:  # spaces would be most of the file
        assert b"\n" not in archive.read("schema.json")


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated_classifiers(skops, folder, method):
    from sklearn.calibration import CalibratedClassifierCV

    X, score = data(n=200)
    model = CalibratedClassifierCV(RobustClassifier(), method=method, cv=2).fit(X, score > 0)
    save(model, folder / "calibrated.skops")
    assert same(load(folder / "calibrated.skops").predict_proba(X), model.predict_proba(X))


def test_all_own_types_are_trusted(skops, folder):
    """Whatever a .drl file holds, a .skops file holds too."""
    from drolearn._files.values import _CLASSES

    X, score = data()
    for path in sorted(FIXTURES.glob("*.drl")):
        check_round_trip(load(path), make_models.rows(), folder, ".skops")
    for name, cls in _CLASSES.items():
        if cls.__module__.startswith("drolearn") and name != "History":
            model = RobustRegressor().fit(X, score)
            made = cls([1, 2]) if cls is Spectral else cls()
            model.set_params(**{"divergence" if issubclass(cls, Divergence) else "solver": made})
            save(model, folder / "model.skops")
            assert type(load(folder / "model.skops").get_params()["solver"]) is type(model.solver)


def test_models_that_skops_cannot_hold(skops, folder):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    X, score = data()
    pipeline = make_pipeline(FunctionTransformer(softplus), RobustRegressor()).fit(X, score)
    with pytest.raises(ModelFileError, match=r"tests\.examples\.softplus.*use pickle"):
        save(pipeline, folder / "model.skops")
    with pytest.raises(ModelFileError, match="not fitted"):
        save(RobustRegressor(), folder / "model.skops")
    with pytest.raises(ModelFileError, match=r"holds a fitted estimator\. Got int"):
        save(5, folder / "model.skops")


def test_types_that_are_not_trusted_are_named(skops, folder):
    from sklearn.preprocessing import FunctionTransformer

    path = folder / "stranger.skops"
    skops.dump(FunctionTransformer(os.system), path)
    with pytest.raises(
        ModelFileError, match=r"'.*stranger\.skops' holds (posix|nt)\.system, which"
    ):
        load(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="cut off or damaged"):
        load(path)


def test_skops_is_optional(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    for use in (lambda: save(RobustRegressor(), "a.skops"), lambda: load(folder / "b.skops")):
        (folder / "b.skops").write_bytes(b"")
        with pytest.raises(ImportError, match=r"drolearn\[files\]"):
            use()


def test_drl_files_need_no_optional_library(folder):
    X, score = data()
    save(RobustRegressor().fit(X, score), folder / "alone.drl")
    program = "import sys, drolearn; drolearn.load(sys.argv[1]); print(*sys.modules)"
    command = [sys.executable, "-c", program, str(folder / "alone.drl")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"skops", "torch", "onnx"} & set(run.stdout.split())
