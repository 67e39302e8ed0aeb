"""`Solution`: what a solve returns, made from the result of an exact or a stochastic solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.descent import History, State
from drolearn._solvers.ending import Ending, describe_exact, describe_stochastic
from drolearn._solvers.exact import Minimum
from drolearn._solvers.problem import Evaluation, Problem
from drolearn.divergence import CVaR

__all__ = ["Solution", "solution_of_minimum", "solution_of_state"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A robust linear model, and how it was found.

    Attributes
    ----------
    theta : array of shape (m, d + 1)
        Coefficients, and intercepts in the last column; m = 1 except for loss="multinomial".
    value : float
        Robust loss on all rows, with the penalty; with reference losses, the robust regret.
    worst : WorstCase
        Worst-case weights of the rows, and the robust loss or regret without penalty.
    gap : float
        Duality gap: no model has a value below value − gap, among models up to ten times the norm
        of this one (in scaled coordinates; at least ten times a typical norm).  NaN where no bound
        is known, as for stochastic solvers.
    gradient_norm : float
        Norm of the gradient in scaled coordinates; for stochastic solvers the mean norm of recent
        gradients.
    status : str
        How the solver ended, in one sentence.
    solver : str
        The name of the solver that was used.
    passes : float
        Rows read, divided by the number of rows.
    ending : Ending
        How the solver ended, as a value to compare with.
    history : History
        Samples, CPU seconds, value, gradient norm and step size during the solve.
    state : State or None
        The final state of a stochastic solver.
    group_weights : array of shape (number of groups,) or None
        Worst-case weights of the groups, if there are groups.  Where their losses are equal, exact
        solvers return the weights of the saddle point, which balance the gradients of the groups.
    kept : array of shape (n,) or None
        With trimming, the share of the weight of each row that was kept: 0 for rows that were
        ignored, 1 for others, and a number between for the one at the threshold.

    Examples
    --------
    >>> from drolearn import solve
    >>> solution = solve([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], l2=0.1)
    >>> solution.coef.round(3), round(solution.intercept, 3)
    (array([0.278]), -0.417)
    """

    theta: Array
    value: float
    worst: WorstCase
    gap: float
    gradient_norm: float
    status: str
    solver: str
    passes: float
    ending: Ending
    history: History = field(repr=False)
    state: State | None = field(default=None, repr=False)
    group_weights: Array | None = field(default=None, repr=False)
    kept: Array | None = field(default=None, repr=False)

    @property
    def coef(self) -> Array:
        """Coefficients of shape (d,), or (m, d) for loss="multinomial"; a view of `theta`."""
        return self.theta[0, :-1] if self.theta.shape[0] == 1 else self.theta[:, :-1]

    @property
    def intercept(self) -> Any:
        """The intercept, a number, or an array of shape (m,) for loss="multinomial"."""
        return float(self.theta[0, -1]) if self.theta.shape[0] == 1 else self.theta[:, -1]

    @property
    def converged(self) -> bool:
        """Whether the tolerance was reached; with tol=None, whether all passes were made."""
        return self.ending.converged


def solution_of_minimum(problem: Problem, minimum: Minimum, history: History) -> Solution:
    """The solution that an exact solver found."""
    relative_gap = minimum.gap / problem.loss_scale(minimum.value)
    norm, iterations, name = minimum.gradient_norm, minimum.iterations, minimum.direction
    smaller = "a smaller rho"
    if not problem.divergence.has_radius:
        cvar = isinstance(problem.divergence, CVaR)
        smaller = "a larger level" if cvar else "a flatter spectrum"
    return Solution(
        theta=minimum.theta,
        value=minimum.at.value + problem.penalty_at(minimum.theta),
        worst=minimum.at.worst,
        gap=minimum.gap,
        gradient_norm=norm,
        status=describe_exact(minimum.ending, name, iterations, relative_gap, norm, smaller),
        solver=name,
        passes=float(iterations),
        ending=minimum.ending,
        history=history,
        group_weights=_group_weights(problem, minimum.at),
    )


def solution_of_state(problem: Problem, state: State, ending: Ending, solver: str) -> Solution:
    """The solution that a stochastic solver found."""
    tally, at = state.tally, problem.evaluate(problem.scores(state.best))
    passes, steps = tally.samples / problem.n, int(tally.step)
    corrections = int(tally.clipped), int(tally.corrections)
    return Solution(
        theta=state.best,
        value=at.value + problem.penalty_at(state.best),
        worst=at.worst,
        gap=math.nan,
        gradient_norm=tally.base_norm,
        status=describe_stochastic(ending, solver, passes, steps, corrections),
        solver=solver,
        passes=passes,
        ending=ending,
        history=state.history,
        state=state,
        group_weights=_group_weights(problem, at),
    )


def _group_weights(problem: Problem, at: Evaluation) -> Array | None:
    if problem.groups is None:
        return None
    return problem.groups.shares if problem.plain else at.shares
