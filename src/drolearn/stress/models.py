"""Losses of models on rows: scikit-learn's interface, PyTorch modules, constant baselines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._validation import as_vector, did_you_mean
from drolearn.metrics import (
    absolute_losses,
    brier_losses,
    log_losses,
    squared_losses,
    zero_one_losses,
)

__all__ = [
    "LOSSES",
    "Predictions",
    "all_losses",
    "as_models",
    "constant",
    "loss_name",
    "losses_of",
    "predict",
    "wrong_rows",
]

Array = NDArray[np.float64]
Loss = str | Callable[[Any, Any], Any]

LOSSES = ("auto", "log", "zero-one", "brier", "squared", "absolute")
_FROM_PROBABILITIES = {"log": log_losses, "brier": brier_losses}
_FROM_NUMBERS = {"squared": squared_losses, "absolute": absolute_losses}
# Rows that a PyTorch module gets at once.
_BATCH = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What a model predicts.

    Parameters
    ----------
    name : str
        The name of the model, for errors.
    values : ndarray of shape (n,)
        Predicted labels or numbers.
    proba : ndarray of shape (n, k) or None
        Probabilities of the classes; None for regressions and for classifiers without them.
    classes : ndarray of shape (k,) or None
        The classes; None for regressions.
    """

    name: str
    values: NDArray[Any]
    proba: NDArray[Any] | None
    classes: NDArray[Any] | None


def as_models(model: Any) -> dict[str, Any]:
    """Names and models, from one model, a list or a dict."""
    if isinstance(model, Mapping):
        named = {str(name): each for name, each in model.items()}
    elif isinstance(model, list | tuple):
        named = {}
        for each in model:
            name, k = type(each).__name__, 2
            while name in named:
                name, k = f"{type(each).__name__} {k}", k + 1
            named[name] = each
    else:
        named = {type(model).__name__: model}
    if not named:
        raise ValueError("The 'model' parameter must hold at least one model. Got none instead.")
    for name, each in named.items():
        if isinstance(each, type) or not (hasattr(each, "predict") or _is_module(each)):
            raise ValueError(
                f"The 'model' parameter must hold fitted models with a method predict, or PyTorch "
                f"modules; pass losses= for anything else. Got {each!r} for {name!r} instead."
            )
    return named


def predict(name: str, model: Any, X: Any, y: NDArray[Any], loss: Loss) -> Predictions:
    """The predictions of a model, one for each row."""
    if _is_module(model):
        found = _predict_module(name, model, X, y, loss)
    else:
        found = _predict_estimator(name, model, X)
    if found.values.shape != (y.size,):
        raise ValueError(
            f"The model {name!r} must predict one value for each of the {y.size} rows of y. "
            f"Got predictions of shape {found.values.shape} instead."
        )
    if found.proba is not None and found.proba.shape[:1] != (y.size,):
        raise ValueError(
            f"The model {name!r} must predict probabilities for each of the {y.size} rows of y. "
            f"Got probabilities of shape {found.proba.shape} instead."
        )
    for values in (found.values, found.proba):
        if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
            wrong = tuple(np.argwhere(~np.isfinite(values))[0])
            raise ValueError(
                f"The model {name!r} must predict finite numbers. Got {values[wrong]} in row "
                f"{wrong[0]} instead."
            )
    return found


def losses_of(found: Predictions, y: NDArray[Any], loss: Loss) -> Array:
    """The loss of each row."""
    if callable(loss):
        prediction = found.values if found.proba is None else found.proba
        z = as_vector("loss", loss(prediction, y))
        if z.size != y.size:
            raise ValueError(
                f"The 'loss' parameter must return one loss for each of the {y.size} rows. "
                f"Got {z.size} instead."
            )
        return z
    kind = loss_name(found, loss)
    if kind in _FROM_NUMBERS:
        if found.classes is not None and found.values.dtype.kind not in "biuf":
            raise ValueError(
                f"The loss {kind!r} compares numbers, but the model {found.name!r} predicts the "
                f"class {found.values.tolist()[0]!r}; use loss={all_losses(found)[0]!r}."
            )
        return _FROM_NUMBERS[kind](found.values, y)
    if kind == "zero-one":
        return zero_one_losses(found.values, y)
    if found.proba is None:
        raise ValueError(
            f"The loss {kind!r} needs probabilities, but the model {found.name!r} has no "
            f"predict_proba; use loss='zero-one' or CalibratedClassifierCV."
        )
    return _FROM_PROBABILITIES[kind](found.proba, y, found.classes)


