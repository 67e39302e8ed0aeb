"""Data sets that are included in the package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn.datasets.sources import one_hot_levels

__all__ = ["Adult", "BikeHour", "load_adult", "load_bike_hour"]


@dataclass(frozen=True, slots=True, eq=False)
class Adult:
    """The Adult data set: whether a person earns more than 50,000 dollars a year.

    Attributes
    ----------
    X : ndarray of shape (45222, 119), float32
        Five numeric columns in their original units (such as age in years and capital gain in
        dollars), then one-hot columns, also of the years of education, as in the paper.
    y : ndarray of shape (45222,), int8
        +1 for an income above 50,000 dollars, -1 otherwise.
    sex, race : ndarray of shape (45222,), str
        The groups of each person.  Both are also encoded in X.
    is_test : ndarray of shape (45222,), bool
        True for the rows of the original test file.
    feature_names : ndarray of shape (119,), str
        Names of the columns of X.

    Examples
    --------
    >>> from drolearn.datasets import load_adult
    >>> adult = load_adult()
    >>> adult.feature_names[:2].tolist()
    ['age', 'fnlwgt']
    >>> sorted(set(adult.sex.tolist()))
    ['Female', 'Male']
    """

    X: NDArray[np.float32]
    y: NDArray[np.int8]
    sex: NDArray[np.str_]
    race: NDArray[np.str_]
    is_test: NDArray[np.bool_]
    feature_names: NDArray[np.str_]


def load_adult() -> Adult:
    """Load the Adult data set (UCI, CC BY 4.0), which is included in the package.

    Returns
    -------
    Adult
        Features, labels and groups of 45,222 people; rows with missing values are dropped.

    See Also
    --------
    load : The same X and y by name, ``load("adult")``.

    Examples
    --------
    >>> from drolearn.datasets import load_adult
    >>> adult = load_adult()
    >>> adult.X.shape, int((adult.y == 1).sum())
    ((45222, 119), 11208)
    """
    stored = _stored("adult.npz", "X", "y", "sex", "race", "is_test", "feature_names")
    X, names = _one_hot_education(stored.pop("X"), stored.pop("feature_names"))
    return Adult(X, feature_names=names, **stored)


@dataclass(frozen=True, slots=True, eq=False)
class BikeHour:
    """The Bike Sharing data set: how many bicycles are rented in an hour.

    More are rented in 2012 than in 2011, and no column of X tells the year.

    Attributes
    ----------
    X : ndarray of shape (17379, 57), float32
        Temperature, felt temperature, humidity and wind speed, all from 0 to 1, whether the day is
        a holiday and whether it is a working day, then one-hot columns of season, month, hour,
        day of the week and weather.
    y : ndarray of shape (17379,), float32
        Number of rentals in this hour, from 1 to 977.
    year : ndarray of shape (17379,), int16
        2011 or 2012.  Rows are in the order of time.
    feature_names : ndarray of shape (57,), str
        Names of the columns of X.

    Examples
    --------
    >>> from drolearn.datasets import load_bike_hour
    >>> bike = load_bike_hour()
    >>> bike.feature_names[:3].tolist()
    ['temp', 'atemp', 'hum']
    >>> [int(bike.y[bike.year == year].mean()) for year in (2011, 2012)]
    [143, 234]
    """

    X: NDArray[np.float32]
    y: NDArray[np.float32]
    year: NDArray[np.int16]
    feature_names: NDArray[np.str_]


def load_bike_hour() -> BikeHour:
    """Load the Bike Sharing data set (UCI, CC BY 4.0), which is included in the package.

    Returns
    -------
    BikeHour
        Features and rentals of 17,379 hours in Washington, D.C., and the year of each.

    See Also
    --------
    load : The same X and y by name, ``load("bike_hour")``.

    Examples
    --------
    >>> from drolearn.datasets import load_bike_hour
    >>> bike = load_bike_hour()
    >>> bike.X.shape, int((bike.year == 2012).sum())
    ((17379, 57), 8734)
    """
    stored = _stored("bike_hour.npz", "X", "y", "year", "feature_names")
    return BikeHour(np.ascontiguousarray(stored.pop("X")), **stored)


def _stored(file: str, *names: str) -> dict[str, NDArray[Any]]:
    """Arrays of a file of the package."""
    source = resources.files("drolearn.datasets") / file
    with source.open("rb") as opened, np.load(opened) as stored:
        return {name: stored[name] for name in names}


def _one_hot_education(
    X: NDArray[np.float32], names: NDArray[np.str_]
) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    """Replace the years of education, a number in the file, by one-hot columns after education."""
    at = names.tolist().index("education-num")
    end = names.tolist().index("education_Some-college") + 1
    years = X[:, at].astype(int).astype(str)
    levels = np.char.add("education-num_", np.unique(years))
    parts = (X[:, :at], X[:, at + 1 : end], one_hot_levels(years), X[:, end:])
    return np.hstack(parts), np.hstack([names[:at], names[at + 1 : end], levels, names[end:]])
