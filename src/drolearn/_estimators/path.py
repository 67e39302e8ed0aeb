"""What both estimators with cross-validation share: a path over radii in every fold."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.model_selection._split import GroupsConsumerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from drolearn._estimators.base import RobustLinear, TrainingData, ZeroModelWarning
from drolearn._inner.groups import Groups
from drolearn._validation import as_generator, as_groups, as_radius

__all__ = ["DEFAULT_RHOS", "RobustLinearCV"]

Array = NDArray[np.float64]
DEFAULT_RHOS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Scores that are not scikit-learn's: each is minus a loss.
_LOSS_SCORES = ("loss", "worst-group", "robust")


class RobustLinearCV(RobustLinear):
    """Base class of the estimators that choose the radius by cross-validation."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "rhos": ["array-like"],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set(_LOSS_SCORES) | set(get_scorer_names())), callable],
        "scoring_rho": [Interval(Real, 0, None, closed="left")],
        "train_on_groups": ["boolean"],
    }
    _fold_estimator: ClassVar[type[RobustLinear]]

    rhos: Any
    cv: Any
    scoring: Any
    scoring_rho: float
    train_on_groups: bool

    def _fit_path(self, data: TrainingData, groups: Any) -> Self:
        """Score all radii in all folds, then fit with the best one on all rows."""
        self.rhos_ = _as_radii(self.rhos)
        group_indices = None if groups is None else as_groups(groups, data.X.shape[0])[1]
        needs_groups = isinstance(self.scoring, str) and self.scoring == "worst-group"
        if group_indices is None and needs_groups:
            raise ValueError(
                f"The 'scoring' parameter of {type(self).__name__} must not be 'worst-group' "
                f"without groups: pass groups to fit, or use another scoring."
            )
        splitter: Any = check_cv(self.cv, data.y, classifier=is_classifier(self))
        splits_groups = isinstance(splitter, GroupsConsumerMixin)
        folds = list(splitter.split(data.X, data.y, groups if splits_groups else None))
        arguments = self._callback_arguments(data)
        context = self._init_callback_context(max_subtasks=len(folds) + 1)
        context.call_on_fit_task_begin(**arguments)
        seeds = as_generator(self.random_state).integers(2**31 - 1, size=len(folds))
        jobs = (
            delayed(_score_fold)(
                self._make_fold_estimator(int(seed)), self, data, group_indices, train, test
            )
            for seed, (train, test) in zip(seeds, folds, strict=True)
        )
        scores = []
        for fold_scores in Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs):
            scores.append(fold_scores)
            task = context.subcontext(task_name="fold")
            task.call_on_fit_task_begin(**arguments)
            task.call_on_fit_task_end(**arguments)
        self.scores_ = np.array(scores)
        best = self._best_radius()
        refit = context.subcontext(task_name="refit")
        refit.call_on_fit_task_begin(**arguments)
        training_groups = groups if self.train_on_groups else None
        self._fit(data, training_groups, self.rhos_[best], context=refit)
        refit.call_on_fit_task_end(**arguments, reconstruction_attributes={})
        context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
        return self

    def _best_radius(self) -> int:
        """Return the index of the radius with the best mean score, and set `best_score_`."""
        mean = self.scores_.mean(axis=0)
        if not np.isfinite(mean).all():
            raise ValueError(
                f"The 'scoring' parameter of {type(self).__name__} must give finite scores. Got "
                f"{mean[~np.isfinite(mean)][0]} for rho = {self.rhos_[~np.isfinite(mean)][0]:g} "
                f"instead."
            )
        best = int(mean.size - 1 - np.argmax(mean[::-1]))  # the largest of equally good radii
        self.best_score_ = float(mean[best])
        return best

    def _make_fold_estimator(self, seed: int) -> RobustLinear:
        params = self.get_params(deep=False)
        names = self._fold_estimator._get_param_names()
        fold_params = {name: params[name] for name in names if name in params}
        fold_params.update(random_state=seed, warm_start=True, n_jobs=None, verbose=0)
        # The weights of the data include the class weights already.
        fold_params.pop("class_weight", None)
        return self._fold_estimator(**fold_params)

    def plot_path(self, ax: Any = None) -> Any:
        """Plot the scores against ρ: mean and standard error over the folds, and the choice.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw into; None makes a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> from drolearn import RobustRegressorCV
        >>> X, y = [[float(i)] for i in range(20)], [float(i % 7) for i in range(20)]
        >>> RobustRegressorCV(rhos=[0, 0.1]).fit(X, y).plot_path().get_ylabel()
        '−loss'
        """
        check_is_fitted(self, "scores_")
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.subplots(layout="constrained")[1]
        mean = self.scores_.mean(axis=0)
        error = self.scores_.std(axis=0, ddof=1) / np.sqrt(len(self.scores_))
        smallest = self.rhos_[self.rhos_ > 0.0].min(initial=1.0)
        ax.errorbar(self.rhos_, mean, error, marker="o", capsize=3)
        ax.axvline(self.rho_, linestyle=":", color="black", label=f"chosen: {self.rho_:g}")
        ax.set_xscale("symlog", linthresh=smallest, linscale=0.5)
        name = self.scoring if isinstance(self.scoring, str) else "score"
        ax.set(xlabel="radius ρ", ylabel=f"−{name}" if name in _LOSS_SCORES else name)
        ax.legend(frameon=False)
        return ax


