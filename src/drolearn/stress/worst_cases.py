"""The worst cases of one sample of losses in many balls, with their standard errors.

By the envelope theorem, the influence function of the robust loss R is the dual integrand

    ψ(z) = λ + α ρ + α φ*((z − λ)/α) = λ + α ρ + s (z − λ) − α φ(s),    s = p/b,

with mean R.  The standard error of R with row weights b, which sum to one, is

    √( Σ b² (ψ − R)² / (1 − Σ b²) ),

which is the usual one, s/√n, for the mean of n rows of equal weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.worst_case import WorstCase, inner_maximum, without_dust
from drolearn.divergence import CVaR
from drolearn.stress.balls import Ball
from drolearn.stress.chi2_balls import SMALLEST, SortedLosses, WorstCases, tail_means

__all__ = [
    "Sample", "chi2_radii", "dual_integrand", "influence", "is_chi2", "refuse_huge", "solve_ball",
    "worst_cases",
]  # fmt: skip

Array = NDArray[np.float64]

# Standard errors are square roots of sums of squares, which must not overflow.
_LARGEST = 1e120


def refuse_huge(parameter: str, z: Array, where: str = "") -> None:
    """Refuse losses whose standard errors would overflow; `where` tells which rows these are."""
    largest = float(np.abs(z).max())
    if largest > _LARGEST:
        raise ValueError(
            f"The '{parameter}' parameter must give losses from {-_LARGEST:g} to {_LARGEST:g}; "
            f"divide them by a unit, or correct the rows that are wrong. Got {largest:g} at row "
            f"{int(np.abs(z).argmax())}{where} instead."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Losses of rows, all of them finite.

    Parameters
    ----------
    z : array of shape (n,)
        The losses.
    weights : array of shape (n,) or None
        Positive weights of the rows; None for equal ones.
    wrong : Boolean array of shape (n,) or None
        The rows of which the predicted label is wrong; None if labels are not known.
    zero_one : bool
        Whether the losses are 0 or 1 and nothing else is possible.
    """

    z: Array
    weights: Array | None = None
    wrong: NDArray[np.bool_] | None = None
    zero_one: bool = False

    @property
    def base(self) -> Array:
        """Weights that sum to one."""
        if self.weights is None:
            return np.full(self.z.size, 1.0 / self.z.size)
        return self.weights / self.weights.sum()

    @property
    def rows(self) -> float:
        """The effective number of rows, 1/Σ b²."""
        return float(self.z.size) if self.weights is None else 1.0 / float(self.base @ self.base)

    def part(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Sample:
        """The sample of some rows."""
        weights = None if self.weights is None else self.weights[chosen]
        wrong = None if self.wrong is None else self.wrong[chosen]
        return Sample(np.ascontiguousarray(self.z[chosen]), weights, wrong, self.zero_one)


def is_chi2(balls: Sequence[Ball]) -> bool:
    """Whether all balls are of χ², or hold the mean only, which is the χ² ball of radius 0."""
    return all(ball.divergence.family == "chi2" or ball.is_mean for ball in balls)


def chi2_radii(balls: Sequence[Ball]) -> Array:
    """The radii of such balls, infinity as a large number."""
    return np.array([0.0 if ball.is_mean else min(ball.rho, 1e100) for ball in balls])


def worst_cases(sample: Sample, balls: Sequence[Ball]) -> WorstCases:
    """The worst case of each ball."""
    if is_chi2(balls):
        return _chi2(sample, chi2_radii(balls))
    base = sample.base
    found = [_generic(sample, base, ball) for ball in balls]
    return WorstCases(*np.array(found).T.copy())


def solve_ball(ball: Ball, z: Array, weights: Array | None) -> WorstCase:
    """The worst case of one ball without checks of the arguments."""
    if weights is not None:
        weights = without_dust(ball.divergence, ball.radius, weights)
    worst = inner_maximum(ball.divergence, ball.radius, z, weights)
    if worst is None:
        raise RuntimeError("losses are checked before")
    return worst


def influence(worst: WorstCase, z: Array, base: Array) -> Array:
    """ψ − R for each row, zero where all mass is on the largest loss."""
    cvar = isinstance(worst.divergence, CVaR)
    if worst.alpha == np.inf or (cvar and worst.divergence.level == 1.0):  # type: ignore[attr-defined]
        return z - worst.value
    if worst.alpha == 0.0 and not cvar:
        return np.zeros(z.size)
    psi = dual_integrand(worst, z, worst.weights / base)
    return psi - float(base @ psi)


def dual_integrand(worst: WorstCase, z: Array, s: Array) -> Array:
    """ψ − λ − α ρ of rows with s = p/b."""
    psi = s * (z - worst.lam)
    if not isinstance(worst.divergence, CVaR):
        psi -= worst.alpha * worst.divergence.phi(s)
    return psi


def _generic(sample: Sample, base: Array, ball: Ball) -> tuple[float, ...]:
    worst = solve_ball(ball, sample.z, sample.weights)
    psi, p = influence(worst, sample.z, base), worst.weights
    terms = (base * psi) ** 2
    norm, total = float(base @ base), float(terms.sum())
    error = np.sqrt(total / (1.0 - norm)) if norm < 1.0 else np.nan
    largest = float(terms[int(np.argmax(sample.z))]) / total if total > 0.0 else 1.0
    wrong = np.nan if sample.wrong is None else float(p[sample.wrong].sum())
    return worst.value, error, float(p @ p), largest, wrong


def _chi2(sample: Sample, rhos: Array) -> WorstCases:
    base, n = sample.base, sample.z.size
    if sample.weights is None:
        z, weights, squares = np.empty(n), base[None, :], None
        _core.sort_down(np.ascontiguousarray(sample.z), z)
    else:
        order = np.argsort(-sample.z, kind="stable")
        z, weights = sample.z[order], base[None, order]
        squares = weights * weights
    losses = SortedLosses(z, weights, np.ones(1), squares, n)
    found, eta, first, _ = losses.solve(np.zeros(rhos.size, dtype=np.int64), rhos)
    if sample.wrong is None:
        return found
    chosen = (sample.z[sample.wrong] - losses.top) / losses.scale
    order = np.argsort(-chosen, kind="stable")
    mass = base[sample.wrong][order]
    # With all mass on the largest loss, the limit of the weights as η tends to it.
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong = tail_means(chosen[order], mass, eta) / first
    top = sample.z == sample.z.max()
    at_top = float(base[top & sample.wrong].sum() / base[top].sum())
    wrong = np.where(first > 0.0, wrong, at_top)
    wrong = np.where(rhos < SMALLEST, float(mass.sum()), wrong)
    return WorstCases(found.value, found.error, found.squares, found.largest, wrong)
