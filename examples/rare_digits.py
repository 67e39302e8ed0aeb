"""A plain PyTorch loop: classify digits as odd or even when nines are rare in training.

Trains with the mean loss, with the robust loss of each batch, and with draws whose gradient is
unbiased for the robust loss of all rows.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from drolearn.nn import MultilevelBatches, RobustLoss

RARE, KEPT, RHO = 9, 5, 1.0


def rows(seed: int = 0) -> tuple[TensorDataset, TensorDataset, Tensor]:
    """Return training rows with five nines, test rows with all nines, and a mask of those."""
    pixels, digit = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(pixels))
    train, test = np.split(order, [len(order) * 3 // 5])
    train = np.delete(train, np.flatnonzero(digit[train] == RARE)[KEPT:])
    x = torch.tensor(pixels / 16.0, dtype=torch.float32)
    odd = torch.tensor(digit % 2)
    return (
        TensorDataset(x[train], odd[train]),
        TensorDataset(x[test], odd[test]),
        torch.tensor(digit[test] == RARE),
    )


def network(seed: int = 0) -> nn.Module:
    """Return a network from 64 pixels to the scores of even and odd."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def losses(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Return one loss per example."""
    x, y = batch
    return F.cross_entropy(model(x), y, reduction="none")


def errors(scores: Tensor, y: Tensor, rare: Tensor) -> str:
    """Format the errors on all test rows and on the nines."""
    wrong = (scores.argmax(1) != y).double()
    return f"{100 * wrong.mean():5.1f}% wrong, {100 * wrong[rare].mean():5.1f}% of the nines"


def main(epochs: int = 30) -> None:
    """Train with three objectives and print the errors."""
    train, test, rare = rows()
    for objective in ("the mean loss", "the worst mix of each batch", "the worst mix of all rows"):
        model, criterion = network(), RobustLoss(RHO)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        batches = MultilevelBatches(len(train), batch_size=32, rho=RHO, random_state=0)
        plain = DataLoader(train, batch_size=int(batches.method.sizes[0]), shuffle=True)
        for _ in range(epochs):
            if objective == "the worst mix of all rows":
                steps = (criterion(losses(model, b), draw) for b, draw in batches.loader(train))
            elif objective == "the worst mix of each batch":
                steps = (criterion(losses(model, b)) for b in plain)
            else:
                steps = (losses(model, b).mean() for b in plain)
            for loss in steps:
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        with torch.no_grad():
            x, y = test.tensors
            print(f"{objective:29s}{errors(model(x), y, rare)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
