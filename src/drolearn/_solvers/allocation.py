"""Optimal probabilities of the levels of multilevel draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["allocate"]

Array = NDArray[np.float64]


def allocate(costs: ArrayLike, seconds: ArrayLike) -> Array:
    """The level probabilities that minimise (C₀ + Σ q C)(V₀ + Σ V/q) subject to Σ q ≤ 1.

    `costs` and `seconds` are costs C and second moments V of the base block and the levels 1 … K.
    Without the constraint, q_k = √(V_k C₀ / (C_k V₀)).

    Examples
    --------
    >>> from drolearn._solvers.allocation import allocate
    >>> allocate([1, 2, 4, 8], [1, 0.25, 0.0625, 0.015625]).round(3)
    array([0.354, 0.125, 0.044])
    """
    cost, second = np.asarray(costs, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    # Every level needs a positive probability, even if its estimated moment is zero.
    floor = 1e-6 * max(float(second.max()), 1e-300)
    second = np.maximum(second, floor)
    q = np.sqrt(second[1:] * cost[0] / (cost[1:] * second[0]))
    if q.sum() <= 1.0:
        return q

    # With Σ q = 1 the optimum is q ∝ √(V/(C + ν)) for some ν ≥ 0.
    def normalised(log_nu: float) -> Array:
        q = np.sqrt(second[1:] / (cost[1:] + math.exp(log_nu)))
        return q / q.sum()

    def product(log_nu: float) -> float:
        q = normalised(log_nu)
        return float((cost[0] + q @ cost[1:]) * (second[0] + (second[1:] / q).sum()))

    from scipy.optimize import minimize_scalar  # imported when used: it is heavy

    ends = math.log(cost[0]) - 20.0, math.log(cost[-1]) + 20.0
    found: Any = minimize_scalar(product, bounds=ends, method="bounded")
    return normalised(found.x)
