"""`RobustLoss` and `robust_backward` in several processes; see distributed.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("torch"),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
]
ROOT = Path(__file__).parents[1]
CHECKS = "equal,grouped,passes,bad"
JOBS = [f"{processes}:{CHECKS}" for processes in (2, 3, 4)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder with output and exit codes of all jobs; PyTorch is imported once for all."""
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "tests.distributed", str(folder), *JOBS, "2:dies"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return folder


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_several_processes_equal_one(finished, processes):
    """To 1e-12, for uneven and empty shards, groups, and draws of different sizes.

    Wrong losses in one process are an error in all.
    """
    job = f"{processes}:{CHECKS}"
    for rank in range(processes):
        output = (finished / f"{job}.{rank}").read_text()
        for word in ("equal", "grouped", "passed", "refused"):
            assert word in output.split(), output[-3000:]
    assert json.loads((finished / f"{job}.json").read_text()) == [0] * processes


def test_two_nodes_started_by_torchrun():
    """On the second node, the rank is not the local rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    nodes = [
        subprocess.Popen(
            [*command, f"--node-rank={node}", "--module", "tests.distributed", "equal"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for node in range(2)
    ]  # fmt: skip
    for node in nodes:
        output, errors = node.communicate(timeout=240)
        assert node.returncode == 0, errors[-3000:]
        assert output.count("equal") == 1


def test_a_process_that_dies_ends_the_others(finished):
    assert json.loads((finished / "2:dies.json").read_text()) == [1, 3]
    output = (finished / "2:dies.0").read_text()
    assert "A process of the group has not taken part in gathering the losses" in output
