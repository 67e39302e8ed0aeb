"""The scikit-learn estimators: scikit-learn's own checks, and what it does not check."""

import os
import pickle
import subprocess
import sys
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import compute_class_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from drolearn import (
    FSG,
    GSSG,
    LBFGS,
    PSSG,
    SGD,
    CVaR,
    Exact,
    Loss,
    Newton,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressor,
    RobustRegressorCV,
    solve,
    worst_case,
)

# A stochastic solver is exempt where scikit-learn exempts its own.
_SGD = {
    "check_sample_weight_equivalence_on_dense_data": "draws of rows, as in SGDClassifier",
    "check_sample_weight_equivalence_on_sparse_data": "draws of rows, as in SGDClassifier",
}


# At ρ = 1 and with the default penalty, the optimum on the 15 rows of these checks is a corner of
# the robust loss.  There the solver ends before predictions have the seven digits that the checks
# compare.  Up to ρ = 0.3 there is no exemption.
_CORNER = dict.fromkeys(_SGD, "an optimum at a corner, for the largest of the default radii")
_RADII = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)


def _exempt(estimator):
    if estimator.solver == "gssg":
        return _SGD
    return _CORNER if getattr(estimator, "rhos", _RADII) != _RADII else {}


@parametrize_with_checks(
    [
        RobustClassifier(solver="exact"),
        RobustRegressor(solver="exact"),
        RobustClassifierCV(_RADII, solver="exact"),
        RobustRegressorCV(_RADII, solver="exact"),
        RobustClassifierCV(),
        RobustRegressorCV(),
        RobustClassifier(),
        RobustClassifier(solver="gssg", random_state=0),
        RobustRegressor(solver="gssg", random_state=0),
    ],
    expected_failed_checks=_exempt,
    xfail_strict=False,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:rho = :UserWarning")
@pytest.mark.filterwarnings("ignore:The zero model is optimal:UserWarning")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_no_check_is_skipped():
    """With what scikit-learn needs to run all of them, which is read when it is imported."""
    program = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from sklearn.utils.estimator_checks import check_estimator\n"
        "from drolearn import RobustClassifier, RobustRegressor\n"
        "for estimator in (RobustClassifier(solver='exact'), RobustRegressor(solver='exact')):\n"
        "    print({check['status'] for check in check_estimator(estimator)})"
    )
    command, environment = [sys.executable, "-c", program], {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == ["{'passed'}"] * 2


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(
        600, 8, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, class_sep=0.7,
        random_state=0,
    )  # fmt: skip
    return X, y


@pytest.fixture(scope="module")
def binary(data):
    X, y = data
    return X, np.where(y > 0, "yes", "no")


# -- against scikit-learn at ρ = 0 -----------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_without_a_ball_it_is_logistic_regression(data, classes, weighted):
    X, y = data
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


def test_balanced_classes_weigh_as_in_logistic_regression(binary):
    X, y = binary
    ours = RobustClassifier(rho=0.0, class_weight="balanced", l2=1e-2, tol=1e-13).fit(X, y)
    C = 1.0 / (1e-2 * y.size)
    theirs = LogisticRegression(C=C, class_weight="balanced", tol=1e-12).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


def test_without_a_ball_it_is_linear_regression(data):
    X = data[0]
    y = X @ np.arange(8.0) + np.random.default_rng(0).standard_normal(600)
    ours = RobustRegressor(rho=0.0, l2=0.0, tol=1e-13).fit(X, y)
    np.testing.assert_allclose(ours.coef_, LinearRegression().fit(X, y).coef_, atol=1e-6)
    ours = RobustRegressor(rho=0.0, l2=0.1, tol=1e-13).fit(X, y)
    np.testing.assert_allclose(ours.coef_, Ridge(0.1 * 600).fit(X, y).coef_, atol=1e-6)


# -- the default penalty ---------------------------------------------------------------

_TIGHT = {"tol": 1e-13, "max_iter": 1000}


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_by_default_it_is_logistic_regression_at_its_default(
    data, classes, weighted, class_weight, kind
):
    X, y = data
    y = y if classes == 3 else y > 0
    weight = 3.0 * np.random.default_rng(0).random(y.size) if weighted else None
    ours = RobustClassifier(0.0, class_weight=class_weight, **_TIGHT).fit(kind(X), y, weight)
    theirs = LogisticRegression(class_weight=class_weight, tol=1e-12, max_iter=5000)
    theirs.fit(kind(X), y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    if class_weight is None:
        assert ours.l2_ == pytest.approx(1.0 / (y.size if weight is None else weight.sum()))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_by_default_it_is_ridge_regression_at_its_default(data, weighted, kind):
    X = data[0]
    rng = np.random.default_rng(0)
    y = X @ np.arange(8.0) + rng.standard_normal(600)
    weight = 3.0 * rng.random(600) if weighted else None
    ours = RobustRegressor(0.0, **_TIGHT).fit(kind(X), y, weight)
    theirs = Ridge(1.0, tol=1e-12, solver="sparse_cg" if kind is not np.asarray else "auto")
    theirs.fit(kind(X), y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-6)


@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_larger_weights_are_a_larger_C(binary, rho):
    X, y = binary
    weight = np.random.default_rng(0).random(y.size)
    larger = RobustClassifier(rho, **_TIGHT).fit(X, y, 5.0 * weight)
    assert larger.l2_ == pytest.approx(1.0 / (5.0 * weight.sum()))
    same = RobustClassifier(rho, l2=1.0 / (5.0 * weight.sum()), **_TIGHT).fit(X, y, weight)
    np.testing.assert_allclose(larger.coef_, same.coef_, atol=1e-6)
    if rho == 0.0:
        theirs = LogisticRegression(C=5.0, tol=1e-12, max_iter=5000).fit(X, y, weight)
        np.testing.assert_allclose(larger.coef_, theirs.coef_, atol=1e-6)


def test_weights_are_repeated_rows(binary):
    X, y = binary
    weight = np.random.default_rng(0).integers(0, 4, y.size)
    rows = np.repeat(np.arange(y.size), weight)
    some = RobustClassifier(0.05, class_weight="balanced", **_TIGHT).fit(X, y, weight)
    same = RobustClassifier(0.05, class_weight="balanced", **_TIGHT).fit(X[rows], y[rows])
    assert some.l2_ == pytest.approx(same.l2_)
    np.testing.assert_allclose(some.coef_, same.coef_, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-300, 1e-150, 1e-101, 1e101, 1e150, 1e300])
def test_the_penalty_is_that_of_the_weights_as_they_were_given(binary, unit):
    """Weights this large or small are scaled inside."""
    X, y = binary
    weight = unit * (0.5 + np.random.default_rng(0).random(y.size))
    expected = min(1.0 / weight.sum(), 2.0**900)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No model is better than none")
        assert RobustClassifier().fit(X, y, weight).l2_ == pytest.approx(expected, rel=1e-12, abs=0)
        cv = RobustClassifierCV([0.0, 0.1], cv=KFold(2)).fit(X, y, weight)
    assert cv.l2_ == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("unit", [1.0, 1e110])
def test_each_fold_has_its_own_penalty(binary, unit):
    X, y = binary
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


def test_good_probabilities_out_of_the_box():
    X, y = load_breast_cancer(return_X_y=True)
    parts = train_test_split(X, y, random_state=0)
    model = make_pipeline(StandardScaler(), RobustClassifier()).fit(parts[0], parts[2])
    assert log_loss(parts[3], model.predict_proba(parts[1])) < 0.15


# -- against cvxpy at ρ > 0 ------------------------------------------------------------


def _judge(means, shares, rho):
    """The χ² worst case of some convex losses, by its dual."""
    lam, alpha = cp.Variable(), cp.Variable(nonneg=True)
    squares = [
        share * cp.quad_over_lin(cp.pos(mean - lam + 2 * alpha), alpha) / 4
        for mean, share in zip(means, shares, strict=True)
    ]
    return lam + alpha * (rho - 1.0) + sum(squares)


def test_three_classes_against_the_judge(data):
    X, y = data[0][:60], data[1][:60]
    W, c = cp.Variable((8, 3)), cp.Variable(3)
    f = X @ W + cp.reshape(c, (1, 3), order="C")
    losses = [cp.log_sum_exp(f[i]) - f[i, y[i]] for i in range(60)]
    value = _judge(losses, np.full(60, 1 / 60), 0.3) + 0.01 * cp.sum_squares(W)
    best = cp.Problem(cp.Minimize(value)).solve(solver="CLARABEL")
    found = RobustClassifier(rho=0.3, l2=0.02, tol=1e-9, max_iter=1000).fit(X, y)
    assert found.objective_ == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("rho", [0.05, 0.5, 3.0, 100.0])
def test_groups_against_the_judge(binary, rho):
    X, y = binary
    g = np.random.default_rng(0).choice(["a", "b", "c"], y.size, p=[0.7, 0.2, 0.1])
    X = X + 2.0 * (g == "c")[:, None] * np.sign(X[:, ::-1])
    w, c = cp.Variable(8), cp.Variable()
    losses = cp.logistic(-cp.multiply(np.where(y == "yes", 1.0, -1.0), X @ w + c))
    means = [cp.sum(losses[np.flatnonzero(g == k)]) / (g == k).sum() for k in "abc"]
    shares = [(g == k).mean() for k in "abc"]
    value = cp.maximum(*means) if rho > 50 else _judge(means, shares, rho)
    best = cp.Problem(cp.Minimize(value + 5e-4 * cp.sum_squares(w))).solve(solver="CLARABEL")
    found = RobustClassifier(rho=rho, l2=1e-3, tol=1e-7).fit(X, y, groups=g)
    assert found.converged_
    assert found.objective_ == pytest.approx(best, rel=1e-6)
    assert found.groups_.tolist() == ["a", "b", "c"]
    assert found.group_weights_.sum() == pytest.approx(1.0)
    again = found.worst_case(X, y, groups=g)
    assert again.value == pytest.approx(found.robust_loss_, rel=1e-9)
    if rho > 50:
        own = [found.losses(X, y)[g == k].mean() for k in "abc"]
        assert found.robust_loss_ == pytest.approx(max(own), rel=1e-9)


def test_groups_are_never_left_to_draws():
    """Where "auto" would draw rows, groups need an exact solver."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 2))
    y = X[:, 0] + rng.standard_normal(40_000) > 0
    g = np.arange(40_000) % 2
    assert RobustClassifier(tol=1e-2, random_state=0).fit(X, y).solver_ == "gssg"
    assert RobustClassifier(tol=1e-2).fit(X, y, groups=g).solver_ in ("lbfgs", "newton")


def test_one_group_for_each_row_is_no_group(binary):
    X, y = binary
    plain = RobustClassifier(rho=0.2, tol=1e-9, max_iter=500).fit(X, y)
    each = RobustClassifier(rho=0.2, tol=1e-9, max_iter=500).fit(X, y, groups=np.arange(y.size))
    assert each.robust_loss_ == pytest.approx(plain.robust_loss_, rel=1e-8)
    np.testing.assert_allclose(each.coef_, plain.coef_, rtol=1e-2, atol=1e-3)


def test_weights_and_groups_go_together(binary):
    X, y = binary
    g = np.arange(y.size) % 3
    weight = np.random.default_rng(0).integers(0, 3, y.size)
    some = RobustClassifier(rho=0.5, l2=1e-3, tol=1e-10).fit(X, y, weight, groups=g)
    rows = np.repeat(np.arange(y.size), weight)
    same = RobustClassifier(rho=0.5, l2=1e-3, tol=1e-10).fit(X[rows], y[rows], groups=g[rows])
    assert some.objective_ == pytest.approx(same.objective_, rel=1e-9)


def test_a_group_without_weight_changes_nothing(binary):
    X, y = binary
    g, weight = np.arange(y.size) % 3, np.ones(y.size)
    weight[g == 2] = 0.0
    all_rows = RobustClassifier(rho=0.1, tol=1e-10).fit(X, y, weight, groups=g)
    some = RobustClassifier(rho=0.1, tol=1e-10).fit(X[g < 2], y[g < 2], groups=g[g < 2])
    assert all_rows.robust_loss_ == pytest.approx(some.robust_loss_, rel=1e-9)
    assert all_rows.group_weights_[2] == 0.0


# -- what was learnt -------------------------------------------------------------------


def test_attributes_agree_with_each_other(binary):
    X, y = binary
    clf = RobustClassifier(rho=0.3, l2=1e-2).fit(X, y)
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


def test_worst_case_takes_weights(binary):
    X, y = binary
    clf = RobustClassifier().fit(X, y)
    weight = np.random.default_rng(0).random(y.size)
    found = clf.worst_case(X, y, rho=0.4, sample_weight=weight)
    assert found.value == pytest.approx(
        worst_case(clf.losses(X, y), 0.4, sample_weight=weight).value
    )


def test_automatic_radius():
    X, y = make_classification(400, 16, random_state=0)
    assert RobustClassifier(rho="auto", l2=1e-3).fit(X, y).rho_ == pytest.approx(0.2)


@pytest.mark.parametrize("solver", ["gssg", "pssg", "sgd", "fsg", "gssg-anchor", "lbfgs"])
def test_all_solvers_fit(binary, solver):
    X, y = binary
    clf = RobustClassifier(rho=0.1, solver=solver, tol=None, max_iter=30, random_state=0).fit(X, y)
    best = RobustClassifier(rho=0.1).fit(X, y)
    assert clf.robust_loss_ <= 1.1 * best.robust_loss_
    assert clf.score(X, y) > 0.7


@pytest.mark.parametrize(
    "solver",
    [Exact(), LBFGS(), Newton(), GSSG(32), GSSG(anchor=True), PSSG(rate=1.01), FSG(), SGD(16)],
    ids=repr,
)
def test_solver_objects(binary, solver):
    """Cloned, pickled, set by name, and never written by fit."""
    X, y = binary
    before = solver.get_params()
    clf = RobustClassifier(solver=solver, tol=None, max_iter=5, random_state=0).fit(X, y)
    assert solver.get_params() == before
    assert clf.solver is solver
    copy = clone(clf)
    assert copy.solver is not solver
    assert copy.solver == solver
    for other in (copy, pickle.loads(pickle.dumps(clone(clf)))):
        np.testing.assert_array_equal(other.fit(X, y).coef_, clf.coef_)
    assert eval(repr(solver)) == solver
    with pytest.raises(ValueError, match=f"{type(solver).__name__} has no setting 'batchsize'"):
        copy.set_params(solver__batchsize=3)


def test_a_search_over_settings_of_the_solver(binary):
    X, y = binary
    model = RobustClassifier(solver=GSSG(), tol=None, max_iter=3, random_state=0)
    search = GridSearchCV(model, {"solver__batch_size": [8, 64]}, cv=2).fit(X, y)
    assert search.best_estimator_.solver.batch_size in (8, 64)
    assert model.solver == GSSG()
    by_name = RobustClassifier(solver="gssg")
    with pytest.raises(ValueError, match=r"'solver__batch_size' needs a solver object"):
        by_name.set_params(solver__batch_size=8)
    assert by_name.set_params(solver=GSSG(), solver__batch_size=8).solver == GSSG(8)


def test_folds_and_grid_points_do_not_share_checkpoints(binary, tmp_path):
    X, y = binary
    shared = {"tol": None, "max_iter": 3, "random_state": 0}
    plain = RobustClassifierCV([0.05, 0.5], cv=3, solver=GSSG(), **shared).fit(X, y)
    for _ in range(2):  # the second time from the checkpoints of the first
        kept = RobustClassifierCV([0.05, 0.5], cv=3, solver=GSSG(checkpoint=tmp_path), **shared)
        np.testing.assert_array_equal(kept.fit(X, y).coef_, plain.coef_)
    assert len(list(tmp_path.iterdir())) == 7


def test_same_seed_same_bits(binary):
    X, y = binary
    one, two = (
        RobustClassifier(solver="gssg", tol=None, max_iter=5, random_state=7, n_jobs=n).fit(X, y)
        for n in (None, 2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize("loss", ["squared-hinge", "smoothed-hinge", Loss.smoothed_hinge(0.5)])
def test_losses_without_probabilities(binary, loss):
    X, y = binary
    clf = RobustClassifier(loss=loss, l2=1e-3).fit(X, y)
    assert clf.score(X, y) > 0.7
    assert not hasattr(clf, "predict_proba")


@pytest.mark.parametrize("divergence", ["kl", "hellinger", "total-variation", CVaR(0.7)])
def test_divergences_converge(binary, divergence):
    X, y = binary
    clf = RobustClassifier(0.05, divergence=divergence, l2=1e-3, max_iter=300).fit(X, y)
    assert clf.converged_
    assert clf.gap_ <= 1e-5 * clf.objective_
    worse = RobustClassifier(0.0, l2=1e-3).fit(X, y)
    cost = 0.5e-3 * float((worse.coef_**2).sum())
    value = worst_case(worse.losses(X, y), 0.05, divergence).value + cost
    assert clf.objective_ <= value * (1 + 1e-9)


def test_numbers_without_noise_converge(data):
    X = data[0]
    for exact in (X.astype(np.float32), X):
        y = 1e6 + exact @ np.arange(8.0, dtype=exact.dtype)
        found = RobustRegressor(l2=0.0).fit(exact, y)
        assert found.converged_
        np.testing.assert_allclose(found.coef_, np.arange(8.0), atol=0.1)


def test_the_radius_of_cvar_has_no_effect(binary):
    X, y = binary
    one, two = (RobustClassifier(rho, divergence=CVaR(0.5)).fit(X, y) for rho in (0.0, 1.0))
    assert one.robust_loss_ == pytest.approx(two.robust_loss_, rel=1e-9)
    assert one.worst_case(X, y).value == pytest.approx(one.robust_loss_, rel=1e-9)


@pytest.mark.parametrize("unit", [1e-20, 1e-6, 1.0, 1e6, 1e40])
def test_units_of_y_do_not_matter(data, unit):
    X = data[0]
    y = X @ np.arange(8.0) + np.random.default_rng(0).standard_normal(600)
    scaled = RobustRegressor(0.2).fit(X, y * unit)
    assert scaled.converged_
    np.testing.assert_allclose(scaled.coef_ / unit, RobustRegressor(0.2).fit(X, y).coef_, rtol=1e-9)


@pytest.mark.parametrize("tol", [0.1, 1e-6])
@pytest.mark.parametrize("rho", [0.0, 0.1])
def test_huber_with_large_numbers(rho, tol):
    """Almost all rows are on the straight pieces, and slopes at zero are small."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 3))
    y = 3e5 + 1e5 * X[:, 0] + 5e4 * rng.standard_t(3, 500)
    found = RobustRegressor(rho, loss="huber", l2=0.0, tol=tol, max_iter=500).fit(X, y)
    assert found.converged_
    assert found.gap_ <= tol * found.objective_
    assert abs(found.coef_[0] - 1e5) < 2e4


def test_losses_of_ones_own_travel(binary):
    X, y = binary
    own = Loss.custom(_value, _slope, of="margin", smoothness=0.25)
    clf = clone(RobustClassifier(loss=own)).fit(X, y)
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.losses(X, y), clf.losses(X, y))
    assert clf.robust_loss_ == pytest.approx(RobustClassifier().fit(X, y).robust_loss_, rel=1e-5)
    scores = cross_val_score(RobustClassifier(loss=own), X, y, cv=2, n_jobs=2)
    assert scores.min() > 0.6


