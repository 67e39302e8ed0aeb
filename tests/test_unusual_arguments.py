"""Huge, tiny, infinite, missing and non-numeric arguments: a result or an error that names them.

Warnings are errors in all tests.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from drolearn import KL, ChiSquare, CressieRead, CVaR, Divergence, Loss, ReverseKL
from drolearn.loss import as_loss
from tests.examples import ALL, BALLS, name, worst_case

NOT_NUMBERS = ["a", None, [1.0], 1j, 10**400, object()]
NUMBERS = {
    "huge": [1e300, 1.0, 0.0],
    "tiny": [1e-300, 2e-300, 0.0],
    "subnormal": [5e-324, 1e-323, 0.0],
    "largest": [1.7e308, 5e-324, 1.0],
    "integers": [1, 2, 3],
    "booleans": [True, False, True],
    "objects": np.array([1, 2.5, True], dtype=object),
    "half precision": np.array([1, 2, 60000], dtype=np.float16),
    "long double": np.array([1, 2, 3], dtype=np.longdouble),
    "constant": [2.0, 2.0, 2.0],
}
WRONG = {
    "strings": ["a", "b"],
    "digits": ["1", "2"],
    "complex": [1j, 2.0],
    "too large": [10**400, 1],
    "ragged": [[1.0], [2.0, 3.0]],
    "None": [1.0, None],
    "a dictionary": {1: 2},
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
}


def assert_worst_case_or_error(z, rho, divergence, weights):
    """Base weights that differ by hundreds of orders of magnitude may be too much for a search."""
    try:
        value = worst_case(z, rho, divergence, weights).value
    except RuntimeError:
        assert np.ptp(weights) >= 1e300
    else:
        assert min(z) <= value <= max(z)


@pytest.mark.parametrize("divergence", ALL, ids=name)
@pytest.mark.parametrize("values", NUMBERS.values(), ids=NUMBERS)
def test_losses_and_weights_of_any_size(divergence, values):
    for rho in (0.0, 1e-300, 1e-12, 0.1, math.inf):
        worst = worst_case(values, rho, divergence)
        assert math.isfinite(worst.value)
        assert abs(worst.weights.sum() - 1.0) <= 1e-12
        assert_worst_case_or_error([1.0, 2.0, 3.0], rho, divergence, values)


@pytest.mark.parametrize("divergence", [ReverseKL(), KL(), CressieRead(-1.0)], ids=name)
def test_a_huge_radius_gives_the_largest_loss(divergence):
    for rho in (1e10, 1e100, 1e300):
        worst = worst_case([1.0, 2.0, 3.0], rho, divergence, [1, 1, 200])
        assert worst.value == pytest.approx(3.0, rel=1e-4)
        assert worst.gap <= 1e-6


def test_infinite_radius_and_rows_of_weight_zero():
    worst = worst_case([1.0, 2.0, 3.0], math.inf, "chi2", [1.0, 1.0, 0.0])
    assert worst.value == 2.0


@pytest.mark.parametrize("divergence", BALLS, ids=name)
def test_phi_at_the_ends(divergence):
    s = [-1.0, 0.0, 5e-324, 1e-300, 1.0, 1e300, math.inf]
    values = divergence.phi(s)
    assert values[0] == math.inf
    assert values[1] == divergence.phi_zero
    assert values[4] == 0.0
    assert values[6] == math.inf
    assert not np.isnan(values).any()
    assert np.isnan(divergence.phi([math.nan, 2.0])).tolist() == [True, False]
    assert divergence.phi(2).shape == ()


@pytest.mark.parametrize("divergence", BALLS, ids=name)
@pytest.mark.parametrize("tiny", [1e-300, 5e-324])
def test_maximum_and_between_with_a_tiny_base_weight(divergence, tiny):
    """b φ(1/b) is finite for small b even where 1/b overflows, unless φ grows too fast."""
    largest = divergence.maximum(tiny)
    between = divergence.between([1.0, 0.0], [tiny, 1.0])
    assert largest == between or largest == pytest.approx(between, rel=1e-12)
    expected = divergence.slope_infinity
    if isinstance(divergence, KL):
        expected = -math.log(tiny)
    elif isinstance(divergence, ChiSquare):
        expected = 1.0 / tiny
    elif isinstance(divergence, CressieRead) and divergence.k == 1.2:
        expected = tiny**-0.2 / (1.2 * 0.2)
    elif expected < math.inf:
        expected += divergence.phi_zero
    if divergence.family != "custom":
        assert largest == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("values", WRONG.values(), ids=WRONG)
def test_arrays_that_are_not_numbers_are_named(values):
    for call, parameter in (
        (lambda: ChiSquare().phi(values), "s"),
        (lambda: ChiSquare().between(values, [0.5, 0.5]), "p"),
        (lambda: ChiSquare().between([0.5, 0.5], values), "base"),
        (lambda: as_loss("logistic").at(values), "x"),
        (lambda: worst_case(values), "losses"),
    ):
        with pytest.raises(ValueError, match=rf"The '{parameter}' parameter must"):
            call()


def test_between_names_what_is_wrong():
    with pytest.raises(ValueError, match=r"'p' and 'base' must be vectors of one length"):
        KL().between([0.5, 0.5], [1.0])
    with pytest.raises(ValueError, match=r"at least one number\. Got shapes \(0,\) and \(0,\)"):
        KL().between([], [])
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"'p' parameter must hold finite .* Got {wrong}"):
            KL().between([wrong, 0.5], [0.5, 0.5])
        with pytest.raises(ValueError, match=rf"'base' parameter must hold finite .* Got {wrong}"):
            KL().between([0.5, 0.5], [0.5, wrong])
    with pytest.raises(ValueError, match=r"'base' parameter must hold weights of at least 0"):
        KL().between([0.5, 0.5], [-0.5, 1.5])
    assert KL().between([-0.5, 1.5], [0.5, 0.5]) == math.inf
    assert KL().between([0.5, 0.5], [0.0, 1.0]) == math.inf


@pytest.mark.parametrize("value", [*NOT_NUMBERS, True, math.nan])
def test_single_values_that_are_not_numbers_are_named(value):
    def custom(**options):
        return Divergence.custom(
            lambda s: (s - 1) ** 2, lambda s: 2 * (s - 1), lambda t: 1 + t / 2, **options
        )

    def loss(**options):
        return Loss.custom(np.cosh, np.sinh, of="residual", **options)

    for call, parameter in (
        (lambda: ChiSquare().maximum(value), "peak"),
        (lambda: CVaR(value), "level"),
        (lambda: CressieRead(value), "k"),
        (lambda: Loss.huber(value), "width"),
        (lambda: Loss.smoothed_hinge(value), "width"),
        (lambda: loss(smoothness=value), "smoothness"),
        (lambda: custom(slope_infinity=value), "slope_infinity"),
        (lambda: worst_case([1.0, 2.0], value), "rho"),
    ):
        if value is None and parameter == "rho":
            continue
        with pytest.raises(ValueError, match=rf"The '{parameter}' parameter"):
            call()
    if value is not None:
        with pytest.raises(ValueError, match=r"The 'phi_zero' parameter"):
            custom(phi_zero=value)


def test_numbers_of_numpy_are_accepted():
    assert Loss.huber(np.float32(0.5)).width == 0.5
    assert Loss.custom(np.cosh, np.sinh, of="residual", smoothness=np.int64(3)).smoothness == 3.0
    assert ChiSquare().maximum(np.float32(0.5)) == 1.0


@pytest.mark.parametrize(
    "loss", ["logistic", "squared-hinge", "smoothed-hinge", "squared", "huber"]
)
def test_losses_at_the_ends(loss):
    x = [-math.inf, -1.7e308, -1e300, -5e-324, 0.0, 5e-324, 1e300, math.inf]
    values, slopes = as_loss(loss).at(x)
    assert (values >= 0.0).all()
    assert not np.isnan(slopes).any()
    assert values[0] == math.inf
    if as_loss(loss).of == "margin":
        assert values[-1] == 0.0
        assert loss == "squared-hinge" or values[1] == pytest.approx(1.7e308)
    assert np.isnan(as_loss(loss).at([math.nan, 1.0])[0]).tolist() == [True, False]
    assert [part.size for part in as_loss(loss).at([])] == [0, 0]


def test_custom_losses_of_any_size():
    for size in (1e300, 1e-300):
        loss = Loss.custom(
            lambda x, c=size: c * x * x, lambda x, c=size: 2 * c * x, of="residual", smoothness=size
        )
        assert loss.at([1.0])[0] == size
    with pytest.raises(ValueError, match=r"value\(x\) must be finite"):
        Loss.custom(lambda x: 1e308 * x * x, lambda x: 2e308 * x, of="residual", smoothness=1.0)
    with pytest.raises(ValueError, match=r"'value' parameter must return one number for each"):
        Loss.custom(lambda x: 1j * x, lambda x: x, of="residual", smoothness=1.0)
