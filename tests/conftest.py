"""Fixtures that many test files share."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drolearn._inner import worst_case as module

#: Files that need an optional library, and are left out if it is not installed.
_OPTIONAL = {
    "torch": """distributed.py networks.py test_backward.py test_batches.py test_checks.py
        test_criterion.py test_derivatives.py test_device.py test_distributed.py
        test_integrations.py""",
    "distributed": "test_dask.py test_dask_faults.py test_dask_joblib.py",
    "matplotlib": "test_demo.py",
    "skl2onnx": "test_onnx.py",
    "pooch": "test_catalogue.py test_sources.py",
    "typer": """test_claims.py test_cli.py test_protocol.py test_rows.py test_runner.py
        test_tables.py test_trial.py commands.py test_cli_models.py test_cli_errors.py
        test_kills.py writers.py test_faults.py fuzz/readers.py test_fuzz_readers.py""",
    "vl_convert": "test_stress_html.py",
}
_missing = [library for library in _OPTIONAL if find_spec(library) is None]
collect_ignore = [file for library in _missing for file in _OPTIONAL[library].split()]


def pytest_report_header() -> str | None:
    """Say which test files are left out, and why."""
    if not _missing:
        return None
    return f"not installed: {', '.join(_missing)}; left out: {', '.join(collect_ignore)}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Make `--dist loadgroup` work with pytest 9.2 and pytest-xdist 3.8.

    xdist appends the group of a test to `_nodeid`, which pytest 9.2 no longer reads: all groups
    would be ignored without an error.  See https://github.com/pytest-dev/pytest-xdist/issues/1386
    """
    if not config.getoption("loadgroup", False):
        return
    for item in items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
            item._id = item.id.parse(item._nodeid)


@pytest.fixture(autouse=True, scope="session")
def _threads_for_fewer_losses():
    """Use threads for any number of losses; by default they start at millions."""
    usual = dict(module._THREADS_FROM)
    module._THREADS_FROM.clear()
    yield
    module._THREADS_FROM.update(usual)


# -- small data sets; tests must not write to them -----------------------------------------------


def _read_only(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    for array in arrays:
        array.flags.writeable = False
    return arrays


@pytest.fixture(scope="session")
def three_classes():
    """600 rows of 8 columns in three classes that overlap."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        600, 8, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, class_sep=0.7,
        random_state=0,
    )  # fmt: skip
    return _read_only(X, y)


@pytest.fixture(scope="session")
def two_classes(three_classes):
    """The same rows with the labels "yes" and "no"."""
    X, y = three_classes
    return _read_only(X, np.where(y > 0, "yes", "no"))


@pytest.fixture(scope="session")
def regression(three_classes):
    """The same rows with a number to predict: coefficients 0, …, 7 and noise of variance 1."""
    X, _ = three_classes
    y = X @ np.arange(8.0) + np.random.default_rng(0).standard_normal(600)
    return _read_only(X, y)


# -- data sets on disk ---------------------------------------------------------------------------


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets that are not part of the package."""
    folder = os.environ.get("DROLEARN_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("DROLEARN_DATA names no folder of data sets")
    return Path(folder)


@pytest.fixture
def empty_cache(monkeypatch, tmp_path) -> Path:
    """No folder of data sets, and a cache that is empty."""
    monkeypatch.delenv("DROLEARN_DATA", raising=False)
    monkeypatch.setenv("DROLEARN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# -- the paper's experiments ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def protocol():
    """The protocol of the paper."""
    from drolearn.paper.protocol import read_protocol

    return read_protocol()


@pytest.fixture(scope="session")
def adult_runs(protocol):
    """A function that returns the quick runs of an artefact on adult, which is in the package."""
    from dataclasses import replace

    def runs(artefact: str = "table1", **changes):
        return [
            replace(run, **changes)
            for run in protocol.hurried().runs(artefact)
            if run.dataset == "adult" and run.seed == 0
        ]

    return runs
