"""`stress_test`: how the loss of a model grows with a shift of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.worst_case import not_finite
from drolearn._validation import as_generator, as_losses, as_vector, as_weights, refuse_not_finite
from drolearn.divergence import CVaR, Divergence, as_divergence
from drolearn.stress.balls import Ball, as_balls, ball_of_share
from drolearn.stress.break_even import break_even
from drolearn.stress.groups import as_partitions, group_rows
from drolearn.stress.intervals import as_level, intervals
from drolearn.stress.models import (
    Loss,
    as_models,
    constant,
    loss_name,
    losses_of,
    predict,
    wrong_rows,
)
from drolearn.stress.report import StressReport, require_pandas
from drolearn.stress.worst_cases import Sample, worst_cases

__all__ = ["stress_test"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_CURVE = ["model", "rho", "share", "loss", "low", "high", "error", "rows", "method", "note"]
_GROUPS = ["model", "column", "group", "rows", "share", "loss", "low", "high", "error"]
_GROUPS += ["worst_share", "worst_mix", "method", "note"]
_BREAK_EVEN = ["model", "loss", "baseline", "rho", "share", "meaning"]


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """The losses of one model on all rows."""

    name: str
    losses: Array
    wrong: Mask | None = None
    baseline: Array | None = None


def stress_test(
    model: Any = None,
    X: Any = None,
    y: Any = None,
    *,
    losses: Any = None,
    loss: Loss = "auto",
    groups: Any = None,
    sample_weight: ArrayLike | None = None,
    baseline: Any = None,
    divergence: str | Divergence = "chi2",
    rhos: ArrayLike | None = None,
    reference_losses: ArrayLike | None = None,
    level: float = 0.95,
    random_state: Any = None,
) -> StressReport:
    """Measure how the loss of a model grows with a shift of the data.

    The robust loss R(ρ) = max { Σ p l : D(P, B) ≤ ρ } is computed on a range of radii, with
    confidence intervals; so are the losses of groups, and the radius up to which the model
    is better than a baseline.

    Parameters
    ----------
    model : object, list or dict, default=None
        A fitted classifier or regressor with the methods of scikit-learn, a PyTorch module, or
        several of them.  A module returns scores of the classes 0, 1, … as for `cross_entropy`,
        one score as for `binary_cross_entropy_with_logits`, or a number.
    X : array-like, default=None
        Rows that the model has not seen in training, as `predict` takes them.
    y : array-like of shape (n,), default=None
        Their labels or numbers.
    losses : array-like of shape (n,) or dict, default=None
        The loss of each row, instead of `model`, `X` and `y`; a dict for several models.
    loss : str or callable, default="auto"
        "log", "zero-one", "brier", "squared" (½ (prediction − y)²), "absolute", or a function of
        predictions and `y` that returns one loss for each row.  It is given the probabilities of
        the classes where the model has them.  "auto" is "log", or "zero-one" without
        probabilities, or "squared" for regressions.
    groups : array-like of shape (n,) or (n, k), frame or dict, default=None
        The group of each row, in one or several columns.  Missing values are a group.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.
    baseline : object or array-like of shape (n,), default=None
        A fitted model, or its losses.  None is the best constant model of `y`: the shares of
        the classes, the mean, or the median for "absolute".  With `losses`, None is no baseline.
    divergence : str or Divergence, default="chi2"
        A name or an object, see :mod:`drolearn.divergence`.  The curve of CVaR runs over levels.
    rhos : array-like, default=None
        Radii; None for 200 that cover every subset of the rows, from all rows to a hundredth.
    reference_losses : array-like of shape (n,), default=None
        Losses of a reference model.  Curve and groups are then those of the regret, the losses
        minus these.
    level : float, default=0.95
        The confidence level of the intervals.
    random_state : int, Generator or RandomState, default=None
        Seed of the bootstrap.

    Returns
    -------
    StressReport
        The tables `curve`, `groups` and `break_even`, plots and JSON.

    Raises
    ------
    ImportError
        If pandas is not installed.
    ValueError
        If an argument is not valid, or if predictions or losses are not one finite number for each
        row.

    See Also
    --------
    worst_case : The worst case of one radius, with its weights.
    worst_mix : The worst mix of groups of one radius.
    mean_upper_bound : A confidence bound of the mean loss.

    Notes
    -----
    With the multipliers α and λ of the worst case, the influence function of R is
    ψ = λ + αρ + αφ*((z − λ)/α), and R ± t √(Σ b² (ψ − R)²/(1 − Σ b²)) is the interval of method
    "influence".  If at most 500 effective rows carry the worst case, the bootstrap-t interval is
    joined to it.  Losses of 0 and 1 have exact binomial intervals.  Each interval holds for one
    row of a table, not for all at once.  docs/stress.md has a table of how often they hold.

    Weights of rows are not counts: weights 2 instead of 1 for all rows change nothing, while every
    row twice makes the intervals narrower.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from drolearn import stress_test
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[::2], y[::2])
    >>> report = stress_test(model, X[1::2], y[1::2], rhos=[0, 1, 9], random_state=0)
    >>> report.curve[["rho", "share", "loss", "error"]].round(3)
       rho  share   loss  error
    0  0.0    1.0  0.127  0.046
    1  1.0    0.5  0.682  0.206
    2  9.0    0.1  1.791  0.525
    """
    pandas = require_pandas()
    chosen = as_divergence(divergence)
    balls, chance, rng = as_balls(chosen, rhos), as_level(level), as_generator(random_state)
    scored, name = _scores(model, X, y, losses, loss, sample_weight, baseline)
    n = scored[0].losses.size
    weights = None if sample_weight is None else as_weights(sample_weight, n)
    used: Mask | slice = slice(None) if weights is None else weights > 0.0
    reference = (
        None if reference_losses is None else _losses("reference_losses", reference_losses, n)
    )
    partitions = as_partitions(groups, n)
    half = (
        ball_of_share(chosen, 0.5)
        if not isinstance(chosen, CVaR)
        else Ball(chosen, np.nan, chosen.level)
    )
    curve, table, even = [], [], []
    for each in scored:
        sample = _sample(each, weights, used, reference, name)
        found = worst_cases(sample, balls)
        ends = intervals(sample, balls, found, chance, rng)
        ess = 1.0 / found.squares
        columns = (found.value, ends.low, ends.high, found.wrong, ess, ends.method, ends.note)
        curve += [
            (each.name, ball.rho, ball.share, *row)
            for ball, *row in zip(balls, *columns, strict=True)
        ]
        for row in group_rows(sample, used, partitions, half, chance, rng):
            table.append({"model": each.name, **row})
        if each.baseline is not None:
            even.append(_break_even(each, weights, used, chosen))
    return StressReport(
        pandas.DataFrame(curve, columns=_CURVE),
        pandas.DataFrame(table, columns=_GROUPS),
        pandas.DataFrame(even, columns=_BREAK_EVEN),
        name, chosen.name, chance, n, reference is not None,
    )  # fmt: skip


def _scores(
    model: Any, X: Any, y: Any, losses: Any, loss: Loss, sample_weight: Any, baseline: Any
) -> tuple[list[_Scored], str]:
    """The losses of all models, and the name of the loss."""
    if (model is None) == (losses is None):
        got = "both" if losses is not None else "neither"
        raise ValueError(
            f"Pass either 'model' with X and y, or 'losses', to stress_test. Got {got} instead."
        )
    if losses is not None:
        named = losses if isinstance(losses, Mapping) else {"losses": losses}
        if not named:
            raise ValueError("The 'losses' parameter must hold at least one model. Got none.")
        vectors = {str(name): _losses("losses", each) for name, each in named.items()}
        n = next(iter(vectors.values())).size
        for each in vectors.values():
            _losses("losses", each, n)
        other = None if baseline is None else _losses("baseline", baseline, n)
        return [_Scored(name, each, None, other) for name, each in vectors.items()], "given"
    if X is None or y is None:
        missing = "'X'" if X is None else "'y'"
        raise ValueError(f"The {missing} parameter must be given with a model. Got None instead.")
    target = np.asarray(y)
    if target.ndim != 1 or target.size == 0:
        raise ValueError(
            f"The 'y' parameter must be a vector with at least one row. "
            f"Got an array of shape {target.shape} instead."
        )
    weights = None if sample_weight is None else as_weights(sample_weight, target.size)
    scored, name = [], ""
    for title, each in as_models(model).items():
        found = predict(title, each, X, target, loss)
        kind = loss_name(found, loss)
        if name not in ("", kind):
            raise ValueError(
                f"The 'loss' parameter must be given for models of different kinds: 'auto' is "
                f"{name!r} for one and {kind!r} for another."
            )
        name = kind
        z = losses_of(found, target, loss)
        refuse_not_finite("loss", z)
        if baseline is None:
            other = losses_of(constant(found, target, weights, kind), target, loss)
        elif hasattr(baseline, "predict") or callable(baseline):
            [one] = as_models([baseline]).values()
            other = losses_of(predict("baseline", one, X, target, loss), target, loss)
        else:
            other = _losses("baseline", baseline, target.size)
        scored.append(_Scored(title, z, wrong_rows(found, target), other))
    return scored, name


def _losses(parameter: str, values: Any, n: int | None = None) -> Array:
    """Finite losses, one for each of n rows."""
    z = as_vector(parameter, values) if parameter != "losses" else as_losses(values)
    if n is not None and z.size != n:
        raise ValueError(
            f"The '{parameter}' parameter must have one loss for each of the {n} rows. "
            f"Got {z.size} instead."
        )
    if not np.isfinite(z).all():
        raise ValueError(not_finite(z).replace("'losses'", f"'{parameter}'"))
    return z


def _sample(
    scored: _Scored, weights: Array | None, used: Any, reference: Array | None, loss: str
) -> Sample:
    """The losses, or regrets, of rows with weight."""
    z = scored.losses if reference is None else scored.losses - reference
    binary = reference is None and (
        loss == "zero-one" or (loss == "given" and bool(np.all((z == 0.0) | (z == 1.0))))
    )
    wrong = scored.wrong if not binary else z > 0.0
    return Sample(
        np.ascontiguousarray(z[used]),
        None if weights is None else weights[used],
        None if wrong is None else wrong[used],
        binary,
    )


def _break_even(
    scored: _Scored, weights: Array | None, used: Any, divergence: Divergence
) -> tuple[Any, ...]:
    """One row of the table."""
    assert scored.baseline is not None
    difference = np.ascontiguousarray((scored.losses - scored.baseline)[used])
    sample = Sample(difference, None if weights is None else weights[used])
    ball, meaning = break_even(sample, divergence)
    means = (float(sample.base @ each[used]) for each in (scored.losses, scored.baseline))
    if ball is None:
        nowhere = np.nan if isinstance(divergence, CVaR) else np.inf
        return scored.name, *means, nowhere, 0.0, meaning
    return scored.name, *means, ball.rho, ball.share, meaning
