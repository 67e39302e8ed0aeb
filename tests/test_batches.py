"""`MultilevelBatches`: batches and their draws, resuming, streams, bias, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from drolearn import CVaR, worst_case
from drolearn.nn import MultilevelBatches, RobustLoss
from tests.networks import Numbered, bce, gradient, labelled_rows, small_network

pytestmark = pytest.mark.xdist_group("torch")


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_yield_each_batch_with_its_draw(workers):
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


@pytest.mark.slow
def test_gradient_of_a_network_is_unbiased():
    """The mean over draws is the gradient of all rows; that over fixed batches is not."""
    model, (x, y) = small_network(3).double(), labelled_rows(256, 5)
    batch = x.double(), y.double()
    RobustLoss(1.0)(bce(model, batch)).backward()
    want = gradient(model).numpy()
    with torch.no_grad():
        z = bce(model, batch).numpy()
    each = []  # gradients of single rows: draws are then cheap
    for i in range(256):
        model.zero_grad()
        bce(model, (batch[0][i : i + 1], batch[1][i : i + 1])).sum().backward()
        each.append(gradient(model).numpy())
    each = np.array(each)
    direction = want / np.linalg.norm(want)
    along = each @ direction
    batches = MultilevelBatches(256, batch_size=16, rho=1.0, fire=0.5, random_state=0)
    unbiased = []
    for step in range(20_000):
        draw = batches.draw(step)
        unbiased.append(draw.weights(z[draw.indices]) @ along[draw.indices])
    error = np.std(unbiased) / np.sqrt(len(unbiased))
    assert abs(np.mean(unbiased) - want @ direction) < 4.0 * error
    rng, fixed = np.random.default_rng(0), []
    for _ in range(20_000):
        chosen = rng.choice(256, 16, replace=False)
        fixed.append(worst_case(z[chosen], 1.0).weights @ along[chosen])
    error = np.std(fixed) / np.sqrt(len(fixed))
    assert abs(np.mean(fixed) - want @ direction) > 10.0 * error


def test_resumed_training_ends_with_the_same_bits(tmp_path):
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
        model = small_network()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        return model, optimiser, MultilevelBatches(200, batch_size=16, steps=20, random_state=1)

    data = TensorDataset(*labelled_rows())
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
    train(third, its_optimiser, its_batches, data, math.inf)  # the remaining steps of the epoch
    assert its_batches.step == 20
    for a, b in zip(model.parameters(), third.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="make the batches as they were"):
        MultilevelBatches(100).load_state_dict(state[2])


def test_processes_draw_independently():
    one, two = (MultilevelBatches(500, random_state=0, rank=rank).draw(0) for rank in (0, 1))
    assert one.indices.tolist() != two.indices.tolist()


def test_an_epoch_reads_about_all_rows():
    batches = MultilevelBatches(5000, batch_size=16, random_state=0)
    read = sum(draw.indices.size for _, draw in batches.loader(Numbered(5000)))
    assert 3500 < read < 7500
    assert batches.step == len(batches)
    equal = MultilevelBatches(5000, batch_size=np.int64(16), rho=np.float64(0.1))
    equal.load_state_dict(batches.state_dict())  # the same settings as NumPy scalars
    assert equal.seed == batches.seed


def test_errors():
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


@pytest.mark.parametrize("n", [500, None])
def test_a_plain_data_loader_is_refused(n):
    """It would lose the draws, and repeat the same batches in every epoch."""
    batches = MultilevelBatches(n, random_state=0)
    plain = DataLoader(Numbered(500), batch_sampler=batches)
    pattern = r"lose the draw of each batch: write 'for batch, draw in batches\.loader\(dataset\)'"
    with pytest.raises(TypeError, match=pattern) as caught:
        next(iter(plain))
    assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match=pattern):
        list(batches)
    assert len(batches) == len(plain)
    assert batches.draw(0).indices.size >= 64


# -- streams -------------------------------------------------------------------------------------


class Stream(IterableDataset):
    """`length` rows, or endlessly many."""

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
    assert batches.method.cost < 5 * 8  # the expected rows of a draw, over infinitely many levels


def test_streams_continue_and_restart():
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
                break  # the next epoch continues here
    assert starts > 1
    exact = MultilevelBatches(None, batch_size=8, max_level=0, steps=5).loader(Stream(40))
    assert [sum(1 for _ in exact) for _ in range(4)] == [5, 5, 5, 5]
    with pytest.raises(ValueError, match="ended after 5 rows, before its first draw of 8"):
        list(batches.loader(Stream(5)))


@pytest.mark.slow
def test_streams_are_unbiased_for_the_population():
    """The worst half of exponential losses has the mean 1 + log 2."""
    steps = 4000
    batches = MultilevelBatches(None, batch_size=8, fire=0.5, steps=steps, random_state=0)
    criterion = RobustLoss(divergence=CVaR(0.5))
    values = [criterion(b[:, 1], draw).item() for b, draw in batches.loader(Stream())]
    want = 1.0 + np.log(2.0)
    error = np.std(values) / np.sqrt(steps)
    assert abs(np.mean(values) - want) < 4.0 * error
    assert error < 0.02
    capped = MultilevelBatches(None, batch_size=8, max_level=0, steps=steps, random_state=0)
    low = [criterion(b[:, 1], draw).item() for b, draw in capped.loader(Stream())]
    error = np.std(low) / np.sqrt(steps)
    assert np.mean(low) < want - 4.0 * error  # small batches underestimate the tail


@pytest.mark.parametrize("max_level", [0, 2, 4])
@pytest.mark.parametrize("rows", [600, 60_000])
def test_estimated_bias_of_capped_levels(max_level, rows):
    """For exponential losses, R = 1 + √ρ if all losses keep a positive weight."""
    rng = np.random.default_rng(max_level)
    capped = MultilevelBatches(None, batch_size=16, rho=0.5, max_level=max_level)
    n = 16 << max_level
    small = [worst_case(rng.exponential(size=n), 0.5).value for _ in range(200_000 // n)]
    want, its_error = 1.0 + 0.5**0.5 - np.mean(small), np.std(small) / np.sqrt(len(small))
    bias, error = capped.bias(rng.exponential(size=rows))
    assert abs(bias - want) < 4.0 * np.hypot(error, its_error) + 0.3 * want  # an asymptotic formula
    assert 0.0 < error < (0.5 if rows == 600 else 0.1) * want + its_error
    assert MultilevelBatches(None).bias(np.ones(5)) == (0.0, 0.0)
    assert MultilevelBatches(100).bias(np.ones(5)) == (0.0, 0.0)


def test_bias_of_too_few_losses():
    capped = MultilevelBatches(None, max_level=1)
    with pytest.raises(ValueError, match="at least 4 numbers"):
        capped.bias([1.0, 2.0])
    with pytest.raises(ValueError, match="1 NaN and 0 infinite of 4"):
        capped.bias([1.0, 2.0, 3.0, np.nan])
