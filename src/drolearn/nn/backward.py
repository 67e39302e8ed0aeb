"""The gradient of a draw that is too large for memory, in two passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states
from torch.utils.data import default_collate

from drolearn._solvers.draws import Draw
from drolearn._validation import as_count
from drolearn.nn.batches import fetched
from drolearn.nn.criterion import RobustLoss, check_losses, radius_of, total

__all__ = ["robust_backward"]


def robust_backward(
    model: torch.nn.Module,
    loss_fn: Callable[[torch.nn.Module, Any], Tensor],
    dataset: Any,
    draw: Draw,
    micro_batch: int = 256,
    *,
    criterion: RobustLoss | None = None,
    collate_fn: Callable[[list[Any]], Any] = default_collate,
) -> float:
    """Add the gradient of a draw to the model's, `micro_batch` rows at a time; the estimate.

    A first pass computes the losses without a gradient, a second one the weighted gradients:
    what is kept for the way back does not depend on the size of the draw.  `loss_fn(model, batch)`
    returns the losses of the examples of a batch.  What PyTorch draws at random (dropout) is the
    same in both passes, at the price of 5 kB for each micro-batch; what others draw (Python's
    `random`, NumPy) must not change the examples.  Running statistics (batch normalisation) see
    every row twice.  Where DistributedDataParallel wraps the model, gradients are exchanged once,
    with the last micro-batch, so that processes may have draws of different sizes.

    Without a `criterion` the divergence is χ²; `collate_fn` is that of a DataLoader.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from drolearn.nn import MultilevelBatches, robust_backward
    >>> data = TensorDataset(torch.randn(1000, 3), torch.randn(1000))
    >>> model = torch.nn.Linear(3, 1)
    >>> def losses(model, batch):
    ...     x, y = batch
    ...     return (model(x)[:, 0] - y) ** 2
    >>> draw = MultilevelBatches(1000, random_state=0).draw(0)
    >>> estimate = robust_backward(model, losses, data, draw, micro_batch=32)
    >>> model.weight.grad.shape
    torch.Size([1, 3])
    """
    size = as_count("micro_batch", micro_batch)
    radius = radius_of(draw)
    criterion = criterion or RobustLoss(radius)
    rows = draw.indices.tolist()
    batches = [rows[first : first + size] for first in range(0, len(rows), size)]

    def losses_of(batch: list[int]) -> Tensor:
        found = loss_fn(model, collate_fn(fetched(dataset, batch)))
        check_losses(found, 1)
        if found.numel() != len(batch):
            raise ValueError(
                f"The 'loss_fn' parameter must return one loss for each of the {len(batch)} "
                f"examples of a micro-batch. Got {found.numel()} instead."
            )
        return found

    alone = getattr(model, "no_sync", nullcontext)
    states, losses = [], []
    with alone(), torch.no_grad():
        for batch in batches:
            state = _Random(model)
            # Most models draw nothing: one state serves all.
            states.append(states[-1] if states and state.same(states[-1]) else state)
            losses.append(losses_of(batch))
    value = criterion(torch.cat(losses), draw)
    assert criterion.weights is not None
    after, last = _Random(model), len(batches) - 1
    try:
        for k, weights in enumerate(criterion.weights.split(size)):
            if k < last and not bool(weights.any()):
                continue
            states[k].restore()
            with alone() if k < last else nullcontext():
                again = losses_of(batches[k])
                if not again.requires_grad:
                    raise ValueError(
                        "The losses have no gradient: the model must have parameters that require "
                        "one, and 'loss_fn' must not detach."
                    )
                total(weights, again).backward()
    finally:
        after.restore()
    return float(value)


class _Random:
    """Where PyTorch's random numbers stand, on the host and on the devices of a model."""

    def __init__(self, model: torch.nn.Module) -> None:
        places = {each.device: each for each in model.parameters()}
        self.host = torch.get_rng_state()
        self.kind = next((place.type for place in places if place.type != "cpu"), None)
        self.devices = get_device_states(*places.values()) if self.kind else ([], [])

    def same(self, other: _Random) -> bool:
        """Whether nothing was drawn in between."""
        pairs = zip([self.host, *self.devices[1]], [other.host, *other.devices[1]], strict=True)
        return all(torch.equal(one, another) for one, another in pairs)

    def restore(self) -> None:
        """Go back there."""
        torch.set_rng_state(self.host)
        if self.kind:
            set_device_states(*self.devices, device_type=self.kind)
