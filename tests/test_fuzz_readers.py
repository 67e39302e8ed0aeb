"""Files with any content: a result or a named error."""

from __future__ import annotations

import base64
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given

from tests.fuzz.core import CORE
from tests.fuzz.inputs import changed, often
from tests.fuzz.readers import READERS, seeds_of
from tests.fuzz.run import RUNS
from tests.soak import SOAK


@pytest.mark.filterwarnings("ignore")  # of pandas, about what it cannot parse
@pytest.mark.parametrize("name", READERS)
def test_any_content(name):
    """With those of the core, 10,000 inputs; reading a .skops file takes long."""
    often(100 if name == "skops" else 500)(given(changed(seeds_of(name)))(READERS[name]))()


@pytest.mark.parametrize(
    "content",
    [
        "AYpQSwYHAAAAAAAAAAAAAAAQmXx6kIiMinx6AAAAAAAAIAQtjG5samhm",  # a curvature of zero
        "AaO2EQ5DqqgAAACmpKKgnpyamJaUkpCOjIqIhoSCgH58enh2dHJwbmxqaGY=",  # a model that overflows
    ],
)
def test_checkpoints_that_were_not_refused(content):
    """They ended in a division by zero, or in an error of SciPy about infinities."""
    READERS["exact"](base64.b64decode(content))


@pytest.mark.skipif(not SOAK, reason="takes long: make soak")
@pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris: pip install atheris")
@pytest.mark.parametrize("targets", [CORE, READERS], ids=["core", "readers"])
def test_inputs_that_reach_new_lines(targets, tmp_path):
    names = [f"{name}={RUNS[name]}" for name in targets]
    command = [sys.executable, "-m", "tests.fuzz.run", *names]
    root = Path(__file__).parents[1]
    with open(tmp_path / "log.txt", "w+", encoding="utf-8", errors="replace") as log:
        ran = subprocess.run(command, cwd=root, stdout=log, stderr=log)
        log.seek(0)
        assert ran.returncode == 0, log.read()[-5000:]
