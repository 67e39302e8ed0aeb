"""Proximal Newton steps on sparse columns, for Hessians that are too large to be formed.

The Hessian of the smooth part of the objective, in scaled coordinates, is

    H = S Xᵀ diag(h) X S + diag(penalty) + U K Uᵀ,

where h weighs the rows, and U has a few columns: the centring of the columns of X, the intercept,
and what makes the worst-case weights follow the losses.  Coordinate descent on the quadratic model
reads one column of X for each step.  It converges slowly where H is badly conditioned: after a few
sweeps the combination of their results whose last changes cancel is tried, and kept if the model is
lower there (Anderson's extrapolation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._solvers.certificate import Point
from drolearn._solvers.directions import Goal, hessian_parts
from drolearn._solvers.problem import Problem

__all__ = ["ColumnModel", "Columns"]

Array = NDArray[np.float64]

# An extrapolation uses the results of this many sweeps.
_SWEEPS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns of sparse data, as the rows of a transposed matrix."""

    problem: Problem
    rows: _core.Rows
    ones: Array
    """The part of the scores X̃ v that all rows share is ones·v."""

    @staticmethod
    def of(problem: Problem) -> Columns:
        """A copy of X in the order of columns."""
        X = problem.X.tocsc()
        ones = problem.root_scale * np.append(-problem.columns[0], 1.0)
        return Columns(problem, _core.Rows(X.data, X.indices, X.indptr, problem.n), ones)


@dataclass(slots=True, eq=False)
class _Step:
    """A step d, diag(h) X S d and K Uᵀ d."""

    d: Array
    bent: Array
    sums: Array


class ColumnModel:
    """The quadratic model at a point, and a step d that lowers it.

        q(d) = g·d + ½ d·H d + Σ λ |v + d|

    Parameters
    ----------
    columns : Columns
        The data.
    point, goal : Point, Goal
        Where the model is taken, and of what.
    coordinates : array of int
        The coordinates that may change.
    ridge : float
        Added to the diagonal of H, relative to its largest entry.
    """

    def __init__(
        self,
        columns: Columns,
        point: Point,
        goal: Goal,
        coordinates: NDArray[np.int64],
        ridge: float,
    ) -> None:
        problem = columns.problem
        self.columns, self.point, self.coordinates = columns, point, coordinates
        self.penalty, self.scale = problem.l1_penalty, problem.root_scale
        self.h, sides, inner = hessian_parts(problem, point.at, goal)
        # X̃ = X S + 1 onesᵀ, so that its Hessian has a term of rank two of Xᵀh and ones.
        sums = problem.data_gradient(self.h)[0] * self.scale
        sums[-1] = 0.0
        self.sides = np.column_stack([sums, columns.ones, sides])
        rank = self.sides.shape[1]
        self.inner = np.zeros((rank, rank))
        self.inner[:2, :2] = [[0.0, 1.0], [1.0, float(self.h.sum())]]
        self.inner[2:, 2:] = inner
        self.curvature = self.diagonal()
        extra = ridge * float(self.curvature.max(initial=0.0))
        self.curvature[coordinates] += extra
        self.quadratic = problem.penalty + extra
        self.step = _Step(np.zeros(problem.size), np.zeros(problem.n), np.zeros(rank))

    def diagonal(self) -> Array:
        """The diagonal of H at the coordinates; 0 elsewhere."""
        problem, some = self.columns.problem, self.coordinates
        diagonal = np.zeros(problem.size)
        with_column = some[some < problem.d]
        squares = np.empty(with_column.size)
        self.columns.rows.squares(self.h, with_column, squares)
        diagonal[with_column] = squares * self.scale[with_column] ** 2
        sides = self.sides[some]
        diagonal[some] += problem.penalty[some] + ((sides @ self.inner) * sides).sum(axis=1)
        return diagonal

    def minimise(self, precision: float, most: int) -> Array:
        """The step after sweeps until one lowers q by less than a share of the first one."""
        first = self.sweep(self.coordinates)
        for _ in range(most):
            self.extrapolate()
            if not self.sweep(self.coordinates) > precision * first:
                break
        return self.step.d

    def sweep(self, coordinates: NDArray[np.int64]) -> float:
        """One sweep of coordinate descent; a bound of the decrease of q."""
        return self.columns.rows.coordinate_sweep(
            (self.h, self.scale, self.curvature, self.quadratic),
            (self.sides, self.inner),
            (self.point.gradient, self.penalty, self.point.v),
            coordinates,
            (self.step.d, self.step.bent, self.step.sums),
        )

    def extrapolate(self) -> None:
        """Sweeps over the coordinates that are not 0, and an extrapolation of their results."""
        some = self.coordinates
        used = self.point.v[some] + self.step.d[some] != 0.0
        free = some[used | (self.penalty[some] == 0.0)]
        steps = [_copy(self.step)]
        for _ in range(_SWEEPS):
            self.sweep(free)
            steps.append(_copy(self.step))
        changes = np.diff([step.d[free] for step in steps], axis=0)
        products = changes @ changes.T
        size = float(np.trace(products))
        if not size > 0.0:
            return
        # The smallest ‖Σ shares · changes‖ with Σ shares = 1; a ridge, as changes are similar.
        products[np.diag_indices_from(products)] += 1e-10 * size
        shares = np.linalg.solve(products, np.ones(_SWEEPS))
        shares /= shares.sum()
        tried = _Step(
            *(
                shares @ np.array([getattr(step, name) for step in steps[1:]])
                for name in ("d", "bent", "sums")
            )
        )
        if self.value(tried) < self.value(self.step):
            self.step = tried

    def value(self, step: _Step) -> float:
        """q(d) − q(0)."""
        some, used = self.coordinates, self.h > 0.0
        d, v = step.d[some], self.point.v[some]
        quadratic = float(np.sum(step.bent[used] ** 2 / self.h[used]))
        quadratic += float(self.quadratic[some] @ d**2)
        quadratic += float((d @ self.sides[some]) @ step.sums)
        linear = float(self.point.gradient[some] @ d)
        return linear + 0.5 * quadratic + float(self.penalty[some] @ (abs(v + d) - abs(v)))


def _copy(step: _Step) -> _Step:
    return _Step(step.d.copy(), step.bent.copy(), step.sums.copy())
