"""Reports of stochastic gradients: bias, variance and cost of blocks, and recommended settings."""

from __future__ import annotations

import itertools
import sys

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

from drolearn import GSSG, CVaR, Multilevel, gradient_report, solve, worst_case
from drolearn._solvers.gradient_levels import block_gradients, measure
from drolearn._solvers.gradient_report import GradientReport
from drolearn._solvers.inputs import as_problem
from tests.examples import noisy

mpl.use("Agg")


def data(n=400, seed=0):
    X, y = noisy(n=n, seed=seed)
    return X, y, np.array([0.7, -0.4, 0.2, 0.1])


def at_point(X, y, theta, rho=0.5, divergence="chi2"):
    """The problem in scaled coordinates, its evaluation, and the gradient on all rows."""
    from dataclasses import replace

    problem = as_problem(
        X, y, rho=rho, divergence=divergence, loss="logistic", l2=0.0, fit_intercept=True,
        sample_weight=None, groups=None, n_jobs=None,
    )  # fmt: skip
    problem = replace(problem, scaling="draws")
    at = problem.evaluate(problem.scores(theta[None]))
    return problem, at, problem.scaled_gradient(problem.gradient(at))


def quick(*arguments, **options):
    """A report from few draws."""
    return gradient_report(*arguments, **{"budget": 20_000, **options})


def test_bias_and_variance_are_those_of_all_subsets():
    X, y, theta = data(6)
    y[:2] = -1.0, 1.0
    problem, at, full = at_point(X, y, theta)
    rows = [
        problem.scaled_gradient(problem.data_gradient(at.slopes, np.eye(6)[i])) for i in range(6)
    ]
    report = gradient_report(theta, X, y, rho=0.5, batch_size=1, random_state=0)
    assert report.levels["rows"].tolist() == [1, 3, 6]
    assert report.gradient_norm == pytest.approx(np.linalg.norm(full))
    for k, size in enumerate((1, 3)):
        every = np.array(
            [
                worst_case(at.losses[list(chosen)], 0.5).weights @ np.array(rows)[list(chosen)]
                for chosen in itertools.combinations(range(6), size)
            ]
        )
        bias = np.linalg.norm(every.mean(axis=0) - full)
        assert bias > 0.0
        spread = 4.0 * report.levels["bias_error"][k]
        assert report.levels["bias"][k] == pytest.approx(bias, abs=spread)
        assert spread < bias  # the test can fail
        variance = np.sum((every - every.mean(axis=0)) ** 2, axis=1).mean()
        assert report.levels["variance"][k] == pytest.approx(variance, rel=0.1)


@pytest.mark.parametrize("divergence", ["chi2", "kl", "hellinger", CVaR(0.5)])
def test_levels_telescope_and_all_rows_have_no_bias(divergence):
    X, y, theta = data()
    rho = None if isinstance(divergence, CVaR) else 0.5
    problem, at, full = at_point(X, y, theta, rho, divergence)
    method = Multilevel(400, batch_size=3, rho=problem.rho)
    gradients = block_gradients(problem, at)
    levels = measure(method, gradients, full, 200_000, np.random.default_rng(0))
    # The base block and all corrections add up to the gradient on all rows.
    total = levels.mean[0] + full + levels.correction.sum(axis=0)
    noise = levels.variance[0] / levels.draws[0] + (levels.spread / levels.draws).sum()
    assert np.linalg.norm(total - full) <= 3.0 * np.sqrt(noise)
    bias, error = levels.bias()
    assert bias[0] > 3.0 * error[0]  # there is something to correct
    assert bias[-1] == error[-1] == levels.variance[-1] == 0.0
    assert (levels.variance[:-1] > 0.0).all()
    assert bias[0] > bias[2]


def test_without_a_ball_no_batch_is_biased():
    X, y, theta = data()
    levels = gradient_report(theta, X, y, rho=0.0, random_state=0).levels
    assert (levels["bias"] <= 3.0 * levels["bias_error"] + 1e-12).all()
    # Without replacement, the variance of a mean of M rows is σ² (1/M − 1/N).
    unit = levels["variance"][:-1] / (1.0 / levels["rows"][:-1] - 1.0 / 400)
    np.testing.assert_allclose(unit, unit[0], rtol=0.2)


def test_methods_have_the_variance_and_the_cost_of_their_draws():
    X, y, theta = data()
    report = gradient_report(theta, X, y, rho=0.5, random_state=0)
    problem, at, full = at_point(X, y, theta)
    recommended = Multilevel(
        400, batch_size=report.batch_size, rho=0.5, r=report.r, fire=report.fire
    )
    assert recommended.sizes[0] == report.batch_size < 400
    rng, gradients = np.random.default_rng(1), block_gradients(problem, at)
    drawn = np.array([gradients(recommended.draw(rng))[1] for _ in range(8000)])
    row = report.to_frame("methods").set_index("method").loc["gssg, recommended"]
    assert row["cost"] == pytest.approx(recommended.cost)
    assert row["bias"] == 0.0
    variance = np.sum((drawn - full) ** 2, axis=1).mean()
    assert row["variance"] == pytest.approx(variance, rel=0.15)
    work = row["cost"] * (row["variance"] + full @ full) / (400 * full @ full)
    assert row["work"] == pytest.approx(work)


