"""The core with any arguments: a result or an error; `make sanitize` watches its memory."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.fuzz.core import CORE, seeds_of
from tests.fuzz.inputs import changed, often


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, about the inputs
@pytest.mark.parametrize("name", CORE)
def test_any_arguments(name):
    often(900)(given(changed(seeds_of(name)))(CORE[name]))()
