"""Robust objectives and metrics for LightGBM and XGBoost."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.special import expit

from drolearn import CVaR, Loss, worst_case
from drolearn.boosting import robust_metric, robust_objective
from drolearn.loss import as_loss

SETTINGS = {"verbose": -1, "num_threads": 1, "seed": 0, "num_leaves": 15}


def two_laws(n=2000, seed=0):
    """Rows of two groups whose labels depend on X in different ways."""
    rng = np.random.default_rng(seed)
    X, few = rng.standard_normal((n, 3)), rng.random(n) < 0.15
    score = np.where(few, X[:, 1] - X[:, 0], X[:, 0] + 0.5 * X[:, 2])
    return X, (2 * score + rng.logistic(size=n) > 0).astype(float), score, few


def losses(scores, y):
    return np.logaddexp(0.0, np.where(y > 0, -scores, scores))


def worst_mean(z, groups):
    return max(z[groups].mean(), z[~groups].mean())


# -- the gradient --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", Loss.smoothed_hinge(0.5)])
@pytest.mark.parametrize("by_group", [False, True])
def test_the_gradient_is_that_of_the_robust_loss(loss, by_group):
    """With step 1 the weights are the worst case, so that the gradient is N ∂R/∂scores."""
    X, y, _, few = two_laws(60)
    groups, n = few if by_group else None, y.size
    target = y if as_loss(loss).of == "margin" else X[:, 0]
    metric = robust_metric(0.3, groups=groups, loss=loss)
    scores = X[:, 1].copy()
    gradient, hessian = robust_objective(0.3, groups=groups, loss=loss, step=1.0)(target, scores)
    for i in range(0, n, 7):
        up, down = scores.copy(), scores.copy()
        up[i] += 1e-5
        down[i] -= 1e-5
        rise = (metric(target, up)[1] - metric(target, down)[1]) / 2e-5
        assert gradient[i] == pytest.approx(n * rise, abs=1e-4)
    assert (hessian >= 0.0).all()


def test_radius_zero_is_the_plain_gradient():
    _, y, score, few = two_laws(200)
    weights = np.linspace(0.5, 2.0, 200)
    gradient, hessian = robust_objective(0.0, groups=few)(y, score, weights)
    np.testing.assert_allclose(gradient, weights * (expit(score) - y), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(hessian, weights * expit(score) * expit(-score), rtol=1e-6)
    twice = robust_objective(0.3)(np.where(y > 0, 1.0, -1.0), score)
    np.testing.assert_array_equal(twice[0], robust_objective(0.3)(y, score)[0])


@pytest.mark.parametrize("divergence", ["chi2", "kl", CVaR(0.2)])
def test_weights_are_damped(divergence):
    _, y, score, few = two_laws(300)
    rho = None if isinstance(divergence, CVaR) else 5.0
    objective = robust_objective(rho, divergence, groups=few, step=0.25)
    means = [losses(score, y)[few == side].mean() for side in (False, True)]
    shares = expected = np.array([1 - few.mean(), few.mean()])
    worst = worst_case(means, rho, divergence, shares).weights
    for _ in range(3):
        objective(y, score)
        expected = 0.75 * expected + 0.25 * worst
        np.testing.assert_allclose(objective.group_weights_, expected)
    start = np.zeros(300)  # equal scores: a new fit
    fresh = robust_objective(rho, divergence, groups=few, step=0.25)
    np.testing.assert_array_equal(objective(y, start), fresh(y, start))
    np.testing.assert_array_equal(objective.group_weights_, fresh.group_weights_)


def test_a_reference_is_subtracted_in_the_worst_case():
    _, y, score, few = two_laws(300)
    z, c = losses(score, y), np.linspace(0.0, 2.0, 300)
    objective = robust_objective(1.0, groups=few, step=1.0, reference_losses=c)
    gradient, _ = objective(y, score)
    means = [(z - c)[few == side].mean() for side in (False, True)]
    shares = [1 - few.mean(), few.mean()]
    worst = worst_case(means, 1.0, sample_weight=shares)
    np.testing.assert_allclose(objective.group_weights_, worst.weights)
    of_rows = (worst.weights / np.array(shares))[few.astype(int)]
    np.testing.assert_allclose(gradient, of_rows * (expit(score) - y), rtol=1e-5, atol=1e-7)
    metric = robust_metric(1.0, groups=few, reference_losses=c)
    assert metric(y, score)[1] == pytest.approx(worst.value)
    with pytest.raises(ValueError, match=r"one loss for each of the 300 rows .* Got 9"):
        robust_objective(1.0, reference_losses=c[:9])(y, score)
    with pytest.raises(ValueError, match="finite"):
        robust_objective(1.0, reference_losses=[np.nan])


def test_rounding_errors_do_not_choose_a_group():
    y, months = np.arange(1000) % 2.0, np.arange(1000) * 13 // 1000
    objective = robust_objective(1000.0, groups=months, step=1.0)
    objective(y, np.full(1000, 0.0))  # all losses are equal
    np.testing.assert_allclose(objective.group_weights_, np.bincount(months) / 1000)


def test_metric_is_the_robust_loss():
    _, y, score, few = two_laws(300)
    found = robust_metric(0.4, "kl")(y, score)
    value = worst_case(losses(score, y), 0.4, "kl").value
    assert found == ("robust_loss", pytest.approx(value), False)
    weights = np.arange(300.0)
    means = [
        np.average(losses(score, y)[few == side], weights=weights[few == side])
        for side in (False, True)
    ]
    shares = [weights[~few].sum(), weights[few].sum()]
    by_group = robust_metric(0.4, groups=few)(y, score, weights)[1]
    assert by_group == pytest.approx(worst_case(means, 0.4, sample_weight=shares).value)


# -- the libraries -------------------------------------------------------------------------------


def test_late_rounds_of_lightgbm_do_not_explode():
    """Without damping they do: the worst of many groups changes in every round."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X, months = rng.standard_normal((3000, 4)), np.arange(3000) * 15 // 3000
    y = (X[:, 0] + 0.1 * (months % 5) * X[:, 1] + rng.logistic(size=3000) > 0).astype(float)
    old, new = np.arange(3000) < 2000, np.arange(3000) >= 2000

    def loss_of_new(objective):
        data = lightgbm.Dataset(X[old], y[old])
        model = lightgbm.train({**SETTINGS, "objective": objective}, data, 400)
        return losses(model.predict(X[new], raw_score=True), y[new]).mean()

    plain = loss_of_new("binary")
    assert loss_of_new(robust_objective(10, groups=months[old])) < 1.1 * plain
    assert loss_of_new(robust_objective(10, groups=months[old], step=1.0)) > 2.0 * plain


