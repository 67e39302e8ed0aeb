"""`robust_objective`: gradients of the robust loss for boosted trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._validation import float_or_nan
from drolearn.boosting.rows import Ball, Rows, rows_of, scores_of
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
        self._fit: _Fit | None = None  # the first round makes it
        self.groups_ = ball.names
        self.group_weights_: Array | None = None

    def __call__(
        self, first: Any, second: Any, sample_weight: Any = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Compute gradient and Hessian, from (scores, data set) or (labels, scores, weights).

        The next call writes into the same arrays.
        """
        scores, fit = scores_of(first, second), self._fit
        if fit is None or _equal(scores):  # the first round
            fit = self._fit = _Fit(
                self._ball, rows_of(first, second, sample_weight, self._ball.loss)
            )
        n = fit.rows.y.size
        if scores.size != n:
            raise ValueError(
                f"A robust objective belongs to one training set, of {n} rows. Got "
                f"{scores.size} rows instead: make a new one for each fit."
            )
        derivatives = fit.derivatives(scores, self._step)
        self.group_weights_ = None if fit.groups is None else fit.shares
        return derivatives

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
        self._ball, self._fit = self._ball.without_rows(), None


class _Fit:
    """One fit: its rows and groups, the damped weights, and memory that all rounds share.

    Fresh memory in each round would take longer than the computation.
    """

    def __init__(self, ball: Ball, rows: Rows) -> None:
        n, weights = rows.y.size, rows.weights
        self.rows = rows
        self.groups = ball.groups(rows)
        self._ball = ball
        self._total = float(n if weights is None else weights.sum())
        self._work, self._out = np.empty((4, n)), np.empty((2, n), dtype=np.float32)
        if self.groups is not None:
            self.shares = self.groups.shares
            self._matrix = self.groups.as_matrix()
        else:
            self.shares = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()

    def derivatives(
        self, scores: Array, step: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Gradient and Hessian, after the weights have moved by a step."""
        z, slopes, bends, weights = self._work
        loss, y = self._ball.loss.core, self.rows.y
        _core.losses(loss, scores, y, z, slopes, 1)
        _core.bends(loss, scores, y, bends, 1)
        self._move(self._ball.regrets(z), step)
        self._weigh(weights)
        # Both libraries compute in single precision, and would convert.
        gradient, hessian = self._out
        np.multiply(weights, slopes, out=gradient, casting="same_kind")
        np.multiply(weights, bends, out=hessian, casting="same_kind")
        return gradient, hessian

    def _move(self, z: Array, step: float) -> None:
        """Move the shares of groups or rows towards the worst case."""
        if self.groups is None:
            worst = self._ball.worst(z, self.rows.weights)
        else:
            worst = self._ball.worst(self._matrix @ z, self.groups.shares)
        self.shares = self.shares + step * (worst - self.shares)

    def _weigh(self, out: Array) -> None:
        """The weights of rows.

        Their sum is that of the sample weights, so that settings such as the least weight of a leaf
        mean the same as in a plain fit.
        """
        groups, scaled = self.groups, self.shares * self._total
        if groups is None:
            out[:] = scaled
        elif groups.of is None or groups.inside is None:
            out[:] = groups.rows(scaled)
        else:
            np.take(scaled, groups.of, out=out, mode="clip")  # the mode "raise" would copy
            out *= groups.inside


def _equal(scores: Array) -> bool:
    return bool(scores[0] == scores[-1] and scores.max() == scores.min())


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
        reweights groups.  Balls over rows give most weight to rows with wrong labels.
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
