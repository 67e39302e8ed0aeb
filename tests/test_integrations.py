"""Integrations: a training loop, skorch and Lightning train the same network to the bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("torch")
EXAMPLES = Path(__file__).parents[1] / "examples"
#: The examples, and what they need besides PyTorch.
NEEDS = {"rare_digits": "torch", "with_skorch": "skorch", "with_lightning": "lightning"}

# One process for all, as importing PyTorch takes longer than training.
PROGRAM = """
import runpy, sys
folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
for name in names:
    sys.argv = [name, "2"]
    print("#", name, flush=True)
    runpy.run_path(f"{folder}/{name}.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def printed():
    """What the examples print after two epochs, line by line."""
    names = [name for name, needed in NEEDS.items() if find_spec(needed) is not None]
    # With one thread, sums have one order.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", PROGRAM, str(EXAMPLES), *names]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    outputs = [output.splitlines() for output in ran.stdout.split("# ")[1:]]
    return {name: {line[:29].strip(): line[29:] for line in lines} for name, *lines in outputs}


def lines_of(printed, name):
    if name not in printed:
        pytest.skip(f"{NEEDS[name]} is not installed")
    return printed[name]


def test_training_loop(printed):
    lines = printed["rare_digits"]
    assert set(lines) == {
        "the mean loss", "the worst mix of each batch", "the worst mix of all rows"
    }  # fmt: skip
    assert len(set(lines.values())) == 3
    for line in lines.values():
        assert re.fullmatch(r" *\d+\.\d% wrong, +\d+\.\d% of the nines", line)


def test_skorch(printed):
    lines = lines_of(printed, "with_skorch")
    assert lines["draws"] == printed["rare_digits"]["the worst mix of all rows"]
    assert sum(line.startswith("batches, best radius") for line in lines) == 1


def test_lightning(printed):
    lines = lines_of(printed, "with_lightning")
    assert lines["at once"] == printed["rare_digits"]["the worst mix of all rows"]
    assert lines["stopped and resumed"] == lines["at once"]
    assert "the same to the bit" in lines
