"""Worst cases of many radii, and confidence intervals of robust losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, genpareto, t

from drolearn import CVaR, mean_upper_bound, worst_case
from drolearn.divergence import NAMES, as_divergence
from drolearn.stress.balls import as_balls, ball_of_share
from drolearn.stress.bootstrap import Population, quantiles
from drolearn.stress.intervals import as_sample, intervals
from drolearn.stress.worst_cases import Sample, influence, solve_ball, worst_cases
from tests.examples import seeds

CHI2 = as_divergence("chi2")
RADII = [name for name in NAMES if name != "cvar"]


@st.composite
def samples(draw, most=60):
    """Losses, with ties and outliers among them, and weights of rows or None."""
    rng = np.random.default_rng(draw(seeds))
    n = draw(st.integers(3, most))
    kinds = [rng.exponential(size=n), rng.standard_cauchy(n), rng.integers(0, 4, n) / 3.0]
    z = draw(st.sampled_from(kinds)) * 10.0 ** draw(st.integers(-3, 3)) + draw(st.integers(-5, 5))
    z[0] = z.max() + 1.0  # not all equal
    return Sample(z, rng.random(n) + 0.1 if draw(st.booleans()) else None)


def ends(sample, rhos, level=0.95, divergence=CHI2):
    if isinstance(divergence, CVaR):
        balls = [ball_of_share(divergence, 1.0 / (1.0 + rho)) for rho in rhos]
    else:
        balls = as_balls(divergence, rhos)
    found = worst_cases(sample, balls)
    return found, intervals(sample, balls, found, level, np.random.default_rng(0))


# -- worst cases ---------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(sample=samples(), wrong_seed=seeds)
def test_all_radii_of_chi2_from_one_sort_are_those_of_worst_case(sample, wrong_seed):
    wrong = np.random.default_rng(wrong_seed).random(sample.z.size) < 0.5
    sample = Sample(sample.z, sample.weights, wrong)
    balls = as_balls(CHI2, [0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 3.0, 9.0, 99.0, math.inf])
    found, scale = worst_cases(sample, balls), np.ptp(sample.z)
    for k, ball in enumerate(balls):
        worst = worst_case(sample.z, ball.rho, sample_weight=sample.weights)
        assert found.value[k] == pytest.approx(worst.value, abs=1e-9 * scale)
        p = worst.weights
        tolerance = 1e-4 if ball.rho < 1e-8 else 1e-7  # the weights of ρ = 0 are used there
        assert found.squares[k] == pytest.approx(p @ p, rel=tolerance)
        assert found.wrong[k] == pytest.approx(p[wrong].sum(), abs=1e-5)
        if worst.alpha == 0.0:
            assert found.error[k] == 0.0
            continue
        b = sample.base
        psi = influence(worst, sample.z, b)
        error = math.sqrt(np.sum((b * psi) ** 2) / (1.0 - b @ b))
        assert found.error[k] == pytest.approx(error, rel=1e-3, abs=1e-6 * scale)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(sample=samples(most=20), rho=st.sampled_from([0.01, 0.1, 0.4]))
def test_influence_is_the_derivative_in_the_base_weights(name, sample, rho):
    ball = as_balls(as_divergence(name), [rho])[0] if name != "cvar" else ball_of_share(CVaR(), 0.4)
    b, z = sample.base, sample.z
    worst = solve_ball(ball, z, b)
    psi = influence(worst, z, b)
    assert b @ psi == pytest.approx(0.0, abs=1e-9 * np.ptp(z))
    # R is convex in neither, but its one-sided derivatives in b enclose ψ wherever it has a corner.
    h, k = 1e-6, int(np.argmin(z))
    moved = [solve_ball(ball, z, (1.0 - e) * b + e * np.eye(z.size)[k]).value for e in (h, -h)]
    slopes = sorted([(moved[0] - worst.value) / h, (worst.value - moved[1]) / h])
    slack = 1e-3 * np.ptp(z)
    assert slopes[0] - slack <= psi[k] <= slopes[1] + slack


@pytest.mark.parametrize("name", RADII)
def test_a_ball_holds_every_subset_of_its_share(name):
    divergence = as_divergence(name)
    if math.isinf(divergence.phi_zero):
        assert math.isnan(as_balls(divergence, [0.1])[0].share)
        return
    for share in (0.9, 0.5, 0.1):
        ball = ball_of_share(divergence, share)
        assert as_balls(divergence, [ball.rho])[0].share == pytest.approx(share)
        subset = (np.arange(10) < round(10 * share)) / round(10 * share)
        assert divergence.between(subset, np.full(10, 0.1)) == pytest.approx(ball.rho)


# -- intervals -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(sample=samples())
def test_intervals_contain_the_estimate_and_grow_with_the_level(sample):
    rhos = [0.0, 0.1, 1.0]
    found, narrow = ends(sample, rhos, 0.8)
    _, wide = ends(sample, rhos, 0.95)
    some = found.error > 0.0
    assert np.all(narrow.low[some] <= found.value[some])
    assert np.all(found.value[some] <= narrow.high[some])
    assert np.all(wide.low[some] <= narrow.low[some])
    assert np.all(narrow.high[some] <= wide.high[some])
    assert np.isnan(wide.low[~some]).all()
    assert all("no interval" in wide.note[k] for k in np.flatnonzero(~some))


@pytest.mark.parametrize("divergence", [CHI2, as_divergence("kl"), CVaR()])
@settings(max_examples=3, deadline=None)
@given(sample=samples(most=30), a=st.sampled_from([0.25, 8.0]), c=st.sampled_from([-3.0, 0.0, 2.0]))
def test_intervals_follow_a_change_of_units(divergence, sample, a, c):
    rhos = [0.0, 0.3]
    found, given = ends(sample, rhos, divergence=divergence)
    changed = Sample(a * sample.z + c, sample.weights)
    other, moved = ends(changed, rhos, divergence=divergence)
    scale = a * np.ptp(sample.z)
    for before, after in ((found.value, other.value), (given.low, moved.low)):
        finite = np.isfinite(before)
        np.testing.assert_allclose(after[finite], a * before[finite] + c, atol=1e-6 * scale)


@settings(max_examples=30, deadline=None)
@given(sample=samples())
def test_weights_are_relative_and_repeated_rows_give_narrower_intervals(sample):
    rhos = [0.0, 0.5]
    equal = Sample(sample.z)
    found, once = ends(equal, rhos)
    same, weighted = ends(Sample(sample.z, np.full(sample.z.size, 2.0)), rhos)
    np.testing.assert_allclose(same.value, found.value)
    np.testing.assert_allclose(same.error, found.error, rtol=1e-6)
    np.testing.assert_allclose(same.squares, found.squares)
    twice, _ = ends(Sample(np.repeat(sample.z, 2)), rhos)
    n = sample.z.size
    np.testing.assert_allclose(twice.value, found.value)
    np.testing.assert_allclose(
        twice.error, found.error * math.sqrt((n - 1) / (2 * n - 1)), rtol=1e-6
    )
    assert once.method == weighted.method == ["bootstrap-t" if e else "" for e in found.error]


def test_many_rows_of_light_tails_use_the_influence_function_alone():
    z = np.random.default_rng(0).random(5000)
    _, given = ends(Sample(z), [0.0, 1.0, 20.0])
    assert given.method == ["influence", "influence", "bootstrap-t"]
    width = t.ppf(0.975, 4999) * z.std(ddof=1) / math.sqrt(5000)
    np.testing.assert_allclose([given.low[0], given.high[0]], [z.mean() - width, z.mean() + width])
    assert "238 effective rows" in given.note[2]
    assert given.note[:2] == ["", ""]
    _, equal = ends(Sample(z, np.full(5000, 3.0)), [0.0, 1.0, 20.0])
    np.testing.assert_allclose(equal.high, given.high)


def test_skewed_losses_use_the_bootstrap_however_many_the_rows():
    z = np.random.default_rng(0).lognormal(size=30_000)
    found, given = ends(Sample(z), [0.0, 1.0])
    assert given.method == ["influence", "bootstrap-t"]
    assert given.high[1] > found.value[1] + t.ppf(0.975, 29_999) * found.error[1]
    weights = np.where(z > 1.0, 1.0, 1.001)  # too many rows that cannot be joined
    assert ends(Sample(z, weights), [1.0])[1].method == ["influence"]


@pytest.mark.parametrize("rows", [1000, 30_000])
@pytest.mark.parametrize("rho", [0.0, 99.0, 1e3, 1e5])
def test_a_single_radius_of_any_size_has_an_interval(rows, rho):
    z = np.random.default_rng(0).exponential(size=rows)
    found, given = ends(Sample(z), [rho])
    if found.error[0] > 0.0:
        assert given.low[0] < found.value[0] < given.high[0]
    else:
        assert "no interval" in given.note[0]


def test_heavy_tails_and_unbounded_balls_are_noted():
    z = np.append(np.linspace(0.0, 1.0, 1000), 200.0)
    assert "one row makes" in ends(Sample(z), [0.1])[1].note[0]
    bounded = ends(Sample(z[:-1]), [0.0, 0.001], divergence=as_divergence("reverse-kl"))[1]
    assert bounded.note == ["", "holds for bounded losses only"]


@pytest.mark.parametrize("rho", [0.0, 0.5, 9.0])
@pytest.mark.parametrize("wrong", [0, 3, 40])
def test_zero_one_losses_have_the_mapped_interval_of_clopper_and_pearson(rho, wrong):
    z = (np.arange(40) < wrong).astype(float)
    _, given = ends(as_sample(z, None), [rho])
    exact = binomtest(wrong, 40).proportion_ci(0.95, "exact")
    for end, rate in ((given.low[0], exact.low), (given.high[0], exact.high)):
        mapped = min(1.0, rate + math.sqrt(rho * rate * (1.0 - rate)))
        mapped = 1.0 if rate * (1.0 + rho) >= 1.0 and rho > 0.0 else mapped
        assert end == pytest.approx(mapped, abs=1e-9)
    assert given.method == ["binomial"]


def test_intervals_of_zero_one_losses_hold_exactly():
    """The coverage is a sum over all counts of errors, without simulation."""
    n, rate = 50, 0.1
    true = worst_case([0.0, 1.0], 1.0, sample_weight=[1.0 - rate, rate]).value
    inside = 0.0
    for wrong in range(n + 1):
        _, given = ends(Sample((np.arange(n) < wrong).astype(float), zero_one=True), [1.0])
        inside += binom.pmf(wrong, n, rate) * (given.low[0] <= true <= given.high[0])
    assert 0.95 <= inside < 0.99


def test_intervals_of_a_skewed_mean_hold_more_often_than_those_of_student():
    rng = np.random.default_rng(0)
    hits = np.zeros(2)
    for _ in range(150):
        z = rng.exponential(size=30)
        found, given = ends(Sample(z), [0.5])
        true = 1.0 + math.sqrt(0.5)
        width = t.ppf(0.975, 29) * found.error[0]
        hits += [given.low[0] <= true <= given.high[0], abs(found.value[0] - true) <= width]
    assert hits[0] / 150 > 0.87
    assert hits[0] > hits[1]


def test_one_row_and_equal_losses():
    _, one = ends(Sample(np.array([0.3])), [0.0, 1.0])
    assert np.isnan(one.low).all()
    assert one.note == ["one row", "one row"]
    found, equal = ends(Sample(np.full(5, 0.3)), [0.0, 1.0])
    np.testing.assert_array_equal(found.value, [0.3, 0.3])
    np.testing.assert_array_equal(equal.low, equal.high)
    assert equal.note[0] == "all losses are equal"


# -- mean_upper_bound ----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=seeds, level=st.sampled_from([0.5, 0.9, 0.95]))
def test_the_bound_of_the_mean_is_that_of_the_normal_law_unless_weights_vanish(seed, level):
    from scipy.stats import norm

    z = np.random.default_rng(seed).random(80)
    expected = z.mean() + norm.ppf(level) * z.std() / math.sqrt(80)
    assert mean_upper_bound(z, level) == pytest.approx(expected, rel=1e-9)
    assert mean_upper_bound(z, level, np.full(80, 3.0)) == pytest.approx(expected, rel=1e-9)
    assert mean_upper_bound(3.0 * z - 1.0, level) == pytest.approx(3.0 * expected - 1.0, rel=1e-9)


def test_the_bound_of_zero_one_losses_is_exact():
    z = (np.arange(40) < 3).astype(float)
    bound = mean_upper_bound(z, 0.95)
    assert binom.cdf(3, 40, bound) == pytest.approx(0.05)
    assert mean_upper_bound(np.ones(5)) == 1.0
    assert mean_upper_bound(np.zeros(5), 0.9) == pytest.approx(1.0 - 0.1 ** (1 / 5))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([0.1, 0.2], 1.0), "'level' .* between 0 and 1, such as 0.95. Got 1.0"),
        (([0.1, 0.2], "high"), "Got 'high'"),
        (([0.1, math.nan],), "finite numbers. Got 1 NaN"),
        (([],), "at least one number"),
        (([0.1, 0.2], 0.9, [1.0]), "one weight for each of the 2 rows"),
    ],
)
def test_wrong_arguments_of_the_bound(arguments, match):
    with pytest.raises(ValueError, match=match):
        mean_upper_bound(*arguments)


# -- bootstrap ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.3])
def test_the_fitted_tail_has_the_mean_of_the_rows_and_the_moments_of_a_pareto_law(shape):
    z = genpareto.isf((np.arange(100_000) + 0.5) / 1e5, shape)
    population = Population(Sample(z))
    chance, losses = population.chance, population.z
    assert chance.sum() == pytest.approx(1.0)
    assert chance @ losses == pytest.approx(z.mean())
    assert np.all(np.diff(losses) <= 0.0)
    # Beyond its threshold, a generalized Pareto law is one of the same shape.
    assert chance @ losses**2 == pytest.approx(genpareto.moment(2, shape), rel=0.05)


@settings(max_examples=20, deadline=None)
@given(sample=samples(most=300))
def test_a_population_has_the_mean_and_nearly_the_variance_of_the_rows(sample):
    population = Population(Sample(np.repeat(sample.z, 3)))  # with ties: no fitted tail
    chance, losses = population.chance, population.z
    assert population.tail == 0
    mean, scale = sample.z.mean(), np.ptp(sample.z) + 1e-300
    assert chance.sum() == pytest.approx(1.0)
    assert chance @ losses == pytest.approx(mean, abs=1e-12 * scale)
    assert np.all(np.diff(losses) <= 0.0)
    assert 0.95 * sample.z.var() - 1e-20 <= chance @ (losses - mean) ** 2
    assert chance @ (losses - mean) ** 2 <= sample.z.var() * (1.0 + 1e-9) + 1e-20


def test_draws_have_the_size_of_the_sample_and_the_shares_of_the_population():
    rng = np.random.default_rng(0)
    z = rng.exponential(size=300)
    for sample in (Sample(z), Sample(z, 1.0 + rng.random(300)), Sample(np.round(z))):
        population = Population(sample)
        counts = population.draw(4000, rng)
        np.testing.assert_array_equal(counts.sum(axis=1), 300.0)
        np.testing.assert_allclose(counts.mean(axis=0) / 300, population.chance, atol=5e-4)


def test_a_worst_case_inside_the_tail_of_many_rows():
    """Fewer losses have a weight than rows were replaced by the fitted tail."""
    losses = np.random.default_rng(0).exponential(size=6000)
    found, given = ends(Sample(losses), [50.0])
    assert given.low[0] < found.value[0] < given.high[0] < np.inf


def test_ties_weights_and_few_rows_keep_the_rows_as_they_are():
    z = np.random.default_rng(0).exponential(size=300)
    assert Population(Sample(z)).tail == 30
    assert Population(Sample(np.round(z))).tail == 0
    for sample in (Sample(z, 1.0 + z), Sample(z[:39])):
        population = Population(sample)
        assert population.tail == 0
        np.testing.assert_allclose(population.z, np.sort(sample.z)[::-1], rtol=1e-15)


@pytest.mark.parametrize("law", ["exponential", "lognormal"])
def test_joined_rows_have_the_quantiles_of_single_rows(law):
    """With weights that differ by rounding, rows are neither joined nor replaced by a tail."""
    z = getattr(np.random.default_rng(2), law)(size=200)
    balls = as_balls(CHI2, [0.0, 0.1, 1.0])
    twice = Sample(np.repeat(z, 2))  # ties: joined, but without a fitted tail
    rows = Sample(twice.z, 1.0 + 1e-12 * np.arange(400))
    joined, single = (
        quantiles(sample, balls, 0.99, np.random.default_rng(3)) for sample in (twice, rows)
    )
    assert Population(twice).z.size < 250
    np.testing.assert_allclose(joined, single, rtol=0.12)


def test_intervals_of_heavy_tails_hold_more_often_than_those_of_drawn_rows():
    """The lognormal law."""
    rng = np.random.default_rng(1)
    balls, true = as_balls(CHI2, [1.0]), 3.80992
    hits = np.zeros(2)
    for _ in range(150):
        z = rng.lognormal(size=60)
        found = worst_cases(Sample(z), balls)
        for k, weights in enumerate([None, 1.0 + 1e-12 * np.arange(60)]):
            given = intervals(Sample(z, weights), balls, found, 0.95, np.random.default_rng(0))
            hits[k] += given.low[0] <= true <= given.high[0]
    assert hits[0] / 150 > 0.85
    assert hits[0] > hits[1]
