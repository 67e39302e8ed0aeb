"""`partial_fit`: streams of unknown length in one pass, with bounded memory."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import drolearn
from drolearn import GSSG, Extremile, RobustClassifier, RobustClassifierCV, RobustRegressor
from drolearn._solvers.inputs import make_problem
from drolearn._solvers.stream import _Running, _Window
from drolearn.divergence import as_divergence
from drolearn.loss import as_loss

SETTINGS = {"rho": 0.1, "l2": 1e-3, "random_state": 0}


def calls(model, X, y, *, size=500, weights=None, **first):
    """Pass all rows to `partial_fit`, some at a time."""
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        more = {} if weights is None else {"sample_weight": weights[part]}
        model.partial_fit(X[part], y[part], **more, **first)
    return model


@pytest.fixture(scope="module")
def rows():
    """20,000 rows with columns of different scales and means."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 5)) * [1.0, 10.0, 0.1, 1.0, 3.0] + [0.0, 5.0, 1.0, 0.0, -9.0]
    score = X[:, 0] + 5.0 * X[:, 2] + rng.standard_normal(20_000)
    return X, score, rng.integers(1, 4, 20_000).astype(float)


# -- what it minimises ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "classes", "regression", "huber"])
@pytest.mark.parametrize("form", ["dense", "sparse", "weighted"])
def test_one_pass_comes_close_to_the_optimum(rows, kind, form):
    """The objective on all rows is within 3% of the optimum, after 250 steps."""
    X, score, weights = rows
    given, close = X, 3e-2
    if form == "sparse":  # steps on sparse rows do not centre columns: without large means
        X = np.where(abs(X - X.mean(axis=0)) > X.std(axis=0), X - X.mean(axis=0), 0.0)
        given = sp.csr_matrix(X)
        score = X[:, 0] + 5.0 * X[:, 2] + (score - score.mean()) / 3.0
    b = weights if form == "weighted" else None
    if kind in ("binary", "classes"):
        bounds = [0.0] if kind == "binary" else [-1.0, 1.0]
        y = np.digitize((score - np.median(score)) / score.std(), bounds)
        model = RobustClassifier(**SETTINGS)
        calls(model, given, y, weights=b, classes=np.unique(y))
    else:
        y, loss = score, "squared" if kind == "regression" else "huber"
        model = RobustRegressor(loss=loss, **SETTINGS)
        calls(model, given, y, weights=b)
    exact = type(model)(**{**model.get_params(), "solver": "exact"}).fit(X, y, b)
    penalty = 0.5 * SETTINGS["l2"] * float(np.sum(model.coef_**2))
    value = model.worst_case(X, y, sample_weight=b).value + penalty
    assert model.n_samples_seen_ == len(y)
    assert value < (1.0 + close) * exact.objective_


def test_other_divergences_and_cvar(rows):
    X, score, _ = rows
    for divergence, rho in (("kl", 0.1), ("total-variation", 0.1), (drolearn.CVaR(0.8), None)):
        reg = RobustRegressor(rho, divergence=divergence, l2=1e-3, random_state=0)
        calls(reg, X, score)
        exact = RobustRegressor(rho, divergence=divergence, l2=1e-3, tol=1e-3).fit(X, score)
        # Of a ball that is not strictly convex, gradients of small batches vary more.
        slack = 1.02 if divergence == "kl" else 1.12
        assert reg.worst_case(X, score).value < slack * exact.robust_loss_


def test_a_larger_window_has_a_smaller_bias():
    """Windows of 8 rows hold too few large values; those of 1,024 rows hold enough."""
    rng = np.random.default_rng(0)
    y, X = rng.exponential(size=40_000), rng.standard_normal((40_000, 1))
    optimum = RobustRegressor(2.0, l2=0).fit(X, y).intercept_

    def difference(level):
        solver = GSSG(batch_size=8, max_level=level, fire=0.3, tame=False)
        reg = RobustRegressor(2.0, l2=0, solver=solver, random_state=0)
        return optimum - calls(reg, X, y, size=40_000).intercept_

    assert difference(0) > 0.2
    assert abs(difference(7)) < 0.1


