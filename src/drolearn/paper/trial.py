"""One run: a division of a data set, a method, and what came of it, as one row of a table.

The clock counts CPU seconds of training alone: data are loaded, divided and scaled before it
starts, everything was imported, and test errors are taken while it stands still.
"""

from __future__ import annotations

import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import TypeAdapter
from threadpoolctl import threadpool_info

from drolearn import datasets
from drolearn._estimators.linear import RobustClassifier
from drolearn._solvers.descent import Constant, Decay, State, descend
from drolearn._solvers.draws import Fixed, Full, Growing, Method, Multilevel
from drolearn._solvers.ending import Ending
from drolearn._solvers.inputs import as_problem
from drolearn._solvers.problem import Problem
from drolearn._solvers.solve import run as solve_problem
from drolearn.paper.protocol import Budget, Default, Draws, Exact, Run, Search
from drolearn.paper.protocol import Method as Settings

__all__ = ["cpu", "perform"]

Array = NDArray[np.float64]
#: Rows that tell whether a run is lost: few, as the clock does not stand still meanwhile.
_FEW = 64
_SETTINGS: TypeAdapter[Any] = TypeAdapter(Settings)


@dataclass(frozen=True, eq=False)
class Part:
    """Rows to train on or to test on."""

    X: Any
    y: Array

    def error(self, theta: Array) -> float:
        """Share of rows that a linear model gets wrong; a score of zero says −1."""
        scores = np.asarray(self.X @ theta[:-1]).ravel() + theta[-1]
        return float(np.mean((scores > 0.0) != (self.y > 0.0)))

    def rows(self, chosen: NDArray[np.intp]) -> Part:
        """Some of them."""
        return Part(self.X[chosen], self.y[chosen])


@dataclass
class Track:
    """What was seen on the way of one run."""

    samples: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    status: str = "done"
    ending: Ending = Ending.ALL_PASSES
    penalty: float = float("nan")
    solver: str = ""
    theta: Array = field(default_factory=lambda: np.zeros(0))

    def add(self, samples: float, seconds: float, error: float) -> None:
        """One look; it replaces the last if nothing was drawn since."""
        if self.samples and samples == self.samples[-1]:
            for column in (self.samples, self.seconds, self.errors):
                column.pop()
        self.samples.append(float(samples))
        self.seconds.append(float(seconds))
        self.errors.append(float(error))


def perform(run: Run) -> dict[str, Any]:
    """The row of one run."""
    train, test = divide(run)
    how = _SETTINGS.validate_python({**run.settings, "label": "", "colour": ""})
    theta = np.zeros(train.X.shape[1] + 1)
    reach = run.model["start"]
    theta[:-1] = run.generator("start").uniform(-reach, reach, theta.size - 1)
    rng = run.generator(run.method, f"{run.rho:g}", run.split)
    _warm_up(sp.issparse(train.X), how.kind)
    track = _fit(run, how, train, test, theta, rng)
    problem = _problem(run, train, run.rho)
    return {
        "key": run.key,
        "dataset": run.dataset,
        "method": run.method,
        "rho": run.rho,
        "split": run.split,
        "seed": run.seed,
        "scaling": run.scaling,
        "intercept": run.intercept,
        "inflation": float(run.settings.get("inflation", float("nan"))),
        "n_train": train.y.size,
        "n_test": test.y.size,
        "d": int(train.X.shape[1]),
        "test_error": test.error(track.theta),
        "train_error": train.error(track.theta),
        "robust_loss": problem.objective(track.theta[None, :]),
        "seconds": track.seconds[-1],
        "samples": track.samples[-1],
        "status": track.status,
        "ending": track.ending.value,
        "penalty": track.penalty,
        "solver": track.solver,
        "at_samples": track.samples,
        "at_seconds": track.seconds,
        "at_errors": track.errors,
        "settings": json.dumps(run.settings | run.model | run.budget, sort_keys=True),
        "threads": max((each["num_threads"] for each in threadpool_info()), default=1),
        **_machine(),
    }


# -- data ------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _dataset(name: str, documents: int) -> datasets.Dataset:
    """A data set, kept for the runs that follow."""
    if documents:
        return datasets.Dataset(name, *datasets.text_like(documents), source="generated")
    return datasets.load(name)


