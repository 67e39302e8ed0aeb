"""Small symmetric systems of equations, and the threads of BLAS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
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


class _Limit:
    """The limit of BLAS to one thread, which holds for the whole process.

    The first thread that enters sets it, and the last one that leaves removes it: otherwise one
    fit would change the number of threads, and with it the bits, of another one.
    """

    def __init__(self) -> None:
        self.users = 0
        self.context: Any = None
        self.renew_lock()

    def renew_lock(self) -> None:
        self.lock = Lock()

    def enter(self) -> None:
        with self.lock:
            if self.users == 0:
                self.context = _blas().limit(limits=1, user_api="blas")
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.context.restore_original_limits()


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.renew_lock)  # no thread of a child holds the lock


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """A context in which BLAS uses one thread, as its matrices are small here."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


def solve_spd(matrix: Array, right: Array, relative: float = 1e-12) -> Array:
    """matrix⁻¹ right for a matrix that is positive semidefinite up to rounding.

    A ridge of `relative` times the largest diagonal entry is added, and a larger one if the
    factorisation fails.  The result is zero, no step, if an entry has overflowed, as at the model
    of a checkpoint that is damaged.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve  # imported when used: it is heavy

    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        return np.zeros_like(right)
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
