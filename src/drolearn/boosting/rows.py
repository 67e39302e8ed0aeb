"""What objectives and metrics share: the ball, and rows as LightGBM and XGBoost pass them."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.groups import Groups, worst_of_rows
from drolearn._inner.worst_case import worst_case
from drolearn._validation import as_groups, as_vector, as_weights, refuse_not_finite
from drolearn.divergence import Divergence, as_divergence, radius_for
from drolearn.loss import Loss, as_loss

__all__ = ["Ball", "Rows", "rows_of", "scores_of"]

Array = NDArray[np.float64]
# Losses are equal in the first round.  Rounding errors of means must not decide which is worst.
_ROUNDING = 1e-12


class Rows(NamedTuple):
    """Scores, labels as the loss takes them, and weights."""

    scores: Array
    y: Array
    weights: Array | None


class Ball:
    """A ball over rows, or over the groups of a known number of rows."""

    def __init__(
        self,
        rho: float | None,
        divergence: str | Divergence,
        groups: ArrayLike | None,
        loss: str | Loss,
        reference_losses: ArrayLike | None = None,
    ) -> None:
        self.divergence, self.loss = as_divergence(divergence), as_loss(loss)
        radius = radius_for(self.divergence, rho)
        self.rho = radius if self.divergence.has_radius else None
        if self.loss.of == "classes":
            raise ValueError(
                f"The 'loss' parameter must be a loss of two classes or of a residual, such as "
                f"'logistic' or 'squared'. Got {self.loss.name!r} instead; for several classes use "
                f"RobustEnsembleClassifier."
            )
        self.names: NDArray[Any] | None = None
        self.membership: NDArray[Any] | None = None
        if groups is not None:
            self.names, self.membership = as_groups(groups, len(np.asarray(groups)))
        self.reference: Array | None = None
        if reference_losses is not None:
            self.reference = as_vector("reference_losses", reference_losses)
            refuse_not_finite("reference_losses", self.reference)

    def without_rows(self) -> Ball:
        """The ball without what belongs to single rows."""
        ball = copy(self)
        ball.membership = ball.reference = None
        return ball

    def regrets(self, z: Array) -> Array:
        """The losses, minus those of the reference if there is one."""
        if self.reference is None:
            return z
        if self.reference.size != z.size:
            raise ValueError(
                f"The 'reference_losses' parameter must have one loss for each of the {z.size} "
                f"rows of the data set. Got {self.reference.size} instead."
            )
        return z - self.reference

    def groups(self, rows: Rows) -> Groups | None:
        """The groups of these rows."""
        if self.membership is None:
            return None
        if len(self.membership) != rows.y.size:
            raise ValueError(
                f"The 'groups' parameter must name the group of each of the {rows.y.size} rows of "
                f"the data set. Got {len(self.membership)} names instead; training and validation "
                f"rows need an objective and a metric of their own."
            )
        return Groups.make(self.membership, rows.weights)

    def worst(self, losses: Array, weights: Array | None) -> Array:
        """The worst-case weights of the groups, or of the rows if there are no groups."""
        if np.ptp(losses) <= _ROUNDING * np.abs(losses).max():
            losses = np.zeros_like(losses)
        return worst_case(losses, self.rho, self.divergence, weights).weights

    def robust_loss(self, z: Array, rows: Rows) -> float:
        """The robust loss of these rows."""
        groups = self.groups(rows)
        return worst_of_rows(z, self.rho, self.divergence, rows.weights, groups).value


def scores_of(first: Any, second: Any) -> Array:
    """The scores from (scores, data set) or (labels, scores)."""
    scores = first if hasattr(second, "get_label") else second
    f = as_vector("scores", np.asarray(scores, dtype=np.float64))
    refuse_not_finite("scores", f)
    return f


def rows_of(first: Any, second: Any, sample_weight: Any, loss: Loss) -> Rows:
    """Rows from (scores, data set), or from (labels, scores) of scikit-learn's interface."""
    if hasattr(second, "get_label"):
        labels = second.get_label()
        found = second.get_weight()
        sample_weight = None if found is None or len(found) == 0 else found
    else:
        labels = first
    y = np.asarray(labels, dtype=np.float64)
    f = scores_of(first, second)
    if f.size != y.size:
        raise ValueError(
            f"A robust objective needs one score for each of the {y.size} rows. Got {f.size} "
            f"instead; for several classes use RobustEnsembleClassifier."
        )
    if loss.of == "margin":
        if not np.isin(y, (-1.0, 0.0, 1.0)).all():
            raise ValueError(
                f"Labels for loss={loss.name!r} must be 0 and 1, or -1 and 1. Got "
                f"{y[~np.isin(y, (-1.0, 0.0, 1.0))][0]:g} instead."
            )
        y = np.where(y > 0.0, 1.0, -1.0)
    weights = None if sample_weight is None else as_weights(np.asarray(sample_weight), y.size)
    return Rows(f, np.ascontiguousarray(y), weights)
