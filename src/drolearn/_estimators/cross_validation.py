"""The radius by cross-validation: a warm-started path over ρ in every fold."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context, is_classifier
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.model_selection._split import GroupsConsumerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from drolearn._estimators.linear import Data, RobustClassifier, RobustLinear, RobustRegressor
from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import as_radius
from drolearn._solvers.solvers import Solver
from drolearn._validation import as_generator, as_groups
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["RobustClassifierCV", "RobustRegressorCV"]

Array = NDArray[np.float64]
RHOS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_OWN = ("loss", "worst-group", "robust")


class RobustPath(RobustLinear):
    """What both estimators with a path over ρ have in common."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "rhos": ["array-like"],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set(_OWN) | set(get_scorer_names())), callable],
        "scoring_rho": [Interval(Real, 0, None, closed="left")],
        "train_on_groups": ["boolean"],
    }
    _plain: ClassVar[type[RobustLinear]]

    rhos: Any
    cv: Any
    scoring: Any
    scoring_rho: float
    train_on_groups: bool

    def _fit_path(self, data: Data, groups: Any) -> Self:
        """Score all radii in all folds, then fit with the best on all rows."""
        self.rhos_ = _as_radii(self.rhos)
        names = None if groups is None else as_groups(groups, data.X.shape[0])[1]
        if names is None and isinstance(self.scoring, str) and self.scoring == "worst-group":
            raise ValueError(
                f"The 'scoring' parameter of {type(self).__name__} must not be 'worst-group' "
                f"without groups: give them to fit, or choose another."
            )
        found: Any = check_cv(self.cv, data.y, classifier=is_classifier(self))
        wanted, splitter = isinstance(found, GroupsConsumerMixin), found
        folds = list(splitter.split(data.X, data.y, groups if wanted else None))
        told = self._told(data)
        context = self._init_callback_context(max_subtasks=len(folds) + 1)
        context.call_on_fit_task_begin(**told)
        seeds = as_generator(self.random_state).integers(2**31 - 1, size=len(folds))
        jobs = (
            delayed(_score_fold)(self._model(int(seed)), self, data, names, train, test)
            for seed, (train, test) in zip(seeds, folds, strict=True)
        )
        scores = []
        for own in Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs):
            scores.append(own)
            fold = context.subcontext(task_name="fold")
            fold.call_on_fit_task_begin(**told)
            fold.call_on_fit_task_end(**told)
        self.scores_ = np.array(scores)
        mean = self.scores_.mean(axis=0)
        if not np.isfinite(mean).all():
            raise ValueError(
                f"The 'scoring' parameter of {type(self).__name__} must give finite scores. Got "
                f"{mean[~np.isfinite(mean)][0]} for rho = {self.rhos_[~np.isfinite(mean)][0]:g} "
                f"instead."
            )
        best = int(mean.size - 1 - np.argmax(mean[::-1]))  # of equals, the most robust
        self.best_score_ = float(mean[best])
        last = context.subcontext(task_name="refit")
        last.call_on_fit_task_begin(**told)
        own_groups = groups if self.train_on_groups else None
        self._fit(data, own_groups, self.rhos_[best], context=last)
        last.call_on_fit_task_end(**told, reconstruction_attributes={})
        context.call_on_fit_task_end(**told, reconstruction_attributes={})
        return self

    def _model(self, seed: int) -> RobustLinear:
        """The estimator of one fold."""
        mine = self.get_params(deep=False)
        own = {name: mine[name] for name in self._plain._get_param_names() if name in mine}
        own.update(random_state=seed, warm_start=True, n_jobs=None, verbose=0)
        # What is already part of the weights must not count twice.
        own.pop("class_weight", None)
        return self._plain(**own)

    def plot_path(self, ax: Any = None) -> Any:
        """Draw the scores against ρ: mean and standard error of the folds, and the choice.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.

        Returns
        -------
        matplotlib Axes
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
        ax.set(xlabel="radius ρ", ylabel=f"−{name}" if name in _OWN else name)
        ax.legend(frameon=False)
        return ax


def _as_radii(rhos: ArrayLike) -> Array:
    """Radii in growing order, each once."""
    given = column_or_1d(rhos)
    if given.size == 0:
        raise ValueError("The 'rhos' parameter must hold at least one radius. Got none instead.")
    radii = np.unique([as_radius(rho) for rho in given.tolist()])
    if not np.isfinite(radii).all():
        raise ValueError("The 'rhos' parameter must hold finite radii. Got inf instead.")
    return radii


def _score_fold(
    model: RobustLinear,
    path: RobustPath,
    data: Data,
    groups: NDArray[np.int64] | None,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
) -> list[float]:
    """The scores of all radii on one fold."""
    missing = np.setdiff1d(data.y[test], data.y[train]) if is_classifier(model) else np.empty(0)
    if missing.size:
        raise ValueError(
            f"The 'cv' parameter of {type(path).__name__} must leave every class some rows to "
            f"train on. Got a fold that trains without {missing[0]!r}: use fewer folds, or drop it."
        )
    if data.weights is not None and not data.weights[test].any():
        raise ValueError(
            f"The 'cv' parameter of {type(path).__name__} must leave every fold some rows of "
            f"positive weight to test on. Got a fold without."
        )
    own = None if groups is None or not path.train_on_groups else groups[train]
    weights = None if data.weights is None else data.weights[train]
    # The weights of `data` may be scaled by a power of two, which the model does not know.
    model.set_params(l2=data.penalty(path.l2, train))
    scores = []
    for rho in path.rhos_:
        model.set_params(rho=float(rho))
        with warnings.catch_warnings():
            # Its scores will say so; the last fit warns if it is chosen.
            warnings.filterwarnings("ignore", "No model is better than none")
            model.fit(data.X[train], data.y[train], sample_weight=weights, groups=own)  # type: ignore[attr-defined]
        scores.append(_score(model, path, data, groups, test))
    return scores


def _score(
    model: RobustLinear,
    path: RobustPath,
    data: Data,
    groups: NDArray[np.int64] | None,
    test: NDArray[np.int64],
) -> float:
    X, y = data.X[test], data.y[test]
    weights = None if data.weights is None else data.weights[test]
    scoring = path.scoring
    if not (isinstance(scoring, str) and scoring in _OWN):
        extra = {} if weights is None or callable(scoring) else {"sample_weight": weights}
        scorer: Any = check_scoring(model, scoring)
        try:
            return float(scorer(model, X, y, **extra))
        except TypeError as error:
            if extra and "sample_weight" in str(error):
                raise ValueError(
                    f"The 'scoring' parameter of {type(path).__name__} must take sample weights "
                    f"when they are given to fit. Got {scoring!r} instead."
                ) from error
            raise
    if scoring == "robust":
        return -model.worst_case(X, y, path.scoring_rho, weights).value
    codes = np.zeros(test.size, dtype=np.int64)
    if scoring == "worst-group" and groups is not None:
        codes = groups[test]
    parts = Groups.make(codes, weights)
    return -float(parts.means(model.losses(X, y))[parts.shares > 0.0].max())


class RobustClassifierCV(RobustPath, RobustClassifier):
    """A :class:`RobustClassifier` whose radius is chosen by cross-validation.

    Parameters
    ----------
    rhos : array-like of float, default=(0, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
        Radii to try.  In every fold they are fitted from the smallest to the largest, each from
        the model of the last.
    cv : int, splitter or iterable, default=None
        As in scikit-learn: five stratified folds if not given.
    scoring : {"loss", "worst-group", "robust"}, scorer name or callable, default="loss"
        What is best on the rows left out: the smallest mean loss, the smallest mean loss of the
        worst group (groups are then to be given to fit), the smallest robust loss at radius
        `scoring_rho`, or the highest score of scikit-learn's.
    scoring_rho : float, default=0.1
        Radius for scoring="robust".
    train_on_groups : bool, default=True
        Whether groups that are given to fit are also what the ball moves in training, or
        only serve to score.
    divergence, loss, fit_intercept, class_weight, solver, max_iter, tol,\
 random_state, warm_start, verbose
        As for :class:`RobustClassifier`.
    l2 : float or "auto", default="auto"
        As for :class:`RobustClassifier`; "auto" is 1/Σw of the rows that each fold trains on.
    n_jobs : int or None, default=None
        Folds at a time, by joblib and so by any of its backends; then threads for the last fit.

    Attributes
    ----------
    rho_ : float
        The radius with the best mean score; of equals, the largest.
    rhos_ : array of shape (r,)
        The radii in growing order.
    scores_ : array of shape (folds, r)
        Scores of the rows left out; larger is better.
    best_score_ : float
        The best mean score.
    coef_, intercept_, classes_, l2_, robust_loss_, worst_case_weights_, ...
        Those of the model fitted with `rho_` on all rows, as for :class:`RobustClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import RobustClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 3))
    >>> y = X[:, 0] + 0.5 * rng.standard_normal(300) > 0
    >>> clf = RobustClassifierCV(rhos=[0, 0.1, 0.5], scoring="robust", scoring_rho=0.2).fit(X, y)
    >>> clf.scores_.shape, clf.rho_ > 0
    ((5, 3), True)
    """

    _plain = RobustClassifier
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustClassifier._parameter_constraints,
        **RobustPath._parameter_constraints,
    }
    _parameter_constraints.pop("rho")

    def __init__(
        self,
        rhos: ArrayLike = RHOS,
        *,
        cv: Any = None,
        scoring: Any = "loss",
        scoring_rho: float = 0.1,
        train_on_groups: bool = True,
        divergence: str | Divergence = "chi2",
        loss: str | Loss = "logistic",
        l2: float | str = "auto",
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: str | Solver = "auto",
        max_iter: float = 100,
        tol: float | None = 1e-6,
        random_state: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.rhos = rhos
        self.cv = cv
        self.scoring = scoring
        self.scoring_rho = scoring_rho
        self.train_on_groups = train_on_groups
        self.divergence = divergence
        self.loss = loss
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose the radius and fit; parameters as for `RobustClassifier.fit`.

        Folds do not look at `groups`, unless `cv` is a splitter by groups such as GroupKFold.
        """
        return self._fit_path(self._prepare(X, y, sample_weight), groups)


class RobustRegressorCV(RobustPath, RobustRegressor):
    """A :class:`RobustRegressor` whose radius is chosen by cross-validation.

    Parameters
    ----------
    rhos, cv, scoring, scoring_rho, train_on_groups, n_jobs
        As for :class:`RobustClassifierCV`; folds are not stratified.
    divergence, loss, fit_intercept, solver, max_iter, tol,\
 random_state, warm_start, verbose
        As for :class:`RobustRegressor`.
    l2 : float or "auto", default="auto"
        As for :class:`RobustRegressor`; "auto" is 1/Σw of the rows that each fold trains on.

    Attributes
    ----------
    rho_, rhos_, scores_, best_score_
        As for :class:`RobustClassifierCV`.
    coef_, intercept_, l2_, robust_loss_, worst_case_weights_, ...
        Those of the model fitted with `rho_` on all rows, as for :class:`RobustRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import RobustRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(200)
    >>> RobustRegressorCV(rhos=[0, 0.1]).fit(X, y).scores_.shape
    (5, 2)
    """

    _plain = RobustRegressor
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustRegressor._parameter_constraints,
        **RobustPath._parameter_constraints,
    }
    _parameter_constraints.pop("rho")

    def __init__(
        self,
        rhos: ArrayLike = RHOS,
        *,
        cv: Any = None,
        scoring: Any = "loss",
        scoring_rho: float = 0.1,
        train_on_groups: bool = True,
        divergence: str | Divergence = "chi2",
        loss: str | Loss = "squared",
        l2: float | str = "auto",
        fit_intercept: bool = True,
        solver: str | Solver = "auto",
        max_iter: float = 100,
        tol: float | None = 1e-6,
        random_state: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.rhos = rhos
        self.cv = cv
        self.scoring = scoring
        self.scoring_rho = scoring_rho
        self.train_on_groups = train_on_groups
        self.divergence = divergence
        self.loss = loss
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose the radius and fit; parameters as for `RobustClassifierCV.fit`."""
        return self._fit_path(self._prepare(X, y, sample_weight), groups)
