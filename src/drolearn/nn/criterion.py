"""The robust loss of single examples' losses, as a criterion for PyTorch.

The weights are those of :func:`drolearn.worst_case`; by Danskin's theorem the gradient of the
robust loss is that of the losses under fixed weights.
"""

from __future__ import annotations

from typing import Any, Literal
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import WorstCase, not_finite, worst_case
from drolearn._solvers.draws import Draw
from drolearn._validation import as_groups, as_radius, as_weights
from drolearn.divergence import NAMES, Divergence, as_divergence
from drolearn.nn.device import DeviceWorstCase, solve_chi2, solve_kl

__all__ = ["RobustLoss"]

_ON_DEVICE = {"chi2": solve_chi2, "kl": solve_kl}
#: What torch.compile leaves to Python; the graph has a break there.
_eager: Any = torch.compiler.disable
#: Kinds of devices whose memory compiled code can read.
_HOSTS = {"cpu"}


@torch.library.custom_op(
    "drolearn::worst_case",
    mutates_args=(),
    schema="(Tensor z, Tensor? sample_weight, float rho, str divergence) -> (Tensor, Tensor)",
)
def _weigh_by_name(z, sample_weight, rho, divergence):  # type: ignore[no-untyped-def]
    """The weights by compiled code, and value, D, α, λ and gap: an operation for graphs."""
    found = worst_case(
        _host(z), rho, divergence, None if sample_weight is None else _host(sample_weight)
    )
    facts = [found.value, found.achieved, found.alpha, found.lam, found.gap]
    return torch.from_numpy(found.weights).to(z), z.new_tensor(facts)


@_weigh_by_name.register_fake
def _(z, sample_weight, rho, divergence):  # type: ignore[no-untyped-def]
    return torch.empty_like(z), z.new_empty(5)


