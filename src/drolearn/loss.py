"""Losses of single examples, and the properties of them that solvers use.

A loss is a function of the margin y·f (y = ±1, f the score of the model), of the residual f − y, or
of the scores of all classes.

==================  ==========================================================  =============
name                loss                                                        slope
==================  ==========================================================  =============
"logistic"          log(1 + e⁻ˣ) of the margin x                                bounded
"squared-hinge"     max(1 − x, 0)²                                              unbounded
"smoothed-hinge"    max(1 − x, 0), made quadratic for 1 − width < x < 1         bounded
"multinomial"       log Σ exp f − f_y of the scores of all classes              bounded
"squared"           ½ r² of the residual r                                      unbounded
"huber"             ½ r² for abs(r) ≤ width, linear beyond                      bounded
`Loss.custom`       given by the user
==================  ==========================================================  =============
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drolearn import _core
from drolearn._custom import ArrayFunction, UserFunction, check_picklable
from drolearn._validation import as_reals, did_you_mean, float_or_nan

__all__ = ["Loss", "as_loss"]

Array = NDArray[np.float64]
Argument = Literal["margin", "residual", "classes"]


@dataclass(frozen=True)
class Loss:
    """A convex loss of one example.

    Use a name such as ``"logistic"``, or one of :meth:`smoothed_hinge`, :meth:`huber` and
    :meth:`custom`, instead of calling this class.

    Parameters
    ----------
    name : str
        The name of the loss.
    kind : str
        The name of its formula in the core.
    of : {"margin", "residual", "classes"}
        The argument of the loss: y·f, f − y, or the scores of all classes.
    smoothness : float
        The largest second derivative.  It determines the automatic step sizes.
    width : float, default=1.0
        The width of the quadratic part of the smoothed hinge and Huber losses.
    functions : tuple, default=()
        The checked functions of a custom loss.
    sources : tuple, default=()
        The functions of a custom loss as they were passed, for pickling.

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
    of: Argument
    smoothness: float
    width: float = 1.0
    functions: tuple[UserFunction, ...] = field(default=(), repr=False, compare=False)
    sources: tuple[Any, ...] = field(default=(), repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a custom loss as the arguments of `custom`."""
        if self.sources:
            check_picklable(*self.functions)
            return _make_custom, (*self.sources, self.of, self.smoothness, self.name)
        return Loss, (self.name, self.kind, self.of, self.smoothness, self.width)

    def __deepcopy__(self, memo: object) -> Loss:
        """Return the loss itself: it cannot be changed."""
        return self

    @staticmethod
    def smoothed_hinge(width: float = 1.0) -> Loss:
        """Create a hinge loss that is quadratic on an interval of length `width`.

        The loss of the margin x is 0 for x ≥ 1, (1 − x)²/(2 width) for 1 − width < x < 1, and
        1 − x − width/2 below.

        Parameters
        ----------
        width : float, default=1.0
            Length of the quadratic part, above 0.

        Returns
        -------
        Loss
            The loss.

        Examples
        --------
        >>> from drolearn import Loss
        >>> Loss.smoothed_hinge(0.5).at([0.0, 0.75, 2.0])[0]
        array([0.75  , 0.0625, 0.    ])
        """
        width = _as_positive("width", width)
        return Loss("smoothed-hinge", "smoothed-hinge", "margin", 1.0 / width, width)

    @staticmethod
    def huber(width: float = 1.35) -> Loss:
        """Create a Huber loss: quadratic for small residuals, linear for large ones.

        The loss of the residual r is ½ r² for |r| ≤ width and width·|r| − ½ width² beyond.

        Parameters
        ----------
        width : float, default=1.35
            Largest residual of the quadratic part, above 0.

        Returns
        -------
        Loss
            The loss.

        Examples
        --------
        >>> from drolearn import Loss
        >>> Loss.huber(1.0).at([0.5, -3.0])[0]
        array([0.125, 2.5  ])
        """
        return Loss("huber", "huber", "residual", 1.0, _as_positive("width", width))

    @staticmethod
    def custom(
        value: ArrayFunction,
        slope: ArrayFunction,
        *,
        of: Literal["margin", "residual"],
        smoothness: float,
        name: str = "custom",
    ) -> Loss:
        """Define a loss by two functions of arrays of margins or residuals.

        The functions take an array of numbers and return as many.  A
        :class:`scipy.LowLevelCallable` of the signature ``double (double)`` runs at compiled speed.
        The functions are checked on a grid from -5 to 5.

        Parameters
        ----------
        value : callable or scipy.LowLevelCallable
            The loss, a convex function.
        slope : callable or scipy.LowLevelCallable
            The derivative of the loss.
        of : {"margin", "residual"}
            The argument of the functions: y·f with y = ±1, or f − y.
        smoothness : float
            A bound on the second derivative for the arguments that occur in training.  It
            determines the automatic step sizes.
        name : str, default="custom"
            The name of the loss.

        Returns
        -------
        Loss
            The loss.

        Raises
        ------
        ValueError
            If the loss is not finite or not convex, or if `slope` is not its derivative; the
            message names a point where the check fails.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import Loss
        >>> loss = Loss.custom(np.cosh, np.sinh, of="residual", smoothness=10.0, name="cosh")
        >>> loss.at([0.0, 1.0])[1].round(3)
        array([0.   , 1.175])
        """
        if of not in ("margin", "residual"):
            raise ValueError(
                f"The 'of' parameter must be 'margin' or 'residual'. Got {of!r} instead."
            )
        bound = _as_positive("smoothness", smoothness)
        functions = (UserFunction("value", value), UserFunction("slope", slope))
        _check_functions(*functions)
        return Loss(name, "custom", of, bound, functions=functions, sources=(value, slope))

    def at(self, x: ArrayLike) -> tuple[Array, Array]:
        """Evaluate the loss and its derivative.

        Parameters
        ----------
        x : array-like of float
            Margins or residuals, whichever is the argument of the loss.  Arrays of more than one
            dimension are flattened.

        Returns
        -------
        values : ndarray of shape (n,)
            The losses.
        slopes : ndarray of shape (n,)
            Their derivatives.

        Raises
        ------
        ValueError
            If the loss is multinomial, or if `x` does not hold real numbers.

        Examples
        --------
        >>> from drolearn.loss import as_loss
        >>> values, slopes = as_loss("squared").at([0.0, 2.0])
        >>> values, slopes
        (array([0., 2.]), array([0., 2.]))
        """
        if self.of == "classes":
            raise ValueError(
                "The multinomial loss has no single margin; use of_scores with the scores of all "
                "classes."
            )
        scores = np.ascontiguousarray(as_reals("x", x).ravel())
        # With the label 1, scores are margins; with the label 0, they are residuals.
        labels = np.zeros(scores.size) if self.of == "residual" else np.ones(scores.size)
        return self.of_scores(scores, labels) if scores.size else (np.empty(0), np.empty(0))

    def of_scores(self, scores: Array, y: Array, threads: int = 1) -> tuple[Array, Array]:
        """Evaluate the loss and its derivatives in the scores of a model.

        Parameters
        ----------
        scores : ndarray of shape (n * m,)
            Scores of n rows, m for each row: one, or one for each class.  Contiguous float64.
        y : ndarray of shape (n,)
            Labels: ±1 for losses of the margin, numbers for losses of the residual, class numbers
            0, 1, … for the multinomial loss.  Contiguous float64.
        threads : int, default=1
            Number of threads.

        Returns
        -------
        values : ndarray of shape (n,)
            The losses.
        slopes : ndarray of shape (n * m,)
            Their derivatives in the scores.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn.loss import as_loss
        >>> scores, y = np.array([1.0, 2.0]), np.array([1.0, 0.0])
        >>> as_loss("squared").of_scores(scores, y)
        (array([0., 2.]), array([0., 2.]))
        """
        z, slopes = np.empty(y.size), np.empty(scores.size)
        _core.losses(self.core, scores, y, z, slopes, threads)
        return z, slopes

    def bends(self, scores: Array, y: Array, threads: int = 1) -> Array:
        """Evaluate the second derivative of the loss in the score.

        Parameters
        ----------
        scores : ndarray of shape (n,)
            One score for each row.  Contiguous float64.
        y : ndarray of shape (n,)
            Labels: ±1 for losses of the margin, numbers for losses of the residual.  Contiguous
            float64.
        threads : int, default=1
            Number of threads.

        Returns
        -------
        ndarray of shape (n,)
            The second derivatives.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn.loss import as_loss
        >>> as_loss("logistic").bends(np.array([0.0]), np.array([1.0]))
        array([0.25])
        """
        out = np.empty(y.size)
        _core.bends(self.core, scores, y, out, threads)
        return out

    def clip_slopes(self, u: Array, y: Array) -> Array:
        """Move slopes to the closest ones at which the conjugate is finite.

        Parameters
        ----------
        u : ndarray of shape (n,)
            One slope for each row.
        y : ndarray of shape (n,)
            Labels: ±1 for losses of the margin, numbers for losses of the residual.

        Returns
        -------
        ndarray of shape (n,)
            The slopes.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn.loss import as_loss
        >>> as_loss("logistic").clip_slopes(np.array([-1.5, 0.25]), np.array([1.0, -1.0]))
        array([-1.  ,  0.25])
        """
        low, high = _CONJUGATES[self.kind][0](self.width)
        return np.clip(u, low, high) if self.of == "residual" else y * np.clip(u * y, low, high)

    @property
    def conjugate(self) -> Callable[[Array, Array], Array] | None:
        """The convex conjugate l*(u) = sup u f − l(f), as a function of slopes and labels.

        The function takes slopes u, one for each row or one for each row and class, and labels y;
        it returns one number for each row.  The conjugate of a custom loss is unknown: None.
        """
        if self.of == "classes":
            return _multinomial_conjugate
        if self.kind not in _CONJUGATES:
            return None
        limits, formula = _CONJUGATES[self.kind]
        low, high = limits(self.width)

        def function(u: Array, y: Array) -> Array:
            a = u if self.of == "residual" else u * y
            with np.errstate(over="ignore", invalid="ignore"):
                value = formula(np.clip(a, low, high), self.width)
                value += u * y if self.of == "residual" else 0.0
            inside = (a >= low - 1e-15) & (a <= high + 1e-15)  # up to rounding
            return np.where(inside, value, math.inf)

        return function

    @cached_property
    def core(self) -> _core.Loss:
        """The loss for the compiled core."""
        functions = tuple(function.core for function in self.functions) or None
        return _core.Loss(self.kind, self.of == "residual", self.width, functions)


def _make_custom(value: Any, slope: Any, of: Any, smoothness: float, name: str) -> Loss:
    """Unpickle a custom loss."""
    return Loss.custom(value, slope, of=of, smoothness=smoothness, name=name)


def _as_positive(parameter: str, value: float) -> float:
    number = float_or_nan(value)
    if not 0.0 < number < math.inf:
        raise ValueError(
            f"The '{parameter}' parameter must be a positive number. Got {value!r} instead."
        )
    return number


def _check_functions(value: UserFunction, slope: UserFunction) -> None:
    """Reject a loss that is not finite or convex, or whose slope is not its derivative."""
    grid = np.linspace(-5.0, 5.0, 201)
    values, slopes = value(grid), slope(grid)
    for name, numbers in (("value", values), ("slope", slopes)):
        if not np.isfinite(numbers).all():
            x, wrong = grid[~np.isfinite(numbers)][0], numbers[~np.isfinite(numbers)][0]
            raise ValueError(f"{name}(x) must be finite. It is {wrong} at x = {x:.6g}.")
    with np.errstate(all="ignore"):
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


def _entropy(q: Array) -> Array:
    """q log q, zero at zero."""
    from scipy.special import xlogy  # imported here because importing SciPy is slow

    return xlogy(q, q)


def _multinomial_conjugate(u: Array, y: Array) -> Array:
    """Σ q log q with q = u + e_y, which must be a probability vector."""
    q = u.reshape(y.size, -1).copy()
    q[np.arange(y.size), y.astype(np.int64)] += 1.0
    valid = (q.min(axis=1) >= -1e-15) & (abs(q.sum(axis=1) - 1.0) <= 1e-12)
    return np.where(valid, _entropy(np.maximum(q, 0.0)).sum(axis=1), math.inf)


#: The range of the slope in the margin or residual for a width, and l* as a function of slope and
#: width, which is infinite outside of this range.  `Loss.conjugate` adds the labels.
_CONJUGATES: dict[
    str, tuple[Callable[[float], tuple[float, float]], Callable[[Array, float], Array]]
] = {
    "logistic": (lambda _: (-1.0, 0.0), lambda a, _: _entropy(-a) + _entropy(1.0 + a)),
    "squared-hinge": (lambda _: (-math.inf, 0.0), lambda a, _: a + 0.25 * a * a),
    "smoothed-hinge": (lambda _: (-1.0, 0.0), lambda a, k: a + 0.5 * k * a * a),
    "squared": (lambda _: (-math.inf, math.inf), lambda u, _: 0.5 * u * u),
    "huber": (lambda k: (-k, k), lambda u, _: 0.5 * u * u),
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
    """Return a loss object for a name or an object.

    Parameters
    ----------
    loss : str or Loss
        One of the names in the table of :mod:`drolearn.loss`, or a loss object.

    Returns
    -------
    Loss
        The loss of that name, or the object itself.

    Raises
    ------
    ValueError
        If there is no loss of that name; the message suggests a similar one.

    Examples
    --------
    >>> from drolearn.loss import as_loss
    >>> as_loss("huber").width
    1.35
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in _NAMED:
        return _NAMED[loss]
    names = ", ".join(repr(name) for name in _NAMED)
    raise ValueError(
        f"The 'loss' parameter must be one of {names}, or a Loss. "
        f"Got {loss!r} instead.{did_you_mean(loss, _NAMED)}"
    )
