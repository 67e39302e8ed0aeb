"""Draws: which rows a gradient looks at, and how they are weighted.

Every method is a *draw*: rows, and blocks (start, stop, coefficient, radius) of them.  The
signed weight of a row is Σ over blocks of coefficient × its worst-case weight within the
block, and the gradient is the weighted sum of the gradients of the rows.

    Full        one block, all rows                                   (FSG)
    Fixed       one block of M rows                                   (SGD)
    Growing     one block, larger at each step                        (PSSG)
    Multilevel  a base block, and now and then a correction           (GSSG)

The correction of level k draws n_k rows and splits them into two parts of n_{k−1} = ⌊n_k/2⌋:

    Δ_k = ∇R̂(all) − ½ (∇R̂(left) + ∇R̂(right)),   drawn with probability π q_k,
    G   = ∇R̂(base block) + Δ_k / (π q_k).

As n_K = N and each part is a uniform subset of its size, the expectations telescope: E[G] is
the gradient of the robust loss of all rows, for every N, every radius and every divergence.
No data and no model here: compiled loops, networks and clusters use the same draws.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._inner.worst_case import not_finite, not_solved
from drolearn._validation import as_count, as_losses, as_radius, as_weights
from drolearn.divergence import Divergence, as_divergence

__all__ = ["Draw", "Fixed", "Full", "Growing", "Method", "Multilevel"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Rows and signed blocks of them.

    Attributes
    ----------
    indices : array of int
        The rows, in random order.  The base block and a correction are drawn independently,
        so that a row may be there twice.
    blocks : array of shape (1 or 4, 4)
        start, stop, coefficient and radius of each block.
    batch_size : int
        How many of the rows belong to the base block; the others to a correction.
    """

    indices: NDArray[np.int64]
    blocks: Array
    batch_size: int

    def weights(
        self,
        losses: ArrayLike,
        divergence: str | Divergence = "chi2",
        sample_weight: ArrayLike | None = None,
    ) -> Array:
        """Signed weights of the rows: Σ over blocks of coefficient × worst-case weight.

        `losses` are those of the rows at `indices`, in that order; so are the weights,
        if any.
        """
        z = as_losses(losses)
        if z.size != self.indices.size:
            raise ValueError(
                f"The 'losses' parameter must have one loss for each of the {self.indices.size} "
                f"rows of the draw. Got {z.size} instead."
            )
        kind = as_divergence(divergence)
        b = None if sample_weight is None else as_weights(sample_weight, z.size)
        out = np.empty(z.size)
        status = _core.signed_weights(kind.core, z, b, self.blocks, out)
        if status == _core.NOT_FINITE:
            raise ValueError(not_finite(z))
        if status == _core.NOT_SOLVED:
            raise RuntimeError(not_solved(kind, float(self.blocks[0, 3])))
        return out


@dataclass(frozen=True)
class Method:
    """What all methods share: the number of rows and the radius of a block of M of them,

        ρ_M = ρ + c (1/M − 1/N)^((1−δ)/2).

    c is `inflation` and makes small blocks look at larger balls; all rows always have ρ.
    """

    n: int
    rho: float = field(default=0.1, kw_only=True)
    inflation: float = field(default=0.0, kw_only=True)
    delta: float = field(default=0.01, kw_only=True)
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        as_count("n", self.n)
        as_radius(self.rho)
        if not 0.0 <= self.inflation < math.inf:
            raise ValueError(
                f"The 'inflation' parameter must be a finite number of at least 0. "
                f"Got {self.inflation!r} instead."
            )
        if not 0.0 <= self.delta < 1.0:
            raise ValueError(
                f"The 'delta' parameter must be at least 0 and below 1. Got {self.delta!r} instead."
            )

    @cached_property
    def plan(self) -> _core.Plan:
        """The method as the core sees it."""
        sizes, probabilities = self._levels()
        return _core.Plan(
            self.kind,
            int(self.n),
            (self._size(), self._rate()),
            (float(self.rho), float(self.inflation), float(self.delta)),
            self._warm(),
            sizes,
            probabilities,
        )

    def __getstate__(self) -> dict[str, Any]:
        """All but the core's object, which is made anew on arrival."""
        return {key: value for key, value in self.__dict__.items() if key != "plan"}

    def draw(self, rng: np.random.Generator, step: int = 0) -> Draw:
        """The rows and blocks of one step; only Growing looks at which step it is."""
        if not isinstance(rng, np.random.Generator):
            raise ValueError(
                f"The 'rng' parameter must be a numpy.random.Generator, as from "
                f"numpy.random.default_rng(0). Got {type(rng).__name__} instead."
            )
        with rng.bit_generator.lock:
            return _as_draw(_core.draw(rng.bit_generator.capsule, self.plan, float(step)))

    def _size(self) -> int:
        return int(self.n)

    def _rate(self) -> float:
        return 1.0

    def _warm(self) -> float:
        return 0.0

    def _levels(self) -> tuple[NDArray[np.int64], Array]:
        return np.zeros(0, dtype=np.int64), np.zeros(0)


