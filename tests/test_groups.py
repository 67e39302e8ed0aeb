"""Balls that move the shares of groups: special cases, weights, errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from drolearn import RobustClassifier


def test_auto_chooses_an_exact_solver_for_groups():
    """Draws of rows cannot estimate the losses of groups."""
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
        RobustClassifier().fit(X, y, groups=np.zeros((600, 2)))
    with pytest.raises(ValueError, match="'sample_weight' parameter must hold finite weights"):
        RobustClassifier().fit(X, y).worst_case(X, y, 0.1, -np.ones(600), groups=np.ones(600))
    with pytest.raises(ValueError, match="cannot estimate the losses of groups"):
        RobustClassifier(solver="gssg").fit(X, y, groups=np.arange(600) % 2)
