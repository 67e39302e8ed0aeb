"""Problems that many tests share: divergences, losses, small data sets, functions, failures."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib.util import find_spec
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import strategies as st

import drolearn
from drolearn import (
    FSG,
    GSSG,
    KL,
    PSSG,
    SGD,
    ChiSquare,
    CressieRead,
    CVaR,
    Divergence,
    Hellinger,
    JensenShannon,
    ReverseKL,
    TotalVariation,
    Triangular,
)
from drolearn.divergence import as_divergence

# -- functions for custom divergences and losses, at the top level so that they can be pickled --


def kl(s):
    """φ of KL."""
    return s * np.log(s) - s + 1.0


def softplus(x):
    """The logistic loss of a margin."""
    return np.logaddexp(0.0, -x)


def softplus_slope(x):
    """The derivative of the logistic loss."""
    return -1.0 / (1.0 + np.exp(x))


def _burg(s):
    return s - 1.0 - np.log(s)


def _burg_slope(s):
    return 1.0 - 1.0 / s


def _burg_inverse(t):
    return np.where(t < 1.0, 1.0 / (1.0 - t), np.inf)


def _bent(s):
    """Quadratic on [½, 2] and straight outside: the optimal s jumps at two slopes."""
    c = np.minimum(np.maximum(s, 0.5), 2.0) - 1.0
    return c * (c + 2.0 * (s - 1.0 - c))


def _bent_slope(s):
    return 2.0 * (np.minimum(np.maximum(s, 0.5), 2.0) - 1.0)


def _bent_inverse(t):
    return np.where(t > 2.0, np.inf, (1.0 + 0.5 * t) * (t >= -1.0))


# -- divergences ---------------------------------------------------------------------------------

CUSTOM_KL = Divergence.custom(kl, np.log, np.exp, phi_zero=1.0, name="custom-kl")
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
    Triangular(),
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
#: All but the one that takes thousands of sweeps.
FAST = [divergence for divergence in ALL if divergence is not CUSTOM_BENT]


def radius_of(divergence: Any, rho: float) -> float | None:
    """The radius, but None for CVaR, which has none."""
    return None if as_divergence(divergence).name == "cvar" else rho


def worst_case(
    losses: Any,
    rho: Any = None,
    divergence: Any = "chi2",
    sample_weight: Any = None,
    **options: Any,
) -> drolearn.WorstCase:
    """`drolearn.worst_case`, without the radius for CVaR."""
    radius = radius_of(divergence, rho)
    return drolearn.worst_case(losses, radius, divergence, sample_weight, **options)


def name(divergence: Divergence) -> str:
    """The label of a divergence in parametrised tests."""
    return (
        divergence.name if divergence in (CUSTOM_KL, CUSTOM_BURG, CUSTOM_BENT) else repr(divergence)
    )


# -- random inner problems -----------------------------------------------------------------------

radii = st.floats(-8.0, 3.0).map(lambda e: 10.0**e)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def losses(draw, max_size: int = 300) -> np.ndarray:
    """Losses of many shapes and sizes; hypothesis searches only over their shape and seed."""
    size = draw(st.one_of(st.integers(1, 8), st.integers(1, max_size)))
    rng = np.random.default_rng(draw(seeds))
    normal = rng.standard_normal(size)
    shape = draw(st.integers(0, 10))
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
    ][shape]()


@st.composite
def bases(draw, size: int) -> np.ndarray | None:
    """None, ordinary weights with zeros among them, or weights of very different size."""
    rng = np.random.default_rng(draw(seeds))
    shape = draw(st.integers(0, 3))
    if shape == 2:
        base = rng.exponential(size=size) * (rng.random(size) < 0.7)
        base[rng.integers(size)] = 1.0
        return base
    if shape == 3:
        return 10.0 ** rng.uniform(-12.0, 0.0, size)
    return None


@st.composite
def problems(draw, divergences=ALL, max_size: int = 300):
    """Losses, base weights, radius and divergence."""
    z = draw(losses(max_size))
    base = draw(bases(z.size))
    edge = draw(st.sampled_from([None, None, None, np.argmax, np.argmin]))
    if edge is not None:  # hardly any weight on the largest or smallest loss
        base = np.ones(z.size) if base is None else base
        base[edge(z)] = 10.0 ** draw(st.floats(-15.0, -8.0))
        base[edge(-z)] = 1.0
    return z, base, draw(radii), draw(st.sampled_from(divergences))


def normalised(base: np.ndarray | None, size: int) -> np.ndarray:
    """Base weights with sum 1; equal ones for None."""
    return np.full(size, 1.0 / size) if base is None else base / base.sum()


# -- data sets for linear models -----------------------------------------------------------------


def labelled(n: int = 400, d: int = 5, seed: int = 0, flips: float = 0.1):
    """Columns of different scales and labels ±1, a share `flips` of them wrong."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-1, 2, d) + 1.0
    y = np.where((X / X.std(axis=0)) @ rng.standard_normal(d) > 0.5, 1, -1)
    return X, np.where(rng.random(n) < flips, -y, y)


def noisy(n: int = 2000, d: int = 3, seed: int = 1):
    """Standard normal columns; the label is the sign of the first plus noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 0, 1, -1)


#: The stochastic solvers by name.
STOCHASTIC = ["gssg", "gssg-anchor", "pssg", "fsg", "sgd"]


def stochastic(name: str, **settings: Any) -> Any:
    """The stochastic solver of a name, with some settings."""
    solvers = {"gssg": GSSG(), "gssg-anchor": GSSG(anchor=True), "pssg": PSSG(), "fsg": FSG()}
    return solvers.get(name, SGD()).set_params(**settings)


# -- callbacks -----------------------------------------------------------------------------------

needs_callbacks = pytest.mark.skipif(
    find_spec("sklearn.callback") is None, reason="scikit-learn has callbacks from version 1.9 on"
)


class Count:
    """A callback for scikit-learn that counts passes and folds, and stops after some."""

    def __init__(self, stop_after=None):
        self.seen, self.models, self.ended, self.stop_after = 0, [], 0, stop_after

    def setup(self, estimator, context):
        self.root = context

    def teardown(self, estimator, context):
        self.ended += 1

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name in ("pass", "fold"):
            self.seen += 1
            self.models.append(fitted_estimator)
            return self.stop_after is not None and self.seen >= self.stop_after
        return False


# -- failures ------------------------------------------------------------------------------------


def disk_full(*_: Any, **__: Any) -> NoReturn:
    """Stands in for a function that writes."""
    raise OSError(28, "No space left on device")


def dead_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid
