"""The worst case of a fitted model on any data."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.groups import Groups, worst_of_rows
from drolearn._inner.trimming import as_trim, kept_weights
from drolearn._inner.worst_case import WorstCase
from drolearn._solvers.inputs import as_reference_losses
from drolearn._validation import as_groups, as_weights
from drolearn.divergence import Divergence, as_divergence

__all__ = ["WorstCaseMixin"]


class WorstCaseMixin:
    """Adds `worst_case` to an estimator with `losses`."""

    divergence_: Divergence
    rho_: float
    n_jobs: int | None

    @abstractmethod
    def losses(self, X: Any, y: ArrayLike) -> NDArray[np.float64]:
        """Compute the loss of each row."""

    def worst_case(
        self,
        X: Any,
        y: ArrayLike,
        rho: float | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        reference_losses: ArrayLike | None = None,
        *,
        tau: float | None = None,
        trim: float = 0.0,
    ) -> WorstCase:
        """Compute the robust loss of the fitted model on any data, without refitting.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, from the training data or others.
        y : array-like of shape (n_samples,)
            Labels of the rows; numbers for regression.
        rho : float, default=None
            Radius of the ball; None uses the radius of the fit, or its `tau`. CVaR has no radius.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows; equal if None.
        groups : array-like of shape (n_samples,) or (n_samples, k), default=None
            Groups of the rows, as in `fit`. The ball then reweights groups instead of single rows.
        reference_losses : array-like of shape (n_samples,), default=None
            Losses of a reference model on these rows, which are subtracted. None computes the
            robust loss, also for a model that was fitted with a reference.
        tau : float, default=None
            Price τ of a soft ball instead of `rho`, as in :func:`drolearn.worst_case`.
        trim : float, default=0.0
            Share of the rows to ignore, those with the largest losses; with groups, in each of
            them. The `trim` of a fit is not used: its training rows may have wrong labels.

        Returns
        -------
        WorstCase
            `value` is the robust loss, or with reference losses the robust regret, and `weights`
            are the worst-case weights of the rows.

        Examples
        --------
        >>> from drolearn import RobustRegressor
        >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0]
        >>> reg = RobustRegressor(rho=0, l2=0).fit(X, y)
        >>> round(reg.robust_loss_, 4), round(reg.worst_case(X, y, rho=0.5).value, 4)
        (0.0278, 0.0417)
        """
        z = self.losses(X, y)
        if (c := as_reference_losses(reference_losses, z.size)) is not None:
            z -= c
        divergence = as_divergence(self.divergence_)
        if rho is None and tau is None:
            tau = getattr(self, "tau_", None)  # models of version 0.1 have none
            if tau is None and divergence.has_radius:
                rho = self.rho_
        weights = None if sample_weight is None else as_weights(sample_weight, z.size)
        membership = None if groups is None else as_groups(groups, z.size)[1]
        if as_trim(trim, membership is not None and membership.ndim == 2) > 0.0:
            weights = kept_weights(z, weights, float(trim), membership)
        parts = None if membership is None else Groups.make(membership, weights)
        return worst_of_rows(z, rho, divergence, weights, parts, tau=tau, n_jobs=self.n_jobs)
