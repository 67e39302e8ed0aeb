"""Part 1: the year changes, and what a ball over years does beside reweighting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from drolearn import RobustRegressor
from drolearn.datasets import load_bike_hour

from .common import BLACK, BLUE, GREY, ORANGE, Interval, compared, new_table, run_all

TITLE = "Part 1. The year changes: rentals of bicycles per hour"
PANEL = "1. What if the year changes?\nbicycles rented per hour, linear models"
SPLITS, SHARE = 10, 0.05
OLD, NEW = 2011, 2012
# Models with label, colour and line style in the picture.
MODELS = {
    "Ridge": ("plain (Ridge)", ORANGE, ":"),
    "reweighted Ridge": ("years weighted alike (Ridge)", BLUE, "--"),
    "ball over years": ("ball over years (drolearn)", BLACK, "-"),
}


@dataclass(frozen=True)
class Shift:
    """Test errors: an RMSE for each model, split and year, and the share the ball gives to 2012."""

    rmse: dict[str, NDArray[np.float64]]
    weights: NDArray[np.float64]

    def worse(self, model: str) -> NDArray[np.float64]:
        """The RMSE of the worse year, for each split."""
        return self.rmse[model].max(axis=1)


def intro() -> str:
    """Say what is compared."""
    return (
        f"Three linear models predict how many bicycles are rented in an hour. Only {SHARE:.0%} of "
        f"their training hours are from {NEW}, the others from {OLD}; no column tells the year. "
        f"They are tested on other hours of both years, on {SPLITS} random splits. Reweighted "
        f"Ridge gives both years the same weight in training. The ball over years minimises the "
        f"loss of "
        f"the worst mix of the two years: RobustRegressor(rho=inf).fit(X, y, groups=year)."
    )


def compute(console: Console) -> Shift:
    """Fit all models on all splits."""
    splits = run_all(_split, SPLITS, "Fitting models of rentals", console)
    rmse, weights = zip(*splits, strict=True)
    by_model = dict(zip(MODELS, np.stack(rmse, axis=1), strict=True))
    return Shift(by_model, np.array(weights))


def _split(seed: int) -> tuple[NDArray[np.float64], float]:
    """Errors of all models in both years on one split, and the ball's weight of 2012."""
    bike, rng = load_bike_hour(), np.random.default_rng(seed)
    old, new = (rng.permutation(np.flatnonzero(bike.year == year)) for year in (OLD, NEW))
    many = old.size * 3 // 4
    few = round(many * SHARE / (1.0 - SHARE))
    train, tests = np.concatenate([old[:many], new[:few]]), (old[many:], new[few:])
    scaler = StandardScaler().fit(bike.X[train])
    X, y, year = scaler.transform(bike.X[train]), bike.y[train], bike.year[train]
    balanced = np.where(year == NEW, train.size / (2 * few), train.size / (2 * many))
    ball = RobustRegressor(rho=np.inf).fit(X, y, groups=year)
    fits: list[Any] = [Ridge().fit(X, y), Ridge().fit(X, y, sample_weight=balanced), ball]

    def rmse(model: Any, rows: NDArray[np.intp]) -> float:
        residuals = model.predict(scaler.transform(bike.X[rows])) - bike.y[rows]
        return float(np.sqrt(np.mean(residuals**2)))

    assert ball.groups_ is not None
    assert ball.group_weights_ is not None
    weight = float(ball.group_weights_[ball.groups_.tolist().index(NEW)])
    return np.array([[rmse(model, rows) for rows in tests] for model in fits]), weight


def table(shift: Shift) -> Table:
    """The errors of all models."""
    heads = (str(OLD), str(NEW), "worse year", "worse year, against Ridge")
    result = new_table(
        f"RMSE on new hours: mean ± 95% interval of {SPLITS} splits", "model", *heads
    )
    for model in MODELS:
        columns = (*shift.rmse[model].T, shift.worse(model))
        change = Interval.of_change(shift.worse(model), shift.worse("Ridge"))
        against = "" if model == "Ridge" else f"{change.mean:+.1f} ± {change.half:.1f}%"
        result.add_row(model, *(f"{Interval.of(column):.1f}" for column in columns), against)
    return result


def explain(shift: Shift) -> str:
    """Say in words what the table shows."""
    plain, ball = shift.rmse["Ridge"], shift.rmse["ball over years"]
    worse = shift.worse("ball over years")

    def against(model: str) -> str:
        return compared(Interval.of_change(worse, shift.worse(model)), "%", f"that of {model}")

    years = compared(Interval.of_change(plain[:, 1], plain[:, 0]), "%", f"its RMSE in {OLD}")
    price = compared(Interval.of_change(ball[:, 0], plain[:, 0]), "%", "that of Ridge")
    return (
        f"How to read it: the RMSE of Ridge in {NEW} is {years}. In "
        f"the worse of the two years, the RMSE of the ball is {against('Ridge')}, and "
        f"{against('reweighted Ridge')}. In {OLD}, it is {price}. Reweighting trains as if half "
        f"of the hours were from {NEW}; the ball finds the share by itself, here "
        f"{100 * shift.weights.mean():.0f}%."
    )


def draw(axes: Axes, shift: Shift) -> None:
    """Plot the RMSE against the share of 2012 in the test hours."""
    shares = np.linspace(0.0, 1.0, 101)
    for model, (label, colour, style) in MODELS.items():
        squares = shift.rmse[model] ** 2
        mixes = np.sqrt(squares[:, :1] * (1.0 - shares) + squares[:, 1:] * shares)
        cells = [Interval.of(column) for column in mixes.T]
        middle, half = np.array([(cell.mean, cell.half) for cell in cells]).T
        axes.plot(100 * shares, middle, color=colour, linestyle=style, linewidth=2, label=label)
        axes.fill_between(100 * shares, middle - half, middle + half, color=colour, alpha=0.15)
    axes.axvline(100 * SHARE, color=GREY, linewidth=1)
    axes.annotate(
        f" in training: {SHARE:.0%}", (100 * SHARE, 0.0), xycoords=("data", "axes fraction"),
        xytext=(2, 6), textcoords="offset points", color=GREY, fontsize=9,
    )  # fmt: skip
    axes.set_xlabel(f"share of {NEW} in the new hours, %")
    axes.set_ylabel("error of the predictions (RMSE), rentals per hour")
    axes.set_xlim(0, 100)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