def test_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    X, y, _, few = two_laws()
    new, new_y, _, new_few = two_laws(4000, seed=1)
    plain = lightgbm.train({**SETTINGS, "objective": "binary"}, lightgbm.Dataset(X, y), 40)
    of_plain = worst_mean(losses(plain.predict(new, raw_score=True), new_y), new_few)
    recorded: dict = {}
    stopped = lightgbm.train(
        {**SETTINGS, "objective": robust_objective(20, groups=few), "metric": "None"},
        lightgbm.Dataset(X, y),
        400,
        valid_sets=[lightgbm.Dataset(new, new_y)],
        feval=robust_metric(20, groups=new_few),
        callbacks=[
            lightgbm.early_stopping(10, verbose=False),
            lightgbm.record_evaluation(recorded),
        ],
    )
    scores = stopped.predict(new, num_iteration=stopped.best_iteration)
    assert worst_mean(losses(scores, new_y), new_few) < 0.95 * of_plain
    values = recorded["valid_0"]["robust_loss"]
    assert stopped.best_iteration == 1 + int(np.argmin(values)) < 400
    assert robust_metric(20, groups=new_few)(new_y, scores)[1] == pytest.approx(min(values))


def test_estimators_of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    X, y, _, few = two_laws(600)
    weights = np.linspace(0.5, 2.0, 600)
    objective = robust_objective(1.0, groups=few)
    model = lightgbm.LGBMRegressor(
        n_estimators=20, objective=objective, verbose=-1, n_jobs=1, random_state=0
    )
    model.fit(X, y, sample_weight=weights)
    data = lightgbm.Dataset(X, y, weight=weights)
    again = copy.copy(objective)
    settings = {"verbose": -1, "num_threads": 1, "seed": 0, "objective": again}
    other = lightgbm.train(settings, data, 20)
    np.testing.assert_array_equal(again.group_weights_, objective.group_weights_)
    np.testing.assert_allclose(model.predict(X), other.predict(X), rtol=1e-4, atol=1e-6)


