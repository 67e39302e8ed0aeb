"""Cross-validation over radii: scores, folds, groups, penalties, errors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils import compute_class_weight

from drolearn import (
    GSSG,
    SGD,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressorCV,
    worst_case,
)
from tests.examples import Count, needs_callbacks


def test_scores_equal_those_of_single_fits(two_classes):
    X, y = two_classes
    rhos, folds = [0.3, 0.0], KFold(3)
    cv = RobustClassifierCV(rhos, cv=folds, tol=1e-13).fit(X, y)
    assert cv.rhos_.tolist() == [0.0, 0.3]
    for fold, (train, test) in enumerate(folds.split(X)):
        for column, rho in enumerate(cv.rhos_):
            clf = RobustClassifier(rho, tol=1e-13).fit(X[train], y[train])
            mean = clf.losses(X[test], y[test]).mean()
            assert cv.scores_[fold, column] == pytest.approx(-mean)
    best = int(cv.scores_.mean(axis=0).argmax())
    assert cv.rho_ == cv.rhos_[best]
    assert cv.best_score_ == pytest.approx(cv.scores_.mean(axis=0).max())
    np.testing.assert_allclose(cv.coef_, RobustClassifier(cv.rho_, tol=1e-13).fit(X, y).coef_)


def test_scoring(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 3
    common = {"rhos": [0.0, 0.2], "cv": KFold(2), "l2": 1e-3}
    train, test = next(iter(KFold(2).split(X)))
    clf = RobustClassifier(0.2, l2=1e-3).fit(X[train], y[train])
    z = clf.losses(X[test], y[test])
    robust = RobustClassifierCV(**common, scoring="robust", scoring_rho=0.7).fit(X, y)
    assert robust.scores_[0, 1] == pytest.approx(-worst_case(z, 0.7).value, rel=1e-3)
    worst = RobustClassifierCV(**common, scoring="worst-group", train_on_groups=False)
    worst.fit(X, y, groups=g)
    assert worst.scores_[0, 1] == pytest.approx(
        -max(z[g[test] == k].mean() for k in range(3)), 1e-3
    )
    assert worst.group_weights_ is None
    accuracy = RobustClassifierCV(**common, scoring="accuracy").fit(X, y)
    assert accuracy.scores_[0, 1] == pytest.approx(clf.score(X[test], y[test]), abs=0.01)
    custom = RobustClassifierCV(**common, scoring=lambda model, X, y: model.rho).fit(X, y)
    assert custom.rho_ == 0.2


def test_groups_are_used_in_every_fold(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 3
    cv = RobustClassifierCV([0.1, 1.0], cv=3, scoring="worst-group", l2=1e-3).fit(X, y, groups=g)
    assert cv.group_weights_.size == 3


def test_splitters_get_the_groups(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 6
    cv = RobustClassifierCV([0.0, 0.1], cv=GroupKFold(3), train_on_groups=False)
    assert cv.fit(X, y, groups=g).scores_.shape == (3, 2)


def test_solver_objects_are_used_in_every_fold(two_classes):
    X, y = two_classes
    cv = RobustClassifierCV([0.1], cv=3, solver=SGD(8), tol=None, max_iter=2)
    assert cv.set_params(random_state=0).fit(X, y).solver_ == "sgd"


@pytest.mark.xdist_group("processes")
def test_folds_in_parallel_give_the_same_result(two_classes):
    X, y = two_classes
    one = RobustClassifierCV([0.0, 0.1], cv=3).fit(X, y)
    two = RobustClassifierCV([0.0, 0.1], cv=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.scores_, two.scores_)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_folds_and_grid_points_do_not_share_checkpoints(two_classes, tmp_path):
    X, y = two_classes
    shared = {"tol": None, "max_iter": 3, "random_state": 0}
    plain = RobustClassifierCV([0.05, 0.5], cv=3, solver=GSSG(), **shared).fit(X, y)
    for _ in range(2):  # the second time, from the checkpoints of the first
        kept = RobustClassifierCV([0.05, 0.5], cv=3, solver=GSSG(checkpoint=tmp_path), **shared)
        np.testing.assert_array_equal(kept.fit(X, y).coef_, plain.coef_)
    assert len(list(tmp_path.iterdir())) == 7


def test_regression(three_classes):
    X = three_classes[0]
    y = X @ np.ones(8) + np.random.default_rng(0).standard_normal(600)
    cv = RobustRegressorCV([0.0, 1.0], cv=3).fit(X, y)
    assert cv.rho_ == 0.0
    assert cv.score(X, y) > 0.8


@pytest.mark.parametrize("unit", [1.0, 1e110])
def test_the_automatic_penalty_depends_on_the_fold(two_classes, unit):
    X, y = two_classes
    weight = unit * np.random.default_rng(0).random(y.size)
    share = compute_class_weight("balanced", classes=np.unique(y), y=y, sample_weight=weight)
    each = weight * share[(y == "yes") * 1]
    seen = []

    def score(model, X, y):
        seen.append(model.l2_)
        return 0.0

    cv = RobustClassifierCV([0.1], cv=KFold(3), class_weight="balanced", scoring=score)
    cv.fit(X, y, weight)
    expected = [1.0 / each[train].sum() for train, _ in KFold(3).split(X)]
    np.testing.assert_allclose(seen, expected, rtol=1e-12)
    assert cv.l2_ == pytest.approx(1.0 / each.sum(), rel=1e-12, abs=0)

    seen.clear()
    RobustRegressorCV([0.1], cv=KFold(4), scoring=score).fit(X, X[:, 0])
    assert seen == [1.0 / 450] * 4
    seen.clear()
    assert RobustRegressorCV([0.1], cv=2, l2=0.0, scoring=score).fit(X, X[:, 0]).l2_ == 0.0
    assert seen == [0.0] * 2


def test_plot_path(two_classes):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    X, y = two_classes
    cv = RobustClassifierCV([0.0, 0.1], cv=3).fit(X, y)
    axes = cv.plot_path()
    assert axes.get_xlabel() == "radius ρ"
    assert cv.plot_path(axes) is axes


@needs_callbacks
def test_callbacks_are_called_for_every_fold(two_classes):
    X, y = two_classes
    count = Count()
    RobustClassifierCV([0.0, 0.1], cv=3).set_callbacks(count).fit(X, y)
    assert count.seen == 3


def test_errors(two_classes):
    X, y = two_classes
    with pytest.raises(ValueError, match="at least one radius"):
        RobustClassifierCV([]).fit(X, y)
    with pytest.raises(ValueError, match="'rho'"):
        RobustClassifierCV([0.1, -1.0]).fit(X, y)
    with pytest.raises(ValueError, match="'worst-group' without groups"):
        RobustClassifierCV(scoring="worst-group").fit(X, y)
    with pytest.raises(ValueError, match="The 'scoring' parameter of RobustClassifierCV must be"):
        RobustClassifierCV(scoring="best").fit(X, y)
    with pytest.raises(ValueError, match="finite radii"):
        RobustClassifierCV([np.inf]).fit(X, y)
    with pytest.raises(ValueError, match="must give finite scores"):
        RobustClassifierCV([0.0, 0.1], scoring=lambda model, X, y: np.nan).fit(X, y)
    half = np.arange(600) < 300
    splits = [(np.flatnonzero(half), np.flatnonzero(~half))]
    with pytest.raises(ValueError, match="positive weight to test on"):
        RobustClassifierCV([0.1], cv=splits).fit(X, y, half * 1.0)
    with pytest.raises(ValueError, match="must take sample weights"):
        RobustRegressorCV([0.1], scoring="neg_max_error").fit(X, X[:, 0], np.ones(600))
    rare = y.copy()
    rare[0] = "perhaps"
    with pytest.raises(ValueError, match="trains without"):
        RobustClassifierCV([0.1], cv=KFold(3)).fit(X, rare)
