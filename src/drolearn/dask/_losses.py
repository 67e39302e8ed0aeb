"""The worst case of a Dask array of losses, from partial sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, default_client
from numpy.typing import NDArray

from drolearn._blocks import Pass
from drolearn._inner.block_search import LossBlock, maximise, weights_of
from drolearn._inner.worst_case import WorstCase
from drolearn.dask._collections import as_vector, losses_and_weights
from drolearn.dask._engine import DaskBlocks
from drolearn.divergence import Divergence, as_divergence, radius_for

__all__ = ["MakeLosses", "as_client", "regrets", "worst_case"]

Array = NDArray[np.float64]


def as_client(client: Any) -> Client:
    """The client that was given, or the one that was made last."""
    if client is None:
        try:
            client = default_client()
        except ValueError:
            raise ValueError(
                "The 'client' parameter must be a dask.distributed.Client, or one must have been "
                "made before. Got None, and there is no client: use Client() for this machine."
            ) from None
    if not isinstance(client, Client) or client.asynchronous:
        raise ValueError(
            f"The 'client' parameter must be a synchronous dask.distributed.Client or None. "
            f"Got {client!r} instead."
        )
    return client


@dataclass(frozen=True, slots=True)
class _Known:
    """Checks of one or several partitions."""

    rows: dict[int, int]
    mass: float


class _KnowPass(Pass[tuple[int, LossBlock], _Known]):
    """The number of losses in each partition, and the sum of their weights."""

    def of(self, block: tuple[int, LossBlock]) -> _Known:
        number, losses = block
        mass = float(losses.z.size if losses.b is None else losses.b.sum())
        return _Known({number: losses.z.size}, mass)

    def add(self, first: _Known, second: _Known) -> _Known:
        return _Known({**first.rows, **second.rows}, first.mass + second.mass)


@dataclass(frozen=True, slots=True)
class MakeLosses:
    """Makes a block of losses; None if the partition has none."""

    starts: dict[int, int] | None = None
    """The number of losses before each partition, once it is known."""
    dust: float = 0.0
    """Weights below this count as zero."""

    def __call__(self, number: int, data: tuple[Any, Any], threads: int) -> Any:
        """Check the losses of one partition."""
        where = f"partition {number}"
        z = _vector("losses", data[0], where)
        if z.size == 0:
            return None
        b = None if data[1] is None else _vector("sample_weight", data[1], where)
        if b is not None and b.size != z.size:
            raise ValueError(
                f"The 'sample_weight' parameter must have one weight for each of the {z.size} "
                f"losses of {where}. Got {b.size} instead."
            )
        if b is not None and b.min() < 0.0:
            raise ValueError(
                f"The 'sample_weight' parameter must hold finite weights of at least 0. "
                f"Got {b.min()} in {where} instead."
            )
        if self.starts is None:
            return number, LossBlock(z, b, 0)
        if b is not None and self.dust > 0.0:
            b = np.where(b < self.dust, 0.0, b)
        return LossBlock(z, b, self.starts[number])


def _vector(parameter: str, values: Any, where: str) -> Array:
    z = np.ascontiguousarray(values, dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(z))
    if wrong.size:
        raise ValueError(
            f"The '{parameter}' parameter must hold finite numbers. "
            f"Got {z[wrong[0]]} at index {wrong[0]} of {where} instead."
        )
    return z


def worst_case(
    losses: Any,
    rho: float | None = None,
    divergence: str | Divergence = "chi2",
    sample_weight: Any = None,
    *,
    client: Client | None = None,
) -> WorstCase:
    """Maximise the weighted mean of a Dask array of losses over a φ-divergence ball.

    The losses stay on the workers: each round of the search sends a few sums of each worker.  The
    result is that of :func:`drolearn.worst_case` up to rounding, for any chunks, and does not
    depend on the number of workers.

    Parameters
    ----------
    losses : Dask array or series of shape (n,)
        Finite numbers z.
    rho : float, default=None
        Radius ρ ≥ 0 of the ball; None is 0.1.  CVaR has no radius: leave it None.
    divergence : str or Divergence, default="chi2"
        A name or an object, see :mod:`drolearn.divergence`; not a spectral risk.
    sample_weight : Dask array or series of shape (n,), default=None
        Base weights b ≥ 0 with any positive sum; None for equal weights.
    client : Client, default=None
        The client of the cluster; None for the one that was made last.

    Returns
    -------
    WorstCase
        The value, the multipliers and the duality gap.  The weights are a Dask array with the
        chunks of the losses, computed when they are needed.

    Raises
    ------
    ValueError
        If there are no losses, if some are not finite, or if another argument is not valid.
    LostWorkersError
        If all workers are lost.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from drolearn.dask import worst_case
    >>> losses = da.from_array([0.1, 0.2, 0.3, 4.0], chunks=2)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     wc = worst_case(losses, rho=0.5)
    ...     print(round(wc.value, 3), wc.weights.compute().round(3))
    2.315 [0.137 0.148 0.159 0.556]
    """
    chosen = as_divergence(divergence)
    radius = radius_for(chosen, rho)
    if chosen.family == "spectral":
        raise ValueError(
            f"The 'divergence' parameter must not be a spectral risk on a cluster, as that needs "
            f"the order of all losses. Got {chosen!r} instead; drolearn.worst_case takes it."
        )
    z = as_vector("losses", losses)
    b = None if sample_weight is None else as_vector("sample_weight", sample_weight)
    partitions, z, b = losses_and_weights(z, b)
    with DaskBlocks(as_client(client), partitions, MakeLosses()) as blocks:
        known: _Known | None = blocks.run(_KnowPass())
        if known is None:
            raise ValueError(
                "The 'losses' parameter must hold at least one number. Got none instead."
            )
        if not known.mass > 0.0:
            raise ValueError(
                "The 'sample_weight' parameter must have a positive sum. Got only zeros instead."
            )
        starts, n = {}, 0
        for number in sorted(known.rows):
            starts[number], n = n, n + known.rows[number]
        dust = 1e-34 * known.mass / (1.0 + radius) if chosen.family == "chi2" else 0.0
        blocks.remake(MakeLosses(starts, dust))
        found = maximise(blocks, chosen, radius, n)
    if found is None:
        raise ValueError("The 'losses' parameter must hold finite numbers.")
    write = _WriteWeights(chosen, found.state, dust)
    arguments = (z,) if b is None else (z, b)
    weights = da.map_blocks(write, *arguments, dtype=np.float64, meta=np.empty(0))
    return replace(found.worst, weights=weights)


def regrets(losses: Any, reference_losses: Any) -> Any:
    """A Dask array of losses minus those of a reference model, in the chunks of the losses."""
    c = as_vector("reference_losses", reference_losses)
    _, z, c = losses_and_weights(losses, c, "reference_losses")
    return da.map_blocks(_difference, z, c, dtype=np.float64, meta=np.empty(0))


def _difference(z: Any, c: Any) -> Array:
    z, c = np.asarray(z, dtype=np.float64), np.asarray(c, dtype=np.float64)
    if z.shape != c.shape:
        raise ValueError(
            f"The 'reference_losses' parameter must have one loss for each of the {z.size} rows. "
            f"Got {c.size} instead."
        )
    if not np.isfinite(c).all():
        raise ValueError(
            f"The 'reference_losses' parameter must hold finite numbers. "
            f"Got {c[~np.isfinite(c)][0]} instead."
        )
    return z - c


@dataclass(frozen=True, slots=True)
class _WriteWeights:
    """Computes the worst-case weights of one chunk."""

    divergence: Divergence
    state: bytes
    dust: float

    def __call__(self, z: Any, b: Any = None) -> Array:
        """Return the weights of these losses."""
        block = MakeLosses({0: 0}, self.dust)(0, (z, b), 1)
        return np.empty(0) if block is None else weights_of(self.divergence, self.state, block)
