"""The PyTorch criterion: its cost, and the bias of its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.machine import save, side_by_side
from benchmarks.worst_case import Row, logistic_losses, row
from drolearn import Fixed, worst_case
from drolearn._solvers.draws import Method
from drolearn.nn import MultilevelBatches, RobustLoss
from drolearn.nn.device import solve_chi2

Criterion = Callable[[Tensor], Tensor]


def overhead() -> list[Row]:
    """Forward and backward pass of the criterion minus that of the mean, 256 losses."""
    z = torch.from_numpy(logistic_losses(256)).float()

    def both_ways(criterion: Criterion) -> Callable[[], None]:
        return lambda: criterion(z.clone().requires_grad_()).backward()

    names = ("chi2", "kl", "reverse-kl", "hellinger", "total-variation", "cvar")
    tasks = {"mean": both_ways(torch.mean)}
    tasks |= {name: both_ways(RobustLoss(divergence=name)) for name in names}
    seconds = side_by_side(tasks, 500)
    mean = seconds.pop("mean")
    return [
        row(
            f"{name}: RobustLoss minus torch.mean, batch of 256",
            "µs",
            1e6 * (time - mean),
            "≤ 150 µs",
            f"torch.mean takes {1e6 * mean:.0f} µs; forward and backward",
        )
        for name, time in seconds.items()
    ]


def training_step() -> list[Row]:
    """Training step of a network with a million parameters: the criterion against the mean."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 190), nn.ReLU(), nn.Linear(190, 10)
    )
    count = sum(p.numel() for p in model.parameters())
    x, y = torch.randn(256, 784), torch.randint(0, 10, (256,))
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(criterion: Criterion) -> Callable[[], None]:
        def once() -> None:
            optimiser.zero_grad()
            criterion(F.cross_entropy(model(x), y, reduction="none")).backward()
            optimiser.step()

        return once

    seconds = side_by_side({"mean": step(torch.mean), "robust": step(RobustLoss(0.1))}, 300)
    added = seconds["robust"] / seconds["mean"] - 1.0
    note = f"{count:,} parameters, batch of 256, {1e3 * seconds['mean']:.1f} ms with the mean"
    return [row("time that RobustLoss adds to a training step", "the step", added, "≤ 0.05", note)]


def bisection(z: Tensor, rho: float, tolerance: float) -> Tensor:
    """χ² weights by bisection on the threshold η in PyTorch, as users write it today."""
    width = float(z.max() - z.min())
    low, high = float(z.min()) - width * (1.0 + 1.0 / math.sqrt(rho)), float(z.max())
    while high - low > tolerance:
        eta = 0.5 * (low + high)
        u = (z - eta).clamp_min(0.0)
        if float(u.square().mean()) > (1.0 + rho) * float(u.mean()) ** 2:
            high = eta
        else:
            low = eta
    u = (z - low).clamp_min(0.0)
    return u / u.sum()


def inner_solve() -> list[Row]:
    """10⁶ losses on the CPU: RobustLoss against a bisection and against tensor operations."""
    z = torch.from_numpy(logistic_losses(10**6))
    criterion, b = RobustLoss(0.1), torch.full_like(z, 1e-6)
    criterion(z)
    assert criterion.weights is not None
    assert float((bisection(z, 0.1, 1e-8) - criterion.weights).abs().max()) < 1e-12
    seconds = side_by_side(
        {
            "bisection": lambda: bisection(z, 0.1, 1e-8),
            "drolearn": lambda: criterion(z),
            "tensors": lambda: solve_chi2(z, b, 0.1),
        },
        9,
    )
    ours = seconds["drolearn"]
    return [
        row(
            "χ², 10⁶ losses, a float64 bisection in PyTorch at 1e-8",
            "drolearn",
            seconds["bisection"] / ours,
            "≥ 20 ×",
            f"RobustLoss {1e3 * ours:.1f} ms",
        ),
        row(
            "χ², 10⁶ losses, with tensor operations (as on other devices)",
            "drolearn",
            seconds["tensors"] / ours,
            "",
            f"{1e3 * seconds['tensors']:.0f} ms on the CPU",
        ),
    ]


