"""Cross-validation on one fold: fitting and scoring all candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.utils.extmath import safe_sparse_dot

from drolearn._estimators.base import RobustLinear
from drolearn._estimators.training_data import LARGEST_AUTO_PENALTY, TrainingData
from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import worst_case
from drolearn._solvers.ending import Ending
from drolearn._solvers.path import Path, Start
from drolearn._solvers.problem import Problem
from drolearn._solvers.solution import Solution
from drolearn._solvers.solve import run, run_next
from drolearn._solvers.solvers import Exact
from drolearn._solvers.zero_model import SharedBall, needs_no_columns
from drolearn.divergence import CVaR, Divergence, as_divergence

if TYPE_CHECKING:
    from drolearn._estimators.path import RobustLinearCV

__all__ = ["LOSS_SCORES", "Ball", "Rows", "penalty_of", "score_fold"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
# Scores that are not scikit-learn's: each is minus a loss, which `plot_path` shows.
LOSS_SCORES = {
    "loss": "mean loss",
    "worst-group": "loss of the worst group",
    "worst-domain": "loss of the worst domain",
    "robust": "robust loss",
}
# A model counts as the zero model if its scaled coefficients are below this share of typical ones.
_ZERO = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Ball:
    """A ball of the grid: a radius, a level of CVaR, or the price of a soft ball."""

    divergence: Divergence
    rho: float | None
    tau: float | None = None

    @property
    def name(self) -> str:
        """What the number of the ball is."""
        if self.tau is not None:
            return "tau"
        return "level" if isinstance(self.divergence, CVaR) else "rho"

    @property
    def number(self) -> float:
        """The price, the level, or the radius."""
        if self.tau is not None:
            return self.tau
        if isinstance(self.divergence, CVaR):
            return self.divergence.level
        return 0.0 if self.rho is None else self.rho

    @property
    def plain(self) -> bool:
        """Whether its worst case is the mean."""
        return self.number == {"tau": math.inf, "level": 1.0, "rho": 0.0}[self.name]


class Rows(NamedTuple):
    """What describes the rows besides X and y: groups, domains, and groups of `cv`."""

    groups: Indices | None
    domains: Indices | None
    splits: NDArray[Any] | None

    def select(self, chosen: Indices) -> Rows:
        """Return some of the rows."""
        return Rows(*(None if of is None else of[chosen] for of in self))


class _Result(NamedTuple):
    """A candidate on one fold."""

    score: float
    is_zero: bool
    converged: bool


def penalty_of(data: TrainingData, multiple: float, rows: Any = slice(None)) -> float:
    """A multiple of 1/Σw over some rows."""
    return min(multiple * data.penalty("auto", rows), LARGEST_AUTO_PENALTY)


def score_fold(
    model: RobustLinear,
    path: RobustLinearCV,
    balls: list[Ball],
    data: TrainingData,
    rows: Rows,
    fold: tuple[Indices, Indices],
) -> list[list[_Result]]:
    """Fit and score all candidates on one fold.

    Penalties decrease and radii increase, and each fit starts from the model of its neighbour.
    """
    train, test = fold
    _check_fold(model, path, data, train, test)
    validation = data.select(test)
    if is_classifier(model):
        model.classes_ = path.classes_  # type: ignore[attr-defined]
    model.n_features_in_ = data.X.shape[1]  # type: ignore[attr-defined]
    groups, _, splits = rows.select(train)
    part = model._with_reference(data.select(train), splits)
    solver = _FoldSolver(model, part, groups)
    results: list[list[_Result]] = [[] for _ in balls]
    models: list[list[Start]] = []  # of the last penalties, one for each ball
    zero: tuple[int, Solution, Start] | None = None  # the smallest ball with a zero model
    for multiples in path._penalties:
        l2, l1 = (penalty_of(data, float(multiple), train) for multiple in multiples)
        models = [*models[-2:], []]
        for k, ball in enumerate(balls):
            problem = solver.problem(ball, l2, l1)
            # A zero model that is optimal for a ball is so for all larger ones and all penalties,
            # unless it owes that to its l1 penalty, or to rows that are ignored.
            if zero is None or k < zero[0]:
                solution, start = solver.solve(problem, k, _starts(models, k))
                if solution.ending is Ending.ZERO_MODEL and not (l1 or model.trim):
                    zero = k, solution, start
            else:
                _, solution, start = zero
            models[-1].append(start)
            score = _score(model, path, problem, solution, validation, rows.select(test))
            is_zero = _is_zero(problem, solution, path.path_tol)
            results[k].append(_Result(score, is_zero, solution.converged))
    return results


def _starts(models: list[list[Start]], ball: int) -> list[Start]:
    """Models from which the next fit may start: those of its neighbours, and an extrapolation.

    `models` are those of the last penalties, and of the smaller balls of this penalty.
    """
    *before, row = models
    if ball and before:
        # What the last step to this ball has changed at the last penalty.
        last = before[-1]
        return [row[-1], last[ball], row[-1].moved(last[ball], last[ball - 1])]
    if ball:
        return [row[-1]]
    if len(before) > 1:
        return [before[-1][0], before[-1][0].moved(before[-1][0], before[-2][0])]
    return [before[-1][0]] if before else []


class _FoldSolver:
    """Fits all candidates on the training rows of one fold."""

    def __init__(self, model: RobustLinear, data: TrainingData, groups: Indices | None) -> None:
        self.model, self.data, self.groups = model, data, groups
        self.path = Path()
        self.first: Problem | None = None
        self.shared_ball = SharedBall()

    def problem(self, ball: Ball, l2: float, l1: float) -> Problem:
        """Make a problem that shares with all others what depends on the rows only."""
        model, groups = self.model, self.groups
        model.tau = ball.tau
        rho = ball.rho if ball.tau is None else 0.0  # soft balls do not use it
        problem = model._problem(self.data, groups, rho, ball.divergence, l2, l1)
        if self.first is None:
            self.first = problem
        return replace(problem, measured=self.first.columns, shared_ball=self.shared_ball)

    def solve(self, problem: Problem, ball: int, starts: list[Start]) -> tuple[Solution, Start]:
        """Fit one candidate from one of some models; return also where the next may start."""
        model = self.model
        exact = isinstance(model.solver, Exact) or model.solver in ("auto", "exact")
        if model.tau is not None or model.trim:
            # Trimmed problems have local optima: each fit has the same starts as the final one.
            theta = starts[0].theta if starts and not model.trim else problem.zeros()
            solution = model._run(problem, None, theta)
            start = Start(solution.theta)
        elif exact and model.tol is not None and Path.suits(problem):
            solution, start = run_next(
                self.path, problem, ball, starts, max_iter=model.max_iter, tol=model.tol
            )
        else:
            solution = run(
                problem,
                starts[0].theta if starts else problem.zeros(),
                solver=model.solver,
                max_iter=model.max_iter,
                tol=model.tol,
                random_state=model.random_state,
                watch=None,
                certify=False,
            )
            start = Start(solution.theta)
        if solution.ending is Ending.INTERRUPTED:
            raise KeyboardInterrupt
        return solution, start


def _check_fold(
    model: RobustLinear, path: RobustLinearCV, data: TrainingData, train: Indices, test: Indices
) -> None:
    missing = np.setdiff1d(data.y, data.y[train]) if is_classifier(model) else np.empty(0)
    if missing.size:
        raise ValueError(
            f"The 'cv' parameter of {type(path).__name__} must leave every class some rows to "
            f"train on. Got a fold that trains without {missing[0]!r}: use fewer folds, or drop "
            f"this class."
        )
    if data.weights is not None:
        for rows, use in ((train, "train"), (test, "test")):
            if not data.weights[rows].any():
                raise ValueError(
                    f"The 'cv' parameter of {type(path).__name__} must leave every fold some rows "
                    f"of positive weight to {use} on. Got a fold without any: use another split."
                )


def _is_zero(problem: Problem, solution: Solution, tol: float) -> bool:
    """Whether a model is the zero model, or cannot be told from it within the tolerance."""
    if solution.ending is Ending.ZERO_MODEL:
        return True
    v = problem.from_model(solution.theta).reshape(problem.m, -1)[:, :-1]
    if float(abs(v).max(initial=0.0)) <= _ZERO * problem.typical_norm:
        return True
    if problem.reference is not None:
        return needs_no_columns(problem, solution.theta, solution.value, tol)
    # At the zero model the robust loss is then the mean loss.
    return problem.equal_at_zero and solution.value >= (1.0 - 2.0 * tol) * problem.baseline_loss


def _score(
    model: RobustLinear,
    path: RobustLinearCV,
    problem: Problem,
    solution: Solution,
    data: TrainingData,
    rows: Rows,
) -> float:
    """Score a model on the validation rows."""
    scoring = path.scoring
    if not (isinstance(scoring, str) and scoring in LOSS_SCORES):
        model._set_attributes(problem, solution, data.X.dtype)
        return _score_by_scorer(model, path, data)
    theta = solution.theta
    scores = safe_sparse_dot(data.X, theta[:, :-1].T, dense_output=True) + theta[:, -1]
    scores = np.ascontiguousarray(scores, dtype=np.float64).ravel()
    losses = problem.loss.of_scores(scores, data.targets)[0]
    if scoring == "robust":
        divergence = as_divergence(path.divergence)
        rho = path.scoring_rho if divergence.has_radius else None
        return -worst_case(losses, rho, divergence, data.weights).value
    parts = {"worst-group": rows.groups, "worst-domain": rows.domains}.get(scoring)
    # The mean loss is that of the worst group if all rows are in one group.
    one_part = np.zeros(losses.size, dtype=np.int64)
    found = Groups.make(one_part if parts is None else parts, data.weights)
    return -float(found.means(losses)[found.shares > 0.0].max())


def _score_by_scorer(model: RobustLinear, path: RobustLinearCV, data: TrainingData) -> float:
    """Score a model with a scorer of scikit-learn."""
    scoring, weights = path.scoring, data.weights
    optional = {} if weights is None or callable(scoring) else {"sample_weight": weights}
    scorer: Any = check_scoring(model, scoring)
    try:
        return float(scorer(model, data.X, data.y, **optional))
    except TypeError as error:
        if optional and "sample_weight" in str(error):
            raise ValueError(
                f"The 'scoring' parameter of {type(path).__name__} must take sample weights "
                f"when they are passed to fit. Got {scoring!r} instead."
            ) from error
        raise
