"""Bootstrap-t: the law of (R* − R)/error* over samples drawn from a model of the population.

The model is the sample itself, with two changes if its rows have equal weights.

1. A sample has few rows in its tail; redrawn, they vary less than a new sample would, and intervals
   for heavy tails hold too seldom.  So the exceedances x = z − u of the largest tenth of the losses
   over the threshold u follow a generalized Pareto law,

       P(x > t) = (1 + ξ t/σ)^(−1/ξ),        E x = σ/(1 − ξ),

   fitted by L-moments, so that the model has the mean of the sample.  Losses with many ties there
   keep their rows.
2. Neighbouring losses are joined in cells, so that the time hardly grows with the number of rows.
   A cell holds a twentieth as many rows as there are beyond it, above or below, so that the
   variance within cells does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn.stress.balls import Ball
from drolearn.stress.chi2_balls import SortedLosses, WorstCases
from drolearn.stress.worst_cases import Sample, chi2_radii, influence, is_chi2, solve_ball

__all__ = ["Population", "quantiles"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# With unequal weights, rows are not joined; beyond so many, the influence function alone is used.
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
# The rows of a cell, as a share of the rows beyond it.
_CELL = 0.05
# The last cell of the tail has e^(−6) of a row, so that its width does not matter.
_LAST = 6.0


class Population:
    """A model of the population, from which bootstrap samples of as many rows are drawn.

    Parameters
    ----------
    sample : Sample
        The rows.

    Attributes
    ----------
    z : array of shape (k,)
        Losses in decreasing order.
    chance : array of shape (k,)
        The probability that a draw is each of them.
    weights : array of shape (k,) or None
        The weight of a draw of each; None for equal ones.
    rows : int
        The number of draws in a bootstrap sample.
    tail : int
        The number of rows that the fitted tail replaces.
    """

    def __init__(self, sample: Sample) -> None:
        self.rows = n = sample.z.size
        self.weights, self.tail = None, 0
        if sample.weights is not None and np.ptp(sample.weights) > 0.0:
            order = np.argsort(-sample.z, kind="stable")
            self.z, self.weights = sample.z[order], sample.weights[order]
            self.chance = np.full(n, 1.0 / n)
            return
        z = np.empty(n)
        _core.sort_down(np.ascontiguousarray(sample.z), z)
        cells, chance = np.empty(0), np.empty(0)
        k = max(_TAIL_ROWS, round(_TAIL * n))
        if 2 * k <= n and 2 * np.unique(z[:k]).size > k:
            self.tail = k
            cells, chance = _tail_cells(z[:k] - z[k])
        starts = _starts(self.tail, n)
        stops = np.append(starts[1:], n)
        sizes = stops - starts
        # Means of tied losses are these losses exactly.
        means = np.clip(np.add.reduceat(z, starts) / sizes, z[stops - 1], z[starts])
        self.z = np.append(z[self.tail] + cells, means)
        self.chance = np.append(chance * (self.tail / n), sizes / n)

    def draw(self, samples: int, rng: np.random.Generator) -> Array:
        """How often each loss is in each bootstrap sample, shape (samples, k)."""
        return rng.multinomial(self.rows, self.chance, samples).astype(np.float64)


def _starts(first: int, n: int) -> Index:
    """The first rows of the cells of the rows from `first` to n."""
    alone = 1.0 / _CELL
    growth = np.arange(max(0, math.ceil(math.log(max(1.0, 0.5 * n * _CELL)) / _CELL)))
    near = np.append(np.arange(alone), alone * np.exp(_CELL * growth)).astype(np.int64)
    starts = np.unique(np.concatenate([[first], near[2 * near <= n], n - near[2 * near < n]]))
    return starts[(starts >= first) & (starts < n)]


def _tail_cells(x: Array) -> tuple[Array, Array]:
    """Means and probabilities of the cells of the Pareto law of x, the largest first."""
    k, mean = x.size, float(x.mean())
    # L-moments of x in decreasing order: the mean, and half the mean difference of two draws.
    spread = float(x @ (k - 1.0 - 2.0 * np.arange(k))) / (k * (k - 1.0))
    shape = min(max(2.0 - mean / spread, _SHAPES[0]), _SHAPES[1]) if spread > 0.0 else _SHAPES[0]
    # P(x > t) at the lower ends of the cells
    above = np.exp(-_CELL * np.arange(math.ceil((math.log(k) + _LAST) / _CELL)))
    probability = above - np.append(above[1:], 0.0)
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
    population = Population(sample)
    if population.z.size > _MOST_ROWS:
        return None
    outside = 0.5 - 0.5 * level
    samples = max(_SAMPLES, math.ceil(10.0 / outside) - 1)
    number = _NODES if is_chi2(balls) else _SLOW_NODES
    nodes = np.unique(np.linspace(0, len(balls) - 1, number).round().astype(np.int64))
    replicates = _chi2_replicates if is_chi2(balls) else _replicates
    t = replicates(population, [balls[k] for k in nodes], samples, rng)
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
) -> Array:
    """t* of χ² balls, shape (balls, samples).  Every ball sees the same bootstrap samples."""
    rhos, z, weights, n = chi2_radii(balls), population.z, population.weights, population.rows

    def solve(drawn: Array) -> WorstCases:
        mass = drawn if weights is None else drawn * weights
        squares = None if weights is None else mass * weights
        losses = SortedLosses(z, mass, mass.sum(axis=1), squares, n)
        who = np.repeat(np.arange(len(drawn)), rhos.size)
        return losses.solve(who, np.tile(rhos, len(drawn)))[0]

    centre = solve(population.chance[None, :]).value
    batch = max(1, _BATCH // z.size)
    t = np.empty((rhos.size, samples))
    for start in range(0, samples, batch):
        drawn = population.draw(min(batch, samples - start), rng)
        found = solve(drawn)
        star = _studentised(found.value, found.error, np.tile(centre, len(drawn)))
        t[:, start : start + batch] = star.reshape(len(drawn), rhos.size).T
    return t


def _replicates(
    population: Population, balls: Sequence[Ball], samples: int, rng: np.random.Generator
) -> Array:
    """t* of any balls, shape (balls, samples), one solve at a time."""
    losses, chance = population.z, population.chance
    weights = np.ones(losses.size) if population.weights is None else population.weights
    centre = [solve_ball(ball, losses, chance * weights).value for ball in balls]
    t = np.empty((len(balls), samples))
    for k in range(samples):
        count = population.draw(1, rng)[0]
        drawn = count > 0.0
        z, count = losses[drawn], count[drawn]
        mass = count * weights[drawn]
        base = mass / mass.sum()
        squares = base * base / count  # Σ b² over the draws of each loss
        for j, ball in enumerate(balls):
            worst = solve_ball(ball, z, mass)
            psi = influence(worst, z, base)
            error = math.sqrt(float(squares @ (psi * psi)) / (1.0 - float(squares.sum())))
            t[j, k] = _studentised(np.array(worst.value), np.array(error), np.array(centre[j]))
    return t
