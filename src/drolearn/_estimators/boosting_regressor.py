"""`RobustBoostingRegressor`: boosted trees on the worst reweighting of their data."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, _fit_context

from drolearn._estimators.boosting import RobustBoosting, Validation
from drolearn._solvers.inputs import as_labels
from drolearn.divergence import Divergence
from drolearn.loss import Loss, as_loss

__all__ = ["RobustBoostingRegressor"]

Array = NDArray[np.float64]
# The libraries store labels in single precision; their squares must not overflow there.
_LARGEST = 1e18


class RobustBoostingRegressor(RegressorMixin, RobustBoosting):
    """Boosted trees of LightGBM or XGBoost that are good on the worst reweighting of their data.

    In each round, the weights of the groups, or of the rows, move towards the worst case of the
    losses, and the next tree is fitted with them.

    Parameters
    ----------
    estimator : LGBMRegressor or XGBRegressor
        The trees: rounds, leaves, learning rate, threads, early stopping. Its objective and metric
        are replaced.
    rho : float or None, default=None
        Radius of the ball; None is 0.1. CVaR has no radius: leave it None. Balls over rows give
        most weight to noisy rows: pass groups, or use `reference`.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball, as in :func:`drolearn.worst_case`.
    loss : str or Loss, default="squared"
        Loss of a row: "squared", "huber" or another loss of the residual.
    step : float, default=0.1
        The part of the way to the worst case that the weights move in each round, above 0 and at
        most 1. With 1, weights jump between groups, and late rounds lose what earlier ones learned.
    reference : "auto", estimator or None, default=None
        Reference model, as in :class:`RobustRegressor`: its cross-fitted losses are subtracted, so
        that losses that no model avoids get little weight.
    n_jobs : int or None, default=None
        Number of folds in which the reference is fitted in parallel, and of threads of
        `worst_case`. The trees have the `n_jobs` of the estimator.

    Attributes
    ----------
    estimator_ : LGBMRegressor or XGBRegressor
        The fitted model of the library.
    rho_ : float
        Radius that was used; 0 for CVaR, which has none.
    divergence_ : Divergence
        Divergence that was used.
    groups_ : ndarray of shape (n_groups,) or None
        Names of the groups, if groups were passed to `fit`.
    group_weights_ : ndarray of shape (n_groups,) or None
        Damped worst-case weights of the groups after the last round.
    round_values_ : ndarray of shape (n_rounds,) or None
        Robust loss of the validation rows after each round, if there are any; with a reference,
        the robust regret.
    best_round_ : int
        Number of rounds that predictions use: the best ones on the validation rows if the estimator
        stops early, else all.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X is a data frame with names that are strings.

    See Also
    --------
    RobustBoostingClassifier : The same for two classes.
    RobustEnsembleRegressor : Any estimator, as an average of several fits.
    drolearn.boosting.robust_objective : The objective alone, for the libraries' own interfaces.

    Examples
    --------
    >>> import numpy as np
    >>> from lightgbm import LGBMRegressor
    >>> from drolearn import RobustBoostingRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 3))
    >>> few = rng.random(1000) < 0.1                      # a small group follows another law
    >>> y = np.where(few, -X[:, 0], X[:, 0]) + X[:, 1]
    >>> trees = LGBMRegressor(n_estimators=50, n_jobs=1, verbose=-1)
    >>> reg = RobustBoostingRegressor(trees, rho=9).fit(X, y, groups=few)
    >>> error = lambda model: np.mean((model.predict(X) - y)[few] ** 2)
    >>> bool(error(reg) < 0.5 * error(trees.fit(X, y)))
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustBoosting._parameter_constraints,
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
        step: float = 0.1,
        reference: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.rho = rho
        self.divergence = divergence
        self.loss = loss
        self.step = step
        self.reference = reference
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        eval_set: tuple[Any, ArrayLike] | None = None,
        eval_sample_weight: ArrayLike | None = None,
        eval_groups: ArrayLike | None = None,
        reference_losses: ArrayLike | None = None,
        eval_reference_losses: ArrayLike | None = None,
        **params: Any,
    ) -> Self:
        """Fit the trees.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Target values.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows, around which the ball lies.
        groups : array-like of shape (n_samples,) or (n_samples, k), default=None
            Group of each row, as in :meth:`RobustRegressor.fit`. The ball then reweights groups
            instead of single rows.
        eval_set : tuple (X, y), default=None
            Validation rows and their labels. Their robust loss is computed after each round; the
            fit stops early if the estimator has `early_stopping_rounds`.
        eval_sample_weight : array-like, default=None
            Weights of the validation rows.
        eval_groups : array-like, default=None
            Groups of the validation rows.
        reference_losses : array-like of shape (n_samples,), default=None
            Losses of a reference model on rows that it has not seen. They are used instead of
            `reference`.
        eval_reference_losses : array-like, default=None
            Losses of the reference model on the validation rows. By default those of `reference`,
            fitted to all training rows.
        **params : dict
            Further arguments of the `fit` of the library, such as `callbacks` or
            `categorical_feature` of LightGBM.

        Returns
        -------
        RobustBoostingRegressor
            The fitted model.

        Examples
        --------
        >>> import numpy as np
        >>> from lightgbm import LGBMRegressor
        >>> from drolearn import RobustBoostingRegressor
        >>> X = np.arange(100.0)[:, None]
        >>> trees = LGBMRegressor(n_estimators=500, early_stopping_rounds=5, n_jobs=1, verbose=-1)
        >>> reg = RobustBoostingRegressor(trees, rho=0.1)
        >>> reg = reg.fit(X[::2], X[::2, 0], eval_set=(X[1::2], X[1::2, 0]))
        >>> bool(abs(reg.predict([[80.0]])[0] - 80.0) < 3.0), reg.best_round_ < 500
        (True, True)
        """
        validation = Validation(eval_set, eval_sample_weight, eval_groups, eval_reference_losses)
        return self._fit(X, y, sample_weight, groups, validation, reference_losses, params)

    @property
    def _loss(self) -> Loss:
        loss = as_loss(self.loss)
        if loss.of != "residual":
            raise ValueError(
                f"The 'loss' parameter of {type(self).__name__} must be 'squared', 'huber' or "
                f"another loss of the residual. Got {loss.name!r} instead."
            )
        return loss

    def _validate_y(self, y: Any) -> Array:
        labels = as_labels(y, self._loss)
        largest = float(np.abs(labels).max(initial=0.0))
        if largest > _LARGEST:
            raise ValueError(
                f"The 'y' parameter must hold numbers of at most {_LARGEST:g}, since boosted trees "
                f"compute in single precision. Got {largest:g}: divide y by a constant."
            )
        return labels

    def _labels(self, y: Any) -> Array:
        return self._validate_y(y)

    def _start(self, y: Array, weights: Array | None) -> float:
        return float(np.average(y, weights=weights))

    def predict(self, X: Any) -> Array:
        """Predict the target values.

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
        >>> import numpy as np
        >>> from lightgbm import LGBMRegressor
        >>> from drolearn import RobustBoostingRegressor
        >>> X = np.arange(100.0)[:, None]
        >>> trees = LGBMRegressor(n_jobs=1, verbose=-1)
        >>> reg = RobustBoostingRegressor(trees, rho=0.1).fit(X, X[:, 0] > 50)
        >>> reg.predict([[10.0], [90.0]]).round()
        array([0., 1.])
        """
        return self._scores(X)
