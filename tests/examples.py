"""Every divergence and many kinds of losses, for the property tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from drolearn import (
    KL,
    ChiSquare,
    CressieRead,
    CVaR,
    Divergence,
    Hellinger,
    JensenShannon,
    ReverseKL,
    TotalVariation,
)


def _kl(s):
    return s * np.log(s) - s + 1.0


def _burg(s):
    return s - 1.0 - np.log(s)


def _burg_slope(s):
    return 1.0 - 1.0 / s


def _burg_inverse(t):
    return np.where(t < 1.0, 1.0 / (1.0 - t), np.inf)


def _bent(s):
    """Straight on both sides of [½, 2], curved in between: s jumps at two slopes."""
    c = np.minimum(np.maximum(s, 0.5), 2.0) - 1.0
    return c * (c + 2.0 * (s - 1.0 - c))


def _bent_slope(s):
    return 2.0 * (np.minimum(np.maximum(s, 0.5), 2.0) - 1.0)


def _bent_inverse(t):
    return np.where(t > 2.0, np.inf, (1.0 + 0.5 * t) * (t >= -1.0))


CUSTOM_KL = Divergence.custom(_kl, np.log, np.exp, phi_zero=1.0, name="custom-kl")
CUSTOM_BURG = Divergence.custom(
    _burg, _burg_slope, _burg_inverse, phi_zero=math.inf, slope_infinity=1.0, name="custom-burg"
)
CUSTOM_BENT = Divergence.custom(
    _bent, _bent_slope, _bent_inverse, strictly_convex=False, name="custom-bent"
)

#: All divergences whose ball depends on the radius.
BALLS = [
    ChiSquare(),
    KL(),
    ReverseKL(),
    Hellinger(),
    JensenShannon(),
    TotalVariation(),
    CressieRead(-1.0),
    CressieRead(0.3),
    CressieRead(0.9),
    CressieRead(1.2),
    CressieRead(3.0),
    CUSTOM_KL,
    CUSTOM_BURG,
    CUSTOM_BENT,
]
ALL = [*BALLS, CVaR(0.05), CVaR(0.5)]


def name(divergence: Divergence) -> str:
    """For the labels of parametrised tests."""
    return (
        divergence.name if divergence in (CUSTOM_KL, CUSTOM_BURG, CUSTOM_BENT) else repr(divergence)
    )


radii = st.floats(-8.0, 3.0).map(lambda e: 10.0**e)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def losses(draw, max_size: int = 300) -> np.ndarray:
    """Losses of many shapes and sizes; only their kind and seed are searched over."""
    size = draw(st.one_of(st.integers(1, 8), st.integers(1, max_size)))
    rng = np.random.default_rng(draw(seeds))
    normal = rng.standard_normal(size)
    kind = draw(st.integers(0, 10))
    return [
        lambda: normal,
        lambda: rng.exponential(size=size),
        lambda: np.round(normal),  # ties, also at the top
        lambda: np.where(np.arange(size) == size // 2, 1e4, 1e-3 * normal),  # one outlier
        lambda: -np.exp(rng.uniform(0.0, 50.0, size)),  # all negative, crowded at the top
        lambda: np.exp(rng.uniform(0.0, 50.0, size)),
        lambda: np.full(size, normal[0]),
        lambda: normal + 1e6,
        lambda: normal * 10.0 ** rng.uniform(-150.0, 150.0),
        lambda: np.logaddexp(0.0, -10.0 * normal),  # logistic losses
        lambda: 1.0 - 10.0 ** rng.uniform(-14.0, 0.0, size),  # next to the top
    ][kind]()


@st.composite
def bases(draw, size: int) -> np.ndarray | None:
    """None, ordinary weights with zeros among them, or weights of very different size."""
    rng = np.random.default_rng(draw(seeds))
    kind = draw(st.integers(0, 3))
    if kind == 2:
        base = rng.exponential(size=size) * (rng.random(size) < 0.7)
        base[rng.integers(size)] = 1.0
        return base
    if kind == 3:
        return 10.0 ** rng.uniform(-12.0, 0.0, size)
    return None


@st.composite
def problems(draw, divergences=ALL, max_size: int = 300):
    """Losses, base, radius and divergence."""
    z = draw(losses(max_size))
    base = draw(bases(z.size))
    edge = draw(st.sampled_from([None, None, None, np.argmax, np.argmin]))
    if edge is not None:  # hardly any weight where it matters most
        base = np.ones(z.size) if base is None else base
        base[edge(z)] = 10.0 ** draw(st.floats(-15.0, -8.0))
        base[edge(-z)] = 1.0
    return z, base, draw(radii), draw(st.sampled_from(divergences))


def normalised(base: np.ndarray | None, size: int) -> np.ndarray:
    """The base weights that are meant."""
    return np.full(size, 1.0 / size) if base is None else base / base.sum()
