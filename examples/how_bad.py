"""Stress test of a plain logistic regression on the Adult data.

Computes the worst-case reweighting of the test data in balls of increasing radius, and shows how
much loss and error can rise.
"""

from __future__ import annotations

import time

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import log_losses, worst_case
from drolearn.datasets import load_adult

PICTURE = "how_bad.png"


def main() -> None:
    """Fit a model, print its worst cases and write a picture."""
    console = Console()
    adult = load_adult()
    train, test = ~adult.is_test, adult.is_test
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(adult.X[train], adult.y[train])
    losses = log_losses(model.predict_proba(adult.X[test]), adult.y[test])
    wrong = model.predict(adult.X[test]) != adult.y[test]
    console.print(
        f"\nA logistic regression, trained on {train.sum():,} people, predicts who earns more "
        f"than 50,000 dollars a year. Its error on {test.sum():,} test people is "
        f"{100 * wrong.mean():.1f}%. How large can it get if the mix of people changes?\n"
    )

    rich = adult.y[test] == 1
    table = Table(title="Worst-case mix of the test people within a χ² ball of radius ρ")
    for name in ("ρ", "covers any", "loss", "error", "high incomes", "nonzero weight"):
        table.add_column(name, justify="right")
    table.add_column("largest error", justify="right")
    radii = (0.0, 0.01, 0.1, 1.0, 3.0, 9.0)
    start = time.perf_counter()
    results = [worst_case(losses, rho=rho) for rho in radii]
    seconds = time.perf_counter() - start
    for wc in results:
        p = wc.weights
        table.add_row(
            f"{wc.rho:g}",
            f"{100 / (1 + wc.rho):.0f}%",
            f"{wc.value:.3f}",
            f"{100 * p[wrong].sum():.1f}%",
            f"{100 * p[rich].sum():.0f}%",
            f"{100 * (p > 0).mean():.0f}%",
            f"{100 * worst_case(wrong, rho=wc.rho).value:.1f}%",
        )
    console.print(table)
    half = results[3]
    console.print(
        f"\nHow to read it: ρ = 0 is the test data without reweighting. The ball of radius "
        f"{half.rho:g} contains every half of the people and every other mix of at most this "
        f"divergence. The mix with the highest loss has {100 * half.weights[rich].sum():.0f}% high "
        f"incomes instead of {100 * rich.mean():.0f}%. There the loss is {half.value:.2f} instead "
        f"of {results[0].value:.2f}, and the error is {100 * half.weights[wrong].sum():.0f}%. "
        f"'Nonzero weight' is the share of people with weight in that mix; 'largest error' is the "
        f"highest error of any mix in the ball. The results are exact: the largest duality gap is "
        f"{max(wc.gap for wc in results):.0e}. They took {1000 * seconds:.1f} ms.\n"
    )
    draw(losses)
    console.print(f"Wrote the picture [bold]{PICTURE}[/bold].")


def draw(losses: np.ndarray) -> None:
    """Plot the robust loss against the radius for several divergences."""
    radii = np.geomspace(1e-3, 10.0, 400)
    figure, axes = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    for name in ("kl", "chi2", "reverse-kl", "hellinger", "jensen-shannon", "total-variation"):
        values = [worst_case(losses, rho=rho, divergence=name).value for rho in radii]
        axes.plot(radii, values, label=name)
    axes.axhline(losses.mean(), color="black", linewidth=0.8, linestyle=":", label="mean loss")
    axes.axhline(losses.max(), color="black", linewidth=0.5, linestyle="--", label="largest loss")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="radius ρ (its scale depends on the divergence)",
        ylabel="worst-case logistic loss",
        title="Worst case of a logistic regression on Adult",
    )
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main()
