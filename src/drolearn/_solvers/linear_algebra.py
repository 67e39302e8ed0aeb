"""Small symmetric systems of equations, and the threads of BLAS."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_COLUMNS", "single_threaded_blas", "solve_spd"]

Array = NDArray[np.float64]

# Matrices of d × d are formed only up to this many columns.
MAX_COLUMNS = 2000


@cache
def _blas() -> Any:
    """The BLAS libraries that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def single_threaded_blas() -> Any:
    """A context in which BLAS uses one thread, as its matrices are small here."""
    return _blas().limit(limits=1, user_api="blas")


def solve_spd(matrix: Array, right: Array, relative: float = 1e-12) -> Array:
    """matrix⁻¹ right for a matrix that is positive semidefinite up to rounding.

    A ridge of `relative` times the largest diagonal entry is added, and a larger one if the
    factorisation fails.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve  # imported when used: it is heavy

    diagonal = np.einsum("ii->i", matrix)
    largest = max(float(diagonal.max()), 1e-300)
    if largest <= 1e-290:  # no curvature at all
        return right.copy()
    ridge = relative * largest
    # Constant columns have an empty row; their coefficients do not move.
    diagonal[diagonal <= 0.0] = largest
    while True:
        try:
            damped = matrix.copy()
            damped[np.diag_indices_from(damped)] += ridge
            return cho_solve(cho_factor(damped, lower=True, overwrite_a=True), right)
        except LinAlgError:
            ridge *= 100.0
