"""One run: train one method on one split of a data set, and return the results as a row.

The clock counts CPU seconds of training only.  Imports, loading, splitting and scaling come
before it starts, and test errors are computed while it is stopped.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
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
from drolearn._estimators.classification import RobustClassifier
from drolearn._solvers.descent import State, descend
from drolearn._solvers.draws import Fixed, Full, Growing, Method
from drolearn._solvers.ending import Ending
from drolearn._solvers.inputs import as_problem
from drolearn._solvers.multilevel import Multilevel
from drolearn._solvers.problem import Problem
from drolearn._solvers.solve import run as solve_problem
from drolearn._solvers.step_sizes import Constant, Decay
from drolearn.paper.protocol import (
    Budget,
    Default,
    Draws,
    Estimator,
    Exact,
    Library,
    Run,
    Search,
)
from drolearn.paper.protocol import Method as Settings

__all__ = ["cpu", "perform", "revision"]

Array = NDArray[np.float64]
#: Rows that detect divergence: few, because this evaluation counts as training time.
_FEW = 64
_SETTINGS: TypeAdapter[Any] = TypeAdapter(Settings)


@dataclass(frozen=True, eq=False)
class Part:
    """Training rows or test rows."""

    X: Any
    y: Array

    def error(self, theta: Array) -> float:
        """Share of misclassified rows of a linear model; a score of zero means −1."""
        scores = np.asarray(self.X @ theta[:-1]).ravel() + theta[-1]
        return float(np.mean((scores > 0.0) != (self.y > 0.0)))

    def rows(self, chosen: NDArray[np.intp]) -> Part:
        """A part with the chosen rows."""
        return Part(self.X[chosen], self.y[chosen])


@dataclass
class Track:
    """Test errors during one run, and how it ended."""

    samples: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    status: str = "done"
    ending: Ending = Ending.ALL_PASSES
    penalty: float = float("nan")
    solver: str = ""
    theta: Array = field(default_factory=lambda: np.zeros(0))

    def add(self, samples: float, seconds: float, error: float) -> None:
        """Add an evaluation; it replaces the last one if no samples were drawn since."""
        if self.samples and samples == self.samples[-1]:
            for column in (self.samples, self.seconds, self.errors):
                column.pop()
        self.samples.append(float(samples))
        self.seconds.append(float(seconds))
        self.errors.append(float(error))


def perform(run: Run) -> dict[str, Any]:
    """Make one run and return its row."""
    train, test = divide(run)
    settings = _SETTINGS.validate_python({**run.settings, "label": "", "colour": ""})
    theta = np.zeros(train.X.shape[1] + 1)
    bound = run.model["start"]
    theta[:-1] = run.generator("start").uniform(-bound, bound, theta.size - 1)
    rng = run.generator(run.method, f"{run.rho:g}", run.split)
    _warm_up(sp.issparse(train.X), settings.kind)
    track = _fit(run, settings, train, test, theta, rng)
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
    """A data set, cached for the next run."""
    if documents:
        return datasets.Dataset(name, *datasets.text_like(documents), source="generated")
    return datasets.load(name)


def divide(run: Run) -> tuple[Part, Part]:
    """Training and test rows, scaled by statistics of the training rows."""
    data = _dataset(run.dataset, run.documents)
    order = run.generator("permutation").permutation(data.y.size)
    if run.documents:
        tested, trained = order[: run.tests], order[run.tests : run.tests + run.rows]
    else:
        order = order[: round(run.inside * order.size)]
        cut = round(run.train * order.size)
        trained, tested = order[:cut], order[cut:]
    part = Part(data.X, data.y.astype(np.float64))
    train, test = part.rows(trained), part.rows(tested)
    scale = _scaler(train.X, run.scaling)
    return Part(scale(train.X), train.y), Part(scale(test.X), test.y)


def _scaler(X: Any, scaling: str) -> Callable[[Any], Any]:
    """A function that scales rows as these training rows require."""
    largest = np.ones(X.shape[1])
    if scaling in ("columns", "both"):
        sizes = abs(X).max(axis=0)
        sizes = sizes.toarray().ravel() if sp.issparse(sizes) else np.asarray(sizes, np.float64)
        largest = np.where(sizes > 0.0, sizes, 1.0)

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
    run: Run, settings: Any, train: Part, test: Part, theta: Array, rng: np.random.Generator
) -> Track:
    """Train by the method of the settings."""
    if isinstance(settings, Draws):
        problem = _problem(run, train, run.rho)
        goals = Budget(**run.budget).goals(problem.n)
        return _descend(problem, settings, goals, theta, rng, test.error, run.stop_at)
    if isinstance(settings, Search):
        return _search(run, settings, train, test, theta, rng)
    if isinstance(settings, Library):
        limits = Budget(**run.budget)
        samples = min(limits.samples, limits.passes * train.y.size)
        return _solve(run, settings.solver, samples / train.y.size, None, rng, train, test)
    if isinstance(settings, Exact):
        return _solve(run, "exact", settings.max_iter, settings.tol, rng, train, test)
    assert isinstance(settings, Default | Estimator)
    began = time.process_time()
    model = RobustClassifier(run.rho, n_jobs=1)
    if isinstance(settings, Default):
        model.set_params(l2=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the row says how it ended
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


def _draws(settings: Draws, n: int, rho: float) -> Method:
    shared: dict[str, Any] = {"rho": rho} | settings.model_dump(include={"inflation", "delta"})
    if settings.kind == "multilevel":
        return Multilevel(n, batch_size=settings.base, r=settings.r, **shared)
    if settings.kind == "growing":
        return Growing(n, settings.size, rate=settings.rate, **shared)
    if settings.kind == "fixed":
        return Fixed(n, settings.size, **shared)
    return Full(n, rho=rho)


def _steps(settings: Draws | Search) -> Constant | Decay:
    if settings.half is None:
        return Constant(settings.step)
    return Decay(settings.step, settings.half)


def _descend(
    problem: Problem,
    settings: Draws,
    goals: list[float],
    theta: Array,
    rng: np.random.Generator,
    error: Callable[[Array], float],
    target: float = 0.0,
) -> Track:
    """The paper's methods: last iterates, no taming, step sizes in the units of the data.

    `goals` are the numbers of samples at the evaluations.
    """
    method = _draws(settings, problem.n, problem.rho)
    state, track, seconds = State.new(theta[None, :], rng), Track(), 0.0
    for goal in goals:
        began = time.process_time()
        ending = descend(
            problem,
            method,
            state,
            step=_steps(settings),
            samples=goal,
            average=False,
            evaluation_rows=_FEW,
        )
        seconds += time.process_time() - began
        if ending is Ending.INTERRUPTED:
            raise KeyboardInterrupt
        if ending is Ending.DIVERGED:  # keep the best model before
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
    run: Run, settings: Search, train: Part, test: Part, theta: Array, rng: np.random.Generator
) -> Track:
    """Decrease λ from `first` until `patience` values in a row do not improve on the best one."""
    fold = rng.permutation(np.arange(train.y.size) % settings.folds)
    draws = Draws(
        kind="fixed", label="", colour="", size=settings.batch, step=settings.step,
        half=settings.half,
    )  # fmt: skip
    spent, drawn = 0.0, 0.0

    def fit(part: Part, penalty: float, budget: Budget | Search = settings) -> Array:
        nonlocal spent, drawn
        problem = _problem(run, part, 0.0, 2.0 * penalty)
        goal = min(budget.samples, budget.passes * problem.n)
        track = _descend(problem, draws, [goal], theta, rng, lambda _: 1.0)
        spent, drawn = spent + track.seconds[-1], drawn + track.samples[-1]
        return track.theta

    folds = [
        (train.rows(np.flatnonzero(fold != k)), train.rows(np.flatnonzero(fold == k)))
        for k in range(settings.folds)
    ]
    best, penalty, since, value = 1.0, settings.first, 0, settings.first
    while since < settings.patience and value >= settings.last:
        wrong = sum(valid.error(fit(part, value)) * valid.y.size for part, valid in folds)
        error = wrong / train.y.size
        if error < best:
            best, penalty, since = error, value, 0
        elif value <= settings.count_from:
            since += 1
        value *= settings.factor
    track = Track(penalty=penalty, theta=fit(train, penalty, Budget(**run.budget)))
    track.add(drawn, spent, test.error(track.theta))
    return track


def _solve(
    run: Run,
    solver: str,
    max_iter: float,
    tol: float | None,
    rng: np.random.Generator,
    train: Part,
    test: Part,
) -> Track:
    """The same objective by a solver of the library, evaluated whenever it evaluates itself."""
    track, paused = Track(), 0.0
    problem = _problem(run, train, run.rho)
    began = time.process_time()

    def watch(history: Any, model: Callable[[], Array]) -> bool:
        nonlocal paused
        now = time.process_time()
        track.add(history.samples[-1], now - began - paused, test.error(model()[0]))
        paused += time.process_time() - now
        return False

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the row says how it ended
        solution = solve_problem(
            problem, problem.zeros(), solver=solver, max_iter=max_iter, tol=tol, random_state=rng,
            watch=watch,
        )  # fmt: skip
    if solution.ending is Ending.INTERRUPTED:
        raise KeyboardInterrupt
    seconds = time.process_time() - began - paused
    track.theta = solution.theta[0]
    track.add(solution.history.samples[-1], seconds, test.error(track.theta))
    track.status, track.ending, track.solver = solution.status, solution.ending, solution.solver
    return track


@lru_cache
def _warm_up(sparse: bool, kind: str) -> None:
    """Make a tiny run of this kind, so that imports do not count as training time."""
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
    elif kind == "library":
        settings |= {"solver": "gssg"}
    elif kind not in ("default", "estimator"):
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
def revision() -> str:
    """The last commit that changed the package or its core; "" if it is not in a checkout."""
    package = Path(__file__).parents[1]
    command = ["git", "-C", str(package), "log", "-1", "--format=%h", "--", ".", "../core"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@lru_cache
def _machine() -> dict[str, Any]:
    """Processor and versions, for the row."""
    names = ("drolearn", "numpy", "scipy", "scikit-learn")
    return {
        "revision": revision(),
        "cpu": cpu(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": json.dumps({name: version(name) for name in names}),
    }
