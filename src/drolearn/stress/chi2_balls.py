"""The worst cases of χ² balls of many radii, from one sort of the losses.

With base weights b that sum to one and Mⱼ(η) = Σ b (z − η)₊ʲ, the worst case of radius ρ has the
weights p = b (z − η)₊/M₁ at the threshold η with

    M₂(η)/M₁(η)² = 1 + ρ,        R = η + M₂/M₁.

The left side grows with η.  From one sorted loss to the next, a step d down, the sums follow from
each other by positive terms, so nothing cancels:

    Mⱼ(η − d) = Σₖ C(j, k) dʲ⁻ᵏ Mₖ(η).

The influence function of R is a constant plus (z − η)₊²/(2 M₁).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drolearn import _core

__all__ = ["SMALLEST", "SortedLosses", "WorstCases", "tail_means"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Below this radius the influence function is that of the mean: the two differ by about √ρ, and the
# variance of the former has lost its digits.
SMALLEST = 1e-8
_BINOMIAL = ((1,), (1, 1), (1, 2, 1), (1, 3, 3, 1), (1, 4, 6, 4, 1))


@dataclass(frozen=True, slots=True, eq=False)
class WorstCases:
    """Worst cases of several radii; every array has one entry for each.

    Parameters
    ----------
    value : array of shape (k,)
        The robust losses.
    error : array of shape (k,)
        Their standard errors; zero where all mass is on the largest loss.
    squares : array of shape (k,)
        Σ p² of the worst-case weights; its inverse is the effective sample size.
    largest : array of shape (k,)
        The share of a row with the largest loss in the variance.
    wrong : array of shape (k,)
        The worst-case weight of the rows that are marked as wrong; NaN if none could be.
    """

    value: Array
    error: Array
    squares: Array
    largest: Array
    wrong: Array


class SortedLosses:
    """The largest losses of a sample, or of many bootstrap samples of it.

    Parameters
    ----------
    z : array of shape (n,)
        Losses in decreasing order.
    weights : array of shape (samples, n)
        The weight of each loss in each sample.
    totals : array of shape (samples,)
        The weight of each sample, of which `weights` may leave out small losses.
    squares : array of shape (samples, n) or None
        The sum of the squared weights of the draws of each loss; None if each of `size` draws has
        an equal weight.
    size : int
        The number of draws in a sample.
    """

    def __init__(
        self, z: Array, weights: Array, totals: Array, squares: Array | None, size: int
    ) -> None:
        # Losses from −1 to 0, whose fourth powers do not overflow.
        self.top = float(z[0])
        self.scale = float(z[0] - z[-1]) or 1.0
        self.z = (z - self.top) / self.scale
        self.sums = _tail_sums(self.z, weights / totals[:, None])
        self.size = size
        self.squares, self.norms = None, np.full(totals.size, 1.0 / size)
        if squares is not None:
            self.squares = _tail_sums(self.z, squares / (totals * totals)[:, None])
            self.norms = self.squares[0][:, -1]

    def solve(self, samples: Index, rho: Array) -> tuple[WorstCases, Array, Array, Index]:
        """Worst cases of pairs of a sample and a radius, with η, M₁(η) and the smallest loss above.

        η and M₁ are those of the losses `z`, from −1 to 0.  Radius 0, the mean, needs all losses.
        """
        place = np.where(rho < SMALLEST, self.z.size - 1, self._reach(samples, rho))
        mass, first, second = (self.sums[j][samples, place] for j in range(3))
        peak = (first == 0.0) & (rho >= SMALLEST)
        is_mean = rho < SMALLEST
        with np.errstate(divide="ignore", invalid="ignore"):
            centre = first / mass  # above z[place]
            excess = np.maximum(mass * second / (first * first) - 1.0, 0.0)
            excess = np.where(first > 0.0, excess, 0.0)
            room = np.where(is_mean, rho, mass * (1.0 + rho) - 1.0)
            eta = self.z[place] + centre * (1.0 - np.sqrt(excess / room))
            value = self.z[place] + centre * (1.0 + np.sqrt(excess * np.maximum(room, 0.0)))
        eta = np.where(is_mean | peak, self.z[place], eta)
        value = np.where(peak, 0.0, value)
        m = _shifted(self.sums, samples, place, self.z[place] - eta)
        squares = self.squares
        v = (
            [each / self.size for each in m]
            if squares is None
            else _shifted(squares, samples, place, self.z[place] - eta)
        )
        norm = self.norms[samples]
        one = self._one(samples)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = v[4] - 2.0 * m[2] * v[2] + m[2] ** 2 * norm
            heavy = one * (eta * eta - m[2]) ** 2
            variance = spread / (2.0 * m[1]) ** 2
            of_mean = v[2] - 2.0 * m[1] * v[1] + m[1] ** 2 * norm
            largest = np.where(
                is_mean, one * (self.z[place] + centre) ** 2 / of_mean, heavy / spread
            )
            variance = np.where(is_mean, of_mean, variance) / (1.0 - norm)
            p_squares = np.where(is_mean, norm, v[2] / m[1] ** 2)
        p_squares = np.where(peak, v[0] / mass**2, p_squares)
        error = np.where(peak, 0.0, np.sqrt(np.maximum(variance, 0.0)))
        found = WorstCases(
            self.top + self.scale * value,
            self.scale * error,
            p_squares,
            np.where(peak, 1.0, largest),
            np.full(rho.size, np.nan),
        )
        return found, eta, m[1], place

    def _one(self, samples: Index) -> Array:
        """b² of one row with the largest loss."""
        if self.squares is None:
            return np.full(samples.size, 1.0 / self.size**2)
        return self.squares[0][samples, 0]

    def _reach(self, samples: Index, rho: Array) -> Index:
        """The last loss at which M₂/M₁² is at least 1 + ρ, by bisection."""
        low, high = np.zeros(samples.size, dtype=np.int64), np.full(samples.size, self.z.size)
        for _ in range(int(self.z.size).bit_length()):
            middle = (low + high) // 2
            first, second = self.sums[1][samples, middle], self.sums[2][samples, middle]
            # A ball that holds all mass on the largest loss up to rounding holds it.
            above = second >= (1.0 + 1e-13) * (1.0 + rho) * first * first
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return low


def _tail_sums(z: Array, mass: Array) -> Array:
    """Mⱼ at every loss of every sample for j up to 4, shape (5, samples, n)."""
    sums = np.empty((len(mass), 5, z.size))
    for sample, out in zip(mass, sums, strict=True):
        _core.tail_sums(z, sample, out)
    return sums.transpose(1, 0, 2)


def _shifted(sums: Array, samples: Index, place: Index, step: Array) -> list[Array]:
    """Mⱼ at a step below the losses at `place`."""
    known = [power[samples, place] for power in sums]
    moved = []
    for j, total in enumerate(known):
        for k in range(j):
            total = total + _BINOMIAL[j][k] * step ** (j - k) * known[k]
        moved.append(total)
    return moved


def tail_means(z: Array, b: Array, eta: Array) -> Array:
    """Σ b (z − η)₊ at every threshold, for losses in decreasing order."""
    if z.size == 0:
        return np.zeros(eta.size)
    mass = np.cumsum(b)
    first = np.append(0.0, np.cumsum(mass[:-1] * -np.diff(z)))
    place = np.searchsorted(-z, -eta, side="right") - 1
    inside = np.maximum(place, 0)
    return np.where(place >= 0, first[inside] + mass[inside] * (z[inside] - eta), 0.0)
