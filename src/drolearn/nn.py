"""Robust training of PyTorch models, in loops of one's own.

    RobustLoss         losses of single examples in, the robust loss out
    MultilevelBatches  batches whose gradient is unbiased for the robust loss of all rows
    robust_backward    the gradient of a draw too large for memory

The weights are those of :func:`drolearn.worst_case` and the batches those of
:class:`drolearn.Multilevel`; by Danskin's theorem the gradient of the robust loss is that of the
losses under fixed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

try:
    import torch
    from torch import Tensor
    from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate
except ModuleNotFoundError as error:  # pragma: no cover - tried in a process of its own
    raise ModuleNotFoundError(
        "drolearn.nn needs PyTorch: pip install 'drolearn[torch]'.", name="torch"
    ) from error

from drolearn.divergence import Divergence, as_divergence
from drolearn.gradient import Draw, Multilevel, as_count
from drolearn.inputs import as_generator, as_groups
from drolearn.problem import Groups
from drolearn.tensor import DeviceWorstCase, solve_chi2, solve_kl
from drolearn.worst_case import WorstCase, as_radius, not_finite, worst_case

__all__ = ["MultilevelBatches", "RobustLoss", "robust_backward"]

_ON_DEVICE = {"chi2": solve_chi2, "kl": solve_kl}
#: What torch.compile leaves to Python; the graph has a break there.
_eager: Any = torch.compiler.disable
#: Levels of a stream without end: 2**40 times the base block is more than anyone will read.
_LEVELS = 40


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
        self.process_group = process_group
        self.weights: Tensor | None = None
        self.certificate: WorstCase | DeviceWorstCase | None = None

    def extra_repr(self) -> str:
        """What the printed module says."""
        return f"rho={self.rho:g}, divergence={self.divergence!r}"

    def forward(
        self,
        losses: Tensor,
        draw: Draw | None = None,
        *,
        base: Tensor | None = None,
        groups: Any = None,
    ) -> Tensor:
        """The robust loss of a vector of losses.

        With a `draw` of :class:`MultilevelBatches`, an estimate whose expectation is the robust
        loss of all rows, and so is that of its gradient.  `base` are weights of the examples;
        with `groups`, names or numbers, the ball moves the shares of the groups.
        """
        if torch.compiler.is_compiling():
            return self._forward(losses, draw, base, groups)
        with torch.autocast(_kind(losses), enabled=False):
            return self._forward(losses, draw, base, groups)

    def _forward(self, losses: Tensor, draw: Draw | None, base: Any, groups: Any) -> Tensor:
        if self.process_group is not None:
            return self._shared(losses, draw, base, groups)
        _check(losses, 1)
        z, out_type = _wide(losses)
        skipped = self._skipped(z)
        if skipped is not None:
            z = torch.where(skipped, torch.zeros_like(z), z)
        weights = self._weigh(z.detach(), draw, _as_weights(base, z), groups, skipped)
        self.weights = weights
        return (weights * z).sum().to(out_type)

    def _skipped(self, z: Tensor) -> Tensor | None:
        """The losses to leave out, if any are to be."""
        if torch.compiler.is_compiling():
            return None if self.nan == "raise" else ~torch.isfinite(z)
        if bool(torch.isfinite(z).all()):
            return None
        if self.nan == "raise":
            raise ValueError(not_finite(z.detach().cpu().double().numpy()))
        if not bool(torch.isfinite(z).any()):
            raise ValueError(
                f"The 'losses' parameter must hold a finite number. Got none of {z.numel()}."
            )
        return ~torch.isfinite(z)

    def _weigh(
        self,
        z: Tensor,
        draw: Draw | None,
        base: Tensor | None,
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
            base = torch.ones_like(z) if base is None else base
            base = torch.where(skipped, torch.zeros_like(z), base)
        if draw is not None:
            return self._weigh_draw(z, draw, base, groups)
        on_device = z.device.type != "cpu" or torch.compiler.is_compiling()
        if groups is None and on_device and self.divergence.name in _ON_DEVICE:
            b = torch.full_like(z, 1.0 / z.numel()) if base is None else base / base.sum()
            solved = _ON_DEVICE[self.divergence.name](z, b, self.rho)
            self.certificate = solved
            return solved.weights
        return self._weigh_on_host(z, base, groups)

    @_eager
    def _weigh_on_host(self, z: Tensor, base: Tensor | None, groups: Any) -> Tensor:
        """By compiled code; under torch.compile the graph has a break here."""
        host = _host(z)
        b = None if base is None else _host(base)
        if groups is None:
            found = worst_case(host, self.rho, self.divergence, b)
        else:
            names = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else groups
            shared = Groups.make(as_groups(names, host.size)[1], np.empty(0) if b is None else b)
            means, shares = shared.means(host), shared.shares
            found = shared.spread(worst_case(means, self.rho, self.divergence, shares))
        self.certificate = found
        return torch.from_numpy(found.weights).to(z)

    @_eager
    def _weigh_draw(self, z: Tensor, draw: Draw, base: Tensor | None, groups: Any) -> Tensor:
        if groups is not None:
            raise ValueError("A draw has no groups: give either 'draw' or 'groups'.")
        if not isinstance(draw, Draw):
            raise ValueError(
                f"The 'draw' parameter must be a Draw, as MultilevelBatches gives with every "
                f"batch. Got {type(draw).__name__} instead."
            )
        if draw.indices.size != z.numel():
            raise ValueError(
                f"The draw has {draw.indices.size} rows and there are {z.numel()} losses: they "
                f"must belong to the same batch."
            )
        if float(draw.blocks[0, 3]) != self.rho:
            raise ValueError(
                f"The draw was made for rho = {draw.blocks[0, 3]:g} and the criterion for "
                f"{self.rho:g}: give both the same."
            )
        self.certificate = None
        b = None if base is None else _host(base)
        return torch.from_numpy(draw.weights(_host(z), self.divergence, b)).to(z)

    # -- many processes ------------------------------------------------------------------

    @_eager
    def _shared(self, losses: Tensor, draw: Draw | None, base: Any, groups: Any) -> Tensor:
        """The share of this process in the worst case of the losses of all."""
        if draw is not None or groups is not None:
            raise ValueError(
                "With a process group neither 'draw' nor 'groups' can be given: draws of "
                "different processes are independent, so a criterion without one serves them."
            )
        wrong = None
        try:
            _check(losses, 0)
            z, out_type = _wide(losses)
            given = _as_weights(base, z)
            b = torch.ones_like(z) if given is None else given
        except ValueError as error:  # the others wait for this one: tell them first
            wrong, out_type = error, torch.float32
            z = b = torch.zeros(0, dtype=torch.float64, device=getattr(losses, "device", "cpu"))
        parts, rank = _gathered(torch.stack([z.detach(), b.detach()]), wrong, self.process_group)
        whole = torch.cat(parts, dim=1)
        if whole.shape[1] == 0:
            raise ValueError("The losses of all processes together must hold at least one number.")
        skipped = self._skipped(whole[0])
        all_z = whole[0] if skipped is None else whole[0].nan_to_num(0.0, 0.0, 0.0)
        weights = self._weigh(all_z, None, whole[1], None, skipped)
        first = sum(part.shape[1] for part in parts[:rank])
        self.weights = weights[first : first + z.numel()]
        if skipped is not None:
            own = skipped[first : first + z.numel()]
            z = torch.where(own, torch.zeros_like(z), z)
        mine = len(parts) * (self.weights * z).sum()
        # All processes see the whole loss; the gradient is that of their own share.
        return (mine + ((weights * all_z).sum() - mine).detach()).to(out_type)


def _gathered(own: Tensor, wrong: ValueError | None, group: Any) -> tuple[list[Tensor], int]:
    """The columns of all processes, and the place of this one among them."""
    import torch.distributed as dist

    group = dist.group.WORLD if group is True else group
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    size = torch.tensor([-1 if wrong else own.shape[1]], device=own.device)
    try:
        sizes = [torch.empty_like(size) for _ in range(world)]
        dist.all_gather(sizes, size, group=group)
        counts = [int(each) for each in sizes]
        if min(counts) < 0:
            raise wrong or ValueError(
                f"Process {counts.index(-1)} of the group gave losses that cannot be used; its "
                f"own message says why."
            )
        most = max([1, *counts])
        padded = torch.zeros((own.shape[0], most), dtype=own.dtype, device=own.device)
        padded[:, : own.shape[1]] = own
        found = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(found, padded, group=group)
    except RuntimeError as error:
        raise RuntimeError(
            f"A process of the group has not taken part in gathering the losses, so it has died "
            f"or takes another path ({' '.join(str(error).split())[:200]}): see its output, and "
            f"start all of them again from the last checkpoint."
        ) from error
    return [part[:, :count] for part, count in zip(found, counts, strict=True)], rank


# -- what may be given -----------------------------------------------------------------


def _kind(losses: Any) -> str:
    return losses.device.type if isinstance(losses, Tensor) else "cpu"


def _check(losses: Any, least: int) -> None:
    """Refuse what is not a vector of losses."""
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        kind = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"The 'losses' parameter must be a tensor of floating-point numbers. Got {kind} "
            f"instead."
        )
    if losses.ndim != 1:
        raise ValueError(
            f"The 'losses' parameter must have one loss for each example: use reduction='none', "
            f"and a mean over what belongs to one example. Got a tensor of shape "
            f"{tuple(losses.shape)} instead."
        )
    if losses.numel() < least:
        raise ValueError("The 'losses' parameter must hold at least one number. Got none instead.")


def _wide(losses: Tensor) -> tuple[Tensor, torch.dtype]:
    """The losses in double precision where the device has it, and the type of the answer."""
    out_type = losses.dtype if losses.dtype.itemsize >= 4 else torch.float32
    return losses.to(torch.float32 if losses.device.type == "mps" else torch.float64), out_type


def _as_weights(base: Any, z: Tensor) -> Tensor | None:
    if base is None:
        return None
    b = torch.as_tensor(base, dtype=z.dtype, device=z.device)
    if b.shape != z.shape:
        raise ValueError(
            f"The 'base' parameter must have one weight for each of the {z.numel()} losses. "
            f"Got a tensor of shape {tuple(b.shape)} instead."
        )
    return b


def _host(x: Tensor) -> NDArray[np.float64]:
    """As NumPy sees it; on the host and in double precision nothing is copied."""
    return x.detach().to("cpu", torch.float64).numpy()


# -- batches ---------------------------------------------------------------------------


class _Rows(list[int]):
    """Rows of a batch, with the draw that they belong to."""

    draw: Draw


class _WithDraw(Dataset[Any]):
    """A data set that hands the draw on with the rows."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: _Rows) -> tuple[list[Any], Draw]:
        return _fetched(self.dataset, rows), rows.draw


