"""The objective of a robust linear model, and what solvers compute in passes over all rows.

    F(θ) = R(losses of X w + c) + l2/2 ‖w‖²,    θ = (w, c) for each score

X is read in place: dense in any memory order or CSR, float32 or float64.  Solvers work in scaled
coordinates v with w = √D v.  Columns are also centred if there is an intercept to absorb the shift,
except for stochastic solvers on sparse data.  Scaling makes the solvers insensitive to the units of
the columns, and needs no copy of X.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.groups import Groups
from drolearn._inner.smoothing import Bend, smoothed
from drolearn._inner.worst_case import WorstCase, inner_maximum
from drolearn._solvers.gram import over_slabs
from drolearn._validation import thread_count
from drolearn.divergence import Divergence, as_divergence
from drolearn.loss import Loss

__all__ = ["Evaluation", "Problem", "subsample"]

Array = NDArray[np.float64]
Scaling = Literal["exact", "draws", "none"]
Columns = tuple[Array, Array, float]
_MEAN = as_divergence("chi2")  # with radius 0
# Column statistics come from a subsample of rows with about this many stored numbers.
_MEASURED = 5_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The robust loss at one point: losses, slopes in the scores, and worst-case weights."""

    scores: Array
    losses: Array
    """The losses of the rows, minus those of the reference if there is one."""
    slopes: Array
    worst: WorstCase
    value: float
    shares: Array
    """Worst-case weights of the units of the ball: rows, or groups."""
    bend: Bend | None
    """Derivative of these weights with respect to the losses, if the loss was smoothed."""


