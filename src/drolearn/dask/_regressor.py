"""`RobustRegressor` for Dask collections."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import _fit_context

from drolearn._estimators import regression
from drolearn._solvers.solvers import Solver
from drolearn.dask._collections import is_collection
from drolearn.dask._estimator import DaskLinear
from drolearn.dask._rows import Found
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["RobustRegressor"]


class RobustRegressor(DaskLinear, regression.RobustRegressor):
    """Linear regression that minimises the loss on the worst reweighting of its data, on Dask.

    The model is that of :class:`drolearn.RobustRegressor` up to rounding, for any partitions.
    Rows stay on the workers; sums of the size of a model travel.

    Parameters
    ----------
    rho, divergence : optional
        As in :class:`drolearn.RobustRegressor`.  The divergence must be strictly convex
        unless there are groups.
    tau : None
        Only None is accepted: fit the ball whose radius is `rho_` of a fit in memory.
    loss, l2 : optional
        As in :class:`drolearn.RobustRegressor`.
    l1 : float, default=0.0
        Only 0 is accepted: proximal steps need the columns in this process.
    trim : float, default=0.0
        Only 0 is accepted: trimming sorts the losses of all rows.
    fit_intercept : optional
        As in :class:`drolearn.RobustRegressor`.
    solver : str or Solver, default="auto"
        As in memory, but without a checkpoint; "auto" is "exact".
    max_iter, tol : optional
        As in :class:`drolearn.RobustRegressor`.
    random_state : optional
        Seed of stochastic solvers: the same integer gives the same bits.
    warm_start : bool, default=False
        Whether `fit` starts from the previous model if its shape matches.
    store_weights : bool, default=False
        Only False is accepted.
    n_jobs : int, default=None
        Threads of this process for the subsample, and for `to_local`; each worker uses its own.
    verbose : int, default=0
        If positive, print the progress.
    reference : None
        Only None is accepted: pass the losses of a reference to `fit`, as `reference_losses`.
    client : Client, default=None
        The client of the cluster; None for the one that was made last.  `clone` keeps it, and a
        pickle does not hold it.

    Attributes
    ----------
    client_ : Client
        The client that is used.
    n_rounds_ : int
        Number of rounds of the fit: passes of one task for each worker.
    coef_, intercept_ : ndarray
        Coefficients and intercepts; all other attributes are those of
        :class:`drolearn.RobustRegressor` too.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from drolearn.dask import RobustRegressor
    >>> X = da.random.default_rng(0).standard_normal((300, 2), chunks=(100, 2))
    >>> y = X @ da.from_array([1.0, -2.0]) + 0.5
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     RobustRegressor(rho=0.5, l2=0, client=client).fit(X, y).coef_.round(4)
    array([ 1., -2.])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **regression.RobustRegressor._parameter_constraints,
        "client": "no_validation",
    }
    _local = regression.RobustRegressor
    _is_regression = True

    def __init__(
        self,
        rho: float | str | None = None,
        *,
        divergence: str | Divergence = "chi2",
        tau: None = None,
        loss: str | Loss = "squared",
        l2: float | str = "auto",
        l1: float = 0.0,
        trim: float = 0.0,
        fit_intercept: bool = True,
        solver: str | Solver = "auto",
        max_iter: float = 200,
        tol: float | None = 1e-6,
        random_state: Any = None,
        warm_start: bool = False,
        store_weights: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
        reference: Any = None,
        client: Any = None,
    ) -> None:
        super().__init__(
            rho,
            divergence=divergence,
            tau=tau,
            loss=loss,
            l2=l2,
            l1=l1,
            trim=trim,
            fit_intercept=fit_intercept,
            solver=solver,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            warm_start=warm_start,
            store_weights=store_weights,
            n_jobs=n_jobs,
            verbose=verbose,
            reference=reference,
        )
        self.client = client

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        reference_losses: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features), or path
            Training rows; blocks of arrays may be CSR matrices.  Lengths of partitions may be
            unknown.  A path is that of a Parquet file, of a folder of them, or a pattern.
        y : Dask array or series of shape (n_samples,), or str
            Target values.  Like `sample_weight` and `groups`, it may name a column of X, which is
            then not a feature.
        sample_weight : Dask array or series of shape (n_samples,), default=None
            Base weights of the rows.
        groups : Dask array, series or dataframe, default=None
            Group of each row, as in memory: names, several columns of names, or a Boolean matrix.
            The ball then reweights groups instead of rows, and takes every divergence.
        reference_losses : Dask array or series of shape (n_samples,), or str, default=None
            Losses of a reference model on rows that it has not seen: the fit then minimises the
            robust regret.

        Returns
        -------
        RobustRegressor
            The fitted estimator.

        Raises
        ------
        LostWorkersError
            If all workers are lost.
        KeyboardInterrupt
            After Ctrl-C; the attributes then hold the best model so far.

        Examples
        --------
        >>> import dask.array as da
        >>> from dask.distributed import Client
        >>> from drolearn.dask import RobustRegressor
        >>> X, y = da.from_array([[0.0], [1.0], [2.0]]), da.from_array([1.0, 2.0, 3.0])
        >>> with Client(processes=False, dashboard_address=":0"):
        ...     RobustRegressor(l2=0).fit(X, y).coef_.round(3)
        array([1.])
        """
        return self._fit_on_cluster(X, y, sample_weight, groups, reference_losses)

    def _set_classes(self, found: Found, classes: Any) -> tuple[None, None]:
        self._loss()
        return None, None

    def predict(self, X: Any) -> Any:
        """Predict the target values X w + c, lazily for Dask collections.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features)
            Rows; data in memory are accepted too.

        Returns
        -------
        Dask array of shape (n_samples,)
            Predictions.

        Examples
        --------
        See :class:`drolearn.dask.RobustRegressor`.

        >>> from drolearn.dask import RobustRegressor
        >>> callable(RobustRegressor().predict)
        True
        """
        if not is_collection(X):
            return super().predict(X)
        return self._lazily("predict", X, None, np.float64)
