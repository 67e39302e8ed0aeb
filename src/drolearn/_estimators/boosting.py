"""What robust boosted trees of classifiers and regressors share: checks, fits, results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from drolearn._estimators.evaluation import WorstCaseMixin
from drolearn._estimators.reference import losses_of_new_rows, reference_losses
from drolearn._estimators.training_data import as_sample_weights
from drolearn._estimators.tree_libraries import Rows, Task, library_of
from drolearn._solvers.inputs import as_reference_losses
from drolearn.boosting import robust_metric, robust_objective
from drolearn.divergence import Divergence, as_divergence, radius_for
from drolearn.loss import Loss

__all__ = ["RobustBoosting", "Validation"]

Array = NDArray[np.float64]


# Arguments of the fits of the libraries that would contradict the objective or its start.
_REPLACED = (
    "init_score",
    "init_model",
    "eval_init_score",
    "eval_metric",
    "base_margin",
    "base_margin_eval_set",
    "xgb_model",
)


class Validation(NamedTuple):
    """The validation rows as they were passed to `fit`."""

    rows: Any
    weights: Any
    groups: Any
    reference: Any

    @property
    def pair(self) -> tuple[Any, Any]:
        """X and y."""
        rows = self.rows
        if isinstance(rows, list) and len(rows) == 1:  # as the libraries take it
            rows = rows[0]
        if isinstance(rows, tuple) and len(rows) == 2:
            return rows
        raise ValueError(
            f"The 'eval_set' parameter must be a pair (X, y) of validation rows and labels. Got "
            f"{type(rows).__name__} instead."
        )


class RobustBoosting(MetaEstimatorMixin, WorstCaseMixin, BaseEstimator, ABC):
    """Base class of robust boosted trees."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "rho": [Interval(Real, 0, None, closed="both"), None],
        "divergence": [str, Divergence],
        "step": [Interval(Real, 0, 1, closed="right")],
        "reference": [StrOptions({"auto"}), HasMethods(["fit", "get_params"]), None],
        "n_jobs": [Integral, None],
    }

    estimator: Any
    rho: Any
    divergence: Any
    step: float
    reference: Any
    n_jobs: int | None
    estimator_: Any
    groups_: NDArray[Any] | None
    group_weights_: Array | None
    round_values_: Array | None
    best_round_: int

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    # -- subclasses implement --------------------------------------------------------------

    @property
    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of a row."""

    @abstractmethod
    def _validate_y(self, y: Any) -> Array:
        """Check the labels, and return them as numbers, or as 0 and 1."""

    @abstractmethod
    def _labels(self, y: Any) -> Array:
        """The same for labels of other rows."""

    @abstractmethod
    def _start(self, y: Array, weights: Array | None) -> float:
        """The score before the first tree: the best one for all rows."""

    # -- fitting ---------------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        validation: Validation,
        given_losses: Any,
        params: dict[str, Any],
    ) -> Self:
        """Validate the arguments, fit, and set the attributes."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        library, model = library_of(self.estimator), clone(self.estimator)
        self._check_arguments(params)
        X = self._columns(X, reset=True)
        labels = self._validate_y(y)
        check_consistent_length(X, labels)
        self.divergence_ = as_divergence(self.divergence)
        self.rho_ = radius_for(self.divergence_, self.rho)
        weights = as_sample_weights(sample_weight, labels)[0]
        rows = Rows(X, labels, weights)
        reference = as_reference_losses(given_losses, labels.size)
        if reference is None and self.reference is not None:
            reference = self._reference_losses(rows)
        ball = {"divergence": self.divergence_, "loss": self._loss}
        radius = self.rho_ if self.divergence_.has_radius else None
        objective = robust_objective(
            radius, groups=groups, step=self.step, reference_losses=reference, **ball
        )
        new, metric = None, None
        if validation.rows is not None:
            new = self._validation_rows(validation, groups)
            c = self._reference_of(validation, rows, new, reference is not None, given_losses)
            metric = robust_metric(radius, groups=validation.groups, reference_losses=c, **ball)
        task = Task(rows, objective, self._start(labels, weights), new, metric, params)
        values = library.fit(model, task)
        self.groups_, self.group_weights_ = objective.groups_, objective.group_weights_
        objective.release()
        if metric is not None:
            metric.release()
        self.estimator_, self.best_round_ = model, library.best_round(model)
        self.round_values_ = None if new is None else np.array(values)
        return self

    def _check_arguments(self, params: dict[str, Any]) -> None:
        """Refuse a model of another task, and arguments that set what the ball decides."""
        if is_classifier(self.estimator) != is_classifier(self):
            task = "classifier" if is_classifier(self) else "regressor"
            raise ValueError(
                f"The 'estimator' parameter of {type(self).__name__} must be a {task}. Got "
                f"{type(self.estimator).__name__} instead."
            )
        for name in _REPLACED:
            if name in params:
                raise ValueError(
                    f"The fit of {type(self).__name__} does not take {name!r}: a robust objective "
                    f"starts from equal scores and has its own metric. Leave it out."
                )

    def _columns(self, X: Any, reset: bool) -> Any:
        """Check the columns of rows; data frames go to the library as they are."""
        if hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if _num_samples(X) == 0:
                raise ValueError(
                    f"{type(self).__name__} needs at least one row. Found array with 0 sample(s)."
                )
            return X
        finite = "allow-nan" if get_tags(self.estimator).input_tags.allow_nan else True
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", ensure_all_finite=finite, dtype="numeric"
        )
        return csr_matrix(X) if issparse(X) else X  # LightGBM does not take sparse arrays

    def _validation_rows(self, validation: Validation, groups: Any) -> Rows:
        """Check the validation rows."""
        X, y = validation.pair
        X, y = self._columns(X, reset=False), self._labels(y)
        check_consistent_length(X, y)
        if (groups is None) != (validation.groups is None):
            raise ValueError(
                f"{type(self).__name__} needs groups of both training and validation rows, or of "
                f"neither. Got only {'eval_groups' if groups is None else 'groups'}."
            )
        return Rows(X, y, as_sample_weights(validation.weights, y)[0])

    def _reference_losses(self, rows: Rows) -> Array:
        return reference_losses(
            self.reference,
            rows.X,
            rows.y,
            loss=self._loss,
            sample_weight=rows.weights,
            n_jobs=self.n_jobs,
        )

    def _reference_of(
        self, validation: Validation, rows: Rows, new: Rows, has_reference: bool, given: Any
    ) -> Array | None:
        """The losses of the reference on validation rows."""
        c = as_reference_losses(validation.reference, new.y.size)
        if c is not None or not has_reference:
            return c
        if given is not None:
            raise ValueError(
                "The 'eval_reference_losses' parameter must have the losses of the reference on "
                "the validation rows if 'reference_losses' are passed. Got None instead."
            )
        return losses_of_new_rows(
            self.reference,
            rows.X,
            rows.y,
            new.X,
            new.y,
            loss=self._loss,
            sample_weight=rows.weights,
        )

    # -- predictions -----------------------------------------------------------------------

    def _scores(self, X: Any) -> Array:
        """The scores of the trees."""
        check_is_fitted(self)
        X = self._columns(X, reset=False)
        return library_of(self.estimator_).scores(self.estimator_, X)

    def losses(self, X: Any, y: ArrayLike) -> Array:
        """Compute the loss of each row.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows, from the training data or others.
        y : array-like of shape (n_samples,)
            Labels of the rows; numbers for regression.

        Returns
        -------
        ndarray of shape (n_samples,)
            Losses.

        Examples
        --------
        >>> import numpy as np
        >>> from lightgbm import LGBMRegressor
        >>> from drolearn import RobustBoostingRegressor
        >>> X = np.arange(100.0)[:, None]
        >>> trees = LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1)
        >>> reg = RobustBoostingRegressor(trees, rho=0.1).fit(X, X[:, 0] > 50)
        >>> bool(reg.losses(X, X[:, 0] > 50).mean() < 0.05)
        True
        """
        scores = np.ascontiguousarray(self._scores(X))
        check_consistent_length(X, y)
        labels, loss = self._labels(y), self._loss
        if loss.of == "margin":
            labels = np.where(labels > 0.0, 1.0, -1.0)
        return loss.of_scores(scores, labels)[0]
