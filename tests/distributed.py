"""What each process of tests/test_nn.py does; started by torchrun."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from drolearn import worst_case
from drolearn.nn import MultilevelBatches, RobustLoss

SHARDS = {2: [[20, 10], [1, 29]], 3: [[17, 13, 0], [0, 0, 30]]}


def model_and_rows() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = torch.randn(30, 4, dtype=torch.float64)
    return model.double(), x, x[:, 0].sign() + 0.5 * torch.randn(30, dtype=torch.float64)


def losses(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (model(x)[:, 0] - y).square()


def gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.ravel() for p in model.parameters()])


def equal(rank: int, world: int) -> None:
    for sizes in SHARDS[world]:
        for divergence, weighted in (("chi2", False), ("kl", True), ("hellinger", False)):
            model, x, y = model_and_rows()
            base = torch.linspace(0.5, 2.0, 30, dtype=torch.float64) if weighted else None
            alone = RobustLoss(0.5, divergence)
            # Two micro-batches, the second half as long, accumulated as users do.
            for cut in (30, 15):
                alone(losses(model, x[:cut], y[:cut]),
                      base=None if base is None else base[:cut]).backward()  # fmt: skip
            want, weights = gradient(model), alone.weights
            model.zero_grad()
            shared = DistributedDataParallel(model)
            criterion = RobustLoss(0.5, divergence, process_group=True)
            for cut, last in ((30, False), (15, True)):
                starts = [min(sum(sizes[:k]), cut) for k in range(world + 1)]
                own = slice(starts[rank], starts[rank + 1])
                with nullcontext() if last else shared.no_sync():
                    part = None if base is None else base[own]
                    loss = criterion(losses(shared, x[own], y[own]), base=part)
                    loss.backward()
            torch.testing.assert_close(gradient(model), want, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(criterion.weights, weights[own], rtol=1e-12, atol=1e-15)
            z = losses(model, x[:15], y[:15]).detach().numpy()
            b = None if base is None else base[:15].numpy()
            value = worst_case(z, 0.5, divergence, b).value
            assert abs(loss.item() - value) < 1e-12 * value
    draws = [None] * world
    dist.all_gather_object(draws, MultilevelBatches(500, random_state=0).draw(0).indices.tolist())
    assert all(draws[0] != other for other in draws[1:])
    print("equal", flush=True)


def bad(rank: int, world: int) -> None:
    criterion = RobustLoss(process_group=True)
    for wrong in (torch.ones(2, 2), torch.tensor(1.0), torch.ones(2, dtype=torch.int64)):
        said = "'losses' parameter" if rank == 1 else "Process 1 of the group"
        with pytest.raises(ValueError, match=said):
            criterion(wrong if rank == 1 else torch.ones(3))
    with pytest.raises(ValueError, match="1 NaN and 0 infinite of 5"):
        criterion(torch.tensor([1.0, float("nan")]) if rank == 1 else torch.ones(3))
    assert criterion(torch.ones(3)).item() == 1.0  # and all go on together
    print("refused", flush=True)


def dies(rank: int, world: int) -> None:
    criterion = RobustLoss(process_group=True)
    criterion(torch.ones(3))
    if rank == 1:
        os._exit(3)
    criterion(torch.ones(3))


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    globals()[sys.argv[1]](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
