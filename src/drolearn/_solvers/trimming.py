"""Trimmed fits: minimise R_ε(losses) + penalty, which ignores the worst share ε of the rows.

    min over θ and b':  R(losses of θ; b') + penalty,    0 ≤ b' ≤ b, Σ b' = (1 − ε) Σ b

Two steps alternate: b' for the current model, which removes the largest losses, and an exact solve
for this b', which is convex.  Neither increases the objective.  It is not convex in both, so the
result is a local optimum that depends on where the steps start.  These starts are compared:

    the solution without trimming
    the trimmed solution of the plain mean, ρ = 0, from its solution without trimming
    for the squared loss, the solution of the Huber loss, ρ = 0

Each makes two steps, and the best one continues until the objective no longer decreases, as in the
FAST-LTS algorithm for least trimmed squares.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.groups import Groups
from drolearn._inner.trimming import kept_weights
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.ending import Ending, describe_trimmed
from drolearn._solvers.problem import Problem
from drolearn.divergence import as_divergence
from drolearn.loss import Loss

__all__ = ["minimise_trimmed", "problem_on"]

Array = NDArray[np.float64]

# Steps of every start, and of the best one; the decrease that counts, relative to the tolerance.
_FIRST_STEPS = 2
_MOST_STEPS = 100
# The width of the Huber loss, in standard deviations of normal residuals, which are this many
# medians of their absolute values.
_WIDTH, _DEVIATIONS = 1.35, 1.4826


@dataclass(slots=True, eq=False)
class _Descent:
    """A model, the weights that are kept, and the values of R_ε + penalty so far."""

    theta: Array
    kept: Array
    values: list[float]
    settled: bool = False
    """Whether the last step decreased the objective by less than the tolerance."""


def problem_on(problem: Problem, kept: Array) -> Problem:
    """The problem with the weights that are kept; shares of groups stay."""
    groups = problem.groups
    if groups is not None and groups.of is not None:
        groups = replace(Groups.make(groups.of, kept), shares=groups.shares)
    return replace(problem, weights=kept, groups=groups, measured=problem.columns)


def _warn_of_lost_classes(problem: Problem, trim: float, kept: Array) -> None:
    """Warn if all rows of a class are ignored."""
    if problem.loss.of == "residual":
        return
    weighted = problem.base_weights > 0.0
    lost = np.setdiff1d(problem.y[weighted], problem.y[kept > 0.0])
    if lost.size:
        share = float(problem.base_weights[np.isin(problem.y, lost)].sum())
        warnings.warn(
            f"Trimming has removed all rows of a class, whose share is {share:.4g}: use a 'trim' "
            f"below that instead of {trim:g}, or class weights.",
            stacklevel=2,
        )


def minimise_trimmed(
    problem: Problem,
    trim: float,
    start: Array,
    fit: Callable[[Problem, Array], Any],
    worst_of: Callable[[Problem, Array], tuple[WorstCase, Array]],
    *,
    tol: float,
) -> Any:
    """Minimise R_ε + penalty from several starts, and return a `Solution`.

    `fit` solves with fixed weights from a model, and `worst_of` returns the worst case of a model:
    of the rows, and the weights of rows or groups.
    """

    def value_of(part: Problem, theta: Array) -> float:
        return worst_of(part, theta)[0].value + part.penalty_at(theta)

    steps = _Steps(problem, trim, fit, value_of, tol)
    first = steps.solve(problem, start)
    starts = [first.theta]
    plain = replace(problem, divergence=as_divergence("chi2"), rho=0.0)
    if not problem.plain and not steps.stopped:
        inner = _Steps(plain, trim, steps.solve, lambda part, theta: part.objective(theta), tol)
        starts.append(inner.run(inner.begin(steps.solve(plain, first.theta).theta)).theta)
    if problem.loss.name == "squared" and problem.reference is None and not steps.stopped:
        starts.append(steps.solve(_huber(plain, first.theta), first.theta).theta)
    descents = [steps.run(steps.begin(theta), _FIRST_STEPS) for theta in starts]
    best = min(descents, key=lambda descent: descent.values[-1])
    steps.run(best)
    last = steps.last
    part = problem_on(problem, best.kept)
    worst, units = worst_of(part, best.theta)
    _warn_of_lost_classes(problem, trim, best.kept)
    ending = last.ending
    if not ending.asked_for:
        ending = Ending.CONVERGED if best.settled else Ending.EXHAUSTED
    return replace(
        last,
        theta=best.theta,
        value=best.values[-1],
        worst=worst,
        gap=math.nan,
        status=describe_trimmed(ending, last.solver, trim, len(best.values) - 1, len(starts)),
        passes=steps.passes,
        ending=ending,
        group_weights=None if part.groups is None else units,
        kept=best.kept if problem.weights is None else _shares(best.kept, problem.weights),
    )


def _shares(kept: Array, weights: Array) -> Array:
    return np.divide(kept, weights, out=np.zeros_like(kept), where=weights > 0.0)


class _Steps:
    """The two steps, which alternate."""

    def __init__(
        self,
        problem: Problem,
        trim: float,
        fit: Callable[[Problem, Array], Any],
        value_of: Callable[[Problem, Array], float],
        tol: float,
    ) -> None:
        self.problem, self.trim, self.tol = problem, trim, tol
        self.fit, self.value_of = fit, value_of
        self.passes, self.stopped = 0.0, False
        self.last: Any = None

    def solve(self, problem: Problem, theta: Array) -> Any:
        """An exact solve with fixed weights; none after a callback or Ctrl-C has ended one."""
        if self.stopped:
            return replace(self.last, theta=theta)
        self.last = self.fit(problem, theta)
        self.passes += self.last.passes
        self.stopped = self.last.ending.asked_for
        return self.last

    def begin(self, theta: Array) -> _Descent:
        """Start from a model."""
        kept = self.kept(theta)
        return _Descent(theta, kept, [self.value_of(problem_on(self.problem, kept), theta)])

    def kept(self, theta: Array) -> Array:
        """The weights that are kept for a model."""
        problem, groups = self.problem, self.problem.groups
        z, _ = problem.losses_at(problem.scores(theta))
        of = None if groups is None else groups.of
        return kept_weights(z, problem.weights, self.trim, of)

    def run(self, descent: _Descent, most: int = _MOST_STEPS) -> _Descent:
        """Make steps until the objective decreases by less than the tolerance."""
        for _ in range(most):
            if descent.settled or self.stopped:
                break
            theta = self.solve(problem_on(self.problem, descent.kept), descent.theta).theta
            kept = self.kept(theta)
            value = self.value_of(problem_on(self.problem, kept), theta)
            last = descent.values[-1]
            descent.settled = not last - value > self.tol * self.problem.loss_scale(last)
            if value < last:
                descent.theta, descent.kept = theta, kept
                descent.values.append(value)
        return descent


def _huber(problem: Problem, theta: Array) -> Problem:
    """The problem with the Huber loss, whose width is that of the bulk of the residuals."""
    residuals = abs(problem.scores(theta) - problem.y)
    if problem.weights is not None:
        residuals = residuals[problem.weights > 0.0]
    width = _WIDTH * _DEVIATIONS * float(np.median(residuals))
    return replace(problem, loss=Loss.huber(max(width, 1e-8 * problem.typical_norm, 1e-300)))
