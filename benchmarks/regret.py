"""Robust regret in large balls, on all classification data: the table of docs/regret.md.

python -m benchmarks.regret                  # what is missing, about half an hour in all; the page
python -m benchmarks.regret --forget adult   # run this data set again

Data sets that are in results/regret.json already are not run again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks import datasets, defaults
from benchmarks.machine import load, save
from drolearn import RobustClassifier, ZeroModelWarning, log_losses, reference_losses

RHOS = (0.3, 1.0, 5.0)
IN_TIME = ("electricity", "noaa_weather")  # rows are in order of time
# The bar: the norm relative to plain, and the AUC minus that of plain.
LEAST_NORM, LEAST_AUC = 0.01, -0.05
_MOST_ROWS = 8_000
# Training data of more numbers have one split; with more columns, boosted trees take too long.
_TWO_SPLITS, _BOOSTED_TREES = 1e6, 1000


def data(name: str) -> tuple[Any, np.ndarray]:
    """Return X and y, at most 8,000 rows drawn at random."""
    X, y = defaults.load(name)
    if y.size > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(1).choice(y.size, _MOST_ROWS, replace=False))
        X, y = X[rows], y[rows]
    return X, y


def measured(model: Any, X: Any, y: Any, plain_norm: float | None = None) -> dict[str, Any]:
    """Return the norm of a fitted model and how well it does on test rows."""
    p = model.predict_proba(X).astype(np.float64)
    ranked = p[:, 1] if p.shape[1] == 2 else p
    norm = float(np.linalg.norm(model.coef_))
    return {
        "norm": norm if plain_norm is None else norm / plain_norm,
        "auc": float(roc_auc_score(y, ranked, multi_class="ovr")),
        "error": 100.0 * float((model.predict(X) != y).mean()),
        "loss": float(log_losses(p, y, model.classes_).mean()),
    }


def random_split(name: str, seed: int) -> list[Any]:
    """Return rows and labels to train on, three quarters, and to test on."""
    X, y = data(name)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
    return [X, X_test, y, y_test]


def time_split(name: str, number: int) -> list[Any]:
    """Return the first 40, 50, 60 or 70% of the rows, and the next quarter to test on."""
    X, y = datasets.load(name)
    step = -(-y.size // _MOST_ROWS)
    X, y = X[::step], y[::step]
    first = y.size * (4 + number) // 10
    last = first + y.size // 4
    return [X[:first], X[first:last], y[:first], y[first:last]]


def one_split(seed: int, X: Any, X_test: Any, y: Any, y_test: Any) -> dict[str, Any]:
    """Fit all models, and test them."""
    scaler = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
    X, X_test = scaler.fit_transform(X), scaler.transform(X_test)
    plain = LogisticRegression(max_iter=1000).fit(X, y)
    norm = float(np.linalg.norm(plain.coef_))
    classes, counts = np.unique(y, return_counts=True)
    boosted = X.shape[1] <= _BOOSTED_TREES
    reference = "auto" if boosted else RandomForestClassifier(min_samples_leaf=5, random_state=0)
    began = time.process_time()
    c = reference_losses(reference, X, y)
    split = {
        "seed": seed,
        "shape": list(X.shape),
        "reference": "auto" if boosted else "forest",
        "reference_loss": float(c.mean()),
        "reference_seconds": time.process_time() - began,
        "majority_error": 100.0 * float((y_test != classes[counts.argmax()]).mean()),
        "plain": measured(plain, X_test, y_test),
    }
    for label, losses in (("rows", None), ("regret", c)):
        for rho in RHOS:
            began = time.process_time()
            model = RobustClassifier(rho=rho, max_iter=1000)  # as plain
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ZeroModelWarning)
                model.fit(X, y, reference_losses=losses)
            found = {"converged": model.converged_, "seconds": time.process_time() - began}
            split[f"{label}, {rho:g}"] = measured(model, X_test, y_test, norm) | found
    return split


def measure(forget: list[str]) -> None:
    """Run what is missing, and save after every data set."""
    runs = [run for run in load("regret").get("runs", []) if run["data"] not in forget]
    for name in defaults.classification_sets():
        if any(run["data"] == name for run in runs):
            continue
        X, _ = data(name)
        splits = 1 if 0.75 * X.shape[0] * X.shape[1] > _TWO_SPLITS else 2
        with threadpool_limits(1):
            found = [one_split(seed, *random_split(name, seed)) for seed in range(splits)]
        runs.append({"data": name, "splits": found})
        seconds = sum(split["reference_seconds"] for split in found)
        print(f"{name:28s} reference {seconds:.0f} s", found[0]["regret, 5"], flush=True)
        save("regret", [], runs=runs)
    for name in IN_TIME:
        title = f"{name}, in time"
        if not any(run["data"] == title for run in runs):
            with threadpool_limits(1):
                found = [one_split(number, *time_split(name, number)) for number in range(4)]
            runs.append({"data": title, "splits": found})
            save("regret", [], runs=runs)


# -- the page ------------------------------------------------------------------------------------


def means(run: dict[str, Any], of: Callable[[dict[str, Any]], float]) -> float:
    """Return the mean of a number over the splits of a data set."""
    return float(np.mean([of(split) for split in run["splits"]]))


def beside(run: dict[str, Any], label: str, key: str) -> float:
    """Return how far a model is above plain, averaged over the splits."""
    return means(run, lambda split: split[label][key] - split["plain"][key])


def norm(run: dict[str, Any], label: str) -> float:
    """Return the norm relative to plain, averaged over the splits."""
    return means(run, lambda split: split[label]["norm"])


def beats_majority(run: dict[str, Any]) -> bool:
    """Whether plain logistic regression has a smaller test error than the largest class."""
    return means(run, lambda split: split["plain"]["error"] - split["majority_error"]) < 0.0


def summary(runs: list[dict[str, Any]]) -> list[str]:
    """Return what holds and what does not."""
    useful = [run for run in runs if beats_majority(run)]
    others = [run["data"] for run in runs if not beats_majority(run)]
    lines = [
        f"Plain logistic regression has a smaller test error than the majority class on "
        f"{len(useful)} of {len(runs)} data sets"
        + (f"; not on {', '.join(others)}." if others else "."),
        "On these, for ρ = 0.3, 1 and 5:",
        "",
    ]
    for label, name in (("regret", "Robust regret"), ("rows", "A ball over rows")):
        small, poor = [], []
        for run in useful:
            norms = {rho: norm(run, f"{label}, {rho:g}") for rho in RHOS}
            ranks = {rho: beside(run, f"{label}, {rho:g}", "auc") for rho in RHOS}
            if min(norms.values()) < LEAST_NORM:
                first = min(rho for rho in RHOS if norms[rho] < LEAST_NORM)
                small.append(f"{run['data']} (from ρ = {first:g} on)")
            if min(ranks.values()) < LEAST_AUC:
                poor.append(f"{run['data']} ({min(ranks.values()):+.3f})")
        lines.append(
            f"- {name}: ‖w‖ is at least 1% of plain's "
            + (f"except on {len(small)} of them: {', '.join(small)}" if small else "on all sets")
            + "; the AUC is within 0.05 of plain's "
            + (f"except on {len(poor)} of them: {', '.join(poor)}." if poor else "on all sets.")
        )
    for rho in RHOS:
        errors = [beside(run, f"regret, {rho:g}", "error") for run in useful]
        losses = [beside(run, f"regret, {rho:g}", "loss") for run in useful]
        worst, worst_loss = int(np.argmax(errors)), int(np.argmax(losses))
        lines.append(
            f"- Robust regret at ρ = {rho:g}: the error is {np.mean(errors):+.2f} points beside "
            f"plain's on average, {errors[worst]:+.2f} at worst ({useful[worst]['data']}); the log "
            f"loss {np.mean(losses):+.3f}, {losses[worst_loss]:+.3f} at worst "
            f"({useful[worst_loss]['data']})."
        )
    poor = [run["data"] for run in useful if worse_reference(run)]
    lines.append(
        f"- The reference has a larger mean loss than plain's on test rows on {len(poor)} sets"
        + (f": {', '.join(poor)}." if poor else ".")
    )
    return [*lines, ""]


def worse_reference(run: dict[str, Any]) -> bool:
    """Whether the reference has a larger loss than plain on rows that they have not seen."""
    return means(run, lambda split: split["reference_loss"] - split["plain"]["loss"]) > 0.0


def table(runs: list[dict[str, Any]]) -> str:
    """Return the summary and the tables of the page."""
    runs = sorted(runs, key=lambda run: run["data"].lower())
    random = [run for run in runs if not run["data"].endswith(", in time")]
    radii = [f"ρ = {rho:g}" for rho in RHOS]
    labels = [f"{kind}, {rho:g}" for kind in ("regret", "rows") for rho in RHOS]
    lines = [
        "### What holds\n",
        *summary(random),
        "### Norms and AUC\n",
        "‖w‖ relative to plain's, and test AUC minus plain's. *reference* is the mean loss of the "
        'reference on training\nrows that it has not seen ("auto"; a random forest where marked '
        "*), *plain* the mean loss of plain on test rows.\n",
        "| data | reference | plain | "
        + " | ".join(f"‖w‖, regret, {each}" for each in radii)
        + " | "
        + " | ".join(f"‖w‖, rows, {each}" for each in radii)
        + " | plain AUC | "
        + " | ".join(f"AUC, regret, {each}" for each in radii)
        + " | "
        + " | ".join(f"AUC, rows, {each}" for each in radii)
        + " |",
        "|---|" + "---:|" * 15,
    ]
    for run in runs:
        mark = "" if run["splits"][0]["reference"] == "auto" else "*"
        cells = [run["data"]]
        cells.append(f"{means(run, lambda split: split['reference_loss']):.3f}{mark}")
        cells.append(f"{means(run, lambda split: split['plain']['loss']):.3f}")
        cells += [f"{norm(run, label):.2f}" for label in labels]
        cells.append(f"{means(run, lambda split: split['plain']['auc']):.3f}")
        cells += [f"{beside(run, label, 'auc'):+.3f}" for label in labels]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "### Error and log loss\n",
        "Test error in points and log loss, minus plain's.\n",
        "| data | majority error | plain error | "
        + " | ".join(f"error, regret, {each}" for each in radii)
        + " | "
        + " | ".join(f"error, rows, {each}" for each in radii)
        + " | "
        + " | ".join(f"loss, regret, {each}" for each in radii)
        + " | "
        + " | ".join(f"loss, rows, {each}" for each in radii)
        + " |",
        "|---|" + "---:|" * 14,
    ]
    for run in runs:
        cells = [run["data"], f"{means(run, lambda split: split['majority_error']):.1f}"]
        cells.append(f"{means(run, lambda split: split['plain']['error']):.2f}")
        cells += [f"{beside(run, label, 'error'):+.2f}" for label in labels]
        cells += [f"{beside(run, label, 'loss'):+.3f}" for label in labels]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main(forget: tuple[str, ...] = ()) -> None:
    """Run what is missing."""
    measure(list(forget))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forget", nargs="*", default=[])
    main(tuple(parser.parse_args().forget))
    from benchmarks import report

    report.main()