def _value(x):
    return np.log1p(np.exp(-x))


def _slope(x):
    return -1.0 / (1.0 + np.exp(x))


def test_few_passes_are_no_worse_than_no_model(binary):
    X, y = binary
    for passes in (1, 2, 3):
        with pytest.warns(ConvergenceWarning):
            clf = RobustClassifier(rho=0.1, max_iter=passes).fit(X, y)
        assert clf.n_iter_ <= passes
        assert clf.robust_loss_ <= np.log(2) + 1e-12


def test_many_classes_at_a_corner_are_honest():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.digitize(X[:, 0] + 0.8 * rng.standard_normal(60), [-0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = RobustClassifier(divergence=CVaR(0.3), l2=0.01, tol=1e-8, max_iter=500).fit(X, y)
    best = 1.0983643  # by cvxpy
    assert clf.objective_ - clf.gap_ <= best + 1e-7
    assert clf.converged_ == (clf.gap_ <= 1e-8 * clf.objective_)


def test_rows_without_weight_say_nothing(data):
    X = data[0]
    y, weight = X[:, 0].copy(), np.ones(600)
    y[0], weight[0] = 1e200, 0.0
    some = RobustRegressor().fit(X, y, weight)
    np.testing.assert_allclose(some.coef_, RobustRegressor().fit(X[1:], y[1:]).coef_, atol=1e-9)


def test_balanced_classes_look_at_weights(binary):
    X, y = binary
    weight = np.random.default_rng(0).integers(0, 3, y.size).astype(float)
    rows = np.repeat(np.arange(y.size), weight.astype(int))
    one = RobustClassifier(class_weight="balanced", tol=1e-10).fit(X, y, weight)
    two = RobustClassifier(class_weight="balanced", tol=1e-10).fit(X[rows], y[rows])
    assert one.robust_loss_ == pytest.approx(two.robust_loss_, rel=1e-9)


def test_huber_regression(data):
    X = data[0]
    rng = np.random.default_rng(0)
    y = X @ np.ones(8) + 0.1 * rng.standard_normal(600)
    y[:20] += 100.0
    robust = RobustRegressor(rho=0.0, loss="huber").fit(X, y)
    np.testing.assert_allclose(robust.coef_, 1.0, atol=0.1)


# -- containers and habits of scikit-learn ---------------------------------------------


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array])
def test_sparse_gives_the_same(binary, kind):
    X, y = binary
    dense = RobustClassifier(tol=1e-10).fit(X, y)
    other = RobustClassifier(tol=1e-10).fit(kind(X), y)
    np.testing.assert_allclose(other.coef_, dense.coef_, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(other.predict(kind(X)), dense.predict(X))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_names(binary, frame):
    X, y = binary
    names = [f"x{j}" for j in range(8)]
    clf = RobustClassifier().fit(frame(dict(zip(names, X.T, strict=True))), y)
    assert clf.feature_names_in_.tolist() == names
    np.testing.assert_allclose(clf.coef_, RobustClassifier().fit(X, y).coef_)


def test_single_precision_stays(binary):
    X, y = binary
    clf = RobustClassifier().fit(X.astype(np.float32), y)
    assert clf.coef_.dtype == clf.intercept_.dtype == np.float32
    assert clf.decision_function(X.astype(np.float32)).dtype == np.float32
    number = RobustRegressor().fit(X.astype(np.float32), X[:, 0])
    assert number.predict(X.astype(np.float32)).dtype == np.float32


def test_memory_maps(binary, tmp_path):
    X, y = binary
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        RobustClassifier().fit(mapped, y).coef_, RobustClassifier().fit(X, y).coef_
    )


