"""Checkpoints of stochastic solvers: resuming, damage, full disks."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from drolearn import GSSG, SGD, Ending, solve
from tests.examples import dead_process, disk_full, labelled, stochastic


@pytest.mark.parametrize("solver", ["gssg", "gssg-anchor", "pssg"])
@pytest.mark.parametrize("sparse", [False, True])
def test_resumed_runs_end_with_the_same_bits(solver, sparse, tmp_path):
    X, y = labelled(3000, 20)
    data = sp.csr_matrix(X * (abs(X) > 1)) if sparse else X
    settings = {"solver": solver, "random_state": 1, "max_iter": 40, "tol": None, "l2": 1e-4}
    at_once = solve(data, y, **settings)
    settings["solver"] = stochastic(solver, checkpoint=tmp_path)
    stopped = solve(data, y, callback=lambda history: True, **settings)
    assert stopped.ending is Ending.STOPPED
    assert stopped.passes < 40
    resumed = solve(data, y, **settings)
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_array_equal(resumed.state.theta, at_once.state.theta)
    np.testing.assert_array_equal(resumed.state.average, at_once.state.average)
    np.testing.assert_array_equal(resumed.coef, at_once.coef)


def test_a_damaged_checkpoint_is_named(tmp_path):
    X, y = labelled(100)
    solve(X, y, solver=GSSG(checkpoint=tmp_path), random_state=0, max_iter=50, tol=None)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for damaged in (b"not a checkpoint", content[: len(content) // 2], b""):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="is not a checkpoint of drolearn, or is damaged"):
            solve(X, y, solver=GSSG(checkpoint=tmp_path), random_state=0)
    for byte in range(0, 64):  # headers of the archive, the method of compression among them
        file.write_bytes(content[:byte] + bytes([content[byte] ^ 0xFF]) + content[byte + 1 :])
        with suppress(ValueError):  # no other exception
            solve(X, y, solver=GSSG(checkpoint=tmp_path), random_state=0, max_iter=50, tol=None)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    X, y = labelled(100)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="must name a folder that can be written to"):
        solve(X, y, solver=GSSG(checkpoint=tmp_path / "file"))


def test_fits_that_differ_do_not_share_a_checkpoint(tmp_path):
    X, y = labelled(100)
    plain = {"X": X, "y": y, "solver": GSSG(checkpoint=tmp_path), "random_state": 7}
    changes = (
        {}, {"X": X[:, :3]}, {"X": 2 * X}, {"X": X[::-1].copy(), "y": y}, {"y": -y}, {"rho": 0.2},
        {"solver": SGD(checkpoint=tmp_path)}, {"random_state": 8}, {"start": np.ones(6)},
        {"solver": GSSG(checkpoint=tmp_path, batch_size=16)}, {"sample_weight": y + 2.0},
        {"solver": GSSG(checkpoint=tmp_path, step_size=0.1)}, {"l2": 0.1},
        {"solver": GSSG(checkpoint=tmp_path, step_size=0.2)}, {"fit_intercept": False},
    )  # fmt: skip
    for number, change in enumerate(changes, 1):
        given = {**plain, **change}
        without = {**given, "solver": clone(given["solver"]).set_params(checkpoint=None)}
        want = solve(without.pop("X"), without.pop("y"), max_iter=20, tol=None, **without)
        solution = solve(given.pop("X"), given.pop("y"), max_iter=20, tol=None, **given)
        np.testing.assert_array_equal(solution.theta, want.theta, err_msg=str(change))
        assert len(list(tmp_path.iterdir())) == number, change


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    X, y = labelled(100)
    solver = GSSG(checkpoint=tmp_path)
    solve(X, y, solver=solver, max_iter=50, tol=None)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez", disk_full)
    with pytest.raises(OSError, match="No space left"):
        solve(X, y, solver=solver, max_iter=500, tol=None)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_unfinished_files_of_dead_processes_are_removed(tmp_path):
    """A process that is killed while it saves leaves a .part file next to its checkpoint."""
    X, y = labelled(100)
    solver = GSSG(checkpoint=tmp_path)
    solve(X, y, solver=solver, random_state=0, max_iter=50, tol=None)
    (path,) = tmp_path.iterdir()
    left = tmp_path / f".{path.name}.{dead_process()}.abc.part"
    left.write_bytes(b"half a checkpoint")
    solve(X, y, solver=solver, random_state=0, max_iter=500, tol=None)
    assert list(tmp_path.iterdir()) == [path]
