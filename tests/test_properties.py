"""Properties of the worst case that hold for every divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import (
    ALL,
    BALLS,
    CUSTOM_BENT,
    FAST,
    bases,
    losses,
    name,
    normalised,
    problems,
    radii,
    seeds,
    worst_case,
)

thorough = settings(
    max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
quick = settings(thorough, max_examples=250)


def spread_of(z, base) -> float:
    z = z[normalised(base, z.size) > 0.0]
    return float(z.max() - z.min())


def assert_optimal(z, base, rho, divergence) -> None:
    wc = worst_case(z, rho=rho, divergence=divergence, sample_weight=base)
    b, p = normalised(base, z.size), wc.weights
    spread = spread_of(z, base)
    assert p.dtype == np.float64
    assert (p >= 0.0).all()
    assert (p[b == 0.0] == 0.0).all()
    assert abs(p.sum() - 1.0) <= 1e-12
    assert wc.achieved <= rho * (1.0 + 1e-9) + 1e-14
    assert 0.0 <= wc.gap <= 1e-10 * max(1.0, spread)
    assert wc.gap <= 1e-9 * spread  # also where the losses are tiny
    assert wc.value == pytest.approx(p @ z, abs=1e-11 * np.abs(z).max(), rel=0.0)
    # The divergence it reports is that of the weights.
    assert divergence.between(p, b) == pytest.approx(wc.achieved, rel=1e-9, abs=3e-14)
    assert z[b > 0.0].min() <= wc.value <= z[b > 0.0].max() or spread == 0.0


@thorough
@given(problems(FAST))
def test_feasible_and_certified(problem):
    assert_optimal(*problem)


@settings(quick, max_examples=60)
@given(problems([CUSTOM_BENT], max_size=60))
def test_feasible_and_certified_with_straight_pieces(problem):
    assert_optimal(*problem)


@settings(quick, max_examples=60)
@given(problems(FAST, max_size=100_000))
def test_feasible_and_certified_for_many_losses(problem):
    assert_optimal(*problem)


@quick
@given(problems(FAST), seeds)
def test_order_of_the_losses_does_not_matter(problem, seed):
    z, base, rho, divergence = problem
    order = np.random.default_rng(seed).permutation(z.size)
    here = worst_case(z, rho, divergence, base)
    there = worst_case(z[order], rho, divergence, None if base is None else base[order])
    assert there.value == pytest.approx(here.value, abs=1e-10 * spread_of(z, base), rel=1e-13)


@quick
@given(problems(FAST), st.sampled_from([1.0, -3.0, 1e6, -1e6]))
def test_adding_a_constant_moves_the_value_and_not_the_weights(problem, constant):
    z, base, rho, divergence = problem
    spread = spread_of(z, base)
    constant *= spread
    here = worst_case(z, rho, divergence, base)
    there = worst_case(z + constant, rho, divergence, base)
    lost = np.abs(z).max() + abs(constant)  # digits that z + constant cannot hold
    assert there.value - constant == pytest.approx(here.value, abs=1e-10 * spread + 1e-15 * lost)


@quick
@given(problems(FAST), st.integers(-498, 498))
def test_scaling_by_a_power_of_two_changes_no_bit_of_the_weights(problem, exponent):
    z, base, rho, divergence = problem
    size = np.abs(z).max()
    if size > 0.0 and not 1e-150 < size < 1e150:
        z = z / size
    here = worst_case(z, rho, divergence, base)
    there = worst_case(np.ldexp(z, exponent), rho, divergence, base)
    assert np.array_equal(there.weights, here.weights)
    assert there.value == np.ldexp(here.value, exponent)
    assert there.alpha == np.ldexp(here.alpha, exponent)


@quick
@given(problems([d for d in BALLS if d is not CUSTOM_BENT]), radii)
def test_monotone_in_the_radius(problem, other):
    z, base, rho, divergence = problem
    small, large = sorted((rho, other))
    low = worst_case(z, small, divergence, base)
    high = worst_case(z, large, divergence, base)
    spread = spread_of(z, base)
    assert low.value <= high.value + 1e-10 * spread
    # R is concave in ρ, so it rises by at most α per unit of ρ.
    if math.isfinite(low.alpha):
        assert high.value <= low.value + low.alpha * (large - small) + 1e-9 * spread


@quick
@given(problems(BALLS))
def test_radius_zero_is_the_average(problem):
    z, base, _, divergence = problem
    wc = worst_case(z, 0.0, divergence, base)
    b = normalised(base, z.size)
    np.testing.assert_allclose(wc.weights, b, rtol=1e-14)
    assert wc.value == pytest.approx(b @ z, abs=1e-13 * np.abs(z).max())
    assert wc.achieved == 0.0
    assert wc.gap == 0.0


@quick
@given(problems(BALLS))
def test_beyond_the_largest_divergence_all_weight_is_on_the_largest_loss(problem):
    z, base, _, divergence = problem
    b = normalised(base, z.size)
    top = (z == z[b > 0.0].max()) & (b > 0.0)
    largest = divergence.maximum(min(b[top].sum(), 1.0))
    wc = worst_case(z, largest * (1.0 + 1e-9) + 1e-12, divergence, base)
    expected = np.where(top, b, 0.0) / b[top].sum()
    np.testing.assert_allclose(wc.weights, expected, rtol=1e-12)
    assert wc.value == z[top][0]
    assert wc.gap == 0.0
    assert wc.alpha == 0.0 or math.isinf(largest)


@quick
@given(problems(FAST), seeds)
def test_repeating_a_row_and_doubling_its_weight_are_the_same(problem, seed):
    z, base, rho, divergence = problem
    base = np.ones(z.size) if base is None else base
    i = int(np.random.default_rng(seed).integers(z.size))
    heavier = base.copy()
    heavier[i] *= 2.0
    once = worst_case(z, rho, divergence, heavier)
    twice = worst_case(np.append(z, z[i]), rho, divergence, np.append(base, base[i]))
    spread = spread_of(z, base)
    assert twice.value == pytest.approx(once.value, abs=1e-10 * spread, rel=1e-13)
    if divergence.strictly_convex and spread > 0.0 and base.min() > 1e-6:
        merged = twice.weights[:-1].copy()
        merged[i] += twice.weights[-1]
        # Two feasible points of nearly the same value are close by strict convexity.
        np.testing.assert_allclose(merged, once.weights, atol=1e-5)


@quick
@given(losses(), radii, st.sampled_from(FAST), st.data())
def test_rows_of_weight_zero_change_nothing(z, rho, divergence, data):
    extra = data.draw(losses(20))
    padded = np.concatenate([extra, z])
    base = np.concatenate([np.zeros(extra.size), np.ones(z.size)])
    here = worst_case(z, rho, divergence)
    there = worst_case(padded, rho, divergence, base)
    assert there.value == pytest.approx(here.value, abs=1e-10 * spread_of(z, None), rel=1e-13)
    assert (there.weights[: extra.size] == 0.0).all()


@pytest.mark.parametrize("divergence", ALL, ids=name)
@pytest.mark.parametrize("rho", [1e-8, 0.1, 1.0, 1e3])
class TestKnownAnswers:
    """Single cases with known answers."""

    def test_one_loss(self, divergence, rho):
        wc = worst_case([3.5], rho, divergence)
        assert wc.weights.tolist() == [1.0]
        assert (wc.value, wc.achieved, wc.gap) == (3.5, 0.0, 0.0)

    def test_equal_losses(self, divergence, rho):
        wc = worst_case(np.full(7, -2.0), rho, divergence, sample_weight=[1, 2, 3, 4, 5, 6, 7])
        np.testing.assert_allclose(wc.weights, np.arange(1, 8) / 28.0, rtol=1e-15)
        assert (wc.value, wc.achieved, wc.gap) == (-2.0, 0.0, 0.0)

    def test_two_points(self, divergence, rho):
        """On two points the ball is an interval; bisection finds its end."""
        wc = worst_case([0.0, 1.0], rho, divergence, sample_weight=[3.0, 1.0])
        low, high = 0.25, 1.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            inside = divergence.between([1.0 - middle, middle], [0.75, 0.25]) <= rho
            low, high = (middle, high) if inside else (low, middle)
        if divergence.between([0.0, 1.0], [0.75, 0.25]) <= rho:
            low = 1.0
        assert wc.weights[1] == pytest.approx(low, abs=1e-7)

    def test_huge_and_subnormal(self, divergence, rho):
        z = np.array([0.0, 0.25, 1.0, 0.5])
        expected = worst_case(z, rho, divergence)
        for factor in (2.0**1023, 2.0**-1060):
            wc = worst_case(z * factor, rho, divergence)
            np.testing.assert_allclose(wc.weights, expected.weights, rtol=1e-9, atol=1e-12)
            assert wc.value == pytest.approx(expected.value * factor, rel=1e-9)
        ends = worst_case([-1.7e308, 1.7e308, 0.0], rho, divergence)
        assert math.isfinite(ends.value)
        assert ends.weights.sum() == pytest.approx(1.0, abs=1e-12)

    def test_other_types_and_layouts(self, divergence, rho):
        z = np.array([3, 1, 4, 1, 5, 9, 2, 6])
        expected = worst_case(z.astype(float), rho, divergence)
        frozen = z.astype(float)
        frozen.flags.writeable = False
        strided = np.repeat(z.astype(float), 3)[::3]
        reversed_twice = z.astype(float)[::-1].copy()[::-1]
        forms = [z, z.tolist(), z.astype(np.float32), z.astype(np.int8), frozen, strided]
        for form in [*forms, reversed_twice, z.astype(">f8"), z.astype(object)]:
            wc = worst_case(form, rho, divergence)
            assert np.array_equal(wc.weights, expected.weights)
        booleans = worst_case(z > 2, rho, divergence)
        assert np.array_equal(booleans.weights, worst_case((z > 2) * 1.0, rho, divergence).weights)


def test_losses_are_not_written_to():
    z = np.random.default_rng(0).standard_normal(50_000)
    before = z.copy()
    for divergence in FAST:
        worst_case(z, 0.1, divergence)
        assert np.array_equal(z, before)


@pytest.mark.parametrize("divergence", FAST, ids=name)
@given(st.data())
@settings(max_examples=3, deadline=None, derandomize=True)
def test_threads_change_no_bit(divergence, data):
    rng = np.random.default_rng(data.draw(seeds))
    z = np.logaddexp(0.0, rng.standard_normal(140_000))
    base = data.draw(bases(z.size))
    rho = data.draw(st.sampled_from([0.01, 0.1, 3.0]))
    alone = worst_case(z, rho, divergence, base)
    for n_jobs in (2, 3, -1):
        together = worst_case(z, rho, divergence, base, n_jobs=n_jobs)
        assert np.array_equal(together.weights, alone.weights)
        assert together.value == alone.value
        assert together.gap == alone.gap
