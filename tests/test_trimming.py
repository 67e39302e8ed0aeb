"""Trimming: the worst share of the rows is ignored before the worst case is taken."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drolearn import (
    CVaR,
    Ending,
    Exact,
    RobustClassifier,
    RobustRegressor,
    load,
    save,
    solve,
    worst_case,
)
from drolearn._inner.trimming import kept_weights

DIVERGENCES = ["chi2", "kl", "reverse-kl", "hellinger", "total-variation", CVaR(0.4)]
losses = st.lists(st.floats(-5, 5), min_size=2, max_size=30).map(np.array)


def _radius(divergence: Any) -> float | None:
    return None if isinstance(divergence, CVaR) else 0.2


def _flipped(n: int = 400, share: float = 0.1, seed: int = 0) -> tuple[Any, Any, Any]:
    """Two classes, of which a share of the positive rows far from the boundary is mislabelled."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    f = 2.0 * X[:, 0] - X[:, 1]
    y = np.where(f + rng.logistic(size=n) > 0, 1, -1)
    wrong = np.argsort(-f)[: int(share * n)]
    noisy = y.copy()
    noisy[wrong] = -1
    return X, y, noisy


# -- the worst case ------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(losses, st.floats(0.0, 0.95), st.integers(0, 1000))
def test_the_weight_that_is_removed_is_that_of_the_largest_losses(
    z: Any, trim: float, seed: int
) -> None:
    b = np.random.default_rng(seed).uniform(0.1, 2.0, z.size)
    kept = kept_weights(z, b, trim)
    assert np.all((kept >= 0.0) & (kept <= b))
    assert float(kept.sum()) == pytest.approx((1 - trim) * float(b.sum()), rel=1e-6)
    touched, whole = z[kept < b], z[kept > 0.0]
    assert touched.size == 0 or touched.min() >= whole.max()


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_no_other_rows_leave_a_smaller_worst_case(divergence: Any) -> None:
    z = np.array([0.3, 1.0, 2.5, -0.2, 1.7, 0.9, 0.1, 1.1])
    rho = _radius(divergence)
    trimmed = worst_case(z, rho, divergence, trim=0.25).value
    others = [
        worst_case(np.delete(z, removed), rho, divergence).value
        for removed in itertools.combinations(range(z.size), 2)
    ]
    assert trimmed == pytest.approx(min(others), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(losses, st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_the_worst_case_falls_with_the_share(z: Any, first: float, second: float) -> None:
    low, high = sorted((first, second))
    small, large = (worst_case(z, 0.3, trim=trim).value for trim in (low, high))
    assert large <= small + 1e-9 * (1.0 + abs(small))


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_no_share_changes_no_bit(divergence: Any) -> None:
    z = np.random.default_rng(0).standard_normal(50)
    rho = _radius(divergence)
    np.testing.assert_array_equal(
        worst_case(z, rho, divergence, trim=0.0).weights, worst_case(z, rho, divergence).weights
    )
    X, _, y = _flipped(100)
    plain = solve(X, y, rho=rho, divergence=divergence, l2=0.1)
    zero = solve(X, y, rho=rho, divergence=divergence, l2=0.1, trim=0.0)
    np.testing.assert_array_equal(plain.theta, zero.theta)
    assert plain.gap == zero.gap
    assert zero.kept is None


def test_soft_balls_are_trimmed_too() -> None:
    z = np.array([1.0, 2.0, 3.0, 50.0])
    assert worst_case(z, tau=0.5, trim=0.25).value == worst_case(z[:3], tau=0.5).value


# -- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"tau": 2.0}, {"l1": 0.01}, {"rho": 0.0}])
def test_a_fit_is_exact_for_the_rows_that_it_keeps(settings: dict[str, Any]) -> None:
    X, _, y = _flipped()
    solution = solve(X, y, l2=0.01, trim=0.1, tol=1e-8, **settings)
    assert solution.ending is Ending.CONVERGED
    assert math.isnan(solution.gap)
    assert "non-convex" in solution.status
    kept = solution.kept
    again = solve(X, y, l2=0.01, sample_weight=kept, tol=1e-8, **settings)
    assert again.value == pytest.approx(solution.value, rel=1e-6)
    z = np.logaddexp(0.0, -y * (X @ solution.coef + solution.intercept))
    np.testing.assert_array_equal(kept, kept_weights(z, None, 0.1))
    assert not solution.worst.weights[kept == 0.0].any()
    worst = worst_case(z, settings.get("rho"), tau=settings.get("tau"), trim=0.1)
    penalty = 0.005 * float(solution.coef @ solution.coef)
    penalty += settings.get("l1", 0.0) * float(abs(solution.coef).sum())
    assert solution.value == pytest.approx(worst.value + penalty, rel=1e-9)


@pytest.mark.parametrize("divergence", ["chi2", CVaR(0.5)])
def test_the_objective_is_below_that_of_every_start(divergence: Any) -> None:
    X, _, y = _flipped()
    radius = {} if isinstance(divergence, CVaR) else {"rho": 0.1}

    def objective(theta: Any) -> float:
        z = np.logaddexp(0.0, -y * (X @ theta.coef + theta.intercept))
        worst = worst_case(z, radius.get("rho"), divergence, trim=0.1)
        return worst.value + 0.005 * float(theta.coef @ theta.coef)

    trimmed = solve(X, y, divergence=divergence, l2=0.01, trim=0.1, **radius)
    for start in (solve(X, y, divergence=divergence, l2=0.01, **radius), solve(X, y, rho=0)):
        assert trimmed.value <= objective(start) + 1e-9


def test_wrong_labels_are_found() -> None:
    X, y, noisy = _flipped()
    wrong = y != noisy
    solution = solve(X, noisy, rho=0.1, l2=0.01, trim=0.1)
    ignored = solution.kept == 0.0
    assert ignored.sum() == 40
    assert (ignored & wrong).sum() > 0.9 * wrong.sum()
    clean = solve(X[~wrong], y[~wrong], rho=0.1, l2=0.01)
    untrimmed = solve(X, noisy, rho=0.1, l2=0.01)

    def distance(model: Any) -> float:
        return float(np.linalg.norm(model.coef - clean.coef))

    assert distance(solution) < 0.5 * distance(untrimmed)


def test_outliers_do_not_move_a_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(300)
    y[:30], X[:30] = 100.0, X[:30] + 5.0  # leverage, where the Huber loss fails
    fitted = RobustRegressor(rho=0.1, l2=0.0, trim=0.15).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, [1.0, 0.0], atol=0.05)
    assert math.isnan(fitted.gap_)
    assert fitted.converged_
    huber = RobustRegressor(rho=0.1, l2=0.0, loss="huber").fit(X, y)
    assert abs(huber.coef_ - [1.0, 0.0]).max() > 1.0


def test_groups_lose_the_same_share_each() -> None:
    X, _, y = _flipped()
    groups = (X[:, 2] > 0.8).astype(int)
    solution = solve(X, y, rho=0.5, l2=0.01, groups=groups, trim=0.1)
    for group in (0, 1):
        of_group = solution.kept[groups == group]
        assert of_group.mean() == pytest.approx(0.9)
    assert float(solution.group_weights.sum()) == pytest.approx(1.0)
    clf = RobustClassifier(rho=0.5, l2=0.01, trim=0.1).fit(X, y, groups=groups)
    value = clf.worst_case(X, y, groups=groups, trim=0.1).value
    assert value == pytest.approx(clf.robust_loss_, rel=1e-6)


def test_weight_two_is_a_row_twice() -> None:
    X, _, y = _flipped(150)
    weights = np.random.default_rng(3).integers(1, 3, y.size)
    weighted = solve(X, y, rho=0.1, l2=0.01, trim=0.1, sample_weight=weights, tol=1e-9)
    repeated = solve(
        np.repeat(X, weights, axis=0), np.repeat(y, weights), rho=0.1, l2=0.01, trim=0.1, tol=1e-9
    )
    assert weighted.value == pytest.approx(repeated.value, rel=1e-6)


def test_a_callback_stops_all_steps() -> None:
    X, _, y = _flipped()
    stopped = solve(X, y, rho=0.1, l2=0.01, trim=0.1, callback=lambda history: True)
    assert stopped.ending is Ending.STOPPED


def test_references_and_files(tmp_path: Any) -> None:
    X, _, y = _flipped()
    c = np.random.default_rng(0).uniform(0.0, 0.5, y.size)
    clf = RobustClassifier(rho=0.1, trim=0.05, l1=0.001).fit(X, y, reference_losses=c)
    z = clf.losses(X, y) - c
    assert clf.robust_regret_ == pytest.approx(worst_case(z, 0.1, trim=0.05).value, rel=1e-6)
    save(clf, tmp_path / "model.drl")
    again = load(tmp_path / "model.drl")
    assert again.get_params() == clf.get_params()
    assert math.isnan(again.gap_)
    np.testing.assert_array_equal(again.coef_, clf.coef_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trim": -0.1}, "must be at least 0 and below 1. Got -0.1"),
        ({"trim": 1.0}, "must be at least 0 and below 1. Got 1.0"),
        ({"trim": np.nan}, "must be at least 0 and below 1. Got nan"),
        ({"trim": "a"}, "must be at least 0 and below 1. Got 'a'"),
        ({"trim": 0.1, "solver": "gssg"}, "needs an exact solver without a checkpoint"),
        ({"trim": 0.1, "solver": Exact(checkpoint="x")}, "needs an exact solver without a check"),
        ({"trim": 0.1, "groups": np.ones((40, 2), dtype=bool)}, "must be 0 for groups that over"),
    ],
)
def test_what_trimming_does_not_go_with(arguments: dict[str, Any], message: str) -> None:
    X = np.random.default_rng(0).standard_normal((40, 2))
    y = np.arange(40) < 12
    with pytest.raises(ValueError, match=re.escape(message)):
        solve(X, y, rho=0.1, **arguments)


def test_a_class_that_is_lost_is_reported() -> None:
    X = np.random.default_rng(0).standard_normal((40, 2))
    y = np.arange(40) < 4
    with pytest.warns(UserWarning, match="all rows of a class, whose share is 0.1: use a 'trim'"):
        solve(X, y, rho=0.0, l2=0.1, trim=0.5)


def test_streams_do_not_trim() -> None:
    with pytest.raises(AttributeError, match="needs trim=0, as trimming compares all rows"):
        RobustClassifier(rho=0.1, l2=0.1, trim=0.1).partial_fit([[0.0], [1.0]], [0, 1])


def test_losses_that_are_not_finite_are_named() -> None:
    with pytest.raises(ValueError, match="must hold finite numbers"):
        worst_case([1.0, np.nan], trim=0.1)
