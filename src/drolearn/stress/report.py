"""The result of a stress test: tables, plots, JSON, HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLES", "StressReport", "require_pandas"]

#: The fields of a report that are tables, in the order in which files hold them.
TABLES = (
    "curve", "groups", "break_even", "radii", "slices", "bracket", "features", "worst_rows",
)  # fmt: skip


def require_pandas() -> Any:
    """Import pandas, or say how to install it."""
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "Stress tests need pandas. Install it with pip install 'drolearn[stress]'."
        ) from None
    return pandas


def _no_rows() -> Any:
    return require_pandas().DataFrame()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StressReport:
    """The result of :func:`stress_test`: tables of losses under shifts of the data.

    Parameters
    ----------
    curve : pandas.DataFrame
        One row for each model, loss, divergence and radius; see Notes.
    groups : pandas.DataFrame
        One row for each model, loss, divergence and group; empty without groups.
    break_even : pandas.DataFrame
        One row for each model, loss and divergence: the smallest radius at which a shift makes the
        model worse than the baseline; empty without a baseline.
    radii : pandas.DataFrame
        How large radii are: one row for each divergence and change of the mix of groups; empty
        without groups.
    losses : tuple of str
        The names of the losses.
    divergences : tuple of str
        The names of the divergences.
    level : float
        The confidence level of the intervals.
    rows : int
        The number of rows.
    regret : bool, default=False
        Whether losses are differences to the losses of a reference model.
    slices : pandas.DataFrame, default=empty
        One row for each model, loss and describable sub-population; empty without features.
    bracket : pandas.DataFrame, default=empty
        One row for each model, loss and share: how bad a sub-population of this share is at least
        and at most; empty without features.
    features : pandas.DataFrame, default=empty
        One row for each model, loss, divergence and value of a feature; empty without features.
    worst_rows : pandas.DataFrame, default=empty
        The rows with the largest weights in the worst case; empty unless asked for.

    See Also
    --------
    stress_test : Computes it.

    Notes
    -----
    All tables but `radii` begin with `model`, `loss_name` and `divergence`.  The columns of
    `curve`:

    - `rho`, `share`: the radius of the ball, and the smallest share of which it holds every subset
      of the rows, 1/(1 + ρ) for χ²;
    - `loss`, `low`, `high`: the robust loss and its confidence interval;
    - `error`: the rate of wrong labels under the worst-case weights p, NaN for regressions;
    - `rows`: the effective sample size 1/Σ p²;
    - `method`, `note`: how the interval was computed, and what limits it.

    Those of `groups`: `rows`, `share`, `loss`, `low`, `high`, `error` of each group, its share in
    the worst case over rows (`worst_share`) and over mixes of the groups (`worst_mix`), both in the
    ball that holds every half of the rows: ρ = 1 for χ², level 0.5 for CVaR.

    Those of `slices`, all of rows on which the sub-population was not searched:

    - `slice`, `sentence`: its conditions, and a sentence;
    - `share`, `rows`, `loss`, `others`: its share, number of rows and mean loss, and the mean loss
      of the other rows;
    - `low`: its mean loss in the population is at least this, at the confidence level;
    - `method`, `note`: as for `curve`.

    Those of `bracket`: the `share`; `low`, `loss`, `slice` and `slice_share` of the worst
    sub-population of at least this share that was found; the mean loss of the worst rows of this
    share (`cvar`) with an upper confidence bound (`high`); and the worst case in the χ² ball that
    holds every subset of this share (`chi2`).

    Those of `features` are those of `groups`, for each `value` of a `feature`: intervals between
    quantiles of numbers, and values of which the rare ones are joined to "other".

    Those of `worst_rows`: the position of the `row`, its `loss`, and its `weight` in the ball of
    `worst_share`.

    Those of `break_even`: the mean losses `loss` and `baseline`, the radius `rho`, the `share`, and
    a sentence.

    Those of `radii`: the `share` of a group now, the `change` ("halves", "doubles" or "becomes
    half"), the share `changed_to`, the radius `rho` from which on a ball holds this change, the
    share of which it holds every subset (`covers`; for CVaR, the level), and a sentence.  They are
    those of the six largest groups of each column.

    Examples
    --------
    >>> from drolearn import stress_test
    >>> report = stress_test(losses=[0.1, 0.4, 0.2, 0.9, 0.3, 0.2], rhos=[0, 1])
    >>> report.curve[["rho", "share", "loss"]].round(3)
       rho  share   loss
    0  0.0    1.0  0.350
    1  1.0    0.5  0.613
    """

    curve: pd.DataFrame
    groups: pd.DataFrame
    break_even: pd.DataFrame
    radii: pd.DataFrame
    losses: tuple[str, ...]
    divergences: tuple[str, ...]
    level: float
    rows: int
    regret: bool = False
    slices: pd.DataFrame = field(default_factory=_no_rows)
    bracket: pd.DataFrame = field(default_factory=_no_rows)
    features: pd.DataFrame = field(default_factory=_no_rows)
    worst_rows: pd.DataFrame = field(default_factory=_no_rows)

    def __repr__(self) -> str:
        what = "regret" if self.regret else "loss"
        loss, divergence = self.losses[0], self.divergences[0]
        lines = [f"{self.rows:,} rows, {what} {loss!r}, {divergence} balls"]
        chosen: list[Any] = []
        curve = self.select("curve")
        for _, part in curve.groupby("model", sort=False):
            near = [(part["share"] - share).abs() for share in (1.0, 0.5, 0.1)]
            known = [each.idxmin() for each in near if each.notna().any()]
            chosen += dict.fromkeys(known or [part.index[0], part.index[-1]])
        shown = curve.loc[chosen, ["model", "rho", "share", "loss", "low", "high"]]
        lines.append(shown.to_string(index=False, float_format=lambda x: f"{x:.3g}"))
        even = self.select("break_even")
        lines += [f"{row.model}: {row.meaning}" for row in even.itertuples()]
        slices = self.select("slices")
        if not slices.empty:  # the slice of each model that is worst with certainty
            worst = slices.sort_values("low", ascending=False).drop_duplicates("model")
            lines += [f"{row.model}: {row.sentence}" for row in worst.sort_index().itertuples()]
        more = [*map(repr, self.losses[1:]), *self.divergences[1:]]
        lines += [f"also in the tables: {', '.join(more)}"] if more else []
        return "\n".join(lines)

    def select(self, table: str, loss: str | None = None, divergence: str | None = None) -> Any:
        """Return the rows of a table for one loss and one divergence.

        Parameters
        ----------
        table : str
            The name of a table, such as "curve" or "groups".
        loss : str, default=None
            The name of a loss in `losses`; None is the first.
        divergence : str, default=None
            The name of a divergence in `divergences`; None is the first.

        Returns
        -------
        pandas.DataFrame
            Some of the rows of the table, with all columns.

        Raises
        ------
        ValueError
            If there is no such table, loss or divergence.

        Examples
        --------
        >>> from drolearn import stress_test
        >>> report = stress_test(losses=[0.1, 0.4, 0.2, 0.9], divergence=["chi2", "kl"], rhos=[0.1])
        >>> report.select("curve", divergence="kl")[["divergence", "rho", "loss"]].round(3)
          divergence  rho   loss
        1         kl  0.1  0.544
        """
        if table not in TABLES:
            raise ValueError(
                f"The 'table' parameter must be {_listed(TABLES)}. Got {table!r} instead."
            )
        frame = getattr(self, table)
        for column, parameter, name, known in (
            ("loss_name", "loss", loss, self.losses),
            ("divergence", "divergence", divergence, self.divergences),
        ):
            if name is not None and name not in known:
                raise ValueError(
                    f"The '{parameter}' parameter must be a {parameter} of this report: "
                    f"{_listed(known)}. Got {name!r} instead."
                )
            if column in frame.columns:
                frame = frame[frame[column] == (known[0] if name is None else name)]
        return frame

    def to_json(self, path: Any = None) -> str:
        """Write all tables as JSON.

        Parameters
        ----------
        path : str or path-like, default=None
            A file to write; None writes none.

        Returns
        -------
        str
            The text.  Numbers that are not finite are null.

        Examples
        --------
        >>> import json
        >>> from drolearn import stress_test
        >>> report = stress_test(losses=[0.1, 0.4, 0.2, 0.9], rhos=[0, 1])
        >>> json.loads(report.to_json())["curve"][0]["loss"]
        0.4
        """
        content = {
            "losses": self.losses,
            "divergences": self.divergences,
            "level": self.level,
            "rows": self.rows,
            "regret": self.regret,
        }
        for name in TABLES:
            text = getattr(self, name).to_json(
                orient="records", double_precision=15, default_handler=str, date_format="iso"
            )
            content[name] = json.loads(text)
        written = json.dumps(content, indent=1, ensure_ascii=False)
        if path is not None:
            from drolearn._storage import replacing

            with replacing(path) as file:
                file.write(f"{written}\n".encode())
        return written

    def to_html(self, path: Any = None, title: str = "Stress test") -> str:
        """Write a report for the browser: one file that needs no network.

        It has the curve with values on hover, groups, break-even, and how large radii are; switches
        for loss, divergence and model; downloads of all tables as CSV; and a guide for readers.

        Parameters
        ----------
        path : str or path-like, default=None
            A file to write; None writes none.
        title : str, default="Stress test"
            The heading of the page.

        Returns
        -------
        str
            The text of the file, about a megabyte.

        Raises
        ------
        ImportError
            If jinja2 or vl-convert-python, which has the charts, is not installed.

        Examples
        --------
        >>> from drolearn import stress_test
        >>> report = stress_test(losses=[0.1, 0.4, 0.2, 0.9], rhos=[0, 1])
        >>> page = report.to_html("report.html")  # doctest: +SKIP
        """
        from drolearn.stress.html import page

        written = page(self, TABLES, title)
        if path is not None:
            from drolearn._storage import replacing

            with replacing(path) as file:
                file.write(written.encode())
        return written

    def plot(
        self,
        kind: Literal["curve", "groups", "slices", "bracket"] = "curve",
        ax: Any = None,
        *,
        loss: str | None = None,
        divergence: str | None = None,
    ) -> Any:
        """Plot the robust loss against the radius, or the losses of groups and sub-populations.

        Parameters
        ----------
        kind : {"curve", "groups", "slices", "bracket"}, default="curve"
            The table to plot.  All models share the axes.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw into; None makes a new figure.
        loss, divergence : str, default=None
            Which of the report's to plot; None is the first.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If `kind`, `loss` or `divergence` is unknown, or if there are no groups or
            sub-populations to plot.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> from drolearn import stress_test
        >>> stress_test(losses=[0.1, 0.4, 0.2, 0.9]).plot().get_ylabel()
        'loss, given'
        """
        from drolearn.stress import plots, slice_plots

        kinds = {
            "curve": plots.plot_curve,
            "groups": plots.plot_groups,
            "slices": slice_plots.plot_slices,
            "bracket": slice_plots.plot_bracket,
        }
        if kind not in kinds:
            raise ValueError(
                f"The 'kind' parameter must be {_listed(tuple(kinds))}. Got {kind!r} instead."
            )
        return kinds[kind](self, self.select(kind, loss, divergence), ax)


def _listed(names: tuple[str, ...]) -> str:
    quoted = [repr(name) for name in names]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]
