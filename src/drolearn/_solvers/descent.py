"""The one outer loop: step sizes, taming, averages, history, and a state that can be saved.

    θ ← θ − γ_t D (G_t + l2 w),    G_t the gradient of a draw, D the scale of the columns

Compiled code runs some hundred steps at a time and comes back to Python, which looks at the
robust loss, tells whoever wants to know, saves, and stops when asked to.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn import _core
from drolearn._solvers.draws import Draw, Method, Multilevel
from drolearn._solvers.ending import Ending
from drolearn._solvers.problem import Problem, some_rows
from drolearn._storage import replacing

__all__ = ["Constant", "Decay", "History", "State", "descend"]

Array = NDArray[np.float64]
Step = Callable[[Array], Array]

# Rows on which the robust loss is watched: enough to tell a good model from a bad one.
_WATCHED = 1 << 14
# Most steps of one stay in compiled code.
_STEPS = 1024
# Multiplications of one stay in compiled code, some 20 ms: Ctrl-C and progress wait for it.
_WORK = 2e7


@dataclass(frozen=True)
class Decay:
    """γ_t = start · half/(half + t), the paper's with start = 1 and half = 5000."""

    start: float = 1.0
    half: float = 5000.0

    def __call__(self, t: Array) -> Array:
        """Step sizes at steps t."""
        return self.start * self.half / (self.half + t)


@dataclass(frozen=True)
class Constant:
    """γ_t = start."""

    start: float = 1.0

    def __call__(self, t: Array) -> Array:
        """Step sizes at steps t."""
        return np.full(t.shape, self.start)


@dataclass
class History:
    """What was seen on the way; one number in each list for each look.

    Attributes
    ----------
    samples : list of float
        Rows drawn so far, those of full passes included.
    seconds : list of float
        CPU seconds of this process so far.
    value : list of float
        Robust loss, penalty included, on the watched rows.
    gradient_norm : list of float
        Mean norm of recent gradients.
    step : list of float
        Step size.
    """

    samples: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)

    def add(self, *row: float) -> None:
        """Append one look."""
        for column, number in zip(fields(self), row, strict=True):
            getattr(self, column.name).append(float(number))


@dataclass
class Anchoring:
    """What methods with anchors remember besides the anchor itself."""

    samples: float = 0.0
    """The sample count at which the anchor was cast."""
    value: float = 0.0
    """The robust loss there."""
    shorter: float = 0.0
    """How many times the steps were halved."""
    shortened: float = 0.0
    """The sample count at which they were halved last."""


_COUNTS = ("step", "samples", "base_norm", "averaged", "corrections", "clipped")