def fixed_point() -> tuple[np.ndarray, np.ndarray, float, float]:
    """Train a network on the digits for 100 steps and evaluate it.

    Returns the loss of each row, the gradient of each row along the gradient of the robust loss
    of all rows, the norm of the latter, and the robust loss.
    """
    data: Any = load_digits()
    x, y = torch.from_numpy(data.data / 16.0), torch.from_numpy(data.target % 2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 2)).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)

    def gradient(losses: Tensor, criterion: Criterion) -> Tensor:
        model.zero_grad()
        criterion(losses).backward()
        return torch.cat([p.grad.ravel() for p in model.parameters() if p.grad is not None])

    for _ in range(100):
        gradient(F.cross_entropy(model(x), y, reduction="none"), torch.mean)
        optimiser.step()
    losses = F.cross_entropy(model(x), y, reduction="none")
    robust = gradient(losses, RobustLoss(1.0))
    direction = robust / robust.norm()
    along = []
    for i in range(len(x)):  # computed once, which makes many draws cheap
        one = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1], reduction="none")
        along.append(float(gradient(one, torch.sum) @ direction))
    z = losses.detach().numpy()
    return z, np.array(along), float(robust.norm()), worst_case(z, 1.0).value


def mean_of_draws(
    method: Method, z: np.ndarray, along: np.ndarray, draws: int = 20_000
) -> tuple[float, float]:
    """Return the mean of the gradient estimates and its standard error."""
    rng, estimates = np.random.default_rng(0), []
    for step in range(draws):
        draw = method.draw(rng, step)
        estimates.append(draw.weights(z[draw.indices]) @ along[draw.indices])
    return float(np.mean(estimates)), float(np.std(estimates) / math.sqrt(draws))


def unbiased() -> list[Row]:
    """Bias of the gradient of a network at a fixed point, over 20,000 draws."""
    z, along, length, robust_loss = fixed_point()
    rows = []
    ours = MultilevelBatches(z.size, batch_size=16, rho=1.0).method
    for name, method, bar in (
        (f"multilevel, base block of {ours.sizes[0]}", ours, "≤ 3"),
        ("fixed batch of 16", Fixed(z.size, 16, rho=1.0), "≥ 10"),
    ):
        mean, error = mean_of_draws(method, z, along)
        ratio = abs(mean - length) / error
        note = (
            f"{mean:.4f} ± {error:.4f}, exact {length:.4f}; a network on {z.size:,} digits, ρ = 1"
        )
        rows.append(row(f"bias of the gradient: {name}", "standard errors", ratio, bar, note))
    # The rows are the population; a stream draws from them with replacement.
    rng = np.random.default_rng(1)
    for max_level in (0, 2, 4):
        capped = MultilevelBatches(None, batch_size=16, rho=1.0, max_level=max_level)
        n = int(capped.method.n)
        values = [worst_case(rng.choice(z, n), 1.0).value for _ in range(2_000_000 // n)]
        true = robust_loss - float(np.mean(values))
        estimate = capped.bias(rng.choice(z, 100_000))
        note = f"{estimate.value:.5f} ± {estimate.error:.5f} estimated, {true:.5f} measured"
        what = f"bias of max_level = {max_level} estimated by .bias(10⁵ losses)"
        rows.append(
            row(
                what,
                "the measured bias",
                estimate.value / true,
                "",
                f"{note}; batch size 16, ρ = 1",
            )
        )
    return rows


def main() -> None:
    """Run all benchmarks of this module on one thread and write results/criterion.json."""
    rows = []
    torch.set_num_threads(1)
    for part in (overhead, training_step, inner_solve, unbiased):
        rows += part()
    save("criterion", rows)
