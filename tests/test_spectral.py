"""Spectral risks: values, weights, certificates, smoothing, training, and where they apply."""

from __future__ import annotations

import math
import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from drolearn import (
    CVaR,
    Exponential,
    Extremile,
    Loss,
    RobustClassifier,
    RobustClassifierCV,
    RobustEnsembleRegressor,
    RobustRegressor,
    Spectral,
    gradient_report,
    load,
    rho_max,
    save,
    solve,
    stress_test,
    worst_case,
)
from drolearn._inner.smoothing import smoothed
from drolearn.loss import as_loss

RISKS = [
    Extremile(1), Extremile(2.5), Extremile(50), Exponential(0), Exponential(3), Exponential(200),
    Spectral([1.0]), Spectral([0, 0, 1]), Spectral([1, 2, 4]), Spectral(np.exp),
]  # fmt: skip

spectra = st.lists(st.integers(0, 5), min_size=1, max_size=8).map(np.cumsum).filter(lambda s: s[-1])
risks = st.one_of(
    st.builds(Extremile, st.floats(1, 100)),
    st.builds(Exponential, st.floats(0, 50)),
    st.builds(Spectral, spectra),
)
# Small integers have ties.
losses = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=12).map(np.array)
sizes = st.floats(1e-3, 1e3)


def weighted(z):
    """Base weights for losses, of which some are zero."""
    b = np.random.default_rng(z.size).integers(0, 4, z.size).astype(float)
    b[0] += 1.0
    return b


def by_definition(risk, z, b):
    """Σ σᵢ z₍ᵢ₎ by integrating the spectrum over the quantiles of the losses."""
    order = np.argsort(z)
    reached = np.concatenate([[0.0], np.cumsum(b[order]) / b.sum()])
    # g(1 − Bᵢ₋₁) − g(1 − Bᵢ)
    return float(-np.diff(risk.tail(1.0 - reached)) @ z[order])


# -- values and weights --------------------------------------------------------------------------


@given(losses, risks)
@settings(deadline=None)
def test_the_value_is_the_mean_of_the_sorted_losses_with_the_weights_of_the_spectrum(z, risk):
    for b in (None, weighted(z)):
        base = np.ones(z.size) if b is None else b
        wc = worst_case(z, divergence=risk, sample_weight=b)
        assert wc.value == pytest.approx(by_definition(risk, z, base), abs=1e-11)
        assert wc.weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert wc.weights @ z == pytest.approx(wc.value, abs=1e-11)
        assert risk.between(wc.weights, base / base.sum()) == 0.0
        assert 0.0 <= wc.gap <= 1e-12
        assert (wc.alpha, wc.achieved, wc.rho, wc.lam) == (0.0, 0.0, 0.0, z[base > 0].min())
        # Rows of equal losses share their weight in proportion to their base weights.
        for value in np.unique(z[base > 0]):
            same = (z == value) & (base > 0)
            ratio = wc.weights[same] / base[same]
            np.testing.assert_allclose(ratio, ratio[0], atol=1e-12)


@given(losses, losses, risks, sizes)
@settings(deadline=None)
def test_properties_of_spectral_risks(z, other, risk, size):
    value = worst_case(z, divergence=risk).value
    assert z.mean() - 1e-12 <= value <= z.max() + 1e-12
    moved = worst_case(size * z + 3.0, divergence=risk).value
    assert moved == pytest.approx(size * value + 3.0, rel=1e-11, abs=1e-11)
    shuffled = np.random.default_rng(0).permutation(z.size)
    wc = worst_case(z[shuffled], divergence=risk)
    assert wc.value == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(
        wc.weights, worst_case(z, divergence=risk).weights[shuffled], atol=1e-12
    )
    n = min(z.size, other.size)
    one, two = z[:n], other[:n]
    larger = worst_case(one + abs(two), divergence=risk).value
    assert larger >= worst_case(one, divergence=risk).value - 1e-12
    both = worst_case(one + two, divergence=risk).value
    apart = sum(worst_case(each, divergence=risk).value for each in (one, two))
    assert both <= apart + 1e-11
    doubled = worst_case(np.repeat(z, 2), divergence=risk).value
    assert doubled == pytest.approx(value, abs=1e-12)


