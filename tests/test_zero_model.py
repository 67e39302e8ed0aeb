"""The smallest ball in which the zero model is optimal, and `rho_max`."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import CVaR, Divergence, Ending, RobustClassifier, ZeroModelWarning, rho_max, solve
from drolearn._solvers.inputs import as_problem
from drolearn._solvers.zero_model import SharedBall, smallest_ball

_DIVERGENCES = ["chi2", "kl", "reverse-kl", "hellinger", "total-variation"]


def _data(classes: int, n: int = 90):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3)) * [1.0, 30.0, 0.1] + [0.0, 5.0, 0.0]
    y = rng.integers(0, classes, n)
    X[:, 0] += 0.5 * y
    return X, y, rng.random(n) + 0.1


def _judge(X, y, w, divergence, fit_intercept):
    """The smallest divergence by cvxpy."""
    n, m, b = y.size, y.max() + 1, w / w.sum()
    if fit_intercept:
        X = np.column_stack([X, np.ones(n)])
    X = X / abs(X).max(axis=0)
    factors = np.eye(m)[y] - 1.0 / m
    a = (factors[:, :, None] * X[:, None, :]).reshape(n, -1)
    p = cp.Variable(n, nonneg=True)
    distance = {
        "chi2": lambda: cp.sum(cp.multiply(1.0 / b, cp.square(p - b))),
        "kl": lambda: cp.sum(cp.kl_div(p, b)),
        "reverse-kl": lambda: cp.sum(cp.kl_div(b, p)),
        "hellinger": lambda: 1.0 - cp.sum(cp.multiply(np.sqrt(b), cp.sqrt(p))),
        "total-variation": lambda: 0.5 * cp.norm1(p - b),
    }[divergence]()
    return cp.Problem(cp.Minimize(distance), [a.T @ p == 0, cp.sum(p) == 1]).solve(cp.CLARABEL)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("divergence", _DIVERGENCES)
def test_the_radius_is_the_smallest_divergence(divergence, fit_intercept, classes):
    X, y, w = _data(classes)
    found = rho_max(X, y, divergence, w, fit_intercept=fit_intercept)
    assert found == pytest.approx(_judge(X, y, w, divergence, fit_intercept), rel=1e-5)
    sparse = rho_max(sp.csr_matrix(X), y, divergence, w, fit_intercept=fit_intercept)
    assert sparse == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger"])
def test_models_are_zero_from_this_radius_on(divergence):
    X, y, w = _data(2)
    radius = rho_max(X, y, divergence, w)
    common = {"divergence": divergence, "sample_weight": w, "solver": "exact", "max_iter": 500}
    for l2 in (0.0, 0.1):
        above = solve(X, y, rho=1.001 * radius, l2=l2, **common)
        assert above.ending is Ending.ZERO_MODEL
        assert above.value == pytest.approx(math.log(2.0), rel=1e-12)
        assert not above.coef.any()
    below = solve(X, y, rho=0.8 * radius, **common)
    assert below.ending is Ending.CONVERGED
    assert below.value < math.log(2.0) * (1.0 - 1e-5)


def test_three_classes_are_proved_to_be_zero():
    X, y, _ = _data(3)
    with pytest.warns(ZeroModelWarning):
        clf = RobustClassifier(1.1 * rho_max(X, y), max_iter=1000).fit(X, y)
    assert clf.ending_ is Ending.ZERO_MODEL
    assert not clf.coef_.any()


def test_the_search_ends_at_a_radius_and_goes_on_for_a_larger_one(monkeypatch):
    X, y, w = _data(2)
    radius = rho_max(X, y, "kl", w)
    searches = []

    def search(problem, at_most):
        searches.append(at_most)
        return smallest_ball(problem, at_most)

    monkeypatch.setattr("drolearn._solvers.zero_model.smallest_ball", search)
    shared = SharedBall()
    for factor, known in ((0.5, math.inf), (0.2, math.inf), (1.5, radius), (9.0, radius)):
        problem = as_problem(
            X, y, rho=factor * radius, divergence="kl", loss="logistic", l2=0.0, groups=None,
            fit_intercept=True, sample_weight=w, n_jobs=None,
        )  # fmt: skip
        assert shared.within(problem).rho == pytest.approx(known)
    assert searches == pytest.approx([0.5 * radius, 1.5 * radius])


def test_weights_and_repeated_rows_are_equivalent():
    X, y, _ = _data(2)
    counts = np.arange(y.size) % 3
    once = rho_max(X, y, sample_weight=counts)
    assert rho_max(np.repeat(X, counts, axis=0), np.repeat(y, counts)) == pytest.approx(once)


@pytest.mark.parametrize("divergence", _DIVERGENCES)
def test_separable_classes_have_no_such_radius(divergence):
    X, _, _ = _data(2)
    assert rho_max(X, X[:, 0] > 0.3, divergence) == math.inf
    X[:, 2] = 0.0
    X[:5, 2] = 1.0  # a column that only rows of one class have
    y = np.arange(90) % 2
    y[:5] = 1
    radius = rho_max(X, y, divergence)
    # These rows lose all their mass, which is infinitely far for reverse KL.
    assert radius == math.inf if divergence == "reverse-kl" else radius < math.inf


def test_bad_input():
    X, y, _ = _data(2)
    with pytest.raises(ValueError, match="must hold class labels: in regression no radius"):
        rho_max(X, X[:, 0])
    with pytest.raises(ValueError, match="must have a radius"):
        rho_max(X, y, "cvar")
    corner = Divergence.custom(
        lambda s: abs(s - 1.0) + (s - 1.0) ** 2,
        lambda s: np.where(s < 1.0, -1.0, 1.0) + 2.0 * (s - 1.0),
        lambda t: 1.0 + 0.5 * np.sign(t) * np.maximum(abs(t) - 1.0, 0.0),
        phi_zero=2.0,
        strictly_convex=False,
    )
    with pytest.raises(ValueError, match="strictly convex or total variation"):
        rho_max(X, y, corner)
    with pytest.raises(ValueError, match="Did you mean 'kl'"):
        rho_max(X, y, "kll")


@pytest.mark.parametrize(
    ("divergence", "rho", "cure"),
    [("total-variation", 0.4, "a smaller rho"), (CVaR(0.2), None, "a larger level")],
)
def test_the_zero_model_of_divergences_with_straight_pieces(divergence, rho, cure):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 2)), rng.random(300) < 0.5
    solution = solve(X, y, rho=rho, divergence=divergence)
    assert solution.ending is Ending.ZERO_MODEL
    assert solution.status.endswith(f"Use {cure}.")


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_default_radius_is_at_most_half_of_the_largest_that_learns(divergence, classes):
    X, y, w = _data(classes, n=400)
    X[:, 0] -= 0.2 * y
    largest = rho_max(X, y, divergence, w)
    assert largest < 0.1
    clf = RobustClassifier(divergence=divergence).fit(X, y, w)
    assert clf.rho_ == pytest.approx(0.5 * largest, rel=1e-6)
    assert clf.converged_
    assert clf.coef_.any()
    explicit = RobustClassifier(clf.rho_, divergence=divergence).fit(X, y, w)
    np.testing.assert_array_equal(clf.coef_, explicit.coef_)
    with pytest.warns(ZeroModelWarning):
        assert RobustClassifier(0.1, divergence=divergence, max_iter=500).fit(X, y, w).rho_ == 0.1


@pytest.mark.parametrize("signal", [0.9, 2.5])
def test_the_default_radius_is_continuous_in_the_data(signal, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 2))
    y = signal * X[:, 0] + 2.0 * rng.standard_normal(500) > 0.0
    largest = rho_max(X, y)
    searches = []

    def search(problem, at_most):
        searches.append(at_most)
        return smallest_ball(problem, at_most)

    monkeypatch.setattr("drolearn._solvers.radius.smallest_ball", search)
    clf = RobustClassifier().fit(X, y)
    if signal < 1.0:
        assert 0.1 < largest < 0.2
        assert clf.rho_ == pytest.approx(0.5 * largest)
    else:  # the model shows that the ball may have this radius
        assert largest > 0.2
        assert clf.rho_ == 0.1
        assert not searches


def test_the_default_radius_counts_weights_as_repeated_rows():
    X, y, _ = _data(2, n=400)
    counts = np.arange(y.size) % 3
    once = RobustClassifier(tol=1e-10).fit(X, y, counts)
    twice = RobustClassifier(tol=1e-10).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert twice.rho_ == pytest.approx(once.rho_, rel=1e-9)
    assert once.rho_ < 0.1
    np.testing.assert_allclose(twice.coef_, once.coef_, rtol=1e-5)


def test_the_default_radius_with_groups_references_and_straight_pieces():
    X, y, _ = _data(2, n=400)
    assert RobustClassifier().fit(X, y, groups=np.arange(400) % 3).rho_ == 0.1
    with pytest.warns(ZeroModelWarning, match="use a better reference"):
        assert RobustClassifier().fit(X, y, reference_losses=np.full(400, 0.5)).rho_ == 0.1
    moved = RobustClassifier(divergence="total-variation", max_iter=1000)
    with pytest.warns(UserWarning, match="zero model is optimal|relative gap"):
        assert moved.fit(X, y).rho_ == 0.1


@pytest.mark.parametrize("l2", [1e13, 1e30, 1e300])
def test_a_huge_penalty_is_no_reason_for_a_smaller_radius(l2):
    """Coefficients tend to 0, but not because of the ball."""
    X, y, _ = _data(2)
    assert rho_max(X, y) > 0.02
    model = RobustClassifier(0.01, l2=l2).fit(X, y)  # no ZeroModelWarning
    assert model.ending_ is Ending.CONVERGED
    assert 0.0 < abs(model.coef_).max() < 100.0 / l2
