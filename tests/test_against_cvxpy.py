"""The same problems stated in cvxpy and solved by Clarabel.

The formulas here are written from the definitions, not taken from the library.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from drolearn import (
    KL,
    ChiSquare,
    CressieRead,
    CVaR,
    Divergence,
    Hellinger,
    JensenShannon,
    ReverseKL,
    RobustClassifier,
    TotalVariation,
    Triangular,
    solve,
)
from drolearn.loss import as_loss
from tests.examples import CUSTOM_BENT, labelled, name, normalised, worst_case

cp = pytest.importorskip("cvxpy")

# Whether Clarabel trusts its own accuracy depends on its version.  The tests compare the numbers.
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")

# -- the inner problem ---------------------------------------------------------------------------

DIVERGENCES = [
    ChiSquare(), KL(), ReverseKL(), Hellinger(), JensenShannon(), Triangular(), TotalVariation(),
    CVaR(0.2), CressieRead(-1.0), CressieRead(0.5), CressieRead(0.7), CressieRead(1.5),
    CressieRead(3.0), CressieRead(6.0), CressieRead(8.0), CressieRead(12.0), CUSTOM_BENT,
]  # fmt: skip


def divergence_in_cvxpy(divergence: Divergence, p, b):
    """Σ b φ(p/b), and constraints on auxiliary variables."""
    s = cp.multiply(p, 1.0 / b)
    match divergence:
        case ChiSquare():
            return cp.sum(cp.multiply(b, cp.square(s - 1.0))), []
        case KL():
            return cp.sum(cp.kl_div(p, b)), []
        case ReverseKL():
            return cp.sum(cp.kl_div(b, p)), []
        case Hellinger():
            return 1.0 - cp.sum(cp.multiply(b, cp.sqrt(s))), []
        case JensenShannon():
            middle = 0.5 * (p + b)
            return 0.5 * cp.sum(cp.rel_entr(p, middle)) + 0.5 * cp.sum(cp.rel_entr(b, middle)), []
        case Triangular():
            terms = [cp.quad_over_lin(p[i] - b[i], p[i] + b[i]) for i in range(p.size)]
            return sum(terms), []
        case TotalVariation():
            return 0.5 * cp.norm1(p - b), []
        case CressieRead(k=k):
            power = cp.sum(cp.multiply(b, cp.power(s, k)))
            return (power - 1.0) / (k * (k - 1.0)), []
    # CUSTOM_BENT, a square on [½, 2] and its tangents outside: s is split into three parts.
    inner, below, above = (cp.Variable(p.shape, nonneg=True) for _ in range(3))
    terms = cp.square(inner - 1.0) + below + 2.0 * above
    return cp.sum(cp.multiply(b, terms)), [s == inner - below + above, inner >= 0.5, inner <= 2.0]


def largest_mean(z, b, rho, divergence) -> float:
    """The worst case, stated as a maximum over the weights."""
    p = cp.Variable(z.size, nonneg=True)
    constraints = [cp.sum(p) == 1.0]
    if isinstance(divergence, CVaR):
        constraints.append(p <= b / divergence.level)
    else:
        stated, auxiliary = divergence_in_cvxpy(divergence, p, b)
        constraints += [stated <= rho, *auxiliary]
    problem = cp.Problem(cp.Maximize(z @ p), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10)


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("divergence", DIVERGENCES, ids=name)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_worst_case(divergence, rho, weighted):
    rng = np.random.default_rng(7)
    z = rng.exponential(size=30)
    base = rng.uniform(0.5, 2.0, size=30) if weighted else None
    expected = largest_mean(z, normalised(base, 30), rho, divergence)
    wc = worst_case(z, rho, divergence, base)
    # Clarabel's tolerance is the larger one: ours is certified by the gap.
    assert wc.gap <= 1e-10
    assert wc.value == pytest.approx(expected, abs=2e-6)


# -- linear models -------------------------------------------------------------------------------


def chi2_dual(z, shares, rho):
    """The χ² worst case of convex losses, stated as a minimum over λ and α."""
    lam, alpha = cp.Variable(), cp.Variable(nonneg=True)
    squares = [
        share * cp.quad_over_lin(cp.pos(each - lam + 2 * alpha), alpha) / 4
        for each, share in zip(z, shares, strict=True)
    ]
    return lam + alpha * (rho - 1.0) + sum(squares)


def least_objective(X, y, rho, divergence, loss, l2, reference=0.0) -> float:
    """The optimum over linear models, with the worst case stated as a minimum."""
    n, d = X.shape
    w, c, lam = cp.Variable(d), cp.Variable(), cp.Variable()
    margin, residual = cp.multiply(y, X @ w + c), X @ w + c - y
    z = {
        "logistic": lambda: cp.logistic(-margin),
        "squared-hinge": lambda: cp.square(cp.pos(1 - margin)),
        "smoothed-hinge": lambda: 0.5 * cp.huber(cp.pos(1 - margin), 1.0),
        "squared": lambda: 0.5 * cp.square(residual),
        "huber": lambda: 0.5 * cp.huber(residual, 1.35),
    }[loss]() - reference
    bounds = []
    if divergence == "chi2":
        robust = lam + math.sqrt((1 + rho) / n) * cp.norm(cp.pos(z - lam))
    elif divergence == "kl":
        alpha, over, top = cp.Variable(nonneg=True), cp.Variable(n), cp.Variable(n)
        bounds = [cp.ExpCone(top - lam, alpha * np.ones(n), over), top >= z]
        robust = lam + alpha * (rho - 1) + cp.sum(over) / n
    else:
        robust = lam + cp.sum(cp.pos(z - lam)) / (n * divergence.level)
    problem = cp.Problem(cp.Minimize(robust + 0.5 * l2 * cp.sum_squares(w)), bounds)
    return problem.solve(solver=cp.CLARABEL)


LOSSES = ["logistic", "squared-hinge", "smoothed-hinge", "squared", "huber"]


@pytest.fixture(scope="module", params=[(loss, ball) for loss in LOSSES for ball in ("chi2", "kl")])
def linear(request):
    """Loss, divergence, data, and the optimum by cvxpy."""
    loss, divergence = request.param
    X, y = labelled(150)
    if as_loss(loss).of == "residual":
        y = X[:, 0] + np.random.default_rng(1).standard_normal(150)
    return loss, divergence, X, y, least_objective(X, y, 0.3, divergence, loss, 0.01)


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "exact"])
def test_exact_solvers(linear, solver):
    loss, divergence, X, y, best = linear
    solution = solve(
        X, y, rho=0.3, divergence=divergence, loss=loss, l2=0.01, solver=solver, tol=1e-9,
        max_iter=500,
    )  # fmt: skip
    assert solution.converged, solution.status
    assert solution.value == pytest.approx(best, rel=2e-6)
    assert solution.gap <= 1e-6 * solution.value


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "exact"])
@pytest.mark.parametrize("rho", [0.3, 5.0])
@pytest.mark.parametrize("divergence", ["chi2", "kl"])
@pytest.mark.parametrize("loss", LOSSES)
def test_regrets(loss, divergence, rho, solver):
    """Losses minus those of a reference, which make regrets of both signs."""
    X, y = labelled(150)
    if as_loss(loss).of == "residual":
        y = X[:, 0] + np.random.default_rng(1).standard_normal(150)
    rho = min(rho, 1.0) if divergence == "kl" else rho
    reference = np.random.default_rng(2).exponential(size=150)
    best = least_objective(X, y, rho, divergence, loss, 0.01, reference)
    solution = solve(
        X, y, rho=rho, divergence=divergence, loss=loss, l2=0.01, solver=solver, tol=1e-8,
        max_iter=500, reference_losses=reference,
    )  # fmt: skip
    assert solution.converged, solution.status
    assert solution.value == pytest.approx(best, abs=2e-6)
    assert solution.gap <= 1e-6
    assert best >= solution.value - solution.gap - 1e-6


def test_a_divergence_with_straight_pieces():
    X, y = labelled(150)
    best = least_objective(X, y, 0.3, CVaR(0.5), "logistic", 0.01)
    solution = solve(X, y, divergence=CVaR(0.5), l2=0.01, solver="exact", max_iter=500)
    assert best - 1e-8 <= solution.value <= best * 1.01


def test_three_classes(three_classes):
    X, y = three_classes[0][:60], three_classes[1][:60]
    W, c = cp.Variable((8, 3)), cp.Variable(3)
    f = X @ W + cp.reshape(c, (1, 3), order="C")
    losses = [cp.log_sum_exp(f[i]) - f[i, y[i]] for i in range(60)]
    value = chi2_dual(losses, np.full(60, 1 / 60), 0.3) + 0.01 * cp.sum_squares(W)
    best = cp.Problem(cp.Minimize(value)).solve(solver="CLARABEL")
    model = RobustClassifier(rho=0.3, l2=0.02, tol=1e-9, max_iter=1000).fit(X, y)
    assert model.objective_ == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("rho", [0.05, 0.5, 3.0, 100.0])
def test_groups(two_classes, rho):
    X, y = two_classes
    g = np.random.default_rng(0).choice(["a", "b", "c"], y.size, p=[0.7, 0.2, 0.1])
    X = X + 2.0 * (g == "c")[:, None] * np.sign(X[:, ::-1])
    w, c = cp.Variable(8), cp.Variable()
    losses = cp.logistic(-cp.multiply(np.where(y == "yes", 1.0, -1.0), X @ w + c))
    means = [cp.sum(losses[np.flatnonzero(g == k)]) / (g == k).sum() for k in "abc"]
    shares = [(g == k).mean() for k in "abc"]
    value = cp.maximum(*means) if rho > 50 else chi2_dual(means, shares, rho)
    best = cp.Problem(cp.Minimize(value + 5e-4 * cp.sum_squares(w))).solve(solver="CLARABEL")
    model = RobustClassifier(rho=rho, l2=1e-3, tol=1e-7).fit(X, y, groups=g)
    assert model.converged_
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    assert model.groups_.tolist() == ["a", "b", "c"]
    assert model.group_weights_.sum() == pytest.approx(1.0)
    again = model.worst_case(X, y, groups=g)
    assert again.value == pytest.approx(model.robust_loss_, rel=1e-9)
    if rho > 50:
        of_groups = [model.losses(X, y)[g == k].mean() for k in "abc"]
        assert model.robust_loss_ == pytest.approx(max(of_groups), rel=1e-9)


@pytest.mark.parametrize("rho", [0.05, 0.5, 3.0, 100.0])
def test_regrets_of_weighted_groups(two_classes, rho):
    X, y = two_classes
    rng = np.random.default_rng(0)
    g = rng.choice(["a", "b", "c"], y.size, p=[0.7, 0.2, 0.1])
    weights, reference = rng.uniform(0.5, 2.0, y.size), rng.exponential(0.5, y.size)
    X = X + 2.0 * (g == "c")[:, None] * np.sign(X[:, ::-1])
    w, c = cp.Variable(8), cp.Variable()
    losses = cp.logistic(-cp.multiply(np.where(y == "yes", 1.0, -1.0), X @ w + c)) - reference
    shares = [weights[g == k].sum() / weights.sum() for k in "abc"]
    means = [weights[g == k] / weights[g == k].sum() @ losses[g == k] for k in "abc"]
    value = cp.maximum(*means) if rho > 50 else chi2_dual(means, shares, rho)
    best = cp.Problem(cp.Minimize(value + 5e-4 * cp.sum_squares(w))).solve(solver="CLARABEL")
    solution = solve(
        X, y, rho=rho, l2=1e-3, tol=1e-7, groups=g, sample_weight=weights,
        reference_losses=reference,
    )  # fmt: skip
    assert solution.converged, solution.status
    assert solution.value == pytest.approx(best, abs=1e-6)


def test_regrets_of_three_classes(three_classes):
    X, y = three_classes[0][:60], three_classes[1][:60]
    reference = np.random.default_rng(0).exponential(size=60)
    W, c = cp.Variable((8, 3)), cp.Variable(3)
    f = X @ W + cp.reshape(c, (1, 3), order="C")
    losses = [cp.log_sum_exp(f[i]) - f[i, y[i]] - reference[i] for i in range(60)]
    value = chi2_dual(losses, np.full(60, 1 / 60), 0.3) + 0.01 * cp.sum_squares(W)
    best = cp.Problem(cp.Minimize(value)).solve(solver="CLARABEL")
    solution = solve(
        X, y, rho=0.3, l2=0.02, loss="multinomial", tol=1e-9, max_iter=1000,
        reference_losses=reference,
    )  # fmt: skip
    assert solution.value == pytest.approx(best, abs=1e-6)
