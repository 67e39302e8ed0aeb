"""`stress_test`: how the loss of a model grows with a shift of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._validation import as_count, as_generator, as_weights
from drolearn.divergence import CVaR, Divergence
from drolearn.stress.balls import Ball, as_balls, as_divergences, ball_of_share
from drolearn.stress.bracket import SubPopulations
from drolearn.stress.break_even import break_even
from drolearn.stress.features import as_features
from drolearn.stress.groups import as_partitions, group_rows
from drolearn.stress.intervals import as_level, intervals
from drolearn.stress.models import Loss
from drolearn.stress.radii import named_changes
from drolearn.stress.report import StressReport, require_pandas
from drolearn.stress.scores import Scored, rows_losses, score
from drolearn.stress.slices import as_engine
from drolearn.stress.worst_cases import Sample, worst_cases

__all__ = ["COLUMNS", "stress_test"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Each table begins with its model, loss and divergence, as far as it depends on them.
_KEYS = ["model", "loss_name", "divergence"]
COLUMNS = {
    "curve": [*_KEYS, "rho", "share", "loss", "low", "high", "error", "rows", "method", "note"],
    "groups": [
        *_KEYS, "column", "group", "rows", "share", "loss", "low", "high", "error",
        "worst_share", "worst_mix", "method", "note",
    ],
    "break_even": [*_KEYS, "loss", "baseline", "rho", "share", "meaning"],
    "radii": [
        "divergence", "column", "group", "share", "change", "changed_to", "rho", "covers",
        "meaning",
    ],
}  # fmt: skip


def stress_test(
    model: Any = None,
    X: Any = None,
    y: Any = None,
    *,
    losses: Any = None,
    loss: Loss | Sequence[Loss] = "auto",
    groups: Any = None,
    over: Any = None,
    sample_weight: ArrayLike | None = None,
    baseline: Any = None,
    divergence: str | Divergence | Sequence[str | Divergence] = "chi2",
    rhos: ArrayLike | None = None,
    reference_losses: ArrayLike | None = None,
    level: float = 0.95,
    slices: Literal["search", "sliceline"] = "search",
    worst_rows: int = 0,
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
    loss : str, callable or list, default="auto"
        "log", "zero-one", "brier", "squared" (½ (prediction − y)²), "absolute", or a function of
        predictions and `y` that returns one loss for each row.  It is given the probabilities of
        the classes where the model has them.  "auto" is "log", or "zero-one" without
        probabilities, or "squared" for regressions.  A list is several losses, and "all" is every
        named loss that all models have.
    groups : array-like of shape (n,) or (n, k), frame or dict, default=None
        The group of each row, in one or several columns.  Missing values are a group.
    over : str, list of str, "all", frame, dict or array of shape (n, k), default=None
        The features in which bad sub-populations are described: names of columns of X, all its
        columns, or one or several columns of numbers, truth values or names.  Missing values are a
        value of their own.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.
    baseline : object or array-like of shape (n,), default=None
        A fitted model, or its losses.  None is the best constant model of `y`: the shares of
        the classes, the mean, or the median for "absolute".  With `losses`, None is no baseline.
    divergence : str, Divergence or list, default="chi2"
        A name or an object, see :mod:`drolearn.divergence`; a list of these; or "all", which is
        every name.  χ² takes a fraction of a second, and "all" on tens of thousands of rows
        a few seconds.  The curve of CVaR runs over levels.
    rhos : array-like, default=None
        Radii; None for 200 that cover every subset of the rows, from all rows to a hundredth.
    reference_losses : array-like of shape (n,), default=None
        Losses of a reference model.  Curve and groups are then those of the regret, the losses
        minus these.
    level : float, default=0.95
        The confidence level of the intervals.
    slices : {"search", "sliceline"}, default="search"
        How to find sub-populations: a search over up to three conditions on the features, or all
        pairs of values by the package sliceline, which takes longer and has no weights of rows.
    worst_rows : int, default=0
        The number of rows in `StressReport.worst_rows`.  Think of privacy before you share it.
    random_state : int, Generator or RandomState, default=None
        Seed of the bootstrap, and of the halves on which sub-populations are found and judged.

    Returns
    -------
    StressReport
        The tables `curve`, `groups`, `break_even`, `radii`, `slices`, `bracket`, `features` and
        `worst_rows`, an HTML report, plots and JSON.

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
    "influence".  If at most 500 effective rows carry the worst case, or one row makes more than 2%
    of the variance, the bootstrap-t interval is joined to it.  Losses of 0 and 1 have exact
    binomial intervals.  Each interval holds for one row of a table, not for all at once.
    docs/stress.md has a table of how often they hold.

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

    Several divergences and losses, and a report for the browser:

    >>> report = stress_test(model, X[1::2], y[1::2], loss=["log", "zero-one"],
    ...                      divergence=["chi2", "kl"], random_state=0)
    >>> report.losses, report.divergences
    (('log', 'zero-one'), ('chi2', 'kl'))
    >>> report.to_html("report.html")  # doctest: +SKIP

    A sub-population on which losses are large, with a lower bound of its mean loss:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(18, 70, 2000)
    >>> losses = rng.exponential(np.where(age > 60, 0.9, 0.3))
    >>> report = stress_test(losses=losses, over={"age": age}, random_state=0)
    >>> report.slices["sentence"].iloc[-1]
    'age > 62: 13% of rows, loss 0.90 against 0.35'
    >>> round(float(report.slices["low"].iloc[-1]), 2)
    0.75
    """
    pandas = require_pandas()
    chosen = as_divergences(divergence)
    balls = {name: as_balls(each, rhos) for name, each in chosen.items()}
    chance, rng = as_level(level), as_generator(random_state)
    # A generator of its own: the other tables are the same with and without features.
    own, seed = rng.spawn(1)[0], int(rng.integers(2**63))
    scored = score(model, X, y, losses, loss, sample_weight, baseline)
    n, names = scored[0].losses.size, list(dict.fromkeys(each.loss for each in scored))
    weights = None if sample_weight is None else as_weights(sample_weight, n)
    used: Mask | slice = slice(None) if weights is None else weights > 0.0
    reference = _reference(reference_losses, n, names)
    partitions = as_partitions(groups, n)
    features = [] if over is None else as_features(over, X, n, used)
    engine, most = as_engine(slices), as_count("worst_rows", worst_rows, 0)
    halves = {name: ball_of_share(each, 0.5) for name, each in chosen.items()}
    places = np.arange(n)[used]
    populations = SubPopulations(features, places, halves, chance, engine, most, own)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}
    for each in scored:
        sample = _sample(each, weights, used, reference)
        keys = {"model": each.model, "loss_name": each.loss}
        for name, several in balls.items():
            # The same bootstrap samples for all models, whatever else is computed.
            rows = _curve(sample, several, chance, np.random.default_rng(seed))
            tables["curve"] += [{**keys, "divergence": name, **row} for row in rows]
        rng = np.random.default_rng(seed)
        rows = group_rows(sample, used, partitions, halves, chance, rng) if partitions else []
        tables["groups"] += [{**keys, **row} for row in rows]
        populations.add(keys, sample)
        if each.baseline is not None:
            rows = _break_even(each, each.baseline, weights, used, chosen)
            tables["break_even"] += [{**keys, **row} for row in rows]
    tables["radii"] = named_changes(chosen, partitions, used, weights)
    frames = {name: pandas.DataFrame(rows, columns=COLUMNS[name]) for name, rows in tables.items()}
    return StressReport(
        **frames, **populations.frames(), losses=tuple(names), divergences=tuple(chosen),
        level=chance, rows=n, regret=reference is not None,
    )  # fmt: skip


