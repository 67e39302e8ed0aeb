"""Robust linear models: optimal, the same on all kinds of data, resumable, hard to break."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from drolearn import (
    FSG,
    GSSG,
    PSSG,
    SGD,
    CVaR,
    Ending,
    Fixed,
    Full,
    Growing,
    Loss,
    Multilevel,
    _core,
    solve,
    worst_case,
)
from drolearn._solvers.descent import Constant, Decay, State, run_steps
from drolearn._solvers.problem import Problem
from drolearn.divergence import as_divergence
from drolearn.loss import as_loss

SCALAR = ["logistic", "squared-hinge", "smoothed-hinge", "squared", "huber"]


def with_settings(name, **settings):
    """The solver of a name, with some settings."""
    solvers = {"gssg": GSSG(), "gssg-anchor": GSSG(anchor=True), "pssg": PSSG(), "fsg": FSG()}
    return solvers.get(name, SGD()).set_params(**settings)


STOCHASTIC = ["gssg", "gssg-anchor", "pssg", "fsg", "sgd"]


def classes(n=400, d=5, seed=0, flips=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-1, 2, d) + 1.0
    y = np.where((X / X.std(axis=0)) @ rng.standard_normal(d) > 0.5, 1, -1)
    return X, np.where(rng.random(n) < flips, -y, y)


def judged(X, y, rho, divergence, loss, l2):
    """The optimum by cvxpy, with the inner maximum written as its dual."""
    n, d = X.shape
    w, c, lam = cp.Variable(d), cp.Variable(), cp.Variable()
    margin, residual = cp.multiply(y, X @ w + c), X @ w + c - y
    z = {
        "logistic": lambda: cp.logistic(-margin),
        "squared-hinge": lambda: cp.square(cp.pos(1 - margin)),
        "smoothed-hinge": lambda: 0.5 * cp.huber(cp.pos(1 - margin), 1.0),
        "squared": lambda: 0.5 * cp.square(residual),
        "huber": lambda: 0.5 * cp.huber(residual, 1.35),
    }[loss]()
    bounds = []
    if divergence == "chi2":
        robust = lam + math.sqrt((1 + rho) / n) * cp.norm(cp.pos(z - lam))
    elif divergence == "kl":
        alpha, over, top = cp.Variable(nonneg=True), cp.Variable(n), cp.Variable(n)
        bounds = [cp.ExpCone(top - lam, alpha * np.ones(n), over), top >= z]
        robust = lam + alpha * (rho - 1) + cp.sum(over) / n
    else:
        robust = lam + cp.sum(cp.pos(z - lam)) / (n * divergence.level)
    problem = cp.Problem(cp.Minimize(robust + 0.5 * l2 * cp.sum_squares(w)), bounds)
    return problem.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(
    "loss", ["logistic", "squared-hinge", "smoothed-hinge", "squared", "huber"]
)
@pytest.mark.parametrize("divergence", ["chi2", "kl"])
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "exact"])
def test_exact_solvers_against_the_judge(loss, divergence, solver):
    X, y = classes(150)
    if as_loss(loss).of == "residual":
        y = X[:, 0] + np.random.default_rng(1).standard_normal(150)
    found = solve(
        X, y, rho=0.3, divergence=divergence, loss=loss, l2=0.01, solver=solver, tol=1e-9,
        max_iter=500,
    )  # fmt: skip
    assert found.converged, found.status
    assert found.value == pytest.approx(judged(X, y, 0.3, divergence, loss, 0.01), rel=2e-6)
    assert found.gap <= 1e-6 * found.value


def test_straight_divergences_come_close_to_the_judge():
    X, y = classes(150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the judge itself finds it hard
        best = judged(X, y, 0.3, CVaR(0.5), "logistic", 0.01)
    found = solve(X, y, divergence=CVaR(0.5), l2=0.01, solver="exact", max_iter=500)
    assert best - 1e-8 <= found.value <= best * 1.01


@pytest.mark.parametrize("rho", [0.0, 1e-6, 0.01, 0.5, 3.0, 10.0])
@pytest.mark.parametrize("divergence", ["chi2", "kl", "jensen-shannon", "hellinger"])
def test_certificates_hold_for_all_radii(rho, divergence):
    X, y = classes()
    rho = min(rho, {"kl": 5.0, "jensen-shannon": 0.3, "hellinger": 0.3}.get(divergence, rho))
    found = solve(X, y, rho=rho, divergence=divergence, solver="exact", tol=1e-8, max_iter=300)
    assert found.gap <= 1e-5 * found.value, found.status
    rng = np.random.default_rng(0)
    for _ in range(20):  # nothing nearby is better than the certificate allows
        w = found.coef * (1 + 0.01 * rng.standard_normal(5))
        z = np.logaddexp(0.0, -y * (X @ w + found.intercept))
        assert worst_case(z, rho, divergence).value >= found.value - found.gap - 1e-12


def test_no_model_is_better_than_none_in_a_huge_ball():
    X, y = classes(flips=0.4)
    found = solve(X, y, rho=10.0)
    assert found.value == pytest.approx(math.log(2.0), rel=1e-12)
    assert found.gap < 1e-9
    assert found.ending is Ending.ZERO_MODEL
    assert "The zero model is optimal" in found.status


def test_without_a_radius_it_is_logistic_regression():
    X, y = classes()
    n = X.shape[0]
    found = solve(X, y, rho=0.0, l2=0.01, tol=1e-12, max_iter=500)
    other = LogisticRegression(C=1 / (0.01 * n), tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(found.coef, other.coef_[0], rtol=1e-4, atol=1e-6)
    weights = np.random.default_rng(0).integers(0, 4, n)
    found = solve(X, y, rho=0.0, l2=0.01, tol=1e-12, max_iter=500, sample_weight=weights)
    other = LogisticRegression(C=1 / (0.01 * weights.sum()), tol=1e-12, max_iter=10_000)
    other.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(found.coef, other.coef_[0], rtol=1e-4, atol=1e-6)


def test_multinomial_is_multinomial():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    y = np.array(["a", "b", "c"])[np.argmax(X[:, :3] + rng.standard_normal((300, 3)), axis=1)]
    found = solve(X, y, loss="multinomial", rho=0.0, l2=0.01, tol=1e-12, max_iter=500)
    other = LogisticRegression(C=1 / (0.01 * 300), tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(found.coef, other.coef_, atol=1e-5)
    robust = solve(X, y, loss="multinomial", rho=0.5, l2=0.01, max_iter=500)
    assert robust.converged
    assert robust.value > found.value
    near = solve(
        X, y, loss="multinomial", rho=0.5, l2=0.01, solver="gssg", max_iter=1000, tol=None,
        random_state=0,
    )  # fmt: skip
    assert near.value == pytest.approx(robust.value, rel=5e-3)


def test_a_weight_of_two_is_the_row_twice():
    X, y = classes(100)
    weights = np.random.default_rng(0).integers(0, 3, 100)
    once = solve(X, y, rho=0.5, sample_weight=weights, tol=1e-10, l2=1e-3)
    rows = np.repeat(np.arange(100), weights)
    twice = solve(X[rows], y[rows], rho=0.5, tol=1e-10, l2=1e-3)
    assert once.value == pytest.approx(twice.value, rel=1e-8)
    np.testing.assert_allclose(once.coef, twice.coef, rtol=1e-3, atol=1e-5)


# -- the loop against ten lines of NumPy ------------------------------------------------


def reference(X, y, base, method, step, steps, l2, clip, seed, anchor=None):
    """The loop as the mathematics says it, in the coordinates of the data."""
    rng, n = np.random.default_rng(seed), X.shape[0]
    A = np.column_stack([X, np.ones(n)])
    theta, total, weight, norm = np.zeros(A.shape[1]), np.zeros(A.shape[1]), 0.0, 0.0
    penalty = np.append(np.full(X.shape[1], l2), 0.0)
    gammas = step(np.arange(steps, dtype=float))

    def parts(draw, at):
        rows = draw.indices
        margin = y[rows] * (A[rows] @ at)
        z, slope = np.logaddexp(0.0, -margin), -y[rows] / (1.0 + np.exp(margin))
        u = draw.weights(z, "chi2", None if base is None else base[rows]) * slope
        return [
            A[rows[part]].T @ u[part]
            for part in (slice(draw.batch_size), slice(draw.batch_size, None))
        ]

    for t in range(steps):
        draw = method.draw(rng, t)
        first, more = parts(draw, theta)
        size = np.linalg.norm(first)
        if t < 100 or t % 8 == 0:
            norm += (size - norm) / min(t + 1, 100)
        bound = clip * norm * math.sqrt(1 + t / 100)
        extra = np.linalg.norm(more)
        more = more * (bound / extra if extra > bound else 1.0)
        theta = (theta - gammas[t] * (first + more)) / (1 + gammas[t] * penalty)
        omega = (1 / 1000) ** 2 / gammas[0]
        total, weight = total + omega * gammas[t] * theta, weight + omega * gammas[t]
    return theta, total / weight


@pytest.mark.parametrize("form", ["C", "F", "float32", "csr"])
@pytest.mark.parametrize("kind", ["multilevel", "tamed", "fixed", "growing", "full"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loop_is_what_it_says(form, kind, weighted):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 7)) * (rng.random((60, 7)) < 0.6)
    X = X.astype(np.float32).astype(np.float64)
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(60) > 0, 1.0, -1.0)
    base = rng.exponential(size=60) * (rng.random(60) < 0.8) if weighted else None
    method = {
        "multilevel": Multilevel(60, batch_size=3),
        "tamed": Multilevel(60, batch_size=3, fire=0.3, warm=20),
        "fixed": Fixed(60, 5),
        "growing": Growing(60, 5, rate=1.05),
        "full": Full(60),
    }[kind]
    clip = 1.0 if kind == "tamed" else math.inf
    steps, l2 = 50, 0.03
    theta, average = reference(X, y, base, method, Decay(0.5, 20.0), steps, l2, clip, 7)
    data = {
        "C": X,
        "F": np.asfortranarray(X),
        "float32": X.astype(np.float32),
        "csr": sp.csr_matrix(X),
    }[form]
    problem = Problem(
        data, y, base, loss=as_loss("logistic"),
        divergence=as_divergence("chi2"), rho=0.1, l2=l2, intercept=True, scaling="none",
    )  # fmt: skip
    state = State.new(problem.zeros(), np.random.default_rng(7))

    _one_stay(problem, method, state, Decay(0.5, 20.0)(np.arange(float(steps))), clip)
    np.testing.assert_allclose(state.theta[0], theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(state.averaged[0], average, rtol=1e-9, atol=1e-12)


def _one_stay(problem, method, state, gammas, clip):
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state.generator
    omega = (1 / 1000) ** 2 / gammas[0]
    status = run_steps(problem, method, state, rng, (gammas, clip, omega, math.inf))
    assert status == _core.OK


@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("solver", STOCHASTIC)
def test_dense_and_sparse_take_the_same_way(solver, l2):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((500, 6)) * (rng.random((500, 6)) < 0.5)
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(500) > 0, 1, -1)
    same = {
        "solver": with_settings(solver, step_size=0.05),
        "random_state": 0,
        "tol": None,
        "max_iter": 5,
    }
    dense = solve(X, y, l2=l2, **same)
    sparse = solve(sp.csr_matrix(X), y, l2=l2, **same)
    assert dense.state is not None
    assert sparse.state is not None
    np.testing.assert_allclose(sparse.state.theta, dense.state.theta, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(sparse.state.averaged, dense.state.averaged, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("form", ["C", "F", "float32", "csr", "csc", "list"])
def test_all_kinds_of_data_give_the_same_optimum(form):
    X, y = classes(200)
    X = np.round(X, 2).astype(np.float32).astype(np.float64)
    best = solve(X, y, rho=0.3, tol=1e-10, max_iter=500).value
    data = {
        "C": X, "F": np.asfortranarray(X), "float32": X.astype(np.float32),
        "csr": sp.csr_matrix(X), "csc": sp.csc_matrix(X), "list": X.tolist(),
    }[form]  # fmt: skip
    for solver in ("newton", "lbfgs"):
        found = solve(data, y, rho=0.3, solver=solver, tol=1e-10, max_iter=500)
        assert found.value == pytest.approx(best, rel=1e-8)


def test_units_of_the_columns_do_not_matter():
    X, y = classes(2000)
    scaled = X * np.array([1e-6, 1.0, 1e6, 1.0, 3.0]) + np.array([0, 5, -1e7, 0, 1])
    for solver in ("exact", "gssg", "sgd"):
        a = solve(X, y, solver=solver, random_state=0, max_iter=20, tol=1e-5)
        b = solve(scaled, y, solver=solver, random_state=0, max_iter=20, tol=1e-5)
        assert b.value == pytest.approx(a.value, rel=1e-3)


@pytest.mark.parametrize("solver", STOCHASTIC)
def test_stochastic_methods_come_close(solver):
    X, y = classes(3000, 8)
    best = solve(X, y, rho=0.5, tol=1e-10).value
    found = solve(X, y, rho=0.5, solver=solver, max_iter=100, tol=None, random_state=0)
    assert best * (1 - 1e-9) <= found.value <= best * 1.02
    assert found.converged
    assert found.passes == pytest.approx(100, rel=0.05)
    assert found.history.samples == sorted(found.history.samples)


def test_anchors_converge_where_plain_draws_flatten_out():
    X, y = classes(4000, 4, flips=0.2)
    best = solve(X, y, rho=0.1, tol=1e-13, max_iter=500).value
    gaps = {}
    for solver in ("gssg", "gssg-anchor"):
        found = solve(X, y, solver=solver, max_iter=150, tol=None, random_state=0)
        gaps[solver] = found.value / best - 1
    assert gaps["gssg-anchor"] < 1e-9
    assert gaps["gssg"] > 1e-7


def test_multilevel_beats_the_bias_of_a_fixed_batch():
    X, y = classes(4000, 4, flips=0.1)
    best = solve(X, y, rho=0.1, divergence="kl", tol=1e-10).value
    gaps = []
    for method in (GSSG(batch_size=8, fire=1.0), SGD(batch_size=8)):
        found = solve(
            X, y, rho=0.1, divergence="kl", solver=method, max_iter=500, tol=None, random_state=0
        )
        assert found.state is not None
        gaps.append(found.value / best - 1)
    assert gaps[0] < 0.25 * gaps[1]


# -- state, progress, interruption -------------------------------------------------------


def test_same_seed_same_bits_for_any_number_of_threads():
    X, y = classes(30_000, 12)
    for solver in ("gssg-anchor", "gssg", "exact"):
        results = [
            solve(X, y, solver=solver, random_state=3, max_iter=4, n_jobs=n_jobs, tol=None)
            for n_jobs in (None, 2, 3)
        ]
        for other in results[1:]:
            np.testing.assert_array_equal(results[0].coef, other.coef)
            assert results[0].value == other.value


@pytest.mark.parametrize("solver", ["gssg", "gssg-anchor", "pssg"])
@pytest.mark.parametrize("sparse", [False, True])
def test_resumed_runs_end_with_the_same_bits(solver, sparse, tmp_path):
    X, y = classes(3000, 20)
    data = sp.csr_matrix(X * (abs(X) > 1)) if sparse else X
    settings = {"solver": solver, "random_state": 1, "max_iter": 40, "tol": None, "l2": 1e-4}
    whole = solve(data, y, **settings)
    settings["solver"] = with_settings(solver, checkpoint=tmp_path)
    half = solve(data, y, callback=lambda history: True, **settings)
    assert half.ending is Ending.STOPPED
    assert half.passes < 40
    # What was saved before the stop is where it goes on.
    resumed = solve(data, y, **settings)
    assert len(list(tmp_path.iterdir())) == 1
    assert whole.state is not None
    assert resumed.state is not None
    np.testing.assert_array_equal(resumed.state.theta, whole.state.theta)
    np.testing.assert_array_equal(resumed.state.average, whole.state.average)
    np.testing.assert_array_equal(resumed.coef, whole.coef)


def test_a_damaged_checkpoint_is_named(tmp_path):
    X, y = classes(100)
    solve(X, y, solver=GSSG(checkpoint=tmp_path), random_state=0, max_iter=50, tol=None)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for content in (b"not a checkpoint", whole[: len(whole) // 2], b""):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint of drolearn, or is damaged"):
            solve(X, y, solver=GSSG(checkpoint=tmp_path), random_state=0)
    for byte in range(0, 64):  # headers of the archive, the method of compression among them
        file.write_bytes(whole[:byte] + bytes([whole[byte] ^ 0xFF]) + whole[byte + 1 :])
        with suppress(ValueError):  # and nothing else
            solve(X, y, solver=GSSG(checkpoint=tmp_path), random_state=0, max_iter=50, tol=None)
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(ValueError, match="must name a folder that can be written to"):
        solve(X, y, solver=GSSG(checkpoint=in_the_way))


def test_no_fit_continues_another(tmp_path):
    X, y = classes(100)
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
        own = {**given, "solver": clone(given["solver"]).set_params(checkpoint=None)}
        want = solve(own.pop("X"), own.pop("y"), max_iter=20, tol=None, **own)
        found = solve(given.pop("X"), given.pop("y"), max_iter=20, tol=None, **given)
        np.testing.assert_array_equal(found.theta, want.theta, err_msg=str(change))
        assert len(list(tmp_path.iterdir())) == number, change


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    X, y = classes(100)
    solver = GSSG(checkpoint=tmp_path)
    solve(X, y, solver=solver, max_iter=50, tol=None)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        solve(X, y, solver=solver, max_iter=500, tol=None)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_interruption_leaves_the_best_model():
    X, y = classes(2000)

    def interrupt(history):
        if len(history.samples) > 2:
            raise KeyboardInterrupt
        return False

    for solver in ("gssg", "lbfgs"):
        found = solve(X, y, solver=solver, max_iter=1000, tol=None, callback=interrupt)
        assert found.ending is Ending.INTERRUPTED
        assert found.value < math.log(2.0)
        assert not found.converged


@pytest.mark.parametrize("sparse", [False, True])
def test_a_step_size_that_explodes_is_named_and_the_best_model_kept(sparse):
    X, y = classes(500)
    data = sp.csr_matrix(X) if sparse else X
    found = solve(
        data, y - 0.5, loss="squared", solver=SGD(step_size=1e4), max_iter=50, random_state=0
    )
    assert found.ending is Ending.DIVERGED
    assert not found.converged
    assert np.isfinite(found.coef).all()
    assert found.value <= worst_case(0.5 * (y - 0.5) ** 2).value + 1e-12


def test_tune_finds_level_probabilities():
    X, y = classes(4000)
    method = Multilevel(4000, batch_size=16)
    solver = GSSG(batch_size=16, r="auto", fire=1.0)
    found = solve(X, y, solver=solver, random_state=0, max_iter=50, tol=None)
    assert found.state is not None
    assert len(found.state.probabilities) == method.sizes.size - 1
    assert 0.0 < sum(found.state.probabilities) <= 1.0


def test_own_loss_and_paper_settings():
    X, y = classes(1000)

    def value(x):
        return np.logaddexp(0.0, -x)

    def slope(x):
        return -1.0 / (1.0 + np.exp(x))

    own = Loss.custom(value, slope, of="margin", smoothness=0.25)
    a = solve(X, y, loss=own, solver="exact", tol=1e-9)
    b = solve(X, y, solver="exact", tol=1e-9)
    assert a.value == pytest.approx(b.value, rel=1e-8)
    # As printed, with the corrected law.
    plain = GSSG(1, fire=1.0, inflation=1.0, tame=False, average=True, step_size=Decay())
    start = np.random.default_rng(0).uniform(-1, 1, 6)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    found = solve(
        scaled, y, solver=plain, start=start, max_iter=300, tol=None, random_state=0
    )  # fmt: skip
    assert found.value < 1.15 * b.value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [[1.0, math.nan]] * 4}, "Input X contains NaN"),
        ({"X": [[1.0, math.inf]] * 4}, "Input X contains infinity"),
        ({"X": [1.0, 2.0, 3.0, 4.0]}, "Expected 2D array"),
        ({"X": np.empty((0, 2)), "y": []}, "0 sample"),
        ({"y": [1, 1, 1, 1]}, "must have at least two classes. Got one class instead"),
        ({"y": [1.0, math.nan, 1.0, 2.0]}, "The 'y' parameter must not hold NaN"),
        ({"y": [1, 2, 3, 1]}, "loss='multinomial' takes any number"),
        ({"y": [1, 2, 1]}, "inconsistent numbers of samples"),
        ({"X": [[1.0]], "y": [1]}, "Got one class instead"),
        ({"y": [1.0, math.nan, 1.0, 2.0], "loss": "squared"}, "contains NaN"),
        ({"rho": -0.1}, "The 'rho' parameter must be a number of at least 0"),
        ({"l2": -1.0}, "The 'l2' parameter"),
        ({"solver": "newtn"}, "Did you mean 'newton'"),
        ({"max_iter": 0}, "The 'max_iter' parameter must be a positive, finite number"),
        ({"tol": 2.0}, "The 'tol' parameter must be None or lie between 0 and 1"),
        ({"solver": SGD(batch_size=-1)}, "The 'batch_size' parameter"),
        ({"solver": GSSG(batch_size=0)}, "The 'batch_size' parameter"),
        ({"solver": SGD(step_size="big")}, "The 'step_size' setting"),
        ({"solver": SGD(step_size=-1.0)}, "The 'step_size' setting"),
        ({"solver": PSSG(rate=1.0)}, "The 'rate' parameter"),
        ({"solver": GSSG(fire=2.0)}, "The 'fire' parameter"),
        ({"solver": Fixed(7, 2)}, r"Use GSSG\(\), PSSG\(\), SGD\(\) or FSG\(\)"),
        ({"solver": GSSG}, r"Did you mean GSSG\(\)\?"),
        ({"solver": "erm"}, "Use rho=0 for the plain mean"),
        ({"solver": "newton", "divergence": "cvar"}, r"CVaR.* is not: use solver='lbfgs'"),
        ({"solver": "gssg", "groups": [0, 1, 0, 1]}, "cannot estimate the losses of groups"),
        ({"n_jobs": "a"}, "The 'n_jobs' parameter must be None or an integer"),
        ({"start": [1.0]}, "The 'start' parameter must hold 3 finite numbers"),
        ({"sample_weight": [1.0, 1.0, -1.0, 1.0]}, "must hold finite weights of at least 0"),
        ({"solver": "newton", "divergence": "cvar"}, "use solver='lbfgs'"),
    ],
)
def test_bad_input(change, message):
    given = {"X": [[1.0, 2.0], [2.0, 1.0], [0.0, 1.0], [1.0, 1.0]], "y": [1, 2, 1, 2], **change}
    with pytest.raises(ValueError, match=message):
        solve(given.pop("X"), given.pop("y"), **given)


def test_a_ball_that_holds_everything_warns():
    X, y = classes(50)
    with pytest.warns(UserWarning, match="the ball holds all weights"):
        solve(X, y, divergence="total-variation", rho=1.0, max_iter=20)


def test_one_row_and_constant_columns():
    assert solve([[1.0, 2.0]], [3.0], loss="squared", l2=0.1).converged
    X, y = classes(100)
    X[:, 2] = 7.0
    for solver in ("exact", "gssg", "newton", "lbfgs"):
        found = solve(X, y, solver=solver, max_iter=50)
        assert found.coef[2] == 0.0
        assert found.value < math.log(2.0)


def test_huge_and_tiny_numbers():
    X, y = classes(300)
    best = solve(X, y).value
    for factor in (1e-100, 1e100):
        for solver in ("exact", "gssg"):
            found = solve(X * factor, y, solver=solver, random_state=0)
            assert found.value <= best * 1.1


def test_steps():
    t = np.array([0.0, 5000.0])
    assert Decay()(t).tolist() == [1.0, 0.5]
    assert Constant(0.3)(t).tolist() == [0.3, 0.3]


# -- found by reviewers -------------------------------------------------------------------


def test_newton_does_not_end_in_a_corner():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 3))
        y = X[:, 0] + rng.standard_normal(40) > 0
        for loss in ("logistic", "smoothed-hinge"):
            best = solve(X, y, rho=0.5, divergence="kl", loss=loss, solver="lbfgs", max_iter=1000)
            found = solve(X, y, rho=0.5, divergence="kl", loss=loss, solver="newton", max_iter=1000)
            assert found.value <= best.value * (1 + 1e-4) or not found.converged
            assert found.value - found.gap <= best.value * (1 + 1e-9)


def test_the_gap_is_no_promise_next_to_zero():
    X, y = classes()
    best = solve(X, y).value
    found = solve(X, y, solver="exact", start=[1e-6, 0, 0, 0, 0, 0], callback=lambda history: True)
    assert found.value - found.gap <= best


def test_periodic_rows_do_not_fool_the_watch():
    rng, n = np.random.default_rng(0), 65_536
    y = (np.arange(n) % 4 == 0) * 1
    X = rng.standard_normal((n, 5)) + 0.5 * y[:, None]
    best = solve(X, y).value
    for solver in ("gssg", "sgd"):
        assert solve(X, y, solver=solver, max_iter=10, random_state=0).value <= best * 1.01


@pytest.mark.parametrize("solver", STOCHASTIC)
@pytest.mark.parametrize("l2", [0.1, 10.0, 1e4])
def test_large_penalties(solver, l2):
    X, y = classes(1000)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    best = solve(X, y, l2=l2, tol=1e-9).value
    found = solve(X, y, l2=l2, solver=solver, random_state=0, max_iter=200)
    assert found.value <= best * 1.005, found.status


def test_anchors_do_not_stop_while_steps_are_being_shortened():
    X, y = classes(1000)
    weights = (np.random.default_rng(1).random(1000) < 0.05) * 1.0
    best = solve(X, y, l2=0.1, sample_weight=weights).value
    found = solve(
        X, y, l2=0.1, sample_weight=weights, solver="gssg-anchor", random_state=0, max_iter=500
    )
    assert found.value <= best * 1.01 or not found.converged


def test_far_away_columns_count():
    rng = np.random.default_rng(0)
    e = rng.standard_normal(2000)
    y = e + 0.5 * rng.standard_normal(2000) > 0
    near, far = (solve((M + e)[:, None], y, solver="exact").value for M in (0.0, 5e9))
    assert far == pytest.approx(near, rel=1e-3)
    with pytest.raises(ValueError, match="change its unit"):
        solve(1e200 * e[:, None], y)


def test_repeated_entries_of_sparse_rows_are_summed():
    X, y = classes(300, 3)
    order = np.tile([2, 2, 0, 0, 1, 1], 300)
    data = np.repeat(X[:, [2, 0, 1]], 2, axis=1).ravel() / 2
    doubled = sp.csr_matrix((data, order, np.arange(301) * 6), shape=(300, 3))
    for solver in ("newton", "gssg"):
        a = solve(doubled, y, solver=solver, random_state=0, max_iter=20)
        b = solve(sp.csr_matrix(X), y, solver=solver, random_state=0, max_iter=20)
        assert a.value == pytest.approx(b.value, rel=1e-9)
    assert doubled.nnz == 1800  # the user's matrix is as it was


def test_what_cannot_move_starts_at_zero():
    X, y = classes(300, 3)
    start = [0, 0, 0, 5.0]
    found = solve(X, y, solver="gssg", fit_intercept=False, start=start, random_state=0)
    assert found.intercept == 0.0


def test_generators_of_all_kinds():
    X, y = classes(200)
    a = solve(X, y, solver="gssg", random_state=np.random.RandomState(1), max_iter=5)
    b = solve(X, y, solver="gssg", random_state=np.random.RandomState(1), max_iter=5)
    np.testing.assert_array_equal(a.coef, b.coef)
    rng = np.random.Generator(np.random.Philox(1))
    solve(X, y, solver="gssg", random_state=rng, max_iter=5)
    assert rng.random() != np.random.Generator(np.random.Philox(1)).random()  # it has moved on
    for wrong in (-1, 1.5, "a"):
        with pytest.raises(ValueError, match="The 'random_state' parameter"):
            solve(X, y, solver="gssg", random_state=wrong)


@pytest.mark.parametrize("step", [lambda t: -t, lambda t: np.ones((2, 2)), lambda t: None])
def test_step_functions_are_checked(step):
    X, y = classes(100)
    with pytest.raises(ValueError, match="a function from an array of steps"):
        solve(X, y, solver=SGD(step_size=step))
    assert solve(X, y, solver=SGD(step_size=lambda t: 1e-3), max_iter=5).value < 10.0


def test_stays_end_at_whole_sample_counts():
    """104 columns once made stays of 192,307.7 samples, the thirteenth of which never ended."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 104)).astype(np.float32)
    y = np.where(X[:, 0] + rng.standard_normal(2000) > 0, 1, -1)
    found = solve(X, y, solver=SGD(batch_size=16), max_iter=1300, tol=None, random_state=0)
    assert found.passes >= 1300


@pytest.mark.parametrize("order", ["random", "sorted", "rare"])
@pytest.mark.parametrize("solver", ["exact", "lbfgs", "newton"])
def test_a_start_on_some_of_the_rows_leads_to_the_same_optimum(order, solver):
    """Many rows: solvers start on a sixteenth and a quarter of them."""
    X, y = classes(40_000, 4, flips=0.1)
    if order == "sorted":
        rows = np.argsort(y, kind="stable")
        X, y = X[rows], y[rows]
    elif order == "rare":  # some of the rows may not have both classes
        y = np.where(np.arange(y.size) < 5, 1, -1)
    many = solve(X, y, l2=1e-3, solver=solver, tol=1e-9)
    there = solve(X, y, l2=1e-3, solver=solver, tol=1e-9, start=np.full(5, 1e-3))
    assert many.converged, many.status
    assert many.value == pytest.approx(there.value, rel=1e-8)
    np.testing.assert_allclose(many.theta, there.theta, atol=1e-3)
