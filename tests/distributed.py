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
from torch.utils.data import TensorDataset

from drolearn import Draw, worst_case
from drolearn.nn import MultilevelBatches, RobustLoss, robust_backward

SHARDS = {2: [[20, 10], [1, 29]], 3: [[17, 13, 0], [0, 0, 30]], 4: [[10, 0, 13, 7]]}


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
                      sample_weight=None if base is None else base[:cut]).backward()  # fmt: skip
            want, weights = gradient(model), alone.weights
            model.zero_grad()
            shared = DistributedDataParallel(model)
            criterion = RobustLoss(0.5, divergence, process_group=True)
            for cut, last in ((30, False), (15, True)):
                starts = [min(sum(sizes[:k]), cut) for k in range(world + 1)]
                own = slice(starts[rank], starts[rank + 1])
                with nullcontext() if last else shared.no_sync():
                    part = None if base is None else base[own]
                    loss = criterion(losses(shared, x[own], y[own]), sample_weight=part)
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


def grouped(rank: int, world: int) -> None:
    """Groups that are spread over processes, one of them on one process only."""
    for sizes in SHARDS[world]:
        model, x, y = model_and_rows()
        of = torch.arange(30) // 12
        alone = RobustLoss(0.2)
        want = alone(losses(model, x, y), groups=of)
        want.backward()
        gradients, weights = gradient(model), alone.weights
        model.zero_grad()
        shared = DistributedDataParallel(model)
        own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        criterion = RobustLoss(0.2, process_group=True)
        loss = criterion(losses(shared, x[own], y[own]), groups=of[own].numpy())
        loss.backward()
        torch.testing.assert_close(gradient(model), gradients, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(criterion.weights, weights[own], rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(loss, want, rtol=1e-12, atol=0.0)
    # Numbers that a double could not tell apart.
    of = torch.tensor([-1, 2**53, 2**53 + 1])
    loss = RobustLoss(1e6, process_group=True)(torch.tensor([0.0, 1.0, 2.0 + rank]), groups=of)
    assert abs(loss.item() - (1.5 + world / 2)) < 1e-6  # the mean of the worst group
    with pytest.raises(ValueError, match=r"a whole number for each|Process 0 of the group"):
        criterion(torch.ones(2), groups=torch.ones(2) if rank == 0 else torch.ones(2).int())
    with pytest.raises(ValueError, match="or none does"):
        criterion(torch.ones(2), groups=torch.ones(2).int() if rank == 0 else None)
    with pytest.raises(ValueError, match="or none does"):
        criterion(torch.ones(2), sample_weight=torch.ones(2) if rank == 0 else None)
    with pytest.raises(ValueError, match="must make the criterion the same"):
        RobustLoss(0.1 + rank, process_group=True)(torch.ones(2))
    with pytest.raises(ValueError, match=r"number the groups|Process 0 of the group"):
        criterion(torch.ones(2), groups=["a", "b"] if rank == 0 else torch.ones(2).int())
    print("grouped", flush=True)


def passes(rank: int, world: int) -> None:
    """Draws of different sizes in micro-batches: the mean of the gradients of all, on all."""
    _, x, y = model_and_rows()
    data = TensorDataset(x, y)

    def loss_fn(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return losses(model, *batch)

    def draw(which: int, step: int) -> Draw:
        return MultilevelBatches(30, batch_size=4, fire=0.5, random_state=0, rank=which).draw(step)

    def network() -> torch.nn.Module:  # with statistics that are exchanged before a pass
        norm = torch.nn.BatchNorm1d(4, dtype=torch.float64)
        return torch.nn.Sequential(norm, model_and_rows()[0])

    alone, model = network(), network()
    shared = DistributedDataParallel(model)
    counts = []
    for step in range(8):
        alone.zero_grad()
        draws = [draw(which, step) for which in range(world)]
        for each in draws:
            robust_backward(alone, loss_fn, data, each, 5)
        model.zero_grad()
        robust_backward(shared, loss_fn, data, draws[rank], 5)
        torch.testing.assert_close(gradient(model), gradient(alone) / world, rtol=1e-9, atol=1e-12)
        counts.append({-(-each.indices.size // 5) for each in draws})
    assert max(map(len, counts)) > 1  # or nothing was tried
    print("passed", flush=True)


def bad(rank: int, world: int) -> None:
    criterion = RobustLoss(process_group=True)
    for wrong in (torch.ones(2, 2), torch.tensor(1.0), torch.ones(2, dtype=torch.int64)):
        said = "'losses' parameter" if rank == 1 else "Process 1 of the group"
        with pytest.raises(ValueError, match=said):
            criterion(wrong if rank == 1 else torch.ones(3))
    with pytest.raises(
        ValueError, match=r"must be a tensor of weights|Process 1 of the group gave"
    ):
        criterion(torch.ones(3), sample_weight="abc" if rank == 1 else torch.ones(3))
    with pytest.raises(ValueError, match=r"no 'draw' can be given|Process 1 of the group gave"):
        criterion(torch.ones(3), "all" if rank == 1 else None)
    with pytest.raises(ValueError, match=r"Process 1 of the group: .* 1 NaN and 0 infinite of 2 "):
        criterion(torch.tensor([1.0, float("nan")]) if rank == 1 else torch.ones(3))
    z = torch.tensor([1.0, float("nan")] if rank == 1 else [3.0, 2.0, 4.0], requires_grad=True)
    skipping = RobustLoss(0.1, nan="skip", process_group=True)
    loss = skipping(z)
    loss.backward()
    left = [1.0] + [3.0, 2.0, 4.0] * (world - 1)
    assert abs(loss.item() - worst_case(left, 0.1).value) < 1e-6
    assert torch.isfinite(z.grad).all()
    first = dist.new_group([0])
    if rank == 0:
        assert RobustLoss(process_group=first)(torch.ones(2)).item() == 1.0
    else:
        with pytest.raises(ValueError, match=r"(does not belong to|Got) "):
            RobustLoss(process_group=first)(torch.ones(2))
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
    for part in sys.argv[1:]:
        globals()[part](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
