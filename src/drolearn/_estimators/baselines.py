"""Models without a ball that robust models are compared with, beside those of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from drolearn._inner.worst_case import worst_case
from drolearn._validation import as_groups
from drolearn.metrics import log_losses

__all__ = ["Temperature", "inverse_frequencies"]

# The logarithm of the temperature lies between these.
_BOUNDS = (-5.0, 2.0)


class Temperature(ClassifierMixin, BaseEstimator):
    """Plain scores times one number, chosen for the robust loss of the training rows.

    Much of what a ball over rows gains in log loss is that scores are smaller.  This model has that
    gain, and the classes of the plain model.

    Parameters
    ----------
    rho : float, default=0.1
        Radius of the χ² ball.
    """

    def __init__(self, rho: float = 0.1) -> None:
        self.rho = rho

    def fit(self, X: Any, y: NDArray[Any]) -> Self:
        """Fit LogisticRegression(), then the number."""
        self.model = LogisticRegression(max_iter=1000).fit(X, y)
        self.classes_ = self.model.classes_

        def robust_loss(log_factor: float) -> float:
            self.factor = np.exp(log_factor)
            return worst_case(log_losses(self.predict_proba(X), y, self.classes_), self.rho).value

        best: Any = minimize_scalar(robust_loss, bounds=_BOUNDS)
        self.factor = float(np.exp(best.x))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the classes, which are those of the plain model."""
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probabilities of the scaled scores."""
        scores = self.factor * self.model.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)


def inverse_frequencies(groups: ArrayLike) -> NDArray[np.float64]:
    """Weights with which all groups count the same; their mean is 1."""
    codes = as_groups(groups, len(np.asarray(groups)))[1]
    counts = np.bincount(codes)
    return codes.size / counts.size / counts[codes]
