"""`gradient_report`: bias, variance and cost of stochastic gradients at a point.

A step with gradient estimate G and the best step size decreases the objective by about
‖∇R‖⁴ / (2 L E‖G‖²) for a smoothness L.  Of unbiased estimates, that with the smallest
cost × E‖G‖² therefore makes most progress with the rows that it reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn._solvers.gradient_levels import (
    DEFAULT_FIRE,
    DEFAULT_R,
    Estimates,
    Levels,
    block_gradients,
    measure,
)
from drolearn._solvers.inputs import as_problem, as_start
from drolearn._solvers.multilevel import Multilevel
from drolearn._validation import as_count, as_generator
from drolearn.divergence import Divergence
from drolearn.loss import Loss

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GradientReport", "gradient_report"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GradientReport:
    """Bias, variance and cost of stochastic gradients, the result of :func:`gradient_report`.

    Attributes
    ----------
    levels : dict of str to array
        One entry for each size of a block, from the smallest to all rows; see Notes.
    methods : dict of str to array
        One entry for each method, with the recommended batch, or with the smallest one if all rows
        are recommended; see Notes.
    gradient_norm : float
        ‖∇R‖ on all rows, in scaled coordinates, without penalty.
    batch_size : int
        The recommended size of the base block, one of the sizes in `levels`; all rows if exact
        solvers make more progress with the rows that they read.
    r, fire : float
        The recommended settings of :class:`drolearn.GSSG` with the batch of `methods`.
    probabilities : tuple of float
        The best probabilities of its levels, without the restriction to powers of r.

    See Also
    --------
    GSSG : The solver with these settings.
    Multilevel : Its draws, and their probabilities.

    Notes
    -----
    The columns of `levels`:

    - `rows`: the size n_k of a block;
    - `bias`, `variance`: ‖E G − ∇R‖ and E‖G − E G‖² of the gradient G of one such block, which is a
      step of SGD with this batch, or of PSSG once its batches have this size;
    - `bias_error`: the standard error of the bias;
    - `correction`, `moment`: ‖E Δ_k‖ and E‖Δ_k‖² of the corrections of GSSG, NaN for the first
      level;
    - `draws`: the number of draws from which they are estimated.

    Those of `methods`: the `method`, its `bias` and `variance`, the expected `cost` of a step in
    rows, and `work`: cost × E‖G‖² relative to full gradients.  Of two unbiased methods, that with
    less work makes more progress with the same number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import gradient_report
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 3))
    >>> y = X[:, 0] + rng.standard_normal(2000) > 0
    >>> report = gradient_report(np.zeros(4), X, y, random_state=0)
    >>> report.levels["rows"].tolist()
    [31, 62, 125, 250, 500, 1000, 2000]
    """

    levels: dict[str, NDArray[Any]]
    methods: dict[str, NDArray[Any]]
    gradient_norm: float
    batch_size: int
    r: float
    fire: float
    probabilities: tuple[float, ...]

    def __repr__(self) -> str:
        n = int(self.levels["rows"][-1])
        lines = [f"{n:,} rows, norm of the gradient {self.gradient_norm:.3g}"]
        for table in (self.levels, self.methods):
            cells = [[name, *map(_text, column)] for name, column in table.items()]
            widths = [max(map(len, column)) for column in cells]
            lines += [
                "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
                for row in zip(*cells, strict=True)
            ]
        if self.batch_size == n:
            lines.append("Recommended: an exact solver")
        else:
            settings = f"batch_size={self.batch_size}, r={self.r:.2f}, fire={self.fire:.2g}"
            lines.append(f"Recommended: GSSG({settings})")
        return "\n".join(lines)

    def to_frame(self, table: Literal["levels", "methods"] = "levels") -> pd.DataFrame:
        """Return a table as a data frame.

        Parameters
        ----------
        table : {"levels", "methods"}, default="levels"
            Which table.

        Returns
        -------
        pandas.DataFrame
            One row for each size of a block, or for each method.

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            If there is no such table.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import gradient_report
        >>> X = np.arange(40.0).reshape(20, 2)
        >>> report = gradient_report(np.zeros(3), X, X[:, 0] > 9, random_state=0)
        >>> report.to_frame("methods")["method"].tolist()
        ['fsg', 'sgd', 'pssg', 'gssg', 'gssg, fire=1', 'gssg, recommended']
        """
        if table not in ("levels", "methods"):
            raise ValueError(
                f"The 'table' parameter must be 'levels' or 'methods'. Got {table!r} instead."
            )
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "Data frames need pandas. Install it with pip install 'drolearn[stress]'."
            ) from None
        return pandas.DataFrame(self.levels if table == "levels" else self.methods)

    def plot(self, ax: Any = None) -> Any:
        """Plot bias, variance and corrections against the size of a block.

        Parameters
        ----------
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

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> import numpy as np
        >>> from drolearn import gradient_report
        >>> X = np.arange(40.0).reshape(20, 2)
        >>> gradient_report(np.zeros(3), X, X[:, 0] > 9, random_state=0).plot().get_xlabel()
        'rows of a block'
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError(
                "Plots need matplotlib. Install it with pip install 'drolearn[stress]'."
            ) from None
        ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1] if ax is None else ax
        rows, level = self.levels["rows"], self.levels
        lines = {
            "variance of a batch": (level["variance"], "o-"),
            "bias² of a batch": (level["bias"] ** 2, "s-"),
            "second moment of a correction": (level["moment"], "^-"),
        }
        for name, (values, style) in lines.items():
            ax.plot(rows, np.where(values > 0.0, values, np.nan), style, markersize=4, label=name)
        ax.axhline(self.gradient_norm**2, color="grey", linewidth=1.0, label="‖∇R‖²")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("rows of a block")
        ax.legend(frameon=False, fontsize="small")
        return ax


