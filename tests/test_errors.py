"""Bad input gets one sentence that names the parameter and the value."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from drolearn import worst_case

CASES = {
    "nan": (
        {"losses": [1.0, math.nan, 2.0]},
        "'losses' .* Got 1 NaN and 0 infinite of 3 .* index 1",
    ),
    "inf": ({"losses": [math.inf, -math.inf]}, "'losses' .* Got 0 NaN and 2 infinite of 2"),
    "many": (
        {"losses": np.append(np.zeros(200_000), np.nan), "n_jobs": 2},
        "'losses' .* Got 1 NaN and 0 infinite of 200001 .* index 200000",
    ),
    "empty": ({"losses": []}, "'losses' parameter must hold at least one number"),
    "matrix": ({"losses": [[1.0, 2.0]]}, r"'losses' .* one-dimensional. Got .* \(1, 2\)"),
    "scalar": ({"losses": 3.0}, r"'losses' .* one-dimensional. Got .* \(\)"),
    "text": ({"losses": ["a", "b"]}, "'losses' parameter must hold real numbers. Got .* <U1"),
    "complex": (
        {"losses": [1j, 2.0]},
        "'losses' parameter must hold real numbers. Got .* complex",
    ),
    "negative rho": ({"losses": [1.0], "rho": -0.1}, "'rho' .* at least 0. Got -0.1 instead"),
    "nan rho": ({"losses": [1.0], "rho": math.nan}, "'rho' .* at least 0. Got nan instead"),
    "text rho": ({"losses": [1.0], "rho": "large"}, "'rho' .* at least 0. Got 'large' instead"),
    "no rho": ({"losses": [1.0], "rho": None}, "'rho' .* at least 0. Got None instead"),
    "short base": ({"losses": [1.0, 2.0], "base": [1.0]}, "'base' .* each of the 2 losses. Got 1 "),
    "negative base": (
        {"losses": [1.0, 2.0], "base": [1.0, -1.0]},
        "'base' .* at least 0. Got -1.0 at index 1 instead",
    ),
    "nan base": ({"losses": [1.0, 2.0], "base": [math.nan, 1.0]}, "'base' .* Got nan at index 0"),
    "infinite base": (
        {"losses": [1.0, 2.0], "base": [1, math.inf]},
        "'base' .* Got inf at index 1",
    ),
    "zero base": (
        {"losses": [1.0, 2.0], "base": [0.0, 0.0]},
        "'base' .* positive sum. Got only zeros",
    ),
    "square base": ({"losses": [1.0], "base": [[1.0]]}, "'base' .* one-dimensional"),
    "no threads": ({"losses": np.zeros(200_000), "n_jobs": 0}, "'n_jobs' .* other than 0. Got 0"),
    "half a thread": ({"losses": np.zeros(200_000), "n_jobs": 1.5}, "'n_jobs' .* Got 1.5 instead"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_says_it(case):
    arguments, pattern = CASES[case]
    with pytest.raises(ValueError, match=pattern) as caught:
        worst_case(**arguments)
    assert "\n" not in str(caught.value)


def test_a_non_finite_loss_is_found_wherever_it_is():
    rng = np.random.default_rng(0)
    for size in (1, 2, 15, 4096, 4097, 40_000):
        for value in (math.nan, math.inf, -math.inf):
            z = rng.standard_normal(size)
            z[rng.integers(size)] = value
            with pytest.raises(ValueError, match=re.escape("must hold finite numbers")):
                worst_case(z)


def test_an_infinite_radius_is_the_largest_loss():
    for divergence in ("chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon"):
        wc = worst_case([1.0, 3.0, 2.0], math.inf, divergence)
        assert wc.weights.tolist() == [0.0, 1.0, 0.0]


def test_huge_and_tiny_base_weights():
    expected = worst_case([1.0, 2.0, 3.0], base=[1.0, 2.0, 3.0])
    for factor in (1e300, 1e-300, 5e-324 * 2**20):
        wc = worst_case([1.0, 2.0, 3.0], base=np.array([1.0, 2.0, 3.0]) * factor)
        np.testing.assert_allclose(wc.weights, expected.weights, rtol=1e-12)
