"""Solvers as objects: what can be set, and what each of them needs of a problem.

=====================  ======================  ==================================================
name                   object                  what it does
=====================  ======================  ==================================================
"auto"                                         the one that is expected to be fastest
"exact"                ``Exact()``             L-BFGS, then Newton where that is cheaper
"lbfgs"                ``LBFGS()``             all rows, a limited memory of past steps
"newton"               ``Newton()``            all rows, the Hessian of the robust loss
"gssg"                 ``GSSG()``              multilevel draws: unbiased in the limit
"gssg-anchor"          ``GSSG(anchor=True)``   the same against an anchor: any accuracy
"pssg"                 ``PSSG()``              draws that grow at every step
"fsg"                  ``FSG()``               all rows at every step
"sgd"                  ``SGD()``               draws of fixed size: biased
=====================  ======================  ==================================================

The objects hold settings and no state.  They have `get_params` and `set_params`, so that
scikit-learn can clone them and search over `solver__batch_size`.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, Self

from drolearn._solvers.descent import Constant, Decay, Step
from drolearn._solvers.directions import can_newton, lacks_for_newton
from drolearn._solvers.draws import Fixed, Full, Growing, Method, Multilevel
from drolearn._solvers.problem import Problem
from drolearn._validation import as_count, did_you_mean

__all__ = [
    "FSG", "GSSG", "LBFGS", "NAMES", "PSSG", "SGD", "Exact", "Newton", "Recipe", "Solver",
    "Stochastic", "as_solver", "choose",
]  # fmt: skip

Folder = str | os.PathLike[str] | None
StepSize = str | float | Step


@dataclass(frozen=True, slots=True)
class Recipe:
    """Draws, step sizes and all else that the loop of stochastic solvers needs."""

    method: Method
    step: Step
    clip: float
    average: bool
    anchor_every: float
    tune: bool


@dataclass(repr=False)
class Solver:
    """What all solvers share: settings that can be read and set by name."""

    name: ClassVar[str] = ""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name.

        Parameters
        ----------
        deep : bool
            Has no effect; scikit-learn passes it.

        Returns
        -------
        dict
        """
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change settings.

        Parameters
        ----------
        **params
            Settings by name.

        Returns
        -------
        self
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

    def lacks(self, problem: Problem) -> str:
        """What the problem lacks for this solver, and what to use instead; "" if nothing."""
        return ""


# -- exact solvers ---------------------------------------------------------------------


@dataclass(repr=False)
class Exact(Solver):
    """All rows at every step, to a certified accuracy: L-BFGS first, Newton where it is cheaper.

    Examples
    --------
    >>> from drolearn import Exact, RobustClassifier
    >>> RobustClassifier(solver=Exact())
    RobustClassifier(solver=Exact())
    """

    name = "exact"


@dataclass(repr=False)
class LBFGS(Exact):
    """All rows at every step, with a limited memory of past steps (L-BFGS)."""

    name = "lbfgs"


@dataclass(repr=False)
class Newton(Exact):
    """All rows at every step, with the Hessian of the robust loss."""

    name = "newton"

    def lacks(self, problem: Problem) -> str:
        """What the problem lacks for Newton's method."""
        return lacks_for_newton(problem)


# -- stochastic solvers ----------------------------------------------------------------


