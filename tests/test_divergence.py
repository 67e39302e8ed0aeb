"""Divergences: φ and its constants, equality, pickling, names, custom ones, errors."""

from __future__ import annotations

import math
import pickle

import cloudpickle
import numpy as np
import pytest

from drolearn import (
    KL,
    ChiSquare,
    CressieRead,
    CVaR,
    Divergence,
    ReverseKL,
    _core,
    worst_case,
)
from drolearn.divergence import as_divergence
from tests.examples import ALL, BALLS, CUSTOM_BENT, CUSTOM_BURG, CUSTOM_KL, kl, name, radius_of

GRID = np.exp(np.linspace(-8.0, 8.0, 201))


def half_distance(s):
    """φ of total variation."""
    return 0.5 * abs(s - 1.0)


def half_distance_slope(s):
    return np.where(s > 1.0, 0.5, -0.5)


def half_distance_inverse(t):
    return np.where(t < -0.5, 0.0, np.where(t <= 0.5, 1.0, math.inf))


@pytest.mark.parametrize("divergence", BALLS, ids=name)
def test_constants_agree_with_phi(divergence):
    assert divergence.phi(1.0) == 0.0
    assert (divergence.phi(GRID) >= -1e-15).all()
    near_zero, near_infinity = 1e-150, 1e150
    if math.isfinite(divergence.phi_zero):
        assert float(divergence.phi(near_zero)) == pytest.approx(divergence.phi_zero, abs=1e-3)
    else:
        assert divergence.phi(near_zero) > 10.0
    if math.isfinite(divergence.slope_infinity):
        slope = divergence.phi(near_infinity) / near_infinity
        assert slope == pytest.approx(divergence.slope_infinity, rel=1e-2)
    if divergence.strictly_convex:
        h = 1e-4
        bend = (divergence.phi(1.0 + h) + divergence.phi(1.0 - h)) / h**2
        assert bend == pytest.approx(divergence.curvature, rel=1e-3)


@pytest.mark.parametrize("divergence", ALL, ids=name)
def test_compiled_phi_equals_phi(divergence):
    for s in GRID[(GRID < 1.9) | (divergence not in ALL[-2:])]:
        compiled = divergence.core.phi(s)
        assert compiled == pytest.approx(float(divergence.phi(s)), rel=1e-13, abs=1e-15)
    assert divergence.core.phi(0.0) == divergence.phi_zero


@pytest.mark.parametrize("k", [0.0, 1.0])
def test_cressie_read_contains_its_limits(k):
    z = np.random.default_rng(0).standard_normal(100)
    limit = worst_case(z, 0.3, KL() if k else ReverseKL())
    assert np.array_equal(worst_case(z, 0.3, CressieRead(k)).weights, limit.weights)
    for step in (1e-7, -1e-7):
        close = worst_case(z, 0.3, CressieRead(k + step))
        np.testing.assert_allclose(close.weights, limit.weights, rtol=1e-4)


def test_cressie_read_two_is_half_of_chi_square():
    """The general solver and that of χ² share no formula."""
    rng = np.random.default_rng(0)
    for rho in (1e-4, 0.1, 3.0):
        for size in (5, 1000, 60_000):
            z = rng.exponential(size=size)
            one, other = worst_case(z, rho, CressieRead(2)), worst_case(z, 2.0 * rho, ChiSquare())
            np.testing.assert_allclose(one.weights, other.weights, rtol=1e-8, atol=1e-15)
            assert one.value == pytest.approx(other.value, rel=1e-13)


def power_weights(z, rho, k):
    """Worst-case weights of a Cressie-Read ball by bisection, from the definitions alone.

    They are proportional to a power of the distance c + d (k > 1) or c − d (k < 1), where d is the
    loss minus the largest loss, and their divergence falls as c grows.
    """
    d = z - z.max()

    def weights(c):
        distance = np.maximum(c + d, 0.0) if k > 1.0 else c - d
        # divided by the largest one: powers of small distances overflow
        ratio = distance / (distance.max() if k > 1.0 else distance.min())
        s = np.where(ratio > 0.0, ratio, 0.0) ** (1.0 / (k - 1.0))
        return s / s.sum()

    def divergence(c):
        return (np.mean((z.size * weights(c)) ** k) - 1.0) / (k * (k - 1.0))

    low, high = 1e-100, 1e10
    for _ in range(200):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if divergence(middle) > rho else (low, middle)
    return weights(high)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("k", [-8.0, -3.0, -1.0, 0.3, 0.7, 0.8, 1.3, 4.0, 6.0, 8.0, 12.0, 30.0])
