"""The figure of the README: `python -m examples.readme_figure` writes docs/readme.png.

Left: what a shift can do to two models of Adult.  Right: linear models of the hourly rentals of
bicycles, where 5% of the second year is in the training rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import RobustRegressor, stress_test
from drolearn.datasets import load_adult, load_bike_hour

PICTURE = Path(__file__).parents[1] / "docs" / "readme.png"
SPLITS = 10


def stress(ax: Axes) -> None:
    """The curve of a stress test: the mean loss on the worst mix of the test rows."""
    adult = load_adult()
    X, y = adult.X[~adult.is_test], adult.y[~adult.is_test]
    models = {
        "boosted trees": HistGradientBoostingClassifier(random_state=0).fit(X, y),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y),
    }
    report = stress_test(models, adult.X[adult.is_test], adult.y[adult.is_test], random_state=0)
    report.plot("curve", ax=ax)
    ax.set_title("", loc="left")
    ax.set_ylabel("log loss, worst case of the ball")
    ax.set_title("stress_test: how bad could it get\nfor the models that I have? (Adult)")


def errors(split: int) -> NDArray[np.float64]:
    """RMSE in both years of three models on one random split."""
    bikes, rng = load_bike_hour(), np.random.default_rng(split)
    second = bikes.year == bikes.year.max()
    test = rng.random(bikes.y.size) < 0.3
    train = ~test & (~second | (rng.random(bikes.y.size) < 0.05))
    X = StandardScaler().fit(bikes.X[train]).transform(bikes.X)
    X_train, y_train, year = X[train], bikes.y[train], bikes.year[train]
    equal = np.where(second[train], 1.0 / second[train].sum(), 1.0 / (~second[train]).sum())
    models: list[Any] = [
        Ridge().fit(X_train, y_train),
        Ridge().fit(X_train, y_train, sample_weight=equal * equal.size / 2.0),
        RobustRegressor(rho=np.inf).fit(X_train, y_train, groups=year),
    ]
    return np.array(
        [
            [np.sqrt(np.mean((m.predict(X[rows]) - bikes.y[rows]) ** 2)) for m in models]
            for rows in (test & ~second, test & second)
        ]
    )


def training(ax: Axes) -> None:
    """Errors by year, with 95% intervals over the splits."""
    found = np.array([errors(split) for split in range(SPLITS)])
    mean = found.mean(axis=0)
    half = student.ppf(0.975, SPLITS - 1) * found.std(axis=0, ddof=1) / np.sqrt(SPLITS)
    for k, (label, colour) in enumerate((("2011", "0.75"), ("2012, rare in training", "tab:blue"))):
        at = np.arange(3) + 0.4 * k - 0.2
        ax.bar(at, mean[k], 0.36, yerr=half[k], capsize=3, color=colour, label=label)
    ax.set_xticks(
        range(3), ["Ridge", "Ridge, years\nweighted alike", "RobustRegressor,\nball over years"]
    )
    ax.set_ylabel("root mean square error, test rows")
    ax.set_ylim(0.0, 1.3 * mean.max())
    ax.legend(frameon=False, loc="upper right")
    ax.set_title("groups=year: a group that is rare\nin training (bicycles per hour)")


def main() -> None:
    """Write the picture."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.0), layout="constrained")
    stress(left)
    training(right)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
