"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drolearn._inner import worst_case as module


@pytest.fixture(autouse=True, scope="session")
def _threads_for_fewer_losses():
    """Threads are for millions of losses; tests must not need as many."""
    usual = dict(module._THREADS_FROM)
    module._THREADS_FROM.clear()
    yield
    module._THREADS_FROM.update(usual)


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets that are not part of the package."""
    folder = os.environ.get("DROLEARN_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("DROLEARN_DATA names no folder of data sets")
    return Path(folder)
