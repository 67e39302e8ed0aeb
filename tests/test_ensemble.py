"""Robust ensembles of any estimator: optimality, protocols of scikit-learn, bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from drolearn import (
    CVaR,
    RobustClassifier,
    RobustEnsembleClassifier,
    RobustEnsembleRegressor,
    RobustRegressor,
    reference_losses,
    worst_case,
)
from tests.examples import Count, needs_callbacks

PLAIN = LogisticRegression(C=np.inf, tol=1e-8, max_iter=500)


def two_laws(n=600, share=0.15):
    """Rows of two groups whose labels depend on X in different ways; classes and numbers."""
    rng = np.random.default_rng(0)
    X, few = rng.standard_normal((n, 3)), rng.random(n) < share
    score = np.where(few, X[:, 1] - X[:, 0], X[:, 0] + 0.5 * X[:, 2])
    return X, (2 * score + rng.logistic(size=n) > 0).astype(int), score + rng.normal(size=n), few


# -- what is minimised ---------------------------------------------------------------------------


@pytest.mark.parametrize(("rho", "by_group"), [(0.1, False), (1.0, True)])
def test_an_ensemble_of_linear_models_approaches_the_exact_optimum(rho, by_group):
    X, y, number, few = two_laws()
    groups = few if by_group else None
    exact = RobustRegressor(rho=rho, l2=0, tol=1e-9).fit(X, number, groups=groups)
    few_rounds, more_rounds = (
        RobustEnsembleRegressor(LinearRegression(), rho, n_rounds=k, cv=None).fit(
            X, number, groups=groups
        )
        for k in (4, 30)
    )
    plain = RobustRegressor(rho=0, l2=0).fit(X, number).worst_case(X, number, rho, groups=groups)
    assert exact.robust_loss_ - 1e-9 <= more_rounds.robust_loss_ <= few_rounds.robust_loss_
    lost = plain.value - exact.robust_loss_
    assert more_rounds.robust_loss_ - exact.robust_loss_ < 0.01 * lost
    # The averages of linear models are linear models: the gap bounds the distance to the optimum.
    for model in (few_rounds, more_rounds):
        assert model.robust_loss_ - exact.robust_loss_ <= model.gap_ + 1e-9
    assert more_rounds.gap_ < 0.1 * few_rounds.gap_
    classifier = RobustEnsembleClassifier(PLAIN, rho, cv=None, n_rounds=8).fit(X, y, groups=groups)
    linear = RobustClassifier(rho=rho, l2=0, tol=1e-8).fit(X, y, groups=groups)
    start = classifier.round_values_[0]
    assert classifier.robust_loss_ - linear.robust_loss_ < 0.1 * (start - linear.robust_loss_)


@pytest.mark.parametrize("cv", [None, 3])
def test_radius_zero_is_the_estimator(cv):
    X, y, number, _ = two_laws(200)
    ensemble = RobustEnsembleRegressor(Ridge(), rho=0, cv=cv, n_rounds=2).fit(X, number)
    np.testing.assert_allclose(ensemble.predict(X), Ridge().fit(X, number).predict(X))
    weights = np.linspace(0.0, 2.0, y.size)
    ensemble = RobustEnsembleClassifier(GaussianNB(), rho=0, cv=cv, n_rounds=2)
    ensemble.fit(X, y, sample_weight=weights)
    single = GaussianNB().fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ensemble.predict_proba(X), single.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation", CVaR(0.3)])
def test_the_robust_loss_is_that_of_the_predictions(divergence):
    X, y, number, few = two_laws(300)
    rho = None if isinstance(divergence, CVaR) else 0.2
    for model, labels in (
        (RobustEnsembleClassifier(GaussianNB(), rho, divergence=divergence, cv=None), y),
        (RobustEnsembleRegressor(Ridge(), rho, divergence=divergence, cv=None), number),
    ):
        model.set_params(n_rounds=3)
        for groups in (None, few, np.column_stack([few, X[:, 0] > 0])):
            model.fit(X, labels, groups=groups)
            found = model.worst_case(X, labels, groups=groups).value
            assert found == pytest.approx(model.robust_loss_, rel=1e-12)
            assert model.robust_loss_ == model.round_values_.min()
            assert model.robust_loss_ <= model.round_values_[0]  # the plain model
        assert model.group_weights_.sum() == pytest.approx(1.0)


def test_losses_are_cross_fitted():
    """A forest of full trees fits its training rows; cross-fitted losses show how good it is."""
    X, y, _, _ = two_laws(300)
    forest = RandomForestClassifier(15, random_state=0)
    memorised = RobustEnsembleClassifier(forest, rho=0.1, cv=None, n_rounds=1).fit(X, y)
    honest = RobustEnsembleClassifier(forest, rho=0.1, cv=3, n_rounds=1).fit(X, y)
    np.testing.assert_array_equal(honest.predict_proba(X), memorised.predict_proba(X))
    new = np.random.default_rng(1).permutation(two_laws(4000)[0].shape[0])[:2000]
    X_new, y_new = two_laws(4000)[0][new], two_laws(4000)[1][new]
    truth = honest.worst_case(X_new, y_new).value
    assert abs(honest.robust_loss_ - truth) < abs(memorised.robust_loss_ - truth)
    assert memorised.robust_loss_ < 0.6 * truth


def test_the_worst_group_improves():
    X, _, number, few = two_laws(800)
    tree = DecisionTreeRegressor(max_depth=4, random_state=0)
    plain = tree.fit(X, number)
    robust = RobustEnsembleRegressor(tree, rho=100, n_rounds=4, cv=3).fit(X, number, groups=few)
    X_new, _, new, new_few = two_laws(8000)
    errors = [
        max(((model.predict(X_new) - new)[part] ** 2).mean() for part in (new_few, ~new_few))
        for model in (plain, robust)
    ]
    assert errors[1] < 0.9 * errors[0]
    assert robust.groups_.tolist() == [False, True]
    assert robust.group_weights_.shape == (2,)


@pytest.mark.parametrize("given", ["estimator", "losses"])
def test_regret(given):
    X, y, _, _ = two_laws(300)
    c = reference_losses(GaussianNB(), X, y)
    ensemble = RobustEnsembleClassifier(PLAIN, rho=1.0, n_rounds=4, cv=None)
    if given == "estimator":
        ensemble.set_params(reference=GaussianNB()).fit(X, y)
    else:
        ensemble.fit(X, y, reference_losses=c)
    worst = ensemble.worst_case(X, y, reference_losses=c)
    assert ensemble.robust_regret_ == pytest.approx(worst.value, abs=1e-12)
    assert ensemble.robust_loss_ == pytest.approx(ensemble.worst_case(X, y).value)
    assert ensemble.robust_regret_ < ensemble.robust_loss_


FOREST = {"n_estimators": 5, "max_depth": 3, "random_state": 0}
BOOSTING = {"max_iter": 3, "max_leaf_nodes": 4, "random_state": 0}


@pytest.mark.parametrize("by_group", [False, True])
@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(**FOREST),
        HistGradientBoostingClassifier(**BOOSTING),
        RandomForestRegressor(**FOREST),
        HistGradientBoostingRegressor(**BOOSTING),
    ],
)
def test_rounds_are_damped_fictitious_play(model, cv, by_group):
    """The rounds of docs/ensembles.md, written out: weighted rows, groups, regret, unseen rows."""
    X, classes, number, few = two_laws(120)
    rng = np.random.default_rng(1)
    w, c = rng.integers(1, 4, 120).astype(float), rng.random(120)
    y = classes if is_classifier(model) else number
    ensemble = RobustEnsembleClassifier if is_classifier(model) else RobustEnsembleRegressor
    fitted = ensemble(model, rho=1.0, n_rounds=3, cv=cv).fit(
        X, y, sample_weight=w, groups=few if by_group else None, reference_losses=c
    )

    def predict(rows, train, test):
        found = clone(model).fit(X[train], y[train], sample_weight=rows[train])
        return found.predict_proba(X[test]) if is_classifier(model) else found.predict(X[test])

    def regrets(predictions):
        if not is_classifier(model):
            return 0.5 * (predictions - y) ** 2 - c
        true = predictions[np.arange(120), y]
        return -np.log(np.maximum(true, 1.0 / (w.sum() / w.min() + 1.0))) - c

    splitter = StratifiedKFold if is_classifier(model) else KFold
    every = np.arange(120)
    folds = (
        [(every, every)]
        if cv is None
        else [*splitter(cv, shuffle=True, random_state=0).split(X, y)]
    )
    base = w / w.sum()
    weights, predictions, values = base, [], []
    for t in range(1, 4):
        parts = [(test, predict(weights * w.sum(), train, test)) for train, test in folds]
        found = np.concatenate([part for _, part in parts])
        predictions.append(found[np.argsort(np.concatenate([test for test, _ in parts]))])
        z = regrets(np.average(predictions, axis=0, weights=range(1, t + 1)))
        if by_group:
            shares = np.array([base[~few].sum(), base[few].sum()])
            means = [base[~few] @ z[~few], base[few] @ z[few]] / shares
            worst = worst_case(means, rho=1.0, sample_weight=shares)
            new = base * (worst.weights / shares)[few.astype(int)]
        else:
            worst = worst_case(z, rho=1.0, sample_weight=w)
            new = worst.weights
        weights = weights + 2.0 / (t + 2.0) * (new - weights)
        values.append(worst.value)
    np.testing.assert_allclose(fitted.round_values_, values, rtol=1e-9)
    assert fitted.robust_regret_ == min(fitted.round_values_)
    assert len(fitted.estimators_) == np.argmin(values) + 1


# -- the gap, and what is said without one -------------------------------------------------------


def test_estimators_that_do_not_minimise_have_no_gap():
    X, y, _, _ = two_laws(300)
    # Naive Bayes does not minimise the log loss.
    naive = RobustEnsembleClassifier(GaussianNB(), rho=2.0, cv=None, n_rounds=4)
    naive.fit(X**3, y)
    assert np.isnan(naive.gap_)
    assert "did not minimise" in naive.status_
    exact = RobustEnsembleClassifier(PLAIN, rho=0.1, cv=None, n_rounds=4).fit(X, y)
    assert exact.gap_ >= 0.0
    assert "duality gap is" in exact.status_
    crossed = RobustEnsembleClassifier(PLAIN, rho=0.1, cv=2, n_rounds=1).fit(X, y)
    assert np.isnan(crossed.gap_)
    assert "cross-fitted" in crossed.status_


# -- scikit-learn --------------------------------------------------------------------------------


@parametrize_with_checks(
    [
        RobustEnsembleClassifier(GaussianNB(), cv=None, n_rounds=2),
        RobustEnsembleClassifier(DecisionTreeClassifier(max_depth=2), n_rounds=2, random_state=0),
        RobustEnsembleRegressor(LinearRegression(), cv=None, n_rounds=2),
        RobustEnsembleRegressor(Ridge(), n_rounds=2),
    ]
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_seeds():
    X, y, _, _ = two_laws(150)
    forest = RandomForestClassifier(3)

    def proba(seed, estimator=forest):
        model = RobustEnsembleClassifier(estimator, n_rounds=2, cv=2, random_state=seed)
        return model.fit(X, y).predict_proba(X)

    np.testing.assert_array_equal(proba(0), proba(0))
    assert (proba(0) != proba(1)).any()
    fixed = RandomForestClassifier(3, random_state=5)
    np.testing.assert_array_equal(proba(None, fixed), proba(None, fixed))
    generator = proba(np.random.default_rng(0))
    np.testing.assert_array_equal(generator, proba(np.random.default_rng(0)))


@pytest.mark.xdist_group("processes")
def test_processes_do_not_change_the_models():
    X, _, number, _ = two_laws(150)
    model = RobustEnsembleRegressor(DecisionTreeRegressor(random_state=0), n_rounds=2, cv=2)
    alone = model.fit(X, number).predict(X)
    np.testing.assert_array_equal(model.set_params(n_jobs=2).fit(X, number).predict(X), alone)


def test_containers_and_labels():
    iris, names = load_iris(as_frame=True), np.array(["setosa", "versicolor", "virginica"])
    X, y = iris.data.assign(kind=["a", "b", "c"] * 50), names[iris.target]
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler())
    pipeline = make_pipeline(columns, LogisticRegression())
    model = RobustEnsembleClassifier(pipeline, rho=0.1, n_rounds=2, cv=3).fit(X, y)
    assert model.classes_.tolist() == names.tolist()
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    assert model.score(X, y) > 0.9
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    X_sparse = sparse.coo_array(iris.data.to_numpy())
    sparse_model = RobustEnsembleClassifier(MultinomialNB(), n_rounds=2, cv=3)
    assert sparse_model.fit(X_sparse, y).score(X_sparse.tocsr(), y) > 0.9


def test_classes_that_a_fold_lacks():
    X, y, _, _ = two_laws(60)
    y[:1] = 2
    folds = [(np.arange(30, 60), np.arange(30)), (np.arange(30), np.arange(30, 60))]
    model = RobustEnsembleClassifier(GaussianNB(), cv=folds, n_rounds=2).fit(X, y)
    assert model.predict_proba(X).shape == (60, 3)
    assert model.losses(X, y).max() <= np.log(61) + 1e-12


def test_search_and_rows_that_stay_together():
    X, y, _, _ = two_laws(120)
    search = GridSearchCV(
        RobustEnsembleClassifier(DecisionTreeClassifier(random_state=0), n_rounds=1, cv=2),
        {"rho": [0.0, 0.3], "estimator__max_depth": [1, 2]},
        cv=2,
    ).fit(X, y)
    assert set(search.best_params_) == {"rho", "estimator__max_depth"}
    twice, labels, together = np.repeat(X, 2, axis=0), np.repeat(y, 2), np.repeat(np.arange(120), 2)
    forest = RandomForestClassifier(10, random_state=0)
    separated = RobustEnsembleClassifier(forest, n_rounds=1, cv=3).fit(twice, labels)
    kept = clone(separated).set_params(cv=GroupKFold(3))
    kept.fit(twice, labels, split_groups=together)
    assert kept.robust_loss_ > separated.robust_loss_


class Marked(Ridge):
    """Ridge that takes one more argument with a number for each row."""

    def fit(self, X, y, sample_weight=None, marks=None):
        assert marks is not None
        assert len(marks) == len(X)
        np.testing.assert_array_equal(marks, X[:, 0])
        return super().fit(X, y, sample_weight)


def test_metadata_routing():
    X, _, number, few = two_laws(90)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Marked().set_fit_request(marks=True, sample_weight=True)
        model = RobustEnsembleRegressor(inner, n_rounds=2, cv=3)
        model.fit(X, number, marks=X[:, 0], sample_weight=np.ones(90))
        model.set_fit_request(groups=True, sample_weight=True)
        model.set_score_request(sample_weight=False)
        search = GridSearchCV(model, {"rho": [0.1]}, cv=2)
        search.fit(X, number, groups=few, marks=X[:, 0], sample_weight=np.ones(90))
        assert search.best_estimator_.group_weights_.size == 2
    with pytest.raises(ValueError, match="marks"):
        RobustEnsembleRegressor(Marked()).fit(X, number, marks=X[:, 0])


@needs_callbacks
def test_progress(capsys):
    X, _, number, _ = two_laws(60)
    count = Count()
    model = RobustEnsembleRegressor(Ridge(), n_rounds=3, cv=2, verbose=1).set_callbacks(count)
    model.fit(X, number)
    assert count.root.max_subtasks == 3
    assert count.ended == 1
    printed = capsys.readouterr().out
    assert "round 3 of 3, robust loss" in printed
    stopped = RobustEnsembleRegressor(Ridge(), n_rounds=3, cv=2, verbose=1, reference=Ridge())
    stopped.set_callbacks(Count(stop_after=1)).fit(X, number)
    assert "round 1 of 3, robust regret" in capsys.readouterr().out


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RobustEnsembleClassifier(LinearSVC()), "must have predict_proba. Got LinearSVC"),
        (
            RobustEnsembleClassifier(KNeighborsClassifier()),
            "estimator of an ensemble must take sample weights .* Got KNeighbors",
        ),
        (RobustEnsembleClassifier(GaussianNB(), rho=-1), "'rho' parameter"),
        (RobustEnsembleClassifier(GaussianNB(), n_rounds=0), "'n_rounds' parameter"),
        (RobustEnsembleClassifier(GaussianNB(), divergence="chi"), "'divergence' parameter"),
        (RobustEnsembleClassifier(GaussianNB(), divergence="cvar", rho=1), "no radius"),
        (RobustEnsembleClassifier(GaussianNB(), reference="x"), "'reference' parameter"),
        (RobustEnsembleClassifier("trees"), "'estimator' parameter"),
        (RobustEnsembleRegressor(Ridge(), loss="logistic"), "must be 'squared', 'huber'"),
        (RobustEnsembleRegressor(GaussianNB()), r"must be a regressor. Got GaussianNB\(\) instead"),
    ],
)
def test_bad_parameters(model, message):
    X, y, _, _ = two_laws(50)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_bad_data():
    X, y, number, few = two_laws(50)
    model = RobustEnsembleClassifier(GaussianNB(), cv=2, n_rounds=1)
    with pytest.raises(ValueError, match="each of the 50 rows"):
        model.fit(X, y, groups=few[:-1])
    with pytest.raises(ValueError, match="one loss for each of the 50 rows"):
        model.fit(X, y, reference_losses=number[:-1])
    with pytest.raises(ValueError, match="only one class"):
        model.fit(X, np.zeros(50))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X[:-1], y)
    with pytest.raises(ValueError, match=r"must hold labels that .* was fitted with"):
        model.fit(X, y).losses(X, np.full(50, 2))
    with pytest.raises(ValueError, match="into one test fold"):
        model.set_params(cv=[(np.arange(25), np.arange(25, 50))]).fit(X, y)


def test_the_weights_of_the_worst_case_are_those_of_the_function():
    X, y, _, _ = two_laws(100)
    model = RobustEnsembleClassifier(GaussianNB(), rho=0.3, n_rounds=2, cv=2).fit(X, y)
    found = model.worst_case(X, y, rho=0.7)
    np.testing.assert_array_equal(found.weights, worst_case(model.losses(X, y), rho=0.7).weights)
