"""Boosted trees with robust objectives on electricity: the tables of docs/boosting.md.

python -m benchmarks boosting    # about three minutes; needs the extra [boosting]

The comparison with the trees of `dro` needs its files, of which one module is loaded. Without it,
its stored result is kept:

    pip install --no-deps --target FOLDER dro==0.4.3
    DRO_FOLDER=FOLDER python -m benchmarks boosting
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone

from benchmarks import datasets
from benchmarks.machine import load, save
from drolearn import RobustBoostingClassifier, reference_losses, worst_case
from drolearn.boosting import robust_objective

#: The data cover 31 months in order; a month has the same number of rows.
MONTHS = 31
#: Each split trains on this share of the rows and is tested on the next quarter.
SPLITS = (0.4, 0.5, 0.6, 0.7)
VALIDATION_MONTHS = 3
ROUNDS, STRIDE = 400, 10
SETTINGS = {"num_leaves": 31, "learning_rate": 0.1, "verbose": -1, "n_jobs": 1, "random_state": 0}
#: Titles, and the arguments of the estimator with months as groups; None for LightGBM's own.
METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "months of equal weight": None,
    "months, ρ = 1": {"rho": 1.0},
    "months, ρ = 10": {"rho": 10.0},
    "months, ρ = 1, regret": {"rho": 1.0},
    "months, ρ = 10, regret": {"rho": 10.0},
    "months, ρ = 10, not damped": {"rho": 10.0, "step": 1.0},
}
_DAMPED = [name for name in METHODS if "ρ" in name and "not" not in name]
_COST_RHO = 10.0
#: The goals: CPU time relative to plain boosting, points of error, CPU time of `dro`.
_MOST_COST, _LEAST_GAIN, _LEAST_FASTER = 1.3, 3.0, 20.0


def trees(rounds: int = ROUNDS, **more: Any) -> Any:
    """Return the trees of LightGBM."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=rounds, **SETTINGS, **more)


def read() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y = 0 or 1, and the month of each row."""
    with np.load(datasets.path("electricity")) as file:
        X, y = file["X"].astype(np.float64), (file["y"] > 0).astype(np.float64)
    return X, y, np.arange(y.size) * MONTHS // y.size


# -- errors on new months ------------------------------------------------------------------------


def train(method: str, X: np.ndarray, y: np.ndarray, months: np.ndarray) -> Any:
    """Fit boosted trees, and return LightGBM's model."""
    arguments, weight = METHODS[method], None
    if arguments is not None:
        c = reference_losses(trees(100), X, y) if "regret" in method else None
        model = RobustBoostingClassifier(trees(), **arguments)
        return model.fit(X, y, groups=months, reference_losses=c).estimator_.booster_
    if method == "months of equal weight":
        weight = 1.0 / np.bincount(months)[months]
        weight /= weight.mean()
    return trees().fit(X, y, sample_weight=weight).booster_


