"""The models of the scoreboard: fitted to training rows, with losses of test rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import (
    HuberRegressor,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeCV,
)
from sklearn.metrics import roc_auc_score

from benchmarks.scoreboard.tasks import Data
from drolearn import (
    CVaR,
    RobustBoostingClassifier,
    RobustBoostingRegressor,
    RobustClassifier,
    RobustRegressor,
    log_losses,
    reference_losses,
    squared_losses,
)
from drolearn._estimators.baselines import Temperature, inverse_frequencies

__all__ = ["BASELINES", "Fit", "fit_all", "fit_trees", "names"]

#: Models without a ball, with which the others are compared.
BASELINES = ("plain", "tuned", "temperature", "weights", "Huber")
_LEVEL = 0.7  # of CVaR: about the share that a χ² ball of radius 0.3 leaves
_INFINITE = np.inf  # all mixes of the groups


class Fit(NamedTuple):
    """A fitted model on the test rows."""

    losses: np.ndarray
    """Log losses, or squared errors."""
    errors: np.ndarray
    """Wrong classes as 0 and 1, or squared errors."""
    auc: float
    """The area under the ROC curve; NaN for regression, and for rows of one class."""
    calibration: float
    """The expected calibration error; NaN for regression."""
    norm: float
    """The norm of the coefficients; NaN for trees."""
    seconds: float


def _balls(estimator: Callable[..., Any], groups: np.ndarray, c: np.ndarray) -> dict[str, Any]:
    """Models with a ball: how to make each, and what to pass to `fit`."""
    regret, grouped = {"reference_losses": c}, {"groups": groups}
    return {
        "rows, χ² 0.3": (estimator(0.3), {}),
        "rows, KL 0.15": (estimator(0.15, divergence="kl"), {}),
        "rows, CVaR": (estimator(divergence=CVaR(_LEVEL)), {}),
        "regret 1": (estimator(1.0), regret),
        "regret 5": (estimator(5.0), regret),
        "groups 1": (estimator(1.0), grouped),
        "groups, all": (estimator(_INFINITE), grouped),
        "groups 1, regret": (estimator(1.0), grouped | regret),
        "groups, all, regret": (estimator(_INFINITE), grouped | regret),
    }


def _plain(classification: bool, groups: np.ndarray) -> dict[str, Any]:
    """Models without a ball."""
    weights = {"sample_weight": inverse_frequencies(groups)}
    if classification:
        search: dict[str, Any] = {"l1_ratios": (0,), "use_legacy_attributes": False}
        return {
            "plain": (LogisticRegression(max_iter=1000), {}),
            "tuned": (LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000, **search), {}),
            "temperature": (Temperature(), {}),
            "weights": (LogisticRegression(max_iter=1000), weights),
            "boosting": (HistGradientBoostingClassifier(random_state=0), {}),
        }
    return {
        "plain": (Ridge(), {}),
        "tuned": (RidgeCV(np.logspace(-4, 4, 9)), {}),
        "Huber": (HuberRegressor(max_iter=1000), {}),
        "weights": (Ridge(), weights),
        "boosting": (HistGradientBoostingRegressor(random_state=0), {}),
    }


def names(classification: bool) -> list[str]:
    """Return the names of all models."""
    none = np.zeros(1)
    estimator = RobustClassifier if classification else RobustRegressor
    return [*_plain(classification, none), *_balls(estimator, none, none)]


def fit_all(data: Data, train: np.ndarray, test: np.ndarray) -> dict[str, Fit]:
    """Fit all models to the training rows; X is scaled to mean 0 and variance 1, or maximum 1."""
    X, X_test = _scaled(data.X[train], data.X[test])
    y, y_test, groups = data.y[train], data.y[test], data.domains[train]
    began = time.process_time()
    estimator: Callable[..., Any] = RobustClassifier if data.classification else RobustRegressor
    loss = "logistic" if data.classification else "squared"
    c = reference_losses(_reference(X), X, y, loss=loss)
    reference_seconds = time.process_time() - began
    fits = {}
    for name, (model, more) in (
        _plain(data.classification, groups) | _balls(estimator, groups, c)
    ).items():
        began = time.process_time()
        dense = name == "boosting" and sp.issparse(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zero models are in the table
            model.fit(X.toarray() if dense else X, y, **more)
        seconds = time.process_time() - began
        seconds += reference_seconds if "reference_losses" in more else 0.0
        rows = X_test.toarray() if dense else X_test
        coef = getattr(getattr(model, "model", model), "coef_", np.nan)
        norm = float(np.linalg.norm(coef)) * float(getattr(model, "factor", 1.0))
        fits[name] = Fit(*_measured(model, rows, y_test, data.classification), norm, seconds)
    return fits


def fit_trees(data: Data, train: np.ndarray, test: np.ndarray) -> dict[str, Fit]:
    """Fit boosted trees of LightGBM to the training rows, plain, reweighted and robust."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    X, y, groups = data.X[train], data.y[train], data.domains[train]
    make, robust = (
        (LGBMClassifier, RobustBoostingClassifier)
        if data.classification
        else (LGBMRegressor, RobustBoostingRegressor)
    )
    trees = make(n_jobs=1, random_state=0, verbose=-1)
    began = time.process_time()
    c = reference_losses(trees, X, y, loss="logistic" if data.classification else "squared")
    reference_seconds = time.process_time() - began
    grouped, regret = {"groups": groups}, {"groups": groups, "reference_losses": c}
    models: dict[str, Any] = {
        "plain": (trees, {}),
        "weights": (trees, {"sample_weight": inverse_frequencies(groups)}),
        "groups 1": (robust(trees, 1.0), grouped),
        "groups, all": (robust(trees, _INFINITE), grouped),
        "groups 1, regret": (robust(trees, 1.0), regret),
        "groups, all, regret": (robust(trees, _INFINITE), regret),
    }
    fits = {}
    for name, (model, more) in models.items():
        began = time.process_time()
        model.fit(X, y, **more)
        seconds = time.process_time() - began
        seconds += reference_seconds if "reference_losses" in more else 0.0
        measured = _measured(model, data.X[test], data.y[test], data.classification)
        fits[name] = Fit(*measured, np.nan, seconds)
    return fits


