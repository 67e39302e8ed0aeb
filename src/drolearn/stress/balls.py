"""The balls of a curve: radii of any divergence, and the shares of the rows that they cover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from drolearn._validation import as_radius
from drolearn.divergence import KL, NAMES, CressieRead, CVaR, Divergence, as_divergence

__all__ = ["Ball", "as_balls", "as_divergences", "ball_of_share"]

# The default: the shares of the χ² radii 0 and a thousandth up to 99, with round shares among them.
_ROUND = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02)
_SHARES = np.sort(np.append(1.0 / (1.0 + np.geomspace(1e-3, 99.0, 192)), _ROUND))[::-1]


@dataclass(frozen=True, slots=True)
class Ball:
    """One ball.

    Parameters
    ----------
    divergence : Divergence
        The divergence.
    rho : float
        The radius; NaN for CVaR, which has none.
    share : float
        The ball holds every subset of the rows with at least this share; NaN if it holds none, as
        φ(0) is infinite.
    """

    divergence: Divergence
    rho: float
    share: float

    @property
    def radius(self) -> float:
        """The radius for solvers, 0 for CVaR."""
        return 0.0 if isinstance(self.divergence, CVaR) else self.rho

    @property
    def is_mean(self) -> bool:
        """Whether the ball holds the base weights only."""
        return self.share == 1.0 or self.rho == 0.0


def as_divergences(
    divergence: str | Divergence | Sequence[str | Divergence],
) -> dict[str, Divergence]:
    """Divergences by name, from one, a list, or "all"; powers are told apart by their k."""
    if isinstance(divergence, str) and divergence == "all":
        return {name: as_divergence(name) for name in NAMES}
    given: list[Any] = [divergence]
    if isinstance(divergence, Sequence) and not isinstance(divergence, str):
        given = list(divergence)
    if not given:
        raise ValueError(
            "The 'divergence' parameter must hold at least one divergence. Got none instead."
        )
    named: dict[str, Divergence] = {}
    for each in map(as_divergence, given):
        if each.family == "spectral":
            raise ValueError(
                f"The 'divergence' parameter must have a radius, or a level as CVaR, for the curve "
                f"to run over. Got {each!r} instead; worst_case takes it."
            )
        name = repr(each) if isinstance(each, CressieRead) else each.name
        if named.setdefault(name, each) != each:
            raise ValueError(
                f"The 'divergence' parameter must hold divergences of different names. "
                f"Got {name!r} twice instead."
            )
    return named


def as_balls(divergence: Divergence, rhos: ArrayLike | None) -> list[Ball]:
    """The balls of these radii in increasing order; None for 200 that cover ever smaller shares."""
    if rhos is None:
        return [ball_of_share(divergence, float(share)) for share in _SHARES]
    if isinstance(divergence, CVaR):
        raise ValueError(
            f"The 'rhos' parameter must be None for CVaR, which has no radius: its curve runs over "
            f"levels. Got {rhos!r} instead."
        )
    given: Sequence[Any] = np.atleast_1d(np.asarray(rhos, dtype=object)).ravel().tolist()
    if not given:
        raise ValueError("The 'rhos' parameter must hold at least one radius. Got none instead.")
    radii = sorted({as_radius(rho, "rhos") for rho in given})
    return [Ball(divergence, rho, _share(divergence, rho)) for rho in radii]


def ball_of_share(divergence: Divergence, share: float) -> Ball:
    """The smallest ball that holds every subset of this share.

    Where φ(0) is infinite, no ball does, and the radius is that of KL.
    """
    if isinstance(divergence, CVaR):
        return Ball(CVaR(share), math.nan, share)
    if math.isinf(divergence.phi_zero):
        return Ball(divergence, KL().maximum(share), math.nan if share < 1.0 else 1.0)
    return Ball(divergence, divergence.maximum(share), share)


def _share(divergence: Divergence, rho: float) -> float:
    """The share a with D = ρ for all mass on a share a of the rows."""
    if rho == 0.0:
        return 1.0
    if math.isinf(divergence.phi_zero):
        return math.nan
    if divergence.family == "chi2":
        return 1.0 / (1.0 + rho)
    from scipy.optimize import brentq  # imported when used: it is heavy

    smallest = -690.0  # log of the smallest positive number, almost
    if divergence.maximum(math.exp(smallest)) <= rho:
        return 0.0
    log = brentq(lambda x: divergence.maximum(math.exp(x)) - rho, smallest, 0.0, xtol=1e-14)
    return math.exp(float(log))  # type: ignore[arg-type]
