"""Checks of data, labels and weights, and the `Problem` made from them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import without_dust
from drolearn._solvers.problem import Problem
from drolearn._validation import (
    as_groups,
    as_vector,
    as_weights,
    distinct,
    float_or_nan,
    refuse_missing,
    refuse_not_finite,
)
from drolearn.divergence import Divergence, as_divergence, radius_for
from drolearn.loss import Loss, as_loss

__all__ = ["as_labels", "as_problem", "as_reference_losses", "as_start", "make_problem"]

Array = NDArray[np.float64]
# Squares of targets of regressions must be finite, with room for sums of them.
_LARGEST_Y = 1e140


def as_problem(
    X: Any,
    y: ArrayLike,
    *,
    rho: float | None,
    divergence: str | Divergence,
    loss: str | Loss,
    l2: float,
    fit_intercept: bool,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    n_jobs: int | None,
    reference_losses: ArrayLike | None = None,
    l1: float = 0.0,
) -> Problem:
    """Check what a user passed to `solve`, and make a problem of it."""
    from sklearn.utils import check_array, check_consistent_length

    loss = as_loss(loss)
    if not isinstance(fit_intercept, bool | np.bool_):  # "no" would be true
        raise ValueError(
            f"The 'fit_intercept' parameter must be True or False. Got {fit_intercept!r} instead."
        )
    accepted: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "input_name": "X"}
    X = check_array(X, **accepted)
    check_consistent_length(X, y)
    return make_problem(
        X,
        as_labels(y, loss),
        None if sample_weight is None else as_weights(sample_weight, X.shape[0]),
        None if groups is None else as_groups(groups, X.shape[0])[1],
        rho=rho,
        divergence=as_divergence(divergence),
        loss=loss,
        l2=l2,
        l1=l1,
        fit_intercept=fit_intercept,
        n_jobs=n_jobs,
        reference=as_reference_losses(reference_losses, X.shape[0]),
    )


def make_problem(
    X: Any,
    labels: Array,
    weights: Array | None,
    groups: NDArray[np.int64] | None,
    *,
    rho: float | None,
    divergence: Divergence,
    loss: Loss,
    l2: float,
    fit_intercept: bool,
    n_jobs: int | None,
    reference: Array | None = None,
    l1: float = 0.0,
) -> Problem:
    """A problem of data, labels, weights and groups that are already checked."""
    if not isinstance(X, np.ndarray) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    for name, strength in (("l2", l2), ("l1", l1)):
        if not 0.0 <= float_or_nan(strength) < math.inf:
            raise ValueError(
                f"The '{name}' parameter must be a finite number of at least 0. Got {strength!r} "
                f"instead."
            )
    if loss.of == "residual":
        if weights is not None:
            labels = np.where(weights > 0.0, labels, 0.0)  # ignore rows without weight
        largest = float(abs(labels).max())
        if largest > _LARGEST_Y:
            raise ValueError(
                f"The 'y' parameter must hold numbers of at most {_LARGEST_Y:.0e} in absolute "
                f"value, so that squares do not overflow. Got {largest:.3g}: rescale y, for "
                f"example with StandardScaler."
            )
    radius = radius_for(divergence, rho)
    if weights is not None:
        weights = without_dust(divergence, radius, weights)
    parts = None
    if groups is not None:
        parts = Groups.make(groups, weights)
        parts = replace(parts, shares=without_dust(divergence, radius, parts.shares))
        if parts.matrix is not None:  # rows in several groups count several times
            weights = parts.rows(parts.shares)
    return Problem(
        X,
        labels,
        weights,
        loss=loss,
        divergence=divergence,
        rho=radius,
        l2=float(l2),
        l1=float(l1),
        intercept=bool(fit_intercept),
        m=int(labels.max()) + 1 if loss.of == "classes" else 1,
        groups=parts,
        n_jobs=n_jobs,
        reference=reference,
    )


def as_reference_losses(losses: ArrayLike | None, n: int) -> Array | None:
    """The losses of a reference model, one for each of n rows; None if there is none."""
    if losses is None:
        return None
    c = as_vector("reference_losses", losses)
    if c.size != n:
        raise ValueError(
            f"The 'reference_losses' parameter must have one loss for each of the {n} rows. "
            f"Got {c.size} instead."
        )
    refuse_not_finite("reference_losses", c)
    return c


def as_start(problem: Problem, start: ArrayLike | None) -> Array:
    """The model to start from; zeros if none is given."""
    theta = problem.zeros()
    if start is not None:
        given = np.asarray(start, dtype=np.float64)
        if given.size != theta.size or not np.isfinite(given).all():
            raise ValueError(
                f"The 'start' parameter must hold {theta.size} finite numbers, the intercept "
                f"last. Got an array of shape {given.shape} instead."
            )
        theta[:] = given.reshape(theta.shape)
    return theta


def as_labels(y: ArrayLike, loss: Loss) -> Array:
    """Labels in the form of the loss: numbers, ±1, or 0 … m−1."""
    from sklearn.utils import column_or_1d
    from sklearn.utils.validation import _check_y

    if loss.of == "residual":
        return np.ascontiguousarray(_check_y(y, y_numeric=True), dtype=np.float64)
    labels = column_or_1d(y)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(
            f"The 'y' parameter must not hold NaN or infinity. "
            f"Got {int((~np.isfinite(labels)).sum())} of them."
        )
    refuse_missing("y", labels)
    classes, codes = distinct("y", labels)
    if classes.size < 2:
        raise ValueError(
            f"The 'y' parameter must have at least two classes. Got one class instead: "
            f"{classes[0]}."
        )
    if loss.of == "classes":
        return codes.astype(np.float64)
    if classes.size > 2:
        raise ValueError(
            f"The 'y' parameter must have two classes for loss={loss.name!r}. Got "
            f"{classes.size} instead; use loss='multinomial'."
        )
    return np.where(codes == 1, 1.0, -1.0)