def test_running_moments_are_those_of_all_rows(rows):
    """Of pieces, without cancellation for columns far from zero."""
    X = rows[0][:1000] + np.array([0.0, 1e6, 0.0, 0.0, 0.0])
    loss, ball = as_loss("squared"), as_divergence("chi2")

    def problem(part):
        y = np.zeros(part.shape[0])
        return make_problem(
            part, y, None, None, rho=0.1, divergence=ball, loss=loss, l2=0.0, fit_intercept=True,
            n_jobs=None,
        )  # fmt: skip

    running = _Running.of(problem(X[:1]))
    for part in (X[1:10], X[10:300], X[300:]):
        running.add(_Running.of(problem(part)))
    for mean in (None, X.mean(axis=0)):
        about = X if mean is None else X - mean
        found = running.moments(mean)
        np.testing.assert_allclose(found.total, X.sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.square, (about**2).sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(found.largest, abs(about).max(axis=0), rtol=1e-9)


# -- one pass, bounded memory, checkpoints -------------------------------------------------------


def test_memory_does_not_grow_with_the_stream():
    """40 times the window takes as much memory as 4 times."""
    rng = np.random.default_rng(0)
    solver = GSSG(batch_size=16, max_level=4)

    def held(count):
        """Bytes after some calls, in memory and in a pickle."""
        reg = RobustRegressor(0.1, l2=1e-3, solver=solver, random_state=0)
        tracemalloc.start()
        for _ in range(count):
            X = rng.standard_normal((64, 100))
            reg.partial_fit(X, X[:, 0])
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size, len(pickle.dumps(reg))

    few, many = held(16), held(160)
    assert many[0] < 1.1 * few[0]
    assert many[1] < 1.1 * few[1]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_pickle_continues_to_the_same_bits(rows, form):
    X, y = form(rows[0]), rows[1] > 1.0
    through = calls(RobustClassifier(**SETTINGS), X, y, size=1500, classes=[False, True])
    clf = calls(RobustClassifier(**SETTINGS), X[:9000], y[:9000], size=1500, classes=[False, True])
    resumed = pickle.loads(pickle.dumps(clf))
    calls(resumed, X[9000:], y[9000:], size=1500)
    assert resumed.coef_.tobytes() == through.coef_.tobytes()
    assert resumed.intercept_.tobytes() == through.intercept_.tobytes()
    assert resumed.t_ == through.t_
    assert resumed.history_.value == through.history_.value


def test_rows_one_by_one(rows):
    """A model exists after the first row; later rows improve it."""
    X, score, _ = rows
    reg = RobustRegressor(**SETTINGS)
    for k in range(700):
        reg.partial_fit(X[k : k + 1], score[k : k + 1])
        assert reg.n_samples_seen_ == k + 1
    assert reg.score(X, score) > 0.5
    assert len(reg.history_.value) == 10  # whenever the rows have doubled


# -- scikit-learn's conventions ------------------------------------------------------------------


def test_fit_and_partial_fit_in_turn(rows):
    """A stream starts from a fitted model; `fit` ends a stream and does not depend on it."""
    X, score, _ = rows
    y = score > 1.0
    fitted = RobustClassifier(**SETTINGS).fit(X, y)
    clf = RobustClassifier(**SETTINGS).fit(X, y)
    clf.partial_fit(X[:0:-1][:1], y[:0:-1][:1])  # classes are known
    assert clf.n_samples_seen_ == 1
    assert np.linalg.norm(clf.coef_ - fitted.coef_) < 0.5 * np.linalg.norm(fitted.coef_)
    clf.fit(X, y)
    assert clf.coef_.tobytes() == fitted.coef_.tobytes()
    assert not hasattr(clf, "n_samples_seen_")
    assert not hasattr(clf, "t_")


def test_weights(rows):
    """Their scale has no effect, rows of weight 0 neither, and class weights multiply them."""
    X, score, weights = rows
    y, weights = score > 1.0, np.where(weights == 2.0, 0.0, weights)
    some = weights > 0.0
    first = {"classes": [False, True]}
    clf = calls(RobustClassifier(**SETTINGS), X, y, size=20_000, weights=weights, **first)
    for other in (1024.0 * weights, 2.0**-1000 * weights):
        same = calls(RobustClassifier(**SETTINGS), X, y, size=20_000, weights=other, **first)
        assert same.coef_.tobytes() == clf.coef_.tobytes()
    kept = calls(
        RobustClassifier(**SETTINGS), X[some], y[some], size=20_000, weights=weights[some], **first
    )
    np.testing.assert_allclose(kept.coef_, clf.coef_, rtol=0.2, atol=0.02)
    heavy = RobustClassifier(class_weight={True: 4.0}, **SETTINGS)
    by_class = calls(heavy, X, y, size=20_000, **first)
    by_row = calls(
        RobustClassifier(**SETTINGS), X, y, size=20_000, weights=np.where(y, 4.0, 1.0), **first
    )
    assert by_class.coef_.tobytes() == by_row.coef_.tobytes()
    with pytest.raises(ValueError, match="non-zero"):
        clf.partial_fit(X, y, sample_weight=0.0 * weights)


def test_single_precision_and_a_change_of_it(rows):
    X, score, _ = rows
    reg = RobustRegressor(**SETTINGS).partial_fit(X[:100].astype(np.float32), score[:100])
    assert reg.coef_.dtype == np.float32
    reg.partial_fit(X[100:300], score[100:300])
    assert reg.coef_.dtype == np.float64
    assert np.isfinite(reg.coef_).all()


def test_model_files_hold_the_model_and_not_the_stream(rows, tmp_path):
    X, score, _ = rows
    reg = RobustRegressor(**SETTINGS).partial_fit(X, score)
    drolearn.save(reg, tmp_path / "model.drl")
    loaded = drolearn.load(tmp_path / "model.drl")
    assert loaded.coef_.tobytes() == reg.coef_.tobytes()
    assert loaded.n_samples_seen_ == len(score)
    assert loaded.partial_fit(X[:1], score[:1]).n_samples_seen_ == 1


def test_long_steps_are_undone(rows):
    X, score, _ = rows
    solver = GSSG(step_size=1e200)
    reg = RobustRegressor(0.1, l2=1e-3, solver=solver, random_state=0)
    with pytest.warns(ConvergenceWarning, match="steps are half as long"):
        reg.partial_fit(X[:1000], score[:1000])
    assert np.isfinite(reg.coef_).all()
    assert not reg.converged_


# -- sentences -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"l2": "auto"}, "a number for 'l2'"),
        ({"rho": None}, "a number for 'rho'"),
        ({"rho": "auto"}, "a number for 'rho'"),
        ({"solver": "exact"}, "'gssg' or GSSG"),
        ({"solver": GSSG(anchor=True)}, "without an anchor"),
        ({"solver": GSSG(r="auto")}, "a number as 'r'"),
        ({"solver": GSSG(checkpoint="here")}, "pickle the estimator"),
        ({"tau": 0.5}, "tau=None"),
        ({"reference": "auto"}, "reference=None"),
        ({"rho": None, "divergence": Extremile(2)}, "needs a φ-divergence"),
        ({"class_weight": "balanced"}, "a dictionary as 'class_weight'"),
    ],
)
def test_what_partial_fit_needs(settings, text):
    clf = RobustClassifier(**{**SETTINGS, **settings})
    assert not hasattr(clf, "partial_fit")
    with pytest.raises(AttributeError, match=text):
        clf.partial_fit([[0.0], [1.0]], [0, 1], classes=[0, 1])


