"""What all tests share."""

from __future__ import annotations

import sys

import pytest

import drolearn  # noqa: F401 - so that its modules can be found

module = sys.modules["drolearn.worst_case"]


@pytest.fixture(autouse=True, scope="session")
def _threads_for_fewer_losses():
    """Threads are for millions of losses; tests must not need as many."""
    usual = dict(module._THREADS_FROM)
    module._THREADS_FROM.clear()
    yield
    module._THREADS_FROM.update(usual)
