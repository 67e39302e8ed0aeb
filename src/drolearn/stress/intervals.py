"""Confidence intervals of robust losses.

influence     R ± t · standard error, from the influence function (:mod:`.worst_cases`)
bootstrap-t   quantiles of (R* − R)/error* over bootstrap samples, where few rows carry the worst
              case; the interval is the union of this one and that of the influence function
binomial      exact, for losses that are 0 or 1: the robust loss is a monotone function of the error
              rate, so Clopper and Pearson's interval of the error rate maps to it
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._validation import as_losses, as_weights, float_or_nan
from drolearn.divergence import ChiSquare
from drolearn.stress.balls import Ball
from drolearn.stress.chi2_balls import SortedLosses, WorstCases
from drolearn.stress.worst_cases import Sample, chi2_radii, influence, is_chi2, solve_ball

__all__ = ["Intervals", "as_level", "intervals", "mean_upper_bound", "note"]

Array = NDArray[np.float64]

# The bootstrap is used if the worst-case weights have at most this effective sample size ...
FEW_ROWS = 500.0
# ... and at most this many rows have to be drawn: then the influence function alone is used.
_MOST_ROWS = 20_000
# The bootstrap is run for at most this many balls, of χ² and of other divergences, which take
# longer; between them, the quantiles are interpolated.
_NODES, _SLOW_NODES = 25, 8
# Bootstrap samples; more for higher levels, so that ten are outside on each side.
_SAMPLES = 499
# Numbers in the arrays of a batch of bootstrap samples.
_BATCH = 1 << 15


class Intervals:
    """Intervals of several robust losses.

    Parameters
    ----------
    low, high : array of shape (k,)
        The ends; NaN if there is no interval.
    method : list of str
        How each was computed: "influence", "bootstrap-t", "binomial", or "" for none.
    note : list of str
        What limits the interval; empty for most.
    """

    def __init__(self, low: Array, high: Array, method: list[str], note: list[str]) -> None:
        self.low, self.high, self.method, self.note = low, high, method, note


def as_level(level: float) -> float:
    """A confidence level between 0 and 1."""
    number = float_or_nan(level)
    if not 0.0 < number < 1.0:
        raise ValueError(
            f"The 'level' parameter must be a number between 0 and 1, such as 0.95. "
            f"Got {level!r} instead."
        )
    return number


def mean_upper_bound(
    losses: ArrayLike, level: float = 0.95, sample_weight: ArrayLike | None = None
) -> float:
    """Compute an upper confidence bound of the mean loss, by a χ² ball.

    The bound is the worst case in the χ² ball of radius z²/n, with z the normal quantile of
    `level`,

        max { Σ p l : Σ b (p/b − 1)² ≤ z²/n }  =  mean + z · standard deviation/√n,

    where the equality holds unless some weights p would be negative.  Losses that are all 0 or 1
    have the exact binomial bound of Clopper and Pearson instead.

    Parameters
    ----------
    losses : array-like of shape (n,)
        The loss of each row, such as from :func:`log_losses`.
    level : float, default=0.95
        The probability that the bound is at least the mean of the population.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.  With weights, n is the effective number of rows,
        (Σ w)²/Σ w².

    Returns
    -------
    float
        The bound.

    Raises
    ------
    ValueError
        If losses are empty or not finite, or another argument is not valid.

    See Also
    --------
    stress_test : Intervals of the robust losses of a model.

    Notes
    -----
    The level holds for large n.  Skewed losses need more rows: docs/stress.md has a table.

    Examples
    --------
    >>> from drolearn import mean_upper_bound
    >>> losses = [0.1, 0.5, 0.3, 0.2, 0.9, 0.4, 0.3, 0.2]
    >>> round(mean_upper_bound(losses), 3)
    0.499
    >>> round(mean_upper_bound([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]), 3)  # one error in ten rows
    0.394
    """
    sample = as_sample(losses, sample_weight)
    chance = as_level(level)
    if sample.zero_one:
        return _error_rates(sample, 1.0 - chance)[1]
    from scipy.special import ndtri

    rho = max(float(ndtri(chance)), 0.0) ** 2 / sample.rows
    return solve_ball(Ball(ChiSquare(), rho, math.nan), sample.z, sample.weights).value


def as_sample(losses: ArrayLike, sample_weight: ArrayLike | None) -> Sample:
    """The rows of positive weight; losses that are all 0 or 1 count as zero-one losses."""
    from drolearn._inner.worst_case import not_finite

    z = as_losses(losses)
    if not np.isfinite(z).all():
        raise ValueError(not_finite(z))
    weights = None if sample_weight is None else as_weights(sample_weight, z.size)
    zero_one = bool(np.all((z == 0.0) | (z == 1.0)))
    if weights is None:
        return Sample(z, None, None, zero_one)
    used = weights > 0.0
    return Sample(np.ascontiguousarray(z[used]), weights[used], None, zero_one)


def intervals(
    sample: Sample,
    balls: Sequence[Ball],
    found: WorstCases,
    level: float,
    rng: np.random.Generator,
) -> Intervals:
    """Two-sided intervals of the worst cases that were found."""
    if sample.zero_one:
        return _binomial(sample, balls, level)
    if sample.z.size == 1:
        none = np.full(len(balls), np.nan)
        return Intervals(none, none.copy(), [""] * len(balls), ["one row"] * len(balls))
    if np.ptp(sample.z) == 0.0:
        same = ["all losses are equal"] * len(balls)
        return Intervals(found.value.copy(), found.value.copy(), ["influence"] * len(balls), same)
    from scipy.special import stdtrit

    width = float(stdtrit(sample.rows - 1.0, 0.5 + 0.5 * level)) * found.error
    low, high = found.value - width, found.value + width
    method = ["influence"] * len(balls)
    few: list[int] = np.flatnonzero(
        (found.squares >= (1.0 - 1e-9) / FEW_ROWS) & (found.error > 0.0)
    ).tolist()
    quantiles = _bootstrap(sample, [balls[k] for k in few], found, few, level, rng)
    if quantiles is not None:
        for k, (lower, upper) in zip(few, quantiles, strict=True):
            low[k] = min(low[k], found.value[k] - upper * found.error[k])
            high[k] = max(high[k], found.value[k] - lower * found.error[k])
            method[k] = "bootstrap-t"
    nothing = found.error == 0.0
    low[nothing], high[nothing] = np.nan, np.nan
    method = ["" if none else name for none, name in zip(nothing, method, strict=True)]
    notes = [note(ball, found, k) for k, ball in enumerate(balls)]
    return Intervals(low, high, method, notes)


# Effective rows below which the coverage table shows too few intervals that hold.
_TESTED_ROWS = 250.0
# If one row makes more of the variance than this, the sample shows too little of the tail.
_HEAVY = 0.25


def note(ball: Ball, found: WorstCases, k: int) -> str:
    """What limits an interval from the influence function or the bootstrap."""
    if found.error[k] == 0.0:
        return "all weight is on the largest loss: no interval"
    notes = []
    if 1.0 / found.squares[k] < _TESTED_ROWS * (1.0 - 1e-9):
        notes.append(f"{1.0 / found.squares[k]:.0f} effective rows: coverage may be too low")
    if found.largest[k] > _HEAVY:
        notes.append(f"one row makes {found.largest[k]:.0%} of the variance: heavy tail")
    if math.isfinite(ball.divergence.slope_infinity) and not ball.is_mean:
        notes.append("holds for bounded losses only")
    return "; ".join(notes)


# -- zero-one losses -------------------------------------------------------------------


def _error_rates(sample: Sample, outside: float) -> tuple[float, float]:
    """Bounds of the error rate, each of which fails with the probability `outside` at most.

    They are exact for equal weights.  With weights, n is the effective number of rows.
    """
    from scipy.special import betaincinv

    n = sample.rows
    wrong = min(max(float(sample.base @ sample.z), 0.0), 1.0) * n
    right = n - wrong
    low = 0.0 if wrong <= 1e-9 * n else float(betaincinv(wrong, right + 1.0, outside))
    high = 1.0 if right <= 1e-9 * n else float(betaincinv(wrong + 1.0, right, 1.0 - outside))
    return low, high


def _binomial(sample: Sample, balls: Sequence[Ball], level: float) -> Intervals:
    low, high = _error_rates(sample, 0.5 - 0.5 * level)
    two = np.array([0.0, 1.0])
    ends = [
        [solve_ball(ball, two, np.array([1.0 - rate, rate])).value for rate in (low, high)]
        for ball in balls
    ]
    lows, highs = np.array(ends).T
    return Intervals(lows, highs, ["binomial"] * len(balls), [""] * len(balls))


# -- bootstrap -------------------------------------------------------------------------


def _bootstrap(
    sample: Sample,
    balls: Sequence[Ball],
    found: WorstCases,
    places: list[int],
    level: float,
    rng: np.random.Generator,
) -> Array | None:
    """The lower and upper quantile of t* = (R* − R)/error* for each ball; None if too costly."""
    if not balls:
        return None
    outside = 0.5 - 0.5 * level
    samples = max(_SAMPLES, math.ceil(10.0 / outside) - 1)
    number = _NODES if is_chi2(balls) else _SLOW_NODES
    nodes = np.unique(np.linspace(0, len(balls) - 1, number).round().astype(np.int64))
    replicates = _chi2_replicates if is_chi2(balls) else _replicates
    chosen = [balls[k] for k in nodes]
    t = replicates(sample, chosen, found.value[places][nodes], samples, rng)
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
    sample: Sample, balls: Sequence[Ball], centre: Array, samples: int, rng: np.random.Generator
) -> Array | None:
    """t* of χ² balls, shape (balls, samples); None for too many rows.

    Every ball sees the same bootstrap samples.  Of rows with equal weights, only the largest losses
    are drawn, as many as have a weight in the worst case; the number of draws among them is
    binomial.
    """
    rhos = chi2_radii(balls)
    order = np.argsort(-sample.z, kind="stable")
    z, n = sample.z[order], sample.z.size
    weights = None if sample.weights is None else sample.weights[order]
    kept = n
    if weights is None and rhos.min() > 0.0:
        whole = SortedLosses(z, np.ones((1, n)), np.array([float(n)]), None, n)
        reach = whole.solve(np.zeros(1, dtype=np.int64), rhos[:1])[3]
        kept = min(n, int(1.3 * int(reach[0])) + 100)
    while kept <= _MOST_ROWS:
        t = np.empty((rhos.size, samples))
        enough = True
        for start in range(0, samples, max(1, _BATCH // kept)):
            stop = min(start + max(1, _BATCH // kept), samples)
            drawn = _draw(n, kept, stop - start, rng)
            if weights is None:
                batch = SortedLosses(z[:kept], drawn, np.full(len(drawn), float(n)), None, n)
            else:
                drawn = drawn * weights
                batch = SortedLosses(z, drawn, drawn.sum(axis=1), drawn * weights, n)
            who = np.repeat(np.arange(len(drawn)), rhos.size)
            found, _, _, reach = batch.solve(who, np.tile(rhos, len(drawn)))
            enough = enough and (kept == n or int(reach.max()) < kept - 1)
            star = _studentised(found.value, found.error, np.tile(centre, len(drawn)))
            t[:, start:stop] = star.reshape(len(drawn), rhos.size).T
        if enough:
            return t
        kept = min(n, 2 * kept)
    return None


def _draw(n: int, kept: int, samples: int, rng: np.random.Generator) -> Array:
    """How often each of the first rows is drawn in n draws of n rows with replacement."""
    sizes = rng.binomial(n, kept / n, samples) if kept < n else np.full(samples, n)
    rows = rng.integers(kept, size=int(sizes.sum()))
    rows += np.repeat(np.arange(samples) * kept, sizes)
    return np.bincount(rows, minlength=samples * kept).reshape(samples, kept).astype(np.float64)


def _replicates(
    sample: Sample, balls: Sequence[Ball], centre: Array, samples: int, rng: np.random.Generator
) -> Array | None:
    """t* of any balls, one solve at a time; None for too many rows."""
    n = sample.z.size
    if n > _MOST_ROWS:
        return None
    weights = np.ones(n) if sample.weights is None else sample.weights
    t = np.empty((len(balls), samples))
    for k in range(samples):
        count = _draw(n, n, 1, rng)[0]
        drawn = count > 0.0
        z, count = sample.z[drawn], count[drawn]
        mass = count * weights[drawn]
        base = mass / mass.sum()
        squares = base * base / count  # Σ b² over the draws of each row
        for j, ball in enumerate(balls):
            worst = solve_ball(ball, z, mass)
            psi = influence(worst, z, base)
            error = math.sqrt(float(squares @ (psi * psi)) / (1.0 - float(squares.sum())))
            t[j, k] = _studentised(np.array(worst.value), np.array(error), centre[j])
    return t
