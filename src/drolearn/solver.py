"""Robust linear models by any method: one function, one kind of answer.

=================  ===============================================================
name               what it does
=================  ===============================================================
"auto"             whichever of the others is expected to be fastest
"exact"            "newton" or "lbfgs", by cost
"newton"           all rows, Hessian of the robust loss; for few columns
"lbfgs"            all rows, limited memory of past steps
"gssg"             multilevel draws, tamed: unbiased in the limit, cost independent of N
"gssg-anchor"      multilevel draws against an anchor: converges to any accuracy
"pssg"             draws that grow at every step
"fsg"              all rows at every step
"sgd"              draws of fixed size: biased
"erm"              the plain mean of the losses (ρ = 0), exactly
=================  ===============================================================

A :class:`~drolearn.gradient.Method` may stand in place of a name.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn.descent import History, State, Step, descend
from drolearn.divergence import Divergence, as_divergence
from drolearn.exact import can_newton, minimise
from drolearn.gradient import Method, as_count
from drolearn.inputs import as_problem, as_start
from drolearn.loss import Loss
from drolearn.problem import Evaluation, Problem
from drolearn.recipe import SOLVERS, Recipe, as_solver, as_state, choose, make_recipe
from drolearn.worst_case import WorstCase

__all__ = ["SOLVERS", "Solution", "run", "solve"]

Array = NDArray[np.float64]
Watch = Callable[[History, Callable[[], Array]], bool]

_EXACT = ("auto", "exact", "newton", "lbfgs", "erm")


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A robust linear model, and how it was found.

    Attributes
    ----------
    coef : array of shape (d,), or (m, d) for loss="multinomial" of m classes
    intercept : float, or array of shape (m,)
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
    converged : bool
        Whether the tolerance was reached, or without one, all passes made.
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
    ending : str
        The same in one word: "converged", "corner", "stuck", "uncertified", "exhausted" or "done"
        (all passes made), "lost", "stopped" (by the callback) or "interrupted" (Ctrl-C).
    """

    coef: Array
    intercept: Any
    value: float
    worst: WorstCase
    gap: float
    gradient_norm: float
    converged: bool
    status: str
    solver: str
    passes: float
    history: History = field(repr=False)
    state: State | None = field(default=None, repr=False)
    ending: str = ""


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
    solver: str | Method = "auto",
    max_iter: float = 100,
    tol: float | None = 1e-6,
    step_size: str | float | Step = "auto",
    batch_size: int = 64,
    average: bool | None = None,
    tame: bool = True,
    start: ArrayLike | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    callback: Callable[[History], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
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
    solver : str or Method
        See the table above.  The radius of a Method is replaced by `rho`.
    max_iter : float
        Passes over the data: rows drawn at most, divided by n.  A gradient of all rows, which
        is what exact solvers take for a step, counts as one.
    tol : float or None
        Relative accuracy: exact solvers end when the gap to the optimum is estimated to be
        below tol × value, stochastic ones when a pass brings less than that.  None uses up
        `max_iter`; exact solvers end before that when only rounding is left.
    step_size : "auto", float or callable
        "auto" follows from the smoothness of the data, column by column.  A number is a constant,
        a callable gives the step sizes at an array of steps; both are taken as they are,
        in the coordinates of the data: `drolearn.descent.Decay()` is the paper's.
    batch_size : int
        Rows of a draw of "sgd" and of the first draw of "pssg"; the base block of "gssg" has at
        least as many, and fewer than twice as many.
    average : bool, optional
        Whether the answer is an average of the iterates; as fits the method if not given.
    tame : bool
        Whether corrections are held back at first, see docs/training.md.  False leaves every
        estimate of "gssg" exactly unbiased.
    start : array-like of shape (d + 1,) or (m, d + 1), optional
        Coefficients and intercept to start from; zeros if not given.
    random_state : int, Generator or RandomState, optional
        Same number, same bits.
    n_jobs : int, optional
        Threads for passes over all rows; the result does not depend on it.
    callback : callable, optional
        Called with the history after every look; a true answer stops.
    checkpoint : path, optional
        A file to which stochastic methods save their state, and from which they go on if it
        is there.

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
        step_size=step_size,
        batch_size=batch_size,
        average=average,
        tame=tame,
        random_state=random_state,
        watch=None if callback is None else lambda history, _: bool(callback(history)),
        checkpoint=checkpoint,
    )