def curve(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the error and the mean log loss after every few rounds."""
    scores, found = np.zeros(y.size), []
    for first in range(0, ROUNDS, STRIDE):
        scores += model.predict(X, raw_score=True, start_iteration=first, num_iteration=STRIDE)
        found.append((np.mean((scores > 0.0) != (y > 0.0)), _losses(scores, y).mean()))
    return np.array(found)


def _losses(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, np.where(y > 0.0, -scores, scores))


def measure(share: float) -> list[dict[str, Any]]:
    """Fit all methods on one split; the round is the best one on the last months before it."""
    X, y, months = read()
    rows, first = np.arange(y.size), round(share * y.size)
    late = months > months[first - 1] - VALIDATION_MONTHS
    training, validation = rows[(rows < first) & ~late], rows[(rows < first) & late]
    test = rows[first : first + y.size // 4]
    results = []
    for method in METHODS:
        model = train(method, X[training], y[training], months[training])
        chosen = int(curve(model, X[validation], y[validation])[:, 0].argmin())
        found = curve(model, X[test], y[test])
        results.append(
            {
                "split": share,
                "method": method,
                "round": (chosen + 1) * STRIDE,
                "error": float(found[chosen, 0]),
                "loss": float(found[chosen, 1]),
                "least_error": float(found[:, 0].min()),
                "last_error": float(found[-1, 0]),
                "last_loss": float(found[-1, 1]),
            }
        )
    return results


# -- cost ----------------------------------------------------------------------------------------


class _Stored:
    """An objective that returns stored gradients: what a custom objective costs at least."""

    def __init__(self, gradients: list[Any]) -> None:
        self._gradients, self._round = gradients, -1

    def __call__(self, y: Any, scores: Any) -> Any:
        self._round += 1
        return self._gradients[self._round]

    def __deepcopy__(self, memo: object) -> _Stored:
        return self  # LightGBM copies its parameters


def _gradients(model: Any, X: np.ndarray, y: np.ndarray, months: np.ndarray) -> list[Any]:
    """Return the gradients of all rounds of a robust fit."""
    objective, found = robust_objective(_COST_RHO, groups=months), []

    def record(y: Any, scores: Any) -> Any:
        found.append([part.copy() for part in objective(y, scores)])
        return found[-1]

    model.set_params(objective=record).fit(X, y)
    return found


def _seconds(fit: Callable[[], object]) -> float:
    """Return the CPU time of a fit."""
    start = time.process_time()
    fit()
    return time.process_time() - start


def cost(library: str, repeats: int) -> dict[str, Any]:
    """Return the CPU time of robust trees relative to plain ones, in one run."""
    from xgboost import XGBClassifier

    X, y, months = read()
    extreme = XGBClassifier(n_estimators=ROUNDS, n_jobs=1, random_state=0)
    model = trees() if library == "LightGBM" else extreme
    robust = RobustBoostingClassifier(model, rho=_COST_RHO)
    least: Any = clone(model)
    stored = _gradients(clone(model), X, y, months)
    spent = []
    for _ in range(repeats + 1):
        least.set_params(objective=_Stored(stored))
        times = [
            _seconds(lambda: model.fit(X, y)),
            _seconds(lambda: robust.fit(X, y, groups=months)),
            _seconds(lambda: least.fit(X, y)),
        ]
        spent.append(times)
    ratios = np.array(spent[1:]) / np.array(spent[1:])[:, :1]  # the first one warms up
    return {
        "method": "cost",
        "library": library,
        "ratio": float(np.median(ratios[:, 1])),
        "ratios": ratios[:, 1].tolist(),
        "stored_ratio": float(np.median(ratios[:, 2])),
        "seconds": statistics.median(times[0] for times in spent[1:]),
        "rows": int(y.size),
        "rounds": ROUNDS,
    }


# -- against dro ---------------------------------------------------------------------------------

#: More rows or rounds would take minutes: `dro` solves a quadratic programme in each round.
_DRO_ROWS, _DRO_ROUNDS, _DRO_RHOS = 5000, 100, (0.5, 1.0)


def against_dro(folder: str) -> list[dict[str, Any]]:
    """Compare with the χ² trees of `dro` on the same rows, with the same settings of LightGBM.

    Both define the ball by n Σ (p − 1/n)² ≤ ρ.
    """
    for name in ("dro", "dro.tree_model"):  # import without running __init__
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules[name] = package
    library = import_module("dro.tree_model.lgbm")
    X, y, _ = read()
    order = np.random.default_rng(0).permutation(y.size)
    train, test = order[:_DRO_ROWS], order[_DRO_ROWS:]
    rows = []
    for rho in _DRO_RHOS:
        theirs = library.Chi2DRO_LGBM(eps=rho)
        shared = {"num_leaves": 31, "learning_rate": 0.1, "num_threads": 1, "seed": 0}
        theirs.update({"num_boost_round": _DRO_ROUNDS, **shared})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it divides by zero in the first round
            spent = _seconds(lambda theirs=theirs: theirs.fit(X[train], y[train]))
        rows.append(
            _of_dro("dro 0.4.3", rho, spent, _robust_losses(theirs.model, train, test, rho))
        )
        for step in (1.0, 0.1):
            model = RobustBoostingClassifier(trees(_DRO_ROUNDS), rho, step=step)
            spent = statistics.median(
                _seconds(lambda model=model: model.fit(X[train], y[train])) for _ in range(5)
            )
            found = _robust_losses(model.estimator_.booster_, train, test, rho)
            rows.append(_of_dro(f"drolearn, step={step:g}", rho, spent, found))
    return rows


def _robust_losses(
    model: Any, train: np.ndarray, test: np.ndarray, rho: float
) -> tuple[float, float]:
    """The robust loss of training rows and of new rows."""
    X, y, _ = read()
    scores = model.predict(X, raw_score=True)
    losses = _losses(scores, y)
    return worst_case(losses[train], rho).value, worst_case(losses[test], rho).value


def _of_dro(name: str, rho: float, seconds: float, losses: tuple[float, float]) -> dict[str, Any]:
    return {
        "method": "against dro",
        "name": name,
        "rho": rho,
        "seconds": seconds,
        "objective": losses[0],
        "new": losses[1],
    }


# -- the page ------------------------------------------------------------------------------------


def table(runs: list[dict[str, Any]]) -> str:
    """Return the tables of the page."""
    return "\n".join([*_errors(runs), *_costs(runs), *_dro(runs), ""])


def _errors(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "Error in % at the chosen round, for each share of the rows before the test; their mean; "
        "the difference to plain, with a 95% interval over the splits; the mean error at the round "
        "that is best on the test rows, below which no choice of the round gets; mean log loss at "
        f"the chosen round and after {ROUNDS} rounds.\n",
        f"| method | {' | '.join(f'{share:g}' for share in SPLITS)} | mean | to plain | best round "
        f"| loss | loss at {ROUNDS} |",
        f"|---|{'---:|' * (len(SPLITS) + 5)}",
    ]
    for method in METHODS:
        mine = _of(runs, method)
        errors = [100.0 * run["error"] for run in mine]
        cells = [f"{value:.1f}" for value in (*errors, statistics.mean(errors))]
        rise = "{:+.1f} ± {:.1f}".format(*_rise(runs, method))
        cells += ["" if method == "plain" else rise, f"{_least_error(runs, method):.1f}"]
        losses = [statistics.mean(run[key] for run in mine) for key in ("loss", "last_loss")]
        cells += [f"{value:.3g}" for value in losses]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [*lines, "", verdict(runs), ""]


def verdict(runs: list[dict[str, Any]]) -> str:
    """Return whether months as groups lower the error as much as was hoped."""
    best = min(_DAMPED, key=lambda method: _rise(runs, method)[0])
    (rise, half), at_best = _rise(runs, best), min(_DAMPED, key=lambda m: _least_error(runs, m))
    return (
        f"The best damped objective (*{best}*) differs from plain boosting by {rise:+.1f} ± "
        f"{half:.1f} points; the goal of {_LEAST_GAIN:g} points below is "
        f"{_reached(rise <= -_LEAST_GAIN)}. At the round that is best on the test rows, the best "
        f"damped objective (*{at_best}*) has {_least_error(runs, at_best):.1f}%, plain boosting "
        f"{_least_error(runs, 'plain'):.1f}%."
    )


def _of(runs: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    return [run for run in runs if run["method"] == method]


def _rise(runs: list[dict[str, Any]], method: str) -> tuple[float, float]:
    """The error minus plain's in points: the mean over splits, and half of Student's interval."""
    pairs = zip(_of(runs, method), _of(runs, "plain"), strict=True)
    rises = np.array([100.0 * (run["error"] - plain["error"]) for run, plain in pairs])
    half = student.ppf(0.975, rises.size - 1) * rises.std(ddof=1) / math.sqrt(rises.size)
    return float(rises.mean()), float(half)


def _least_error(runs: list[dict[str, Any]], method: str) -> float:
    """The mean error in % at the best rounds on the test rows."""
    return 100.0 * statistics.mean(run["least_error"] for run in _of(runs, method))


def _costs(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "### Cost\n",
        "CPU time relative to plain boosting, median of pairs in one run, one thread. *Stored "
        "gradients* is an objective that only returns the gradients of a former fit, which is what "
        "a custom objective costs at least.\n",
        "| library | rows | rounds | plain, s | robust over groups | stored gradients |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    spent = [run for run in runs if run["method"] == "cost"]
    for run in spent:
        lines.append(
            f"| {run['library']} | {run['rows']:,} | {run['rounds']} | {run['seconds']:.2f} | "
            f"{run['ratio']:.2f} | {run['stored_ratio']:.2f} |"
        )
    goals = (f"{_reached(run['ratio'] <= _MOST_COST)} with {run['library']}" for run in spent)
    return [*lines, "", f"The goal of at most {_MOST_COST:g} is {' and '.join(goals)}.", ""]


def _dro(runs: list[dict[str, Any]]) -> list[str]:
    rows = [run for run in runs if run["method"] == "against dro"]
    if not rows:
        return []
    lines = [
        "### Against `dro`\n",
        f"χ² balls over rows, {_DRO_ROWS:,} rows, {_DRO_ROUNDS} rounds, the same settings of "
        "LightGBM, one thread; CPU time, the robust loss of the training rows, which both "
        "minimise, and that of all other rows.\n",
        "| ρ | method | CPU s | objective | new rows |",
        "|---:|---|---:|---:|---:|",
    ]
    good = True
    for rho in _DRO_RHOS:
        mine = [run for run in rows if run["rho"] == rho]
        theirs, ours = mine[0], mine[1]
        good &= theirs["seconds"] >= _LEAST_FASTER * ours["seconds"]
        good &= ours["objective"] < theirs["objective"]
        lines += [
            f"| {rho:g} | {run['name']} | {run['seconds']:.3f} | {run['objective']:.4f} | "
            f"{run['new']:.4f} |"
            for run in mine
        ]
    return [
        *lines,
        "",
        f"Without damping, the goal of {_LEAST_FASTER:g} times the speed at a better objective is "
        f"{_reached(good)}.",
    ]


def _reached(yes: bool) -> str:
    return "met" if yes else "missed"


def main() -> None:
    """Measure all splits, the cost, and `dro` if there is its folder."""
    runs = [run for share in SPLITS for run in measure(share)]
    runs += [cost("LightGBM", repeats=9), cost("XGBoost", repeats=5)]
    folder = os.environ.get("DRO_FOLDER")
    if folder:
        runs += against_dro(folder)
    else:
        print("boosting: the stored comparison with dro is kept. Set DRO_FOLDER to measure it.")
        runs += [run for run in load("boosting").get("runs", []) if run["method"] == "against dro"]
    libraries = {name: version(name) for name in ("lightgbm", "xgboost-cpu")}
    save("boosting", [], runs=runs, libraries=libraries)


if __name__ == "__main__":
    main()
