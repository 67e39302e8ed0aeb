"""`RobustBoostingClassifier`: boosted trees on the worst reweighting of their data."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.base import ClassifierMixin, _fit_context

from drolearn._estimators.boosting import RobustBoosting, Validation
from drolearn._estimators.labels import as_class_labels, known_labels
from drolearn.divergence import Divergence
from drolearn.loss import Loss, as_loss

__all__ = ["RobustBoostingClassifier"]

Array = NDArray[np.float64]


class RobustBoostingClassifier(ClassifierMixin, RobustBoosting):
    """Boosted trees of LightGBM or XGBoost that are good on the worst reweighting of their data.

    In each round, the weights of the groups, or of the rows, move towards the worst case of the log
    losses, and the next tree is fitted with them. Two classes only.

    Parameters
    ----------
    estimator : LGBMClassifier or XGBClassifier
        The trees: rounds, leaves, learning rate, threads, early stopping. Its objective and metric
        are replaced.
    rho : float or None, default=None
        Radius of the ball; None is 0.1. CVaR has no radius: leave it None. Balls over rows give
        most weight to noisy labels: pass groups, or use `reference`.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball, as in :func:`drolearn.worst_case`.
    step : float, default=0.1
        The part of the way to the worst case that the weights move in each round, above 0 and at
        most 1. With 1, weights jump between groups, and late rounds lose what earlier ones learned.
    reference : "auto", estimator or None, default=None
        Reference model, as in :class:`RobustClassifier`: its cross-fitted losses are subtracted, so
        that losses that no model avoids get little weight.
    n_jobs : int or None, default=None
        Number of folds in which the reference is fitted in parallel, and of threads of
        `worst_case`. The trees have the `n_jobs` of the estimator.

    Attributes
    ----------
    estimator_ : LGBMClassifier or XGBClassifier
        The fitted model of the library. One of LightGBM predicts scores, as with every custom
        objective; one of XGBoost predicts probabilities.
    classes_ : ndarray of shape (2,)
        Class labels.
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
    RobustBoostingRegressor : The same for regression.
    RobustEnsembleClassifier : Any estimator, as an average of several fits.
    drolearn.boosting.robust_objective : The objective alone, for the libraries' own interfaces.

    Examples
    --------
    >>> import numpy as np
    >>> from lightgbm import LGBMClassifier
    >>> from drolearn import RobustBoostingClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 3))
    >>> few = rng.random(1000) < 0.1                      # a small group follows another law
    >>> y = np.where(few, -X[:, 0], X[:, 0]) + X[:, 1] > 0
    >>> trees = LGBMClassifier(n_estimators=50, n_jobs=1, verbose=-1)
    >>> clf = RobustBoostingClassifier(trees, rho=9).fit(X, y, groups=few)
    >>> loss = lambda model: -np.log(model.predict_proba(X)[few, y[few].astype(int)]).mean()
    >>> bool(loss(clf) < 0.8 * loss(trees.fit(X, y)))
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = RobustBoosting._parameter_constraints

    classes_: NDArray[Any]

    def __init__(
        self,
        estimator: Any,
        rho: float | None = None,
        *,
        divergence: str | Divergence = "chi2",
        step: float = 0.1,
        reference: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.rho = rho
        self.divergence = divergence
        self.step = step
        self.reference = reference
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

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
            Class labels, two of any type that can be sorted.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows, around which the ball lies.
        groups : array-like of shape (n_samples,) or (n_samples, k), default=None
            Group of each row, as in :meth:`RobustClassifier.fit`. The ball then reweights groups
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
        RobustBoostingClassifier
            The fitted model.

        Examples
        --------
        >>> import numpy as np
        >>> from lightgbm import LGBMClassifier
        >>> from drolearn import RobustBoostingClassifier
        >>> X = np.arange(100.0)[:, None]
        >>> y = np.where(X[:, 0] > 50, "high", "low")
        >>> trees = LGBMClassifier(n_estimators=200, early_stopping_rounds=5, n_jobs=1, verbose=-1)
        >>> clf = RobustBoostingClassifier(trees, rho=0.1)
        >>> clf.fit(X[::2], y[::2], eval_set=(X[1::2], y[1::2])).predict([[10.0], [90.0]])
        array(['low', 'high'], dtype='<U4')
        """
        validation = Validation(eval_set, eval_sample_weight, eval_groups, eval_reference_losses)
        return self._fit(X, y, sample_weight, groups, validation, reference_losses, params)

    @property
    def _loss(self) -> Loss:
        return as_loss("logistic")

    def _validate_y(self, y: Any) -> Array:
        _, self.classes_, codes = as_class_labels(y)
        if self.classes_.size > 2:
            raise ValueError(
                f"Only binary classification is supported by {type(self).__name__}. The type of "
                f"the target is multiclass, with {self.classes_.size} classes: use "
                f"RobustEnsembleClassifier({type(self.estimator).__name__}(), ...)."
            )
        return codes.astype(np.float64)

    def _labels(self, y: Any) -> Array:
        return (known_labels(y, self.classes_, self) == self.classes_[1]).astype(np.float64)

    def _start(self, y: Array, weights: Array | None) -> float:
        share = float(np.average(y, weights=weights))
        if not 0.0 < share < 1.0:
            raise ValueError(
                "The rows of positive weight must have two classes. Got fewer than two classes "
                "instead."
            )
        return float(logit(share))

    def decision_function(self, X: Any) -> Array:
        """Compute the scores, which are positive for the second class.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Scores: the logarithms of p / (1 − p).

        Examples
        --------
        >>> import numpy as np
        >>> from lightgbm import LGBMClassifier
        >>> from drolearn import RobustBoostingClassifier
        >>> X = np.arange(100.0)[:, None]
        >>> trees = LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1)
        >>> clf = RobustBoostingClassifier(trees, rho=0.1).fit(X, X[:, 0] > 50)
        >>> clf.decision_function([[10.0], [90.0]]) > 0
        array([False,  True])
        """
        return self._scores(X)

    def predict_proba(self, X: Any) -> Array:
        """Predict the probabilities of the classes, by the logistic function of the scores.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Probabilities, with columns in the order of `classes_`.

        Examples
        --------
        >>> import numpy as np
        >>> from lightgbm import LGBMClassifier
        >>> from drolearn import RobustBoostingClassifier
        >>> X = np.arange(100.0)[:, None]
        >>> trees = LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1)
        >>> clf = RobustBoostingClassifier(trees, rho=0.1).fit(X, X[:, 0] > 50)
        >>> clf.predict_proba([[10.0], [90.0]])[:, 1] > 0.9
        array([False,  True])
        """
        scores = self._scores(X)
        return np.column_stack([expit(-scores), expit(scores)])

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of the higher probability.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.

        Examples
        --------
        >>> import numpy as np
        >>> from lightgbm import LGBMClassifier
        >>> from drolearn import RobustBoostingClassifier
        >>> X = np.arange(100.0)[:, None]
        >>> trees = LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1)
        >>> RobustBoostingClassifier(trees, rho=0.1).fit(X, X[:, 0] > 50).predict([[10.0], [90.0]])
        array([False,  True])
        """
        scores = self._scores(X)
        return self.classes_[(scores > 0.0).astype(np.intp)]