def test_pipeline_search_clone_pickle(binary):
    X, y = binary
    search = GridSearchCV(
        make_pipeline(StandardScaler(), RobustClassifier(l2=1e-3)),
        {"robustclassifier__rho": [0.0, 0.1]},
        cv=3,
    ).fit(X, y)
    assert search.best_score_ > 0.7
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert clone(RobustClassifier(CVaR(0.5))).rho == CVaR(0.5)
    assert "RobustClassifier" in RobustClassifier()._repr_html_()


def test_metadata_routing(binary):
    import sklearn

    X, y = binary
    g = np.arange(y.size) % 2
    with sklearn.config_context(enable_metadata_routing=True):
        clf = RobustClassifier(l2=1e-3).set_fit_request(groups=True, sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), clf)
        pipeline.fit(X, y, groups=g, sample_weight=np.ones(y.size))
    assert pipeline[-1].group_weights_.size == 2


def test_warm_start_starts_where_it_ended(binary):
    X, y = binary
    clf = RobustClassifier(rho=0.1, warm_start=True, tol=1e-8).fit(X, y)
    first = clf.n_iter_
    clf.fit(X, y)
    assert clf.n_iter_ < first
    clf.set_params(rho=0.11).fit(X, y)
    fresh = RobustClassifier(rho=0.11, tol=1e-8).fit(X, y)
    assert clf.robust_loss_ == pytest.approx(fresh.robust_loss_, rel=1e-7)
    clf.fit(X[:, :4], y)  # another shape starts anew
    assert clf.coef_.shape == (1, 4)


