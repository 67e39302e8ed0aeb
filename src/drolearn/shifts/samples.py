"""The divergence of a new sample from an old one, from a classifier that tells them apart.

Let h(x) be the probability that a row x is new, from classifiers that were not fitted to x, and π
the share of new rows.  r = h/(1 − h) · (1 − π)/π estimates the ratio of the densities of new and
old rows.  For every function f of the rows, these are lower bounds of divergences of new from old:

    χ²                ≥ (E_new f − E_old f)² / Var_old f
    KL                ≥ E_new log f − log E_old f
    total variation   ≥ Pr_new(f > 1) − Pr_old(f > 1)

They are equalities if f is the true ratio, and smaller if it is not.  The rows over which means are
taken were not used to fit f, so that the means have their usual standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from drolearn._validation import as_count, as_generator, float_or_nan, thread_count
from drolearn.shifts.results import ByDivergence, columns
from drolearn.shifts.tables import column_names, permuted, stacked, with_categories

__all__ = ["Shift", "radius_between"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shift(ByDivergence):
    """The result of :func:`radius_between`: a mapping from names of divergences to estimates.

    Parameters
    ----------
    radii : dict of str to float
        Lower estimates of the divergence of the new sample from the old one.
    intervals : dict of str to tuple
        The lower and upper ends of their intervals.
    confidence : float
        The confidence of the intervals.
    auc : float
        How well the samples can be told apart: the probability that a new row looks newer than an
        old one, the mean over the folds.  0.5 means not at all, 1 means without error.
    features : list
        The columns whose share was computed: names, or indices of an array.
    feature_shares : ndarray of shape (number of these columns,)
        The share of each column in the loss of AUC when single columns are permuted.  The sum is
        one, or zero if no column matters.
    rows : tuple of int
        The numbers of old and new rows.

    See Also
    --------
    radius_between : Computes it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from drolearn import radius_between
    >>> rng = np.random.default_rng(0)
    >>> old, new = rng.normal(0.0, 1.0, (500, 2)), rng.normal([0.0, 1.0], 1.0, (500, 2))
    >>> shift = radius_between(old, new, LogisticRegression(), random_state=0)
    >>> low, high = shift.intervals["kl"]
    >>> bool(0.0 < low < shift["kl"] < high), bool(shift.feature_shares[1] > 0.9)
    (True, True)
    """

    radii: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    confidence: float
    auc: float
    features: list[Any]
    feature_shares: Array
    rows: tuple[int, int]

    def __repr__(self) -> str:
        estimates = [
            (name, f"{radius:.3g}", "{:.3g} to {:.3g}".format(*self.intervals[name]))
            for name, radius in self.radii.items()
        ]
        order = np.argsort(-self.feature_shares, kind="stable")
        shares = [(str(self.features[j]), f"{self.feature_shares[j]:.2f}") for j in order]
        header = ("divergence", "estimate", f"{100 * self.confidence:g}% interval")
        lines = [
            f"{self.rows[1]:,} new rows from {self.rows[0]:,} old rows, AUC {self.auc:.3f}",
            *columns(header, estimates),
        ]
        if not any(low > 0.0 for low, _ in self.intervals.values()):
            lines.append("no shift was found")
        elif shares:
            lines += ["", *columns(("feature", "share"), shares, "features")]
        return "\n".join(lines)


def radius_between(
    X_old: Any,
    X_new: Any,
    estimator: Any = None,
    *,
    cv: Any = 5,
    features: Sequence[Any] | None = None,
    confidence: float = 0.95,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Shift:
    """Estimate from below how far a new sample is from an old one, and in which features.

    A classifier learns to tell the two samples apart; the better it does on rows that it was not
    fitted to, the larger the shift.  The results are radii of balls around the old distribution.

    Parameters
    ----------
    X_old, X_new : array-like, sparse matrix or DataFrame of shape (n, d)
        The rows of the old and the new sample, with the same columns.
    estimator : classifier, default=None
        A classifier of scikit-learn with `predict_proba`, or a pipeline that ends in one.  None is
        ``HistGradientBoostingClassifier()``, which accepts missing values; columns of a data frame
        that hold text or categories are categorical features.
    cv : int or splitter, default=5
        The number of folds, or an object with a `split` method whose test sets contain every row
        once.  Rows that belong together, such as those of one day, must be in one fold: otherwise
        the classifier recognises them, and the shift looks larger than it is.
    features : sequence of names or indices, default=None
        The columns whose share in the shift is computed; None for all, an empty list for none.
        The time grows with their number.
    confidence : float, default=0.95
        The confidence of the intervals, above 0 and below 1.
    random_state : None, int, Generator or RandomState, default=None
        The seed of folds and permutations, and of the estimator where its own random state is
        None.
    n_jobs : int, default=None
        The number of processes for the folds: None for one, -1 for all processors.  The result does
        not depend on it.

    Returns
    -------
    Shift
        A mapping from "chi2", "kl" and "total-variation" to estimates of the divergence of the new
        sample from the old one, with intervals, AUC and the shares of features.

    Raises
    ------
    ValueError
        If the samples do not have the same columns, are empty or too small for the folds, if the
        estimator has no `predict_proba` or refuses the data, or if another argument is not valid.

    See Also
    --------
    radius_of : The radius of a change of the mix of known groups.
    worst_case : The worst case of losses within a radius.

    Notes
    -----
    These are lower estimates: a classifier that misses a difference makes them smaller.  For rows
    with the density ratio r, which follows from the probabilities of the classifier, they are
    (E_new r − E_old r)²/Var_old r for χ² and the bound of Donsker and Varadhan for KL.  A logistic
    regression on the log-odds of the other folds recalibrates those of each fold.

    The density ratio is constant over the rows that look newer than all but k = 10 of the old rows
    (a twentieth of them, if there are fewer than 200), and one more old row is assumed among these.
    So estimates stay finite if the samples do not overlap: with n old rows, χ² is at most
    n/(k + 1) and KL at most log(1 + n/(k + 1)).

    The intervals are those of the bounds for the fitted classifiers, from standard errors (the
    delta method; for χ² of its square root).  They tell how exactly the bound is known, not how
    close it is to the divergence: rely on the lower end.  All lower ends are 0, and no shift was
    found, unless that of χ² is above 0.

    The share of a feature is the loss of AUC on held-out rows when its values are permuted, divided
    by the sum of these over the features.  Features that carry the same information share it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from drolearn import radius_between
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(2000, 3))
    >>> new = rng.normal([0.0, 0.0, 0.5], size=(1000, 3))  # KL is 0.125, χ² is 0.284
    >>> shift = radius_between(old, new, LogisticRegression(), random_state=0)
    >>> low, high = shift.intervals["kl"]
    >>> bool(low < 0.125 < high), shift.features[int(np.argmax(shift.feature_shares))]
    (True, 2)
    """
    level = float_or_nan(confidence)
    if not 0.0 < level < 1.0:
        raise ValueError(
            f"The 'confidence' parameter must be a number above 0 and below 1. "
            f"Got {confidence!r} instead."
        )
    if n_jobs is not None:
        thread_count(n_jobs)
    rng = as_generator(random_state)
    X, n_old = stacked(X_old, X_new)
    if estimator is None:
        X = with_categories(X)
    y = (np.arange(X.shape[0]) >= n_old).astype(np.int64)
    chosen, places = _chosen(column_names(X), features)
    model = _as_classifier(estimator, int(rng.integers(2**31)))
    folds = _as_folds(cv, X, y, int(rng.integers(2**31)))
    answers = _cross_fitted(
        model, X, y, folds, places, rng.integers(2**31, size=len(folds)), n_jobs
    )
    sizes = np.array([test.size for _, test in folds]) / y.size  # the weights of the folds
    log_ratio = _log_ratios(answers, folds, y)
    old, new = _bounded(log_ratio[:n_old], log_ratio[n_old:])
    radii, intervals = _estimates(old, new, float(ndtri((1.0 + level) / 2.0)))
    losses = np.maximum(sizes @ np.array([answer.losses for answer in answers]), 0.0)
    return Shift(
        radii,
        intervals,
        level,
        float(sizes @ [answer.auc for answer in answers]),
        chosen,
        losses / (losses.sum() or 1.0),
        (n_old, y.size - n_old),
    )


# -- classifiers -----------------------------------------------------------------------


class _Answer(NamedTuple):
    """What a classifier says about the held-out rows of one fold."""

    log_odds: Array
    auc: float
    losses: list[float]  # of AUC, one for each permuted column


def _as_classifier(estimator: Any, seed: int) -> Any:
    """A copy of the estimator in which every random state that is None is set."""
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier

    if estimator is None:
        return HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
    fits = hasattr(estimator, "predict_proba") and hasattr(estimator, "get_params")
    if not fits or isinstance(estimator, type):
        raise ValueError(
            f"The 'estimator' parameter must be None or a classifier of scikit-learn with "
            f"predict_proba. Got {estimator!r} instead."
        )
    model: Any = clone(estimator)
    states = {
        name: seed
        for name, value in model.get_params().items()
        if name.split("__")[-1] == "random_state" and value is None
    }
    return model.set_params(**states)


def _as_folds(cv: Any, X: Any, y: Indices, seed: int) -> list[tuple[Indices, Indices]]:
    """The rows for training and testing of every fold; each row is tested once."""
    from sklearn.model_selection import StratifiedKFold

    if hasattr(cv, "split"):
        folds = list(cv.split(X, y))
        tested = np.bincount(np.concatenate([test for _, test in folds]), minlength=y.size)
        if np.any(tested != 1) or any(np.ptp(y[train]) == 0 for train, _ in folds):
            raise ValueError(
                f"The 'cv' parameter must test every row once and train on rows of both samples. "
                f"Got {cv!r} instead, which does not."
            )
        return folds
    count, least = as_count("cv", cv, least=2), int(np.bincount(y).min())
    if least < count:
        raise ValueError(
            f"The 'cv' parameter must be at most the number of rows of either sample. "
            f"Got {count} folds for a sample of {least} row{'s' * (least > 1)}; use fewer folds or "
            f"more rows."
        )
    return list(StratifiedKFold(count, shuffle=True, random_state=seed).split(y, y))


def _chosen(names: list[Any], features: Sequence[Any] | None) -> tuple[list[Any], list[int]]:
    """The names of columns whose share is wanted, and their places."""
    if features is None:
        return names, list(range(len(names)))
    if isinstance(features, str):
        features = [features]
    unknown = [name for name in features if name not in names]
    if unknown:
        some = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
        raise ValueError(
            f"The 'features' parameter must hold columns of the samples: {some}. "
            f"Got {unknown[0]!r} instead."
        )
    return list(features), [names.index(name) for name in features]


def _cross_fitted(
    model: Any,
    X: Any,
    y: Indices,
    folds: list[tuple[Indices, Indices]],
    places: list[int],
    seeds: Indices,
    n_jobs: int | None,
) -> list[_Answer]:
    from joblib import Parallel, delayed

    try:
        return Parallel(n_jobs=n_jobs)(
            delayed(_answer)(model, X, y, fold, places, int(seed))
            for fold, seed in zip(folds, seeds, strict=True)
        )  # type: ignore[return-value]
    except ValueError as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"The 'estimator' parameter must be a classifier that accepts the rows. "
            f"{type(model).__name__} does not: {reason}"
        ) from error


def _answer(
    model: Any,
    X: Any,
    y: Indices,
    fold: tuple[Indices, Indices],
    places: list[int],
    seed: int,
) -> _Answer:
    """Fit a copy of the model to the training rows of a fold, and use it on the others."""
    from sklearn.base import clone
    from sklearn.metrics import roc_auc_score
    from sklearn.utils import _safe_indexing

    train, test = fold
    fitted: Any = clone(model)
    fitted.fit(_safe_indexing(X, train), y[train])
    held_out = _safe_indexing(X, test)

    def auc_of(rows: Any) -> tuple[Array, float]:
        new = np.asarray(fitted.predict_proba(rows), dtype=np.float64)[:, 1]
        # A fold of a splitter may hold rows of one sample, which nothing can tell apart.
        both = np.ptp(y[test]) > 0
        return new, float(roc_auc_score(y[test], new)) if both else 0.5

    h, auc = auc_of(held_out)
    order = np.random.default_rng(seed).permutation(test.size)
    losses = [auc - auc_of(permuted(held_out, place, order))[1] for place in places]
    # Forests give probabilities of 0 and 1, which n rows cannot tell from 1/(2n) and 1 − 1/(2n).
    h = np.clip(h, 0.5 / y.size, 1.0 - 0.5 / y.size)
    return _Answer(np.log(h) - np.log1p(-h), auc, losses)


# -- ratios and bounds -----------------------------------------------------------------


def _log_ratios(answers: list[_Answer], folds: list[tuple[Indices, Indices]], y: Indices) -> Array:
    """log r of every row: the log-odds, recalibrated on the other folds, without the prior's."""
    from sklearn.linear_model import LogisticRegression

    log_odds = np.empty(y.size)
    for answer, (_, test) in zip(answers, folds, strict=True):
        log_odds[test] = answer.log_odds
    ratios = np.empty(y.size)
    for _, test in folds:
        others = np.ones(y.size, dtype=bool)
        others[test] = False
        line = LogisticRegression().fit(log_odds[others, None], y[others])
        # Without a shift, held-out rows are on the wrong side a little more often than not, in all
        # folds.  A negative slope would take this for a shift.
        slope = max(0.0, float(line.coef_[0, 0]))
        prior = math.log(y[others].mean() / (1.0 - y[others].mean()))
        intercept = float(line.intercept_[0]) if slope > 0.0 else prior
        ratios[test] = slope * log_odds[test] + intercept - prior
    return ratios


