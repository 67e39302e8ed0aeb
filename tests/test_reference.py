"""Reference models of estimators: cross-fitted losses, robust regret, cross-validation, errors."""

from __future__ import annotations

import pickle
import warnings
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from drolearn import (
    Loss,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressor,
    RobustRegressorCV,
    ZeroModelWarning,
    reference_losses,
    worst_case,
)
from drolearn._estimators import reference as module

FOLDS = KFold(4, shuffle=True, random_state=1)


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier that records the first column and the weights of the rows it sees."""

    fits: ClassVar[list] = []
    predictions: ClassVar[list] = []

    def fit(self, X, y, sample_weight=None):
        """Record the rows."""
        self.classes_ = np.unique(y)
        Recorder.fits.append((X[:, 0].astype(int), sample_weight))
        return self

    def predict_proba(self, X):
        """Record the rows, and predict equal probabilities."""
        Recorder.predictions.append(X[:, 0].astype(int))
        return np.full((X.shape[0], self.classes_.size), 1.0 / self.classes_.size)


@pytest.fixture
def recorder():
    """A recorder without records."""
    Recorder.fits, Recorder.predictions = [], []
    return Recorder()


@pytest.fixture
def numbered(two_classes):
    """Rows whose first column is their number."""
    X, y = two_classes
    return np.column_stack([np.arange(y.size), X]), y


# -- cross-fitting -------------------------------------------------------------------------------


def test_logistic_losses_are_those_of_cross_validated_probabilities(two_classes):
    X, y = two_classes
    p = cross_val_predict(LogisticRegression(), X, y, cv=FOLDS, method="predict_proba")
    found = reference_losses(LogisticRegression(), X, y, cv=FOLDS)
    np.testing.assert_allclose(found, -np.log(p[np.arange(y.size), (y == "yes").astype(int)]))


def test_multinomial_losses(three_classes):
    X, y = three_classes
    p = cross_val_predict(LogisticRegression(), X, y, cv=FOLDS, method="predict_proba")
    for loss in ("logistic", "multinomial"):
        found = reference_losses(LogisticRegression(), X, y, cv=FOLDS, loss=loss)
        np.testing.assert_allclose(found, -np.log(p[np.arange(y.size), y]))


def test_a_squared_hinge_is_that_of_the_best_score_for_the_probabilities(two_classes):
    """The expected squared hinge is smallest at the score 2p − 1."""
    X, y = two_classes
    p = cross_val_predict(LogisticRegression(), X, y, cv=FOLDS, method="predict_proba")[:, 1]
    found = reference_losses(LogisticRegression(), X, y, cv=FOLDS, loss="squared-hinge")
    expected = np.where(y == "yes", 4.0 * (1.0 - p) ** 2, 4.0 * p**2)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_custom_loss_of_the_margin(two_classes):
    """The expected exponential loss is smallest at half the log-odds."""
    X, y = two_classes
    loss = Loss.custom(
        lambda x: np.exp(-x), lambda x: -np.exp(-x), of="margin", smoothness=10.0, name="exp"
    )
    p = cross_val_predict(LogisticRegression(), X, y, cv=FOLDS, method="predict_proba")[:, 1]
    odds = np.where(y == "yes", p / (1.0 - p), (1.0 - p) / p)
    found = reference_losses(LogisticRegression(), X, y, cv=FOLDS, loss=loss)
    np.testing.assert_allclose(found, 1.0 / np.sqrt(odds))


def test_scores_of_a_model_without_probabilities(two_classes):
    X, y = two_classes
    f = cross_val_predict(LinearSVC(), X, y, cv=FOLDS, method="decision_function")
    found = reference_losses(LinearSVC(), X, y, cv=FOLDS, loss="squared-hinge")
    margin = np.where(y == "yes", f, -f)
    np.testing.assert_allclose(found, np.maximum(1.0 - margin, 0.0) ** 2, atol=1e-12)


def test_losses_of_the_residual(regression):
    X, y = regression
    r = cross_val_predict(KNeighborsRegressor(), X, y, cv=FOLDS) - y
    squared = reference_losses(KNeighborsRegressor(), X, y, cv=FOLDS, loss="squared")
    np.testing.assert_allclose(squared, 0.5 * r**2)
    huber = reference_losses(KNeighborsRegressor(), X, y, cv=FOLDS, loss=Loss.huber(2.0))
    np.testing.assert_allclose(huber, Loss.huber(2.0).at(r)[0])


def test_probabilities_of_zero_are_raised(two_classes):
    """A tree is certain, and sometimes wrong."""
    X, y = two_classes
    c = reference_losses(DecisionTreeClassifier(random_state=0), X, y, cv=StratifiedKFold(2))
    assert c.max() == pytest.approx(np.log(301))


def test_a_class_that_a_fold_lacks(three_classes):
    X, y = three_classes
    c = reference_losses(LogisticRegression(), X, y, cv=PredefinedSplit(y))
    trained = y.size - np.bincount(y)[y]
    np.testing.assert_allclose(c, np.log(trained + 1.0))


def test_rows_are_predicted_once_by_a_model_that_has_not_seen_them(numbered, recorder):
    X, y = numbered
    c = reference_losses(recorder, X, y)
    np.testing.assert_allclose(c, np.log(2.0))
    assert len(recorder.fits) == 5
    for (train, _), test in zip(recorder.fits, recorder.predictions, strict=True):
        assert not set(train) & set(test)
        assert set(train) | set(test) == set(range(600))
    assert sorted(np.concatenate(recorder.predictions)) == list(range(600))


def test_groups_are_not_split(numbered, recorder):
    X, y = numbered
    households = np.arange(600) // 7
    for cv in (5, GroupKFold(3)):
        recorder.fits.clear()
        recorder.predictions.clear()
        reference_losses(recorder, X, y, cv=cv, split_groups=households)
        for (train, _), test in zip(recorder.fits, recorder.predictions, strict=True):
            assert not set(households[train]) & set(households[test])


def test_the_estimator_does_not_change_and_the_losses_are_the_same_again(two_classes):
    X, y = two_classes
    model = HistGradientBoostingClassifier(random_state=0)
    first = reference_losses(model, X, y)
    assert not hasattr(model, "classes_")
    np.testing.assert_array_equal(first, reference_losses("auto", X, y))
    np.testing.assert_array_equal(first, reference_losses("auto", X, y, n_jobs=2))


def test_sparse_data(two_classes, monkeypatch):
    X, y = two_classes
    X = np.where(X > 0, X, 0.0)
    dense = reference_losses("auto", X, y)
    np.testing.assert_array_equal(reference_losses("auto", sp.csr_matrix(X), y), dense)
    monkeypatch.setattr(module, "_DENSE_NUMBERS", 1e3)
    with pytest.raises(ValueError, match=r"makes sparse data dense, up to 1e\+03 numbers"):
        reference_losses("auto", sp.csr_matrix(X), y)
    assert reference_losses(LogisticRegression(), sp.csr_matrix(X), y).shape == (600,)


def test_only_proportions_of_weights_matter_to_boosted_trees(two_classes):
    """Trees do not split leaves of little weight, and weights often have the sum 1."""
    X, y = two_classes[0][:100], two_classes[1][:100]
    w = np.random.default_rng(0).exponential(size=100)
    expected = reference_losses("auto", X, y, sample_weight=w, cv=2)
    for factor in (1.0 / w.sum(), 1e9):
        found = reference_losses("auto", X, y, sample_weight=factor * w, cv=2)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_few_rows_make_fewer_folds(numbered, recorder):
    X, y = numbered
    few = np.r_[np.flatnonzero(y == "yes")[:3], np.flatnonzero(y == "no")[:3]]
    reference_losses(recorder, X[few], y[few])
    assert len(recorder.fits) == 3
    two = reference_losses(LinearRegression(), [[0.0], [1.0]], [3.0, 5.0], loss="squared")
    np.testing.assert_allclose(two, [2.0, 2.0])
    with pytest.raises(
        ValueError, match=r"needs at least two rows of some class, .* Got 1 instead"
    ):
        reference_losses(recorder, [[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="needs at least two rows, so"):
        reference_losses(LinearRegression(), [[0.0]], [1.0], loss="squared")


def test_data_frames_reach_the_estimator(two_classes):
    pd = pytest.importorskip("pandas")
    X, y = two_classes
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    found = reference_losses(LogisticRegression(), frame, pd.Series(y))
    np.testing.assert_allclose(found, reference_losses(LogisticRegression(), X, y))


# -- robust regret of estimators -----------------------------------------------------------------

ESTIMATORS = [RobustClassifier, RobustRegressor, RobustClassifierCV, RobustRegressorCV]
FAST = {"rhos": [0, 0.1], "l2s": [1], "cv": 3}


def fitted(kind, two_classes, regression, reference="auto", **fit):
    """An estimator with a reference, and its data."""
    X, y = regression if "Regressor" in kind.__name__ else two_classes
    settings = FAST if kind.__name__.endswith("CV") else {"rho": 0.1}
    if fit.get("reference_losses") is not None:
        reference = None
    return kind(**settings, reference=reference).fit(X, y, **fit), X, y


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_loss_and_regret_are_both_reported(kind, two_classes, regression):
    model, X, y = fitted(kind, two_classes, regression)
    c = reference_losses("auto", X, y, loss=model._loss())
    assert model.converged_
    assert model.worst_case(X, y).value == pytest.approx(model.robust_loss_, rel=1e-9)
    regret = model.worst_case(X, y, reference_losses=c)
    assert regret.value == pytest.approx(model.robust_regret_, abs=1e-9)
    assert regret.value == pytest.approx(
        worst_case(model.losses(X, y) - c, model.rho_).value, abs=1e-12
    )
    penalty = 0.5 * model.l2_ * float(np.square(model.coef_).sum())
    assert model.objective_ == pytest.approx(model.robust_regret_ + penalty, abs=1e-9)


@pytest.mark.parametrize("kind", ESTIMATORS[:2])
def test_losses_may_be_computed_before(kind, two_classes, regression):
    model, X, y = fitted(kind, two_classes, regression)
    c = reference_losses("auto", X, y, loss=model._loss())
    same, *_ = fitted(kind, two_classes, regression, reference_losses=c)
    np.testing.assert_array_equal(same.coef_, model.coef_)
    other, *_ = fitted(kind, two_classes, regression, reference=None)
    assert other.robust_regret_ is None
    assert not np.allclose(other.coef_, model.coef_, rtol=1e-3)


def test_losses_that_are_passed_are_used_instead_of_the_reference(numbered, recorder):
    X, y = numbered
    RobustClassifier(reference=recorder).fit(X, y, reference_losses=np.zeros(600))
    assert not recorder.fits


def test_groups_have_mean_regrets(two_classes):
    X, y = two_classes
    g = np.random.default_rng(0).choice(["a", "b"], y.size)
    w = np.random.default_rng(1).exponential(size=y.size)
    model = RobustClassifier(rho=np.inf, reference=GaussianNB()).fit(X, y, w, groups=g)
    c = reference_losses(GaussianNB(), X, y, sample_weight=w)
    regret = model.losses(X, y) - c
    of_groups = [np.average(regret[g == k], weights=w[g == k]) for k in "ab"]
    assert model.robust_regret_ == pytest.approx(max(of_groups), abs=1e-9)
    again = model.worst_case(X, y, sample_weight=w, groups=g, reference_losses=c)
    assert again.value == pytest.approx(model.robust_regret_, abs=1e-9)


def test_several_classes_and_sparse_data(three_classes):
    X, y = three_classes
    X = sp.csr_matrix(np.where(X > 0, X, 0.0))
    model = RobustClassifier(rho=1.0, reference=LogisticRegression(C=0.1)).fit(X, y)
    assert model.converged_
    assert model.coef_.shape == (3, 8)
    assert model.robust_regret_ < model.robust_loss_


@pytest.mark.parametrize("loss", ["squared-hinge", "smoothed-hinge"])
def test_the_reference_gives_the_loss_of_the_fit(two_classes, loss):
    X, y = two_classes
    model = RobustClassifier(rho=0.5, loss=loss, reference=LinearSVC()).fit(X, y)
    c = reference_losses(LinearSVC(), X, y, loss=loss)
    regret = model.worst_case(X, y, reference_losses=c).value
    assert model.robust_regret_ == pytest.approx(regret, abs=1e-9)


def test_the_reference_sees_sample_and_class_weights(numbered, recorder):
    X, y = numbered
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 600)
    model = RobustClassifier(class_weight={"no": 1.0, "yes": 3.0}, reference=recorder)
    model.fit(X, y, sample_weight=weights)
    expected = weights * np.where(y == "yes", 3.0, 1.0)
    for rows, seen in recorder.fits:
        np.testing.assert_allclose(seen, expected[rows])


def test_weights_reach_the_last_step_of_a_pipeline(two_classes):
    X, y = two_classes
    w = np.random.default_rng(0).exponential(size=y.size)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    weighted = reference_losses(pipeline, X, y, sample_weight=w)
    assert not np.allclose(weighted, reference_losses(pipeline, X, y), atol=1e-3)
    with config_context(enable_metadata_routing=True):
        routed = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            LogisticRegression().set_fit_request(sample_weight=True),
        )
        np.testing.assert_allclose(reference_losses(routed, X, y, sample_weight=w), weighted)


def test_progress_is_that_of_the_regret(two_classes, capsys):
    X, y = two_classes
    RobustClassifier(reference=GaussianNB(), verbose=1).fit(X, y)
    assert "robust regret" in capsys.readouterr().out


def test_parameters_of_the_reference(two_classes):
    X, y = two_classes
    model = RobustClassifier(reference=RandomForestClassifier(random_state=0))
    model.set_params(reference__n_estimators=5, reference__min_samples_leaf=20)
    assert model.get_params()["reference__n_estimators"] == 5
    copy = clone(model).fit(X, y)
    assert copy.reference is not model.reference
    again = pickle.loads(pickle.dumps(copy))
    np.testing.assert_array_equal(again.predict(X), copy.predict(X))
    with pytest.raises(ValueError, match="needs an estimator as reference"):
        RobustClassifier(reference="auto").set_params(reference__max_iter=5)


# -- cross-validation ----------------------------------------------------------------------------


def test_folds_do_not_leak(numbered, recorder):
    """In every fold, the reference sees training rows only."""
    X, y = numbered
    cv = StratifiedKFold(3)
    settings = {"rhos": [0, 0.5], "l2s": [1, 0.1]}
    RobustClassifierCV(**settings, cv=cv, reference=recorder).fit(X, y)
    assert len(recorder.fits) == 3 * 5 + 5
    for k, (train, test) in enumerate(cv.split(X, y)):
        part = slice(5 * k, 5 * k + 5)
        seen = np.concatenate([rows for rows, _ in recorder.fits[part]])
        assert set(seen) == set(train)
        predicted = np.concatenate(recorder.predictions[part])
        assert not set(predicted) & set(test)
        np.testing.assert_array_equal(np.sort(predicted), train)


def test_folds_of_the_reference_do_not_split_groups(numbered, recorder):
    X, y = numbered
    patients = np.arange(600) // 7
    RobustClassifierCV(**{**FAST, "cv": GroupKFold(3)}, reference=recorder).fit(
        X, y, split_groups=patients
    )
    assert len(recorder.fits) == 3 * 5 + 5
    for (train, _), test in zip(recorder.fits, recorder.predictions, strict=True):
        assert not set(patients[train]) & set(patients[test])


@pytest.mark.parametrize("scoring", ["loss", "robust", "roc_auc"])
def test_scores_do_not_depend_on_the_reference(two_classes, scoring):
    """The score is that of the loss; with radius 0, models do not depend on the reference."""
    X, y = two_classes
    settings = {"rhos": [0, 0.1], "l2s": [1], "scoring": scoring, "path_tol": 1e-8}
    plain = RobustClassifierCV(**settings).fit(X, y)
    regret = RobustClassifierCV(**settings, reference=GaussianNB()).fit(X, y)
    np.testing.assert_allclose(regret.scores_[:, 0], plain.scores_[:, 0], rtol=1e-4)
    assert not np.allclose(regret.scores_[:, 1], plain.scores_[:, 1], rtol=1e-3)


def test_losses_that_are_passed_are_split_with_the_rows(two_classes):
    """A fit in a fold is the fit of an estimator to the rows of the fold."""
    X, y = two_classes
    c = np.random.default_rng(0).exponential(size=y.size)
    folds = list(StratifiedKFold(3).split(X, y))
    search = RobustClassifierCV(
        rhos=[1.0], l2s=[1], cv=folds, reference=None, scoring="loss", path_tol=1e-8
    ).fit(X, y, reference_losses=c)
    for score, (train, test) in zip(search.scores_[:, 0, 0], folds, strict=True):
        model = RobustClassifier(rho=1.0, l2=1 / train.size, tol=1e-8)
        model.fit(X[train], y[train], reference_losses=c[train])
        assert score == pytest.approx(-model.losses(X[test], y[test]).mean(), rel=1e-4)


def test_models_in_large_balls_do_not_count_as_zero(two_classes):
    X, y = two_classes
    noisy = np.where(np.random.default_rng(0).random(600) < 0.4, np.roll(y, 1), y)
    search = RobustClassifierCV(rhos=[0, 1.0, 5.0], l2s=[1], reference=GaussianNB()).fit(X, noisy)
    assert not search.zero_models_.any()


@pytest.mark.parametrize("groups", [False, True])
def test_a_reference_that_knows_nothing_leads_to_the_zero_model_and_is_named(two_classes, groups):
    """In a large ball nothing that the columns tell makes up for the rows that they mislead."""
    X, y = two_classes
    given = {"groups": np.arange(600) % 3} if groups else {}
    rho = 1e-3 if groups else 5.0
    coin = np.random.default_rng(0).permutation(y)  # labels without a relation to X
    message = "use a better reference, a smaller rho or a smaller penalty"
    if groups:  # the penalty is what shrinks the coefficients
        model = RobustClassifier(rho, l2=1e9, reference=DummyClassifier())
    else:
        model = RobustClassifier(rho, reference=DummyClassifier())
    with pytest.warns(ZeroModelWarning, match=message):
        model.fit(X, coin, **given)
    assert np.linalg.norm(model.coef_) < 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RobustClassifier(0.1, reference=LogisticRegression()).fit(X, y, **given)


def test_zero_models_with_a_reference_are_excluded(two_classes):
    X, y = two_classes
    coin = np.where(np.random.default_rng(0).random(600) < 0.4, np.roll(y, 1), y)
    c = np.full(600, np.log(2.0))
    search = RobustClassifierCV([0.01, 5.0], l2s=[1.0], cv=3, scoring="robust", scoring_rho=5.0)
    with pytest.warns(ZeroModelWarning, match="The best score belongs to the zero model"):
        search.fit(X, coin, reference_losses=c)
    assert search.zero_models_[:, :, 0].tolist() == [[False, True]] * 3
    assert search.rho_ == 0.01


# -- metadata routing ----------------------------------------------------------------------------


def test_losses_pass_through_pipelines_and_searches(two_classes):
    X, y = two_classes
    c = np.random.default_rng(0).exponential(size=y.size)
    rhos = [0.1, 1.0]
    best = RobustClassifier(rho=1.0).fit(StandardScaler().fit_transform(X), y, reference_losses=c)

    def search(pipeline):
        name = "robustclassifier__rho"
        return GridSearchCV(pipeline, {name: rhos}, cv=3, scoring="neg_log_loss")

    prefixed = make_pipeline(StandardScaler(), RobustClassifier())
    prefixed.set_params(robustclassifier__rho=1.0)
    prefixed.fit(X, y, robustclassifier__reference_losses=c)
    np.testing.assert_array_equal(prefixed[-1].coef_, best.coef_)
    with config_context(enable_metadata_routing=True):
        routed = make_pipeline(
            StandardScaler(), RobustClassifier().set_fit_request(reference_losses=True)
        )
        found = search(routed).fit(X, y, reference_losses=c)
        model = clone(routed).set_params(robustclassifier__rho=1.0).fit(X, y, reference_losses=c)
        np.testing.assert_array_equal(model[-1].coef_, best.coef_)
        scores = found.cv_results_["split0_test_score"]
        train, test = next(StratifiedKFold(3).split(X, y))
        for rho, score in zip(rhos, scores, strict=True):
            fold = clone(routed).set_params(robustclassifier__rho=rho)
            fold.fit(X[train], y[train], reference_losses=c[train])
            p = fold.predict_proba(X[test])[np.arange(test.size), (y[test] == "yes").astype(int)]
            assert score == pytest.approx(np.log(p).mean())
    by_prefix = search(make_pipeline(StandardScaler(), RobustClassifier()))
    by_prefix.fit(X, y, robustclassifier__reference_losses=c)
    np.testing.assert_array_equal(by_prefix.cv_results_["split0_test_score"], scores)


def test_losses_pass_to_a_search_of_its_own(two_classes):
    X, y = two_classes
    c = np.random.default_rng(0).exponential(size=y.size)
    with config_context(enable_metadata_routing=True):
        request = RobustClassifierCV(**FAST).set_fit_request(reference_losses=True)
        pipeline = make_pipeline(StandardScaler(), request).fit(X, y, reference_losses=c)
    alone = RobustClassifierCV(**FAST).fit(StandardScaler().fit_transform(X), y, reference_losses=c)
    np.testing.assert_array_equal(pipeline[-1].scores_, alone.scores_)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_an_unknown_reference(kind, two_classes, regression):
    for reference in ("trees", 3):
        with pytest.raises(ValueError, match=f"The 'reference' parameter of {kind.__name__} must"):
            fitted(kind, two_classes, regression, reference)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (np.zeros(3), "must have one loss for each of the 600 rows. Got 3 instead"),
        (np.full(600, np.nan), "must hold finite numbers. Got nan in row 0 instead"),
    ],
)
def test_wrong_losses(kind, losses, message, two_classes, regression):
    with pytest.raises(ValueError, match=f"The 'reference_losses' parameter {message}"):
        fitted(kind, two_classes, regression, reference_losses=losses)
    model, X, y = fitted(kind, two_classes, regression, reference=None)
    with pytest.raises(ValueError, match=f"The 'reference_losses' parameter {message}"):
        model.worst_case(X, y, reference_losses=losses)


@pytest.mark.parametrize(
    ("loss", "estimator", "message"),
    [
        ("logistic", LinearSVC(), "'logistic' must have predict_proba. Got LinearSVC"),
        ("logistic", LinearRegression(), "'logistic' must have predict_proba. Got LinearReg"),
        (
            "squared-hinge",
            LinearRegression(),
            "'squared-hinge' must have predict_proba or decision_function. Got LinearRegression",
        ),
        ("squared", LogisticRegression(), "'squared' must be a regressor. Got LogisticRegression"),
    ],
)
def test_a_reference_that_cannot_give_the_loss(loss, estimator, message, two_classes, regression):
    X, y = regression if loss == "squared" else two_classes
    kind = RobustRegressor if loss == "squared" else RobustClassifier
    with pytest.raises(ValueError, match=f"A reference for loss={message}"):
        kind(loss=loss, reference=estimator).fit(X, y)


def test_a_reference_that_takes_no_weights(two_classes):
    X, y = two_classes
    for estimator in (KNeighborsClassifier(), make_pipeline(KNeighborsClassifier())):
        with pytest.raises(ValueError, match="A reference must take sample weights"):
            RobustClassifier(reference=estimator, class_weight="balanced").fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"estimator": "trees"}, "The 'estimator' parameter must be 'auto' or an estimator"),
        ({"estimator": "autos"}, "Did you mean 'auto'?"),
        ({"estimator": GaussianNB}, "must be 'auto' or an estimator of scikit-learn. Got <class"),
        ({"cv": ShuffleSplit(2)}, "must put each of the 600 rows into one test fold"),
        ({"cv": 1}, "The 'cv' parameter must be an integer of at least 2"),
        ({"split_groups": np.zeros(600)}, "must name at least two groups"),
        ({"sample_weight": np.ones(3)}, "must have one weight for each of the 600 rows"),
        ({"loss": "hinge"}, "The 'loss' parameter"),
    ],
)
def test_wrong_arguments_of_reference_losses(two_classes, arguments, message):
    X, y = two_classes
    with pytest.raises(ValueError, match=message):
        reference_losses(**{"estimator": GaussianNB(), "X": X, "y": y, **arguments})


# -- large balls are usable ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", ["adult", "compas", "diabetes130", "covtype.binary", "electricity"]
)
def test_models_in_large_balls_rank_as_well_as_plain_ones(data, data_folder):
    """Without a reference, the model is zero for ρ ≥ 1.4 on adult, and for less on the others."""
    with np.load(data_folder / f"{data}.npz") as stored:
        X, y = stored["X"].astype(np.float64), stored["y"]
    rows = np.random.default_rng(0).permutation(y.size)[:8000]
    train, test = np.split(rows, [3 * rows.size // 4])
    scaler = StandardScaler().fit(X[train])
    X, X_test = scaler.transform(X[train]), scaler.transform(X[test])
    plain = LogisticRegression(max_iter=1000).fit(X, y[train])
    auc = roc_auc_score(y[test], plain.decision_function(X_test))
    c = reference_losses("auto", X, y[train])
    for rho in (0.3, 1.0, 5.0):
        model = RobustClassifier(rho=rho).fit(X, y[train], reference_losses=c)
        assert model.converged_
        assert np.linalg.norm(model.coef_) >= 0.01 * np.linalg.norm(plain.coef_)
        assert roc_auc_score(y[test], model.decision_function(X_test)) >= auc - 0.05
