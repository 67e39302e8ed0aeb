"""Solvers as objects: their settings, and what each of them requires of a problem.

=====================  ======================  ==================================================
name                   object                  what it does
=====================  ======================  ==================================================
"auto"                                         ``Exact()`` or ``GSSG()``, see `choose`
"exact"                ``Exact()``             L-BFGS, then Newton's method where it is cheaper
"lbfgs"                ``LBFGS()``             L-BFGS on all rows
"newton"               ``Newton()``            Newton's method on all rows
"gssg"                 ``GSSG()``              multilevel draws: unbiased in the limit
"gssg-anchor"          ``GSSG(anchor=True)``   multilevel draws with an anchor: any accuracy
"pssg"                 ``PSSG()``              batches that grow in every step
"fsg"                  ``FSG()``               gradient descent on all rows
"sgd"                  ``SGD()``               batches of fixed size: biased
=====================  ======================  ==================================================

Solver objects hold settings and no state.  They have `get_params` and `set_params`, so
scikit-learn can clone them and search over `solver__batch_size`.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from typing import Any, Literal, Self

from drolearn._solvers.directions import lacks_for_newton
from drolearn._solvers.draws import Fixed, Full, Growing, Method
from drolearn._solvers.multilevel import Multilevel
from drolearn._solvers.problem import Problem
from drolearn._solvers.step_sizes import Constant, Decay, Step
from drolearn._validation import as_count, did_you_mean, float_or_nan

__all__ = [
    "CLASSES", "FSG", "GSSG", "LBFGS", "PSSG", "SGD", "Exact", "Newton", "Recipe", "Solver",
    "Stochastic",
]  # fmt: skip

Folder = str | os.PathLike[str] | None
StepSize = str | float | Step


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the loop of stochastic solvers needs: draws, step sizes, and how to use them."""

    method: Method
    step: Step
    clip: float
    average: bool
    anchor_every: float
    tune: bool


@dataclass(repr=False)
class Solver:
    """The base class of all solvers: settings that can be read and set by name."""

    checkpoint: Folder = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """The name of the solver, as `solver` takes it."""
        return type(self).__name__.lower()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the settings.

        Parameters
        ----------
        deep : bool, default=True
            Has no effect; scikit-learn passes it.

        Returns
        -------
        dict
            The settings by name.

        Examples
        --------
        >>> from drolearn import Exact
        >>> Exact().get_params()
        {'checkpoint': None}
        """
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change settings.

        Parameters
        ----------
        **params : dict
            New values by name.

        Returns
        -------
        Solver
            The solver itself.

        Examples
        --------
        >>> from drolearn import SGD
        >>> SGD().set_params(batch_size=32)
        SGD(batch_size=32)
        """
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no setting {name!r}. It has "
                    f"{', '.join(map(repr, known))}.{did_you_mean(name, known)}"
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The settings that differ from their defaults."""
        changed = [
            f"{setting.name}={getattr(self, setting.name)!r}"
            for setting in fields(self)
            if setting.default is MISSING or getattr(self, setting.name) != setting.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _lacks(self, problem: Problem) -> str:
        """What the problem lacks for this solver, and what to use instead; "" if nothing."""
        return ""


# -- exact solvers ---------------------------------------------------------------------


@dataclass(repr=False)
class Exact(Solver):
    """L-BFGS, then Newton's method where it is cheaper; reads all rows in every step.

    The solution comes with a duality gap, see `Solution.gap`.

    Parameters
    ----------
    checkpoint : str or path-like, default=None
        A folder in which each fit saves its state, about once a second, to a file of its own.  A
        fit with the same data, settings and start continues from there, to the same bits as
        without the interruption.

    Examples
    --------
    >>> from drolearn import Exact, RobustClassifier
    >>> RobustClassifier(solver=Exact())
    RobustClassifier(solver=Exact())
    """


@dataclass(repr=False)
class LBFGS(Exact):
    """L-BFGS; reads all rows in every step.

    Works for every loss and divergence.  The solution comes with a duality gap, see
    `Solution.gap`.

    Parameters
    ----------
    checkpoint : str or path-like, default=None
        A folder in which each fit saves its state, about once a second, to a file of its own.  A
        fit with the same data, settings and start continues from there, to the same bits as
        without the interruption.

    Examples
    --------
    >>> from drolearn import LBFGS, RobustClassifier
    >>> RobustClassifier(divergence="total-variation", solver=LBFGS())
    RobustClassifier(divergence='total-variation', solver=LBFGS())
    """


@dataclass(repr=False)
class Newton(Exact):
    """Newton's method with the Hessian of the robust loss; reads all rows in every step.

    It needs a strictly convex divergence, one score for each row (not the multinomial loss), and
    at most 2000 columns.  The solution comes with a duality gap, see `Solution.gap`.

    Parameters
    ----------
    checkpoint : str or path-like, default=None
        A folder in which each fit saves its state, about once a second, to a file of its own.  A
        fit with the same data, settings and start continues from there, to the same bits as
        without the interruption.

    Examples
    --------
    >>> from drolearn import Newton, RobustRegressor
    >>> RobustRegressor(solver=Newton())
    RobustRegressor(solver=Newton())
    """

    def _lacks(self, problem: Problem) -> str:
        """What the problem lacks for Newton's method, and what to use instead."""
        return lacks_for_newton(problem)


