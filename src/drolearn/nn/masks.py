"""Masks: which losses count, such as those of tokens that are not padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from drolearn.nn.checks import check_values

__all__ = ["as_mask", "kept_rows", "spread", "take", "take_groups"]


def as_mask(mask: Any, losses: Tensor) -> Tensor | None:
    """Return a mask as a tensor on the device of the losses; `kept_rows` checks its values."""
    if mask is None:
        return None
    if isinstance(mask, Tensor):
        check_values("mask", mask)
    try:
        given = torch.as_tensor(mask, device=losses.device).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"The 'mask' parameter must be a Boolean tensor of the shape of the losses. "
            f"Got {type(mask).__name__} instead, which does not convert to one."
        ) from error
    if given.is_complex() or given.layout != torch.strided:
        raise ValueError(
            f"The 'mask' parameter must be a dense tensor of True and False, or of 1 and 0. "
            f"Got one of type {given.dtype} and layout {given.layout} instead."
        )
    if given.shape != losses.shape:
        raise ValueError(
            f"The 'mask' parameter must have the shape of the losses, {tuple(losses.shape)}. "
            f"Got a tensor of shape {tuple(given.shape)} instead."
        )
    return given


def kept_rows(mask: Tensor) -> tuple[Tensor]:
    """Return the numbers of the losses that a mask keeps, in the flattened losses."""
    flat = mask.reshape(-1)
    if flat.dtype != torch.bool:
        wrong = (flat != 0) & (flat != 1)
        if bool(wrong.any()):
            raise ValueError(
                f"The 'mask' parameter must hold True and False, or 1 and 0. "
                f"Got {flat[wrong][0].item()} instead."
            )
    return (flat.nonzero()[:, 0],)


def take(values: Tensor, rows: Tensor) -> Tensor:
    """Return some of the flattened values; all others get a gradient of exactly zero."""
    return values.reshape(-1).index_select(0, rows)


def take_groups(groups: Any, rows: Tensor, shape: torch.Size) -> Any:
    """Return the groups of some of the flattened losses, as a tensor or an array of names."""
    if isinstance(groups, Tensor):
        check_values("groups", groups)
        given: Any = groups
    else:
        given = np.asarray(groups)
    if tuple(given.shape) != tuple(shape):
        raise ValueError(
            f"The 'groups' parameter must have the shape of the losses and the mask, "
            f"{tuple(shape)}. Got {tuple(given.shape)} instead."
        )
    if isinstance(given, Tensor):
        return take(given, rows.to(given.device))
    return given.reshape(-1)[rows.cpu().numpy()]


def spread(weights: Tensor, rows: Tensor | None, shape: torch.Size) -> Tensor:
    """Return weights in the shape of the losses; `rows` are those with a weight, None for all."""
    if rows is None:
        return weights.reshape(shape)
    return weights.new_zeros(shape.numel()).index_copy(0, rows, weights).reshape(shape)
