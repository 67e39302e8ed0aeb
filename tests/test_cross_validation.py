"""Cross-validation over radii: scores, folds, groups, penalties, errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import t
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import compute_class_weight

from drolearn import (
    GSSG,
    SGD,
    CVaR,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressorCV,
    ZeroModelWarning,
    worst_case,
)
from tests.examples import Count, needs_callbacks


def test_scores_equal_those_of_single_fits(two_classes):
    X, y = two_classes
    folds = KFold(3)
    cv = RobustClassifierCV([0.3, 0.0], l2s=[1.0, 30.0], cv=folds, path_tol=1e-12, tol=1e-13)
    cv.fit(X, y)
    assert cv.rhos_.tolist() == [0.0, 0.3]
    assert cv.l2s_.tolist() == [30.0, 1.0]
    for fold, (train, test) in enumerate(folds.split(X)):
        for i, rho in enumerate(cv.rhos_):
            for j, multiple in enumerate(cv.l2s_):
                clf = RobustClassifier(rho, l2=multiple / train.size, tol=1e-13)
                mean = clf.fit(X[train], y[train]).losses(X[test], y[test]).mean()
                assert cv.scores_[fold, i, j] == pytest.approx(-mean)
    mean = cv.scores_.mean(axis=0)
    i, j = np.unravel_index(mean.argmax(), mean.shape)
    assert (cv.rho_, cv.best_l2_) == (cv.rhos_[i], cv.l2s_[j])
    assert cv.best_score_ == pytest.approx(mean.max())
    assert cv.l2_ == pytest.approx(cv.best_l2_ / y.size)
    expected = RobustClassifier(cv.rho_, l2=cv.l2_, tol=1e-13).fit(X, y)
    np.testing.assert_allclose(cv.coef_, expected.coef_)


@pytest.mark.parametrize(
    "settings", [{"taus": [0.2, 1.0, np.inf]}, {"rhos": [0.0, 0.2], "trim": 0.1}]
)
def test_soft_balls_and_trimming_score_like_single_fits(two_classes, settings):
    X, y = two_classes
    folds, weights = KFold(3), np.random.default_rng(0).integers(0, 3, y.size)
    cv = RobustClassifierCV(**settings, l2s=[1.0, 30.0], cv=folds, path_tol=1e-9, tol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of soft balls
        cv.fit(X, y, sample_weight=weights)
        soft = "taus" in settings
        grid = cv.taus_ if soft else cv.rhos_
        for fold, (train, test) in enumerate(folds.split(X)):
            for i, number in enumerate(grid):
                for j, multiple in enumerate(cv.l2s_):
                    ball = {"tau": number} if soft else {"rho": number, "trim": 0.1}
                    clf = RobustClassifier(**ball, l2=multiple / weights[train].sum(), tol=1e-9)
                    clf.fit(X[train], y[train], weights[train])
                    mean = np.average(clf.losses(X[test], y[test]), weights=weights[test])
                    assert cv.scores_[fold, i, j] == pytest.approx(-mean, abs=1e-4)
        chosen = {"tau": cv.tau_} if soft else {"rho": cv.rho_, "trim": 0.1}
        final = RobustClassifier(**chosen, l2=cv.l2_, tol=1e-9).fit(X, y, weights)
    np.testing.assert_array_equal(cv.coef_, final.coef_)
    assert cv.cv_results_["tau" if soft else "rho"].size == cv.scores_[0].size
    assert (cv.tau_ in grid) if soft else (cv.tau_ is None)


def test_an_infinite_price_is_radius_zero_and_no_trim_is_no_change(two_classes):
    X, y = two_classes
    plain = RobustClassifierCV([0.0], l2s=[1.0], cv=2, path_tol=1e-9).fit(X, y)
    soft = RobustClassifierCV(taus=[np.inf], l2s=[1.0], cv=2, path_tol=1e-9).fit(X, y)
    np.testing.assert_allclose(soft.scores_, plain.scores_, rtol=1e-4)
    np.testing.assert_array_equal(soft.coef_, plain.coef_)
    untrimmed = RobustClassifierCV([0.0, 0.1], l2s=[1.0], cv=2, trim=0.0).fit(X, y)
    same = RobustClassifierCV([0.0, 0.1], l2s=[1.0], cv=2).fit(X, y)
    np.testing.assert_array_equal(untrimmed.scores_, same.scores_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"taus": [1.0], "rhos": [0.1]}, "replaces 'rhos': pass one of them"),
        ({"taus": [1.0], "levels": [0.5]}, "replaces 'levels': pass one of them"),
        ({"taus": [1.0], "divergence": "cvar"}, "needs a strictly convex divergence"),
        ({"taus": [1.0], "divergence": "total-variation"}, "needs a strictly convex divergence"),
        ({"taus": []}, "'taus' parameter must hold at least one number"),
        ({"taus": [-1.0]}, "'taus' parameter must be a number of at least 0"),
        ({"taus": [np.nan]}, "'taus' parameter must be a number of at least 0"),
        ({"taus": [1.0], "solver": "gssg"}, "'tau' parameter needs an exact solver"),
        ({"trim": 0.1, "solver": "gssg"}, "'trim' parameter needs an exact solver"),
        ({"trim": 1.0}, "'trim' parameter of RobustClassifierCV must be a float in the range"),
    ],
)
def test_what_soft_balls_and_trimming_refuse(two_classes, settings, message):
    X, y = two_classes
    with pytest.raises(ValueError, match=message):
        RobustClassifierCV(**settings, cv=2).fit(X, y)


def test_the_table_has_one_line_for_each_candidate(two_classes):
    X, y = two_classes
    cv = RobustClassifierCV([0.0, 0.1, 0.2], l2s=[1, 10], cv=3).fit(X, y)
    table = cv.cv_results_
    assert table["rho"].tolist() == [0.0, 0.0, 0.1, 0.1, 0.2, 0.2]
    assert table["l2"].tolist() == [10.0, 1.0] * 3
    np.testing.assert_allclose(table["mean_score"], cv.scores_.mean(axis=0).ravel())
    (best,) = np.flatnonzero(table["chosen"])
    assert (table["rho"][best], table["l2"][best]) == (cv.rho_, cv.best_l2_)
    assert table["mean_score"][best] == table["mean_score"].max() == cv.best_score_


def test_the_levels_of_cvar_are_the_grid(two_classes):
    X, y = two_classes
    cv = RobustClassifierCV(divergence="cvar", levels=[0.5, 1.0], l2s=[1], cv=3, path_tol=1e-9)
    cv.fit(X, y)
    assert cv.levels_.tolist() == [1.0, 0.5]
    assert cv.scores_.shape == (3, 2, 1)
    assert not hasattr(cv, "rhos_")
    assert cv.divergence_ == CVaR(cv.cv_results_["level"][cv.cv_results_["chosen"]][0])
    plain = RobustClassifierCV([0.0], l2s=[1], cv=3, path_tol=1e-9).fit(X, y)
    np.testing.assert_allclose(cv.scores_[:, 0, 0], plain.scores_[:, 0, 0], rtol=1e-4)
    assert cv.worst_case(X, y).divergence == cv.divergence_
    with pytest.raises(ValueError, match=r"'rhos' .* must be None .* Use 'levels' instead"):
        RobustClassifierCV([0.1], divergence="cvar").fit(X, y)
    with pytest.raises(ValueError, match=r"'levels' .* only CVaR has levels"):
        RobustClassifierCV(levels=[0.1]).fit(X, y)
    with pytest.raises(ValueError, match="'level' parameter of CVaR"):
        RobustClassifierCV(divergence="cvar", levels=[2.0]).fit(X, y)


@pytest.fixture
def noise():
    """Labels that X does not explain: large balls lead to the zero model."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((300, 3)), rng.random(300) < 0.5