@given(losses)
@settings(deadline=None)
def test_special_cases(z):
    b = weighted(z)
    mean = np.average(z, weights=b)
    for risk in (Extremile(1), Exponential(0), Spectral([2.0]), Spectral([1, 1, 1])):
        wc = worst_case(z, divergence=risk, sample_weight=b)
        assert wc.value == pytest.approx(mean, abs=1e-12)
        np.testing.assert_allclose(wc.weights, b / b.sum(), atol=1e-12)
    for parts in (1, 2, 5, 10):
        spectrum = Spectral([0] * (10 - parts) + [1] * parts)
        same = worst_case(z, divergence=CVaR(parts / 10), sample_weight=b)
        wc = worst_case(z, divergence=spectrum, sample_weight=b)
        assert wc.value == pytest.approx(same.value, abs=1e-11)
        np.testing.assert_allclose(wc.weights, same.weights, atol=1e-11)
    for risk in (Extremile(1e12), Exponential(1e12)):
        largest = worst_case(z, divergence=risk, sample_weight=b).value
        assert largest == pytest.approx(z[b > 0].max(), abs=1e-9)


def test_an_extremile_is_the_expected_largest_of_some_draws():
    z = np.array([0.3, -1.0, 2.0, 2.0, 0.7])
    pairs = np.maximum.outer(z, z)
    assert worst_case(z, divergence=Extremile(2)).value == pytest.approx(pairs.mean())
    threes = np.maximum.outer(pairs, z)
    assert worst_case(z, divergence=Extremile(3)).value == pytest.approx(threes.mean())


def test_functions_and_numbers_are_the_same_spectra():
    z = np.random.default_rng(0).standard_normal(500)
    for named, function in (
        (Extremile(3), lambda u: 3 * u**2),
        (Exponential(2), lambda u: np.exp(2 * u)),
        (CVaR(0.25), lambda u: 4.0 * (u > 0.75)),
    ):
        value = worst_case(z, divergence=Spectral(function)).value
        assert value == pytest.approx(worst_case(z, divergence=named).value, rel=1e-6)
    weights = np.sort(np.random.default_rng(1).random(500))
    value = worst_case(z, divergence=Spectral(weights)).value
    assert value == pytest.approx(np.sort(z) @ weights / weights.sum())
    assert Spectral([1, 2]) == Spectral(np.array([1.0, 2.0]))
    assert repr(Spectral([1, 3])) == "Spectral([1, 3])"
    assert repr(Spectral(np.exp)) == "Spectral(<4096 weights>)"


@pytest.mark.parametrize("risk", RISKS, ids=repr)
def test_extreme_losses(risk):
    for size in (1e-320, 1e-150, 1e150, 1e308):
        wc = worst_case(np.array([-1.0, 0.0, 1.0]) * size, divergence=risk)
        plain = worst_case([-1.0, 0.0, 1.0], divergence=risk)
        assert wc.value == pytest.approx(size * plain.value, rel=1e-9, abs=1e-12 * size)
        np.testing.assert_allclose(wc.weights, plain.weights, atol=1e-3 if size < 1e-300 else 1e-12)
    tiny = worst_case([3.0, 1.0, 2.0], divergence=risk, sample_weight=[5e-324, 1.0, 1e10])
    assert tiny.weights.sum() == pytest.approx(1.0)
    assert tiny.value == pytest.approx(2.0, abs=0.01)
    assert worst_case([5.0] * 3, divergence=risk).weights.tolist() == pytest.approx([1 / 3] * 3)
    assert worst_case([0.0, 0.0], divergence=risk).value == 0.0
    assert worst_case([7.0], divergence=risk).value == 7.0


@pytest.mark.parametrize("risk", RISKS, ids=repr)
def test_cvxpy_agrees(risk):
    """R(z) is a mixture of means of the k largest losses, in cvxpy's formulation."""
    rng = np.random.default_rng(0)
    z, n = rng.standard_normal(12), 12
    sigma = np.diff(risk.tail(np.arange(n + 1) / n))
    x = cp.Variable(n)
    steps = sigma - np.append(sigma[1:], 0.0)
    risk_of = cp.sum([step * cp.sum_largest(x, k + 1) for k, step in enumerate(steps) if step > 0])
    problem = cp.Problem(cp.Minimize(risk_of), [x == z])
    problem.solve(solver=cp.CLARABEL)
    assert worst_case(z, divergence=risk).value == pytest.approx(problem.value, abs=1e-6)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("risk", RISKS, ids=repr)
