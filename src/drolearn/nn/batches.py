"""Batches for PyTorch's DataLoader whose weighted gradient is unbiased."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, strided
from torch.utils.data import IterableDataset

from drolearn._inner.worst_case import not_finite
from drolearn._solvers.draws import Draw
from drolearn._solvers.multilevel import Multilevel
from drolearn._validation import as_count, as_generator, as_losses, as_radius
from drolearn.divergence import Divergence, as_divergence
from drolearn.nn.checks import check_values, to_host
from drolearn.nn.loading import BatchDraw, Loader

__all__ = ["Bias", "MultilevelBatches"]

#: Levels of a stream without a cap; no stream is read for 2**40 times the base block.
_LEVELS = 40
#: Number of blocks from which `bias` estimates a mean and its standard error.
_BLOCKS = 30


class Bias(NamedTuple):
    """An estimate and its standard error.

    Attributes
    ----------
    value : float
        The estimate.
    error : float
        Its standard error.
    """

    value: float
    error: float


class MultilevelBatches:
    """Batches whose weighted gradient is unbiased for the robust loss of all rows.

    `loader` makes a DataLoader that returns each batch with its draw and counts the batches.  A
    plain DataLoader would lose the draws and repeat the same batches in every epoch, so
    ``DataLoader(dataset, batch_sampler=batches)`` raises an error when it is iterated.

    Parameters
    ----------
    n : int or None
        Number of rows; None for a stream, whose number of levels is not bounded.
    batch_size : int, default=64
        Smallest size of a batch: n is halved as long as at least this many rows remain.
    rho : float, default=0.1
        Radius of the ball; use the same for the criterion.
    r : float, default=2**-1.5
        Each level is drawn r times as often as the one below, as in :class:`drolearn.Multilevel`.
        Above 1/2 the expected cost of a step grows with n, below 1/4 its variance does.
    fire : float, default=0.1
        Probability of a correction.
    probabilities : tuple of float, default=None
        Probabilities of the levels, instead of `r` and `fire`.
    steps : int, default=None
        Number of batches in an epoch.  None for as many as read about n rows (in each process),
        and 1,000 for a stream.
    max_level : int, default=None
        For streams: the largest block has batch_size · 2^max_level rows, and the largest draw
        batch_size · (1 + 2^max_level).  The estimate is then unbiased for the robust loss of such
        a block instead of the population; `bias` estimates the difference.  None for no cap.
    random_state : int, Generator or RandomState, default=None
        The same number gives the same batches.  Use a number if several processes resume from
        one checkpoint.
    rank : int, default=None
        Rank of this process; processes of different rank draw independently.  None for the rank
        in `torch.distributed`.

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
        self._rank = None if rank is None else as_count("rank", rank, 0)

    @property
    def rank(self) -> int:
        """Rank of this process."""
        if self._rank is not None:
            return self._rank
        import torch.distributed as dist

        return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0

    def draw(self, step: int) -> BatchDraw:
        """Return the draw of a step, which depends only on seed, rank and step.

        Parameters
        ----------
        step : int
            Number of the step, from 0.

        Returns
        -------
        BatchDraw
            Rows, and signed blocks of them; of a stream, the rows are the next ones.

        Examples
        --------
        >>> from drolearn.nn import MultilevelBatches
        >>> draw = MultilevelBatches(1000, batch_size=100, random_state=0).draw(0)
        >>> draw.blocks.round(2).tolist()[:2]
        [[0.0, 125.0, 1.0, 0.1], [125.0, 375.0, 14.79, 0.1]]
        """
        rng = np.random.default_rng([self.seed, self.rank, step])
        drawn = self.method.draw(rng, step)
        if not self.streams:
            return BatchDraw(drawn.indices, drawn.blocks, drawn.batch_size)
        return BatchDraw(np.arange(drawn.indices.size), drawn.blocks, drawn.batch_size)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        # A generator: an error from iter() would leave a DataLoader with workers half made.
        yield _refuse_iteration()

    def _epoch(self) -> range:
        """Return the remaining steps of the epoch; a stream always gets a full epoch."""
        done = 0 if self.streams else self.step % self.steps
        return range(self.step, self.step + self.steps - done)

    def loader(self, dataset: Any, **options: Any) -> Loader:
        """Make a DataLoader of (batch, draw).

        If an epoch was interrupted or a state loaded, the next loop returns the remaining batches
        of the epoch.  A stream continues at its current row, and starts again after its end.

        Parameters
        ----------
        dataset : Dataset or IterableDataset
            The examples: a Dataset of n rows, or an IterableDataset if n is None.
        **options : Any
            Options of DataLoader, such as `num_workers`, `pin_memory` and `collate_fn`.

        Returns
        -------
        iterable of (batch, draw)
            The loader, with `state_dict` and `load_state_dict` of the batches.

        Raises
        ------
        ValueError
            If the data set is of the wrong type or length, or an option would change the order
            of the batches.

        Examples
        --------
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from drolearn.nn import MultilevelBatches
        >>> batches = MultilevelBatches(100, batch_size=10, steps=3, random_state=0)
        >>> for (x,), draw in batches.loader(TensorDataset(torch.arange(100))):
        ...     print(bool((x.numpy() == draw.indices).all()))
        True
        True
        True
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
                f"PyTorch does. Got {type(dataset).__name__} instead."
            )
        if not self.streams and len(dataset) != self.method.n:
            raise ValueError(
                f"The data set has {len(dataset)} rows and the draws are from {self.method.n}: "
                f"use MultilevelBatches(len(dataset))."
            )
        return Loader(self, dataset, **options)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the remaining batches.

        Returns
        -------
        dict
            Seed, step, number of steps in an epoch, and the settings as a string.

        Examples
        --------
        >>> from drolearn.nn import MultilevelBatches
        >>> batches = MultilevelBatches(100, steps=5, random_state=0)
        >>> batches.state_dict()["step"], batches.state_dict()["steps"]
        (0, 5)
        """
        return {
            "seed": self.seed,
            "step": self.step,
            "steps": self.steps,
            "method": repr(self.method),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; the position in a stream is not part of it.

        Parameters
        ----------
        state : dict
            A result of `state_dict`, from batches with the same settings.

        Raises
        ------
        ValueError
            If the state is not complete, or belongs to other settings.

        Examples
        --------
        >>> from drolearn.nn import MultilevelBatches
        >>> batches = MultilevelBatches(100, random_state=0)
        >>> resumed = MultilevelBatches(100, random_state=1)
        >>> resumed.load_state_dict(batches.state_dict())
        >>> bool((resumed.draw(7).indices == batches.draw(7).indices).all())
        True
        """
        missing = {"seed", "step", "steps", "method"} - set(state)
        if missing:
            raise ValueError(
                f"The state must be that of MultilevelBatches.state_dict(). Got one without "
                f"{', '.join(sorted(missing))} instead."
            )
        if state["method"] != repr(self.method):
            raise ValueError(
                f"The state belongs to {state['method']} and these batches to {self.method!r}: "
                f"make the batches as they were when the state was saved."
            )
        self.seed, self.step = int(state["seed"]), int(state["step"])
        self.steps = int(state["steps"])

    def bias(self, losses: ArrayLike, divergence: str | Divergence = "chi2") -> Bias:
        """Estimate how far the cap on the levels keeps the estimate below the population's loss.

        Without a cap the bias is 0.  The robust loss R̂ₙ of n rows is below the robust loss R of
        the population by about C/n, so with n = batch_size · 2^max_level

            R − E R̂ₙ  ≈  C/n,     C = 2h E[ R̂(block of 2h) − ½ R̂(left half) − ½ R̂(right half) ].

        The expectation is estimated from blocks of `losses`, which are as large as n if there are
        30 of them.  With heavy tails, R̂ₙ converges more slowly than C/n.

        Parameters
        ----------
        losses : array-like or Tensor of shape (m,)
            Losses of m ≥ 4 rows of the stream; more rows give a smaller standard error.
        divergence : str or Divergence, default="chi2"
            Divergence of the ball.

        Returns
        -------
        Bias
            The bias as `value`, and its standard error as `error`.

        Raises
        ------
        ValueError
            If there are fewer than 4 losses, or one is not finite.

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
        if isinstance(losses, Tensor):
            check_values("losses", losses)
            if losses.is_floating_point() and losses.layout == strided:
                losses = to_host(losses)
        ball, z = as_divergence(divergence), as_losses(losses)
        if not np.isfinite(z).all():
            raise ValueError(not_finite(z))
        if not self.capped:
            return Bias(0.0, 0.0)
        if z.size < 4:
            raise ValueError(
                f"The 'losses' parameter must hold at least 4 numbers, two blocks that can be "
                f"halved. Got {z.size} instead."
            )
        largest = float(np.abs(z).max())
        if largest > 0.0 and not 1e-100 < largest < 1e100:  # squares would overflow or vanish
            exponent = math.frexp(largest)[1]
            value, error = self._bias(np.ldexp(z, -exponent), ball)
            return Bias(_ldexp(value, exponent), _ldexp(error, exponent))
        return self._bias(z, ball)

    def _bias(self, z: NDArray[np.float64], ball: Divergence) -> Bias:
        """Estimate the bias from losses of ordinary size."""
        n = int(self.method.n)
        half = max(min(n, z.size // _BLOCKS) // 2, 1)
        rho, both = self.method.rho, 2 * half
        blocks = np.array(
            [[0, both, 1.0, rho], [0, half, -0.5, rho], [half, both, -0.5, rho]], dtype=np.float64
        )
        correction = Draw(np.arange(both), blocks, 0)
        parts = z[: z.size // both * both].reshape(-1, both)
        estimates = [both / n * float(correction.weights(part, ball) @ part) for part in parts]
        error = np.std(estimates, ddof=1) / np.sqrt(len(estimates))
        return Bias(float(np.mean(estimates)), float(error))


def _refuse_iteration() -> NoReturn:
    """Raise the error of a DataLoader that would lose the draws."""
    raise TypeError(
        "MultilevelBatches cannot be iterated or be the batch_sampler of a DataLoader, which would "
        "lose the draw of each batch: write 'for batch, draw in batches.loader(dataset)' and pass "
        "the draw to the criterion, or use the rows batches.draw(step).indices."
    )


def _ldexp(number: float, exponent: int) -> float:
    """Compute number · 2^exponent; too large numbers become infinite."""
    try:
        return math.ldexp(number, exponent)
    except OverflowError:
        return math.copysign(math.inf, number)


def _as_level(max_level: int | None, batch_size: int) -> int:
    """Return a number of levels for which row numbers fit into 64 bits."""
    most = max(min(_LEVELS, 62 - batch_size.bit_length()), 0)
    return most if max_level is None else as_count("max_level", max_level, 0, most)
