"""Sub-populations of stress tests: the tables of docs/slices.md.

python -m benchmarks slices    # half an hour to an hour; resumes after a stop

bounds    how often the two sides of the bracket hold, on populations that are known
engines   the search beside sliceline, on Adult's test part
groups    the bracket beside all mixes of Adult's groups
"""

from __future__ import annotations

import functools
import itertools
import math
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.machine import load, save
from drolearn import CVaR, log_losses, stress_test, worst_case, zero_one_losses
from drolearn.datasets import load_adult
from drolearn.stress.bracket import upper_sides
from drolearn.stress.conditions import Slice, rows_of
from drolearn.stress.features import Feature, as_features
from drolearn.stress.search import find_slices, required_share
from drolearn.stress.slices import SHARES, judged_slices, split
from drolearn.stress.worst_cases import Sample

Array = NDArray[np.float64]
REPEATS, LEVEL, SIZES = 200, 0.95, (500, 2000)
POPULATION = 400_000  # rows that stand for a population without end
SPLITS = 5


# -- Adult ---------------------------------------------------------------------------------------


@functools.cache
def adult() -> tuple[pd.DataFrame, Array, Array]:
    """Return features of Adult's test part, and log and 0/1 losses of logistic regression."""
    data = load_adult()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(data.X[~data.is_test], data.y[~data.is_test])
    X, y = data.X[data.is_test].astype(np.float64), data.y[data.is_test]
    columns: dict[str, Any] = {}
    for k, name in enumerate(data.feature_names.tolist()):
        column, _, value = name.partition("_")
        if value:  # one-hot
            named = columns.setdefault(column, np.full(len(y), "", dtype=object))
            named[X[:, k] > 0.0] = value
        else:
            columns[column] = X[:, k]
    logistic = log_losses(model.predict_proba(X), y, model.classes_)
    return pd.DataFrame(columns), logistic, zero_one_losses(model.predict(X), y)


# -- bounds --------------------------------------------------------------------------------------


def made(n: int, rng: np.random.Generator, ratio: float) -> tuple[pd.DataFrame, Array]:
    """Return features and expected losses: `ratio` for the young with long hours, 1 for others."""
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "hours": rng.integers(10, 80, n),
            "job": rng.choice(["clerk", "cook", "nurse"], n, p=[0.5, 0.3, 0.2]),
            "member": rng.random(n) < 0.3,
            "income": rng.lognormal(10.0, 0.5, n),
        }
    )
    hurt = (frame["age"] <= 30) & (frame["hours"] > 50)
    return frame, np.where(hurt, ratio, 1.0)


#: Titles, and functions that return features and losses of a population: the expected losses, and
#: a function that draws losses of some of its rows.
POPULATIONS: dict[str, Callable[[], tuple[pd.DataFrame, Array, Any]]] = {
    "nothing to find": lambda: _population(1.0, lambda rng, n: rng.exponential(size=n)),
    "10% twice as bad": lambda: _population(2.0, lambda rng, n: rng.exponential(size=n)),
    "the same, lognormal": lambda: _population(2.0, lambda rng, n: rng.lognormal(-0.5, 1.0, n)),
    "Adult, log loss": lambda: (adult()[0], adult()[1], None),
    "Adult, 0/1 loss": lambda: (adult()[0], adult()[2], None),
}


def _population(ratio: float, noise: Callable[..., Array]) -> tuple[pd.DataFrame, Array, Any]:
    frame, expected = made(POPULATION, np.random.default_rng(0), ratio)
    return frame, expected, noise


def bounds(title: str, n: int) -> list[dict[str, Any]]:
    """Draw many samples; compare what is reported with the population."""
    frame, expected, noise = POPULATIONS[title]()
    features = as_features(frame, None, len(frame))
    rng = np.random.default_rng([zlib.crc32(title.encode()), n])
    whole = expected if noise is None else expected * noise(rng, len(frame))
    tails = [worst_case(whole, divergence=CVaR(share)).value for share in SHARES]
    rows: list[list[dict[str, float]]] = [[] for _ in SHARES]
    for _ in range(REPEATS):
        chosen = rng.integers(len(frame), size=n)
        z = expected[chosen] if noise is None else expected[chosen] * noise(rng, n)
        sample = Sample(z, zero_one=title == "Adult, 0/1 loss")
        part = as_features(frame.iloc[chosen], None, n)
        found = judged_slices(sample, part, split(n, rng), LEVEL, rng)
        above = upper_sides(sample, LEVEL, rng)
        for k, (each, upper) in enumerate(zip(found, above, strict=True)):
            if each.slice is None:
                continue
            inside = _rows_of_population(each.slice, part, features)
            truth, share = float(expected[inside].mean()), float(inside.mean())
            rows[k].append(
                {
                    "low": each.low,
                    "truth": truth,
                    "holds": each.low <= truth,
                    "large": share >= SHARES[k],
                    "above": tails[k] <= upper["high"],
                }
            )
    return [
        {
            "population": title, "n": n, "share": share, "repeats": len(rows[k]), "cvar": tails[k],
            **{key: float(np.mean([row[key] for row in rows[k]])) for key in rows[k][0]},
        }
        for k, share in enumerate(SHARES)
        if rows[k]
    ]  # fmt: skip


