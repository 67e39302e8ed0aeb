"""Data of linear models: layouts, units, degenerate columns, extreme numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import solve
from tests.examples import labelled


@pytest.mark.parametrize("form", ["C", "F", "float32", "csr", "csc", "list"])
def test_all_layouts_give_the_same_optimum(form):
    X, y = labelled(200)
    X = np.round(X, 2).astype(np.float32).astype(np.float64)
    best = solve(X, y, rho=0.3, tol=1e-10, max_iter=500).value
    data = {
        "C": X, "F": np.asfortranarray(X), "float32": X.astype(np.float32),
        "csr": sp.csr_matrix(X), "csc": sp.csc_matrix(X), "list": X.tolist(),
    }[form]  # fmt: skip
    for solver in ("newton", "lbfgs"):
        solution = solve(data, y, rho=0.3, solver=solver, tol=1e-10, max_iter=500)
        assert solution.value == pytest.approx(best, rel=1e-8)


def test_repeated_entries_of_sparse_rows_are_summed():
    X, y = labelled(300, 3)
    order = np.tile([2, 2, 0, 0, 1, 1], 300)
    data = np.repeat(X[:, [2, 0, 1]], 2, axis=1).ravel() / 2
    doubled = sp.csr_matrix((data, order, np.arange(301) * 6), shape=(300, 3))
    for solver in ("newton", "gssg"):
        a = solve(doubled, y, solver=solver, random_state=0, max_iter=20)
        b = solve(sp.csr_matrix(X), y, solver=solver, random_state=0, max_iter=20)
        assert a.value == pytest.approx(b.value, rel=1e-9)
    assert doubled.nnz == 1800  # the user's matrix is not changed


def test_a_weight_of_two_equals_the_row_twice():
    X, y = labelled(100)
    weights = np.random.default_rng(0).integers(0, 3, 100)
    once = solve(X, y, rho=0.5, sample_weight=weights, tol=1e-10, l2=1e-3)
    rows = np.repeat(np.arange(100), weights)
    twice = solve(X[rows], y[rows], rho=0.5, tol=1e-10, l2=1e-3)
    assert once.value == pytest.approx(twice.value, rel=1e-8)
    np.testing.assert_allclose(once.coef, twice.coef, rtol=1e-3, atol=1e-5)


def test_units_of_the_columns_do_not_matter():
    X, y = labelled(2000)
    scaled = X * np.array([1e-6, 1.0, 1e6, 1.0, 3.0]) + np.array([0, 5, -1e7, 0, 1])
    for solver in ("exact", "gssg", "sgd"):
        a = solve(X, y, solver=solver, random_state=0, max_iter=20, tol=1e-5)
        b = solve(scaled, y, solver=solver, random_state=0, max_iter=20, tol=1e-5)
        assert b.value == pytest.approx(a.value, rel=1e-3)


def test_columns_far_from_zero_are_used():
    rng = np.random.default_rng(0)
    e = rng.standard_normal(2000)
    y = e + 0.5 * rng.standard_normal(2000) > 0
    near, far = (solve((M + e)[:, None], y, solver="exact").value for M in (0.0, 5e9))
    assert far == pytest.approx(near, rel=1e-3)
    with pytest.raises(ValueError, match=r"Column 0 has 3\.9e\+200: rescale it"):
        solve(1e200 * e[:, None], y)


def test_one_row_and_constant_columns():
    assert solve([[1.0, 2.0]], [3.0], loss="squared", l2=0.1).converged
    X, y = labelled(100)
    X[:, 2] = 7.0
    for solver in ("exact", "gssg", "newton", "lbfgs"):
        solution = solve(X, y, solver=solver, max_iter=50)
        assert solution.coef[2] == 0.0
        assert solution.value < math.log(2.0)


def test_huge_and_tiny_numbers():
    X, y = labelled(300)
    best = solve(X, y).value
    for factor in (1e-100, 1e100):
        for solver in ("exact", "gssg"):
            solution = solve(X * factor, y, solver=solver, random_state=0)
            assert solution.value <= best * 1.1
