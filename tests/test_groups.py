"""Balls that move the shares of groups: special cases, weights, errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from drolearn import (
    GSSG,
    Ending,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressor,
    solve,
    worst_case,
)
from drolearn._solvers.directions import Goal, point_at
from drolearn._solvers.exact import minimise
from drolearn._solvers.group_steps import balanced, group_direction
from drolearn._solvers.inputs import as_problem
from drolearn.datasets import load_adult
from tests.examples import stochastic


def test_auto_chooses_an_exact_solver_for_groups():
    """In large balls, groups have equal losses, and draws converge slowly."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 2))
    y = X[:, 0] + rng.standard_normal(40_000) > 0
    g = np.arange(40_000) % 2
    assert RobustClassifier(tol=1e-2, random_state=0).fit(X, y).solver_ == "gssg"
    assert RobustClassifier(tol=1e-2).fit(X, y, groups=g).solver_ in ("lbfgs", "newton")


def test_one_group_per_row_is_the_same_as_no_groups(two_classes):
    X, y = two_classes
    plain = RobustClassifier(rho=0.2, tol=1e-9, max_iter=500).fit(X, y)
    each = RobustClassifier(rho=0.2, tol=1e-9, max_iter=500).fit(X, y, groups=np.arange(y.size))
    assert each.robust_loss_ == pytest.approx(plain.robust_loss_, rel=1e-8)
    np.testing.assert_allclose(each.coef_, plain.coef_, rtol=1e-2, atol=1e-3)


def test_weights_equal_repeated_rows(two_classes):
    X, y = two_classes
    g = np.arange(y.size) % 3
    weight = np.random.default_rng(0).integers(0, 3, y.size)
    some = RobustClassifier(rho=0.5, l2=1e-3, tol=1e-10).fit(X, y, weight, groups=g)
    rows = np.repeat(np.arange(y.size), weight)
    same = RobustClassifier(rho=0.5, l2=1e-3, tol=1e-10).fit(X[rows], y[rows], groups=g[rows])
    assert some.objective_ == pytest.approx(same.objective_, rel=1e-9)


def test_a_group_without_weight_changes_nothing(two_classes):
    X, y = two_classes
    g, weight = np.arange(y.size) % 3, np.ones(y.size)
    weight[g == 2] = 0.0
    all_rows = RobustClassifier(rho=0.1, tol=1e-10).fit(X, y, weight, groups=g)
    some = RobustClassifier(rho=0.1, tol=1e-10).fit(X[g < 2], y[g < 2], groups=g[g < 2])
    assert all_rows.robust_loss_ == pytest.approx(some.robust_loss_, rel=1e-9)
    assert all_rows.group_weights_[2] == 0.0


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT], ids=repr)
def test_missing_group_names_are_refused(two_classes, missing):
    X, y = two_classes
    groups = np.array(["a", "b"] * 300, dtype=object)
    groups[7] = missing
    with pytest.raises(ValueError, match="'groups' parameter must not hold missing values"):
        RobustClassifier().fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="'groups' parameter must not hold missing values"):
        RobustClassifier().fit(X, y, groups=groups.tolist())


def test_errors(two_classes):
    X, y = two_classes
    with pytest.raises(ValueError, match="group of each of the 600 rows"):
        RobustClassifier().fit(X, y, groups=[1, 2])
    with pytest.raises(ValueError, match="must not hold missing values"):
        RobustClassifier().fit(X, y, groups=np.full(600, np.nan))
    with pytest.raises(ValueError, match="all strings or all numbers"):
        RobustClassifier().fit(X, y, groups=np.array(["a", 1] * 300, dtype=object))
    with pytest.raises(ValueError, match="must not hold missing values"):
        RobustClassifier().fit(X, y, groups=np.array([np.nan, 1.0] * 300, dtype=object))
    with pytest.raises(ValueError, match="group of each of the 600 rows"):
        RobustClassifier().fit(X, y, groups=np.zeros((600, 2, 2)))
    with pytest.raises(ValueError, match="group of each of the 600 rows"):
        RobustClassifier().fit(X, y, groups=np.zeros((600, 0), dtype=bool))
    with pytest.raises(ValueError, match="'sample_weight' parameter must hold finite weights"):
        RobustClassifier().fit(X, y).worst_case(X, y, 0.1, -np.ones(600), groups=np.ones(600))
    with pytest.raises(ValueError, match="the groups overlap: use solver='exact'"):
        RobustClassifier(solver="gssg").fit(X, y, groups=np.ones((600, 2), dtype=bool))
    with pytest.raises(ValueError, match="use solver='gssg' or 'exact'"):
        RobustClassifier(solver="pssg").fit(X, y, groups=np.arange(600) % 2)


