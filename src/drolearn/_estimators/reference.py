"""Losses of a reference model on rows that it has not seen, for robust regret."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils import _safe_indexing, check_consistent_length, column_or_1d
from sklearn.utils.validation import _num_samples
from threadpoolctl import threadpool_limits

from drolearn._estimators.cross_fitting import (
    aligned_probabilities,
    make_folds,
    weights_argument,
)
from drolearn._solvers.inputs import as_labels
from drolearn._validation import as_weights, did_you_mean
from drolearn.loss import Loss, as_loss

__all__ = ["losses_of_new_rows", "reference_losses"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# The largest sparse matrix, in numbers, that "auto" makes dense.
_DENSE_NUMBERS = 5e7
_BISECTIONS = 60


def reference_losses(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    loss: str | Loss = "logistic",
    cv: Any = 5,
    sample_weight: ArrayLike | None = None,
    split_groups: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Array:
    """Compute the losses of a reference model on rows that it has not seen.

    The estimator is cross-fitted: for each fold, a copy is fitted to the other rows and evaluated
    on the rows of the fold.  Minus these losses, the losses of a model are its regrets, what it
    could have avoided; see ``RobustClassifier(reference=...)`` and ``solve(reference_losses=...)``.

    Parameters
    ----------
    estimator : estimator or "auto"
        Any classifier or regressor of scikit-learn's interface; it is not changed.  "auto" is
        HistGradientBoostingClassifier or HistGradientBoostingRegressor with default settings. It
        makes sparse matrices of up to 5e7 numbers dense, and only the proportions of the sample
        weights matter to it.
    X : array-like, sparse matrix or data frame of shape (n, d)
        Rows, in any form that the estimator accepts.
    y : array-like of shape (n,)
        Class labels, or numbers for losses of the residual.
    loss : str or Loss, default="logistic"
        Loss of a row, as in :func:`drolearn.solve`; for more than two classes, "logistic" is the
        multinomial logistic loss.
    cv : int, cross-validation splitter or iterable, default=5
        Folds.  An integer makes so many shuffled folds, always the same ones: stratified for
        classes, and by `split_groups` if they are given; fewer if there are fewer groups, rows, or
        rows of the largest class.  Every row must be in one test fold.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows, with which the estimator is fitted.
    split_groups : array-like of shape (n,), default=None
        Rows of one group stay in one fold: patients, households, days.
    n_jobs : int, default=None
        Number of folds that joblib fits in parallel; -1 uses all processors.  Each fit uses one
        thread of OpenMP, so the losses do not depend on the number of processors.

    Returns
    -------
    ndarray of shape (n,)
        Losses c.

    Raises
    ------
    ValueError
        If the estimator cannot give this loss, or does not take the sample weights, or if a row is
        not in exactly one test fold.

    Notes
    -----
    A loss of classes needs predict_proba.  The logistic loss is −log of the probability of the
    label.  For other losses of the margin, the score is the one that minimises the expected loss
    under the probabilities; a classifier without predict_proba gives its decision_function instead.
    Probabilities below 1/(n + 1), which n training rows cannot support, are raised to that.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from drolearn import reference_losses, solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 2))
    >>> y = np.abs(X[:, 0]) + 0.3 * rng.standard_normal(400) > 0.7
    >>> forest = RandomForestClassifier(min_samples_leaf=10, random_state=0)
    >>> c = reference_losses(forest, X, y)
    >>> c.shape, bool(c.mean() < 0.4)
    ((400,), True)
    >>> solve(X, y, rho=1.0, reference_losses=c).converged
    True
    """
    check_consistent_length(X, y)
    n, labels, chosen = _num_samples(X), column_or_1d(y), as_loss(loss)
    if chosen.name == "logistic" and np.unique(labels).size > 2:
        chosen = as_loss("multinomial")
    targets = as_labels(labels, chosen)
    weights = None if sample_weight is None else as_weights(sample_weight, n)
    if isinstance(estimator, str) and estimator == "auto":
        estimator, X = _boosted_trees(chosen), _dense(X)
        # Boosted trees stop at leaves of little weight: only the proportions may matter.
        weights = None if weights is None else weights / weights.mean()
    _check(estimator, chosen)
    folds = make_folds("A reference", cv, X, labels, split_groups, classes=chosen.of != "residual")
    task = (X, labels, targets, chosen, weights)
    jobs = (delayed(_losses_of_fold)(clone(estimator), *task, *fold) for fold in folds)
    of_folds: list[Any] = list(Parallel(n_jobs=n_jobs)(jobs))
    losses = np.empty(n)
    losses[np.concatenate([test for _, test in folds])] = np.concatenate(of_folds)
    return losses


def losses_of_new_rows(
    estimator: Any,
    X: Any,
    y: Array,
    X_new: Any,
    y_new: Array,
    *,
    loss: Loss,
    sample_weight: Array | None = None,
) -> Array:
    """Fit a reference to all training rows, and return its losses of new rows.

    Labels are numbers, or 0 and 1.
    """
    weights = sample_weight
    if isinstance(estimator, str):
        estimator, X, X_new = _boosted_trees(loss), _dense(X), _dense(X_new)
        weights = None if weights is None else weights / weights.mean()
    _check(estimator, loss)
    model: Any = clone(estimator)
    arguments = {} if weights is None else weights_argument("A reference", model, weights)
    targets = y_new if loss.of == "residual" else np.where(y_new > 0.0, 1.0, -1.0)
    with threadpool_limits(1, user_api="openmp"):
        model.fit(X, y, **arguments)
        return _losses_of(model, X_new, targets, loss, np.unique(y), y.size)


def _boosted_trees(loss: Loss) -> Any:
    """What "auto" stands for."""
    if loss.of == "residual":
        return HistGradientBoostingRegressor(random_state=0)
    return HistGradientBoostingClassifier(random_state=0)


def _dense(X: Any) -> Any:
    """X for boosted trees, which do not take sparse data."""
    if not issparse(X):
        return X
    if X.shape[0] * X.shape[1] > _DENSE_NUMBERS:
        raise ValueError(
            f"The reference 'auto' makes sparse data dense, up to {_DENSE_NUMBERS:.0e} numbers. "
            f"Got a matrix of shape {X.shape}: use an estimator that takes sparse data, such as "
            f"RandomForestClassifier()."
        )
    return X.toarray()


def _check(estimator: Any, loss: Loss) -> None:
    """Refuse an estimator that cannot give this loss."""
    is_estimator = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if not is_estimator or isinstance(estimator, type):
        raise ValueError(
            f"The 'estimator' parameter must be 'auto' or an estimator of scikit-learn. "
            f"Got {estimator!r} instead.{did_you_mean(estimator, ['auto'])}"
        )
    if loss.of == "residual":
        if is_classifier(estimator) or not hasattr(estimator, "predict"):
            raise ValueError(
                f"A reference for loss={loss.name!r} must be a regressor. "
                f"Got {estimator!r} instead."
            )
        return
    by_scores = loss.of == "margin" and loss.kind != "logistic"
    needed = ("predict_proba", "decision_function") if by_scores else ("predict_proba",)
    if not any(hasattr(estimator, method) for method in needed):
        raise ValueError(
            f"A reference for loss={loss.name!r} must have {' or '.join(needed)}. Got "
            f"{estimator!r} instead: use a classifier such as HistGradientBoostingClassifier()."
        )


def _losses_of_fold(
    model: Any,
    X: Any,
    labels: NDArray[Any],
    targets: Array,
    loss: Loss,
    weights: Array | None,
    train: Indices,
    test: Indices,
) -> Array:
    """Fit to the training rows, and return the losses of the test rows."""
    arguments = {} if weights is None else weights_argument("A reference", model, weights[train])
    with threadpool_limits(1, user_api="openmp"):
        model.fit(_safe_indexing(X, train), labels[train], **arguments)
        rows = _safe_indexing(X, test)
        return _losses_of(model, rows, targets[test], loss, np.unique(labels), train.size)


def _losses_of(
    model: Any, rows: Any, y: Array, loss: Loss, classes: NDArray[Any], training_rows: int
) -> Array:
    """The losses of rows that a fitted model has not seen."""
    if loss.of == "residual":
        scores = model.predict(rows)
    elif hasattr(model, "predict_proba"):
        p = np.maximum(aligned_probabilities(model, rows, classes), 1.0 / (training_rows + 1.0))
        if loss.kind in ("logistic", "multinomial"):
            of_label = (y > 0.0) if loss.of == "margin" else y
            return -np.log(p[np.arange(y.size), of_label.astype(np.int64)])
        scores = _best_scores(loss, p[:, 1] / p.sum(axis=1))
    else:
        scores = model.decision_function(rows)
    return loss.of_scores(np.ascontiguousarray(scores, dtype=np.float64).ravel(), y)[0]


def _best_scores(loss: Loss, p: Array) -> Array:
    """The scores f that minimise p l(f) + (1 − p) l(−f), by bisection of the derivative."""

    def rises(f: Array) -> NDArray[np.bool_]:
        return p * loss.at(f)[1] > (1.0 - p) * loss.at(-f)[1]

    low, high = np.full(p.size, -1.0), np.ones(p.size)
    for _ in range(10):  # up to ±1024; the logarithm of 1/p is below 40
        low, high = np.where(rises(low), 2.0 * low, low), np.where(rises(high), high, 2.0 * high)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        above = rises(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)
