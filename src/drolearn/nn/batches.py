"""Batches whose weighted gradient is unbiased, for PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate

from drolearn._inner.worst_case import not_finite
from drolearn._solvers.draws import Draw, Multilevel
from drolearn._validation import as_count, as_generator, as_losses, as_radius
from drolearn.divergence import Divergence, as_divergence

__all__ = ["BatchDraw", "Bias", "MultilevelBatches"]

#: Levels of a stream without end: 2**40 times the base block is more than anyone will read.
_LEVELS = 40
#: So many blocks tell what a level adds, and how surely.
_BLOCKS = 30


class BatchDraw(Draw):
    """A draw on its way through loaders and trainers, which move batches to devices."""

    __slots__ = ()

    def to(self, *args: Any, **options: Any) -> BatchDraw:
        """The draw itself: only the criterion reads it, on the host."""
        return self


class Bias(NamedTuple):
    """An estimate, and its standard error."""

    value: float
    error: float


class _Rows(list[int]):
    """Rows of a batch, with the draw that they belong to."""

    draw: BatchDraw


class _WithDraw(Dataset[Any]):
    """A data set that hands the draw on with the rows."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: _Rows) -> tuple[list[Any], BatchDraw]:
        return fetched(self.dataset, rows), rows.draw


def fetched(dataset: Any, rows: Sequence[int]) -> list[Any]:
    """The examples of some rows."""
    many = getattr(dataset, "__getitems__", None)
    return many(list(rows)) if many is not None else [dataset[row] for row in rows]


def _collated(collate: Callable[[list[Any]], Any], got: tuple[list[Any], BatchDraw]) -> Any:
    samples, draw = got
    return collate(samples), draw


