"""Confidence intervals of robust losses.

influence     R ± t · standard error, from the influence function (:mod:`.worst_cases`)
bootstrap-t   quantiles of (R* − R)/error* over bootstrap samples (:mod:`.bootstrap`), where few
              rows carry the worst case or one makes much of the variance; the interval is the union
              of this one and that of the influence function
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
from drolearn.stress.bootstrap import quantiles
from drolearn.stress.chi2_balls import WorstCases
from drolearn.stress.worst_cases import Sample, solve_ball

__all__ = [
    "Intervals", "as_level", "binomial_intervals", "influence_intervals", "intervals",
    "mean_upper_bound", "note",
]  # fmt: skip

Array = NDArray[np.float64]

# The bootstrap is used if the worst-case weights have at most this effective sample size, or if one
# row makes more than this share of the variance: then the law of R is skewed.
FEW_ROWS, _SKEWED = 500.0, 0.02


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
        return _error_rates(float(sample.base @ sample.z), sample.rows, 1.0 - chance)[1]
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
        return binomial_intervals(float(sample.base @ sample.z), sample.rows, balls, level)
    if sample.z.size == 1:
        none = np.full(len(balls), np.nan)
        return Intervals(none, none.copy(), [""] * len(balls), ["one row"] * len(balls))
    if np.ptp(sample.z) == 0.0:
        same = ["all losses are equal"] * len(balls)
        return Intervals(found.value.copy(), found.value.copy(), ["influence"] * len(balls), same)
    ends = influence_intervals(found, sample.rows, balls, level)
    few: list[int] = np.flatnonzero(
        ((found.squares >= (1.0 - 1e-9) / FEW_ROWS) | (found.largest > _SKEWED))
        & (found.error > 0.0)
    ).tolist()
    law = quantiles(sample, [balls[k] for k in few], level, rng)
    if law is not None:
        for k, (lower, upper) in zip(few, law, strict=True):
            ends.low[k] = min(ends.low[k], found.value[k] - upper * found.error[k])
            ends.high[k] = max(ends.high[k], found.value[k] - lower * found.error[k])
            ends.method[k] = "bootstrap-t"
    return ends


def influence_intervals(
    found: WorstCases, rows: float, balls: Sequence[Ball], level: float
) -> Intervals:
    """Two-sided intervals from standard errors; `rows` is the effective number of rows."""
    from scipy.special import stdtrit

    width = float(stdtrit(rows - 1.0, 0.5 + 0.5 * level)) * found.error
    low, high = found.value - width, found.value + width
    nothing = found.error == 0.0
    low[nothing], high[nothing] = np.nan, np.nan
    method = ["" if none else "influence" for none in nothing]
    return Intervals(low, high, method, [note(ball, found, k) for k, ball in enumerate(balls)])


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


def _error_rates(rate: float, n: float, outside: float) -> tuple[float, float]:
    """Bounds of an error rate, each of which fails with the probability `outside` at most.

    They are exact for equal weights.  With weights, n is the effective number of rows.
    """
    from scipy.special import betaincinv

    wrong = min(max(rate, 0.0), 1.0) * n
    right = n - wrong
    low = 0.0 if wrong <= 1e-9 * n else float(betaincinv(wrong, right + 1.0, outside))
    high = 1.0 if right <= 1e-9 * n else float(betaincinv(wrong + 1.0, right, 1.0 - outside))
    return low, high


def binomial_intervals(rate: float, n: float, balls: Sequence[Ball], level: float) -> Intervals:
    """Intervals for losses of 0 or 1, from the error rate of n rows."""
    low, high = _error_rates(rate, n, 0.5 - 0.5 * level)
    two = np.array([0.0, 1.0])
    ends = [
        [solve_ball(ball, two, np.array([1.0 - rate, rate])).value for rate in (low, high)]
        for ball in balls
    ]
    lows, highs = np.array(ends).T
    return Intervals(lows, highs, ["binomial"] * len(balls), [""] * len(balls))