# -- stochastic solvers ----------------------------------------------------------------


@dataclass(repr=False)
class Stochastic(Solver):
    """The base class of the solvers that draw rows."""

    step_size: StepSize = field(default="auto", kw_only=True)

    @abstractmethod
    def _recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and how to use them, for a problem."""

    @property
    def unscaled(self) -> bool:
        """Whether steps are made in the coordinates of X, as the user chose their size."""
        return not isinstance(self.step_size, str)

    def _lacks(self, problem: Problem) -> str:
        """What the problem lacks for draws, and what to use instead."""
        if problem.l1:
            return f"solver={self.name!r} takes no l1 penalty: use solver='exact' or l1=0."
        if problem.divergence.family == "spectral":
            return (
                f"solver={self.name!r} draws rows, and {problem.divergence!r} needs the order of "
                f"all losses: use solver='exact'."
            )
        if problem.groups is None or problem.groups.disjoint:
            return ""
        return (
            f"solver={self.name!r} draws rows of each group, but the groups overlap: use "
            f"solver='exact'."
        )


@dataclass(repr=False)
class GSSG(Stochastic):
    """Multilevel draws: a batch in every step, and at random a correction of its bias.

    Parameters
    ----------
    batch_size : int, default=64
        A batch has at least this many rows, and fewer than twice as many.
    tame : bool, default=True
        Whether corrections are less frequent and shorter in the first steps, see
        docs/training.md.  With False every gradient estimate is unbiased.
    average : bool, default=None
        Whether the result is an average of the iterates.  None averages unless there is an anchor.
    anchor : bool, default=False
        Whether draws estimate the difference from the gradient at an anchor, which is computed on
        all rows in every other pass.  Converges to any accuracy.
    r : float or "auto", default=2**-1.5
        Each level is drawn r times as often as the one below.  "auto" estimates the best
        probabilities after a short run.
    fire : float, default=None
        Probability of a correction; None is 0.1, or 0.3 with an anchor.
    probabilities : tuple of float, default=None
        Probabilities of the levels, instead of `r` and `fire`.
    inflation : float, default=0.0
        A batch of M rows uses the radius ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    delta : float, default=0.01
        See `inflation`.
    max_level : int, default=8
        For `partial_fit` only: the last batch_size · 2^max_level rows are kept, and draws have as
        many rows at most.  A larger level has a smaller bias, see docs/streams.md.
    checkpoint : str or path-like, default=None
        A folder in which each fit saves its state to a file of its own.  A fit with the same data,
        settings and seed continues from there, to the same bits as without the interruption.
    step_size : "auto", float or callable, default="auto"
        "auto" derives a step size for each column from the smoothness of the loss.  A number is a
        constant step size.  A callable maps an array of step numbers to step sizes.  Numbers and
        callables are used as they are, in the coordinates of X.

    Examples
    --------
    >>> from drolearn import GSSG, RobustClassifier
    >>> model = RobustClassifier(solver=GSSG(batch_size=128))
    >>> model.set_params(solver__batch_size=256).solver
    GSSG(batch_size=256)
    """

    batch_size: int = 64
    _: KW_ONLY
    tame: bool = True
    average: bool | None = None
    anchor: bool = False
    r: float | Literal["auto"] = 2.0**-1.5
    fire: float | None = None
    probabilities: tuple[float, ...] | None = None
    inflation: float = 0.0
    delta: float = 0.01
    max_level: int = 8

    @property
    def name(self) -> str:
        """The name of the solver, as `solver` takes it."""
        return "gssg-anchor" if self.anchor else "gssg"

    def _recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and how to use them, for a problem."""
        as_count("batch_size", self.batch_size)
        method = Multilevel(
            problem.n,
            batch_size=min(int(self.batch_size), problem.n),
            r=self.r,
            fire=self.fire if self.fire is not None else 0.3 if self.anchor else 0.1,
            probabilities=self.probabilities,
            # The frequency of corrections grows to its final value over this many steps.
            warm=2000 if self.tame and not self.anchor else 0,
            rho=problem.rho,
            inflation=self.inflation,
            delta=self.delta,
            groups=problem.groups,
        )
        if self.anchor:
            step = as_step(problem, self.step_size, float(self.batch_size), 1.0, decay=False)
            average = bool(self.average)
            return Recipe(method, step, math.inf, average, 2.0 * problem.n, self.r == "auto")
        step = as_step(problem, self.step_size, float(self.batch_size), 0.5, decay=True)
        average = True if self.average is None else bool(self.average)
        clip = 1.0 if self.tame else math.inf
        return Recipe(method, step, clip, average, math.inf, self.r == "auto")


