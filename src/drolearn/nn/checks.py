"""Checks of the tensors that users pass; every error is one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drolearn._solvers.draws import Draw
from drolearn.divergence import Divergence

__all__ = [
    "as_base_weights",
    "as_group_numbers",
    "as_process_group",
    "check_ball_of_draw",
    "check_losses",
    "check_values",
    "radius_of",
    "to_host",
]


def radius_of(draw: Any) -> float:
    """Return the radius that a draw was made for."""
    if not isinstance(draw, Draw):
        raise ValueError(
            f"The 'draw' parameter must be a Draw, as MultilevelBatches(n).loader(dataset) gives "
            f"with every batch. Got {type(draw).__name__} instead."
        )
    return float(draw.blocks[0, 3])


def check_ball_of_draw(divergence: Divergence, tau: float | None) -> None:
    """Check that a draw has unbiased weights for the divergence of a criterion."""
    if tau is not None:
        raise ValueError(
            f"A draw needs a ball with a radius, as its estimate is unbiased for that: make the "
            f"criterion with 'rho'. Got tau={tau!r} instead."
        )
    if divergence.family == "spectral":
        raise ValueError(
            f"A draw needs a φ-divergence, as its blocks know the order of their own losses only. "
            f"Got {divergence!r} instead: use whole batches, or CVaR."
        )


def check_losses(losses: Any, least: int, masked: bool = False) -> None:
    """Check that losses are at least so many numbers: a vector, or of any shape with a mask."""
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        given = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"The 'losses' parameter must be a tensor of floating-point numbers. Got {given} "
            f"instead."
        )
    if losses.layout != torch.strided:
        raise ValueError(
            f"The 'losses' parameter must be a dense tensor. Got one of layout {losses.layout}: "
            f"use .to_dense()."
        )
    if losses.ndim == 0 or (losses.ndim > 1 and not masked):
        raise ValueError(
            f"The 'losses' parameter must have one loss for each example: use reduction='none', "
            f"and take the mean over the other dimensions. Got a tensor of shape "
            f"{tuple(losses.shape)} instead."
        )
    if losses.numel() < least:
        raise ValueError("The 'losses' parameter must hold at least one number. Got none instead.")
    check_values("losses", losses)


def check_values(parameter: str, tensor: Tensor) -> None:
    """Check that a tensor is not one of those without values, except while compiling."""
    if torch.compiler.is_compiling():
        return
    if tensor.is_meta:
        given = "a tensor on the meta device"
    elif _in_meta_memory(tensor):
        given = f"a {type(tensor).__name__}"
    else:
        return
    raise ValueError(
        f"The '{parameter}' parameter must be a tensor with values. Got {given}, which has a shape "
        f"only: use a model and data on a real device, outside of FakeTensorMode."
    )


def _in_meta_memory(tensor: Tensor) -> bool:
    """Whether a tensor has no memory; a FakeTensor has none, whatever device it reports."""
    try:
        return tensor.untyped_storage().device.type == "meta"
    except NotImplementedError:  # tensors that wrap another one, as those of torch.func
        return False


def as_process_group(group: Any) -> Any:
    """Return a group, True for the default one, or None."""
    if group is None or group is False:
        return None
    if group is not True and not hasattr(group, "size"):
        raise ValueError(
            f"The 'process_group' parameter must be a process group of torch.distributed, True for "
            f"the default one, or None. Got {group!r} instead."
        )
    return group


def as_base_weights(sample_weight: Any, z: Tensor) -> Tensor | None:
    """Return weights of the examples as constants on the device of the losses."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Tensor):
        check_values("sample_weight", sample_weight)
    try:
        b = torch.as_tensor(sample_weight, device=z.device).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The 'sample_weight' parameter must be a tensor of weights. "
            f"Got {type(sample_weight).__name__} instead, which does not convert to one."
        ) from error
    if b.is_complex():
        raise ValueError(
            f"The 'sample_weight' parameter must hold real numbers. Got {b.dtype} instead."
        )
    b = b.to(z.dtype)
    if b.shape != z.shape:
        raise ValueError(
            f"The 'sample_weight' parameter must have one weight for each of the "
            f"{z.numel()} losses. Got a tensor of shape {tuple(b.shape)} instead."
        )
    return b


def as_group_numbers(groups: Any, z: Tensor) -> Tensor:
    """Return numbers of groups as floats of the same bits, to gather them with the losses."""
    if isinstance(groups, Tensor):
        check_values("groups", groups)
    try:
        given = torch.as_tensor(groups)
    except (TypeError, ValueError, RuntimeError):
        given = torch.empty(0)
    if given.numel() == z.numel() == 0:
        return z
    if given.shape != z.shape or given.is_floating_point() or given.is_complex():
        raise ValueError(
            f"The 'groups' parameter must have a whole number for each of the {z.numel()} losses "
            f"of a process, as processes cannot gather names: number the groups, the same in all."
        )
    return given.to(z.device, torch.int64).view(torch.float64)


def to_host(x: Tensor) -> NDArray[np.float64]:
    """Return values for NumPy, without a copy if they are on the host in double precision."""
    on_host = x.detach().to("cpu", torch.float64).resolve_neg()
    try:
        return on_host.numpy()
    except RuntimeError as error:
        raise ValueError(
            f"Values of a {type(x).__name__} cannot be read here ({error}): pass an ordinary "
            f"tensor, outside of transforms of torch.func."
        ) from error
