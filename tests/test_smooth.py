"""The worst case without corners: bounds, feasibility, first and second derivatives."""

import numpy as np
import pytest

from drolearn import CVaR, worst_case
from drolearn._inner.smoothing import can_smooth, smoothed
from drolearn.divergence import as_divergence
from tests.examples import ALL, CUSTOM_BENT


@pytest.fixture(params=[kind for kind in ALL if can_smooth(kind)], ids=repr)
def kind(request):
    return request.param


@pytest.fixture(params=["equal", "weighted"])
def base(request):
    b = np.random.default_rng(5).random(12)
    b[3] = 0.0
    return None if request.param == "equal" else b


def _psi(kind, p, b):
    if kind.strictly_convex:
        return kind.between(p, b)
    held = b > 0
    return float(np.sum((p[held] - b[held]) ** 2 / b[held]))


@pytest.mark.parametrize("epsilon", [1.0, 1e-2, 1e-6])
@pytest.mark.parametrize("rho", [0.05, 0.4])
def test_bounds(kind, base, rho, epsilon):
    z = np.random.default_rng(0).standard_normal(12)
    b = np.full(12, 1 / 12) if base is None else base / base.sum()
    sharp = worst_case(z, rho, kind, base)
    smooth, _ = smoothed(z, rho, kind, base, epsilon)
    p = smooth.weights
    assert p.min() >= 0.0
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(p[b == 0] == 0.0)
    if kind.name != "cvar":
        assert kind.between(p, b) <= rho + 1e-9
    assert smooth.value == pytest.approx(p @ z - epsilon * _psi(kind, p, b), abs=1e-9)
    assert smooth.value <= sharp.value + 1e-9
    # No other weights in the ball do better, such as the sharp ones and the base.
    for q in (sharp.weights, b, 0.5 * b + 0.5 * sharp.weights):
        assert smooth.value >= q @ z - epsilon * _psi(kind, q, b) - 1e-9


def test_ties_are_smooth(kind, base):
    """At equal losses the sharp weights jump; these do not."""
    z = np.ones(12)
    b = np.full(12, 1 / 12) if base is None else base / base.sum()
    np.testing.assert_allclose(smoothed(z, 0.3, kind, base, 0.1)[0].weights, b, atol=1e-9)
    nudge = 1e-6 * np.random.default_rng(0).standard_normal(12)
    near = smoothed(z + nudge, 0.3, kind, base, 0.1)[0].weights
    np.testing.assert_allclose(near, b, atol=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 0.05])
def test_derivatives(kind, base, epsilon):
    rng = np.random.default_rng(1)
    z, step = rng.standard_normal(12), 1e-6
    smooth, bend = smoothed(z, 0.3, kind, base, epsilon)
    slope, jacobian = np.empty(12), np.empty((12, 12))
    for n in range(12):
        e = step * (np.arange(12) == n)
        up, down = (smoothed(z + s * e, 0.3, kind, base, epsilon)[0] for s in (1, -1))
        slope[n] = (up.value - down.value) / (2 * step)
        jacobian[:, n] = (up.weights - down.weights) / (2 * step)
    np.testing.assert_allclose(slope, smooth.weights, atol=1e-6)
    found = np.diag(bend.v) - bend.columns @ bend.inner @ bend.columns.T
    np.testing.assert_allclose(found, jacobian, atol=1e-4 * max(1.0, abs(jacobian).max()))


def test_a_ball_of_all_weights_is_smooth_too():
    z = np.array([0.0, 1.0, 1.0 + 1e-9])
    p = smoothed(z, 1e6, as_divergence("chi2"), None, 1e-3)[0].weights
    np.testing.assert_allclose(p, [0.0, 0.5, 0.5], atol=1e-5)


def test_what_cannot_be_smoothed():
    assert not can_smooth(CUSTOM_BENT)
    assert can_smooth(CVaR(0.5))
