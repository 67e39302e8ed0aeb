"""Losses: slopes, second derivatives, conjugates, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from drolearn import Loss
from drolearn.loss import as_loss
from tests.examples import softplus, softplus_slope

NAMED = ["logistic", "squared-hinge", "smoothed-hinge", "squared", "huber"]
LOSSES = [
    *map(as_loss, NAMED),
    Loss.smoothed_hinge(0.3),
    Loss.huber(0.5),
    Loss.custom(softplus, softplus_slope, of="margin", smoothness=0.25),
]
GRID = np.linspace(-6.0, 6.0, 241) + 0.0123


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name}-{loss.width}")
def test_derivatives_and_smoothness(loss):
    value, slope = loss.at(GRID)
    step = 1e-6
    numeric = (loss.at(GRID + step)[0] - loss.at(GRID - step)[0]) / (2 * step)
    np.testing.assert_allclose(slope, numeric, atol=1e-8)
    assert (np.diff(slope) >= -1e-15).all()  # convex
    y = np.ones(GRID.size) if loss.of == "margin" else np.zeros(GRID.size)
    bend = loss.bends(GRID, y)
    turning = (loss.at(GRID + step)[1] - loss.at(GRID - step)[1]) / (2 * step)
    np.testing.assert_allclose(bend, turning, atol=1e-4)
    assert bend.max() <= loss.smoothness * (1 + 1e-6)
    assert value.min() >= 0.0


@pytest.mark.parametrize("loss", LOSSES[:-1], ids=lambda loss: f"{loss.name}-{loss.width}")
def test_conjugates_are_tight_at_the_slope_and_bounds_elsewhere(loss):
    rng = np.random.default_rng(0)
    f, other = rng.standard_normal(50), rng.standard_normal(50)
    y = np.where(rng.random(50) < 0.5, 1.0, -1.0) if loss.of == "margin" else other[::-1].copy()
    z, u = loss.of_scores(f, y)
    z2, _ = loss.of_scores(other, y)
    assert loss.conjugate is not None
    np.testing.assert_allclose(z + loss.conjugate(u, y), u * f, atol=1e-12)
    assert (z2 + loss.conjugate(u, y) >= u * other - 1e-12).all()


def test_logistic_is_exact_for_large_margins():
    value, slope = as_loss("logistic").at([-800.0, -40.0, 0.0, 40.0, 700.0])
    np.testing.assert_allclose(
        value, [800.0, 40.0 + math.exp(-40.0), math.log(2.0), math.exp(-40.0), math.exp(-700.0)],
        rtol=1e-14,
    )  # fmt: skip
    np.testing.assert_allclose(slope[2:4], [-0.5, -math.exp(-40.0)], rtol=1e-14)


def test_multinomial_of_two_classes_is_logistic():
    rng = np.random.default_rng(1)
    f, y = rng.standard_normal((20, 2)), (rng.random(20) < 0.5).astype(float)
    z, slope = as_loss("multinomial").of_scores(f.ravel(), y)
    expected, _ = as_loss("logistic").at((f[:, 1] - f[:, 0]) * (2 * y - 1))
    np.testing.assert_allclose(z, expected, rtol=1e-13)
    np.testing.assert_allclose(slope.reshape(20, 2).sum(axis=1), 0.0, atol=1e-15)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: as_loss("logistik"), "Did you mean 'logistic'"),
        (lambda: as_loss(3), "must be one of 'logistic'"),
        (lambda: Loss.huber(0.0), "The 'width' parameter must be a positive number"),
        (
            lambda: Loss.custom(softplus, softplus_slope, of="score", smoothness=1.0),  # type: ignore[arg-type]
            "must be 'margin' or 'residual'",
        ),
        (
            lambda: Loss.custom(softplus, softplus_slope, of="margin", smoothness=0.0),
            "The 'smoothness' parameter",
        ),
        (
            lambda: Loss.custom(softplus, lambda x: 1.0, of="margin", smoothness=1.0),
            "slope must be the derivative of value",
        ),
        (
            lambda: Loss.custom(lambda x: -x * x, lambda x: -2 * x, of="margin", smoothness=1.0),
            "must be convex",
        ),
        (
            lambda: Loss.custom(np.log, lambda x: 1 / x, of="margin", smoothness=1.0),
            "must be finite",
        ),
        (
            lambda: Loss.custom(math.exp, math.exp, of="margin", smoothness=1.0),
            "takes single numbers only: write np.log",
        ),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()
