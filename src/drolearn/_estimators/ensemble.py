"""What robust ensembles of classifiers and regressors share: rounds of fits and worst cases."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.ensemble._base import _set_random_states
from sklearn.utils import _safe_indexing, check_consistent_length, get_tags, indexable
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    process_routing,
)
from sklearn.utils.validation import _check_method_params, _num_samples, check_is_fitted

from drolearn._estimators.callbacks import CallbackSupportMixin
from drolearn._estimators.cross_fitting import make_folds, weights_argument
from drolearn._estimators.evaluation import WorstCaseMixin
from drolearn._estimators.reference import reference_losses as losses_of_reference
from drolearn._estimators.rounds import Certificate, Rounds, average, shares_of_rounds
from drolearn._estimators.training_data import as_sample_weights
from drolearn._inner.groups import Groups, worst_of_rows
from drolearn._inner.worst_case import WorstCase, worst_case
from drolearn._solvers.inputs import as_reference_losses
from drolearn._validation import as_generator, as_groups
from drolearn.divergence import Divergence, as_divergence, radius_for

__all__ = ["RobustEnsemble"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
_WHAT = "The estimator of an ensemble"


@dataclass(frozen=True, slots=True, eq=False)
class _Game:
    """Everything that the rounds of one fit need besides the models."""

    X: Any
    y: NDArray[Any]
    scale: float
    """The sum of the weights of the rows as the estimator sees them."""
    folds: list[tuple[Indices, Indices]] | None
    reference: Array | None
    worst: Callable[[Array], WorstCase]
    """The worst case of the losses of the rows."""
    groups: Groups | None
    params: dict[str, Any]
    """Further arguments of the estimator's fit."""
    base: Array


