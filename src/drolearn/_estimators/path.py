"""What both estimators with cross-validation share: a path over radii and penalties."""

from __future__ import annotations

import math
import warnings
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.model_selection._split import GroupsConsumerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from drolearn._estimators.base import RobustLinear, ZeroModelWarning
from drolearn._estimators.folds import LOSS_SCORES, Ball, Rows, penalty_of, score_fold
from drolearn._estimators.training_data import TrainingData
from drolearn._validation import as_generator, as_groups, as_radius
from drolearn.divergence import CVaR, Divergence, as_divergence

__all__ = ["RobustLinearCV"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Fold = tuple[Indices, Indices]  # training and validation rows
# How often a ball that is as good as the plain loss may be chosen by scoring="loss".
_SIGNIFICANCE = 0.05
_RHOS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_LEVELS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.2, 0.1)
# Multiples of 1/Σw: the reciprocals of C = 1e-4 … 1e4, the grid of LogisticRegressionCV.
_L2S = tuple(np.logspace(4, -4, 10))


class RobustLinearCV(RobustLinear):
    """Base class of the estimators that choose radius and penalty by cross-validation."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "rhos": ["array-like", None],
        "taus": ["array-like", None],
        "levels": ["array-like", None],
        "l2s": ["array-like", None],
        "l1s": ["array-like", None],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set(LOSS_SCORES) | set(get_scorer_names())), callable],
        "scoring_rho": [Interval(Real, 0, None, closed="both")],
        "exclude_zero": ["boolean"],
        "path_tol": [Interval(Real, 0, 1, closed="neither")],
    }
    _fold_estimator: ClassVar[type[RobustLinear]]
    _takes_streams: ClassVar[bool] = False

    rhos: Any
    taus: Any
    levels: Any
    l2s: Any
    l1s: Any
    cv: Any
    scoring: Any
    scoring_rho: float
    exclude_zero: bool
    path_tol: float

    def _fit_path(self, data: TrainingData, groups: Any, split_groups: Any, domains: Any) -> Self:
        """Score all candidates in all folds, then fit with the best one on all rows."""
        n = data.X.shape[0]
        balls = self._balls()
        only_l1 = self.l1s is not None and self.l2s is None
        self.l2s_ = _as_penalties("l2s", _L2S if self.l2s is None and not only_l1 else self.l2s)
        self.l1s_ = _as_penalties("l1s", self.l1s)
        rows = Rows(
            None if groups is None else as_groups(groups, n)[1],
            None if domains is None else as_groups(domains, n, "domains")[1],
            None if split_groups is None else np.asarray(split_groups),
        )
        self._check_scoring(rows)
        folds = self._folds(data, split_groups)
        arguments = self._callback_arguments(data)
        context = self._init_callback_context(max_subtasks=len(folds) + 1)
        context.call_on_fit_task_begin(**arguments)
        seeds = as_generator(self.random_state).integers(2**31 - 1, size=len(folds))
        jobs = (
            delayed(score_fold)(self._fold_model(int(seed)), self, balls, data, rows, fold)
            for seed, fold in zip(seeds, folds, strict=True)
        )
        results = []
        for of_fold in Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs):
            results.append(of_fold)
            task = context.subcontext(task_name="fold")
            task.call_on_fit_task_begin(**arguments)
            task.call_on_fit_task_end(**arguments)
        table = np.array(results)  # folds × balls × penalties × (score, is_zero, converged)
        self.scores_, self.zero_models_ = table[..., 0], table[..., 1] > 0.0
        self._warn_of_unconverged(int((table[..., 2] == 0.0).sum()), table[..., 2].size)
        ball, penalty = self._best_candidate(balls, folds)
        self.best_l2_, self.best_l1_ = self._penalties[penalty]
        refit = context.subcontext(task_name="refit")
        refit.call_on_fit_task_begin(**arguments)
        l2, l1 = penalty_of(data, self.best_l2_), penalty_of(data, self.best_l1_)
        chosen = balls[ball]
        self.tau_ = chosen.tau  # the price of the final fit
        self._fit(data, groups, chosen.rho, chosen.divergence, l2, l1, refit, split_groups)
        refit.call_on_fit_task_end(**arguments, reconstruction_attributes={})
        context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
        return self

    # -- the grid and the folds ------------------------------------------------------------

    @property
    def _price(self) -> float | None:
        return getattr(self, "tau_", None)  # models of version 0.1 have none

    @property
    def _penalties(self) -> list[tuple[float, float]]:
        """The candidates of l2 and l1, as multiples of 1/Σw."""
        l1s = getattr(self, "l1s_", np.zeros(1))  # models of version 0.1 have none
        return [(l2, l1) for l2 in self.l2s_.tolist() for l1 in l1s.tolist()]

    def _balls(self) -> list[Ball]:
        """Return the balls from the smallest to the largest; sets the attribute of the grid."""
        divergence = as_divergence(self.divergence)
        if divergence.family == "spectral":
            raise ValueError(
                f"The 'divergence' parameter of {type(self).__name__} must have a radius, or a "
                f"level as CVaR. Got {divergence!r} instead; use GridSearchCV over the parameter "
                f"'divergence' of {self._fold_estimator.__name__}."
            )
        for name in ("rhos_", "taus_", "levels_"):
            vars(self).pop(name, None)
        if self.taus is not None:
            return self._soft_balls(divergence)
        given, other = ("levels", "rhos") if isinstance(divergence, CVaR) else ("rhos", "levels")
        if getattr(self, other) is not None:
            why = "CVaR has no radius" if other == "rhos" else "only CVaR has levels"
            raise ValueError(
                f"The '{other}' parameter of {type(self).__name__} must be None for "
                f"divergence={self.divergence!r}: {why}. Use '{given}' instead."
            )
        if isinstance(divergence, CVaR):
            levels = _as_grid("levels", _LEVELS if self.levels is None else self.levels)[::-1]
            self.levels_ = levels
            return [Ball(CVaR(level), None) for level in levels.tolist()]
        self.rhos_ = _as_grid("rhos", _RHOS if self.rhos is None else self.rhos)
        return [Ball(divergence, rho) for rho in self.rhos_.tolist()]

    def _soft_balls(self, divergence: Divergence) -> list[Ball]:
        """Return the soft balls from the highest to the lowest price; sets `taus_`."""
        for other in ("rhos", "levels"):
            if getattr(self, other) is not None:
                raise ValueError(
                    f"The 'taus' parameter of {type(self).__name__}, the prices of soft balls, "
                    f"replaces '{other}': pass one of them. Got {other}={getattr(self, other)!r} "
                    f"beside it."
                )
        if not divergence.strictly_convex:
            raise ValueError(
                f"The 'taus' parameter of {type(self).__name__} needs a strictly convex "
                f"divergence, such as 'chi2'. Got divergence={self.divergence!r} instead."
            )
        self.taus_ = _as_grid("taus", self.taus)[::-1]
        return [Ball(divergence, None, tau) for tau in self.taus_.tolist()]

    def _check_scoring(self, rows: Rows) -> None:
        for scoring, parameter, given in (
            ("worst-group", "groups", rows.groups),
            ("worst-domain", "domains", rows.domains),
        ):
            if not (isinstance(self.scoring, str) and self.scoring == scoring):
                continue
            if given is None:
                raise ValueError(
                    f"The 'scoring' parameter of {type(self).__name__} must not be '{scoring}' "
                    f"without {parameter}: pass {parameter} to fit, or use another scoring."
                )
            if np.unique(given, axis=0).shape[0] < 2:
                raise ValueError(
                    f"The '{parameter}' parameter must name at least two {parameter} for "
                    f"scoring='{scoring}'. Got one instead."
                )

    def _folds(self, data: TrainingData, split_groups: Any) -> list[Fold]:
        """Return training and validation rows of each fold."""
        splitter: Any = check_cv(self.cv, data.y, classifier=is_classifier(self))
        by_groups = isinstance(splitter, GroupsConsumerMixin)
        if by_groups and split_groups is None:
            raise ValueError(
                f"The 'cv' parameter of {type(self).__name__} splits by groups: pass split_groups "
                f"to fit. Got None instead."
            )
        if not by_groups and split_groups is not None:
            raise ValueError(
                f"The 'split_groups' parameter needs a 'cv' that splits by groups, such as "
                f"GroupKFold(5). Got cv={self.cv!r} instead."
            )
        if split_groups is not None and np.unique(split_groups).size < 2:
            raise ValueError(
                "The 'split_groups' parameter must name at least two groups, so that a model can "
                "be tested on other groups than it is fitted to. Got one group instead."
            )
        return list(splitter.split(data.X, data.y, split_groups))

    def _fold_model(self, seed: int) -> RobustLinear:
        params = self.get_params(deep=False)
        names = self._fold_estimator._get_param_names()
        fold_params = {name: params[name] for name in names if name in params}
        fold_params.update(random_state=seed, tol=self.path_tol, n_jobs=None, verbose=0)
        if self.tol is None:
            fold_params["tol"] = None
        # The weights of the data include the class weights already.
        fold_params.pop("class_weight", None)
        return self._fold_estimator(**fold_params)

    # -- the choice ------------------------------------------------------------------------

    def _best_candidate(self, balls: list[Ball], folds: list[Fold]) -> tuple[int, int]:
        """Return the indices of the best ball and penalty; sets `best_score_`, `cv_results_`.

        Of equally good candidates it is the one with the largest ball, then the largest penalty.
        With scoring="loss" it is plain unless a ball is significantly better.
        """
        mean = self.scores_.mean(axis=0)
        if not np.isfinite(mean).all():
            ball, penalty = np.argwhere(~np.isfinite(mean))[0]
            raise ValueError(
                f"The 'scoring' parameter of {type(self).__name__} must give finite scores. Got "
                f"{mean[ball, penalty]} for {self._describe(balls[ball], penalty)} instead."
            )
        is_zero = np.asarray(self.zero_models_.any(axis=0))
        allowed = ~is_zero if self.exclude_zero and not is_zero.all() else np.ones_like(is_zero)
        best = _argmax(np.where(allowed, mean, -math.inf))
        if (
            balls[0].plain
            and allowed[0].any()
            and isinstance(self.scoring, str)
            and self.scoring == "loss"
        ):
            plain = 0, int(np.argmax(np.where(allowed[0], mean[0], -math.inf)))
            # Rows of the folds are not shifted, so the plain loss is the right one for them: the
            # best of many balls is too often the best by chance.
            if not _significantly_better(self.scores_[:, *best] - self.scores_[:, *plain], folds):
                best = plain
        best_of_all = _argmax(mean)
        if is_zero[best_of_all] and not allowed[best_of_all]:
            learning = [ball for ball, zero in zip(balls, is_zero, strict=True) if not zero.all()]
            name = balls[0].name
            kind = "largest rho" if name == "rho" else f"smallest {name}"
            warnings.warn(
                f"The best score belongs to the zero model "
                f"({self._describe(balls[best_of_all[0]], best_of_all[1])}), which ignores X. "
                f"It was excluded; exclude_zero=False allows it. The {kind} that still learns is "
                f"{learning[-1].number:g}.",
                ZeroModelWarning,
                stacklevel=5,
            )
        self.best_score_ = float(mean[best])
        ball, penalty = np.indices(mean.shape)
        self.cv_results_ = {
            balls[0].name: np.array([one.number for one in balls])[ball.ravel()],
            **self._table_of_penalties(penalty.ravel()),
            "mean_score": mean.ravel(),
            "standard_error": _standard_error(self.scores_).ravel(),
            "zero_model": is_zero.ravel(),
            "chosen": ((ball == best[0]) & (penalty == best[1])).ravel(),
        }
        return best

    def _table_of_penalties(self, numbers: Indices) -> dict[str, Array]:
        """Return the columns of `cv_results_` with the penalties; l1 only if it was searched."""
        l2, l1 = np.array(self._penalties)[numbers].T
        return {"l2": l2} if self.l1s is None else {"l2": l2, "l1": l1}

    def _describe(self, ball: Ball, penalty: Any) -> str:
        return f"{ball.name} = {ball.number:g}, {self._penalty_label(penalty)}"

    def _penalty_label(self, penalty: Any) -> str:
        l2, l1 = self._penalties[penalty]
        return f"l2 = {l2:.3g}/Σw" + ("" if self.l1s is None else f", l1 = {l1:.3g}/Σw")

    def _warn_of_unconverged(self, count: int, fits: int) -> None:
        if count and self.tol is not None:
            warnings.warn(
                f"{count} of {fits} fits in folds did not reach path_tol={self.path_tol:g}: raise "
                f"max_iter or path_tol.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def plot_path(self, ax: Any = None) -> Any:
        """Plot the scores against ρ, one line for each penalty, and mark the choice.

        Losses are shown as they are, so lower is better; scores of scikit-learn's scorers are
        shown as scores. Bars are standard errors over the folds. Crosses are zero models.

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
        'mean loss'
        """
        check_is_fitted(self, "scores_")
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.subplots(layout="constrained")[1]
        is_loss = isinstance(self.scoring, str) and self.scoring in LOSS_SCORES
        scores = -self.scores_ if is_loss else self.scores_
        mean, error = scores.mean(axis=0), _standard_error(scores)
        names = {"levels_": "level of CVaR", "taus_": "price τ", "rhos_": "radius ρ"}
        name, balls = next(
            (name, getattr(self, grid)) for grid, name in names.items() if hasattr(self, grid)
        )
        # Equal distances: radii are chosen on a scale that is neither linear nor logarithmic.
        place = np.arange(balls.size)
        count = len(self._penalties)
        chosen = self._penalties.index((self.best_l2_, getattr(self, "best_l1_", 0.0)))
        colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, count))
        for k in range(count):
            strong = k == chosen
            ax.errorbar(
                place, mean[:, k], error[:, k] if strong else None, color=colours[k],
                marker="o" if strong else None, linewidth=2.0 if strong else 0.8, capsize=3,
                label=self._penalty_label(k),
            )  # fmt: skip
        is_zero = np.argwhere(self.zero_models_.any(axis=0))
        ax.plot(is_zero[:, 0], mean[tuple(is_zero.T)], "x", color="black", label="_zero models")
        best = int(np.flatnonzero(self.cv_results_["chosen"])[0]) // count
        ax.axvline(place[best], linestyle=":", color="black", label=f"chosen: {balls[best]:g}")
        ax.set_xticks(place, [f"{ball:g}" for ball in balls])
        label = self.scoring if isinstance(self.scoring, str) else "score"
        ax.set(xlabel=name, ylabel=LOSS_SCORES.get(label, label))
        ax.legend(frameon=False, fontsize="small")
        return ax


def _as_grid(parameter: str, values: ArrayLike) -> Array:
    """Validate numbers of a grid; return them in increasing order without duplicates."""
    given = column_or_1d(values)
    if given.size == 0:
        raise ValueError(f"The '{parameter}' parameter must hold at least one number. Got none.")
    return np.unique([as_radius(value, parameter) for value in given.tolist()])


def _as_penalties(parameter: str, values: ArrayLike | None) -> Array:
    """Validate multiples of 1/Σw; return them in decreasing order, 0 alone for None."""
    grid = np.zeros(1) if values is None else _as_grid(parameter, values)[::-1]
    if not np.isfinite(grid).all():
        raise ValueError(f"The '{parameter}' parameter must hold finite numbers. Got inf instead.")
    return grid


def _argmax(mean: Array) -> tuple[int, int]:
    """The best candidate; of equal ones that of the largest ball, then of the largest penalty."""
    ball = int(mean.shape[0] - 1 - np.argmax(mean.max(axis=1)[::-1]))
    return ball, int(np.argmax(mean[ball]))


def _significantly_better(difference: Array, folds: list[Fold]) -> bool:
    """Whether scores differ by more than chance: the corrected t-test of Nadeau and Bengio.

    Folds share training rows, so their scores are correlated: the variance of the mean over k folds
    is about (1/k + test rows/training rows) times that of one fold, not 1/k times.  With one fold
    the noise is unknown, and every improvement counts.
    """
    k, mean = difference.size, float(difference.mean())
    if k == 1:
        return mean > 0.0
    overlap = float(np.mean([test.size / train.size for train, test in folds]))
    error = math.sqrt((1.0 / k + overlap) * float(difference.var(ddof=1)))
    return mean > float(stdtrit(k - 1, 1.0 - _SIGNIFICANCE)) * error


def _standard_error(scores: Array) -> Array:
    """The standard error over the folds; zero for a single fold."""
    folds = scores.shape[0]
    if folds == 1:
        return np.zeros(scores.shape[1:])
    return scores.std(axis=0, ddof=1) / math.sqrt(folds)
