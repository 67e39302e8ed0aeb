"""`worst_case`: known answers, extreme radii and weights, errors, real losses."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from drolearn import CVaR, Divergence, TotalVariation, worst_case
from drolearn.divergence import as_divergence
from tests.examples import FAST, name, normalised, radius_of

# -- known answers -------------------------------------------------------------------------------


def test_small_losses_get_a_weight_of_exactly_zero():
    """The paper assumes that all weights stay positive, which fails from ρ = 1/(N − 1) on."""
    z = np.arange(10.0)
    assert (worst_case(z, rho=0.1).weights > 0.0).all()
    wc = worst_case(z, rho=1.0)
    zero = wc.weights == 0.0
    assert 0 < zero.sum() < 10
    # p = b (1 + (z − λ)/(2α)) where that is positive
    s = 1.0 + (z - wc.lam) / (2.0 * wc.alpha)
    np.testing.assert_allclose(wc.weights, np.maximum(s, 0.0) / 10.0, atol=1e-15)
    assert (s[zero] <= 0.0).all()


def test_triangular_discrimination_drops_small_losses():
    """φ'(0) = −3 is finite, so a large ball gives small losses a weight of exactly zero."""
    z = np.random.default_rng(0).standard_normal(200)
    wc = worst_case(z, 0.8, "triangular")
    t = (z - wc.lam) / wc.alpha
    assert 0 < np.sum(wc.weights == 0.0) < 200
    np.testing.assert_array_equal(wc.weights == 0.0, t <= -3.0)
    np.testing.assert_allclose(np.sum((wc.weights - 1 / 200) ** 2 / (wc.weights + 1 / 200)), 0.8)


def test_weights_follow_from_the_multipliers():
    z = np.random.default_rng(0).standard_normal(200)
    inverses = {
        "kl": np.exp,
        "reverse-kl": lambda t: 1.0 / (1.0 - t),
        "hellinger": lambda t: 1.0 / (1.0 - 2.0 * t) ** 2,
        "jensen-shannon": lambda t: np.exp(2.0 * t) / (2.0 - np.exp(2.0 * t)),
        "triangular": lambda t: np.maximum(2.0 / np.sqrt(1.0 - t) - 1.0, 0.0),
    }
    for divergence, inverse in inverses.items():
        wc = worst_case(z, 0.2, divergence)
        np.testing.assert_allclose(
            wc.weights, inverse((z - wc.lam) / wc.alpha) / z.size, rtol=1e-10, err_msg=divergence
        )


@pytest.mark.parametrize("divergence", ["chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon"])
def test_radii_close_to_rounding(divergence):
    """R = mean + √(2ρ/φ''(1)) · standard deviation, up to rounding of D and of the weights."""
    curvature = as_divergence(divergence).curvature
    for seed, rho in enumerate(np.logspace(-15.2, -10.0, 200)):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal(int(rng.integers(2, 300)))
        result = worst_case(z, rho, divergence).value
        want = z.mean() + np.sqrt(2.0 * rho / curvature) * z.std()
        assert abs(result - want) <= (1e-7 if rho < 1e-13 else 1e-8) * np.ptp(z)
        assert result >= z.mean() - 1e-15 * np.ptp(z)


def test_radii_next_to_the_largest_divergence():
    """The largest loss gets all the weight, up to rounding."""
    assert worst_case([0.6, 0.3, 0.0], math.nextafter(2.0, 0.0)).value == pytest.approx(0.6)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 60))
        z, base = rng.standard_normal(n), rng.random(n) + 1e-3
        ties = int(rng.integers(1, n))
        z[:ties] = z.max()
        for b in (None, base):
            share = normalised(b, n)[:ties].sum()
            for rho in (1.0 / share - 1.0, math.nextafter(1.0 / share - 1.0, 0.0)):
                result = worst_case(z, rho, sample_weight=b)
                assert result.value == pytest.approx(z[0], rel=1e-12, abs=1e-12)
                assert result.achieved <= rho * (1.0 + 1e-9) + 1e-14


def test_cvar_is_the_mean_of_the_worst():
    z = np.random.default_rng(1).standard_normal(1000)
    for share in (1, 10, 250, 1000):
        wc = worst_case(z, divergence=CVaR(share / 1000))
        assert wc.value == pytest.approx(np.sort(z)[-share:].mean(), rel=1e-12)
    between = worst_case([1.0, 2.0, 3.0], divergence=CVaR(0.5))
    np.testing.assert_allclose(between.weights, [0.0, 1.0 / 3.0, 2.0 / 3.0], rtol=1e-15)


@pytest.mark.parametrize("rho", [0.0, 0.1, math.inf, "auto"])
def test_cvar_refuses_a_radius(rho):
    with pytest.raises(ValueError, match=r"'rho' parameter must be None for CVaR, .* Got"):
        worst_case([1.0, 2.0], rho, "cvar")
    assert worst_case([1.0, 2.0], None, "cvar").rho == 0.0


def test_without_a_radius_it_is_a_tenth():
    assert worst_case([1.0, 2.0]).rho == worst_case([1.0, 2.0], None, "kl").rho == 0.1


@pytest.mark.parametrize("divergence", [TotalVariation(), CVaR(0.3)], ids=name)
def test_many_weighted_losses_sum_to_one(divergence):
    """The mass on each side of a quantile is a sum of many weights, each with its rounding."""
    rng = np.random.default_rng(0)
    z, base = rng.standard_normal(1_000_000), 10.0 ** rng.uniform(-12.0, 0.0, 1_000_000)
    wc = worst_case(z, radius_of(divergence, 0.3), divergence, base)
    assert abs(math.fsum(wc.weights) - 1.0) <= 1e-12
    assert (wc.weights >= 0.0).all()
    assert wc.gap <= 1e-10 * (z.max() - z.min())


