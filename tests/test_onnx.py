"""Models as ONNX: onnxruntime computes what scikit-learn computes."""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
import pytest
import skl2onnx
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import (
    Loss,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressor,
    RobustRegressorCV,
)
from drolearn.onnx import register

NO_DICTIONARIES = {"zipmap": False}
LABELS = [
    np.array([False, True]), np.array(["no", "yés"]), np.array([-3, 2**40]),
    np.array(["a", "b"], dtype=object), np.array(["x", "yy", "zzz"]), np.array([7, 8, 9, 11]),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _registered():
    register()
    register()  # once more changes nothing


def data(dtype=np.float64):
    """Columns of different sizes and means, and a noisy score."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)) * [1.0, 5.0, 0.1, 2.0] + [0.0, 3.0, 0.0, 1.0]
    return X.astype(dtype), X[:, 0] + rng.standard_normal(200)


def run(model, X, **options):
    """What onnxruntime computes with the converted model."""
    converted = skl2onnx.to_onnx(model, X, **options)
    session = onnxruntime.InferenceSession(
        converted.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: X})


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_classifiers(labels, dtype):
    X, score = data(dtype)
    y = labels[np.digitize(score, np.linspace(-1, 1, labels.size + 1)[1:-1])]
    model = make_pipeline(StandardScaler(), RobustClassifier(rho=0.05)).fit(X, y)
    found, proba = run(model, X, options=NO_DICTIONARIES)
    assert (found == model.predict(X)).all()
    assert proba.dtype == dtype
    want = model.predict_proba(X)
    np.testing.assert_allclose(proba, want, atol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_regressors(dtype):
    X, score = data(dtype)
    for model in (RobustRegressor(loss="huber"), RobustRegressorCV(rhos=[0.0, 0.1], l2s=[1.0])):
        pipeline = make_pipeline(StandardScaler(), model).fit(X, score)
        [found] = run(pipeline, X)
        atol = 1e-6 if dtype == np.float32 else 1e-14
        np.testing.assert_allclose(found.ravel(), pipeline.predict(X), atol=atol)


def test_integers_as_rows():
    X, score = data()
    X = np.round(X).astype(np.int64)
    model = RobustClassifier().fit(X, score > 0)
    found, proba = run(model, X, options=NO_DICTIONARIES)
    assert (found == model.predict(X)).all()
    np.testing.assert_allclose(proba, model.predict_proba(X), atol=1e-6)


def test_losses_without_probabilities_give_scores():
    X, score = data()
    model = RobustClassifier(loss=Loss.smoothed_hinge(0.5)).fit(X, score > 0)
    found, scores = run(model, X, options=NO_DICTIONARIES)
    assert (found == model.predict(X)).all()
    want = model.decision_function(X)
    np.testing.assert_allclose(scores, np.column_stack([-want, want]), atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_raw_scores_on_request(k):
    X, score = data()
    y = np.digitize(score, np.linspace(-1, 1, k + 1)[1:-1])
    model = RobustClassifierCV(rhos=[0.0, 0.1], l2s=[1.0], cv=2).fit(X, y)
    _, scores = run(model, X, options={"zipmap": False, "raw_scores": True})
    want = model.decision_function(X)
    want = np.column_stack([-want, want]) if k == 2 else want
    np.testing.assert_allclose(scores, want, atol=1e-12)


def test_dictionaries_of_probabilities():
    X, score = data(np.float32)
    model = RobustClassifier().fit(X, np.where(score > 0, "yes", "no"))
    _, found = run(model, X)
    want = model.predict_proba(X)
    assert set(found[0]) == {"no", "yes"}
    np.testing.assert_allclose([each["yes"] for each in found], want[:, 1], atol=1e-6)


def test_inside_other_estimators():
    X, score = data()
    columns = make_column_transformer((StandardScaler(), [0, 1]), remainder="passthrough")
    model = make_pipeline(columns, CalibratedClassifierCV(RobustClassifier(), cv=2))
    model.fit(X, score > 0)
    _, proba = run(model, X, options=NO_DICTIONARIES)
    np.testing.assert_allclose(proba, model.predict_proba(X), atol=1e-12)


def test_skl2onnx_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'drolearn\[onnx\]'"):
        register()
