"""Losses of single examples: what they are, and the facts that solvers need.

A loss looks at the margin y·f (y = ±1, f the score of the model), at the residual f − y, or
at the scores of all classes at once.

==================  ==========================================================  =============
name                loss                                                        steepest slope
==================  ==========================================================  =============
"logistic"          log(1 + e⁻ˣ) of the margin x                                bounded
"squared-hinge"     max(1 − x, 0)²                                              grows
"smoothed-hinge"    0 from x = 1 on, a parabola on 1 − width < x < 1, then 1 − x − width/2
"multinomial"       log Σ exp f − f_y of the scores of all classes              bounded
"squared"           ½ r² of the residual r                                      grows
"huber"             ½ r² up to |r| = width, then straight                       bounded
`Loss.custom`       the user's own
==================  ==========================================================  =============
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._custom import ArrayFunction, UserFunction, check_picklable

__all__ = ["Loss", "as_loss"]

Array = NDArray[np.float64]
Kind = Literal["margin", "residual", "classes"]


@dataclass(frozen=True)
class Loss:
    """A convex loss of one example.

    Attributes
    ----------
    name : str
        What it is called.
    of : {"margin", "residual", "classes"}
        What it looks at.
    smoothness : float
        The largest second derivative; step sizes follow from it.
    width : float
        Where the parabola ends, for the losses that have one.

    Examples
    --------
    >>> import numpy as np
    >>> from drolearn import Loss
    >>> exponential = Loss.custom(
    ...     lambda x: np.exp(-x), lambda x: -np.exp(-x), of="margin", smoothness=10.0
    ... )
    >>> value, slope = exponential.at([0.0, 1.0])
    >>> value.round(3)
    array([1.   , 0.368])
    """

    name: str
    kind: str
    of: Kind
    smoothness: float
    width: float = 1.0
    functions: tuple[UserFunction, ...] = field(default=(), repr=False, compare=False)
    sources: tuple[Any, ...] = field(default=(), repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """A loss of one's own is made anew on arrival."""
        if self.sources:
            check_picklable(*self.functions)
            return _remake, (*self.sources, self.of, self.smoothness, self.name)
        return Loss, (self.name, self.kind, self.of, self.smoothness, self.width)

    def __deepcopy__(self, memo: object) -> Loss:
        """Itself, as nothing about it can change."""
        return self

    @staticmethod
    def smoothed_hinge(width: float = 1.0) -> Loss:
        """The hinge loss with its corner rounded off over `width`."""
        return Loss(
            "smoothed-hinge",
            "smoothed-hinge",
            "margin",
            1.0 / _as_width(width),
            float(width),
        )

    @staticmethod
    def huber(width: float = 1.35) -> Loss:
        """Squares of small residuals, sizes of large ones."""
        return Loss("huber", "huber", "residual", 1.0, _as_width(width))

    @staticmethod
    def custom(
        value: ArrayFunction,
        slope: ArrayFunction,
        *,
        of: Literal["margin", "residual"],
        smoothness: float,
        name: str = "custom",
    ) -> Loss:
        """A loss of your own, from functions of arrays of margins or residuals.

        Parameters
        ----------
        value, slope : callable or scipy.LowLevelCallable
            The loss and its derivative.  They take an array of numbers and return as many; a
            LowLevelCallable of the signature ``double (double)`` runs at compiled speed.
        of : {"margin", "residual"}
            What the numbers are: y·f with y = ±1, or f − y.
        smoothness : float
            A bound on the second derivative where models are expected to go; it sets the
            automatic step sizes.
        name : str
            What to call it.
        """
        if of not in ("margin", "residual"):
            raise ValueError(
                f"The 'of' parameter must be 'margin' or 'residual'. Got {of!r} instead."
            )
        if not (isinstance(smoothness, int | float) and 0.0 < smoothness < math.inf):
            raise ValueError(
                f"The 'smoothness' parameter must be a positive number. Got {smoothness!r} instead."
            )
        functions = (UserFunction("value", value), UserFunction("slope", slope))
        _try_out(*functions)
        return Loss(
            name, "custom", of, float(smoothness), functions=functions, sources=(value, slope)
        )

    def at(self, x: ArrayLike) -> tuple[Array, Array]:
        """Values and slopes at margins or residuals x."""
        if self.of == "classes":
            raise ValueError("The multinomial loss has no single margin; use losses of scores.")
        scores = np.ravel(np.asarray(x, dtype=np.float64))
        # With these labels, scores are margins or residuals.
        labels = np.zeros(scores.size) if self.of == "residual" else np.ones(scores.size)
        return self.of_scores(scores, labels) if scores.size else (scores, scores)

    def of_scores(self, scores: Array, y: Array, threads: int = 1) -> tuple[Array, Array]:
        """Losses of scores, m for each label, and their slopes in the scores."""
        z, slopes = np.empty(y.size), np.empty(scores.size)
        _core.losses(self.core, scores, y, z, slopes, threads)
        return z, slopes

    def bends(self, scores: Array, y: Array, threads: int = 1) -> Array:
        """Second derivatives of losses of one score."""
        out = np.empty(y.size)
        _core.bends(self.core, scores, y, out, threads)
        return out

    @property
    def conjugate(self) -> Callable[[Array, Array], Array] | None:
        """l*(u) = sup u f − l(f) for labels y, row by row; None where it is unknown.

        Rows of the multinomial loss have one u for each class.
        """
        if self.of == "classes":
            return _multinomial_conjugate
        form = _CONJUGATES.get(self.kind)
        if form is None:
            return None

        def function(u: Array, y: Array) -> Array:
            with np.errstate(invalid="ignore"):
                if self.of == "residual":
                    return form(u, self.width) + u * y
                return form(u * y, self.width)

        return function

    @cached_property
    def core(self) -> _core.Loss:
        """The loss as the core sees it."""
        functions = tuple(function.core for function in self.functions) or None
        return _core.Loss(self.kind, self.of == "residual", self.width, functions)


