"""Second derivatives, `torch.func`, tensors without values and extreme numbers in `drolearn.nn`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, functional, gradcheck, gradgradcheck
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)
from torch.utils.data import TensorDataset

from drolearn import CressieRead, Divergence, worst_case
from drolearn.nn import MultilevelBatches, RobustLoss, derivatives, robust_backward
from drolearn.nn import criterion as criterion_module
from tests.networks import bce, exponential_losses, gradient, labelled_rows, small_network

pytestmark = [
    pytest.mark.xdist_group("torch"),
    # Warnings of PyTorch about its own code, and about what is tried here.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Please use `torch.vmap` instead:FutureWarning"),
    pytest.mark.filterwarnings(r"ignore:Using backward\(\) with create_graph=True:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning"),
]
ONCE = r"can be differentiated only once.*\(criterion\.weights \* losses\)\.sum\(\)"
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
    criterion = RobustLoss(0.5, divergence, nan=nan)
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


def twice(function, z):
    z = z.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(z * z), z, create_graph=True)
    return torch.autograd.grad(first.sum(), z)


def backward_twice(function, z):
    z = z.clone().requires_grad_()
    function(z * z).backward(create_graph=True)
    z.grad.square().sum().backward()


def forward_over_reverse(function, z):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(z.clone().requires_grad_(), torch.ones_like(z))
        torch.autograd.grad(function(dual * dual), dual)


def reverse_over_forward(function, z):
    leaf = z.clone().requires_grad_()
    with forward_ad.dual_level():
        value = function(forward_ad.make_dual(leaf, torch.ones_like(z)))
        torch.autograd.grad(forward_ad.unpack_dual(value).tangent, leaf)


SECOND_DERIVATIVES = {
    "grad": twice,
    "backward": backward_twice,
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "hessian": functional.hessian,
    "hvp": lambda function, z: functional.hvp(function, z, z),
    "vhp": lambda function, z: functional.vhp(function, z, z),
    "forward-mode hessian": lambda function, z: functional.hessian(
        function, z, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "gradgradcheck": lambda function, z: gradgradcheck(function, (z.clone().requires_grad_(),)),
    "func.hessian": lambda function, z: hessian(function)(z),
    "jacrev of jacrev": lambda function, z: jacrev(jacrev(function))(z),
    "jacrev of jacfwd": lambda function, z: jacrev(jacfwd(function))(z),
    "jacfwd of jacfwd": lambda function, z: jacfwd(jacfwd(function))(z),
    "grad of grad": lambda function, z: grad(lambda x: grad(function)(x).sum())(z),
}


# -- second derivatives ----------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", [False, True])
def test_second_derivatives_are_refused_on_all_paths(monkeypatch, path, device):
    if device:
        on_device(monkeypatch)
    function, losses = call(**PATHS[path])
    with pytest.raises(RuntimeError, match=ONCE) as caught:
        twice(function, losses)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", SECOND_DERIVATIVES)
@pytest.mark.parametrize("device", [False, True])
def test_second_derivatives_are_refused_in_all_ways(monkeypatch, way, device):
    if device:
        on_device(monkeypatch)
    function, losses = call()
    with pytest.raises(RuntimeError, match=ONCE):
        SECOND_DERIVATIVES[way](function, losses)


@pytest.mark.parametrize("divergence", ["chi2", CressieRead(3.0)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("device", [False, True])
def test_second_derivatives_of_compiled_criteria_are_refused(
    monkeypatch, divergence, backend, device
):
    """By the criterion, or by PyTorch, which does not compile second derivatives."""
    if device:
        on_device(monkeypatch)
    torch.compiler.reset()
    compiled = torch.compile(RobustLoss(0.5, divergence), backend=backend)
    with pytest.raises(RuntimeError, match=f"{ONCE}|does not currently support double backward"):
        twice(compiled, losses_of())
    with_model = torch.compile(lambda z: RobustLoss(0.5, divergence)(z**3), backend=backend)
    with pytest.raises(RuntimeError, match=f"{ONCE}|does not currently support double backward"):
        backward_twice(with_model, losses_of())


@pytest.fixture
def one_process(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_derivatives_with_a_process_group():
    criterion, losses = RobustLoss(0.5, process_group=True), losses_of()
    weights = worst_case(losses.numpy(), 0.5).weights
    np.testing.assert_allclose(grad(criterion)(losses), weights, rtol=1e-12)
    np.testing.assert_allclose(jacfwd(criterion)(losses), weights, rtol=1e-12)
    for way in ("grad", "func.hessian", "forward over reverse"):
        with pytest.raises(RuntimeError, match=ONCE):
            SECOND_DERIVATIVES[way](criterion, losses)
    with pytest.raises(RuntimeError, match=r"vectorised by torch\.func\.vmap"):
        vmap(criterion)(torch.stack([losses, losses]))
    with pytest.raises(ValueError, match="'losses' parameter must be a tensor with values"):
        criterion(losses.to("meta"))
    with pytest.raises(ValueError, match="'groups' parameter must be a tensor with values"):
        criterion(losses, groups=torch.arange(10, device="meta"))


@pytest.mark.parametrize(
    ("rho", "divergence"), [(0.5, "cvar"), (0.5, "total-variation"), (0.0, "chi2"), (0.0, HALF)]
)
@pytest.mark.parametrize("device", [False, True])
def test_second_derivatives_with_locally_constant_weights_are_right(
    monkeypatch, rho, divergence, device
):
    if device:
        on_device(monkeypatch)
    criterion = RobustLoss(rho, divergence)

    def function(z):
        return criterion(z**3)

    losses = losses_of().requires_grad_()
    assert gradgradcheck(function, (losses,))
    z = losses.detach().numpy()
    expected = np.diag(6.0 * z * worst_case(z**3, rho, divergence).weights)
    for second in (functional.hessian(function, losses), hessian(function)(losses.detach())):
        np.testing.assert_allclose(second, expected, rtol=1e-10)


def test_second_derivatives_with_fixed_weights_as_the_error_recommends():
    criterion, z = RobustLoss(0.5), losses_of().requires_grad_()
    losses = z**3
    criterion(losses)
    (first,) = torch.autograd.grad((criterion.weights * losses).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    np.testing.assert_allclose(second, criterion.weights * 6.0 * z.detach(), rtol=1e-12)


def test_create_graph_alone_changes_nothing():
    """And derivatives with respect to what gradients are multiplied with are right."""
    criterion, z = RobustLoss(0.5), losses_of().requires_grad_()
    (plain,) = torch.autograd.grad(criterion(z * z), z)
    (recorded,) = torch.autograd.grad(criterion(z * z), z, create_graph=True)
    assert torch.equal(plain, recorded)
    factor = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    (scaled,) = torch.autograd.grad(criterion(z * z), z, factor, create_graph=True)
    (derivative,) = torch.autograd.grad(scaled.sum(), factor)
    np.testing.assert_allclose(derivative, plain.sum(), rtol=1e-12)
    _, along = functional.jvp(criterion, z.detach(), torch.ones_like(z))
    np.testing.assert_allclose(along, 1.0, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_are_those_of_a_weighted_sum_to_the_bit(dtype):
    losses = exponential_losses(dtype=dtype)
    criterion = RobustLoss(0.5)
    loss = criterion(losses)
    wide = losses if dtype.itemsize >= 4 else losses.float()
    expected = derivatives.weighted_sum(criterion.weights, wide)
    (3.0 * loss).backward()
    found, losses.grad = losses.grad, None
    (3.0 * expected).backward()
    assert torch.equal(loss, expected)
    assert torch.equal(found, losses.grad)


def test_losses_may_be_overwritten_before_backward():
    z = losses_of().requires_grad_()
    losses = z * 1.0
    loss = RobustLoss(0.5)(losses)
    losses.detach().zero_()
    loss.backward()
    np.testing.assert_allclose(z.grad, worst_case(losses_of().numpy(), 0.5).weights, rtol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_numerical_first_derivatives(path):
    function, losses = call(**PATHS[path])
    if path != "skip":
        losses = losses.clone().requires_grad_()
        assert gradcheck(
            function, (losses,), check_forward_ad=True, check_batched_grad=True,
            check_batched_forward_grad=True,
        )  # fmt: skip


# -- torch.func ------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", [False, True])
def test_first_derivatives_by_transforms(monkeypatch, path, device):
    if device:
        on_device(monkeypatch)
    function, losses = call(**PATHS[path])
    leaf = losses.clone().requires_grad_()
    value = function(leaf)
    value.backward()
    one = torch.tensor(1.0, dtype=torch.float64)
    ones = torch.ones_like(losses)
    found = [grad(function)(losses), jacrev(function)(losses), jacfwd(function)(losses)]
    found.append(vjp(function, losses)[1](one)[0])
    for each in found:
        np.testing.assert_allclose(each, leaf.grad, rtol=1e-12)
    primal, tangent = jvp(function, (losses,), (ones,))
    np.testing.assert_allclose(primal, value.detach(), rtol=1e-12)
    np.testing.assert_allclose(tangent, leaf.grad.sum(), rtol=1e-12)


def test_training_with_functional_call():
    model, batch = small_network(), labelled_rows()
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    criterion = RobustLoss(0.5)

    def robust(parameters):
        return criterion(bce(lambda x: functional_call(model, parameters, x), batch))

    found = grad(robust)(parameters)
    criterion(bce(model, batch)).backward()
    found = torch.cat([each.ravel() for each in found.values()])
    np.testing.assert_allclose(found, gradient(model), rtol=1e-5, atol=1e-7)
    with pytest.raises(RuntimeError, match=ONCE):
        hessian(robust)(parameters)


def test_attributes_after_a_transform_are_ordinary():
    criterion, losses = RobustLoss(0.5), losses_of()
    grad(criterion)(losses)
    expected = worst_case(losses.numpy(), 0.5)
    np.testing.assert_array_equal(criterion.weights.numpy(), expected.weights)
    assert criterion.certificate.gap == expected.gap


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", [False, True])
def test_vmap_is_refused(monkeypatch, path, device):
    if device:
        on_device(monkeypatch)
    function, losses = call(**PATHS[path])
    batches = torch.stack([losses, losses])
    for transformed in (vmap(function), vmap(grad(function))):
        with pytest.raises(RuntimeError, match=r"vectorised by torch\.func\.vmap") as caught:
            transformed(batches)
        assert "\n" not in str(caught.value)


def test_vmap_of_the_weights_of_examples_is_refused():
    losses = losses_of()
    with pytest.raises(RuntimeError, match=r"vectorised by torch\.func\.vmap"):
        vmap(lambda b: RobustLoss()(losses, sample_weight=b))(torch.ones(2, 10))


def test_losses_may_come_from_vmap():
    losses = vmap(lambda z: z * z)(losses_of())
    assert torch.equal(RobustLoss()(losses), RobustLoss()(losses_of().square()))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")  # linearize
def test_other_transforms():
    losses = losses_of()
    value, along = linearize(RobustLoss(0.5), losses)
    np.testing.assert_allclose(value, RobustLoss(0.5)(losses), rtol=1e-12)
    np.testing.assert_allclose(along(torch.ones_like(losses)), 1.0, rtol=1e-12)
    with pytest.raises(RuntimeError, match=r"functionalised by torch\.func\.functionalize"):
        functionalize(RobustLoss())(losses)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_transforms(backend):
    losses, criterion = losses_of(), RobustLoss(0.5)
    weights = worst_case(losses.numpy(), 0.5).weights
    torch.compiler.reset()
    compiled = torch.compile(criterion, backend=backend)
    for function in (torch.compile(grad(criterion), backend=backend), grad(compiled)):
        np.testing.assert_allclose(function(losses), weights, rtol=1e-12)
    with pytest.raises(RuntimeError, match=ONCE):
        hessian(compiled)(losses)
    with pytest.raises(RuntimeError, match=r"vectorised by torch\.func\.vmap"):
        vmap(compiled)(torch.stack([losses, losses]))


def test_transforms_if_pytorch_does_not_tell_of_them(monkeypatch):
    """There is no public function for it; without it, calls are only slower."""
    monkeypatch.setattr(derivatives, "_transforms_active", None)
    function, losses = call()
    leaf = losses.clone().requires_grad_()
    function(leaf).backward()
    assert torch.equal(grad(function)(losses), leaf.grad)
    for way in ("grad", "func.hessian", "forward over reverse"):
        with pytest.raises(RuntimeError, match=ONCE):
            SECOND_DERIVATIVES[way](function, losses)


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of checks in traces, and of traces
def test_traced_on_a_device(monkeypatch):
    on_device(monkeypatch)
    traced = torch.jit.trace(RobustLoss(0.5), losses_of())
    other = losses_of().flip(0) ** 2
    np.testing.assert_allclose(traced(other), worst_case(other.numpy(), 0.5).value, rtol=1e-10)


def test_robust_backward_and_transforms():
    data, model = TensorDataset(*labelled_rows()), small_network()
    draw = MultilevelBatches(200, batch_size=16, random_state=2).draw(3)

    def inside(scale):
        robust_backward(model, bce, data, draw)
        return scale

    with pytest.raises(RuntimeError, match=r"call it outside of them, or apply torch\.func\.grad"):
        grad(inside)(torch.tensor(1.0))
    robust_backward(model, bce, data, draw)
    expected = gradient(model)
    model.zero_grad()

    def vectorised(model, batch):  # one example after the other, as vmap sees it
        return vmap(lambda x, y: bce(lambda rows: model(rows), (x[None], y[None]))[0])(*batch)

    robust_backward(model, vectorised, data, draw)
    np.testing.assert_allclose(gradient(model), expected, rtol=1e-4, atol=1e-7)


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
        loss = RobustLoss(0.1, divergence, **options)(z)
        np.testing.assert_allclose(loss.item(), expected, rtol=1e-9, atol=1e-9 * max(losses))
        loss.backward()
        assert torch.isfinite(z.grad).all()
    means = [losses[0] / 2 + losses[1] / 2, losses[2] / 2 + losses[3] / 2]
    grouped = RobustLoss(0.1, divergence)(z, groups=[0, 0, 1, 1]).item()
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
        found = RobustLoss(0.1, divergence)(losses, sample_weight=base)
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
