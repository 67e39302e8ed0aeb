"""A small network, its data and its losses, for the tests with PyTorch."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.utils.data import Dataset

from drolearn import CressieRead, Divergence
from drolearn.nn import MultilevelBatches, RobustLoss
from drolearn.nn import criterion as criterion_module
from tests.examples import radius_of

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


# -- paths through the criterion ---------------------------------------------------------

HALF = Divergence.custom(
    lambda s: (s - 1.0) ** 2 / 2.0, lambda s: s - 1.0, lambda t: np.maximum(t + 1.0, 0.0),
    name="half", phi_zero=0.5,
)  # fmt: skip
DRAW = MultilevelBatches(32, batch_size=4, rho=0.5, fire=1.0, random_state=0).draw(0)


def losses_of(n=10):
    return exponential_losses(n).detach() + 0.1


def on_device(monkeypatch):
    """Solve with tensor operations, as for losses on an accelerator."""
    monkeypatch.setattr(criterion_module, "_HOSTS", set())


def call(divergence="chi2", nan="raise", **options):
    """The criterion as a function of the losses only, and losses for it."""
    criterion = RobustLoss(radius_of(divergence, 0.5), divergence, nan=nan)
    losses = losses_of(DRAW.indices.size if "draw" in options else 10)
    if nan == "skip":
        losses[3] = math.nan
    return lambda z: criterion(z, **options), losses


#: Ways through the criterion, as arguments of `call`.
PATHS = {
    "chi2": {},
    "kl": {"divergence": "kl"},
    "reverse-kl": {"divergence": "reverse-kl"},
    "cressie-read": {"divergence": CressieRead(3.0)},
    "custom": {"divergence": HALF},
    "weights": {"sample_weight": torch.linspace(0.5, 2.0, 10)},
    "groups": {"groups": ["a", "b", "c", "d", "e"] * 2},
    "numbered groups": {"groups": torch.arange(10) % 5, "divergence": "kl"},
    "draw": {"draw": DRAW},
    "skip": {"nan": "skip"},
}
