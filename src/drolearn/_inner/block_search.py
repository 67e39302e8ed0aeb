"""The worst case of losses in blocks, from sums over the blocks: the losses stay where they are.

Blocks provide `losses_for(key)`, where the key says at which model; see :class:`LossBlock`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._blocks import Blocks, Pass
from drolearn._inner.worst_case import WorstCase, not_solved
from drolearn.divergence import Divergence

__all__ = [
    "BlockWorstCase", "Guess", "LossBlock", "Losses", "Sample", "Search", "Survey",
    "SurveyPass", "joined", "maximise", "maximise_many", "run_searches", "stride_for", "survey_of",
    "sweep_of", "weights_of",
]  # fmt: skip

Array = NDArray[np.float64]


class Losses(Protocol):
    """The losses of one block."""

    @property
    def z(self) -> Array:
        """The losses."""
        ...

    @property
    def b(self) -> Array | None:
        """Their base weights; None for equal ones."""
        ...

    @property
    def first(self) -> int:
        """The number of losses in all blocks before this one."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LossBlock:
    """A block that holds its losses."""

    z: Array
    b: Array | None
    first: int


class Survey(NamedTuple):
    """The range of the losses, and a regular sample of them."""

    row: Array
    """Sum of 0 · z, smallest and largest loss, mass of the largest loss, and mass."""
    sample: list[Array]
    sample_weights: list[Array]

    def __add__(self, other: Any) -> Survey:
        a, b = self.row, other.row
        peak = a[3] * (a[2] >= b[2]) + b[3] * (b[2] >= a[2])
        row = np.array([a[0] + b[0], min(a[1], b[1]), max(a[2], b[2]), peak, a[4] + b[4]])
        weights = self.sample_weights + other.sample_weights
        return Survey(row, self.sample + other.sample, weights)


