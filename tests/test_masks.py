"""Masks of `RobustLoss`: the result is that of `losses[mask]`, and padding has no gradient.

`python -m tests.test_masks FOLDER` runs the check of several processes.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, jvp, vmap

from drolearn import CressieRead
from drolearn.nn import RobustLoss
from tests import distributed
from tests.examples import radius_of
from tests.networks import DIVERGENCES, DRAW, HALF, on_device

pytestmark = [
    pytest.mark.xdist_group("torch"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]
ROOT = Path(__file__).parents[1]
MASK = torch.rand(6, 9, generator=torch.Generator().manual_seed(0)) < 0.6
EVERY = [*DIVERGENCES, CressieRead(3.0), HALF]


def padded_losses(dtype=torch.float64):
    """Losses of 6 × 9 tokens, with NaN and infinities where the mask is False."""
    z = np.random.default_rng(1).exponential(size=MASK.shape)
    losses = torch.tensor(z, dtype=dtype)
    bad = torch.tensor([math.nan, math.inf, -math.inf], dtype=dtype).repeat(18).reshape(6, 9)
    return torch.where(MASK, losses, bad).requires_grad_()


def options_of(name):
    """Arguments for all tokens."""
    rng = torch.Generator().manual_seed(2)
    base = torch.rand(6, 9, generator=rng).masked_fill(~MASK, math.nan)
    numbers = torch.randint(0, 3, (6, 9), generator=rng)
    names = np.array(["a", "b", "c"])[numbers.numpy()]
    return {
        "plain": {},
        "weights": {"sample_weight": base},
        "numbers": {"groups": numbers},
        "names": {"groups": names, "sample_weight": base},
        "lists": {"groups": names.tolist()},
    }[name]


def selected(options):
    """The same for the tokens that the mask keeps."""
    return {
        key: value[MASK] if isinstance(value, torch.Tensor) else np.asarray(value)[MASK.numpy()]
        for key, value in options.items()
    }


def assert_masked(criterion, losses, **options):
    """The result with a mask is that of the losses that it keeps, to the bit."""
    losses.grad = None
    loss = criterion(losses, mask=MASK, **options)
    loss.backward()
    weights = criterion.weights
    kept = losses.detach()[MASK].requires_grad_()
    want = criterion(kept, **selected(options))
    want.backward()
    assert torch.equal(loss, want)
    assert loss.dtype == want.dtype
    assert torch.equal(losses.grad[MASK], kept.grad)
    assert losses.grad[~MASK].tolist() == [0.0] * int((~MASK).sum())
    assert torch.equal(weights[MASK], criterion.weights)
    assert weights.shape == losses.shape
    assert not weights[~MASK].any()


@pytest.mark.parametrize("divergence", EVERY, ids=str)
@pytest.mark.parametrize("options", ["plain", "weights", "numbers", "names", "lists"])
def test_a_mask_equals_the_losses_that_it_keeps(divergence, options):
    assert_masked(
        RobustLoss(radius_of(divergence, 0.3), divergence), padded_losses(), **options_of(options)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_masks_in_lower_precision(dtype):
    assert_masked(RobustLoss(0.3), padded_losses(dtype))


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger"])
@pytest.mark.parametrize("options", ["plain", "weights", "numbers"])
def test_masks_on_another_device(monkeypatch, divergence, options):
    on_device(monkeypatch)
    assert_masked(
        RobustLoss(radius_of(divergence, 0.3), divergence), padded_losses(), **options_of(options)
    )


def test_masks_and_losses_that_are_skipped():
    losses = padded_losses()
    with torch.no_grad():
        losses[tuple(MASK.nonzero()[3])] = math.nan
    with pytest.raises(ValueError, match=f"1 NaN and 0 infinite of {int(MASK.sum())}"):
        RobustLoss()(losses, mask=MASK)
    assert_masked(RobustLoss(nan="skip"), losses)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32])
@pytest.mark.parametrize("shape", [(54,), (6, 9), (2, 3, 9)])
def test_types_and_shapes_of_masks(dtype, shape):
    losses, want = padded_losses().detach(), RobustLoss()(padded_losses().detach()[MASK])
    criterion = RobustLoss()
    mask = MASK.to(dtype).reshape(shape)
    assert torch.equal(criterion(losses.reshape(shape), mask=mask), want)
    assert torch.equal(criterion(losses.reshape(shape), mask=mask.tolist()), want)
    assert criterion.weights.shape == shape
    # Losses that are not contiguous.
    turned = criterion(losses.reshape(6, 9).T, mask=mask.reshape(6, 9).T)
    torch.testing.assert_close(turned, want)


@pytest.mark.parametrize(
    ("mask", "pattern"),
    [
        (MASK[0], r"shape of the losses, \(6, 9\). Got a tensor of shape \(9,\) instead"),
        (MASK.reshape(-1), r"Got a tensor of shape \(54,\) instead"),
        (True, r"Got a tensor of shape \(\) instead"),
        (MASK * 2, "True and False, or 1 and 0. Got 2 instead"),
        (torch.where(MASK, 1.0, 0.5), "1 and 0. Got 0.5 instead"),
        (torch.where(MASK, 1.0, math.nan), "1 and 0. Got nan instead"),
        (MASK.to(torch.complex64), "Got one of type torch.complex64"),
        (MASK.float().to_sparse(), "dense tensor .* layout torch.sparse_coo"),
        ("padding", "Boolean tensor of the shape of the losses. Got str instead"),
        (MASK.to("meta"), "tensor with values. Got a tensor on the meta device"),
        (torch.zeros(6, 9), "keep at least one loss. Got one that keeps none of 54 instead"),
    ],
)
def test_wrong_masks(mask, pattern):
    with pytest.raises(ValueError, match=f"The 'mask' parameter must .*{pattern}") as caught:
        RobustLoss()(padded_losses(), mask=mask)
    assert "\n" not in str(caught.value)


def test_wrong_arguments_besides_a_mask():
    losses = padded_losses()
    with pytest.raises(ValueError, match=r"take the mean over .* shape \(6, 9\)"):
        RobustLoss()(losses)
    with pytest.raises(ValueError, match=r"'losses' parameter .* shape \(\)"):
        RobustLoss()(torch.tensor(1.0), mask=torch.tensor(True))
    with pytest.raises(ValueError, match="at least one number"):
        RobustLoss()(torch.ones(0, 3), mask=torch.ones(0, 3))
    with pytest.raises(ValueError, match="one weight for each of the 54 losses"):
        RobustLoss()(losses, mask=MASK, sample_weight=torch.ones(54))
    for groups in (np.zeros(6), torch.zeros(54)):
        with pytest.raises(ValueError, match=r"'groups' parameter must have the shape .* \(6, 9\)"):
            RobustLoss()(losses, mask=MASK, groups=groups)
    with pytest.raises(ValueError, match="either 'draw' or 'mask'"):
        RobustLoss(0.5)(torch.ones(DRAW.indices.size), DRAW, mask=torch.ones(DRAW.indices.size))


# -- compilation and transforms ----------------------------------------------------------


@pytest.mark.parametrize(
    ("divergence", "options", "fullgraph"),
    [
        *((name, options, True) for name in DIVERGENCES for options in ("plain", "weights")),
        ("chi2", "numbers", False),
        (HALF, "weights", False),
    ],
    ids=str,
)
@pytest.mark.parametrize("device", [False, True])
def test_compiled_masks(monkeypatch, divergence, options, fullgraph, device):
    if device:
        on_device(monkeypatch)
    torch.compiler.reset()
    losses, given = padded_losses(), options_of(options)
    criterion = RobustLoss(radius_of(divergence, 0.3), divergence)
    fast = torch.compile(criterion, backend="aot_eager", fullgraph=fullgraph)
    loss = fast(losses, mask=MASK, **given)
    loss.backward()
    weights, kept = criterion.weights, losses.detach()[MASK].requires_grad_()
    want = RobustLoss(radius_of(divergence, 0.3), divergence)(kept, **selected(given))
    want.backward()
    torch.testing.assert_close(loss, want, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(losses.grad[MASK], kept.grad, rtol=1e-8, atol=1e-12)
    assert not losses.grad[~MASK].any()
    assert torch.equal(weights, losses.grad)
    integers = fast(losses, mask=MASK.int(), **given)
    assert torch.equal(integers, loss)


def test_compiled_masks_that_keep_nothing():
    torch.compiler.reset()
    fast = torch.compile(RobustLoss(), backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match=r"finite number that is not masked\. Got none of 54"):
        fast(padded_losses(), mask=torch.zeros_like(MASK))
    skipping = torch.compile(RobustLoss(nan="skip"), backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match=r"finite number that is not masked\. Got none of 54"):
        skipping(padded_losses(), mask=~MASK)


def test_transforms_of_masks():
    criterion = RobustLoss(0.3)
    losses = padded_losses()
    criterion(losses, mask=MASK).backward()
    numbers = options_of("numbers")

    def value(z):
        return criterion(z, mask=MASK)

    z = losses.detach()
    assert torch.equal(grad(value)(z), losses.grad)
    assert grad(lambda z: criterion(z, mask=MASK, **numbers))(z).isfinite().all()
    _, slope = jvp(value, (z,), (torch.ones_like(z),))
    torch.testing.assert_close(slope, losses.grad.sum())
    with pytest.raises(RuntimeError, match="cannot be vectorised"):
        vmap(value, in_dims=0)(z.expand(2, 6, 9))
    with pytest.raises(RuntimeError, match="cannot be vectorised"):
        vmap(lambda row, mask: criterion(row, mask=mask))(z, MASK)
    (first,) = torch.autograd.grad(value(losses), losses, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated only once"):
        first.sum().backward()


# -- token losses ------------------------------------------------------------------------


def test_tokens_with_ignored_labels():
    """As in the docs, the gradient of the scores of padding is exactly zero."""
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 7, 10, generator=rng, requires_grad=True)
    labels = torch.randint(0, 10, (4, 7), generator=rng)
    labels[0, 3:] = labels[2, 5:] = -100
    kept = labels != -100
    losses = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none", ignore_index=-100)
    criterion = RobustLoss(rho=0.5)
    loss = criterion(losses, mask=kept)
    loss.backward()
    alone = scores.detach()[kept].requires_grad_()
    want = criterion(F.cross_entropy(alone, labels[kept], reduction="none"))
    want.backward()
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(scores.grad[kept], alone.grad)
    assert not scores.grad[~kept].any()
    unmasked = criterion(losses.flatten())  # the zeros of padding would count as losses
    assert abs(unmasked - loss) > 0.01


# -- several processes -------------------------------------------------------------------


def masked(rank: int, world: int) -> None:
    """Masks of single processes give the result of one process with all the losses."""
    for groups in (None, torch.arange(54).reshape(6, 9) % 4):
        losses = padded_losses()
        alone = RobustLoss(0.3)
        want = alone(losses, mask=MASK, groups=groups)
        want.backward()
        mine = slice(6 * rank // world, 6 * (rank + 1) // world)
        part = losses.detach()[mine].requires_grad_()
        together = RobustLoss(0.3, process_group=True)
        loss = together(part, mask=MASK[mine], groups=None if groups is None else groups[mine])
        loss.backward()
        torch.testing.assert_close(loss, want, rtol=1e-12, atol=0.0)
        torch.testing.assert_close(part.grad / world, losses.grad[mine], rtol=1e-12, atol=1e-15)
        assert not part.grad[~MASK[mine]].any()
        torch.testing.assert_close(together.weights, alone.weights[mine], rtol=1e-12, atol=1e-15)
    # Everything is masked in one process, and only one has a mask.
    z = torch.tensor([2.0, math.nan] if rank == 0 else [1.0, 1.0], requires_grad=True)
    loss = together(z, mask=[False, False] if rank == 0 else None)
    loss.backward()
    assert loss.item() == 1.0
    assert z.grad.tolist() == ([0.0, 0.0] if rank == 0 else [world / (2 * world - 2)] * 2)
    with pytest.raises(ValueError, match="all processes together must hold at least one"):
        together(torch.ones(2), mask=torch.zeros(2))
    for wrong in (torch.ones(3), torch.full((2,), 7), "abc"):
        with pytest.raises(ValueError, match=r"'mask' parameter|Process 1 of the group gave"):
            together(torch.ones(2), mask=wrong if rank == 1 else None)
    assert together(torch.ones(3)).item() == 1.0  # the group is still in step
    print("masked", flush=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_masks_in_several_processes(tmp_path):
    command = [sys.executable, "-m", "tests.test_masks", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    for world in (2, 3):
        for rank in range(world):
            output = (tmp_path / f"{world}:masked.{rank}").read_text()
            assert output.split()[-1:] == ["masked"], output[-3000:]
        assert json.loads((tmp_path / f"{world}:masked.json").read_text()) == [0] * world


if __name__ == "__main__":
    vars(distributed)["masked"] = masked
    distributed.fork_all(Path(sys.argv[1]), ["2:masked", "3:masked"])
