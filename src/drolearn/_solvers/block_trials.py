"""Robust losses of models on rows in blocks, in one round.

The robust loss is the minimum over α and λ of a jointly convex function,

    R(θ) = min f(θ, α, λ),    f = λ + α ρ + α Σ b φ*((l(θ) − λ)/α).

One pass at predicted multipliers adds up f, its gradient and its second derivatives in α and λ.
A Newton step then gives R to the third order and ∇R to the second order in the error of the
prediction, and the derivatives of the multipliers in θ predict those of the next model.  If the
error is not small beside the change since the last model, the pass is repeated at the multipliers
after the Newton step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._blocks import Blocks, Pass
from drolearn._solvers.block_rows import Look, LookPass, RowBlock, Smooth, shares_of
from drolearn.divergence import Divergence

__all__ = ["Multipliers", "Trial", "TrialPass", "Trials"]

Array = NDArray[np.float64]
# Rows of a chunk: temporary arrays stay in the cache.
_CHUNK = 16_384
# The largest change of α and λ, divided by α, that derivatives predict, and the largest step.
_LARGEST_CHANGE, _LARGEST_STEP = 0.3, 0.1
# Errors may be this share of the change of the value and of the gradient since the last model.
_ALLOWED = 1e-3
# Below, φ(s) loses digits where s is next to 1.
_LEAST_RADIUS = 1e-6


class Multipliers(NamedTuple):
    """α and λ."""

    alpha: float
    lam: float


class Sums(NamedTuple):
    """The sums of a pass over the rows."""

    look: Look
    numbers: Array
    """Σ b s, Σ b s (z − λ), Σ b φ(s), Σ v, Σ v t and Σ v t² with v = b s'/α, t = (z − λ)/α."""
    gradients: Array
    """Σ b s ∇l, Σ v ∇l and Σ v t ∇l."""


@dataclass(frozen=True)
class TrialPass(Pass[RowBlock, Sums]):
    """Compute losses at θ, and the sums that make f and its derivatives at some multipliers."""

    theta: Array
    divergence: Divergence
    multipliers: Smooth

    def of(self, block: RowBlock) -> Sums:
        look = LookPass(self.theta).of(block)
        problem, at = block.problem, self.multipliers
        slopes = block.slopes.reshape(problem.n, problem.m)
        base = shares_of(block, at.mass)
        factors, numbers = np.empty((problem.n, 3, problem.m)), np.zeros(6)
        if np.isnan(look.survey.row[0]):  # a loss is not finite
            return Sums(look, np.full(6, math.nan), np.zeros((3, problem.m, problem.d + 1)))
        for first in range(0, problem.n, _CHUNK):
            rows = slice(first, first + _CHUNK)
            b, t = base[rows], (block.z[rows] - at.lam) / at.alpha
            s, v = np.empty(t.size), np.empty(t.size)
            _core.follow(self.divergence.core, t, at.cap, s, v)
            v *= b / at.alpha
            vt, bs = v * t, b * s
            total, first_moment = bs.sum(), bs @ t
            if self.divergence.name == "kl":  # φ(s) = s t − s + 1
                divergence = first_moment - total + b.sum()
            else:
                divergence = b @ np.where(b > 0.0, self.divergence.phi(s), 0.0)
            numbers += [
                total, at.alpha * first_moment, divergence, v.sum(), vt.sum(), vt @ t
            ]  # fmt: skip
            for k, factor in enumerate((bs, v, vt)):
                np.multiply(factor[:, None], slopes[rows], out=factors[rows, k])
        gradients = np.empty((3 * problem.m, problem.d + 1))
        problem.rows.gradient(None, factors.ravel(), gradients, problem.threads)
        if not problem.intercept:
            gradients[:, -1] = 0.0
        return Sums(look, numbers, gradients.reshape(3, problem.m, -1))

    def add(self, first: Sums, second: Sums) -> Sums:
        look = first.look.joined(second.look)
        return Sums(look, first.numbers + second.numbers, first.gradients + second.gradients)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """R and ∇R at a model, from multipliers close to those of the worst case."""

    theta: Array
    multipliers: Multipliers
    value: float
    gradient: Array
    rises: Array | None = None
    """The derivatives of α and λ in θ."""

    def predicted(self, theta: Array) -> Multipliers | None:
        """The multipliers of another model; None if that is too far away."""
        if self.rises is None:
            return None
        alpha, lam = self.multipliers
        change = theta - self.theta
        of_alpha, of_lam = (float(np.sum(rise * change)) for rise in self.rises)
        if max(abs(of_alpha), abs(of_lam)) > _LARGEST_CHANGE * alpha:
            return None
        return Multipliers(alpha + of_alpha, lam + of_lam)


