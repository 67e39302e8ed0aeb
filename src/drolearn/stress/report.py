"""The result of a stress test: tables, plots, JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StressReport", "require_pandas"]


def require_pandas() -> Any:
    """Import pandas, or say how to install it."""
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "Stress tests need pandas. Install it with pip install 'drolearn[stress]'."
        ) from None
    return pandas


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StressReport:
    """The result of :func:`stress_test`: tables of losses under shifts of the data.

    Parameters
    ----------
    curve : pandas.DataFrame
        One row for each model and radius; see Notes.
    groups : pandas.DataFrame
        One row for each model and group; empty without groups.
    break_even : pandas.DataFrame
        One row for each model: the smallest radius at which a shift makes it worse than the
        baseline; empty without a baseline.
    loss : str
        The name of the loss.
    divergence : str
        The name of the divergence.
    level : float
        The confidence level of the intervals.
    rows : int
        The number of rows.
    regret : bool
        Whether losses are differences to the losses of a reference model.

    See Also
    --------
    stress_test : Computes it.

    Notes
    -----
    The columns of `curve`:

    - `model`: the name of the model;
    - `rho`, `share`: the radius of the ball, and the smallest share of which it holds every subset
      of the rows, 1/(1 + ρ) for χ²;
    - `loss`, `low`, `high`: the robust loss and its confidence interval;
    - `error`: the rate of wrong labels under the worst-case weights p, NaN for regressions;
    - `rows`: the effective sample size 1/Σ p²;
    - `method`, `note`: how the interval was computed, and what limits it.

    Those of `groups`: `rows`, `share`, `loss`, `low`, `high`, `error` of each group, its share in
    the worst case over rows (`worst_share`) and over mixes of the groups (`worst_mix`), both in the
    ball that holds every half of the rows: ρ = 1 for χ².

    Those of `break_even`: the mean losses `loss` and `baseline`, the radius `rho`, the `share`, and
    a sentence.

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
    loss: str
    divergence: str
    level: float
    rows: int
    regret: bool = False

    def __repr__(self) -> str:
        what = "regret" if self.regret else "loss"
        lines = [f"{self.rows:,} rows, {what} {self.loss!r}, {self.divergence} balls"]
        chosen: list[Any] = []
        curve: Any = self.curve
        for _, part in curve.groupby("model", sort=False):
            near = [(part["share"] - share).abs() for share in (1.0, 0.5, 0.1)]
            known = [each.idxmin() for each in near if each.notna().any()]
            chosen += dict.fromkeys(known or [part.index[0], part.index[-1]])
        shown = curve.loc[chosen, ["model", "rho", "share", "loss", "low", "high"]]
        lines.append(shown.to_string(index=False, float_format=lambda x: f"{x:.3g}"))
        even: Any = self.break_even
        lines += [f"{row.model}: {row.meaning}" for row in even.itertuples()]
        return "\n".join(lines)

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
            "loss": self.loss,
            "divergence": self.divergence,
            "level": self.level,
            "rows": self.rows,
            "regret": self.regret,
        }
        for name in ("curve", "groups", "break_even"):
            text = getattr(self, name).to_json(
                orient="records", double_precision=15, default_handler=str, date_format="iso"
            )
            content[name] = json.loads(text)
        written = json.dumps(content, indent=1, ensure_ascii=False)
        if path is not None:
            from pathlib import Path

            Path(path).write_text(written + "\n", encoding="utf-8")
        return written

    def plot(self, kind: Literal["curve", "groups"] = "curve", ax: Any = None) -> Any:
        """Plot the robust loss against the radius, or the losses of the groups.

        Parameters
        ----------
        kind : {"curve", "groups"}, default="curve"
            The table to plot.  All models share the axes.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw into; None makes a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If `kind` is unknown, or if there are no groups to plot.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> from drolearn import stress_test
        >>> stress_test(losses=[0.1, 0.4, 0.2, 0.9]).plot().get_xlabel()
        'radius ρ'
        """
        from drolearn.stress import plots

        if kind == "curve":
            return plots.plot_curve(self, ax)
        if kind != "groups":
            raise ValueError(
                f"The 'kind' parameter must be 'curve' or 'groups'. Got {kind!r} instead."
            )
        return plots.plot_groups(self, ax)
