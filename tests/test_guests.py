"""The examples with PyTorch: a loop, skorch and Lightning train the same network to the bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("torch")
EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def printed():
    """What the examples print after two epochs."""
    # One thread, so that sums have one order.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    running = {
        name: subprocess.Popen(
            [sys.executable, str(EXAMPLES / f"{name}.py"), "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for name in ("rare_digits", "with_skorch", "with_lightning")
    }  # fmt: skip
    found = {}
    for name, process in running.items():
        out, said = process.communicate(timeout=300)
        assert process.returncode == 0, (name, said[-3000:])
        found[name] = {line[:29].strip(): line[29:] for line in out.splitlines()}
    return found


def test_a_loop(printed):
    lines = printed["rare_digits"]
    assert set(lines) == {
        "the mean loss", "the worst mix of each batch", "the worst mix of all rows"
    }  # fmt: skip
    assert len(set(lines.values())) == 3
    for line in lines.values():
        assert re.fullmatch(r" *\d+\.\d% wrong, +\d+\.\d% of the nines", line)


def test_skorch(printed):
    lines = printed["with_skorch"]
    assert lines["draws"] == printed["rare_digits"]["the worst mix of all rows"]
    assert sum(line.startswith("batches, best radius") for line in lines) == 1


def test_lightning(printed):
    lines = printed["with_lightning"]
    assert lines["at once"] == printed["rare_digits"]["the worst mix of all rows"]
    assert lines["stopped and resumed"] == lines["at once"]
    assert "the same to the bit" in lines
