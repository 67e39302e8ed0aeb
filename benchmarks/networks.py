"""Robust training of networks when one digit is rare in training but not in testing.

The task is odd against even digits. All but a few training rows of one digit are removed, for each
digit in turn. Every method reads the same number of rows, in batches of the same size. Of three
step sizes, each method uses the one with the smallest training objective on a seed that is not
reported. Step sizes decay linearly to zero.
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
#: Step sizes to choose from, with the seed TUNING.
STEPS = {"SGD": (0.005, 0.015, 0.05), "Adam": (0.0003, 0.001, 0.003)}
TUNING = 100


class Task(NamedTuple):
    """A data set, the rows of the rare digit that are kept, the hidden units and the passes."""

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
    """Return pixels between 0 and 1, and the digits."""
    if task == "digits":
        bunch: Any = load_digits()
        return (bunch.data / 16.0).astype(np.float32), bunch.target
    with np.load(datasets.path("mnist10k_odd_even")) as file:
        return file["X"] / np.float32(255.0), file["digit"].astype(np.int64)


def trial(
    task: str, optimiser: str, method: str, size: float, seed: int, rare: int
) -> dict[str, list[float]]:
    """Train one network and evaluate it ten times.

    Returns the errors on all test rows and on those of the rare digit, the robust loss (ρ = 1) of
    the training rows and the objective of the method.
    """
    torch.set_num_threads(1)
    settings, (objective, rho) = TASKS[task], METHODS[method]
    X, digit = images(task)
    rng = np.random.default_rng([seed, rare])
    order = rng.permutation(len(X))
    train, test = np.split(order, [len(X) * 3 // 5])
    train = np.delete(train, np.flatnonzero(digit[train] == rare)[settings.kept :])
    x, digits = torch.from_numpy(X[train]), torch.from_numpy(digit[train])
    x_test, test_digits = torch.from_numpy(X[test]), torch.from_numpy(digit[test])
    torch.manual_seed(seed)
    hidden = settings.hidden
    model = nn.Sequential(nn.Linear(X.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, 2))
    rule: torch.optim.Optimizer
    if optimiser == "Adam":
        rule = torch.optim.Adam(model.parameters(), lr=size)
    else:
        rule = torch.optim.SGD(model.parameters(), lr=size, momentum=0.9)
    criterion = RobustLoss(rho)
    batches = MultilevelBatches(len(x), batch_size=BASE, rho=rho, random_state=seed)
    block = int(batches.method.sizes[0])

    def losses(rows: Tensor | slice) -> Tensor:
        return F.cross_entropy(model(x[rows]), digits[rows] % 2, reduction="none")

    history: dict[str, list[float]] = {"error": [], "rare": [], "robust": [], "objective": []}

    def evaluate() -> None:
        with torch.no_grad():
            wrong = (model(x_test).argmax(1) != test_digits % 2).double()
            z = losses(slice(None)).double()
            value = criterion(z, groups=digits if objective == "groups" else None)
        history["error"].append(100.0 * float(wrong.mean()))
        history["rare"].append(100.0 * float(wrong[test_digits == rare].mean()))
        history["robust"].append(worst_case(z.numpy(), 1.0).value)
        history["objective"].append(float(value))

    read, step, budget = 0, 0, settings.passes * len(x)
    while read < budget:
        if objective == "multilevel":
            draw = batches.draw(step)
            rows = torch.from_numpy(draw.indices)
            loss = criterion(losses(rows), draw)
        else:
            rows = torch.from_numpy(rng.choice(len(x), block, replace=False))
            z = losses(rows)
            if objective == "mean loss":
                loss = z.mean()
            else:
                loss = criterion(z, groups=digits[rows] if objective == "groups" else None)
        rule.param_groups[0]["lr"] = size * (1.0 - read / budget)
        rule.zero_grad()
        loss.backward()
        rule.step()
        read, step = read + len(rows), step + 1
        while len(history["error"]) < min(read * POINTS // budget, POINTS):
            evaluate()
    return history


def summary(runs: list[dict[str, Any]]) -> str:
    """Format the final results of all runs as a Markdown table."""
    lines = [
        "| data | optimiser | method | step size | error, % | rare-digit error, % "
        "| robust training loss, ρ = 1 |\n|---|---|---|---:|---:|---:|---:|\n"
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
    """Draw docs/networks.png: error of the rare digit and robust loss during training."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    for (task, settings), across in zip(TASKS.items(), panels, strict=True):
        for key, panel in zip(("rare", "robust"), across, strict=True):
            for run in runs:
                if run["task"] != task or run["optimiser"] != "SGD" or run["method"] not in COLOURS:
                    continue
                values = np.array(run[key])
                x = np.arange(1, POINTS + 1) * settings.passes / POINTS
                wide = student.ppf(0.975, len(values) - 1) / np.sqrt(len(values))
                middle, reach = values.mean(0), wide * values.std(0, ddof=1)
                colour = COLOURS[run["method"]]
                panel.plot(x, middle, color=colour, label=run["method"])
                panel.fill_between(x, middle - reach, middle + reach, color=colour, alpha=0.2, lw=0)
            panel.set_xlabel("passes over the training rows")
        across[0].set_ylabel("error of the rare digit, %")
        across[1].set_ylabel("robust loss of the training rows, ρ = 1")
        across[1].set_yscale("log")
        across[0].set_title(settings.title, loc="left", fontsize=10)
    panels[0, 0].legend()
    figure.savefig(DOCS / "networks.png", dpi=110)
    plt.close(figure)


def all_digits(
    parallel: Any, runs: list[tuple[str, str, str, float, int]]
) -> list[dict[str, list[float]]]:
    """Return the history of each run, averaged over the ten rare digits."""
    histories = parallel(delayed(trial)(*run, rare) for run, rare in product(runs, range(DIGITS)))
    return [
        {
            key: np.mean([each[key] for each in histories[k : k + DIGITS]], axis=0)
            .round(5)
            .tolist()
            for key in histories[k]
        }
        for k in range(0, len(histories), DIGITS)
    ]


def main() -> None:
    """Train all networks; write results/networks.json and the picture."""
    parallel: Any = Parallel(n_jobs=-1, verbose=5)
    cases = list(product(TASKS, STEPS, METHODS))
    tuning = [(*case, size, TUNING) for case in cases for size in STEPS[case[1]]]
    ends: dict[tuple[str, str, str], dict[float, float]] = {case: {} for case in cases}
    for run, history in zip(tuning, all_digits(parallel, tuning), strict=True):
        ends[run[:3]][run[3]] = history["objective"][-1]
    best = {case: min(end, key=lambda size: end[size]) for case, end in ends.items()}
    grid = [(*case, best[case], seed) for case in cases for seed in range(SEEDS)]
    histories = all_digits(parallel, grid)
    runs = []
    for k, (task, optimiser, method) in enumerate(cases):
        seeds = histories[k * SEEDS : (k + 1) * SEEDS]
        run = {"task": task, "optimiser": optimiser, "method": method}
        run |= {"step": best[task, optimiser, method], "tuning": ends[task, optimiser, method]}
        runs.append(run | {key: [each[key] for each in seeds] for key in seeds[0]})
    print(summary(runs))
    save("networks", [], runs=runs)
    picture(runs)
