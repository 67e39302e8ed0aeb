"""Draws for balls over groups: unbiased by enumeration, uniform, and all rows of small groups."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from drolearn import Draw, Fixed, Full, Growing, Multilevel
from drolearn._inner.groups import Groups
from tests.examples import ALL, CUSTOM_BENT, name, worst_case

#: Sizes of groups: one or several, of one row, of odd and even numbers, up to nine rows.
STRUCTURES = [(1,), (5,), (1, 1), (3, 1), (1, 2, 4), (2, 3), (4, 5), (7, 1, 1), (3, 3, 3)]


def splits(members, size, half):
    """All equally likely draws of a group: left part, right part, left-over rows."""
    for rows in combinations(members, size):
        if size == 1:
            yield rows, rows, ()
            continue
        for left in combinations(rows, half):
            others = [row for row in rows if row not in left]
            for right in combinations(others, half):
                yield left, right, tuple(row for row in others if row not in right)


def all_draws(method: Multilevel, level: int):
    """Every draw of a level: its rows in the order of the core."""
    members = method.groups.members
    if level == 0:
        each = zip(members, method.group_sizes[0], strict=True)
        for parts in product(*(list(combinations(rows, size)) for rows, size in each)):
            yield [row for part in parts for row in part]
        return
    each = zip(members, method.group_sizes[level], method.group_sizes[level - 1], strict=True)
    for parts in product(*(list(splits(*group)) for group in each)):
        yield [row for k in range(3) for part in parts for row in part[k]]


def expected_weights(method: Multilevel, z, divergence, base=None) -> np.ndarray:
    """The mean of the signed weights over every draw of every level."""
    total, plan = np.zeros(z.size), method.plan
    probabilities = np.diff(plan.cumulative, prepend=0.0)
    for level in range(method.sizes.size):
        example = method.draw_level(np.random.default_rng(0), level)
        draws = list(all_draws(method, level))
        weight = 1.0 if level == 0 else probabilities[level - 1] * plan.coefficients[level - 1]
        for indices in draws:
            rows = np.array(indices)
            groups = (method.groups.of[rows], method.groups.shares)
            draw = Draw(rows, example.blocks, example.batch_size, groups)
            signed = draw.weights(z[rows], divergence, None if base is None else base[rows])
            np.add.at(total, rows, weight / len(draws) * signed)
    return total


def exact_weights(groups: Groups, z, rho, divergence) -> np.ndarray:
    worst = worst_case(groups.means(z), rho, divergence, groups.shares)
    return groups.rows(worst.weights)


def codes_of(structure) -> np.ndarray:
    codes = np.repeat(np.arange(len(structure)), structure)
    return np.random.default_rng(codes.size).permutation(codes)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", [each for each in ALL if each is not CUSTOM_BENT], ids=name)
@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_draws_of_groups_are_unbiased_by_enumeration(divergence, structure):
    rng, codes = np.random.default_rng(0), codes_of(structure)
    z = rng.exponential(size=codes.size)
    for batch_size, fire in ((1, 1.0), (2, 0.2), (4, 1.0)):
        method = Multilevel(codes.size, batch_size=batch_size, fire=fire, rho=0.3, groups=codes)
        exact = exact_weights(method.groups, z, 0.3, divergence)
        mean = expected_weights(method, z, divergence)
        np.testing.assert_allclose(mean, exact, atol=1e-12, err_msg=str(batch_size))


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation", "cvar"])
@pytest.mark.parametrize("rho", [0.0, 0.05, 3.0])
def test_draws_of_groups_with_weights_are_unbiased(divergence, rho):
    rng = np.random.default_rng(1)
    if divergence == "total-variation":
        rho = min(rho, 1.0)
    for structure in STRUCTURES:
        codes = codes_of(structure)
        z, base = rng.exponential(size=codes.size), rng.exponential(size=codes.size)
        base[rng.permutation(codes.size)[: codes.size // 4]] = 0.0
        groups = Groups.make(codes, base)
        method = Multilevel(codes.size, batch_size=2, rho=rho, groups=groups)
        exact = exact_weights(groups, z, rho, divergence)
        mean = expected_weights(method, z, divergence, base)
        np.testing.assert_allclose(mean, exact, atol=1e-12, err_msg=str(structure))


def test_draws_have_the_distribution_that_enumeration_assumes():
    """Every draw of a level is equally likely, up to the order of rows within its parts."""
    method = Multilevel(9, batch_size=2, groups=codes_of((4, 3, 1, 1)))
    rng = np.random.default_rng(2)
    for level in range(method.sizes.size):
        blocks = method.draw_level(rng, level).blocks[:, :2].astype(int)
        ends = sorted({0, *blocks.ravel().tolist()})

        def parts(rows, ends=ends):
            return tuple(tuple(sorted(rows[start:stop])) for start, stop in pairwise(ends))

        counts = {parts(rows): 0 for rows in all_draws(method, level)}
        drawn = 200 * len(counts)
        for _ in range(drawn):
            counts[parts(method.draw_level(rng, level).indices.tolist())] += 1
        assert len(counts) == len(list(all_draws(method, level)))
        assert abs(np.array(list(counts.values())) - 200).max() < 5.5 * math.sqrt(200)


def test_every_block_has_rows_of_every_group():
    rng = np.random.default_rng(3)
    codes = np.repeat([0, 1, 2, 3], [700, 100, 3, 1])
    method = Multilevel(804, batch_size=20, fire=1.0, groups=codes)
    assert method.group_sizes[[0, -1]].tolist() == [[21, 3, 1, 1], [700, 100, 3, 1]]
    assert method.sizes.tolist() == method.group_sizes.sum(axis=1).tolist()
    rows = 0
    for _ in range(2000):
        draw = method.draw(rng)
        rows += draw.indices.size
        assert draw.batch_size == method.sizes[0]
        of, shares = draw.groups
        np.testing.assert_array_equal(of, codes[draw.indices])
        np.testing.assert_allclose(shares, [700 / 804, 100 / 804, 3 / 804, 1 / 804])
        for start, stop in draw.blocks[[0, *range(2, len(draw.blocks))], :2].astype(int):
            inside = draw.indices[start:stop]
            assert np.unique(codes[inside]).size == 4
            assert np.unique(inside).size == inside.size
    assert rows / 2000 == pytest.approx(method.cost, rel=0.1)


def test_weights_are_those_of_group_means():
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 5, 200)
    draw = Multilevel(200, batch_size=8, fire=1.0, rho=0.7, groups=codes).draw(rng)
    z, b = rng.exponential(size=draw.indices.size), rng.exponential(size=draw.indices.size)
    of, shares = draw.groups
    expected = np.zeros(z.size)
    for start, stop, coefficient, radius in draw.blocks:
        part = slice(int(start), int(stop))
        mass = np.bincount(of[part], b[part], 5)
        means = np.bincount(of[part], (b * z)[part], 5) / mass
        q = worst_case(means, radius, "kl", shares).weights
        expected[part] += coefficient * (q / mass)[of[part]] * b[part]
    np.testing.assert_allclose(draw.weights(z, "kl", b), expected, rtol=1e-12, atol=1e-14)
    assert draw.weights(z, "kl", b).sum() == pytest.approx(1.0)


def test_a_group_without_weight_has_none_in_a_block():
    draw = Full(4, rho=0.5, groups=[0, 0, 1, 2]).draw(np.random.default_rng(0))
    weights = draw.weights([1.0, 2.0, 9.0, 3.0], "chi2", [1.0, 1.0, 0.0, 1.0])
    want = worst_case([1.5, 3.0], 0.5, "chi2", [0.5, 0.25]).weights
    np.testing.assert_allclose(weights, [want[0] / 2, want[0] / 2, 0.0, want[1]], rtol=1e-12)


def test_fixed_batches_are_the_base_blocks_of_multilevel_draws():
    codes = np.repeat(["a", "b", "c"], [60, 39, 1])
    method = Multilevel(100, batch_size=10, groups=codes)
    rows = Fixed(100, 10, groups=codes).draw(np.random.default_rng(0)).indices
    np.testing.assert_array_equal(rows, method.draw_level(np.random.default_rng(0), 0).indices)
    # With a group for each row, every block has all rows.
    each = Multilevel(7, groups=np.arange(7))
    assert sorted(each.draw(np.random.default_rng(0)).indices.tolist()) == list(range(7))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Multilevel(3, groups=[0, 1]), "group of each of the 3 rows"),
        (lambda: Multilevel(2, groups=np.eye(2, dtype=bool)), "overlapping groups need an exact"),
        (lambda: Fixed(2, groups=[0, 1], inflation=1.0), "'inflation' parameter must be 0 with"),
        (lambda: Growing(2, groups=[0, 1]), "must be None for Growing"),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()