def _rows_of_population(
    chosen: Slice, sample: list[Feature], population: list[Feature]
) -> NDArray[np.bool_]:
    """The rows of a slice; the numbers of categories in a sample may differ."""
    inside = np.ones(_size(population[0]), dtype=bool)
    for condition in chosen:
        one, other = sample[condition.feature], population[condition.feature]
        names = getattr(one, "names", None)
        if names is not None:
            code = other.names.index(names[int(condition.value)])  # type: ignore[union-attr]
            condition = type(condition)(condition.feature, condition.sign, float(code))
        inside &= condition.rows(population)
    return inside


def _size(feature: Feature) -> int:
    return len(getattr(feature, "values", getattr(feature, "codes", ())))


# -- engines -------------------------------------------------------------------------------------


def engines() -> list[dict[str, Any]]:
    """Compare held-out losses and CPU seconds of the search and of sliceline."""
    from sliceline import slicefinder

    data = load_adult()
    X = data.X[data.is_test].astype(np.float64)
    z, n = adult()[1], len(X)
    features = as_features("all", pd.DataFrame(X, columns=data.feature_names.tolist()), n)
    runs = []
    _sliceline(features, split(n, np.random.default_rng(0)), z, SHARES[0])  # compiles
    for seed in range(SPLITS):
        searched = split(n, np.random.default_rng(seed))
        for share in SHARES:
            found = _side_by_side(features, searched, z, share)
            runs.append({"numba": slicefinder.is_numba_available(), "seed": seed, **found})
        print("engines", seed, flush=True)
    return runs


def _sliceline(
    features: list[Feature], searched: NDArray[np.bool_], z: Array, share: float
) -> Slice:
    from drolearn.stress.sliceline_engine import find_slices_with_sliceline

    return find_slices_with_sliceline(features, searched, z[searched], [share])[0]


def _side_by_side(
    features: list[Feature], searched: NDArray[np.bool_], z: Array, share: float
) -> dict[str, Any]:
    """One share: our slice must have at least the share of sliceline's in the searched rows.

    The search also gets the smallest share of a stress test, so that it cuts numbers as there.
    """
    start = time.process_time()
    theirs = _sliceline(features, searched, z, share)
    middle = time.process_time()
    inside = rows_of(theirs, features, z.size)
    least = float(inside[searched].mean())
    rows = int(searched.sum())
    target = float(brentq(lambda share: required_share(share, rows) - least, 0.0, least))  # type: ignore[arg-type]
    base, wanted = np.full(rows, 1.0 / rows), [target, SHARES[-1]]
    again = time.process_time()
    ours = find_slices(features, searched, z[searched], base, wanted)[0]
    end = time.process_time()
    mine = rows_of(ours, features, z.size)
    return {
        "share": share,
        "sliceline_seconds": middle - start,
        "seconds": end - again,
        "sliceline_share": float(inside[~searched].mean()),
        "sliceline_loss": float(z[inside & ~searched].mean()),
        "own_share": float(mine[~searched].mean()),
        "loss": float(z[mine & ~searched].mean()),
        "own_searched_share": float(mine[searched].mean()),
        "sliceline_searched_share": least,
    }


# -- groups --------------------------------------------------------------------------------------

GROUPS = [("race", "sex"), ("marital-status", "sex"), ("workclass", "sex")]


