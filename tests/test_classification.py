"""`RobustClassifier` against scikit-learn's; penalties, attributes, convergence, errors."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import (
    GSSG,
    CVaR,
    Loss,
    RobustClassifier,
    RobustClassifierCV,
    solve,
    worst_case,
)
from tests.examples import radius_of

TIGHT = {"tol": 1e-13, "max_iter": 1000}

# -- against LogisticRegression at ρ = 0 ---------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_radius_zero_is_logistic_regression(three_classes, classes, weighted):
    X, y = three_classes
    y = y if classes == 3 else y > 0
    weight = np.random.default_rng(0).random(y.size) if weighted else np.ones(y.size)
    l2 = 1e-2
    ours = RobustClassifier(rho=0.0, l2=l2, tol=1e-13, max_iter=500).fit(X, y, weight)
    theirs = LogisticRegression(C=1.0 / (l2 * weight.sum()), tol=1e-12, max_iter=5000)
    theirs.fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(ours.predict_log_proba(X), theirs.predict_log_proba(X), atol=1e-5)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_balanced_classes_have_the_weights_of_logistic_regression(two_classes):
    X, y = two_classes
    ours = RobustClassifier(rho=0.0, class_weight="balanced", l2=1e-2, tol=1e-13).fit(X, y)
    C = 1.0 / (1e-2 * y.size)
    theirs = LogisticRegression(C=C, class_weight="balanced", tol=1e-12).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


# -- the default penalty -------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_default_penalty_is_that_of_logistic_regression(
    three_classes, classes, weighted, class_weight, container
):
    X, y = three_classes
    y = y if classes == 3 else y > 0
    weight = 3.0 * np.random.default_rng(0).random(y.size) if weighted else None
    ours = RobustClassifier(0.0, class_weight=class_weight, **TIGHT).fit(container(X), y, weight)
    theirs = LogisticRegression(class_weight=class_weight, tol=1e-12, max_iter=5000)
    theirs.fit(container(X), y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    if class_weight is None:
        assert ours.l2_ == pytest.approx(1.0 / (y.size if weight is None else weight.sum()))


@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_larger_weights_are_a_larger_C(two_classes, rho):
    X, y = two_classes
    weight = np.random.default_rng(0).random(y.size)
    larger = RobustClassifier(rho, **TIGHT).fit(X, y, 5.0 * weight)
    assert larger.l2_ == pytest.approx(1.0 / (5.0 * weight.sum()))
    same = RobustClassifier(rho, l2=1.0 / (5.0 * weight.sum()), **TIGHT).fit(X, y, weight)
    np.testing.assert_allclose(larger.coef_, same.coef_, atol=1e-6)
    if rho == 0.0:
        theirs = LogisticRegression(C=5.0, tol=1e-12, max_iter=5000).fit(X, y, weight)
        np.testing.assert_allclose(larger.coef_, theirs.coef_, atol=1e-6)


def test_weights_equal_repeated_rows(two_classes):
    X, y = two_classes
    weight = np.random.default_rng(0).integers(0, 4, y.size)
    rows = np.repeat(np.arange(y.size), weight)
    some = RobustClassifier(0.05, class_weight="balanced", **TIGHT).fit(X, y, weight)
    same = RobustClassifier(0.05, class_weight="balanced", **TIGHT).fit(X[rows], y[rows])
    assert some.l2_ == pytest.approx(same.l2_)
    np.testing.assert_allclose(some.coef_, same.coef_, atol=1e-6)


def test_balanced_classes_depend_on_weights(two_classes):
    X, y = two_classes
    weight = np.random.default_rng(0).integers(0, 3, y.size).astype(float)
    rows = np.repeat(np.arange(y.size), weight.astype(int))
    one = RobustClassifier(class_weight="balanced", tol=1e-10).fit(X, y, weight)
    two = RobustClassifier(class_weight="balanced", tol=1e-10).fit(X[rows], y[rows])
    assert one.robust_loss_ == pytest.approx(two.robust_loss_, rel=1e-9)


@pytest.mark.parametrize("unit", [1e-300, 1e-150, 1e-101, 1e101, 1e150, 1e300])
def test_default_penalty_for_huge_and_tiny_weights(two_classes, unit):
    """Such weights are scaled internally; the penalty is that of the weights as given."""
    X, y = two_classes
    weight = unit * (0.5 + np.random.default_rng(0).random(y.size))
    expected = min(1.0 / weight.sum(), 2.0**900)
    assert RobustClassifier().fit(X, y, weight).l2_ == pytest.approx(expected, rel=1e-12, abs=0)
    cv = RobustClassifierCV([0.0, 0.1], l2s=[1.0], cv=KFold(2)).fit(X, y, weight)
    assert cv.l2_ == pytest.approx(expected, rel=1e-12, abs=0)


def test_default_settings_give_good_probabilities():
    X, y = load_breast_cancer(return_X_y=True)
    parts = train_test_split(X, y, random_state=0)
    model = make_pipeline(StandardScaler(), RobustClassifier()).fit(parts[0], parts[2])
    assert log_loss(parts[3], model.predict_proba(parts[1])) < 0.15


# -- attributes ----------------------------------------------------------------------------------


def test_attributes_are_consistent(two_classes):
    X, y = two_classes
    clf = RobustClassifier(rho=0.3, l2=1e-2, store_weights=True).fit(X, y)
    again = clf.worst_case(X, y)
    assert again.value == pytest.approx(clf.robust_loss_)
    np.testing.assert_allclose(again.weights, clf.worst_case_weights_, atol=1e-9)
    penalty = 0.5e-2 * float((clf.coef_**2).sum())
    assert clf.objective_ == pytest.approx(clf.robust_loss_ + penalty)
    assert 0.0 <= clf.gap_ <= 1e-5
    assert clf.converged_
    assert "Converged" in clf.status_
    assert clf.solver_ in ("lbfgs", "newton")
    assert clf.history_.value[-1] <= clf.history_.value[0]
    assert clf.n_iter_ >= 1
    proba = clf.predict_proba(X)
    np.testing.assert_allclose(-np.log(proba[np.arange(600), (y == "yes") + 0]), clf.losses(X, y))
    plain = RobustClassifier(rho=0.0, l2=1e-2).fit(X, y)
    assert plain.losses(X, y).mean() < clf.losses(X, y).mean()
    assert plain.worst_case(X, y, rho=0.3).value > clf.robust_loss_


def test_worst_case_with_weights(two_classes):
    X, y = two_classes
    clf = RobustClassifier().fit(X, y)
    weight = np.random.default_rng(0).random(y.size)
    result = clf.worst_case(X, y, rho=0.4, sample_weight=weight)
    assert result.value == pytest.approx(
        worst_case(clf.losses(X, y), 0.4, sample_weight=weight).value
    )


def test_automatic_radius():
    X, y = make_classification(400, 16, random_state=0)
    assert RobustClassifier(rho="auto", l2=1e-3).fit(X, y).rho_ == pytest.approx(0.2)


@pytest.mark.parametrize("loss", ["squared-hinge", "smoothed-hinge", Loss.smoothed_hinge(0.5)])
def test_losses_without_probabilities(two_classes, loss):
    X, y = two_classes
    clf = RobustClassifier(loss=loss, l2=1e-3).fit(X, y)
    assert clf.score(X, y) > 0.7
    assert not hasattr(clf, "predict_proba")


# -- convergence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", ["kl", "hellinger", "total-variation", CVaR(0.7)])
def test_all_divergences_converge(two_classes, divergence):
    X, y = two_classes
    rho = radius_of(divergence, 0.03)
    clf = RobustClassifier(rho, divergence=divergence, l2=1e-3, max_iter=300).fit(X, y)
    assert clf.converged_
    assert clf.gap_ <= 1e-5 * clf.objective_
    worse = RobustClassifier(0.0, l2=1e-3).fit(X, y)
    cost = 0.5e-3 * float((worse.coef_**2).sum())
    value = worst_case(worse.losses(X, y), rho, divergence).value + cost
    assert clf.objective_ <= value * (1 + 1e-9)


def test_cvar_has_no_radius(two_classes):
    X, y = two_classes
    clf = RobustClassifier(divergence=CVaR(0.5)).fit(X, y)
    assert clf.rho_ == 0.0
    assert clf.divergence_ == CVaR(0.5)
    assert clf.worst_case(X, y).value == pytest.approx(clf.robust_loss_, rel=1e-9)
    for rho in (0.0, 0.1, "auto"):
        with pytest.raises(ValueError, match="'rho' parameter must be None for CVaR"):
            RobustClassifier(rho, divergence="cvar").fit(X, y)
    assert RobustClassifier().fit(X, y).rho_ == 0.1


def test_worst_case_weights_are_stored_on_request_only(two_classes):
    X, y = two_classes
    clf = RobustClassifier(store_weights=True).fit(X, y)
    np.testing.assert_allclose(clf.worst_case_weights_, clf.worst_case(X, y).weights, rtol=1e-6)
    clf.set_params(store_weights=False).fit(X, y)
    assert not hasattr(clf, "worst_case_weights_")
    with pytest.raises(AttributeError, match=r"store_weights=True. Use worst_case\(X, y\).weights"):
        _ = clf.worst_case_weights_
    with pytest.raises(AttributeError, match="'RobustClassifier' object has no attribute 'weigh'"):
        _ = clf.weigh


def test_fitted_models_are_small():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_000, 4))
    y = X[:, 0] + rng.standard_normal(100_000) > 0
    clf = RobustClassifier().fit(X, y)
    del clf.history_
    other = len(pickle.dumps(LogisticRegression().fit(X, y)))
    assert len(pickle.dumps(clf)) <= other + 2000


def test_the_gap_of_many_classes_at_a_corner_is_valid():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.digitize(X[:, 0] + 0.8 * rng.standard_normal(60), [-0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = RobustClassifier(divergence=CVaR(0.3), l2=0.01, tol=1e-8, max_iter=500).fit(X, y)
    best = 1.0983643  # by cvxpy
    assert clf.objective_ - clf.gap_ <= best + 1e-7
    assert clf.converged_ == (clf.gap_ <= 1e-8 * clf.objective_)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rho": -1.0}, "The 'rho' parameter of RobustClassifier must be"),
        ({"rho": np.nan}, "The 'rho' parameter of RobustClassifier must be"),
        ({"rho": "car"}, "The 'rho' parameter of RobustClassifier must be"),
        ({"divergence": "kll"}, "The 'divergence' parameter must be .* Did you mean 'kl'"),
        ({"divergence": 3}, "The 'divergence' parameter of RobustClassifier must be"),
        ({"loss": "logistik"}, "The 'loss' parameter must be .* Did you mean 'logistic'"),
        ({"loss": "squared"}, "The 'loss' parameter of RobustClassifier must be"),
        ({"loss": Loss.huber()}, "The 'loss' parameter of RobustClassifier must be"),
        ({"l2": -1}, "The 'l2' parameter of RobustClassifier must be"),
        ({"l2": np.inf}, "The 'l2' parameter of RobustClassifier must be"),
        ({"l2": "none"}, "The 'l2' parameter of RobustClassifier must be"),
        ({"solver": "newtn"}, "The 'solver' parameter must be .* Did you mean 'newton'"),
        ({"solver": 3}, "The 'solver' parameter of RobustClassifier must be"),
        ({"max_iter": np.inf}, "The 'max_iter' parameter of RobustClassifier must be"),
        ({"max_iter": 0}, "The 'max_iter' parameter of RobustClassifier must be"),
        ({"tol": 2.0}, "The 'tol' parameter of RobustClassifier must be"),
        ({"solver": GSSG(step_size=0.0)}, "The 'step_size' setting must be"),
        ({"solver": GSSG(batch_size=0)}, "The 'batch_size' parameter must be"),
        ({"class_weight": "even"}, "The 'class_weight' parameter of RobustClassifier must be"),
        ({"n_jobs": 0}, "'n_jobs'"),
    ],
)
def test_parameter_errors(two_classes, parameters, message):
    with pytest.raises(ValueError, match=message):
        RobustClassifier(**parameters).fit(*two_classes)


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT], ids=repr)
def test_missing_labels_are_refused(two_classes, missing):
    X, y = two_classes
    labels = np.asarray(y, dtype=object)
    labels[7] = missing
    with pytest.raises(ValueError, match="'y' parameter must not hold missing values"):
        RobustClassifier().fit(X, labels)
    with pytest.raises(ValueError, match="'y' parameter must not hold missing values"):
        solve(X, labels)


def test_data_errors(two_classes, three_classes):
    X, y = two_classes
    with pytest.raises(ValueError, match=r"only one class: 1\.0"):
        RobustClassifier().fit(X, np.ones(600))
    with pytest.raises(ValueError, match="at least two classes"):
        RobustClassifier().fit(X, y, (y == "yes") * 1.0)
    with pytest.raises(ValueError, match=r"'loss' parameter .* 'logistic' for more than two"):
        RobustClassifier(loss="squared-hinge").fit(*three_classes)
    with pytest.raises(ValueError, match="Negative values"):
        RobustClassifier().fit(X, y, -np.ones(600))
    with pytest.raises(ValueError, match=r"positive sum|[Zz]ero"):
        RobustClassifier().fit(X, y, np.zeros(600))
    with pytest.raises(ValueError, match="was fitted with"):
        RobustClassifier().fit(X, y).losses(X, np.full(600, "perhaps"))
    with pytest.raises(ValueError, match="'class_weight' parameter of RobustClassifier must hold"):
        RobustClassifier(class_weight={"yes": -1.0}).fit(X, y)
    with pytest.raises(ValueError, match="at least two classes"):
        RobustClassifier(class_weight={"yes": 0.0}).fit(X, y)


@pytest.mark.parametrize("name", ["fit", "losses"])
def test_labels_of_several_types_are_refused(two_classes, name):
    X, y = two_classes
    mixed = np.array(["a" if label == y[0] else 1 for label in y], dtype=object)
    model = RobustClassifier().fit(X, np.where(y == y[0], "a", "b"))
    with pytest.raises(ValueError, match=r"'y' parameter must hold labels of one type"):
        getattr(model, name)(X, mixed)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_losses_refuse_missing_labels(two_classes, missing):
    X, y = two_classes
    labels = np.where(y == y[0], "a", "b").astype(object)
    model = RobustClassifier().fit(X, labels)
    labels[3] = missing
    with pytest.raises(ValueError, match=r"'y' parameter must not hold missing values. Got 1"):
        model.losses(X, labels)
