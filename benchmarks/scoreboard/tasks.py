"""Data sets with groups or domains, and the splits into training and test rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import datasets

__all__ = ["DATA", "Data", "Task", "tasks"]

# More rows would take hours and change little: models are linear.
_MOST_ROWS = 30_000
_RANDOM_SEEDS, _RARE_SEEDS = 5, 3
_BLOCKS = 24  # of rows in the order of time
_RARE = 0.05  # the share of training rows of a group that is rare
# Domains that are smaller than this share of the rows, or than this number of rows, are neither
# left out nor made rare: a test on a few rows says nothing.
_LEAST_SHARE, _LEAST_ROWS = 0.005, 50


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A data set with a domain for each row."""

    X: Any
    y: np.ndarray
    domains: np.ndarray
    classification: bool


@dataclass(frozen=True, slots=True)
class Source:
    """Where a data set and its domains come from."""

    domain: str
    """The array with the domains; "blocks" for blocks of rows in the order of time."""
    in_time: bool = False
    """Whether rows are in the order of time."""
    random_rows: int = _MOST_ROWS
    """The number of rows of a random split."""


DATA = {
    "adult": Source("race"),
    "compas": Source("race"),
    "crime": Source("group"),
    # The smallest area has 5% of the rows: fewer rows would not tell its errors apart.
    "covtype": Source("area", random_rows=100_000),
    "electricity": Source("blocks", in_time=True),
    "acs_income_2019": Source("state"),
    "diabetes130": Source("admission_source", in_time=True),
    "bank_additional": Source("year", in_time=True),
    "law_school": Source("race"),
    "oulad": Source("module"),
    "heart_disease_4sites": Source("site"),
    "amazon_reviews_4domains": Source("domain"),
    "noaa_weather": Source("time_block", in_time=True),
    "beijing_pm25": Source("site", in_time=True),
    "bike_hour": Source("year", in_time=True),
    "california_housing": Source("ocean_proximity"),
    "parkinsons_updrs": Source("subject"),
    "nyc_taxis": Source("borough", in_time=True),
    "covtype_elevation": Source("area"),
}


@dataclass(frozen=True, slots=True)
class Task:
    """One split of one data set."""

    data: str
    question: str
    """"random": nothing changes; "rare": a group is rare in training; "unseen": a domain is left
    out; "time": the test rows are later."""
    split: str
    """The number of the split, the name of the domain, or the share of rows before the test."""

    def rows(self) -> tuple[Data, np.ndarray, np.ndarray]:
        """Return the data, the training rows and the test rows."""
        return {
            "random": self._random,
            "rare": self._rare,
            "unseen": self._unseen,
            "time": self._time,
        }[self.question]()

    def _random(self) -> tuple[Data, np.ndarray, np.ndarray]:
        data = _load(self.data)
        most = DATA[self.data].random_rows
        order = np.random.default_rng(int(self.split)).permutation(data.y.size)[:most]
        cut = 3 * order.size // 4
        return data, np.sort(order[:cut]), np.sort(order[cut:])

    def _unseen(self) -> tuple[Data, np.ndarray, np.ndarray]:
        data = _load(self.data)
        chosen = np.sort(np.random.default_rng(0).permutation(data.y.size)[:_MOST_ROWS])
        left_out = data.domains[chosen] == self.split
        return data, chosen[~left_out], chosen[left_out]

    def _rare(self) -> tuple[Data, np.ndarray, np.ndarray]:
        """Half of the test rows are of the group, and 5% of the training rows."""
        group, _, seed = self.split.rpartition("/")
        data = _load(self.data)
        rng = np.random.default_rng(int(seed))
        parts = data.domains == group
        two = Data(data.X, data.y, np.where(parts, group, "others"), data.classification)
        inside, outside = (
            rng.permutation(np.flatnonzero(parts)),
            rng.permutation(np.flatnonzero(~parts)),
        )
        tests = min(inside.size // 2, outside.size // 2, _MOST_ROWS // 8)
        others = min(outside.size - tests, 3 * _MOST_ROWS // 4)
        few = min(round(_RARE / (1.0 - _RARE) * others), inside.size - tests)
        others = min(others, round((1.0 - _RARE) / _RARE * few))
        train = np.concatenate([inside[tests : tests + few], outside[tests : tests + others]])
        return two, np.sort(train), np.sort(np.concatenate([inside[:tests], outside[:tests]]))

    def _time(self) -> tuple[Data, np.ndarray, np.ndarray]:
        """The next quarter of the rows, after training on those before."""
        data = _load(self.data)
        n = data.y.size
        blocks = np.arange(n) * _BLOCKS // n
        timed = Data(data.X, data.y, np.char.mod("%02d", blocks), data.classification)
        first = round(float(self.split) * n)
        every = max(1, -(-n // _MOST_ROWS))
        return timed, np.arange(0, first, every), np.arange(first, first + n // 4, every)


def tasks(name: str) -> Iterator[Task]:
    """Yield all splits of a data set."""
    data, source = _load(name), DATA[name]
    names, counts = np.unique(data.domains, return_counts=True)
    large = counts >= max(_LEAST_SHARE * data.y.size, _LEAST_ROWS)
    # The four largest groups that are not the majority themselves.
    small = large & (counts <= 0.8 * data.y.size)
    groups = names[small][np.argsort(-counts[small], kind="stable")][:4]
    for seed in range(_RANDOM_SEEDS):
        yield Task(name, "random", str(seed))
    for seed in range(_RARE_SEEDS):
        for group in groups:
            yield Task(name, "rare", f"{group}/{seed}")
    if source.domain != "blocks":
        for domain in names[large]:
            yield Task(name, "unseen", str(domain))
    if source.in_time:
        for share in ("0.4", "0.5", "0.6", "0.7"):
            yield Task(name, "time", share)


@lru_cache(maxsize=1)
def _load(name: str) -> Data:
    """Read a data set; dense X is float64."""
    stored = {"covtype": "covtype.binary", "covtype_elevation": "covtype.binary"}.get(name, name)
    with np.load(datasets.path(stored)) as file:
        domain = DATA[name].domain
        classification = str(file["task"]) == "classification" if "task" in file else True
        y = file["y"].astype(np.float64)
        if str(file["format"]) == "csr":
            parts = (file["data"].astype(np.float64), file["indices"], file["indptr"])
            X: Any = sp.csr_matrix(parts, shape=tuple(file["shape"]))
        else:
            X = file["X"].astype(np.float64)
        if domain == "area":
            domains = X[:, 10:14].argmax(axis=1)  # the wilderness areas
        elif domain == "blocks":
            domains = np.arange(y.size) * _BLOCKS // y.size
        else:
            domains = file[domain]
    if name == "covtype_elevation":
        X, y, classification = X[:, 1:10], X[:, 0], False
    return Data(X, y, domains.astype(str), classification)
