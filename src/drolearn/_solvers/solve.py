"""`solve`: fit robust linear models with any solver."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.trimming import as_trim
from drolearn._inner.worst_case import WorstCase, check_soft
from drolearn._solvers.checkpoint import ExactCheckpoint, open_checkpoint
from drolearn._solvers.choice import as_solver, choose
from drolearn._solvers.descent import History, descend
from drolearn._solvers.ending import Ending, describe_exact
from drolearn._solvers.exact import minimise
from drolearn._solvers.inputs import as_problem, as_start
from drolearn._solvers.linear_algebra import single_threaded_blas
from drolearn._solvers.path import Path, Start
from drolearn._solvers.problem import Problem
from drolearn._solvers.proximal import minimise_sparse
from drolearn._solvers.soft import Fit, SoftMinimum, minimise_soft, soft_worst
from drolearn._solvers.solution import Solution, solution_of_minimum, solution_of_state
from drolearn._solvers.solvers import Exact, Solver, Stochastic
from drolearn._solvers.trimming import minimise_trimmed
from drolearn._validation import float_or_nan
from drolearn.divergence import Divergence, as_divergence
from drolearn.loss import Loss

__all__ = ["Watch", "run", "run_next", "run_soft", "run_trimmed", "solve", "warn_of_all_weights"]

Array = NDArray[np.float64]
Watch = Callable[[History, Callable[[], Array]], bool]


def solve(
    X: Any,
    y: ArrayLike,
    *,
    rho: float | None = None,
    divergence: str | Divergence = "chi2",
    loss: str | Loss = "logistic",
    l2: float = 0.0,
    l1: float = 0.0,
    trim: float = 0.0,
    fit_intercept: bool = True,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    solver: str | Solver = "auto",
    max_iter: float = 200,
    tol: float | None = 1e-6,
    start: ArrayLike | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    callback: Callable[[History], Any] | None = None,
    reference_losses: ArrayLike | None = None,
    tau: float | None = None,
) -> Solution:
    """Minimise R(losses of X w + c) + l2/2 ‖w‖² + l1 ‖w‖₁ over linear models.

    R is the largest weighted mean of the losses over all weights in a φ-divergence ball of radius
    rho around the weights of the data.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The rows.  float32 and float64 are read in place, dense in any memory order or CSR.
    y : array-like of shape (n,)
        Two classes (the larger label is +1), class labels for loss="multinomial", or numbers for
        loss="squared" and "huber".
    rho : float, default=None
        Radius of the ball; None is 0.1, and 0 is the plain mean.  CVaR has no radius: leave it
        None.
    divergence : str or Divergence, default="chi2"
        The divergence that defines the ball, or a spectral risk, see :func:`drolearn.worst_case`.
    loss : str or Loss, default="logistic"
        "logistic", "squared-hinge", "smoothed-hinge", "multinomial", "squared", "huber" or a
        :class:`drolearn.Loss`.
    l2 : float, default=0.0
        Strength of the quadratic penalty; the intercept is not penalised.
    l1 : float, default=0.0
        Strength of the l1 penalty, which makes coefficients exactly 0; the intercept is not
        penalised.  With l2, this is the elastic net.  Needs an exact solver: proximal Newton steps,
        or with solver="lbfgs" L-BFGS on orthants (OWL-QN).
    trim : float, default=0.0
        Share ε of the rows, by weight, to ignore: those with the largest losses, such as outliers
        and wrong labels.  R is then the worst case over the other rows; with groups, ε is taken
        from each of them.  The problem is not convex: the result is a local optimum, the best of
        several starts, without a duality gap.  Needs an exact solver; `max_iter` limits each of the
        solves.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.
    groups : array-like of shape (n,) or (n, k), default=None
        Names of the groups of the rows; with several columns of names, groups are the combinations
        that occur.  A Boolean matrix has one column for each group, and groups may overlap.  The
        ball then reweights groups instead of rows; a ball that holds all weights minimises the loss
        of the worst group.  Needs an exact solver, or "gssg", "gssg-anchor", "fsg" or "sgd" for
        groups that do not overlap.
    solver : str or Solver, default="auto"
        "auto", "exact", "lbfgs", "newton", "gssg", "gssg-anchor", "pssg", "fsg" or "sgd", or an
        object with settings, such as ``GSSG(batch_size=128)``.
    max_iter : float, default=200
        Largest number of passes over the data: rows drawn, divided by n.  A gradient of all rows,
        which is one step of an exact solver, counts as one pass.
    tol : float or None, default=1e-6
        Relative accuracy.  Exact solvers end when the gap to the optimum is below tol × value,
        stochastic ones when a pass improves the value by less than tol × value.  None makes
        `max_iter` passes; exact solvers end earlier if only rounding errors are left.
    start : array-like of shape (d + 1,) or (m, d + 1), default=None
        Coefficients and intercept to start from; None for zeros.
    random_state : int, Generator, RandomState or None, default=None
        Seed of stochastic solvers: the same integer gives the same bits.
    n_jobs : int or None, default=None
        Threads for passes over all rows; the result does not depend on it.
    callback : callable, default=None
        Called with the history after every evaluation; a true return value stops the solver.
    reference_losses : array-like of shape (n,), default=None
        Losses c of a reference model on rows that it has not seen, see
        :func:`drolearn.reference_losses`.  The solver then minimises the robust regret, which is R
        of the losses minus c.  As that may be 0 or negative, `tol` is relative to the mean loss of
        the zero model if that is larger.
    tau : float, default=None
        Price τ ≥ 0 of a soft ball, instead of `rho`: R is then max Σ p z − τ D(P, B), as in
        :func:`drolearn.worst_case`.  It is minimised by exact solves in balls of several radii,
        with a duality gap of its own; `max_iter` counts the passes of all of them.  Needs an exact
        solver, and a divergence that is strictly convex.

    Returns
    -------
    Solution
        The model, with its worst-case weights, certificate and history.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> y = X[:, 0] + rng.standard_normal(500) > 0
    >>> solution = solve(X, y, rho=0.1)
    >>> solution.solver, solution.converged, bool(solution.gap < 1e-6)
    ('lbfgs', True, True)
    >>> round(solution.value, 4)
    0.6293
    """
    if tau is not None:
        check_soft(tau, rho, as_divergence(divergence))
        rho = 0.0
    problem = as_problem(
        X,
        y,
        rho=rho,
        divergence=divergence,
        loss=loss,
        l2=l2,
        l1=l1,
        fit_intercept=fit_intercept,
        sample_weight=sample_weight,
        groups=groups,
        n_jobs=n_jobs,
        reference_losses=reference_losses,
    )
    warn_of_all_weights(problem, stacklevel=3)
    watch: Watch | None = None
    if (called := callback) is not None:
        watch = lambda history, _: bool(called(history))  # noqa: E731
    theta = as_start(problem, start)
    settings: Any = {"solver": solver, "max_iter": max_iter, "tol": tol, "watch": watch}
    if as_trim(trim, problem.groups is not None and problem.groups.of is None) > 0.0:
        return run_trimmed(problem, float(trim), tau, theta, **settings)
    if tau is not None:
        return run_soft(problem, float(tau), theta, **settings)
    return run(problem, theta, random_state=random_state, **settings)


def run_trimmed(
    problem: Problem,
    trim: float,
    tau: float | None,
    theta: Array,
    *,
    solver: str | Solver,
    max_iter: float,
    tol: float | None,
    watch: Watch | None,
) -> Solution:
    """`run`, or `run_soft` with a price τ, without the worst share of the rows."""
    chosen = Exact() if isinstance(solver, str) and solver == "auto" else as_solver(solver)
    if chosen is None or isinstance(chosen, Stochastic) or chosen.checkpoint is not None:
        raise ValueError(
            f"The 'trim' parameter needs an exact solver without a checkpoint. Got "
            f"solver={solver!r} instead; use 'exact'."
        )
    settings: Any = {"solver": chosen, "max_iter": max_iter, "tol": tol, "watch": watch}

    def fit(part: Problem, theta: Array) -> Solution:
        if tau is not None:
            return run_soft(part, float(tau), theta, **settings)
        return run(part, theta, random_state=None, **settings)

    def worst_of(part: Problem, theta: Array) -> tuple[WorstCase, Array]:
        if tau is None:
            at = part.evaluate(part.scores(theta))
            return at.worst, at.shares
        worst = soft_worst(part, float(tau), theta)
        return worst if part.groups is None else part.groups.spread(worst), worst.weights

    return minimise_trimmed(problem, trim, theta, fit, worst_of, tol=tol or 1e-10)


def run_soft(
    problem: Problem,
    tau: float,
    theta: Array,
    *,
    solver: str | Solver,
    max_iter: float,
    tol: float | None,
    watch: Watch | None,
) -> Solution:
    """`run` in a soft ball; the radius of the problem is not used."""
    _check_limits(max_iter, tol)
    if isinstance(as_solver(solver), Stochastic):
        raise ValueError(
            f"The 'tau' parameter needs an exact solver. Got solver={solver!r} instead; use "
            f"'exact', or a ball with 'rho'."
        )
    if not problem.divergence.strictly_convex:
        raise ValueError(
            f"The 'tau' parameter of solve needs a strictly convex divergence. Got "
            f"{problem.divergence!r} instead; use a ball with 'rho'."
        )
    solver = "exact" if isinstance(solver, str) and solver == "auto" else solver
    accuracy = 1e-10 if tol is None else tol

    def in_ball(rho: float, theta: Array, passes: float, tolerance: float | None) -> Solution:
        ball, passes = replace(problem, rho=rho), max(passes, 1.0)
        settings = {"max_iter": passes, "tol": tolerance, "random_state": None, "watch": watch}
        return run(ball, theta, solver=solver, **settings)

    if tau in (0.0, math.inf):  # the largest loss, or the mean
        ended = in_ball(math.inf if tau == 0.0 else 0.0, theta, max_iter, tol)
        return replace(ended, status=ended.status.replace("a smaller rho", "a larger tau"))
    last: Solution | None = None

    def fit(rho: float, theta: Array, passes: float) -> Fit:
        nonlocal last
        last = in_ball(rho, theta, passes, None if tol is None else 0.1 * tol)
        bound = -math.inf if math.isnan(last.gap) else last.value - last.gap
        return Fit(last.theta, bound, last.worst.alpha, last.passes, not last.ending.asked_for)

    found = minimise_soft(problem, tau, theta, fit, tol=accuracy, max_passes=max_iter)
    if last is None:
        raise RuntimeError("No ball was solved.")
    return _solution_of_soft(problem, found, last, accuracy, max_iter)


def _solution_of_soft(
    problem: Problem, found: SoftMinimum, last: Solution, accuracy: float, max_iter: float
) -> Solution:
    """The solution in a soft ball, after the last of the balls that were solved for it."""
    relative = found.gap / problem.loss_scale(found.value)
    ending = last.ending
    if not ending.asked_for and ending is not Ending.SEPARABLE:
        exhausted = Ending.EXHAUSTED if found.passes >= max_iter else Ending.UNCERTIFIED
        ending = Ending.CONVERGED if relative <= accuracy else exhausted
    iterations, norm = math.ceil(found.passes), last.gradient_norm
    groups = problem.groups
    return replace(
        last,
        theta=found.theta,
        value=found.value,
        worst=found.worst if groups is None else groups.spread(found.worst),
        gap=found.gap if found.gap < math.inf else math.nan,
        status=describe_exact(ending, last.solver, iterations, relative, norm, "a larger tau"),
        passes=found.passes,
        ending=ending,
        group_weights=None if groups is None else found.worst.weights,
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
    certify: bool = True,
) -> Solution:
    """`solve` for a `Problem`.

    `watch` is called with the history and a function that returns the current model.  Without
    `certify`, exact solvers may stop at an estimated gap.
    """
    began = time.process_time()
    chosen = as_solver(solver)
    _check_limits(max_iter, tol)
    if chosen is None:
        chosen = choose(problem, 1e-6 if tol is None else float(tol), float(max_iter))
    missing = chosen._lacks(problem)
    if missing:
        raise ValueError(missing)
    if isinstance(chosen, Stochastic):
        return _solve_by_draws(problem, chosen, theta, max_iter, tol, random_state, watch)
    return _solve_exactly(problem, chosen, theta, max_iter, tol, watch, began, certify)


def _check_limits(max_iter: float, tol: float | None) -> None:
    if not 0.0 < float_or_nan(max_iter) < math.inf:
        raise ValueError(
            f"The 'max_iter' parameter must be a positive, finite number of passes. "
            f"Got {max_iter!r} instead."
        )
    if tol is not None and not 0.0 < float_or_nan(tol) < 1.0:
        raise ValueError(
            f"The 'tol' parameter must be None or lie between 0 and 1. Got {tol!r} instead."
        )


def warn_of_all_weights(problem: Problem, stacklevel: int) -> None:
    """Warn if the ball holds all weights; with groups that is a usual choice."""
    largest = problem.divergence.maximum(1.0 / problem.n)
    bounded = largest > 0.0 and problem.divergence.has_radius
    if bounded and problem.rho >= largest and problem.groups is None:
        kind = "loss" if problem.reference is None else "regret"
        warnings.warn(
            f"rho = {problem.rho:.6g} is at least {largest:.6g}, the largest "
            f"{problem.divergence.name!r} divergence for {problem.n} rows: the ball holds all "
            f"weights, and the robust {kind} is the largest single {kind}.",
            stacklevel=stacklevel,
        )


def _solve_exactly(
    problem: Problem,
    solver: Solver,
    theta: Array,
    max_iter: float,
    tol: float | None,
    watch: Watch | None,
    began: float,
    certify: bool,
) -> Solution:
    accuracy = tol or 1e-14
    if problem.l1 and solver.checkpoint is not None:
        raise ValueError(
            f"The 'checkpoint' setting must be None with l1 > 0, whose fits are not saved. "
            f"Got {solver.checkpoint!r} instead."
        )
    checkpoint = ExactCheckpoint(problem, solver, theta, accuracy)
    history = checkpoint.history
    began -= history.seconds[-1] if history.seconds else 0.0

    def report(iteration: int, v: Array, value: float, norm: float) -> bool:
        seconds = time.process_time() - began
        history.add(problem.n * iteration, seconds, value, norm, math.nan)
        return watch is not None and watch(history, lambda: problem.to_model(v))

    steps = math.ceil(max_iter)
    if problem.l1:
        minimum = minimise_sparse(
            problem, solver.name, theta, tol=accuracy, max_iter=steps, watch=report
        )
        return solution_of_minimum(problem, minimum, history)
    minimum = minimise(
        problem,
        solver.name,
        checkpoint.start,
        tol=accuracy,
        max_iter=steps,
        watch=report,
        save=None if checkpoint.file is None else checkpoint.save,
        certify=certify,
    )
    return solution_of_minimum(problem, minimum, history)


def run_next(
    path: Path, problem: Problem, ball: int, starts: list[Start], *, max_iter: float, tol: float
) -> tuple[Solution, Start]:
    """Solve one of several similar problems; return also where the next ones may start.

    `ball` is the number of the ball on the path.
    """
    with single_threaded_blas():
        minimum = path.minimise(problem, ball, starts, tol, math.ceil(max_iter))
    start = Start(minimum.theta, minimum.at.scores)
    return solution_of_minimum(problem, minimum, History()), start


def _solve_by_draws(
    problem: Problem,
    solver: Stochastic,
    theta: Array,
    max_iter: float,
    tol: float | None,
    random_state: Any,
    watch: Watch | None,
) -> Solution:
    problem = replace(problem, scaling="none" if solver.unscaled else "draws")
    recipe = solver._recipe(problem)
    # Coefficients that no step changes (constant columns, no intercept) start at zero.
    theta = problem.to_model(problem.from_model(theta))
    state, file = open_checkpoint(problem, recipe, theta, random_state, solver.checkpoint)
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
    return solution_of_state(problem, state, ending, solver.name)
