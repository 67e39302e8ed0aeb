"""Soft balls: minimise S_τ(losses) + penalty with exact solves in balls of several radii.

    S_τ(z) = max Σ p z − τ D(P, B) = max over ρ of R_ρ(z) − τ ρ

Let F(ρ) be the minimum of the robust loss plus penalty in the ball of radius ρ.  By duality the
minimum of the soft problem is the maximum of F(ρ) − τ ρ, which is concave, and F'(ρ) is the
multiplier α of the ball.  So the search looks for the radius at which α = τ, and every lower bound
of F(ρ) gives one of the soft minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.soft import soft_maximum
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.problem import Problem

__all__ = ["Fit", "SoftMinimum", "minimise_soft", "soft_worst"]

Array = NDArray[np.float64]
# The bracket of the radius is halved (in logarithms) where the model's own radius does not help.
_MOST_SOLVES = 60


class Fit(NamedTuple):
    """An exact solve in a ball."""

    theta: Array
    bound: float
    """A lower bound of F(ρ)."""
    alpha: float
    passes: float
    go_on: bool
    """Whether the search may continue: neither a callback nor Ctrl-C ended the solve."""


@dataclass(frozen=True, slots=True, eq=False)
class SoftMinimum:
    """The best model that was found.

    `worst` has the weights of the units of the ball, groups or rows.
    """

    theta: Array
    worst: WorstCase
    value: float
    gap: float
    passes: float


def minimise_soft(
    problem: Problem,
    tau: float,
    theta: Array,
    fit: Callable[[float, Array, float], Fit],
    *,
    tol: float,
    max_passes: float,
) -> SoftMinimum:
    """Minimise the soft worst case plus penalty.

    `fit` solves in the ball of a radius, from a model, in a number of passes.
    """
    rho, low, high = 0.0, 0.0, math.inf
    best: tuple[float, Array, WorstCase] | None = None
    bound, passes, gap = -math.inf, 0.0, math.inf
    for _ in range(_MOST_SOLVES):
        found = fit(rho, theta, max_passes - passes)
        theta, passes = found.theta, passes + found.passes
        worst = soft_worst(problem, tau, theta)
        value = worst.value + problem.penalty_at(theta)
        if best is None or value < best[0]:
            best = value, theta, worst
        bound = max(bound, found.bound - (tau * rho if rho > 0.0 else 0.0))
        last, gap = gap, max(best[0] - bound, 0.0)
        if not found.go_on or passes >= max_passes or gap <= tol * problem.loss_scale(best[0]):
            break
        if rho == 0.0 or found.alpha > tau:
            low = rho
        else:
            high = rho
        rho = worst.achieved
        if not low < rho < high or gap > 0.5 * last:
            rho = _between(low, high, worst.achieved)
        if not low < rho < high:  # only rounding errors are left
            break
    if best is None:
        raise RuntimeError("No ball was solved.")
    return SoftMinimum(best[1], best[2], best[0], gap, passes)


def soft_worst(problem: Problem, tau: float, theta: Array) -> WorstCase:
    """The soft worst case of a model's losses, over groups if there are some."""
    z, groups = problem.losses_at(problem.scores(theta))[0], problem.groups
    losses, weights = (z, problem.weights) if groups is None else (groups.means(z), groups.shares)
    return soft_maximum(problem.divergence, tau, losses, weights)


def _between(low: float, high: float, own: float) -> float:
    """A radius inside the bracket."""
    if high == math.inf:
        return 2.0 * max(low, own)
    return math.sqrt(low * high) if low > 0.0 else 0.25 * high
