"""Robust linear models of rows that come one after the other, in one pass and bounded memory.

The last B = batch_size · 2^max_level rows are kept in a window.  Whenever rows have come, the loop
of the stochastic solvers makes steps with multilevel draws from the window, until it has drawn as
many rows as have come.  A draw is an unbiased estimate of the gradient of the robust loss of the
window, so on a stream of independent rows the steps minimise

    E[R̂ of B rows] + l2/2 ‖w‖²,

which is below the robust loss of the whole population by about C/B.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from drolearn._solvers.columns import Columns, Moments, columns_of, refuse_extreme
from drolearn._solvers.descent import State, advance
from drolearn._solvers.problem import Problem
from drolearn._solvers.solvers import GSSG, Recipe
from drolearn._solvers.step_sizes import step_sizes_at
from drolearn._validation import as_count, as_weights

__all__ = ["Rows", "Stream", "window_size"]

Array = NDArray[np.float64]
# The largest window: no stream keeps so many rows in memory.
_LARGEST_WINDOW = 1 << 40


class Rows(NamedTuple):
    """Rows of a stream with positive weights, and their labels as the loss expects them."""

    X: Any
    y: Array
    weights: Array | None

    def part(self, rows: Any) -> Rows:
        """Some of the rows."""
        return Rows(
            self.X[rows], self.y[rows], None if self.weights is None else self.weights[rows]
        )


def window_size(solver: GSSG) -> int:
    """The number of rows that a stream keeps."""
    size = as_count("batch_size", solver.batch_size)
    most = max((_LARGEST_WINDOW // size).bit_length() - 1, 0)
    return size << as_count("max_level", solver.max_level, 0, most)


class _Queue:
    """An array that grows at the end and shrinks at the front; its cost for a row is constant."""

    def __init__(self) -> None:
        self.held: NDArray[Any] = np.empty(0)
        self._store, self._end = self.held, 0

    def __getstate__(self) -> dict[str, Any]:
        return {"held": self.held.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.held = self._store = state["held"]
        self._end = len(self.held)

    def push(self, values: NDArray[Any], keep: int) -> None:
        """Append values, and keep only the last `keep` of those held before."""
        old, new = self.held[len(self.held) - keep :], len(values)
        # The first values decide on the type; of wider ones, such as float64, nothing is lost.
        dtype = np.result_type(old, values) if keep else values.dtype
        if self._end + new > len(self._store) or dtype != self._store.dtype:
            self._store = np.empty((2 * (keep + new), *values.shape[1:]), dtype)
            if keep:
                self._store[:keep] = old
            self._end = keep
        self._store[self._end : self._end + new] = values
        self._end += new
        self.held = self._store[self._end - keep - new : self._end]


class _Window:
    """The last rows of a stream, without a copy of all of them for every new one."""

    def __init__(self, sparse: bool, columns: int) -> None:
        self.sparse, self.columns, self.weighted = sparse, columns, False
        names = ("values", "indices", "counts") if sparse else ("values",)
        self._queues = {name: _Queue() for name in (*names, "y", "weights")}

    def __len__(self) -> int:
        return len(self._queues["y"].held)

    def push(self, rows: Rows, size: int) -> None:
        """Add rows, of which there are at most `size`, and keep `size` rows in all."""
        n, queues = len(rows.y), self._queues
        keep = min(len(self), size - n)
        self.weighted = self.weighted or rows.weights is not None
        if self.sparse:
            counts = queues["counts"].held
            stored = int(counts[len(counts) - keep :].sum())
            queues["values"].push(rows.X.data, stored)
            queues["indices"].push(rows.X.indices, stored)
            queues["counts"].push(np.diff(rows.X.indptr).astype(np.int64), keep)
        else:
            queues["values"].push(rows.X, keep)
        queues["y"].push(rows.y, keep)
        queues["weights"].push(np.ones(n) if rows.weights is None else rows.weights, keep)

    @property
    def rows(self) -> Rows:
        """The rows that are held; views of the window, valid until the next `push`."""
        held = {name: queue.held for name, queue in self._queues.items()}
        X, n = held["values"], len(self)
        if self.sparse:
            ends = np.concatenate([[0], np.cumsum(held["counts"])]).astype(held["indices"].dtype)
            X = sp.csr_matrix((X, held["indices"], ends), shape=(n, self.columns))
            X.has_canonical_format = True  # so is every piece
        weights = as_weights(held["weights"], n) if self.weighted else None
        return Rows(X, held["y"], weights)


@dataclass
class _Running:
    """Moments of the columns over all rows that have come, in one pass without cancellation."""

    count: int
    mean: Array
    square: Array
    """Sum of squares about the mean."""
    low: Array
    high: Array

    @staticmethod
    def of(piece: Problem) -> _Running:
        """The moments of some rows; of sparse ones about zero, as these are not centred."""
        rows, piece = np.arange(piece.n), replace(piece, weights=None)
        about_zero = piece.moments(rows, None)
        refuse_extreme(about_zero.largest)
        if piece.sparse:
            largest = about_zero.largest
            return _Running(piece.n, np.zeros(piece.d), about_zero.square, -largest, largest)
        mean = about_zero.total / piece.n
        square = piece.moments(rows, mean).square
        low, high = (bound(axis=0).astype(np.float64) for bound in (piece.X.min, piece.X.max))
        return _Running(piece.n, mean, square, low, high)

    def add(self, new: _Running) -> None:
        """Add the moments of other rows."""
        total, apart = self.count + new.count, new.mean - self.mean
        self.square = self.square + new.square + apart**2 * (self.count * new.count / total)
        self.mean = self.mean + apart * (new.count / total)
        self.low, self.high = np.minimum(self.low, new.low), np.maximum(self.high, new.high)
        self.count = total

    def moments(self, mean: Array | None) -> Moments:
        """Moments about a mean or about zero, as `columns_of` needs them."""
        about = np.zeros_like(self.mean) if mean is None else mean
        square = self.square + self.count * (self.mean - about) ** 2
        largest = np.maximum(self.high - about, about - self.low)
        return Moments(self.count * self.mean, square, largest, float(self.count), self.count)


@dataclass
class Stream:
    """What a stream has taught so far, and the last rows of it.

    Pickling keeps all of it: what follows has the same bits as without the interruption.
    """

    state: State
    window: _Window
    seen: int = 0
    """Number of rows so far; those of weight zero do not count."""
    running: _Running | None = None
    recipe: Recipe | None = None
    measured_for: Any = None
    """The settings and the number of bits of `seen` that the step sizes are for."""
    seconds: float = 0.0
    diverged: bool = field(default=False)
    """Whether steps of the last call had to be undone."""

    @staticmethod
    def new(theta: Array, rng: np.random.Generator, sparse: bool) -> Stream:
        """A stream before its first row, and the model to start from."""
        return Stream(State.new(theta, rng), _Window(sparse, theta.shape[1] - 1))

    def learn(self, rows: Rows, solver: GSSG, problem_of: Callable[[Rows], Problem]) -> None:
        """Take rows and make steps; `problem_of` makes a problem of rows."""
        began = time.process_time() - self.seconds
        self.diverged = False
        size = window_size(solver)
        for first in range(0, len(rows.y), size):
            piece = rows.part(slice(first, first + size))
            moments = _Running.of(problem_of(piece))
            if self.running is None:
                self.running = moments
            else:
                self.running.add(moments)
            self.window.push(piece, size)
            self.seen += len(piece.y)
            if self.state.tally.samples < self.seen:
                self._make_steps(self._problem(problem_of, solver), solver, began)
        self.seconds = time.process_time() - began

    def _problem(self, problem_of: Callable[[Rows], Problem], solver: GSSG) -> Problem:
        """The problem of the window, in coordinates that are scaled for all rows so far."""
        problem = problem_of(self.window.rows)
        if missing := solver._lacks(problem):
            raise ValueError(missing)
        problem = replace(problem, scaling="none" if solver.unscaled else "draws")
        return replace(problem, measured=self._columns(problem))

    def _columns(self, problem: Problem) -> Columns:
        if self.running is None:
            raise RuntimeError("No rows have come.")
        return columns_of(
            self.running.moments,
            self.seen,
            sparse=problem.sparse,
            intercept=problem.intercept,
            scaling=problem.scaling,
            smoothness=problem.loss.smoothness,
            l2=problem.l2,
        )

    def _make_steps(self, problem: Problem, solver: GSSG, began: float) -> None:
        """Make steps until as many rows are drawn as have come.

        If a loss becomes infinite, the model is the one before, and steps are half as long.
        """
        state, recipe = self.state, self._recipe(problem, solver, began)
        before = state.theta.copy(), state.average.copy(), state.tally.averaged
        if not advance(
            problem, recipe.method, state, step=recipe.step, samples=float(self.seen),
            clip=recipe.clip, average=recipe.average,
        ):  # fmt: skip
            state.theta, state.average, state.tally.averaged = before
            state.anchoring.halvings += 1.0
            self.diverged = True
        state.best = state.averaged if recipe.average else state.theta.copy()

    def _recipe(self, problem: Problem, solver: GSSG, began: float) -> Recipe:
        """Draws and step sizes.

        When the rows have doubled, the smoothness is measured and the history written.
        """
        settings = (problem.loss, problem.divergence, problem.rho, problem.l2, repr(solver))
        settings = (*settings, self.seen.bit_length())
        if self.recipe is None or settings != self.measured_for:
            self.recipe, self.measured_for = solver._recipe(problem), settings
            tally = self.state.tally
            gamma = float(step_sizes_at(self.recipe.step, np.array([tally.step]))[0])
            value, seconds = problem.objective(self.model), time.process_time() - began
            self.state.history.add(float(self.seen), seconds, value, tally.base_norm, gamma)
        if self.recipe.method.n != problem.n:
            size = min(int(solver.batch_size), problem.n)
            method = replace(self.recipe.method, n=problem.n, batch_size=size)
            self.recipe = replace(self.recipe, method=method)
        return self.recipe

    @property
    def model(self) -> Array:
        """The model so far."""
        return self.state.best
