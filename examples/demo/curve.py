"""Part 2: how bad can a model get that one already has?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import log_losses, radius_of, worst_case, worst_mix, zero_one_losses
from drolearn.datasets import load_adult

from .common import BLACK, BLUE, GREY, ORANGE, new_table

TITLE = "Part 2. The mix of people changes: the worst case of a model that one already has"
PANEL = "2. How bad can this model get?\nwho earns over $50,000: logistic regression"
# Radii in the table; the sentences are about the middle one.
RADII = (0.0, 0.01, 0.1, 1.0, 3.0, 9.0)
MIDDLE = 1.0


@dataclass(frozen=True)
class Group:
    """A group of people: its share, the error on it, and the radius of the ball that holds it."""

    name: str
    share: float
    error: float
    radius: float
    bound: float


@dataclass(frozen=True)
class Case:
    """Worst cases in one ball: over all mixes of people, and over all mixes of occupations."""

    radius: float
    loss: float
    error: float
    high: float
    by_occupation: float
    gap: float


@dataclass(frozen=True)
class Mix:
    """The occupation whose share grows most in the worst mix of occupations."""

    occupation: str
    before: float
    after: float


@dataclass(frozen=True)
class Curve:
    """Worst cases of one model on test people; the first of `cases` is that without a shift."""

    people: int
    cases: list[Case]
    groups: list[Group]
    mix: Mix
    radii: NDArray[np.float64]
    any_mix: NDArray[np.float64]
    occupations: NDArray[np.float64]

    @property
    def middle(self) -> Case:
        """The worst case that the sentences are about."""
        return next(case for case in self.cases if case.radius == MIDDLE)


def intro() -> str:
    """Say what is computed."""
    return (
        "A plain logistic regression predicts who earns more than 50,000 dollars a year (Adult "
        "data). How large can its error get on test people if their mix changes? A χ² ball of "
        "radius ρ holds every part of the people with a share of at least 1/(1 + ρ), and every "
        "other mix of at most this divergence. The last column allows only other shares of the "
        "occupations."
    )


def compute(console: Console) -> Curve:
    """Fit the model and compute its worst cases on the test part of Adult."""
    with console.status("Computing worst cases"):
        return _compute()


def _compute() -> Curve:
    adult = load_adult()
    train, test = ~adult.is_test, adult.is_test
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(adult.X[train], adult.y[train])
    X, y = adult.X[test], adult.y[test]
    losses = log_losses(model.predict_proba(X), y)
    wrong = zero_one_losses(model.predict(X), y)
    columns = {name: X[:, j] for j, name in enumerate(adult.feature_names.tolist())}
    occupation = _levels(columns, "occupation_")
    named = {
        "women": adult.sex[test] == "Female",
        "men": adult.sex[test] == "Male",
        "married": columns["marital-status_Married-civ-spouse"] == 1,
        "over 50": columns["age"] > 50,
        "high incomes": y == 1,
    }
    groups = [_group(name, members, wrong) for name, members in named.items()]
    largest = max(*RADII, *(group.radius for group in groups))
    radii = np.geomspace(min(radius for radius in RADII if radius > 0.0), largest, 100)
    return Curve(
        people=y.size,
        cases=[_case(radius, losses, wrong, y == 1, occupation) for radius in RADII],
        groups=groups,
        mix=_mix(wrong, occupation),
        radii=radii,
        any_mix=np.array([worst_case(wrong, rho=radius).value for radius in radii]),
        occupations=np.array([worst_mix(wrong, occupation, radius).value for radius in radii]),
    )


def _levels(columns: dict[str, NDArray[np.float32]], prefix: str) -> NDArray[np.str_]:
    """The level of each row, from one-hot columns."""
    names = [name for name in columns if name.startswith(prefix)]
    levels = np.array([name.removeprefix(prefix) for name in names])
    return levels[np.argmax([columns[name] for name in names], axis=0)]


def _case(
    radius: float,
    losses: NDArray[np.float64],
    wrong: NDArray[np.float64],
    high: NDArray[np.bool_],
    occupation: NDArray[np.str_],
) -> Case:
    by_loss, by_error = worst_case(losses, rho=radius), worst_case(wrong, rho=radius)
    return Case(
        radius=radius,
        loss=by_loss.value,
        error=by_error.value,
        high=float(by_loss.weights[high].sum()),
        by_occupation=worst_mix(wrong, occupation, radius).value,
        gap=max(by_loss.gap, by_error.gap),
    )


def _group(name: str, members: NDArray[np.bool_], wrong: NDArray[np.float64]) -> Group:
    radius = radius_of(members, {True: 1.0})["chi2"]
    bound = worst_case(wrong, rho=radius).value
    return Group(name, float(members.mean()), float(wrong[members].mean()), radius, bound)


def _mix(wrong: NDArray[np.float64], occupation: NDArray[np.str_]) -> Mix:
    mix = worst_mix(wrong, occupation, MIDDLE)
    most = int(np.argmax(mix.weights - mix.shares))
    return Mix(str(mix.names[most]), float(mix.shares[most]), float(mix.weights[most]))


def table(curve: Curve) -> Table:
    """The worst cases for all radii."""
    heads = ("any part of", "largest error", "largest log loss", "high incomes there",
             "error, mix of occupations")  # fmt: skip
    result = new_table(f"Worst cases on {curve.people:,} test people", "ρ", *heads)
    for case in curve.cases:
        result.add_row(
            f"{case.radius:g}",
            f"{1.0 / (1.0 + case.radius):.0%}",
            f"{case.error:.1%}",
            f"{case.loss:.3f}",
            f"{case.high:.0%}",
            f"{case.by_occupation:.1%}",
        )
    return result


def explain(curve: Curve) -> str:
    """Say in words what the table and the picture show."""
    now, then, mix = curve.cases[0], curve.middle, curve.mix
    worst = max(curve.groups, key=lambda group: group.error)
    above = sum(group.error > now.error for group in curve.groups)
    return (
        f"How to read it: without a shift the error is {now.error:.1%}. The ball of radius "
        f"{then.radius:g} holds every part of {1.0 / (1.0 + then.radius):.0%} of the people; there "
        f"the error can be {then.error:.1%}. The mix with the largest loss has {then.high:.0%} "
        f"high incomes instead of {now.high:.0%}. If only the shares of occupations change, the "
        f"error is at most {then.by_occupation:.1%}; in that mix the share of {mix.occupation} "
        f"grows most, from {mix.before:.0%} to {mix.after:.0%}. Of the {len(curve.groups)} "
        f"groups in the picture, {above} have a larger error than all people together. The "
        f"largest is "
        f"{worst.error:.1%} ({worst.name}, {worst.share:.0%} of the people); the ball that holds "
        f"this group alone has radius {worst.radius:.1f} and the bound {worst.bound:.1%}. The "
        f"largest duality gap in the table is {max(case.gap for case in curve.cases):.0e}."
    )


def draw(axes: Axes, curve: Curve) -> None:
    """Plot the largest error against the radius, and the groups."""
    lines = (("any other mix of people", curve.any_mix, ORANGE, "-"),
             ("another mix of occupations", curve.occupations, BLUE, "--"))  # fmt: skip
    for label, values, colour, style in lines:
        axes.semilogx(curve.radii, 100 * values, color=colour, linestyle=style, linewidth=2,
                      label=f"worst case: {label}")  # fmt: skip
    axes.axhline(100 * curve.cases[0].error, color=GREY, linewidth=1, label="the test people")
    for group in curve.groups:
        axes.plot(group.radius, 100 * group.error, "o", color=BLACK, markersize=5)
        side, place = (-1, "right") if group.radius > 1.5 else (1, "left")  # towards the middle
        axes.annotate(
            group.name, (group.radius, 100 * group.error), xytext=(7 * side, -4), ha=place,
            va="center", textcoords="offset points", fontsize=9,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip
    axes.plot([], [], "o", color=BLACK, markersize=5, label="only this group of people")
    ticks = [radius for radius in RADII if radius > 0.0]
    shares = [f"{radius:g}\nany {1.0 / (1.0 + radius):.0%}" for radius in ticks]
    axes.set_xticks(ticks, shares)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(curve.radii[0], curve.radii[-1] * 1.15)
    axes.set_ylim(0, 105)
    axes.set_xlabel("size of the shift: radius ρ\n(covers any part of the people with this share)")
    axes.set_ylabel("wrong predictions, %")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
