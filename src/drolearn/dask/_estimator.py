"""What the estimators for Dask share: fitting on a cluster, lazy predictions, clone and pickle."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from distributed import Client
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from drolearn._estimators.base import RobustLinear
from drolearn._estimators.training_data import LARGEST_AUTO_PENALTY
from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import WorstCase, without_dust
from drolearn._solvers.block_problem import BlockProblem, Facts
from drolearn._solvers.choice import as_solver
from drolearn._solvers.descent import History
from drolearn._solvers.problem import Problem
from drolearn._solvers.solution import Solution
from drolearn._solvers.solve import Watch, run, warn_of_all_weights
from drolearn._solvers.solvers import Exact, Solver
from drolearn.dask._collections import (
    column_names,
    is_collection,
    map_rows,
    map_rows_and_labels,
    partitions_of,
    with_columns,
)
from drolearn.dask._engine import DaskBlocks, LostWorkersError
from drolearn.dask._losses import as_client, regrets, worst_case
from drolearn.dask._parquet import is_path
from drolearn.dask._rows import Found, FoundPass, MakeRows, MakeTable, Setup, WeightsPass
from drolearn.divergence import as_divergence, radius_for

__all__ = ["DaskLinear"]

Array = NDArray[np.float64]
_LARGEST_Y = 1e140


class DaskLinear(RobustLinear):
    """Base class of the estimators for Dask collections."""

    client: Any
    n_rounds_: int
    _is_regression: ClassVar[bool]
    _takes_streams: ClassVar[bool] = False
    _local: ClassVar[type[RobustLinear]]
    """The class of the estimator without Dask."""

    # -- conventions of xgboost.dask -----------------------------------------------------

    @property
    def client_(self) -> Client:
        """The client that is used: `client`, or the one that was made last."""
        return as_client(self.client)

    def to_local(self) -> Any:
        """Return the same fitted model as an estimator for data in memory.

        Returns
        -------
        RobustClassifier or RobustRegressor
            An estimator of `drolearn`, with nothing of Dask in it.

        Examples
        --------
        >>> from drolearn.dask import RobustClassifier
        >>> RobustClassifier(rho=0.2).to_local()
        RobustClassifier(rho=0.2)
        """
        params = self.get_params(deep=False)
        params.pop("client")
        local = self._local(**params)
        for name, value in vars(self).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(local, name, value)
        return local

    def __getstate__(self) -> Any:
        """Pickle everything but the client."""
        state: Any = super().__getstate__()
        return {**state, "client": None}

    def __sklearn_clone__(self) -> Self:
        """Copy the parameters; the client stays the same."""
        params = self.get_params(deep=False)
        client = params.pop("client")
        copies = {name: clone(value, safe=False) for name, value in params.items()}
        cls: Any = type(self)
        return cls(client=client, **copies)

    # -- fitting -------------------------------------------------------------------------

    @abstractmethod
    def _set_classes(self, found: Found, classes: Any) -> tuple[NDArray[Any] | None, Array | None]:
        """Set `classes_`; return the classes and their weights, None for regression."""

    def _fit_on_cluster(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        reference_losses: Any,
        classes: Any = None,
    ) -> Self:
        """Fit the model to Dask collections."""
        client, is_regression = self.client_, self._is_regression
        self._refuse_what_needs_rows(groups is not None)
        X, given = with_columns(
            X, y=y, sample_weight=sample_weight, groups=groups, reference_losses=reference_losses
        )
        y, sample_weight, *_ = given.values()
        partitions = partitions_of(X, **given)
        context = self._init_callback_context(max_subtasks=math.ceil(self.max_iter))
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        arguments = {"estimator": self, "X": X, "y": y, "metadata": metadata}
        context.call_on_fit_task_begin(**arguments)
        with DaskBlocks(client, partitions, MakeTable(is_regression)) as blocks:
            found = blocks.run(FoundPass(is_regression))
            names, class_weights = self._check_found(found, X, classes)
            problem = self._block_problem(
                blocks, found, names, class_weights, sample_weight is not None
            )
            if given["reference_losses"] is not None:
                problem = replace(problem, reference=np.empty(0))  # those of rows are in the blocks
            warn_of_all_weights(problem, stacklevel=4)

            def in_ball(radius: float) -> BlockProblem:
                same = problem.columns if isinstance(self._solver(), Exact) else None
                return replace(problem, rho=radius, measured=same)

            progress = self._progress(arguments, context, problem, found.dtype)
            last = _LastIterate(progress)
            try:
                fitted, solution = self._solve(
                    problem, last.watch, in_ball if self.rho is None else None
                )
            except LostWorkersError as error:
                raise LostWorkersError(self._with_last_iterate(error, problem, last)) from error
            self._set_attributes(fitted, solution, found.dtype)
            self.n_rounds_ = blocks.rounds
            context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
            self._report(fitted, solution, stacklevel=4)  # may make a pass
        return self

    def _with_last_iterate(
        self, error: LostWorkersError, problem: Problem, last: _LastIterate
    ) -> str:
        """Set the coefficients of the last iterate, without any pass; say so after the error."""
        if last.model is None or last.history is None:
            return str(error)
        for name, value in self._coefficients(last.model(), np.float64).items():
            setattr(self, name, value)
        self.rho_, self.l2_, self.divergence_ = problem.rho, problem.l2, problem.divergence
        self.history_, self.gap_, self.converged_ = last.history, math.nan, False
        self.status_ = (
            f"Lost all workers after {len(last.history.value) - 1} iterations; the coefficients "
            f"are those of the last iterate."
        )
        return f"{error} The attributes hold the last iterate."

    def _run(self, problem: Problem, watch: Watch | None, start: Array | None = None) -> Solution:
        solver = self._solver()
        return run(
            problem,
            self._start(problem) if start is None else start,
            solver=solver,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            watch=watch,
        )

    def _solver(self) -> Solver:
        """The solver that was chosen; "auto" is "exact"."""
        solver = as_solver(self.solver) or Exact()
        if solver.checkpoint is not None:
            raise ValueError(
                f"The 'solver' parameter must have no checkpoint on a cluster. Got {self.solver!r} "
                f"instead: leave it out, or use the estimators of drolearn."
            )
        return solver

    def _refuse_what_needs_rows(self, grouped: bool) -> None:
        """Refuse parameters that need single rows in this process."""
        self._solver()
        divergence = as_divergence(self.divergence)
        if not (divergence.strictly_convex or grouped):
            raise ValueError(
                f"The 'divergence' parameter must be strictly convex on a cluster, such as 'chi2' "
                f"or 'kl', or there must be groups. Got {divergence!r} instead; "
                f"the estimators of drolearn take it."
            )
        if self.reference is not None:
            raise ValueError(
                f"The 'reference' parameter must be None on a cluster. Got {self.reference!r} "
                f"instead: pass its losses on rows that it has not seen to fit, as "
                f"'reference_losses'."
            )
        for name, without in (
            ("tau", None), ("l1", 0.0), ("trim", 0.0), ("store_weights", False)
        ):  # fmt: skip
            if getattr(self, name) is not without and getattr(self, name) != without:
                raise ValueError(
                    f"The '{name}' parameter must be {without!r} on a cluster. Got "
                    f"{getattr(self, name)!r} instead; the estimators of drolearn take it."
                )

    def _check_found(
        self, found: Found | None, X: Any, classes: Any
    ) -> tuple[NDArray[Any] | None, Array | None]:
        """Check what the partitions contain, and set what scikit-learn expects."""
        if found is None:
            raise ValueError("The 'X' parameter must have at least one row. Got none instead.")
        if not found.weight > 0.0:
            raise ValueError(
                "The 'sample_weight' parameter must have a positive sum. Got only zeros instead."
            )
        if found.y_largest > _LARGEST_Y:
            raise ValueError(
                f"The 'y' parameter must hold numbers of at most {_LARGEST_Y:.0e} in absolute "
                f"value, so that squares do not overflow. Got {found.y_largest:.3g}: rescale y."
            )
        self.n_features_in_ = found.columns
        vars(self).pop("feature_names_in_", None)
        names = column_names(X)
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        return self._set_classes(found, classes)

    def _block_problem(
        self,
        blocks: DaskBlocks[Any],
        found: Found,
        classes: NDArray[Any] | None,
        class_weights: Array | None,
        weighted: bool,
    ) -> BlockProblem:
        """Make the blocks of the solver, and the problem on them."""
        n = sum(found.rows.values())
        d = found.columns
        loss, divergence = self._loss(), as_divergence(self.divergence)
        rho = radius_for(divergence, math.sqrt(d / n) if isinstance(self.rho, str) else self.rho)
        mass = found.weight
        if classes is not None and class_weights is not None:
            mass = float(sum(class_weights * [found.classes[name] for name in classes.tolist()]))
        overlapping = found.groups is not None and bool(found.groups.columns)
        weighted = weighted or class_weights is not None or overlapping
        l2 = min(1.0 / mass, LARGEST_AUTO_PENALTY) if isinstance(self.l2, str) else float(self.l2)
        scale = 1.0
        if not 1e-100 < found.largest_weight < 1e100:
            scale = 2.0 ** -math.frexp(found.largest_weight)[1]
        m = classes.size if classes is not None and loss.of == "classes" else 1
        names, shares, self.groups_ = None, None, None
        if found.groups is not None:
            factors = None
            if classes is not None and class_weights is not None:
                factors = dict(zip(classes.tolist(), class_weights.tolist(), strict=True))
            names = found.groups.names(factors)
            self.groups_ = names.names
            shares = without_dust(divergence, rho, names.totals / names.totals.sum())
        starts, first = {}, 0
        for number in sorted(found.rows):
            starts[number], first = first, first + found.rows[number]
        setup = Setup(
            starts=starts,
            loss=loss,
            divergence=divergence,
            rho=rho,
            l2=l2,
            intercept=self.fit_intercept,
            m=m,
            classes=classes,
            class_weights=class_weights,
            dust=1e-34 * mass * scale / (1.0 + rho) if divergence.family == "chi2" else 0.0,
            scale=scale,
            groups=names,
        )
        blocks.remake(MakeRows(setup))
        least, counts = 1.0, None
        if weighted or names is not None:
            least, counts = blocks.run(WeightsPass())
        if counts is not None and shares is not None:
            counts = np.where(shares > 0.0, counts, 0)
        facts = Facts(
            n=n,
            d=d,
            sparse=found.sparse,
            stored=found.stored,
            mass=1.0 if overlapping else mass * scale,
            least=least,
            largest_y=found.y_largest,
            y_mean=found.y_total / found.weight,
            y_square=found.y_square / found.weight,
        )
        return BlockProblem(
            None,
            np.empty(0),
            blocks=blocks,
            facts=facts,
            loss=loss,
            divergence=divergence,
            rho=rho,
            l2=l2,
            intercept=self.fit_intercept,
            m=m,
            n_jobs=self.n_jobs,
            groups=None if shares is None else Groups(shares, counts=counts),
        )

    # -- predictions and losses ----------------------------------------------------------

    def _lazily(self, method: str, X: Any, width: int | None, dtype: Any) -> Any:
        """A method of the local estimator, applied to each partition when it is computed."""
        check_is_fitted(self)
        X = self._features(X)
        function = self._rowwise(method, X, width, dtype)
        return map_rows(function, X, name=method, width=width, dtype=dtype)

    def _features(self, X: Any) -> Any:
        """Rows as a collection; of files, the columns of the model."""
        names = getattr(self, "feature_names_in_", None)
        if not is_path(X):
            return X
        frame = with_columns(X)[0]
        return frame if names is None else frame[list(names)]

    def _rowwise(self, method: str, X: Any, width: int | None, dtype: Any) -> Rowwise:
        columns, known = column_names(X), getattr(self, "feature_names_in_", None)
        if columns is not None and known is not None and columns != known.tolist():
            raise ValueError(
                f"The 'X' parameter must have the columns {known.tolist()}, as in fit. "
                f"Got {columns} instead."
            )
        local = self.to_local()
        vars(local).pop("feature_names_in_", None)  # partitions are passed as arrays
        return Rowwise(local, method, width, dtype)

    def losses(self, X: Any, y: Any) -> Any:
        """Compute the loss of each row.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features)
            Rows; data in memory are accepted too.
        y : Dask array or series of shape (n_samples,)
            Labels of the rows, in the same partitions; numbers for regression.

        Returns
        -------
        Dask array of shape (n_samples,)
            Losses, without the penalty, computed when they are needed.

        Examples
        --------
        >>> import dask.array as da
        >>> from dask.distributed import Client
        >>> from drolearn.dask import RobustRegressor
        >>> X, y = da.from_array([[0.0], [1.0], [2.0]]), da.from_array([1.0, 2.0, 4.0])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     RobustRegressor(rho=0, l2=0).fit(X, y).losses(X, y).compute().round(4)
        array([0.0139, 0.0556, 0.0139])
        """
        if not is_collection(X):
            return super().losses(X, y)
        check_is_fitted(self)
        X, given = with_columns(X, y=y)
        names = getattr(self, "feature_names_in_", None)
        if isinstance(y, str) and names is not None:
            X = X[list(names)]
        y = given["y"]
        function = self._rowwise("losses", X, None, np.float64)
        return map_rows_and_labels(function, X, y)

    def worst_case(
        self,
        X: Any,
        y: Any,
        rho: float | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        reference_losses: Any = None,
        *,
        tau: float | None = None,
        trim: float = 0.0,
    ) -> WorstCase:
        """Compute the robust loss of the fitted model on any data, without refitting.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features)
            Rows; data in memory are accepted too.
        y : Dask array or series of shape (n_samples,)
            Labels of the rows; numbers for regression.
        rho : float, default=None
            Radius of the ball; None uses `rho_`, the radius of the fit.
        sample_weight : Dask array or series of shape (n_samples,), default=None
            Base weights of the rows; equal if None.
        groups : None
            Only for data in memory.
        reference_losses : Dask array or series of shape (n_samples,), default=None
            Losses of a reference model: the result is then the robust regret.
        tau : None
            Only for data in memory.
        trim : float, default=0.0
            Only for data in memory; 0 for collections.

        Returns
        -------
        WorstCase
            `value` is the robust loss, and `weights` are the worst-case weights of the rows, a
            Dask array.

        Examples
        --------
        >>> import dask.array as da
        >>> from dask.distributed import Client
        >>> from drolearn.dask import RobustRegressor
        >>> X, y = da.from_array([[0.0], [1.0], [2.0]]), da.from_array([1.0, 2.0, 4.0])
        >>> with Client(processes=False, dashboard_address=":0") as client:
        ...     reg = RobustRegressor(rho=0, l2=0).fit(X, y)
        ...     round(reg.worst_case(X, y, rho=0.5).value, 4)
        0.0417
        """
        if not is_collection(X):
            return super().worst_case(
                X, y, rho, sample_weight, groups, reference_losses, tau=tau, trim=trim
            )
        given = {"groups": groups, "tau": tau, "trim": trim or None}
        for parameter, value in given.items():
            if value is not None:
                raise ValueError(
                    f"The '{parameter}' parameter must be left out for Dask collections. "
                    f"Got {value!r} instead; to_local() has the model for data in memory."
                )
        radius = self.rho_ if rho is None else rho
        of_rows = {"sample_weight": sample_weight, "reference_losses": reference_losses}
        for name, values in of_rows.items():
            if isinstance(values, str):
                of_rows[name] = with_columns(X, **{name: values})[1][name]
        losses, b = self.losses(X, y), of_rows["sample_weight"]
        if of_rows["reference_losses"] is not None:
            losses = regrets(losses, of_rows["reference_losses"])
        return worst_case(losses, radius, self.divergence_, b, client=self.client_)


class _LastIterate:
    """Watches a fit, and remembers how to compute its current model."""

    def __init__(self, printer: Watch | None) -> None:
        self.printer = printer
        self.history: History | None = None
        self.model: Callable[[], Array] | None = None

    def watch(self, history: History, model: Callable[[], Array]) -> bool:
        """Remember the model; called after each iteration."""
        self.history, self.model = history, model
        return self.printer is not None and self.printer(history, model)


@dataclass(frozen=True, slots=True)
class Rowwise:
    """A method of an estimator for a partition, which may have no rows."""

    estimator: Any
    method: str
    width: int | None
    dtype: Any

    def __call__(self, X: Any, *y: Any) -> NDArray[Any]:
        """Apply the method to one partition."""
        if X.shape[0] == 0:
            return np.empty(0 if self.width is None else (0, self.width), self.dtype)
        return getattr(self.estimator, self.method)(X, *y)
