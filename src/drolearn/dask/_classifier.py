"""`RobustClassifier` for Dask collections."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from drolearn._estimators import classification
from drolearn._solvers.solvers import Solver
from drolearn.dask._collections import is_collection
from drolearn.dask._estimator import DaskLinear
from drolearn.dask._rows import Found
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["RobustClassifier"]

Array = NDArray[np.float64]
_has_probabilities = classification.RobustClassifier._has_probabilities


class RobustClassifier(DaskLinear, classification.RobustClassifier):
    """Linear classifier that minimises the loss on the worst reweighting of its data, on Dask.

    The model is that of :class:`drolearn.RobustClassifier` up to rounding, for any partitions.
    Rows stay on the workers; sums of the size of a model travel.

    Parameters
    ----------
    rho, divergence : optional
        As in :class:`drolearn.RobustClassifier`.  The divergence must be strictly convex
        unless there are groups.
    tau : None
        Only None is accepted: fit the ball whose radius is `rho_` of a fit in memory.
    loss, l2 : optional
        As in :class:`drolearn.RobustClassifier`.
    l1 : float, default=0.0
        Only 0 is accepted: proximal steps need the columns in this process.
    trim : float, default=0.0
        Only 0 is accepted: trimming sorts the losses of all rows.
    fit_intercept, class_weight : optional
        As in :class:`drolearn.RobustClassifier`.
    solver : str or Solver, default="auto"
        As in memory, but without a checkpoint; "auto" is "exact".
    max_iter, tol : optional
        As in :class:`drolearn.RobustClassifier`.
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
    classes_ : ndarray of shape (n_classes,)
        The classes in order.
    coef_, intercept_ : ndarray
        Coefficients and intercepts; all other attributes are those of
        :class:`drolearn.RobustClassifier` too.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from drolearn.dask import RobustClassifier
    >>> X = da.random.default_rng(0).standard_normal((400, 3), chunks=(100, 3))
    >>> y = X[:, 0] > 0.5
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     clf = RobustClassifier(rho=0.1, client=client).fit(X, y)
    ...     predicted = clf.predict(X)            # lazy
    ...     print(clf.converged_, float((predicted == y).mean().compute()) > 0.9)
    True True
    >>> clf.to_local().classes_
    array([False,  True])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **classification.RobustClassifier._parameter_constraints,
        "client": "no_validation",
    }
    _local = classification.RobustClassifier
    _is_regression = False

    def __init__(
        self,
        rho: float | str | None = None,
        *,
        divergence: str | Divergence = "chi2",
        tau: None = None,
        loss: str | Loss = "logistic",
        l2: float | str = "auto",
        l1: float = 0.0,
        trim: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
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
            class_weight=class_weight,
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
        classes: Any = None,
        reference_losses: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features), or path
            Training rows; blocks of arrays may be CSR matrices.  Lengths of partitions may be
            unknown.  A path is that of a Parquet file, of a folder of them, or a pattern.
        y : Dask array or series of shape (n_samples,), or str
            Class labels.  Like `sample_weight` and `groups`, it may name a column of X, which is
            then not a feature.
        sample_weight : Dask array or series of shape (n_samples,), default=None
            Base weights of the rows.
        groups : Dask array, series or dataframe, default=None
            Group of each row, as in memory: names, several columns of names, or a Boolean matrix.
            The ball then reweights groups instead of rows, and takes every divergence.
        classes : array-like, default=None
            The classes, which y must not exceed; None finds them in the pass that checks the data.
        reference_losses : Dask array or series of shape (n_samples,), or str, default=None
            Losses of a reference model on rows that it has not seen: the fit then minimises the
            robust regret.

        Returns
        -------
        RobustClassifier
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
        >>> from drolearn.dask import RobustClassifier
        >>> X = da.from_array([[0.0], [1.0], [2.0], [3.0]], chunks=(2, 1))
        >>> y = da.from_array(["no", "yes", "no", "yes"], chunks=2)
        >>> with Client(processes=False, dashboard_address=":0"):
        ...     RobustClassifier(rho=0.01).fit(X, y).classes_
        array(['no', 'yes'], dtype='<U3')
        """
        return self._fit_on_cluster(X, y, sample_weight, groups, reference_losses, classes)

    def _set_classes(self, found: Found, classes: Any) -> tuple[NDArray[Any], Array | None]:
        names = list(found.classes)
        if classes is not None:
            if np.ndim(classes) != 1:
                raise ValueError(
                    f"The 'classes' parameter must be a list of labels. Got {classes!r} instead."
                )
            names = np.asarray(classes).tolist()
        unknown = [name for name in found.classes if name not in set(names)]
        if unknown:
            raise ValueError(
                f"The 'classes' parameter must hold all labels of y. Got {names} instead, which "
                f"lacks {unknown[0]!r}."
            )
        try:
            self.classes_ = np.unique(np.array(names))
        except TypeError:
            raise ValueError(
                "The 'y' parameter must hold labels of one type. Got a mix that cannot be sorted."
            ) from None
        weights = np.array([found.classes.get(name, 0.0) for name in self.classes_.tolist()])
        if np.count_nonzero(weights) < 2:
            raise ValueError(
                "The rows of positive weight must have at least two classes. Got fewer instead."
            )
        loss = self._loss()
        if loss.of == "margin" and self.classes_.size > 2:
            raise ValueError(
                f"The 'loss' parameter of {type(self).__name__} must be 'logistic' for more than "
                f"two classes. Got {loss.name!r} for {self.classes_.size} classes instead."
            )
        if self.class_weight is None:
            return self.classes_, None
        factors = compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_, sample_weight=weights
        )
        return self.classes_, np.asarray(factors, dtype=np.float64)

    def decision_function(self, X: Any) -> Any:
        """Compute the scores X w + c, lazily for Dask collections.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features)
            Rows; data in memory are accepted too.

        Returns
        -------
        Dask array of shape (n_samples,) or (n_samples, n_classes)
            For two classes, the score of the second class; for more, a column for each class.

        Examples
        --------
        See :class:`drolearn.dask.RobustClassifier`.

        >>> from drolearn.dask import RobustClassifier
        >>> callable(RobustClassifier().decision_function)
        True
        """
        if not is_collection(X):
            return super().decision_function(X)
        return self._lazily("decision_function", X, self._n_scores(), np.float64)

    def predict(self, X: Any) -> Any:
        """Predict the class with the highest score, lazily for Dask collections.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features)
            Rows; data in memory are accepted too.

        Returns
        -------
        Dask array of shape (n_samples,)
            Class labels.

        Examples
        --------
        See :class:`drolearn.dask.RobustClassifier`.

        >>> from drolearn.dask import RobustClassifier
        >>> callable(RobustClassifier().predict)
        True
        """
        if not is_collection(X):
            return super().predict(X)
        self._n_scores()
        return self._lazily("predict", X, None, self.classes_.dtype)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Predict the probabilities of the classes, lazily for Dask collections.

        Parameters
        ----------
        X : Dask array or dataframe of shape (n_samples, n_features)
            Rows; data in memory are accepted too.

        Returns
        -------
        Dask array of shape (n_samples, n_classes)
            Probabilities, with columns in the order of `classes_`.

        Examples
        --------
        See :class:`drolearn.dask.RobustClassifier`.

        >>> from drolearn.dask import RobustClassifier
        >>> callable(RobustClassifier().predict_proba)
        True
        """
        if not is_collection(X):
            return super().predict_proba(X)
        self._n_scores()
        return self._lazily("predict_proba", X, self.classes_.size, np.float64)

    def _n_scores(self) -> int | None:
        """The number of columns of the scores; None for a vector."""
        check_is_fitted(self)
        return None if self.classes_.size == 2 else self.classes_.size
