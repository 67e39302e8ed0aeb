"""`RobustClassifierCV` and `RobustRegressorCV`: the radius is chosen by cross-validation."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike
from sklearn.base import _fit_context

from drolearn._estimators.classification import RobustClassifier
from drolearn._estimators.path import DEFAULT_RHOS, RobustLinearCV
from drolearn._estimators.regression import RobustRegressor
from drolearn._solvers.solvers import Solver
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["RobustClassifierCV", "RobustRegressorCV"]


class RobustClassifierCV(RobustLinearCV, RobustClassifier):
    """Robust linear classifier with the radius chosen by cross-validation.

    It minimises R(w, c) + l2/2 ‖w‖², where the robust loss R is the largest weighted mean loss over
    all weights within a φ-divergence ball of radius ρ around the sample weights. After
    cross-validation, it is fitted with the best radius on all rows.

    Parameters
    ----------
    rhos : array-like of float, default=(0, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
        Radii ρ to try. In every fold they are fitted from the smallest to the largest, each
        starting from the previous model. ρ = 0 is the plain weighted mean.
    cv : int, cross-validation splitter or iterable, default=None
        Folds as in scikit-learn; None makes five stratified folds.
    scoring : {"loss", "worst-group", "robust"}, scorer name or callable, default="loss"
        Score of a model on the validation rows: minus the mean loss, minus the mean loss of the
        worst group (pass groups to `fit`), minus the robust loss at radius `scoring_rho`, or a
        scorer of scikit-learn. The radius with the largest mean score is chosen.
    scoring_rho : float, default=0.1
        Radius for scoring="robust".
    train_on_groups : bool, default=True
        Whether the ball reweights the groups passed to `fit` in training. With False, groups are
        used for scoring and splitting only.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball: "chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon",
        "total-variation", "cvar", or an object; see :mod:`drolearn.divergence`.
    loss : {"logistic", "squared-hinge", "smoothed-hinge"} or Loss, default="logistic"
        Loss of a row. With more than two classes, "logistic" is the multinomial logistic loss; the
        other losses are for two classes.
    l2 : float or "auto", default="auto"
        Penalty l2/2 ‖w‖²; the intercept is not penalised. "auto" is 1/Σw, where w are the sample
        weights times the class weights of the rows of each fit; without weights it is
        1/N. This is scikit-learn's C = 1: with radius 0 the model is that of
        ``LogisticRegression()``. Use l2 = 1/(C Σw) for another C, and 0 for no penalty. With
        "auto", multiplying all weights by k has the effect of C = k, as in scikit-learn; with a
        number, only the proportions of the weights matter.
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
    max_iter : float, default=100
        Maximum number of passes over the data, for every solver. N rows drawn, or one gradient of
        all rows, count as one pass.
    tol : float or None, default=1e-6
        Relative accuracy of the objective for exact solvers. Stochastic solvers do not bound the
        distance to the optimum; they stop when a pass over the data improves the objective by less
        than that. None makes all passes.
    random_state : int, RandomState, Generator or None, default=None
        Seed of stochastic solvers; every fold has its own, derived from it. The same seed gives the
        same model to the bit, for any number of threads.
    warm_start : bool, default=False
        Whether the final fit starts from the previous model if its shape matches, instead of zeros.
    n_jobs : int or None, default=None
        Number of folds that joblib fits in parallel, and number of threads of the final fit; -1
        uses all processors.
    verbose : int, default=0
        If positive, print the progress of the final fit. For a progress bar, use
        ``set_callbacks(sklearn.callback.ProgressBar())``, which needs scikit-learn 1.9.

    Attributes
    ----------
    rho_ : float
        Radius with the best mean score; the largest of them if several are equally good.
    rhos_ : ndarray of shape (n_rhos,)
        Radii in increasing order.
    scores_ : ndarray of shape (n_folds, n_rhos)
        Scores on the validation rows; larger is better.
    best_score_ : float
        Mean score of `rho_`.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients; one row for two classes.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    l2_ : float
        Penalty that was used.
    robust_loss_ : float
        Robust loss R on the training data, without the penalty.
    objective_ : float
        Robust loss plus penalty.
    worst_case_weights_ : ndarray of shape (n_samples,)
        Worst-case weights of the training rows.
    groups_ : ndarray of shape (n_groups,) or None
        Names of the groups, if groups were passed to `fit` and train_on_groups=True.
    group_weights_ : ndarray of shape (n_groups,) or None
        Worst-case weights of the groups, if groups were passed to `fit` and train_on_groups=True.
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
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X has names that are all strings.

    See Also
    --------
    RobustClassifier : The same for a given radius.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import RobustClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 3))
    >>> y = X[:, 0] + 0.5 * rng.standard_normal(300) > 0
    >>> clf = RobustClassifierCV(rhos=[0, 0.1, 0.5], scoring="robust", scoring_rho=0.2).fit(X, y)
    >>> clf.scores_.shape, clf.rho_ > 0
    ((5, 3), True)
    """

    _fold_estimator = RobustClassifier
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustClassifier._parameter_constraints,
        **RobustLinearCV._parameter_constraints,
    }
    _parameter_constraints.pop("rho")

    def __init__(
        self,
        rhos: ArrayLike = DEFAULT_RHOS,
        *,
        cv: Any = None,
        scoring: Any = "loss",
        scoring_rho: float = 0.1,
        train_on_groups: bool = True,
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
        self.rhos = rhos
        self.cv = cv
        self.scoring = scoring
        self.scoring_rho = scoring_rho
        self.train_on_groups = train_on_groups
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
        """Choose the radius by cross-validation, then fit on all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.  float32 and float64 arrays and CSR matrices are not copied.
        y : array-like of shape (n_samples,)
            Class labels of any type that can be sorted.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows: weight 2 is the same as having the row twice. With
            l2="auto", their sum determines the penalty.
        groups : array-like of shape (n_samples,), default=None
            Group of each row, for scoring="worst-group" and, with train_on_groups=True, for
            training: the ball then reweights groups instead of single rows, which needs an exact
            solver. Folds ignore groups unless `cv` splits by groups, as GroupKFold does.

        Returns
        -------
        RobustClassifierCV
            The fitted estimator.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C during the final fit; the attributes then hold the best model so far.

        Examples
        --------
        >>> from drolearn import RobustClassifierCV
        >>> X, y = [[float(i)] for i in range(20)], ["no"] * 9 + ["yes", "no"] + ["yes"] * 9
        >>> RobustClassifierCV(rhos=[0, 0.1], cv=2).fit(X, y).scores_.shape
        (2, 2)
        """
        return self._fit_path(self._validate(X, y, sample_weight), groups)


class RobustRegressorCV(RobustLinearCV, RobustRegressor):
    """Robust linear regression with the radius chosen by cross-validation.

    It minimises R(w, c) + l2/2 ‖w‖², where the robust loss R is the largest weighted mean loss over
    all weights within a φ-divergence ball of radius ρ around the sample weights. After
    cross-validation, it is fitted with the best radius on all rows.

    Parameters
    ----------
    rhos : array-like of float, default=(0, 0.003, 0.01, 0.03, 0.1, 0.3, 1)
        Radii ρ to try. In every fold they are fitted from the smallest to the largest, each
        starting from the previous model. ρ = 0 is the plain weighted mean.
    cv : int, cross-validation splitter or iterable, default=None
        Folds as in scikit-learn; None makes five folds.
    scoring : {"loss", "worst-group", "robust"}, scorer name or callable, default="loss"
        Score of a model on the validation rows: minus the mean loss, minus the mean loss of the
        worst group (pass groups to `fit`), minus the robust loss at radius `scoring_rho`, or a
        scorer of scikit-learn. The radius with the largest mean score is chosen.
    scoring_rho : float, default=0.1
        Radius for scoring="robust".
    train_on_groups : bool, default=True
        Whether the ball reweights the groups passed to `fit` in training. With False, groups are
        used for scoring and splitting only.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball: "chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon",
        "total-variation", "cvar", or an object; see :mod:`drolearn.divergence`.
    loss : {"squared", "huber"} or Loss, default="squared"
        Loss of a row with residual r. "squared" is r²/2; "huber" is r²/2 up to |r| = 1.35 and
        linear beyond. Use `Loss.huber` for other widths.
    l2 : float or "auto", default="auto"
        Penalty l2/2 ‖w‖²; the intercept is not penalised. "auto" is 1/Σw, where w are the sample
        weights of the rows of each fit; without weights it is 1/N. With radius 0 the
        model is that of ``Ridge(alpha=1)``. Use l2 = alpha/Σw for another alpha, and 0 for no
        penalty. With "auto", multiplying all weights by k has the effect of alpha = 1/k, as in
        scikit-learn; with a number, only the proportions of the weights matter. With loss="huber",
        the penalty has a larger effect the larger the values of y are: scale y, or use a smaller
        l2.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    solver : str or Solver, default="auto"
        Name of a solver, or an object with settings such as ``GSSG(batch_size=128)``. "exact",
        "lbfgs" and "newton" compute a duality gap. "gssg", "gssg-anchor", "pssg" and "sgd" take
        gradient steps on drawn rows, and "fsg" on all rows, without a gap. "auto" chooses the
        solver that is expected to be fastest: an exact one unless there are many rows and `tol` is
        large.
    max_iter : float, default=100
        Maximum number of passes over the data, for every solver. N rows drawn, or one gradient of
        all rows, count as one pass.
    tol : float or None, default=1e-6
        Relative accuracy of the objective for exact solvers. Stochastic solvers do not bound the
        distance to the optimum; they stop when a pass over the data improves the objective by less
        than that. None makes all passes.
    random_state : int, RandomState, Generator or None, default=None
        Seed of stochastic solvers; every fold has its own, derived from it. The same seed gives the
        same model to the bit, for any number of threads.
    warm_start : bool, default=False
        Whether the final fit starts from the previous model if its shape matches, instead of zeros.
    n_jobs : int or None, default=None
        Number of folds that joblib fits in parallel, and number of threads of the final fit; -1
        uses all processors.
    verbose : int, default=0
        If positive, print the progress of the final fit. For a progress bar, use
        ``set_callbacks(sklearn.callback.ProgressBar())``, which needs scikit-learn 1.9.

    Attributes
    ----------
    rho_ : float
        Radius with the best mean score; the largest of them if several are equally good.
    rhos_ : ndarray of shape (n_rhos,)
        Radii in increasing order.
    scores_ : ndarray of shape (n_folds, n_rhos)
        Scores on the validation rows; larger is better.
    best_score_ : float
        Mean score of `rho_`.
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : float
        Intercept.
    l2_ : float
        Penalty that was used.
    robust_loss_ : float
        Robust loss R on the training data, without the penalty.
    objective_ : float
        Robust loss plus penalty.
    worst_case_weights_ : ndarray of shape (n_samples,)
        Worst-case weights of the training rows.
    groups_ : ndarray of shape (n_groups,) or None
        Names of the groups, if groups were passed to `fit` and train_on_groups=True.
    group_weights_ : ndarray of shape (n_groups,) or None
        Worst-case weights of the groups, if groups were passed to `fit` and train_on_groups=True.
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
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X has names that are all strings.

    See Also
    --------
    RobustRegressor : The same for a given radius.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import RobustRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(200)
    >>> RobustRegressorCV(rhos=[0, 0.1]).fit(X, y).scores_.shape
    (5, 2)
    """

    _fold_estimator = RobustRegressor
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustRegressor._parameter_constraints,
        **RobustLinearCV._parameter_constraints,
    }
    _parameter_constraints.pop("rho")

    def __init__(
        self,
        rhos: ArrayLike = DEFAULT_RHOS,
        *,
        cv: Any = None,
        scoring: Any = "loss",
        scoring_rho: float = 0.1,
        train_on_groups: bool = True,
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
        self.rhos = rhos
        self.cv = cv
        self.scoring = scoring
        self.scoring_rho = scoring_rho
        self.train_on_groups = train_on_groups
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
        """Choose the radius by cross-validation, then fit on all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.  float32 and float64 arrays and CSR matrices are not copied.
        y : array-like of shape (n_samples,)
            Target values.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows: weight 2 is the same as having the row twice. With
            l2="auto", their sum determines the penalty.
        groups : array-like of shape (n_samples,), default=None
            Group of each row, for scoring="worst-group" and, with train_on_groups=True, for
            training: the ball then reweights groups instead of single rows, which needs an exact
            solver. Folds ignore groups unless `cv` splits by groups, as GroupKFold does.

        Returns
        -------
        RobustRegressorCV
            The fitted estimator.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C during the final fit; the attributes then hold the best model so far.

        Examples
        --------
        >>> from drolearn import RobustRegressorCV
        >>> X, y = [[float(i)] for i in range(20)], [2.0 * i for i in range(20)]
        >>> RobustRegressorCV(rhos=[0, 0.1], cv=2).fit(X, y).scores_.shape
        (2, 2)
        """
        return self._fit_path(self._validate(X, y, sample_weight), groups)
