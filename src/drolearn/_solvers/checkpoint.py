"""Checkpoints: a folder with one file for each fit.

The name of a file is a fingerprint of everything that determines the fit: data, settings, starting
point, and the seed of stochastic solvers.  Folds and grid points therefore have files of their
own, and no fit continues another one.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.descent import History, State
from drolearn._solvers.exact import STAGES, ExactState
from drolearn._solvers.problem import Problem
from drolearn._solvers.solvers import Folder, Recipe, Solver
from drolearn._solvers.state_file import load_state, made_of, require, save_state
from drolearn._validation import as_generator

__all__ = ["ExactCheckpoint", "open_checkpoint"]

Array = NDArray[np.float64]


def open_checkpoint(
    problem: Problem, recipe: Recipe, theta: Array, random_state: Any, folder: Folder
) -> tuple[State, Path | None]:
    """The state of a stochastic solver to start from, and the file to save it to, if any."""
    seed = _seed_of(random_state)
    rng = as_generator(random_state)
    if folder is None:
        return State.new(theta, rng), None
    settings = (
        seed, recipe.method, recipe.average, recipe.clip, recipe.anchor_every, recipe.tune,
    )  # fmt: skip
    # Functions cannot be compared, but their values at some steps can.
    steps = np.arange(16.0) ** 3
    sizes = np.broadcast_to(np.asarray(recipe.step(steps)), steps.shape)
    file = _folder_for(folder) / f"{_fingerprint(problem, settings, theta, sizes)}.npz"
    return (State.load(file, theta.shape) if file.exists() else State.new(theta, rng)), file


class ExactCheckpoint:
    """The file of one fit with an exact solver, and the history that is saved with its state."""

    def __init__(self, problem: Problem, solver: Solver, theta: Array, tol: float) -> None:
        self.start: Array | ExactState = theta
        self.history = History()
        self.file: Path | None = None
        if solver.checkpoint is None:
            return
        name = _fingerprint(problem, (solver.name, tol), theta)
        self.file = _folder_for(solver.checkpoint) / f"{name}.npz"
        if self.file.exists():
            size = problem.from_model(theta).size
            self.start, self.history = load_state(
                self.file, lambda content: _exact_state(content, problem, size)
            )

    def save(self, state: ExactState) -> None:
        """Write the state and the history to the file."""
        if self.file is not None:
            content = {item.name: getattr(state, item.name) for item in fields(state)}
            save_state(self.file, {**content, "history": vars(self.history)})


def _exact_state(
    content: dict[str, Any], problem: Problem, size: int
) -> tuple[ExactState, History]:
    """A state for this problem, with points of this size, and the history."""
    history = made_of(History, content.pop("history"))
    state = made_of(ExactState, content)
    pairs, scores = len(state.curvatures), problem.n * problem.m
    groups = problem.n if problem.groups is None else problem.groups.shares.size
    has_best = state.best_v.size > 0
    shapes = {
        "v": [(size,)], "v_start": [(size,)], "scores": [(scores,)],
        "changes": [(pairs, size) if pairs else (0,)],
        "gradient_changes": [(pairs, size) if pairs else (0,)],
        "best_v": [(size,), (0,)], "best_scores": [(scores,) if has_best else (0,)],
        "dual_shares": [(groups,), (0,)],
    }  # fmt: skip
    for name, known in shapes.items():
        array = getattr(state, name)
        require(array.shape in known, f"{name} has the shape {array.shape}")
        require(bool(np.isfinite(array).all()), f"{name} is not finite")
    for curvature, change in zip(state.curvatures, state.gradient_changes, strict=True):
        require(curvature > 0.0 and change @ change > 0.0, "a curvature is not positive")
    require(state.direction in ("lbfgs", "newton"), "there is no such direction")
    least = min(state.stage, state.stage_start, state.part, state.steps, state.hints)
    require(least >= 0 and state.stage < len(STAGES), "a number of steps or a stage is wrong")
    return state, history


def _folder_for(checkpoint: Any) -> Path:
    """The folder of checkpoints, created if it does not exist."""
    folder = Path(checkpoint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"The 'checkpoint' setting must name a folder that can be written to. Got "
            f"{str(folder)!r} instead ({error.strerror})."
        ) from error
    return folder


def _seed_of(random_state: Any) -> str:
    """A text that differs for different seeds; that of None is always the same."""
    if isinstance(random_state, np.random.Generator):
        return repr(random_state.bit_generator.state)
    if isinstance(random_state, np.random.RandomState):
        return repr(random_state.get_state(legacy=False))
    return repr(random_state)


def _fingerprint(problem: Problem, settings: tuple[Any, ...], *arrays: Array) -> str:
    """A hash of the problem with all its data, of settings and of arrays."""
    content = hashlib.blake2b(digest_size=16)
    of_problem = (
        problem.X.shape, problem.m, problem.loss, problem.divergence, problem.rho, problem.l2,
        problem.intercept, problem.scaling, str(problem.X.dtype), problem.weights is None,
    )  # fmt: skip
    content.update(repr((of_problem, settings)).encode())
    groups = problem.groups
    membership = None
    if groups is not None:
        membership = groups.of if groups.matrix is None else groups.matrix.toarray()
    data = (*arrays, problem.y, problem.weights, membership)
    parts = (problem.X.data, problem.X.indices, problem.X.indptr) if problem.sparse else None
    if problem.reference is not None:
        content.update(b"reference")
        content.update(np.ascontiguousarray(problem.reference).data)
    for array in (*data, *(parts or _row_blocks(problem.X))):
        if array is not None:
            content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def _row_blocks(X: Any) -> list[Any]:
    """Dense rows in blocks, so that copies are small."""
    return [X[first : first + 8192] for first in range(0, X.shape[0], 8192)]