# -- progress, stopping, warnings ------------------------------------------------------


class _Count:
    def __init__(self, stop_after=None):
        self.seen, self.models, self.ended, self.stop_after = 0, [], 0, stop_after

    def setup(self, estimator, context):
        self.root = context

    def teardown(self, estimator, context):
        self.ended += 1

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name in ("pass", "fold"):
            self.seen += 1
            self.models.append(fitted_estimator)
            return self.stop_after is not None and self.seen >= self.stop_after
        return False


@pytest.mark.parametrize("solver", ["exact", "gssg"])
def test_callbacks_hear_of_every_pass(binary, solver):
    X, y = binary
    count = _Count()
    clf = RobustClassifier(solver=solver, random_state=0, max_iter=30, tol=None)
    clf.set_callbacks(count).fit(X, y)
    assert 3 <= count.seen <= 30
    assert count.ended == 1
    assert count.root.max_subtasks == 30
    assert count.models[-1].score(X, y) > 0.6
    assert count.models[-1] is not clf


def test_callbacks_may_stop(binary):
    X, y = binary
    count = _Count(stop_after=2)
    clf = RobustClassifier(solver="exact").set_callbacks(count)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # who stops it need not be told
        clf.fit(X, y)
    assert count.seen == 2
    assert "Stopped" in clf.status_
    assert not clf.converged_