# -- saddle points -------------------------------------------------------------------------------


def test_the_weights_of_four_equal_losses_are_those_of_the_saddle_point():
    """y of group g is c_g; one constant a minimises max (a − c_g)²/2 at the middle of the c_g."""
    y = np.array([0.0, 1.0, 2.0, 10.0])
    reg = RobustRegressor(100.0, l2=0, tol=1e-10, max_iter=500)
    reg.fit(np.zeros((4, 1)), y, groups=np.arange(4))
    assert reg.intercept_ == pytest.approx(5.0)
    np.testing.assert_allclose(reg.group_weights_, [0.5, 0.0, 0.0, 0.5], atol=1e-5)
    # Two groups on each side with equal losses: every mix with half of the mass on each side is a
    # saddle point, and the closest to the base shares keeps their proportions.
    y, weight = np.array([0.0, 0.0, 10.0, 10.0]), np.array([1.0, 3.0, 2.0, 2.0])
    for divergence, rho in (("chi2", 100.0), ("kl", 50.0), ("total-variation", 1.0)):
        reg.set_params(rho=rho, divergence=divergence)
        reg.fit(np.zeros((4, 1)), y, weight, groups=np.arange(4))
        np.testing.assert_allclose(reg.losses(np.zeros((4, 1)), y), 12.5, rtol=1e-4)
        np.testing.assert_allclose(reg.group_weights_, [0.125, 0.375, 0.25, 0.25], atol=1e-4)


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation"])
def test_the_model_is_the_plain_optimum_of_its_group_weights(two_classes, divergence):
    X, y = two_classes
    rng = np.random.default_rng(0)
    g = rng.integers(0, 4, y.size)
    rho = {"chi2": 20.0, "kl": 5.0, "total-variation": 0.9}[divergence]
    clf = RobustClassifier(rho, divergence=divergence, l2=0.01, tol=1e-9, max_iter=1000)
    clf.fit(X, y, groups=g)
    weight = (clf.group_weights_ / np.bincount(g))[g]
    plain = RobustClassifier(0.0, l2=0.01, tol=1e-12, max_iter=1000).fit(X, y, weight)
    np.testing.assert_allclose(plain.coef_, clf.coef_, atol=2e-3)
    assert clf.group_weights_.sum() == pytest.approx(1.0)


# -- combinations and overlaps -------------------------------------------------------------------