def test_cressie_read_powers(k, rho):
    """A few sweeps for every power: none needs a bisection inside a bisection."""
    z = np.random.default_rng(0).exponential(size=10_000)
    divergence, weights = CressieRead(k), np.empty(z.size)
    answer = _core.solve(divergence.core, rho, z, None, weights)
    status, value, achieved, _, _, gap, sweeps = answer
    assert status == _core.OK
    assert sweeps <= 80
    assert achieved == pytest.approx(rho, rel=1e-9)
    assert divergence.between(weights, np.full(z.size, 1e-4)) == pytest.approx(rho, rel=1e-9)
    # Other weights in the ball have no larger mean.  For k = 30, the weight of one loss can jump
    # where c changes in its last bit, and the bisection then ends inside the ball.
    found = float(power_weights(z, rho, k) @ z)
    assert found - 1e-12 * abs(found) <= value + gap
    assert gap <= 1e-8
    assert k == 30.0 or value == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("k", [9.0, 20.0, 45.0, 100.0])
def test_large_powers_of_few_losses(k):
    """The threshold lies at a loss whose weight no multiplier in float64 can tell from zero."""
    rng = np.random.default_rng(7)
    divergence = CressieRead(k)
    for _ in range(150):
        n = int(rng.choice([2, 3, 5, 17, 60]))
        z = rng.standard_normal(n) if rng.random() < 0.5 else rng.integers(0, 3, n).astype(float)
        b = rng.random(n) + 0.01
        b /= b.sum()
        rho = float(10.0 ** rng.uniform(-4.0, 3.0))
        wc = worst_case(z, rho, divergence, b)
        assert wc.gap <= 1e-9 * np.ptp(z)
        assert divergence.between(wc.weights, b) <= rho * (1.0 + 1e-9)
        assert float(wc.weights @ z) == pytest.approx(wc.value, abs=1e-10)
        if 0.0 < wc.alpha < math.inf:  # its bound, from the multipliers: λ + αρ + α Σ b φ*
            t = np.maximum(1.0 + (k - 1.0) * (z - wc.lam) / wc.alpha, 0.0)
            conjugate = (t ** (k / (k - 1.0)) - 1.0) / k
            bound = wc.lam + wc.alpha * (rho + float(b @ conjugate))
            assert bound == pytest.approx(wc.value, abs=1e-6)


def test_custom_equals_built_in():
    z = np.random.default_rng(3).exponential(size=2000)
    for rho in (1e-6, 0.05, 2.0):
        for custom, built_in in ((CUSTOM_KL, "kl"), (CUSTOM_BURG, "reverse-kl")):
            one, other = worst_case(z, rho, custom), worst_case(z, rho, built_in)
            np.testing.assert_allclose(one.weights, other.weights, rtol=1e-7, atol=1e-18)


def test_custom_phi_needs_no_normalisation():
    """s log s is φ of KL plus s − 1, and Σ b (s − 1) = 0 for all weights."""
    plain = Divergence.custom(
        lambda s: s * np.log(s),
        lambda s: np.log(s) + 1.0,
        lambda t: np.exp(t - 1.0),
        phi_zero=0.0,
    )
    z = np.random.default_rng(4).standard_normal(50)
    one, other = worst_case(z, 0.2, plain), worst_case(z, 0.2, "kl")
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-9)
    np.testing.assert_allclose(
        one.weights, np.exp((z - one.lam) / one.alpha - 1.0) / 50.0, rtol=1e-9
    )


def test_custom_of_straight_pieces_equals_total_variation():
    straight = Divergence.custom(
        half_distance, half_distance_slope, half_distance_inverse,
        slope_infinity=0.5, strictly_convex=False,
    )  # fmt: skip
    z = np.random.default_rng(5).standard_normal(40)
    for rho in (0.01, 0.3, 0.9):
        one, other = worst_case(z, rho, straight), worst_case(z, rho, "total-variation")
        assert one.achieved <= rho * (1.0 + 1e-9)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-14)