def test_callbacks_of_scikit_learn(binary, capsys):
    X, y = binary
    monitor = ScoringMonitor(scoring="neg_log_loss")
    RobustClassifier().set_callbacks(ProgressBar(), monitor).fit(X, y)
    assert "RobustClassifier" in capsys.readouterr().out
    assert len(monitor.get_logs().data) > 0


def test_folds_are_told_to_callbacks(binary):
    X, y = binary
    count = _Count()
    RobustClassifierCV([0.0, 0.1], cv=3).set_callbacks(count).fit(X, y)
    assert count.seen == 3


def test_verbose_prints(binary, capsys):
    X, y = binary
    RobustClassifier(verbose=1).fit(X, y)
    assert "robust loss" in capsys.readouterr().out


def test_an_interrupted_fit_keeps_its_model(binary):
    class Interrupt(_Count):
        def on_fit_task_end(self, estimator, context):
            if context.task_name == "pass":
                self.seen += 1
            if self.seen == 3:
                raise KeyboardInterrupt

    X, y = binary
    clf = RobustClassifier(solver="exact").set_callbacks(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, y)
    assert "Interrupted" in clf.status_
    assert clf.score(X, y) > 0.6


def test_a_ball_that_holds_too_much_warns():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), rng.choice([0, 1], 300)
    with pytest.warns(UserWarning, match="The zero model is optimal .* Use a smaller rho"):
        clf = RobustClassifier(rho=5.0).fit(X, y)
    assert clf.converged_
    assert not clf.coef_.any()


