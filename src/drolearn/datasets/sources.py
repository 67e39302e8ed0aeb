"""Data sets from their public homes, prepared as in the paper.

Every function returns X (dense or CSR, float32) and y = ±1, and leaves nothing behind: what is
kept, and where, is the business of :mod:`drolearn.datasets.catalogue`.
"""

from __future__ import annotations

import hashlib
import io
import socket
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADULT_COLUMNS", "UCI", "adult", "hiv1", "one_hot_levels", "openml", "rcv1"]

Rows = tuple[Any, NDArray[np.int8]]

UCI = "https://archive.ics.uci.edu/"
#: Seconds without a byte after which a server counts as gone.
PATIENCE = 60.0

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
_ADULT_NUMBERS = ("age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week")
_ADULT_FILES = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
_HIV1_FILES = ("746Data.txt", "1625Data.txt", "schillingData.txt", "impensData.txt")
_AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
#: Of the sorted lines "octamer,label" that remain: the archive may be packed anew, these not.
_HIV1_DIGEST = "356037cfa5297dc5649495bb30deeb9f6c5f7a5854d93fa609a41fac67b8d09b"


def download(url: str, sha256: str | None) -> bytes:
    """The bytes at a URL, checked if it is known what they should be."""
    import logging

    import pooch

    pooch.get_logger().setLevel(logging.ERROR)
    downloader: Any = pooch.HTTPDownloader(timeout=PATIENCE)
    with tempfile.TemporaryDirectory() as folder:
        path = pooch.retrieve(
            url,
            known_hash=sha256,
            fname="download",
            path=folder,
            downloader=downloader,
        )
        return Path(path).read_bytes()


@contextmanager
def _patient() -> Iterator[None]:
    """Give up on servers that do not answer, where a library would wait for ever."""
    usual = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(usual)


def hiv1() -> Rows:
    """UCI 330: octamers and whether HIV-1's protease cleaves them, one of 20 at 8 places.

    The four files together; octamers with both labels or with other letters are dropped, those
    that occur several times are kept once, and all are sorted.
    """
    archive = download(UCI + "static/public/330/hiv+1+protease+cleavage.zip", None)
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        inside = {Path(name).name: name for name in packed.namelist()}
        texts = [packed.read(inside[name]).decode() for name in _HIV1_FILES]
    labels: dict[str, set[int]] = {}
    for line in (line for text in texts for line in text.split()):
        octamer, _, label = line.partition(",")
        labels.setdefault(octamer, set()).add(int(label))
    kept = sorted(
        (octamer, *found)
        for octamer, found in labels.items()
        if len(found) == 1 and set(octamer) <= set(_AMINO_ACIDS)
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
    """UCI 2: does a person earn more than 50,000 dollars a year?  Without rows that lack values.

    Five numbers as they are, and all else, years of education too, as zeros and ones.
    """
    import pandas as pd

    options: Any = {"names": ADULT_COLUMNS, "skipinitialspace": True, "comment": "|"}
    options["na_values"] = "?"
    frames = []
    for name, sha256 in _ADULT_FILES.items():
        content = download(f"{UCI}ml/machine-learning-databases/adult/{name}", sha256)
        frames.append(pd.read_csv(io.BytesIO(content), **options))
    people = pd.concat(frames, ignore_index=True).dropna()
    y = np.where(people["income"].str.startswith(">50K"), 1, -1).astype(np.int8)
    numbers = [people[name].to_numpy(np.float32)[:, None] for name in _ADULT_NUMBERS]
    others = [name for name in ADULT_COLUMNS[:-1] if name not in _ADULT_NUMBERS]
    columns = [one_hot_levels(people[name].astype(str).to_numpy()) for name in others]
    return np.hstack(numbers + columns), y


def one_hot_levels(values: Iterable[Any]) -> NDArray[np.float32]:
    """Zeros and ones, a column for each value in the order of their names."""
    names = np.array([str(value) for value in values])
    return (names[:, None] == np.unique(names)).astype(np.float32)


def openml(name: str, positive: str | None = None, ignore: tuple[str, ...] = ()) -> Rows:
    """Version 1 of an OpenML data set; +1 is `positive`, or else the most frequent class.

    Of two classes whose names are numbers, the larger one counts as +1.
    """
    from sklearn.datasets import fetch_openml

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inactive versions, and of second attempts
        # The class is read as one more column: as the target of a sparse file, scikit-learn
        # leaves it uninitialised where it is left out, which stands for the first class.
        options: Any = {"target_column": None, "as_frame": False, "parser": "liac-arff"}
        with _patient():
            found: Any = fetch_openml(name, version=1, data_home=folder, n_retries=1, **options)
    names = list(found.feature_names)
    at = names.index(found.details["default_target_attribute"])
    codes = found.data[:, [at]]
    codes = np.asarray(codes.toarray() if hasattr(codes, "toarray") else codes).ravel()
    levels = found.categories.get(names[at])
    target = np.array([levels[int(code)] if levels else f"{code:g}" for code in codes])
    X = found.data[:, [j for j, name in enumerate(names) if j != at and name not in ignore]]
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
    """RCV1-v2 as scikit-learn fetches it: all 804,414 articles, +1 for corporate/industrial."""
    from sklearn.datasets import fetch_rcv1

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of second attempts
        with _patient():
            found: Any = fetch_rcv1(data_home=folder, subset="all", n_retries=2)
    topic = list(found.target_names).index("CCAT")
    y = np.where(found.target[:, [topic]].toarray().ravel() > 0, 1, -1).astype(np.int8)
    return found.data.astype(np.float32), y