class TestMethods:
    def test_between(self):
        with pytest.raises(ValueError, match=r"'p' and 'base' must be vectors of one length"):
            ChiSquare().between([1.0, 1.0, 1.0], [0.5, 0.5])
        assert ChiSquare().between([0.5, 0.5], [1.0, 0.0]) == math.inf

    def test_maximum(self):
        with pytest.raises(ValueError, match=r"'peak' parameter must lie above 0"):
            ChiSquare().maximum(0.0)

    def test_phi_of_negative_numbers(self):
        for divergence in ("chi2", "kl", "reverse-kl", "hellinger", "total-variation", "cvar"):
            assert as_divergence(divergence).phi(-1.0) == math.inf


def test_equality_and_pickling():
    assert ChiSquare() == ChiSquare()
    assert CVaR(0.1) != CVaR(0.2)
    assert len({KL(), KL(), CressieRead(3)}) == 2
    z = np.arange(5.0)
    for divergence in ALL:
        copy = pickle.loads(pickle.dumps(divergence))
        assert copy == divergence
        again = worst_case(z, radius_of(copy, 0.1), copy)
        expected = worst_case(z, radius_of(divergence, 0.1), divergence)
        assert np.array_equal(again.weights, expected.weights)
    local = Divergence.custom(lambda s: (s - 1) ** 2, lambda s: 2 * (s - 1), lambda t: 1 + t / 2)
    copy = cloudpickle.loads(cloudpickle.dumps(local))
    assert worst_case(z, 0.1, copy).value == pytest.approx(worst_case(z, 0.1).value, rel=1e-12)
    assert repr(local) == "Divergence.custom(name='custom')"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("tv", "total-variation"),
        ("chi", "chi2"),
        ("KL", "kl"),
        ("hellinge", "hellinger"),
        ("total_variation", "total-variation"),
    ],
)
def test_a_name_close_to_one_is_suggested(given, meant):
    with pytest.raises(ValueError, match=rf"Got '{given}' instead\. Did you mean '{meant}'\?"):
        worst_case([1.0, 2.0], divergence=given)


@pytest.mark.parametrize("given", ["wasserstein", "", 3, None, ChiSquare])
def test_other_names_are_refused(given):
    with pytest.raises(ValueError, match=r"'divergence' parameter must be one of 'chi2', 'kl'"):
        as_divergence(given)


@pytest.mark.parametrize("level", [0.0, -0.1, 1.5, math.nan, "0.1", None, True])
def test_levels_that_cvar_refuses(level):
    with pytest.raises(ValueError, match=r"'level' parameter of CVaR must be .* Got"):
        CVaR(level)


@pytest.mark.parametrize("k", [math.nan, math.inf, 101, "2", None])
def test_orders_that_cressie_read_refuses(k):
    with pytest.raises(ValueError, match=r"'k' parameter of CressieRead must be .* Got"):
        CressieRead(k)


