"""The worst case of a vector of losses: the heart of the library.

    R = max { Σ pₙ zₙ : Σ bₙ φ(pₙ/bₙ) ≤ ρ, Σ pₙ = 1, p ≥ 0 }

Losses in, weights and a certificate out.  Everything else feeds this or uses it.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import config
from numpy.typing import ArrayLike, NDArray

from drolearn import _kernels
from drolearn.divergence import Divergence, as_divergence

__all__ = ["WorstCase", "worst_case"]

Array = NDArray[np.float64]
# What compiled code returns: the fields of an `Answer`.
Fields = tuple[int, float, float, float, float, float, int]

# Compiled code reads equal base weights as an array without elements.
_EQUAL = np.empty(0)
# Fewer losses than this are solved faster than a second thread is told about them: a solver
# that needs a nanosecond for each has little to share out.
_THREADS_FROM = {_kernels.CHI2: 1 << 22, _kernels.KL: 1 << 19}
_THREADS_FROM_OTHERS = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class WorstCase:
    """The worst reweighting of some losses within a ball, with its certificate.

    Attributes
    ----------
    weights : array of shape (n,)
        p*, float64, summing to one; exact zeros where the optimum has them.
    value : float
        The robust loss Σ p* z.
    achieved : float
        D(P*, B), at most `rho`.
    alpha, lam : float
        The multipliers of the ball and of Σ p = 1.  For strictly convex φ,
        p = b (φ')⁻¹((z − λ)/α) where that is positive.  α is the rate at which the value
        grows with ρ: zero where the ball does not bind (all mass on the largest loss, equal
        losses, CVaR), and infinite for ρ = 0.
    gap : float
        Duality gap: no weights in the ball have a loss above value + gap.
    rho : float
        The radius that was asked for.
    divergence : Divergence
        The divergence that was asked for.
    """

    weights: Array
    value: float
    achieved: float
    alpha: float
    lam: float
    gap: float
    rho: float
    divergence: Divergence

    def __repr__(self) -> str:
        return (
            f"WorstCase(value={self.value:.6g}, achieved={self.achieved:.6g}, "
            f"rho={self.rho:.6g}, gap={self.gap:.2g}, n={self.weights.size}, "
            f"divergence={self.divergence!r})"
        )


def worst_case(
    losses: ArrayLike,
    rho: float = 0.1,
    divergence: str | Divergence = "chi2",
    base: ArrayLike | None = None,
    *,
    n_jobs: int | None = None,
) -> WorstCase:
    """The worst average of the losses over all weights within a φ-divergence ball.

    Solves max { Σ p z : Σ b φ(p/b) ≤ ρ, Σ p = 1, p ≥ 0 } exactly, in time proportional to
    the number of losses, and returns the weights with a duality gap as certificate.

    Parameters
    ----------
    losses : array-like of shape (n,)
        Finite numbers z.  float64 arrays are read in place; others are converted.
    rho : float, default=0.1
        Radius ρ ≥ 0 of the ball.  0 gives the average (so does all below 1e-15), `math.inf`
        the largest loss; CVaR has no radius, and ignores it.
    divergence : str or Divergence, default="chi2"
        A name or an object, see :mod:`drolearn.divergence`.
    base : array-like of shape (n,), optional
        Weights b ≥ 0 of the rows (sample weights), by position and of any sum; equal if not
        given.  A row of weight 2 counts like the same row twice, one of weight 0 like no row
        (but its loss must be a finite number too).
    n_jobs : int, optional
        Threads: None for one, -1 for all processors.  They are used where they pay, from
        4 million losses on for χ², half a million for KL, 131,072 for others.  The result is
        the same to the bit.

    Returns
    -------
    WorstCase
        With `weights`, `value`, `achieved`, `alpha`, `lam` and `gap`.

    Examples
    --------
    >>> from drolearn import worst_case
    >>> wc = worst_case([0.1, 0.2, 0.3, 4.0], rho=0.5)
    >>> wc.weights.round(3)
    array([0.137, 0.148, 0.159, 0.556])
    >>> round(wc.value, 3), round(wc.achieved, 12)
    (2.315, 0.5)
    >>> worst_case([0.1, 0.2, 0.3, 4.0], rho=5.0).weights  # a ball this large has it all
    array([0., 0., 0., 1.])
    >>> worst_case([1.0, 2.0], rho=0.1, divergence="kl", base=[3, 1]).weights.round(3)
    array([0.543, 0.457])
    """
    z = as_losses(losses)
    radius = as_radius(rho)
    kind = as_divergence(divergence)
    b = _EQUAL if base is None else as_base(base, z.size)
    b = without_dust(kind, b)
    out = np.empty(z.size)
    work = np.empty(_kernels.WORK)
    threads = 1 if n_jobs is None else thread_count(n_jobs)
    if z.size < _THREADS_FROM.get(kind.code, _THREADS_FROM_OTHERS):
        threads = 1
    # Two entries, so that a first call compiles only what it needs.
    curved = kind.code not in _kernels.PLAIN
    solve: Callable[..., Fields] = _kernels.solve_curve if curved else _kernels.solve_plain
    if threads > 1:
        share = _kernels.share_curve if curved else _kernels.share_plain
        found = _solve_threaded(solve, share, kind.spec, z, b, radius, work, out, threads)
    else:
        found = solve(kind.spec, z, b, radius, work, out)
    answer = _kernels.Answer(*found)
    if answer.status == _kernels.NOT_FINITE:
        raise ValueError(not_finite(z))
    if answer.status == _kernels.NOT_SOLVED:
        raise RuntimeError(not_solved(kind, radius, answer))
    return WorstCase(
        out,
        answer.value,
        answer.achieved,
        answer.alpha,
        answer.lam,
        answer.gap,
        radius,
        kind,
    )


# -- threads ---------------------------------------------------------------------------

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _forget_pool() -> None:
    """A forked process has the pool but not its threads."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def thread_count(n_jobs: int) -> int:
    """How many threads are meant."""
    from joblib import effective_n_jobs

    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(
            f"The 'n_jobs' parameter must be None or an integer other than 0. "
            f"Got {n_jobs!r} instead."
        )
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return 1  # without the compiler there is nothing for threads to share
    return min(effective_n_jobs(int(n_jobs)), os.cpu_count() or 1)


@cache
def _pause_address() -> int:
    """The address of the system's function to give way to other threads."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _solve_threaded(
    solve: Callable[..., Fields],
    share: Callable[..., Fields],
    spec: _kernels.Spec,
    z: Array,
    b: Array,
    rho: float,
    work: Array,
    out: Array,
    threads: int,
) -> Fields:
    """What `solve` does, with the chunks of each sweep shared out to threads."""
    global _pool
    # The threads wait for each other, so two calls must not share them. Whoever comes second
    # works alone: the result is the same.
    if not _pool_lock.acquire(blocking=False):
        return solve(spec, z, b, rho, work, out)
    try:
        if _pool is None:
            _pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="drolearn")
        parts = np.empty((_kernels.chunk_count(z.size), 6))
        counter = np.zeros(1, dtype=np.int64)
        others = []

        def join(rank: int, alpha: float, lam: float) -> Fields:
            pause = _pause_address()
            return share(
                spec, z, b, rho, alpha, lam, work, out, parts, counter, pause, rank, threads
            )

        try:
            # Only the first thread needs the multipliers of the sample: the others wake up
            # and survey their part while it finds them.
            for rank in range(1, threads):
                others.append(_pool.submit(join, rank, math.inf, 0.0))
            # After their last meeting with this one they only read what they keep alive.
            return join(0, *_multipliers_of_sample(solve, spec, z, b, rho))
        except BaseException:
            # Ctrl-C before this thread took part: nobody may wait for it, or write to `out`.
            work[_kernels.STATUS] = _kernels.DONE
            counter[0] = 1 << 62
            wait(others)
            raise
    finally:
        _pool_lock.release()


def _multipliers_of_sample(
    solve: Callable[..., Fields], spec: _kernels.Spec, z: Array, b: Array, rho: float
) -> tuple[float, float]:
    """α and λ of every n-th loss, as `_kernels.solve` finds them; an infinite α for none."""
    stride = _kernels.sample_stride(spec, z.size)
    if stride == 0:
        return math.inf, 0.0
    sample, base = z[::stride].copy(), b[::stride].copy()
    if base.size > 0 and not base.any():
        return math.inf, 0.0
    found = solve(spec, sample, base, rho, np.empty(_kernels.WORK), np.empty(sample.size))
    start = _kernels.Answer(*found)
    return start.alpha, start.lam


# -- what may be given -----------------------------------------------------------------


def as_vector(parameter: str, values: ArrayLike) -> Array:
    """A contiguous float64 vector, copied only if it is not one already."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"The '{parameter}' parameter must not have masked entries. "
            f"Got {np.ma.count_masked(values)} of them; use .compressed() or .filled() first."
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"The '{parameter}' parameter must be a vector of real numbers. "
            f"Got {type(values).__name__} instead, which does not convert to one."
        ) from None
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"The '{parameter}' parameter must hold real numbers. "
            f"Got an array of type {array.dtype} instead."
        )
    if array.ndim != 1:
        raise ValueError(
            f"The '{parameter}' parameter must be one-dimensional, one number for each row. "
            f"Got an array of shape {array.shape} instead."
        )
    return np.ascontiguousarray(array, dtype=np.float64)


