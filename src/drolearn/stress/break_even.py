"""The radius from which on a shift can make a model worse than a baseline."""

from __future__ import annotations

import math

import numpy as np

from drolearn.divergence import CVaR, Divergence
from drolearn.stress.balls import Ball, as_balls
from drolearn.stress.worst_cases import Sample, solve_ball

__all__ = ["break_even"]

# Radii are searched between these.
_SMALLEST, _LARGEST = 1e-12, 1e12


def break_even(sample: Sample, divergence: Divergence) -> tuple[Ball | None, str]:
    """The smallest ball with max Σ p d > 0 for differences d, and what it means.

    None if there is no such ball: no reweighting of the rows makes the model worse.
    """
    d = sample.z
    if float(sample.base @ d) > 0.0:
        return _smallest(divergence), "worse than the baseline on average"
    if d.max() <= 0.0:
        return None, "at least as good as the baseline on every row"
    ball = _crossing(sample, divergence)
    if ball is None:
        return None, "better than the baseline in every ball of this divergence"
    size = f"level {ball.share:.3g}" if math.isnan(ball.rho) else f"radius {ball.rho:.3g}"
    return ball, f"better than the baseline up to {size}"


def _smallest(divergence: Divergence) -> Ball:
    if isinstance(divergence, CVaR):
        return Ball(CVaR(1.0), math.nan, 1.0)
    return Ball(divergence, 0.0, 1.0)


def _crossing(sample: Sample, divergence: Divergence) -> Ball | None:
    """The ball in which the worst case is zero; the worst case grows with the ball."""
    from scipy.optimize import brentq  # imported when used: it is heavy

    top = float(sample.base[sample.z == sample.z.max()].sum())
    if isinstance(divergence, CVaR):
        low, high = 0.0, -math.log(top)
    else:
        largest = divergence.maximum(min(top, 1.0))
        low, high = math.log(_SMALLEST), math.log(min(largest, _LARGEST))

    def ball(x: float) -> Ball:
        if isinstance(divergence, CVaR):
            return Ball(CVaR(min(math.exp(-x), 1.0)), math.nan, math.exp(-x))
        return Ball(divergence, math.exp(x), math.nan)

    def value(x: float) -> float:
        return solve_ball(ball(x), sample.z, sample.weights).value

    if value(high) <= 0.0:
        return None
    if value(low) > 0.0:
        return _smallest(divergence)
    root = ball(float(brentq(value, low, high, xtol=1e-12)))  # type: ignore[arg-type]
    return root if np.isnan(root.rho) else as_balls(divergence, [root.rho])[0]
