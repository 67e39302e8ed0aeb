"""Losses of all processes of a group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["gather"]


def gather(
    columns: Tensor, settings: int, error: Exception | None, group: Any
) -> tuple[list[Tensor], int]:
    """Return the columns of all processes, and the rank of this process."""
    import torch.distributed as dist

    group = dist.group.WORLD if group is True else group
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if rank < 0:
        raise ValueError(
            "This process does not belong to the criterion's process group: do not call the "
            "criterion in it, or pass a group that it belongs to."
        )

    def all_gather(tensor: Tensor) -> list[Tensor]:
        tensors = [torch.empty_like(tensor) for _ in range(world)]
        try:
            dist.all_gather(tensors, tensor, group=group)
        except RuntimeError as failure:
            raise RuntimeError(
                f"A process of the group has not taken part in gathering the losses, so it has "
                f"died or called something else ({' '.join(str(failure).split())[:200]}): read "
                f"its output, and restart all processes from the last checkpoint."
            ) from failure
        return tensors

    size = torch.tensor([-1 if error else columns.shape[1], settings], device=columns.device)
    counts, all_settings = torch.stack(all_gather(size)).T.tolist()
    if min(counts) < 0:
        raise error or ValueError(
            f"Process {counts.index(-1)} of the group gave losses that cannot be used: read its "
            f"error message."
        )
    if len(set(all_settings)) > 1:
        raise ValueError(
            "All processes must make the criterion the same, and either all pass it "
            "'sample_weight' (and 'groups', empty ones where there are no losses), or none does."
        )
    padded = columns.new_zeros((columns.shape[0], max([1, *counts])))
    padded[:, : columns.shape[1]] = columns
    parts = all_gather(padded)
    return [part[:, :count] for part, count in zip(parts, counts, strict=True)], rank
