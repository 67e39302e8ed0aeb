"""Exact solvers with a checkpoint: a fit that was stopped or killed ends at the same bits."""

import os
import signal
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest

import drolearn._solvers.exact as exact
from drolearn import LBFGS, CVaR, Ending, Exact, Newton, RobustClassifier, solve


class Killed(BaseException):
    """Ends a fit from a callback, as a kill would."""


@pytest.fixture
def always_save(monkeypatch):
    """Save at every iteration, not once a second."""
    monkeypatch.setattr(exact, "_SAVE_EVERY", 0.0)
    monkeypatch.setattr(exact, "_SAVE_SHARE", 0.0)


def make_data(n=600, d=5, classes=2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = (X[:, 0] + rng.standard_normal(n) > 0).astype(int)
    return X, y + (X[:, 1] > 0) if classes == 3 else y


def kill_at(evaluation):
    def callback(history):
        if len(history.value) == evaluation:
            raise Killed

    return callback


def assert_same(solution, other):
    np.testing.assert_array_equal(solution.theta, other.theta)
    np.testing.assert_array_equal(solution.worst.weights, other.worst.weights)
    np.testing.assert_equal(solution.group_weights, other.group_weights)
    np.testing.assert_equal(solution.gap, other.gap)
    assert (solution.value, solution.passes) == (other.value, other.passes)
    assert (solution.ending, solution.solver) == (other.ending, other.solver)
    assert solution.history.value == other.history.value
    assert solution.history.samples == other.history.samples


SETTINGS = {
    "smooth": {"rho": 0.3},
    "groups": {"rho": 0.5, "groups": np.arange(600) % 4},
    "total variation": {"rho": 0.1, "divergence": "total-variation"},
    "cvar": {"divergence": CVaR(0.3), "l2": 1e-3},
    "zero model": {"rho": 3.0, "l2": 1e-3},
    "multinomial": {"rho": 0.2, "loss": "multinomial"},
}


NOT_FOR_NEWTON = ("total variation", "cvar", "multinomial")


@pytest.mark.parametrize(
    ("solver", "name"),
    [(solver, name) for solver in (Exact, LBFGS) for name in SETTINGS]
    + [(Newton, name) for name in SETTINGS if name not in NOT_FOR_NEWTON],
)
def test_a_killed_fit_continues_to_the_same_bits(solver, name, tmp_path, always_save):
    settings = SETTINGS[name]
    X, y = make_data(classes=3 if name == "multinomial" else 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = solve(X, y, solver=solver(), **settings)
        evaluations = len(expected.history.value)
        for number, k in enumerate(np.unique(np.linspace(1, evaluations, 5).astype(int))):
            chosen = solver(checkpoint=tmp_path / str(number))
            with pytest.raises(Killed):
                solve(X, y, solver=chosen, callback=kill_at(k), **settings)
            assert_same(solve(X, y, solver=chosen, **settings), expected)
            # A fit that is complete returns the same solution again.
            assert_same(solve(X, y, solver=chosen, **settings), expected)


def test_more_iterations_continue_an_exhausted_fit(tmp_path):
    X, y = make_data()
    solver = LBFGS(checkpoint=tmp_path)
    first = solve(X, y, solver=solver, max_iter=6)
    assert first.ending is Ending.EXHAUSTED
    second = solve(X, y, solver=solver, max_iter=100)
    assert second.converged
    assert second.history.value[: len(first.history.value)] == first.history.value


@pytest.mark.parametrize(
    "change",
    [
        {"rho": 0.2},
        {"tol": 1e-4},
        {"l2": 0.1},
        {"start": np.ones(6)},
        {"groups": np.arange(600) % 2},
        {"sample_weight": np.r_[2.0, np.ones(599)]},
        {"solver": Exact},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_settings_have_a_file_of_their_own(change, tmp_path):
    X, y = make_data()
    solve(X, y, solver=LBFGS(checkpoint=tmp_path))
    settings = dict(change)
    solver = settings.pop("solver", LBFGS)
    given = solve(X, y, solver=solver(checkpoint=tmp_path), **settings)
    assert_same(given, solve(X, y, solver=solver(), **settings))
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_ctrl_c_saves_and_returns_the_best_model(tmp_path):
    X, y = make_data()
    solver = LBFGS(checkpoint=tmp_path)

    def interrupt(history):
        if len(history.value) == 4:
            raise KeyboardInterrupt

    stopped = solve(X, y, solver=solver, callback=interrupt)
    assert stopped.ending is Ending.INTERRUPTED
    assert stopped.gap > 0.0
    assert_same(solve(X, y, solver=solver), solve(X, y, solver=LBFGS()))


@pytest.mark.parametrize("divergence", ["total-variation", CVaR(0.3)])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, None])
def test_a_stop_while_smoothing_is_never_reported_as_converged(divergence, raised):
    X, y = make_data()
    whole = solve(X, y, divergence=divergence, max_iter=500)
    evaluations = len(whole.history.value)
    for k in range(evaluations // 2, evaluations, max(evaluations // 12, 1)):

        def callback(history, k=k):
            if len(history.value) == k and raised is not None:
                raise raised
            return len(history.value) >= k

        stopped = solve(X, y, divergence=divergence, max_iter=500, callback=callback)
        assert stopped.ending is (Ending.STOPPED if raised is None else Ending.INTERRUPTED)
        assert stopped.value >= whole.value - whole.gap
        assert stopped.value - stopped.gap <= whole.value


def test_a_damaged_file_is_a_named_error(tmp_path):
    X, y = make_data()
    solver = LBFGS(checkpoint=tmp_path)
    solve(X, y, solver=solver)
    (file,) = tmp_path.glob("*.npz")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,"  # NumPy reads it as Python
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / "header", "w") as archive:
        archive.writestr("theta.npy", array)
    for content in (file.read_bytes()[:500], (tmp_path / "header").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint of drolearn, or is damaged: del"):
            solve(X, y, solver=solver)


def test_a_checkpoint_must_be_a_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="The 'checkpoint' setting must name a folder"):
        solve(*make_data(), solver=Exact(checkpoint=file))


def test_estimators_continue_from_a_checkpoint(tmp_path):
    X, y = make_data()
    model = RobustClassifier(solver=Exact(checkpoint=tmp_path)).fit(X, y)
    again = RobustClassifier(solver=Exact(checkpoint=tmp_path)).fit(X, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert len(list(tmp_path.glob("*.npz"))) == 1


KILLED = """
import sys
import numpy as np
import drolearn._solvers.exact as exact
from drolearn import LBFGS, solve

exact._SAVE_EVERY = exact._SAVE_SHARE = 0.0
rng = np.random.default_rng(0)
X = rng.standard_normal((600, 5))
y = (X[:, 0] + rng.standard_normal(600) > 0).astype(int)

def callback(history):
    if len(history.value) == 4:
        print("ready", flush=True)
        sys.stdin.read()

solve(X, y, solver=LBFGS(checkpoint=sys.argv[1]), callback=callback)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
def test_a_killed_process_continues_to_the_same_bits(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"ready\n"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    X, y = make_data()
    continued = solve(X, y, solver=LBFGS(checkpoint=tmp_path))
    assert_same(continued, solve(X, y, solver=LBFGS()))
