"""Draws: the rows of a gradient estimate, and their weights.

Every method produces *draws*: rows, and blocks (start, stop, coefficient, radius) of them.  The
signed weight of a row is Σ over blocks of coefficient × its worst-case weight within the
block, and the gradient estimate is the weighted sum of the gradients of the rows.  With groups, a
block has rows of every group, and its worst case reweights the mean losses of the groups.

    Full        one block, all rows                                   (FSG)
    Fixed       one block of M rows                                   (SGD)
    Growing     one block, larger in each step                        (PSSG)
    Multilevel  a base block, and at random a correction              (GSSG; in `multilevel`)

Draws know neither data nor model, so linear models and networks use the same ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import not_finite, not_solved
from drolearn._validation import as_count, as_groups, as_losses, as_radius, as_weights
from drolearn.divergence import Divergence, as_divergence

__all__ = ["Draw", "Fixed", "Full", "Growing", "Method", "block_radius", "halved"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """The rows of a gradient estimate, in signed blocks.

    Attributes
    ----------
    indices : array of int
        The rows, in random order.  The base block and a correction are drawn independently, so a
        row may occur twice.
    blocks : array of shape (1 or 4, 4)
        Start, stop, coefficient and radius of each block.
    batch_size : int
        Number of rows in the base block; the others belong to a correction.
    groups : tuple of two arrays or None
        If the ball reweights groups: the group number of each row, and the shares of all groups.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Fixed
    >>> draw = Fixed(1000, 4, rho=0.5).draw(np.random.default_rng(0))
    >>> draw.weights([1.0, 2.0, 3.0, 4.0]).round(3)
    array([0.013, 0.171, 0.329, 0.487])
    """

    indices: NDArray[np.int64]
    blocks: Array
    batch_size: int
    groups: tuple[NDArray[np.int64], Array] | None = None

    def weights(
        self,
        losses: ArrayLike,
        divergence: str | Divergence = "chi2",
        sample_weight: ArrayLike | None = None,
    ) -> Array:
        """Signed weights of the rows: Σ over blocks of coefficient × worst-case weight.

        Parameters
        ----------
        losses : array-like of shape (n_rows,)
            Losses of the rows, in the order of `indices`.
        divergence : str or Divergence, default="chi2"
            The divergence of the ball.
        sample_weight : array-like of shape (n_rows,), default=None
            Weights of the rows, in the order of `indices`; None for equal ones.

        Returns
        -------
        array of shape (n_rows,)
            The weights with which to sum gradients of the rows.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import Full
        >>> Full(2, rho=0.25).draw(np.random.default_rng(0)).weights([0.0, 1.0], "chi2")
        array([0.25, 0.75])
        """
        z = as_losses(losses)
        if z.size != self.indices.size:
            raise ValueError(
                f"The 'losses' parameter must have one loss for each of the {self.indices.size} "
                f"rows of the draw. Got {z.size} instead."
            )
        ball = as_divergence(divergence)
        b = None if sample_weight is None else as_weights(sample_weight, z.size)
        out = np.empty(z.size)
        status = _core.signed_weights(ball.core, z, b, self.blocks, out, self.groups)
        if status == _core.NOT_FINITE:
            raise ValueError(not_finite(z))
        if status == _core.NOT_SOLVED:
            raise RuntimeError(not_solved(ball, float(self.blocks[0, 3])))
        return out


@dataclass(frozen=True)
class Method:
    """The base class of all methods: number of rows, and the radius of a block of M rows,

        ρ_M = ρ + c (1/M − 1/N)^((1−δ)/2),

    where c is `inflation` and δ is `delta`.  `groups` are names of the groups of the rows, or a
    `Groups` object, which `__post_init__` makes of names.
    """

    n: int
    rho: float = field(default=0.1, kw_only=True)
    inflation: float = field(default=0.0, kw_only=True)
    delta: float = field(default=0.01, kw_only=True)
    groups: Any = field(default=None, kw_only=True, repr=False)
    scheme: ClassVar[str] = ""  # the name of the method in the core

    def __post_init__(self) -> None:
        """Check the settings."""
        as_count("n", self.n)
        if self.groups is not None and not isinstance(self.groups, Groups):
            groups = Groups.make(as_groups(self.groups, int(self.n))[1], None)
            object.__setattr__(self, "groups", groups)
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
        if self.groups is not None:
            self._check_groups()

    def _check_groups(self) -> None:
        if not self.groups.disjoint:
            raise ValueError(
                "The 'groups' parameter of a method of drawing rows must hold one name for each "
                "row: overlapping groups need an exact solver."
            )
        if self.inflation > 0.0:
            raise ValueError(
                f"The 'inflation' parameter must be 0 with groups, whose number is the same in "
                f"every block. Got {self.inflation!r} instead."
            )

    @cached_property
    def plan(self) -> _core.Plan:
        """The method as an object of the core."""
        groups = self.groups
        if groups is not None:
            groups = (groups.of, groups.shares, np.concatenate(self._members))
        return _core.Plan(
            self.scheme,
            int(self.n),
            (self._size(), self._rate()),
            (float(self.rho), float(self.inflation), float(self.delta)),
            self._warm(),
            self._levels(),
            groups,
        )

    def __getstate__(self) -> dict[str, Any]:
        """All attributes but the object of the core, which is made again when needed."""
        return {key: value for key, value in self.__dict__.items() if key != "plan"}

    def draw(self, rng: np.random.Generator, step: int = 0) -> Draw:
        """Draw the rows and blocks of one step.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of random numbers.
        step : int, default=0
            The number of the step; only Growing depends on it.

        Returns
        -------
        Draw
            Rows, and signed blocks of them.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import Fixed
        >>> Fixed(1000, 16).draw(np.random.default_rng(0)).indices.shape
        (16,)
        """
        if not isinstance(rng, np.random.Generator):
            raise ValueError(
                f"The 'rng' parameter must be a numpy.random.Generator, as from "
                f"numpy.random.default_rng(0). Got {type(rng).__name__} instead."
            )
        with rng.bit_generator.lock:
            return self._as_draw(_core.draw(rng.bit_generator.capsule, self.plan, float(step)))

    def _as_draw(self, parts: tuple[Any, ...]) -> Draw:
        """A draw of the core as a `Draw`; the view makes the integers np.int64 on every system."""
        indices, blocks, batch_size = parts
        indices = indices.view(np.int64)
        groups = None if self.groups is None else (self.groups.of[indices], self.groups.shares)
        return Draw(indices, blocks, batch_size, groups)

    @cached_property
    def _members(self) -> list[NDArray[np.int64]]:
        return self.groups.members

    def _rows(self) -> NDArray[np.int64]:
        """Number of rows to draw from: of each group, or of all rows."""
        return np.array([int(self.n)]) if self.groups is None else self.groups.sizes

    def _base_rows(self, step: float) -> NDArray[np.int64]:
        """The number of rows of each group in the base block of a step; one without groups."""
        return self._rows()

    def _size(self) -> int:
        return int(self.n)

    def _rate(self) -> float:
        return 1.0

    def _warm(self) -> float:
        return 0.0

    def _levels(self) -> tuple[NDArray[np.int64], Array]:
        """Rows of each group in a block of each level, and the probabilities of corrections."""
        return np.zeros((0, 0), dtype=np.int64), np.zeros(0)


@dataclass(frozen=True)
class Full(Method):
    """All rows in every step.

    Parameters
    ----------
    n : int
        Number of rows N.
    rho : float, default=0.1
        Radius of the ball of all rows.
    inflation : float, default=0.0
        A block of M rows uses the radius ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    delta : float, default=0.01
        See `inflation`.
    groups : array-like of shape (n,), default=None
        Names of the groups of the rows.  The ball then reweights groups, from their shares of the
        rows, and `sample_weight` of the rows counts within groups.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Full
    >>> Full(3, rho=0.5).draw(np.random.default_rng(0)).indices
    array([0, 1, 2])
    """

    scheme = "full"


@dataclass(frozen=True)
class Fixed(Method):
    """Batches of fixed size; their gradients are biased, more so for smaller batches.

    Parameters
    ----------
    n : int
        Number of rows N.
    batch_size : int, default=64
        Rows of a batch.
    rho : float, default=0.1
        Radius of the ball of all rows.
    inflation : float, default=0.0
        A block of M rows uses the radius ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    delta : float, default=0.01
        See `inflation`.
    groups : array-like of shape (n,), default=None
        Names of the groups of the rows.  The ball then reweights groups, from their shares of the
        rows, and `sample_weight` of the rows counts within groups.
        A batch has the rows of the smallest block of `Multilevel`.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Fixed
    >>> Fixed(1000, 16).draw(np.random.default_rng(0)).blocks
    array([[ 0. , 16. ,  1. ,  0.1]])
    """

    batch_size: int = 64
    scheme = "fixed"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        as_count("batch_size", self.batch_size)

    def _base_rows(self, step: float) -> NDArray[np.int64]:
        """The number of rows of each group in a batch; one without groups."""
        if self.groups is not None:
            return self._levels()[0][0]
        return np.array([self._size()])

    def _size(self) -> int:
        if self.groups is not None:
            return int(self._levels()[0].sum())
        return min(int(self.batch_size), int(self.n))

    def _levels(self) -> tuple[NDArray[np.int64], Array]:
        if self.groups is None:
            return super()._levels()
        return halved(self._rows(), int(self.batch_size))[:1], np.zeros(0)


@dataclass(frozen=True)
class Growing(Fixed):
    """Batches of batch_size · rate^t rows in step t, up to all rows.

    Parameters
    ----------
    n : int
        Number of rows N.
    batch_size : int, default=64
        Rows of the first batch.
    rate : float, default=1.001
        The factor by which batches grow.
    rho : float, default=0.1
        Radius of the ball of all rows.
    inflation : float, default=0.0
        A block of M rows uses the radius ρ + inflation · (1/M − 1/N)^((1−delta)/2).
    delta : float, default=0.01
        See `inflation`.
    groups : None
        Growing batches of groups do not exist.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Growing
    >>> method, rng = Growing(1000, 10, rate=1.001), np.random.default_rng(0)
    >>> [method.draw(rng, step).indices.size for step in (0, 1000, 10_000)]
    [10, 27, 1000]
    """

    rate: float = 1.001
    scheme = "growing"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if not 1.0 < self.rate < math.inf:
            raise ValueError(
                f"The 'rate' parameter must be a number above 1. Got {self.rate!r} instead."
            )

    def _base_rows(self, step: float) -> NDArray[np.int64]:
        """The number of rows in the batch of a step."""
        with np.errstate(over="ignore"):
            grown = self._size() * float(np.power(self.rate, step))
        return np.array([int(min(grown, float(self.n)))])

    def _check_groups(self) -> None:
        raise ValueError(
            "The 'groups' parameter must be None for Growing: use Multilevel, Fixed or Full."
        )

    def _rate(self) -> float:
        return float(self.rate)


def halved(rows: NDArray[np.int64], batch_size: int) -> NDArray[np.int64]:
    """Rows of each group in a block of levels 0, 1, …: half of the next level, but at least one.

    `rows` are those of the last level.  The first level has at least `batch_size` of them.
    """
    sizes = [rows]
    while True:
        half = np.where(sizes[0] > 1, sizes[0] // 2, sizes[0])
        if half.sum() < batch_size or (half == sizes[0]).all():
            return np.array(sizes, dtype=np.int64)
        sizes.insert(0, half)


def block_radius(method: Method, size: int) -> float:
    """ρ_M = ρ + c (1/M − 1/N)^((1−δ)/2), the radius of a block of M rows."""
    if method.inflation == 0.0 or size >= method.n:
        return float(method.rho)
    left = 1.0 / size - 1.0 / int(method.n)
    return float(method.rho + method.inflation * left ** (0.5 * (1.0 - method.delta)))
