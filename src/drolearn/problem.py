"""A linear model, its data and its robust loss: everything one pass over all rows can tell.

    F(θ) = R(losses of X w + c) + l2/2 ‖w‖²,    θ = (w, c) for each score

The data stay as they are: dense in any order, or compressed sparse rows, 32 or 64 bits.
Solvers walk in scaled coordinates: w = √D v, with the columns centred where an intercept can
take up the shift (draws of sparse rows leave them as they are).  Columns in dollars and columns
in shares then weigh alike, and no copy of the data is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn.divergence import Divergence
from drolearn.loss import Loss
from drolearn.smooth import Bend, smoothed
from drolearn.worst_case import WorstCase, thread_count, worst_case

__all__ = ["Evaluation", "Groups", "Problem"]

Array = NDArray[np.float64]
Scaling = Literal["exact", "draws", "none"]
_NONE = np.empty(0)
# Matrices are added up over this many slabs of rows, whoever works on them: sums of slabs in
# order are the same bits for any number of threads.  Fewer where they would take much memory.
_SLABS = 16
_SLAB_NUMBERS = 1 << 24
# Columns are measured on rows that hold about this many numbers.
_MEASURED = 5_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The robust loss at one point: losses, slopes in the scores, and worst-case weights."""

    scores: Array
    losses: Array
    slopes: Array
    worst: WorstCase
    value: float
    shares: Array
    """Worst-case weights of what the ball moves: rows, or groups."""
    bend: Bend | None
    """How these weights follow the losses, where that was asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of rows: whose row it is, what share each has, and how rows share its weight."""

    of: NDArray[np.int64]
    shares: Array
    inside: Array

    @staticmethod
    def make(of: NDArray[np.int64], base: Array) -> Groups:
        """Groups of rows with base weights, which are equal if there are none."""
        weights = base / base.sum() if base.size else np.full(of.size, 1.0 / of.size)
        shares = np.bincount(of, weights).astype(np.float64)
        # A group without weight has no share to move.
        inside = np.where(weights > 0.0, weights, 0.0)
        inside /= np.where(shares > 0.0, shares, 1.0)[of]
        return Groups(of, shares, inside)

    def means(self, z: Array) -> Array:
        """The mean loss of each group."""
        return np.bincount(self.of, self.inside * z, self.shares.size).astype(np.float64)

    def spread(self, each: WorstCase) -> WorstCase:
        """A worst case of groups as one of rows."""
        return replace(each, weights=each.weights[self.of] * self.inside)