def run(
    problem: Problem,
    theta: Array,
    *,
    solver: str | Method,
    max_iter: float,
    tol: float | None,
    step_size: str | float | Step,
    batch_size: int,
    average: bool | None,
    tame: bool,
    random_state: Any,
    watch: Watch | None,
    checkpoint: str | os.PathLike[str] | None,
) -> Solution:
    """`solve` for a problem that was made before.

    `watch` is called with the history and a function that gives the model, after every look.
    """
    began = time.process_time()
    kind, name = as_solver(solver)
    if not (isinstance(max_iter, int | float | np.number) and 0.0 < max_iter < math.inf):
        raise ValueError(
            f"The 'max_iter' parameter must be a positive, finite number of passes. "
            f"Got {max_iter!r} instead."
        )
    if tol is not None and not (isinstance(tol, int | float | np.number) and 0.0 < tol < 1.0):
        raise ValueError(
            f"The 'tol' parameter must be None or lie between 0 and 1. Got {tol!r} instead."
        )
    as_count("batch_size", batch_size)
    if name == "erm":
        problem.rho, problem.divergence, name = 0.0, as_divergence("chi2"), "exact"
    _warn_of_all_weights(problem)
    if problem.groups is not None and name not in _EXACT:
        raise ValueError(
            f"With groups, the 'solver' parameter must be one of {', '.join(map(repr, _EXACT))}. "
            f"Got {name!r} instead: methods that draw rows cannot tell the loss of a group."
        )
    if name == "auto":
        name = choose(problem, 1e-6 if tol is None else tol, float(max_iter))
    if name == "newton" and not can_newton(problem):
        raise ValueError(
            f"solver='newton' needs one score, a strictly convex divergence, at most 2000 columns "
            f"and, with groups, at most 100. Got {problem.m} scores, {problem.divergence!r} and "
            f"{problem.d} columns; solver='lbfgs' takes them all."
        )
    if name in ("exact", "newton", "lbfgs"):
        if checkpoint is not None:
            warnings.warn(
                f"Exact solvers (here {name!r}) do not write checkpoints: the 'checkpoint' "
                f"parameter has no effect.",
                stacklevel=3,
            )
        return _solve_exactly(problem, name, theta, max_iter, tol, watch, began)
    problem.scaling = "draws" if isinstance(step_size, str) else "none"
    recipe = make_recipe(problem, kind, name, batch_size, step_size, average, tame)
    # What cannot move (no intercept, constant columns) starts at zero.
    theta = problem.to_model(problem.from_model(theta))
    state = as_state(problem, recipe, theta, random_state, checkpoint)
    return _solve_by_draws(problem, name, recipe, state, max_iter, tol, watch, checkpoint)


def _warn_of_all_weights(problem: Problem) -> None:
    """Tell who may not know that the ball holds all weights; with groups it is a way to go."""
    largest = problem.divergence.maximum(1.0 / problem.n)
    bounded = largest > 0.0 and problem.divergence.name != "cvar"
    if bounded and problem.rho >= largest and problem.groups is None:
        warnings.warn(
            f"rho = {problem.rho:.6g} is at least {largest:.6g}, the largest "
            f"{problem.divergence.name!r} divergence there is for {problem.n} rows: the ball "
            f"holds all weights, and the robust loss is the largest single loss.",
            stacklevel=4,
        )


# -- running it ------------------------------------------------------------------------


def _solve_exactly(
    problem: Problem,
    name: str,
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

    found = minimise(problem, name, theta, tol or 1e-14, math.ceil(max_iter), look)
    name = found.direction
    size = f"relative gap at most {found.gap / problem.unit(found.value):.1e}"
    if math.isnan(found.gap):
        size = f"gradient norm {found.gradient_norm:.1e}"
    sentence = {
        "converged": f"Converged in {found.iterations} iterations of {name} ({size}).",
        "exhausted": f"Used up all {found.iterations} iterations of {name} ({size}): raise "
        f"max_iter, or tol.",
        "corner": f"No model is better than none within this ball: all coefficients are zero "
        f"({size}, after {found.iterations} iterations of {name}). A smaller rho asks for less.",
        "uncertified": f"No further progress after {found.iterations} iterations of {name}, but "
        f"only a {size} is certified: some l2 may help.",
        "stuck": f"No step of {name} brings more after {found.iterations} iterations ({size}): "
        f"some l2 may help.",
        "stopped": f"Stopped after {found.iterations} iterations of {name} ({size}).",
        "interrupted": f"Interrupted after {found.iterations} iterations of {name} ({size}).",
    }[found.reason]
    return _solution(
        problem, found.theta, found.gap, found.gradient_norm, found.converged, sentence, name,
        float(found.iterations), history, None, found.reason, found.at,
    )  # fmt: skip


def _solve_by_draws(
    problem: Problem,
    name: str,
    recipe: Recipe,
    state: State,
    max_iter: float,
    tol: float | None,
    watch: Watch | None,
    checkpoint: str | os.PathLike[str] | None,
) -> Solution:
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
        checkpoint=checkpoint,
    )
    tally = state.tally
    passes = tally.samples / problem.n
    steps = int(tally.step)
    sentence = {
        "done": f"Drew all rows {passes:.3g} times over in {steps} steps of {name}"
        + ("." if tol is None else " without reaching tol: raise max_iter, or tol."),
        "converged": f"The last pass of {name} brought less than tol; {passes:.3g} passes, "
        f"{steps} steps.",
        "stopped": f"Stopped after {passes:.3g} passes and {steps} steps of {name}; this is the "
        f"best model so far.",
        "interrupted": f"Interrupted after {passes:.3g} passes and {steps} steps of {name}; this "
        f"is the best model so far.",
        "lost": f"The loss left all bounds after {steps} steps of {name}, so the step size is "
        f"too large: use step_size='auto' or a smaller one; this is the best model before that.",
    }[ending]
    cut, corrections = int(tally.clipped), int(tally.corrections)
    if cut:
        sentence += f" Taming cut {cut} of {corrections} corrections to size."
    return _solution(
        problem, state.best, math.nan, tally.base_norm,
        ending == "converged" or (ending == "done" and tol is None), sentence, name, passes,
        state.history, state, ending,
    )  # fmt: skip


def _solution(
    problem: Problem,
    theta: Array,
    gap: float,
    norm: float,
    converged: bool,
    sentence: str,
    name: str,
    passes: float,
    history: History,
    state: State | None,
    ending: str,
    at: Evaluation | None = None,
) -> Solution:
    if at is None:
        at = problem.evaluate(problem.scores(theta))
    coef, intercept = theta[:, :-1].copy(), theta[:, -1].copy()
    return Solution(
        coef if problem.m > 1 else coef[0],
        intercept if problem.m > 1 else float(intercept[0]),
        at.value + problem.cost(theta),
        at.worst,
        gap,
        norm,
        converged,
        sentence,
        name,
        passes,
        history,
        state,
        ending,
    )