@dataclass(repr=False)
class PSSG(Stochastic):
    """Batches that grow in every step, up to all rows.

    Parameters
    ----------
    batch_size : int, default=64
        Rows of the first batch.
    rate : float, default=1.001
        Each batch is this many times as large as the one before.
    average : bool, default=False
        Whether the result is an average of the iterates.
    inflation : float, default=0.0
        A batch of M rows uses the radius ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    delta : float, default=0.01
        See `inflation`.
    checkpoint : str or path-like, default=None
        A folder in which each fit saves its state to a file of its own.  A fit with the same data,
        settings and seed continues from there, to the same bits as without the interruption.
    step_size : "auto", float or callable, default="auto"
        "auto" derives a step size for each column from the smoothness of the loss.  A number is a
        constant step size.  A callable maps an array of step numbers to step sizes.  Numbers and
        callables are used as they are, in the coordinates of X.

    Examples
    --------
    >>> from drolearn import PSSG, RobustClassifier
    >>> RobustClassifier(solver=PSSG(rate=1.01))
    RobustClassifier(solver=PSSG(rate=1.01))
    """

    batch_size: int = 64
    _: KW_ONLY
    rate: float = 1.001
    average: bool = False
    inflation: float = 0.0
    delta: float = 0.01

    def _lacks(self, problem: Problem) -> str:
        """What the problem lacks for growing batches, and what to use instead."""
        if problem.groups is None:
            return super()._lacks(problem)
        return "solver='pssg' draws rows of no particular group: use solver='gssg' or 'exact'."

    def _recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and how to use them, for a problem."""
        size = as_count("batch_size", self.batch_size)
        method = Growing(
            problem.n, size, rate=self.rate, rho=problem.rho, inflation=self.inflation,
            delta=self.delta,
        )  # fmt: skip
        step = as_step(problem, self.step_size, float(size), 0.5, decay=False)
        return Recipe(method, step, math.inf, bool(self.average), math.inf, False)


@dataclass(repr=False)
class FSG(Stochastic):
    """Gradient descent: all rows in every step.

    Parameters
    ----------
    average : bool, default=False
        Whether the result is an average of the iterates.
    checkpoint : str or path-like, default=None
        A folder in which each fit saves its state to a file of its own.  A fit with the same data,
        settings and seed continues from there, to the same bits as without the interruption.
    step_size : "auto", float or callable, default="auto"
        "auto" derives a step size for each column from the smoothness of the loss.  A number is a
        constant step size.  A callable maps an array of step numbers to step sizes.  Numbers and
        callables are used as they are, in the coordinates of X.

    Examples
    --------
    >>> from drolearn import FSG, RobustClassifier
    >>> RobustClassifier(solver=FSG(step_size=0.1))
    RobustClassifier(solver=FSG(step_size=0.1))
    """

    _: KW_ONLY
    average: bool = False

    def _recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and how to use them, for a problem."""
        step = as_step(problem, self.step_size, float(problem.n), 0.5, decay=False)
        method = Full(problem.n, rho=problem.rho, groups=problem.groups)
        return Recipe(method, step, math.inf, bool(self.average), math.inf, False)