def as_losses(losses: ArrayLike) -> Array:
    """The losses, finite or not, as a vector."""
    z = as_vector("losses", losses)
    if z.size == 0:
        raise ValueError("The 'losses' parameter must hold at least one number. Got none instead.")
    return z


def as_radius(rho: float) -> float:
    """A radius of at least 0."""
    try:
        radius = math.nan if isinstance(rho, str | bool) else float(rho)
    except (TypeError, ValueError, OverflowError):
        radius = math.nan
    if not radius >= 0.0:
        raise ValueError(
            f"The 'rho' parameter must be a number of at least 0. Got {rho!r} instead."
        )
    return radius


def as_base(base: ArrayLike, size: int, parameter: str = "base") -> Array:
    """Base weights that can be summed."""
    b = as_vector(parameter, base)
    if b.size != size:
        raise ValueError(
            f"The '{parameter}' parameter must have one weight for each of the {size} rows. "
            f"Got {b.size} instead."
        )
    low, high = b.min(), b.max()
    if not (low >= 0.0 and high < math.inf):
        wrong = np.flatnonzero(~((b >= 0.0) & (b < math.inf)))[0]
        raise ValueError(
            f"The '{parameter}' parameter must hold finite weights of at least 0. "
            f"Got {b[wrong]} at index {wrong} instead."
        )
    if high == 0.0:
        raise ValueError(
            f"The '{parameter}' parameter must have a positive sum. Got only zeros instead."
        )
    if not 1e-100 < high < 1e100:  # sums of the raw weights must neither overflow nor vanish
        b = np.ldexp(b, -math.frexp(high)[1])
    return b