class MultilevelBatches(Sampler[list[int]]):
    """Batches whose weighted gradient is unbiased for the robust loss of all rows.

    A batch sampler; `loader` makes the DataLoader that hands the draws on with the batches and
    counts them.

    Parameters
    ----------
    n : int or None
        Number of rows; None for a stream, whose levels have no end.
    batch_size : int, default=64
        Smallest size of a batch: N is halved as long as at least that many rows remain.
    rho : float, default=0.1
        Radius; that of the criterion.
    r, fire, probabilities
        As in :class:`drolearn.Multilevel`: how often each level and a correction at all is drawn.
    steps : int, optional
        Batches of an epoch; as many as read about n rows (in each process) if not given, 1,000 of
        a stream.
    max_level : int, optional
        For streams: no blocks of more than batch_size · 2^max_level rows, and no draws of more than
        batch_size · (1 + 2^max_level).  The estimate is then unbiased for the robust loss of such a
        block, not of the population; `bias` tells how far that is.
    random_state : int, Generator or RandomState, optional
        Same number, same batches.  Processes that resume from one checkpoint need a number.
    rank : int, optional
        Processes of different rank draw independently; that of torch.distributed if not given.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from drolearn.nn import MultilevelBatches, RobustLoss
    >>> data = TensorDataset(torch.randn(1000, 3), torch.randn(1000))
    >>> batches = MultilevelBatches(1000, batch_size=64, rho=0.1, random_state=0)
    >>> criterion, model = RobustLoss(rho=0.1), torch.nn.Linear(3, 1)
    >>> for (x, y), draw in batches.loader(data):
    ...     loss = criterion((model(x)[:, 0] - y) ** 2, draw)
    """

    def __init__(
        self,
        n: int | None,
        batch_size: int = 64,
        rho: float = 0.1,
        *,
        r: float = 2.0**-1.5,
        fire: float = 0.1,
        probabilities: tuple[float, ...] | None = None,
        steps: int | None = None,
        max_level: int | None = None,
        random_state: Any = None,
        rank: int | None = None,
    ) -> None:
        size = as_count("batch_size", batch_size)
        if n is not None and max_level is not None:
            raise ValueError("The 'max_level' parameter is for streams, where n is None.")
        self.streams, self.capped = n is None, max_level is not None
        rows = size << _as_level(max_level, size) if n is None else as_count("n", n)
        self.method = Multilevel(
            rows, batch_size=size, r=r, fire=fire, probabilities=probabilities, rho=as_radius(rho)
        )
        if steps is None:
            steps = 1000 if n is None else max(1, round(n / self.method.cost))
        as_count("steps", steps)
        self.steps, self.step = int(steps), 0
        self.seed = int(as_generator(random_state).integers(1 << 62))
        if rank is not None and (
            isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 0
        ):
            raise ValueError(
                f"The 'rank' parameter must be an integer of at least 0. Got {rank!r} instead."
            )
        self._rank = rank

    @property
    def rank(self) -> int:
        """Which of the processes this is."""
        if self._rank is not None:
            return self._rank
        import torch.distributed as dist

        return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0

    def draw(self, step: int) -> BatchDraw:
        """The draw of a step: it depends on seed, rank and step alone."""
        rng = np.random.default_rng([self.seed, self.rank, step])
        drawn = self.method.draw(rng, step)
        if not self.streams:
            return BatchDraw(drawn.indices, drawn.blocks, drawn.batch_size)
        return BatchDraw(np.arange(drawn.indices.size), drawn.blocks, drawn.batch_size)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in self._epoch():
            draw = self.draw(step)
            rows = _Rows(draw.indices.tolist())
            rows.draw = draw
            yield rows

    def _epoch(self) -> range:
        """The steps that are left of the epoch; streams have none, and end where they end."""
        done = 0 if self.streams else self.step % self.steps
        return range(self.step, self.step + self.steps - done)

    def loader(self, dataset: Any, **options: Any) -> _Loader:
        """A DataLoader of (batch, draw); options as for DataLoader: workers, pinned memory, …

        An epoch that was not read to its end, or a state that was loaded, is finished first: the
        next loop has the batches that are left.  A stream goes on where it was left, and begins
        again once it has ended.
        """
        if self.streams != isinstance(dataset, IterableDataset):
            raise ValueError(
                "MultilevelBatches(None) is for an IterableDataset, MultilevelBatches(n) for data "
                f"sets of n rows. Got {type(dataset).__name__} for n = "
                f"{None if self.streams else self.method.n} instead."
            )
        if not self.streams and not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise ValueError(
                f"The 'dataset' parameter must have a length and rows by number, as a Dataset of "
                f"PyTorch has. Got {type(dataset).__name__} instead."
            )
        if not self.streams and len(dataset) != self.method.n:
            raise ValueError(
                f"The data set has {len(dataset)} rows and the draws are from {self.method.n}: "
                f"make MultilevelBatches(len(dataset))."
            )
        return _Loader(self, dataset, **options)

    def state_dict(self) -> dict[str, Any]:
        """What the batches to come depend on."""
        return {
            "seed": self.seed,
            "step": self.step,
            "steps": self.steps,
            "method": repr(self.method),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another has stopped; a stream's rows have to do so by their own means."""
        missing = {"seed", "step", "steps", "method"} - set(state)
        if missing:
            raise ValueError(
                f"The state must be that of MultilevelBatches.state_dict(). Got one without "
                f"{', '.join(sorted(missing))} instead."
            )
        if state["method"] != repr(self.method):
            raise ValueError(
                f"The state belongs to {state['method']} and this is {self.method!r}: make the "
                f"batches as they were."
            )
        self.seed, self.step = int(state["seed"]), int(state["step"])
        self.steps = int(state["steps"])

    def bias(self, losses: ArrayLike, divergence: str | Divergence = "chi2") -> Bias:
        """How far the cap on the levels keeps the estimate below the population's robust loss.

        Without a cap, 0.  The robust loss R̂ₙ of n rows falls short of the population's by about
        C/n, so that with n = batch_size · 2^max_level

            R − E R̂ₙ  ≈  C/n,     C = 2h E[ R̂(block of 2h) − ½ R̂(left half) − ½ R̂(right half) ],

        estimated from `losses` of so many rows of the stream as can be had, in blocks as large as
        n if there are thirty of them.  Losses with heavy tails approach more slowly.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn.nn import MultilevelBatches
        >>> losses = np.random.default_rng(0).exponential(size=100_000)
        >>> capped = MultilevelBatches(None, batch_size=64, max_level=2)
        >>> bias, error = capped.bias(losses)
        >>> print(f"{bias:.4f} ± {error:.4f}")
        0.0019 ± 0.0001
        """
        kind, z = as_divergence(divergence), as_losses(losses)
        if not np.isfinite(z).all():
            raise ValueError(not_finite(z))
        if not self.capped:
            return Bias(0.0, 0.0)
        if z.size < 4:
            raise ValueError(
                f"The 'losses' parameter must hold at least 4 numbers, two blocks that can be "
                f"halved. Got {z.size} instead."
            )
        n = int(self.method.n)
        half = max(min(n, z.size // _BLOCKS) // 2, 1)
        rho, both = self.method.rho, 2 * half
        blocks = np.array(
            [[0, both, 1.0, rho], [0, half, -0.5, rho], [half, both, -0.5, rho]], dtype=np.float64
        )
        correction = Draw(np.arange(both), blocks, 0)
        parts = z[: z.size // both * both].reshape(-1, both)
        found = [both / n * float(correction.weights(part, kind) @ part) for part in parts]
        return Bias(float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(len(found))))


def _as_level(max_level: int | None, batch_size: int) -> int:
    """A number of levels such that the rows of the last fit into an index."""
    most = max(min(_LEVELS, 62 - batch_size.bit_length()), 0)
    level = most if max_level is None else max_level
    if isinstance(level, bool) or not isinstance(level, int | np.integer) or not 0 <= level <= most:
        raise ValueError(
            f"The 'max_level' parameter must be an integer from 0 to {most}. Got {level!r} instead."
        )
    return int(level)


class _Stream(IterableDataset[Any]):
    """The rows of a stream, cut into draws."""

    def __init__(self, batches: MultilevelBatches, dataset: Iterable[Any]) -> None:
        self.batches, self.dataset = batches, dataset
        self.rows: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[tuple[list[Any], BatchDraw]]:
        handed_out = False
        for step in self.batches._epoch():
            draw = self.batches.draw(step)
            size = draw.indices.size
            samples = self._next(size)
            if len(samples) < size and handed_out:
                return  # a draw cut short would be biased
            if len(samples) < size:  # little was left of it: begin again
                samples = self._next(size)
            if len(samples) < size:
                raise ValueError(
                    f"The stream has ended after {len(samples)} rows, before its first draw of "
                    f"{size}: take a smaller 'batch_size', or a Dataset with a length."
                )
            handed_out = True
            yield samples, draw

    def _next(self, size: int) -> list[Any]:
        """So many rows, or what is left; then, or after an error, the stream begins again."""
        rows = iter(self.dataset) if self.rows is None else self.rows
        self.rows = None
        samples = list(islice(rows, size))
        self.rows = rows if len(samples) == size else None
        return samples


class _Loader:
    """A DataLoader that counts the batches it has handed out.

    Its state is that of the batches: trainers that save the states of loaders resume to the bit.
    """

    def __init__(self, batches: MultilevelBatches, dataset: Any, **options: Any) -> None:
        collate: Any = partial(_collated, options.pop("collate_fn", None) or default_collate)
        self.batches = batches
        if options.get("in_order") is False:
            raise ValueError(
                "The batches must come in order, as a state counts them: leave 'in_order' at True."
            )
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

    def __iter__(self) -> Iterator[tuple[Any, BatchDraw]]:
        for got in self.loader:
            self.batches.step += 1
            yield got

    def state_dict(self) -> dict[str, Any]:
        """What the batches to come depend on."""
        return self.batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another has stopped."""
        self.batches.load_state_dict(state)