@dataclass(repr=False)
class Stochastic(Solver):
    """What all solvers that draw rows share."""

    @abstractmethod
    def recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and all else, for a problem."""

    @property
    def raw(self) -> bool:
        """Whether steps are in the coordinates of the data: their size was given."""
        return not isinstance(self.step_size, str)  # type: ignore[attr-defined]

    def lacks(self, problem: Problem) -> str:
        """Draws of rows cannot estimate the loss of a group."""
        if problem.groups is None:
            return ""
        return (
            f"solver={self.name!r} draws rows and cannot estimate the losses of groups: use "
            f"solver='exact'."
        )


@dataclass(repr=False)
class GSSG(Stochastic):
    """Multilevel draws: a batch at every step, and at random a correction of its bias.

    Parameters
    ----------
    batch_size : int, default=64
        Rows of a batch are at least this many, and fewer than twice as many.
    tame : bool, default=True
        Whether corrections are rarer and shorter at first, see docs/training.md.  False keeps
        every estimate exactly unbiased.
    step_size : "auto", float or callable, default="auto"
        "auto" follows from the smoothness of the data, column by column.  A number is a constant
        and a callable gives the step sizes at an array of steps; both are used as they are, in
        the coordinates of the data.
    average : bool, optional
        Whether the answer is an average of the iterates.  By default it is, but not with an
        anchor.
    anchor : bool, default=False
        Whether draws estimate the difference from the gradient at an anchor, which is computed
        on all rows every other pass.  Converges to any accuracy.
    r : float or "auto", default=2**-1.5
        Each level is drawn r times as often as the one below.  "auto" measures the best
        probabilities after a short run.
    fire : float, optional
        Probability of a correction; 0.1, or 0.3 with an anchor, by default.
    probabilities : tuple of float, optional
        Probabilities of the levels, in place of `r` and `fire`.
    inflation, delta : float, default=0 and 0.01
        The radius of M rows is ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    checkpoint : path, optional
        A folder in which every fit keeps its state in a file of its own.  A fit with the same
        data, settings and seed continues from there.

    Examples
    --------
    >>> from drolearn import GSSG, RobustClassifier
    >>> model = RobustClassifier(solver=GSSG(batch_size=128))
    >>> model.set_params(solver__batch_size=256).solver
    GSSG(batch_size=256)
    """

    batch_size: int = 64
    tame: bool = True
    step_size: StepSize = "auto"
    average: bool | None = None
    anchor: bool = False
    r: float | Literal["auto"] = 2.0**-1.5
    fire: float | None = None
    probabilities: tuple[float, ...] | None = None
    inflation: float = 0.0
    delta: float = 0.01
    checkpoint: Folder = None

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the solver."""
        return "gssg-anchor" if self.anchor else "gssg"

    def recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and all else, for a problem."""
        as_count("batch_size", self.batch_size)
        method = Multilevel(
            problem.n,
            batch_size=min(int(self.batch_size), problem.n),
            r=self.r,
            fire=self.fire if self.fire is not None else 0.3 if self.anchor else 0.1,
            probabilities=self.probabilities,
            # Corrections become as frequent as they should be over this many steps.
            warm=2000 if self.tame and not self.anchor else 0,
            rho=problem.rho,
            inflation=self.inflation,
            delta=self.delta,
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
    """Draws that grow at every step, up to all rows.

    Parameters
    ----------
    batch_size : int, default=64
        Rows of the first draw.
    rate : float, default=1.001
        Each draw is this many times as large as the one before.
    step_size, inflation, delta, checkpoint
        As for :class:`GSSG`.
    average : bool, default=False
        Whether the answer is an average of the iterates.
    """

    name = "pssg"
    batch_size: int = 64
    rate: float = 1.001
    step_size: StepSize = "auto"
    average: bool = False
    inflation: float = 0.0
    delta: float = 0.01
    checkpoint: Folder = None

    def recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and all else, for a problem."""
        size = as_count("batch_size", self.batch_size)
        method = Growing(
            problem.n, size, rate=self.rate, rho=problem.rho, inflation=self.inflation,
            delta=self.delta,
        )  # fmt: skip
        step = as_step(problem, self.step_size, float(size), 0.5, decay=False)
        return Recipe(method, step, math.inf, bool(self.average), math.inf, False)


