"""The data sets of the paper, and where to get them.

A data set is looked for in the folder that DROLEARN_DATA names, in the cache (DROLEARN_CACHE, or
the usual place of the system) and in the package. If none has it, it is fetched from its public
source and kept in the cache.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from drolearn.datasets import sources
from drolearn.datasets.embedded import load_adult
from drolearn.datasets.files import DataError, Dataset, cache, folder, read_rows, write_dataset
from drolearn.datasets.generated import text_like

__all__ = ["CATALOGUE", "Entry", "fetch", "load", "read", "where"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about a data set before it is there.

    `file` is its name in folder and cache; `get` brings it from its `home`; `inside` makes it
    from what comes with the package.
    """

    name: str
    n: int
    d: int
    home: str
    licence: str
    about: str
    get: Callable[[], tuple[Any, NDArray[np.int8]]] | None = None
    inside: Callable[[], tuple[Any, NDArray[np.int8]]] | None = None
    stored_as: str = ""

    @property
    def file(self) -> str:
        """Name of the file in folder and cache."""
        return (self.stored_as or self.name) + ".npz"


def where(name: str) -> str:
    """Where `load` would take a data set from now: a path, "package", "generated" or its home."""
    entry = _entry(name)
    found = _stored(entry)
    if found is not None:
        return str(found)
    if entry.inside is not None:
        return "generated" if entry.home == "generated" else "package"
    return entry.home


def load(name: str) -> Dataset:
    """A data set from the nearest place that has it.

    Raises :class:`DataError`, in one sentence, if none has or what is there is damaged.

    Examples
    --------
    >>> from drolearn.datasets import load
    >>> load("adult").X.shape
    (45222, 119)
    """
    entry = _entry(name)
    found = _stored(entry)
    if found is not None:
        return read(name, found)
    if entry.inside is not None:
        return _checked(entry, entry.inside(), where(name))
    return read(name, fetch(name))


def read(name: str, path: str | os.PathLike[str]) -> Dataset:
    """A data set from a file; if it is the file of a data set of the catalogue, checked."""
    rows, entry = read_rows(Path(path), name), CATALOGUE.get(name)
    if entry is not None and Path(path).name == entry.file:
        return _checked(entry, rows, str(path))
    return Dataset(name, *rows, str(path))


def fetch(name: str) -> Path:
    """Bring a data set from its public home into the cache, all of it or nothing."""
    entry = _entry(name)
    again = f"run `drolearn datasets --fetch {name}` to try again"
    if entry.get is None:
        raise DataError(
            f"{name!r} has no public home to fetch it from: it is "
            + ("made when it is loaded." if entry.inside else f"{entry.about}.")
        )
    try:
        rows = entry.get()
    except ModuleNotFoundError as error:
        raise DataError(
            f"Fetching {name!r} needs {error.name}: pip install 'drolearn[paper]'."
        ) from error
    except Exception as error:  # what a server sends can go wrong in any way
        raise DataError(
            f"{name!r} could not be fetched from {entry.home} ({_reason(error)}): {again} when "
            f"that is mended, or put {entry.file} into the folder that DROLEARN_DATA names."
        ) from error
    found = _checked(entry, rows, entry.home)
    place = cache()
    if place is None:
        raise DataError(
            f"Keeping {name!r} needs pooch: pip install 'drolearn[paper]', or set DROLEARN_CACHE "
            f"to a folder."
        )
    target = place / entry.file
    try:
        write_dataset(target, found)
    except OSError as error:
        raise DataError(
            f"{name!r} was fetched but could not be kept in {target.parent} ({error.strerror}): "
            f"make room or set DROLEARN_CACHE to another folder, and {again}."
        ) from error
    return target


def _reason(error: Exception) -> str:
    """What went wrong, in a few words."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, TimeoutError) or "timed out" in text:
        return "the server does not answer"
    lost = ("resolution", "resolve", "unreachable", "refused", "Max retries", "urlopen error")
    if isinstance(error, OSError) and any(word in text for word in lost):
        return "the server cannot be reached"
    return text[:200] or type(error).__name__


def _entry(name: str) -> Entry:
    """What is known about a data set of this name."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    close = difflib.get_close_matches(name, CATALOGUE, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`drolearn datasets` lists them."
    raise DataError(f"There is no data set {name!r}: {hint}")