class Trials:
    """Evaluations of similar models, one after the other.

    Parameters
    ----------
    blocks : Blocks
        The blocks.
    divergence, rho : Divergence, float
        The ball.
    mass : float
        The sum of all weights.
    least : float
        The smallest positive weight.
    guess : callable
        Returns the multipliers at a model as a sample of the rows has them, if there is one.
    scaled : callable
        Returns a gradient in scaled coordinates.
    """

    def __init__(
        self,
        blocks: Blocks[RowBlock],
        divergence: Divergence,
        rho: float,
        mass: float,
        least: float,
        guess: Callable[[Array], Multipliers | None],
        scaled: Callable[[Array], Array],
    ) -> None:
        self.blocks, self.divergence, self.rho = blocks, divergence, rho
        self.mass, self.cap, self.guess, self.scaled = mass, mass / least, guess, scaled
        self.possible = divergence.family != "custom" and rho >= _LEAST_RADIUS
        self.last: Trial | None = None
        self.passes = 2
        """The most passes for one model; one after two were not enough."""

    def start(self, theta: Array, multipliers: Multipliers, value: float, gradient: Array) -> None:
        """Remember a model whose worst case is known."""
        last, rises = self.last, None
        if last is not None and np.array_equal(last.theta, theta):
            rises = last.rises
        usable = 0.0 < multipliers.alpha < math.inf and math.isfinite(multipliers.lam)
        self.last = Trial(theta, multipliers, value, gradient, rises) if usable else None

    def of(self, theta: Array) -> tuple[Trial | None, Look | None]:
        """R and ∇R at a model, and the range of its losses; None if they need an exact search."""
        last, look = self.last, None
        if last is None or not self.possible:
            return None, None
        multipliers = last.predicted(theta) or self.guess(theta) or last.multipliers
        for number in range(self.passes):
            if not (0.0 < multipliers.alpha < math.inf and math.isfinite(multipliers.lam)):
                break
            sums = self.blocks.run(TrialPass(theta, self.divergence, self.smooth(multipliers)))
            look = sums.look
            if not (np.isfinite(sums.numbers).all() and np.isfinite(sums.gradients).all()):
                break
            found = self._step(last, theta, multipliers, sums)
            if found is None:
                break
            trial, close = found
            if close:
                self.last = trial
                self.passes = 2 if number == 0 else self.passes
                return trial, look
            multipliers = trial.multipliers
            if number == 1:
                self.passes = 1
        return None, look

    def smooth(self, multipliers: Multipliers) -> Smooth:
        """Describe the weights of some multipliers."""
        alpha, lam = multipliers
        return Smooth(alpha, 0.0, lam, self.mass, self.cap, in_ball=True)

    def _step(
        self, last: Trial, theta: Array, multipliers: Multipliers, sums: Sums
    ) -> tuple[Trial, bool] | None:
        """A Newton step, and whether its error is small; None if it is too long."""
        alpha, lam = multipliers
        total, first, divergence, aa, ab, bb = sums.numbers.tolist()
        slope = np.array([self.rho - divergence, 1.0 - total])  # of f in α and λ
        determinant = aa * bb - ab * ab
        if not determinant > 1e-12 * aa * bb:
            return None
        inverse = np.array([[aa, -ab], [-ab, bb]]) / determinant
        step = -(inverse @ slope)
        after = Multipliers(alpha + float(step[0]), lam + float(step[1]))
        # How far the sums are from linear: the step, and the root mean square change of t.
        gained = 0.5 * float(slope @ step)
        error = max(*(abs(step) / alpha), math.sqrt(2.0 * abs(gained) / alpha))
        if not error < _LARGEST_STEP:
            return None
        sides = sums.gradients[2:0:-1]  # in the order of α and λ
        change = np.tensordot(step, sides, 1)
        value = lam + first + alpha * (self.rho - divergence) + gained
        gradient = sums.gradients[0] - change
        rises: Any = np.tensordot(inverse, sides, 1)
        trial = Trial(theta, after, value, gradient, rises)
        moved, risen = self.norm(gradient - last.gradient), abs(value - last.value)
        allowed = max(_ALLOWED * risen, 1e-15 * abs(value))
        close = error * self.norm(change) <= _ALLOWED * moved and error * abs(gained) <= allowed
        return trial, close

    def norm(self, gradient: Array) -> float:
        """The norm of a gradient in scaled coordinates."""
        return float(np.linalg.norm(self.scaled(gradient)))
