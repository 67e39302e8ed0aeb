"""The choice of a solver: by name, or automatically."""

from __future__ import annotations

import math

from drolearn._solvers.directions import can_newton
from drolearn._solvers.draws import Method
from drolearn._solvers.problem import Problem
from drolearn._solvers.solvers import CLASSES, GSSG, Exact, Solver
from drolearn._validation import did_you_mean

__all__ = ["NAMES", "as_solver", "choose"]

_BY_NAME: dict[str, Solver] = {
    solver.name: solver for solver in (*(cls() for cls in CLASSES), GSSG(anchor=True))
}
#: All names that `solver` takes.
NAMES = ("auto", *_BY_NAME)


def as_solver(solver: str | Solver) -> Solver | None:
    """The solver object for a name, or None for "auto"."""
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
    """What "auto" stands for: GSSG where it needs less time than exact solvers, else Exact.

    The numbers were measured on 19 data sets (docs/profile.png).
    """
    n, d = problem.n, problem.d
    # GSSG reaches a relative gap of 1e-3 after about 300,000 rows, for any n, and needs ten times
    # as many rows for a tenth of the gap.  It needs half a pass at least.
    passes = max(0.5, 3e5 / n) * (1e-3 / tol)
    # Balls over groups are often so large that groups have equal losses: there, exact solvers are
    # faster.
    smooth = problem.divergence.strictly_convex and not problem.l1
    possible = problem.groups is None and smooth and passes <= max_iter
    # Where GSSG was faster: on many rows, or for a rough solution where rows are far more than
    # columns.
    many_rows = n >= 200_000 and tol >= 1e-4
    rough = tol >= 4e-3 and n >= max(30_000, 250 * d)
    # Passes of exact solvers: 20 with Newton's method, 40 to 100 with L-BFGS.
    exact_passes = 20.0 if can_newton(problem) else 40.0 - 10.0 * math.log10(tol)
    # A pass in random order takes about three times as long as one in order.
    cheaper = 3.0 * passes < exact_passes
    return GSSG() if possible and (many_rows or rough) and cheaper else Exact()
