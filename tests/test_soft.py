"""Soft balls: worst cases with a price for the divergence instead of a radius."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from drolearn import (
    KL,
    ChiSquare,
    CressieRead,
    CVaR,
    Divergence,
    Ending,
    Hellinger,
    JensenShannon,
    ReverseKL,
    RobustClassifier,
    RobustRegressor,
    TotalVariation,
    load,
    reference_losses,
    save,
    solve,
    worst_case,
)
from drolearn.loss import as_loss

CUSTOM = Divergence.custom(lambda s: s * np.log(s) - s + 1, np.log, np.exp, phi_zero=1.0)
STRICT = [ChiSquare(), KL(), ReverseKL(), Hellinger(), JensenShannon(), CUSTOM]
STRICT += [CressieRead(k) for k in (-1.0, 0.3, 1.5, 3.0)]
ALL = [*STRICT, TotalVariation()]
TAUS = [1e-6, 0.05, 0.3, 2.0, 1e4]


def some(n=200, seed=0):
    """Losses with ties, and base weights of which some are zero."""
    rng = np.random.default_rng(seed)
    z, b = rng.standard_normal(n).round(1), rng.random(n)
    b[:5] = 0.0
    return z, b


@pytest.mark.parametrize("divergence", ALL, ids=repr)
@pytest.mark.parametrize("tau", TAUS)
def test_no_weights_are_better(divergence, tau):
    z, b = some()
    soft = worst_case(z, divergence=divergence, sample_weight=b, tau=tau)
    share = b / b.sum()
    assert soft.weights.sum() == pytest.approx(1.0)
    assert soft.gap < 1e-11
    assert soft.achieved == pytest.approx(divergence.between(soft.weights, share), abs=1e-9)
    own = soft.weights @ z - tau * divergence.between(soft.weights, share)
    assert soft.value == pytest.approx(own, rel=1e-9, abs=1e-9 * max(1.0, tau))
    rng = np.random.default_rng(1)
    for other in rng.dirichlet(np.ones(z.size), 20) * (share > 0):
        near = 0.9 * soft.weights + 0.1 * other / other.sum()
        price = tau * divergence.between(near, share)
        assert near @ z - price <= soft.value + 1e-9 * max(1.0, tau)


@pytest.mark.parametrize("divergence", STRICT, ids=repr)
def test_price_and_radius_give_the_same_weights(divergence):
    z, b = some()
    for tau in (0.3, 2.0):
        soft = worst_case(z, divergence=divergence, sample_weight=b, tau=tau)
        hard = worst_case(z, soft.achieved, divergence, b)
        np.testing.assert_allclose(hard.weights, soft.weights, atol=1e-8)
        assert hard.alpha == pytest.approx(tau, rel=1e-5)
        assert soft.rho == soft.achieved
    for rho in (0.01, 0.1):
        hard = worst_case(z, rho, divergence, b)
        soft = worst_case(z, divergence=divergence, sample_weight=b, tau=hard.alpha)
        np.testing.assert_allclose(soft.weights, hard.weights, atol=1e-8)
        assert soft.achieved == pytest.approx(rho, rel=1e-6)


@pytest.mark.parametrize("tau", TAUS)
def test_kl_is_the_tilted_loss(tau):
    z, b = some()
    tilted = tau * logsumexp(z[b > 0] / tau, b=b[b > 0] / b.sum())
    soft = worst_case(z, divergence="kl", sample_weight=b, tau=tau)
    assert soft.value == pytest.approx(tilted, rel=1e-9, abs=1e-9)
    assert soft.alpha == tau


@pytest.mark.parametrize("divergence", ALL, ids=repr)
def test_limits(divergence):
    z, b = some()
    mean, largest = np.average(z, weights=b), z[b > 0].max()
    values = [
        worst_case(z, divergence=divergence, sample_weight=b, tau=tau).value
        for tau in (0.0, 1e-6, 0.1, 1.0, 1e8, math.inf)
    ]
    assert values[0] == largest
    assert values[-1] == pytest.approx(mean)
    assert values[1] == pytest.approx(largest, abs=0.02)  # reverse KL approaches it as τ log 1/τ
    assert values[-2] == pytest.approx(mean, abs=1e-6)
    assert (np.diff(values) <= 1e-12).all()


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger", "total-variation"])
@pytest.mark.parametrize("tau", [1e17, 1e40, 1e300])
def test_huge_prices_are_the_mean(divergence, tau):
    z = np.random.default_rng(0).exponential(size=20)
    soft = worst_case(z, tau=tau, divergence=divergence)
    assert soft.value == pytest.approx(z.mean(), rel=1e-14)
    assert soft.gap <= 1e-14
    assert soft.alpha == tau


@pytest.mark.parametrize("divergence", ALL, ids=repr)
def test_scale_shift_and_repeated_rows(divergence):
    z, b = some()
    counts = np.random.default_rng(2).integers(0, 3, z.size)
    soft = worst_case(z, divergence=divergence, sample_weight=counts, tau=0.4)
    repeated = worst_case(np.repeat(z, counts), divergence=divergence, tau=0.4)
    assert repeated.value == pytest.approx(soft.value, rel=1e-10)
    plain = worst_case(z, divergence=divergence, sample_weight=b, tau=0.4)
    for scale, shift in ((1e-20, 0.0), (1e20, 0.0), (1.0, 1e3)):
        moved = worst_case(
            scale * z + shift, divergence=divergence, sample_weight=b, tau=scale * 0.4
        )
        assert moved.value == pytest.approx(scale * plain.value + shift, rel=1e-9)
        np.testing.assert_allclose(moved.weights, plain.weights, atol=1e-9)


def test_estimators():
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = RobustRegressor().fit(X, X[:, 0] ** 2)
    found = model.worst_case(X, X[:, 0] ** 2, tau=0.3)
    expected = worst_case(model.losses(X, X[:, 0] ** 2), tau=0.3)
    assert found.value == expected.value
    groups = X[:, 1] > 0
    means = [model.losses(X, X[:, 0] ** 2)[groups == side].mean() for side in (False, True)]
    by_group = model.worst_case(X, X[:, 0] ** 2, groups=groups, tau=0.3).value
    shares = [(~groups).mean(), groups.mean()]
    assert by_group == pytest.approx(worst_case(means, sample_weight=shares, tau=0.3).value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tau": -1.0}, "'tau' parameter must be a number of at least 0"),
        ({"tau": math.nan}, "'tau' parameter must be a number of at least 0"),
        ({"tau": "much"}, "'tau' parameter must be a number of at least 0"),
        ({"tau": 1.0, "rho": 0.1}, r"replaces 'rho': .* tau=1.0 and rho=0.1"),
        ({"tau": 1.0, "divergence": CVaR(0.5)}, r"strictly convex .* CVaR\(level=0.5\)"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        worst_case([1.0, 2.0], **arguments)
    with pytest.raises(ValueError, match="1 NaN"):
        worst_case([1.0, math.nan], tau=1.0)


# -- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger"])
@pytest.mark.parametrize(("loss", "by_group"), [("logistic", False), ("squared", True)])
def test_solve_agrees_with_balls(divergence, loss, by_group):
    X, y, groups = training_rows()
    groups = groups if by_group else None
    arguments = {"loss": loss, "divergence": divergence, "l2": 0.01, "groups": groups}
    for tau in (0.5, 2.0):
        soft = solve(X, y, tau=tau, tol=1e-8, max_iter=1000, **arguments)
        assert soft.converged
        assert 0.0 <= soft.gap <= 1e-8 * max(soft.value, 1e-3)
        # The ball of the same divergence has the same model, and the multiplier τ.
        hard = solve(X, y, rho=soft.worst.achieved, tol=1e-9, max_iter=1000, **arguments)
        np.testing.assert_allclose(soft.theta, hard.theta, atol=5e-3)
        assert soft.value == pytest.approx(hard.value - tau * soft.worst.achieved, rel=1e-5)
        # No model near the optimum is better.
        rng = np.random.default_rng(0)
        for _ in range(5):
            theta = soft.theta + 0.1 * rng.standard_normal(soft.theta.shape)
            z = as_loss(loss).of_scores(X @ theta[0, :-1] + theta[0, -1], y)[0]
            penalty = 0.005 * np.sum(theta[0, :-1] ** 2)
            parts = None if groups is None else [z[groups == g].mean() for g in (False, True)]
            share = None if groups is None else [(~groups).mean(), groups.mean()]
            value = worst_case(z if parts is None else parts, None, divergence, share, tau=tau)
            assert value.value + penalty >= soft.value - soft.gap


def test_solve_at_the_limits():
    X, y, _ = training_rows()
    plain, largest = solve(X, y, rho=0.0, l2=0.01), solve(X, y, tau=0.0, l2=0.01, max_iter=1000)
    assert solve(X, y, tau=math.inf, l2=0.01).value == pytest.approx(plain.value)
    assert solve(X, y, tau=1e6, l2=0.01).value == pytest.approx(plain.value, rel=1e-5)
    z = as_loss("logistic").of_scores(X @ largest.coef + largest.intercept, y)[0]
    assert largest.worst.value == pytest.approx(z.max())
    values = [solve(X, y, tau=tau, l2=0.01).value for tau in (0.1, 1.0, 10.0)]
    assert largest.value > values[0] > values[1] > values[2] > plain.value


def test_solve_ends_where_it_is_told_to():
    X, y, _ = training_rows()
    few = solve(X, y, tau=0.05, max_iter=3)
    assert not few.converged
    assert "raise max_iter" in few.status
    stopped = solve(X, y, tau=0.05, callback=lambda history: True)
    assert stopped.ending is Ending.STOPPED
    for arguments, message in (
        ({"solver": "gssg"}, r"needs an exact solver. Got solver='gssg'"),
        ({"divergence": "total-variation"}, r"strictly convex divergence. Got TotalVariation"),
        ({"divergence": "cvar"}, "strictly convex"),
        ({"rho": 0.1}, "replaces 'rho'"),
    ):
        with pytest.raises(ValueError, match=message):
            solve(X, y, tau=1.0, **arguments)


# -- estimators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger"])
@pytest.mark.parametrize("by_group", [False, True])
def test_estimators_follow_the_path_between_radius_and_price(divergence, by_group):
    X, y, groups = training_rows()
    groups = groups if by_group else None
    settings = {"divergence": divergence, "l2": 0.01, "tol": 1e-9, "max_iter": 2000}
    for kind, labels in ((RobustClassifier, y), (RobustRegressor, X[:, 1] ** 2)):
        soft = kind(tau=1.0, **settings).fit(X, labels, groups=groups)
        assert soft.converged_
        assert soft.gap_ <= 1e-8
        ball = kind(rho=soft.rho_, **settings).fit(X, labels, groups=groups)
        np.testing.assert_allclose(ball.coef_, soft.coef_, atol=2e-3)
        again = ball.worst_case(X, labels, groups=groups)
        assert again.alpha == pytest.approx(1.0, rel=1e-2)
        priced = kind(tau=again.alpha, **settings).fit(X, labels, groups=groups)
        np.testing.assert_allclose(priced.coef_, soft.coef_, atol=2e-3)
        assert priced.rho_ == pytest.approx(soft.rho_, rel=2e-2)


def test_estimators_agree_with_solve_and_keep_their_price(tmp_path):
    X, y, _ = training_rows()
    model = RobustClassifier(tau=0.5, divergence="kl", l2=0.01).fit(X, y)
    solution = solve(X, y, tau=0.5, divergence="kl", l2=0.01)
    np.testing.assert_array_equal(model.coef_[0], solution.coef)
    assert (model.tau_, model.rho_) == (0.5, solution.worst.achieved)
    losses = model.losses(X, y)
    tilted = 0.5 * (logsumexp(losses / 0.5) - math.log(losses.size))
    assert model.robust_loss_ == pytest.approx(tilted, rel=1e-12)
    assert model.worst_case(X, y).value == pytest.approx(model.robust_loss_, rel=1e-12)
    assert model.worst_case(X, y, rho=0.0).value == pytest.approx(losses.mean())
    save(model, tmp_path / "model.drl")
    loaded = load(tmp_path / "model.drl")
    assert (loaded.tau, loaded.tau_) == (0.5, 0.5)
    assert loaded.worst_case(X, y).value == model.worst_case(X, y).value
    assert clone(model).tau == 0.5
    assert RobustClassifier().fit(X, y).tau_ is None
    search = GridSearchCV(RobustClassifier(), {"tau": [0.1, math.inf]}, cv=2).fit(X, y)
    assert search.best_estimator_.tau_ in (0.1, math.inf)


def test_estimators_at_the_limits():
    X, y, _ = training_rows()
    plain = LogisticRegression(C=1.0 / (0.01 * y.size), tol=1e-10).fit(X, y)
    for tau in (math.inf, 1e6):
        mean = RobustClassifier(tau=tau, l2=0.01, tol=1e-8).fit(X, y)
        np.testing.assert_allclose(mean.coef_, plain.coef_, atol=1e-4)
    largest = RobustRegressor(tau=0.0, l2=0.01).fit(X, X[:, 0] ** 2)
    assert largest.robust_loss_ == pytest.approx(largest.losses(X, X[:, 0] ** 2).max())


def test_price_of_a_regret():
    X, y, _ = training_rows()
    c = reference_losses(LogisticRegression(), X, y)
    model = RobustClassifier(tau=1.0, l2=0.01).fit(X, y, reference_losses=c)
    losses = model.losses(X, y)
    assert model.robust_regret_ == pytest.approx(worst_case(losses - c, tau=1.0).value)
    assert model.robust_loss_ == pytest.approx(worst_case(losses, tau=1.0).value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rho": 0.1}, r"replaces 'rho': .* tau=1.0 and rho=0.1"),
        ({"rho": "auto"}, r"replaces 'rho': .* tau=1.0 and rho='auto'"),
        ({"solver": "gssg"}, r"needs an exact solver. Got solver='gssg'"),
        ({"divergence": "total-variation"}, r"strictly convex divergence. Got TotalVariation"),
        ({"divergence": "cvar"}, "strictly convex"),
        ({"tau": -1.0}, "'tau' parameter of RobustClassifier must be"),
        ({"tau": math.nan}, "'tau' parameter of RobustClassifier must be"),
    ],
)
def test_bad_prices_of_estimators(arguments, message):
    X, y, _ = training_rows()
    with pytest.raises(ValueError, match=message):
        RobustClassifier(**{"tau": 1.0, **arguments}).fit(X, y)


def training_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    y = np.where(X[:, 0] + rng.logistic(size=400) > 0, 1.0, -1.0)
    return X, y, X[:, 2] > 0.5
