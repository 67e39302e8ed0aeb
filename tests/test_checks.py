"""Tensors without values, and numbers of extreme size, in `drolearn.nn`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import (
    grad,
)
from torch.utils.data import TensorDataset

from drolearn.nn import MultilevelBatches, RobustLoss, robust_backward
from tests.examples import radius_of, worst_case
from tests.networks import (
    DRAW,
    HALF,
    PATHS,
    bce,
    call,
    exponential_losses,
    labelled_rows,
    losses_of,
    on_device,
    small_network,
)

pytestmark = [
    pytest.mark.xdist_group("torch"),
    # Warnings of PyTorch about its own code, and about what is tried here.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Please use `torch.vmap` instead:FutureWarning"),
    pytest.mark.filterwarnings(r"ignore:Using backward\(\) with create_graph=True:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning"),
]

# -- tensors without values ------------------------------------------------------------


def meta(tensor):
    return tensor.to("meta")


def fake(tensor):
    return FakeTensorMode().from_tensor(tensor)


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize(("without", "given"), [
    (meta, "a tensor on the meta device"), (fake, "a FakeTensor"),
])  # fmt: skip
def test_tensors_without_values(monkeypatch, without, given, device):
    if device:
        on_device(monkeypatch)
    losses = losses_of()

    def refused(parameter):
        pattern = f"'{parameter}' parameter must be a tensor with values. Got {given}, which has"
        return pytest.raises(ValueError, match=pattern)

    for options in ({}, {"divergence": "kl"}, {"divergence": HALF}, {"nan": "skip"}):
        with refused("losses") as caught:
            RobustLoss(**options)(without(losses))
        assert "\n" not in str(caught.value)
    with refused("losses"):
        RobustLoss()(without(losses), groups=[0, 1] * 5)
    with refused("losses"):
        RobustLoss(0.5)(without(losses_of(DRAW.indices.size)), DRAW)
    with refused("sample_weight"):
        RobustLoss()(losses, sample_weight=without(torch.ones(10)))
    with refused("groups"):
        RobustLoss()(losses, groups=without(torch.arange(10)))
    with refused("losses"):
        MultilevelBatches(None, max_level=1).bias(without(losses))


def test_meta_tensors_in_compiled_criteria():
    """Where the criterion is an operation of the graph, the result has a shape only, too."""
    torch.compiler.reset()
    losses = losses_of().to("meta")
    result = torch.compile(RobustLoss(0.5), backend="eager", fullgraph=True)(losses)
    assert result.is_meta
    assert result.shape == ()
    with pytest.raises(ValueError, match="must be a tensor with values"):
        torch.compile(RobustLoss(0.5, HALF), backend="eager")(losses)


def test_robust_backward_without_values():
    data = TensorDataset(*labelled_rows())
    draw = MultilevelBatches(200, batch_size=16, random_state=2).draw(3)
    with pytest.raises(ValueError, match=r"on the meta device: call model\.to_empty"):
        robust_backward(small_network().to("meta"), bce, data, draw)
    with pytest.raises(ValueError, match="Got a FakeTensor, which has a shape only"):
        robust_backward(small_network(), lambda model, batch: fake(bce(model, batch)), data, draw)


def test_bias_inside_a_transform():
    batches = MultilevelBatches(None, max_level=1)
    with pytest.raises(ValueError, match=r"outside of transforms of torch\.func"):
        grad(lambda z: batches.bias(z)[0] * z.sum())(losses_of(100))


# -- extreme numbers; warnings are errors ----------------------------------------------

EXTREME = {
    "large": [1e300, 2e300, 5e299, 0.0],
    "largest": [1e308, -1e308, 1.7e308, 0.0],
    "small": [1e-300, 3e-300, 2e-300, 0.0],
    "mixed": [1e300, 1e-300, 1.0, -1e300],
}


@pytest.mark.parametrize("losses", EXTREME.values(), ids=EXTREME.keys())
@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger", "cvar", HALF])
@pytest.mark.parametrize("device", [False, True])
def test_extreme_losses_without_warnings(monkeypatch, losses, divergence, device):
    if device:
        on_device(monkeypatch)
    z = torch.tensor(losses, dtype=torch.float64, requires_grad=True)
    expected = worst_case(losses, 0.1, divergence).value
    for options in ({}, {"nan": "skip"}):
        loss = RobustLoss(radius_of(divergence, 0.1), divergence, **options)(z)
        np.testing.assert_allclose(loss.item(), expected, rtol=1e-9, atol=1e-9 * max(losses))
        loss.backward()
        assert torch.isfinite(z.grad).all()
    means = [losses[0] / 2 + losses[1] / 2, losses[2] / 2 + losses[3] / 2]
    grouped = RobustLoss(radius_of(divergence, 0.1), divergence)(z, groups=[0, 0, 1, 1]).item()
    np.testing.assert_allclose(grouped, worst_case(means, 0.1, divergence).value, rtol=1e-9)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", [False, True])
def test_losses_that_are_not_finite_are_named(monkeypatch, bad, path, device):
    if device:
        on_device(monkeypatch)
    function, losses = call(**PATHS[path])
    losses[3] = bad
    if path == "skip":
        assert torch.isfinite(function(losses))
        return
    counts = r"1 NaN and 0 infinite" if math.isnan(bad) else r"0 NaN and 1 infinite"
    with pytest.raises(ValueError, match=f"'losses' parameter must hold finite .* {counts}"):
        function(losses)


def test_overflow_in_half_precision_is_named():
    losses = (torch.tensor([1.0, 300.0, 2.0], dtype=torch.float16) ** 2).requires_grad_()
    with pytest.raises(ValueError, match=r"1 infinite of 3 instead, the first at index 1 \(inf\)"):
        RobustLoss()(losses)
    loss = RobustLoss(nan="skip")(losses)
    np.testing.assert_allclose(loss.item(), worst_case([1.0, 4.0], 0.1).value, rtol=1e-6)


@pytest.mark.parametrize("divergence", ["chi2", "kl"])
def test_weights_whose_sum_overflows(monkeypatch, divergence):
    losses, base = losses_of(), torch.full((10,), 1.7e308, dtype=torch.float64)
    base[0] /= 4.0
    expected = worst_case(losses.numpy(), 0.1, divergence, base.numpy()).value
    for _ in range(2):
        found = RobustLoss(radius_of(divergence, 0.1), divergence)(losses, sample_weight=base)
        np.testing.assert_allclose(found.item(), expected, rtol=1e-10)
        on_device(monkeypatch)


@pytest.mark.parametrize("exponent", [-1000, -500, 500, 1000])
def test_bias_of_extreme_losses(exponent):
    """It scales with the losses, to the bit."""
    losses = np.random.default_rng(0).exponential(size=1000)
    capped = MultilevelBatches(None, batch_size=4, rho=0.5, max_level=1)
    value, error = capped.bias(losses)
    assert value > 0.0 < error
    assert capped.bias(np.ldexp(losses, exponent)) == (
        math.ldexp(value, exponent),
        math.ldexp(error, exponent),
    )
    assert capped.bias(np.zeros(100)) == (0.0, 0.0)


def test_bias_of_tensors():
    capped = MultilevelBatches(None, batch_size=4, rho=0.5, max_level=1)
    losses = exponential_losses(1000)
    expected = capped.bias(losses.detach().numpy())
    assert capped.bias(losses) == expected
    narrow = capped.bias(losses.to(torch.bfloat16))
    np.testing.assert_allclose(narrow.value, expected.value, rtol=0.05)
    assert capped.bias(torch.arange(100)) == capped.bias(np.arange(100))
    for wrong in (torch.ones(5, dtype=torch.complex64), torch.ones(5).to_sparse()):
        with pytest.raises(ValueError, match="'losses' parameter must"):
            capped.bias(wrong)
