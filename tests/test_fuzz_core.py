"""The core with any arguments: a result or an error; `make sanitize` watches its memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from drolearn import _core
from drolearn.divergence import as_divergence
from tests.fuzz.core import CORE, seeds_of
from tests.fuzz.inputs import changed, often
from tests.soak import SOAK


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, about the inputs
@pytest.mark.parametrize("name", CORE)
def test_any_arguments(name):
    often(900)(given(changed(seeds_of(name)))(CORE[name]))()


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger", "total-variation"])
def test_a_search_with_any_byte_in_its_state(divergence):
    """A Boolean of the state may get any byte, which C++ does not allow a bool."""
    z, out = np.array([0.0, 1.0, 5.0]), np.empty(3)
    chosen, parts, sums = as_divergence(divergence).core, np.empty((1, 5)), np.empty((1, 6))
    _core.survey(z, None, parts)
    state = bytes(_core.Search(chosen, 0.5, 3, parts, (0.0, 0.0)).state)
    ended = 0
    for place in range(len(state)):
        for value in (1, 144):
            search = _core.Search(chosen, state[:place] + bytes([value]) + state[place + 1 :])
            for _ in range(50):
                if search.done:
                    search.answer()
                    ended += 1
                    break
                search.sweep(z, None, out, sums)
                search.advance(sums)
    assert ended > len(state)


@pytest.mark.skipif(not SOAK, reason="takes long: make soak")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CORE)
def test_many_arguments(name):
    """Inputs that cost less to make than those of hypothesis; they are not made smaller."""
    rng = np.random.default_rng(0)
    seeds = [np.frombuffer(seed, np.uint8) for seed in seeds_of(name)]
    for _ in range(20_000):
        content = seeds[rng.integers(len(seeds))].copy()
        start = rng.integers(content.size)
        changes = rng.integers(0, 256, rng.integers(1, 40), dtype=np.uint8)
        content[start : start + changes.size] = changes[: content.size - start]
        CORE[name](content[rng.integers(0, 40) :].tobytes())
