"""Loaders that return batches of examples with their draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate

from drolearn._solvers.draws import Draw

if TYPE_CHECKING:
    from drolearn.nn.batches import MultilevelBatches

__all__ = ["BatchDraw", "Loader", "read_rows"]


class BatchDraw(Draw):
    """A draw that loaders and trainers can treat as part of a batch."""

    __slots__ = ()

    def to(self, *args: Any, **options: Any) -> BatchDraw:
        """Return the draw unchanged, as it stays on the host.

        Parameters
        ----------
        *args : Any
            Ignored; those of Tensor.to.
        **options : Any
            Ignored; those of Tensor.to.

        Returns
        -------
        BatchDraw
            The draw.
        """
        return self


class _Rows(list[int]):
    """The rows of a batch, with their draw."""

    draw: BatchDraw


class _Batches(Sampler[_Rows]):
    """The batch sampler of a loader: the remaining batches of an epoch."""

    def __init__(self, batches: MultilevelBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return self.batches.steps

    def __iter__(self) -> Iterator[_Rows]:
        for step in self.batches._epoch():
            draw = self.batches.draw(step)
            rows = _Rows(draw.indices.tolist())
            rows.draw = draw
            yield rows


class _WithDraw(Dataset[Any]):
    """A data set that returns examples with their draw."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: _Rows) -> tuple[list[Any], BatchDraw]:
        return read_rows(self.dataset, rows), rows.draw


def read_rows(dataset: Any, rows: Sequence[int]) -> list[Any]:
    """Return the examples of some rows."""
    get_all = getattr(dataset, "__getitems__", None)
    return get_all(list(rows)) if get_all is not None else [dataset[row] for row in rows]


def _collate(collate: Callable[[list[Any]], Any], examples: tuple[list[Any], BatchDraw]) -> Any:
    samples, draw = examples
    return collate(samples), draw


class _Stream(IterableDataset[Any]):
    """The rows of a stream, in batches of the sizes of draws."""

    def __init__(self, batches: MultilevelBatches, dataset: Iterable[Any]) -> None:
        self.batches, self.dataset = batches, dataset
        self.rows: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[tuple[list[Any], BatchDraw]]:
        any_read = False
        for step in self.batches._epoch():
            draw = self.batches.draw(step)
            size = draw.indices.size
            samples = self._next(size)
            if len(samples) < size and any_read:
                return  # a draw with missing rows would be biased
            if len(samples) < size:  # too few rows were left for one draw: start again
                samples = self._next(size)
            if len(samples) < size:
                raise ValueError(
                    f"The stream has ended after {len(samples)} rows, before its first draw of "
                    f"{size}: use a smaller 'batch_size', or a Dataset with a length."
                )
            any_read = True
            yield samples, draw

    def _next(self, size: int) -> list[Any]:
        """Read so many rows, or all that are left; at the end or an error, the stream restarts."""
        rows = iter(self.dataset) if self.rows is None else self.rows
        self.rows = None
        samples = list(islice(rows, size))
        self.rows = rows if len(samples) == size else None
        return samples


class Loader:
    """A DataLoader that counts the batches it has returned.

    Its state is that of the batches, so trainers that save loaders resume to the bit.
    """

    def __init__(self, batches: MultilevelBatches, dataset: Any, **options: Any) -> None:
        collate: Any = partial(_collate, options.pop("collate_fn", None) or default_collate)
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
            rows: Any = _Batches(batches)
            self.loader = DataLoader(inner, batch_sampler=rows, collate_fn=collate, **options)

    def __len__(self) -> int:
        return self.batches.steps

    def __iter__(self) -> Iterator[tuple[Any, BatchDraw]]:
        for batch_and_draw in self.loader:
            self.batches.step += 1
            yield batch_and_draw

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the batches."""
        return self.batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the batches."""
        self.batches.load_state_dict(state)
