"""`solve`: robust linear models by any solver, with one kind of answer."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.checkpoint import open_checkpoint
from drolearn._solvers.descent import History, State, descend
from drolearn._solvers.ending import Ending, describe_exact, describe_stochastic
from drolearn._solvers.exact import minimise
from drolearn._solvers.inputs import as_problem, as_start
from drolearn._solvers.problem import Problem
from drolearn._solvers.solvers import Solver, Stochastic, as_solver, choose
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["Solution", "run", "solve"]

Array = NDArray[np.float64]
Watch = Callable[[History, Callable[[], Array]], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A robust linear model, and how it was found.

    Attributes
    ----------
    theta : array of shape (m, d + 1)
        Coefficients and, in the last column, intercepts; one row but for loss="multinomial".
    value : float
        Robust loss on all rows, penalty included.
    worst : WorstCase
        Worst-case weights of the rows, and the robust loss without penalty.
    gap : float
        No model within ten times the norm of this one, or of what is to be expected if that is
        more (in scaled coordinates),
        has a value below value − gap; NaN where nothing is known, as for stochastic methods.
    gradient_norm : float
        In scaled coordinates; the mean norm of recent gradients for stochastic methods.
    status : str
        How it ended, in one sentence.
    solver : str
        The method that was used.
    passes : float
        Rows read, divided by the number of rows.
    history : History
        Samples, CPU seconds, value, gradient norm and step size on the way.
    state : State or None
        What a stochastic method needs to go on.
    ending : Ending
        The same as a value to compare with.
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
        """Whether the tolerance was reached, or without one, all passes were made."""
        return self.ending.converged


def solve(
    X: Any,
    y: ArrayLike,
    *,
    rho: float = 0.1,
    divergence: str | Divergence = "chi2",
    loss: str | Loss = "logistic",
    l2: float = 0.0,
    fit_intercept: bool = True,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    solver: str | Solver = "auto",
    max_iter: float = 100,
    tol: float | None = 1e-6,
    start: ArrayLike | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    callback: Callable[[History], Any] | None = None,
) -> Solution:
    """Minimise R(losses of X w + c) + l2/2 ‖w‖² over linear models.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        float32 or float64, C or Fortran order, or CSR: read in place.
    y : array-like of shape (n,)
        Two classes (the larger counts as +1), class labels for loss="multinomial", or numbers.
    rho, divergence
        The ball, as in :func:`drolearn.worst_case`.
    loss : str or Loss
        See :mod:`drolearn.loss`.
    l2 : float
        Penalty; the intercept is free.
    fit_intercept : bool
        Whether the scores have a constant.
    sample_weight : array-like of shape (n,), optional
        Base weights of the rows.
    groups : array-like of shape (n,), optional
        Names of the groups that rows belong to: the ball then moves the shares of the groups
        and not single rows; one that holds all shares minimises the worst group's loss.  For
        exact solvers.
    solver : str or Solver, default="auto"
        A name or an object with settings, such as GSSG(batch_size=128): "auto", "exact",
        "lbfgs", "newton", "gssg", "gssg-anchor", "pssg", "fsg" or "sgd".
    max_iter : float, default=100
        Passes over the data: rows drawn at most, divided by n.  A gradient of all rows, which
        is what exact solvers take for a step, counts as one.
    tol : float or None, default=1e-6
        Relative accuracy: exact solvers end when the gap to the optimum is estimated to be
        below tol × value, stochastic ones when a pass improves the value by less than that.
        None uses all of `max_iter`; exact solvers end before that when only rounding is left.
    start : array-like of shape (d + 1,) or (m, d + 1), optional
        Coefficients and intercept to start from; zeros if not given.
    random_state : int, Generator or RandomState, optional
        Same number, same bits.
    n_jobs : int, optional
        Threads for passes over all rows; the result does not depend on it.
    callback : callable, optional
        Called with the history as the solver goes; return a true value to stop.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> y = X[:, 0] + rng.standard_normal(500) > 0
    >>> found = solve(X, y, rho=0.1)
    >>> found.solver, found.converged, bool(found.gap < 1e-6)
    ('lbfgs', True, True)
    >>> round(found.value, 4)
    0.6293
    """
    problem = as_problem(
        X,
        y,
        rho=rho,
        divergence=divergence,
        loss=loss,
        l2=l2,
        fit_intercept=fit_intercept,
        sample_weight=sample_weight,
        groups=groups,
        n_jobs=n_jobs,
    )
    return run(
        problem,
        as_start(problem, start),
        solver=solver,
        max_iter=max_iter,
        tol=tol,
        random_state=random_state,
        watch=None if callback is None else lambda history, _: bool(callback(history)),
    )


def run(
    problem: Problem,
    theta: Array,
    *,
    solver: str | Solver,
    max_iter: float,
    tol: float | None,
    random_state: Any,
    watch: Watch | None,
) -> Solution:
    """`solve` for a problem that was made before.

    `watch` is called with the history and a function that returns the model.
    """
    began = time.process_time()
    chosen = as_solver(solver)
    if not (isinstance(max_iter, int | float | np.number) and 0.0 < max_iter < math.inf):
        raise ValueError(
            f"The 'max_iter' parameter must be a positive, finite number of passes. "
            f"Got {max_iter!r} instead."
        )
    if tol is not None and not (isinstance(tol, int | float | np.number) and 0.0 < tol < 1.0):
        raise ValueError(
            f"The 'tol' parameter must be None or lie between 0 and 1. Got {tol!r} instead."
        )
    _warn_of_all_weights(problem)
    if chosen is None:
        chosen = choose(problem, 1e-6 if tol is None else float(tol), float(max_iter))
    missing = chosen.lacks(problem)
    if missing:
        raise ValueError(missing)
    if isinstance(chosen, Stochastic):
        return _solve_by_draws(problem, chosen, theta, max_iter, tol, random_state, watch)
    return _solve_exactly(problem, chosen, theta, max_iter, tol, watch, began)


def _warn_of_all_weights(problem: Problem) -> None:
    """Warn that the ball holds all weights; with groups that is the worst group's loss."""
    largest = problem.divergence.maximum(1.0 / problem.n)
    bounded = largest > 0.0 and problem.divergence.name != "cvar"
    if bounded and problem.rho >= largest and problem.groups is None:
        warnings.warn(
            f"rho = {problem.rho:.6g} is at least {largest:.6g}, the largest "
            f"{problem.divergence.name!r} divergence there is for {problem.n} rows: the ball "
            f"holds all weights, and the robust loss is the largest single loss.",
            stacklevel=4,
        )


