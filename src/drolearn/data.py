"""Data sets: the paper's fourteen and some stand-ins, from the nearest place that has them.

A data set is looked for in the folder that DROLEARN_DATA names, in the cache (DROLEARN_CACHE, or
the usual place of the system), in the package, and at last in its public home, from which it goes
to the cache.  Folder and cache hold `name.npz`: `format` is "dense" (with `X`) or "csr" (with
`data`, `indices`, `indptr`, `shape`), and `y` is ±1.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from drolearn import fetch as homes
from drolearn.storage import replacing

__all__ = [
    "CATALOGUE",
    "Adult",
    "DataError",
    "Dataset",
    "Entry",
    "cache",
    "fetch",
    "folder",
    "load",
    "load_adult",
    "read",
    "text_like",
    "where",
]


class DataError(RuntimeError):
    """A data set cannot be had, and what can be done about it."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Rows and labels.

    Attributes
    ----------
    name : str
    X : array or CSR matrix of shape (n, d), float32
    y : array of shape (n,), int8
        +1 or -1.
    source : str
        Where it came from.
    """

    name: str
    X: Any
    y: NDArray[np.int8]
    source: str


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


def folder() -> Path | None:
    """The folder that DROLEARN_DATA names, if it does."""
    named = os.environ.get("DROLEARN_DATA")
    if named and not Path(named).is_dir():
        raise DataError(f"DROLEARN_DATA names {named!r}, which is no folder: mend or unset it.")
    return Path(named) if named else None


def cache() -> Path:
    """Where data sets are kept that were fetched."""
    named = os.environ.get("DROLEARN_CACHE")
    if named:
        return Path(named)
    usual = {
        "win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local"),
        "darwin": "~/Library/Caches",
    }.get(sys.platform, os.environ.get("XDG_CACHE_HOME", "~/.cache"))
    return Path(usual).expanduser() / "drolearn"


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
    >>> from drolearn.data import load
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
    rows, entry = _read(Path(path), name), CATALOGUE.get(name)
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
    target = cache() / entry.file
    try:
        _write(target, found)
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


def _read(path: Path, name: str) -> tuple[Any, NDArray[np.int8]]:
    """X and y of a file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            y = stored["y"]
            if str(stored["format"]) != "csr":
                return np.ascontiguousarray(stored["X"], dtype=np.float32), y
            parts = (stored["data"], stored["indices"], stored["indptr"])
            X = sp.csr_matrix(parts, shape=tuple(stored["shape"]), dtype=np.float32)
            X.check_format(full_check=True)
            return X, y
    except FileNotFoundError:
        raise DataError(
            f"{path} is not there: set DROLEARN_DATA to the folder that holds {path.name}."
        ) from None
    except Exception as error:  # files can be damaged in any way
        raise DataError(
            f"{path} is damaged or not a data set ({' '.join(str(error).split())[:100]}): delete "
            f"it and run `drolearn datasets --fetch {name}`, or put a good copy there."
        ) from error


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


