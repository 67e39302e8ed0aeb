"""Gradients of blocks of all sizes at a point: bias, variance, and multilevel draws of them.

E Δ_k is the difference of the expected gradients of the levels k and k − 1, so the bias of level k
is −Σ_{l>k} E Δ_l.  Corrections vary much less than gradients: this sum is a more accurate estimate
than the difference of two means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.allocation import allocate
from drolearn._solvers.draws import Draw
from drolearn._solvers.multilevel import Multilevel
from drolearn._solvers.problem import Evaluation, Problem

__all__ = ["DEFAULT_FIRE", "DEFAULT_R", "Estimates", "Levels", "block_gradients", "measure"]

Array = NDArray[np.float64]

# Draws of a level: as many as the budget allows, within these.
_FEWEST, _MOST = 16, 2000
# Settings among which the best are chosen; outside these r, cost or variance grow with N.
_R = np.linspace(0.26, 0.49, 24)
_FIRE = np.geomspace(0.01, 1.0, 41)
#: Those of :class:`drolearn.GSSG`.
DEFAULT_R, DEFAULT_FIRE = 2.0**-1.5, 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """What was measured of each level, from the smallest block to all rows.

    Parameters
    ----------
    mean : array of shape (levels, size)
        The mean of G − ∇R for the gradients G of blocks.
    variance : array of shape (levels,)
        E‖G − E G‖².
    correction : array of shape (levels, size)
        The mean of the corrections Δ; those of the first level are not defined, and 0.
    moment, spread : array of shape (levels,)
        E‖Δ‖² and E‖Δ − E Δ‖².
    draws : array of shape (levels,)
        The number of draws.
    """

    mean: Array
    variance: Array
    correction: Array
    moment: Array
    spread: Array
    draws: NDArray[np.int64]

    def bias(self) -> tuple[Array, Array]:
        """The norm of the bias of each level, and its standard error."""
        above = np.cumsum(self.correction[::-1], axis=0)[::-1] - self.correction
        noise = self.spread / self.draws
        noise = np.cumsum(noise[::-1])[::-1] - noise
        above[-1] = noise[-1] = 0.0  # without rounding errors
        # The noise makes the squared norm of a mean too large.
        return np.sqrt(np.maximum(np.sum(above**2, axis=1) - noise, 0.0)), np.sqrt(noise)


def measure(
    method: Multilevel,
    gradients: Callable[[Draw], tuple[Array, Array]],
    full: Array,
    budget: int,
    rng: np.random.Generator,
) -> Levels:
    """Draw blocks and corrections of each level; `full` is the gradient on all rows."""
    levels = method.sizes.size
    batches = [_Moments(full.size) for _ in range(levels)]
    corrections = [_Moments(full.size) for _ in range(levels)]
    for k in range(levels):
        draws = int(np.clip(budget / levels / method.costs[k], _FEWEST, _MOST))
        for _ in range(draws):
            batch, correction = gradients(method.draw_level(rng, k))
            # A block of all rows has the gradient of all rows, up to rounding errors.
            batches[k].add(batch - full if k < levels - 1 else np.zeros(full.size))
            corrections[k].add(correction if k > 0 else np.zeros(full.size))
    return Levels(
        np.array([each.mean for each in batches]),
        np.array([each.variance for each in batches]),
        np.array([each.mean for each in corrections]),
        np.array([each.second for each in corrections]),
        np.array([each.variance for each in corrections]),
        np.array([each.count for each in batches]),
    )


def block_gradients(problem: Problem, at: Evaluation) -> Callable[[Draw], tuple[Array, Array]]:
    """A function of a draw: the gradient of its first block, and the signed sum of all."""
    slopes = at.slopes.reshape(problem.n, problem.m)

    def gradients(draw: Draw) -> tuple[Array, Array]:
        part = problem.subset(draw.indices)
        nothing = np.zeros(problem.size)
        if part.weights is not None and not part.weights.any():
            return nothing, nothing
        z, slope = at.losses[draw.indices], slopes[draw.indices].ravel()

        def total(chosen: Draw) -> Array:
            weights = chosen.weights(z, problem.divergence, part.weights)
            return part.scaled_gradient(part.data_gradient(slope, weights))

        first = total(replace(draw, blocks=draw.blocks[:1].copy()))
        return first, first if len(draw.blocks) == 1 else total(draw)

    return gradients


class _Moments:
    """Mean, and mean of squared norms, of vectors."""

    def __init__(self, size: int) -> None:
        self.count, self.total, self.squares = 0, np.zeros(size), 0.0

    def add(self, vector: Array) -> None:
        self.count += 1
        self.total += vector
        self.squares += float(vector @ vector)

    @property
    def mean(self) -> Array:
        return self.total / self.count

    @property
    def second(self) -> float:
        return self.squares / self.count

    @property
    def variance(self) -> float:
        """E‖G − E G‖², estimated without bias."""
        spread = self.second - float(self.mean @ self.mean)
        return max(spread, 0.0) * self.count / max(self.count - 1, 1)


class Estimates:
    """Multilevel estimates with one base block.

    Parameters
    ----------
    costs : array of shape (levels,)
        Rows of the base block, and of the corrections.
    base_variance, base_bias : float
        Those of the base block.
    moments : array of shape (levels - 1,)
        The second moments of the corrections.
    square : float
        ‖∇R‖².
    """

    def __init__(
        self, costs: Array, base_variance: float, base_bias: float, moments: Array, square: float
    ) -> None:
        self.costs, self.moments, self.square = costs, moments, square
        # The corrections cancel the bias: E‖G‖² = Var base − bias² + ‖∇R‖² + Σ E‖Δ‖²/q.
        self.base = max(base_variance - base_bias**2, 0.0)
        seconds = np.append(self.base + square, moments)
        self.best = allocate(costs, seconds) if moments.size else np.zeros(0)

    def cost(self, q: Array) -> float:
        """Expected rows of a step."""
        return float(self.costs[0] + q @ self.costs[1:])

    def variance(self, q: Array) -> float:
        """The variance of a step."""
        return self.base + float((self.moments / q).sum())

    def work(self, q: Array) -> float:
        """Cost × second moment."""
        return self.cost(q) * (self.variance(q) + self.square)

    def powers(self, r: float, fire: float) -> Array:
        """The probabilities for the settings r and fire."""
        powers = r ** np.arange(self.moments.size, dtype=np.float64)
        return fire * powers / powers.sum() if powers.size else powers

    def best_powers(self) -> tuple[float, float]:
        """The best r and fire; the defaults if there are no corrections."""
        if self.moments.size == 0:
            return DEFAULT_R, DEFAULT_FIRE
        # With one correction, r does not matter.
        rs = _R if self.moments.size > 1 else [DEFAULT_R]
        found = [(self.work(self.powers(r, fire)), float(r), float(fire))
                 for r in rs for fire in _FIRE]  # fmt: skip
        return min(found)[1:]
