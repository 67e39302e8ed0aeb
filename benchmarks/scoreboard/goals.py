"""What was to be reached on the scoreboard, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.scoreboard.rows import Rows, is_classification, mean_of

__all__ = ["goals"]


def goals(data: Rows) -> Iterator[list[str]]:
    """Yield the goals, what was measured, and whether that is enough; means over splits."""
    classes = {name: rows for name, rows in data.items() if is_classification(rows)}
    for model, key, most, what in (
        ("regret 1", "error", 0.01, "error at most 1 point above plain"),
        ("regret 1", "loss", 0.03, "log loss at most 0.03 above plain"),
        ("regret 5", "error", 0.015, "error at most 1.5 points above plain"),
    ):
        rises = {name: _rise(rows, "random", model, key) for name, rows in classes.items()}
        yield _worst(f"{model}, random splits: {what}", rises, most, key == "error")
    yield _norms(classes)
    falls = {name: -_rise(rows, "random", "regret 5", "auc") for name, rows in classes.items()}
    yield _worst("regret 5, random splits: AUC at most 0.05 below plain", falls, 0.05, False)
    for model, most in (("regret 1", -0.003), ("regret 5", -0.008)):
        if "covtype" in data:
            rise = _rise(data["covtype"], "random", model, "worst_error")
            what = f"{model}, covtype: error of the worst area {-100 * most:.1f} points below plain"
            yield [what, f"{100 * rise:+.2f}", _yes(rise <= most)]
    if "electricity" in data:
        rise = _rise(data["electricity"], "time", "regret 1", "worst_loss")
        shrunk = _rise(data["electricity"], "time", "temperature", "worst_loss")
        measured = f"{rise:+.3f} (temperature {shrunk:+.3f})"
        what = "regret 1, electricity in time: loss of the worst block 0.3 below plain"
        yield [what, measured, _yes(rise <= -0.3)]
    yield from _rare(data)


def _rise(rows: list[dict[str, Any]], question: str, model: str, key: str) -> float:
    """By how much the mean of a model is above plain's."""
    return mean_of(rows, question, model, key) - mean_of(rows, question, "plain", key)


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _worst(what: str, rises: dict[str, float], most: float, percent: bool) -> list[str]:
    """A goal for all data sets: the largest rise, and all that are too large."""
    missed = [name for name, rise in rises.items() if not rise <= most]
    listed = missed or [max(rises, key=lambda name: rises[name])]
    shown = (
        f"{name} {100 * rises[name]:+.2f}" if percent else f"{name} {rises[name]:+.3f}"
        for name in listed
    )
    return [what, ", ".join(shown), _yes(max(rises.values()) <= most)]


def _norms(classes: Rows) -> list[str]:
    """No model may be zero: norms relative to plain's."""
    shares = {
        name: mean_of(rows, "random", "regret 5", "norm") / mean_of(rows, "random", "plain", "norm")
        for name, rows in classes.items()
    }
    least = min(shares, key=lambda name: shares[name])
    what = "regret 5, random splits: norm of the coefficients at least 1% of plain's"
    return [what, f"{least} {100 * shares[least]:.0f}%", _yes(shares[least] >= 0.01)]


def _rare(data: Rows) -> Iterator[list[str]]:
    """Root mean square errors of the worse part, where one group is rare."""
    if "bike_hour" in data:
        below = _below(data["bike_hour"], "2012/")
        what = (
            "groups, bike_hour with 5% of 2012: RMSE of the worse year 15% below Ridge, 3% below "
            "weights"
        )
        reached = below["plain"] >= 15.0 and below["weights"] >= 3.0
        yield [what, _shown(below), _yes(reached)]
    if "covtype_elevation" in data:
        rows = data["covtype_elevation"]
        areas = sorted({row["split"].split("/")[0] for row in rows if row["question"] == "rare"})
        found = {area: _below(rows, f"{area}/") for area in areas}
        enough = sum(below["weights"] >= 7.0 for below in found.values())
        what = (
            "groups, elevation with a rare area: RMSE of the worse part 7% below weights in two "
            "areas"
        )
        shown = "; ".join(f"area {area}: {_shown(below)}" for area, below in found.items())
        yield [what, shown, _yes(enough >= 2)]


def _below(rows: list[dict[str, Any]], split: str) -> dict[str, float]:
    """By how many per cent the ball over all mixes is below two baselines."""
    ours = mean_of(rows, "rare", "groups, all", "worst_error", split)
    return {
        base: 100.0 * (1.0 - ours / mean_of(rows, "rare", base, "worst_error", split))
        for base in ("plain", "weights")
    }


def _shown(below: dict[str, float]) -> str:
    return f"{below['plain']:.1f}% below Ridge, {below['weights']:.1f}% below weights"
