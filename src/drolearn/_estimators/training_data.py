"""Validated training data, and what estimators accept as data and sample weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from drolearn._validation import as_weights

__all__ = ["LARGEST_AUTO_PENALTY", "X_FORMATS", "TrainingData", "as_sample_weights"]

Array = NDArray[np.float64]
# The largest automatic penalty. Computations with it do not overflow, and a larger one would change
# nothing: the coefficients are already zero in effect.
LARGEST_AUTO_PENALTY = 2.0**900
# What `validate_data` accepts for X.
X_FORMATS: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Validated arguments of `fit`."""

    X: Any
    y: NDArray[Any]
    """Labels as they were passed."""
    targets: Array
    """Labels as the loss expects them: ±1, class indices, or real numbers."""
    weights: Array | None
    """Sample weights times class weights, divided by 2^weight_exponent."""
    weight_exponent: int = 0
    reference: Array | None = None
    """Losses of a reference model."""

    def select(self, rows: Any) -> TrainingData:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        X, y, targets = self.X[rows], self.y[rows], self.targets[rows]
        reference = None if self.reference is None else self.reference[rows]
        return TrainingData(X, y, targets, weights, self.weight_exponent, reference)

    def penalty(self, l2: float | str, rows: Any = slice(None)) -> float:
        """Return l2, where "auto" is 1/Σw over the given rows with the weights as passed."""
        if not isinstance(l2, str):
            return float(l2)
        if self.weights is None:
            return 1.0 / self.y[rows].size
        # If all weights of these rows are zero, `fit` raises an error.
        mantissa, exponent = math.frexp(float(self.weights[rows].sum()) or 1.0)
        exponent = min(-exponent - self.weight_exponent, 1000)
        return min(math.ldexp(1.0 / mantissa, exponent), LARGEST_AUTO_PENALTY)


def as_sample_weights(sample_weight: Any, X: Any) -> tuple[Array | None, int]:
    """Validate sample weights; return w and e, where the weights as passed are w · 2^e."""
    if sample_weight is None:
        return None, 0
    given = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    weights = as_weights(given, X.shape[0])
    # `as_weights` scales very large and very small weights by a power of two.
    return weights, math.frexp(given.max())[1] - math.frexp(weights.max())[1]
