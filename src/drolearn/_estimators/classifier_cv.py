"""`RobustClassifierCV`: cross-validation of radius and penalty."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike
from sklearn.base import _fit_context

from drolearn._estimators.classification import RobustClassifier
from drolearn._estimators.path import RobustLinearCV
from drolearn._solvers.solvers import Solver
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["RobustClassifierCV"]


class RobustClassifierCV(RobustLinearCV, RobustClassifier):
    """Robust linear classifier with radius and penalty chosen by cross-validation.

    It minimises R(w, c) + l2/2 ‖w‖² + l1 ‖w‖₁, where the robust loss R is the largest weighted mean
    loss over all weights within a φ-divergence ball of radius ρ around the sample weights. After
    cross-validation, it is fitted with the best radius and penalty on all rows.

    Parameters
    ----------
    rhos : array-like of float, default=None
        Radii ρ to try, of at least 0; ``math.inf`` is allowed. None tries 0, 0.003, 0.01, 0.03,
        0.1, 0.3 and 1. ρ = 0 is the plain weighted mean. In every fold, each fit starts from the
        model of the previous radius.
    l2s : array-like of float, default=None
        Penalties to try, as multiples of 1/Σw, where w are the weights of the rows of each fit:
        the multiple k is scikit-learn's C = 1/k. None tries ten multiples from 1e4 to 1e-4, the
        grid of LogisticRegressionCV.
        With `l1s`, None tries 0 alone.
    l1s : array-like of float, default=None
        Penalties l1 ‖w‖₁ to try, as multiples of 1/Σw like `l2s`: with l2s=[0], the multiple k is
        scikit-learn's C = 1/k of an l1 penalty. None has no such penalty. Each fit starts
        from the model of the previous penalty. Needs an exact solver.
    taus : array-like of float, default=None
        Prices τ of soft balls to try instead of `rhos`, in the units of the losses: the fits
        minimise max Σ p l − τ D(P, B), as with `tau` of RobustClassifier. ``math.inf`` is the plain
        mean, and small prices are large balls. Needs an exact solver.
    levels : array-like of float, default=None
        Levels of CVaR to try, for divergence="cvar" only, which has no radius. None tries 1, 0.9,
        0.7, 0.5, 0.3, 0.2 and 0.1.
    trim : float, default=0
        Share of the rows that every fit ignores, those with the largest losses, as in
        RobustClassifier; 0 ≤ trim < 1. Needs an exact solver. Scores count all validation rows,
        also those with wrong labels. To choose it, use GridSearchCV over the parameter 'trim'.
    cv : int, cross-validation splitter or iterable, default=None
        Folds as in scikit-learn; None makes five stratified folds.
    scoring : str or callable, default="loss"
        Score of a model on the validation rows: "loss" is minus the mean loss, "worst-group" and
        "worst-domain" are minus the mean loss of the worst group or domain passed to `fit`,
        "robust" is minus the robust loss at radius `scoring_rho` (for CVaR, at its own level), and
        other names and callables are scorers of scikit-learn. The candidate with the largest mean
        score is chosen; with "loss", a ball is chosen only if it is significantly better than the
        plain loss (5%, corrected for folds that share training rows).
    scoring_rho : float, default=0.1
        Radius for scoring="robust".
    exclude_zero : bool, default=True
        Whether candidates whose model is zero in some fold are excluded. A zero model ignores X;
        large balls lead to it on noisy data. A warning says if it had the best score. If all
        models are zero, the best of them is chosen.
    path_tol : float, default=1e-4
        Relative accuracy of the fits in folds, as `tol` is for the final fit.
    divergence : str or Divergence, default="chi2"
        Divergence that defines the ball: "chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon",
        "triangular", "total-variation", "cvar", or an object; see :mod:`drolearn.divergence`.
    loss : {"logistic", "squared-hinge", "smoothed-hinge"} or Loss, default="logistic"
        Loss of a row. With more than two classes, "logistic" is the multinomial logistic loss; the
        other losses are for two classes.
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
        Seed of stochastic solvers; every fold has its own, derived from it. The same seed gives the
        same model to the bit, for any number of threads.
    warm_start : bool, default=False
        Whether the final fit starts from the previous model if its shape matches, instead of zeros.
    store_weights : bool, default=False
        Whether to keep `worst_case_weights_`, one number for each training row.
    n_jobs : int or None, default=None
        Number of folds that joblib fits in parallel, and number of threads of the final fit; -1
        uses all processors.
    verbose : int, default=0
        If positive, print the progress of the final fit. For a progress bar, use
        ``set_callbacks(sklearn.callback.ProgressBar())``, which needs scikit-learn 1.9.
    reference : "auto", estimator or None, default=None
        Reference model. The fits then minimise the robust regret: the worst case of the losses
        minus the losses of this model on rows that it has not seen, so that rows which no model
        gets right have little weight. "auto" is HistGradientBoostingClassifier with default
        settings; any classifier of scikit-learn is accepted. It is cross-fitted with the sample
        weights and class weights, in the training rows of every fold anew, by `split_groups` if
        they are given; see :func:`drolearn.reference_losses`. Scores do not change: "loss" is minus
        the mean loss.

    Attributes
    ----------
    rho_ : float
        Radius with the best mean score; the largest of them if several are equally good. 0 for
        CVaR, which has none.
    tau_ : float or None
        Price with the best mean score, with `taus`; `rho_` is then the divergence of the
        worst-case weights.
    divergence_ : Divergence
        Divergence of the final fit; for CVaR, with the level that was chosen.
    best_l2_ : float
        Chosen penalty, as a multiple of 1/Σw; the largest of them if several are equally good.
    best_l1_ : float
        Chosen l1 penalty, as a multiple of 1/Σw; 0 without `l1s`.
    best_score_ : float
        Mean score of the choice.
    rhos_ : ndarray of shape (n_rhos,)
        Radii in increasing order; not for CVaR and soft balls.
    taus_ : ndarray of shape (n_taus,)
        Prices in decreasing order; only with `taus`.
    levels_ : ndarray of shape (n_levels,)
        Levels in decreasing order; only for CVaR.
    l2s_ : ndarray of shape (n_l2s,)
        Penalties in decreasing order, as multiples of 1/Σw.
    l1s_ : ndarray of shape (n_l1s,)
        Penalties l1 in decreasing order, as multiples of 1/Σw; 0 alone without `l1s`.
    scores_ : ndarray of shape (n_folds, n_rhos, n_l2s)
        Scores on the validation rows; larger is better. With `l1s`, the last axis has all pairs of
        `l2s_` and `l1s_`, of which l1 changes fastest.
    zero_models_ : ndarray like `scores_`, bool
        Whether the model is zero, or cannot be told from zero within `path_tol`.
    cv_results_ : dict of ndarrays
        A table with one entry for each candidate, for ``pandas.DataFrame(clf.cv_results_)``: rho
        (or tau, level), l2, l1 (with `l1s`), mean_score, standard_error, zero_model, chosen.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients; one row for two classes.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    l2_, l1_ : float
        Penalties of the final fit, `best_l2_`/Σw and `best_l1_`/Σw.
    robust_loss_ : float
        Robust loss R on the training data, without the penalty.
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
        the same loss, exact solvers return the weights of the saddle point.
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
    >>> clf = RobustClassifierCV(rhos=[0, 0.1, 0.5], l2s=[1], scoring="robust").fit(X, y)
    >>> clf.scores_.shape, clf.rho_ > 0
    ((5, 3, 1), True)
    """

    _fold_estimator = RobustClassifier
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RobustClassifier._parameter_constraints,
        **RobustLinearCV._parameter_constraints,
    }
    _parameter_constraints.pop("rho")
    _parameter_constraints.pop("tau")
    _parameter_constraints.pop("l2")
    _parameter_constraints.pop("l1")

    def __init__(
        self,
        rhos: ArrayLike | None = None,
        *,
        l2s: ArrayLike | None = None,
        l1s: ArrayLike | None = None,
        taus: ArrayLike | None = None,
        levels: ArrayLike | None = None,
        trim: float = 0.0,
        cv: Any = None,
        scoring: Any = "loss",
        scoring_rho: float = 0.1,
        exclude_zero: bool = True,
        path_tol: float = 1e-4,
        divergence: str | Divergence = "chi2",
        loss: str | Loss = "logistic",
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
        self.rhos = rhos
        self.l2s = l2s
        self.l1s = l1s
        self.taus = taus
        self.levels = levels
        self.trim = trim
        self.cv = cv
        self.scoring = scoring
        self.scoring_rho = scoring_rho
        self.exclude_zero = exclude_zero
        self.path_tol = path_tol
        self.divergence = divergence
        self.loss = loss
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
        split_groups: ArrayLike | None = None,
        domains: ArrayLike | None = None,
        *,
        reference_losses: ArrayLike | None = None,
    ) -> Self:
        """Choose radius and penalty by cross-validation, then fit on all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.  float32 and float64 arrays and CSR matrices are not copied.
        y : array-like of shape (n_samples,)
            Class labels of any type that can be sorted.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows: weight 2 is the same as having the row twice. Their sum
            determines the penalty.
        groups : array-like of shape (n_samples,) or (n_samples, k), default=None
            Group of each row, for training and for scoring="worst-group". The ball then reweights
            groups instead of single rows. With several columns of names, groups are the
            combinations that occur. A Boolean matrix has one column for each group, and groups may
            overlap.
        split_groups : array-like of shape (n_samples,), default=None
            Group of each row for a `cv` that splits by groups, such as GroupKFold.
        domains : array-like of shape (n_samples,), default=None
            Domain of each row, for scoring="worst-domain": a hospital, a state, a month.
        reference_losses : array-like of shape (n_samples,), default=None
            Losses of a reference model on rows that it has not seen, such as the result of
            :func:`drolearn.reference_losses`. They are used instead of `reference`, in all folds:
            unlike those of `reference`, they may depend on the validation rows.

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
        (2, 2, 10)
        """
        data = self._training_data(X, y, sample_weight, reference_losses)
        return self._fit_path(data, groups, split_groups, domains)