class RobustLoss(torch.nn.Module):
    """The worst average of the losses over all weights within a φ-divergence ball.

    Parameters
    ----------
    rho : float, default=0.1
        Radius of the ball.
    divergence : str or Divergence, default="chi2"
        As in :func:`drolearn.worst_case`.  χ² and KL are solved on the device of the losses,
        others by compiled code on the host.
    nan : {"raise", "skip"}, default="raise"
        What to do with losses that are not finite: an error that counts them, or weight zero.
    process_group : ProcessGroup, or True for the default group, optional
        Then the losses of all processes together have one worst case.  Each gets its share of
        the loss, times the number of processes: the mean that DistributedDataParallel takes of
        the gradients is the gradient of the whole.

    Attributes
    ----------
    weights : Tensor
        Worst-case weights of the last losses, in their order.
    certificate : WorstCase, DeviceWorstCase or None
        Value, divergence and duality gap of the last solution; None for draws.

    Examples
    --------
    >>> import torch
    >>> from drolearn.nn import RobustLoss
    >>> criterion = RobustLoss(rho=0.5)
    >>> losses = torch.tensor([0.1, 0.2, 0.3, 4.0], requires_grad=True)
    >>> loss = criterion(losses)
    >>> loss.backward()
    >>> round(loss.item(), 4), losses.grad.numpy().round(3)
    (2.3146, array([0.137, 0.148, 0.159, 0.556], dtype=float32))
    """

    def __init__(
        self,
        rho: float = 0.1,
        divergence: str | Divergence = "chi2",
        *,
        nan: Literal["raise", "skip"] = "raise",
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.rho = as_radius(rho)
        self.divergence = as_divergence(divergence)
        if nan not in ("raise", "skip"):
            raise ValueError(f"The 'nan' parameter must be 'raise' or 'skip'. Got {nan!r} instead.")
        self.nan = nan
        #: Whether the name alone tells what the divergence is.
        name = self.divergence.name
        self._named = name in NAMES and as_divergence(name) == self.divergence
        self.process_group = _as_process_group(process_group)
        self.weights: Tensor | None = None
        self.certificate: WorstCase | DeviceWorstCase | None = None

    def extra_repr(self) -> str:
        """What the printed module says."""
        more = "" if self.nan == "raise" else f", nan={self.nan!r}"
        more += "" if self.process_group is None else f", process_group={self.process_group!r}"
        return f"rho={self.rho!r}, divergence={self.divergence!r}{more}"

    def forward(
        self,
        losses: Tensor,
        draw: Draw | None = None,
        *,
        sample_weight: Tensor | None = None,
        groups: Any = None,
    ) -> Tensor:
        """The robust loss of a vector of losses.

        With a `draw` of :class:`MultilevelBatches`, an estimate whose expectation is the robust
        loss of all rows, and so is that of its gradient.  `sample_weight` has weights of the
        examples; with `groups`, names or numbers (of processes only numbers), the ball moves
        the shares of the groups.
        """
        if self.process_group is not None:
            return self._shared(losses, draw, sample_weight, groups)
        check_losses(losses, 1)
        if draw is not None:
            self._check_draw(draw, losses.numel(), groups)
        x, z = _precise(losses)
        skipped = self._skipped(z)
        if skipped is not None:
            x, z = x.masked_fill(skipped, 0.0), z.masked_fill(skipped, 0.0)
        weights = self._weigh(z, draw, _as_weights(sample_weight, z), groups, skipped)
        self.weights = weights
        return total(weights, x)

    def _skipped(self, z: Tensor) -> Tensor | None:
        """The losses to leave out, if any are to be."""
        if self.nan == "raise":
            return None
        wrong = ~torch.isfinite(z)
        if not torch.compiler.is_compiling():
            if not bool(wrong.any()):
                return None
            if bool(wrong.all()):
                raise ValueError(
                    f"The 'losses' parameter must hold a finite number. Got none of {z.numel()}."
                )
        return wrong

    def _weigh(
        self,
        z: Tensor,
        draw: Draw | None,
        sample_weight: Tensor | None,
        groups: Any,
        skipped: Tensor | None,
    ) -> Tensor:
        """The weights of losses; what is skipped has none."""
        if skipped is not None:
            if draw is not None:
                raise ValueError(
                    "Losses of a draw cannot be skipped without a bias: use nan='raise', and mend "
                    "the examples whose losses are not finite."
                )
            sample_weight = (
                torch.ones_like(z) if sample_weight is None else sample_weight
            ).masked_fill(skipped, 0.0)
        if draw is not None:
            return self._weigh_draw(z, draw, sample_weight)
        compiling = torch.compiler.is_compiling()
        solve = None if z.device.type in _HOSTS else _ON_DEVICE.get(self.divergence.family)
        if groups is None and solve is None and compiling and self._named:
            # Compiled code as one operation of the graph.
            weights, facts = _weigh_by_name(z, sample_weight, self.rho, self.divergence.name)
            self.certificate = DeviceWorstCase(weights, *facts.unbind())
            return weights
        if groups is not None or solve is None:
            return self._weigh_on_host(z, sample_weight, groups)
        given = torch.ones_like(z) if sample_weight is None else sample_weight
        b = given / given.sum()
        # One question to the device; what is wrong is found out on the host.
        if not compiling and not bool((torch.isfinite(z + b) & (given >= 0.0)).all()):
            if not bool(torch.isfinite(z).all()):
                raise ValueError(not_finite(_host(z)))
            as_weights(_host(given), z.numel())
        solved = solve(z, b, self.rho)
        self.certificate = solved
        return solved.weights

    @_eager
    def _weigh_on_host(self, z: Tensor, sample_weight: Tensor | None, groups: Any) -> Tensor:
        """By compiled code; under torch.compile the graph has a break here."""
        host = _host(z)
        b = None if sample_weight is None else _host(sample_weight)
        if groups is None:
            found = worst_case(host, self.rho, self.divergence, b)
        else:
            names = groups
            if isinstance(groups, Tensor):
                exact = groups.double() if groups.is_floating_point() else groups
                names = exact.detach().cpu().numpy()
            if not np.isfinite(host).all():  # which the means of groups no longer tell
                raise ValueError(not_finite(host))
            shared = Groups.make(as_groups(names, host.size)[1], b)
            means, shares = shared.means(host), shared.shares
            found = shared.spread(worst_case(means, self.rho, self.divergence, shares))
        self.certificate = found
        return torch.from_numpy(found.weights).to(z)

    def _check_draw(self, draw: Draw, size: int, groups: Any) -> None:
        if groups is not None:
            raise ValueError("A draw has no groups: give either 'draw' or 'groups'.")
        radius = radius_of(draw)
        if draw.indices.size != size:
            raise ValueError(
                f"The draw has {draw.indices.size} rows and there are {size} losses: they must "
                f"belong to the same batch."
            )
        if radius != self.rho and self.divergence.family != "cvar":
            raise ValueError(
                f"The draw was made for rho = {radius!r} and the criterion for {self.rho!r}: give "
                f"both the same."
            )

    @_eager
    def _weigh_draw(self, z: Tensor, draw: Draw, sample_weight: Tensor | None) -> Tensor:
        self.certificate = None
        b = None if sample_weight is None else _host(sample_weight)
        return torch.from_numpy(draw.weights(_host(z), self.divergence, b)).to(z)

    # -- many processes ------------------------------------------------------------------

    @_eager
    def _shared(self, losses: Tensor, draw: Draw | None, sample_weight: Any, groups: Any) -> Tensor:
        """The share of this process in the worst case of the losses of all."""
        wrong = None
        try:
            if draw is not None:
                raise ValueError(
                    "With a process group no 'draw' can be given: draws of different processes "
                    "are independent, so a criterion without a group serves them."
                )
            check_losses(losses, 0)
            x, z = _precise(losses)
            given = _as_weights(sample_weight, z)
            own = [z, torch.ones_like(z) if given is None else given]
            if groups is not None:
                own.append(_as_numbers(groups, z))
        except Exception as error:  # the others wait for this one: tell them first
            wrong = error
            x = z = torch.zeros(0, dtype=torch.float64, device=getattr(losses, "device", "cpu"))
            own = [z, z]
        # What all processes have to have in common, as one number.
        common = (self.rho, self.divergence.name, self.nan, sample_weight is None, groups is None)
        kind = crc32(repr(common).encode())
        parts, rank = _gathered(torch.stack(own), kind, wrong, self.process_group)
        whole = torch.cat(parts, dim=1)
        if whole.shape[1] == 0:
            raise ValueError("The losses of all processes together must hold at least one number.")
        if self.nan == "raise":
            for k, part in enumerate(parts):
                if not bool(torch.isfinite(part[0]).all()):
                    raise ValueError(f"Process {k} of the group: {not_finite(_host(part[0]))}")
        skipped = self._skipped(whole[0])
        all_z = whole[0] if skipped is None else whole[0].masked_fill(skipped, 0.0)
        names = None if groups is None else whole[2].contiguous().view(torch.int64)
        weights = self._weigh(all_z, None, whole[1], names, skipped)
        first = sum(part.shape[1] for part in parts[:rank])
        mine = slice(first, first + z.numel())
        self.weights = weights[mine]
        if skipped is not None:
            x = x.masked_fill(skipped[mine], 0.0)
        share = len(parts) * total(self.weights, x)
        # All processes see the whole loss; the gradient is that of their own share.
        return share + ((weights * all_z).sum() - share).detach().to(x.dtype)


def _gathered(
    own: Tensor, kind: int, wrong: Exception | None, group: Any
) -> tuple[list[Tensor], int]:
    """The columns of all processes, and the place of this one among them."""
    import torch.distributed as dist

    group = dist.group.WORLD if group is True else group
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    if rank < 0:
        raise ValueError(
            "This process does not belong to the criterion's process group: leave it out, or give "
            "a group that it belongs to."
        )

    def of_all(mine: Tensor) -> list[Tensor]:
        found = [torch.empty_like(mine) for _ in range(world)]
        try:
            dist.all_gather(found, mine, group=group)
        except RuntimeError as error:
            raise RuntimeError(
                f"A process of the group has not taken part in gathering the losses, so it has "
                f"died or takes another path ({' '.join(str(error).split())[:200]}): see its "
                f"output, and start all of them again from the last checkpoint."
            ) from error
        return found

    size = torch.tensor([-1 if wrong else own.shape[1], kind], device=own.device)
    counts, kinds = torch.stack(of_all(size)).T.tolist()
    if min(counts) < 0:
        raise wrong or ValueError(
            f"Process {counts.index(-1)} of the group gave losses that cannot be used; its own "
            f"message says why."
        )
    if len(set(kinds)) > 1:
        raise ValueError(
            "All processes must make the criterion the same, and either all give it "
            "'sample_weight' (and 'groups', empty ones where there are no losses), or none does."
        )
    padded = own.new_zeros((own.shape[0], max([1, *counts])))
    padded[:, : own.shape[1]] = own
    parts = of_all(padded)
    return [part[:, :count] for part, count in zip(parts, counts, strict=True)], rank


# -- what may be given -----------------------------------------------------------------


def radius_of(draw: Any) -> float:
    """The radius that a draw was made for; refuse what is not a draw."""
    if not isinstance(draw, Draw):
        raise ValueError(
            f"The 'draw' parameter must be a Draw, as MultilevelBatches gives with every batch. "
            f"Got {type(draw).__name__} instead."
        )
    return float(draw.blocks[0, 3])


def check_losses(losses: Any, least: int) -> None:
    """Refuse what is not a vector of losses."""
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        kind = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"The 'losses' parameter must be a tensor of floating-point numbers. Got {kind} "
            f"instead."
        )
    if losses.layout != torch.strided:
        raise ValueError(
            f"The 'losses' parameter must be a dense tensor. Got one of layout {losses.layout}: "
            f"use .to_dense()."
        )
    if losses.ndim != 1:
        raise ValueError(
            f"The 'losses' parameter must have one loss for each example: use reduction='none', "
            f"and a mean over what belongs to one example. Got a tensor of shape "
            f"{tuple(losses.shape)} instead."
        )
    if losses.numel() < least:
        raise ValueError("The 'losses' parameter must hold at least one number. Got none instead.")