def gradient_report(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    rho: float | None = None,
    divergence: str | Divergence = "chi2",
    loss: str | Loss = "logistic",
    fit_intercept: bool = True,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    batch_size: int = 16,
    budget: int = 1_000_000,
    random_state: Any = None,
) -> GradientReport:
    """Measure bias, variance and cost of stochastic gradients at a model, and recommend settings.

    Blocks of rows of each size are drawn at random, as by the solvers "sgd", "pssg", "gssg" and
    "fsg", and their gradients are compared with the gradient on all rows.

    Parameters
    ----------
    model : object or array-like of shape (d + 1,) or (m, d + 1)
        The point: a :class:`drolearn.Solution`, a fitted linear model with coef_ and intercept_, or
        coefficients with the intercept last.
    X : array-like or sparse matrix of shape (n, d)
        The rows.
    y : array-like of shape (n,)
        Labels or numbers, as for :func:`drolearn.solve`.
    rho : float, default=None
        Radius of the ball; None is 0.1.  CVaR has no radius: leave it None.
    divergence : str or Divergence, default="chi2"
        The divergence that defines the ball.
    loss : str or Loss, default="logistic"
        A loss, as for :func:`drolearn.solve`.
    fit_intercept : bool, default=True
        Whether the gradient has a component for the intercept.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows; None for equal ones.
    groups : array-like of shape (n,), default=None
        Names of the groups of the rows; the ball then reweights groups.
    batch_size : int, default=16
        The smallest block has at least this many rows.
    budget : int, default=1_000_000
        Rows to draw, roughly; a level has at least 16 draws.
    random_state : int, Generator or RandomState, default=None
        Seed of the draws.

    Returns
    -------
    GradientReport
        Tables of block sizes and methods, the recommended settings, and a plot.

    Raises
    ------
    ValueError
        If an argument is not valid.

    See Also
    --------
    solve : Fit a model with these gradients.

    Notes
    -----
    Gradients are those of the robust loss without penalty, in the scaled coordinates in which
    stochastic solvers make their steps.  Settings are recommended for unbiased gradients, by the
    smallest cost × E‖G‖².  They depend on the point: near an optimum, larger batches are better.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import gradient_report, solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((5000, 3))
    >>> y = X[:, 0] + rng.standard_normal(5000) > 0
    >>> early = gradient_report(np.zeros(4), X, y, random_state=0)
    >>> late = gradient_report(solve(X, y, l2=1e-3), X, y, random_state=0)
    >>> early.batch_size < late.batch_size
    True
    """
    problem = replace(
        as_problem(
            X, y, rho=rho, divergence=divergence, loss=loss, l2=0.0, fit_intercept=fit_intercept,
            sample_weight=sample_weight, groups=groups, n_jobs=None,
        ),
        scaling="draws",
    )  # fmt: skip
    theta = as_start(problem, _coefficients(model))
    method = Multilevel(
        problem.n,
        batch_size=as_count("batch_size", batch_size, 1, problem.n),
        rho=problem.rho,
        groups=problem.groups,
    )
    at = problem.evaluate(problem.scores(theta))
    full = problem.scaled_gradient(problem.gradient(at))
    rng, rows = as_generator(random_state), as_count("budget", budget)
    levels = measure(method, block_gradients(problem, at), full, rows, rng)
    return _report(method.sizes.copy(), method.costs.astype(np.float64), levels, full)


