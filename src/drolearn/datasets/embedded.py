"""Data sets that come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

__all__ = ["Adult", "load_adult"]


@dataclass(frozen=True, slots=True, eq=False)
class Adult:
    """The Adult data set: does a person earn more than 50,000 dollars a year?

    Attributes
    ----------
    X : array of shape (45222, 104), float32
        Six numbers as they are (capital gains in dollars, ages in years), then zeros and ones.
    y : array of shape (45222,), int8
        +1 above 50,000 dollars, -1 at most that.
    sex, race : array of shape (45222,), str
        The groups people belong to; also part of X.
    is_test : array of shape (45222,), bool
        The rows that the source sets aside for testing.
    feature_names : array of shape (104,), str
        What the columns of X are.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int8]
    sex: NDArray[np.str_]
    race: NDArray[np.str_]
    is_test: NDArray[np.bool_]
    feature_names: NDArray[np.str_]


def load_adult() -> Adult:
    """Load the Adult data set (UCI, CC BY 4.0), which comes with the package.

    Examples
    --------
    >>> from drolearn.datasets import load_adult
    >>> adult = load_adult()
    >>> adult.X.shape, int((adult.y == 1).sum())
    ((45222, 104), 11208)
    """
    source = resources.files("drolearn.datasets") / "adult.npz"
    with source.open("rb") as file, np.load(file) as stored:
        names = ("X", "y", "sex", "race", "is_test", "feature_names")
        return Adult(*(stored[name] for name in names))
