"""The data sets of the paper and of the package, and where to get them.

A data set is read from the folder that DROLEARN_DATA names, from the cache (DROLEARN_CACHE, or
pooch's default for the operating system), or from the package, in this order.  Otherwise it is
downloaded from its public source and kept in the cache.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from drolearn.datasets import sources
from drolearn.datasets.embedded import load_adult, load_bike_hour
from drolearn.datasets.files import DataError, Dataset, folder, read_rows, write_rows
from drolearn.datasets.generated import text_like

if TYPE_CHECKING:
    from pooch import Pooch

__all__ = ["CATALOGUE", "Entry", "fetch", "load", "read", "where"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about a data set before it is loaded.

    Attributes
    ----------
    name : str
        Name for :func:`load`.
    n, d : int
        Number of rows and columns.
    home : str
        Public source, "generated", or "DROLEARN_DATA" if only that folder can have it.
    licence : str
        Licence of the data.
    about : str
        Short description.
    get : callable or None, default=None
        Downloads X and y from `home`; None if there is no public source.
    inside : callable or None, default=None
        Makes X and y without a download; None if that is not possible.
    stored_as : str, default=""
        Name of the file without ".npz"; empty if it is `name`.
    task : {"classification", "regression"}, default="classification"
        Whether y is +1 or -1, or a number to predict.

    Examples
    --------
    >>> from drolearn.datasets import CATALOGUE
    >>> entry = CATALOGUE["adult"]
    >>> entry.n, entry.d, entry.licence, entry.file
    (45222, 119, 'CC BY 4.0', 'adult_d119.npz')
    """

    name: str
    n: int
    d: int
    home: str
    licence: str
    about: str
    get: Callable[[], tuple[Any, NDArray[Any]]] | None = None
    inside: Callable[[], tuple[Any, NDArray[Any]]] | None = None
    stored_as: str = ""
    task: str = "classification"

    @property
    def file(self) -> str:
        """Name of the file in the folder and in the cache."""
        return (self.stored_as or self.name) + ".npz"


def where(name: str) -> str:
    """Say where :func:`load` would read a data set from.

    Parameters
    ----------
    name : str
        Name of a data set, a key of :data:`CATALOGUE`.

    Returns
    -------
    str
        A path, "package", "generated", or the public source if the data set must be downloaded.

    Raises
    ------
    DataError
        If there is no data set of this name.

    Examples
    --------
    >>> from drolearn.datasets import where
    >>> where("text_like")
    'generated'
    """
    entry = _entry(name)
    path = _stored(entry)
    if path is not None:
        return str(path)
    if entry.inside is not None:
        return "generated" if entry.home == "generated" else "package"
    return entry.home


def load(name: str) -> Dataset:
    """Load a data set by name; download it if it is not on this machine.

    It is read from the folder that DROLEARN_DATA names, from the cache, from the package, or from
    its public source, in this order.  Shape and labels are checked.

    Parameters
    ----------
    name : str
        Name of a data set, a key of :data:`CATALOGUE`.

    Returns
    -------
    Dataset
        Features, and labels or numbers to predict.

    Raises
    ------
    DataError
        If there is no data set of this name, if it cannot be downloaded, or if its file is
        damaged.

    Examples
    --------
    >>> from drolearn.datasets import load
    >>> load("adult").X.shape
    (45222, 119)
    """
    entry = _entry(name)
    path = _stored(entry)
    if path is not None:
        return read(name, path)
    if entry.inside is not None:
        return _checked(entry, entry.inside(), where(name))
    return read(name, fetch(name))


def read(name: str, path: str | os.PathLike[str]) -> Dataset:
    """Read a data set from a file.

    If the file has the name that the catalogue gives to this data set, its shape and labels are
    checked.

    Parameters
    ----------
    name : str
        Name of the data set.
    path : str or os.PathLike
        A file with `y`, and with `X` and `format="dense"`, or with `data`, `indices`, `indptr`,
        `shape` and `format="csr"`, as :func:`numpy.savez` writes them.

    Returns
    -------
    Dataset
        Features and labels.

    Raises
    ------
    DataError
        If the file does not exist, is damaged, or is not the data set of this name.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from drolearn.datasets import read
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place) / "mine.npz"
    ...     np.savez(path, format="dense", X=np.eye(2), y=np.array([1, -1]))
    ...     mine = read("mine", path)
    >>> mine.X.shape, mine.y.tolist()
    ((2, 2), [1, -1])
    """
    rows, entry = read_rows(Path(path), name), CATALOGUE.get(name)
    if entry is not None and Path(path).name == entry.file:
        return _checked(entry, rows, str(path))
    return Dataset(name, *rows, str(path))


