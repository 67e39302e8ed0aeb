"""`rho_max`: the radius from which on a robust classifier learns nothing."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from drolearn._solvers.inputs import as_problem
from drolearn._solvers.linear_algebra import single_threaded_blas
from drolearn._solvers.zero_model import least_moved_mass, smallest_ball
from drolearn.divergence import CVaR, Divergence, TotalVariation, as_divergence

__all__ = ["rho_max"]


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
    if isinstance(chosen, CVaR):
        raise ValueError("The 'divergence' parameter must have a radius. Got CVaR, which has none.")
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
