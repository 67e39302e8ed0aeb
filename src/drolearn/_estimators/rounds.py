"""The rounds between models and weights of a robust ensemble: damped fictitious play.

In round t a model is fitted with the averaged weights p̄, and the weights of the worst case of the
average of the models are averaged into p̄.  Round t has the weight 2/(t + 1) in both averages, so
that late rounds count more; the weights of rounds 1 … T are then proportional to 1 … T.

p̄ lies in the ball, which is convex.  If every fit minimises Σ p̄ l, then no mixture of models has a
robust loss below Σ p̄ l(f), where the loss of a mixture is the mixture of the losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.worst_case import WorstCase

__all__ = ["Certificate", "Rounds", "average", "shares_of_rounds"]

Array = NDArray[np.float64]
# A fit whose loss is larger than that of another model by this share does not minimise it.
_SLACK = 1e-6


def average(mean: Array | None, new: Array, rounds: int) -> Array:
    """The average of `rounds` arrays, from that of all but the last and the last one."""
    return new if mean is None else mean + (new - mean) * (2.0 / (rounds + 1.0))


def shares_of_rounds(rounds: int) -> Array:
    """The weights of the rounds in their average; their sum is one."""
    t = np.arange(1.0, rounds + 1.0)
    return t / t.sum()


@dataclass(slots=True)
class Rounds:
    """The averaged weights p̄, which start at the base weights.

    Parameters
    ----------
    worst : callable
        The worst case of losses of rows.
    weights : array of shape (n,)
        The weights p̄; their sum is one.
    """

    worst: Callable[[Array], WorstCase]
    weights: Array
    count: int = 0

    def advance(self, losses: Array) -> WorstCase:
        """Average the worst case of the losses of the averaged models into the weights."""
        self.count += 1
        worst = self.worst(losses)
        # The base weights count as a first round.
        self.weights = average(self.weights, worst.weights, self.count + 1)
        return worst


@dataclass(slots=True)
class Certificate:
    """A duality gap for mixtures of models, from the losses of every model on its training rows."""

    losses: list[Array] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)

    def add(self, weights: Array, losses: Array) -> None:
        """Add a model that was fitted with these weights, and its losses."""
        self.weights.append(weights)
        self.losses.append(losses)

    def gap(self, worst: Callable[[Array], WorstCase], used: int) -> float:
        """The gap of the mixture of the first models; NaN if a fit did not minimise its loss.

        A model is no minimiser if another model has a smaller loss under its weights.
        """
        values = np.array(self.weights) @ np.array(self.losses).T  # Σ p̄ l: a row for each p̄
        own, best = np.diagonal(values), values.min(axis=1)
        if np.any(own > best + _SLACK * np.maximum(1.0, np.abs(best))):
            return math.nan
        mixture = shares_of_rounds(used) @ np.array(self.losses[:used])
        return max(worst(mixture).value - float(best.max()), 0.0)
