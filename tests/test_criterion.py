"""`RobustLoss`: values, gradients, precisions, compilation, other devices, errors."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from drolearn import CressieRead, CVaR, Divergence, Multilevel, worst_case
from drolearn.nn import MultilevelBatches, RobustLoss
from drolearn.nn import criterion as criterion_module
from drolearn.nn.device import DeviceWorstCase
from tests.examples import radius_of
from tests.networks import (
    DIVERGENCES,
    bce,
    exponential_losses,
    gradient,
    labelled_rows,
    small_network,
)

pytestmark = pytest.mark.xdist_group("torch")


def expected(losses, rho, divergence, weights=None):
    """The worst case; CVaR has no radius, and the criterion ignores it."""
    ball = {} if divergence == "cvar" else {"rho": rho}
    return worst_case(losses, divergence=divergence, sample_weight=weights, **ball)


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("rho", [0.0, 0.1, 1.0, 100.0])
def test_value_and_gradient_are_those_of_worst_case(divergence, rho):
    losses = exponential_losses()
    criterion = RobustLoss(radius_of(divergence, rho), divergence)
    loss = criterion(losses)
    loss.backward()
    want = expected(losses.detach().numpy(), rho, divergence)
    assert loss.dtype == torch.float64
    np.testing.assert_allclose(loss.item(), want.value, rtol=1e-12)
    np.testing.assert_allclose(losses.grad.numpy(), want.weights, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(criterion.weights.numpy(), want.weights)
    assert criterion.certificate.gap == want.gap


@pytest.mark.parametrize(("dtype", "out"), [
    (torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float16, torch.float32),
])  # fmt: skip
def test_precisions_below_double(dtype, out):
    losses = exponential_losses(dtype=dtype)
    loss = RobustLoss(0.5)(losses)
    assert loss.dtype == out
    want = worst_case(losses.detach().double().numpy(), 0.5)
    np.testing.assert_allclose(loss.item(), want.value, rtol=1e-6)
    loss.backward()
    assert losses.grad.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    np.testing.assert_allclose(losses.grad.double().numpy(), want.weights, rtol=tolerance)


def test_base_weights_and_groups():
    losses = exponential_losses(60)
    base = torch.rand(60, dtype=torch.float64)
    z = losses.detach().numpy()
    value = RobustLoss(0.3, "kl")(losses, sample_weight=base).item()
    np.testing.assert_allclose(value, worst_case(z, 0.3, "kl", base.numpy()).value, rtol=1e-12)
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
def test_losses_of_the_wrong_shape_or_type(losses, pattern):
    with pytest.raises(ValueError, match=pattern) as caught:
        RobustLoss()(losses)
    assert "\n" not in str(caught.value)


def test_other_errors():
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


def test_import_without_torch_says_what_to_install(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('gone', name='torch')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import drolearn.nn"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "drolearn.nn needs PyTorch: pip install 'drolearn[torch]'." in ran.stderr


def test_gradient_of_a_network():
    """Against finite differences of the robust loss."""
    model, batch = small_network().double(), [part.double() for part in labelled_rows()]
    criterion = RobustLoss(0.5)
    criterion(bce(model, batch)).backward()
    slopes = gradient(model)
    direction = torch.randn(slopes.numel(), dtype=torch.float64)
    vector = torch.nn.utils.parameters_to_vector(model.parameters()).detach()

    def value(step):
        torch.nn.utils.vector_to_parameters(vector + step * direction, model.parameters())
        with torch.no_grad():
            return criterion(bce(model, batch)).item()

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    np.testing.assert_allclose((slopes @ direction).item(), slope, rtol=1e-6)


def test_autocast_scaling_and_checkpointing():
    from torch.utils.checkpoint import checkpoint

    model, batch = small_network(), labelled_rows()
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


# -- compilation and other devices ---------------------------------------------------------------

#: A custom divergence whose name is that of a built-in one.
HALF = Divergence.custom(
    lambda s: (s - 1.0) ** 2 / 2.0, lambda s: s - 1.0, lambda t: np.maximum(t + 1.0, 0.0),
    name="kl", phi_zero=0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("divergence", "fullgraph"),
    [*((name, True) for name in DIVERGENCES), (CressieRead(3.0), False), (HALF, False)],
)
@pytest.mark.parametrize("device", [False, True])
def test_compile(monkeypatch, divergence, fullgraph, device):
    """Divergences that have a name compile to one graph, on the CPU and on other devices."""
    if device:
        monkeypatch.setattr(criterion_module, "_HOSTS", set())
    torch.compiler.reset()
    criterion = RobustLoss(radius_of(divergence, 0.3), divergence)
    fast = torch.compile(criterion, backend="aot_eager", fullgraph=fullgraph)
    losses = exponential_losses()
    loss = fast(losses)
    loss.backward()
    want = expected(losses.detach().numpy(), 0.3, divergence)
    np.testing.assert_allclose(loss.item(), want.value, rtol=1e-10)
    np.testing.assert_allclose(losses.grad.numpy(), want.weights, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(float(criterion.certificate.value), want.value, rtol=1e-10)
    assert float(criterion.certificate.gap) < 1e-9


def test_compiled_criterion_with_losses_that_are_not_finite():
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
def test_losses_on_another_device(monkeypatch, divergence, nan):
    """Losses that the CPU cannot read take the same path as here, with no device being the host."""
    monkeypatch.setattr(criterion_module, "_HOSTS", set())
    losses, base = exponential_losses(), torch.rand(50, dtype=torch.float64, requires_grad=True)
    criterion = RobustLoss(radius_of(divergence, 0.3), divergence, nan=nan)
    criterion(losses, sample_weight=base).backward()
    assert base.grad is None
    assert not criterion.weights.requires_grad
    base = base.detach()
    want = expected(losses.detach().numpy(), 0.3, divergence, base.numpy())
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
        value = criterion(spoiled).item()
        assert criterion.weights[3] == 0.0
        left = np.delete(spoiled.numpy(), 3)
        np.testing.assert_allclose(value, expected(left, 0.3, divergence).value, rtol=1e-10)


def test_signed_weights_are_those_of_the_draw():
    batches = MultilevelBatches(500, batch_size=16, fire=1.0, random_state=3)
    criterion = RobustLoss(0.1, "kl")
    for step in range(5):
        draw = batches.draw(step).to("cpu", non_blocking=True)  # as trainers do with batches
        losses = exponential_losses(draw.indices.size, step)
        loss = criterion(losses, draw)
        loss.backward()
        want = draw.weights(losses.detach().numpy(), "kl")
        np.testing.assert_array_equal(losses.grad.numpy(), want)
        np.testing.assert_allclose(loss.item(), want @ losses.detach().numpy(), rtol=1e-12)


# -- states ----------------------------------------------------------------------------------------

BUILT_IN = [
    *DIVERGENCES,
    "jensen-shannon",
    CVaR(0.25),
    CressieRead(3),
    CressieRead(np.float32(0.5)),
]


@pytest.mark.parametrize("divergence", BUILT_IN, ids=str)
@pytest.mark.parametrize(("rho", "nan"), [(0.1, "raise"), (math.inf, "skip"), (1 / 3, "raise")])
def test_a_state_restores_the_settings(tmp_path, divergence, rho, nan):
    saved = torch.nn.ModuleDict(
        {
            "net": small_network(),
            "loss": RobustLoss(radius_of(divergence, rho), divergence, nan=nan),
        }
    )
    torch.save(saved.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    other = torch.nn.ModuleDict({"net": small_network(), "loss": RobustLoss(7.0, HALF)})
    other.load_state_dict(state)
    assert (other["loss"].rho, other["loss"].nan) == (saved["loss"].rho, nan)
    assert other["loss"].divergence == saved["loss"].divergence
    losses = exponential_losses()
    assert torch.equal(other["loss"](losses), saved["loss"](losses))


def test_a_restored_criterion_compiles():
    """A divergence that was custom before has a name afterwards."""
    torch.compiler.reset()
    criterion = RobustLoss(0.3, HALF)
    criterion.load_state_dict(RobustLoss(0.5, "hellinger").state_dict())
    fast = torch.compile(criterion, backend="aot_eager", fullgraph=True)
    losses = exponential_losses()
    torch.testing.assert_close(fast(losses), RobustLoss(0.5, "hellinger")(losses))


def test_settings_that_change_are_those_of_the_state():
    criterion = RobustLoss(0.1, process_group=True)
    criterion.rho = 0.7  # a schedule of the radius
    other = RobustLoss()
    other.load_state_dict(criterion.state_dict())
    assert other.rho == 0.7
    assert other.process_group is None


def test_states_of_custom_divergences():
    state = RobustLoss(0.5, HALF, nan="skip").state_dict()
    again = Divergence.custom(*HALF._arguments[:3], phi_zero=0.5, name="kl")
    criterion = RobustLoss(0.1, again)
    criterion.load_state_dict(state)
    assert (criterion.rho, criterion.nan) == (0.5, "skip")
    assert criterion.divergence is again
    other = Divergence.custom(*HALF._arguments[:3], phi_zero=0.5, name="half")
    for divergence in ("kl", "chi2", other):
        criterion = RobustLoss(radius_of(divergence, 0.1), divergence)
        with pytest.raises(ValueError, match="custom divergence 'kl', whose functions") as caught:
            criterion.load_state_dict(state)
        assert "\n" not in str(caught.value)
        assert criterion.rho == 0.1


def test_states_without_settings():
    """Those of version 0.1.0 are accepted; later ones are not complete without settings."""
    old = torch.nn.Module.state_dict(torch.nn.Identity())
    inside = torch.nn.Sequential(small_network(), torch.nn.Identity()).state_dict()
    for state in (old, dict(old)):
        criterion = RobustLoss(0.4)
        assert not criterion.load_state_dict(state).missing_keys
        assert criterion.rho == 0.4
    torch.nn.Sequential(small_network(), RobustLoss()).load_state_dict(inside)
    state = RobustLoss().state_dict()
    del state["_extra_state"]
    with pytest.raises(RuntimeError, match=r"Missing key.*_extra_state"):
        RobustLoss().load_state_dict(state)
    assert RobustLoss().load_state_dict(state, strict=False).missing_keys == ["_extra_state"]


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("abc", "'state' parameter must hold the settings"),
        ("[1]", "'state' parameter must hold the settings"),
        ('{"rho": 1}', "'state' parameter must hold the settings"),
        ('{"rho": 1, "nan": "raise", "divergence": "kl"}', "'state' parameter must hold"),
        ('{"rho": 1, "nan": "raise", "divergence": {"name": "kl", "k": 1}}', "'state' parameter"),
        ('{"rho": -1, "nan": "raise", "divergence": {"name": "kl"}}', "'rho' parameter"),
        ('{"rho": 1, "nan": "drop", "divergence": {"name": "kl"}}', "'nan' parameter"),
        ('{"rho": 1, "nan": "raise", "divergence": {"name": "new"}}', "'divergence' parameter"),
    ],
)
def test_states_that_cannot_be_read(text, pattern):
    criterion = RobustLoss(0.4, "kl")
    state = torch.tensor(list(text.encode()), dtype=torch.uint8)
    with pytest.raises(ValueError, match=pattern):
        criterion.load_state_dict({"_extra_state": state})
    assert repr(criterion) == "RobustLoss(rho=0.4, divergence=KL())"


def test_other_states_that_cannot_be_read():
    for wrong in (None, "abc", {"rho": 0.1}, torch.tensor(1.0)):
        with pytest.raises(ValueError, match="'state' parameter must hold the settings"):
            RobustLoss().set_extra_state(wrong)
    with pytest.raises(ValueError, match="'state' parameter must be a tensor with values"):
        RobustLoss().set_extra_state(RobustLoss().get_extra_state().to("meta"))


# -- soft balls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", ["chi2", "kl", "total-variation"])
@pytest.mark.parametrize("tau", [0.0, 0.3, 2.0, math.inf])
def test_a_soft_ball_has_the_value_and_weights_of_worst_case(divergence, tau):
    z = torch.tensor([0.1, 0.2, 0.3, 4.0, 1.0], dtype=torch.float64, requires_grad=True)
    b, host = torch.tensor([1.0, 2.0, 1.0, 0.5, 1.0]), z.detach().numpy()
    criterion = RobustLoss(divergence=divergence, tau=tau)
    loss = criterion(z, sample_weight=b)
    expected = worst_case(host, divergence=divergence, tau=tau, sample_weight=b.numpy())
    assert loss.item() == pytest.approx(expected.value, rel=1e-12)
    loss.backward()
    np.testing.assert_allclose(z.grad, expected.weights, atol=1e-12)
    kept = torch.tensor([True, True, False, True, True])
    masked = worst_case(host[kept], divergence=divergence, tau=tau)
    assert criterion(z, mask=kept).item() == pytest.approx(masked.value, rel=1e-12)
    means = [host[:2].mean(), host[2:].mean()]
    grouped = worst_case(means, divergence=divergence, tau=tau, sample_weight=[2, 3])
    assert criterion(z, groups=[0, 0, 1, 1, 1]).item() == pytest.approx(grouped.value, rel=1e-12)


def test_derivatives_of_a_soft_ball():
    z = torch.tensor([0.1, 0.2, 0.3, 4.0], dtype=torch.float64, requires_grad=True)
    criterion = RobustLoss(divergence="kl", tau=0.7)
    assert torch.autograd.gradcheck(criterion, z)
    gradient = torch.func.grad(criterion)(z.detach())
    np.testing.assert_allclose(gradient, torch.softmax(z.detach() / 0.7, 0), atol=1e-12)
    value = criterion(z)
    (first,) = torch.autograd.grad(value, z, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated only once"):
        first.sum().backward()


def test_states_of_soft_balls():
    criterion, other = RobustLoss(divergence="kl", tau=0.7), RobustLoss(0.4)
    assert repr(criterion) == "RobustLoss(tau=0.7, divergence=KL())"
    other.load_state_dict(criterion.state_dict())
    assert repr(other) == repr(criterion)
    other.load_state_dict(RobustLoss(0.2).state_dict())
    assert (other.tau, other.rho) == (None, 0.2)


def test_what_soft_balls_do_not_take():
    with pytest.raises(ValueError, match=r"replaces 'rho': .* tau=1.0 and rho=0.1"):
        RobustLoss(0.1, tau=1.0)
    with pytest.raises(ValueError, match="'tau' parameter must be a number of at least 0"):
        RobustLoss(tau=-1.0)
    with pytest.raises(ValueError, match="strictly convex divergence or total variation"):
        RobustLoss(divergence="cvar", tau=1.0)
    draw = MultilevelBatches(100, random_state=0).draw(0)
    with pytest.raises(ValueError, match="A draw needs a ball with a radius"):
        RobustLoss(tau=1.0)(torch.zeros(draw.indices.size), draw)
