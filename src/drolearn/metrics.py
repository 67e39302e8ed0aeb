"""Losses of single rows from the predictions of any model, for :func:`drolearn.worst_case`.

log_losses        −log of the probability of the true class
brier_losses      squared distance of the probabilities from the true class
squared_losses    ½ (prediction − y)²
absolute_losses   |prediction − y|
zero_one_losses   1 where the predicted label is wrong, 0 elsewhere

scikit-learn's metrics return means over rows; a worst case needs the loss of each row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._validation import (
    as_reals,
    as_vector,
    did_you_mean,
    distinct,
    refuse_masked,
    refuse_missing,
    refuse_not_finite,
)

__all__ = ["absolute_losses", "brier_losses", "log_losses", "squared_losses", "zero_one_losses"]

Array = NDArray[np.float64]
Labels = NDArray[Any]

# Rounding errors of probabilities that are accepted in every precision: float64 arrays may hold
# numbers that a model computed in float32.
_ROUNDING = 1e-6


def log_losses(proba: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Array:
    """Compute the log loss of each row: −log of the probability of its true class.

    Parameters
    ----------
    proba : array-like of shape (n, k) or (n,)
        Probabilities as `predict_proba` returns them, one column for each class.  For two
        classes, a vector is the probability of the second class.
    y : array-like of shape (n,)
        True labels: strings, integers or booleans.
    classes : array-like of shape (k,), default=None
        The label of each column, `model.classes_` in scikit-learn, in any order.  None stands for
        the distinct labels of `y` in sorted order.  There must be k of them.

    Returns
    -------
    ndarray of shape (n,)
        The losses, float64.  Their mean is :func:`sklearn.metrics.log_loss`.

    Raises
    ------
    ValueError
        If `proba` holds numbers that are not probabilities or rows that do not sum to one, if
        `y` holds a label that is not in `classes`, or if shapes do not match.

    See Also
    --------
    drolearn.worst_case : The worst case of these losses.
    zero_one_losses : Whether the predicted label is wrong.

    Notes
    -----
    As in scikit-learn, probabilities below eps of their type count as eps, so that losses are
    finite: at most 36.04 for float64 and 15.94 for float32.  Trees, forests and nearest neighbours
    can give the true class probability 0.  The worst case then depends on this bound.

    Rounding errors are accepted: 1e-6 beyond 0 and 1, and √eps of the type (at least 1e-6) in the
    sums of rows.

    Examples
    --------
    >>> from drolearn import log_losses, worst_case
    >>> proba = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]  # of the classes "ham" and "spam"
    >>> losses = log_losses(proba, ["ham", "spam", "spam"], classes=["ham", "spam"])
    >>> losses.round(3)
    array([0.105, 0.223, 0.916])
    >>> round(worst_case(losses, rho=0.1).value, 3)
    0.528

    Any classifier of scikit-learn:

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianNB().fit(X, y)
    >>> losses = log_losses(model.predict_proba(X), y, model.classes_)
    >>> round(float(losses.mean()), 3), round(worst_case(losses, rho=1).value, 3)
    (0.111, 0.593)
    """
    _, true, eps = _of_true_class(proba, y, classes)
    return 0.0 - np.log(np.clip(true, eps, 1.0))  # not −log, which would be −0.0 at 1


def brier_losses(proba: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Array:
    """Compute the Brier loss of each row: the squared distance of its probabilities from the truth.

    With two classes it is (1 − p)², with p the probability of the true class.  With more, it is
    Σ (pₖ − 1{y = k})² over the classes k.

    Parameters
    ----------
    proba : array-like of shape (n, k) or (n,)
        Probabilities as `predict_proba` returns them, one column for each class.  For two
        classes, a vector is the probability of the second class.
    y : array-like of shape (n,)
        True labels: strings, integers or booleans.
    classes : array-like of shape (k,), default=None
        The label of each column, `model.classes_` in scikit-learn, in any order.  None stands for
        the distinct labels of `y` in sorted order.  There must be k of them.

    Returns
    -------
    ndarray of shape (n,)
        The losses, float64, from 0 to 1 for two classes and to 2 for more.  Their mean is
        :func:`sklearn.metrics.brier_score_loss`.

    Raises
    ------
    ValueError
        If `proba` holds numbers that are not probabilities or rows that do not sum to one, if
        `y` holds a label that is not in `classes`, or if shapes do not match.

    See Also
    --------
    drolearn.worst_case : The worst case of these losses.
    log_losses : The log loss, which is not bounded.

    Examples
    --------
    >>> from drolearn import brier_losses, worst_case
    >>> losses = brier_losses([0.1, 0.8, 0.4], [0, 1, 1])  # probabilities of class 1
    >>> losses.round(2)
    array([0.01, 0.04, 0.36])
    >>> round(worst_case(losses, rho=0.1).value, 3)
    0.187
    """
    p, true, _ = _of_true_class(proba, y, classes)
    if p.ndim == 1 or p.shape[1] == 2:
        return (1.0 - true) ** 2
    return np.sum(p * p, axis=1) - true * true + (1.0 - true) ** 2


def absolute_losses(prediction: ArrayLike, y: ArrayLike) -> Array:
    """Compute the absolute loss of each row: |prediction − y|.

    Parameters
    ----------
    prediction : array-like of shape (n,)
        Predicted numbers, as `predict` of a regression returns them.
    y : array-like of shape (n,)
        True numbers.

    Returns
    -------
    ndarray of shape (n,)
        The losses, float64.  Their mean is :func:`sklearn.metrics.mean_absolute_error`.

    Raises
    ------
    ValueError
        If there are no rows, if lengths differ, or if a number is NaN or infinite.

    See Also
    --------
    drolearn.worst_case : The worst case of these losses.
    squared_losses : The squared loss.

    Examples
    --------
    >>> from drolearn import absolute_losses, worst_case
    >>> losses = absolute_losses([1.0, 2.5, 3.0], [1.0, 2.0, 5.0])
    >>> losses
    array([0. , 0.5, 2. ])
    >>> round(worst_case(losses, rho=0.1).value, 3)
    1.102
    """
    predicted, target = _as_numbers(prediction, y)
    with np.errstate(over="ignore"):
        return np.abs(predicted - target)


def squared_losses(prediction: ArrayLike, y: ArrayLike) -> Array:
    """Compute the squared loss of each row: ½ (prediction − y)².

    This is the loss "squared" of :func:`drolearn.solve` and :class:`drolearn.RobustRegressor`.

    Parameters
    ----------
    prediction : array-like of shape (n,)
        Predicted numbers, as `predict` of a regression returns them.
    y : array-like of shape (n,)
        True numbers.

    Returns
    -------
    ndarray of shape (n,)
        The losses, float64.  Their mean is half of :func:`sklearn.metrics.mean_squared_error`.  A
        loss that is too large for float64 is infinite.

    Raises
    ------
    ValueError
        If there are no rows, if lengths differ, or if a number is NaN or infinite.

    See Also
    --------
    drolearn.worst_case : The worst case of these losses.

    Examples
    --------
    >>> from drolearn import squared_losses, worst_case
    >>> losses = squared_losses([1.0, 2.5, 3.0], [1.0, 2.0, 5.0])
    >>> losses
    array([0.   , 0.125, 2.   ])
    >>> round(2 * worst_case(losses, rho=0.1).value, 3)  # the robust mean squared error
    1.995
    """
    predicted, target = _as_numbers(prediction, y)
    with np.errstate(over="ignore", under="ignore"):
        return 0.5 * (predicted - target) ** 2


def zero_one_losses(prediction: ArrayLike, y: ArrayLike) -> Array:
    """Compute the zero-one loss of each row: 1 where the label is wrong, 0 elsewhere.

    Parameters
    ----------
    prediction : array-like of shape (n,)
        Predicted labels, as `predict` of a classifier returns them.
    y : array-like of shape (n,)
        True labels: strings, integers or booleans.

    Returns
    -------
    ndarray of shape (n,)
        The losses, float64.  Their mean is :func:`sklearn.metrics.zero_one_loss`.

    Raises
    ------
    ValueError
        If there are no rows, if lengths or types of labels differ, or if labels are missing.

    See Also
    --------
    drolearn.worst_case : The worst case of these losses.
    log_losses : Losses from the probabilities of the classes.

    Examples
    --------
    >>> from drolearn import worst_case, zero_one_losses
    >>> losses = zero_one_losses(["a", "b", "b", "a"], ["a", "b", "a", "a"])
    >>> losses
    array([0., 0., 1., 0.])
    >>> round(worst_case(losses, rho=0.1).value, 3)  # the largest error in the ball
    0.387
    """
    predicted, labels = _as_labels("prediction", prediction), _as_labels("y", y)
    _check_not_empty("prediction", predicted.size)
    _check_length("label", labels.size, predicted.size, "prediction")
    guesses, guess = distinct("prediction", predicted)
    present, code = distinct("y", labels)
    _check_same_type(guesses, present)
    # Labels may be equal and differ in type: 1, 1.0 and True.
    place = {label: index for index, label in enumerate(present.tolist())}
    same_as = np.array([place.get(label, -1) for label in guesses.tolist()])
    return (same_as[guess] != code).astype(np.float64)


# -- checks ----------------------------------------------------------------------------


def _of_true_class(
    proba: ArrayLike, y: ArrayLike, classes: ArrayLike | None
) -> tuple[Array, Array, float]:
    """The probabilities, those of the true classes, and eps of their type as given."""
    p, eps = _as_probabilities(proba)
    labels = _as_labels("y", y)
    _check_length("label", labels.size, len(p), "proba")
    present, codes = distinct("y", labels)
    column = _columns(p, present, classes)[codes]
    if p.ndim == 1:
        return p, np.where(column == 1, p, 1.0 - p), eps
    _check_sums(p, max(_ROUNDING, math.sqrt(eps)))
    return p, p[np.arange(len(p)), column], eps


def _as_numbers(prediction: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Predicted and true numbers, finite and of one length."""
    predicted, target = as_vector("prediction", prediction), as_vector("y", y)
    _check_not_empty("prediction", predicted.size)
    _check_length("number", target.size, predicted.size, "prediction")
    refuse_not_finite("prediction", predicted)
    refuse_not_finite("y", target)
    return predicted, target