class RobustEnsemble(MetaEstimatorMixin, WorstCaseMixin, CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of robust ensembles of classifiers and regressors."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "rho": [Interval(Real, 0, None, closed="both"), None],
        "divergence": [str, Divergence],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "reference": [StrOptions({"auto"}), HasMethods(["fit", "get_params"]), None],
        "cv": ["cv_object"],
        "random_state": ["random_state", np.random.Generator],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    estimator: Any
    rho: Any
    divergence: Any
    n_rounds: int
    reference: Any
    cv: Any
    random_state: Any
    n_jobs: int | None
    verbose: int
    estimators_: list[Any]
    estimator_weights_: Array

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Get the metadata routing of the ensemble and its estimator.

        Returns
        -------
        MetadataRouter
            The ensemble's own requests, and those of the estimator's fit.

        Examples
        --------
        >>> from sklearn.linear_model import LinearRegression
        >>> from drolearn import RobustEnsembleRegressor
        >>> routing = RobustEnsembleRegressor(LinearRegression()).get_metadata_routing()
        >>> type(routing).__name__
        'MetadataRouter'
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    # -- subclasses implement --------------------------------------------------------------

    _of_classes: ClassVar[bool]
    _loss_of_reference: Any
    """The loss, as `drolearn.reference_losses` takes it."""

    @abstractmethod
    def _validate_y(self, y: Any) -> NDArray[Any]:
        """Check the labels, and return them as a vector."""

    @abstractmethod
    def _predictions(self, model: Any, X: Any) -> Array:
        """The predictions of one model, of which averages are taken."""

    @abstractmethod
    def _losses(self, predictions: Array, y: NDArray[Any]) -> Array:
        """The losses of predictions."""

    # -- fitting ---------------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        split_groups: Any,
        reference_losses: Any,
        params: dict[str, Any],
    ) -> Self:
        """Validate the arguments, play the rounds, and set the attributes."""
        _raise_for_params(params, self, "fit")
        if params:
            params = process_routing(self, "fit", **params).estimator.fit
        game = self._game(X, y, sample_weight, groups, split_groups, reference_losses, params)
        arguments = {"estimator": self, "X": X, "y": game.y, "metadata": None}
        context = self._init_callback_context(max_subtasks=self.n_rounds)
        context.call_on_fit_task_begin(**arguments)
        self._play(game, context, arguments)
        context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
        return self

    def _game(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        split_groups: Any,
        reference_losses: Any,
        params: dict[str, Any],
    ) -> _Game:
        """Validate the arguments of `fit`."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        X, n = indexable(X)[0], _num_samples(X)
        if n == 0:
            raise ValueError(
                f"{type(self).__name__} needs at least one row. Found array with 0 sample(s)."
            )
        labels = self._validate_y(y)
        check_consistent_length(X, labels)
        self.divergence_ = as_divergence(self.divergence)
        self.rho_ = radius_for(self.divergence_, self.rho)
        weights, exponent = as_sample_weights(sample_weight, labels)
        total, self._row_count = float(n), float(n)
        if weights is not None:
            if self._of_classes and np.unique(labels[weights > 0.0]).size < 2:
                raise ValueError(
                    "The rows of positive weight must have at least two classes. Got fewer instead."
                )
            total = math.ldexp(float(weights.sum()), exponent)
            self._row_count = float(weights.sum() / weights[weights > 0.0].min())
        self.groups_, parts = None, None
        base = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
        if groups is not None:
            self.groups_, membership = as_groups(groups, n)
            parts = Groups.make(membership, weights)
            base = parts.rows(parts.shares)
        split = partial(make_folds, _WHAT, self.cv, X, labels, split_groups)
        folds = None if self.cv is None else split(classes=self._of_classes)
        reference = as_reference_losses(reference_losses, n)
        if reference is None and self.reference is not None:
            reference = losses_of_reference(
                self.reference,
                X,
                labels,
                loss=self._loss_of_reference,
                sample_weight=weights,
                split_groups=split_groups,
                n_jobs=self.n_jobs,
            )
        rho, divergence = self._radius(), self.divergence_

        def worst(z: Array) -> WorstCase:
            return worst_of_rows(z, rho, divergence, weights, parts, n_jobs=self.n_jobs)

        return _Game(X, labels, total, folds, reference, worst, parts, params, base)

    def _radius(self) -> float | None:
        """The radius as `worst_case` takes it."""
        return self.rho_ if self.divergence_.has_radius else None

    def _play(self, game: _Game, context: Any, arguments: dict[str, Any]) -> None:
        """Play the rounds, and keep those up to the one with the smallest robust loss."""
        rounds, certificate = Rounds(game.worst, game.base), Certificate()
        models: list[Any] = []
        mean: Array | None = None
        values: list[float] = []
        best: tuple[WorstCase, Array] | None = None
        seed = None if self.random_state is None else as_generator(self.random_state)
        start = time.process_time()
        for count in range(1, self.n_rounds + 1):
            task = context.subcontext(task_name="round")
            task.call_on_fit_task_begin(**arguments)
            weights = rounds.weights
            model, predictions = self._round(game, weights, seed)
            models.append(model)
            mean = average(mean, predictions, count)
            losses = self._regrets(game, mean)
            if game.folds is None:
                certificate.add(weights, self._regrets(game, predictions))
            worst = rounds.advance(losses)
            values.append(worst.value)
            if best is None or worst.value < best[0].value:
                best = worst, losses
                self._keep(models)
            if self.verbose:
                name = "robust loss" if game.reference is None else "robust regret"
                print(
                    f"[{type(self).__name__}] round {count} of {self.n_rounds}, {name} "
                    f"{worst.value:.6g}, {time.process_time() - start:.2f} s",
                    flush=True,
                )
            if task.call_on_fit_task_end(
                **arguments, reconstruction_attributes=partial(self._attributes, list(models))
            ):
                break
        if best is None:
            raise RuntimeError("No round was played.")
        self._set_results(game, values, certificate, *best)

    def _round(
        self, game: _Game, weights: Array, seed: np.random.Generator | None
    ) -> tuple[Any, Array]:
        """Fit a model to all rows; return it with the predictions that its losses are taken of."""
        folds = [(None, None)] if game.folds is None else [*game.folds, (None, np.empty(0, int))]
        jobs = []
        for train, test in folds:
            model = clone(self.estimator)
            if seed is not None:
                _set_random_states(model, int(seed.integers(2**31 - 1)))
            rows = weights * game.scale
            jobs.append(delayed(self._fit_part)(model, game, rows, train, test))
        parts: list[Any] = list(Parallel(n_jobs=self.n_jobs)(jobs))
        model, predictions = parts[-1]
        if game.folds is not None:
            tested = np.concatenate([test for _, test in game.folds])
            found = np.concatenate([found for _, found in parts[:-1]])
            predictions = np.empty_like(found)
            predictions[tested] = found
        return model, predictions

    def _fit_part(
        self, model: Any, game: _Game, weights: Array, train: Indices | None, test: Indices | None
    ) -> tuple[Any, Array | None]:
        """Fit to the training rows and predict the test rows; None stands for all rows."""
        X, y, params = game.X, game.y, game.params
        if train is not None:
            X, y, weights = _safe_indexing(X, train), y[train], weights[train]
        params = _check_method_params(game.X, params=params, indices=train)
        model.fit(X, y, **weights_argument(_WHAT, model, weights), **params)
        if test is not None and test.size == 0:
            return model, None
        rows = game.X if test is None else _safe_indexing(game.X, test)
        return None if train is not None else model, self._predictions(model, rows)

    def _regrets(self, game: _Game, predictions: Array) -> Array:
        """Losses, minus those of the reference if there is one."""
        losses = self._losses(predictions, game.y)
        return losses if game.reference is None else losses - game.reference

    # -- results ---------------------------------------------------------------------------

    def _attributes(self, models: list[Any]) -> dict[str, Any]:
        """The models and their weights, by attribute name."""
        found = {"estimators_": models, "estimator_weights_": shares_of_rounds(len(models))}
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(models[0], name):
                found[name] = getattr(models[0], name)
        return found

    def _keep(self, models: list[Any]) -> None:
        vars(self).pop("feature_names_in_", None)
        for name, value in self._attributes(list(models)).items():
            setattr(self, name, value)

    def _set_results(
        self,
        game: _Game,
        values: list[float],
        certificate: Certificate,
        worst: WorstCase,
        losses: Array,
    ) -> None:
        used = len(self.estimators_)
        self.round_values_ = np.array(values)
        self.robust_loss_, self.robust_regret_ = worst.value, None
        if game.reference is not None:
            self.robust_loss_ = game.worst(losses + game.reference).value
            self.robust_regret_ = worst.value
        self.group_weights_ = None
        if game.groups is not None:
            means, shares = game.groups.means(losses), game.groups.shares
            of_groups = worst_case(means, self._radius(), self.divergence_, shares)
            self.group_weights_ = of_groups.weights
        self.gap_ = math.nan
        kept = f"The average of rounds 1 to {used} of {len(values)} has the smallest robust loss"
        if game.folds is not None:
            reason = "its losses are cross-fitted, so there is no duality gap (cv=None computes it)"
        else:
            self.gap_ = certificate.gap(game.worst, used)
            reason = f"the duality gap is {self.gap_:.3g} if every fit minimises its loss"
            if math.isnan(self.gap_):
                reason = "there is no duality gap: a fit did not minimise its weighted mean loss"
        self.status_ = f"{kept}; {reason}."

    # -- predictions -----------------------------------------------------------------------

    def _average(self, X: Any) -> Array:
        """The average of the models' predictions."""
        check_is_fitted(self)
        each = [self._predictions(model, X) for model in self.estimators_]
        return np.average(each, axis=0, weights=self.estimator_weights_)

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
            Losses of the averaged predictions.

        Examples
        --------
        >>> from sklearn.linear_model import LinearRegression
        >>> from drolearn import RobustEnsembleRegressor
        >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0]
        >>> reg = RobustEnsembleRegressor(LinearRegression(), rho=0.0, cv=None)
        >>> reg.fit(X, y).losses(X, y).round(4)
        array([0.0139, 0.0556, 0.0139])
        """
        predictions = self._average(X)
        check_consistent_length(X, y)
        return self._losses(predictions, self._labels(y))

    @abstractmethod
    def _labels(self, y: Any) -> NDArray[Any]:
        """Check labels of new data."""
