"""PyTorch: the criterion, the batches, draws larger than memory."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from drolearn import CressieRead, Divergence, Multilevel, worst_case
from drolearn.nn import MultilevelBatches, RobustLoss, robust_backward
from drolearn.nn import criterion as criterion_module
from drolearn.nn.device import DeviceWorstCase, solve_chi2, solve_kl

pytestmark = pytest.mark.xdist_group("torch")
DIVERGENCES = ["chi2", "kl", "reverse-kl", "hellinger", "total-variation", "cvar"]


def some_losses(n=50, seed=0, dtype=torch.float64):
    z = np.random.default_rng(seed).exponential(size=n)
    return torch.tensor(z, dtype=dtype, requires_grad=True)


# -- the criterion ---------------------------------------------------------------------


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("rho", [0.0, 0.1, 1.0, 100.0])
def test_numbers_are_those_of_worst_case(divergence, rho):
    losses = some_losses()
    criterion = RobustLoss(rho, divergence)
    loss = criterion(losses)
    loss.backward()
    want = worst_case(losses.detach().numpy(), rho, divergence)
    assert loss.dtype == torch.float64
    np.testing.assert_allclose(loss.item(), want.value, rtol=1e-12)
    np.testing.assert_allclose(losses.grad.numpy(), want.weights, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(criterion.weights.numpy(), want.weights)
    assert criterion.certificate.gap == want.gap


@pytest.mark.parametrize(("dtype", "out"), [
    (torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float16, torch.float32),
])  # fmt: skip
def test_narrow_numbers(dtype, out):
    losses = some_losses(dtype=dtype)
    loss = RobustLoss(0.5)(losses)
    assert loss.dtype == out
    want = worst_case(losses.detach().double().numpy(), 0.5)
    np.testing.assert_allclose(loss.item(), want.value, rtol=1e-6)
    loss.backward()
    assert losses.grad.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    np.testing.assert_allclose(losses.grad.double().numpy(), want.weights, rtol=tolerance)


def test_base_weights_and_groups():
    losses = some_losses(60)
    base = torch.rand(60, dtype=torch.float64)
    z = losses.detach().numpy()
    found = RobustLoss(0.3, "kl")(losses, sample_weight=base).item()
    np.testing.assert_allclose(found, worst_case(z, 0.3, "kl", base.numpy()).value, rtol=1e-12)
    names = np.array(["a", "b", "c"])[np.arange(60) % 3]
    means = [z[names == name].mean() for name in "abc"]
    for groups in (names, torch.arange(60) % 3):
        criterion = RobustLoss(0.2)
        np.testing.assert_allclose(
            criterion(losses, groups=groups).item(), worst_case(means, 0.2).value, rtol=1e-12
        )
        np.testing.assert_allclose(criterion.weights.sum().item(), 1.0)
    np.testing.assert_allclose(
        RobustLoss(1e6)(losses, groups=names).item(), max(means), rtol=1e-12
    )  # the worst group


def test_losses_that_are_not_finite():
    losses = torch.tensor([1.0, float("nan"), 2.0, float("inf")], requires_grad=True)
    with pytest.raises(ValueError, match="1 NaN and 1 infinite of 4"):
        RobustLoss()(losses)
    criterion = RobustLoss(0.1, nan="skip")
    loss = criterion(losses)
    np.testing.assert_allclose(loss.item(), worst_case([1.0, 2.0], 0.1).value, rtol=1e-6)
    assert criterion.weights[[1, 3]].tolist() == [0.0, 0.0]
    loss.backward()
    assert torch.isfinite(losses.grad).all()
    with pytest.raises(ValueError, match="Got none of 2"):
        criterion(torch.full((2,), float("nan")))
    with pytest.raises(ValueError, match="1 NaN and 1 infinite of 4"):
        RobustLoss()(losses, groups=[0, 0, 1, 1])
    criterion(losses, groups=[0, 1, 1, 2])
    assert criterion.weights[[1, 3]].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="without a bias"):
        criterion(losses, Multilevel(4, batch_size=4).draw(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("losses", "pattern"),
    [
        (torch.tensor(1.0), r"reduction='none'.*shape \(\)"),
        (torch.ones(2, 3), r"shape \(2, 3\)"),
        (torch.ones(0), "at least one number"),
        (torch.ones(3, dtype=torch.int64), "floating-point numbers. Got torch.int64"),
        ([1.0, 2.0], "must be a tensor .* Got list"),
    ],
)
def test_losses_of_the_wrong_kind(losses, pattern):
    with pytest.raises(ValueError, match=pattern) as caught:
        RobustLoss()(losses)
    assert "\n" not in str(caught.value)


def test_other_mistakes():
    losses = torch.ones(3)
    with pytest.raises(ValueError, match="'rho' parameter"):
        RobustLoss(-1.0)
    with pytest.raises(ValueError, match="'nan' parameter"):
        RobustLoss(nan="drop")
    with pytest.raises(ValueError, match="one weight for each of the 3 losses"):
        RobustLoss()(losses, sample_weight=torch.ones(2))
    draw = Multilevel(100, batch_size=8).draw(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"the draw|The draw has \d+ rows and there are 3 losses"):
        RobustLoss()(losses, draw)
    full = torch.ones(draw.indices.size)
    with pytest.raises(ValueError, match=r"rho = 0.1 and the criterion for 0.2"):
        RobustLoss(0.2)(full, draw)
    with pytest.raises(ValueError, match="must be a Draw"):
        RobustLoss()(losses, "all")
    with pytest.raises(ValueError, match="'process_group' parameter"):
        RobustLoss(process_group="gloo")
    assert RobustLoss(process_group=False).process_group is None
    for wrong in ("abc", ["a"] * 3, torch.ones(3, dtype=torch.complex64)):
        with pytest.raises(ValueError, match="'sample_weight' parameter must"):
            RobustLoss()(losses, sample_weight=wrong)
    with pytest.raises(ValueError, match="dense tensor"):
        RobustLoss()(losses.to_sparse())
    assert repr(RobustLoss(0.5, nan="skip")) == (
        "RobustLoss(rho=0.5, divergence=ChiSquare(), nan='skip')"
    )
    with pytest.raises(ValueError, match="either 'draw' or 'groups'"):
        RobustLoss()(full, draw, groups=np.zeros(full.numel()))


def test_without_torch_the_remedy_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('gone', name='torch')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import drolearn.nn"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "drolearn.nn needs PyTorch: pip install 'drolearn[torch]'." in ran.stderr


def tiny_net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def rows(n=200, seed=1):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=rng)
    return x, (x[:, 0] + 0.5 * torch.randn(n, generator=rng) > 0).float()


def bce(model, batch):
    x, y = batch
    scores = model(x)[:, 0]
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, y, reduction="none")


def gradient(model):
    return torch.cat([p.grad.ravel() for p in model.parameters()])


def test_gradient_of_a_network_is_danskins():
    """Against differences of the robust loss itself."""
    model, batch = tiny_net().double(), [part.double() for part in rows()]
    criterion = RobustLoss(0.5)
    criterion(bce(model, batch)).backward()
    found = gradient(model)
    direction = torch.randn(found.numel(), dtype=torch.float64)
    vector = torch.nn.utils.parameters_to_vector(model.parameters()).detach()

    def value(step):
        torch.nn.utils.vector_to_parameters(vector + step * direction, model.parameters())
        with torch.no_grad():
            return criterion(bce(model, batch)).item()

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    np.testing.assert_allclose((found @ direction).item(), slope, rtol=1e-6)


def test_autocast_scaling_and_checkpointing():
    from torch.utils.checkpoint import checkpoint

    model, batch = tiny_net(), rows()
    RobustLoss()(bce(model, batch)).backward()
    plain = gradient(model)
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = RobustLoss()(bce(model, batch))
    assert loss.dtype == torch.float32
    loss.backward()
    np.testing.assert_allclose(gradient(model), plain, rtol=0.1, atol=2e-3)
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(RobustLoss()(bce(model, batch))).backward()
    np.testing.assert_allclose(gradient(model) / 1024.0, plain, rtol=1e-4, atol=1e-7)
    model.zero_grad()
    scores = checkpoint(model, batch[0], use_reentrant=False)[:, 0]
    function = torch.nn.functional.binary_cross_entropy_with_logits
    RobustLoss()(function(scores, batch[1], reduction="none")).backward()
    np.testing.assert_allclose(gradient(model), plain, rtol=1e-5, atol=1e-8)


#: Named as another, and as a name alone does not tell.
HALF = Divergence.custom(
    lambda s: (s - 1.0) ** 2 / 2.0, lambda s: s - 1.0, lambda t: np.maximum(t + 1.0, 0.0),
    name="kl", phi_zero=0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("divergence", "whole"),
    [*((name, True) for name in DIVERGENCES), (CressieRead(3.0), False), (HALF, False)],
)
@pytest.mark.parametrize("device", [False, True])
def test_compiled(monkeypatch, divergence, whole, device):
    """One graph where a name tells the divergence; on the host, and as on another device."""
    if device:
        monkeypatch.setattr(criterion_module, "_HOSTS", set())
    torch.compiler.reset()
    criterion = RobustLoss(0.3, divergence)
    fast = torch.compile(criterion, backend="aot_eager", fullgraph=whole)
    losses = some_losses()
    loss = fast(losses)
    loss.backward()
    want = worst_case(losses.detach().numpy(), 0.3, divergence)
    np.testing.assert_allclose(loss.item(), want.value, rtol=1e-10)
    np.testing.assert_allclose(losses.grad.numpy(), want.weights, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(float(criterion.certificate.value), want.value, rtol=1e-10)
    assert float(criterion.certificate.gap) < 1e-9


def test_compiled_losses_that_are_not_finite():
    torch.compiler.reset()
    losses = torch.tensor([-1.0, math.nan, -2.0, -3.0])
    fast = torch.compile(RobustLoss(0.3), backend="aot_eager")
    with pytest.raises(ValueError, match="1 NaN and 0 infinite of 4"):
        fast(losses)
    skipping = torch.compile(RobustLoss(0.3, nan="skip"), backend="aot_eager")
    want = worst_case([-1.0, -2.0, -3.0], 0.3).value
    np.testing.assert_allclose(skipping(losses).item(), want, rtol=1e-6)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("nan", ["raise", "skip"])
def test_as_on_another_device(monkeypatch, divergence, nan):
    """What would happen to losses that the host cannot read."""
    monkeypatch.setattr(criterion_module, "_HOSTS", set())
    losses, base = some_losses(), torch.rand(50, dtype=torch.float64, requires_grad=True)
    criterion = RobustLoss(0.3, divergence, nan=nan)
    criterion(losses, sample_weight=base).backward()
    assert base.grad is None
    assert not criterion.weights.requires_grad
    base = base.detach()
    want = worst_case(losses.detach().numpy(), 0.3, divergence, base.numpy())
    np.testing.assert_allclose(losses.grad.numpy(), want.weights, rtol=1e-8, atol=1e-12)
    assert isinstance(criterion.certificate, DeviceWorstCase) == (divergence in ("chi2", "kl"))
    np.testing.assert_allclose(float(criterion.certificate.value), want.value, rtol=1e-10)
    for wrong, pattern in (
        (-base, "weights of at least 0"), (base * math.nan, "Got nan"), (0 * base, "positive sum"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=pattern):
            criterion(losses, sample_weight=wrong)
    spoiled = losses.detach() - 10.0  # all negative: what is skipped must not be the largest
    spoiled[3] = math.nan
    if nan == "raise":
        with pytest.raises(ValueError, match="1 NaN and 0 infinite of 50"):
            criterion(spoiled)
    else:
        found = criterion(spoiled).item()
        assert criterion.weights[3] == 0.0
        left = np.delete(spoiled.numpy(), 3)
        np.testing.assert_allclose(found, worst_case(left, 0.3, divergence).value, rtol=1e-10)


@pytest.mark.parametrize(("solve", "divergence"), [(solve_chi2, "chi2"), (solve_kl, "kl")])
def test_solvers_in_single_precision(solve, divergence):
    """For devices without double precision."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, rho = int(rng.integers(2, 2000)), 10.0 ** rng.uniform(-8.0, 1.0)
        z = torch.tensor(rng.exponential(size=n) * 10.0 ** rng.uniform(-2, 2), dtype=torch.float32)
        found = solve(z, torch.full((n,), 1.0 / n), rho)
        want = worst_case(z.double().numpy(), rho, divergence)
        np.testing.assert_allclose(found.value.item(), want.value, rtol=1e-5)
        np.testing.assert_allclose(found.weights.numpy(), want.weights, atol=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 200), st.integers(0, 10**6), st.floats(-16.0, 3.0), st.booleans(), st.booleans(),
    st.sampled_from(["chi2", "kl"]),
)  # fmt: skip
def test_solvers_on_a_device(n, seed, exponent, weighted, ties, divergence):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(n) ** 3 * 10.0 ** rng.uniform(-3, 3) + rng.choice([0.0, -7.0])
    z = np.round(z) if ties else z
    b = rng.random(n) * (rng.random(n) < 0.7) if weighted else np.ones(n)
    b[rng.integers(n)] += 1e-3 if weighted else 0.0  # or all could be without weight
    rho = 10.0**exponent  # the least of which count as 0
    solve = solve_chi2 if divergence == "chi2" else solve_kl
    found = solve(torch.from_numpy(z), torch.from_numpy(b / b.sum()), rho)
    want = worst_case(z, rho, divergence, b)
    scale = max(np.ptp(z[b > 0.0]), 1e-12)
    close = 1e-10 if rho > 1e-12 else 1e-8  # where ρ itself is not far from rounding
    assert abs(found.value.item() - want.value) <= close * scale + 1e-12 * abs(want.value)
    assert found.gap.item() <= 10.0 * close * scale
    assert found.achieved.item() <= rho * (1.0 + 1e-8) + 1e-12
    np.testing.assert_allclose(found.weights.sum().item(), 1.0, rtol=1e-12)
    assert (found.weights.numpy()[b == 0.0] == 0.0).all()
    if rho > 1e-8 and want.alpha > 1e-6 * scale:  # not where the ball has just filled up
        np.testing.assert_allclose(found.alpha.item(), want.alpha, rtol=1e-4)
        np.testing.assert_allclose(found.lam.item(), want.lam, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize(("solve", "divergence"), [(solve_chi2, "chi2"), (solve_kl, "kl")])
@pytest.mark.parametrize(
    ("z", "b", "rho"),
    [
        ([0.0] * 9999 + [1.0], None, 5.0),
        ([0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1e-6], 1.0),
        ([0.0, 0.1, 0.2, 1.0], [1.0, 1.0, 1.0, 1e-17], 3.0),
        ([0.0, 1.0], [1.0, 1e-10], 1e10 * (1.0 - 1e-3)),
        ([0.0, 0.5, 1.0], [1.0, 1.0, 1e-9], 4e8),
        ([0.6, 0.3, 0.0], None, math.nextafter(2.0, 0.0)),
        ([0.5, 1.0, 2.0, 10.0], [1.0, 1.0, 1.0, 0.0], 5.0),
        ([1e308, -1e308, 0.0], None, 0.1),
        ([1e-200, 3e-200, 7e-200], None, 0.1),
        ([3.0, 3.0, 3.0], None, 0.1),
        ([3.0], None, 0.1),
        ([1.0, 2.0, 4.0], None, 0.0),
        ([1.0, 2.0, 4.0], None, math.inf),
    ],
)
def test_solvers_at_the_edges(solve, divergence, z, b, rho):
    z, b = np.array(z), np.ones(len(z)) if b is None else np.array(b)
    found = solve(torch.from_numpy(z), torch.from_numpy(b / b.sum()), rho)
    want = worst_case(z, rho, divergence, b)
    assert abs(found.value.item() - want.value) <= 1e-10 * np.abs(z).max()
    np.testing.assert_allclose(found.weights.numpy(), want.weights, atol=1e-10)
    assert found.gap.item() <= 1e-9 * np.abs(z).max()
    assert found.achieved.item() <= rho * (1.0 + 1e-9) + 1e-14


# -- batches ---------------------------------------------------------------------------


class Numbered(Dataset):
    """Rows that know their number."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(float(i))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_draw_comes_with_its_batch(workers):
    batches = MultilevelBatches(500, batch_size=16, fire=0.5, steps=30, random_state=3)
    seen = list(batches.loader(Numbered(500), num_workers=workers))
    assert len(seen) == len(batches) == 30
    sizes = set()
    for step, (batch, draw) in enumerate(seen):
        np.testing.assert_array_equal(batch.numpy(), draw.indices)
        want = MultilevelBatches(500, batch_size=16, fire=0.5, random_state=3).draw(step)
        np.testing.assert_array_equal(draw.indices, want.indices)
        np.testing.assert_array_equal(draw.blocks, want.blocks)
        sizes.add(draw.indices.size)
    assert len(sizes) > 2


def test_signed_weights_are_those_of_the_draw():
    batches = MultilevelBatches(500, batch_size=16, fire=1.0, random_state=3)
    criterion = RobustLoss(0.1, "kl")
    for step in range(5):
        draw = batches.draw(step).to("cpu", non_blocking=True)  # as trainers do with batches
        losses = some_losses(draw.indices.size, step)
        loss = criterion(losses, draw)
        loss.backward()
        want = draw.weights(losses.detach().numpy(), "kl")
        np.testing.assert_array_equal(losses.grad.numpy(), want)
        np.testing.assert_allclose(loss.item(), want @ losses.detach().numpy(), rtol=1e-12)


@pytest.mark.slow
def test_gradient_of_a_network_is_unbiased():
    """Mean of many draws against the gradient of all rows, and the bias of a fixed batch."""
    model, (x, y) = tiny_net(3).double(), rows(256, 5)
    batch = x.double(), y.double()
    RobustLoss(1.0)(bce(model, batch)).backward()
    want = gradient(model).numpy()
    with torch.no_grad():
        z = bce(model, batch).numpy()
    each = []  # gradients of the single rows, so that many draws are cheap
    for i in range(256):
        model.zero_grad()
        bce(model, (batch[0][i : i + 1], batch[1][i : i + 1])).sum().backward()
        each.append(gradient(model).numpy())
    each = np.array(each)
    direction = want / np.linalg.norm(want)
    along = each @ direction
    batches = MultilevelBatches(256, batch_size=16, rho=1.0, fire=0.5, random_state=0)
    found = []
    for step in range(20_000):
        draw = batches.draw(step)
        found.append(draw.weights(z[draw.indices]) @ along[draw.indices])
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - want @ direction) < 4.0 * error
    rng, fixed = np.random.default_rng(0), []
    for _ in range(20_000):
        chosen = rng.choice(256, 16, replace=False)
        fixed.append(worst_case(z[chosen], 1.0).weights @ along[chosen])
    error = np.std(fixed) / np.sqrt(len(fixed))
    assert abs(np.mean(fixed) - want @ direction) > 10.0 * error


def test_stopped_and_resumed_to_the_same_bits(tmp_path):
    def train(model, optimiser, batches, data, steps):
        criterion = RobustLoss()
        for batch, draw in batches.loader(data):
            optimiser.zero_grad()
            criterion(bce(model, batch), draw).backward()
            optimiser.step()
            steps -= 1
            if steps == 0:
                return

    def new():
        model = tiny_net()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        return model, optimiser, MultilevelBatches(200, batch_size=16, steps=20, random_state=1)

    data = TensorDataset(*rows())
    model, optimiser, batches = new()
    train(model, optimiser, batches, data, 20)
    other, its_optimiser, its_batches = new()
    train(other, its_optimiser, its_batches, data, 7)
    torch.save([other.state_dict(), its_optimiser.state_dict(), its_batches.state_dict(),
                RobustLoss().state_dict()], tmp_path / "checkpoint.pt")  # fmt: skip
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state[2]["step"] == 7
    RobustLoss().load_state_dict(state[3])
    third, its_optimiser, its_batches = new()
    for part, saved in zip((third, its_optimiser, its_batches), state[:3], strict=True):
        part.load_state_dict(saved)
    train(third, its_optimiser, its_batches, data, math.inf)  # what is left of the epoch
    assert its_batches.step == 20
    for a, b in zip(model.parameters(), third.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="make the batches as they were"):
        MultilevelBatches(100).load_state_dict(state[2])


def test_processes_draw_independently():
    one, two = (MultilevelBatches(500, random_state=0, rank=rank).draw(0) for rank in (0, 1))
    assert one.indices.tolist() != two.indices.tolist()


def test_batches_of_the_wrong_data():
    with pytest.raises(ValueError, match="has 10 rows and the draws are from 20"):
        MultilevelBatches(20, batch_size=4).loader(Numbered(10))
    with pytest.raises(ValueError, match="is for an IterableDataset"):
        MultilevelBatches(None).loader(Numbered(10))
    with pytest.raises(ValueError, match="'max_level' parameter is for streams"):
        MultilevelBatches(100, max_level=3)
    with pytest.raises(ValueError, match="from 0 to 40"):
        MultilevelBatches(None, max_level=99)
    with pytest.raises(ValueError, match="'batch_size' parameter"):
        MultilevelBatches(100, batch_size=0)
    for wrong in (2.5, True, "a", 0):
        with pytest.raises(ValueError, match="'n' parameter"):
            MultilevelBatches(wrong)
    for wrong in (-1, 1.5, "a"):
        with pytest.raises(ValueError, match="'rank' parameter"):
            MultilevelBatches(100, rank=wrong)
    with pytest.raises(ValueError, match="'fire' parameter"):
        MultilevelBatches(100, fire="a")
    with pytest.raises(ValueError, match="'probabilities' parameter"):
        MultilevelBatches(1000, probabilities="abc")
    with pytest.raises(ValueError, match="rows by number"):
        MultilevelBatches(100).loader(iter([]))
    with pytest.raises(ValueError, match="'in_order'"):
        MultilevelBatches(10).loader(Numbered(10), in_order=False)
    with pytest.raises(ValueError, match="without method, step"):
        MultilevelBatches(10).load_state_dict({"seed": 0, "steps": 1})
    assert MultilevelBatches(None, batch_size=2**40).method.n < 2**63


def test_an_epoch_reads_about_all_rows():
    batches = MultilevelBatches(5000, batch_size=16, random_state=0)
    read = sum(draw.indices.size for _, draw in batches.loader(Numbered(5000)))
    assert 3500 < read < 7500
    assert batches.step == len(batches)
    equal = MultilevelBatches(5000, batch_size=np.int64(16), rho=np.float64(0.1))
    equal.load_state_dict(batches.state_dict())  # the same settings, of other types
    assert equal.seed == batches.seed


# -- streams ---------------------------------------------------------------------------


class Stream(IterableDataset):
    """Numbers without end, or so many."""

    def __init__(self, length=None):
        self.length = length

    def __iter__(self):
        rng = np.random.default_rng(0)
        i = 0
        while self.length is None or i < self.length:
            yield torch.tensor([float(i), rng.exponential()], dtype=torch.float64)
            i += 1


def test_streams_are_read_in_order_and_once():
    batches = MultilevelBatches(None, batch_size=8, fire=0.5, steps=50, random_state=0)
    at, sizes = 0, []
    for batch, draw in batches.loader(Stream()):
        n = draw.indices.size
        np.testing.assert_array_equal(batch[:, 0].numpy(), np.arange(at, at + n))
        np.testing.assert_array_equal(draw.indices, np.arange(n))
        at += n
        sizes.append(n)
    assert min(sizes) == 8
    assert max(sizes) > 16
    assert batches.method.cost < 5 * 8  # on average, of levels without end


def test_streams_go_on_and_begin_again():
    batches = MultilevelBatches(None, batch_size=8, steps=10, random_state=0)
    loader, expected, starts = batches.loader(Stream(300)), 0, 0
    for turn in range(8):
        for batch, draw in loader:
            assert len(batch) == draw.indices.size
            first = int(batch[0, 0])
            assert first in (expected, 0)
            starts += first == 0
            expected = first + len(batch)
            if turn == 0:
                break  # nothing of the stream is lost
    assert starts > 1
    exact = MultilevelBatches(None, batch_size=8, max_level=0, steps=5).loader(Stream(40))
    assert [sum(1 for _ in exact) for _ in range(4)] == [5, 5, 5, 5]
    with pytest.raises(ValueError, match="ended after 5 rows, before its first draw of 8"):
        list(batches.loader(Stream(5)))


@pytest.mark.slow
def test_streams_are_unbiased_for_the_population():
    """The worst half of exponential losses has the mean 1 + log 2."""
    from drolearn import CVaR

    steps = 4000
    batches = MultilevelBatches(None, batch_size=8, fire=0.5, steps=steps, random_state=0)
    criterion = RobustLoss(0.1, CVaR(0.5))
    found = [criterion(b[:, 1], draw).item() for b, draw in batches.loader(Stream())]
    want = 1.0 + np.log(2.0)
    error = np.std(found) / np.sqrt(steps)
    assert abs(np.mean(found) - want) < 4.0 * error
    assert error < 0.02
    capped = MultilevelBatches(None, batch_size=8, max_level=0, steps=steps, random_state=0)
    low = [criterion(b[:, 1], draw).item() for b, draw in capped.loader(Stream())]
    error = np.std(low) / np.sqrt(steps)
    assert np.mean(low) < want - 4.0 * error  # a small batch sees too little of the tail


@pytest.mark.parametrize("max_level", [0, 2, 4])
@pytest.mark.parametrize("rows", [600, 60_000])
def test_bias_of_a_cap(max_level, rows):
    """Exponential losses: R = 1 + √ρ, where all of the population keeps some weight."""
    rng = np.random.default_rng(max_level)
    capped = MultilevelBatches(None, batch_size=16, rho=0.5, max_level=max_level)
    n = 16 << max_level
    small = [worst_case(rng.exponential(size=n), 0.5).value for _ in range(200_000 // n)]
    want, its_error = 1.0 + 0.5**0.5 - np.mean(small), np.std(small) / np.sqrt(len(small))
    bias, error = capped.bias(rng.exponential(size=rows))
    assert abs(bias - want) < 4.0 * np.hypot(error, its_error) + 0.3 * want  # a law of large n
    assert 0.0 < error < (0.5 if rows == 600 else 0.1) * want + its_error
    assert MultilevelBatches(None).bias(np.ones(5)) == (0.0, 0.0)
    assert MultilevelBatches(100).bias(np.ones(5)) == (0.0, 0.0)


def test_bias_of_what_cannot_be_halved():
    capped = MultilevelBatches(None, max_level=1)
    with pytest.raises(ValueError, match="at least 4 numbers"):
        capped.bias([1.0, 2.0])
    with pytest.raises(ValueError, match="1 NaN and 0 infinite of 4"):
        capped.bias([1.0, 2.0, 3.0, np.nan])


# -- draws larger than memory ----------------------------------------------------------


@pytest.mark.parametrize("micro", [1, 7, 1000])
def test_two_passes_give_the_gradient_of_one(micro):
    data = TensorDataset(*rows())
    draw = MultilevelBatches(200, batch_size=16, fire=1.0, random_state=2).draw(3)
    model = tiny_net()
    loss = RobustLoss()(bce(model, data[draw.indices]), draw)
    loss.backward()
    want = gradient(model)
    model.zero_grad()
    value = robust_backward(model, bce, data, draw, micro)
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient(model), want, rtol=1e-4, atol=1e-6)


class Held:
    """Numbers that autograd keeps for the way back, now and at most."""

    now = most = 0

    def __init__(self, tensor):
        self.tensor = tensor
        Held.now += tensor.numel()
        Held.most = max(Held.most, Held.now)

    def __del__(self):
        Held.now -= self.tensor.numel()


@pytest.mark.slow
def test_memory_does_not_depend_on_the_level():
    """What is kept for the way back, and the largest batch, in draws of 50 to 5,000 rows."""
    n = 5000
    data = TensorDataset(*rows(n))
    method, rng = Multilevel(n, batch_size=16, probabilities=(0.125,) * 8), np.random.default_rng(0)
    seen, kept = [], {}

    def losses(model, batch):
        seen.append(len(batch[0]))
        return bce(model, batch)

    for _ in range(30):
        draw = method.draw(rng)
        Held.now = Held.most = 0
        with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
            robust_backward(tiny_net(), losses, data, draw, 16)
        kept[draw.indices.size] = Held.most
    assert max(kept) > 20 * min(kept)
    assert len(set(kept.values())) == 1
    assert min(kept.values()) > 0
    assert max(seen) == 16


def test_mistakes_in_two_passes():
    data, draw = (
        TensorDataset(*rows()),
        MultilevelBatches(200, batch_size=16, random_state=2).draw(3),
    )
    model = tiny_net()
    for wrong, pattern in (
        (lambda model, batch: bce(model, batch).mean(), "reduction='none'"),
        (lambda model, batch: bce(model, batch)[:-1], "one loss for each of the 8 examples"),
        (lambda model, batch: bce(model, batch).detach(), "losses have no gradient"),
    ):
        before = torch.get_rng_state()
        with pytest.raises(ValueError, match=pattern):
            robust_backward(model, wrong, data, draw, 8)
        assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="must be a Draw"):
        robust_backward(model, bce, data, "all")


def test_rows_without_weight_are_passed_once():
    """But for the last micro-batch, where processes exchange gradients."""
    data = TensorDataset(*rows())
    draw = MultilevelBatches(200, batch_size=64, rho=50.0, random_state=2).draw(3)
    seen = []

    def losses(model, batch):
        seen.append(torch.is_grad_enabled())
        return bce(model, batch)

    criterion = RobustLoss(50.0)
    robust_backward(tiny_net(), losses, data, draw, 1, criterion=criterion)
    used = criterion.weights != 0.0
    assert seen.count(False) == draw.indices.size
    assert seen.count(True) == int(used.sum()) + int(not used[-1]) < draw.indices.size


def test_dropout_is_the_same_in_both_passes():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1)
    )
    data = TensorDataset(*rows())
    draw = MultilevelBatches(200, batch_size=16, fire=1.0, random_state=2).draw(3)
    first, second = [], []

    def losses(model, batch):
        out = bce(model, batch)
        (second if torch.is_grad_enabled() else first).append(out.detach())
        return out

    torch.manual_seed(0)
    robust_backward(model, losses, data, draw, 16)
    after = torch.get_rng_state()
    assert all(any(torch.equal(a, b) for a in first) for b in second)
    torch.manual_seed(0)
    with torch.no_grad():  # random numbers go on as after one pass
        for some in np.split(draw.indices, range(16, draw.indices.size, 16)):
            losses(model, data[some])
    assert torch.equal(torch.get_rng_state(), after)


# -- many processes --------------------------------------------------------------------


def torchrun(processes, parts):
    script = Path(__file__).with_name("distributed.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", str(script), *parts.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_together_are_one(processes):
    """To 1e-12, for uneven and empty shards, groups and draws of different sizes; and bad losses
    of one process are an error in all.  See distributed.py.
    """
    ran = torchrun(processes, "equal grouped passes bad")
    assert ran.returncode == 0, ran.stderr[-3000:]
    for said in ("equal", "grouped", "passed", "refused"):
        assert ran.stdout.count(said) == processes


@pytest.mark.slow
def test_two_nodes_of_two_processes():
    """Where the rank is not the local rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("distributed.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    command += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    nodes = [
        subprocess.Popen(
            [*command, f"--node-rank={node}", str(script), "equal"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for node in range(2)
    ]  # fmt: skip
    for node in nodes:
        out, said = node.communicate(timeout=240)
        assert node.returncode == 0, said[-3000:]
        assert out.count("equal") == 2


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others():
    """Without torchrun, which would end the others itself."""
    script = Path(__file__).with_name("distributed.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), "dies"], env=os.environ | group | {"RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=200)[1] for process in processes]
    assert processes[1].returncode == 3
    assert processes[0].returncode == 1
    assert "A process of the group has not taken part in gathering the losses" in said[0]
    assert time.monotonic() - began < 120.0
