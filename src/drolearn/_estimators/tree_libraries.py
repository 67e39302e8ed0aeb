"""What differs between LightGBM and XGBoost for estimators with robust objectives."""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from drolearn.boosting import RobustMetric, RobustObjective

__all__ = ["Library", "Rows", "Task", "library_of"]

Array = NDArray[np.float64]


class Rows(NamedTuple):
    """Rows with labels as the library takes them: numbers, or 0 and 1."""

    X: Any
    y: Array
    weights: Array | None


class Task(NamedTuple):
    """What a library fits."""

    rows: Rows
    objective: RobustObjective
    start: float
    """The score before the first tree."""
    validation: Rows | None
    metric: RobustMetric | None
    params: dict[str, Any]
    """Further arguments of the library's fit."""


class Library(Protocol):
    """How to fit an estimator of a library, and how to get its scores."""

    def fit(self, model: Any, task: Task) -> list[float]:
        """Fit, and return the metric of the validation rows after each round."""
        ...

    def scores(self, model: Any, X: Any) -> Array:
        """The scores of rows, up to the best round if the fit stopped early."""
        ...

    def best_round(self, model: Any) -> int:
        """The round with which the fit stopped early, counted from 1; or the number of rounds."""
        ...


class _LightGBM:
    def fit(self, model: Any, task: Task) -> list[float]:
        self._check(model.get_params())
        rows, validation, metric = task.rows, task.validation, task.metric
        arguments: dict[str, Any] = {}
        if validation is not None:
            named: dict[str, Any] = {"eval_X": validation.X, "eval_y": validation.y}
            if "eval_X" not in signature(model.fit).parameters:  # before LightGBM 4.7
                named = {"eval_set": [(validation.X, validation.y)]}
            arguments = named | {
                "eval_sample_weight": None if validation.weights is None else [validation.weights],
                "eval_init_score": [np.full(validation.y.size, task.start)],
                "eval_metric": metric,
            }
        # With a filter, LightGBM refuses custom objectives where no column can split the rows.
        model.set_params(objective=task.objective, metric="None", feature_pre_filter=False)
        start = np.full(rows.y.size, task.start)
        model.fit(
            rows.X,
            rows.y,
            sample_weight=rows.weights,
            init_score=start,
            **arguments,
            **task.params,
        )
        self._add_start(model.booster_, task.start)
        model.set_params(objective=None)
        of_sets = list(model.evals_result_.values()) if validation is not None else []
        return of_sets[0]["robust_loss"] if of_sets else []

    @staticmethod
    def _check(settings: dict[str, Any]) -> None:
        """Refuse trees that do not start at a score, or whose start cannot be set."""
        if settings.get("linear_tree") or settings.get("linear_trees"):
            raise ValueError(
                "The 'linear_tree' parameter of LightGBM must be False for a robust objective. Got "
                "True instead."
            )
        if "rf" in (settings.get("boosting_type"), settings.get("boosting")):
            raise ValueError(
                "The 'boosting_type' parameter of LightGBM must be 'gbdt' or 'dart' for a robust "
                "objective. Got 'rf' instead: for forests use RobustEnsembleClassifier or "
                "RobustEnsembleRegressor."
            )

    @staticmethod
    def _add_start(booster: Any, start: float) -> None:
        """Add the start to the first tree, as LightGBM does for its own objectives."""
        for leaf in range(booster.dump_model(num_iteration=1)["tree_info"][0]["num_leaves"]):
            booster.set_leaf_output(0, leaf, booster.get_leaf_output(0, leaf) + start)

    def scores(self, model: Any, X: Any) -> Array:
        return np.asarray(model.predict(X, raw_score=True), dtype=np.float64)

    def best_round(self, model: Any) -> int:
        return int(model.best_iteration_ or model.n_iter_)


class _XGBoost:
    def fit(self, model: Any, task: Task) -> list[float]:
        rows, validation = task.rows, task.validation
        arguments: dict[str, Any] = {}
        if validation is not None:
            arguments = {
                "eval_set": [(validation.X, validation.y)],
                "sample_weight_eval_set": (
                    None if validation.weights is None else [validation.weights]
                ),
                "verbose": False,
            }
        of_classes = task.objective.of_classes
        model.set_params(
            objective=task.objective,
            # XGBoost starts custom objectives of classifiers at a probability.
            base_score=float(expit(task.start)) if of_classes else task.start,
            eval_metric=None if task.metric is None else _value_of(task.metric),
            disable_default_eval_metric=True,
        )
        model.fit(rows.X, rows.y, sample_weight=rows.weights, **arguments, **task.params)
        model.set_params(
            objective="binary:logistic" if of_classes else "reg:squarederror", eval_metric=None
        )
        return model.evals_result()["validation_0"]["robust_loss"] if validation else []

    def scores(self, model: Any, X: Any) -> Array:
        return np.asarray(model.predict(X, output_margin=True), dtype=np.float64)

    def best_round(self, model: Any) -> int:
        if model.early_stopping_rounds is not None:
            return int(model.best_iteration) + 1
        return int(model.get_booster().num_boosted_rounds())


def _value_of(metric: RobustMetric) -> Any:
    """The metric as XGBoost's estimators take it: a function that returns a number."""

    def robust_loss(y: Any, scores: Any, sample_weight: Any = None) -> float:
        return metric(y, scores, sample_weight)[1]

    return robust_loss


def library_of(estimator: Any) -> Library:
    """The library of an estimator, by the module of its class or of a base class."""
    libraries = {"lightgbm": _LightGBM(), "xgboost": _XGBoost()}
    for each in type(estimator).__mro__:
        if (found := libraries.get(each.__module__.partition(".")[0])) is not None:
            return found
    raise ValueError(
        f"The 'estimator' parameter must be an estimator of LightGBM or XGBoost, such as "
        f"LGBMClassifier(); pip install 'drolearn[boosting]' installs both. Got {estimator!r} "
        f"instead: for other estimators use RobustEnsembleClassifier or RobustEnsembleRegressor."
    )
