"""`robust_backward`: gradients of draws that do not fit into memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from drolearn import Multilevel
from drolearn.nn import MultilevelBatches, RobustLoss, robust_backward
from tests.networks import bce, gradient, labelled_rows, small_network

pytestmark = pytest.mark.xdist_group("torch")


@pytest.mark.parametrize("micro", [1, 7, 1000])
def test_micro_batches_give_the_gradient_of_one_batch(micro):
    data = TensorDataset(*labelled_rows())
    draw = MultilevelBatches(200, batch_size=16, fire=1.0, random_state=2).draw(3)
    model = small_network()
    loss = RobustLoss()(bce(model, data[draw.indices]), draw)
    loss.backward()
    want = gradient(model)
    model.zero_grad()
    value = robust_backward(model, bce, data, draw, micro)
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient(model), want, rtol=1e-4, atol=1e-6)


class Saved:
    """Counts the numbers that autograd saves for the backward pass, now and at most."""

    now = most = 0

    def __init__(self, tensor):
        self.tensor = tensor
        Saved.now += tensor.numel()
        Saved.most = max(Saved.most, Saved.now)

    def __del__(self):
        Saved.now -= self.tensor.numel()


@pytest.mark.slow
def test_memory_does_not_depend_on_the_size_of_the_draw():
    """Saved numbers and the largest batch are the same for draws of 50 to 5,000 rows."""
    n = 5000
    data = TensorDataset(*labelled_rows(n))
    method, rng = Multilevel(n, batch_size=16, probabilities=(0.125,) * 8), np.random.default_rng(0)
    seen, kept = [], {}

    def losses(model, batch):
        seen.append(len(batch[0]))
        return bce(model, batch)

    for _ in range(30):
        draw = method.draw(rng)
        Saved.now = Saved.most = 0
        with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
            robust_backward(small_network(), losses, data, draw, 16)
        kept[draw.indices.size] = Saved.most
    assert max(kept) > 20 * min(kept)
    assert len(set(kept.values())) == 1
    assert min(kept.values()) > 0
    assert max(seen) == 16


def test_rows_of_weight_zero_skip_the_backward_pass():
    """Except for the last micro-batch, in which processes exchange gradients."""
    data = TensorDataset(*labelled_rows())
    draw = MultilevelBatches(200, batch_size=64, rho=50.0, random_state=2).draw(3)
    seen = []

    def losses(model, batch):
        seen.append(torch.is_grad_enabled())
        return bce(model, batch)

    criterion = RobustLoss(50.0)
    robust_backward(small_network(), losses, data, draw, 1, criterion=criterion)
    used = criterion.weights != 0.0
    assert seen.count(False) == draw.indices.size
    assert seen.count(True) == int(used.sum()) + int(not used[-1]) < draw.indices.size


def test_dropout_is_the_same_in_both_passes():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1)
    )
    data = TensorDataset(*labelled_rows())
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
    with torch.no_grad():  # the state of the generator is that after one pass
        for some in np.split(draw.indices, range(16, draw.indices.size, 16)):
            losses(model, data[some])
    assert torch.equal(torch.get_rng_state(), after)


def test_errors():
    data, draw = (
        TensorDataset(*labelled_rows()),
        MultilevelBatches(200, batch_size=16, random_state=2).draw(3),
    )
    model = small_network()
    for wrong, pattern in (
        (lambda model, batch: bce(model, batch).mean(), "reduction='none'"),
        (lambda model, batch: bce(model, batch)[:-1], "one loss for each of the 8 examples"),
        (lambda model, batch: bce(model, batch).detach(), "losses have no gradient"),
    ):
        before = torch.get_rng_state()
        with pytest.raises(ValueError, match=pattern):
            robust_backward(model, wrong, data, draw, 8)
        assert torch.equal(torch.get_rng_state(), before)
    for wrong in ("all", draw.indices, draw.indices.tolist(), None):
        with pytest.raises(ValueError, match=r"must be a Draw, as .*\.loader\(dataset\) gives"):
            robust_backward(model, bce, data, wrong)
