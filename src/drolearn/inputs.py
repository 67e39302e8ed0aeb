"""What may be given to a solver: data, labels, weights and seeds, checked once for all methods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn.divergence import Divergence, as_divergence
from drolearn.loss import Loss, as_loss
from drolearn.problem import Problem
from drolearn.worst_case import as_base, as_radius, without_dust

__all__ = [
    "as_generator",
    "as_groups",
    "as_labels",
    "as_problem",
    "as_start",
    "make_problem",
]

Array = NDArray[np.float64]


def as_problem(
    X: Any,
    y: ArrayLike,
    *,
    rho: float,
    divergence: str | Divergence,
    loss: str | Loss,
    l2: float,
    fit_intercept: bool,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    n_jobs: int | None,
) -> Problem:
    """A problem of checked parts."""
    from sklearn.utils import check_array, check_consistent_length

    form = as_loss(loss)
    kinds: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "input_name": "X"}
    X = check_array(X, **kinds)
    check_consistent_length(X, y)
    return make_problem(
        X,
        as_labels(y, form),
        None if sample_weight is None else as_base(sample_weight, X.shape[0], "sample_weight"),
        None if groups is None else as_groups(groups, X.shape[0])[1],
        rho=rho,
        divergence=as_divergence(divergence),
        loss=form,
        l2=l2,
        fit_intercept=fit_intercept,
        n_jobs=n_jobs,
    )


def make_problem(
    X: Any,
    labels: Array,
    weights: Array | None,
    groups: NDArray[np.int64] | None,
    *,
    rho: float,
    divergence: Divergence,
    loss: Loss,
    l2: float,
    fit_intercept: bool,
    n_jobs: int | None,
) -> Problem:
    """A problem of data, labels, weights and groups that were checked before."""
    if not isinstance(X, np.ndarray) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if not (isinstance(l2, int | float | np.number) and 0.0 <= l2 < math.inf):
        raise ValueError(
            f"The 'l2' parameter must be a finite number of at least 0. Got {l2!r} instead."
        )
    if weights is not None and loss.of == "residual":
        labels = np.where(weights > 0.0, labels, 0.0)  # rows without weight say nothing
    return Problem(
        X,
        labels,
        without_dust(divergence, np.empty(0) if weights is None else weights),
        loss=loss,
        divergence=divergence,
        rho=as_radius(rho),
        l2=float(l2),
        intercept=bool(fit_intercept),
        groups=groups,
        n_jobs=n_jobs,
    )


def as_start(problem: Problem, start: ArrayLike | None) -> Array:
    """The coefficients to start from, zeros if none are given."""
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


def as_groups(groups: ArrayLike, n: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The names of the groups, and the number of each row's group."""
    given = np.asarray(groups)
    if given.shape != (n,):
        raise ValueError(
            f"The 'groups' parameter must name the group of each of the {n} rows. "
            f"Got an array of shape {given.shape} instead."
        )
    # What is not equal to itself is not a number, not a time, or missing.
    if (given.dtype.kind == "f" and not np.isfinite(given).all()) or np.any(given != given):
        raise ValueError(
            "The 'groups' parameter must not hold NaN or infinity: give rows of unknown groups a "
            "name of their own."
        )
    return distinct("groups", given)


def distinct(parameter: str, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes in order, and the place of each value among them.

    Looking places up is several times as fast as the sort of `np.unique(return_inverse=True)`.
    """
    try:
        classes = np.unique(values)
        return classes, np.searchsorted(classes, values)
    except TypeError as error:
        raise ValueError(
            f"The '{parameter}' parameter must hold labels of one kind, all strings or all "
            f"numbers. Got a mix of kinds that cannot be sorted."
        ) from error


def as_labels(y: ArrayLike, loss: Loss) -> Array:
    """Labels as the loss wants them: numbers, ±1, or 0 … m−1."""
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
    classes, places = distinct("y", labels)
    if classes.size < 2:
        raise ValueError(
            f"The 'y' parameter must have at least two classes. Got one class instead: "
            f"{classes[0]}."
        )
    if loss.of == "classes":
        return places.astype(np.float64)
    if classes.size > 2:
        raise ValueError(
            f"The 'y' parameter must have two classes for loss={loss.name!r}. Got "
            f"{classes.size} instead; loss='multinomial' takes any number."
        )
    return np.where(places == 1, 1.0, -1.0)


def as_generator(random_state: Any) -> np.random.Generator:
    """A generator of its own; one that was given moves on."""
    if isinstance(random_state, np.random.Generator):
        return np.random.default_rng(int(random_state.integers(2**62)))
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(2**31 - 1)))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if random_state is None or (whole and random_state >= 0):
        return np.random.default_rng(random_state)
    raise ValueError(
        f"The 'random_state' parameter must be None, an integer of at least 0, a Generator or a "
        f"RandomState. Got {random_state!r} instead."
    )