def test_the_zero_model_is_excluded_and_named(noise):
    X, y = noise
    settings = {"rhos": [0.0, 0.001, 3.0], "l2s": [1e-4, 1e-6], "cv": 3}
    with pytest.warns(ZeroModelWarning, match=r"zero model \(rho = 3, .* largest rho .* is 0.001"):
        cv = RobustClassifierCV(**settings, scoring="robust", scoring_rho=2.0).fit(X, y)
    assert cv.zero_models_[:, -1].all()
    assert not cv.zero_models_[:, 0].any()
    assert cv.rho_ == 0.001
    assert cv.cv_results_["zero_model"].tolist() == [False] * 4 + [True] * 2
    cv = RobustClassifierCV(**settings, scoring="robust", scoring_rho=2.0, exclude_zero=False)
    with pytest.warns(ZeroModelWarning, match="The zero model is optimal"):
        assert cv.fit(X, y).rho_ == 3.0
    with pytest.warns(ZeroModelWarning, match="The zero model is optimal"):  # there is no other
        assert RobustClassifierCV([3.0], cv=3).fit(X, y).rho_ == 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a zero model that is not the best is no reason to warn
        RobustClassifierCV([0.0, 3.0], cv=3, l2s=[1]).fit(*_easy())


def _easy():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    return X, np.where(rng.random(300) < 0.2, rng.random(300) < 0.5, X[:, 0] > 0)


