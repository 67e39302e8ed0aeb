"""Robust boosted trees as estimators: what they fit, protocols of scikit-learn, bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from drolearn import (
    CVaR,
    Loss,
    RobustBoostingClassifier,
    RobustBoostingRegressor,
    reference_losses,
)

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

FEW = {"n_estimators": 20, "n_jobs": 1, "random_state": 0}


def light(classes=True, **settings):
    make = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
    return make(**{**FEW, "verbose": -1, **settings})


def extreme(classes=True, **settings):
    make = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    return make(**{**FEW, "max_depth": 3, **settings})


LIBRARIES = pytest.mark.parametrize("library", [light, extreme])


def two_laws(n=1500, seed=0):
    """Rows of two groups whose labels depend on X in different ways; classes and numbers."""
    rng = np.random.default_rng(seed)
    X, few = rng.standard_normal((n, 3)), rng.random(n) < 0.15
    score = np.where(few, X[:, 1] - X[:, 0], X[:, 0] + 0.5 * X[:, 2])
    y = np.where(2 * score + rng.logistic(size=n) > 0.5, "yes", "no")
    return X, y, 50.0 + score + 0.3 * rng.normal(size=n), few


# -- what is fitted ------------------------------------------------------------------------------


@LIBRARIES
@pytest.mark.parametrize("weighted", [False, True])
def test_radius_zero_is_the_plain_model(library, weighted):
    X, y, number, few = two_laws()
    weights = np.linspace(0.0, 5.0, y.size) if weighted else None
    plain = library().fit(X, y == "yes", sample_weight=weights)
    robust = RobustBoostingClassifier(library(), rho=0).fit(X, y, weights, groups=few)
    np.testing.assert_allclose(robust.predict_proba(X), plain.predict_proba(X), atol=1e-5)
    plain = library(classes=False).fit(X, number, sample_weight=weights)
    robust = RobustBoostingRegressor(library(classes=False), rho=0).fit(X, number, weights, few)
    np.testing.assert_allclose(robust.predict(X), plain.predict(X), rtol=1e-5)


@LIBRARIES
def test_the_worst_group_improves(library):
    X, y, number, few = two_laws()
    X_new, y_new, number_new, new_few = two_laws(6000, seed=1)
    robust = RobustBoostingClassifier(library(), rho=20).fit(X, y, groups=few)
    plain = RobustBoostingClassifier(library(), rho=0).fit(X, y)
    assert robust.groups_.tolist() == [False, True]
    assert robust.group_weights_[1] > 1.3 * few.mean()

    def worst(model, labels):
        return model.worst_case(X_new, labels, rho=20, groups=new_few).value

    assert worst(robust, y_new) < 0.95 * worst(plain, y_new)
    trees = library(classes=False)
    robust = RobustBoostingRegressor(trees, rho=20).fit(X, number, groups=few)
    plain = RobustBoostingRegressor(trees, rho=0).fit(X, number)
    assert worst(robust, number_new) < 0.8 * worst(plain, number_new)


@LIBRARIES
@pytest.mark.parametrize("loss", ["squared", "huber", Loss.huber(0.2)])
def test_early_stopping_by_the_robust_loss(library, loss):
    X, y, number, few = two_laws()
    X_new, y_new, number_new, new_few = two_laws(700, seed=1)
    weights = np.linspace(0.5, 2.0, 700)
    settings = {"n_estimators": 300, "early_stopping_rounds": 5, "learning_rate": 0.3}
    more = {"eval_groups": new_few, "eval_sample_weight": weights}
    for model, labels, new in (
        (RobustBoostingClassifier(library(**settings), rho=5), y, y_new),
        (
            RobustBoostingRegressor(library(classes=False, **settings), rho=5, loss=loss),
            number,
            number_new,
        ),
    ):
        model.fit(X, labels, groups=few, eval_set=(X_new, new), **more)
        assert model.best_round_ == 1 + model.round_values_.argmin() < 300
        assert model.round_values_.size == model.best_round_ + 5
        found = model.worst_case(X_new, new, None, weights, new_few).value  # of the best round
        assert found == pytest.approx(model.round_values_.min(), rel=1e-4)


@LIBRARIES
def test_regret(library):
    """The reference takes the place of losses in the worst case; the trees fit the losses."""
    X, y, _, few = two_laws(600)
    X_new, y_new, _, new_few = two_laws(300, seed=1)
    c = reference_losses(LogisticRegression(), X, y)
    arguments = {"groups": few, "eval_set": (X_new, y_new), "eval_groups": new_few}
    by_estimator = RobustBoostingClassifier(library(), rho=2, reference=LogisticRegression())
    by_estimator.fit(X, y, **arguments)
    linear = LogisticRegression().fit(X, y)
    new_c = -np.log(linear.predict_proba(X_new)[np.arange(300), (y_new == "yes").astype(int)])
    by_losses = RobustBoostingClassifier(library(), rho=2)
    by_losses.fit(X, y, **arguments, reference_losses=c, eval_reference_losses=new_c)
    np.testing.assert_array_equal(by_losses.predict_proba(X), by_estimator.predict_proba(X))
    np.testing.assert_allclose(by_losses.round_values_, by_estimator.round_values_, rtol=1e-5)
    worst = by_losses.worst_case(X_new, y_new, groups=new_few, reference_losses=new_c)
    assert by_losses.round_values_[-1] == pytest.approx(worst.value, abs=1e-4)
    plain = RobustBoostingClassifier(library(), rho=2).fit(X, y, groups=few)
    assert np.abs(plain.group_weights_ - by_losses.group_weights_).max() > 1e-3


@LIBRARIES
@pytest.mark.parametrize("divergence", ["kl", CVaR(0.5)])
def test_balls_over_rows_and_other_divergences(library, divergence):
    X, y, _, _ = two_laws(400)
    rho = None if isinstance(divergence, CVaR) else 0.5
    model = RobustBoostingClassifier(library(), rho, divergence=divergence).fit(X, y)
    plain = library().fit(X, y == "yes").predict_proba(X)[:, 1]
    assert model.group_weights_ is None
    # The ball over rows mainly makes scores smaller.
    assert np.abs(model.predict_proba(X)[:, 1] - 0.5).mean() < np.abs(plain - 0.5).mean()


@LIBRARIES
def test_probabilities_scores_and_classes_agree(library):
    X, y, _, few = two_laws(400)
    model = RobustBoostingClassifier(library(), rho=1).fit(X, y, groups=few)
    scores, proba = model.decision_function(X), model.predict_proba(X)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(proba[:, 1], expit(scores))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0, "yes", "no"))
    np.testing.assert_allclose(model.losses(X, y), -np.log(proba[np.arange(400), (y == "yes") * 1]))
    # The model of the library holds the start: its files need nothing else.
    booster = model.estimator_
    raw = {"raw_score": True} if library is light else {"output_margin": True}
    np.testing.assert_allclose(booster.predict(X, **raw), scores, rtol=1e-6)
    if library is extreme:
        np.testing.assert_allclose(booster.predict_proba(X), proba, atol=1e-6)


def test_data_without_splits():
    """Few rows, or one constant column: the prediction is the share or the mean."""
    X, y, _, _ = two_laws(15)
    proba = RobustBoostingClassifier(light(), rho=0.1).fit(X, y).predict_proba(X)[:, 1]
    np.testing.assert_allclose(proba, np.mean(y == "yes"))
    for trees in (light(classes=False), extreme(classes=False)):
        model = RobustBoostingRegressor(trees, rho=0.1).fit(np.ones((40, 1)), np.arange(40.0))
        np.testing.assert_allclose(model.predict([[1.0]]), 19.5, rtol=1e-3)


# -- scikit-learn --------------------------------------------------------------------------------


def unequal(estimator):
    """Gradients in single precision differ for a row of weight two and a row that comes twice."""
    if type(estimator.estimator).__name__ != "XGBClassifier":
        return {}
    names = ("dense", "sparse")
    return dict.fromkeys(
        (f"check_sample_weight_equivalence_on_{name}_data" for name in names),
        "equal to seven digits: XGBoost computes in single precision",
    )


@parametrize_with_checks(
    [
        RobustBoostingClassifier(light(n_estimators=10), rho=0.1),
        RobustBoostingRegressor(light(classes=False, n_estimators=10), rho=0.1),
        RobustBoostingClassifier(extreme(n_estimators=10), rho=0.1),
        RobustBoostingRegressor(extreme(classes=False, n_estimators=10), rho=0.1),
    ],
    expected_failed_checks=unequal,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@LIBRARIES
def test_clone_pickle_and_search(library):
    X, y, _, few = two_laws(400)
    model = RobustBoostingClassifier(library(), rho=1).fit(X, y, groups=few)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    long = X.repeat(20, axis=0), y.repeat(20), few.repeat(20)
    trees = library(n_estimators=1)
    short = RobustBoostingClassifier(trees, rho=1).fit(X, y, groups=few)
    of_many = RobustBoostingClassifier(trees, rho=1).fit(*long[:2], groups=long[2])
    # The model does not keep the groups of its rows.
    assert len(pickle.dumps(of_many)) < len(pickle.dumps(short)) + 2000
    refitted = clone(model).fit(X, y, groups=few)
    np.testing.assert_array_equal(refitted.predict_proba(X), model.predict_proba(X))
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(model).set_fit_request(groups=True)
        search = GridSearchCV(routed, {"rho": [0.0, 1.0], "estimator__n_estimators": [2, 4]}, cv=2)
        search.fit(X, y, groups=few)
    assert set(search.best_params_) == {"rho", "estimator__n_estimators"}
    assert search.best_estimator_.group_weights_.size == 2


@LIBRARIES
def test_data_frames_and_sparse_data(library):
    X, y, number, few = two_laws(300)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
        part=pd.Categorical(np.where(few, "a", "b"))
    )
    settings = {"enable_categorical": True} if library is extreme else {}
    model = RobustBoostingClassifier(library(**settings), rho=1).fit(frame, y, groups=few)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "part"]
    assert model.score(frame, y) > 0.7
    trees = library(classes=False)
    holes = np.where(X > 1.0, np.nan, X)
    dense = RobustBoostingRegressor(trees, rho=1).fit(holes, number, groups=few).predict(holes)
    assert np.isfinite(dense).all()
    part = np.where(abs(X) < 1.0, 0.0, X)
    rows = sparse.csr_array(part)
    found = RobustBoostingRegressor(trees, rho=1).fit(rows, number, groups=few).predict(rows)
    assert np.corrcoef(found, number)[0, 1] > 0.5


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RobustBoostingClassifier(LogisticRegression()), "of LightGBM or XGBoost.*RobustEnsemble"),
        (RobustBoostingClassifier(light(), rho=-1), "'rho' parameter"),
        (RobustBoostingClassifier(light(), step=0), "'step' parameter"),
        (RobustBoostingClassifier(light(), divergence="chi"), "'divergence' parameter"),
        (RobustBoostingClassifier(light(), divergence=CVaR(0.1), rho=1), "no radius"),
        (RobustBoostingClassifier(light(), reference="x"), "'reference' parameter"),
        (RobustBoostingRegressor(light(False), loss="logistic"), "must be 'squared', 'huber'"),
        (RobustBoostingClassifier(light(False)), "must be a classifier. Got LGBMRegressor"),
        (RobustBoostingRegressor(extreme()), "must be a regressor. Got XGBClassifier"),
        (RobustBoostingClassifier(light(linear_tree=True)), "'linear_tree' parameter"),
        (RobustBoostingClassifier(light(boosting_type="rf")), "'boosting_type' parameter"),
    ],
)
def test_bad_parameters(model, message):
    X, y, number, _ = two_laws(60)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y if isinstance(model, RobustBoostingClassifier) else number)


def test_bad_data():
    X, y, number, few = two_laws(60)
    model = RobustBoostingClassifier(light(), rho=1)
    new = {"eval_set": (X, y)}
    for arguments, message in (
        ({"groups": few[:-1]}, "each of the 60 rows"),
        ({"groups": few, **new}, "groups of both .* Got only groups"),
        ({"eval_groups": few, **new}, "groups of both .* Got only eval_groups"),
        ({"groups": few, **new, "eval_groups": few[1:]}, "each of the 60 rows"),
        ({"eval_set": X}, "must be a pair .* Got ndarray"),
        ({"eval_set": [(X, y), (X, y)]}, "must be a pair .* Got list"),
        ({"eval_set": (X, np.full(60, "maybe"))}, "must hold labels that"),
        ({"eval_set": (X[:, :2], y)}, "2 features"),
        ({"eval_set": (X[1:], y)}, "inconsistent numbers of samples"),
        ({"reference_losses": number[1:]}, "one loss for each of the 60 rows"),
        ({"reference_losses": number, **new}, "'eval_reference_losses' parameter must have"),
        ({"sample_weight": (y == "yes") * 1.0}, "must have two classes"),
        ({"sample_weight": -np.ones(60)}, "Negative values"),
        ({"init_score": number}, "does not take 'init_score'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, **arguments)
    with pytest.raises(ValueError, match=r"only one class: 0\.0"):
        model.fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="multiclass, with 3 classes: use RobustEnsemble"):
        model.fit(X, np.arange(60) % 3)
    with pytest.raises(ValueError, match=r"at most 1e\+18.*divide y"):
        RobustBoostingRegressor(light(classes=False)).fit(X, number * 1e20)
