"""Small radii: the divergence of the weights is the radius, up to the rounding of the weights.

The exact divergence is computed in decimal arithmetic with 50 digits.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from drolearn import (
    ChiSquare,
    CressieRead,
    Divergence,
    Hellinger,
    JensenShannon,
    ReverseKL,
    TotalVariation,
    Triangular,
    _core,
    worst_case,
)
from drolearn.divergence import _expm1_minus_x, _x_minus_log1p
from tests.examples import BALLS, CUSTOM_BENT, CUSTOM_BURG, CUSTOM_KL, name

RADII = [1e-12, 3e-11, 1e-9, 2e-8, 1e-7, 1e-6, 9e-6]
SMOOTH = [d for d in BALLS if not isinstance(d, TotalVariation)]


def exact_phi(divergence: Divergence, s: Decimal) -> Decimal:
    """φ(s) for s > 0, from the definitions."""
    if divergence is CUSTOM_BENT or isinstance(divergence, ChiSquare):
        return (s - 1) ** 2  # near 1, where the weights are
    if divergence is CUSTOM_BURG or isinstance(divergence, ReverseKL):
        return s - 1 - s.ln()
    if isinstance(divergence, Hellinger):
        return (s.sqrt() - 1) ** 2 / 2
    if isinstance(divergence, JensenShannon):
        return (s * s.ln() - (1 + s) * ((1 + s) / 2).ln()) / 2
    if isinstance(divergence, Triangular):
        return (s - 1) ** 2 / (s + 1)
    if isinstance(divergence, TotalVariation):
        return abs(s - 1) / 2
    if isinstance(divergence, CressieRead):
        k = Decimal(divergence.k)
        return ((s.ln() * k).exp() - k * s + k - 1) / (k * (k - 1))
    return s * s.ln() - s + 1


def exact_divergence(divergence: Divergence, p: np.ndarray, base: np.ndarray) -> Decimal:
    """D(P, B) of float64 weights; the base weights are divided by their exact sum."""
    with localcontext() as context:
        context.prec = 50
        b = [Decimal(float(x)) for x in base]
        total = sum(b, Decimal(0))
        pairs = zip(p, b, strict=True)
        terms = (x * exact_phi(divergence, Decimal(float(q)) * total / x) for q, x in pairs)
        return sum(terms, Decimal(0)) / total


def relative_error(value: Decimal | float, expected: float) -> float:
    return abs(float((Decimal(value) - Decimal(expected)) / Decimal(expected)))


def rounding_bound(divergence: Divergence, rho: float) -> float:
    """The bound in the documentation of `WorstCase`."""
    return 2.0**-52 * math.sqrt(2.0 * divergence.curvature / rho)


def problems(size: int):
    """Losses and base weights: ordinary, weighted, ties, an outlier, and skewed ones."""
    rng = np.random.default_rng(size)
    z, ones = rng.standard_normal(size), np.ones(size)
    yield z, ones
    yield rng.exponential(size=size) + 1e3, rng.random(size) + 0.01
    yield np.where(np.arange(size) == 1, 2.0, np.round(z)), ones
    yield np.where(np.arange(size) == 0, 1e4, 1e-3 * z), ones
    yield -np.exp(rng.uniform(0.0, 20.0, size)), 10.0 ** rng.uniform(-6.0, 0.0, size)


@pytest.mark.parametrize("rho", RADII)
@pytest.mark.parametrize("divergence", SMOOTH, ids=name)
def test_divergence_is_the_radius(divergence, rho):
    for size in (2, 7, 150 if divergence is not CUSTOM_BENT else 20):
        for z, base in problems(size):
            wc = worst_case(z, rho, divergence, base)
            assert wc.alpha > 0.0
            assert relative_error(wc.achieved, rho) <= 1e-9
            assert relative_error(exact_divergence(divergence, wc.weights, base), rho) <= 1e-9
            assert abs(math.fsum(wc.weights) - 1.0) <= 1e-14
            assert wc.gap <= 1e-10 * np.ptp(z)


@pytest.mark.parametrize("divergence", [d for d in SMOOTH if d.family != "custom"], ids=name)
def test_achieved_is_accurate_for_built_in_divergences(divergence):
    for rho in RADII:
        for z, base in problems(40):
            assert relative_error(worst_case(z, rho, divergence, base).achieved, rho) <= 2e-12


@pytest.mark.parametrize("divergence", [d for d in SMOOTH if d is not CUSTOM_BENT], ids=name)
def test_smallest_radii_are_limited_by_the_rounding_of_the_weights(divergence):
    for rho in (1e-15, 1e-14, 1e-13):
        for size in (2, 7, 150):
            for z, base in problems(size):
                wc = worst_case(z, rho, divergence, base)
                bound = rounding_bound(divergence, rho)
                exact = exact_divergence(divergence, wc.weights, base)
                assert relative_error(exact, rho) <= bound
                assert relative_error(wc.achieved, rho) <= bound


def test_total_variation_is_limited_by_the_rounding_of_the_weights():
    divergence = TotalVariation()
    for rho in RADII:
        for size in (2, 7, 150):
            for z, base in problems(size):
                wc = worst_case(z, rho, divergence, base)
                exact = float(exact_divergence(divergence, wc.weights, base))
                assert exact == pytest.approx(rho, rel=0.0, abs=2e-16)
                assert wc.achieved == pytest.approx(rho, rel=0.0, abs=2e-16)


@pytest.mark.parametrize("rho", [1e-12, 1e-8])
@pytest.mark.parametrize("divergence", BALLS[:5], ids=name)
def test_value_is_the_expansion_in_the_radius(divergence, rho):
    """R = mean + √(2ρ/φ''(1)) × standard deviation + O(ρ)."""
    z = np.random.default_rng(0).exponential(size=1000)
    value = worst_case(z, rho, divergence).value
    expected = z.mean() + math.sqrt(2.0 * rho / divergence.curvature) * z.std()
    assert abs(value - expected) <= 100.0 * rho + 1e-14


def test_a_slope_at_one_does_not_matter():
    """s log s is φ of KL plus s − 1."""
    plain = Divergence.custom(
        lambda s: s * np.log(s), lambda s: np.log(s) + 1.0, lambda t: np.exp(t - 1.0), phi_zero=0.0
    )
    for rho in RADII:
        for z, base in problems(50):
            p = worst_case(z, rho, plain, base).weights
            assert relative_error(exact_divergence(CUSTOM_KL, p, base), rho) <= 1e-9
            b = base / base.sum()
            assert relative_error(plain.between(p, b), rho) <= 3e-9


@pytest.mark.parametrize("divergence", BALLS[:4], ids=name)
def test_many_losses(divergence):
    """With 10⁵ losses, from a subsample and with threads; the rounding errors average out."""
    rng = np.random.default_rng(0)
    z, base = rng.exponential(size=140_000), rng.random(140_000) + 0.1
    for rho in (1e-12, 1e-7):
        wc = worst_case(z, rho, divergence, base)
        assert relative_error(wc.achieved, rho) <= 2e-12
        assert relative_error(divergence.between(wc.weights, base / base.sum()), rho) <= 1e-11
        threaded = worst_case(z, rho, divergence, base, n_jobs=2)
        assert np.array_equal(threaded.weights, wc.weights)
        assert threaded.achieved == wc.achieved


@pytest.mark.parametrize("divergence", SMOOTH, ids=name)
def test_sweeps_of_the_caller_give_the_same_bits(divergence):
    z = np.random.default_rng(1).exponential(size=5000 if divergence is not CUSTOM_BENT else 50)
    out, surveys = np.empty(z.size), np.empty((-(-z.size // _core.CHUNK), 5))
    _core.survey(z, None, surveys)
    search = _core.Search(divergence.core, 1e-10, z.size, surveys, (math.inf, 0.0))
    while not search.done:
        parts = np.empty((surveys.shape[0], 6))
        _core.Search(divergence.core, search.state).sweep(z, None, out, parts)
        search.advance(parts)
    wc = worst_case(z, 1e-10, divergence)
    assert np.array_equal(out, wc.weights)
    assert search.answer()[1:3] == (wc.value, wc.achieved)


@pytest.mark.parametrize("divergence", [d for d in BALLS if d is not CUSTOM_BENT], ids=name)
def test_between_is_accurate_next_to_the_base_weights(divergence):
    rng = np.random.default_rng(0)
    b = 2.0 ** rng.integers(-8, -4, 60)  # p/b − 1 is exact, and so is the sum of b
    for size in (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.2, 0.5):
        p = b * (1.0 + size * rng.uniform(-1.0, 1.0, b.size))
        with localcontext() as context:
            context.prec = 50
            pairs = [(Decimal(float(q)), Decimal(float(w))) for q, w in zip(p, b, strict=True)]
            exact = sum((w * exact_phi(divergence, q / w) for q, w in pairs), Decimal(0))
        # The functions of a custom divergence have rounding errors of 1e-16.
        tolerance = 2e-10 + 4e-16 / size if divergence.family == "custom" else 1e-14
        assert relative_error(divergence.between(p, b), float(exact)) <= tolerance


@pytest.mark.parametrize("divergence", [d for d in BALLS if d.family != "custom"], ids=name)
def test_phi_is_accurate_everywhere(divergence):
    steps = [1e-12, 1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.24, 0.26, 0.3, 0.5, 0.9]
    for t in [*steps, *(-x for x in steps), 3.0, 100.0, 1e10]:
        s = 1.0 + t
        with localcontext() as context:
            context.prec = 50
            exact = float(exact_phi(divergence, Decimal(s)))
        assert float(divergence.phi(s)) == pytest.approx(exact, rel=3e-14, abs=0.0)


@pytest.mark.parametrize("k", [-50.0, -1e-7, 1e-7, 0.5, 0.51, 1.0 - 1e-7, 1.0 + 1e-7, 2.0, 20.0])
def test_cressie_read_of_any_power(k):
    divergence = CressieRead(k)
    for t in (1e-9, -1e-6, 1e-3, -0.1, 0.24, 0.26, -0.3, 0.5):
        with localcontext() as context:
            context.prec = 60
            exact = float(exact_phi(divergence, Decimal(1.0 + t)))
        assert float(divergence.phi(1.0 + t)) == pytest.approx(exact, rel=3e-14, abs=0.0)
    for rho in (1e-12, 1e-8):
        z, base = next(problems(60))
        wc = worst_case(z, rho, divergence, base)
        assert relative_error(exact_divergence(divergence, wc.weights, base), rho) <= 1e-9


@pytest.mark.parametrize("portable", [False, True])
def test_differences_of_elementary_functions(portable):
    """eˣ − 1 − x and x − log(1 + x), in the core and in Python."""
    small = np.concatenate([10.0 ** np.linspace(-150, -0.01, 400), [0.29, 0.35, 0.41, 0.5]])
    x = np.concatenate([small, -small, [2.0, 30.0, 300.0]])
    with localcontext() as context:
        context.prec = 400
        points = [Decimal(float(v)) for v in x]
        exp = np.array([float(v.exp() - 1 - v) for v in points])
        log = np.array([float(v - (1 + v).ln()) for v in points])
    out = np.empty(x.size)
    for function, python, exact in (
        ("expm1_minus_x", _expm1_minus_x, exp),
        ("x_minus_log1p", _x_minus_log1p, log),
    ):
        _core.elementary(function, x, out, portable)
        np.testing.assert_allclose(out, exact, rtol=4e-15)
        np.testing.assert_allclose(python(x), exact, rtol=4e-15)
    with pytest.raises(ValueError, match="no elementary function"):
        _core.elementary("sin", x, out)