def test_smoothed_weights_are_the_projection(risk, epsilon):
    """Weights of R_ε lie in the set, and no others of the set have a larger Σ p z − ε χ²."""
    rng = np.random.default_rng(0)
    z, b = rng.standard_normal(40).round(1), rng.random(40)
    b[:4] = 0.0
    b /= b.sum()
    found = smoothed(z, 0.0, risk, b, epsilon)
    assert found is not None
    wc, bend = found
    p, used = wc.weights, b > 0
    assert p.sum() == pytest.approx(1.0)
    assert p.min() >= 0.0
    assert not p[~used].any()
    assert risk.between(p, b) == 0.0
    # The optimum of a concave function on a convex set: its gradient has its maximum at p.
    slope = np.zeros(z.size)
    slope[used] = z[used] - 2.0 * epsilon * (p[used] / b[used] - 1.0)
    best = worst_case(slope, divergence=risk, sample_weight=b).value
    assert slope @ p == pytest.approx(best, abs=1e-9)
    chi2 = np.sum((p[used] - b[used]) ** 2 / b[used])
    assert wc.value == pytest.approx(p @ z - epsilon * chi2, abs=1e-12)
    # The derivative of the weights, where no block is about to change.
    if epsilon >= 0.1:
        direction, step = rng.standard_normal(z.size), 1e-7
        ahead = smoothed(z + step * direction, 0.0, risk, b, epsilon)
        behind = smoothed(z - step * direction, 0.0, risk, b, epsilon)
        assert ahead is not None
        assert behind is not None
        change = (ahead[0].weights - behind[0].weights) / (2 * step)
        columns = bend.columns.toarray()
        jacobian = np.diag(bend.v) - columns @ bend.inner.toarray() @ columns.T
        if not np.unique(z[used]).size < used.sum():  # ties split in all directions
            np.testing.assert_allclose(jacobian @ direction, change, atol=1e-5)


# -- training ------------------------------------------------------------------------------------


def rows(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + rng.standard_normal(n)


@pytest.mark.parametrize("risk", [CVaR(0.75), Extremile(3), Exponential(2), Spectral([1, 2, 6])])
@pytest.mark.parametrize("l2", [1.0, 1e-3])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_solve_proves_its_gap(risk, l2, loss):
    X, y = rows()
    labels = y if loss == "squared" else y > 0
    weights = np.random.default_rng(1).integers(0, 3, y.size)
    solution = solve(
        X, labels, divergence=risk, loss=loss, l2=l2, tol=1e-9, max_iter=3000,
        sample_weight=weights,
    )  # fmt: skip
    assert solution.converged
    assert 0.0 <= solution.gap <= 1e-9 * solution.value
    targets = y if loss == "squared" else np.where(y > 0, 1.0, -1.0)

    def objective(theta):
        z = as_loss(loss).of_scores(X @ theta[0, :-1] + theta[0, -1], targets)[0]
        value = worst_case(z, divergence=risk, sample_weight=weights).value
        return value + 0.5 * l2 * np.sum(theta[0, :-1] ** 2)

    assert objective(solution.theta) == pytest.approx(solution.value, rel=1e-12)
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-2, 1.0):
        theta = solution.theta + size * rng.standard_normal(solution.theta.shape)
        assert objective(theta) >= solution.value - solution.gap


def test_solve_agrees_with_cvxpy():
    X, y = rows(30, 2)
    n, risk = y.size, Extremile(4)
    sigma = np.diff(risk.tail(np.arange(n + 1) / n))
    w, c = cp.Variable(2), cp.Variable()
    z = 0.5 * cp.square(X @ w + c - y)
    steps = sigma - np.append(sigma[1:], 0.0)
    terms = [step * cp.sum_largest(z, k + 1) for k, step in enumerate(steps)]
    problem = cp.Problem(cp.Minimize(cp.sum(terms) + 0.05 * cp.sum_squares(w)))
    problem.solve(solver=cp.CLARABEL)
    solution = solve(X, y, loss="squared", divergence=risk, l2=0.1, tol=1e-8, max_iter=2000)
    assert solution.value == pytest.approx(problem.value, rel=1e-6)


