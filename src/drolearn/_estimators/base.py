"""What robust linear classifiers and regressors share: parameters, fitting, losses, worst cases.

The estimators contain no algorithm. They validate parameters and data with scikit-learn's tools,
build a `Problem`, pass it to `drolearn._solvers.solve.run`, and store the solution in attributes.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from drolearn._estimators.callbacks import CallbackSupportMixin
from drolearn._estimators.evaluation import WorstCaseMixin
from drolearn._estimators.state import StateMixin
from drolearn._estimators.training_data import X_FORMATS, TrainingData
from drolearn._inner.trimming import as_trim
from drolearn._inner.worst_case import check_soft
from drolearn._solvers.descent import History
from drolearn._solvers.ending import Ending, describe_useless_columns
from drolearn._solvers.inputs import as_reference_losses, as_start, make_problem
from drolearn._solvers.problem import Problem
from drolearn._solvers.radius import radius_that_learns
from drolearn._solvers.soft import soft_worst
from drolearn._solvers.solution import Solution
from drolearn._solvers.solve import Watch, run, run_soft, run_trimmed, warn_of_all_weights
from drolearn._solvers.solvers import Solver
from drolearn._solvers.trimming import problem_on
from drolearn._solvers.zero_model import needs_no_columns
from drolearn._validation import as_groups
from drolearn.divergence import Divergence, as_divergence
from drolearn.loss import Loss

__all__ = ["RobustLinear", "ZeroModelWarning", "cast_if_finite"]

Array = NDArray[np.float64]


class ZeroModelWarning(UserWarning):
    """Warning that the optimal model for a ball has no coefficients other than zero.

    Such a model ignores the columns of X.  A smaller radius lets it learn, as does a better
    reference if there is one.

    Examples
    --------
    >>> import warnings
    >>> from drolearn import RobustClassifier, ZeroModelWarning
    >>> warnings.simplefilter("error", ZeroModelWarning)  # stop instead of warning
    >>> try:
    ...     RobustClassifier(rho=1.0).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
    ... except ZeroModelWarning:
    ...     print("use a smaller rho")
    use a smaller rho
    >>> warnings.simplefilter("default", ZeroModelWarning)
    """


class RobustLinear(WorstCaseMixin, CallbackSupportMixin, StateMixin, BaseEstimator, ABC):
    """Base class of robust linear classifiers and regressors."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "rho": [StrOptions({"auto"}), Interval(Real, 0, None, closed="both"), None],
        "divergence": [str, Divergence],
        "tau": [Interval(Real, 0, None, closed="both"), None],
        "l2": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "l1": [Interval(Real, 0, None, closed="left")],
        "trim": [Interval(Real, 0, 1, closed="left")],
        "fit_intercept": ["boolean"],
        "solver": [str, Solver],
        "max_iter": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, 1, closed="neither"), None],
        "random_state": ["random_state", np.random.Generator],
        "warm_start": ["boolean"],
        "store_weights": ["boolean"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
        "reference": [StrOptions({"auto"}), HasMethods(["fit", "get_params"]), None],
    }

    rho: Any
    divergence: Any
    tau: float | None = None  # cross-validation has `taus`
    loss: Any
    l2: Any
    l1: float = 0.0  # cross-validation has no such parameter
    trim: float
    fit_intercept: bool
    solver: Any
    max_iter: float
    tol: float | None
    random_state: Any
    warm_start: bool
    store_weights: bool
    n_jobs: int | None
    verbose: int
    reference: Any
    coef_: NDArray[Any]
    intercept_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator and settings of its solver.

        Parameters
        ----------
        **params : dict
            Parameters by name. `solver__<setting>` changes a setting of a solver object, and
            `reference__<parameter>` a parameter of the reference.

        Returns
        -------
        RobustClassifier or RobustRegressor
            The estimator itself.

        Raises
        ------
        ValueError
            If a parameter does not exist, or a setting is given and the solver or reference is not
            an object.

        Examples
        --------
        >>> from drolearn import GSSG, RobustClassifier
        >>> clf = RobustClassifier(solver=GSSG())
        >>> clf.set_params(rho=0.2, solver__batch_size=64).solver.batch_size
        64
        """
        solver = params.get("solver", self.solver)
        nested = next((name for name in params if name.startswith("solver__")), None)
        if nested is not None and not isinstance(solver, Solver):
            raise ValueError(
                f"The parameter {nested!r} needs a solver object, such as solver=GSSG(). "
                f"Got solver={solver!r} instead, a name, which has no settings."
            )
        reference = params.get("reference", self.reference)
        nested = next((name for name in params if name.startswith("reference__")), None)
        if nested is not None and (reference is None or isinstance(reference, str)):
            raise ValueError(
                f"The parameter {nested!r} needs an estimator as reference, such as "
                f"reference=HistGradientBoostingClassifier(). Got reference={reference!r} instead."
            )
        return super().set_params(**params)

    # -- subclasses implement --------------------------------------------------------------

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss for the training data."""

    @abstractmethod
    def _targets(self, y: Any) -> Array:
        """Convert labels of new data to what the loss expects."""

    @abstractmethod
    def _validate(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        """Validate the arguments of `fit`, except for reference losses."""

    # -- fitting ---------------------------------------------------------------------------

    def _training_data(
        self, X: Any, y: Any, sample_weight: Any, reference_losses: Any
    ) -> TrainingData:
        """Validate the arguments of `fit`."""
        data = self._validate(X, y, sample_weight)
        return replace(data, reference=as_reference_losses(reference_losses, data.X.shape[0]))

    def _with_reference(self, data: TrainingData, split_groups: Any = None) -> TrainingData:
        """Return the data with the losses of the reference, if there is one."""
        if self.reference is None or data.reference is not None:
            return data
        from drolearn._estimators.reference import reference_losses  # heavy: imported when used

        losses = reference_losses(
            self.reference,
            data.X,
            data.y,
            loss=self._loss(),
            sample_weight=data.weights,
            split_groups=split_groups,
            n_jobs=self.n_jobs,
        )
        return replace(data, reference=losses)

    def _problem(
        self,
        data: TrainingData,
        group_indices: Any,
        rho: Any,
        divergence: Any,
        l2: float,
        l1: float,
    ) -> Problem:
        """Build the problem for these data and settings."""
        n, d = data.X.shape
        return make_problem(
            data.X,
            data.targets,
            data.weights,
            group_indices,
            rho=math.sqrt(d / n) if isinstance(rho, str) else rho,
            divergence=as_divergence(divergence),
            loss=self._loss(),
            l2=l2,
            l1=l1,
            fit_intercept=self.fit_intercept,
            n_jobs=self.n_jobs,
            reference=data.reference,
        )

    def _fit(
        self,
        data: TrainingData,
        groups: Any,
        rho: Any,
        divergence: Any,
        l2: float,
        l1: float,
        context: Any = None,
        split_groups: Any = None,
    ) -> Self:
        """Build the problem, solve it, and set the attributes.

        `context` is the callback context if this fit is a part of another one, such as the refit
        after cross-validation.  `split_groups` keep rows together when a reference is fitted.
        """
        tau = self._price
        if tau is not None:
            check_soft(tau, rho, as_divergence(divergence))
            rho = 0.0
        data = self._with_reference(data, split_groups)
        is_root, arguments = context is None, self._callback_arguments(data)
        if is_root:
            context = self._init_callback_context(max_subtasks=math.ceil(self.max_iter))
            context.call_on_fit_task_begin(**arguments)
        group_indices, self.groups_ = None, None
        if groups is not None:
            self.groups_, group_indices = as_groups(groups, data.X.shape[0])
        problem = self._problem(data, group_indices, rho, divergence, l2, l1)
        warn_of_all_weights(problem, stacklevel=5)
        watch = self._progress(arguments, context, problem, data.X.dtype)

        def in_ball(radius: float) -> Problem:
            return self._problem(data, group_indices, radius, divergence, l2, l1)

        problem, solution = self._solve(problem, watch, in_ball if rho is None else None)
        self._set_attributes(problem, solution, data.X.dtype)
        if is_root:
            context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
        self._report(problem, solution, stacklevel=5)
        return self

    def _solve(
        self, problem: Problem, watch: Watch | None, in_ball: Callable[[float], Problem] | None
    ) -> tuple[Problem, Solution]:
        """Solve a problem; with `in_ball`, again in a smaller ball if nothing can be learned."""
        solution = self._run(problem, watch)
        if in_ball is not None and not solution.ending.asked_for:
            radius = radius_that_learns(problem, solution.theta)
            if radius < problem.rho:
                problem = in_ball(radius)
                solution = self._run(problem, watch)
        return problem, solution

    def _report(self, problem: Problem, solution: Solution, stacklevel: int) -> None:
        """Warn of zero models and missed tolerances; raise KeyboardInterrupt after Ctrl-C."""
        if solution.ending is Ending.INTERRUPTED:  # the attributes hold the best model so far
            raise KeyboardInterrupt
        if solution.ending is Ending.ZERO_MODEL:
            warnings.warn(solution.status, ZeroModelWarning, stacklevel=stacklevel)
        elif problem.reference is not None and needs_no_columns(
            problem, solution.theta, solution.value, self.tol or 0.0
        ):
            status = describe_useless_columns(problem.rho)
            warnings.warn(status, ZeroModelWarning, stacklevel=stacklevel)
        reached = self.tol is None or solution.converged or solution.ending is Ending.STOPPED
        if solution.ending is Ending.SEPARABLE or not reached:
            warnings.warn(solution.status, ConvergenceWarning, stacklevel=stacklevel)

    @property
    def _price(self) -> float | None:
        """The price τ of the soft ball of a fit; None for a ball with a radius."""
        return self.tau

    def _run(self, problem: Problem, watch: Watch | None, start: Array | None = None) -> Solution:
        start = self._start(problem) if start is None else start
        settings: Any = {
            "solver": self.solver, "max_iter": self.max_iter, "tol": self.tol, "watch": watch
        }  # fmt: skip
        tau = None if self._price is None else float(self._price)
        if as_trim(self.trim, problem.groups is not None and problem.groups.of is None) > 0.0:
            return run_trimmed(problem, float(self.trim), tau, start, **settings)
        if tau is not None:
            return run_soft(problem, tau, start, **settings)
        return run(problem, start, random_state=self.random_state, **settings)

    def _start(self, problem: Problem) -> Array:
        """Return the previous model with warm_start=True if its shape matches, else zeros."""
        start = as_start(problem, None)
        if self.warm_start and hasattr(self, "coef_"):
            last = np.column_stack([np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)])
            if last.shape == start.shape:
                start[:] = last
        return start

    def _coefficients(self, theta: Array, dtype: Any) -> dict[str, Any]:
        """Return coefficients and intercepts by attribute name, in the precision of the data."""
        theta = cast_if_finite(theta, dtype)
        return {"coef_": theta[:, :-1], "intercept_": theta[:, -1]}

    def _set_attributes(self, problem: Problem, solution: Solution, dtype: Any) -> None:
        for name, value in self._coefficients(solution.theta, dtype).items():
            setattr(self, name, value)
        self.rho_, self.divergence_ = problem.rho, problem.divergence
        self.l2_, self.l1_ = problem.l2, problem.l1
        self.tau_ = None if self._price is None else float(self._price)
        if self.tau_ is not None:
            self.rho_ = solution.worst.achieved
        self.robust_loss_, self.robust_regret_ = solution.worst.value, None
        if solution.kept is not None:
            weights = 1.0 if problem.weights is None else problem.weights
            problem = problem_on(problem, solution.kept * weights)
        if problem.reference is not None:
            self.robust_loss_ = self._loss_without_reference(problem, solution.theta)
            self.robust_regret_ = solution.worst.value
        self.objective_ = solution.value
        self.gap_ = solution.gap
        vars(self).pop("worst_case_weights_", None)
        if self.store_weights:
            self.worst_case_weights_ = solution.worst.weights
        self.group_weights_ = solution.group_weights
        self.history_ = solution.history
        self.status_, self.ending_ = solution.status, solution.ending
        self.solver_, self.converged_ = solution.solver, solution.converged
        self.n_iter_ = max(1, math.ceil(solution.passes))

    def _loss_without_reference(self, problem: Problem, theta: Array) -> float:
        """The robust loss of a model that was fitted with a reference."""
        problem = problem.without_reference()
        if self._price is not None:
            return soft_worst(problem, float(self._price), theta).value
        return problem.evaluate(problem.scores(theta)).value

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            """Say where to find the worst-case weights if they are not stored."""
            if name == "worst_case_weights_":
                raise AttributeError(
                    f"{type(self).__name__} has no 'worst_case_weights_': one number for each "
                    f"training row is stored only with store_weights=True. Use "
                    f"worst_case(X, y).weights, which computes them."
                )
            return object.__getattribute__(self, name)  # raises the error of Python or a property

    def _callback_arguments(self, data: TrainingData) -> dict[str, Any]:
        """Return what every callback of scikit-learn receives."""
        metadata = None if data.weights is None else {"sample_weight": data.weights}
        return {"estimator": self, "X": data.X, "y": data.y, "metadata": metadata}

    def _progress(
        self, arguments: dict[str, Any], context: Any, problem: Problem, dtype: Any
    ) -> Watch | None:
        """Return a function for the solver that calls callbacks after each pass, and prints."""
        has_callbacks = bool(getattr(self, "_skl_callbacks", None)) and context.max_subtasks != 0
        if not has_callbacks and not self.verbose:
            return None
        reported, n = 0, problem.n
        name = "robust loss" if problem.reference is None else "robust regret"

        def report(history: History, model: Callable[[], Array]) -> bool:
            nonlocal reported
            passes = history.samples[-1] / n
            if self.verbose:
                print(
                    f"[{type(self).__name__}] {passes:8.2f} passes, {name} "
                    f"{history.value[-1]:.6g}, {history.seconds[-1]:.2f} s",
                    flush=True,
                )
            stop = False
            while has_callbacks and not stop and reported < min(passes, math.ceil(self.max_iter)):
                reported += 1
                task = context.subcontext(task_name="pass")
                task.call_on_fit_task_begin(**arguments)
                stop = task.call_on_fit_task_end(
                    **arguments,
                    reconstruction_attributes=lambda: self._coefficients(model(), dtype),
                )
            return stop

        return report

    # -- evaluation ------------------------------------------------------------------------

    def _scores(self, X: Any) -> NDArray[Any]:
        """Return X w + c: shape (n,), or (n, m) for m > 2 classes."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **X_FORMATS)
        coef = np.atleast_2d(self.coef_)
        scores = safe_sparse_dot(X, coef.T, dense_output=True) + self.intercept_
        return scores.ravel() if coef.shape[0] == 1 else scores

    def losses(self, X: Any, y: ArrayLike) -> Array:
        """Compute the loss of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, from the training data or others.
        y : array-like of shape (n_samples,)
            Labels of the rows; numbers for regression.

        Returns
        -------
        ndarray of shape (n_samples,)
            Losses, without the penalty.

        Examples
        --------
        >>> from drolearn import RobustRegressor
        >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0]
        >>> RobustRegressor(rho=0, l2=0).fit(X, y).losses(X, y).round(4)
        array([0.0139, 0.0556, 0.0139])
        """
        scores = np.ascontiguousarray(self._scores(X), dtype=np.float64)
        check_consistent_length(X, y)
        return self._loss().of_scores(scores.ravel(), self._targets(y))[0]


def cast_if_finite(theta: Array, dtype: Any) -> NDArray[Any]:
    """Convert to another precision, unless a number overflows there."""
    with np.errstate(over="ignore"):
        converted = theta.astype(dtype)
    return converted if np.isfinite(converted).all() else theta