def _fetched(dataset: Any, rows: Sequence[int]) -> list[Any]:
    many = getattr(dataset, "__getitems__", None)
    return many(list(rows)) if many is not None else [dataset[row] for row in rows]


def _collated(collate: Callable[[list[Any]], Any], got: tuple[list[Any], Draw]) -> Any:
    samples, draw = got
    return collate(samples), draw


class MultilevelBatches(Sampler[list[int]]):
    """Batches whose weighted gradient is unbiased for the robust loss of all rows.

    Parameters
    ----------
    n : int or None
        Number of rows; None for a stream, whose levels have no end.
    base : int, default=64
        Smallest size of a batch: N is halved as long as at least that many rows remain.
    rho : float, default=0.1
        Radius; that of the criterion.
    r, fire
        As in :class:`drolearn.Multilevel`: how often each level and a correction at all is drawn.
    steps : int, optional
        Batches of an epoch; as many as read about n rows if not given.
    max_level : int, optional
        For streams: no draws of more than base · 2^max_level rows.  The estimate is then unbiased
        for the robust loss of so many rows, not of the population.
    random_state : int, Generator or RandomState, optional
        Same number, same batches.
    rank : int, optional
        Processes of different rank draw independently; that of torch.distributed if not given.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from drolearn.nn import MultilevelBatches, RobustLoss
    >>> data = TensorDataset(torch.randn(1000, 3), torch.randn(1000))
    >>> batches = MultilevelBatches(1000, base=64, rho=0.1, random_state=0)
    >>> criterion, model = RobustLoss(rho=0.1), torch.nn.Linear(3, 1)
    >>> for (x, y), draw in batches.loader(data):
    ...     loss = criterion((model(x)[:, 0] - y) ** 2, draw)
    """

    def __init__(
        self,
        n: int | None,
        base: int = 64,
        rho: float = 0.1,
        *,
        r: float = 2.0**-1.5,
        fire: float = 0.1,
        steps: int | None = None,
        max_level: int | None = None,
        random_state: Any = None,
        rank: int | None = None,
    ) -> None:
        as_count("base", base)
        levels = _LEVELS if max_level is None else _as_level(max_level)
        if n is not None and max_level is not None:
            raise ValueError("The 'max_level' parameter is for streams, where n is None.")
        self.streams = n is None
        rows = int(base) << levels if n is None else int(n)
        self.method = Multilevel(rows, base=base, r=r, fire=fire, rho=rho)
        if steps is None:
            steps = 1000 if n is None else max(1, round(n / self.method.cost))
        as_count("steps", steps)
        self.steps, self.step = int(steps), 0
        self.seed = int(as_generator(random_state).integers(1 << 62))
        self._rank = rank

    @property
    def rank(self) -> int:
        """Which of the processes this is."""
        if self._rank is not None:
            return self._rank
        import torch.distributed as dist

        return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0

    def draw(self, step: int) -> Draw:
        """The draw of a step: it depends on seed, rank and step alone."""
        rng = np.random.default_rng([self.seed, self.rank, step])
        return self.method.draw(rng, step)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.step, self.step + self.steps):
            draw = self.draw(step)
            rows = _Rows(draw.indices.tolist())
            rows.draw = draw
            yield rows

    def loader(self, dataset: Any, **options: Any) -> _Loader:
        """A DataLoader of (batch, draw); options as for DataLoader: workers, pinned memory, …"""
        if self.streams != isinstance(dataset, IterableDataset):
            raise ValueError(
                "MultilevelBatches(None) is for an IterableDataset, MultilevelBatches(n) for data "
                f"sets of n rows. Got {type(dataset).__name__} for n = "
                f"{None if self.streams else self.method.n} instead."
            )
        if not self.streams and len(dataset) != self.method.n:
            raise ValueError(
                f"The data set has {len(dataset)} rows and the draws are from {self.method.n}: "
                f"make MultilevelBatches(len(dataset))."
            )
        return _Loader(self, dataset, **options)

    def state_dict(self) -> dict[str, Any]:
        """What the batches to come depend on."""
        return {"seed": self.seed, "step": self.step, "method": repr(self.method)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another has stopped."""
        if state["method"] != repr(self.method):
            raise ValueError(
                f"The state belongs to {state['method']} and this is {self.method!r}: make the "
                f"batches as they were."
            )
        self.seed, self.step = int(state["seed"]), int(state["step"])


def _as_level(max_level: int) -> int:
    """A number of levels that fits into an index."""
    if not (isinstance(max_level, int | np.integer) and 0 <= max_level <= _LEVELS):
        raise ValueError(
            f"The 'max_level' parameter must be an integer from 0 to {_LEVELS}. "
            f"Got {max_level!r} instead."
        )
    return int(max_level)


class _Stream(IterableDataset[Any]):
    """The rows of a stream, cut into draws."""

    def __init__(self, batches: MultilevelBatches, dataset: Iterable[Any]) -> None:
        self.batches, self.dataset = batches, dataset

    def __iter__(self) -> Iterator[tuple[list[Any], Draw]]:
        rows = iter(self.dataset)
        for step in range(self.batches.step, self.batches.step + self.batches.steps):
            drawn = self.batches.draw(step)
            samples = list(islice(rows, drawn.indices.size))
            if len(samples) < drawn.indices.size:
                return  # a draw cut short would be biased
            yield samples, Draw(np.arange(len(samples)), drawn.blocks, drawn.base_size)


class _Loader:
    """A DataLoader that counts the batches it has handed out."""

    def __init__(self, batches: MultilevelBatches, dataset: Any, **options: Any) -> None:
        collate: Any = partial(_collated, options.pop("collate_fn", None) or default_collate)
        self.batches = batches
        if batches.streams:
            if options.get("num_workers"):
                raise ValueError(
                    "A stream is read by one process: leave 'num_workers' at 0, or shard the "
                    "stream over processes."
                )
            stream = _Stream(batches, dataset)
            self.loader = DataLoader(stream, batch_size=None, collate_fn=collate, **options)
        else:
            inner = _WithDraw(dataset)
            self.loader = DataLoader(inner, batch_sampler=batches, collate_fn=collate, **options)

    def __len__(self) -> int:
        return self.batches.steps

    def __iter__(self) -> Iterator[tuple[Any, Draw]]:
        for got in self.loader:
            self.batches.step += 1
            yield got


# -- draws larger than memory ----------------------------------------------------------


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
    memory does not depend on the size of the draw.  `loss_fn(model, batch)` returns the losses
    of the examples of a batch.  What is random in the model (dropout) is the same in both passes;
    running statistics (batch normalisation) see every row twice.

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
    criterion = criterion or RobustLoss(float(draw.blocks[0, 3]))
    rows = draw.indices.tolist()
    starts = range(0, len(rows), size)
    states, losses = [], []
    with torch.no_grad():
        for first in starts:
            states.append(torch.get_rng_state())
            batch = collate_fn(_fetched(dataset, rows[first : first + size]))
            losses.append(loss_fn(model, batch))
    together = torch.cat(losses)
    value = criterion(together, draw)
    weights = criterion.weights
    assert weights is not None
    after = torch.get_rng_state()
    for first, state in zip(starts, states, strict=True):
        own = weights[first : first + size]
        if not bool((own != 0.0).any()):
            continue
        torch.set_rng_state(state)
        batch = collate_fn(_fetched(dataset, rows[first : first + size]))
        again = loss_fn(model, batch)
        (own.to(again.dtype) * again).sum().backward()
    torch.set_rng_state(after)
    return float(value)
