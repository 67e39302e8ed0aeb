"""What the processes of tests/test_distributed.py do.

torchrun starts one of them per rank, with the checks to run as arguments.  Without torchrun,
`python -m tests.distributed FOLDER 2:equal,grouped 3:equal` imports PyTorch once, forks two
processes and then three, and writes their output and exit codes to the folder.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import traceback
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from drolearn import Draw, worst_case
from drolearn.nn import MultilevelBatches, RobustLoss, robust_backward
from tests.examples import radius_of
from tests.networks import gradient, small_network

SHARDS = {2: [[20, 10], [1, 29]], 3: [[17, 13, 0], [0, 0, 30]], 4: [[10, 0, 13, 7]]}


def model_and_rows() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    model = small_network().double()
    x = torch.randn(30, 4, dtype=torch.float64)
    return model, x, x[:, 0].sign() + 0.5 * torch.randn(30, dtype=torch.float64)


def losses(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (model(x)[:, 0] - y).square()


def equal(rank: int, world: int) -> None:
    """Value, weights and gradient equal those of one process, for uneven and empty shards."""
    for sizes in SHARDS[world]:
        for divergence, weighted in (("chi2", False), ("kl", True), ("hellinger", False)):
            model, x, y = model_and_rows()
            base = torch.linspace(0.5, 2.0, 30, dtype=torch.float64) if weighted else None
            alone = RobustLoss(radius_of(divergence, 0.5), divergence)
            # Gradients are accumulated over two micro-batches, the second half as long.
            for cut in (30, 15):
                alone(losses(model, x[:cut], y[:cut]),
                      sample_weight=None if base is None else base[:cut]).backward()  # fmt: skip
            want, weights = gradient(model), alone.weights
            model.zero_grad()
            shared = DistributedDataParallel(model)
            criterion = RobustLoss(radius_of(divergence, 0.5), divergence, process_group=True)
            for cut, last in ((30, False), (15, True)):
                starts = [min(sum(sizes[:k]), cut) for k in range(world + 1)]
                mine = slice(starts[rank], starts[rank + 1])
                with nullcontext() if last else shared.no_sync():
                    part = None if base is None else base[mine]
                    loss = criterion(losses(shared, x[mine], y[mine]), sample_weight=part)
                    loss.backward()
            torch.testing.assert_close(gradient(model), want, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(criterion.weights, weights[mine], rtol=1e-12, atol=1e-15)
            z = losses(model, x[:15], y[:15]).detach().numpy()
            b = None if base is None else base[:15].numpy()
            value = worst_case(z, 0.5, divergence, b).value
            assert abs(loss.item() - value) < 1e-12 * value
    draws = [None] * world
    dist.all_gather_object(draws, MultilevelBatches(500, random_state=0).draw(0).indices.tolist())
    assert all(draws[0] != other for other in draws[1:])
    print("equal", flush=True)


def grouped(rank: int, world: int) -> None:
    """Groups may be spread over processes or be on one of them."""
    for sizes in SHARDS[world]:
        model, x, y = model_and_rows()
        of = torch.arange(30) // 12
        alone = RobustLoss(0.2)
        want = alone(losses(model, x, y), groups=of)
        want.backward()
        gradients, weights = gradient(model), alone.weights
        model.zero_grad()
        shared = DistributedDataParallel(model)
        mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        criterion = RobustLoss(0.2, process_group=True)
        loss = criterion(losses(shared, x[mine], y[mine]), groups=of[mine].numpy())
        loss.backward()
        torch.testing.assert_close(gradient(model), gradients, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(criterion.weights, weights[mine], rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(loss, want, rtol=1e-12, atol=0.0)
    # Numbers that are equal as doubles.
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
    """With draws of different sizes, every process gets the mean of their gradients."""
    _, x, y = model_and_rows()
    data = TensorDataset(x, y)

    def loss_fn(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        return losses(model, *batch)

    def draw(which: int, step: int) -> Draw:
        return MultilevelBatches(30, batch_size=4, fire=0.5, random_state=0, rank=which).draw(step)

    def network() -> torch.nn.Module:  # its statistics are exchanged before a forward pass
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
    assert max(map(len, counts)) > 1  # some draws had different numbers of micro-batches
    print("passed", flush=True)


def bad(rank: int, world: int) -> None:
    """Wrong arguments in one process are an error in all of them."""
    criterion = RobustLoss(process_group=True)
    for wrong in (torch.ones(2, 2), torch.tensor(1.0), torch.ones(2, dtype=torch.int64)):
        message = "'losses' parameter" if rank == 1 else "Process 1 of the group"
        with pytest.raises(ValueError, match=message):
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
    assert criterion(torch.ones(3)).item() == 1.0  # the group is still in step
    print("refused", flush=True)


def dies(rank: int, world: int) -> None:
    """One process ends in the middle."""
    criterion = RobustLoss(process_group=True)
    criterion(torch.ones(3))
    if rank == 1:
        os._exit(3)
    criterion(torch.ones(3))


# -- starting ------------------------------------------------------------------------------------


def run(parts: list[str]) -> None:
    """Run some checks in this process, whose rank is in the environment."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    for part in parts:
        globals()[part](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


def forked(rank: int, parts: list[str], output: Path) -> None:
    """The same in a forked process, whose output goes to a file."""
    os.environ["RANK"] = str(rank)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        run(parts)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # destructors of a broken process group may wait for the others


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def fork_all(folder: Path, jobs: list[str]) -> None:
    """Run each job, such as 2:equal,grouped, in as many forked processes."""
    fork = multiprocessing.get_context("fork")
    for job in jobs:
        world, parts = job.split(":")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), WORLD_SIZE=world)
        processes = [
            fork.Process(target=forked, args=(rank, parts.split(","), folder / f"{job}.{rank}"))
            for rank in range(int(world))
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120.0)
            process.kill()
            process.join()
        (folder / f"{job}.json").write_text(json.dumps([p.exitcode for p in processes]))


if __name__ == "__main__":
    if "RANK" in os.environ:
        run(sys.argv[1:])
    else:
        fork_all(Path(sys.argv[1]), sys.argv[2:])
