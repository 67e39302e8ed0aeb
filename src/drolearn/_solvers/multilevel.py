"""Multilevel draws: a small batch, and at random a correction that removes its bias.

The correction of level k draws n_k rows and splits them into two parts of n_{k−1} = ⌊n_k/2⌋:

    Δ_k = ∇R̂(all) − ½ (∇R̂(left) + ∇R̂(right)),   drawn with probability π q_k,
    G   = ∇R̂(base block) + Δ_k / (π q_k).

As n_K = N and each part is a uniform random subset, the expectations telescope: E[G] is the
gradient of the robust loss of all rows, for every N, every radius and every divergence.

With groups, a draw has n_k rows of each group, where n_{k−1} = max(1, ⌊n_k/2⌋); a single row is in
both parts.  The base shares of the groups are those of all rows in every block.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._solvers.allocation import allocate
from drolearn._solvers.draws import Draw, Method, halved
from drolearn._validation import as_count, float_or_nan

__all__ = ["Multilevel"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Multilevel(Method):
    """A base block in every step, and with probability `fire` a correction of its bias.

    Parameters
    ----------
    n : int
        Number of rows N.
    batch_size : int, default=1
        Smallest size of a block: N is halved as long as at least this many rows remain.
    r : float or "auto", default=2**-1.5
        Each level is drawn r times as often as the one below: q_k = r^(k−1)(1−r)/(1−r^K).
        Above 1/2 the expected cost of a step grows with N, below 1/4 its variance does.
        "auto" is 2**-1.5 until `tuned` estimates the best probabilities.
    fire : float, default=1.0
        Probability π of a correction.
    probabilities : tuple of float, default=None
        Probabilities π q_k of the levels, instead of `r` and `fire`; see `tuned`.
    warm : int, default=0
        The frequency of corrections grows to its final value over this many steps.  Until then,
        steps are cheaper and less noisy, but biased towards the gradient of the base block.
    rho : float, default=0.1
        Radius of the ball of all rows.
    inflation : float, default=0.0
        A block of M rows uses the radius ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    delta : float, default=0.01
        See `inflation`.
    groups : array-like of shape (n,), default=None
        Names of the groups of the rows.  The ball then reweights groups, from their shares of the
        rows, and `sample_weight` of the rows counts within groups.
        Every block has rows of every group.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Multilevel
    >>> method = Multilevel(1000, batch_size=100)
    >>> method.sizes
    array([ 125,  250,  500, 1000])
    >>> draw = method.draw(np.random.default_rng(5))
    >>> draw.blocks[:2].round(2).tolist()
    [[0.0, 125.0, 1.0, 0.1], [125.0, 625.0, 4.18, 0.1]]
    >>> draw.blocks[2:].round(2).tolist()  # the two parts of the correction
    [[125.0, 375.0, -2.09, 0.1], [375.0, 625.0, -2.09, 0.1]]
    """

    batch_size: int = 1
    r: float | Literal["auto"] = 2.0**-1.5
    fire: float = 1.0
    probabilities: tuple[float, ...] | None = None
    warm: int = 0
    scheme = "multilevel"

    def __post_init__(self) -> None:
        """Check the settings; warn if cost or variance grow with the number of rows."""
        super().__post_init__()
        as_count("batch_size", self.batch_size)
        r = 2.0**-1.5 if self.r == "auto" else self.r
        if not 0.0 < float_or_nan(r) < 1.0:
            raise ValueError(
                f"The 'r' parameter must be 'auto' or lie between 0 and 1. Got {r!r} instead."
            )
        if not 0.0 < float_or_nan(self.fire) <= 1.0:
            raise ValueError(
                f"The 'fire' parameter must be above 0 and at most 1. Got {self.fire!r} instead."
            )
        if self.warm < 0:
            raise ValueError(
                f"The 'warm' parameter must be a number of steps. Got {self.warm!r} instead."
            )
        levels = self.sizes.size - 1
        if self.probabilities is not None:
            given = np.asarray(self.probabilities)
            given = given.astype(np.float64) if given.dtype.kind in "fiu" else np.empty(0)
            if given.shape != (levels,) or not (given > 0.0).all() or given.sum() > 1.0 + 1e-12:
                raise ValueError(
                    f"The 'probabilities' parameter must be {levels} positive numbers, one for "
                    f"each level, of sum at most 1. Got {self.probabilities!r} instead."
                )
        elif not 0.25 < r < 0.5 and levels > 1:
            grows = "cost (Theorem 4)" if r >= 0.5 else "variance (Theorem 5)"
            warnings.warn(
                f"r = {r:.6g} lies outside (1/4, 1/2): the expected {grows} of a step "
                f"grows with the number of rows. Use r = 2**-1.5 or r = 'auto'.",
                stacklevel=3,
            )

    @cached_property
    def group_sizes(self) -> NDArray[np.int64]:
        """Rows of each group in a block of each level; one column without groups."""
        return halved(self._rows(), int(self.batch_size))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Sizes n_0, …, n_K = N of the blocks of the levels."""
        return self.group_sizes.sum(axis=1)

    @cached_property
    def costs(self) -> NDArray[np.int64]:
        """Rows of the base block and of the corrections; the single row of a group counts twice."""
        if self.groups is None:
            return self.sizes
        return np.append(self.sizes[0], (self.sizes + (self.group_sizes == 1).sum(axis=1))[1:])

    @cached_property
    def level_probabilities(self) -> Array:
        """Probabilities π q_k of the levels k = 1 … K."""
        if self.probabilities is not None:
            return np.array(self.probabilities, dtype=np.float64)
        r = 2.0**-1.5 if self.r == "auto" else self.r
        powers = r ** np.arange(self.sizes.size - 1, dtype=np.float64)
        return self.fire * powers / powers.sum() if powers.size else powers

    def _base_rows(self, step: float) -> NDArray[np.int64]:
        """The number of rows of each group in the base block; one without groups."""
        return self.group_sizes[0]

    @property
    def cost(self) -> float:
        """Expected number of rows of a draw."""
        return float(self.costs[0] + self.level_probabilities @ self.costs[1:])

    def draw_level(self, rng: np.random.Generator, level: int) -> Draw:
        """Draw only the base block, or only a correction.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of random numbers.
        level : int
            0 for the base block, k for a correction of level k, which is not divided by its
            probability.

        Returns
        -------
        Draw
            Rows, and signed blocks of them.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import Multilevel
        >>> draw = Multilevel(1000, batch_size=100).draw_level(np.random.default_rng(0), 2)
        >>> draw.blocks[:, :3].tolist()
        [[0.0, 500.0, 1.0], [0.0, 250.0, -0.5], [250.0, 500.0, -0.5]]
        """
        with rng.bit_generator.lock:
            return self._as_draw(_core.draw_level(rng.bit_generator.capsule, self.plan, level))

    def tuned(
        self,
        gradient: Callable[[Draw], ArrayLike],
        rng: np.random.Generator,
        budget: int = 200_000,
    ) -> Multilevel:
        """Choose the level probabilities that minimise cost × variance for some gradients.

        A pilot run estimates the second moments of the base block and of Δ_k.  Levels that are
        too expensive for the pilot are extrapolated from the levels below.

        Parameters
        ----------
        gradient : callable
            Maps a draw to Σ weight × gradient of its rows.
        rng : numpy.random.Generator
            The source of random numbers.
        budget : int, default=200_000
            Rows that the pilot may draw, roughly.

        Returns
        -------
        Multilevel
            The method with `probabilities`.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import Multilevel
        >>> rng = np.random.default_rng(0)
        >>> losses = rng.exponential(size=1000)
        >>> method = Multilevel(1000, batch_size=100)
        >>> tuned = method.tuned(lambda draw: draw.weights(losses[draw.indices]), rng)
        >>> len(tuned.probabilities)
        3
        """

        def squares(level: int, count: int) -> list[float]:
            draws = (self.draw_level(rng, level) for _ in range(count))
            return [float(np.sum(np.square(gradient(draw)))) for draw in draws]

        return self._tuned_by(squares, budget)

    def _tuned_by(
        self, squares: Callable[[int, int], list[float]], budget: int = 200_000
    ) -> Multilevel:
        """Choose the level probabilities from squared norms of the gradients of some draws.

        `squares` maps a level and a number of draws to the squared norms of as many gradients.
        """
        levels = self.sizes.size - 1
        if levels == 0:
            return self
        share = max(budget // (levels + 1), 1)
        seconds = np.full(levels + 1, np.nan)
        for k in range(levels + 1):
            repeats = min(share // int(self.costs[k]), 1000)
            if repeats < 4 and k > 2:
                break
            seconds[k] = np.mean(squares(k, max(repeats, 4)))
        known = np.flatnonzero(seconds[1:] > 0.0) + 1
        if known.size == 0:
            return self
        if known.size > 1:
            # Extrapolate the decay of the last three levels.
            line = np.polyfit(known[-3:], np.log(seconds[known[-3:]]), 1)
            unknown = np.setdiff1d(np.arange(1, levels + 1), known)
            seconds[unknown] = np.exp(np.polyval(line, unknown))
        seconds = np.where(np.isnan(seconds), seconds[known[-1]], seconds)
        probabilities = allocate(self.costs, seconds)
        return replace(self, probabilities=tuple(float(q) for q in probabilities))

    def _warm(self) -> float:
        return float(self.warm)

    def _levels(self) -> tuple[NDArray[np.int64], Array]:
        return self.group_sizes, self.level_probabilities
