"""Whether scores on validation domains predict scores on domains that no model has seen."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import LeaveOneGroupOut, check_cv
from sklearn.model_selection._split import GroupsConsumerMixin
from sklearn.utils import _safe_indexing, check_consistent_length

from drolearn._estimators.base import ZeroModelWarning
from drolearn._estimators.path import RobustLinearCV
from drolearn._validation import as_groups

__all__ = ["DomainAgreement", "domain_agreement"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class DomainAgreement:
    """Scores of all candidates on validation domains and on test domains.

    Attributes
    ----------
    domains : list of str
        The test domains of each test.
    candidates : dict of ndarray of shape (n_candidates,)
        Radius "rho" (or "level", for CVaR) and penalty "l2" of the candidates.
    validation : ndarray of shape (n_tests, n_candidates)
        Mean scores in the cross-validation on the training rows of each test; larger is better.
    test : ndarray of shape (n_tests, n_candidates)
        Scores on the test rows, after a fit to all training rows.
    chosen : ndarray of shape (n_tests,)
        Numbers of the candidates that cross-validation has chosen.
    plain : ndarray of shape (n_tests,)
        Numbers of the candidates of the smallest ball with the best validation scores.

    See Also
    --------
    domain_agreement : Computes it.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import DomainAgreement
    >>> candidates = {"rho": np.array([0.0, 0.1]), "l2": np.array([1.0, 1.0])}
    >>> validation, test = np.array([[-0.5, -0.4]]), np.array([[-0.6, -0.7]])
    >>> chosen, plain = np.array([1]), np.array([0])
    >>> found = DomainAgreement(["2020"], candidates, validation, test, chosen, plain)
    >>> found.correlation.round(2), found.regret.round(2), found.gain.round(2)
    (array([-1.]), array([0.1]), array([-0.1]))
    """

    domains: list[str]
    candidates: dict[str, Array]
    validation: Array
    test: Array
    chosen: NDArray[np.int64]
    plain: NDArray[np.int64]

    @property
    def correlation(self) -> Array:
        """Spearman's rank correlation of both scores for each test; NaN if one is constant."""
        from scipy.stats import rankdata  # heavy: imported when used

        ranks = [rankdata(scores, axis=1) for scores in (self.validation, self.test)]
        first, second = (each - each.mean(axis=1, keepdims=True) for each in ranks)
        spread = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
        none = np.full(spread.size, np.nan)
        return np.divide((first * second).sum(axis=1), spread, out=none, where=spread > 0.0)

    @property
    def regret(self) -> Array:
        """The best test score minus that of the choice, for each test."""
        return self.test.max(axis=1) - self._test_of(self.chosen)

    @property
    def random_regret(self) -> Array:
        """The regret of a candidate drawn at random, on average."""
        return self.test.max(axis=1) - self.test.mean(axis=1)

    @property
    def gain(self) -> Array:
        """The test score of the choice minus that of the smallest ball, for each test."""
        return self._test_of(self.chosen) - self._test_of(self.plain)

    def _test_of(self, candidates: NDArray[np.int64]) -> Array:
        return self.test[np.arange(candidates.size), candidates]

    def __str__(self) -> str:
        name = next(iter(self.candidates))
        head = ["tested on", name, "l2", "validation", "test", "best", "correlation", "gain"]
        lines = [head]
        for k, chosen in enumerate(self.chosen):
            numbers = (
                self.candidates[name][chosen], self.candidates["l2"][chosen],
                self.validation[k, chosen], self.test[k, chosen], self.test[k].max(),
            )  # fmt: skip
            cells = [f"{number:.4g}" for number in numbers]
            signed = [f"{self.correlation[k]:+.2f}", f"{self.gain[k]:+.4f}"]
            lines.append([self.domains[k], *cells, *signed])
        widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
        rows = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
            for line in lines
        ]
        known = self.correlation[np.isfinite(self.correlation)]
        return "\n".join(
            [
                *rows,
                f"mean correlation {known.mean() if known.size else math.nan:+.2f}, "
                f"regret of the choice {self.regret.mean():.4g}, "
                f"of a random one {self.random_regret.mean():.4g}, "
                f"gain over the smallest ball {self.gain.mean():+.4g}",
            ]
        )

    __repr__ = __str__


