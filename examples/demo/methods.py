"""Part 3: the paper's methods on Adult, beside its published results."""

from __future__ import annotations

import math
import time
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

from drolearn import RobustClassifier, worst_case
from drolearn.datasets import load_adult

from .common import BLACK, BLUE, GREEN, GREY, ORANGE, RED, Interval, compared, new_table, run_all

TITLE = "Part 3. The paper's methods beside its published results"
PANEL = "3. How fast do the paper's methods learn?\nwho earns over $50,000: robust linear models"
RHO, RUNS = 0.1, 10
# Passes over the data of the stochastic methods: all for the picture, the last for the table.
PASSES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# Methods with colour and marker in the picture.
STOCHASTIC = {"SGD": (BLUE, "o"), "PSSG": (GREEN, "s"), "GSSG": (BLACK, "^")}
NAMES = {
    "plain": "logistic regression",
    "tuned": "  with tuned l2 (ERM, 3 folds)",
    "SGD": "robust, SGD",
    "PSSG": "robust, PSSG",
    "GSSG": "robust, GSSG",
    "exact": "robust, exact solver",
}


@dataclass(frozen=True)
class Run:
    """One fit: the rows that it read, and its results on new people."""

    method: str
    passes: float
    rows: float
    error: float
    robust_loss: float
    seconds: float


@dataclass(frozen=True)
class Results:
    """All fits, and the published test errors in percent."""

    runs: list[Run]
    published: dict[str, Interval]

    def values(self, method: str, key: str, passes: float | None = None) -> NDArray[np.float64]:
        """One number for each permutation, after the given passes or after all."""
        runs = [run for run in self.runs if run.method == method]
        chosen = max(run.passes for run in runs) if passes is None else passes
        return np.array([getattr(run, key) for run in runs if run.passes == chosen])


def intro() -> str:
    """Say what is compared."""
    return (
        f"The same question on all of Adult, in the paper's protocol: {RUNS} random permutations, "
        f"80% of the people for training. The robust loss is the largest weighted mean loss on the "
        f"new people within a χ² ball of radius {RHO:g}, as in training. Columns are scaled to "
        f"variance 1; the paper does not say how it scales them."
    )


def published() -> dict[str, Interval]:
    """The test errors of the paper's Table 1, in percent."""
    file = resources.files("drolearn.paper") / "paper.toml"
    row = tomllib.loads(file.read_text("utf-8"))["datasets"]["adult"]["published"]
    cells = {"tuned": row["erm"], "PSSG": row["pssg"][f"{RHO:g}"], "GSSG": row["gssg"][f"{RHO:g}"]}
    return {name: Interval(*cell) for name, cell in cells.items()}


def compute(console: Console) -> Results:
    """Fit all models on all permutations."""
    parts = run_all(_permutation, RUNS, "Fitting models of incomes", console)
    return Results([run for part in parts for run in part], published())


def _models(seed: int) -> Iterator[tuple[str, float, Any]]:
    """All models to fit: name, passes over the data, estimator."""
    yield "plain", 0.0, LogisticRegression(C=1e6)
    options: Any = {"Cs": np.array([0.01, 1.0, 100.0]), "cv": 3, "scoring": "neg_log_loss"}
    options |= {"l1_ratios": (0,), "use_legacy_attributes": False}
    yield "tuned", 0.0, LogisticRegressionCV(solver="newton-cholesky", **options)
    for name in STOCHASTIC:
        for passes in PASSES:
            steps: Any = {"max_iter": passes, "tol": None, "random_state": seed}
            yield name, passes, RobustClassifier(RHO, l2=0.0, solver=name.lower(), **steps)
    yield "exact", 0.0, RobustClassifier(RHO, l2=0.0, solver="exact")


