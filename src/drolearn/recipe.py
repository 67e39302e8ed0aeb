"""From the name of a method to its draws, steps and habits; the names are those of `solver`."""

from __future__ import annotations

import difflib
import hashlib
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn.descent import Constant, Decay, State, Step
from drolearn.exact import can_newton
from drolearn.gradient import Fixed, Full, Growing, Method, Multilevel
from drolearn.inputs import as_generator
from drolearn.problem import Problem

__all__ = ["SOLVERS", "Recipe", "as_solver", "as_state", "choose", "make_recipe"]

Array = NDArray[np.float64]

SOLVERS = ("auto", "exact", "newton", "lbfgs", "gssg", "gssg-anchor", "pssg", "fsg", "sgd", "erm")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A stochastic method with its habits."""

    method: Method
    step: Step
    clip: float
    average: bool
    anchor_every: float
    tune: bool


def as_solver(solver: str | Method) -> tuple[Method | None, str]:
    """The method, if one was given, and its name."""
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


def choose(problem: Problem, tol: float, max_iter: float) -> str:
    """Draws where they are cheaper than a few passes over all rows, else an exact solver.

    Draws come within 1% in some ten thousand rows if these are many more than the columns, and
    within 0.1% in some hundred thousand, however many there are; exact solvers read all rows
    some 40 times, take a second or so for 200,000 rows, and prove what they have found.
    """
    n, d = problem.n, problem.d
    passes = max(0.5, 3e5 / n) * (1e-3 / tol)
    worth = n >= 200_000 and tol >= 1e-4
    worth = worth or (tol >= 4e-3 and n >= max(30_000, 250 * d))
    if not worth or passes > max_iter or not problem.divergence.strictly_convex:
        return "exact"
    if problem.groups is not None:  # draws cannot tell the loss of a group
        return "exact"
    exact = 20.0 if can_newton(problem) else 40.0 - 10.0 * math.log10(tol)
    return "gssg" if 3.0 * passes < exact else "exact"


def make_recipe(
    problem: Problem,
    given: Method | None,
    name: str,
    batch: int,
    step_size: str | float | Step,
    average: bool | None,
    tame: bool,
) -> Recipe:
    """Draws, step sizes and taming of a stochastic method."""
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
        raise ValueError(
            f"The 'solver' parameter must draw from as many rows as X has, {n}. Got a "
            f"{type(method).__name__} for {method.n} rows instead; a name fits any number."
        )
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
    return Recipe(
        method,
        step,
        1.0 if multilevel and tame and not anchored else math.inf,
        (not steady) if average is None else bool(average),
        2.0 * n if anchored else math.inf,
        tune,
    )


def as_state(
    problem: Problem,
    recipe: Recipe,
    theta: Array,
    random_state: Any,
    checkpoint: str | os.PathLike[str] | None,
) -> State:
    """The state to start from, or that of the checkpoint, if it is one of this run."""
    if checkpoint is None:
        return State.new(theta, as_generator(random_state))
    path = Path(checkpoint)
    if not path.parent.is_dir():
        raise ValueError(
            f"The 'checkpoint' parameter must name a file in a folder that exists. "
            f"Got {str(path)!r} instead."
        )
    fingerprint = _fingerprint(problem, recipe)
    if not path.exists():
        state = State.new(theta, as_generator(random_state))
        state.fingerprint = fingerprint
        return state
    state = State.load(path)
    if state.fingerprint != fingerprint or state.theta.shape != theta.shape:
        raise ValueError(
            f"The checkpoint {str(path)!r} belongs to other data or other settings: delete it to "
            f"start anew."
        )
    return state


def _fingerprint(problem: Problem, recipe: Recipe) -> str:
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
