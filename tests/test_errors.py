"""Bad input gets one sentence that names the parameter and the value."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from drolearn import ChiSquare, CVaR, Divergence, worst_case
from drolearn.divergence import as_divergence

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
    "matrix": ({"losses": [[1.0, 2.0]]}, r"'losses' .* one-dimensional.* Got .* \(1, 2\)"),
    "scalar": ({"losses": 3.0}, r"'losses' .* one-dimensional.* Got .* \(\)"),
    "text": ({"losses": ["a", "b"]}, "'losses' parameter must hold real numbers. Got .* <U1"),
    "complex": (
        {"losses": [1j, 2.0]},
        "'losses' parameter must hold real numbers. Got .* complex",
    ),
    "ragged": ({"losses": [[1.0], [2.0, 3.0]]}, "'losses' .* vector of real numbers. Got list"),
    "dates": (
        {"losses": np.array(["2020-01-01"], dtype="datetime64[D]")},
        "'losses' parameter must hold real numbers. Got .* datetime64",
    ),
    "masked": (
        {"losses": np.ma.masked_array([1.0, 2.0], mask=[False, True])},
        "'losses' .* must not have masked entries. Got 1 of them",
    ),
    "swapped": ({"losses": [1.0], "rho": "kl", "divergence": 0.1}, "'rho' .* Got 'kl' instead"),
    "true rho": ({"losses": [1.0], "rho": True}, "'rho' .* Got True instead"),
    "few losses, no threads": ({"losses": [1.0], "n_jobs": 0}, "'n_jobs' .* Got 0 instead"),
    "negative rho": ({"losses": [1.0], "rho": -0.1}, "'rho' .* at least 0. Got -0.1 instead"),
    "nan rho": ({"losses": [1.0], "rho": math.nan}, "'rho' .* at least 0. Got nan instead"),
    "text rho": ({"losses": [1.0], "rho": "large"}, "'rho' .* at least 0. Got 'large' instead"),
    "no rho": ({"losses": [1.0], "rho": None}, "'rho' .* at least 0. Got None instead"),
    "short base": (
        {"losses": [1.0, 2.0], "sample_weight": [1.0]},
        "'sample_weight' .* each of the 2 rows. Got 1 ",
    ),
    "negative base": (
        {"losses": [1.0, 2.0], "sample_weight": [1.0, -1.0]},
        "'sample_weight' .* at least 0. Got -1.0 at index 1 instead",
    ),
    "nan base": (
        {"losses": [1.0, 2.0], "sample_weight": [math.nan, 1.0]},
        "'sample_weight' .* Got nan at index 0",
    ),
    "infinite base": (
        {"losses": [1.0, 2.0], "sample_weight": [1, math.inf]},
        "'sample_weight' .* Got inf at index 1",
    ),
    "zero base": (
        {"losses": [1.0, 2.0], "sample_weight": [0.0, 0.0]},
        "'sample_weight' .* positive sum. Got only zeros",
    ),
    "square base": (
        {"losses": [1.0], "sample_weight": [[1.0]]},
        "'sample_weight' .* one-dimensional",
    ),
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
    expected = worst_case([1.0, 2.0, 3.0], sample_weight=[1.0, 2.0, 3.0])
    for factor in (1e300, 1e-300, 5e-324 * 2**20):
        wc = worst_case([1.0, 2.0, 3.0], sample_weight=np.array([1.0, 2.0, 3.0]) * factor)
        np.testing.assert_allclose(wc.weights, expected.weights, rtol=1e-12)


def test_an_infinite_radius_does_nothing_to_cvar():
    assert worst_case([1.0, 2.0, 3.0, 4.0], math.inf, CVaR(0.5)).value == 3.5


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation", "hellinger"])
def test_base_weights_of_any_size(divergence):
    """A row of weight 1e-300 next to rows of weight 1: hardly any mass, and no harm."""
    z, base = np.array([5.0, 1.0, 2.0, 1.5]), np.array([1e-300, 1.0, 1.0, 1.0])
    wc = worst_case(z, 0.1, divergence, base)
    assert wc.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert wc.achieved <= 0.1 * (1.0 + 1e-9)
    assert wc.gap <= 1e-9


class TestDivergenceMethods:
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


def test_a_divergence_without_a_solver_is_refused():
    class Mine(Divergence):
        name = "mine"

    for divergence in (Divergence(), Mine()):
        with pytest.raises(ValueError, match=r"make your own with Divergence\.custom"):
            worst_case([1.0, 2.0], 0.1, divergence)


@pytest.mark.parametrize("rho", [1e-14, 1e-16, 1e-40, 1e-300, 5e-324])
@pytest.mark.parametrize("divergence", ["chi2", "kl", "reverse-kl", "total-variation"])
def test_tiny_radii_are_about_the_mean(rho, divergence):
    z = np.random.default_rng(0).exponential(size=100)
    assert worst_case(z, rho, divergence).value == pytest.approx(z.mean(), rel=1e-6)