def _as_probabilities(proba: ArrayLike) -> tuple[Array, float]:
    """Finite numbers from 0 to 1, and eps of their type as given."""
    refuse_masked("proba", proba)
    p = as_reals("proba", proba)
    if p.ndim not in (1, 2):
        raise ValueError(
            f"The 'proba' parameter must have one row for each example and one column for each "
            f"class. Got an array of shape {p.shape} instead."
        )
    _check_not_empty("proba", p.size)
    refuse_not_finite("proba", p)
    given = np.asarray(proba).dtype
    eps = float(np.finfo(given if given in (np.float16, np.float32) else np.float64).eps)
    slack = max(_ROUNDING, eps)
    if p.min() < -slack or p.max() > 1.0 + slack:
        wrong = tuple(np.argwhere((p < -slack) | (p > 1.0 + slack))[0])
        raise ValueError(
            f"The 'proba' parameter must hold probabilities from 0 to 1, as predict_proba returns "
            f"them, not scores or logarithms. Got {p[wrong]:.6g} in row {wrong[0]} instead."
        )
    return p, eps


def _check_sums(p: Array, tolerance: float) -> None:
    """Refuse rows that do not sum to one."""
    sums = p.sum(axis=1)
    wrong = np.flatnonzero(np.abs(sums - 1.0) > tolerance)
    if wrong.size:
        raise ValueError(
            f"The 'proba' parameter must have rows that sum to 1. Got a sum of "
            f"{sums[wrong[0]]:.6g} in row {wrong[0]} instead."
        )