@dataclass(frozen=True, eq=False)
class Problem:
    """The robust loss of linear models on some data.

    A problem is immutable.  `dataclasses.replace` makes variants, whose cached values are computed
    again.

    Parameters
    ----------
    X : array of shape (n, d) or scipy.sparse CSR matrix
        float32 or float64; read in place.
    y : array of shape (n,)
        ±1 for losses of the margin, numbers for losses of the residual, 0 … m−1 for classes.
    weights : array of shape (n,) or None
        Weights of the rows; None for equal ones.
    loss, divergence, rho, l2, intercept
        As in :func:`drolearn.solve`.
    m : int, default=1
        Scores of a row: the number of classes of the multinomial loss, one for others.
    groups : Groups, optional
        The ball then reweights groups; the weights of rows within a group stay in proportion.
    scaling : {"exact", "draws", "none"}
        Scaled coordinates: for exact solvers, for stochastic solvers, or w itself.
    n_jobs : int, optional
        Threads for passes over all rows.
    measured : tuple, optional
        `columns` of another problem, to be used for this one.
    reference : array of shape (n,), optional
        Losses c of a reference model: the robust loss is then that of l − c, the robust regret.
    shared_ball : SharedBall, optional
        The smallest ball in which the zero model is optimal, if several problems share it.
    """

    X: Any
    y: Array
    weights: Array | None = None
    loss: Loss = field(kw_only=True)
    divergence: Divergence = field(kw_only=True)
    rho: float = field(kw_only=True)
    l2: float = field(kw_only=True)
    intercept: bool = field(kw_only=True)
    m: int = field(default=1, kw_only=True)
    groups: Groups | None = field(default=None, kw_only=True)
    scaling: Scaling = field(default="exact", kw_only=True)
    n_jobs: int | None = field(default=None, kw_only=True)
    measured: Columns | None = field(default=None, kw_only=True)
    reference: Array | None = field(default=None, kw_only=True)
    shared_ball: Any = field(default=None, kw_only=True)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    @property
    def d(self) -> int:
        """Number of columns."""
        return self.X.shape[1]

    @property
    def sparse(self) -> bool:
        """Whether the data are a sparse matrix."""
        return not isinstance(self.X, np.ndarray)

    @cached_property
    def rows(self) -> _core.Rows:
        """A view of X for the compiled core."""
        if self.sparse:
            return _core.Rows(self.X.data, self.X.indices, self.X.indptr, self.d)
        # A field of a structured array, for example, is not aligned and has to be copied.
        aligned = not any(stride % self.X.itemsize for stride in self.X.strides)
        return _core.Rows(self.X if aligned else np.ascontiguousarray(self.X))

    @property
    def row_size(self) -> float:
        """Mean number of stored numbers in a row."""
        return max(self.X.nnz / self.n, 1.0) if self.sparse else float(self.d)

    @cached_property
    def threads(self) -> int:
        """Number of threads for `n_jobs`."""
        return 1 if self.n_jobs is None else thread_count(self.n_jobs)

    @property
    def base_weights(self) -> Array:
        """The weights of the rows as shares: the sum is one."""
        if self.weights is None:
            return np.full(self.n, 1.0 / self.n)
        return self.weights / self.weights.sum()

    @property
    def size(self) -> int:
        """Number of coordinates, intercepts included."""
        return self.m * (self.d + 1)

    def zeros(self) -> Array:
        """The zero model: all coefficients and intercepts are 0."""
        return np.zeros((self.m, self.d + 1))

    def subset(self, rows: NDArray[np.int64]) -> Problem:
        """The problem on a copy of some rows, with the column scaling of all rows."""
        weights = None if self.weights is None else self.weights[rows]
        reference = None if self.reference is None else self.reference[rows]
        return replace(
            self,
            X=self.X[rows],
            y=self.y[rows],
            weights=weights,
            groups=None,
            measured=self.columns,
            reference=reference,
        )

    # -- scaled coordinates ------------------------------------------------------------

    @cached_property
    def columns(self) -> Columns:
        """Mean and D of the columns (the last D is for the intercept), and Σ D E x².

        For exact solvers D is about the inverse of the Hessian's diagonal, 1/(l'' E x² + l2).
        In small batches a rare column has noisy gradients, for which that D is too large:
        stochastic solvers use D = 1/(root mean square × largest absolute value).
        """
        if self.measured is not None:
            return self.measured
        all_rows = np.arange(self.n) if self.weights is None else np.flatnonzero(self.weights)
        rows = all_rows[subsample(all_rows.size, int(_MEASURED / self.row_size))]
        columns = self._measure(rows)
        if rows.size < all_rows.size and not self.sparse and not columns[1][:-1].all():
            # A column that is constant on the subsample may vary on the other rows.
            columns = self._measure(all_rows)
        return columns

    def _measure(self, rows: NDArray[np.int64]) -> Columns:
        """`columns`, estimated on some rows."""
        mean = np.zeros(self.d)
        total, square, largest = self._moments(rows, None)
        weight = float(rows.size) if self.weights is None else float(self.weights[rows].sum())
        if largest.max(initial=0.0) > 1e140 or np.any((largest > 0.0) & (largest < 1e-140)):
            wrong = int(np.argmax((largest > 1e140) | ((largest > 0.0) & (largest < 1e-140))))
            raise ValueError(
                f"The 'X' parameter must have columns with largest absolute values between 1e-140 "
                f"and 1e140, so that squares do not overflow. Column {wrong} has "
                f"{largest[wrong]:.3g}: rescale it, for example with StandardScaler."
            )
        if not self.sparse and self.intercept and self.scaling != "none":
            mean = total / weight
            _, square, largest = self._moments(rows, mean)
        elif self.intercept and self.scaling == "exact":
            # Centre a sparse column only if its squares about the mean exceed rounding errors.
            # Stochastic solvers do not centre: each step would touch all columns.
            about = square - total * (total / weight)
            mean = np.where(about > 1e-8 * square, total / weight, 0.0)
            square = np.where(about > 1e-8 * square, about, square)
        if self.scaling == "none":
            scale = np.append(np.ones(self.d), float(self.intercept))
            return np.zeros(self.d), scale, float(square.sum() / weight) + self.intercept
        rms = np.sqrt(square / weight)
        # The deviations of a constant column are rounding errors.
        rms[rms <= 1e-13 * abs(mean)] = 0.0
        if self.scaling == "draws":
            spread = rms * largest
        else:
            # At a fitted model the mean second derivative is far below the largest one.
            bend = 0.04 * self.loss.smoothness
            spread = np.where(rms > 0.0, bend * rms**2 + self.l2, 0.0)
        if self.sparse and rows.size < self.n:
            # A column that is zero on the subsample is rare, but not constant.
            rare = largest.max(initial=0.0) ** 2
            rare /= math.sqrt(rows.size) if self.scaling == "draws" else rows.size
            spread[spread == 0.0] = rare + self.l2 * (self.scaling == "exact")
        with np.errstate(divide="ignore", over="ignore"):
            scale = np.where(spread > 1e-290, 1.0 / spread, 0.0)
        if self.sparse and self.scaling == "draws":
            scale = _powers_of_two(scale)
        mean[scale == 0.0] = 0.0
        trace = float(scale @ rms**2) + self.intercept
        intercept_scale = 1.0 if self.scaling == "draws" else 25.0 / self.loss.smoothness
        return mean, np.append(scale, intercept_scale * self.intercept), max(trace, 1e-300)

    def _moments(self, rows: NDArray[np.int64], mean: Array | None) -> Array:
        """Sum, sum of squares and largest absolute value of x − mean over some rows."""
        out = np.empty((3, self.d))
        self.rows.moments(rows, self.weights, mean, out)
        return out

    @cached_property
    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue of E x̃ x̃ᵀ, with x̃ the scaled rows of a subsample."""
        part = replace(self.subset(subsample(self.n, 1024 if self.sparse else 4096)), m=1)
        v = np.random.default_rng(0).standard_normal(self.d + 1)
        largest = 0.0
        for _ in range(12):
            v /= max(float(np.linalg.norm(v)), 1e-300)
            v = part.scaled_gradient(part.data_gradient(part.scores(part.to_model(v)))) / part.n
            largest = float(np.linalg.norm(v))
        return min(largest, self.columns[2])

    def smoothness(self, batch: float) -> float:
        """Lipschitz constant of the gradient of a batch in scaled coordinates, l''·(λ + Σ/batch).

        λ is the largest eigenvalue of E x̃ x̃ᵀ and Σ its trace; Σ/batch accounts for the deviation
        of a batch from all rows.
        """
        return self.loss.smoothness * (self.largest_eigenvalue + self.columns[2] / batch)

    @cached_property
    def root_scale(self) -> Array:
        """√D of the columns, the unit of scaled coordinates."""
        return np.sqrt(self.columns[1])

    def to_model(self, v: Array) -> Array:
        """θ of scaled coordinates."""
        mean = self.columns[0]
        theta = v.reshape(self.m, -1) * self.root_scale
        theta[:, -1] -= theta[:, :-1] @ mean
        return theta

    def from_model(self, theta: Array) -> Array:
        """Scaled coordinates of θ."""
        mean, scale, _ = self.columns
        v = theta.copy()
        v[:, -1] += v[:, :-1] @ mean
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(scale > 0.0, v / self.root_scale, 0.0).ravel()

    def scaled_gradient(self, gradient: Array) -> Array:
        """The gradient in scaled coordinates."""
        g = gradient.copy()
        g[:, :-1] -= self.columns[0] * g[:, -1:]
        return (g * self.root_scale).ravel()

    @cached_property
    def penalty(self) -> Array:
        """l2 for each scaled coordinate: l2/2 ‖w‖² = ½ Σ penalty v²."""
        of_columns = self.l2 * self.columns[1]
        of_columns[-1] = 0.0
        return np.tile(of_columns, self.m)

    # -- passes over all rows ----------------------------------------------------------

    def scores(self, theta: Array) -> Array:
        """X w + c of all rows, m numbers for each."""
        f = np.empty(self.n * self.m)
        self.rows.scores(np.ascontiguousarray(theta), f, self.threads)
        return f

    def data_gradient(self, slopes: Array, weights: Array | None = None) -> Array:
        """Σ weight · slope · (x, 1) of shape (m, d + 1); the intercept comes last."""
        total = np.empty((self.m, self.d + 1))
        self.rows.gradient(weights, np.ascontiguousarray(slopes), total, self.threads)
        if not self.intercept:
            total[:, -1] = 0.0
        return total

    @property
    def plain(self) -> bool:
        """Whether the robust loss is the plain mean; CVaR ignores the radius."""
        return self.rho == 0.0 and self.divergence.name != "cvar"

    @property
    def equal_at_zero(self) -> bool:
        """Whether the ball reweights rows that all have the same loss at the zero model.

        All weights are worst-case weights there, so the zero model may be optimal.
        """
        of_classes = self.loss.of != "residual" and self.reference is None
        return of_classes and self.groups is None and not self.plain

    def losses_at(self, scores: Array) -> tuple[Array, Array]:
        """Losses, minus those of the reference if there is one, and slopes in the scores."""
        z, slopes = self.loss.of_scores(scores, self.y, self.threads)
        if self.reference is not None:
            z -= self.reference
        return z, slopes

    def evaluate_or_none(
        self, scores: Array, plain: bool = False, epsilon: float = 0.0
    ) -> Evaluation | None:
        """Losses, worst-case weights and robust loss without penalty; None if a loss is not finite.

        `plain` uses the mean instead of the worst case, and ε > 0 the smoothed worst case.
        """
        z, slopes = self.losses_at(scores)
        plain = plain or self.plain
        worst, bend = self._worst_of(z, plain, epsilon)
        if worst is None:
            return None
        rows = worst if plain or self.groups is None else self.groups.spread(worst)
        return Evaluation(scores, z, slopes, rows, worst.value, worst.weights, bend)

    def _worst_of(
        self, z: Array, plain: bool, epsilon: float
    ) -> tuple[WorstCase | None, Bend | None]:
        """The worst case of the units of the ball for losses z of the rows."""
        groups = None if plain else self.groups
        losses, weights = (z, self.weights) if groups is None else (groups.means(z), groups.shares)
        if plain:
            return inner_maximum(_MEAN, 0.0, losses, weights, self.threads), None
        if epsilon > 0.0:
            return smoothed(losses, self.rho, self.divergence, weights, epsilon) or (None, None)
        return inner_maximum(self.divergence, self.rho, losses, weights, self.threads), None

    def evaluate(self, scores: Array, plain: bool = False, epsilon: float = 0.0) -> Evaluation:
        """Like `evaluate_or_none`, but losses that are not finite are an error."""
        evaluation = self.evaluate_or_none(scores, plain, epsilon)
        if evaluation is None:
            raise ValueError(self._not_finite(scores))
        return evaluation

    def _not_finite(self, scores: Array) -> str:
        """The error message for losses that overflow."""
        if self.loss.of == "residual":
            largest = float(abs(self.y).max())
            return (
                f"The losses overflow: y goes up to {largest:.3g} and the predictions up to "
                f"{float(abs(scores).max()):.3g}. Rescale y, for example with StandardScaler."
            )
        return (
            f"The losses are not finite for scores of up to {float(abs(scores).max()):.3g}: "
            f"rescale X or pass a smaller 'start'."
        )

    def group_gradients(self, at: Evaluation) -> Array:
        """Scaled gradients of the mean losses of the groups, one row each; for m = 1."""
        groups = self.groups
        if groups is None:
            raise RuntimeError("There are no groups.")
        return np.array(
            [
                self.scaled_gradient(self.data_gradient(at.slopes, groups.within(g)))
                for g in range(groups.shares.size)
            ]
        )

    def gradient(self, at: Evaluation) -> Array:
        """∇R = Σ p* ∇l, without penalty, of shape (m, d + 1)."""
        return self.data_gradient(at.slopes, at.worst.weights)

    @cached_property
    def baseline_loss(self) -> float:
        """The mean loss of the zero model, or of predicting mean y in regression with intercept."""
        b, total, constant = self.weights, 0.0, 0.0
        if self.loss.of == "residual" and self.intercept:
            constant = float(np.average(self.y, weights=b))
        for first in range(0, self.n, 65_536):
            y = self.y[first : first + 65_536]
            z, _ = self.loss.of_scores(np.full(y.size * self.m, constant), y)
            total += float(z.sum() if b is None else b[first : first + y.size] @ z)
        return abs(total / (self.n if b is None else float(b.sum())))

    @property
    def value_without_losses(self) -> float:
        """The robust loss if all losses were 0: with a reference, that of −c."""
        if self.reference is None:
            return 0.0
        worst = self._worst_of(-self.reference, self.plain, 0.0)[0]
        return -math.inf if worst is None else worst.value

    @cached_property
    def typical_norm(self) -> float:
        """The order of magnitude of ‖v‖ at a solution: 1, or the root mean square of y."""
        if self.loss.of != "residual":
            return 1.0
        return float(np.sqrt(np.average(self.y**2, weights=self.weights)))

    def loss_scale(self, value: float) -> float:
        """The unit of relative accuracies: the value, but not less than a share of the baseline.

        The loss of separable classes tends to 0, and that of a perfect regression is rounding
        error; relative to such a value, no tolerance could be reached.  A regret may be 0 or
        negative: with a reference the unit is at least the baseline itself.
        """
        floor = 1e-8 if self.loss.of == "residual" else 1e-3
        if self.reference is not None:
            floor = 1.0
        return max(abs(value), floor * self.baseline_loss, 1e-300)

    def magnitude(self, value: float) -> float:
        """The size of a value that rounding errors and multipliers are compared with."""
        return abs(value) if self.reference is None else self.loss_scale(value)

    def objective(self, theta: Array) -> float:
        """F(θ), penalty included; infinite where losses overflow."""
        evaluation = self.evaluate_or_none(self.scores(theta))
        return math.inf if evaluation is None else evaluation.value + self.penalty_at(theta)

    def penalty_at(self, theta: Array) -> float:
        """The penalty l2/2 ‖w‖² of a model."""
        return 0.5 * self.l2 * float(np.sum(np.square(theta[:, :-1])))

    def gram(self, h: Array, *extra: Array) -> tuple[Array, Array]:
        """Σ h x̃ x̃ᵀ in scaled coordinates, and X̃ᵀu for each extra u; u must be 0 where h is 0.

        For one class of scores; the intercept comes last.
        """
        mean, scale, _ = self.columns
        root_scale, size = np.sqrt(scale), self.d + 1
        total, columns = np.zeros((size, size)), np.zeros((size, len(extra)))
        if self.sparse:
            self.rows.gram(h, root_scale, total)
            total += np.tril(total, -1).T
            # Centre the columns: Σ h (x − μ)(x − μ)ᵀ from Σ h x xᵀ and Σ h x.
            shift = np.append(mean * root_scale[:-1], 0.0)
            total -= np.outer(shift, total[-1]) + np.outer(total[-1], shift)
            total += total[-1, -1] * np.outer(shift, shift)
            for k, u in enumerate(extra):
                columns[:, k] = self.scaled_gradient(self.data_gradient(u))
        else:
            right = np.column_stack(extra) if extra else np.empty((self.n, 0))
            for part, side in over_slabs(self.rows, h, right, (mean, root_scale), self.threads):
                total += part
                columns += side
            columns[-1] *= root_scale[-1]
        total[-1] *= math.sqrt(scale[-1])
        total[:, -1] *= math.sqrt(scale[-1])
        return total, columns


def _powers_of_two(scale: Array) -> Array:
    """Scales rounded to powers of two, at most 200 different ones.

    Sparse steps process columns of equal scale together.  Capping the range only shortens the
    steps of some columns.
    """
    positive = scale > 0.0
    if not positive.any():
        return scale
    exponent = np.round(np.log2(scale[positive]))
    rounded = np.zeros_like(scale)
    rounded[positive] = np.exp2(np.minimum(exponent, exponent.min() + 200.0))
    return rounded


def subsample(n: int, count: int) -> NDArray[np.int64]:
    """About `count` of n rows, at random but always the same; all rows if n ≤ 2 · count."""
    if n <= 2 * count:
        return np.arange(n)
    chosen = np.zeros(n, dtype=bool)
    chosen[np.random.default_rng(0).integers(0, n, count)] = True
    return np.flatnonzero(chosen)
