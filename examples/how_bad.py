"""How bad could it get? A plain logistic regression on the Adult data, under stress.

Fits an ordinary model, then asks drolearn for the worst reweighting of the test people
within balls of growing radius: how high loss and error can rise, and on whom.
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

from drolearn import worst_case
from drolearn.datasets import load_adult

PICTURE = "how_bad.png"


def main() -> None:
    """Fit, stress, print a table and write a picture."""
    console = Console()
    adult = load_adult()
    train, test = ~adult.is_test, adult.is_test
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(adult.X[train], adult.y[train])
    margins = adult.y[test] * model.decision_function(adult.X[test])
    losses, wrong = np.logaddexp(0.0, -margins), margins < 0.0
    console.print(
        f"\nA logistic regression, trained on {train.sum():,} people, predicts who earns more "
        f"than 50,000 dollars a year. On {test.sum():,} others it is wrong for "
        f"{100 * wrong.mean():.1f}%. But what if the people it meets are not like these?\n"
    )

    rich = adult.y[test] == 1
    table = Table(title="The worst mix of these people within a χ² ball of radius ρ")
    for name in ("ρ", "covers any", "loss", "its error", "its high incomes", "people left"):
        table.add_column(name, justify="right")
    table.add_column("worst error", justify="right")
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
        f"\nHow to read it: ρ = 0 is the test data as it is. The ball of ρ = {half.rho:g} holds "
        f"every half of these people and every other mix no further away. The mix in it with "
        f"the highest loss has {100 * half.weights[rich].sum():.0f}% high incomes instead of "
        f"{100 * rich.mean():.0f}%; on it the model's loss is {half.value:.2f} instead of "
        f"{results[0].value:.2f}, and it is wrong for {100 * half.weights[wrong].sum():.0f}%. "
        f"'People left' have any weight in that mix; 'worst error' is the highest error of any "
        f"mix in the ball. No estimate is involved: the largest duality gap is "
        f"{max(wc.gap for wc in results):.0e}. The losses took {1000 * seconds:.1f} ms.\n"
    )
    draw(losses)
    console.print(f"The picture is in [bold]{PICTURE}[/bold].")


def draw(losses: np.ndarray) -> None:
    """The robust loss against the radius, for several divergences."""
    radii = np.geomspace(1e-3, 10.0, 400)
    figure, axes = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    for name in ("kl", "chi2", "reverse-kl", "hellinger", "jensen-shannon", "total-variation"):
        values = [worst_case(losses, rho=rho, divergence=name).value for rho in radii]
        axes.plot(radii, values, label=name)
    axes.axhline(losses.mean(), color="black", linewidth=0.8, linestyle=":", label="average loss")
    axes.axhline(losses.max(), color="black", linewidth=0.5, linestyle="--", label="largest loss")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="radius ρ of the ball (each divergence has its own scale)",
        ylabel="worst-case logistic loss",
        title="How bad could it get? A logistic regression on Adult",
    )
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main()