def test_sparse_rows_groups_and_regrets():
    from scipy.sparse import csr_array

    X, y = rows()
    X[np.abs(X) < 0.5] = 0.0
    settings = {"loss": "squared", "divergence": Extremile(4), "l2": 0.1, "tol": 1e-8}
    dense = solve(X, y, max_iter=2000, **settings)
    sparse = solve(csr_array(X), y, max_iter=2000, **settings)
    assert sparse.value == pytest.approx(dense.value, rel=2e-8)
    groups = np.digitize(X[:, 1], [-0.7, 0.0, 0.7])
    grouped = solve(X, y, groups=groups, max_iter=2000, **settings)
    assert grouped.converged
    z = 0.5 * (X @ grouped.coef + grouped.intercept - y) ** 2
    means = [z[groups == g].mean() for g in range(4)]
    value = worst_case(means, divergence=Extremile(4), sample_weight=np.bincount(groups)).value
    assert grouped.worst.value == pytest.approx(value, rel=1e-10)
    c = np.abs(y)
    regret = solve(X, y, reference_losses=c, max_iter=2000, **settings)
    z = 0.5 * (X @ regret.coef + regret.intercept - y) ** 2
    assert regret.worst.value == pytest.approx(worst_case(z - c, divergence=Extremile(4)).value)
    assert regret.converged


def test_a_flat_spectrum_is_the_plain_fit():
    X, y = rows()
    plain = solve(X, y, loss="squared", rho=0.0, l2=0.1, tol=1e-10)
    for risk in (Extremile(1), Exponential(0), Spectral([1])):
        flat = solve(X, y, loss="squared", divergence=risk, l2=0.1, tol=1e-10)
        np.testing.assert_allclose(flat.theta, plain.theta, atol=1e-5)


def test_a_zero_model_is_proved():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 2)), rng.random(60) > 0.5
    solution = solve(X, y, divergence=Extremile(500), l2=0.1)
    assert not solution.coef.any()
    assert "flatter spectrum" in solution.status


# -- estimators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("risk", [Extremile(3), Exponential(2), Spectral([1, 2, 6])], ids=repr)
def test_estimators(risk, tmp_path):
    X, y = rows()
    model = RobustRegressor(divergence=risk).fit(X, y)
    assert model.converged_
    assert model.rho_ == 0.0
    assert model.worst_case(X, y).value == pytest.approx(model.robust_loss_, rel=1e-12)
    for name in ("model.drl", "model.skops"):
        save(model, tmp_path / name)
        loaded = load(tmp_path / name)
        assert loaded.divergence == risk
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert pickle.loads(pickle.dumps(model)).divergence_ == risk
    assert clone(model).divergence == risk
    classifier = RobustClassifier(divergence=risk, tol=1e-5).fit(X, np.digitize(y, [-0.5, 0.5]))
    losses = classifier.losses(X, np.digitize(y, [-0.5, 0.5]))
    expected = worst_case(losses, divergence=risk).value
    assert classifier.robust_loss_ == pytest.approx(expected, rel=1e-10)


def test_ensembles():
    X, y = rows()
    risk = Extremile(3)
    ensemble = RobustEnsembleRegressor(LinearRegression(), divergence=risk, n_rounds=30, cv=None)
    ensemble.fit(X, y)
    exact = solve(X, y, loss="squared", divergence=risk, l2=0.0, tol=1e-8, max_iter=2000)
    assert ensemble.robust_loss_ >= exact.value - exact.gap
    assert ensemble.robust_loss_ <= 1.02 * exact.value
    assert ensemble.robust_loss_ - ensemble.gap_ <= exact.value + 1e-9


def test_objectives_of_boosted_trees():
    from drolearn.boosting import robust_objective

    _, y = rows()
    objective = robust_objective(divergence=Extremile(3), loss="squared", groups=np.arange(300) % 4)
    gradient, _ = objective(y, np.zeros(y.size))
    means = [0.5 * np.mean(y[g::4] ** 2) for g in range(4)]
    share = worst_case(means, divergence=Extremile(3)).weights
    # The first weights are halfway between those of the data and the worst case, or nearer.
    factor = np.array([(gradient[g::4] / -y[g::4]).mean() for g in range(4)])
    assert np.all((factor - factor.mean()) * (share - 0.25) >= 0.0)
    assert np.ptp(factor) > 0.0


def test_l1_penalties():
    X, y = rows(d=8)
    solution = solve(X, y, loss="squared", divergence=Extremile(2), l1=0.2, tol=1e-7, max_iter=2000)
    assert solution.converged
    assert 0 < np.count_nonzero(solution.coef) < 8
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1):
        coef = solution.coef + size * rng.standard_normal(8)
        z = 0.5 * (X @ coef + solution.intercept - y) ** 2
        value = worst_case(z, divergence=Extremile(2)).value + 0.2 * np.abs(coef).sum()
        assert value >= solution.value - solution.gap


