"""The loop of all stochastic solvers.

    θ ← θ − γ_t D (G_t + l2 w),    G_t the gradient of a draw, D the scale of the columns

The core makes some hundred steps at a time.  In between, Python evaluates the robust loss, calls
callbacks, saves a checkpoint, and stops if asked to.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._solvers.block_problem import BlockProblem
from drolearn._solvers.block_steps import gradient_of_draw, run_block_steps, squares_of_level
from drolearn._solvers.draws import Method
from drolearn._solvers.ending import Ending
from drolearn._solvers.multilevel import Multilevel
from drolearn._solvers.problem import Problem
from drolearn._solvers.state_file import load_state, made_of, require, save_state
from drolearn._solvers.step_sizes import Step, step_sizes_at
from drolearn._solvers.subsample import subsample

__all__ = ["History", "State", "advance", "descend", "run_steps"]

Array = NDArray[np.float64]

# Rows of the subsample on which progress is evaluated.
_EVALUATION_ROWS = 1 << 14
# Largest number of steps in one call of the core.
_STEPS = 1024
# Multiplications in one call of the core, about 20 ms: Ctrl-C and callbacks wait for its end.
_WORK = 2e7


@dataclass
class History:
    """The progress of a solve; each list has one entry for each evaluation.

    Attributes
    ----------
    samples : list of float
        Rows read so far, including passes over all rows.
    seconds : list of float
        CPU seconds of this process so far.
    value : list of float
        Robust loss with penalty; stochastic solvers evaluate it on a subsample of large data.
    gradient_norm : list of float
        Norm of the gradient; for stochastic solvers the mean norm of recent ones.
    step : list of float
        Step size; NaN for exact solvers.

    Examples
    --------
    >>> from drolearn import solve
    >>> history = solve([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], l2=0.1).history
    >>> len(history.samples) == len(history.value)
    True
    """

    samples: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)

    def add(self, *row: float) -> None:
        """Append one evaluation.

        Parameters
        ----------
        *row : float
            One number for each list, in the order of the attributes.

        Examples
        --------
        >>> from drolearn import History
        >>> history = History()
        >>> history.add(100.0, 0.1, 0.693, 0.5, 1.0)
        >>> history.value
        [0.693]
        """
        for column, number in zip(fields(self), row, strict=True):
            getattr(self, column.name).append(float(number))


@dataclass
class Anchoring:
    """The state of an anchor, besides the anchor itself."""

    samples: float = 0.0
    """The sample count at which the anchor was set."""
    value: float = 0.0
    """The objective at the anchor."""
    halvings: float = 0.0
    """How many times the step size was halved."""
    halved_at: float = 0.0
    """The sample count of the last halving."""


_COUNTS = ("step", "samples", "base_norm", "averaged", "corrections", "clipped")


@dataclass
class State:
    """Everything that the next step depends on, and the best model so far."""

    theta: Array
    average: Array
    tally: _core.Tally
    anchor: Array
    drift: Array
    best: Array
    best_value: float
    generator: Mapping[str, Any]
    anchoring: Anchoring = field(default_factory=Anchoring)
    probabilities: tuple[float, ...] = ()
    history: History = field(default_factory=History)

    @staticmethod
    def new(theta: Array, rng: np.random.Generator) -> State:
        """The state before the first step."""
        return State(
            theta=theta.copy(),
            average=np.zeros_like(theta),
            tally=_core.Tally(),
            anchor=np.zeros((0, theta.shape[1])),
            drift=np.zeros_like(theta),
            best=theta.copy(),
            best_value=math.inf,
            generator=rng.bit_generator.state,
        )

    @property
    def averaged(self) -> Array:
        """The weighted average of the iterates; later ones have larger weights."""
        weight = self.tally.averaged
        return self.average / weight if weight > 0.0 else self.theta.copy()

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, with the core's tally as a dictionary."""
        return {**self.__dict__, "tally": _counts_of(self.tally)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, tally=_tally_of(state["tally"]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, completely or not at all."""
        content = {
            **self.__dict__,
            "tally": _counts_of(self.tally),
            "anchoring": vars(self.anchoring),
            "history": vars(self.history),
        }
        save_state(path, content)

    @staticmethod
    def load(path: str | os.PathLike[str], shape: tuple[int, ...]) -> State:
        """Read a state that `save` has written, of models of this shape."""

        def make(content: dict[str, Any]) -> State:
            counts = content["tally"].values()
            require(all(0.0 <= each < math.inf for each in counts), "a count is not a count")
            np.random.default_rng().bit_generator.state = content["generator"]  # raises errors
            content["history"] = made_of(History, content["history"])
            content["probabilities"] = tuple(map(float, content["probabilities"]))
            content["tally"] = _tally_of(content["tally"])
            content["anchoring"] = made_of(Anchoring, content["anchoring"])
            state = made_of(State, content)
            models = (state.theta, state.average, state.drift, state.best)
            require(all(each.shape == shape for each in models), "a model has another shape")
            require(state.anchor.shape in (shape, (0, shape[1])), "the anchor has another shape")
            return state

        return load_state(path, make)


def _counts_of(tally: _core.Tally) -> dict[str, float]:
    return {name: getattr(tally, name) for name in _COUNTS}


def _tally_of(counts: Mapping[str, float]) -> _core.Tally:
    tally = _core.Tally()
    for name in _COUNTS:
        setattr(tally, name, float(counts[name]))
    return tally


def descend(
    problem: Problem,
    method: Method,
    state: State,
    *,
    step: Step,
    samples: float,
    clip: float = math.inf,
    average: bool = True,
    anchor_every: float = math.inf,
    tune: bool = False,
    tol: float | None = None,
    evaluation_rows: int = _EVALUATION_ROWS,
    watch: Callable[[State], bool] = lambda state: False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Ending:
    """Make steps until `samples` rows are drawn, or until it ends for another reason.

    Changes `state` in place.  `tol` ends the run when a pass improves the objective on the
    evaluation rows by less, relatively.  `watch` is called after each evaluation and returns True
    to stop.

    A correction longer than `clip` · (mean norm of the base block's gradient) · √(1 + t/100) is
    clipped to that length, as rare large corrections would throw the iterates off.  The bound
    grows, so the estimate is biased at first and unbiased in the limit; `clip = inf` clips nothing.

    After every `anchor_every` samples, the current point becomes the anchor: the draws that follow
    estimate the difference from its full gradient.  The step size is halved if the objective has
    increased since the last anchor.  `tune` estimates the best level probabilities after a short
    run.  The best model is chosen on `evaluation_rows` rows.
    """
    rng = np.random.default_rng()
    rng.bit_generator.state = state.generator
    # With an anchor, iterates come closer to the optimum than a subsample can resolve.
    rows = problem.n if anchor_every < math.inf else evaluation_rows
    evaluator = _Evaluator(problem, average, rows)
    tally, chunk = state.tally, _chunk_size(problem)
    began = time.process_time() - (state.history.seconds[-1] if state.history.seconds else 0.0)
    if math.isinf(state.best_value):
        state.best_value = evaluator.value(state.best)
        state.history.add(0.0, time.process_time() - began, state.best_value, math.nan, math.nan)
    try:
        while tally.samples < samples:
            if isinstance(method, Multilevel):
                method = _tuned(problem, method, state, rng, tune)
            if tally.samples >= _next_anchor(state, anchor_every):
                _set_anchor(problem, state)
            limit = min((tally.samples // chunk + 1.0) * chunk, samples)
            limit = min(limit, _next_anchor(state, anchor_every))
            diverged, gamma = _make_steps(problem, method, state, rng, step, (clip, average, limit))
            if diverged or evaluator.due(state, samples):
                if diverged or not evaluator.evaluate(state, began, gamma):
                    return Ending.DIVERGED
                if watch(state):
                    return Ending.STOPPED
                if tol is not None and _stalled(problem, state, tol):
                    return Ending.CONVERGED
            if checkpoint is not None:
                state.save(checkpoint)
    except KeyboardInterrupt:
        return Ending.INTERRUPTED
    return Ending.ALL_PASSES if tol is None else Ending.EXHAUSTED


def advance(
    problem: Problem,
    method: Method,
    state: State,
    *,
    step: Step,
    samples: float,
    clip: float,
    average: bool,
) -> bool:
    """Make steps until `samples` rows are drawn, and nothing else; False if the model diverged.

    Changes `state` in place.
    """
    rng = np.random.default_rng()
    rng.bit_generator.state = state.generator
    while state.tally.samples < samples:
        if _make_steps(problem, method, state, rng, step, (clip, average, samples))[0]:
            return False
    return True


def _chunk_size(problem: Problem) -> float:
    """The number of samples after which the core returns to Python."""
    chunk = float(min(max(_WORK / (problem.row_size * problem.m), 64.0), 2.0**20))
    if problem.sparse:
        # Each call of the core ends with a pass over all coordinates.
        chunk = max(chunk, 4.0 * problem.d / problem.row_size)
    # An integer: the next multiple of a fraction could round to the current sample count, and the
    # loop would never end.
    return float(math.ceil(chunk))


def _make_steps(
    problem: Problem,
    method: Method,
    state: State,
    rng: np.random.Generator,
    step: Step,
    settings: tuple[float, bool, float],
) -> tuple[bool, float]:
    """Make steps up to a sample count; whether the model diverged, and the first step size.

    `settings` are the bound on corrections, whether to average, and the sample count.
    """
    clip, average, limit = settings
    first = state.tally.step
    gammas = step_sizes_at(step, first + np.arange(_STEPS, dtype=np.float64))
    gammas = gammas * 0.5**state.anchoring.halvings
    # Weights grow like t², so that the average forgets early iterates without knowing the number of
    # steps in advance.
    omega = ((first + 1.0) / 1000.0) ** 2 / gammas[0] if average else 0.0
    try:
        status = run_steps(problem, method, state, rng, (gammas, clip, omega, limit))
    finally:
        state.generator = rng.bit_generator.state
    if status == _core.NOT_SOLVED:
        raise RuntimeError("No worst case was found for the losses of a draw.")
    diverged = status == _core.NOT_FINITE or not np.isfinite(state.theta).all()
    if diverged and state.anchor.shape[0]:
        _back_to_anchor(state)
        diverged = False
    return diverged, float(gammas[0])


def run_steps(
    problem: Problem,
    method: Method,
    state: State,
    rng: np.random.Generator,
    steps: tuple[Array, float, float, float],
) -> int:
    """Make steps in the core, which changes `state` in place and returns a status.

    `steps` are the step sizes, the bound on corrections, the weight of the average, and the sample
    count at which to stop.
    """
    if isinstance(problem, BlockProblem):
        return run_block_steps(problem, method, state, rng, steps)
    loop = problem.descent(method.plan)
    anchor = (state.anchor, state.drift) if state.anchor.shape[0] else None
    gammas, clip, omega, limit = steps
    numbers = (np.ascontiguousarray(gammas), float(clip), float(omega), float(limit))
    model, generator = (state.theta, state.average), rng.bit_generator
    with generator.lock:
        return loop.run(generator.capsule, model, anchor, numbers, state.tally)


class _Evaluator:
    """Evaluates models on all rows or a fixed subsample, and keeps the best one."""

    def __init__(self, problem: Problem, average: bool, rows: int) -> None:
        self.problem, self.average, self.slack = problem, average, 0.0
        # Blocks with groups have no subsample here: all rows are evaluated, in two rounds.
        if problem.n > 2 * rows and (problem.local or problem.groups is None):
            part = _part(problem, rows)
            if part.weights is None or part.weights.any():
                # Later iterates are better on all rows, unless the subsample clearly disagrees.
                self.problem, self.slack = part, 2e-3

    def value(self, theta: Array) -> float:
        """F(θ) on the evaluation rows; infinite if it cannot be computed."""
        value = self.problem.objective(theta)
        return value if math.isfinite(value) else math.inf

    def due(self, state: State, samples: float) -> bool:
        """Whether enough rows were drawn that an evaluation adds about a tenth to the cost."""
        seen = state.history.samples[-1]
        now = state.tally.samples
        return now >= samples or now - seen >= max(5.0 * self.problem.n, 0.05 * seen)

    def evaluate(self, state: State, began: float, gamma: float) -> bool:
        """Compare the current model with the best so far; False if the loss is not finite."""
        theta = state.averaged if self.average else state.theta.copy()
        value = self.value(theta)
        if self.average:
            last = self.value(state.theta)
            if last < value - self.slack * self.problem.magnitude(value):
                value, theta = last, state.theta.copy()
        if value < state.best_value + self.slack * self.problem.magnitude(state.best_value):
            state.best = theta
            state.best_value = min(value, state.best_value)
        tally = state.tally
        state.history.add(
            tally.samples,
            time.process_time() - began,
            value,
            tally.base_norm,
            gamma,
        )
        return math.isfinite(value)


def _part(problem: Problem, count: int) -> Problem:
    """The problem on about `count` rows, or up to twice as many with groups.

    A group has its share of the rows, and at least as many as if all groups had equally many.
    """
    groups = problem.groups
    if groups is None:
        return problem.sample(count)
    members = [rows for rows in groups.members if rows.size]
    equal, total = count // len(members), sum(rows.size for rows in members)
    parts = []
    for rows in members:
        parts.append(rows[subsample(rows.size, max(equal, count * rows.size // total, 1))])
    chosen = np.sort(np.concatenate(parts))
    part = groups.part(chosen)
    # The weights of the rows are those for which the groups have their shares of all rows.
    return replace(problem.subset(chosen), groups=part, weights=part.rows(part.shares))


def _stalled(problem: Problem, state: State, tol: float) -> bool:
    """Whether the last pass improved the objective by less than `tol`, relatively.

    Only evaluations since the step size was last halved are compared.
    """
    history, since = state.history, state.anchoring.halved_at
    evaluations = list(zip(history.samples, history.value, strict=True))
    evaluations = [(samples, value) for samples, value in evaluations if samples >= since]
    before = [value for samples, value in evaluations if samples <= evaluations[-1][0] - problem.n]
    if len(before) < 2:
        return False
    best = min(value for _, value in evaluations)
    return min(before) - best <= tol * problem.magnitude(best)


def _next_anchor(state: State, every: float) -> float:
    """The sample count at which the anchor is next set; infinite without anchors."""
    if every == math.inf:
        return math.inf
    return state.anchoring.samples + every if state.anchor.shape[0] else 0.0


def _back_to_anchor(state: State) -> None:
    """Return to the anchor and halve the step size."""
    state.theta = state.anchor.copy()
    state.anchoring.halvings += 1.0
    state.anchoring.halved_at = state.tally.samples


def _set_anchor(problem: Problem, state: State) -> None:
    """Make the current point the anchor, which costs a pass over all rows.

    If the objective has increased since the last anchor, the steps are too long: return to that
    anchor and halve the step size.
    """
    tally = state.tally
    at = problem.evaluate(problem.scores(state.theta))
    value = at.value + problem.penalty_at(state.theta)
    before = state.anchoring.value
    if state.anchor.shape[0] and not value <= before + 1e-13 * problem.magnitude(before):
        _back_to_anchor(state)
    else:
        drift = problem.gradient(at)
        drift[:, :-1] -= problem.columns[0] * drift[:, -1:]
        state.anchor, state.drift = state.theta.copy(), drift
        state.anchoring.value = value
    tally.samples += problem.n
    state.anchoring.samples = tally.samples


def _tuned(
    problem: Problem, method: Multilevel, state: State, rng: np.random.Generator, tune: bool
) -> Multilevel:
    """The method with tuned level probabilities, estimated after the first 200 steps."""
    if method.probabilities is not None or not tune:
        return method
    if not state.probabilities and state.tally.step >= 200.0:
        budget = min(10 * problem.n, 200_000)
        if isinstance(problem, BlockProblem):
            squares = partial(squares_of_level, problem, method, rng, state.theta)
            tuned = method._tuned_by(squares, budget)
        else:
            tuned = method.tuned(
                lambda draw: gradient_of_draw(problem, draw, state.theta), rng, budget
            )
        state.generator = rng.bit_generator.state
        state.probabilities = tuned.probabilities or ()
    if state.probabilities:
        return replace(method, probabilities=state.probabilities)
    return method
