"""Checks of class labels that estimators around other estimators share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from drolearn._estimators.streaming import refuse_missing_labels
from drolearn._validation import distinct

__all__ = ["as_class_labels", "known_labels"]


def as_class_labels(y: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """The labels as a vector, the classes in order, and the class number of each label."""
    refuse_missing_labels(y)
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    classes, codes = distinct("y", labels)  # before the next check, which sorts the labels, too
    check_classification_targets(labels)
    if classes.size < 2:
        raise ValueError(
            f"Classifier can't train when only one class is present. The data contains only "
            f"one class: {classes.tolist()[0]!r}."
        )
    return labels, classes, codes


def known_labels(y: Any, classes: NDArray[Any], estimator: object) -> NDArray[Any]:
    """Labels of other rows, which must be among the classes of the fit."""
    refuse_missing_labels(y)
    labels = column_or_1d(y)
    unknown = np.setdiff1d(distinct("y", labels)[0], classes)
    if unknown.size:
        raise ValueError(
            f"The 'y' parameter must hold labels that {type(estimator).__name__} was fitted with. "
            f"Got {unknown.tolist()[0]!r} instead."
        )
    return labels
