"""`RobustEnsembleClassifier`: any classifier, trained on the worst reweighting of its data."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from drolearn._estimators.cross_fitting import aligned_probabilities
from drolearn._estimators.ensemble import RobustEnsemble
from drolearn._estimators.labels import as_class_labels, known_labels
from drolearn.divergence import Divergence

__all__ = ["RobustEnsembleClassifier"]

Array = NDArray[np.float64]


class RobustEnsembleClassifier(ClassifierMixin, RobustEnsemble):
    """Ensemble of any classifiers that is good on the worst reweighting of its data.

    Each round fits a copy of the estimator with weights, and moves the weights towards the worst
    case of the ensemble's log losses. The prediction is the average of the models' probabilities.

    Parameters
    ----------
    estimator : estimator
        A classifier with `predict_proba` whose `fit` takes sample weights, or a pipeline with such
        a classifier as last step.
    rho : float or None, default=None
        Radius of the ball; None is 0.1. CVaR has no radius: leave it None. Balls over rows give
        most weight to noisy labels: keep them small, or use `reference` or groups.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball, as in :func:`drolearn.worst_case`.
    n_rounds : int, default=8
        Number of rounds. Round t has a weight proportional to t in the averages of predictions and
        weights. The ensemble ends with the round of the smallest robust loss.
    reference : "auto", estimator or None, default=None
        Reference model, as in :class:`RobustClassifier`: its cross-fitted losses are subtracted, so
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
    classes_ : ndarray of shape (n_classes,)
        Class labels.
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
    RobustEnsembleRegressor : The same for regression.
    RobustClassifier : Linear models, exactly and with a certificate.

    Notes
    -----
    The log loss of a row is −log of the probability of its class. Probabilities below 1/(n + 1),
    which n training rows cannot support, are raised to that.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from drolearn import RobustEnsembleClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> few = rng.random(500) < 0.1                       # a small group follows another law
    >>> y = np.where(few, -X[:, 0], X[:, 0]) + X[:, 1] > 0
    >>> trees = HistGradientBoostingClassifier(max_iter=20)
    >>> clf = RobustEnsembleClassifier(trees, rho=9, n_rounds=3).fit(X, y, groups=few)
    >>> plain = trees.fit(X, y)
    >>> clf.group_weights_.size, len(clf.estimators_) <= 3
    (2, True)
    """

    _of_classes = True
    _loss_of_reference = "logistic"
    _parameter_constraints: ClassVar[dict[str, Any]] = RobustEnsemble._parameter_constraints

    classes_: NDArray[Any]

    def __init__(
        self,
        estimator: Any,
        rho: float | None = None,
        *,
        divergence: str | Divergence = "chi2",
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
        self.n_rounds = n_rounds
        self.reference = reference
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags

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
            Class labels of any type that can be sorted.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows, around which the ball lies.
        groups : array-like of shape (n_samples,) or (n_samples, k), default=None
            Group of each row, as in :meth:`RobustClassifier.fit`. The ball then reweights groups
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
        RobustEnsembleClassifier
            The fitted ensemble.

        Examples
        --------
        >>> from sklearn.linear_model import LogisticRegression
        >>> from drolearn import RobustEnsembleClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "no", "yes"]
        >>> clf = RobustEnsembleClassifier(LogisticRegression(), rho=0.01, cv=None).fit(X, y)
        >>> clf.predict([[3.0]])
        array(['yes'], dtype='<U3')
        """
        return self._fit(X, y, sample_weight, groups, split_groups, reference_losses, params)

    def _validate_y(self, y: Any) -> NDArray[Any]:
        if not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"The 'estimator' parameter of {type(self).__name__} must have predict_proba. Got "
                f"{self.estimator!r} instead: use a classifier such as "
                f"HistGradientBoostingClassifier()."
            )
        labels, self.classes_, _ = as_class_labels(y)
        return labels

    def _labels(self, y: Any) -> NDArray[Any]:
        return known_labels(y, self.classes_, self)

    def _predictions(self, model: Any, X: Any) -> Array:
        return aligned_probabilities(model, X, self.classes_)

    def _losses(self, predictions: Array, y: NDArray[Any]) -> Array:
        true = predictions[np.arange(y.size), np.searchsorted(self.classes_, y)]
        return -np.log(np.maximum(true, 1.0 / (self._row_count + 1.0)))

    def predict_proba(self, X: Any) -> Array:
        """Predict the probabilities of the classes, the average of those of the models.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, with columns in the order of `classes_`.

        Examples
        --------
        >>> from sklearn.linear_model import LogisticRegression
        >>> from drolearn import RobustEnsembleClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
        >>> clf = RobustEnsembleClassifier(LogisticRegression(), rho=0.01, cv=None).fit(X, y)
        >>> clf.predict_proba([[-1.0], [4.0]]).sum(axis=1)
        array([1., 1.])
        """
        return self._average(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of the highest probability.

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
        >>> from sklearn.linear_model import LogisticRegression
        >>> from drolearn import RobustEnsembleClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
        >>> clf = RobustEnsembleClassifier(LogisticRegression(), rho=0.01, cv=None).fit(X, y)
        >>> clf.predict([[-1.0], [4.0]])
        array([0, 1])
        """
        check_is_fitted(self)
        return self.classes_[self._average(X).argmax(axis=1)]