class TestCustomRefuses:
    """Errors name the condition that φ breaks, and the point where it does."""

    def test_not_zero_at_one(self):
        with pytest.raises(ValueError, match=r"phi\(1\) must be 0\. Got phi\(1\) = 1\.0 instead"):
            Divergence.custom(lambda s: s * s, lambda s: 2 * s, lambda t: t / 2)

    def test_not_convex(self):
        with pytest.raises(ValueError, match=r"phi must be convex\. It is not at s = [0-9.e+-]+"):
            Divergence.custom(
                lambda s: np.sqrt(s) - 1.0, lambda s: 0.5 / np.sqrt(s), lambda t: 0.25 / t**2
            )

    def test_convex_only_in_parts(self):
        with pytest.raises(ValueError, match=r"convex\. It is not at s = [0-9.e+-]+"):
            Divergence.custom(
                lambda s: np.where(s < 5, (s - 1) ** 2, 16.0),
                lambda s: np.where(s < 5, 2 * (s - 1), 0.0),
                lambda t: 1 + t / 2,
            )

    def test_nan(self):
        with pytest.raises(
            ValueError, match=r"phi must be finite for every s > 0\. It is nan at s = "
        ):
            Divergence.custom(
                lambda s: np.where((s > 0.1) & (s < 0.2), math.nan, (s - 1) ** 2),
                lambda s: 2 * (s - 1),
                lambda t: 1 + t / 2,
            )

    def test_wrong_derivative(self):
        with pytest.raises(ValueError, match=r"dphi must be the derivative of phi\. At s = "):
            Divergence.custom(lambda s: (s - 1) ** 2, lambda s: s - 1, lambda t: 1 + t)

    def test_wrong_inverse(self):
        with pytest.raises(ValueError, match=r"dphi_inverse must undo dphi\. At s = "):
            Divergence.custom(lambda s: (s - 1) ** 2, lambda s: 2 * (s - 1), lambda t: 1 + t)

    def test_infinite(self):
        with pytest.raises(ValueError, match=r"phi must be finite .* inf at s = .* use CVaR"):
            Divergence.custom(
                lambda s: np.where(s < 1.5, (s - 1) ** 2, math.inf),
                lambda s: 2 * (s - 1),
                lambda t: 1 + t / 2,
            )

    def test_flat_around_one(self):
        with pytest.raises(ValueError, match=r"phi must be curved, or have a corner, at 1"):
            Divergence.custom(
                lambda s: np.maximum(0.0, abs(s - 1.0) - 0.1),
                lambda s: np.where(s < 0.9, -1.0, np.where(s > 1.1, 1.0, 0.0)),
                lambda t: np.select([t < -1.0, t < 0.0, t <= 1.0], [0.0, 0.9, 1.1], math.inf),
                strictly_convex=False,
            )

    def test_inverse_that_is_wrong_where_there_is_no_slope(self):
        with pytest.raises(ValueError, match=r"the s that minimises phi\(s\) - t\*s\. At t = "):
            Divergence.custom(
                half_distance, half_distance_slope, lambda t: 1.0, strictly_convex=False
            )

    def test_straight_pieces_not_declared(self):
        with pytest.raises(ValueError, match=r"pass strictly_convex=False"):
            Divergence.custom(half_distance, half_distance_slope, half_distance_inverse)

    @pytest.mark.parametrize("phi_zero", [0.2, math.inf])
    def test_wrong_value_at_zero(self, phi_zero):
        with pytest.raises(ValueError, match=r"'phi_zero' parameter must be the limit"):
            Divergence.custom(
                lambda s: (s - 1) ** 2,
                lambda s: 2 * (s - 1),
                lambda t: 1 + t / 2,
                phi_zero=phi_zero,
            )

    def test_wrong_slope_at_infinity(self):
        with pytest.raises(ValueError, match=r"'slope_infinity' parameter must be the limit"):
            Divergence.custom(
                lambda s: s - 1 - np.log(s),
                lambda s: 1 - 1 / s,
                lambda t: 1 / (1 - t),
                slope_infinity=5.0,
            )

    def test_no_value_at_zero(self):
        with pytest.raises(ValueError, match=r"phi\(0\.0\) is nan, so 'phi_zero'"):
            Divergence.custom(kl, np.log, np.exp)

    @pytest.mark.parametrize(
        "phi", [lambda s: math.log(s) - s + 1, lambda s: 0.0 if s == 1 else (s - 1) ** 2]
    )
    def test_a_function_of_single_numbers(self, phi):
        with pytest.raises(
            ValueError, match=r"'phi' parameter must be a function of an array.* write np\.log"
        ):
            Divergence.custom(phi, lambda s: 2 * (s - 1), lambda t: 1 + t / 2)

    def test_an_exception_of_phi_is_raised_as_it_is(self):
        with pytest.raises(KeyError, match="mine"):
            Divergence.custom(lambda s: {}["mine"], lambda s: 2 * (s - 1), lambda t: 1 + t / 2)

    def test_a_result_of_another_length(self):
        with pytest.raises(ValueError, match=r"'phi' parameter must return one number for each"):
            Divergence.custom(lambda s: s[:2], lambda s: 2 * (s - 1), lambda t: 1 + t / 2)

    def test_not_a_function(self):
        with pytest.raises(ValueError, match=r"'dphi' parameter must be a function of an array"):
            Divergence.custom(lambda s: (s - 1) ** 2, 3.0, lambda t: 1 + t / 2)  # type: ignore[arg-type]


def test_bent_example_has_straight_pieces():
    assert not CUSTOM_BENT.strictly_convex
    np.testing.assert_allclose(CUSTOM_BENT.phi([0.0, 0.5, 1.0, 2.0, 3.0]), [0.75, 0.25, 0, 1, 3])