def _write(target: Path, found: Dataset) -> None:
    """A file of the folder's form, or none."""
    content: dict[str, Any] = {"format": np.array("dense"), "y": found.y}
    if sp.issparse(found.X):
        X = sp.csr_matrix(found.X)
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        content |= {"format": np.array("csr"), "shape": np.array(X.shape), **parts}
    else:
        content["X"] = found.X
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        np.savez_compressed(file, **content)


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
    >>> from drolearn.data import load_adult
    >>> adult = load_adult()
    >>> adult.X.shape, int((adult.y == 1).sum())
    ((45222, 104), 11208)
    """
    source = resources.files("drolearn") / "_files" / "adult.npz"
    with source.open("rb") as file, np.load(file) as stored:
        names = ("X", "y", "sex", "race", "is_test", "feature_names")
        return Adult(*(stored[name] for name in names))


def _adult_of_the_paper() -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """The embedded rows with the years of education, too, as zeros and ones: 119 columns."""
    adult = load_adult()
    names = adult.feature_names.tolist()
    at, last = names.index("education-num"), names.index("education_Some-college") + 1
    years = homes.one_hot_levels(adult.X[:, at].astype(int))
    X = adult.X
    return np.hstack([X[:, :at], X[:, at + 1 : last], years, X[:, last:]]), adult.y


def text_like(
    rows: int, columns: int = 47_236, words: int = 76, seed: int = 0
) -> tuple[Any, NDArray[np.int8]]:
    """Documents of two classes whose words follow Zipf laws that differ by class.

    Each document draws its words (about `words` different ones) from a law of ranks
    1/(rank + 10); in each class a tenth of the words is up to e² times as frequent as in the
    other.  Values are log counts times inverse document frequencies, rows have norm one, and
    4% of the labels are flipped: the size and shape of RCV1.
    """
    rng = np.random.default_rng(seed)
    law = 1.0 / (np.arange(columns) + 10.0)
    law = law[rng.permutation(columns)]
    tilt = rng.uniform(-1.0, 1.0, columns) * (rng.random(columns) < 0.2)
    y = np.where(rng.random(rows) < 0.47, 1, -1)
    lengths = rng.poisson(1.06 * words, rows)
    indptr, indices, data = [0], [], []
    cumulative = {s: np.cumsum(law * np.exp(s * tilt)) for s in (1, -1)}
    step = 20_000
    for first in range(0, rows, step):
        last = min(first + step, rows)
        for sign in (1, -1):  # one stream of words for each class, cut into documents
            cumulative[sign] /= cumulative[sign][-1]
        own = lengths[first:last]
        document = np.repeat(np.arange(last - first), own)
        u = rng.random(document.size)
        up = y[first:last][document] == 1
        word = np.where(
            up, np.searchsorted(cumulative[1], u), np.searchsorted(cumulative[-1], u)
        ).astype(np.int64)
        key, count = np.unique(document * columns + word, return_counts=True)
        indices.append((key % columns).astype(np.int32))
        data.append((1.0 + np.log(count)).astype(np.float32))
        ends = np.searchsorted(key // columns, np.arange(last - first), side="right")
        indptr.extend((indptr[-1] + ends).tolist())
    X = sp.csr_matrix(
        (np.concatenate(data), np.concatenate(indices), np.array(indptr, dtype=np.int64)),
        shape=(rows, columns),
    )
    X.indptr = X.indptr.astype(np.int32)
    frequency = np.bincount(X.indices, minlength=columns)
    X.data *= np.log(rows / np.maximum(frequency, 1.0)).astype(np.float32)[X.indices]
    squares = np.add.reduceat(np.append(X.data, 0.0) ** 2, X.indptr[:-1])
    squares = np.where(np.diff(X.indptr) > 0, squares, 1.0)
    X.data /= np.repeat(np.sqrt(squares), np.diff(X.indptr)).astype(np.float32)
    flip = rng.random(rows) < 0.04
    return X, np.where(flip, -y, y).astype(np.int8)


#: Documents of "text_like": RCV1's number and some for testing.
_TEXTS = 820_000


def _catalogue() -> dict[str, Entry]:
    majority = "the most frequent class against the rest"
    given = "two classes as they are"

    def of_openml(name: str, n: int, d: int, about: str, openml: str = "", **options: Any) -> Entry:
        get = partial(homes.openml, openml or name, **options)
        return Entry(name, n, d, "openml.org", "public", about, get)

    entries = [
        of_openml("tr31.wc", 927, 10128, f"word counts; {majority}"),
        Entry(
            "hiv1", 5830, 160, "archive.ics.uci.edu", "CC BY 4.0",
            "octamers, one of 20 at 8 places; cleaved or not", homes.hiv1,
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
            "above 50,000 dollars or not; rows that lack values dropped", homes.adult,
            _adult_of_the_paper, "adult_d119",
        ),
        of_openml("imdb.drama", 120919, 1001, given, "IMDB.drama"),
        of_openml("guillermo", 20000, 4296, given),
        of_openml("riccardo", 20000, 4296, given),
        Entry(
            "rcv1", 804414, 47236, "figshare.com (scikit-learn)", "for research",
            "term weights, rows of norm one; corporate/industrial or not", homes.rcv1,
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
