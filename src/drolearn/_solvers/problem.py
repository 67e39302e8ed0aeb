"""The objective of a robust linear model: its value, derivatives, and the units of its accuracy.

    F(θ) = R(losses of X w + c) + l2/2 ‖w‖² + l1 ‖w‖₁,    θ = (w, c) for each score

What is linear in the rows, and the scaled coordinates of solvers, come from `ScaledRows`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._inner.groups import Groups
from drolearn._inner.smoothing import Bend, can_smooth, smoothed
from drolearn._inner.worst_case import WorstCase, inner_maximum
from drolearn._solvers.scaled_rows import ScaledRows
from drolearn._solvers.subsample import subsample
from drolearn._solvers.workers import ordered_map
from drolearn.divergence import Divergence, as_divergence

__all__ = ["Evaluation", "Problem"]

Array = NDArray[np.float64]
_MEAN = as_divergence("chi2")  # with radius 0
# Rows of a chunk in sums that NumPy computes: temporary arrays of a chunk stay in the cache.
_CHUNK = 65_536


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
class Problem(ScaledRows):
    """The robust loss of linear models on some data.

    A problem is immutable.  `dataclasses.replace` makes variants, whose cached values are computed
    again.

    Parameters
    ----------
    X, y, weights, loss, l2, intercept, m, scaling, n_jobs, measured
        As in `ScaledRows`.
    divergence, rho, l1
        As in :func:`drolearn.solve`.
    groups : Groups, optional
        The ball then reweights groups; the weights of rows within a group stay in proportion.
    reference : array of shape (n,), optional
        Losses c of a reference model: the robust loss is then that of l − c, the robust regret.
    shared_ball : SharedBall, optional
        The smallest ball in which the zero model is optimal, if several problems share it.
    """

    divergence: Divergence = field(kw_only=True)
    rho: float = field(kw_only=True)
    l1: float = field(default=0.0, kw_only=True)
    groups: Groups | None = field(default=None, kw_only=True)
    reference: Array | None = field(default=None, kw_only=True)
    shared_ball: Any = field(default=None, kw_only=True)

    @property
    def local(self) -> bool:
        """Whether the rows are in this process, so that single rows can be used."""
        return True

    @property
    def zero_dual(self) -> Any:
        """What `smallest_ball` maximises, if it is not computed from rows in this process."""
        return None

    @property
    def base_weights(self) -> Array:
        """The weights of the rows as shares: the sum is one."""
        if self.weights is None:
            return np.full(self.n, 1.0 / self.n)
        return self.weights / self.weights.sum()

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

    @property
    def most_sampled(self) -> float:
        """The largest number of rows that `sample` returns."""
        return math.inf

    def sample(self, count: int) -> Problem:
        """The problem on about `count` rows, at random but always the same."""
        return self.subset(subsample(self.n, count))

    @cached_property
    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue of E x̃ x̃ᵀ, with x̃ the scaled rows of a subsample."""
        part = replace(self.sample(1024 if self.sparse else 4096), m=1)
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
    def penalty(self) -> Array:
        """l2 for each scaled coordinate: l2/2 ‖w‖² = ½ Σ penalty v²."""
        of_columns = self.l2 * self.columns[1]
        of_columns[-1] = 0.0
        return np.tile(of_columns, self.m)

    @cached_property
    def l1_penalty(self) -> Array:
        """λ for each scaled coordinate: l1 ‖w‖₁ = Σ λ |v|."""
        of_columns = self.l1 * self.root_scale
        of_columns[-1] = 0.0
        return np.tile(of_columns, self.m)

    def descent(self, plan: _core.Plan) -> _core.Descent:
        """The loop of stochastic solvers in the core, with random draws of a plan or given ones."""
        mean, scale, _ = self.columns
        return _core.Descent(
            (self.loss.core, self.divergence.core), self.l2, plan, self.rows,
            (self.y, self.weights, self.reference), (mean, scale),
        )  # fmt: skip

    @property
    def plain(self) -> bool:
        """Whether the robust loss is the plain mean."""
        return self.rho == 0.0 and self.divergence.has_radius

    @property
    def equal_at_zero(self) -> bool:
        """Whether the ball reweights rows that all have the same loss at the zero model.

        All weights are worst-case weights there, so the zero model may be optimal.
        """
        of_classes = self.loss.of != "residual" and self.reference is None
        return of_classes and self.groups is None and not self.plain

    # -- values and gradients ------------------------------------------------------------

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

    def trial(self, scores: Array, plain: bool = False, epsilon: float = 0.0) -> Evaluation | None:
        """Like `evaluate_or_none`, for a step of a line search: a small error is allowed."""
        return self.evaluate_or_none(scores, plain, epsilon)

    def refined(self, at: Evaluation) -> Evaluation:
        """The same evaluation without the error of a `trial`."""
        return at

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

    def group_losses(self, at: Evaluation) -> Array:
        """The mean losses of the groups."""
        if self.groups is None:
            raise RuntimeError("There are no groups.")
        return self.groups.means(at.losses)

    def with_group_weights(self, at: Evaluation, q: Array) -> Evaluation:
        """The evaluation with other weights of the groups."""
        if self.groups is None:
            raise RuntimeError("There are no groups.")
        return replace(at, worst=replace(at.worst, weights=self.groups.rows(q)), shares=q)

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

    def derivative_along(self, at: Evaluation, score_change: Array) -> float:
        """The derivative of R along a change of the scores."""
        of_rows = at.slopes * score_change
        if self.m > 1:
            of_rows = of_rows.reshape(-1, self.m).sum(axis=1)
        return float(at.worst.weights @ of_rows)

    @property
    def can_smooth(self) -> bool:
        """Whether the robust loss can be smoothed."""
        return can_smooth(self.divergence)

    def spread(self, at: Evaluation, unit: float) -> float:
        """The standard deviation of the losses of the units of the ball, divided by a unit."""
        losses = at.losses if self.groups is None else self.group_losses(at)
        return float((losses / unit).std())

    def largest_loss(self, at: Evaluation) -> float:
        """The largest loss of a row with positive weight; not the largest regret."""
        losses = at.losses if self.reference is None else at.losses + self.reference
        return float((losses if self.weights is None else losses[self.weights > 0.0]).max())

    def largest_slope(self, at: Evaluation) -> float:
        """The largest derivative of a loss in a score, in absolute value."""
        return float(abs(at.slopes).max())

    # -- units of accuracies, and the value with the penalty -----------------------------

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

    def without_reference(self) -> Problem:
        """The same problem without a reference: its value is the robust loss."""
        return replace(self, reference=None)

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
        """The penalty l2/2 ‖w‖² + l1 ‖w‖₁ of a model."""
        w = theta[:, :-1]
        penalty = 0.5 * self.l2 * float(np.sum(np.square(w)))
        return penalty + self.l1 * float(abs(w).sum()) if self.l1 else penalty

    # -- Hessians and certificates -------------------------------------------------------

    def second_order(
        self, at: Evaluation, multipliers: tuple[float, float] | None
    ) -> tuple[Array, Array, Array]:
        """Σ p l'' x̃x̃ᵀ + X̃ᵀ diag(v l'²) X̃, C̃ and M: the Hessian of R is the first − C̃ M⁻¹ C̃ᵀ.

        `multipliers` are α and λ; None for the plain mean, where v = 0.  For m = 1.
        """
        if multipliers is None:
            hessian = self.weighted_hessian(at)
            return hessian, np.zeros((self.size, 2)), np.zeros((2, 2))
        factors, inner = self.second_order_rows(at, multipliers)
        return *self.gram(*factors), inner

    def second_order_rows(
        self, at: Evaluation, multipliers: tuple[float, float]
    ) -> tuple[Array, Array]:
        """p l'' + v l'² and the two columns C of the rows, and M; see `second_order`."""
        curvature = self.loss.bends(at.scores, self.y, self.threads)
        out, losses = np.empty((3, self.n)), (at.losses, self.weights)
        aa, ab, bb = _core.second_order(
            self.divergence.core, losses, at.worst.weights, multipliers, (at.slopes, curvature),
            out, self.threads,
        )  # fmt: skip
        return out, np.array([[aa, ab], [ab, bb]])

    def weighted_hessian(self, at: Evaluation) -> Array:
        """The Hessian of the weighted loss Σ p l without penalty.

        For m classes with probabilities q, l'' is the matrix diag(q) − q qᵀ of each row.
        """
        p, m = at.worst.weights, self.m
        if m == 1:
            return self.gram(p * self.loss.bends(at.scores, self.y, self.threads))[0]
        size, q = self.d + 1, self.probabilities(at)
        hessian = np.empty((m, size, m, size))
        for k in range(m):
            hessian[k, :, k] = self.gram(p * q[:, k] * (1.0 - q[:, k]))[0]
            for other in range(k):
                block = -self.gram(p * q[:, k] * q[:, other])[0]
                hessian[k, :, other], hessian[other, :, k] = block, block.T
        return hessian.reshape(m * size, m * size)

    def probabilities(self, at: Evaluation) -> Array:
        """The probabilities of the classes, one line for each row."""
        q = at.slopes.reshape(-1, self.m).copy()
        q[np.arange(self.n), self.y.astype(np.int64)] += 1.0
        return q

    def dual_sums(self, at: Evaluation, delta: Array | None) -> tuple[float, Array]:
        """Σ p (l*(u) + c) and X̃ᵀ(p u) at u = l' − l'' X̃δ, moved to where l* is finite; see
        `duality_gap`.  Without δ, u = l', and the second is not needed.
        """
        conjugate, p = self.loss.conjugate, at.worst.weights
        if conjugate is None:
            raise RuntimeError("The loss has no conjugate.")
        u = (
            at.slopes
            if delta is None
            else self._slopes_after(at, self.scores(self.to_model(delta)))
        )

        def of_chunk(chunk: int) -> float:
            rows = slice(chunk * _CHUNK, (chunk + 1) * _CHUNK)
            positive = p[rows] > 0.0
            scores = slice(rows.start * self.m, rows.stop * self.m)
            return float(p[rows][positive] @ conjugate(u[scores], self.y[rows])[positive])

        total = sum(ordered_map(of_chunk, -(-self.n // _CHUNK), self.threads))
        if self.reference is not None:
            total += float(p @ self.reference)
        if delta is None:
            return total, np.zeros(self.size)
        return total, self.scaled_gradient(self.data_gradient(u, p))

    def _slopes_after(self, at: Evaluation, f: Array) -> Array:
        """l' − l'' f for scores f, moved to where l* is finite."""
        y, m = self.y, self.m
        if m == 1:
            curvature = self.loss.bends(at.scores, y, self.threads)
            return self.loss.clip_slopes(at.slopes - curvature * f, y)
        q, f = self.probabilities(at), f.reshape(-1, m)
        moved = np.maximum(q * (1.0 - f + (q * f).sum(axis=1, keepdims=True)), 0.0)
        moved /= np.maximum(moved.sum(axis=1, keepdims=True), 1e-300)
        moved[np.arange(self.n), y.astype(np.int64)] -= 1.0
        return moved.ravel()