def _stored(entry: Entry) -> Path | None:
    """The file in folder or cache, if there is one."""
    places = [
        place for place in (folder(), None if entry.home == "generated" else cache()) if place
    ]
    return next((p / entry.file for p in places if (p / entry.file).exists()), None)


def _checked(entry: Entry, rows: tuple[Any, NDArray[np.int8]], source: str) -> Dataset:
    """The data set, if it has as many rows, columns and classes as it should."""
    X, y = rows
    if X.shape != (entry.n, entry.d) or y.shape != (entry.n,):
        raise DataError(
            f"{entry.name!r} from {source} has {X.shape[0]} rows and {X.shape[1]} columns and "
            f"should have {entry.n} and {entry.d}: it is not the data set of the paper; put "
            f"{entry.file} of the right shape into the folder that DROLEARN_DATA names."
        )
    if set(np.unique(y).tolist()) != {-1, 1}:
        raise DataError(
            f"{entry.name!r} from {source} should have the labels 1 and -1 and has "
            f"{np.unique(y)[:5].tolist()}: replace it."
        )
    if not np.isfinite(X.data if sp.issparse(X) else X).all():
        raise DataError(
            f"{entry.name!r} from {source} has numbers that are not finite: replace it."
        )
    return Dataset(entry.name, X, y.astype(np.int8), source)


def _adult_of_the_paper() -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """The embedded rows with the years of education, too, as zeros and ones: 119 columns."""
    adult = load_adult()
    names = adult.feature_names.tolist()
    at, last = names.index("education-num"), names.index("education_Some-college") + 1
    years = sources.one_hot_levels(adult.X[:, at].astype(int))
    X = adult.X
    return np.hstack([X[:, :at], X[:, at + 1 : last], years, X[:, last:]]), adult.y


#: Documents of "text_like": RCV1's number and some for testing.
_TEXTS = 820_000


def _catalogue() -> dict[str, Entry]:
    majority = "the most frequent class against the rest"
    given = "two classes as they are"

    def of_openml(name: str, n: int, d: int, about: str, openml: str = "", **options: Any) -> Entry:
        get = partial(sources.openml, openml or name, **options)
        return Entry(name, n, d, "openml.org", "public", about, get)

    entries = [
        of_openml("tr31.wc", 927, 10128, f"word counts; {majority}"),
        Entry(
            "hiv1", 5830, 160, "archive.ics.uci.edu", "CC BY 4.0",
            "octamers, one of 20 at 8 places; cleaved or not", sources.hiv1,
        ),
        of_openml("gina_prior", 3468, 784, given),
        of_openml("la1s.wc", 3204, 13195, f"word counts; {majority}"),
        of_openml("gina_agnostic", 3468, 970, given),
        of_openml("bioresponse", 3751, 1776, given, "Bioresponse"),
        of_openml(
            "ova_breast", 1545, 10935, "breast against the rest", "OVA_Breast",
            positive="Breast", ignore=("ID_REF",),
        ),
        of_openml("fabert", 8237, 800, majority),
        of_openml("dilbert", 10000, 2000, majority),
        Entry(
            "adult", 45222, 119, "archive.ics.uci.edu", "CC BY 4.0",
            "above 50,000 dollars or not; rows that lack values dropped", sources.adult,
            _adult_of_the_paper, "adult_d119",
        ),
        of_openml("imdb.drama", 120919, 1001, given, "IMDB.drama"),
        of_openml("guillermo", 20000, 4296, given),
        of_openml("riccardo", 20000, 4296, given),
        Entry(
            "rcv1", 804414, 47236, "figshare.com (scikit-learn)", "for research",
            "term weights, rows of norm one; corporate/industrial or not", sources.rcv1,
        ),
        Entry(
            "rcv1_27k", 27613, 47236, "DROLEARN_DATA", "for research",
            "a part of rcv1, to be found in the folder that DROLEARN_DATA names only",
        ),
        Entry(
            "text_like", _TEXTS, 47236, "generated", "MIT",
            "two classes of documents of rcv1's size and shape", inside=partial(text_like, _TEXTS),
        ),
    ]  # fmt: skip
    return {entry.name: entry for entry in entries}


#: The paper's fourteen data sets in the order of its Table 1, and two that stand in for rcv1.
CATALOGUE = _catalogue()