@dataclass
class State:
    """All that the next step depends on, and the best model so far."""

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
        """The average of the iterates, late ones counting more."""
        weight = self.tally.averaged
        return self.average / weight if weight > 0.0 else self.theta.copy()

    def __getstate__(self) -> dict[str, Any]:
        """The core's tally as a dictionary of its numbers."""
        return {**self.__dict__, "tally": _counts_of(self.tally)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, tally=_tally_of(state["tally"]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, all of it or nothing."""
        import json

        about = {
            "best_value": self.best_value,
            "tally": _counts_of(self.tally),
            "anchoring": vars(self.anchoring),
            "generator": self.generator,
            "probabilities": self.probabilities,
            "history": vars(self.history),
        }
        names = ("theta", "average", "anchor", "drift", "best")
        arrays = {name: getattr(self, name) for name in names}
        with replacing(path) as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> State:
        """Read a state that `save` has written."""
        import json
        import zipfile

        broken = (zipfile.BadZipFile, EOFError)
        try:
            # A file of its own: np.load leaves one open if it is damaged.
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                content = {name: stored[name] for name in stored.files}
            about = json.loads(str(content.pop("about")))
            history = History(**about.pop("history"))
            about["probabilities"] = tuple(about["probabilities"])
            about["tally"] = _tally_of(about["tally"])
            about["anchoring"] = Anchoring(**about["anchoring"])
            return State(**content, **about, history=history)
        except (LookupError, TypeError, ValueError, NotImplementedError, *broken) as error:
            raise ValueError(
                f"{os.fspath(path)!r} is not a checkpoint of drolearn, or is damaged: delete it "
                f"to start anew."
            ) from error


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
    watch_rows: int = _WATCHED,
    watch: Callable[[State], bool] = lambda state: False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Ending:
    """Run until so many samples are drawn; why it ended.

    Changes `state` in place.  `tol` is the relative progress of a pass, on the watched rows,
    below which it ends; `watch` returns True to stop.

    A correction longer than `clip` · (mean norm of the base block's gradient) · √(1 + t/100) is
    cut to that length, so that rare, huge ones do not throw the iterates off.  The bound grows
    and fewer and fewer are cut: the estimate is biased at first and unbiased in the limit;
    `clip = inf` leaves every one unbiased.  Every `anchor_every` samples, the full gradient is
    taken at the current point and becomes the anchor of the draws that follow; steps are halved
    if the robust loss has grown since the last one.  `tune` fits the
    level probabilities after a short run.  `watch_rows` rows tell the best model so far.
    """
    rng = np.random.default_rng()
    rng.bit_generator.state = state.generator
    # Who comes closer than some rows can tell is watched on all of them.
    watched = _Watched(problem, average, problem.n if anchor_every < math.inf else watch_rows)
    tally = state.tally
    chunk = float(min(max(_WORK / (problem.row_size * problem.m), 64.0), 2.0**20))
    if problem.sparse:
        # A stay ends with a look at every coordinate: it must pay for itself.
        chunk = max(chunk, 4.0 * problem.d / problem.row_size)
    # Whole numbers: the next multiple of a fraction may be rounded to the sample count itself,
    # and such a stay would never end.
    chunk = float(math.ceil(chunk))
    began = time.process_time() - (state.history.seconds[-1] if state.history.seconds else 0.0)
    if math.isinf(state.best_value):
        state.best_value = watched.value(state.best)
        state.history.add(0.0, time.process_time() - began, state.best_value, math.nan, math.nan)
    ending = Ending.ALL_PASSES if tol is None else Ending.EXHAUSTED
    try:
        while tally.samples < samples:
            if isinstance(method, Multilevel):
                method = _tuned(problem, method, state, rng, tune)
            at = tally.samples
            if anchor_every < math.inf and at >= _next_anchor(state, anchor_every):
                _cast_anchor(problem, state)
                at = tally.samples
            limit = min((at // chunk + 1.0) * chunk, samples)
            if anchor_every < math.inf:
                limit = min(limit, _next_anchor(state, anchor_every))
            first = tally.step
            gammas = _step_sizes(step, first + np.arange(_STEPS, dtype=np.float64))
            gammas = gammas * 0.5**state.anchoring.shorter
            # Late iterates count more, as t²: early ones need not be cut off at a point that
            # only who knows the number of steps could name.
            omega = ((first + 1.0) / 1000.0) ** 2 / gammas[0] if average else 0.0
            try:
                status = run_steps(problem, method, state, rng, (gammas, clip, omega, limit))
            finally:
                state.generator = rng.bit_generator.state
            if status == _core.NOT_SOLVED:
                raise RuntimeError("No worst case was found for the losses of a draw.")
            lost = status == _core.NOT_FINITE or not np.isfinite(state.theta).all()
            if lost and state.anchor.shape[0]:
                lost = False
                _shorten(state)
            if lost or watched.due(state, samples):
                fine = not lost and watched.look(state, began, float(gammas[0]))
                if not fine:
                    ending = Ending.DIVERGED
                    break
                if watch(state):
                    ending = Ending.STOPPED
                    break
                since = state.anchoring.shortened
                if tol is not None and _stalled(state.history, problem.n, tol, since):
                    ending = Ending.CONVERGED
                    break
            if checkpoint is not None:
                state.save(checkpoint)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    return ending


def run_steps(
    problem: Problem,
    method: Method,
    state: State,
    rng: np.random.Generator,
    steps: tuple[Array, float, float, float],
) -> int:
    """Make some steps in the core, which changes `state` in place; a status.

    `steps` are the step sizes, the bound on corrections, the weight of the average, and the sample
    count at which to stop.
    """
    mean, scale, _ = problem.columns
    loop = _core.Descent(
        (problem.loss.core, problem.divergence.core), problem.l2, method.plan, problem.rows,
        (problem.y, problem.weights), (mean, scale),
    )  # fmt: skip
    anchor = (state.anchor, state.drift) if state.anchor.shape[0] else None
    gammas, clip, omega, limit = steps
    numbers = (np.ascontiguousarray(gammas), float(clip), float(omega), float(limit))
    model, generator = (state.theta, state.average), rng.bit_generator
    with generator.lock:
        return loop.run(generator.capsule, model, anchor, numbers, state.tally)


def _step_sizes(step: Step, t: Array) -> Array:
    """The step sizes at steps t, checked."""
    try:
        gammas = np.broadcast_to(np.asarray(step(t), dtype=np.float64), t.shape)
        fine = bool((gammas > 0.0).all() and np.isfinite(gammas).all())
    except (TypeError, ValueError):
        fine, gammas = False, t
    if not fine:
        raise ValueError(
            "The 'step_size' parameter must be a function from an array of steps to as many "
            "positive numbers, such as lambda t: 1.0 / (10.0 + t)."
        )
    return gammas


class _Watched:
    """The robust loss on some rows, always the same."""

    def __init__(self, problem: Problem, average: bool, rows: int) -> None:
        whole = problem
        if problem.n > 2 * rows:
            part = problem.subset(some_rows(problem.n, rows))
            if part.weights is None or part.weights.any():
                problem = part
        # Where some rows stand for all, later iterates are better until clearly proved worse.
        self.slack = 0.0 if problem is whole else 2e-3
        self.problem, self.average = problem, average

    def value(self, theta: Array) -> float:
        """F(θ) on the watched rows; infinite where it cannot be computed."""
        value = self.problem.objective(theta)
        return value if math.isfinite(value) else math.inf

    def due(self, state: State, samples: float) -> bool:
        """Whether it is time for a look, which may cost a tenth of what was done since."""
        seen = state.history.samples[-1]
        now = state.tally.samples
        return now >= samples or now - seen >= max(5.0 * self.problem.n, 0.05 * seen)

    def look(self, state: State, began: float, gamma: float) -> bool:
        """Compare with the best so far; False if the loss has left all bounds."""
        found = state.averaged if self.average else state.theta.copy()
        value = self.value(found)
        if self.average:
            last = self.value(state.theta)
            if last < value - self.slack * abs(value):
                value, found = last, state.theta.copy()
        if value < state.best_value + self.slack * abs(state.best_value):
            state.best = found
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


def _stalled(history: History, n: int, tol: float, since: float) -> bool:
    """Whether the last pass over the data has brought less than `tol`, relatively.

    Only looks after the steps were last made shorter count.
    """
    looks = list(zip(history.samples, history.value, strict=True))
    looks = [(samples, value) for samples, value in looks if samples >= since]
    before = [value for samples, value in looks if samples <= looks[-1][0] - n]
    if len(before) < 2:
        return False
    best = min(value for _, value in looks)
    return min(before) - best <= tol * abs(best)


def _next_anchor(state: State, every: float) -> float:
    """The sample count at which the anchor is cast anew."""
    return state.anchoring.samples + every if state.anchor.shape[0] else 0.0


def _shorten(state: State) -> None:
    """Back to the anchor, and on with half the steps."""
    state.theta = state.anchor.copy()
    state.anchoring.shorter += 1.0
    state.anchoring.shortened = state.tally.samples


def _cast_anchor(problem: Problem, state: State) -> None:
    """Make the current point the anchor, and pay for the pass over the data.

    If the robust loss has grown since the last anchor the steps are too long: back to that
    one, and on with half of them.
    """
    tally = state.tally
    at = problem.evaluate(problem.scores(state.theta))
    value = at.value + problem.cost(state.theta)
    before = state.anchoring.value
    if state.anchor.shape[0] and not value <= before + 1e-13 * abs(before):
        _shorten(state)
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
    """The method with the probabilities of an earlier pilot, or of one now if it is time."""
    if method.probabilities is not None or not tune:
        return method
    if not state.probabilities and state.tally.step >= 200.0:

        def gradient(draw: Draw) -> Array:
            part = problem.subset(draw.indices)
            if part.weights is not None and not part.weights.any():
                return np.zeros(problem.size)
            z, slopes = part.loss.of_scores(part.scores(state.theta), part.y)
            weights = draw.weights(z, problem.divergence, part.weights)
            return part.scaled_gradient(part.data_gradient(slopes, weights))

        found = method.tuned(gradient, rng, budget=min(10 * problem.n, 200_000))
        state.generator = rng.bit_generator.state
        state.probabilities = found.probabilities or ()
    if state.probabilities:
        return replace(method, probabilities=state.probabilities)
    return method