def _remake(value: Any, slope: Any, of: Any, smoothness: float, name: str) -> Loss:
    return Loss.custom(value, slope, of=of, smoothness=smoothness, name=name)


def _as_width(width: float) -> float:
    if not (isinstance(width, int | float) and 0.0 < width < math.inf):
        raise ValueError(f"The 'width' parameter must be a positive number. Got {width!r} instead.")
    return float(width)


def _try_out(value: UserFunction, slope: UserFunction) -> None:
    """Refuse a loss that is not finite or convex, or whose slope is not its derivative."""
    grid = np.linspace(-5.0, 5.0, 201)
    values, slopes = value(grid), slope(grid)
    for name, found in (("value", values), ("slope", slopes)):
        if not np.isfinite(found).all():
            x = grid[~np.isfinite(found)][0]
            wrong = found[~np.isfinite(found)][0]
            raise ValueError(f"{name}(x) must be finite. It is {wrong} at x = {x:.6g}.")
    between = np.diff(values) / np.diff(grid)
    slack = 1e-7 * (1.0 + abs(values).max())
    for i in range(1, grid.size - 1):
        if between[i - 1] > between[i] + slack:
            raise ValueError(
                f"The loss must be convex. It is not at x = {grid[i]:.6g}, where its slope falls "
                f"from {between[i - 1]:.6g} to {between[i]:.6g}."
            )
        if not between[i - 1] - slack <= slopes[i] <= between[i] + slack:
            raise ValueError(
                f"slope must be the derivative of value. At x = {grid[i]:.6g} it is "
                f"{slopes[i]:.6g}, but value rises by {between[i - 1]:.6g} to {between[i]:.6g}."
            )


def _inside(a: Array, low: float, high: float, value: Array) -> Array:
    """The value where low ≤ a ≤ high but for rounding, and infinity elsewhere."""
    return np.where((a >= low - 1e-15) & (a <= high + 1e-15), value, math.inf)


def _entropy(q: Array) -> Array:
    """q log q, zero at zero."""
    from scipy.special import xlogy  # imported when used, as all of SciPy's heavy parts

    return xlogy(q, q)


def _logistic_conjugate(a: Array, width: float) -> Array:
    a = np.clip(a, -1.0, 0.0) if np.all((a >= -1.0 - 1e-15) & (a <= 1e-15)) else a
    return _inside(a, -1.0, 0.0, _entropy(-a) + _entropy(1.0 + a))


def _multinomial_conjugate(u: Array, y: Array) -> Array:
    """Σ q log q with q = u + e_y, which must be a probability."""
    q = u.reshape(y.size, -1).copy()
    q[np.arange(y.size), y.astype(np.int64)] += 1.0
    fine = (q.min(axis=1) >= -1e-15) & (abs(q.sum(axis=1) - 1.0) <= 1e-12)
    return np.where(fine, _entropy(np.maximum(q, 0.0)).sum(axis=1), math.inf)


#: l* of the margin or residual; labels are put in by `Loss.conjugate`.
_CONJUGATES: dict[str, Callable[[Array, float], Array]] = {
    "logistic": _logistic_conjugate,
    "squared-hinge": lambda a, _: _inside(a, -math.inf, 0.0, a + 0.25 * a * a),
    "smoothed-hinge": lambda a, k: _inside(a, -1.0, 0.0, a + 0.5 * k * a * a),
    "squared": lambda u, _: 0.5 * u * u,
    "huber": lambda u, k: _inside(u, -k, k, 0.5 * u * u),
}

_NAMED = {
    "logistic": Loss("logistic", "logistic", "margin", 0.25),
    "squared-hinge": Loss("squared-hinge", "squared-hinge", "margin", 2.0),
    "smoothed-hinge": Loss.smoothed_hinge(),
    "multinomial": Loss("multinomial", "multinomial", "classes", 0.5),
    "squared": Loss("squared", "squared", "residual", 1.0),
    "huber": Loss.huber(),
}


def as_loss(loss: str | Loss) -> Loss:
    """The loss that is meant."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in _NAMED:
        return _NAMED[loss]
    close = difflib.get_close_matches(str(loss), _NAMED, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    names = ", ".join(repr(name) for name in _NAMED)
    raise ValueError(
        f"The 'loss' parameter must be one of {names}, or a Loss. Got {loss!r} instead.{hint}"
    )
