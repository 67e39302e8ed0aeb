"""The radius from which on a robust classifier learns nothing, and defaults below it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._solvers.inputs import as_problem
from drolearn._solvers.linear_algebra import single_threaded_blas
from drolearn._solvers.problem import Problem
from drolearn._solvers.zero_model import least_moved_mass, smallest_ball
from drolearn.divergence import Divergence, TotalVariation, as_divergence

__all__ = ["radius_that_learns", "rho_max"]

# The largest default radius, relative to `rho_max`.
_SHARE = 0.5


def rho_max(
    X: Any,
    y: ArrayLike,
    divergence: str | Divergence = "chi2",
    sample_weight: ArrayLike | None = None,
    *,
    fit_intercept: bool = True,
) -> float:
    """Compute the radius from which on the zero model is optimal for a classifier.

    In a ball of this radius or a larger one, some weights leave no linear relation between X and
    y.  The zero model, which gives all classes the same score, then minimises the robust loss:
    training learns nothing.  The radius depends neither on the penalty nor on the loss.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The rows.
    y : array-like of shape (n,)
        Class labels, two classes or more.
    divergence : str or Divergence, default="chi2"
        The divergence of the ball, see :mod:`drolearn.divergence`.  CVaR has no radius.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.
    fit_intercept : bool, default=True
        Whether the model has an intercept.

    Returns
    -------
    float
        The smallest D(P, B) over all weights p with Σ p y x̃ = 0 (for more than two classes, with
        Σ p (1/m − e_y) ⊗ x̃ = 0), where x̃ is a row of X, followed by 1 if there is an intercept.
        Infinite if there are no such weights: then every radius leads to a model other than zero.

    Raises
    ------
    ValueError
        If y holds numbers for regression, where no radius makes the zero model optimal, or if the
        divergence is CVaR or a custom one that is not strictly convex.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import rho_max
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3))
    >>> y = X[:, 0] + 2.0 * rng.standard_normal(500) > 0
    >>> round(rho_max(X, y), 3)
    0.162
    >>> rho_max(X, X[:, 0] > 0)  # separable
    inf
    """
    from sklearn.utils.multiclass import type_of_target  # imported when used: it is heavy

    chosen = as_divergence(divergence)
    if not chosen.has_radius:
        raise ValueError(
            f"The 'divergence' parameter must have a radius. Got {chosen!r}, which has none."
        )
    target = type_of_target(y, input_name="y")
    if target.startswith("continuous"):
        raise ValueError(
            "The 'y' parameter must hold class labels: in regression no radius makes the zero "
            "model optimal. Got real numbers instead."
        )
    problem = as_problem(
        X,
        y,
        rho=None,
        divergence=chosen,
        loss="logistic" if target == "binary" else "multinomial",
        l2=0.0,
        fit_intercept=fit_intercept,
        sample_weight=sample_weight,
        groups=None,
        n_jobs=None,
    )
    if isinstance(chosen, TotalVariation):
        return least_moved_mass(problem)
    if not chosen.strictly_convex:
        raise ValueError(
            f"The 'divergence' parameter must be strictly convex or total variation. "
            f"Got {chosen!r} instead."
        )
    with single_threaded_blas():
        return smallest_ball(problem).rho


def radius_that_learns(problem: Problem, theta: NDArray[np.float64]) -> float:
    """The radius of a problem, or half of `rho_max` where that is smaller.

    `theta` is a model for the problem.  If it is better than the zero model in a ball of twice the
    radius, the zero model is not optimal there, and `rho_max` need not be computed.  Groups,
    references, regressions and divergences that are not strictly convex keep their radius.
    """
    if not (problem.equal_at_zero and problem.divergence.strictly_convex):
        return problem.rho
    wider = replace(problem, rho=problem.rho / _SHARE)
    at = wider.evaluate_or_none(wider.scores(theta))
    if at is not None and at.value < problem.baseline_loss * (1.0 - 1e-9):
        return problem.rho
    with single_threaded_blas():
        return min(problem.rho, _SHARE * smallest_ball(wider, wider.rho).rho)