def _as_radii(rhos: ArrayLike) -> Array:
    """Validate the radii; return them in increasing order without duplicates."""
    given = column_or_1d(rhos)
    if given.size == 0:
        raise ValueError("The 'rhos' parameter must hold at least one radius. Got none instead.")
    radii = np.unique([as_radius(rho) for rho in given.tolist()])
    if not np.isfinite(radii).all():
        raise ValueError("The 'rhos' parameter must hold finite radii. Got inf instead.")
    return radii


def _score_fold(
    model: RobustLinear,
    path: RobustLinearCV,
    data: TrainingData,
    group_indices: NDArray[np.int64] | None,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
) -> list[float]:
    """Fit and score all radii on one fold."""
    missing = np.setdiff1d(data.y[test], data.y[train]) if is_classifier(model) else np.empty(0)
    if missing.size:
        raise ValueError(
            f"The 'cv' parameter of {type(path).__name__} must leave every class some rows to "
            f"train on. Got a fold that trains without {missing[0]!r}: use fewer folds, or drop "
            f"this class."
        )
    if data.weights is not None and not data.weights[test].any():
        raise ValueError(
            f"The 'cv' parameter of {type(path).__name__} must leave every fold some rows of "
            f"positive weight to test on. Got a fold without any: use another split."
        )
    groups = None
    if group_indices is not None and path.train_on_groups:
        groups = group_indices[train]
    weights = None if data.weights is None else data.weights[train]
    # "auto" must see the weights as passed; `data.weights` may be scaled by a power of two.
    model.set_params(l2=data.penalty(path.l2, train))
    scores = []
    for rho in path.rhos_:
        model.set_params(rho=float(rho))
        with warnings.catch_warnings():
            # The scores show it, and the final fit warns if this radius is chosen.
            warnings.simplefilter("ignore", ZeroModelWarning)
            model.fit(data.X[train], data.y[train], sample_weight=weights, groups=groups)  # type: ignore[attr-defined]
        scores.append(_score(model, path, data, group_indices, test))
    return scores


def _score(
    model: RobustLinear,
    path: RobustLinearCV,
    data: TrainingData,
    group_indices: NDArray[np.int64] | None,
    test: NDArray[np.int64],
) -> float:
    """Score a fitted model on the validation rows."""
    X, y = data.X[test], data.y[test]
    weights = None if data.weights is None else data.weights[test]
    scoring = path.scoring
    if not (isinstance(scoring, str) and scoring in _LOSS_SCORES):
        optional = {} if weights is None or callable(scoring) else {"sample_weight": weights}
        scorer: Any = check_scoring(model, scoring)
        try:
            return float(scorer(model, X, y, **optional))
        except TypeError as error:
            if optional and "sample_weight" in str(error):
                raise ValueError(
                    f"The 'scoring' parameter of {type(path).__name__} must take sample weights "
                    f"when they are passed to fit. Got {scoring!r} instead."
                ) from error
            raise
    if scoring == "robust":
        return -model.worst_case(X, y, path.scoring_rho, weights).value
    # The mean loss is that of the worst group if all rows are in one group.
    indices = np.zeros(test.size, dtype=np.int64)
    if scoring == "worst-group" and group_indices is not None:
        indices = group_indices[test]
    parts = Groups.make(indices, weights)
    return -float(parts.means(model.losses(X, y))[parts.shares > 0.0].max())