def _reference(X: Any) -> Any:
    """The reference of regret; boosted trees would take minutes for thousands of columns."""
    return (
        "auto" if X.shape[1] <= 1000 else RandomForestClassifier(min_samples_leaf=5, random_state=0)
    )


def _measured(
    model: Any, X: Any, y: np.ndarray, classification: bool
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Losses, errors, AUC and the calibration error of test rows."""
    if not classification:
        losses = squared_losses(np.ravel(model.predict(X)), y)
        return losses, losses, np.nan, np.nan
    proba = np.asarray(model.predict_proba(X), dtype=np.float64)
    wrong = (np.where(proba[:, 1] > 0.5, 1.0, -1.0) != y).astype(np.float64)
    losses = log_losses(proba, y, np.array([-1.0, 1.0]))
    auc = float(roc_auc_score(y, proba[:, 1])) if np.unique(y).size > 1 else np.nan
    return losses, wrong, auc, _calibration(proba[:, 1], y > 0)


def _calibration(p: np.ndarray, positive: np.ndarray, bins: int = 15) -> float:
    """The mean over rows of |mean probability − share of positives| in bins of equal width."""
    bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
    sums = np.bincount(bin_of, p - positive, minlength=bins)
    return float(abs(sums).sum() / p.size)


def _scaled(X: Any, X_test: Any) -> tuple[Any, Any]:
    """Both parts, scaled by the training rows."""
    if sp.issparse(X):
        largest = abs(X).max(axis=0).toarray().ravel()
        scale = sp.diags_array(1.0 / np.where(largest > 0.0, largest, 1.0))
        return sp.csr_matrix(X @ scale), sp.csr_matrix(X_test @ scale)
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 1e-12 * np.maximum(abs(mean), 1e-300), spread, 1.0)
    return (X - mean) / spread, (X_test - mean) / spread