def test_recommended_settings_are_the_best_and_can_be_used():
    X, y, theta = data()
    report = gradient_report(theta, X, y, random_state=0)
    assert report.batch_size in report.levels["rows"]
    assert 0.25 < report.r < 0.5
    assert 0.0 < report.fire <= 1.0
    work = report.to_frame("methods").set_index("method")["work"]
    assert work["gssg, recommended"] <= min(work["gssg"], work["gssg, fire=1"])
    assert work["fsg"] == 1.0
    solver = GSSG(report.batch_size, r=report.r, fire=report.fire)
    assert solve(X, y, solver=solver, max_iter=5, tol=None, random_state=0).converged
    assert "Recommended: GSSG(batch_size=" in repr(report)
    exact = gradient_report(solve(X, y, rho=0.1), X, y, random_state=0)
    assert exact.batch_size == 400  # at the optimum, only all rows make progress
    assert repr(exact).endswith("Recommended: an exact solver")


def test_models_of_all_kinds_are_points():
    X, y, _ = data()
    model = LogisticRegression().fit(X, y)
    theta = np.append(model.coef_, model.intercept_)
    reports = [quick(each, X, y, random_state=0) for each in (model, theta, theta[None])]
    assert len({report.gradient_norm for report in reports}) == 1
    line = Ridge().fit(X, X[:, 0] + X[:, 1] ** 2)
    assert quick(line, X, X[:, 0], loss="squared", random_state=0).gradient_norm > 0.0
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    three = LogisticRegression().fit(X, classes)
    assert (quick(three, X, classes, loss="multinomial").levels["variance"][:-1] > 0).all()
    solution = solve(X, y, solver="gssg", max_iter=1, tol=None, random_state=0)
    assert quick(solution, sp.csr_matrix(X), y, random_state=0).batch_size >= 16


def test_weights_groups_and_few_rows():
    X, y, theta = data()
    weights = np.where(np.arange(400) < 200, 1.0, 0.0)
    weights[:2] = 3.0
    report = quick(theta, X, y, sample_weight=weights, random_state=0)
    assert report.levels["variance"][-1] == 0.0
    half = quick(theta, X[:200], y[:200], sample_weight=weights[:200], random_state=0)
    assert report.gradient_norm == pytest.approx(half.gradient_norm)
    names = np.where(X[:, 0] > 0.0, "a", "b")
    groups = quick(theta, X, y, rho=0.5, groups=names, random_state=0)
    assert groups.levels["rows"][-1] == 400
    assert groups.levels["bias"][0] > groups.levels["bias"][-1] == 0.0
    one = quick(theta, X, y, batch_size=400)
    assert one.levels["rows"].tolist() == [400]
    assert one.probabilities == ()
    assert one.batch_size == 400


def test_the_seed_decides():
    X, y, theta = data(100)
    one, same, other = (quick(theta, X, y, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.levels["variance"], same.levels["variance"])
    assert one.levels["variance"][0] != other.levels["variance"][0]


def test_tables_and_plots(monkeypatch):
    import matplotlib.pyplot as plt

    X, y, theta = data(100)
    report = quick(theta, X, y, random_state=0)
    assert isinstance(report, GradientReport)
    assert list(report.to_frame()) == list(report.levels)
    assert report.to_frame()["moment"].isna().tolist() == [True, False, False]
    ax = plt.subplots()[1]
    assert report.plot(ax) is ax
    plt.close("all")
    with pytest.raises(ValueError, match=r"'levels' or 'methods'. Got 'all'"):
        report.to_frame("all")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="need pandas"):
        report.to_frame()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (None, {}, "must be a Solution, a fitted linear model .* Got NoneType"),
        (LogisticRegression(), {}, "Got LogisticRegression instead"),
        (np.zeros(7), {}, "must hold 4 finite numbers"),
        (np.zeros(4), {"batch_size": 0}, "'batch_size' parameter must be an integer from 1 to 100"),
        (np.zeros(4), {"batch_size": 101}, "from 1 to 100. Got 101"),
        (np.zeros(4), {"budget": 0}, "'budget' parameter"),
        (np.zeros(4), {"rho": -1.0}, "'rho'"),
        (np.zeros(4), {"groups": np.eye(100, 2, dtype=bool)}, "overlapping groups"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(model, options, message):
    X, y, _ = data(100)
    with pytest.raises(ValueError, match=message):
        quick(model, X, y, **options)
