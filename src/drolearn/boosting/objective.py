"""`robust_objective`: gradients of the robust loss for boosted trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.groups import Groups
from drolearn._validation import float_or_nan
from drolearn.boosting.rows import Ball, GroupMeans, Rows, rows_of, scores_of
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["RobustObjective", "robust_objective"]

Array = NDArray[np.float64]


class RobustObjective:
    """An objective of LightGBM and XGBoost; make it with :func:`robust_objective`.

    Parameters
    ----------
    ball : Ball
        The ball, the groups of the training rows, and the loss.
    step : float
        The part of the way to the worst case that the weights move in each round.

    Attributes
    ----------
    groups_ : ndarray or None
        Names of the groups.
    group_weights_ : ndarray or None
        Damped worst-case weights of the groups after the last round.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn.boosting import robust_objective
    >>> objective = robust_objective(rho=1.0, groups=["a", "a", "b"], loss="squared")
    >>> gradient, hessian = objective(np.array([1.0, 2.0, 9.0]), np.zeros(3))  # labels, scores
    >>> objective.group_weights_.round(2)
    array([0.62, 0.38])
    """

    def __init__(self, ball: Ball, step: float) -> None:
        self._ball, self._step = ball, step
        self._rows: Any = None  # the first round sets it
        self._started = False
        self._groups: Groups | None = None
        self._means: Any = None
        self._shares, self._total = np.empty(0), 0.0
        self.groups_ = ball.names
        self.group_weights_: Array | None = None

    def __call__(
        self, first: Any, second: Any, sample_weight: Any = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Compute gradient and Hessian, from (scores, data set) or (labels, scores, weights)."""
        scores = scores_of(first, second)
        if not self._started or scores.max() == scores.min():  # the first round
            self._start(rows_of(first, second, sample_weight, self._ball.loss))
        y, loss = self._rows.y, self._ball.loss
        if scores.size != y.size:
            raise ValueError(
                f"A robust objective belongs to one training set, of {y.size} rows. Got "
                f"{scores.size} rows instead: make a new one for each fit."
            )
        z, slopes = loss.of_scores(scores, y)
        weights = self._damped(self._ball.regrets(z))
        # Both libraries compute in single precision, and would convert.
        gradient, hessian = np.empty((2, y.size), dtype=np.float32)
        np.multiply(weights, slopes, out=gradient, casting="same_kind")
        np.multiply(weights, loss.bends(scores, y), out=hessian, casting="same_kind")
        return gradient, hessian

    def __deepcopy__(self, memo: object) -> RobustObjective:
        """Return the objective itself: LightGBM copies its parameters, and would copy all rows."""
        return self

    @property
    def of_classes(self) -> bool:
        """Whether labels are classes, 0 and 1."""
        return self._ball.loss.of == "margin"

    def release(self) -> None:
        """Forget the rows and their groups, which a fitted model does not need.

        Examples
        --------
        >>> from drolearn.boosting import robust_objective
        >>> robust_objective(rho=1.0, groups=["a", "b"]).release()
        """
        self._ball, self._rows, self._started = self._ball.without_rows(), None, False
        self._groups = self._means = None

    def _start(self, rows: Rows) -> None:
        self._started, self._rows = True, rows
        self._total = float(rows.y.size if rows.weights is None else rows.weights.sum())
        self._groups = self._ball.groups(rows)
        if self._groups is not None:
            self._means, self._shares = GroupMeans(self._groups), self._groups.shares
        elif rows.weights is None:
            self._shares = np.full(rows.y.size, 1.0 / rows.y.size)
        else:
            self._shares = rows.weights / rows.weights.sum()

    def _damped(self, z: Array) -> Array:
        """Move the shares towards the worst case, and return weights of rows.

        Their sum is that of the sample weights, so that settings such as the least weight of a leaf
        mean the same as in a plain fit.
        """
        groups = self._groups
        if groups is None:
            worst = self._ball.worst(z, self._rows.weights)
        else:
            worst = self._ball.worst(self._means(z), groups.shares)
        self._shares = self._shares + self._step * (worst - self._shares)
        if groups is None:
            return self._shares * self._total
        self.group_weights_ = self._shares
        return groups.rows(self._shares * self._total)


def robust_objective(
    rho: float | None = None,
    divergence: str | Divergence = "chi2",
    *,
    groups: ArrayLike | None = None,
    loss: str | Loss = "logistic",
    step: float = 0.1,
    reference_losses: ArrayLike | None = None,
) -> RobustObjective:
    """Make an objective for LightGBM or XGBoost: the loss on the worst reweighting of the rows.

    In each round, the weights of the rows, or of the groups, move by a part of the way towards
    their worst case.  Gradients and Hessians are multiplied by these weights, scaled to the sum of
    the sample weights: at ρ = 0 they are those of plain boosting.

    Parameters
    ----------
    rho : float, default=None
        Radius of the ball; None is 0.1.  CVaR has no radius: leave it None.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball, as in :func:`drolearn.worst_case`.
    groups : array-like of shape (n,) or (n, k), default=None
        Group of each training row, as in :meth:`drolearn.RobustClassifier.fit`.  The ball then
        reweights groups.  On flexible models, balls over rows attack noisy labels.
    loss : str or Loss, default="logistic"
        A loss of two classes with labels 0 and 1, or of a residual: "logistic", "squared", "huber".
    step : float, default=0.1
        The part of the way to the worst case, above 0 and at most 1.  With 1, weights jump between
        groups, and late rounds lose what earlier ones learned.
    reference_losses : array-like of shape (n,), default=None
        Losses of a reference model on the training rows, from :func:`drolearn.reference_losses`.
        They are subtracted: the worst case is that of the regret.

    Returns
    -------
    RobustObjective
        A function for ``lightgbm.train({"objective": f})``, ``xgboost.train(obj=f)`` and for
        `objective` of the estimators of both libraries.  A fit starts anew where all scores are
        equal; with scores to start from, make one objective for each fit.

    Raises
    ------
    ValueError
        If an argument is not valid; during the fit, if labels or groups do not fit the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn.boosting import robust_objective
    >>> labels, scores = np.array([1.0, 0.0, 1.0, 0.0]), np.zeros(4)
    >>> gradient, hessian = robust_objective(0.1)(labels, scores)  # as scikit-learn's interface
    >>> gradient
    array([-0.5,  0.5, -0.5,  0.5], dtype=float32)
    """
    if not 0.0 < float_or_nan(step) <= 1.0:
        raise ValueError(
            f"The 'step' parameter must be a number above 0 and at most 1. Got {step!r} instead."
        )
    return RobustObjective(Ball(rho, divergence, groups, loss, reference_losses), float(step))
