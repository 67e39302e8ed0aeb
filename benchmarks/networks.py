"""Does robust training help networks? A digit that is rare in training, and as common in tests.

Odd against even digits; all but a few training rows of one digit are taken away, each digit in
turn.  Every method reads the same number of rows, in blocks of the same size.  Of three step sizes,
each takes the one that makes its own training objective smallest on a seed that is not reported;
steps fall linearly to zero.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks import datasets
from benchmarks.estimators import interval
from benchmarks.machine import DOCS, save
from drolearn import worst_case
from drolearn.nn import MultilevelBatches, RobustLoss

SEEDS, DIGITS, POINTS, BASE = 5, 10, 10, 32
#: Step sizes to choose from, on a seed of their own.
STEPS = {"SGD": (0.005, 0.015, 0.05), "Adam": (0.0003, 0.001, 0.003)}
TUNING = 100


class Task(NamedTuple):
    """A data set, how many rows of the rare digit are left, and how long training lasts."""

    title: str
    kept: int
    hidden: int
    passes: int


TASKS = {
    "digits": Task("scikit-learn's digits, 5 of about 108 rows left", 5, 64, 30),
    "mnist": Task("MNIST (10,000 images), 30 of about 600 rows left", 30, 128, 10),
}
METHODS = {
    "mean": ("mean loss", 0.0),
    "fixed, ρ = 0.1": ("fixed batch", 0.1),
    "multilevel, ρ = 0.1": ("multilevel", 0.1),
    "fixed, ρ = 1": ("fixed batch", 1.0),
    "multilevel, ρ = 1": ("multilevel", 1.0),
    "digits known, ρ = 1": ("groups", 1.0),
}
COLOURS = {
    "mean": "tab:orange",
    "fixed, ρ = 1": "tab:blue",
    "multilevel, ρ = 1": "black",
    "digits known, ρ = 1": "tab:green",
}


def images(task: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Pixels between 0 and 1, and which digit it is."""
    if task == "digits":
        bunch: Any = load_digits()
        return (bunch.data / 16.0).astype(np.float32), bunch.target
    with np.load(datasets.path("mnist10k_odd_even")) as file:
        return file["X"] / np.float32(255.0), file["digit"].astype(np.int64)


