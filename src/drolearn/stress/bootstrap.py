"""Bootstrap-t: the law of (R* − R)/error* over samples drawn from a model of the population.

The model is the sample itself, but for the largest tenth of the losses, if they have equal weights
and few ties.  A sample has few rows in its tail; redrawn, they vary less than a new sample would,
and intervals for heavy tails hold too seldom.  So the exceedances x = z − u of the threshold u
follow a generalized Pareto law,

    P(x > t) = (1 + ξ t/σ)^(−1/ξ),        E x = σ/(1 − ξ),

fitted by L-moments, so that the model has the mean of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drolearn.stress.balls import Ball
from drolearn.stress.chi2_balls import SortedLosses
from drolearn.stress.worst_cases import Sample, chi2_radii, influence, is_chi2, solve_ball

__all__ = ["Population", "quantiles"]

Array = NDArray[np.float64]

# At most this many rows are drawn: beyond, the influence function alone is used.
_MOST_ROWS = 20_000
# The bootstrap is run for at most this many balls, of χ² and of other divergences, which take
# longer; between them, the quantiles are interpolated.
_NODES, _SLOW_NODES = 25, 8
# Bootstrap samples; more for higher levels, so that ten are outside on each side.
_SAMPLES = 499
# Numbers in the arrays of a batch of bootstrap samples.
_BATCH = 1 << 15

# The tail is this share of the rows, and at least so many; fewer cannot be fitted.
_TAIL, _TAIL_ROWS = 0.1, 20
# Shapes beyond these are put down to chance: with ξ = −1 the tail is uniform, with ξ = 0.4 its
# third moment is infinite.
_SHAPES = (-1.0, 0.4)
# The tail is cut into cells, each with e^(−0.1) of the probability beyond the one before; the last
# one is the end of the tail, with e^(−12) of its probability.
_CELL, _CELLS = 0.1, 121


class Population:
    """Losses in decreasing order, from which bootstrap samples of as many rows are drawn.

    Parameters
    ----------
    sample : Sample
        The rows.
    """

    def __init__(self, sample: Sample) -> None:
        order = np.argsort(-sample.z, kind="stable")
        self.z = sample.z[order]
        self.rows = self.z.size
        weights = sample.weights
        self.weights = None if weights is None or np.ptp(weights) == 0.0 else weights[order]
        self.share = sample.base[order]
        self.tail = 0  # rows that are replaced by cells of the tail
        k = max(_TAIL_ROWS, round(_TAIL * self.rows))
        if self.weights is None and 2 * k <= self.rows and 2 * np.unique(self.z[:k]).size > k:
            cells, probability = _tail_cells(self.z[:k] - self.z[k])
            self.tail = k
            self.z = np.concatenate([self.z[k] + cells, self.z[k:]])
            self.share = np.concatenate([probability * (k / self.rows), self.share[k:]])

    def draw(self, kept: int, samples: int, rng: np.random.Generator) -> Array:
        """How often each of the `kept` largest losses is in each sample, shape (samples, kept)."""
        n, extra = self.rows, self.z.size - self.rows
        places = kept - extra  # as many of n rows
        sizes = rng.binomial(n, places / n, samples) if places < n else np.full(samples, n)
        drawn = rng.integers(places, size=int(sizes.sum()))
        if self.tail:
            inside = drawn < self.tail
            cell = rng.exponential(1.0 / _CELL, int(inside.sum())).astype(np.int64)
            drawn += extra
            drawn[inside] = _CELLS - 1 - np.minimum(cell, _CELLS - 1)
        drawn += np.repeat(np.arange(samples) * kept, sizes)
        return np.bincount(drawn, minlength=samples * kept).reshape(samples, kept).astype(float)


def _tail_cells(x: Array) -> tuple[Array, Array]:
    """Means and probabilities of the cells of the Pareto law of x, the largest first."""
    k, mean = x.size, float(x.mean())
    # L-moments of x in decreasing order: the mean, and half the mean difference of two draws.
    spread = float(x @ (k - 1.0 - 2.0 * np.arange(k))) / (k * (k - 1.0))
    shape = min(max(2.0 - mean / spread, _SHAPES[0]), _SHAPES[1]) if spread > 0.0 else _SHAPES[0]
    above = np.exp(-_CELL * np.arange(_CELLS))  # P(x > t) at the lower ends of the cells
    below = np.append(above[1:], 0.0)
    probability = above - below
    # x(s) = σ (s^(−ξ) − 1)/ξ is exceeded with probability s; the means are exact integrals.
    if abs(shape) < 1e-6:  # the limit, x(s) = −σ log s
        integral = above - above * np.log(above)
        integral -= np.append(integral[1:], 0.0)
        cells = mean * (integral / probability)
    else:
        power = above ** (1.0 - shape)
        power -= np.append(power[1:], 0.0)
        cells = mean * ((power / probability) - (1.0 - shape)) / shape
    return cells[::-1], probability[::-1]


def quantiles(
    sample: Sample, balls: Sequence[Ball], level: float, rng: np.random.Generator
) -> Array | None:
    """The lower and upper quantile of t* = (R* − R)/error* for each ball; None if too costly."""
    if not balls:
        return None
    outside = 0.5 - 0.5 * level
    samples = max(_SAMPLES, math.ceil(10.0 / outside) - 1)
    number = _NODES if is_chi2(balls) else _SLOW_NODES
    nodes = np.unique(np.linspace(0, len(balls) - 1, number).round().astype(np.int64))
    replicates = _chi2_replicates if is_chi2(balls) else _replicates
    t = replicates(Population(sample), [balls[k] for k in nodes], samples, rng)
    if t is None:
        return None
    t.sort(axis=1)
    cut = max(math.floor((samples + 1) * outside + 1e-9), 1) - 1
    ends = np.column_stack([t[:, cut], t[:, samples - 1 - cut]])
    every = np.arange(len(balls))
    return np.column_stack([np.interp(every, nodes, ends[:, k]) for k in (0, 1)])


def _studentised(value: Array, error: Array, centre: Array) -> Array:
    """t*; infinite where the error of a bootstrap sample is zero but its value is not R."""
    away = value - centre
    with np.errstate(divide="ignore", invalid="ignore"):
        t = away / error
    return np.where(error > 0.0, t, np.where(away == 0.0, 0.0, np.copysign(np.inf, away)))


def _chi2_replicates(
    population: Population, balls: Sequence[Ball], samples: int, rng: np.random.Generator
) -> Array | None:
    """t* of χ² balls, shape (balls, samples); None for too many rows.

    Every ball sees the same bootstrap samples.  Of rows with equal weights, only the largest losses
    are drawn, as many as have a weight in the worst case; the number of draws among them is
    binomial.
    """
    rhos, weights, n = chi2_radii(balls), population.weights, population.rows
    z = population.z
    whole = SortedLosses(z, population.share[None, :], np.ones(1), None, n)
    centre, _, _, reach = whole.solve(np.zeros(rhos.size, dtype=np.int64), rhos)
    kept = z.size
    if weights is None and rhos.min() > 0.0:
        # All cells of the tail, or the samples would draw cells that are not kept.
        kept = min(kept, max(int(1.3 * int(reach.max())) + 100 + z.size - n, _CELLS))
    while kept <= _MOST_ROWS:
        t = np.empty((rhos.size, samples))
        enough = True
        for start in range(0, samples, max(1, _BATCH // kept)):
            stop = min(start + max(1, _BATCH // kept), samples)
            drawn = population.draw(kept, stop - start, rng)
            if weights is None:
                batch = SortedLosses(z[:kept], drawn, np.full(len(drawn), float(n)), None, n)
            else:
                drawn = drawn * weights
                batch = SortedLosses(z, drawn, drawn.sum(axis=1), drawn * weights, n)
            who = np.repeat(np.arange(len(drawn)), rhos.size)
            found, _, _, reach = batch.solve(who, np.tile(rhos, len(drawn)))
            enough = enough and (kept == z.size or int(reach.max()) < kept - 1)
            star = _studentised(found.value, found.error, np.tile(centre.value, len(drawn)))
            t[:, start:stop] = star.reshape(len(drawn), rhos.size).T
        if enough:
            return t
        kept = min(z.size, 2 * kept)
    return None


def _replicates(
    population: Population, balls: Sequence[Ball], samples: int, rng: np.random.Generator
) -> Array | None:
    """t* of any balls, one solve at a time; None for too many rows."""
    size = population.z.size
    if size > _MOST_ROWS:
        return None
    weights = np.ones(size) if population.weights is None else population.weights
    centre = [solve_ball(ball, population.z, population.share).value for ball in balls]
    t = np.empty((len(balls), samples))
    for k in range(samples):
        count = population.draw(size, 1, rng)[0]
        drawn = count > 0.0
        z, count = population.z[drawn], count[drawn]
        mass = count * weights[drawn]
        base = mass / mass.sum()
        squares = base * base / count  # Σ b² over the draws of each row
        for j, ball in enumerate(balls):
            worst = solve_ball(ball, z, mass)
            psi = influence(worst, z, base)
            error = math.sqrt(float(squares @ (psi * psi)) / (1.0 - float(squares.sum())))
            t[j, k] = _studentised(np.array(worst.value), np.array(error), np.array(centre[j]))
    return t