def fetch(name: str) -> Path:
    """Download a data set into the cache, unless the cache has a good copy.

    The cache is the folder that DROLEARN_CACHE names, by default pooch's cache of the operating
    system.  A damaged copy is replaced, and a download that fails leaves no file.

    Parameters
    ----------
    name : str
        Name of a data set with a public source, a key of :data:`CATALOGUE`.

    Returns
    -------
    pathlib.Path
        The file in the cache.

    Raises
    ------
    DataError
        If the data set has no public source or needs none, if the download fails or has another
        content than the data set of the paper, or if the cache cannot be written.

    Examples
    --------
    >>> from drolearn.datasets import fetch
    >>> fetch("hiv1")  # doctest: +SKIP
    PosixPath('/home/me/.cache/drolearn/hiv1.npz')
    """
    entry = _entry(name)
    if entry.get is None:
        if entry.inside is not None:
            raise DataError(f"{name!r} needs no download: call load({name!r}).")
        raise DataError(f"{name!r} cannot be fetched, as it has no public source: {_put(entry)}.")
    cache = _cache()
    if cache is None:
        raise DataError(f"Fetching {name!r} needs pooch: run pip install 'drolearn[paper]'.")
    target = cache.abspath / entry.file
    try:
        if target.exists() and not _is_good(name, target):
            target.unlink()  # pooch keeps files that exist
        downloader: Any = partial(_download, entry)
        cache.fetch(entry.file, downloader=downloader)
    except OSError as error:
        # pooch replaces the text of this error by a longer one.
        reason = "Permission denied" if isinstance(error, PermissionError) else error.strerror
        raise DataError(
            f"{name!r} cannot be kept in {target.parent} ({reason}): free some space there, make "
            f"it writable, or set DROLEARN_CACHE to another folder, and {_again(name)}."
        ) from error
    return target


def _cache() -> Pooch | None:
    """The cache of prepared data sets; None if pooch is not installed."""
    try:
        import pooch
    except ModuleNotFoundError:  # the package's own data sets must load without it
        return None
    pooch.get_logger().setLevel("ERROR")
    # No checksums: the bytes of prepared files depend on the version of zlib.  The sources check
    # what they download, and `_checked` checks every file that is read.
    homes = {entry.file: entry.home for entry in CATALOGUE.values() if entry.get is not None}
    return pooch.create(
        pooch.os_cache("drolearn"), "", env="DROLEARN_CACHE", registry=dict.fromkeys(homes),
        urls=homes,
    )  # fmt: skip


def _is_good(name: str, path: Path) -> bool:
    """Whether a file can be read and is the data set of this name."""
    try:
        read(name, path)
    except DataError:
        return False
    return True


def _download(entry: Entry, url: str, target: str, _: Pooch) -> None:
    """Download a data set, prepare and check it, and write it; what pooch calls a downloader."""
    assert entry.get is not None
    try:
        rows = entry.get()
    except ModuleNotFoundError as error:
        raise DataError(
            f"Fetching {entry.name!r} needs {error.name}: run pip install 'drolearn[paper]'."
        ) from error
    except Exception as error:  # a bad download can fail in any way
        raise DataError(
            f"{entry.name!r} could not be fetched from {url} ({_reason(error)}): "
            f"{_again(entry.name)} later, or {_put(entry)}."
        ) from error
    data = _checked(entry, rows, url)
    write_rows(Path(target), data.X, data.y)


def _again(name: str) -> str:
    return f"run `drolearn datasets --fetch {name}`"