def _reference(reference_losses: Any, n: int, names: list[str]) -> Array | None:
    if reference_losses is None:
        return None
    if len(names) > 1:
        raise ValueError(
            f"The 'reference_losses' parameter must be None for several losses: a vector holds one "
            f"loss only. Got a vector for {len(names)} losses instead."
        )
    return rows_losses("reference_losses", reference_losses, n)


def _sample(scored: Scored, weights: Array | None, used: Any, reference: Array | None) -> Sample:
    """The losses, or regrets, of rows with weight."""
    z = scored.losses if reference is None else scored.losses - reference
    binary = reference is None and (
        scored.loss == "zero-one"
        or (scored.loss == "given" and bool(np.all((z == 0.0) | (z == 1.0))))
    )
    wrong = scored.wrong if not binary else z > 0.0
    return Sample(
        np.ascontiguousarray(z[used]),
        None if weights is None else weights[used],
        None if wrong is None else wrong[used],
        binary,
    )


def _curve(
    sample: Sample, balls: list[Ball], level: float, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """One row for each ball."""
    found = worst_cases(sample, balls)
    ends = intervals(sample, balls, found, level, rng)
    return [
        {
            "rho": ball.rho,
            "share": ball.share,
            "loss": found.value[k],
            "low": ends.low[k],
            "high": ends.high[k],
            "error": found.wrong[k],
            "rows": 1.0 / found.squares[k],
            "method": ends.method[k],
            "note": ends.note[k],
        }
        for k, ball in enumerate(balls)
    ]


def _break_even(
    scored: Scored,
    baseline: Array,
    weights: Array | None,
    used: Any,
    divergences: Mapping[str, Divergence],
) -> list[dict[str, Any]]:
    """One row for each divergence."""
    difference = np.ascontiguousarray((scored.losses - baseline)[used])
    sample = Sample(difference, None if weights is None else weights[used])
    means = [float(sample.base @ each[used]) for each in (scored.losses, baseline)]
    rows = []
    for name, divergence in divergences.items():
        ball, meaning = break_even(sample, divergence)
        nowhere = math.nan if isinstance(divergence, CVaR) else math.inf
        rho, share = (nowhere, 0.0) if ball is None else (ball.rho, ball.share)
        rows.append(
            {
                "divergence": name, "loss": means[0], "baseline": means[1],
                "rho": rho, "share": share, "meaning": meaning,
            }
        )  # fmt: skip
    return rows