def test_cross_validation_has_no_partial_fit():
    assert not hasattr(RobustClassifierCV(), "partial_fit")
    with pytest.raises(AttributeError, match="RobustClassifier and RobustRegressor do"):
        RobustClassifierCV().partial_fit([[0.0]], [0])


def test_wrong_input_is_a_sentence(rows):
    X, score, _ = rows
    y = score > 1.0
    clf = RobustClassifier(**SETTINGS)
    with pytest.raises(ValueError, match="first call of partial_fit needs the 'classes'"):
        clf.partial_fit(X, y)
    with pytest.raises(ValueError, match="at least two labels"):
        clf.partial_fit(X, y, classes=[True])
    clf.partial_fit(X[:10], y[:10], classes=[False, True])
    before = pickle.dumps(clf.coef_)
    with pytest.raises(ValueError, match="same in every call"):
        clf.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="labels that RobustClassifier was fitted with"):
        clf.partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match="must be dense"):
        clf.partial_fit(sp.csr_matrix(X), y)
    with pytest.raises(ValueError, match="features"):
        clf.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match="NaN"):
        clf.partial_fit(np.full((1, 5), np.nan), [True])
    with pytest.raises(ValueError, match="0 sample"):
        clf.partial_fit(X[:0], y[:0])
    assert pickle.dumps(clf.coef_) == before
    margin = RobustClassifier(loss="squared-hinge", **SETTINGS)
    with pytest.raises(ValueError, match="more than two classes"):
        margin.partial_fit(X[:3], [0, 1, 2], classes=[0, 1, 2])
    wrong: Any
    for wrong in (-1, 1.5, 60):
        with pytest.raises(ValueError, match="'max_level' parameter must be an integer"):
            RobustRegressor(solver=GSSG(max_level=wrong), **SETTINGS).partial_fit(X, score)
    huge = X.copy()
    huge[3, 2] = 1e200
    reg = RobustRegressor(**SETTINGS)
    with pytest.raises(ValueError, match="Column 2 has 1e\\+200"):
        reg.partial_fit(huge, score)
    assert not hasattr(reg, "coef_")  # a call that fails does not begin a stream
    assert reg.partial_fit(X[:9, :2], score[:9]).n_features_in_ == 2


def test_ctrl_c_keeps_the_model_so_far(rows, monkeypatch):
    """After two pieces of the second call."""
    X, score, _ = rows
    reg = RobustRegressor(solver=GSSG(batch_size=8, max_level=3), **SETTINGS)
    reg.partial_fit(X[:640], score[:640])
    push, pushed = _Window.push, []

    def push_twice(self, *args):
        if len(pushed) == 2:
            raise KeyboardInterrupt
        pushed.append(True)
        push(self, *args)

    monkeypatch.setattr(_Window, "push", push_twice)
    with pytest.raises(KeyboardInterrupt):
        reg.partial_fit(X[640:1280], score[640:1280])
    assert reg.n_samples_seen_ == 640 + 2 * 64
    assert "768 rows" in reg.status_