@dataclass(repr=False)
class SGD(Stochastic):
    """Batches of fixed size: cheap steps with a biased gradient, more so for smaller batches.

    Parameters
    ----------
    batch_size : int, default=64
        Rows of a batch.
    average : bool, default=True
        Whether the result is an average of the iterates.
    inflation : float, default=0.0
        A batch of M rows uses the radius ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    delta : float, default=0.01
        See `inflation`.
    checkpoint : str or path-like, default=None
        A folder in which each fit saves its state to a file of its own.  A fit with the same data,
        settings and seed continues from there, to the same bits as without the interruption.
    step_size : "auto", float or callable, default="auto"
        "auto" derives a step size for each column from the smoothness of the loss.  A number is a
        constant step size.  A callable maps an array of step numbers to step sizes.  Numbers and
        callables are used as they are, in the coordinates of X.

    Examples
    --------
    >>> from drolearn import SGD, RobustClassifier
    >>> RobustClassifier(solver=SGD(batch_size=256))
    RobustClassifier(solver=SGD(batch_size=256))
    """

    batch_size: int = 64
    _: KW_ONLY
    average: bool = True
    inflation: float = 0.0
    delta: float = 0.01

    def _recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and how to use them, for a problem."""
        size = as_count("batch_size", self.batch_size)
        method = Fixed(
            problem.n,
            size,
            rho=problem.rho,
            inflation=self.inflation,
            delta=self.delta,
            groups=problem.groups,
        )
        step = as_step(problem, self.step_size, float(size), 0.5, decay=True)
        return Recipe(method, step, math.inf, bool(self.average), math.inf, False)


#: The classes of all solvers.
CLASSES: tuple[type[Solver], ...] = (Exact, LBFGS, Newton, GSSG, PSSG, FSG, SGD)


def as_step(problem: Problem, step_size: StepSize, rows: float, length: float, decay: bool) -> Step:
    """Step sizes; "auto" is `length` over the smoothness of a batch with this many rows."""
    if callable(step_size):
        return step_size
    if isinstance(step_size, str) and step_size == "auto":
        # The curvature of the robust loss grows with the radius.
        ball = 1.0 + 2.0 * min(problem.rho, 10.0) / problem.divergence.curvature
        length /= problem.smoothness(rows) * ball
        return Decay(length, 2000.0) if decay else Constant(length)
    length = float_or_nan(step_size)
    if not 0.0 < length < math.inf:
        raise ValueError(
            f"The 'step_size' setting must be 'auto', a positive number or a function of the "
            f"step number. Got {step_size!r} instead."
        )
    return Constant(length)