def test_too_few_passes_warn(binary):
    X, y = binary
    with pytest.warns(ConvergenceWarning, match="raise max_iter or tol"):
        RobustClassifier(max_iter=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="raise max_iter or tol"):
        RobustClassifier(solver="gssg", max_iter=2, random_state=0).fit(X, y)


# -- cross-validation ------------------------------------------------------------------


def test_path_by_hand(binary):
    X, y = binary
    rhos, folds = [0.3, 0.0], KFold(3)
    cv = RobustClassifierCV(rhos, cv=folds, tol=1e-13).fit(X, y)
    assert cv.rhos_.tolist() == [0.0, 0.3]
    for fold, (train, test) in enumerate(folds.split(X)):
        for place, rho in enumerate(cv.rhos_):
            clf = RobustClassifier(rho, tol=1e-13).fit(X[train], y[train])
            mean = clf.losses(X[test], y[test]).mean()
            assert cv.scores_[fold, place] == pytest.approx(-mean)
    best = int(cv.scores_.mean(axis=0).argmax())
    assert cv.rho_ == cv.rhos_[best]
    assert cv.best_score_ == pytest.approx(cv.scores_.mean(axis=0).max())
    np.testing.assert_allclose(cv.coef_, RobustClassifier(cv.rho_, tol=1e-13).fit(X, y).coef_)


