"""Robust linear models for scikit-learn: thin faces over `solver.run`.

They hold no algorithm of their own: parameters and data are checked in scikit-learn's way,
a problem is made of them, and what the solver found becomes attributes.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import WorstCase, worst_case
from drolearn._solvers.descent import History
from drolearn._solvers.ending import Ending
from drolearn._solvers.inputs import as_labels, as_start, make_problem
from drolearn._solvers.problem import Problem
from drolearn._solvers.solve import Solution, Watch, run
from drolearn._solvers.solvers import NAMES as SOLVERS
from drolearn._solvers.solvers import Solver
from drolearn._validation import as_groups, as_weights, distinct, refuse_missing
from drolearn.divergence import NAMES, Divergence, as_divergence
from drolearn.loss import Loss, as_loss

__all__ = ["RobustClassifier", "RobustLinear", "RobustRegressor"]

Array = NDArray[np.float64]
# The largest automatic penalty.  What is computed from it does not overflow, and smaller weights
# would change nothing: the coefficients are already zero in effect.
_LARGEST = 2.0**900
_KINDS: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


@dataclass(frozen=True, slots=True)
class Data:
    """What was given to fit, checked: y as it came, and as the loss wants it."""

    X: Any
    y: NDArray[Any]
    labels: Array
    weights: Array | None
    exponent: int = 0
    """The weights as they were given are weights · 2^exponent."""

    def penalty(self, l2: float | str, rows: Any = slice(None)) -> float:
        """l2, where "auto" is 1/Σw over some rows, with the weights as they were given."""
        if not isinstance(l2, str):
            return float(l2)
        if self.weights is None:
            return 1.0 / self.y[rows].size
        # Rows without any weight are an error of `fit`.
        share, power = math.frexp(float(self.weights[rows].sum()) or 1.0)
        return min(math.ldexp(1.0 / share, min(-power - self.exponent, 1000)), _LARGEST)


class RobustLinear(CallbackSupportMixin, BaseEstimator, ABC):
    """What robust linear classifiers and regressors have in common."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "rho": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "divergence": [StrOptions(set(NAMES)), Divergence],
        "l2": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "solver": [StrOptions(set(SOLVERS)), Solver],
        "max_iter": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, 1, closed="neither"), None],
        "random_state": ["random_state", np.random.Generator],
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    rho: Any
    divergence: Any
    loss: Any
    l2: Any
    fit_intercept: bool
    solver: Any
    max_iter: float
    tol: float | None
    random_state: Any
    warm_start: bool
    n_jobs: int | None
    verbose: int
    coef_: NDArray[Any]
    intercept_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of a solver object included: `solver__batch_size`.

        Parameters
        ----------
        **params
            Parameters by name.

        Returns
        -------
        self
        """
        solver = params.get("solver", self.solver)
        nested = next((name for name in params if name.startswith("solver__")), None)
        if nested is not None and not isinstance(solver, Solver):
            raise ValueError(
                f"The parameter {nested!r} needs a solver object, such as solver=GSSG(). "
                f"Got solver={solver!r} instead, a name, which has no settings."
            )
        return super().set_params(**params)

    # -- what subclasses say -----------------------------------------------------------

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss for the data that was given to fit."""

    @abstractmethod
    def _labels(self, y: Any) -> Array:
        """Labels of new data as the loss wants them."""

    @abstractmethod
    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> Data:
        """Check what was given to fit."""

    # -- fitting -----------------------------------------------------------------------

    def _fit(self, data: Data, groups: Any, rho: Any, context: Any = None) -> Self:
        """Make a problem, solve it, keep what was found.

        The context is that of the whole fit, unless this is only a part of it.
        """
        X, weights = data.X, data.weights
        whole, told = context is None, self._told(data)
        if whole:
            context = self._init_callback_context(max_subtasks=math.ceil(self.max_iter))
            context.call_on_fit_task_begin(**told)
        codes, self.groups_ = None, None
        if groups is not None:
            self.groups_, codes = as_groups(groups, X.shape[0])
        radius = math.sqrt(X.shape[1] / X.shape[0]) if isinstance(rho, str) else float(rho)
        problem = make_problem(
            X,
            data.labels,
            weights,
            codes,
            rho=radius,
            divergence=as_divergence(self.divergence),
            loss=self._loss(),
            l2=data.penalty(self.l2),
            fit_intercept=self.fit_intercept,
            n_jobs=self.n_jobs,
        )
        found = run(
            problem,
            self._start(problem),
            solver=self.solver,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            watch=self._watch(data, context),
        )
        self._keep(problem, found, X.dtype)
        if whole:
            context.call_on_fit_task_end(**told, reconstruction_attributes={})
        if found.ending is Ending.INTERRUPTED:  # the best model so far is kept
            raise KeyboardInterrupt
        if found.ending is Ending.ZERO_MODEL:
            warnings.warn(found.status, stacklevel=4)
        if self.tol is not None and not found.converged and found.ending is not Ending.STOPPED:
            warnings.warn(found.status, ConvergenceWarning, stacklevel=4)
        return self

    def _start(self, problem: Problem) -> Array:
        """Zeros, or the last model if it fits."""
        start = as_start(problem, None)
        if self.warm_start and hasattr(self, "coef_"):
            last = np.column_stack([np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)])
            if last.shape == start.shape:
                start[:] = last
        return start

    def _attributes(self, theta: Array, dtype: Any) -> dict[str, Any]:
        """Coefficients and intercept, in the precision of the data if that holds them."""
        theta = _rounded(theta, dtype)
        return {"coef_": theta[:, :-1], "intercept_": theta[:, -1]}

    def _keep(self, problem: Problem, found: Solution, dtype: Any) -> None:
        for name, value in self._attributes(found.theta, dtype).items():
            setattr(self, name, value)
        self.rho_, self.l2_ = problem.rho, problem.l2
        self.robust_loss_ = found.worst.value
        self.objective_ = found.value
        self.gap_ = found.gap
        self.worst_case_weights_ = found.worst.weights
        self.group_weights_ = None
        if problem.groups is not None:
            self.group_weights_ = np.bincount(problem.groups.of, found.worst.weights)
        self.history_, self.status_, self.ending_ = found.history, found.status, found.ending
        self.solver_, self.converged_ = found.solver, found.converged
        self.n_iter_ = max(1, math.ceil(found.passes))

    def _told(self, data: Data) -> dict[str, Any]:
        """What callbacks are told about the data."""
        metadata = None if data.weights is None else {"sample_weight": data.weights}
        return {"estimator": self, "X": data.X, "y": data.y, "metadata": metadata}

    def _watch(self, data: Data, context: Any) -> Watch | None:
        """Tell callbacks about every pass over the data, and who asked for it about every look."""
        told = self._told(data)
        listening = bool(getattr(self, "_skl_callbacks", None)) and context.max_subtasks != 0
        if not listening and not self.verbose:
            return None
        passes, n = 0, data.X.shape[0]

        def watch(history: History, model: Callable[[], Array]) -> bool:
            nonlocal passes
            done = history.samples[-1] / n
            if self.verbose:
                print(
                    f"[{type(self).__name__}] {done:8.2f} passes, robust loss "
                    f"{history.value[-1]:.6g}, {history.seconds[-1]:.2f} s",
                    flush=True,
                )
            stop = False
            while listening and not stop and passes < min(done, math.ceil(self.max_iter)):
                passes += 1
                each = context.subcontext(task_name="pass")
                each.call_on_fit_task_begin(**told)
                stop = each.call_on_fit_task_end(
                    **told,
                    reconstruction_attributes=lambda: self._attributes(model(), data.X.dtype),
                )
            return stop

        return watch

    # -- using -------------------------------------------------------------------------

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_KINDS)
        coef = np.atleast_2d(self.coef_)
        scores = safe_sparse_dot(X, coef.T, dense_output=True) + self.intercept_
        return scores.ravel() if coef.shape[0] == 1 else scores

    def losses(self, X: Any, y: ArrayLike) -> Array:
        """The loss of every row, on any data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.
        y : array-like of shape (n,)
            Their labels or numbers.

        Returns
        -------
        array of shape (n,)
        """
        scores = np.ascontiguousarray(self._scores(X), dtype=np.float64)
        check_consistent_length(X, y)
        return self._loss().of_scores(scores.ravel(), self._labels(y))[0]

    def worst_case(
        self,
        X: Any,
        y: ArrayLike,
        rho: float | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> WorstCase:
        """How bad could it get on this data? No refit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows.
        y : array-like of shape (n,)
            Their labels or numbers.
        rho : float, optional
            Radius of the ball; that of the fit if not given.
        sample_weight : array-like of shape (n,), optional
            Base weights of the rows.
        groups : array-like of shape (n,), optional
            Groups whose shares the ball moves, instead of single rows.

        Returns
        -------
        WorstCase
            Its value is the robust loss, its weights are those of the rows.
        """
        z = self.losses(X, y)
        radius = self.rho_ if rho is None else rho
        weights = None if sample_weight is None else as_weights(sample_weight, z.size)
        if groups is None:
            return worst_case(z, radius, self.divergence, weights, n_jobs=self.n_jobs)
        parts = Groups.make(as_groups(groups, z.size)[1], weights)
        return parts.spread(worst_case(parts.means(z), radius, self.divergence, parts.shares))


class RobustClassifier(ClassifierMixin, RobustLinear):
    """A linear classifier that is good on the worst reweighting of its data.

    It minimises R(w, c) + l2/2 ‖w‖², where R is the largest mean loss that any weights within
    a φ-divergence ball of radius ρ about the data give.

    Parameters
    ----------
    rho : float or "auto", default=0.1
        Radius of the ball.  A χ² ball of radius ρ holds every subset of the data with a share
        of 1/(1 + ρ); 0 is the plain mean.  "auto" is √(d/N), a guideline for radii that cover
        what the data leave open about their source; it knows nothing about shifts to come.
    divergence : str or Divergence, default="chi2"
        The shape of the ball, see :func:`drolearn.worst_case`.
    loss : {"logistic", "squared-hinge", "smoothed-hinge"} or Loss, default="logistic"
        With more than two classes, "logistic" is the multinomial logistic loss; the others are
        for two classes.
    l2 : float or "auto", default="auto"
        Penalty; the intercept is free.  "auto" is 1/Σw, where w are the sample weights times the
        class weights, and 1/N if there are none.  This is scikit-learn's C = 1: with rho=0 the
        model is that of ``LogisticRegression()``.  l2 = 1/(C Σw) is another C, 0 is no penalty.
        With "auto", weights that are k times as large have the effect of C = k, as in
        scikit-learn; with a number, only their proportions count.
    fit_intercept : bool, default=True
        Whether the scores have a constant.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; they multiply the sample weights.
    solver : str or Method, default="auto"
        See :mod:`drolearn._solvers.solve`; "exact" comes with a certificate, "gssg" reads some rows
        at a time.
    max_iter : float, default=100
        Passes over the data, for every solver: N rows, or the gradient of all, count as one.
    tol : float or None, default=1e-6
        Relative accuracy of the robust loss for exact solvers; stochastic ones, which cannot
        tell how far the optimum is, end when a pass over the data brings less than that.  None
        makes all passes.
    random_state : int, RandomState, Generator or None, default=None
        Same number, same bits, for any number of threads.
    warm_start : bool, default=False
        Whether the next fit starts from the last model.
    n_jobs : int or None, default=None
        Threads for passes over all rows.
    verbose : int, default=0
        Whether progress is printed; for a bar, use
        ``set_callbacks(sklearn.callback.ProgressBar())``.

    Attributes
    ----------
    coef_ : array of shape (1, d) or (m, d)
    intercept_ : array of shape (1,) or (m,)
    classes_ : array of shape (m,)
    rho_, l2_ : float
        The radius and the penalty that were used.
    robust_loss_ : float
        R of the model on its training data, without penalty.
    objective_ : float
        The same with penalty.
    worst_case_weights_ : array of shape (n,)
        Weights of the training rows in their worst reweighting.
    groups_, group_weights_ : array, or None
        Names of the groups and their shares in the worst case, if groups were given.
    gap_ : float
        No model of up to ten times its size (in scaled coordinates) is better than
        objective_ − gap_; NaN where nothing is known, as for stochastic solvers.
    history_ : History
        Samples, CPU seconds, robust loss, gradient norm and step size on the way.
    status_ : str
        How it ended, in one sentence.
    ending_ : Ending
        The same as a value to compare with.
    converged_ : bool
    solver_ : str
        The method that was used.
    n_iter_ : int
        Passes over the data, rounded up.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import RobustClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 3))
    >>> y = np.where(X[:, 0] + rng.standard_normal(400) > 0, "yes", "no")
    >>> clf = RobustClassifier(rho=0.1).fit(X, y)
    >>> clf.converged_, round(clf.robust_loss_, 3)
    (True, 0.616)
    >>> round(clf.worst_case(X, y, rho=0.5).value, 3)  # in a larger ball, no refit
    0.736
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustLinear._parameter_constraints,
        "loss": [StrOptions({"logistic", "squared-hinge", "smoothed-hinge"}), Loss],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    classes_: NDArray[Any]

    def __init__(
        self,
        rho: float | str = 0.1,
        *,
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
        self.rho = rho
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
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            float32 and float64 are read in place, dense or CSR.
        y : array-like of shape (n,)
            Labels of any kind.
        sample_weight : array-like of shape (n,), optional
            Base weights of the rows: a row of weight 2 counts like the same row twice.  With
            l2="auto" their sum sets the penalty.
        groups : array-like of shape (n,), optional
            Names of known groups: the ball then moves their shares instead of single rows.  For
            exact solvers.

        Returns
        -------
        self
        """
        return self._fit(self._prepare(X, y, sample_weight), groups, self.rho)

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> Data:
        _refuse_missing_labels(y)
        X, y = validate_data(self, X, y, **_KINDS)
        check_classification_targets(y)
        self.classes_, places = distinct("y", y)
        weights, exponent = _as_weights(sample_weight, X)
        if self.classes_.size < 2:
            raise ValueError(
                f"Classifier can't train when only one class is present. The data contains only "
                f"one class: {self.classes_[0]!r}."
            )
        loss = self._loss()
        if loss.of == "margin" and self.classes_.size > 2:
            raise ValueError(
                f"The 'loss' parameter of {type(self).__name__} must be 'logistic' for more than "
                f"two classes. Got {loss.name!r} for {self.classes_.size} classes instead."
            )
        if self.class_weight is not None:
            own: Any = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y, sample_weight=weights
            )
            if not (np.isfinite(own).all() and own.min() >= 0.0):
                raise ValueError(
                    f"The 'class_weight' parameter of {type(self).__name__} must hold finite "
                    f"weights of at least 0. Got {self.class_weight!r} instead."
                )
            weights = own[places] if weights is None else weights * own[places]
        if weights is not None and np.unique(places[weights > 0.0]).size < 2:
            raise ValueError(
                "The rows of positive weight must have at least two classes. Got fewer instead."
            )
        return Data(X, y, _encode(places, loss), weights, exponent)

    def _loss(self) -> Loss:
        loss = as_loss(self.loss)
        if loss.of == "residual" or (loss.of == "classes" and self.classes_.size == 2):
            raise ValueError(
                f"The 'loss' parameter of {type(self).__name__} must be 'logistic' or another loss "
                f"of the margin. Got {loss.name!r} instead."
            )
        if loss.name == "logistic" and self.classes_.size > 2:
            return as_loss("multinomial")
        return loss

    def _labels(self, y: Any) -> Array:
        labels = column_or_1d(y)
        unknown = np.setdiff1d(labels, self.classes_)
        if unknown.size:
            raise ValueError(
                f"The 'y' parameter must hold labels that {type(self).__name__} was fitted with. "
                f"Got {unknown[0]!r} instead."
            )
        return _encode(np.searchsorted(self.classes_, labels), self._loss())

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: positive for the second of two classes, or one for each class."""
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        scores = self._scores(X)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[places]

    def _has_probabilities(self) -> bool:
        return as_loss(self.loss).name in ("logistic", "multinomial")

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes, for the logistic loss."""
        scores = self._scores(X)
        if scores.ndim > 1:
            return softmax(scores, axis=1)
        return np.column_stack([expit(-scores), expit(scores)])

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of the probabilities, for the logistic loss."""
        scores = self._scores(X)
        if scores.ndim > 1:
            return log_softmax(scores, axis=1)
        return np.column_stack([log_expit(-scores), log_expit(scores)])


class RobustRegressor(RegressorMixin, RobustLinear):
    """A linear regression that is good on the worst reweighting of its data.

    It minimises R(w, c) + l2/2 ‖w‖², where R is the largest mean loss that any weights within
    a φ-divergence ball of radius ρ about the data give.

    Parameters
    ----------
    rho, divergence, fit_intercept, solver, max_iter, tol,\
 random_state, warm_start, n_jobs, verbose
        As for :class:`RobustClassifier`.
    l2 : float or "auto", default="auto"
        Penalty; the intercept is free.  "auto" is 1/Σw, where w are the sample weights, and 1/N if
        there are none: with rho=0 the model is that of ``Ridge(alpha=1)``.  l2 = alpha/Σw is
        another alpha, 0 is no penalty.  With "auto", weights that are k times as large have the
        effect of alpha = 1/k, as in scikit-learn; with a number, only their proportions count.
        With loss="huber" the penalty matters more the larger the numbers of y are: scale them, or
        choose a smaller l2.
    loss : {"squared", "huber"} or Loss, default="squared"
        "squared" is half the square of the residual; "huber" is straight from 1.35 on, and
        `Loss.huber` takes other widths.

    Attributes
    ----------
    coef_ : array of shape (d,)
    intercept_ : float
    rho_, l2_, robust_loss_, objective_, worst_case_weights_, groups_, group_weights_, gap_,\
 history_, status_, converged_, solver_, n_iter_, n_features_in_, feature_names_in_
        As for :class:`RobustClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import RobustRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(300)
    >>> RobustRegressor(rho=0.5).fit(X, y).coef_.round(2)
    array([ 1.01, -1.99])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustLinear._parameter_constraints,
        "loss": [StrOptions({"squared", "huber"}), Loss],
    }

    def __init__(
        self,
        rho: float | str = 0.1,
        *,
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
        self.rho = rho
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
        """Fit the model; parameters as for `RobustClassifier.fit`, y numbers."""
        return self._fit(self._prepare(X, y, sample_weight), groups, self.rho)

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> Data:
        X, y = validate_data(self, X, y, y_numeric=True, **_KINDS)
        self._loss()
        labels = np.ascontiguousarray(y, dtype=np.float64)
        return Data(X, y, labels, *_as_weights(sample_weight, X))

    def _loss(self) -> Loss:
        loss = as_loss(self.loss)
        if loss.of != "residual":
            raise ValueError(
                f"The 'loss' parameter of {type(self).__name__} must be 'squared', 'huber' or "
                f"another loss of the residual. Got {loss.name!r} instead."
            )
        return loss

    def _labels(self, y: Any) -> Array:
        return as_labels(y, self._loss())

    def _attributes(self, theta: Array, dtype: Any) -> dict[str, Any]:
        theta = _rounded(theta, dtype)
        return {"coef_": theta[0, :-1], "intercept_": theta[0, -1]}

    def predict(self, X: Any) -> NDArray[Any]:
        """The expected number of each row."""
        return self._scores(X)


def _refuse_missing_labels(y: Any) -> None:
    """scikit-learn fails on pandas.NA and None, in words that do not help."""
    if y is not None and np.asarray(y).dtype.kind == "O":
        refuse_missing("y", np.asarray(y).ravel())


def _as_weights(sample_weight: Any, X: Any) -> tuple[Array | None, int]:
    """Sample weights w in scikit-learn's way, and e: those given are w · 2^e."""
    if sample_weight is None:
        return None, 0
    given = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    weights = as_weights(given, X.shape[0])
    # `as_base` scales very large and very small weights by a power of two.
    return weights, math.frexp(given.max())[1] - math.frexp(weights.max())[1]


def _rounded(theta: Array, dtype: Any) -> NDArray[Any]:
    """The same in another precision, if no number is too large for it."""
    with np.errstate(over="ignore"):
        shorter = theta.astype(dtype)
    return shorter if np.isfinite(shorter).all() else theta


def _encode(places: NDArray[Any], loss: Loss) -> Array:
    """Numbers of classes as the loss wants them: as they are, or ±1."""
    return places.astype(np.float64) if loss.of == "classes" else np.where(places == 1, 1.0, -1.0)
