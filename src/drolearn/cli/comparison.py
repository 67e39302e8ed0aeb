"""What `drolearn compare` computes: losses of baselines and robust models on random splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.model_selection import train_test_split

from drolearn import RobustClassifier, RobustRegressor
from drolearn._estimators.baselines import Temperature, inverse_frequencies
from drolearn._inner.worst_case import worst_case
from drolearn._storage import replacing
from drolearn.cli.models import prepared
from drolearn.cli.running import InputError
from drolearn.cli.tables import Rows
from drolearn.divergence import Divergence
from drolearn.metrics import log_losses, squared_losses, zero_one_losses

__all__ = ["Comparison", "compared", "draw"]


@dataclass(frozen=True)
class Comparison:
    """Means over the splits."""

    table: pd.DataFrame
    """One row for each model: loss, error, robust_loss, worst_group, loss_there."""
    losses: dict[str, np.ndarray]
    """The losses of all test rows of all splits."""
    loss: str
    divergence: Divergence
    rho: float | None
    test_rows: int


def compared(
    rows: Rows, task: str, divergence: Divergence, rho: float, splits: int, seed: int
) -> Comparison:
    """Fit all models to three quarters of the rows, and measure them on the others."""
    radius = rho if divergence.has_radius else None
    names = None if rows.groups is None else rows.groups.agg(", ".join, axis=1).to_numpy()
    is_classification = task == "classification"
    if is_classification:
        counts = np.unique(rows.y, return_counts=True)[1]
        if counts.size < 2:
            raise InputError("The target has one class only: give rows of at least two classes.")
        if counts.min() < 2:
            raise InputError("Every class needs at least two rows: remove classes with one row.")
    losses: dict[str, list[np.ndarray]] = {}
    wrong: dict[str, list[np.ndarray]] = {}
    robust: dict[str, list[float]] = {}
    groups_of_tests = []
    for split in range(splits):
        train, test = _split(rows.y, is_classification, seed + split)
        if names is not None:
            groups_of_tests.append(names[test])
        parts = _transformed(rows.X, rows.y, train, test, is_classification)
        y, y_test = rows.y[train], rows.y[test]
        of_train = None if names is None else names[train]
        for name, model, arguments in _models(is_classification, divergence, radius, of_train):
            model.fit(parts[0], y, **arguments)
            found = _losses(model, parts[1], y_test, is_classification)
            losses.setdefault(name, []).append(found)
            value = worst_case(found, radius, divergence).value
            robust.setdefault(name, []).append(value)
            if is_classification:
                errors = zero_one_losses(model.predict(parts[1]), y_test)
                wrong.setdefault(name, []).append(errors)
    joined = {name: np.concatenate(each) for name, each in losses.items()}
    of_tests = np.concatenate(groups_of_tests) if groups_of_tests else None
    table = [
        {
            "model": name,
            "loss": float(each.mean()),
            "error": float(np.concatenate(wrong[name]).mean()) if wrong else np.nan,
            "robust_loss": float(np.mean(robust[name])),
            **_worst_group(each, of_tests),
        }
        for name, each in joined.items()
    ]
    kind = "log" if is_classification else "squared"
    count = sum(each.size for each in losses["plain"]) // splits
    return Comparison(pd.DataFrame(table), joined, kind, divergence, radius, count)


def draw(found: Comparison, out: Path) -> None:
    """Draw the robust losses of all models against the share of rows that a ball may keep."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from drolearn.stress.analysis import stress_test

    report = stress_test(losses=found.losses, divergence=found.divergence, random_state=0)
    figure, axes = plt.subplots(figsize=(7.0, 5.0), layout="constrained")
    report.plot("curve", axes)
    for band in list(axes.collections):  # seven intervals on top of each other say nothing
        band.remove()
    axes.set(title="Worst case of the test rows", ylabel=f"{found.loss} loss")
    if found.rho is not None:
        axes.axvline(found.rho, linestyle=":", color="black")
    with replacing(out) as file:
        figure.savefig(file, format=out.suffix[1:], dpi=150)
    plt.close(figure)


def _split(y: Any, is_classification: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The training and test rows, in order."""
    stratify = y if is_classification else None
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.25, random_state=seed, stratify=stratify
    )
    return np.sort(train), np.sort(test)


def _transformed(X: Any, y: Any, train: Any, test: Any, is_classification: bool) -> tuple[Any, Any]:
    """The columns of both parts, prepared as for the command `fit`."""
    estimator = RobustClassifier() if is_classification else RobustRegressor()
    columns = prepared(estimator, X)[:-1]
    pick = X.iloc.__getitem__ if hasattr(X, "columns") else X.__getitem__
    return columns.fit_transform(pick(train), y[train]), columns.transform(pick(test))


def _models(
    is_classification: bool, divergence: Divergence, rho: float | None, groups: Any
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Names, estimators, and arguments of `fit`."""
    ball: dict[str, Any] = {"rho": rho, "divergence": divergence}
    weights = {} if groups is None else {"sample_weight": inverse_frequencies(groups)}
    if is_classification:
        search: dict[str, Any] = {"l1_ratios": (0,), "use_legacy_attributes": False}
        tuned = LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000, **search)
        plain: Any = LogisticRegression
        options, robust = {"max_iter": 1000}, RobustClassifier
        yield "plain", plain(**options), {}
        yield "tuned", tuned, {}
        yield "temperature", Temperature(0.1 if rho is None else rho), {}
    else:
        plain, options, robust = Ridge, {}, RobustRegressor
        yield "plain", plain(), {}
        yield "tuned", RidgeCV(np.logspace(-4, 4, 9)), {}
    if groups is not None:
        yield "reweighted", plain(**options), weights
    yield "robust", robust(**ball), {}
    if groups is not None:
        yield "groups", robust(**ball), {"groups": groups}
    yield "regret", robust(**ball, reference="auto"), {}


def _losses(model: Any, X: Any, y: Any, is_classification: bool) -> np.ndarray:
    if is_classification:
        proba = np.asarray(model.predict_proba(X), dtype=np.float64)
        return log_losses(proba, y, model.classes_)
    return squared_losses(np.ravel(model.predict(X)), y)


def _worst_group(losses: np.ndarray, groups: Any) -> dict[str, Any]:
    """The group of the largest mean loss."""
    if groups is None:
        return {"worst_group": None, "loss_there": np.nan}
    means: Any = pd.Series(losses).groupby(groups).mean()
    return {"worst_group": str(means.idxmax()), "loss_there": float(means.max())}