def test_scoring(binary):
    X, y = binary
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
    own = RobustClassifierCV(**common, scoring=lambda model, X, y: model.rho).fit(X, y)
    assert own.rho_ == 0.2


def test_groups_move_in_every_fold(binary):
    X, y = binary
    g = np.arange(y.size) % 3
    cv = RobustClassifierCV([0.1, 1.0], cv=3, scoring="worst-group", l2=1e-3).fit(X, y, groups=g)
    assert cv.group_weights_.size == 3


def test_splitters_by_groups_get_them(binary):
    X, y = binary
    g = np.arange(y.size) % 6
    cv = RobustClassifierCV([0.0, 0.1], cv=GroupKFold(3), train_on_groups=False)
    assert cv.fit(X, y, groups=g).scores_.shape == (3, 2)


def test_methods_are_made_for_each_fold(binary):
    X, y = binary
    cv = RobustClassifierCV([0.1], cv=3, solver=SGD(8), tol=None, max_iter=2)
    assert cv.set_params(random_state=0).fit(X, y).solver_ == "sgd"


def test_folds_in_parallel_give_the_same(binary):
    X, y = binary
    one = RobustClassifierCV([0.0, 0.1], cv=3).fit(X, y)
    two = RobustClassifierCV([0.0, 0.1], cv=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.scores_, two.scores_)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_path_of_regressions(data):
    X = data[0]
    y = X @ np.ones(8) + np.random.default_rng(0).standard_normal(600)
    cv = RobustRegressorCV([0.0, 1.0], cv=3).fit(X, y)
    assert cv.rho_ == 0.0
    assert cv.score(X, y) > 0.8


def test_path_is_drawn(binary):
    import matplotlib

    matplotlib.use("Agg")
    X, y = binary
    cv = RobustClassifierCV([0.0, 0.1], cv=3).fit(X, y)
    axes = cv.plot_path()
    assert axes.get_xlabel() == "radius ρ"
    assert cv.plot_path(axes) is axes


