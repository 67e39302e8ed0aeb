"""How a solve ended: one enum, and the sentences that describe it."""

from __future__ import annotations

import math
from enum import Enum

__all__ = ["Ending", "describe_exact", "describe_stochastic", "describe_stream", "describe_trimmed"]


class Ending(Enum):
    """How a solve ended.

    Attributes
    ----------
    CONVERGED
        The tolerance was reached; for stochastic solvers, the last pass improved the value by less.
    ZERO_MODEL
        All coefficients are zero, which is proved to be the optimum for this ball.
    SEPARABLE
        The model separates the classes of all rows with a margin, and there is no penalty: the loss
        tends to 0 as the coefficients grow, and there is no optimum.
    EXHAUSTED
        All passes were used before the tolerance was reached.
    ALL_PASSES
        All passes were made, and there was no tolerance.
    UNCERTIFIED
        No further progress, but the duality gap is larger than the tolerance.
    STUCK
        No step along the search direction decreases the loss.
    DIVERGED
        The loss became infinite: the step size is too large.
    STOPPED
        A callback stopped the solver.
    INTERRUPTED
        Ctrl-C stopped the solver.

    Examples
    --------
    >>> from drolearn import Ending, solve
    >>> solution = solve([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], l2=0.1)
    >>> solution.ending is Ending.CONVERGED
    True
    """

    CONVERGED = "converged"
    ZERO_MODEL = "zero model"
    SEPARABLE = "separable"
    EXHAUSTED = "exhausted"
    ALL_PASSES = "all passes"
    UNCERTIFIED = "uncertified"
    STUCK = "stuck"
    DIVERGED = "diverged"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"

    @property
    def asked_for(self) -> bool:
        """Whether a callback or Ctrl-C ended the solve."""
        return self in (Ending.STOPPED, Ending.INTERRUPTED)

    @property
    def converged(self) -> bool:
        """Whether the solver reached the tolerance, or made all passes without one."""
        return self in (Ending.CONVERGED, Ending.ZERO_MODEL, Ending.ALL_PASSES)


def describe_exact(
    ending: Ending,
    solver: str,
    iterations: int,
    relative_gap: float,
    gradient_norm: float,
    smaller: str = "a smaller rho",
) -> str:
    """How an exact solver ended, in one sentence; the gap is NaN if no bound is known.

    `smaller` says what makes the ball smaller.
    """
    known = f"relative gap at most {relative_gap:.1e}"
    if math.isnan(relative_gap):
        known = f"gradient norm {gradient_norm:.1e}"
    return {
        Ending.CONVERGED: f"Converged in {iterations} iterations of {solver} ({known}).",
        Ending.ZERO_MODEL: f"The zero model is optimal for this ball: all coefficients are zero "
        f"({known}, after {iterations} iterations of {solver}). Use {smaller}.",
        Ending.SEPARABLE: f"The classes are separable and l2 is 0: the loss tends to 0 as the "
        f"coefficients grow, and there is no optimum. The result is the first model of {solver} "
        f"that separates all rows with a margin, after {iterations} iterations. Use l2 > 0.",
        Ending.EXHAUSTED: f"Used all {iterations} iterations of {solver} ({known}): raise max_iter "
        f"or tol.",
        Ending.UNCERTIFIED: f"No further progress after {iterations} iterations of {solver}, but "
        f"only a {known} is certified: a larger l2 may help.",
        Ending.STUCK: f"No step of {solver} decreases the loss after {iterations} iterations "
        f"({known}): a larger l2 may help.",
        Ending.STOPPED: f"Stopped after {iterations} iterations of {solver} ({known}).",
        Ending.INTERRUPTED: f"Interrupted after {iterations} iterations of {solver} ({known}).",
    }[ending]


def describe_stochastic(
    ending: Ending, solver: str, passes: float, steps: int, corrections: tuple[int, int]
) -> str:
    """How a stochastic solver ended, and how many corrections were clipped."""
    so_far = f"after {passes:.3g} passes and {steps} steps of {solver}"
    best = "the result is the best model so far."
    text = {
        Ending.CONVERGED: f"The last pass of {solver} improved the loss by less than tol; "
        f"{passes:.3g} passes, {steps} steps.",
        Ending.ALL_PASSES: f"Made {passes:.3g} passes in {steps} steps of {solver}.",
        Ending.EXHAUSTED: f"Made all {passes:.3g} passes in {steps} steps of {solver} without "
        f"reaching tol: raise max_iter or tol.",
        Ending.DIVERGED: f"The loss diverged after {steps} steps of {solver}: use "
        f"step_size='auto' or a smaller number; the result is the best model before that.",
        Ending.STOPPED: f"Stopped {so_far}; {best}",
        Ending.INTERRUPTED: f"Interrupted {so_far}; {best}",
    }[ending]
    clipped, all_corrections = corrections
    if clipped:
        text += f" Taming clipped {clipped} of {all_corrections} corrections."
    return text


def describe_stream(ending: Ending, rows: int, steps: int) -> str:
    """What a stream has taught so far, in one sentence."""
    text = f"Learned from {rows:,} rows of a stream in {steps:,} steps of gssg."
    if ending is Ending.DIVERGED:
        text += (
            " The loss diverged on the last rows: the model is the one before, and steps are half "
            "as long from now on; rescale the columns, or use step_size='auto' or a smaller number."
        )
    return text


def describe_trimmed(ending: Ending, solver: str, trim: float, steps: int, starts: int) -> str:
    """How a fit that trims rows ended."""
    so_far = f"{steps} steps from the best of {starts} starts, each an exact solve by {solver}"
    local = (
        f"trim={trim:g} makes the problem non-convex, so this is a local optimum without a "
        f"certificate."
    )
    if ending is Ending.CONVERGED:
        return f"Converged after {so_far}: {local}"
    how = {
        Ending.STOPPED: "Stopped after", Ending.INTERRUPTED: "Interrupted after"
    }.get(ending, "Used all")  # fmt: skip
    return f"{how} {so_far}; trim={trim:g} makes the problem non-convex: there is no certificate."


def describe_useless_columns(rho: float) -> str:
    """What to do if a model with a reference is no better than its intercept."""
    return (
        f"At rho = {rho:.6g}, no coefficients lower the robust regret against this reference by "
        f"more than the tolerance: use a better reference, a smaller rho or a smaller penalty."
    )
