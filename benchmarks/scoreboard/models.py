"""The models of the scoreboard: fitted to training rows, with losses of test rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import entr
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
    Extremile,
    RobustBoostingClassifier,
    RobustBoostingRegressor,
    RobustClassifier,
    RobustRegressor,
    log_losses,
    reference_losses,
    squared_losses,
)
from drolearn._estimators.baselines import Temperature, inverse_frequencies

__all__ = ["BASELINES", "RISKS", "TREES", "Fit", "fit_all", "fit_trees", "names"]

#: Models without a ball, with which the others are compared.
BASELINES = ("plain", "tuned", "temperature", "weights", "Huber")
#: Models with another risk or an l1 penalty, and the ball that each of them changes.
RISKS = {
    "rows, soft": "rows, χ² 0.3",
    "rows, Extremile": "rows, χ² 0.3",
    "rows, trim": "rows, χ² 0.3",
    "groups 1, l1": "groups 1",
}
#: The models of boosted trees.
TREES = ("plain", "weights", "groups 1", "groups, all", "groups 1, regret", "groups, all, regret")
_LEVEL = 0.7  # of CVaR: about the share that a χ² ball of radius 0.3 leaves
_REPEATS = 2.0  # of Extremile, whose weights of the rows are 1/3 from equal ones in χ²
_TRIM = 0.05
_INFINITE = np.inf  # all mixes of the groups
# Models, each with what to pass to its `fit`; `_fit` fills in the reference losses.
_Models = dict[str, tuple[Any, dict[str, Any]]]
_REGRET = {"reference_losses": None}


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


class _Training(NamedTuple):
    """Scaled training rows."""

    X: Any
    y: np.ndarray
    groups: np.ndarray

    @property
    def constant_loss(self) -> float:
        """The mean loss of the best constant model, in whose unit τ is."""
        return 0.5 * float(self.y.var()) if self._numbers else float(entr(self._shares).sum())

    @property
    def slope_noise(self) -> float:
        """The standard error of a coefficient's slope at that model; a smaller slope says nothing.

        For l1 above it, coefficients of columns that have nothing to do with y are mostly 0.
        """
        variance = self.y.var() if self._numbers else self._shares.prod()
        squares = self.X.multiply(self.X) if sp.issparse(self.X) else self.X**2
        return float(np.sqrt(variance * squares.mean() / self.y.size))

    @property
    def _numbers(self) -> bool:
        return not np.isin(self.y, (-1.0, 1.0)).all()

    @property
    def _shares(self) -> np.ndarray:
        """The shares of both classes."""
        return np.array([np.mean(self.y > 0.0), np.mean(self.y <= 0.0)])


def _balls(classification: bool, rows: _Training) -> _Models:
    """Models with a ball or another risk."""
    estimator: Callable[..., Any] = RobustClassifier if classification else RobustRegressor
    grouped = {"groups": rows.groups}
    return {
        "rows, χ² 0.3": (estimator(0.3), {}),
        "rows, KL 0.15": (estimator(0.15, divergence="kl"), {}),
        "rows, CVaR": (estimator(divergence=CVaR(_LEVEL)), {}),
        "regret 1": (estimator(1.0), _REGRET),
        "regret 5": (estimator(5.0), _REGRET),
        "groups 1": (estimator(1.0), grouped),
        "groups, all": (estimator(_INFINITE), grouped),
        "groups 1, regret": (estimator(1.0), grouped | _REGRET),
        "groups, all, regret": (estimator(_INFINITE), grouped | _REGRET),
        "rows, soft": (estimator(tau=rows.constant_loss), {}),
        "rows, Extremile": (estimator(divergence=Extremile(_REPEATS)), {}),
        "rows, trim": (estimator(0.3, trim=_TRIM), {}),
        "groups 1, l1": (estimator(1.0, l1=rows.slope_noise, l2=0.0), grouped),
    }


def _plain(classification: bool, groups: np.ndarray) -> _Models:
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


def _linear(classification: bool, rows: _Training) -> _Models:
    """All linear models, and scikit-learn's boosting."""
    return _plain(classification, rows.groups) | _balls(classification, rows)


def names(classification: bool) -> list[str]:
    """Return the names of all linear models."""
    return list(_linear(classification, _Training(np.ones((1, 1)), np.ones(1), np.zeros(1))))


def fit_all(
    data: Data, train: np.ndarray, test: np.ndarray, wanted: Collection[str]
) -> dict[str, Fit]:
    """Fit models to the training rows; X is scaled to mean 0 and variance 1, or maximum 1."""
    X, X_test = _scaled(data.X[train], data.X[test])
    rows = _Training(X, data.y[train], data.domains[train])
    models = _linear(data.classification, rows)
    test_rows = Data(X_test, data.y[test], data.domains[test], data.classification)
    return _fit({name: models[name] for name in wanted}, rows, test_rows, _reference(X))


def fit_trees(
    data: Data, train: np.ndarray, test: np.ndarray, wanted: Collection[str]
) -> dict[str, Fit]:
    """Fit boosted trees of LightGBM to the training rows, plain, reweighted and robust."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    rows = _Training(data.X[train], data.y[train], data.domains[train])
    test_rows = Data(data.X[test], data.y[test], data.domains[test], data.classification)
    make, robust = (
        (LGBMClassifier, RobustBoostingClassifier)
        if data.classification
        else (LGBMRegressor, RobustBoostingRegressor)
    )
    trees = make(n_jobs=1, random_state=0, verbose=-1)
    grouped = {"groups": rows.groups}
    models: _Models = {
        "plain": (trees, {}),
        "weights": (trees, {"sample_weight": inverse_frequencies(rows.groups)}),
        "groups 1": (robust(trees, 1.0), grouped),
        "groups, all": (robust(trees, _INFINITE), grouped),
        "groups 1, regret": (robust(trees, 1.0), grouped | _REGRET),
        "groups, all, regret": (robust(trees, _INFINITE), grouped | _REGRET),
    }
    return _fit({name: models[name] for name in wanted}, rows, test_rows, trees)


def _fit(models: _Models, rows: _Training, test: Data, reference: Any) -> dict[str, Fit]:
    """Fit the models, with cross-fitted losses of the reference where they need them."""
    began, c = time.process_time(), None
    if any("reference_losses" in more for _, more in models.values()):
        loss = "logistic" if test.classification else "squared"
        c = reference_losses(reference, rows.X, rows.y, loss=loss)
    reference_seconds = time.process_time() - began
    fits = {}
    for name, (model, more) in models.items():
        began = time.process_time()
        regret = "reference_losses" in more
        dense = name == "boosting" and sp.issparse(rows.X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zero models are in the table
            model.fit(
                rows.X.toarray() if dense else rows.X,
                rows.y,
                **more | ({"reference_losses": c} if regret else {}),
            )
        seconds = time.process_time() - began + (reference_seconds if regret else 0.0)
        X = test.X.toarray() if dense else test.X
        coef = getattr(getattr(model, "model", model), "coef_", np.nan)
        norm = float(np.linalg.norm(coef)) * float(getattr(model, "factor", 1.0))
        fits[name] = Fit(*_measured(model, X, test.y, test.classification), norm, seconds)
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