def divide(run: Run) -> tuple[Part, Part]:
    """Rows to train on and to test on, scaled by what the former show."""
    found = _dataset(run.dataset, run.documents)
    order = run.generator("permutation").permutation(found.y.size)
    if run.documents:
        tested, trained = order[: run.tests], order[run.tests : run.tests + run.rows]
    else:
        order = order[: round(run.inside * order.size)]
        cut = round(run.train * order.size)
        trained, tested = order[:cut], order[cut:]
    whole = Part(found.X, found.y.astype(np.float64))
    train, test = whole.rows(trained), whole.rows(tested)
    scale = _scaler(train.X, run.scaling)
    return Part(scale(train.X), train.y), Part(scale(test.X), test.y)


def _scaler(X: Any, scaling: str) -> Callable[[Any], Any]:
    """The scaling that belongs to some training rows."""
    largest = np.ones(X.shape[1])
    if scaling in ("columns", "both"):
        found = abs(X).max(axis=0)
        found = found.toarray().ravel() if sp.issparse(found) else np.asarray(found, np.float64)
        largest = np.where(found > 0.0, found, 1.0)

    def scale(rows: Any) -> Any:
        if scaling in ("columns", "both"):
            rows = rows @ sp.diags(1.0 / largest) if sp.issparse(rows) else rows / largest
        if scaling in ("rows", "both"):
            squares = rows.multiply(rows) if sp.issparse(rows) else np.square(rows, dtype=float)
            norms = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64)).ravel()
            inverse = 1.0 / np.where(norms > 0.0, norms, 1.0)
            rows = sp.diags(inverse) @ rows if sp.issparse(rows) else rows * inverse[:, None]
        if sp.issparse(rows):
            return sp.csr_matrix(rows, dtype=np.float64)
        return np.ascontiguousarray(rows, dtype=np.float64)

    return scale


# -- methods ---------------------------------------------------------------------------


