"""The smoothed worst case: bounds, feasibility, first and second derivatives."""

import numpy as np
import pytest

from drolearn import CVaR
from drolearn._inner.smoothing import can_smooth, smoothed
from drolearn.divergence import as_divergence
from tests.examples import ALL, CUSTOM_BENT, normalised, worst_case


@pytest.fixture(params=[each for each in ALL if can_smooth(each)], ids=repr)
def divergence(request):
    return request.param


@pytest.fixture(params=["equal", "weighted"])
def base(request):
    b = np.random.default_rng(5).random(12)
    b[3] = 0.0
    return None if request.param == "equal" else b


def psi(divergence, p, b):
    """The smoothing term: the divergence itself, or χ² where it has straight pieces."""
    if divergence.strictly_convex:
        return divergence.between(p, b)
    p, b = p[b > 0], b[b > 0]
    return float(np.sum((p - b) ** 2 / b))


@pytest.mark.parametrize("epsilon", [1.0, 1e-2, 1e-6])
@pytest.mark.parametrize("rho", [0.05, 0.4])
def test_value_and_feasibility(divergence, base, rho, epsilon):
    z = np.random.default_rng(0).standard_normal(12)
    b = normalised(base, 12)
    sharp = worst_case(z, rho, divergence, base)
    smooth, _ = smoothed(z, rho, divergence, base, epsilon)
    p = smooth.weights
    assert p.min() >= 0.0
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(p[b == 0] == 0.0)
    if divergence.name != "cvar":
        assert divergence.between(p, b) <= rho + 1e-9
    assert smooth.value == pytest.approx(p @ z - epsilon * psi(divergence, p, b), abs=1e-9)
    assert smooth.value <= sharp.value + 1e-9
    # No other weights in the ball do better: not the sharp ones, not the base, not their mean.
    for q in (sharp.weights, b, 0.5 * b + 0.5 * sharp.weights):
        assert smooth.value >= q @ z - epsilon * psi(divergence, q, b) - 1e-9


def test_weights_do_not_jump_at_ties(divergence, base):
    """At equal losses the weights of `worst_case` jump; the smoothed ones do not."""
    z = np.ones(12)
    b = normalised(base, 12)
    np.testing.assert_allclose(smoothed(z, 0.3, divergence, base, 0.1)[0].weights, b, atol=1e-9)
    nudge = 1e-6 * np.random.default_rng(0).standard_normal(12)
    near = smoothed(z + nudge, 0.3, divergence, base, 0.1)[0].weights
    np.testing.assert_allclose(near, b, atol=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 0.05])
def test_derivatives(divergence, base, epsilon):
    rng = np.random.default_rng(1)
    z, step = rng.standard_normal(12), 1e-6
    smooth, bend = smoothed(z, 0.3, divergence, base, epsilon)
    slope, jacobian = np.empty(12), np.empty((12, 12))
    for n in range(12):
        e = step * (np.arange(12) == n)
        up, down = (smoothed(z + s * e, 0.3, divergence, base, epsilon)[0] for s in (1, -1))
        slope[n] = (up.value - down.value) / (2 * step)
        jacobian[:, n] = (up.weights - down.weights) / (2 * step)
    np.testing.assert_allclose(slope, smooth.weights, atol=1e-6)
    hessian = np.diag(bend.v) - bend.columns @ bend.inner @ bend.columns.T
    np.testing.assert_allclose(hessian, jacobian, atol=1e-4 * max(1.0, abs(jacobian).max()))


def test_a_ball_that_holds_all_weights():
    z = np.array([0.0, 1.0, 1.0 + 1e-9])
    p = smoothed(z, 1e6, as_divergence("chi2"), None, 1e-3)[0].weights
    np.testing.assert_allclose(p, [0.0, 0.5, 0.5], atol=1e-5)


def test_what_cannot_be_smoothed():
    assert not can_smooth(CUSTOM_BENT)
    assert can_smooth(CVaR(0.5))