class Problem:
    """The robust loss of linear models on some data.

    Parameters
    ----------
    X : array of shape (n, d) or scipy.sparse CSR matrix
        float32 or float64; read in place.
    y : array of shape (n,)
        ±1 for losses of the margin, numbers for losses of the residual, 0 … m−1 for classes.
    base : array of shape (n,), or of length 0 for equal weights
    loss, divergence, rho, l2, intercept
        As in :func:`drolearn.solver.solve`.
    groups : array of shape (n,), optional
        The number of each row's group: the ball then moves the shares of the groups, and rows
        keep their weights within them.
    scaling : {"exact", "draws", "none"}
        The coordinates to walk in: those that suit exact solvers, those that suit draws of
        some rows, or those of the data as they are.
    n_jobs : int, optional
        Threads for passes over all rows.
    """

    def __init__(
        self,
        X: Any,
        y: Array,
        base: Array,
        *,
        loss: Loss,
        divergence: Divergence,
        rho: float,
        l2: float,
        intercept: bool,
        groups: NDArray[np.int64] | None = None,
        scaling: Scaling = "exact",
        n_jobs: int | None = None,
    ) -> None:
        self.n, self.d = X.shape
        self.m = int(y.max()) + 1 if loss.of == "classes" else 1
        self.y, self.base = _frozen(y), _frozen(base)
        self.loss, self.divergence = loss, divergence
        self.rho, self.l2, self.intercept = rho, l2, intercept
        self.groups = None if groups is None else Groups.make(groups, self.base)
        self.scaling: Scaling = scaling
        self.n_jobs = n_jobs
        self._source = X
        self.sparse = not isinstance(X, np.ndarray)
        self.rows = _rows_of(X)
        self.row_size = max(X.nnz / self.n, 1.0) if self.sparse else float(self.d)

    @property
    def weights(self) -> Array | None:
        """The base weights as the core takes them."""
        return self.base if self.base.size else None

    @cached_property
    def threads(self) -> int:
        """How many threads `n_jobs` means."""
        return 1 if self.n_jobs is None else thread_count(self.n_jobs)

    @property
    def size(self) -> int:
        """Number of coordinates, intercepts included."""
        return self.m * (self.d + 1)

    def zeros(self) -> Array:
        """The model that knows nothing."""
        return np.zeros((self.m, self.d + 1))

    def subset(self, rows: NDArray[np.int64]) -> Problem:
        """The same problem on some rows (a copy of them), measured with the same columns."""
        base = self.base[rows] if self.base.size else _NONE
        part = Problem(
            self._source[rows],
            self.y[rows],
            base,
            loss=self.loss,
            divergence=self.divergence,
            rho=self.rho,
            l2=self.l2,
            intercept=self.intercept,
            scaling=self.scaling,
            n_jobs=self.n_jobs,
        )
        part.m = self.m
        part.columns = self.columns
        return part

    # -- scaled coordinates ------------------------------------------------------------

    @cached_property
    def columns(self) -> tuple[Array, Array, float]:
        """Mean and D of the columns (the last D is that of the intercept), and Σ D E x².

        For exact solvers D is about one over the diagonal of the Hessian, 1/(l'' E x² + l2).
        Draws of few rows see a rare column seldom, and its noise the more: D = 1/(root mean
        square × largest size) makes its steps longer, but not as long.
        """
        all_rows = np.flatnonzero(self.base) if self.base.size else np.arange(self.n)
        rows = all_rows[some_rows(all_rows.size, int(_MEASURED / self.row_size))]
        found = self._measure(rows)
        if rows.size < all_rows.size and not self.sparse and not found[1][:-1].all():
            # A column that is constant on some rows need not be so on all.
            found = self._measure(all_rows)
        return found

    def _measure(self, rows: NDArray[np.int64]) -> tuple[Array, Array, float]:
        mean = np.zeros(self.d)
        total, square, largest = self._moments(rows, None)
        weight = float(self.base[rows].sum()) if self.base.size else float(rows.size)
        if largest.max(initial=0.0) > 1e140 or np.any((largest > 0.0) & (largest < 1e-140)):
            wrong = int(np.argmax((largest > 1e140) | ((largest > 0.0) & (largest < 1e-140))))
            raise ValueError(
                f"X must hold numbers whose squares are numbers too, of size 1e-140 to 1e140. "
                f"Column {wrong} goes up to {largest[wrong]:.3g}: change its unit."
            )
        if not self.sparse and self.intercept and self.scaling != "none":
            mean = total / weight
            _, square, largest = self._moments(rows, mean)
        elif self.intercept and self.scaling == "exact":
            # Sums of squares of sparse columns about their mean, where rounding leaves any;
            # steps of draws would have to touch all columns.
            about = square - total * (total / weight)
            mean = np.where(about > 1e-8 * square, total / weight, 0.0)
            square = np.where(about > 1e-8 * square, about, square)
        if self.scaling == "none":
            scale = np.append(np.ones(self.d), float(self.intercept))
            return np.zeros(self.d), scale, float(square.sum() / weight) + self.intercept
        rms = np.sqrt(square / weight)
        # What is left of a constant column is rounding.
        rms[rms <= 1e-13 * abs(mean)] = 0.0
        if self.scaling == "draws":
            spread = rms * largest
        else:
            # Losses of models that fit are much flatter than at their steepest.
            bend = 0.04 * self.loss.smoothness
            spread = np.where(rms > 0.0, bend * rms**2 + self.l2, 0.0)
        if self.sparse and rows.size < self.n:
            # Columns that the measured rows do not have are rare, but not nothing.
            rare = largest.max(initial=0.0) ** 2
            rare /= math.sqrt(rows.size) if self.scaling == "draws" else rows.size
            spread[spread == 0.0] = rare + self.l2 * (self.scaling == "exact")
        with np.errstate(divide="ignore", over="ignore"):
            scale = np.where(spread > 1e-290, 1.0 / spread, 0.0)
        if self.sparse and self.scaling == "draws":
            scale = _powers_of_two(scale)
        mean[scale == 0.0] = 0.0
        trace = float(scale @ rms**2) + self.intercept
        own = 1.0 if self.scaling == "draws" else 25.0 / self.loss.smoothness
        return mean, np.append(scale, own * self.intercept), max(trace, 1e-300)

    def _moments(self, rows: NDArray[np.int64], mean: Array | None) -> Array:
        """Sum, sum of squares and largest size of each column about a mean, over some rows."""
        out = np.empty((3, self.d))
        self.rows.moments(rows, self.weights, mean, out)
        return out

    @cached_property
    def stretch(self) -> float:
        """The largest eigenvalue of E x̃ x̃ᵀ, x̃ the scaled rows, from some thousand of them."""
        part = self.subset(some_rows(self.n, 1024 if self.sparse else 4096))
        part.m, v = 1, np.random.default_rng(0).standard_normal(self.d + 1)
        largest = 0.0
        for _ in range(12):
            v /= max(float(np.linalg.norm(v)), 1e-300)
            v = part.scaled_gradient(part.data_gradient(part.scores(part.to_model(v)))) / part.n
            largest = float(np.linalg.norm(v))
        return min(largest, self.columns[2])

    def smoothness(self, batch: float) -> float:
        """How fast the gradient of a batch can turn in scaled coordinates: λ + Σ/batch.

        λ is the largest eigenvalue of E x̃ x̃ᵀ and Σ its trace: the mean of a batch of rows
        turns like all rows, but for what its few rows add.
        """
        return self.loss.smoothness * (self.stretch + self.columns[2] / batch)

    def to_model(self, v: Array) -> Array:
        """θ of scaled coordinates."""
        mean, scale, _ = self.columns
        theta = v.reshape(self.m, -1) * np.sqrt(scale)
        theta[:, -1] -= theta[:, :-1] @ mean
        return theta

    def from_model(self, theta: Array) -> Array:
        """Scaled coordinates of θ."""
        mean, scale, _ = self.columns
        v = theta.copy()
        v[:, -1] += v[:, :-1] @ mean
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(scale > 0.0, v / np.sqrt(scale), 0.0).ravel()

    def scaled_gradient(self, gradient: Array) -> Array:
        """The gradient in scaled coordinates."""
        mean, scale, _ = self.columns
        g = gradient.copy()
        g[:, :-1] -= mean * g[:, -1:]
        return (g * np.sqrt(scale)).ravel()

    @cached_property
    def penalty(self) -> Array:
        """l2 for each scaled coordinate: l2/2 ‖w‖² = ½ Σ penalty v²."""
        own = self.l2 * self.columns[1]
        own[-1] = 0.0
        return np.tile(own, self.m)

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
        """Whether the robust loss is the mean anyway; the ball of CVaR has no radius."""
        return self.rho == 0.0 and self.divergence.name != "cvar"

    def evaluate(self, scores: Array, plain: bool = False, epsilon: float = 0.0) -> Evaluation:
        """Losses, worst-case weights and robust loss (without penalty) of given scores.

        `plain` asks for the mean instead, and ε > 0 for a loss without corners.
        """
        z, slopes = self.loss.of_scores(scores, self.y, self.threads)
        plain = plain or self.plain
        radius, divergence = (0.0, "chi2") if plain else (self.rho, self.divergence)
        groups = None if plain else self.groups
        if epsilon > 0.0 and not plain:
            what = (z, self.base) if groups is None else (groups.means(z), groups.shares)
            worst, bend = smoothed(what[0], radius, self.divergence, what[1], epsilon)
        elif groups is None:
            worst = worst_case(z, radius, divergence, self.weights, n_jobs=self.n_jobs)
            bend = None
        else:
            worst, bend = worst_case(groups.means(z), radius, divergence, groups.shares), None
        rows = worst if groups is None else groups.spread(worst)
        return Evaluation(scores, z, slopes, rows, worst.value, worst.weights, bend)

    def group_gradients(self, at: Evaluation) -> Array:
        """Scaled gradients of the mean loss of each group, one row for each; for one score."""
        groups = self.groups
        if groups is None:
            raise RuntimeError("There are no groups.")
        u = groups.inside * at.slopes
        return np.array(
            [
                self.scaled_gradient(self.data_gradient(np.where(groups.of == g, u, 0.0)))
                for g in range(groups.shares.size)
            ]
        )

    def gradient(self, at: Evaluation) -> Array:
        """∇R = Σ p* ∇l, without penalty, of shape (m, d + 1)."""
        return self.data_gradient(at.slopes, at.worst.weights)

    @cached_property
    def level(self) -> float:
        """The mean loss of a model that is told nothing, or the mean of y if it may be constant."""
        weight, total, constant = float(self.base.sum()) if self.base.size else self.n, 0.0, 0.0
        if self.loss.of == "residual" and self.intercept:
            constant = float(np.average(self.y, weights=self.base if self.base.size else None))
        for first in range(0, self.n, 65_536):
            y = self.y[first : first + 65_536]
            z, _ = self.loss.of_scores(np.full(y.size * self.m, constant), y)
            total += float(self.base[first : first + y.size] @ z if self.base.size else z.sum())
        return abs(total / weight)

    @cached_property
    def breadth(self) -> float:
        """How far from zero, in scaled coordinates, models are to be expected."""
        if self.loss.of != "residual":
            return 1.0
        return float(np.sqrt(np.average(self.y**2, weights=self.base if self.base.size else None)))

    def unit(self, value: float) -> float:
        """What accuracies are relative to: the value, unless hardly anything is left of it.

        Where classes can be told apart without error the loss falls for ever, ever more slowly;
        numbers that are fitted without error leave nothing but rounding.
        """
        floor = 1e-8 if self.loss.of == "residual" else 1e-3
        return max(abs(value), floor * self.level, 1e-300)

    def objective(self, theta: Array) -> float:
        """F(θ), penalty included."""
        return self.evaluate(self.scores(theta)).value + self.cost(theta)

    def cost(self, theta: Array) -> float:
        """The penalty l2/2 ‖w‖²."""
        return 0.5 * self.l2 * float(np.sum(np.square(theta[:, :-1])))

    def _over_slabs(
        self, h: Array, right: Array, columns: tuple[Array, Array]
    ) -> Iterator[tuple[Array, Array]]:
        """X̃ᵀ diag(h) X̃ and X̃ᵀ right of slabs of dense rows, in order, by threads."""
        size = self.d + 1
        slabs = max(min(_SLABS, _SLAB_NUMBERS // size**2), 1)
        step = max(64, (1 << 17) // size)

        def work(slab: int) -> tuple[Array, Array]:
            total, side = np.zeros((size, size)), np.zeros((size, right.shape[1]))
            last = self.n * (slab + 1) // slabs
            buffer = np.empty((step, size))
            for first in range(self.n * slab // slabs, last, step):
                rows = slice(first, min(first + step, last))
                root = np.sqrt(h[rows])
                part = buffer[: root.size]
                self.rows.scaled(columns, first, root, part)
                total += part.T @ part
                if right.shape[1]:
                    zero = np.zeros((root.size, right.shape[1]))
                    held = root[:, None] > 0.0
                    side += part.T @ np.divide(right[rows], root[:, None], out=zero, where=held)
            return total, side

        if self.threads == 1 or slabs == 1:
            yield from map(work, range(slabs))
            return
        pool = ThreadPoolExecutor(self.threads)
        try:
            yield from pool.map(work, range(slabs))
        finally:
            pool.shutdown(cancel_futures=True)

    def gram(self, h: Array, *extra: Array) -> tuple[Array, Array]:
        """Σ h x̃ x̃ᵀ in scaled coordinates, and X̃ᵀu for each extra u that is zero where h is.

        For models of one score; the intercept comes last.
        """
        mean, scale, _ = self.columns
        root_scale, size = np.sqrt(scale), self.d + 1
        total, columns = np.zeros((size, size)), np.zeros((size, len(extra)))
        if self.sparse:
            self.rows.gram(h, root_scale, total)
            total += np.tril(total, -1).T
            # From columns as they are to columns about their mean.
            shift = np.append(mean * root_scale[:-1], 0.0)
            total -= np.outer(shift, total[-1]) + np.outer(total[-1], shift)
            total += total[-1, -1] * np.outer(shift, shift)
            for k, u in enumerate(extra):
                columns[:, k] = self.scaled_gradient(self.data_gradient(u))
        else:
            right = np.column_stack(extra) if extra else np.empty((self.n, 0))
            for part, side in self._over_slabs(h, right, (mean, root_scale)):
                total += part
                columns += side
            columns[-1] *= root_scale[-1]
        total[-1] *= math.sqrt(scale[-1])
        total[:, -1] *= math.sqrt(scale[-1])
        return total, columns


def _powers_of_two(scale: Array) -> Array:
    """Scales rounded to powers of two: sparse steps treat columns of equal scale together.

    At most 200 different ones; smaller scales only make steps of some columns shorter.
    """
    held = scale > 0.0
    if not held.any():
        return scale
    exponent = np.round(np.log2(scale[held]))
    rounded = np.zeros_like(scale)
    rounded[held] = np.exp2(np.minimum(exponent, exponent.min() + 200.0))
    return rounded


def _rows_of(X: Any) -> _core.Rows:
    """The data as the core reads them, in place."""
    if not isinstance(X, np.ndarray):
        return _core.Rows(X.data, X.indices, X.indptr, X.shape[1])
    if any(step % X.itemsize for step in X.strides):  # fields of a structured array, say
        X = np.ascontiguousarray(X)
    return _core.Rows(X)


def some_rows(n: int, count: int) -> NDArray[np.int64]:
    """All rows, or about `count` of more than twice as many: always the same, in no pattern."""
    if n <= 2 * count:
        return np.arange(n)
    chosen = np.zeros(n, dtype=bool)
    chosen[np.random.default_rng(0).integers(0, n, count)] = True
    return np.flatnonzero(chosen)


def _frozen(array: Any) -> Any:
    """A view that cannot be written to: compiled code then has one kind to deal with."""
    view = array.view()
    view.flags.writeable = False
    return view
