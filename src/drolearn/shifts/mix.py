"""Changes of the mix of groups: the radius of a given change, and the worst change of a radius.

With shares s of the groups and another mix q, the ball over groups holds q from the radius

    D(q, s) = Σ s φ(q/s)

on.  A ball over groups reweights groups whose rows were seen; it holds no group that was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import worst_case
from drolearn._validation import (
    as_groups,
    as_losses,
    as_weights,
    did_you_mean,
    float_or_nan,
    refuse_not_finite,
)
from drolearn.divergence import NAMES, Divergence, as_divergence
from drolearn.shifts.results import ByDivergence, columns

__all__ = ["Radii", "WorstMix", "radius_of", "worst_mix"]

Array = NDArray[np.float64]

# Shares that sum to one up to this are taken to sum to one: decimal fractions are rounded.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Radii(ByDivergence):
    """The result of :func:`radius_of`: a mapping from names of divergences to radii.

    Parameters
    ----------
    radii : dict of str to float
        The radius D(q, s) of every divergence that has one.  Reverse KL has none (infinity) if the
        mix leaves out a group.
    cvar_level : float
        The largest level at which CVaR holds the mix, for ``CVaR(cvar_level)``.
    names : ndarray of shape (number of groups,)
        The names of the groups.
    shares : ndarray of shape (number of groups,)
        The shares s that the groups have of the rows.
    mix : ndarray of shape (number of groups,)
        The shares q after the change.

    See Also
    --------
    radius_of : Computes it.

    Examples
    --------
    >>> from drolearn import radius_of
    >>> radii = radius_of(["men", "men", "men", "women"], {"women": 0.5})
    >>> round(radii["chi2"], 6), dict(zip(radii.names.tolist(), radii.mix.tolist()))
    (0.333333, {'men': 0.5, 'women': 0.5})
    """

    radii: dict[str, float]
    cvar_level: float
    names: NDArray[Any]
    shares: Array
    mix: Array

    def __repr__(self) -> str:
        order = np.argsort(self.shares - self.mix, kind="stable")
        groups = [
            (str(self.names[g]), f"{self.shares[g]:.4g}", f"{self.mix[g]:.4g}") for g in order
        ]
        radii = [(name, f"{radius:.4g}") for name, radius in self.radii.items()]
        return "\n".join(
            [
                *columns(("group", "share", "changed to"), groups, "groups"),
                "",
                *columns(("divergence", "radius"), radii),
                f"CVaR holds this mix up to level {self.cvar_level:.4g}",
            ]
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WorstMix:
    """The result of :func:`worst_mix`: groups, and their shares in the worst case.

    Parameters
    ----------
    names : ndarray of shape (number of groups,)
        The names of the groups.
    counts : ndarray of shape (number of groups,)
        The number of rows of each group.
    shares : ndarray of shape (number of groups,)
        The shares of the groups, from sample weights if there are any; the sum is one.
    losses : ndarray of shape (number of groups,)
        The mean loss of each group; NaN for a group of weight zero.
    weights : ndarray of shape (number of groups,)
        The shares of the groups in the worst case; the sum is one.
    mean : float
        The mean loss, Σ shares · losses.
    value : float
        The worst-case loss, Σ weights · losses.
    rho : float
        The radius; 0 for CVaR, which has none.
    divergence : Divergence
        The divergence.

    See Also
    --------
    worst_mix : Computes it.

    Examples
    --------
    >>> from drolearn import worst_mix
    >>> worst = worst_mix([1.0, 3.0, 6.0, 4.0], ["north", "north", "south", "north"], rho=1 / 3)
    >>> worst.names.tolist(), worst.weights.round(3).tolist()
    (['north', 'south'], [0.5, 0.5])
    """

    names: NDArray[Any]
    counts: NDArray[np.int64]
    shares: Array
    losses: Array
    weights: Array
    mean: float
    value: float
    rho: float
    divergence: Divergence

    def __repr__(self) -> str:
        order = np.argsort(-self.losses, kind="stable")  # NaN is last
        rows = [
            (
                str(self.names[g]),
                f"{self.counts[g]:,}",
                f"{self.losses[g]:.4g}",
                f"{self.shares[g]:.4g}",
                f"{self.weights[g]:.4g}",
            )
            for g in order
        ]
        header = ("group", "rows", "mean loss", "share", "worst-case share")
        ball = repr(self.divergence)
        if self.divergence.has_radius:
            ball += f", rho={self.rho:.4g}"
        return "\n".join(
            [
                *columns(header, rows, "groups"),
                f"mean loss {self.mean:.4g}, worst-case loss {self.value:.4g} ({ball})",
            ]
        )


def radius_of(
    groups: Any, shares: Mapping[Any, float], sample_weight: ArrayLike | None = None
) -> Radii:
    """Compute the radius at which a ball over groups holds another mix of the groups.

    The question "what if half of our customers were women?" becomes the radius ρ = D(q, s), with
    s the shares of the groups now and q the shares asked about.

    Parameters
    ----------
    groups : array-like of shape (n,) or (n, k)
        The group of each row.  Several columns make one group of each combination that occurs,
        whose name is a tuple.
    shares : dict
        The new shares of some groups or of all, from 0 to 1.  Groups that are not named keep
        their proportions among themselves and share the rest.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.

    Returns
    -------
    Radii
        A mapping from the names of divergences to radii, with the level for CVaR in
        `cvar_level`.

    Raises
    ------
    ValueError
        If `shares` names a group that has no rows or no weight, or is not a mix: a share outside
        [0, 1], a sum above one, or a sum other than one where all groups are named.

    See Also
    --------
    worst_mix : The worst mix within a radius.
    radius_between : An estimate of the radius between two samples.

    Notes
    -----
    In a ball of this radius, the worst case over groups is at least the loss Σ q L of the mix q,
    for any losses L of the groups.  In a smaller ball it is not, for some losses.

    Pass the radius to ``worst_mix(losses, groups, rho)``, or train with
    ``RobustClassifier(rho).fit(X, y, groups=groups)``.  The radius of a ball over single rows
    is the same: rows of a group then get equal factors.

    Examples
    --------
    >>> from drolearn import radius_of
    >>> radius_of(["men"] * 80 + ["women"] * 20, {"women": 0.5})
    group  share  changed to
    women    0.2         0.5
    men      0.8         0.5
    <BLANKLINE>
    divergence        radius
    chi2              0.5625
    kl                0.2231
    reverse-kl        0.1927
    hellinger        0.05132
    jensen-shannon   0.05067
    triangular        0.1978
    total-variation      0.3
    CVaR holds this mix up to level 0.4
    """
    names, membership = as_groups(groups, np.shape(groups)[0] if np.ndim(groups) else 0)
    if membership.ndim == 2:
        raise ValueError(
            "The 'groups' parameter must name one group for each row. Got a Boolean matrix "
            "instead, whose groups may overlap and so have no shares that sum to one."
        )
    weights = None if sample_weight is None else as_weights(sample_weight, membership.size)
    base = Groups.make(membership, weights).shares
    mix = _changed(names, base, shares)
    radii = {name: as_divergence(name).between(mix, base) for name in NAMES if name != "cvar"}
    used = mix > 0.0
    level = min(1.0, float(np.min(base[used] / mix[used])))
    return Radii(radii, level, names, base, mix)


def worst_mix(
    losses: ArrayLike,
    groups: Any,
    rho: float | None = None,
    divergence: str | Divergence = "chi2",
    sample_weight: ArrayLike | None = None,
) -> WorstMix:
    """Compute the mix of groups that is worst for a model, among all mixes within a radius.

    This is :func:`worst_case` of the mean losses of the groups, with their shares as base weights.

    Parameters
    ----------
    losses : array-like of shape (n,)
        The loss of each row, such as from :func:`log_losses`.
    groups : array-like of shape (n,) or (n, k)
        The group of each row.  Several columns make one group of each combination that occurs,
        and a Boolean matrix makes groups that may overlap.
    rho : float, default=None
        Radius ρ ≥ 0 of the ball, such as from :func:`radius_of`; None is 0.1.  CVaR has no radius:
        leave it None.
    divergence : str or Divergence, default="chi2"
        A name or an object, see :mod:`drolearn.divergence`.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.

    Returns
    -------
    WorstMix
        Arrays with one entry for each group, and the mean and worst-case loss.

    Raises
    ------
    ValueError
        If the losses are empty or not finite, or if another argument is not valid.

    See Also
    --------
    radius_of : The radius that holds a given mix.
    worst_case : The worst case over single rows.

    Notes
    -----
    For groups that overlap, the share of a group is proportional to the weight of its rows, rows in
    no group form the group "none", and the mean is that over memberships.

    Examples
    --------
    >>> from drolearn import worst_mix
    >>> losses = [0.2, 0.4, 0.1, 0.3, 0.2, 0.3, 0.2, 0.3, 0.9, 0.7]
    >>> groups = ["men"] * 8 + ["women"] * 2
    >>> worst_mix(losses, groups, rho=0.5625)
    group  rows  mean loss  share  worst-case share
    women     2        0.8    0.2               0.5
    men       8       0.25    0.8               0.5
    mean loss 0.36, worst-case loss 0.525 (ChiSquare(), rho=0.5625)
    """
    z = as_losses(losses)
    refuse_not_finite("losses", z)
    names, membership = as_groups(groups, z.size)
    weights = None if sample_weight is None else as_weights(sample_weight, z.size)
    grouped = Groups.make(membership, weights)
    means = grouped.means(z)
    worst = worst_case(means, rho, divergence, grouped.shares)
    if membership.ndim == 2:
        counts = membership.sum(axis=0)
    else:
        counts = np.bincount(membership, minlength=names.size)
    return WorstMix(
        names,
        counts,
        grouped.shares,
        np.where(grouped.shares > 0.0, means, np.nan),
        worst.weights,
        float(grouped.shares @ means),
        worst.value,
        worst.rho,
        worst.divergence,
    )


def _changed(names: NDArray[Any], base: Array, shares: Mapping[Any, float]) -> Array:
    """The mix in which some groups have given shares and the others keep their proportions."""
    if not isinstance(shares, Mapping) or not shares:
        raise ValueError(
            f"The 'shares' parameter must be a dict of at least one group and its share. "
            f"Got {shares!r} instead."
        )
    mix, named = np.zeros(base.size), np.zeros(base.size, dtype=bool)
    known = names.tolist()
    for name, share in shares.items():
        if name not in known:
            listed = ", ".join(map(repr, known[:5])) + (", …" if len(known) > 5 else "")
            hint = did_you_mean(name, [text for text in known if isinstance(text, str)])
            raise ValueError(
                f"The 'shares' parameter must name groups that have rows: {listed}. "
                f"Got {name!r} instead.{hint}"
            )
        index, value = known.index(name), float_or_nan(share)
        if not 0.0 <= value <= 1.0:
            raise ValueError(
                f"The 'shares' parameter must hold numbers from 0 to 1. "
                f"Got {share!r} for group {name!r} instead."
            )
        if value > 0.0 and base[index] == 0.0:
            raise ValueError(
                f"The 'shares' parameter must give 0 to groups without weight in the data: no "
                f"ball holds more of them. Got {share!r} for group {name!r} instead."
            )
        mix[index], named[index] = value, True
    rest, others = 1.0 - float(mix.sum()), float(base[~named].sum())
    if rest < -_ROUNDING or (others == 0.0 and rest > _ROUNDING):
        accepted = "at most one" if others > 0.0 else "one, because all groups are named"
        raise ValueError(
            f"The 'shares' parameter must hold shares with a sum of {accepted}. "
            f"Got a sum of {mix.sum():.6g} instead."
        )
    if abs(rest) <= _ROUNDING:
        return mix / mix.sum()
    mix[~named] = rest * base[~named] / others
    return mix