def _as_labels(parameter: str, values: ArrayLike) -> Labels:
    """A vector of labels of any type, none of them missing."""
    refuse_masked(parameter, values)
    try:
        labels = np.asarray(values)
        if isinstance(values, list | tuple) and labels.dtype.kind in "US":
            labels = np.asarray(values, dtype=object)  # NumPy turned NaN into "nan" and 1 into "1"
    except ValueError:  # lists of different lengths
        raise ValueError(
            f"The '{parameter}' parameter must be a vector of labels. "
            f"Got {type(values).__name__} instead, which cannot be converted."
        ) from None
    if labels.ndim != 1:
        raise ValueError(
            f"The '{parameter}' parameter must be a vector of labels. "
            f"Got an array of shape {labels.shape} instead."
        )
    refuse_missing(parameter, labels)
    return labels


def _columns(p: Array, present: Labels, classes: ArrayLike | None) -> NDArray[np.intp]:
    """The column of each of the labels that are present."""
    k = 2 if p.ndim == 1 else p.shape[1]
    what = "two classes (proba is a vector)" if p.ndim == 1 else f"{k} columns of proba"
    names = present if classes is None else _as_labels("classes", classes)
    if p.shape[1:] == (1,) and names.size > 1:
        raise ValueError(
            f"The 'proba' parameter must have one column for each of {names.size} classes. Got one "
            f"column instead; pass proba[:, 0] if it is the probability of the second of two."
        )
    if classes is None:
        if names.size != k:
            raise ValueError(
                f"The 'classes' parameter must name the {what}, because y holds {names.size} "
                f"different labels. Got None instead; pass classes=model.classes_."
            )
        return np.arange(k)
    if names.size != k:
        raise ValueError(
            f"The 'classes' parameter must hold one label for each of the {what}. "
            f"Got {names.size} labels instead."
        )
    column: dict[Any, int] = {}
    for index, name in enumerate(names.tolist()):
        if column.setdefault(name, index) != index:
            raise ValueError(
                f"The 'classes' parameter must hold different labels. Got {name!r} twice."
            )
    unknown = [label for label in present.tolist() if label not in column]
    if unknown:
        some = ", ".join(map(repr, list(column)[:5])) + (", …" if k > 5 else "")
        text = [name for name in column if isinstance(name, str)]
        hint = did_you_mean(unknown[0], text) if isinstance(unknown[0], str) else ""
        raise ValueError(
            f"The 'y' parameter must hold only labels of classes: {some}. "
            f"Got {unknown[0]!r} instead.{hint}"
        )
    return np.array([column[label] for label in present.tolist()])


def _check_same_type(guesses: Labels, present: Labels) -> None:
    """Refuse text against numbers, and numbers that cannot be labels."""
    guess, label = guesses.tolist()[0], present.tolist()[0]
    if isinstance(guess, str) != isinstance(label, str):
        raise ValueError(
            f"The 'prediction' parameter must hold labels of the same type as y, such as "
            f"{label!r}. Got {guess!r} instead."
        )
    if guesses.dtype.kind != "f" or present.dtype.kind not in "biuf":
        return
    fractions = guesses[guesses != np.round(guesses)]
    if fractions.size and np.all(present == np.round(present)):
        raise ValueError(
            f"The 'prediction' parameter must hold labels, as predict returns them, not scores or "
            f"probabilities. Got {fractions[0]:.6g} instead."
        )


def _check_not_empty(parameter: str, size: int) -> None:
    if size == 0:
        raise ValueError(
            f"The '{parameter}' parameter must hold at least one row. Got none instead."
        )


def _check_length(what: str, given: int, n: int, of: str) -> None:
    if given != n:
        raise ValueError(
            f"The 'y' parameter must have one {what} for each of the {n} rows of '{of}'. "
            f"Got {given} instead."
        )