@dataclass(frozen=True)
class Full(Method):
    """All rows at every step.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn._solvers.draws import Full
    >>> Full(3, rho=0.5).draw(np.random.default_rng(0)).indices
    array([0, 1, 2])
    """

    kind = "full"


@dataclass(frozen=True)
class Fixed(Method):
    """`batch_size` rows at every step; its gradient is biased, the more the fewer they are.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn._solvers.draws import Fixed
    >>> Fixed(1000, 16).draw(np.random.default_rng(0)).blocks
    array([[ 0. , 16. ,  1. ,  0.1]])
    """

    batch_size: int = 64
    kind = "fixed"

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        super().__post_init__()
        as_count("batch_size", self.batch_size)

    def _size(self) -> int:
        return min(int(self.batch_size), int(self.n))


@dataclass(frozen=True)
class Growing(Fixed):
    """`batch_size`·`rate`^t rows at step t, up to all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn._solvers.draws import Growing
    >>> method, rng = Growing(1000, 10, rate=1.001), np.random.default_rng(0)
    >>> [method.draw(rng, step).indices.size for step in (0, 1000, 10_000)]
    [10, 27, 1000]
    """

    rate: float = 1.001
    kind = "growing"

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        super().__post_init__()
        if not 1.0 < self.rate < math.inf:
            raise ValueError(
                f"The 'rate' parameter must be a number above 1. Got {self.rate!r} instead."
            )

    def _rate(self) -> float:
        return float(self.rate)