def _solve_exactly(
    problem: Problem,
    solver: Solver,
    theta: Array,
    max_iter: float,
    tol: float | None,
    watch: Watch | None,
    began: float,
) -> Solution:
    history = History()

    def look(iteration: int, v: Array, value: float, norm: float) -> bool:
        seconds = time.process_time() - began
        history.add(problem.n * iteration, seconds, value, norm, math.nan)
        return watch is not None and watch(history, lambda: problem.to_model(v))

    found = minimise(problem, solver.name, theta, tol or 1e-14, math.ceil(max_iter), look)
    relative_gap = found.gap / problem.unit(found.value)
    norm, iterations, name = found.gradient_norm, found.iterations, found.direction
    return Solution(
        theta=found.theta,
        value=found.at.value + problem.cost(found.theta),
        worst=found.at.worst,
        gap=found.gap,
        gradient_norm=norm,
        status=describe_exact(found.ending, name, iterations, relative_gap, norm),
        solver=name,
        passes=float(iterations),
        ending=found.ending,
        history=history,
    )


def _solve_by_draws(
    problem: Problem,
    solver: Stochastic,
    theta: Array,
    max_iter: float,
    tol: float | None,
    random_state: Any,
    watch: Watch | None,
) -> Solution:
    problem = replace(problem, scaling="none" if solver.raw else "draws")
    recipe = solver.recipe(problem)
    # What cannot move (no intercept, constant columns) starts at zero.
    theta = problem.to_model(problem.from_model(theta))
    folder = solver.get_params()["checkpoint"]
    state, file = open_checkpoint(problem, recipe, theta, random_state, folder)
    ending = descend(
        problem,
        recipe.method,
        state,
        step=recipe.step,
        samples=max_iter * problem.n,
        clip=recipe.clip,
        average=recipe.average,
        anchor_every=recipe.anchor_every,
        tune=recipe.tune,
        tol=tol,
        watch=lambda state: watch is not None and watch(state.history, lambda: state.best),
        checkpoint=file,
    )
    tally, at = state.tally, problem.evaluate(problem.scores(state.best))
    passes, steps = tally.samples / problem.n, int(tally.step)
    corrections = int(tally.clipped), int(tally.corrections)
    return Solution(
        theta=state.best,
        value=at.value + problem.cost(state.best),
        worst=at.worst,
        gap=math.nan,
        gradient_norm=tally.base_norm,
        status=describe_stochastic(ending, solver.name, passes, steps, corrections),
        solver=solver.name,
        passes=passes,
        ending=ending,
        history=state.history,
        state=state,
    )
