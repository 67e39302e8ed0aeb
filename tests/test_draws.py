"""Draws: unbiased by enumeration, uniform without replacement, tuned levels, errors."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest

from drolearn import KL, Fixed, Full, Growing, Multilevel
from drolearn._solvers.allocation import allocate
from tests.examples import ALL, CUSTOM_BENT, name, worst_case


def expected_weights(method: Multilevel, z, divergence, base=None, cache=None) -> np.ndarray:
    """The mean of the signed weights over all subsets, splits and levels.

    `cache` holds the worst cases of subsets of the same losses from earlier calls.
    """
    n, total = z.size, np.zeros(z.size)
    cache = {} if cache is None else cache

    def part(rows: tuple[int, ...], radius: float) -> np.ndarray:
        if rows not in cache:
            out = np.zeros(n)
            b = None if base is None else base[list(rows)]
            if b is None or b.any():
                out[list(rows)] = worst_case(z[list(rows)], radius, divergence, b).weights
            cache[rows] = out
        return cache[rows]

    plan = method.plan
    probabilities = np.diff(plan.cumulative, prepend=0.0)
    for level in range(method.sizes.size):
        # The blocks are those of the method; only the rows are enumerated.
        blocks = method.draw_level(np.random.default_rng(0), level).blocks
        subsets = list(combinations(range(n), int(method.sizes[level])))
        weight = 1.0 if level == 0 else probabilities[level - 1] * plan.coefficients[level - 1]
        for rows in subsets:
            for start, stop, coefficient, radius in blocks:
                size = int(stop - start)
                # A block is a uniform subset of its size within the rows of the draw.
                inner = list(combinations(rows, size))
                for subset in inner:
                    share = weight * coefficient / len(subsets) / len(inner)
                    total += share * part(subset, radius)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ALL, ids=name)
def test_multilevel_is_unbiased_by_enumeration(divergence):
    rng = np.random.default_rng(0)
    # Each worst case of the bent φ takes some 20 ms: smaller sizes only.
    for n in range(1, 7 if divergence is CUSTOM_BENT else 10):
        z = rng.exponential(size=n)
        exact = worst_case(z, 0.3, divergence).weights
        cache: dict[tuple[int, ...], np.ndarray] = {}  # without inflation, all radii are equal
        for base in (1, 2, 3):
            for fire in (1.0, 0.2):
                method = Multilevel(n, batch_size=base, fire=fire, rho=0.3)
                mean = expected_weights(method, z, divergence, cache=cache)
                np.testing.assert_allclose(mean, exact, atol=1e-12, err_msg=f"{n} {base} {fire}")


@pytest.mark.parametrize("base", [1, 2, 3])
def test_multilevel_is_unbiased_with_base_weights_and_inflated_radii(base):
    rng = np.random.default_rng(1)
    for n in range(1, 10):
        z, b = rng.exponential(size=n), rng.exponential(size=n) * (rng.random(n) < 0.7)
        b[0] = 1.0
        method = Multilevel(n, batch_size=base, rho=0.3, inflation=1.0)
        exact = worst_case(z, 0.3, "chi2", b).weights
        np.testing.assert_allclose(expected_weights(method, z, "chi2", b), exact, atol=1e-12)


def test_level_probabilities_of_the_paper_do_not_sum_to_one():
    method = Multilevel(8)
    r, levels = 2.0**-1.5, 3
    q = r ** np.arange(levels) * (1 - r) / (1 - r ** (levels + 1))
    assert q.sum() < 0.99  # as printed in the paper
    np.testing.assert_allclose(method.level_probabilities.sum(), 1.0, rtol=1e-14)


def test_draws_have_the_distribution_that_enumeration_assumes():
    """All ordered base blocks are equally likely, and levels have their probabilities."""
    rng, method, counts = np.random.default_rng(2), Multilevel(5, batch_size=2, fire=0.5), {}
    levels = np.zeros(3)
    for _ in range(20_000):
        draw = method.draw(rng)
        assert draw.batch_size == 2
        extra = len(draw.indices) - 2
        levels[0 if not extra else 1 if extra == 2 else 2] += 1
        key = tuple(draw.indices[:2])
        counts[key] = counts.get(key, 0) + 1
    assert set(counts) == set(permutations(range(5), 2))
    assert abs(np.array(list(counts.values())) - 1000).max() < 5 * math.sqrt(1000)
    assert levels[1] == 0  # 5 → 2 is one level
    assert abs(levels[2] - 10_000) < 5 * math.sqrt(5000)


@pytest.mark.parametrize(("n", "size"), [(1000, 3), (1000, 124), (1000, 125), (1000, 1000), (7, 7)])
def test_rows_are_distinct_and_uniform(n, size):
    rng, seen = np.random.default_rng(3), np.zeros((size, n))
    for _ in range(2000):
        rows = Fixed(n, size).draw(rng).indices
        assert np.unique(rows).size == size
        seen[np.arange(size), rows] += 1
    first, last = seen[0], seen[-1]  # every position of the draw
    for counts in (first, last, seen.sum(axis=0)):
        expected = counts.sum() / n
        assert abs(counts - expected).max() < 6.5 * math.sqrt(expected) + 1


def test_small_and_large_draws_are_the_same_shuffle():
    """Small draws use a hash table and large ones an array; both give the same shuffle."""
    small = Fixed(1000, 124).draw(np.random.default_rng(4)).indices
    large = Fixed(1000, 500).draw(np.random.default_rng(4)).indices
    np.testing.assert_array_equal(small, large[:124])


def test_weights_are_sums_over_blocks():
    rng = np.random.default_rng(5)
    draw = Multilevel(101, batch_size=4).draw(rng)
    z = rng.standard_normal(draw.indices.size)
    for divergence in ("chi2", "jensen-shannon"):
        expected = np.zeros(z.size)
        for start, stop, coefficient, radius in draw.blocks:
            part = slice(int(start), int(stop))
            expected[part] += coefficient * worst_case(z[part], radius, divergence).weights
        np.testing.assert_allclose(draw.weights(z, divergence), expected, rtol=1e-14)


@pytest.mark.parametrize("fire", [1.0, 0.3])
def test_multilevel_is_unbiased_on_a_thousand_rows(fire):
    rng = np.random.default_rng(6)
    z, x = rng.exponential(size=1000), rng.standard_normal((1000, 3))
    exact = x.T @ worst_case(z, 0.1).weights
    method, estimates = Multilevel(1000, batch_size=8, fire=fire), []
    for _ in range(40_000):
        draw = method.draw(rng)
        estimates.append(draw.weights(z[draw.indices]) @ x[draw.indices])
    mean, error = np.mean(estimates, axis=0), np.std(estimates, axis=0) / 200.0
    assert (abs(mean - exact) < 4.0 * error).all()
    biased = []
    for _ in range(10_000):
        draw = Fixed(1000, 8).draw(rng)
        biased.append(draw.weights(z[draw.indices]) @ z[draw.indices])
    assert np.mean(biased) < worst_case(z, 0.1).value - 0.02  # the bias that the correction removes


def test_sizes_of_draws():
    rng = np.random.default_rng(7)
    sizes = [Growing(50, 4, rate=1.5).draw(rng, t).indices.size for t in range(10)]
    assert sizes == [4, 6, 9, 13, 20, 30, 45, 50, 50, 50]
    assert Growing(50, 4).draw(rng, 10**9).indices.size == 50
    np.testing.assert_array_equal(Full(4).draw(rng).indices, np.arange(4))
    assert Fixed(3, 64).draw(rng).indices.size == 3


def test_inflated_radius():
    draw = Fixed(100, 25, rho=0.1, inflation=2.0, delta=0.01).draw(np.random.default_rng(0))
    assert draw.blocks[0, 3] == pytest.approx(0.1 + 2.0 * (1 / 25 - 1 / 100) ** 0.495)
    assert Full(100, inflation=2.0).draw(np.random.default_rng(0)).blocks[0, 3] == 0.1


def test_allocation_minimises_cost_times_variance():
    rng = np.random.default_rng(8)
    for _ in range(20):
        cost, second = 2.0 ** np.arange(6), rng.exponential(size=6) * 3.0 ** -np.arange(6)
        q = allocate(cost, second)

        def product(q, cost=cost, second=second):
            return (cost[0] + q @ cost[1:]) * (second[0] + (second[1:] / q).sum())

        assert q.min() > 0.0
        assert q.sum() <= 1.0 + 1e-12
        for _ in range(200):
            other = q * np.exp(0.1 * rng.standard_normal(5))
            other *= min(1.0, 1.0 / other.sum())
            assert product(q) <= product(other) * (1 + 1e-7)


def pilot(divergence, rho, spread):
    rng, n = np.random.default_rng(9), 2**14
    z, x = spread * rng.exponential(size=n), rng.standard_normal((n, 5))
    method = Multilevel(n, batch_size=4, r="auto", rho=rho)

    def gradient(draw):
        return draw.weights(z[draw.indices], divergence) @ x[draw.indices]

    tuned = method.tuned(gradient, rng, 500_000)
    assert tuned.probabilities is not None
    q = np.array(tuned.probabilities)
    return (q[6] / q[0]) ** (1 / 6)


def test_pilot_finds_the_best_ratio_of_levels():
    assert pilot("chi2", 0.1, 1.0) == pytest.approx(2**-1.5, abs=0.06)  # decay 4^−k
    assert pilot(KL(), 1.0, 3.0) > 0.42  # slower decay needs more of the high levels


def test_one_row_and_a_batch_larger_than_the_data():
    draw = Multilevel(1, batch_size=5).draw(np.random.default_rng(0))
    assert draw.weights([3.0]).tolist() == [1.0]
    assert Multilevel(10, batch_size=100).sizes.tolist() == [10]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Full(0), "The 'n' parameter must be an integer of at least 1. Got 0 instead."),
        (lambda: Fixed(10, -3), "The 'batch_size' parameter must be an integer of at least 1"),
        (lambda: Fixed(10, 2.5), "Got 2.5 instead"),
        (lambda: Growing(10, 2, rate=1.0), "The 'rate' parameter must be a number above 1"),
        (lambda: Multilevel(10, batch_size=0), "The 'batch_size' parameter"),
        (lambda: Multilevel(10, r=1.5), "The 'r' parameter must be 'auto' or lie between 0 and 1"),
        (lambda: Multilevel(10, r="best"), "Got 'best' instead"),
        (lambda: Multilevel(10, fire=0.0), "The 'fire' parameter must be above 0"),
        (lambda: Multilevel(10, rho=-1.0), "The 'rho' parameter must be a number of at least 0"),
        (lambda: Multilevel(10, inflation=-1.0), "The 'inflation' parameter"),
        (lambda: Multilevel(10, delta=1.0), "The 'delta' parameter"),
        (lambda: Multilevel(10, probabilities=(0.5,)), "must be 3 positive numbers"),
        (lambda: Full(3).draw(0), "must be a numpy.random.Generator"),
        (lambda: Full(3).draw(np.random.default_rng(0)).weights([1.0]), "each of the 3 rows"),
        (
            lambda: Full(2).draw(np.random.default_rng(0)).weights([1.0, math.nan]),
            "Got 1 NaN and 0 infinite of 2",
        ),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(("r", "theorem"), [(0.2, "Theorem 5"), (0.6, "Theorem 4")])
def test_ratios_that_grow_cost_or_variance_warn(r, theorem):
    with pytest.warns(UserWarning, match=theorem):
        Multilevel(100, r=r)