def test_scoring(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 3
    common = {"rhos": [0.0, 0.2], "cv": KFold(2), "l2s": [1.0], "path_tol": 1e-9}
    train, test = next(iter(KFold(2).split(X)))
    clf = RobustClassifier(0.2, tol=1e-9).fit(X[train], y[train])
    z = clf.losses(X[test], y[test])
    robust = RobustClassifierCV(**common, scoring="robust", scoring_rho=0.7).fit(X, y)
    assert robust.scores_[0, 1, 0] == pytest.approx(-worst_case(z, 0.7).value, rel=1e-4)
    worst = RobustClassifierCV(**common, scoring="worst-domain").fit(X, y, domains=g)
    expected = -max(z[g[test] == k].mean() for k in range(3))
    assert worst.scores_[0, 1, 0] == pytest.approx(expected, rel=1e-4)
    assert worst.group_weights_ is None
    accuracy = RobustClassifierCV(**common, scoring="accuracy").fit(X, y)
    assert accuracy.scores_[0, 1, 0] == pytest.approx(clf.score(X[test], y[test]), abs=0.01)
    custom = RobustClassifierCV(**common, scoring=lambda model, X, y: model.rho_).fit(X, y)
    assert custom.rho_ == 0.2


def test_groups_are_used_in_every_fold(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 3
    settings = {"cv": KFold(3), "l2s": [1.0], "path_tol": 1e-9}
    cv = RobustClassifierCV([0.1, 1.0], scoring="worst-group", **settings).fit(X, y, groups=g)
    assert cv.group_weights_.size == 3
    train, test = next(iter(KFold(3).split(X)))
    clf = RobustClassifier(1.0, tol=1e-9).fit(X[train], y[train], groups=g[train])
    z = clf.losses(X[test], y[test])
    expected = -max(z[g[test] == k].mean() for k in range(3))
    assert cv.scores_[0, 1, 0] == pytest.approx(expected, rel=1e-4)


def test_splitters_get_the_groups(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 6
    cv = RobustClassifierCV([0.0, 0.1], l2s=[1], cv=GroupKFold(3))
    assert cv.fit(X, y, split_groups=g).scores_.shape == (3, 2, 1)
    assert cv.group_weights_ is None
    with pytest.raises(ValueError, match="splits by groups: pass split_groups"):
        cv.fit(X, y, groups=g)
    with pytest.raises(ValueError, match="needs a 'cv' that splits by groups"):
        RobustClassifierCV(cv=3).fit(X, y, split_groups=g)


@pytest.mark.parametrize("kind", [RobustClassifierCV, RobustRegressorCV])
def test_splits_in_time(kind, two_classes, regression):
    """Models are fitted to earlier rows only; the score is that of the worst month after them."""
    X, y = two_classes if kind is RobustClassifierCV else regression
    month, single = np.arange(600) // 50, kind._fold_estimator
    splitter = TimeSeriesSplit(3, test_size=100)
    search = kind([0.0, 0.3], l2s=[1.0], cv=splitter, scoring="worst-domain", path_tol=1e-9)
    search.fit(X, y, domains=month)
    for k, (train, test) in enumerate(splitter.split(X)):
        assert train.max() < test.min()
        z = single(0.3, tol=1e-9).fit(X[train], y[train]).losses(X[test], y[test])
        expected = -max(z[:50].mean(), z[50:].mean())
        assert search.scores_[k, 1, 0] == pytest.approx(expected, rel=1e-4)
    assert search.best_score_ == search.scores_.mean(axis=0).max()


@pytest.mark.parametrize("kind", [RobustClassifierCV, RobustRegressorCV])
def test_splits_by_domain(kind, two_classes, regression):
    X, y = two_classes if kind is RobustClassifierCV else regression
    site, single = np.array(list("abc"))[np.arange(600) % 3], kind._fold_estimator
    search = kind([0.0, 0.1], l2s=[1.0], cv=LeaveOneGroupOut(), scoring="worst-domain")
    search.set_params(path_tol=1e-9).fit(X, y, domains=site, split_groups=site)
    for k, name in enumerate("abc"):
        model = single(0.1, tol=1e-9).fit(X[site != name], y[site != name])
        expected = -model.losses(X[site == name], y[site == name]).mean()
        assert search.scores_[k, 1, 0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("routing", [False, True])
def test_everything_about_rows_passes_through_a_search_of_pipelines(two_classes, routing):
    """All are split with the rows: another length would be an error, and shuffled ones differ."""
    X, y = two_classes
    rng = np.random.default_rng(0)
    rows = {
        "groups": rng.integers(3, size=600),
        "split_groups": np.arange(600) % 4,
        "domains": rng.integers(2, size=600),
        "reference_losses": rng.exponential(size=600),
    }
    model = RobustClassifierCV([0.1], l2s=[1.0], cv=GroupKFold(2), scoring="worst-domain")
    prefix = "" if routing else "robustclassifiercv__"
    with config_context(enable_metadata_routing=routing):
        if routing:
            model.set_fit_request(**dict.fromkeys(rows, True))
        grid = {"robustclassifiercv__divergence": ["chi2", "kl"]}
        search = GridSearchCV(make_pipeline(StandardScaler(), model), grid, cv=KFold(2))
        search.fit(X, y, **{prefix + name: value for name, value in rows.items()})
        train, test = next(iter(KFold(2).split(X)))
        fold = make_pipeline(StandardScaler(), clone(model).set_params(divergence="kl"))
        fold.fit(X[train], y[train], **{prefix + name: v[train] for name, v in rows.items()})
    alone = clone(model).set_params(divergence="kl")
    alone.fit(
        StandardScaler().fit_transform(X[train]), y[train], **{n: v[train] for n, v in rows.items()}
    )
    np.testing.assert_array_equal(fold[-1].scores_, alone.scores_)
    expected = fold.score(X[test], y[test])
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(expected)
    best = search.best_estimator_[-1]
    assert best.group_weights_.size == 3
    assert best.robust_regret_ < best.robust_loss_


def test_all_three_groups_are_routed_as_metadata(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 4
    cv = RobustClassifierCV([0.1], l2s=[1], cv=GroupKFold(2), scoring="worst-domain")
    with config_context(enable_metadata_routing=True):
        cv.set_fit_request(groups=True, split_groups=True, domains=True)
        model = make_pipeline(StandardScaler(), cv)
        model.fit(X, y, groups=g, split_groups=g, domains=g)
    assert model[-1].groups_.tolist() == [0, 1, 2, 3]
    assert model[-1].scores_.shape == (2, 1, 1)


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
    shared["l2s"] = [1.0]
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

    settings = {"l2s": [2.0], "scoring": score}
    cv = RobustClassifierCV([0.1], cv=KFold(3), class_weight="balanced", **settings)
    cv.fit(X, y, weight)
    expected = [2.0 / each[train].sum() for train, _ in KFold(3).split(X)]
    np.testing.assert_allclose(seen, expected, rtol=1e-12)
    assert cv.l2_ == pytest.approx(2.0 / each.sum(), rel=1e-12, abs=0)

    seen.clear()
    RobustRegressorCV([0.1], cv=KFold(4), **settings).fit(X, X[:, 0])
    assert seen == [2.0 / 450] * 4
    seen.clear()
    settings["l2s"] = [0.0]
    assert RobustRegressorCV([0.1], cv=2, **settings).fit(X, X[:, 0]).l2_ == 0.0
    assert seen == [0.0] * 2


def test_plot_path(two_classes):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    X, y = two_classes
    cv = RobustClassifierCV([0.0, 0.1], cv=3).fit(X, y)
    axes = cv.plot_path()
    assert axes.get_xlabel() == "radius ρ"
    soft = RobustClassifierCV(taus=[1.0, np.inf], l2s=[1.0], cv=2).fit(X, y)
    assert "price" in soft.plot_path().get_xlabel()
    assert axes.get_ylabel() == "mean loss"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "0.1"]
    chosen = next(line for line in axes.lines if line.get_linewidth() == 2.0)
    assert chosen.get_ydata().min() == pytest.approx(-cv.best_score_)
    assert cv.plot_path(axes) is axes
    cv = RobustClassifierCV(levels=[0.5, 1], divergence="cvar", cv=3, scoring="accuracy")
    axes = cv.fit(X, y).plot_path()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("level of CVaR", "accuracy")


@needs_callbacks
def test_callbacks_are_called_for_every_fold(two_classes):
    X, y = two_classes
    count = Count()
    RobustClassifierCV([0.0, 0.1], cv=3).set_callbacks(count).fit(X, y)
    assert count.seen == 3


def test_errors(two_classes):
    X, y = two_classes
    with pytest.raises(ValueError, match="'rhos' parameter must hold at least one number"):
        RobustClassifierCV([]).fit(X, y)
    with pytest.raises(ValueError, match="'rhos' parameter must be a number of at least 0"):
        RobustClassifierCV([0.1, -1.0]).fit(X, y)
    with pytest.raises(ValueError, match="'l2s' parameter must be a number of at least 0"):
        RobustClassifierCV(l2s=[-1.0]).fit(X, y)
    with pytest.raises(ValueError, match="'l2s' parameter must hold finite numbers"):
        RobustClassifierCV(l2s=[np.inf]).fit(X, y)
    for name in ("group", "domain"):
        with pytest.raises(ValueError, match=f"'worst-{name}' without {name}s: pass {name}s"):
            RobustClassifierCV(scoring=f"worst-{name}").fit(X, y)
    for name in ("group", "domain"):
        with pytest.raises(ValueError, match=f"at least two {name}s for scoring='worst-{name}'"):
            RobustClassifierCV(scoring=f"worst-{name}").fit(X, y, **{f"{name}s": ["a"] * 600})
    with pytest.raises(ValueError, match="'split_groups' parameter must name at least two groups"):
        RobustClassifierCV(cv=LeaveOneGroupOut()).fit(X, y, split_groups=["a"] * 600)
    with pytest.raises(ValueError, match="'domains' parameter must name"):
        RobustClassifierCV(scoring="worst-domain").fit(X, y, domains=[1, 2])
    with pytest.raises(ValueError, match="The 'scoring' parameter of RobustClassifierCV must be"):
        RobustClassifierCV(scoring="best").fit(X, y)
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


def test_an_infinite_radius(two_classes):
    X, y = two_classes
    cv = RobustClassifierCV([0.0, np.inf], l2s=[1.0], cv=3, max_iter=1000).fit(X, y)
    assert cv.rhos_.tolist() == [0.0, np.inf]
    assert cv.rho_ == 0.0


def test_fits_in_folds_that_do_not_converge_are_counted(two_classes):
    X, y = two_classes
    cv = RobustClassifierCV([0.0, 0.1], l2s=[1e-6], cv=3, max_iter=1, path_tol=1e-9)
    with pytest.warns(ConvergenceWarning) as caught:
        cv.fit(X, y)
    assert "6 of 6 fits in folds did not reach path_tol=1e-09" in str(caught[0].message)
    assert "Used all 1 iterations" in str(caught[1].message)  # the final fit
    assert len(caught) == 2
    assert caught[0].filename == __file__


def test_the_mean_loss_chooses_a_ball_only_if_it_is_significantly_better(two_classes):
    X, y = two_classes
    chosen = set()
    for seed in range(12):
        some = np.random.default_rng(seed).choice(y.size, 60, replace=False)
        cv = RobustClassifierCV([0.0, 0.05], l2s=[1e-3, 1.0], cv=4, exclude_zero=False)
        cv.fit(X[some], y[some])
        mean = cv.scores_.mean(axis=0)
        i, j = np.unravel_index(mean.argmax(), mean.shape)
        plain = int(mean[0].argmax())
        difference = cv.scores_[:, i, j] - cv.scores_[:, 0, plain]
        noise = difference.std(ddof=1) * (1 / 4 + 15 / 45) ** 0.5  # training rows overlap
        better = difference.mean() > t.ppf(0.95, 3) * noise
        expected = (i, j) if better else (0, plain)
        chosen.add((int(i), bool(better)))
        assert (cv.rho_, cv.best_l2_) == (cv.rhos_[expected[0]], cv.l2s_[expected[1]])
        assert cv.best_score_ == mean[expected]
    assert chosen >= {(1, True), (1, False)}