def test_custom_losses():
    X, y = rows()
    cosh = Loss.custom(lambda r: np.cosh(r) - 1.0, np.sinh, of="residual", smoothness=2.0)
    solution = solve(0.1 * X, 0.1 * y, loss=cosh, divergence=Extremile(2), l2=0.1)
    assert solution.converged


# -- where they do not apply ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Extremile(0.5), "'r' parameter of Extremile must be a finite number of at least"),
        (lambda: Extremile(math.nan), "'r' parameter of Extremile"),
        (lambda: Extremile(math.inf), "'r' parameter of Extremile"),
        (lambda: Extremile("3"), "'r' parameter of Extremile"),
        (lambda: Exponential(-1), "'r' parameter of Exponential must be a finite number of at"),
        (lambda: Spectral(3), "must be a list of numbers, or a function of arrays. Got 3 instead"),
        (lambda: Spectral([]), "at least one number, all finite. Got none"),
        (lambda: Spectral([1, math.inf]), "all finite. Got inf"),
        (lambda: Spectral([1, math.nan]), "all finite. Got nan"),
        (lambda: Spectral([1, 3, 2]), "do not decrease.* Got 2 after 3"),
        (lambda: Spectral([-1, 3]), "at least 0.* Got -1 first"),
        (lambda: Spectral([0, 0]), "positive sum.* Got a sum of 0"),
        (lambda: Spectral(lambda u: 1.0 - u), "do not decrease"),
        (lambda: Spectral(lambda u: 1.0), r"Got the shape \(\) for 32768 numbers"),
    ],
)
def test_wrong_spectra(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y, risk: worst_case(y, 0.1, risk), "None for Extremile, which has no radius"),
        (lambda X, y, risk: worst_case(y, divergence=risk, tau=1.0), "strictly convex"),
        (lambda X, y, risk: worst_case([1.0, math.nan], divergence=risk), "1 NaN"),
        (lambda X, y, risk: risk.phi(1.0), "has no φ"),
        (lambda X, y, risk: risk.core, "needs the order of all losses"),
        (lambda X, y, risk: solve(X, y > 0, divergence=risk, solver="gssg"), "use solver='exact'"),
        (lambda X, y, risk: solve(X, y > 0, divergence=risk, solver="pssg"), "use solver='exact'"),
        (lambda X, y, risk: solve(X, y > 0, divergence=risk, solver="newton"), "solver='lbfgs'"),
        (lambda X, y, risk: rho_max(X, y > 0, risk), "must have a radius"),
        (
            lambda X, y, risk: gradient_report(np.zeros(4), X, y > 0, divergence=risk),
            "order of all",
        ),
        (lambda X, y, risk: RobustClassifierCV(divergence=risk).fit(X, y > 0), "GridSearchCV"),
        (lambda X, y, risk: RobustClassifier(0.1, divergence=risk).fit(X, y > 0), "no radius"),
        (
            lambda X, y, risk: stress_test(
                RobustRegressor().fit(X, y), X, y, loss="squared", divergence=risk
            ),
            "worst_case takes it",
        ),
    ],
)
def test_what_spectral_risks_do_not_have(call, message):
    X, y = rows(60)
    with pytest.raises(ValueError, match=message):
        call(X, y, Extremile(2))


def test_networks():
    torch = pytest.importorskip("torch")
    from drolearn.nn import MultilevelBatches, RobustLoss

    z = torch.tensor([0.1, 4.0, 0.3, 0.2], dtype=torch.float64, requires_grad=True)
    for risk in (Extremile(3), Exponential(2), Spectral([1, 2, 6])):
        criterion = RobustLoss(divergence=risk)
        loss = criterion(z)
        expected = worst_case(z.detach().numpy(), divergence=risk)
        assert loss.item() == pytest.approx(expected.value, rel=1e-12)
        (gradient,) = torch.autograd.grad(loss, z)
        np.testing.assert_allclose(gradient, expected.weights, atol=1e-12)
        other = RobustLoss()
        other.load_state_dict(criterion.state_dict())
        assert other.divergence == risk
        assert repr(other).startswith(f"RobustLoss(divergence={type(risk).__name__}(")
    draw = MultilevelBatches(100, random_state=0).draw(0)
    with pytest.raises(ValueError, match="A draw needs a φ-divergence"):
        RobustLoss(divergence=Extremile(3))(torch.zeros(draw.indices.size), draw)
