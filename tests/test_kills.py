"""Commands that are killed at random moments: whole files, nothing left over, the same bits."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import drolearn
from drolearn._solvers.state_file import load_state
from drolearn._storage import replacing
from drolearn.paper.protocol import read_protocol
from drolearn.paper.runner import Store
from drolearn.paper.trial import perform
from tests.kills import Commands
from tests.soak import usually

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL"),
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
]

FIT = ["fit", "people.csv", "--target", "rich", "--divergence", "total-variation"]
REPORT = ["stress", "model.skops", "people.csv", "--target", "rich", "--groups", "job", "--out"]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A folder with a table and a model, and the commands in it."""
    folder = tmp_path_factory.mktemp("killed")
    rng = np.random.default_rng(0)
    n = 6000
    frame = pd.DataFrame(rng.standard_normal((n, 6)), columns=list("abcdef"))
    frame["job"] = rng.choice(["cook", "nurse"], n)
    frame["rich"] = np.where(frame["a"] + rng.standard_normal(n) > 0, "yes", "no")
    frame.to_csv(folder / "people.csv", index=False)
    with Commands(folder) as commands:
        yield commands, folder


def killed(commands, arguments, kills, seconds):
    """Kill a command at as many random moments; yields its exit code after each."""
    rng = np.random.default_rng(0)
    for _ in range(kills):
        yield commands.kill_after(rng.uniform(0.0, seconds), *arguments)


def files(folder: Path) -> set[str]:
    """All files in a folder, hidden ones too."""
    return {path.name for path in folder.iterdir()}


def test_fit(commands):
    """The file of the model is whole or absent, and the checkpoint never goes back."""
    commands, folder = commands
    seconds = commands.run(*FIT, "--out", "model.skops")
    want = drolearn.load(folder / "model.skops")
    state, before = folder / "state", files(folder) | {"killed.skops", "state"}
    arguments = [*FIT, "--out", "killed.skops", "--checkpoint", "state"]
    steps, ended = 0, 0
    for code in killed(commands, arguments, usually(4, 20), 1.5 * seconds):
        assert code in (0, -signal.SIGKILL), (folder / "log.txt").read_text(encoding="utf-8")
        if (folder / "killed.skops").exists():
            assert same(drolearn.load(folder / "killed.skops"), want)
        found = [load_state(path, dict)["steps"] for path in state.glob("*.npz")]
        assert len(found) <= 1
        assert sum(found) >= steps
        steps = sum(found)
        if code == 0:  # the moment was after the end; start again
            ended += 1
            (folder / "killed.skops").unlink()
            next(state.glob("*.npz")).unlink()
            steps = 0
    commands.run(*arguments)
    assert same(drolearn.load(folder / "killed.skops"), want)
    assert files(folder) <= before
    assert [name.endswith(".npz") for name in files(state)] == [True]
    assert ended < usually(4, 20)


def same(found: Any, want: Any) -> bool:
    """Whether the estimators of two pipelines have the same bits, but for their times."""
    first, second = (vars(model[-1]) | vars(model[-1].history_) for model in (found, want))
    others = ("history_", "seconds")
    return first.keys() == second.keys() and all(
        repr(first[name]) == repr(second[name])
        if not isinstance(first[name], np.ndarray)
        else first[name].tobytes() == second[name].tobytes()
        for name in first
        if name not in others
    )


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_stress(commands, name):
    """The report is the old or the new one, to the byte."""
    commands, folder = commands
    if not (folder / "model.skops").exists():
        commands.run(*FIT, "--out", "model.skops")
    path = folder / name
    seconds = commands.run(*REPORT, name)
    new = path.read_bytes()
    path.write_bytes(b"old")
    kept = 0
    for _ in killed(commands, [*REPORT, name], usually(2, 8), 1.1 * seconds):
        assert path.read_bytes() in (b"old", new)
        kept += path.read_bytes() == b"old"
        path.write_bytes(b"old")
    commands.run(*REPORT, name)
    assert path.read_bytes() == new
    assert kept > 0
    assert not [file for file in files(folder) if file.startswith(".")]


def test_reproduce(commands, tmp_path):
    """No finished run is lost, repeated or changed; no process and no file is left over."""
    commands, _ = commands
    text = (resources.files("drolearn.paper") / "paper.toml").read_text("utf-8")
    protocol, out = tmp_path / "short.toml", tmp_path / "out"
    for old, new in (
        ("samples = 1e7\n", "samples = 3e5\n"),
        (
            '["gssg", "pssg", "erm", "default", "exact"]\nrho = [0.1, 0.01]',
            '["gssg", "exact"]\nrho = [0.1]',
        ),
    ):
        assert old in text
        text = text.replace(old, new)
    protocol.write_text(text, encoding="utf-8")
    runs = read_protocol(protocol).narrowed(["adult"], 1).runs("table2")
    want = {run.key: measured(perform(run)) for run in runs}
    arguments = ["reproduce", "table2", "--datasets", "adult", "--seeds", "1", "--jobs", "2"]
    arguments += ["--protocol", str(protocol), "--out", str(out)]
    stamps: dict[str, int] = {}
    for _ in killed(commands, arguments, usually(2, 14), 6.0):
        now = {path.name: path.stat().st_mtime_ns for path in out.glob("parts/*.parquet")}
        if not (out / "runs.parquet").exists():  # rows move there at the end
            for name, stamp in stamps.items():
                assert now.get(name) == stamp, "a finished run was lost or repeated"
        stamps = now
        for row in Store(out).rows() if out.exists() else ():
            assert measured(row) == want[row["key"]]
    commands.run(*arguments)
    assert {row["key"]: measured(row) for row in Store(out).rows()} == want
    assert files(out / "parts") == set()
    assert not [name for name in files(out) if name.endswith(".part")]


def measured(row) -> dict[str, object]:
    """What a run found, without its times and its machine."""
    names = ("robust_loss", "test_error", "train_error", "samples", "ending", "at_errors")
    return json.loads(json.dumps({name: row[name] for name in names}))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name"), [(tempfile, "mkstemp"), (os, "fsync"), (os, "chmod"), (os, "replace")]
)
def test_a_writer_that_is_killed_at_any_step(tmp_path, owner, name, after):
    """Before and after each system call of a writer."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    child = os.fork()
    if child == 0:
        write_and_kill(path, owner, name, after)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert path.read_bytes() == (b"new" if after and name == "replace" else b"old")
    with replacing(path) as file:
        file.write(b"next")
    assert path.read_bytes() == b"next"
    assert files(tmp_path) == {"file"}


def write_and_kill(path: Path, owner: Any, name: str, after: bool) -> None:
    """Write a file in this process, which is killed before or after the call of this name."""
    usual = getattr(owner, name)

    def ending(*arguments: Any, **options: Any) -> None:
        if after:
            usual(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        setattr(owner, name, ending)
        with replacing(path) as file:
            file.write(b"new")
    finally:
        os._exit(1)
