"""Checkpoints of stochastic solvers: a folder with one file for each fit.

The name of a file is a fingerprint of the data, the settings, the starting point and the seed,
so that folds and grid points do not collide, and no fit continues another one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._solvers.descent import State
from drolearn._solvers.problem import Problem
from drolearn._solvers.solvers import Folder, Recipe
from drolearn._validation import as_generator

__all__ = ["open_checkpoint"]

Array = NDArray[np.float64]


def open_checkpoint(
    problem: Problem, recipe: Recipe, theta: Array, random_state: Any, folder: Folder
) -> tuple[State, Path | None]:
    """The state to start from, and the file to save it to if a folder is given."""
    seed = _seed_of(random_state)
    rng = as_generator(random_state)
    if folder is None:
        return State.new(theta, rng), None
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"The 'checkpoint' setting must name a folder that can be written to. Got "
            f"{str(place)!r} instead ({error.strerror})."
        ) from error
    file = place / f"{_fingerprint(problem, recipe, theta, seed)}.npz"
    return (State.load(file) if file.exists() else State.new(theta, rng)), file


def _seed_of(random_state: Any) -> str:
    """What tells one seed from another; None is like None."""
    if isinstance(random_state, np.random.Generator):
        return repr(random_state.bit_generator.state)
    if isinstance(random_state, np.random.RandomState):
        return repr(random_state.get_state(legacy=False))
    return repr(random_state)


def _fingerprint(problem: Problem, recipe: Recipe, theta: Array, seed: str) -> str:
    content = hashlib.blake2b(digest_size=16)
    settings = (
        seed, problem.X.shape, problem.m, problem.loss, problem.divergence, problem.rho,
        problem.l2, problem.intercept, problem.scaling, recipe.method, recipe.average, recipe.clip,
        recipe.anchor_every, recipe.tune, str(problem.X.dtype), problem.weights is None,
    )  # fmt: skip
    content.update(repr(settings).encode())
    # A function has no contents that could be compared, but its values at some steps do.
    steps = np.arange(16.0) ** 3
    content.update(np.broadcast_to(np.asarray(recipe.step(steps)), steps.shape).tobytes())
    for array in (theta, problem.y, problem.weights):
        if array is not None:
            content.update(np.ascontiguousarray(array).data)
    parts = (problem.X.data, problem.X.indices, problem.X.indptr) if problem.sparse else None
    for array in parts or _row_blocks(problem.X):
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def _row_blocks(X: Any) -> list[Any]:
    """Dense rows in parts, of which copies are small."""
    return [X[first : first + 8192] for first in range(0, X.shape[0], 8192)]
