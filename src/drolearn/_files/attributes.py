"""The attributes of fitted estimators, and which values they may have.

The same checks run before a model is saved and after it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from drolearn._estimators.path import RobustLinearCV
from drolearn._files.errors import ModelFileError
from drolearn._solvers.descent import History
from drolearn._solvers.ending import Ending
from drolearn._validation import is_number
from drolearn.divergence import Divergence

__all__ = ["check", "names"]


def _is(kind: type | tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def _is_vector(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1


def _is_reals(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _is_reals_or_none(value: Any) -> bool:
    return value is None or _is_reals(value)


def _is_vector_or_none(value: Any) -> bool:
    return value is None or _is_vector(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_vector, value.values()))


_REQUIRED: dict[str, Callable[[Any], bool]] = {
    "coef_": _is_reals,
    "intercept_": lambda value: _is_reals(value) or isinstance(value, np.floating),
    "n_features_in_": _is(int),
    "rho_": is_number,
    "divergence_": _is(Divergence),
    "l2_": is_number,
    "robust_loss_": is_number,
    "robust_regret_": _is_number_or_none,
    "objective_": is_number,
    "groups_": _is_vector_or_none,
    "group_weights_": _is_reals_or_none,
    "gap_": is_number,
    "history_": _is(History),
    "status_": _is(str),
    "ending_": _is(Ending),
    "converged_": _is((bool, np.bool_)),
    "solver_": _is(str),
    "n_iter_": _is(int),
}
_OF_CLASSIFIERS: dict[str, Callable[[Any], bool]] = {"classes_": _is_vector}
_OF_CROSS_VALIDATION: dict[str, Callable[[Any], bool]] = {
    "best_l2_": is_number,
    "best_score_": is_number,
    "l2s_": _is_reals,
    "scores_": _is_reals,
    "zero_models_": _is(np.ndarray),
    "cv_results_": _is_table,
}
_OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "feature_names_in_": _is_vector,
    "worst_case_weights_": _is_reals,
    "l1_": is_number,  # as the next three, not in files of version 0.1
    "best_l1_": is_number,
    "l1s_": _is_reals,
    "tau_": _is_number_or_none,  # files of version 0.1 have none
    "rhos_": _is_reals,
    "taus_": _is_reals,
    "levels_": _is_reals,
    "n_samples_seen_": _is(int),
    "t_": _is(int),
}


def _required(model: Any) -> dict[str, Callable[[Any], bool]]:
    """The attributes that every fitted model of this class has."""
    found = dict(_REQUIRED)
    if is_classifier(model):
        found |= _OF_CLASSIFIERS
    if isinstance(model, RobustLinearCV):
        found |= _OF_CROSS_VALIDATION
    return found


def names(model: Any) -> list[str]:
    """The attributes that a fitted model of this class may have."""
    return [*_required(model), *_OPTIONAL]


def check(model: Any, where: str) -> None:
    """Refuse a model of which an attribute is missing or has a value that `fit` does not give it.

    `where` is the name of the model in errors.
    """
    have, required = vars(model), _required(model)
    for name, accepts in (required | _OPTIONAL).items():
        if name in required and name not in have:
            raise ModelFileError(f"{where} has no {name!r}: fit the model, and save it again.")
        if name in have and not accepts(have[name]):
            raise _wrong(where, name, f"a {type(have[name]).__name__} that fit does not make")
    for name in ("coef_", "intercept_"):
        if not np.isfinite(have[name]).all():
            raise _wrong(where, name, "numbers that are not finite")
    d = have["n_features_in_"]
    _check_shapes(model, d, where)
    columns = have.get("feature_names_in_")
    if columns is not None and not (
        columns.size == d and all(isinstance(column, str) for column in columns)
    ):
        raise _wrong(where, "feature_names_in_", f"something other than {d} names")


def _check_shapes(model: Any, d: int, where: str) -> None:
    """Refuse coefficients that do not fit to each other, to the columns or to the classes."""
    want: dict[str, tuple[int, ...]] = {"coef_": (d,), "intercept_": ()}
    if is_classifier(model):
        classes = model.classes_
        if classes.size < 2 or not np.array_equal(np.unique(classes), classes):
            raise _wrong(where, "classes_", "something other than two or more labels in order")
        rows = 1 if classes.size == 2 else classes.size
        want = {"coef_": (rows, d), "intercept_": (rows,)}
    if model.groups_ is not None:
        want["group_weights_"] = model.groups_.shape
    for name, shape in want.items():
        got = np.shape(getattr(model, name))
        if got != shape:
            raise _wrong(where, name, f"the shape {got} instead of {shape}")


def _wrong(where: str, name: str, what: str) -> ModelFileError:
    return ModelFileError(f"{where} has {what} in {name!r}: fit the model again.")
