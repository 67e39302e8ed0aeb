"""`RobustClassifier`: a linear classifier trained on the worst reweighting of its data."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from drolearn._estimators.base import RobustLinear
from drolearn._estimators.labels import known_labels
from drolearn._estimators.streaming import ClassifierStreamMixin, refuse_missing_labels
from drolearn._estimators.training_data import X_FORMATS, TrainingData, as_sample_weights
from drolearn._solvers.solvers import Solver
from drolearn._validation import distinct
from drolearn.divergence import Divergence
from drolearn.loss import Loss, as_loss

__all__ = ["RobustClassifier", "refuse_missing_labels"]

Array = NDArray[np.float64]


class RobustClassifier(ClassifierMixin, ClassifierStreamMixin):
    """Linear classifier that minimises the loss on the worst reweighting of its data.

    It minimises R(w, c) + l2/2 ‖w‖² + l1 ‖w‖₁, where the robust loss R is the largest weighted mean
    loss over all weights within a φ-divergence ball of radius ρ around the sample weights.

    Parameters
    ----------
    rho : float, "auto" or None, default=None
        Radius ρ of the ball. ρ = 0 is the plain weighted mean. A χ² ball of radius ρ contains the
        uniform distribution on every subset of at least N/(1 + ρ) rows. None is 0.1, or half of
        :func:`drolearn.rho_max` where that is smaller: from `rho_max` on, the optimal model is
        zero. `rho_` is the radius that was used. With groups, a reference or total variation, None
        is always 0.1. For N rows and d columns, "auto" is √(d/N), a rule of thumb for the sampling
        error of the training data; it does not account for distribution shifts. CVaR has no radius:
        leave it None.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball: "chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon",
        "triangular", "total-variation", "cvar", or an object; see :mod:`drolearn.divergence`.
        Or a spectral risk such as ``Extremile(3)``, which has no radius either.
    tau : float, default=None
        Price τ ≥ 0 of a soft ball, instead of `rho`: the robust loss is then the largest
        Σ p l − τ D(P, B) over all weights p, which for KL is the tilted loss τ log Σ b exp(l/τ).
        The smaller τ, the more robust; τ = ∞ is the mean. Needs a strictly convex divergence and an
        exact solver. `rho_` is the radius of the ball that has the same optimum, whose multiplier
        is τ.
    loss : {"logistic", "squared-hinge", "smoothed-hinge"} or Loss, default="logistic"
        Loss of a row. With more than two classes, "logistic" is the multinomial logistic loss; the
        other losses are for two classes.
    l2 : float or "auto", default="auto"
        Penalty l2/2 ‖w‖²; the intercept is not penalised. "auto" is 1/Σw, where w are the sample
        weights times the class weights; without weights it is 1/N. This is scikit-learn's C = 1:
        with rho=0 the model is that of ``LogisticRegression()``. Use l2 = 1/(C Σw) for another C,
        and 0 for no penalty. With "auto", multiplying all weights by k has the effect of C = k, as
        in scikit-learn; with a number, only the proportions of the weights matter.
    l1 : float, default=0
        Penalty l1 ‖w‖₁, which makes coefficients exactly 0; the intercept is not penalised. With
        l2, this is the elastic net. l1 = 1/(C Σw) and l2 = 0 are those of
        ``LogisticRegression(l1_ratio=1, C=C)`` for rho=0. Needs an exact solver.
    trim : float, default=0
        Share of the rows, by weight, to ignore: those with the largest losses, such as rows with
        wrong labels. The ball is around the other rows; with groups, the share is taken from each
        of them. The problem is not convex: the fit is a local optimum, the best of several starts,
        and `gap_` is NaN. Needs an exact solver; `max_iter` limits each of its solves.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply the sample weights. "balanced" gives all classes the
        same total weight.
    solver : str or Solver, default="auto"
        Name of a solver, or an object with settings such as ``GSSG(batch_size=128)``. "exact",
        "lbfgs" and "newton" compute a duality gap. "gssg", "gssg-anchor", "pssg" and "sgd" take
        gradient steps on drawn rows, and "fsg" on all rows, without a gap. "auto" chooses the
        solver that is expected to be fastest: an exact one unless there are many rows and `tol` is
        large.
    max_iter : float, default=200
        Maximum number of passes over the data, for every solver. N rows drawn, or one gradient of
        all rows, count as one pass.
    tol : float or None, default=1e-6
        Relative accuracy of the objective for exact solvers. Stochastic solvers do not bound the
        distance to the optimum; they stop when a pass over the data improves the objective by less
        than that. None makes all passes.
    random_state : int, RandomState, Generator or None, default=None
        Seed of stochastic solvers. The same seed gives the same model to the bit, for any number of
        threads.
    warm_start : bool, default=False
        Whether `fit` starts from the previous model if its shape matches, instead of zeros.
    store_weights : bool, default=False
        Whether to keep `worst_case_weights_`, one number for each training row.
    n_jobs : int or None, default=None
        Number of threads for passes over all rows; -1 uses all processors.
    verbose : int, default=0
        If positive, print the progress. For a progress bar, use
        ``set_callbacks(sklearn.callback.ProgressBar())``, which needs scikit-learn 1.9.
    reference : "auto", estimator or None, default=None
        Reference model. The fit then minimises the robust regret: the worst case of the losses
        minus the losses of this model on rows that it has not seen, so that rows which no model
        gets right have little weight. "auto" is HistGradientBoostingClassifier with default
        settings; any classifier of scikit-learn is accepted. It is cross-fitted on five shuffled
        folds with the sample weights and class weights; see :func:`drolearn.reference_losses`,
        which takes other folds, and whose result `fit` takes.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients; one row for two classes.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    rho_ : float
        Radius that was used; 0 for CVaR, which has none. With `tau`, the divergence of the
        worst-case weights.
    divergence_ : Divergence
        Divergence that was used.
    tau_ : float or None
        Price of the soft ball that was used.
    l2_, l1_ : float
        Penalties that were used.
    robust_loss_ : float
        Robust loss R on the training data, without the penalty; with `tau`, R is max Σ p l − τ D.
    robust_regret_ : float or None
        Robust regret on the training data, without the penalty, if there is a reference.
    objective_ : float
        Robust loss plus penalty; with a reference, robust regret plus penalty.
    worst_case_weights_ : ndarray of shape (n_samples,)
        Worst-case weights of the training rows, with store_weights=True. ``worst_case(X, y)``
        computes them too; where losses are equal, several weights are worst.
        With a reference, they are those of the regrets.
    groups_ : ndarray of shape (n_groups,) or None
        Names of the groups, if groups were passed to `fit`.
    group_weights_ : ndarray of shape (n_groups,) or None
        Worst-case weights of the groups, if groups were passed to `fit`. Where several groups have
        the same loss, exact solvers return the weights of the saddle point: with them as base
        shares, the plain optimum is this model. If several weights do that, they are the closest
        ones to the base shares in χ².
    gap_ : float
        No model with up to ten times the norm of this one (in scaled coordinates) has an objective
        below objective_ − gap_. NaN if no bound is known, as for solvers other than exact ones.
    history_ : History
        Samples, CPU seconds, robust loss, gradient norm and step size during the fit.
    status_ : str
        One sentence on how the fit ended.
    ending_ : Ending
        How the fit ended, as an enum.
    converged_ : bool
        Whether the tolerance was reached or, with tol=None, all passes were made.
    solver_ : str
        Name of the solver that was used.
    n_iter_ : int
        Number of passes over the data, rounded up.
    n_samples_seen_ : int
        After `partial_fit`, the number of rows so far; `n_iter_` is then 1, and losses are NaN.
    t_ : int
        After `partial_fit`, the number of steps so far.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X has names that are all strings.

    See Also
    --------
    RobustClassifierCV : Chooses the radius by cross-validation.
    solve : The same without scikit-learn's interface.

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
        "loss": [str, Loss],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    classes_: NDArray[Any]

    def __init__(
        self,
        rho: float | str | None = None,
        *,
        divergence: str | Divergence = "chi2",
        tau: float | None = None,
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
    ) -> None:
        self.rho = rho
        self.divergence = divergence
        self.tau = tau
        self.loss = loss
        self.l2 = l2
        self.l1 = l1
        self.trim = trim
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.warm_start = warm_start
        self.store_weights = store_weights
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.reference = reference

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        reference_losses: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.  float32 and float64 arrays and CSR matrices are not copied.
        y : array-like of shape (n_samples,)
            Class labels of any type that can be sorted.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows: weight 2 is the same as having the row twice. With
            l2="auto", their sum determines the penalty.
        groups : array-like of shape (n_samples,) or (n_samples, k), default=None
            Group of each row. The ball then reweights groups instead of single rows. With several
            columns of names, groups are the combinations that occur. A Boolean matrix has one
            column for each group, and groups may overlap, which needs an exact solver: shares are
            proportional to the weight of their rows, rows in no group form one more group, and
            radius 0 is the mean over memberships, in which a row in two groups counts twice.
        reference_losses : array-like of shape (n_samples,), default=None
            Losses of a reference model on rows that it has not seen, such as the result of
            :func:`drolearn.reference_losses`. They are used instead of `reference`.

        Returns
        -------
        RobustClassifier
            The fitted estimator.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C; the attributes then hold the best model so far.

        Examples
        --------
        >>> from drolearn import RobustClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["no", "yes", "no", "yes"]
        >>> RobustClassifier(rho=0.01).fit(X, y).classes_
        array(['no', 'yes'], dtype='<U3')
        """
        data = self._training_data(X, y, sample_weight, reference_losses)
        return self._fit(data, groups, self.rho, self.divergence, data.penalty(self.l2), self.l1)

    def _validate(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        refuse_missing_labels(y)
        X, y = validate_data(self, X, y, **X_FORMATS)
        classes, class_indices = distinct("y", y)  # before the next check, which sorts y, too
        check_classification_targets(y)
        self.classes_ = classes
        weights, exponent = as_sample_weights(sample_weight, X)
        if self.classes_.size < 2:
            raise ValueError(
                f"Classifier can't train when only one class is present. The data contains only "
                f"one class: {self.classes_.tolist()[0]!r}."
            )
        loss = self._loss()
        self._refuse_margin_of_many(loss)
        if self.class_weight is not None:
            factors = self._class_weights(y, weights)[class_indices]
            weights = factors if weights is None else weights * factors
        if weights is not None and np.unique(class_indices[weights > 0.0]).size < 2:
            raise ValueError(
                "The rows of positive weight must have at least two classes. Got fewer instead."
            )
        return TrainingData(X, y, _encode(class_indices, loss), weights, exponent)

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

    def _targets(self, y: Any) -> Array:
        labels = known_labels(y, self.classes_, self)
        return _encode(np.searchsorted(self.classes_, labels), self._loss())

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Compute the scores X w + c.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, the score of the second class; for more, a column for each class.

        Examples
        --------
        >>> from drolearn import RobustClassifier
        >>> clf = RobustClassifier(rho=0.01).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> clf.decision_function([[-1.0], [4.0]]) > 0
        array([False,  True])
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class with the highest score.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.

        Examples
        --------
        >>> from drolearn import RobustClassifier
        >>> clf = RobustClassifier(rho=0.01).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> clf.predict([[-1.0], [4.0]])
        array([0, 1])
        """
        scores = self._scores(X)
        indices = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[indices]

    def _has_probabilities(self) -> bool:
        return as_loss(self.loss).name in ("logistic", "multinomial")

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Predict the probabilities of the classes; only for the logistic loss.

        They are biased towards the worst case, so on data without a shift they are not calibrated:
        use ``CalibratedClassifierCV(RobustClassifier())`` of scikit-learn there.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, with columns in the order of `classes_`.

        Examples
        --------
        >>> from drolearn import RobustClassifier
        >>> clf = RobustClassifier(rho=0.01).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> clf.predict_proba([[-1.0], [4.0]]).sum(axis=1)
        array([1., 1.])
        """
        scores = self._scores(X)
        if scores.ndim > 1:
            return softmax(scores, axis=1)
        return np.column_stack([expit(-scores), expit(scores)])

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Predict the logarithms of the probabilities; only for the logistic loss.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Log-probabilities, with columns in the order of `classes_`.

        Examples
        --------
        >>> from drolearn import RobustClassifier
        >>> clf = RobustClassifier(rho=0.01).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> clf.predict_log_proba([[-1.0], [4.0]]).argmax(axis=1)
        array([0, 1])
        """
        scores = self._scores(X)
        if scores.ndim > 1:
            return log_softmax(scores, axis=1)
        return np.column_stack([log_expit(-scores), log_expit(scores)])


def _encode(class_indices: NDArray[Any], loss: Loss) -> Array:
    """Return targets: the class indices for losses of all classes, else ±1."""
    if loss.of == "classes":
        return class_indices.astype(np.float64)
    return np.where(class_indices == 1, 1.0, -1.0)
