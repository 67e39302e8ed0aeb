"""Cross-fitting of any estimator: folds, sample weights, probabilities."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)
from sklearn.pipeline import Pipeline

from drolearn._validation import as_count, is_number

__all__ = ["aligned_probabilities", "make_folds", "weights_argument"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def make_folds(
    what: str, cv: Any, X: Any, labels: NDArray[Any], split_groups: Any, classes: bool
) -> list[tuple[Indices, Indices]]:
    """Training and test rows of each fold; every row is in one test fold.

    An integer makes shuffled folds with a fixed seed, stratified for classes.  `what` is fitted;
    it begins the sentences of errors.
    """
    folds = list(_splitter(what, cv, labels, split_groups, classes).split(X, labels, split_groups))
    tested = np.concatenate([test for _, test in folds])
    if not np.array_equal(np.sort(tested), np.arange(labels.size)):
        raise ValueError(
            f"The 'cv' parameter must put each of the {labels.size} rows into one test fold. Got "
            f"{np.unique(tested).size} different rows in {len(folds)} test folds of {tested.size} "
            f"rows instead."
        )
    return folds


def _splitter(what: str, cv: Any, labels: NDArray[Any], split_groups: Any, classes: bool) -> Any:
    if not is_number(cv):
        return check_cv(cv, labels, classifier=classes)
    folds, shuffled = as_count("cv", cv, least=2), {"shuffle": True, "random_state": 0}
    most = np.unique(labels, return_counts=True)[1].max() if classes else labels.size
    if most < 2:
        raise ValueError(
            f"{what} needs at least two rows{' of some class' if classes else ''}, so that it can "
            f"be fitted to other rows than it is evaluated on. Got {most} instead "
            f"(n_samples={labels.size})."
        )
    folds = min(folds, int(most))
    if split_groups is None:
        return (StratifiedKFold if classes else KFold)(folds, **shuffled)
    folds = min(folds, np.unique(split_groups).size)
    if folds < 2:
        raise ValueError(
            f"The 'split_groups' parameter must name at least two groups, so that "
            f"{what[0].lower()}{what[1:]} can be fitted to other groups than it is evaluated on. "
            f"Got one group instead."
        )
    return StratifiedGroupKFold(folds, **shuffled) if classes else GroupKFold(folds)


def weights_argument(what: str, model: Any, weights: Array) -> dict[str, Array]:
    """The argument of `fit` that passes the sample weights."""
    parameters = inspect.signature(model.fit).parameters
    if isinstance(model, Pipeline) and not get_config()["enable_metadata_routing"]:
        name, last = model.steps[-1]
        if "sample_weight" in inspect.signature(last.fit).parameters:
            return {f"{name}__sample_weight": weights}
    elif "sample_weight" in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    ):
        return {"sample_weight": weights}
    raise ValueError(
        f"{what} must take sample weights if rows or classes have weights. Got {model!r} "
        f"instead, whose fit does not."
    )


def aligned_probabilities(model: Any, X: Any, classes: NDArray[Any]) -> Array:
    """The probabilities of all classes; zero for classes that the training rows lack."""
    found = np.asarray(model.predict_proba(X), dtype=np.float64)
    p = np.zeros((found.shape[0], classes.size))
    p[:, np.searchsorted(classes, model.classes_)] = found
    return p
