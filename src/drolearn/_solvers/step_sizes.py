"""Step sizes of stochastic solvers, as functions of the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Constant", "Decay", "Step", "step_sizes_at"]

Array = NDArray[np.float64]
Step = Callable[[Array], Array]


@dataclass(frozen=True)
class Decay:
    """Decaying step sizes γ_t = start · half/(half + t).

    The defaults are those of the paper.

    Parameters
    ----------
    start : float, default=1.0
        The first step size.
    half : float, default=5000.0
        The number of steps after which the step size is half of the first.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Decay
    >>> Decay(0.5, half=100.0)(np.array([0.0, 100.0, 300.0]))
    array([0.5  , 0.25 , 0.125])
    """

    start: float = 1.0
    half: float = 5000.0

    def __call__(self, t: Array) -> Array:
        """The step sizes of steps t."""
        return self.start * self.half / (self.half + t)


@dataclass(frozen=True)
class Constant:
    """Constant step size γ_t = start.

    Parameters
    ----------
    start : float, default=1.0
        The step size.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Constant
    >>> Constant(0.5)(np.array([0.0, 100.0]))
    array([0.5, 0.5])
    """

    start: float = 1.0

    def __call__(self, t: Array) -> Array:
        """The step sizes of steps t."""
        return np.full(t.shape, self.start)


def step_sizes_at(step: Step, t: Array) -> Array:
    """The step sizes of steps t, checked."""
    try:
        gammas = np.broadcast_to(np.asarray(step(t), dtype=np.float64), t.shape)
        valid = bool((gammas > 0.0).all() and np.isfinite(gammas).all())
    except (TypeError, ValueError):
        valid, gammas = False, t
    if not valid:
        raise ValueError(
            "The 'step_size' setting must be a function that maps an array of step numbers to as "
            "many positive numbers, such as lambda t: 1.0 / (10.0 + t)."
        )
    return gammas
