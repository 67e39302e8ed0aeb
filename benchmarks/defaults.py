"""Default settings against scikit-learn's, on all classification data: docs/defaults.md.

python -m benchmarks.defaults                       # ten splits of every data set; takes hours
python -m benchmarks.defaults --splits 2            # fewer
python -m benchmarks.defaults --forget "robust, CV" # run this model again, with --only on some data
python -m benchmarks.defaults --report              # only write the page

Fits that are in results/defaults.json already are not run again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets as bundled
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks import datasets
from benchmarks.defaults_page import page, worse_than_tuned
from benchmarks.machine import DOCS, RESULTS, describe
from drolearn import RobustClassifier, RobustClassifierCV, log_losses, rho_max
from drolearn._estimators.baselines import Temperature

MODELS = ("plain", "plain, CV", "temperature", "robust", "robust, CV")
CONVERGED = "plain, CV, converged"  # for data sets on which "robust, CV" is worse than "plain, CV"
_BUNDLED: dict[str, Callable[..., Any]] = {
    "breast_cancer": bundled.load_breast_cancer,
    "digits": bundled.load_digits,
    "iris": bundled.load_iris,
    "wine": bundled.load_wine,
}
_MOST_ROWS = 50_000


def classification_sets() -> list[str]:
    """Return the names of all data sets with classes, small ones first."""
    sizes = {}
    for name in datasets.names():
        with np.load(datasets.path(name)) as stored:
            if stored["y"].dtype.kind == "i":
                sizes[name] = stored["data"].size if "data" in stored else stored["X"].size
    return [*_BUNDLED, *sorted(sizes, key=lambda name: sizes[name])]


def load(name: str) -> tuple[Any, np.ndarray]:
    """Return X and y, at most 50,000 rows drawn at random."""
    if name in _BUNDLED:
        return _BUNDLED[name](return_X_y=True)
    X, y = datasets.load(name)
    if y.size > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(y.size, _MOST_ROWS, replace=False))
        X, y = X[rows], y[rows]
    return X, y


def models() -> dict[str, Any]:
    """Return the models; more iterations than scikit-learn's default 100, so that all converge."""
    search: dict[str, Any] = {"scoring": "neg_log_loss", "max_iter": 1000, "l1_ratios": (0,)}
    search["use_legacy_attributes"] = False
    converged = search | {"tol": 1e-10, "max_iter": 100_000}
    return {
        "plain": LogisticRegression(max_iter=1000),
        "plain, CV": LogisticRegressionCV(**search),
        "temperature": Temperature(),
        "robust": RobustClassifier(),
        "robust, CV": RobustClassifierCV(),
        CONVERGED: LogisticRegressionCV(**converged),
    }


def one_split(name: str, seed: int, labels: list[str]) -> list[dict[str, Any]]:
    """Fit models on three quarters of the rows; return losses and errors on the others."""
    X, y = load(name)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=seed, stratify=y
    )
    scaler = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
    X_train, X_test = scaler.fit_transform(X_train), scaler.transform(X_test)
    rows = []
    for label in labels:
        model = models()[label]
        began = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X_train, y_train)
        proba = model.predict_proba(X_test).astype(np.float64)
        classes = getattr(model, "model", model).classes_
        rows.append(
            {
                "data": name,
                "seed": seed,
                "model": label,
                "loss": float(log_losses(proba, y_test, classes).mean()),
                "error": 100.0 * float((model.predict(X_test) != y_test).mean()),
                "rho": float(getattr(model, "rho_", 0.0)),
                "l2": float(getattr(model, "best_l2_", 1.0)),
                "warnings": sorted({type(one.message).__name__ for one in caught}),
                "seconds": time.process_time() - began,
            }
        )
    return rows


def measure(splits: int, only: list[str], forget: list[str]) -> None:
    """Run what is missing, and save after every split."""
    file = RESULTS / "defaults.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    names = only or classification_sets()
    rows = [row for row in rows if row["model"] not in forget or row["data"] not in names]

    def run(name: str, seed: int, labels: Iterable[str]) -> None:
        done = {row["model"] for row in rows if (row["data"], row["seed"]) == (name, seed)}
        missing = [label for label in labels if label not in done]
        if not missing:
            return
        with threadpool_limits(1):
            new = one_split(name, seed, missing)
        rows.extend(new)
        found = (f"{row['model']}: {row['loss']:.4f} {row['seconds']:.1f}s" for row in new)
        print(f"{name:28s} {seed}", *found, sep="  ", flush=True)
        text = json.dumps({"machine": describe(), "rows": rows}, indent=0, ensure_ascii=False)
        file.write_text(text + "\n", encoding="utf-8")

    for seed in range(splits):
        for name in names:
            run(name, seed, MODELS)
    for name in worse_than_tuned(rows):
        for seed in range(splits if name in names else 0):
            run(name, seed, [CONVERGED])


def radii() -> None:
    """Measure the radius from which on the zero model is optimal; results/zero_models.json."""
    found = {}
    for name in classification_sets():
        X, y = load(name)
        if X.shape[1] <= 2000 and np.unique(y).size == 2:
            X = (MaxAbsScaler() if sp.issparse(X) else StandardScaler()).fit_transform(X)
            found[name] = {each: rho_max(X, y, each) for each in ("chi2", "kl")}
            print(name, found[name], flush=True)
    text = json.dumps({"machine": describe(), "radii": found}, indent=1)
    (RESULTS / "zero_models.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--forget", nargs="*", default=[])
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        if not arguments.only:
            radii()
        measure(arguments.splits, arguments.only, arguments.forget)
    (DOCS / "defaults.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