def _bounded(old: Array, new: Array) -> tuple[Array, Array]:
    """f of the old and new rows: r, but one number for all rows that look newer than most old ones.

    The number is the ratio of the shares of this set.  Old rows are added to the set until it holds
    k + 1 of them, so that the number is finite; without ties, that is one row.
    """
    # One or two old rows can decide about the variance of r, and so about χ².  Larger k make its
    # estimates less variable and smaller.
    k = min(10, old.size // 20)
    top = float(np.sort(old)[-1 - k])
    newest_old, newest_new = old > top, new > top
    if newest_new.any():
        added = k + 1 - int(newest_old.sum())
        share = (k + 1) / (old.size + added)
        peak = max(top, math.log(newest_new.mean() / share))
        old = np.append(np.where(newest_old, peak, old), np.full(added, peak))
        new = np.where(newest_new, peak, new)
    return np.exp(old), np.exp(new)


def _estimates(
    old: Array, new: Array, z: float
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """The bounds of the divergences, and intervals of z standard errors to both sides."""
    mean, spread = float(old.mean()), float(old.std())
    # For χ², its square root g has a distribution closer to the normal one.  The influence of old
    # rows u = (f − mean)/spread on it is −u − g (u² − 1)/2.
    if spread > 0.0:
        g = (float(new.mean()) - mean) / spread
        u = (old - mean) / spread
        root = g, _error(new / spread, u + 0.5 * g * u * u)
    else:
        root = 0.0, 0.0
    logs = np.log(new)
    newer, older = (new > 1.0).astype(np.float64), (old > 1.0).astype(np.float64)
    found = {
        "chi2": root,
        "kl": (float(logs.mean()) - math.log(mean), _error(logs, old / mean)),
        "total-variation": (float(newer.mean() - older.mean()), _error(newer, older)),
    }
    radii, intervals = {}, {}
    for name, (value, error) in found.items():
        power = 2 if name == "chi2" else 1
        low, middle, high = (
            max(0.0, value + sign * z * error) ** power for sign in (-1.0, 0.0, 1.0)
        )
        # Total variation alone would find a shift of equal samples twice as often as it should.
        found_any = name == "chi2" or intervals["chi2"][0] > 0.0
        radii[name], intervals[name] = middle, (low if found_any else 0.0, high)
    return radii, intervals


def _error(new: Array, old: Array) -> float:
    """The standard error of the difference of two means."""
    return math.sqrt(float(new.var()) / new.size + float(old.var()) / old.size)
