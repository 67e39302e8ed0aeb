"""Estimators with random parameters: a sentence that says what is wrong, or a valid model."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import (
    FSG,
    GSSG,
    PSSG,
    SGD,
    Constant,
    CressieRead,
    CVaR,
    Decay,
    Loss,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressor,
    RobustRegressorCV,
)
from drolearn.divergence import NAMES
from tests.soak import SOAK, usually

# Values of every parameter; what comes first is usual, and chosen more often.
_NUMBERS = [0.1, 0.0, 1.0, 1e-12, 1e6, math.inf, math.nan, -1.0, "a", None, True, [0.1], 1 + 2j]
_SHARED: dict[str, list[Any]] = {
    "divergence": [*NAMES, CVaR(0.3), CressieRead(1.5), "cvar", "tv", "kll", None, 3, CVaR],
    "fit_intercept": [True, False, "yes", None],
    "solver": [
        "auto", "exact", "lbfgs", "newton", "gssg", "gssg-anchor", "pssg", "fsg", "sgd",
        GSSG(batch_size=8, step_size=0.1), GSSG(anchor=True, r=0.4), PSSG(rate=1.1), FSG(),
        SGD(step_size=Decay(0.1)), SGD(step_size=Constant(1e9)), GSSG(batch_size=0), "adam", None,
    ],
    "max_iter": [20, 1, 3, 0.5, 0, -1, math.inf, math.nan, "a", None],
    "tol": [1e-4, None, 1e-6, 0.0, 1.0, -1.0, math.nan, "a"],
    "random_state": [0, None, np.random.default_rng(0), -1, "a", 1.5],
    "warm_start": [False, True, "no"],
    "store_weights": [False, True, 0],
    "n_jobs": [None, 1, 2, -1, 0, 1.5, "a"],
    "verbose": [0, False, "a", -1],
}  # fmt: skip
_LINEAR = {
    "rho": ["auto", *_NUMBERS],
    "tau": [None, None, None, *_NUMBERS],
    "l2": ["auto", *_NUMBERS],
}
_SEARCH = {
    "rhos": [None, [0.0, 0.1], [0.1], [], [-1.0], [math.nan], "a", 0.1, [[0.1]]],
    "l2s": [[0.1], [0.01, 1.0], [], [-1.0], "a", [math.inf]],
    "levels": [None, None, [0.5], [2.0]],
    "cv": [2, 3, 1, 0, 1000, "a", [([0, 1], [2, 3])]],
    "scoring": ["loss", "worst_case", "accuracy", None, "r2", "a"],
    "scoring_rho": _NUMBERS,
    "exclude_zero": [True, False, "a"],
    "path_tol": [1e-3, *_NUMBERS],
}
_OF_CLASSES: dict[str, list[Any]] = {
    "loss": ["logistic", "squared-hinge", "smoothed-hinge", "multinomial", "squared", "a", None, 1],
    "class_weight": [None, "balanced", {0: 1.0, 1: 2.0}, {5: 1.0}, {0: -1.0}, "a", 3],
}
_OF_NUMBERS: dict[str, list[Any]] = {
    "loss": ["squared", "huber", Loss.huber(0.5), "logistic", "a", None, 1],
}
_ESTIMATORS: list[tuple[Any, dict[str, list[Any]]]] = [
    (RobustClassifier, _SHARED | _LINEAR | _OF_CLASSES),
    (RobustRegressor, _SHARED | _LINEAR | _OF_NUMBERS),
    (RobustClassifierCV, _SHARED | _SEARCH | _OF_CLASSES),
    (RobustRegressorCV, _SHARED | _SEARCH | _OF_NUMBERS),
]
#: Errors for people; an import error names what to install.
_NAMED = (ValueError, TypeError, ImportError)


def _choose(options: list[Any], rng: np.random.Generator) -> Any:
    """One of the options, the first ones more often."""
    return options[min(int(rng.exponential(len(options) / 4)), len(options) - 1)]


def _problem(rng: np.random.Generator, is_classifier: bool) -> tuple[Any, Any, dict[str, Any]]:
    """Data of 40 rows, mostly of a usual kind, and arguments of fit."""
    X = rng.standard_normal((40, 3)) * 10.0 ** rng.choice([0, 0, 0, 8, -8])
    t = X[:, 0] / np.abs(X[:, 0]).max() + 0.3 * rng.standard_normal(40)
    if is_classifier:
        y: Any = np.digitize(t, [-0.3, 0.3]) if rng.integers(4) == 0 else (t > 0).astype(int)
    else:
        y = t
    arguments: dict[str, Any] = {}
    if rng.integers(3) == 0:
        arguments["sample_weight"] = rng.choice([0.0, 1.0, 2.5], 40)
    if rng.integers(3) == 0:
        arguments["groups"] = rng.integers(0, 3, 40)
    if rng.integers(4) == 0:
        return sp.csr_matrix(X * (X > 0)), y, arguments
    return X, y, arguments


def _check(seed: int) -> bool:
    """Fit an estimator with a few random parameters; whether there is a model."""
    rng = np.random.default_rng(seed)
    kinds = len(_ESTIMATORS) if rng.integers(5) == 0 else 2  # those with a search take longer
    cls, known = _ESTIMATORS[rng.integers(kinds)]
    names = rng.choice(sorted(known), rng.integers(1, 6), replace=False)
    parameters: dict[str, Any] = {str(name): _choose(known[name], rng) for name in names}
    parameters = {"max_iter": 20} | parameters
    if "l2s" in known:
        parameters = {"l2s": [0.1], "cv": 2} | parameters
    X, y, arguments = _problem(rng, issubclass(cls, RobustClassifier | RobustClassifierCV))
    try:
        model = cls(**parameters).fit(X, y, **arguments)
    except _NAMED as error:
        message = str(error)
        assert len(message) > 20, (cls, parameters, message)
        assert "\n" not in message, (cls, parameters, message)
        return False
    assert np.isfinite(model.coef_).all(), (cls, parameters)
    assert np.isfinite(model.robust_loss_), (cls, parameters)
    assert model.predict(X).shape == (40,), (cls, parameters)
    return True


@pytest.mark.parametrize("part", range(4))
def test_random_parameters(part):
    """400 of them; 2,000 in `make soak`, each time others."""
    count = usually(100, 500)
    first = int(np.random.default_rng().integers(2**40)) if SOAK else 10_000 * part
    models = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        for seed in range(first, first + count):
            try:
                models += _check(seed)
            except Exception as error:
                raise AssertionError(f"_check({seed})") from error
    assert count // 10 < models < count
