"""The gradient of a draw that does not fit into memory, in two passes."""

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
from drolearn.nn.checks import check_losses, radius_of
from drolearn.nn.criterion import RobustLoss
from drolearn.nn.derivatives import refuse_transform, weighted_sum
from drolearn.nn.loading import read_rows

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
    """Add the gradient of a draw to the gradients of the model, one micro-batch at a time.

    A first pass computes the losses without gradients, a second one the weighted gradients, so
    memory does not grow with the size of the draw.  Random numbers of PyTorch (dropout) are the
    same in both passes; their state takes 5 kB for each micro-batch.  Other random numbers
    (Python's `random`, NumPy) must not change the examples.  Running statistics (batch
    normalisation) see every row twice.  If the model is a DistributedDataParallel, gradients are
    exchanged once, with the last micro-batch, so processes may have draws of different sizes.

    Parameters
    ----------
    model : torch.nn.Module
        The model; gradients are added to those of its parameters.
    loss_fn : callable
        `loss_fn(model, batch)` returns one loss for each example of a batch.
    dataset : Dataset
        The examples; `dataset[i]` is that of row i.
    draw : Draw
        The rows, as :meth:`MultilevelBatches.draw` returns them.
    micro_batch : int, default=256
        Number of rows in memory at a time.
    criterion : RobustLoss, default=None
        The criterion, of the same radius as the draw; None for χ² with this radius.
    collate_fn : callable, default=default_collate
        Makes a batch from a list of examples, as in a DataLoader.

    Returns
    -------
    float
        The estimate of the robust loss.

    Raises
    ------
    ValueError
        If an argument is not of the form above, or a loss is not finite.
    RuntimeError
        If it is called inside a transform of `torch.func`.

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
    _check_call(model)
    criterion = criterion or RobustLoss(radius)
    rows = draw.indices.tolist()
    batches = [rows[first : first + size] for first in range(0, len(rows), size)]

    def compute_losses(batch: list[int]) -> Tensor:
        losses = loss_fn(model, collate_fn(read_rows(dataset, batch)))
        check_losses(losses, 1)
        if losses.numel() != len(batch):
            raise ValueError(
                f"The 'loss_fn' parameter must return one loss for each of the {len(batch)} "
                f"examples of a micro-batch. Got {losses.numel()} instead."
            )
        return losses

    no_sync = getattr(model, "no_sync", nullcontext)
    states, parts = [], []
    with no_sync(), torch.no_grad():
        for batch in batches:
            state = _RandomState(model)
            # Most models draw no random numbers: they need one state.
            states.append(states[-1] if states and state.equals(states[-1]) else state)
            parts.append(compute_losses(batch))
    value = criterion(torch.cat(parts), draw)
    assert criterion.weights is not None
    after, last = _RandomState(model), len(batches) - 1
    try:
        for k, weights in enumerate(criterion.weights.split(size)):
            if k < last and not bool(weights.any()):
                continue
            states[k].restore()
            with no_sync() if k < last else nullcontext():
                losses = compute_losses(batches[k])
                if not losses.requires_grad:
                    raise ValueError(
                        "The losses have no gradient: the model must have parameters that require "
                        "one, and 'loss_fn' must not detach."
                    )
                weighted_sum(weights, losses).backward()
    finally:
        after.restore()
    return float(value)


def _check_call(model: torch.nn.Module) -> None:
    """Check that gradients can be added to those of a model here."""
    refuse_transform(
        "robust_backward changes the gradients of the model, which transforms of torch.func do not "
        "allow: call it outside of them, or apply torch.func.grad to RobustLoss."
    )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError(
            "The 'model' parameter must be a model with values. Got one with parameters on the "
            "meta device: call model.to_empty(device=...) and load its parameters first."
        )


class _RandomState:
    """The states of PyTorch's random number generators, on the host and the model's devices."""

    def __init__(self, model: torch.nn.Module) -> None:
        parameters = {each.device: each for each in model.parameters()}
        self.host = torch.get_rng_state()
        self.device_type = next((one.type for one in parameters if one.type != "cpu"), None)
        self.devices = get_device_states(*parameters.values()) if self.device_type else ([], [])

    def equals(self, other: _RandomState) -> bool:
        """Whether no random number was drawn between the two states."""
        pairs = zip([self.host, *self.devices[1]], [other.host, *other.devices[1]], strict=True)
        return all(torch.equal(one, another) for one, another in pairs)

    def restore(self) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(self.host)
        if self.device_type:
            set_device_states(*self.devices, device_type=self.device_type)