def groups(columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """Compare the bracket with all unions of groups, and with all mixes of them."""
    frame, z, _ = adult()
    codes = frame.groupby(list(columns)).ngroup().to_numpy()
    shares = np.bincount(codes) / codes.size
    means = np.bincount(codes, z) / np.bincount(codes)
    members = np.array(list(itertools.product([False, True], repeat=shares.size))[1:])
    size, total = members @ shares, members @ (shares * means)
    report = stress_test(losses=z, over=frame[list(columns)], rhos=[0.0], random_state=0)
    rows = []
    for row in report.bracket.to_dict("records"):
        share = row["share"]
        union = float((total / size)[size >= share].max())
        rows.append(
            {
                "columns": " × ".join(columns), "groups": shares.size, "unions": len(members),
                "share": share, "union": union,
                "mix": _worst_mix(members, size, total, shares, means, share),
                **{name: row[name] for name in ("low", "loss", "cvar", "chi2", "slice")},
            }
        )  # fmt: skip
    return rows


def _worst_mix(
    members: NDArray[np.bool_], size: Array, total: Array, shares: Array, means: Array, share: float
) -> float:
    """The largest mean loss of all mixes that give no group more than its share / `share`.

    A linear programme: the best vertex is a union of groups and a part of one more.
    """
    best = -math.inf
    for k in range(shares.size):
        left = share - size
        fits = ~members[:, k] & (left >= 0.0) & (left <= shares[k])
        if fits.any():
            best = max(best, float((total + left * means[k])[fits].max()) / share)
        if shares[k] >= share:
            best = max(best, float(means[k]))
    return best


# -- the page ------------------------------------------------------------------------------------


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the tables of the page."""
    return "\n".join([_bounds_table(runs), _engines_table(runs), _groups_table(runs), ""])


def _bounds_table(runs: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "## How often the bracket holds\n",
        f"{REPEATS} samples of n rows each from populations that are known. *low holds*: `low` is "
        f"at most the mean loss that\nthe sub-population that was found has in the population, "
        f"nominally 95%. *high holds*: `high` is at least the mean\nof the worst rows of this "
        f"share, nominally 95%. *large*: the sub-population has at least this share.\n*truth*: its "
        f"mean loss, on average over the samples; *worst rows*: that of the worst rows.\n",
        "| population | n | share | low holds | high holds | large | low | truth | worst rows |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs["bounds"]:
        rates = " | ".join(f"{100.0 * run[key]:.1f}%" for key in ("holds", "above", "large"))
        lines.append(
            f"| {run['population']} | {run['n']:,} | {run['share']:.0%} | {rates} "
            f"| {run['low']:.3f} | {run['truth']:.3f} | {run['cvar']:.3f} |"
        )
    return "\n".join([*lines, ""])


def _engines_table(runs: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "## The search and sliceline\n",
        f"Adult's test part with 119 columns, log losses of logistic regression; means over "
        f"{SPLITS} random halves. sliceline\ntries all pairs of values, with numbers in ten "
        f"intervals; it is asked for the largest mean loss. The search must\nfind a slice of at "
        f"least the share that sliceline's slice has in the searched half. Losses and shares are "
        f"those of\nthe other half, *difference* is that of the losses with its standard error, "
        f"seconds are CPU seconds of one thread\nfor one share; sliceline "
        f"{'is compiled by' if runs['engines'][0]['numba'] else 'runs without'} numba.\n",
        "| share | sliceline: share | loss | s | search: share | loss | s | difference | faster |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for share in SHARES:
        part = [run for run in runs["engines"] if run["share"] == share]
        mean = {key: float(np.mean([run[key] for run in part])) for key in part[0]}
        ratio = mean["sliceline_seconds"] / mean["seconds"]
        more = np.array([run["loss"] - run["sliceline_loss"] for run in part])
        error = more.std(ddof=1) / math.sqrt(SPLITS)
        lines.append(
            f"| {share:.0%} | {mean['sliceline_share']:.1%} | {mean['sliceline_loss']:.3f} "
            f"| {mean['sliceline_seconds']:.1f} | {mean['own_share']:.1%} | {mean['loss']:.3f} "
            f"| {mean['seconds']:.2f} | {more.mean():+.4f} ± {error:.4f} | {ratio:.0f} × |"
        )
    return "\n".join([*lines, ""])


def _groups_table(runs: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "## All mixes of groups\n",
        "Adult's test part is the population. A sub-population may be any union of groups with "
        "this share, or any mix of groups\nthat is a part of the population with this share. All "
        "unions and the vertices of the mixes are tried. The bracket is\nthat of a stress test "
        "over the two features.\n",
        "| groups | unions | share | low | worst union | worst mix | worst rows | χ² | found |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for run in runs["groups"]:
        numbers = " | ".join(f"{run[key]:.3f}" for key in ("low", "union", "mix", "cvar", "chi2"))
        lines.append(
            f"| {run['columns']} | {run['unions']:,} | {run['share']:.0%} | {numbers} "
            f"| {run['slice']} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what results/slices.json does not have yet."""
    with threadpool_limits(1):
        for n, title in itertools.product(SIZES, POPULATIONS):
            runs = load("slices").get("runs", {})
            known = {(run["population"], run["n"]) for run in runs.get("bounds", [])}
            if (title, n) not in known:
                found = [*runs.get("bounds", []), *bounds(title, n)]
                found.sort(key=lambda run: (list(POPULATIONS).index(run["population"]), run["n"]))
                save("slices", [], runs={**runs, "bounds": found})
                print(title, n, flush=True)
        runs = load("slices")["runs"]
        if "engines" not in runs:
            runs["engines"] = engines()
        runs["groups"] = [row for columns in GROUPS for row in groups(columns)]
        save("slices", [], runs=runs)


if __name__ == "__main__":
    main()