def _precise(losses: Tensor) -> tuple[Tensor, Tensor]:
    """The losses as the answer has them, and detached in double precision where there is one."""
    x = losses if losses.dtype.itemsize >= 4 else losses.float()
    return x, losses.detach().to(torch.float32 if losses.device.type == "mps" else torch.float64)


def _as_process_group(group: Any) -> Any:
    """A group, True for the default one, or None."""
    if group is None or group is False:
        return None
    if group is not True and not hasattr(group, "size"):
        raise ValueError(
            f"The 'process_group' parameter must be a process group of torch.distributed, True for "
            f"the default one, or None. Got {group!r} instead."
        )
    return group


def _as_weights(sample_weight: Any, z: Tensor) -> Tensor | None:
    if sample_weight is None:
        return None
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


def _as_numbers(groups: Any, z: Tensor) -> Tensor:
    """Numbers of groups, which processes can exchange."""
    try:
        given = torch.as_tensor(groups)
    except (TypeError, ValueError, RuntimeError):
        given = torch.empty(0)
    if given.numel() == z.numel() == 0:
        return z
    if given.shape != z.shape or given.is_floating_point() or given.is_complex():
        raise ValueError(
            f"The 'groups' parameter must have a whole number for each of the {z.numel()} losses "
            f"of a process, as names cannot be exchanged: number the groups, the same in all."
        )
    return given.to(z.device, torch.int64).view(torch.float64)  # to the bit


def total(weights: Tensor, x: Tensor) -> Tensor:
    """Σ weight × loss; a dot product is the faster way, but elsewhere autocast may narrow it."""
    w = weights.to(x.dtype)
    return torch.dot(w, x) if x.is_cpu else (w * x).sum()


def _host(x: Tensor) -> NDArray[np.float64]:
    """As NumPy sees it; on the host and in double precision nothing is copied."""
    return x.detach().to("cpu", torch.float64).resolve_neg().numpy()
