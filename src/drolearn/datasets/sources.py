"""Downloads of data sets from their public sources, prepared as in the paper.

Every function returns X (dense or CSR, float32) and y = ±1.  Downloaded files are deleted;
:mod:`drolearn.datasets.catalogue` keeps the prepared rows in the cache.
"""

from __future__ import annotations

import hashlib
import socket
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADULT_COLUMNS", "UCI", "adult", "hiv1", "one_hot_levels", "openml", "rcv1"]

Rows = tuple[Any, NDArray[np.int8]]

UCI = "https://archive.ics.uci.edu/"
#: Seconds without a byte after which a download fails.
PATIENCE = 60.0

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
_ADULT_NUMBERS = ("age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week")
#: SHA-256 of the files.
_ADULT_FILES = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
_HIV1_ARCHIVE = "static/public/330/hiv+1+protease+cleavage.zip"
_HIV1_FILES = ("746Data.txt", "1625Data.txt", "schillingData.txt", "impensData.txt")
_AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
#: SHA-256 of the sorted lines "octamer,label".  The server may pack the archive again with other
#: bytes, so the archive has no checksum.
_HIV1_DIGEST = "356037cfa5297dc5649495bb30deeb9f6c5f7a5854d93fa609a41fac67b8d09b"


@contextmanager
def _uci_files(registry: dict[str, str | None], unzip: bool = False) -> Iterator[list[Path]]:
    """Download files of UCI to a temporary folder; None in the registry is an unknown checksum."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    downloader: Any = pooch.HTTPDownloader(timeout=PATIENCE)
    processor = pooch.Unzip() if unzip else None
    with tempfile.TemporaryDirectory() as folder:
        files: Any = pooch.create(folder, UCI, registry=registry)
        fetched = [files.fetch(name, processor, downloader) for name in registry]
        # Unzip returns a list of paths.
        yield [Path(path) for path in (fetched[0] if unzip else fetched)]


@contextmanager
def _socket_timeout() -> Iterator[None]:
    """Limit the waiting time of scikit-learn's downloads, which have no limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def hiv1() -> Rows:
    """UCI 330: octamers, one-hot, and whether HIV-1 protease cleaves them.

    The four files are merged.  Octamers with both labels or with other letters than those of the
    20 amino acids are dropped, duplicates are kept once, and the rest is sorted.
    """
    with _uci_files({_HIV1_ARCHIVE: None}, unzip=True) as paths:
        texts = {path.name: path.read_text("utf-8") for path in paths if path.name in _HIV1_FILES}
    missing = [name for name in _HIV1_FILES if name not in texts]
    if missing:
        raise ValueError(f"the archive does not contain {', '.join(missing)}")
    labels: dict[str, set[int]] = {}
    for line in (line for text in texts.values() for line in text.split()):
        octamer, _, label = line.partition(",")
        labels.setdefault(octamer, set()).add(int(label))
    kept = sorted(
        (octamer, *values)
        for octamer, values in labels.items()
        if len(values) == 1 and set(octamer) <= set(_AMINO_ACIDS)
    )
    lines = "\n".join(f"{octamer},{label}" for octamer, label in kept)
    digest = hashlib.sha256(lines.encode()).hexdigest()
    if digest != _HIV1_DIGEST:
        raise ValueError(
            f"the checksum of its {len(kept)} octamers is {digest[:12]}… and should be "
            f"{_HIV1_DIGEST[:12]}…"
        )
    letters = np.array([list(octamer) for octamer, _ in kept])
    X = (letters[:, :, None] == np.array(list(_AMINO_ACIDS))).reshape(len(kept), -1)
    return X.astype(np.float32), np.array([label for _, label in kept], dtype=np.int8)


def adult() -> Rows:
    """UCI 2: does a person earn more than 50,000 dollars a year?

    Rows with missing values are dropped.  Five columns are numbers as they are; all others,
    including years of education, are one-hot.
    """
    import pandas as pd

    options: Any = {"names": ADULT_COLUMNS, "skipinitialspace": True, "comment": "|"}
    options["na_values"] = "?"
    place = "ml/machine-learning-databases/adult"
    with _uci_files({f"{place}/{name}": sha for name, sha in _ADULT_FILES.items()}) as paths:
        frames = [pd.read_csv(path, **options) for path in paths]
    people = pd.concat(frames, ignore_index=True).dropna()
    y = np.where(people["income"].str.startswith(">50K"), 1, -1).astype(np.int8)
    numbers = [people[name].to_numpy(np.float32)[:, None] for name in _ADULT_NUMBERS]
    others = [name for name in ADULT_COLUMNS[:-1] if name not in _ADULT_NUMBERS]
    columns = [one_hot_levels(people[name].astype(str).to_numpy()) for name in others]
    return np.hstack(numbers + columns), y


def one_hot_levels(values: Iterable[Any]) -> NDArray[np.float32]:
    """One-hot columns, one for each value, sorted by name."""
    names = np.array([str(value) for value in values])
    return (names[:, None] == np.unique(names)).astype(np.float32)


def openml(name: str, positive: str | None = None, ignore: tuple[str, ...] = ()) -> Rows:
    """Version 1 of an OpenML data set; +1 is `positive`, by default the most frequent class.

    If there are two classes whose names are numbers, +1 is the larger number.
    """
    from sklearn.datasets import fetch_openml

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about inactive versions and retries
        # Read the class as a feature: if it is the target of a sparse file, scikit-learn leaves
        # omitted values, which stand for the first class, uninitialised.
        options: Any = {"target_column": None, "as_frame": False, "parser": "liac-arff"}
        with _socket_timeout():
            bunch: Any = fetch_openml(name, version=1, data_home=folder, n_retries=1, **options)
    names = list(bunch.feature_names)
    at = names.index(bunch.details["default_target_attribute"])
    codes = bunch.data[:, [at]]
    codes = np.asarray(codes.toarray() if hasattr(codes, "toarray") else codes).ravel()
    levels = bunch.categories.get(names[at])
    target = np.array([levels[int(code)] if levels else f"{code:g}" for code in codes])
    X = bunch.data[:, [j for j, name in enumerate(names) if j != at and name not in ignore]]
    if positive is None:
        classes, counts = np.unique(target, return_counts=True)
        positive = str(classes[counts.argmax()])
        if classes.size == 2 and all(_is_number(name) for name in classes):
            positive = max(classes, key=float)
    return X.astype(np.float32), np.where(target == positive, 1, -1).astype(np.int8)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def rcv1() -> Rows:
    """RCV1-v2 from scikit-learn: all 804,414 articles, +1 for corporate/industrial (CCAT)."""
    from sklearn.datasets import fetch_rcv1

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about retries
        with _socket_timeout():
            bunch: Any = fetch_rcv1(data_home=folder, subset="all", n_retries=2)
    topic = list(bunch.target_names).index("CCAT")
    y = np.where(bunch.target[:, [topic]].toarray().ravel() > 0, 1, -1).astype(np.int8)
    return bunch.data.astype(np.float32), y
