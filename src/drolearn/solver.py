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

import difflib
import hashlib
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _kernels
from drolearn.descent import Constant, Decay, History, State, Step, descend
from drolearn.divergence import Divergence, as_divergence
from drolearn.exact import can_newton, minimise
from drolearn.gradient import Fixed, Full, Growing, Method, Multilevel, as_count
from drolearn.loss import Loss, as_loss
from drolearn.problem import Evaluation, Problem
from drolearn.worst_case import WorstCase, as_base, as_radius, without_dust

__all__ = ["SOLVERS", "Solution", "solve"]

Array = NDArray[np.float64]

SOLVERS = ("auto", "exact", "newton", "lbfgs", "gssg", "gssg-anchor", "pssg", "fsg", "sgd", "erm")


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
        No model within ten times the norm of this one (in scaled coordinates, and at least ten)
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


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A stochastic method with its habits."""

    method: Method
    step: Step
    clip: float
    average: bool
    anchor_every: float
    tune: bool


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
    solver : str or Method
        See the table above.  The radius of a Method is replaced by `rho`.
    max_iter : float
        Passes over the data: rows drawn at most, divided by n.  An iteration of an exact
        solver, which reads the data twice, counts as one.
    tol : float or None
        Relative accuracy: exact solvers end when the gap to the optimum is estimated to be
        below tol × value, stochastic ones when a pass brings less than that.  None uses up
        `max_iter`.
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
    began = time.process_time()
    kind, name = _as_solver(solver)
    problem, theta = _as_problem(
        X, y, rho, divergence, loss, l2, fit_intercept, sample_weight, start, n_jobs,
        plain=name == "erm",
    )  # fmt: skip
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
    if name == "auto":
        name = _choose(problem, 1e-6 if tol is None else tol, float(max_iter))
    if name == "erm":
        name = "exact"
    if name == "newton" and not can_newton(problem):
        raise ValueError(
            f"solver='newton' needs one score, a strictly convex divergence and at most 2000 "
            f"columns. Got {problem.m} scores, {problem.divergence!r} and {problem.d} columns; "
            f"solver='lbfgs' takes them all."
        )
    if name in ("exact", "newton", "lbfgs"):
        if checkpoint is not None:
            warnings.warn(
                f"Exact solvers (here {name!r}) do not write checkpoints: the 'checkpoint' "
                f"parameter has no effect.",
                stacklevel=2,
            )
        return _solve_exactly(problem, name, theta, max_iter, tol, callback, began)
    problem.scaling = "draws" if isinstance(step_size, str) else "none"
    recipe = _recipe(problem, kind, name, batch_size, step_size, average, tame)
    # What cannot move (no intercept, constant columns) starts at zero.
    theta = problem.to_model(problem.from_model(theta))
    state = _as_state(problem, recipe, theta, random_state, checkpoint)
    return _solve_by_draws(problem, name, recipe, state, max_iter, tol, callback, checkpoint)


# -- which method ----------------------------------------------------------------------


def _choose(problem: Problem, tol: float, max_iter: float) -> str:
    """Draws where they are cheaper than a few passes over all rows, else an exact solver.

    Draws come close in some hundred thousand rows, however many there are, and need ten times
    as many for the next digit; exact solvers read all rows some 40 times, and only a few times
    more for all other digits.  With fewer rows than 200,000 they take about a second, and prove
    what they have found.
    """
    n = problem.n
    passes = max(0.5, 3e5 / n) * (1e-3 / tol)
    exact = 20.0 if can_newton(problem) else 40.0 - 10.0 * math.log10(tol)
    worth = n >= 200_000 and tol >= 1e-4 and passes <= max_iter and 3.0 * passes < exact
    return "gssg" if worth and problem.divergence.strictly_convex else "exact"


def _recipe(
    problem: Problem,
    given: Method | None,
    name: str,
    batch: int,
    step_size: str | float | Step,
    average: bool | None,
    tame: bool,
) -> _Recipe:
    n, rho = problem.n, problem.rho
    anchored = name == "gssg-anchor"
    method = given
    if method is None:
        if name == "sgd":
            method = Fixed(n, batch, rho=rho)
        elif name == "pssg":
            method = Growing(n, batch, rho=rho)
        elif name == "fsg":
            method = Full(n, rho=rho)
        else:
            fire = 0.3 if anchored else 0.1
            method = Multilevel(n, base=min(batch, n), fire=fire, rho=rho)
    if method.n != n:
        raise ValueError(f"The draws are for {method.n} rows, but X has {n}.")
    if method.rho != rho:
        method = replace(method, rho=rho)
    multilevel = isinstance(method, Multilevel)
    tune = isinstance(method, Multilevel) and method.r == "auto"
    if isinstance(method, Multilevel) and tame and not anchored and method.warm == 0:
        method = replace(method, warm=2000)
    steady = anchored or isinstance(method, Full | Growing)
    if isinstance(step_size, str):
        if step_size != "auto":
            raise ValueError(
                f"The 'step_size' parameter must be 'auto', a positive number or a function of "
                f"the step. Got {step_size!r} instead."
            )
        rows = n if isinstance(method, Full) else float(batch)
        # Robust losses turn faster than plain ones, the more the larger the ball.
        ball = 1.0 + 2.0 * min(rho, 10.0) / problem.divergence.curvature
        length = (1.0 if anchored else 0.5) / (problem.smoothness(rows) * ball)
        step: Step = Constant(length) if steady else Decay(length, 2000.0)
    elif callable(step_size):
        step = step_size
    else:
        if isinstance(step_size, bool) or not 0.0 < float(step_size) < math.inf:
            raise ValueError(
                f"The 'step_size' parameter must be 'auto', a positive number or a function of "
                f"the step. Got {step_size!r} instead."
            )
        step = Constant(float(step_size))
    return _Recipe(
        method,
        step,
        1.0 if multilevel and tame and not anchored else math.inf,
        (not steady) if average is None else bool(average),
        2.0 * n if anchored else math.inf,
        tune,
    )


# -- running it ------------------------------------------------------------------------


def _solve_exactly(
    problem: Problem,
    name: str,
    theta: Array,
    max_iter: float,
    tol: float | None,
    callback: Callable[[History], Any] | None,
    began: float,
) -> Solution:
    history = History()

    def watch(iteration: int, v: Array, value: float, norm: float) -> bool:
        seconds = time.process_time() - began
        history.add(2.0 * problem.n * (iteration + 1), seconds, value, norm, math.nan)
        return bool(callback is not None and callback(history))

    found = minimise(problem, name, theta, tol or 1e-14, math.ceil(max_iter), watch)
    name = found.direction
    size = f"relative gap {found.gap / max(abs(found.value), 1e-300):.1e}"
    if math.isnan(found.gap):
        size = f"gradient norm {found.gradient_norm:.1e}"
    sentence = {
        "converged": f"Converged in {found.iterations} iterations of {name} ({size}).",
        "exhausted": f"Used up all {found.iterations} iterations of {name} ({size}): raise "
        f"max_iter, or tol.",
        "corner": f"No model is better than none within this ball: all coefficients are zero "
        f"({size}, after {found.iterations} iterations of {name}).",
        "uncertified": f"No further progress after {found.iterations} iterations of {name}, but "
        f"no more than a {size} is certified.",
        "stuck": f"No step of {name} brings more after {found.iterations} iterations ({size}).",
        "stopped": f"Stopped after {found.iterations} iterations of {name} ({size}).",
    }[found.reason]
    return _solution(
        problem, found.theta, found.gap, found.gradient_norm, found.converged, sentence, name,
        2.0 * (found.iterations + 1), history, None, found.at,
    )  # fmt: skip


def _solve_by_draws(
    problem: Problem,
    name: str,
    recipe: _Recipe,
    state: State,
    max_iter: float,
    tol: float | None,
    callback: Callable[[History], Any] | None,
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
        watch=lambda state: bool(callback is not None and callback(state.history)),
        checkpoint=checkpoint,
    )
    tally = state.tally
    passes = float(tally[_kernels.SAMPLES]) / problem.n
    steps = int(tally[_kernels.STEP])
    sentence = {
        "done": f"Drew all rows {passes:.3g} times over in {steps} steps of {name}"
        + ("." if tol is None else " without reaching tol: raise max_iter, or tol."),
        "converged": f"The last pass of {name} brought less than tol; {passes:.3g} passes, "
        f"{steps} steps.",
        "stopped": f"Stopped after {passes:.3g} passes and {steps} steps of {name}; this is the "
        f"best model so far.",
        "lost": f"The loss left all bounds after {steps} steps of {name}, so the step size is "
        f"too large: use step_size='auto' or a smaller one; this is the best model before that.",
    }[ending]
    return _solution(
        problem, state.best, math.nan, float(tally[_kernels.BASE_NORM]),
        ending == "converged" or (ending == "done" and tol is None), sentence, name, passes,
        state.history, state,
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
    )


# -- what may be given -----------------------------------------------------------------


def _as_solver(solver: str | Method) -> tuple[Method | None, str]:
    if isinstance(solver, Method):
        return solver, type(solver).__name__
    if isinstance(solver, str) and solver in SOLVERS:
        return None, solver
    close = difflib.get_close_matches(str(solver), SOLVERS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"The 'solver' parameter must be one of {', '.join(map(repr, SOLVERS))}, or a Method. "
        f"Got {solver!r} instead.{hint}"
    )


def _as_problem(
    X: Any,
    y: ArrayLike,
    rho: float,
    divergence: str | Divergence,
    loss: str | Loss,
    l2: float,
    fit_intercept: bool,
    sample_weight: ArrayLike | None,
    start: ArrayLike | None,
    n_jobs: int | None,
    plain: bool,
) -> tuple[Problem, Array]:
    from sklearn.utils import check_array, check_consistent_length

    kind, form, radius = as_divergence(divergence), as_loss(loss), as_radius(rho)
    kinds: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "input_name": "X"}
    X = check_array(X, **kinds)
    n = X.shape[0]
    check_consistent_length(X, y)
    labels = _as_labels(y, form)
    if not isinstance(X, np.ndarray) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    base = np.empty(0)
    if sample_weight is not None:
        base = as_base(sample_weight, n, "sample_weight")
    base = without_dust(kind, base)
    if not (isinstance(l2, int | float | np.number) and 0.0 <= l2 < math.inf):
        raise ValueError(
            f"The 'l2' parameter must be a finite number of at least 0. Got {l2!r} instead."
        )
    if plain:
        kind, radius = as_divergence("chi2"), 0.0
    largest = kind.maximum(1.0 / n)
    if radius >= largest > 0.0 and kind.name != "cvar":
        warnings.warn(
            f"rho = {radius:.6g} is at least {largest:.6g}, the largest {kind.name!r} divergence "
            f"there is for {n} rows: the ball holds all weights, and the robust loss is the "
            f"largest single loss.",
            stacklevel=3,
        )
    problem = Problem(
        X,
        labels,
        base,
        loss=form,
        divergence=kind,
        rho=radius,
        l2=float(l2),
        intercept=bool(fit_intercept),
        n_jobs=n_jobs,
    )
    theta = problem.zeros()
    if start is not None:
        given = np.asarray(start, dtype=np.float64)
        if given.size != theta.size or not np.isfinite(given).all():
            raise ValueError(
                f"The 'start' parameter must hold {theta.size} finite numbers, the intercept "
                f"last. Got an array of shape {given.shape} instead."
            )
        theta[:] = given.reshape(theta.shape)
    return problem, theta


def _as_labels(y: ArrayLike, loss: Loss) -> Array:
    from sklearn.utils import column_or_1d
    from sklearn.utils.validation import _check_y

    if loss.of == "residual":
        return np.ascontiguousarray(_check_y(y, y_numeric=True), dtype=np.float64)
    labels = column_or_1d(y)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(
            f"The 'y' parameter must not hold NaN or infinity. "
            f"Got {int((~np.isfinite(labels)).sum())} of them."
        )
    classes, places = np.unique(labels, return_inverse=True)
    if classes.size < 2:
        raise ValueError(
            f"The 'y' parameter must have at least two classes. Got one class instead: "
            f"{classes[0]}."
        )
    if loss.of == "classes":
        return places.astype(np.float64)
    if classes.size > 2:
        raise ValueError(
            f"The 'y' parameter must have two classes for loss={loss.name!r}. Got "
            f"{classes.size} instead; loss='multinomial' takes any number."
        )
    return np.where(places == 1, 1.0, -1.0)


def _as_state(
    problem: Problem,
    recipe: _Recipe,
    theta: Array,
    random_state: Any,
    checkpoint: str | os.PathLike[str] | None,
) -> State:
    if checkpoint is None:
        return State.new(theta, _as_generator(random_state))
    path = Path(checkpoint)
    if not path.parent.is_dir():
        raise ValueError(
            f"The 'checkpoint' parameter must name a file in a folder that exists. "
            f"Got {str(path)!r} instead."
        )
    fingerprint = _fingerprint(problem, recipe)
    if not path.exists():
        state = State.new(theta, _as_generator(random_state))
        state.fingerprint = fingerprint
        return state
    state = State.load(path)
    if state.fingerprint != fingerprint or state.theta.shape != theta.shape:
        raise ValueError(
            f"The checkpoint {str(path)!r} belongs to other data or other settings: delete it to "
            f"start anew."
        )
    return state


def _fingerprint(problem: Problem, recipe: _Recipe) -> str:
    """What a state must have in common with a problem to go on with it."""
    content = hashlib.blake2b(digest_size=16)
    settings = (
        problem.n, problem.d, problem.m, problem.loss, problem.divergence, problem.rho, problem.l2,
        problem.intercept, problem.scaling, recipe.method, recipe.average, recipe.clip,
        recipe.anchor_every,
    )  # fmt: skip
    content.update(repr(settings).encode())
    content.update(problem.y.tobytes())
    content.update(problem.base.tobytes())
    for numbers in problem.columns[:2]:
        content.update(numbers.tobytes())
    return content.hexdigest()


def _as_generator(random_state: Any) -> np.random.Generator:
    """A generator of its own; one that was given moves on."""
    if isinstance(random_state, np.random.Generator):
        return np.random.default_rng(int(random_state.integers(2**62)))
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(2**31 - 1)))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if random_state is None or (whole and random_state >= 0):
        return np.random.default_rng(random_state)
    raise ValueError(
        f"The 'random_state' parameter must be None, an integer of at least 0, a Generator or a "
        f"RandomState. Got {random_state!r} instead."
    )
