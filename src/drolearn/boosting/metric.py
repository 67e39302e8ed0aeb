"""`robust_metric`: the robust loss of validation rows."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from drolearn.boosting.rows import Ball, rows_of
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["RobustMetric", "robust_metric"]


class RobustMetric:
    """A metric of LightGBM and XGBoost; make it with :func:`robust_metric`.

    Parameters
    ----------
    ball : Ball
        The ball, the groups of the validation rows, and the loss.

    Examples
    --------
    >>> from drolearn.boosting import robust_metric
    >>> robust_metric(rho=1.0, loss="squared")([1.0, 2.0], [1.0, 0.0])  # labels, scores
    ('robust_loss', 2.0, False)
    """

    def __init__(self, ball: Ball) -> None:
        self._ball = ball
        self.__name__ = "robust_loss"

    def __deepcopy__(self, memo: object) -> RobustMetric:
        """Return the metric itself: LightGBM copies its parameters, and would copy all rows."""
        return self

    def release(self) -> None:
        """Forget the groups of the rows, which a fitted model does not need.

        Examples
        --------
        >>> from drolearn.boosting import robust_metric
        >>> robust_metric(rho=1.0, groups=["a", "b"]).release()
        """
        self._ball = self._ball.without_rows()

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Any, ...]:
        """Compute the robust loss, from (scores, data set) or (labels, scores, weights)."""
        rows = rows_of(first, second, sample_weight, self._ball.loss)
        z = self._ball.loss.of_scores(rows.scores, rows.y)[0]
        value = self._ball.robust_loss(self._ball.regrets(z), rows)
        if type(second).__module__.startswith("xgboost"):
            return self.__name__, value
        return self.__name__, value, False  # smaller is better


def robust_metric(
    rho: float | None = None,
    divergence: str | Divergence = "chi2",
    *,
    groups: ArrayLike | None = None,
    loss: str | Loss = "logistic",
    reference_losses: ArrayLike | None = None,
) -> RobustMetric:
    """Make a metric for LightGBM or XGBoost: the robust loss of validation rows.

    Parameters
    ----------
    rho : float, default=None
        Radius of the ball; None is 0.1.  CVaR has no radius: leave it None.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball, as in :func:`drolearn.worst_case`.
    groups : array-like of shape (n,) or (n, k), default=None
        Group of each validation row.
    loss : str or Loss, default="logistic"
        The loss of the objective.
    reference_losses : array-like of shape (n,), default=None
        Losses of a reference model on the validation rows, which are subtracted.

    Returns
    -------
    RobustMetric
        A function for `feval` of ``lightgbm.train``, `custom_metric` of ``xgboost.train`` and
        `eval_metric` of LightGBM's estimators.  It takes scores, as custom objectives give them.

    Raises
    ------
    ValueError
        If an argument is not valid; during the fit, if labels or groups do not fit the rows.

    Examples
    --------
    >>> from drolearn.boosting import robust_metric
    >>> name, value, _ = robust_metric(rho=0.0)([1.0, 0.0], [0.0, 0.0])
    >>> name, round(value, 3)
    ('robust_loss', 0.693)
    """
    return RobustMetric(Ball(rho, divergence, groups, loss, reference_losses))