def test_several_columns_of_names_are_combinations(two_classes):
    X, y = two_classes
    rng = np.random.default_rng(0)
    first, second = rng.choice(["a", "b"], y.size), rng.integers(0, 3, y.size)
    second[first == "a"] = 1
    frame = pd.DataFrame({"letter": first, "number": second})
    clf = RobustClassifier(1.0).fit(X, y, groups=frame)
    assert clf.groups_.tolist() == [("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    joined = np.char.add(first.astype(str), second.astype(str))
    same = RobustClassifier(1.0).fit(X, y, groups=joined)
    np.testing.assert_allclose(clf.coef_, same.coef_)
    np.testing.assert_allclose(clf.group_weights_, same.group_weights_)
    strings = np.column_stack([first, second.astype(str)])
    np.testing.assert_allclose(RobustClassifier(1.0).fit(X, y, groups=strings).coef_, same.coef_)


def test_a_boolean_matrix_of_disjoint_groups_equals_their_names(two_classes):
    X, y = two_classes
    weight = np.random.default_rng(0).random(y.size)
    g = np.arange(y.size) % 3
    names = RobustClassifier(0.5, tol=1e-9).fit(X, y, weight, groups=g)
    matrix = RobustClassifier(0.5, tol=1e-9).fit(X, y, weight, groups=np.eye(3, dtype=bool)[g])
    np.testing.assert_allclose(matrix.coef_, names.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(matrix.group_weights_, names.group_weights_, rtol=1e-5)
    both = [clf.worst_case(X, y, 0.3, weight, groups=m).value for clf, m in
            ((names, g), (matrix, np.eye(3, dtype=bool)[g]))]  # fmt: skip
    assert both[0] == pytest.approx(both[1], rel=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.2, 50.0])
def test_overlapping_groups_follow_their_definition(two_classes, rho):
    X, y = two_classes
    rng = np.random.default_rng(0)
    b = rng.random(y.size) + 0.1
    member = rng.random((y.size, 3)) < [0.5, 0.3, 0.1]
    frame = pd.DataFrame(member, columns=["x", "y", "z"])
    clf = RobustClassifier(rho, l2=0.01, tol=1e-9, max_iter=1000).fit(X, y, b, groups=frame)
    assert clf.groups_.tolist() == ["x", "y", "z", "none"]
    full = np.column_stack([member, ~member.any(axis=1)])
    mass = b @ full
    shares = mass / mass.sum()

    def objective(coef, intercept):
        z = np.logaddexp(0.0, -np.where(y == "yes", 1, -1) * (X @ coef + intercept))
        return worst_case((b * z) @ full / mass, rho, sample_weight=shares).value + 0.005 * (
            coef @ coef
        )

    value = objective(clf.coef_[0], clf.intercept_[0])
    assert clf.objective_ == pytest.approx(value, rel=1e-9)
    assert clf.worst_case(X, y, rho, b, groups=frame).value == pytest.approx(
        clf.robust_loss_, rel=1e-9
    )
    for _ in range(30):
        move = 0.02 * rng.standard_normal(X.shape[1])
        assert objective(clf.coef_[0] + move, clf.intercept_[0]) >= value - 1e-8
    if rho == 0.0:  # the mean over memberships
        plain = RobustClassifier(0.0, l2=0.01, tol=1e-10).fit(X, y, b * full.sum(axis=1))
        np.testing.assert_allclose(clf.coef_, plain.coef_, atol=1e-4)
        np.testing.assert_allclose(clf.group_weights_, shares)


def test_cross_validation_with_overlapping_groups(two_classes):
    X, y = two_classes
    member = np.random.default_rng(0).random((y.size, 2)) < 0.4
    cv = RobustClassifierCV([0.0, 0.5], l2s=[1], cv=3, scoring="worst-group")
    assert cv.fit(X, y, groups=member).group_weights_.size == 3


# -- stochastic solvers --------------------------------------------------------------------------


def four_groups(n: int, classes: int = 2):
    """Rows of four groups with different models; the smallest has a hundredth of them."""
    rng = np.random.default_rng(0)
    g = rng.choice(4, n, p=[0.6, 0.3, 0.09, 0.01])
    X = rng.standard_normal((n, 5))
    scores = np.einsum("ij,ijk->ik", X, (rng.standard_normal((4, 5, classes)) + 1)[g])
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return X, y, g, rng.random(n) + 0.5


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation"])
@pytest.mark.parametrize("weighted", [False, True])
def test_draws_come_within_one_percent_or_two_if_not_smooth(divergence, weighted):
    X, y, g, weight = four_groups(6000)
    bound = 1.02 if divergence == "total-variation" else 1.01
    given = {"rho": 0.2, "divergence": divergence, "l2": 1e-3, "groups": g}
    given["sample_weight"] = weight if weighted else None
    best = solve(X, y, tol=1e-9, max_iter=1000, **given)
    for solver in ("gssg", "gssg-anchor"):
        found = solve(X, y, solver=solver, max_iter=200, tol=None, random_state=0, **given)
        assert best.value * (1 - 1e-9) <= found.value <= best.value * bound, solver
        of_rows = np.bincount(g, found.worst.weights, 4)
        np.testing.assert_allclose(of_rows, found.group_weights, rtol=1e-9, atol=1e-12)


def test_anchors_converge_to_high_accuracy_in_balls_over_groups():
    X, y, g, _ = four_groups(4000)
    best = solve(X, y, rho=0.1, l2=1e-3, groups=g, tol=1e-12, max_iter=500).value
    found = solve(
        X, y, rho=0.1, l2=1e-3, groups=g, solver="gssg-anchor", max_iter=400, tol=None,
        random_state=0,
    )  # fmt: skip
    assert found.value <= best * (1 + 1e-8)


def test_draws_of_groups_have_less_bias_than_fixed_batches():
    X, y, g, _ = four_groups(4000)
    best = solve(X, y, rho=0.5, groups=g, tol=1e-9).value
    given = {"rho": 0.5, "groups": g, "max_iter": 500, "tol": None, "random_state": 0}
    gaps = []
    for solver in (GSSG(8, fire=1.0), stochastic("sgd", batch_size=8)):
        found = solve(X, y, solver=solver, **given)
        gaps.append(found.value / best - 1)
    assert gaps[0] < 0.5 * gaps[1]


def test_tuned_levels_and_several_classes():
    X, y, g, _ = four_groups(3000, classes=3)
    given = {"rho": 0.2, "loss": "multinomial", "l2": 1e-3, "groups": g}
    best = solve(X, y, **given).value
    solver = GSSG(16, r="auto", fire=1.0)
    found = solve(X, y, solver=solver, max_iter=200, tol=None, random_state=0, **given)
    assert len(found.state.probabilities) > 3
    assert found.value <= best * 1.01


@pytest.mark.parametrize("solver", ["gssg", "gssg-anchor", "fsg", "sgd"])
@pytest.mark.parametrize("sparse", [False, True])
def test_runs_over_groups_resume_to_the_same_bits_for_any_number_of_threads(
    solver, sparse, tmp_path
):
    X, y, g, weight = four_groups(3000)
    data = sp.csr_matrix(X * (abs(X) > 0.5)) if sparse else X
    settings = {
        "rho": 0.5, "l2": 1e-4, "groups": g, "sample_weight": weight, "random_state": 1,
        "max_iter": 40, "tol": None,
    }  # fmt: skip
    at_once = solve(data, y, solver=solver, n_jobs=3, **settings)
    saved = stochastic(solver, checkpoint=tmp_path)
    stopped = solve(data, y, solver=saved, callback=lambda history: True, **settings)
    assert stopped.ending is Ending.STOPPED
    resumed = solve(data, y, solver=saved, **settings)
    np.testing.assert_array_equal(resumed.theta, at_once.theta)
    np.testing.assert_array_equal(resumed.group_weights, at_once.group_weights)
    assert len(list(tmp_path.iterdir())) == 1
    settings["groups"] = (g + 1) % 3  # other groups, another file
    solve(data, y, solver=saved, **settings)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_progress_on_a_subsample_is_that_of_all_rows(rho):
    """The subsample has rows of every group, and the groups keep their shares of all rows."""
    rng, n = np.random.default_rng(0), 200_000
    g = np.zeros(n, dtype=int)
    g[rng.permutation(n)[:24]] = np.repeat([1, 2, 3], 8)  # too few for a random subsample
    X = rng.standard_normal((n, 2))
    y = X[:, 0] + 5.0 * g + rng.standard_normal(n)
    found = solve(
        X, y, rho=rho, loss="squared", groups=g, solver="gssg", max_iter=2, tol=None, random_state=0
    )
    assert found.history.value[0] == pytest.approx(  # of the zero model
        worst_case(np.bincount(g, 0.5 * y**2) / np.bincount(g), rho,
                   sample_weight=np.bincount(g)).value, rel=0.02
    )  # fmt: skip
    assert min(found.history.value) == pytest.approx(found.value, rel=0.02)


def test_estimators_fit_groups_by_draws():
    X, y, g, _ = four_groups(4000)
    names = np.array(["a", "b", "c", "d"])[g]
    exact = RobustClassifier(0.3, l2=1e-3).fit(X, y, groups=names)
    drawn = RobustClassifier(0.3, l2=1e-3, solver="gssg", max_iter=300, tol=None, random_state=0)
    drawn.fit(X, y, groups=names)
    assert drawn.solver_ == "gssg"
    assert drawn.groups_.tolist() == exact.groups_.tolist()
    np.testing.assert_allclose(drawn.group_weights_, exact.group_weights_, atol=0.05)
    worst = drawn.worst_case(X, y, 0.3, groups=names)
    assert drawn.robust_loss_ == pytest.approx(worst.value, rel=1e-9)
    assert drawn.objective_ <= exact.objective_ * 1.01
    target = X[:, 0] + 0.3 * g + np.random.default_rng(1).standard_normal(y.size)
    best = RobustRegressor(0.3).fit(X, target, groups=g)
    reg = RobustRegressor(0.3, solver="gssg", max_iter=300, tol=None, random_state=0)
    assert reg.fit(X, target, groups=g).objective_ <= best.objective_ * 1.01


def test_a_group_without_weight_is_not_drawn():
    X, y, g, weight = four_groups(2000)
    weight[g == 2] = 0.0
    X[g == 2] = 1e6  # its rows would show in every step
    given = {"solver": "gssg", "rho": 0.3, "max_iter": 20, "tol": None, "random_state": 0}
    found = solve(X, y, sample_weight=weight, groups=g, **given)
    rows = g != 2
    same = solve(X[rows], y[rows], sample_weight=weight[rows], groups=g[rows], **given)
    assert found.group_weights[2] == 0.0
    assert found.value == pytest.approx(same.value, rel=0.02)


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger", "total-variation"])
@pytest.mark.parametrize("rho", [1.0, np.inf])
def test_default_iterations_suffice_for_groups(divergence, rho):
    """Groups whose losses are tied at the optimum, and groups that are almost tied."""
    adult = load_adult()
    rows = np.arange(0, adult.y.size, 9)
    X = StandardScaler().fit_transform(adult.X[rows].astype(np.float64))
    groups = np.column_stack([adult.sex, adult.race])[rows]
    clf = RobustClassifier(rho, divergence=divergence).fit(X, adult.y[rows], groups=groups)
    assert clf.converged_
    assert clf.gap_ <= 1e-6 * clf.robust_loss_


def test_steps_for_groups_balance_their_gradients():
    """At the optimum, the weights of the model's minimum are those of the saddle point."""
    rng = np.random.default_rng(2)
    n = 400
    X = rng.standard_normal((n, 5))
    g = np.arange(n) % 4
    y = np.where(X[:, 0] + (g == 1) * X[:, 1] + rng.standard_normal(n) > 0, 1.0, -1.0)
    problem = as_problem(
        X, y, rho=10.0, divergence="chi2", loss="logistic", l2=0.01, fit_intercept=True,
        sample_weight=None, n_jobs=None, groups=g,
    )  # fmt: skip
    minimum = minimise(
        problem, "exact", problem.zeros(), tol=1e-8, max_iter=500, watch=lambda *_: False
    )
    point = point_at(problem, problem.from_model(minimum.theta), Goal(epsilon=1e-9))
    tied = problem.groups.means(point.at.losses) > minimum.at.value - 1e-6
    assert tied.sum() > 1
    unbalanced = float(np.linalg.norm(point.gradient))
    dual = balanced(problem, problem.groups, point, 1e-9)
    assert float(np.linalg.norm(dual.gradient)) < 1e-4 < unbalanced
    np.testing.assert_allclose(dual.at.shares, minimum.at.shares, atol=1e-3)
    direction = group_direction(problem, problem.groups, point, 1e-9)
    assert float(np.linalg.norm(direction)) < 1e-3
