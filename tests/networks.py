"""A small network, its data and its losses, for the tests with PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import Dataset

#: Divergences that `RobustLoss` takes by name.
DIVERGENCES = ["chi2", "kl", "reverse-kl", "hellinger", "total-variation", "cvar"]


def exponential_losses(n=50, seed=0, dtype=torch.float64):
    z = np.random.default_rng(seed).exponential(size=n)
    return torch.tensor(z, dtype=dtype, requires_grad=True)


def small_network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def labelled_rows(n=200, seed=1):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=rng)
    return x, (x[:, 0] + 0.5 * torch.randn(n, generator=rng) > 0).float()


def bce(model, batch):
    x, y = batch
    scores = model(x)[:, 0]
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, y, reduction="none")


def gradient(model):
    return torch.cat([p.grad.ravel() for p in model.parameters()])


class Numbered(Dataset):
    """Row i is the number i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(float(i))
