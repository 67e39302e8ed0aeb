"""Inputs for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.soak import SOAK, usually

__all__ = ["changed", "often"]

_EDITS = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(0, 12), st.binary(max_size=8)), max_size=4
)


@st.composite
def changed(draw: Any, seeds: list[bytes]) -> bytes:
    """Any bytes, or a good input after a few changes."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=300))
    content = bytearray(draw(st.sampled_from(seeds)))
    for place, removed, added in draw(_EDITS):
        at = place % (len(content) + 1)
        content[at : at + removed] = added
    return bytes(content)


def often(usual: int) -> settings:
    """So many inputs, the same ones in each run; in `make soak`, four times as many others."""
    return settings(
        max_examples=usually(usual, 4 * usual),
        deadline=None,
        database=None,
        derandomize=not SOAK,
        suppress_health_check=list(HealthCheck),
    )