def trial(
    task: str, optimiser: str, method: str, size: float, seed: int, rare: int
) -> dict[str, list[float]]:
    """Errors on the test rows and on those of the rare digit, the robust loss (ρ = 1) of the
    training rows and the method's own objective, at ten times.
    """
    torch.set_num_threads(1)
    what, (kind, rho) = TASKS[task], METHODS[method]
    X, digit = images(task)
    rng = np.random.default_rng([seed, rare])
    order = rng.permutation(len(X))
    train, test = np.split(order, [len(X) * 3 // 5])
    train = np.delete(train, np.flatnonzero(digit[train] == rare)[what.kept :])
    x, of = torch.from_numpy(X[train]), torch.from_numpy(digit[train])
    x_test, of_test = torch.from_numpy(X[test]), torch.from_numpy(digit[test])
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(X.shape[1], what.hidden), nn.ReLU(), nn.Linear(what.hidden, 2))
    rule: torch.optim.Optimizer
    if optimiser == "Adam":
        rule = torch.optim.Adam(model.parameters(), lr=size)
    else:
        rule = torch.optim.SGD(model.parameters(), lr=size, momentum=0.9)
    criterion = RobustLoss(rho)
    batches = MultilevelBatches(len(x), batch_size=BASE, rho=rho, random_state=seed)
    block = int(batches.method.sizes[0])

    def losses(rows: Tensor | slice) -> Tensor:
        return F.cross_entropy(model(x[rows]), of[rows] % 2, reduction="none")

    told: dict[str, list[float]] = {"error": [], "rare": [], "robust": [], "objective": []}

    def tell() -> None:
        with torch.no_grad():
            wrong = (model(x_test).argmax(1) != of_test % 2).double()
            z = losses(slice(None)).double()
            own = criterion(z, groups=of if kind == "groups" else None)
        told["error"].append(100.0 * float(wrong.mean()))
        told["rare"].append(100.0 * float(wrong[of_test == rare].mean()))
        told["robust"].append(worst_case(z.numpy(), 1.0).value)
        told["objective"].append(float(own))

    read, step, budget = 0, 0, what.passes * len(x)
    while read < budget:
        if kind == "multilevel":
            draw = batches.draw(step)
            rows = torch.from_numpy(draw.indices)
            loss = criterion(losses(rows), draw)
        else:
            rows = torch.from_numpy(rng.choice(len(x), block, replace=False))
            z = losses(rows)
            if kind == "mean loss":
                loss = z.mean()
            else:
                loss = criterion(z, groups=of[rows] if kind == "groups" else None)
        rule.param_groups[0]["lr"] = size * (1.0 - read / budget)
        rule.zero_grad()
        loss.backward()
        rule.step()
        read, step = read + len(rows), step + 1
        while len(told["error"]) < min(read * POINTS // budget, POINTS):
            tell()
    return told


def summary(runs: list[dict[str, Any]]) -> str:
    """The ends of all runs as a Markdown table."""
    lines = [
        "| data | optimiser | method | step | error, % | of the rare digit, % "
        "| robust loss of training rows, ρ = 1 |\n|---|---|---|---:|---:|---:|---:|\n"
    ]
    for run in runs:
        cells = [
            interval([seed[-1] for seed in run[key]], places)
            for key, places in (("error", 1), ("rare", 1), ("robust", 3))
        ]
        lines.append(
            f"| {run['task']} | {run['optimiser']} | {run['method']} | {run['step']:g} "
            f"| {' | '.join(cells)} |\n"
        )
    return "".join(lines)


def picture(runs: list[dict[str, Any]]) -> None:
    """docs/networks.png: error of the rare digit and robust loss as training goes on."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    for (task, what), across in zip(TASKS.items(), panels, strict=True):
        for key, panel in zip(("rare", "robust"), across, strict=True):
            for run in runs:
                if run["task"] != task or run["optimiser"] != "SGD" or run["method"] not in COLOURS:
                    continue
                each = np.array(run[key])
                x = np.arange(1, POINTS + 1) * what.passes / POINTS
                wide = student.ppf(0.975, len(each) - 1) / np.sqrt(len(each))
                middle, reach = each.mean(0), wide * each.std(0, ddof=1)
                colour = COLOURS[run["method"]]
                panel.plot(x, middle, color=colour, label=run["method"])
                panel.fill_between(x, middle - reach, middle + reach, color=colour, alpha=0.2, lw=0)
            panel.set_xlabel("passes over the training rows")
        across[0].set_ylabel("error of the rare digit, %")
        across[1].set_ylabel("robust loss of the training rows, ρ = 1")
        across[1].set_yscale("log")
        across[0].set_title(what.title, loc="left", fontsize=10)
    panels[0, 0].legend()
    figure.savefig(DOCS / "networks.png", dpi=110)
    plt.close(figure)


def all_digits(
    parallel: Any, runs: list[tuple[str, str, str, float, int]]
) -> list[dict[str, list[float]]]:
    """What each run tells, as the mean over ten rare digits."""
    found = parallel(delayed(trial)(*run, rare) for run, rare in product(runs, range(DIGITS)))
    return [
        {
            key: np.mean([told[key] for told in found[k : k + DIGITS]], axis=0).round(5).tolist()
            for key in found[k]
        }
        for k in range(0, len(found), DIGITS)
    ]


def main() -> None:
    """Train everything; write results/networks.json and the picture."""
    parallel: Any = Parallel(n_jobs=-1, verbose=5)
    kinds = list(product(TASKS, STEPS, METHODS))
    tuning = [(*kind, size, TUNING) for kind in kinds for size in STEPS[kind[1]]]
    ends: dict[tuple[str, str, str], dict[float, float]] = {kind: {} for kind in kinds}
    for run, told in zip(tuning, all_digits(parallel, tuning), strict=True):
        ends[run[:3]][run[3]] = told["objective"][-1]
    best = {kind: min(each, key=lambda size: each[size]) for kind, each in ends.items()}
    grid = [(*kind, best[kind], seed) for kind in kinds for seed in range(SEEDS)]
    found = all_digits(parallel, grid)
    runs = []
    for k, (task, optimiser, method) in enumerate(kinds):
        own = found[k * SEEDS : (k + 1) * SEEDS]
        run = {"task": task, "optimiser": optimiser, "method": method}
        run |= {"step": best[task, optimiser, method], "tuning": ends[task, optimiser, method]}
        runs.append(run | {key: [told[key] for told in own] for key in own[0]})
    print(summary(runs))
    save("networks", [], runs=runs)
    picture(runs)