def domain_agreement(
    search: RobustLinearCV,
    X: Any,
    y: ArrayLike,
    domains: ArrayLike,
    *,
    tests: Any = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> DomainAgreement:
    """Compare scores on validation domains with scores on domains that no model has seen.

    Domains are left out in turn.  The others are the training rows: `search` scores its candidates
    on them by cross-validation and chooses one.  All candidates are then fitted to all training
    rows and scored on the domain that was left out.  If both scores rank the candidates
    differently, validation does not predict how a model does on a new domain.

    Parameters
    ----------
    search : RobustClassifierCV or RobustRegressorCV
        Candidates, folds and score; it is not changed.  A `cv` that splits by groups, such as
        LeaveOneGroupOut, gets the domains; a splitter by time, such as TimeSeriesSplit, needs rows
        in order of time.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels, or numbers for regression.
    domains : array-like of shape (n_samples,)
        Domain of each row: a hospital, a state, a month.
    tests : cross-validation splitter or iterable, default=None
        Training and test rows of each test. None leaves every domain out in turn. For tests in
        time, use a splitter such as TimeSeriesSplit.
    groups : array-like of shape (n_samples,) or (n_samples, k), default=None
        Groups of the ball, as in `fit`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.

    Returns
    -------
    DomainAgreement
        Scores of all candidates, their rank correlation, the regret of the choice, and what it has
        gained over the smallest ball; its text is a table.

    Raises
    ------
    ValueError
        If `search` is another estimator, or if there are too few domains.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import LeaveOneGroupOut
    >>> from drolearn import RobustClassifierCV, domain_agreement
    >>> rng = np.random.default_rng(0)
    >>> site = np.repeat(["a", "b", "c", "d"], 100)
    >>> X = rng.standard_normal((400, 3))
    >>> y = X[:, 0] + rng.standard_normal(400) > 0
    >>> search = RobustClassifierCV([0, 0.1], l2s=[1, 10, 100], cv=LeaveOneGroupOut())
    >>> found = domain_agreement(search, X, y, site)
    >>> found.test.shape, found.domains
    ((4, 6), ['a', 'b', 'c', 'd'])
    >>> bool((found.regret >= 0).all())
    True
    """
    if not isinstance(search, RobustLinearCV):
        raise ValueError(
            f"The 'search' parameter must be a RobustClassifierCV or RobustRegressorCV. "
            f"Got {search!r} instead."
        )
    check_consistent_length(X, y, domains)
    names, of = as_groups(domains, np.asarray(domains).shape[0], "domains")
    tester: Any = LeaveOneGroupOut() if tests is None else check_cv(tests)
    if of.ndim > 1 or names.size < (3 if tests is None else 2):
        raise ValueError(
            f"The 'domains' parameter must name at least {3 if tests is None else 2} domains, each "
            f"row in one of them, so that others are left for training and validation. "
            f"Got {'domains that overlap' if of.ndim > 1 else names.size} instead."
        )
    rows = {"groups": groups, "sample_weight": sample_weight, "domains": domains}
    splits = list(tester.split(X, y, of if isinstance(tester, GroupsConsumerMixin) else None))
    inner = [_fitted(search, X, y, rows, of, train) for train, _ in splits]
    by_groups = isinstance(search.cv, GroupsConsumerMixin)
    outer: Any = clone(search)
    outer.set_params(cv=_Splits(splits) if by_groups else splits)
    with warnings.catch_warnings():  # about the final fit, which is not used
        for category in (ZeroModelWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", category)
        test = _fitted(outer, X, y, rows, of, None).scores_
    candidates = {key: inner[0].cv_results_[key] for key in list(inner[0].cv_results_)[:2]}
    validation = np.array([one.cv_results_["mean_score"] for one in inner])
    return DomainAgreement(
        [", ".join(str(names[k]) for k in np.unique(of[rows])) for _, rows in splits],
        candidates,
        validation,
        test.reshape(len(splits), -1),
        np.array([int(np.argmax(one.cv_results_["chosen"])) for one in inner]),
        validation[:, : len(inner[0]._penalties)].argmax(axis=1),
    )


class _Splits(GroupsConsumerMixin):
    """Given splits, as a splitter by groups: a reference then keeps domains together."""

    def __init__(self, splits: list[Any]) -> None:
        self.splits = splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Return the splits."""
        return iter(self.splits)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return their number."""
        return len(self.splits)


def _fitted(
    search: RobustLinearCV, X: Any, y: Any, rows: dict[str, Any], of: Any, chosen: Any
) -> Any:
    """Fit a copy of the search to some of the rows, all if None."""
    by_groups = isinstance(search.cv, GroupsConsumerMixin)
    given = {**rows, "split_groups": of if by_groups else None}
    if chosen is not None:
        X, y = _safe_indexing(X, chosen), _safe_indexing(y, chosen)
        given = {key: None if v is None else _safe_indexing(v, chosen) for key, v in given.items()}
    estimator: Any = clone(search)
    return estimator.fit(X, y, **given)