def loss_name(found: Predictions, loss: Loss) -> str:
    """The name of a loss; "auto" depends on what the model predicts."""
    if callable(loss):
        return str(getattr(loss, "__name__", "custom"))
    if loss not in LOSSES:
        listed = ", ".join(map(repr, LOSSES))
        raise ValueError(
            f"The 'loss' parameter must be one of {listed}, 'all', a function of predictions and "
            f"y, or a list of these. Got {loss!r} instead.{did_you_mean(loss, LOSSES)}"
        )
    return loss if loss != "auto" else all_losses(found)[0]


def all_losses(found: Predictions) -> tuple[str, ...]:
    """The named losses that a model has, that of "auto" first."""
    if found.classes is None:
        return ("squared", "absolute")
    return ("zero-one",) if found.proba is None else ("log", "zero-one", "brier")


def wrong_rows(found: Predictions, y: NDArray[Any]) -> NDArray[np.bool_] | None:
    """The rows of which the label is wrong; None for regressions."""
    return None if found.classes is None else zero_one_losses(found.values, y) > 0.0


def constant(found: Predictions, y: NDArray[Any], weights: Array | None, loss: Loss) -> Predictions:
    """The constant model of y: shares and mode of the classes, mean, or median for "absolute"."""
    base = np.full(y.size, 1.0 / y.size) if weights is None else weights / weights.sum()
    if found.classes is None:
        target = as_vector("y", y)
        number = float(base @ target)
        if loss == "absolute":
            order = np.argsort(target, kind="stable")
            half = np.searchsorted(np.cumsum(base[order]), 0.5)
            number = float(target[order][min(int(half), y.size - 1)])
        return Predictions("constant", np.full(y.size, number), None, None)
    labels = found.classes.tolist()
    shares = np.array([float(base[y == label].sum()) for label in labels])
    values = np.full(y.size, found.classes[int(np.argmax(shares))])
    proba = np.tile(shares / shares.sum(), (y.size, 1))
    return Predictions("constant", values, None if found.proba is None else proba, found.classes)


def _predict_estimator(name: str, model: Any, X: Any) -> Predictions:
    """Classifiers have probabilities or classes; all others are regressions."""
    values, classes = np.asarray(model.predict(X)), getattr(model, "classes_", None)
    proba = np.asarray(model.predict_proba(X)) if hasattr(model, "predict_proba") else None
    if proba is None and classes is None:
        return Predictions(name, values, None, None)
    if classes is None:
        raise ValueError(
            f"The model {name!r} must have the attribute classes_, the label of each column of "
            f"predict_proba, as classifiers of scikit-learn have once they are fitted."
        )
    return Predictions(name, values, proba, np.asarray(classes))


def _is_module(model: Any) -> bool:
    """Whether a model is a PyTorch module; without torch loaded, none can be."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _predict_module(name: str, model: Any, X: Any, y: NDArray[Any], loss: Loss) -> Predictions:
    """Scores of classes as for cross_entropy, one score as for BCE with logits, or a number."""
    import torch

    first = next(iter(model.parameters()), torch.zeros(()))
    if not isinstance(X, torch.Tensor):
        # PyTorch has neither read-only arrays nor negative strides.
        X = np.require(X, None, ["C", "W"])
        if X.dtype.kind not in "biuf":
            raise ValueError(
                f"The 'X' parameter must hold numbers for the PyTorch module {name!r}; turn other "
                f"columns into numbers. Got an array of type {X.dtype} instead."
            )
    inputs = torch.as_tensor(X)
    if inputs.is_floating_point():
        inputs = inputs.to(first.dtype)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            parts = [
                model(inputs[start : start + _BATCH].to(first.device)).double().cpu()
                for start in range(0, len(inputs), _BATCH)
            ]
    finally:
        model.train(training)
    scores = torch.cat(parts)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    numbers = loss in _FROM_NUMBERS or (scores.ndim == 1 and y.dtype.kind == "f")
    if numbers and loss not in _FROM_PROBABILITIES and loss != "zero-one":
        return Predictions(name, scores.numpy(), None, None)
    if scores.ndim == 1:
        scores = torch.stack([torch.zeros_like(scores), scores], dim=1)
    proba = torch.softmax(scores, dim=1).numpy()
    return Predictions(name, proba.argmax(axis=1), proba, np.arange(proba.shape[1]))