@dataclass(repr=False)
class FSG(Stochastic):
    """All rows at every step.

    Parameters
    ----------
    step_size, checkpoint
        As for :class:`GSSG`.
    average : bool, default=False
        Whether the answer is an average of the iterates.
    """

    name = "fsg"
    step_size: StepSize = "auto"
    average: bool = False
    checkpoint: Folder = None

    def recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and all else, for a problem."""
        step = as_step(problem, self.step_size, float(problem.n), 0.5, decay=False)
        method = Full(problem.n, rho=problem.rho)
        return Recipe(method, step, math.inf, bool(self.average), math.inf, False)


@dataclass(repr=False)
class SGD(Stochastic):
    """Draws of fixed size: cheap, and biased, the more the fewer rows are drawn.

    Parameters
    ----------
    batch_size : int, default=64
        Rows of a draw.
    step_size, inflation, delta, checkpoint
        As for :class:`GSSG`.
    average : bool, default=True
        Whether the answer is an average of the iterates.
    """

    name = "sgd"
    batch_size: int = 64
    step_size: StepSize = "auto"
    average: bool = True
    inflation: float = 0.0
    delta: float = 0.01
    checkpoint: Folder = None

    def recipe(self, problem: Problem) -> Recipe:
        """Draws, step sizes and all else, for a problem."""
        size = as_count("batch_size", self.batch_size)
        method = Fixed(problem.n, size, rho=problem.rho, inflation=self.inflation, delta=self.delta)
        step = as_step(problem, self.step_size, float(size), 0.5, decay=True)
        return Recipe(method, step, math.inf, bool(self.average), math.inf, False)


def as_step(problem: Problem, step_size: StepSize, rows: float, length: float, decay: bool) -> Step:
    """Step sizes; "auto" is `length` divided by the smoothness of draws of so many rows."""
    if callable(step_size):
        return step_size
    if isinstance(step_size, str) and step_size == "auto":
        # Robust losses have more curvature than plain ones, the more the larger the ball.
        ball = 1.0 + 2.0 * min(problem.rho, 10.0) / problem.divergence.curvature
        length /= problem.smoothness(rows) * ball
        return Decay(length, 2000.0) if decay else Constant(length)
    number = isinstance(step_size, int | float) and not isinstance(step_size, bool)
    if not number or not 0.0 < float(step_size) < math.inf:
        raise ValueError(
            f"The 'step_size' setting must be 'auto', a positive number or a function of the "
            f"step. Got {step_size!r} instead."
        )
    return Constant(float(step_size))


# -- by name ---------------------------------------------------------------------------

_BY_NAME: dict[str, Solver] = {
    solver.name: solver
    for solver in (Exact(), LBFGS(), Newton(), GSSG(), GSSG(anchor=True), PSSG(), FSG(), SGD())
}
#: All names that `solver` takes.
NAMES = ("auto", *_BY_NAME)


def as_solver(solver: str | Solver) -> Solver | None:
    """The solver that is meant, or None for "auto"."""
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str) and solver in NAMES:
        return _BY_NAME.get(solver)
    hint = did_you_mean(solver, NAMES)
    if isinstance(solver, str) and solver == "erm":
        hint = " Use rho=0 for the plain mean of the losses."
    if isinstance(solver, Method):
        hint = " Use GSSG(), PSSG(), SGD() or FSG() with the same settings."
    if isinstance(solver, type) and issubclass(solver, Solver):
        hint = f" Did you mean {solver.__name__}()?"
    raise ValueError(
        f"The 'solver' parameter must be one of {', '.join(map(repr, NAMES))}, or a solver such "
        f"as GSSG(). Got {solver!r} instead.{hint}"
    )


def choose(problem: Problem, tol: float, max_iter: float) -> Solver:
    """What "auto" stands for: draws where they are cheaper than passes over all rows.

    Measured on 19 data sets (docs/profile.png).  Draws reach a relative gap of 1e-3 in about
    300,000 rows, however many rows there are, and need ten times as many for a tenth of the gap.
    Exact solvers read all rows 20 times (Newton) or 40 to 100 times (L-BFGS), and prove what they
    have found.
    """
    n, d = problem.n, problem.d
    # Draws make half a pass at least, to see the data.
    passes = max(0.5, 3e5 / n) * (1e-3 / tol)
    possible = problem.groups is None and problem.divergence.strictly_convex and passes <= max_iter
    many_rows = n >= 200_000 and tol >= 1e-4
    # A rough answer from fewer rows, if they are many more than the columns.
    rough = tol >= 4e-3 and n >= max(30_000, 250 * d)
    exact_passes = 20.0 if can_newton(problem) else 40.0 - 10.0 * math.log10(tol)
    # A pass of draws takes about three times as long as one over rows in order.
    cheaper = 3.0 * passes < exact_passes
    return GSSG() if possible and (many_rows or rough) and cheaper else Exact()