def survey_of(losses: Losses, stride: int) -> Survey:
    """The survey of one block; every `stride`-th of all losses enters the sample."""
    parts = np.empty((-(-losses.z.size // _core.CHUNK), 5))
    _core.survey(losses.z, losses.b, parts)
    high = parts[:, 2].max()
    row = np.array(
        [
            parts[:, 0].sum(),
            parts[:, 1].min(),
            high,
            parts[parts[:, 2] == high, 3].sum(),
            parts[:, 4].sum(),
        ]
    )
    chosen = slice(-losses.first % stride if stride else losses.z.size, None, stride or 1)
    weights = [] if losses.b is None else [losses.b[chosen]]
    return Survey(row, [losses.z[chosen]], weights)


def sweep_of(divergence: Divergence, state: bytes, losses: Losses, out: Array) -> Array:
    """The sums of one sweep over a block; `out` receives the weights if the sweep writes them."""
    search = _core.Search(divergence.core, state)
    parts, total = np.empty((-(-losses.z.size // _core.CHUNK), 6)), np.empty(6)
    search.sweep(losses.z, losses.b, out, parts)
    search.join(parts, total)
    return total


def joined(divergence: Divergence, state: bytes, first: Array, second: Array) -> Array:
    """The sums of two neighbouring parts."""
    total = np.empty(6)
    _core.Search(divergence.core, state).join(np.vstack([first, second]), total)
    return total


def weights_of(divergence: Divergence, state: bytes, losses: Losses) -> Array:
    """The worst-case weights of a block, from the state before the last sweep of a search."""
    out = np.empty(losses.z.size)
    sweep_of(divergence, state, losses, out)
    return out


class BlockWorstCase(NamedTuple):
    """A worst case without its weights, which the blocks can compute from `state`."""

    worst: WorstCase
    state: bytes
    """The state before the last sweep, see `weights_of`."""


class Guess(NamedTuple):
    """The multipliers of the last worst case, and those of its sample."""

    found: tuple[float, float]
    of_sample: tuple[float, float]


# Losses of a sample, and their base weights.
Sample = tuple[Array, Array | None]


def stride_for(divergence: Divergence, n: int) -> int:
    """The stride of the sample for the first guess; 0 for no sample."""
    return _core.sample_stride(divergence.core, n)


class Search:
    """Worst cases of one ball on the same rows, each starting from the multipliers of the last.

    The multipliers of a sample of about 10,000 losses are within one percent.  Their error at the
    last model is known, and subtracted: close to the optimum it changes little.
    """

    def __init__(self, divergence: Divergence, rho: float, n: int) -> None:
        self.divergence, self.rho, self.n = divergence, rho, n
        self.stride = stride_for(divergence, n) if rho > 0.0 or divergence.name == "cvar" else 0
        self.last: Guess | None = None
        self.sweeps = 0  # of the last worst case

    def guess(self, sample: Sample | None) -> tuple[tuple[float, float], tuple[float, float]]:
        """The multipliers at which to start, and those of the sample."""
        unknown = (math.inf, 0.0)
        if sample is None:  # few losses: the last multipliers have to do
            return (unknown if self.last is None else self.last.found), unknown
        z, b = sample
        if not z.size or (b is not None and not b.any()):
            return unknown, unknown
        answer = _core.solve(self.divergence.core, self.rho, z, b, np.empty(z.size))
        of_sample = (answer[3], answer[4])
        if self.last is None or not all(map(math.isfinite, (*of_sample, *self.last.of_sample))):
            return of_sample, of_sample
        # α is positive, so its error is a factor.
        ratio = self.last.found[0] / self.last.of_sample[0] if self.last.of_sample[0] > 0.0 else 1.0
        shift = self.last.found[1] - self.last.of_sample[1]
        close = 0.5 < ratio < 2.0 and abs(shift) < max(answer[3], 1e-300)
        guessed = (of_sample[0] * ratio, of_sample[1] + shift) if close else of_sample
        return guessed, of_sample

    def start(self, survey: Survey) -> bytes:
        """The state of a search at its beginning; in a ball of radius 0, that is also its end."""
        return self.begin(survey).state

    def begin(self, survey: Survey) -> _core.Search:
        """A search at its beginning."""
        return self._search(survey.row, (math.inf, 0.0))

    def _search(self, row: Array, guess: tuple[float, float]) -> _core.Search:
        return _core.Search(self.divergence.core, self.rho, self.n, row.reshape(1, 5), guess)

    def expects_weights(self, state: bytes, k: int) -> bool:
        """Whether the k-th sweep from this state is expected to write the final weights."""
        out = np.full(1, np.nan)
        one = LossBlock(np.zeros(1), None, 0)
        sweep_of(self.divergence, state, one, out)
        last = self.divergence.family in ("chi2", "kl") or k + 1 >= self.sweeps
        return last and not np.isnan(out[0])

    def maximise(
        self,
        survey: Survey,
        sweep: Callable[[bytes, int], Array],
        sample: Sample | None = None,
        start: tuple[float, float] | None = None,
    ) -> BlockWorstCase | None:
        """Solve the worst case by sweeps; None if a loss is not finite.

        `sweep(state, k)` returns the sums of the k-th sweep over all blocks.  `sample` defaults to
        that of the survey.  `start` are multipliers that are known to be close.
        """
        if np.isnan(survey.row[0]):
            return None
        if sample is None and start is None and self.stride:
            b = np.concatenate(survey.sample_weights) if survey.sample_weights else None
            sample = np.concatenate(survey.sample), b
        guess, of_sample = self.guess(sample) if start is None else (start, (math.inf, 0.0))
        found = self._maximise(self._search(survey.row, guess), sweep, of_sample)
        if isinstance(found, str):
            raise RuntimeError(not_solved(self.divergence, self.rho, found))
        return found

    def conclude(
        self, search: _core.Search, of_sample: tuple[float, float], state: bytes, sweeps: int
    ) -> BlockWorstCase | str:
        """The worst case of a search that is done; what is wrong if it has failed."""
        self.sweeps = sweeps
        status, value, achieved, alpha, lam, gap, _ = search.answer()
        if status != _core.OK:
            return f" in {sweeps} passes (D = {achieved:.3g}, gap {gap:.3g})"
        if math.isfinite(alpha) and math.isfinite(lam):
            self.last = Guess((alpha, lam), of_sample)
        none = np.empty(0)
        worst = WorstCase(none, value, achieved, alpha, lam, gap, self.rho, self.divergence)
        return BlockWorstCase(worst, state)

    def _maximise(
        self,
        search: _core.Search,
        sweep: Callable[[bytes, int], Array],
        of_sample: tuple[float, float],
    ) -> BlockWorstCase | str:
        """Sweep until the search is done; what is wrong if it fails."""
        state, sweeps = b"", 0
        while not search.done:
            state = search.state
            search.advance(sweep(state, sweeps).reshape(1, 6))
            sweeps += 1
        return self.conclude(search, of_sample, state, sweeps)


# -- losses that blocks hold ---------------------------------------------------------------------


@dataclass(frozen=True)
class SweepsPass(Pass[Any, list[Array]]):
    """One sweep of each of several searches over losses that blocks hold."""

    searches: list[tuple[Divergence, bytes]]

    def of(self, block: Any) -> list[Array]:
        """Return the sums of one block."""
        out = np.empty(block.z.size)
        return [sweep_of(divergence, state, block, out) for divergence, state in self.searches]

    def add(self, first: list[Array], second: list[Array]) -> list[Array]:
        """Join the sums of two parts."""
        parts = zip(self.searches, first, second, strict=True)
        return [joined(*search, one, other) for search, one, other in parts]


@dataclass(frozen=True)
class SurveyPass(Pass[LossBlock, Survey]):
    """The survey of losses that blocks hold."""

    stride: int

    def of(self, block: LossBlock) -> Survey | None:
        """Return the survey of one block."""
        return survey_of(block, self.stride) if block.z.size else None

    def add(self, first: Survey, second: Survey) -> Survey:
        """Join two surveys."""
        return first + second


@dataclass(frozen=True)
class SweepPass(Pass[LossBlock, Array]):
    """One sweep of a search over losses that blocks hold."""

    divergence: Divergence
    state: bytes

    def of(self, block: LossBlock) -> Array | None:
        """Return the sums of one block."""
        if not block.z.size:
            return None
        return sweep_of(self.divergence, self.state, block, np.empty(block.z.size))

    def add(self, first: Array, second: Array) -> Array:
        """Join the sums of two parts."""
        return joined(self.divergence, self.state, first, second)


def maximise(
    blocks: Blocks[LossBlock],
    divergence: Divergence,
    rho: float,
    n: int,
    search: Search | None = None,
) -> BlockWorstCase | None:
    """The worst case of n losses in blocks; None if a loss is not finite.

    `search` is that of an earlier worst case of similar losses.
    """
    search = search or Search(divergence, rho, n)
    survey = blocks.run(SurveyPass(search.stride))
    return search.maximise(survey, lambda state, _: blocks.run(SweepPass(divergence, state)))


def run_searches(
    searches: list[_core.Search], sweep: Callable[[list[tuple[int, bytes]]], list[Array]]
) -> tuple[list[bytes], list[int]]:
    """Sweep for all searches that are not done, until all are.

    `sweep` is called with their numbers and states, and returns the sums of all.  The result is
    the state of each before its last sweep, and the numbers of sweeps.
    """
    states, sweeps = [b""] * len(searches), [0] * len(searches)
    while left := [k for k, search in enumerate(searches) if not search.done]:
        for k in left:
            states[k] = searches[k].state
        for k, sums in zip(left, sweep([(k, states[k]) for k in left]), strict=True):
            searches[k].advance(sums.reshape(1, 6))
            sweeps[k] += 1
    return states, sweeps


def maximise_many(
    blocks: Blocks[Any], balls: list[tuple[Divergence, float]], n: int, survey: Survey
) -> list[BlockWorstCase]:
    """The worst cases of n losses in several balls; a round sweeps for all that are not done.

    `survey` is that of all losses, with a sample of every `stride_for`-th one.
    """
    sample = None
    if survey.sample:
        weights = np.concatenate(survey.sample_weights) if survey.sample_weights else None
        sample = np.concatenate(survey.sample), weights
    runs = [Search(divergence, rho, n) for divergence, rho in balls]
    guesses = [run.guess(sample if run.stride else None) for run in runs]
    searches = [
        run._search(survey.row, guess) for run, (guess, _) in zip(runs, guesses, strict=True)
    ]

    def sweep(left: list[tuple[int, bytes]]) -> list[Array]:
        return blocks.run(SweepsPass([(balls[k][0], state) for k, state in left]))

    states, sweeps = run_searches(searches, sweep)
    found = []
    for k, run in enumerate(runs):
        answer = run.conclude(searches[k], guesses[k][1], states[k], sweeps[k])
        if isinstance(answer, str):
            raise RuntimeError(not_solved(*balls[k], answer))
        found.append(answer)
    return found
