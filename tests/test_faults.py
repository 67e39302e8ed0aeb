"""Full disks and read-only folders: a named error, and all files as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import heed_permissions, skip_if_root_ignores_permissions

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]


@pytest.mark.parametrize(
    ("fault", "words"), [("full", "File too large"), ("read-only", "Permission denied")]
)
def test_every_writer(fault, words):
    """Without a home folder."""
    skip_if_root_ignores_permissions()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.writers", fault], capture_output=True, text=True,
        cwd=Path(__file__).parents[1], preexec_fn=heed_permissions,
        env={**os.environ, "HOME": "/nowhere"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["changed"] == []
    for name in found["writers"]:
        error = found["errors"].get(name, "none")
        assert words in error, f"{name}: {error}"
        assert ".part" not in error, f"{name}: {error}"
        if name.startswith("drolearn "):
            assert error.startswith("exit code 1: A file cannot be read or written"), error
            assert error.count("\n") == 1, error