def test_a_quantile_between_two_weighted_losses_is_found():
    """The mass above one loss and that from the next one on differ by rounding only."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 60))
        z, base = np.sort(rng.exponential(size=n))[::-1], rng.random(n)
        k = int(rng.integers(1, n))
        share = base[:k].sum() / base.sum()
        wc = worst_case(z, divergence=CVaR(share), sample_weight=base)
        assert wc.value == pytest.approx(np.average(z[:k], weights=base[:k]), rel=1e-12)
        moved = worst_case(z, 1.0 - share, TotalVariation(), base)
        assert moved.gap <= 1e-12
        assert moved.weights.sum() == pytest.approx(1.0, rel=1e-12)


def test_total_variation_moves_mass_from_the_bottom_to_the_top():
    wc = worst_case([1.0, 2.0, 3.0, 4.0], 0.375, TotalVariation())
    np.testing.assert_allclose(wc.weights, [0.0, 0.125, 0.25, 0.625], rtol=1e-15)


# -- extreme radii and base weights --------------------------------------------------------------


def test_an_infinite_radius_is_the_largest_loss():
    for divergence in ("chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon"):
        wc = worst_case([1.0, 3.0, 2.0], math.inf, divergence)
        assert wc.weights.tolist() == [0.0, 1.0, 0.0]


def test_huge_and_tiny_base_weights():
    expected = worst_case([1.0, 2.0, 3.0], sample_weight=[1.0, 2.0, 3.0])
    for factor in (1e300, 1e-300, 5e-324 * 2**20):
        wc = worst_case([1.0, 2.0, 3.0], sample_weight=np.array([1.0, 2.0, 3.0]) * factor)
        np.testing.assert_allclose(wc.weights, expected.weights, rtol=1e-12)


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation", "hellinger"])
def test_base_weights_of_any_size(divergence):
    """A row of weight 1e-300 among rows of weight 1 does no harm."""
    z, base = np.array([5.0, 1.0, 2.0, 1.5]), np.array([1e-300, 1.0, 1.0, 1.0])
    wc = worst_case(z, 0.1, divergence, base)
    assert wc.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert wc.achieved <= 0.1 * (1.0 + 1e-9)
    assert wc.gap <= 1e-9


@pytest.mark.parametrize("rho", [1e-14, 1e-16, 1e-40, 1e-300, 5e-324])
@pytest.mark.parametrize("divergence", ["chi2", "kl", "reverse-kl", "total-variation"])
def test_tiny_radii_give_about_the_mean(rho, divergence):
    z = np.random.default_rng(0).exponential(size=100)
    assert worst_case(z, rho, divergence).value == pytest.approx(z.mean(), rel=1e-6)


# -- errors --------------------------------------------------------------------------------------

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
    "swapped": ({"losses": [1.0], "rho": "kl", "divergence": 0.1}, "'divergence' .* Got 0.1 inst"),
    "true rho": ({"losses": [1.0], "rho": True}, "'rho' .* Got True instead"),
    "few losses, no threads": ({"losses": [1.0], "n_jobs": 0}, "'n_jobs' .* Got 0 instead"),
    "negative rho": ({"losses": [1.0], "rho": -0.1}, "'rho' .* at least 0. Got -0.1 instead"),
    "nan rho": ({"losses": [1.0], "rho": math.nan}, "'rho' .* at least 0. Got nan instead"),
    "text rho": ({"losses": [1.0], "rho": "large"}, "'rho' .* at least 0. Got 'large' instead"),
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
def test_errors_are_one_sentence(case):
    arguments, pattern = CASES[case]
    with pytest.raises(ValueError, match=pattern) as caught:
        worst_case(**arguments)
    assert "\n" not in str(caught.value)


def test_a_non_finite_loss_is_found_at_any_position():
    rng = np.random.default_rng(0)
    for size in (1, 2, 15, 4096, 4097, 40_000):
        for value in (math.nan, math.inf, -math.inf):
            z = rng.standard_normal(size)
            z[rng.integers(size)] = value
            with pytest.raises(ValueError, match=re.escape("must hold finite numbers")):
                worst_case(z)


def test_a_subclass_of_divergence_is_refused():
    class Mine(Divergence):
        name = "mine"

    for divergence in (Divergence(), Mine()):
        with pytest.raises(ValueError, match=r"make your own with Divergence\.custom"):
            worst_case([1.0, 2.0], 0.1, divergence)


# -- real losses ---------------------------------------------------------------------------------


def logistic_losses(path: Path) -> np.ndarray:
    """Losses of the difference of the class means as a linear model, on raw features."""
    with np.load(path) as stored:
        if str(stored["format"]) == "csr":
            parts = (stored["data"], stored["indices"], stored["indptr"])
            X = sparse.csr_array(parts, shape=tuple(stored["shape"]))
        else:
            X = stored["X"]
        y = stored["y"].astype(float)
    theta = X.T @ (y / np.abs(y).sum())
    return np.logaddexp(0.0, -y * (X @ theta))


@pytest.mark.slow
def test_certified_on_real_losses(data_folder):
    for path in sorted(data_folder.glob("*.npz")):
        z = logistic_losses(path)
        spread = z.max() - z.min()
        for divergence in FAST:
            for rho in (0.01, 0.1, 1.0):
                wc = worst_case(z, radius_of(divergence, rho), divergence)
                assert wc.gap <= 1e-10 * max(1.0, spread), (path.name, divergence)
                assert wc.achieved <= rho * (1.0 + 1e-9), (path.name, divergence)
                assert abs(wc.weights.sum() - 1.0) <= 1e-12, (path.name, divergence)