# -- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rho": -1.0}, "The 'rho' parameter of RobustClassifier must be"),
        ({"rho": np.nan}, "The 'rho' parameter of RobustClassifier must be"),
        ({"rho": "car"}, "The 'rho' parameter of RobustClassifier must be"),
        ({"divergence": "ki"}, "The 'divergence' parameter of RobustClassifier must be"),
        ({"loss": "squared"}, "The 'loss' parameter of RobustClassifier must be"),
        ({"loss": Loss.huber()}, "The 'loss' parameter of RobustClassifier must be"),
        ({"l2": -1}, "The 'l2' parameter of RobustClassifier must be"),
        ({"l2": np.inf}, "The 'l2' parameter of RobustClassifier must be"),
        ({"l2": "none"}, "The 'l2' parameter of RobustClassifier must be"),
        ({"solver": "adam"}, "The 'solver' parameter of RobustClassifier must be"),
        ({"max_iter": np.inf}, "The 'max_iter' parameter of RobustClassifier must be"),
        ({"max_iter": 0}, "The 'max_iter' parameter of RobustClassifier must be"),
        ({"tol": 2.0}, "The 'tol' parameter of RobustClassifier must be"),
        ({"solver": GSSG(step_size=0.0)}, "The 'step_size' setting must be"),
        ({"solver": GSSG(batch_size=0)}, "The 'batch_size' parameter must be"),
        ({"class_weight": "even"}, "The 'class_weight' parameter of RobustClassifier must be"),
        ({"n_jobs": 0}, "'n_jobs'"),
    ],
)
def test_bad_parameters(binary, parameters, message):
    with pytest.raises(ValueError, match=message):
        RobustClassifier(**parameters).fit(*binary)


def test_bad_data(binary, data):
    X, y = binary
    with pytest.raises(ValueError, match="only one class"):
        RobustClassifier().fit(X, np.ones(600))
    with pytest.raises(ValueError, match="at least two classes"):
        RobustClassifier().fit(X, y, (y == "yes") * 1.0)
    with pytest.raises(ValueError, match=r"'loss' parameter .* 'logistic' for more than two"):
        RobustClassifier(loss="squared-hinge").fit(*data)
    with pytest.raises(ValueError, match="Negative values"):
        RobustClassifier().fit(X, y, -np.ones(600))
    for estimator in (RobustClassifier(), RobustRegressor()):
        with pytest.raises(ValueError, match=r"positive sum|[Zz]ero"):
            estimator.fit(X, (y == "yes") * 1.0, np.zeros(600))
    with pytest.raises(ValueError, match="was fitted with"):
        RobustClassifier().fit(X, y).losses(X, np.full(600, "perhaps"))
    with pytest.raises(ValueError, match="group of each of the 600 rows"):
        RobustClassifier().fit(X, y, groups=[1, 2])
    with pytest.raises(ValueError, match="must not hold missing values"):
        RobustClassifier().fit(X, y, groups=np.full(600, np.nan))
    with pytest.raises(ValueError, match="all strings or all numbers"):
        RobustClassifier().fit(X, y, groups=np.array(["a", 1] * 300, dtype=object))
    with pytest.raises(ValueError, match="must not hold missing values"):
        RobustClassifier().fit(X, y, groups=np.array([np.nan, 1.0] * 300, dtype=object))
    with pytest.raises(ValueError, match="group of each of the 600 rows"):
        RobustClassifier().fit(X, y, groups=np.zeros((600, 2)))
    with pytest.raises(ValueError, match="'class_weight' parameter of RobustClassifier must hold"):
        RobustClassifier(class_weight={"yes": -1.0}).fit(X, y)
    with pytest.raises(ValueError, match="at least two classes"):
        RobustClassifier(class_weight={"yes": 0.0}).fit(X, y)
    with pytest.raises(ValueError, match="'sample_weight' parameter must hold finite weights"):
        RobustClassifier().fit(X, y).worst_case(X, y, 0.1, -np.ones(600), groups=np.ones(600))
    with pytest.raises(ValueError, match="cannot estimate the losses of groups"):
        RobustClassifier(solver="gssg").fit(X, y, groups=np.arange(600) % 2)
    with pytest.raises(ValueError, match="another loss of the residual"):
        RobustRegressor(loss=Loss.smoothed_hinge()).fit(X, X[:, 0])


def test_bad_paths(binary):
    X, y = binary
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
    lonely = y.copy()
    lonely[0] = "perhaps"
    with pytest.raises(ValueError, match="trains without"):
        RobustClassifierCV([0.1], cv=KFold(3)).fit(X, lonely)


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT], ids=repr)
def test_missing_names_are_named(binary, missing):
    X, y = binary
    groups = np.array(["a", "b"] * 300, dtype=object)
    groups[7] = missing
    with pytest.raises(ValueError, match="'groups' parameter must not hold missing values"):
        RobustClassifier().fit(X, y, groups=groups)
    labels = np.asarray(y, dtype=object)
    labels[7] = missing
    with pytest.raises(ValueError, match="'y' parameter must not hold missing values"):
        RobustClassifier().fit(X, labels)
    with pytest.raises(ValueError, match=r"'y' parameter must not hold missing values"):
        solve(X, labels)