def test_xgboost():
    xgboost = pytest.importorskip("xgboost")
    X, y, _, few = two_laws()
    new, new_y, _, new_few = two_laws(4000, seed=1)
    settings = {"base_score": 0.0, "max_depth": 4, "nthread": 1, "disable_default_eval_metric": 1}
    rows, valid = xgboost.DMatrix(X, y), xgboost.DMatrix(new, new_y)
    recorded: dict = {}
    robust = xgboost.train(
        settings,
        rows,
        60,
        obj=robust_objective(20, groups=few),
        custom_metric=robust_metric(20, groups=new_few),
        evals=[(valid, "new")],
        evals_result=recorded,
        verbose_eval=False,
        early_stopping_rounds=10,
    )
    values = recorded["new"]["robust_loss"]
    assert robust.best_score == pytest.approx(min(values), rel=1e-5)
    plain = xgboost.train(
        {**settings, "objective": "binary:logistic", "base_score": 0.5}, rows, robust.best_iteration
    )
    of_plain = worst_mean(losses(plain.predict(valid, output_margin=True), new_y), new_few)
    scores = robust.predict(valid, iteration_range=(0, robust.best_iteration + 1))
    assert worst_mean(losses(scores, new_y), new_few) < 0.95 * of_plain
    model = xgboost.XGBRegressor(
        n_estimators=5, objective=robust_objective(0.1), base_score=0.0, n_jobs=1
    )
    model.fit(X, y, sample_weight=np.ones(y.size))
    assert np.mean((model.predict(X) > 0) == (y > 0)) > 0.6


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rho": -1}, "'rho' parameter"),
        ({"divergence": "chi"}, "'divergence' parameter"),
        ({"divergence": CVaR(0.1), "rho": 1.0}, "no radius"),
        ({"step": 0.0}, "'step' parameter must be a number above 0 and at most 1"),
        ({"step": 2}, "'step' parameter must be a number above 0 and at most 1"),
        ({"loss": "multinomial"}, "use RobustEnsembleClassifier"),
        ({"loss": "log"}, "loss"),
        ({"groups": []}, "'groups' parameter"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        robust_objective(**arguments)


def test_bad_rows():
    _, y, score, few = two_laws(50)
    with pytest.raises(ValueError, match=r"each of the 49 rows .* Got 50 names"):
        robust_objective(groups=few)(y[1:], score[1:])
    with pytest.raises(ValueError, match=r"must be 0 and 1, or -1 and 1. Got 2 instead"):
        robust_objective()(y + 1.0, score)
    with pytest.raises(ValueError, match=r"one score for each of the 50 rows. Got 150"):
        robust_objective()(y, np.arange(150.0))
    with pytest.raises(ValueError, match="finite"):
        robust_objective()(y, np.full(50, np.nan))
    objective = robust_objective()
    objective(y, score)
    with pytest.raises(ValueError, match="make a new one for each fit"):
        objective(y[1:], score[1:])
    with pytest.raises(ValueError, match="weights of at least 0"):
        robust_metric()(y, score, -np.ones(50))
