"""`RobustEnsembleRegressor`: any regressor, trained on the worst reweighting of its data."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, _fit_context, is_classifier

from drolearn._estimators.ensemble import RobustEnsemble
from drolearn._solvers.inputs import as_labels
from drolearn.divergence import Divergence
from drolearn.loss import Loss, as_loss

__all__ = ["RobustEnsembleRegressor"]

Array = NDArray[np.float64]


class RobustEnsembleRegressor(RegressorMixin, RobustEnsemble):
    """Ensemble of any regressors that is good on the worst reweighting of its data.

    Each round fits a copy of the estimator with weights, and moves the weights towards the worst
    case of the ensemble's losses. The prediction is the average of the models' predictions.

    Parameters
    ----------
    estimator : estimator
        A regressor whose `fit` takes sample weights, or a pipeline with such a regressor as last
        step.
    rho : float or None, default=None
        Radius of the ball; None is 0.1. CVaR has no radius: leave it None. Balls over rows give
        most weight to noisy rows: keep them small, or use `reference` or groups.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball, as in :func:`drolearn.worst_case`.
    loss : str or Loss, default="squared"
        Loss of a row: "squared", "huber" or another loss of the residual. It decides the weights;
        what a fit minimises is up to the estimator.
    n_rounds : int, default=8
        Number of rounds. Round t has a weight proportional to t in the averages of predictions and
        weights. The ensemble ends with the round of the smallest robust loss.
    reference : "auto", estimator or None, default=None
        Reference model, as in :class:`RobustRegressor`: its cross-fitted losses are subtracted, so
        that losses that no model avoids get little weight.
    cv : int, splitter, iterable or None, default=5
        Folds in which the losses are computed, on rows that the models have not seen; a number
        makes shuffled folds, always the same ones. Each round makes one more fit than there are
        folds. None takes losses of training rows, which is faster, and right only for models that
        do not memorise their rows.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the estimators, which differ from round to round. None leaves the estimator's own
        seed as it is.
    n_jobs : int or None, default=None
        Number of fits of a round that joblib runs in parallel; -1 uses all processors.
    verbose : int, default=0
        If positive, print the progress. For a progress bar, use
        ``set_callbacks(sklearn.callback.ProgressBar())``, which needs scikit-learn 1.9.

    Attributes
    ----------
    estimators_ : list of estimators
        The models, one for each round up to the best one, fitted to all rows.
    estimator_weights_ : ndarray of shape (n_estimators,)
        Weights of the models in the average.
    rho_ : float
        Radius that was used; 0 for CVaR, which has none.
    divergence_ : Divergence
        Divergence that was used.
    robust_loss_ : float
        Robust loss of the ensemble, cross-fitted unless cv=None.
    robust_regret_ : float or None
        Robust regret, if there is a reference.
    round_values_ : ndarray of shape (n_rounds,)
        Robust loss after each round, or with a reference robust regret.
    groups_ : ndarray of shape (n_groups,) or None
        Names of the groups, if groups were passed to `fit`.
    group_weights_ : ndarray of shape (n_groups,) or None
        Worst-case weights of the groups, if groups were passed to `fit`.
    gap_ : float
        Duality gap, with cv=None. If the estimator minimises the weighted mean loss, no mixture of
        its models has a robust loss below that of this mixture minus the gap; the loss of a mixture
        is the mixture of the losses. NaN with cross-fitted losses, or if a fit did not minimise its
        loss.
    status_ : str
        One sentence on how the fit ended, and on the gap.
    n_features_in_ : int
        Number of columns of X, if the estimator counts them.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the estimator stores them.

    See Also
    --------
    RobustEnsembleClassifier : The same for classification.
    RobustRegressor : Linear models, exactly and with a certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from drolearn import RobustEnsembleRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> few = rng.random(500) < 0.1                       # a small group follows another law
    >>> y = np.where(few, -X[:, 0], X[:, 0]) + X[:, 1]
    >>> tree = DecisionTreeRegressor(max_depth=4)
    >>> reg = RobustEnsembleRegressor(tree, rho=9).fit(X, y, groups=few)
    >>> error = lambda model: np.mean((model.predict(X) - y)[few] ** 2)
    >>> bool(error(reg) < error(tree.fit(X, y)))
    True
    """

    _of_classes = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustEnsemble._parameter_constraints,
        "loss": [str, Loss],
    }

    loss: Any

    def __init__(
        self,
        estimator: Any,
        rho: float | None = None,
        *,
        divergence: str | Divergence = "chi2",
        loss: str | Loss = "squared",
        n_rounds: int = 8,
        reference: Any = None,
        cv: Any = 5,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.rho = rho
        self.divergence = divergence
        self.loss = loss
        self.n_rounds = n_rounds
        self.reference = reference
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        split_groups: ArrayLike | None = None,
        reference_losses: ArrayLike | None = None,
        **params: Any,
    ) -> Self:
        """Fit the ensemble.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Training rows, in any form that the estimator accepts.
        y : array-like of shape (n_samples,)
            Target values.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows, around which the ball lies.
        groups : array-like of shape (n_samples,) or (n_samples, k), default=None
            Group of each row, as in :meth:`RobustRegressor.fit`. The ball then reweights groups
            instead of single rows.
        split_groups : array-like of shape (n_samples,), default=None
            Rows of one group stay in one fold: patients, households, days.
        reference_losses : array-like of shape (n_samples,), default=None
            Losses of a reference model on rows that it has not seen. They are used instead of
            `reference`.
        **params : dict
            Further arguments of the estimator's `fit`, with scikit-learn's metadata routing.

        Returns
        -------
        RobustEnsembleRegressor
            The fitted ensemble.

        Examples
        --------
        >>> from sklearn.linear_model import LinearRegression
        >>> from drolearn import RobustEnsembleRegressor
        >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0]
        >>> RobustEnsembleRegressor(LinearRegression(), cv=None).fit(X, y).predict([[3.0]]).round(6)
        array([4.])
        """
        return self._fit(X, y, sample_weight, groups, split_groups, reference_losses, params)

    @property
    def _loss_of_reference(self) -> Loss:  # type: ignore[override]
        loss = as_loss(self.loss)
        if loss.of != "residual":
            raise ValueError(
                f"The 'loss' parameter of {type(self).__name__} must be 'squared', 'huber' or "
                f"another loss of the residual. Got {loss.name!r} instead."
            )
        return loss

    def _validate_y(self, y: Any) -> NDArray[Any]:
        if is_classifier(self.estimator):  # its class labels would pass for numbers
            raise ValueError(
                f"The 'estimator' parameter of {type(self).__name__} must be a regressor. Got "
                f"{self.estimator!r} instead: use RobustEnsembleClassifier for classes."
            )
        return as_labels(y, self._loss_of_reference)

    def _labels(self, y: Any) -> NDArray[Any]:
        return as_labels(y, self._loss_of_reference)

    def _predictions(self, model: Any, X: Any) -> Array:
        return np.ascontiguousarray(model.predict(X), dtype=np.float64)

    def _losses(self, predictions: Array, y: NDArray[Any]) -> Array:
        return self._loss_of_reference.of_scores(predictions, y)[0]

    def predict(self, X: Any) -> Array:
        """Predict the target values, the average of the models' predictions.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions.

        Examples
        --------
        >>> from sklearn.linear_model import LinearRegression
        >>> from drolearn import RobustEnsembleRegressor
        >>> reg = RobustEnsembleRegressor(LinearRegression(), cv=None)
        >>> reg.fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0]).predict([[3.0]]).round(6)
        array([4.])
        """
        return self._average(X)