def _put(entry: Entry) -> str:
    return f"put {entry.file} into the folder that DROLEARN_DATA names"


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
    """The entry of this name, or an error that suggests a name."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    close = difflib.get_close_matches(name, CATALOGUE, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "run `drolearn datasets` for a list."
    raise DataError(f"There is no data set {name!r}: {hint}")


def _stored(entry: Entry) -> Path | None:
    """The file in the folder or in the cache, if there is one."""
    cache = None if entry.home == "generated" else _cache()
    places = [folder(), cache.abspath if cache else None]
    paths = [place / entry.file for place in places if place]
    return next((path for path in paths if path.exists()), None)


def _checked(entry: Entry, rows: tuple[Any, NDArray[Any]], source: str) -> Dataset:
    """The data set, if shape, labels and values are as they should be."""
    X, y = rows
    if X.shape != (entry.n, entry.d) or y.shape != (entry.n,):
        raise DataError(
            f"{entry.name!r} from {source} has {X.shape[0]} rows and {X.shape[1]} columns and "
            f"should have {entry.n} and {entry.d}: {_put(entry)}."
        )
    classes = entry.task == "classification"
    if classes and set(np.unique(y).tolist()) != {-1, 1}:
        raise DataError(
            f"{entry.name!r} from {source} should have the labels 1 and -1 and has "
            f"{np.unique(y)[:5].tolist()}: replace the file."
        )
    if not all(np.isfinite(values).all() for values in (X.data if sp.issparse(X) else X, y)):
        raise DataError(
            f"{entry.name!r} from {source} has values that are not finite: replace the file."
        )
    return Dataset(entry.name, X, y.astype(np.int8 if classes else np.float32), source)


def _packaged_adult() -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Features and labels of :func:`load_adult`."""
    adult = load_adult()
    return adult.X, adult.y


def _packaged_bike_hour() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features and rentals of :func:`load_bike_hour`."""
    bike = load_bike_hour()
    return bike.X, bike.y


#: Documents of "text_like": as many as RCV1 has, and some for testing.
_TEXTS = 820_000


def _catalogue() -> dict[str, Entry]:
    majority = "the most frequent class against the others"
    given = "two classes, as given"

    def of_openml(name: str, n: int, d: int, about: str, openml: str = "", **options: Any) -> Entry:
        get = partial(sources.openml, openml or name, **options)
        return Entry(name, n, d, "openml.org", "public", about, get)

    entries = [
        of_openml("tr31.wc", 927, 10128, f"word counts; {majority}"),
        Entry(
            "hiv1", 5830, 160, "archive.ics.uci.edu", "CC BY 4.0",
            "octamers, one-hot (20 amino acids at 8 positions); cleaved or not", sources.hiv1,
        ),
        of_openml("gina_prior", 3468, 784, given),
        of_openml("la1s.wc", 3204, 13195, f"word counts; {majority}"),
        of_openml("gina_agnostic", 3468, 970, given),
        of_openml("bioresponse", 3751, 1776, given, "Bioresponse"),
        of_openml(
            "ova_breast", 1545, 10935, "breast against the others", "OVA_Breast",
            positive="Breast", ignore=("ID_REF",),
        ),
        of_openml("fabert", 8237, 800, majority),
        of_openml("dilbert", 10000, 2000, majority),
        Entry(
            "adult", 45222, 119, "archive.ics.uci.edu", "CC BY 4.0",
            "income above 50,000 dollars or not; rows with missing values dropped", sources.adult,
            _packaged_adult, "adult_d119",
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
            "a part of rcv1, available only in the folder that DROLEARN_DATA names",
        ),
        Entry(
            "text_like", _TEXTS, 47236, "generated", "MIT",
            "two classes of documents of rcv1's size and shape", inside=partial(text_like, _TEXTS),
        ),
        Entry(
            "bike_hour", 17379, 57, "archive.ics.uci.edu", "CC BY 4.0",
            "bicycles rented in an hour (regression)", inside=_packaged_bike_hour,
            task="regression",
        ),
    ]  # fmt: skip
    return {entry.name: entry for entry in entries}


#: The fourteen data sets of the paper's Table 1, in its order, two substitutes for rcv1, and one
#: for regression.
CATALOGUE = _catalogue()