def _permutation(seed: int) -> list[Run]:
    """Fit all models on one permutation."""
    adult = load_adult()
    order = np.random.default_rng(seed).permutation(adult.y.size)
    train, test = np.split(order, [adult.y.size * 4 // 5])
    scaler = StandardScaler().fit(adult.X[train])
    X, X_test = (np.asarray(scaler.transform(adult.X[i]), np.float64) for i in (train, test))
    y, y_test = adult.y[train], adult.y[test]
    runs = []
    for name, passes, model in _models(seed):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # expected with few passes
            model.fit(X, y)
        seconds = time.process_time() - start
        margins = y_test * model.decision_function(X_test)
        error = 100.0 * float((model.predict(X_test) != y_test).mean())
        loss = worst_case(np.logaddexp(0.0, -margins), rho=RHO).value
        rows = float(model.history_.samples[-1]) if hasattr(model, "history_") else math.nan
        runs.append(Run(name, passes, rows, error, loss, seconds))
    return runs


def table(results: Results) -> Table:
    """The results of all methods after all passes."""
    result = new_table(
        f"Adult, {RUNS} permutations: mean ± 95% interval on new people",
        "method", "error %", "in the paper", "robust loss", "CPU s",
    )  # fmt: skip
    for method, name in NAMES.items():
        error, loss, seconds = (
            Interval.of(results.values(method, key)) for key in ("error", "robust_loss", "seconds")
        )
        paper = f"{results.published[method]:.1f}" if method in results.published else ""
        result.add_row(name, f"{error:.1f}", paper, f"{loss:.3f}", f"{seconds.mean:.2f}")
    return result


def explain(results: Results) -> str:
    """Say in words what the table shows."""
    loss = {name: results.values(name, "robust_loss") for name in NAMES}
    error = {name: results.values(name, "error") for name in NAMES}
    seconds = {name: results.values(name, "seconds").mean() for name in NAMES}
    robust = compared(
        Interval.of_change(loss["exact"], loss["plain"]), "%", "that of logistic regression"
    )
    points = Interval.of(error["exact"] - error["plain"])
    passes = max(run.passes for run in results.runs if run.method == "GSSG")
    gssg = compared(
        Interval.of_change(loss["GSSG"], loss["exact"]), "%", "that of the exact solver"
    )
    beside = [_beside(name, Interval.of(error[name]), cell)
              for name, cell in results.published.items()]  # fmt: skip
    return (
        f"How to read it: the robust loss of the robust model (exact solver) is {robust}; its "
        f"error is {compared(points, ' points', 'that of logistic regression')}. After {passes:g} "
        f"passes over the data, the robust loss of GSSG is {gssg}. Tuning the plain model takes "
        f"{seconds['tuned'] / seconds['exact']:.1f} times the CPU time of the exact solver. Errors "
        f"beside the published ones: {'; '.join(beside)}."
    )


def _beside(name: str, here: Interval, paper: Interval) -> str:
    """Compare an error with the published one, whose interval is that of other permutations."""
    difference = Interval(here.mean - paper.mean, math.hypot(here.half, paper.half))
    name = "the tuned model" if name == "tuned" else name
    return f"{name} is {compared(difference, ' points', 'in the paper')}"


def draw(axes: Axes, results: Results) -> None:
    """Plot the test error against the number of rows read, and the published errors."""
    for method, (colour, marker) in STOCHASTIC.items():
        cells = [Interval.of(results.values(method, "error", passes)) for passes in PASSES]
        rows = [results.values(method, "rows", passes).mean() for passes in PASSES]
        middle, half = np.array([(cell.mean, cell.half) for cell in cells]).T
        axes.semilogx(rows, middle, marker=marker, markersize=5, color=colour, label=method)
        axes.fill_between(rows, middle - half, middle + half, color=colour, alpha=0.15)
    exact = Interval.of(results.values("exact", "error"))
    at = results.values("exact", "rows").mean()
    axes.errorbar(at, exact.mean, exact.half, fmt="D", color=RED, capsize=3, label="exact solver")
    plain = results.values("plain", "error").mean()
    axes.axhline(plain, color=GREY, linewidth=1, label="plain logistic regression")
    axes.legend(frameon=False, fontsize=9, loc="upper right", bbox_to_anchor=(0.7, 1.0))
    _draw_published(axes, results.published, 2.0 * at)
    axes.set_xlabel("rows read in training (with repetitions)")
    axes.set_ylabel("wrong predictions on new people, %")


def _draw_published(axes: Axes, cells: dict[str, Interval], start: float) -> None:
    """Plot the published errors in a strip right of `start`, in which x has no meaning."""
    end = start * 4.0 ** len(cells)
    axes.axvspan(start, end, color=GREY, alpha=0.12, linewidth=0)
    axes.set_xlim(right=end)
    axes.set_xticks([10.0**k for k in range(3, math.floor(math.log10(start)) + 1)])
    axes.xaxis.set_minor_locator(NullLocator())
    middle = (start * end) ** 0.5
    axes.text(
        middle, 0.98, "published", transform=axes.get_xaxis_transform(), ha="center", va="top"
    )
    for place, (method, cell) in enumerate(cells.items()):
        x = start * 4.0 ** (place + 0.5)
        colour, marker = STOCHASTIC.get(method, (ORANGE, "D"))
        axes.errorbar(x, cell.mean, cell.half, fmt=marker, markersize=5, capsize=3,
                      markerfacecolor="white", color=colour)  # fmt: skip
        axes.annotate(
            method, (x, cell.mean + cell.half), xytext=(0, 5), textcoords="offset points",
            ha="center", fontsize=9,
        )  # fmt: skip