def _fit(
    run: Run, how: Any, train: Part, test: Part, theta: Array, rng: np.random.Generator
) -> Track:
    if isinstance(how, Draws):
        problem = _problem(run, train, run.rho)
        goals = Budget(**run.budget).goals(problem.n)
        return _descend(problem, how, goals, theta, rng, test.error, run.stop_at)
    if isinstance(how, Search):
        return _search(run, how, train, test, theta, rng)
    if isinstance(how, Exact):
        return _solve(run, how, train, test)
    assert isinstance(how, Default)
    began = time.process_time()
    model = RobustClassifier(run.rho, l2=0.0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how it ended is in the row
        model.fit(train.X, train.y)
    if model.ending_ is Ending.INTERRUPTED:
        raise KeyboardInterrupt
    track = Track(status=str(model.status_), ending=model.ending_, solver=str(model.solver_))
    track.theta = np.append(model.coef_.ravel(), model.intercept_)
    seconds = time.process_time() - began
    track.add(model.n_iter_ * train.y.size, seconds, test.error(track.theta))
    return track


def _problem(run: Run, part: Part, rho: float, l2: float = 0.0) -> Problem:
    problem = as_problem(
        part.X,
        part.y,
        rho=rho,
        divergence=run.model["divergence"],
        loss=run.model["loss"],
        l2=l2,
        fit_intercept=run.intercept,
        sample_weight=None,
        groups=None,
        n_jobs=1,
    )
    return replace(problem, scaling="none")


def _draws(how: Draws, n: int, rho: float) -> Method:
    shared: dict[str, Any] = {"rho": rho, "inflation": how.inflation, "delta": how.delta}
    if how.kind == "multilevel":
        return Multilevel(n, batch_size=how.base, r=how.r, **shared)
    if how.kind == "growing":
        return Growing(n, how.size, rate=how.rate, **shared)
    if how.kind == "fixed":
        return Fixed(n, how.size, **shared)
    return Full(n, rho=rho)


def _steps(how: Draws | Search) -> Constant | Decay:
    return Constant(how.step) if how.half is None else Decay(how.step, how.half)


def _descend(
    problem: Problem,
    how: Draws,
    goals: list[float],
    theta: Array,
    rng: np.random.Generator,
    error: Callable[[Array], float],
    target: float = 0.0,
) -> Track:
    """The paper's methods as they are: last iterates, no taming, steps in the data's units."""
    method, state, track = (
        _draws(how, problem.n, problem.rho),
        State.new(theta[None, :], rng),
        Track(),
    )
    seconds = 0.0
    for goal in goals:
        began = time.process_time()
        ending = descend(
            problem, method, state, step=_steps(how), samples=goal, average=False, watch_rows=_FEW
        )
        seconds += time.process_time() - began
        if ending is Ending.INTERRUPTED:
            raise KeyboardInterrupt
        if ending is Ending.DIVERGED:  # what counts is the last model that had not
            track.status, track.ending, track.theta = "lost", ending, state.best[0]
            track.add(state.tally.samples, seconds, error(track.theta))
            break
        track.theta = state.theta[0].copy()
        track.add(state.history.samples[-1], seconds, error(track.theta))
        if len(track.errors) > 1 and max(track.errors[-2:]) <= target:
            track.status, track.ending = "target", Ending.STOPPED
            break
    return track


def _search(
    run: Run, how: Search, train: Part, test: Part, theta: Array, rng: np.random.Generator
) -> Track:
    """λ from `first` down until `patience` values in a row do not improve on the best so far."""
    fold = rng.permutation(np.arange(train.y.size) % how.folds)
    draws = Draws(kind="fixed", label="", colour="", size=how.batch, step=how.step, half=how.half)
    spent, drawn = 0.0, 0.0

    def fit(part: Part, penalty: float, budget: Budget | Search = how) -> Array:
        nonlocal spent, drawn
        problem = _problem(run, part, 0.0, 2.0 * penalty)
        goal = min(budget.samples, budget.passes * problem.n)
        found = _descend(problem, draws, [goal], theta, rng, lambda _: 1.0)
        spent, drawn = spent + found.seconds[-1], drawn + found.samples[-1]
        return found.theta

    parts = [
        (train.rows(np.flatnonzero(fold != k)), train.rows(np.flatnonzero(fold == k)))
        for k in range(how.folds)
    ]
    best, penalty, since, value = 1.0, how.first, 0, how.first
    while since < how.patience and value >= how.last:
        wrong = sum(held.error(fit(part, value)) * held.y.size for part, held in parts)
        error = wrong / train.y.size
        if error < best:
            best, penalty, since = error, value, 0
        elif value <= how.count_from:
            since += 1
        value *= how.factor
    track = Track(penalty=penalty, theta=fit(train, penalty, Budget(**run.budget)))
    track.add(drawn, spent, test.error(track.theta))
    return track


def _solve(run: Run, how: Exact, train: Part, test: Part) -> Track:
    """The same objective by an exact solver, looked at after every iteration."""
    track, aside = Track(), 0.0
    problem = _problem(run, train, run.rho)
    began = time.process_time()

    def watch(history: Any, model: Callable[[], Array]) -> bool:
        nonlocal aside
        now = time.process_time()
        track.add(history.samples[-1], now - began - aside, test.error(model()[0]))
        aside += time.process_time() - now
        return False

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how it ended is in the row
        found = solve_problem(
            problem, problem.zeros(), solver="exact", max_iter=how.max_iter, tol=how.tol,
            random_state=0, watch=watch,
        )  # fmt: skip
    if found.ending is Ending.INTERRUPTED:
        raise KeyboardInterrupt
    seconds = time.process_time() - began - aside
    track.theta = found.theta[0]
    track.add(found.history.samples[-1], seconds, test.error(track.theta))
    track.status, track.ending, track.solver = found.status, found.ending, found.solver
    return track


@lru_cache
def _warm_up(sparse: bool, kind: str) -> None:
    """Import what a run of this kind needs, outside its clock."""
    rng = np.random.default_rng(0)
    X: Any = rng.standard_normal((64, 3))
    part = Part(sp.csr_matrix(X) if sparse else X, np.where(X[:, 0] + X[:, 1] > 0.3, 1.0, -1.0))
    model = {"loss": "logistic", "divergence": "chi2", "start": 1.0}
    common: dict[str, Any] = {"label": "", "colour": "", "step": 0.1, "half": 10.0}
    settings: dict[str, Any] = {"kind": kind, "label": "", "colour": ""}
    if kind == "search":
        settings = {"kind": kind, "batch": 5, "folds": 2, "first": 1.0, "factor": 0.1,
                    "patience": 1, "last": 0.1, "passes": 1, "samples": 10,
                    "count_from": 1.0, **common}  # fmt: skip
    elif kind == "exact":
        settings |= {"tol": 1e-3, "max_iter": 5}
    elif kind != "default":
        settings = {"kind": kind, **common}
    budget = {"passes": 2, "samples": 100, "first_look": 50, "looks_per_decade": 1}
    run = Run(
        "warm-up", kind, 0.1, "", 0, "none", False, 0.5, 1.0, 0, 0, 0, 0.0, model, budget, settings
    )
    _fit(run, _SETTINGS.validate_python(settings), part, part, np.full(4, 0.1), rng)


def cpu() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


@lru_cache
def _machine() -> dict[str, Any]:
    """What a row was made on."""
    names = ("drolearn", "numpy", "scipy", "scikit-learn")
    return {
        "cpu": cpu(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": json.dumps({name: version(name) for name in names}),
    }
