"""The rows of a linear model: scaled coordinates, and what is linear in the rows.

X is read in place: dense in any memory order or CSR, float32 or float64.  Solvers work in scaled
coordinates v with w = √D v.  Columns are also centred if there is an intercept to absorb the shift,
except for stochastic solvers on sparse data.  Scaling makes the solvers insensitive to the units of
the columns, and needs no copy of X.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._solvers.columns import Columns, Moments, Scaling, columns_of
from drolearn._solvers.gram import over_slabs
from drolearn._solvers.subsample import subsample
from drolearn._validation import thread_count
from drolearn.loss import Loss

__all__ = ["ScaledRows"]

Array = NDArray[np.float64]
# Column statistics come from a subsample of rows with about this many stored numbers.
_MEASURED = 5_000_000


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Rows of data, and the scaled coordinates of linear models on them.

    Parameters
    ----------
    X : array of shape (n, d) or scipy.sparse CSR matrix
        float32 or float64; read in place.
    y : array of shape (n,)
        ±1 for losses of the margin, numbers for losses of the residual, 0 … m−1 for classes.
    weights : array of shape (n,) or None
        Weights of the rows; None for equal ones.
    loss, l2
        As in :func:`drolearn.solve`; D depends on the smoothness of the loss and on l2.
    intercept : bool
        Whether models have an intercept.
    m : int, default=1
        Scores of a row: the number of classes of the multinomial loss, one for others.
    scaling : {"exact", "draws", "none"}
        Scaled coordinates: for exact solvers, for stochastic solvers, or w itself.
    n_jobs : int, optional
        Threads for passes over all rows.
    measured : tuple, optional
        `columns` of other rows, to be used for these.
    """

    X: Any
    y: Array
    weights: Array | None = None
    loss: Loss = field(kw_only=True)
    l2: float = field(kw_only=True)
    intercept: bool = field(kw_only=True)
    m: int = field(default=1, kw_only=True)
    scaling: Scaling = field(default="exact", kw_only=True)
    n_jobs: int | None = field(default=None, kw_only=True)
    measured: Columns | None = field(default=None, kw_only=True)

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
    def size(self) -> int:
        """Number of coordinates, intercepts included."""
        return self.m * (self.d + 1)

    def zeros(self) -> Array:
        """The zero model: all coefficients and intercepts are 0."""
        return np.zeros((self.m, self.d + 1))

    def with_columns(self, columns: NDArray[np.int64]) -> Self:
        """A copy with some columns only, with their scaling."""
        mean, scale, trace = self.columns
        measured = mean[columns], scale[np.append(columns, self.d)], trace
        return replace(self, X=self.X[:, columns], measured=measured)

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
        columns = self._columns_of(rows)
        if rows.size < all_rows.size and not self.sparse and not columns[1][:-1].all():
            # A column that is constant on the subsample may vary on the other rows.
            columns = self._columns_of(all_rows)
        return columns

    def _columns_of(self, rows: Any) -> Columns:
        """`columns`, estimated on some rows."""
        return columns_of(
            lambda mean: self.moments(rows, mean),
            self.n,
            sparse=self.sparse,
            intercept=self.intercept,
            scaling=self.scaling,
            smoothness=self.loss.smoothness,
            l2=self.l2,
        )

    def moments(self, rows: Any, mean: Array | None) -> Moments:
        """Sum, sum of squares and largest absolute value of x − mean over some rows."""
        out = np.empty((3, self.d))
        self.rows.moments(rows, self.weights, mean, out)
        weight = float(rows.size) if self.weights is None else float(self.weights[rows].sum())
        return Moments(out[0], out[1], out[2], weight, rows.size)

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

    # -- passes over all rows ----------------------------------------------------------

    def zero_scores(self) -> Array:
        """The scores of the zero model."""
        return np.zeros(self.n * self.m)

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

    def gram_of_sums(self, columns: Any, factors: Array) -> Array:
        """C̃ diag(factors) C̃ᵀ with C̃ = X̃ᵀ C for a sparse C of one entry in each row.

        The matrix X̃ᵀ C may have half as many columns as there are rows: it is made in parts.
        """
        mean, scale, _ = self.columns
        total = np.zeros((self.size, self.size))
        if columns.nnz == 0:
            return total
        step = max(1, (1 << 20) // self.size)
        for first in range(0, factors.size, step):
            part = columns[:, first : first + step]
            rows, values, starts = part.indices, part.data, part.indptr[:-1]
            sums = np.empty((starts.size, self.size))
            if self.sparse:
                sums[:, :-1] = (part.T @ self.X).toarray()
            else:
                sums[:, :-1] = np.add.reduceat(values[:, None] * self.X[rows], starts)
            sums[:, -1] = np.add.reduceat(values, starts) if self.intercept else 0.0
            sums[:, :-1] -= mean * sums[:, -1:]
            sums *= np.sqrt(scale)
            total += (sums.T * factors[first : first + step]) @ sums
        return total