@dataclass(frozen=True)
class Multilevel(Method):
    """A base block at every step, and with probability `fire` a correction that unbiases it.

    Parameters
    ----------
    n : int
        Number of rows N.
    batch_size : int, default=1
        Smallest size of a block: N is halved as long as at least that many rows remain.
    r : float, default=2**-1.5
        Each level is drawn r times as often as the one below: q_k = r^(k−1)(1−r)/(1−r^K).
        Above 1/2 the expected cost of a step grows with N, below 1/4 its variance does.
        "auto" stands for 2**-1.5 until `tuned` has looked at the gradients.
    fire : float, default=1.0
        Probability π of a correction.
    probabilities : tuple of float, optional
        π q_k of the levels 1 … K, instead of `r` and `fire`; `tuned` finds the best.
    warm : int, default=0
        Over so many first steps corrections become gradually as frequent as they should be, as
        if they were 0 at the other times: cheaper and calmer, but biased towards the base
        block's gradient until then.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn._solvers.draws import Multilevel
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
    kind = "multilevel"

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn; warn of what is bounded neither in cost nor variance."""
        super().__post_init__()
        as_count("batch_size", self.batch_size)
        r = 2.0**-1.5 if self.r == "auto" else self.r
        if not (isinstance(r, int | float) and 0.0 < r < 1.0):
            raise ValueError(
                f"The 'r' parameter must be 'auto' or lie between 0 and 1. Got {r!r} instead."
            )
        if not (isinstance(self.fire, Real) and 0.0 < self.fire <= 1.0):
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
            grows = "cost (Theorem 1)" if r >= 0.5 else "variance (Theorem 2)"
            warnings.warn(
                f"r = {r:.6g} lies outside (1/4, 1/2): the expected {grows} of a step "
                f"grows with the number of rows. Take r = 2**-1.5, or probabilities from a "
                f"pilot.",
                stacklevel=3,
            )

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows n_0, …, n_K = N of the blocks of each level."""
        sizes = [int(self.n)]
        while sizes[-1] // 2 >= self.batch_size:
            sizes.append(sizes[-1] // 2)
        return np.array(sizes[::-1], dtype=np.int64)

    @cached_property
    def level_probabilities(self) -> Array:
        """π q_k for k = 1 … K."""
        if self.probabilities is not None:
            return np.array(self.probabilities, dtype=np.float64)
        r = 2.0**-1.5 if self.r == "auto" else self.r
        powers = r ** np.arange(self.sizes.size - 1, dtype=np.float64)
        return self.fire * powers / powers.sum() if powers.size else powers

    @property
    def cost(self) -> float:
        """Expected number of rows of a draw."""
        return float(self.sizes[0] + self.level_probabilities @ self.sizes[1:])

    def draw_level(self, rng: np.random.Generator, level: int) -> Draw:
        """The base block alone (level 0), or a correction alone, not divided by its probability."""
        with rng.bit_generator.lock:
            return _as_draw(_core.draw_level(rng.bit_generator.capsule, self.plan, level))

    def tuned(
        self,
        gradient: Callable[[Draw], ArrayLike],
        rng: np.random.Generator,
        budget: int = 200_000,
    ) -> Multilevel:
        """The same method with the level probabilities that are best for some gradients.

        A pilot of about `budget` rows estimates the second moments of the base block and of
        Δ_k; levels it cannot afford continue the decay of those below.  Cost is counted in
        rows.  `gradient(draw)` returns Σ weight × gradient of the rows of a draw.
        """
        levels = self.sizes.size - 1
        if levels == 0:
            return self
        share = max(budget // (levels + 1), 1)
        seconds = np.full(levels + 1, np.nan)
        for k in range(levels + 1):
            repeats = min(share // int(self.sizes[k]), 1000)
            if repeats < 4 and k > 2:
                break
            norms = []
            for _ in range(max(repeats, 4)):
                draw = self.draw_level(rng, k)
                norms.append(float(np.sum(np.square(gradient(draw)))))
            seconds[k] = np.mean(norms)
        known = np.flatnonzero(seconds[1:] > 0.0) + 1
        if known.size == 0:
            return self
        if known.size > 1:
            # The last three levels tell how the moments decay.
            line = np.polyfit(known[-3:], np.log(seconds[known[-3:]]), 1)
            unknown = np.setdiff1d(np.arange(1, levels + 1), known)
            seconds[unknown] = np.exp(np.polyval(line, unknown))
        seconds = np.where(np.isnan(seconds), seconds[known[-1]], seconds)
        probabilities = allocate(self.sizes, seconds)
        return replace(self, probabilities=tuple(float(q) for q in probabilities))

    def _warm(self) -> float:
        return float(self.warm)

    def _levels(self) -> tuple[NDArray[np.int64], Array]:
        return self.sizes, self.level_probabilities


def allocate(costs: ArrayLike, seconds: ArrayLike) -> Array:
    """The level probabilities that make (C₀ + Σ q C)(V₀ + Σ V/q) smallest, with Σ q ≤ 1.

    `costs` and `seconds` hold cost and second moment of the base block and of the levels
    1 … K.  Without the bound, q_k = √(V_k C₀ / (C_k V₀)).

    Examples
    --------
    >>> from drolearn._solvers.draws import allocate
    >>> allocate([1, 2, 4, 8], [1, 0.25, 0.0625, 0.015625]).round(3)
    array([0.354, 0.125, 0.044])
    """
    cost, second = np.asarray(costs, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    # A level that was never seen to matter still has to be drawn now and then.
    floor = 1e-6 * max(float(second.max()), 1e-300)
    second = np.maximum(second, floor)
    q = np.sqrt(second[1:] * cost[0] / (cost[1:] * second[0]))
    if q.sum() <= 1.0:
        return q

    # With Σ q = 1 the optimum is q ∝ √(V/(C + ν)) for some ν ≥ 0: search for the best.
    def bounded(log_nu: float) -> Array:
        q = np.sqrt(second[1:] / (cost[1:] + math.exp(log_nu)))
        return q / q.sum()

    def product(log_nu: float) -> float:
        q = bounded(log_nu)
        return float((cost[0] + q @ cost[1:]) * (second[0] + (second[1:] / q).sum()))

    from scipy.optimize import minimize_scalar  # imported when used: it is heavy

    ends = math.log(cost[0]) - 20.0, math.log(cost[-1]) + 20.0
    return bounded(minimize_scalar(product, bounds=ends, method="bounded").x)


def _as_draw(found: tuple[Any, ...]) -> Draw:
    """A draw of the core; its integers are NumPy's own int64, which print without their type."""
    indices, blocks, batch_size = found
    return Draw(indices.view(np.int64), blocks, batch_size)
