"""Stress tests of losses on a cluster, from sums over the partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import reduce
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import ArrayLike, NDArray

from drolearn._inner.block_search import BlockWorstCase, Survey, maximise_many, stride_for
from drolearn._inner.worst_case import inner_maximum, without_dust
from drolearn.dask._collections import as_vector, grouped_losses
from drolearn.dask._engine import DaskBlocks
from drolearn.dask._losses import as_client, regrets
from drolearn.dask._stress_sums import (
    GroupPass,
    InfluencePass,
    Known,
    KnowPass,
    MakeStressBlock,
    SurveyPass,
    joined_groups,
)
from drolearn.divergence import ChiSquare, CVaR, Divergence
from drolearn.stress.analysis import COLUMNS
from drolearn.stress.balls import Ball, as_balls, as_divergences, ball_of_share
from drolearn.stress.chi2_balls import WorstCases
from drolearn.stress.groups import as_partitions
from drolearn.stress.intervals import (
    Intervals,
    as_level,
    binomial_intervals,
    influence_intervals,
)
from drolearn.stress.radii import named_changes
from drolearn.stress.report import StressReport, require_pandas

__all__ = ["stress_test"]

Array = NDArray[np.float64]


def stress_test(
    losses: Any,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    divergence: str | Divergence | list[str | Divergence] = "chi2",
    rhos: ArrayLike | None = None,
    reference_losses: Any = None,
    level: float = 0.95,
    client: Client | None = None,
) -> StressReport:
    """Measure how losses on a cluster grow with a shift of the data.

    The losses stay on the workers: each round sends a few sums for each ball.  Values and standard
    errors are those of :func:`drolearn.stress_test` up to rounding, for any chunks.

    Parameters
    ----------
    losses : Dask array or series of shape (n,), or dict
        The loss of each row; a dict for several models.
    groups : Dask array, series or dataframe, default=None
        The group of each row, in one or several columns.  Missing values are a group.
    sample_weight : Dask array or series of shape (n,), default=None
        Weights of the rows; None for equal ones.
    divergence : str, Divergence or list, default="chi2"
        As in :func:`drolearn.stress_test`.
    rhos : array-like, default=None
        Radii; None for 200 that cover every subset of the rows, from all rows to a hundredth.
    reference_losses : Dask array or series of shape (n,), default=None
        Losses of a reference model.  Curve and groups are then those of the regret, the losses
        minus these, of a single vector of losses.
    level : float, default=0.95
        The confidence level of the intervals.
    client : Client, default=None
        The client of the cluster; None for the one that was made last.

    Returns
    -------
    StressReport
        The tables `curve`, `groups` and `radii`, an HTML report, plots and JSON.  The other tables
        are empty: a baseline needs the losses of another model, and sub-populations need rows.

    Raises
    ------
    ImportError
        If pandas is not installed.
    ValueError
        If there are no losses, if some are not finite, or if another argument is not valid.
    LostWorkersError
        If all workers are lost.

    See Also
    --------
    drolearn.stress_test : Stress tests of models and losses in memory.

    Notes
    -----
    Intervals are those of the influence function, and exact binomial ones for losses of 0 and 1.
    The bootstrap, which :func:`drolearn.stress_test` uses where few rows carry the worst case,
    needs the rows: the column `note` says where intervals may be too short.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from drolearn.dask import stress_test
    >>> losses = da.random.default_rng(0).exponential(size=10_000, chunks=5_000)
    >>> with Client(processes=False, dashboard_address=":0"):
    ...     report = stress_test(losses, rhos=[0, 1, 9])
    >>> report.curve["share"].tolist()
    [1.0, 0.5, 0.1]
    """
    pandas = require_pandas()
    chosen, chance = as_divergences(divergence), as_level(level)
    balls = {name: as_balls(each, rhos) for name, each in chosen.items()}
    halves = {name: ball_of_share(each, 0.5) for name, each in chosen.items()}
    named = losses if isinstance(losses, Mapping) else {"losses": losses}
    if not named:
        raise ValueError("The 'losses' parameter must hold at least one model. Got none.")
    regret = reference_losses is not None
    if regret and len(named) > 1:
        raise ValueError(
            f"The 'reference_losses' parameter must be None for several models: they hold one loss "
            f"of each row. Got {len(named)} models."
        )
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}
    rows = 0
    for name, each in named.items():
        vector = as_vector("losses", each)
        if regret:
            vector = regrets(vector, reference_losses)
        b = None if sample_weight is None else as_vector("sample_weight", sample_weight)
        data = grouped_losses(vector, b, groups)
        columns = None if groups is None else _names_of(groups)
        with DaskBlocks(as_client(client), data, MakeStressBlock()) as blocks:
            test = _Test(blocks, columns, regret)
            found, rows = test.tables(balls, halves, chance), test.known.every
        keys = {"model": str(name), "loss_name": "given"}
        for table in ("curve", "groups"):
            tables[table] += [{**keys, **row} for row in found[table]]
        tables["radii"] = found["radii"]
    frames = {name: pandas.DataFrame(each, columns=COLUMNS[name]) for name, each in tables.items()}
    return StressReport(
        **frames, losses=("given",), divergences=tuple(chosen), level=chance, rows=rows,
        regret=regret,
    )  # fmt: skip


def _names_of(groups: Any) -> list[str]:
    """The names of the columns of groups, as in memory."""
    if hasattr(groups, "columns"):
        return [str(column) for column in groups.columns]
    if getattr(groups, "ndim", 1) == 2:
        return [f"column {k}" for k in range(groups.shape[1])]
    name = getattr(groups, "name", None) if hasattr(groups, "to_dask_array") else None
    return ["group" if name is None else str(name)]


class _Test:
    """The stress test of one vector of losses."""

    def __init__(self, blocks: DaskBlocks[Any], columns: list[str] | None, regret: bool) -> None:
        known: Known | None = blocks.run(KnowPass())
        if known is None:
            raise ValueError(
                "The 'losses' parameter must hold at least one number with a positive weight. "
                "Got none instead."
            )
        self.blocks, self.known, self.columns = blocks, known, columns
        self.zero_one = known.zero_one and not regret
        starts, n = {}, 0
        for number in sorted(known.rows):
            starts[number], n = n, n + known.rows[number]
        self.rows, self.mass, self.mean = n, known.mass, known.total / known.mass
        self.effective = known.mass * known.mass / known.squares
        numbers = {name: k for k, name in enumerate(known.groups)} if columns else None
        blocks.remake(MakeStressBlock(numbers, starts, 1e-34 * known.mass))
        self.survey: Survey = blocks.run(SurveyPass(stride_for(ChiSquare(), n)))

    def tables(
        self, balls: Mapping[str, list[Ball]], halves: Mapping[str, Ball], level: float
    ) -> dict[str, list[dict[str, Any]]]:
        """The rows of all tables."""
        every = [ball for several in balls.values() for ball in several]
        if self.columns is not None:
            every += halves.values()
        found = maximise_many(
            self.blocks, [(ball.divergence, ball.radius) for ball in every], self.rows, self.survey
        )
        groups = len(self.known.groups) if self.columns is not None else 0
        sums, shares = self.blocks.run(InfluencePass(found, self.mass, groups))
        cases = self._worst_cases(found, sums)
        tables: dict[str, list[dict[str, Any]]] = {"curve": [], "groups": [], "radii": []}
        first = 0
        for name, several in balls.items():
            part = slice(first, first + len(several))
            first += len(several)
            some = WorstCases(*(getattr(cases, column.name)[part] for column in fields(cases)))
            rows = self._curve(several, some, level)
            tables["curve"] += [{"divergence": name, **row} for row in rows]
        if self.columns is not None:
            tables["groups"], tables["radii"] = self._groups(halves, shares[first:], level)
        return tables

    def _worst_cases(self, found: list[BlockWorstCase], sums: Array) -> WorstCases:
        """Values, standard errors, Σ p², the share of the largest loss, and the error rate."""
        norm = 1.0 / self.effective
        mean, linear, square = sums[:, 0], sums[:, 1], sums[:, 2]
        total = np.maximum(square - 2.0 * mean * linear + mean * mean * norm, 0.0)
        total[[each.worst.alpha == 0.0 and not isinstance(each.worst.divergence, CVaR)
               for each in found]] = 0.0  # fmt: skip
        error = np.sqrt(total / (1.0 - norm)) if norm < 1.0 else np.full(len(found), np.nan)
        of_largest = sums[:, 6] - 2.0 * mean * sums[:, 7] + mean * mean * sums[:, 8]
        largest = np.divide(of_largest, total, out=np.ones(total.size), where=total > 0.0)
        wrong = sums[:, 4] if self.zero_one else np.full(len(found), np.nan)
        return WorstCases(
            np.array([e.worst.value for e in found]), error, sums[:, 3], largest, wrong
        )

    def _curve(self, balls: list[Ball], found: WorstCases, level: float) -> list[dict[str, Any]]:
        """One row for each ball, as in memory."""
        _, low, high = self.survey.row[:3]
        about = (self.mean, self.rows, self.effective, low == high)
        ends = self._intervals(found, balls, level, about)
        return [
            {
                "rho": ball.rho, "share": ball.share, "loss": found.value[k], "low": ends.low[k],
                "high": ends.high[k], "error": found.wrong[k], "rows": 1.0 / found.squares[k],
                "method": ends.method[k], "note": ends.note[k],
            }
            for k, ball in enumerate(balls)
        ]  # fmt: skip

    def _intervals(
        self,
        found: WorstCases,
        balls: list[Ball],
        level: float,
        about: tuple[float, int, float, bool],
    ) -> Intervals:
        """Intervals of worst cases of some rows, without a bootstrap.

        `about` says of the rows: the mean loss, their number, that in effect, and whether all
        losses are equal.
        """
        mean, rows, effective, equal = about
        count = len(balls)
        if self.zero_one:
            return binomial_intervals(mean, effective, balls, level)
        if rows == 1:
            none = np.full(count, np.nan)
            return Intervals(none, none.copy(), [""] * count, ["one row"] * count)
        if equal:
            same = ["all losses are equal"] * count
            ends = found.value.copy(), found.value.copy()
            return Intervals(*ends, ["influence"] * count, same)
        return influence_intervals(found, effective, balls, level)

    def _groups(
        self, halves: Mapping[str, Ball], shares: Array, level: float
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The rows of the tables of groups and of radii, as in memory."""
        combinations = list(self.known.groups)
        values = zip(self.columns or [], zip(*combinations, strict=True), strict=True)
        partitions = as_partitions(
            {name: np.array(column, dtype=object) for name, column in values}, len(combinations)
        )
        sums = self.blocks.run(GroupPass(self.mass, len(combinations), self.mean))
        table: dict[str, list[dict[str, Any]]] = {name: [] for name in halves}
        for partition in partitions:
            codes, count = partition.codes, len(partition.names)
            parts = [
                reduce(joined_groups, sums[:, codes == g, None].swapaxes(0, 1))
                for g in range(count)
            ]
            groups = [
                {"column": partition.column, "group": name, **self._group(part[:, 0], level)}
                for name, part in zip(partition.names, parts, strict=True)
            ]
            base = np.array([row["share"] for row in groups])
            means = np.array([row["loss"] for row in groups])
            for k, (name, ball) in enumerate(halves.items()):
                b = without_dust(ball.divergence, ball.radius, base)
                mix = inner_maximum(ball.divergence, ball.radius, means, b)
                if mix is None:
                    raise RuntimeError("Losses are checked before.")
                worst = np.bincount(codes, shares[k], count)
                table[name] += [
                    {
                        "divergence": name, **groups[g],
                        "worst_share": float(worst[g]), "worst_mix": float(mix.weights[g]),
                    }
                    for g in np.argsort(-means, kind="stable").tolist()
                ]  # fmt: skip
        divergences = {name: ball.divergence for name, ball in halves.items()}
        radii = named_changes(divergences, partitions, slice(None), sums[1])
        return [row for rows in table.values() for row in rows], radii

    def _group(self, sums: Array, level: float) -> dict[str, Any]:
        """Share, loss and interval of a group, see `GroupPass`."""
        rows, mass, first, squares, linear, square, low, high, at_high = sums.tolist()
        x, norm = first / mass, squares / (mass * mass)
        total = max(square - 2.0 * x * linear + x * x * squares, 0.0) / (mass * mass)
        loss, ball = self.mean + x, ball_of_share(ChiSquare(), 1.0)
        error = math.sqrt(total / (1.0 - norm)) if norm < 1.0 else math.nan
        largest = (at_high / mass * (high - x)) ** 2 / total if total > 0.0 else 1.0
        wrong = loss if self.zero_one else math.nan
        numbers = (loss, error, norm, largest, wrong)
        found = WorstCases(*(np.array([number]) for number in numbers))
        ends = self._intervals(found, [ball], level, (loss, int(rows), 1.0 / norm, low == high))
        return {
            "rows": int(rows), "share": mass, "loss": loss, "low": float(ends.low[0]),
            "high": float(ends.high[0]), "error": wrong, "method": ends.method[0],
            "note": ends.note[0],
        }  # fmt: skip
