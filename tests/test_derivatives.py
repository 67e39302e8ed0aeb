"""Derivatives of the criterion: once, twice, and by the transforms of `torch.func`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
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

from drolearn import CressieRead
from drolearn.nn import MultilevelBatches, RobustLoss, derivatives, robust_backward
from tests.examples import radius_of, worst_case
from tests.networks import (
    HALF,
    PATHS,
    bce,
    call,
    exponential_losses,
    gradient,
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
ONCE = r"can be differentiated only once.*\(criterion\.weights \* losses\)\.sum\(\)"


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
    compiled = torch.compile(RobustLoss(radius_of(divergence, 0.5), divergence), backend=backend)
    with pytest.raises(RuntimeError, match=f"{ONCE}|does not currently support double backward"):
        twice(compiled, losses_of())
    with_model = torch.compile(
        lambda z: RobustLoss(radius_of(divergence, 0.5), divergence)(z**3), backend=backend
    )
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
    criterion = RobustLoss(radius_of(divergence, rho), divergence)

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