def _coefficients(model: Any) -> Any:
    """θ of a solution or of a fitted linear model; anything else is θ already."""
    if hasattr(model, "theta"):
        return model.theta
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        ends = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), (coef.shape[0],))
        return np.column_stack([coef, ends])
    if isinstance(model, list | tuple | np.ndarray):
        return model
    raise ValueError(
        f"The 'model' parameter must be a Solution, a fitted linear model with coef_ and "
        f"intercept_, or an array of coefficients with the intercept last. "
        f"Got {type(model).__name__} instead."
    )


def _report(sizes: NDArray[np.int64], costs: Array, levels: Levels, full: Array) -> GradientReport:
    """Compare the methods, and choose the settings."""
    variance, square = levels.variance, float(full @ full)
    bias, error = levels.bias()
    table: dict[str, NDArray[Any]] = {
        "rows": sizes,
        "bias": bias,
        "bias_error": error,
        "variance": variance,
        "correction": np.linalg.norm(levels.correction, axis=1),
        "moment": levels.moment.copy(),
        "draws": levels.draws,
    }
    table["correction"][0] = table["moment"][0] = math.nan
    bases = [
        Estimates(costs[k:], variance[k], bias[k], levels.moment[k + 1 :], square)
        for k in range(sizes.size)
    ]
    best = int(np.argmin([each.work(each.best) for each in bases]))
    # If it is all rows, the methods are compared for the smallest block.
    k = best if best < sizes.size - 1 else 0
    base = bases[k]
    r, fire = base.best_powers()
    settings = {
        "gssg": base.powers(DEFAULT_R, DEFAULT_FIRE),
        "gssg, fire=1": base.powers(DEFAULT_R, 1.0),
        "gssg, recommended": base.powers(r, fire),
    }
    batch = (bias[k], variance[k], costs[k], costs[k] * (variance[k] + square))
    methods = {
        "fsg": (0.0, 0.0, costs[-1], costs[-1] * square),
        "sgd": batch,
        "pssg": batch,
        **{name: (0.0, base.variance(q), base.cost(q), base.work(q))
           for name, q in settings.items()},
    }  # fmt: skip
    numbers = np.array(list(methods.values())).T
    columns = dict(zip(("bias", "variance", "cost", "work"), numbers, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["work"] = columns["work"] / (costs[-1] * square)
    return GradientReport(
        levels=table,
        methods={"method": np.array(list(methods)), **columns},
        gradient_norm=math.sqrt(square),
        batch_size=int(sizes[best]),
        r=r,
        fire=fire,
        probabilities=tuple(base.best.tolist()),
    )


def _text(value: Any) -> str:
    if isinstance(value, str | int | np.integer):
        return str(value)
    return "" if math.isnan(value) else f"{value:.3g}"