def without_dust(kind: Divergence, b: Array) -> Array:
    """Base weights, of which χ² loses those too small to matter.

    p² ≤ (1 + ρ) b: weights this small cannot hold mass that shows in a double, but would cost
    all digits of the others.
    """
    if b.size == 0 or kind.code != _kernels.CHI2:
        return b
    return np.where(b < 1e-34 * b.sum(), 0.0, b)


def not_solved(kind: Divergence, rho: float, answer: _kernels.Answer | None = None) -> str:
    """What to say when the search for the worst case has given up."""
    if kind.code == _kernels.CUSTOM:
        hint = "check that dphi_inverse(t) minimises phi(s) - t*s for every t"
    else:
        hint = "base weights or losses that differ by hundreds of digits are the likely reason"
    found = ""
    if answer is not None:
        found = f" in {answer.sweeps} passes (D = {answer.achieved:.3g}, gap {answer.gap:.3g})"
    return f"No worst case was found for {kind!r} with rho={rho!r}{found}; {hint}."


def not_finite(z: Array) -> str:
    """What to say about losses that are not finite."""
    nan, infinite = int(np.isnan(z).sum()), int(np.isinf(z).sum())
    first = int(np.flatnonzero(~np.isfinite(z))[0])
    return (
        f"The 'losses' parameter must hold finite numbers. Got {nan} NaN and {infinite} infinite "
        f"of {z.size} instead, the first at index {first} ({z[first]})."
    )
