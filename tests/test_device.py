"""Worst cases that are computed on the device of the losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drolearn import worst_case
from drolearn.nn.device import solve_chi2, solve_kl

pytestmark = pytest.mark.xdist_group("torch")


@pytest.mark.parametrize(("solve", "divergence"), [(solve_chi2, "chi2"), (solve_kl, "kl")])
def test_solvers_in_single_precision(solve, divergence):
    """Some devices have no double precision."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, rho = int(rng.integers(2, 2000)), 10.0 ** rng.uniform(-8.0, 1.0)
        z = torch.tensor(rng.exponential(size=n) * 10.0 ** rng.uniform(-2, 2), dtype=torch.float32)
        result = solve(z, torch.full((n,), 1.0 / n), rho)
        want = worst_case(z.double().numpy(), rho, divergence)
        np.testing.assert_allclose(result.value.item(), want.value, rtol=1e-5)
        np.testing.assert_allclose(result.weights.numpy(), want.weights, atol=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 200), st.integers(0, 10**6), st.floats(-16.0, 3.0), st.booleans(), st.booleans(),
    st.sampled_from(["chi2", "kl"]),
)  # fmt: skip
def test_solvers_equal_worst_case(n, seed, exponent, weighted, ties, divergence):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(n) ** 3 * 10.0 ** rng.uniform(-3, 3) + rng.choice([0.0, -7.0])
    z = np.round(z) if ties else z
    b = rng.random(n) * (rng.random(n) < 0.7) if weighted else np.ones(n)
    b[rng.integers(n)] += 1e-3 if weighted else 0.0  # at least one positive weight
    rho = 10.0**exponent  # the smallest count as 0
    solve = solve_chi2 if divergence == "chi2" else solve_kl
    result = solve(torch.from_numpy(z), torch.from_numpy(b / b.sum()), rho)
    want = worst_case(z, rho, divergence, b)
    scale = max(np.ptp(z[b > 0.0]), 1e-12)
    close = 1e-10 if rho > 1e-12 else 1e-8  # smaller radii are close to rounding
    assert abs(result.value.item() - want.value) <= close * scale + 1e-12 * abs(want.value)
    assert result.gap.item() <= 10.0 * close * scale
    assert result.achieved.item() <= rho * (1.0 + 1e-8) + 1e-12
    np.testing.assert_allclose(result.weights.sum().item(), 1.0, rtol=1e-12)
    assert (result.weights.numpy()[b == 0.0] == 0.0).all()
    if rho > 1e-8 and want.alpha > 1e-6 * scale:  # not where the ball just holds all weights
        np.testing.assert_allclose(result.alpha.item(), want.alpha, rtol=1e-4)
        np.testing.assert_allclose(result.lam.item(), want.lam, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize(("solve", "divergence"), [(solve_chi2, "chi2"), (solve_kl, "kl")])
@pytest.mark.parametrize(
    ("z", "b", "rho"),
    [
        ([0.0] * 9999 + [1.0], None, 5.0),
        ([0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1e-6], 1.0),
        ([0.0, 0.1, 0.2, 1.0], [1.0, 1.0, 1.0, 1e-17], 3.0),
        ([0.0, 1.0], [1.0, 1e-10], 1e10 * (1.0 - 1e-3)),
        ([0.0, 0.5, 1.0], [1.0, 1.0, 1e-9], 4e8),
        ([0.6, 0.3, 0.0], None, math.nextafter(2.0, 0.0)),
        ([0.5, 1.0, 2.0, 10.0], [1.0, 1.0, 1.0, 0.0], 5.0),
        ([1e308, -1e308, 0.0], None, 0.1),
        ([1e-200, 3e-200, 7e-200], None, 0.1),
        ([3.0, 3.0, 3.0], None, 0.1),
        ([3.0], None, 0.1),
        ([1.0, 2.0, 4.0], None, 0.0),
        ([1.0, 2.0, 4.0], None, math.inf),
    ],
)
def test_extreme_problems(solve, divergence, z, b, rho):
    z, b = np.array(z), np.ones(len(z)) if b is None else np.array(b)
    result = solve(torch.from_numpy(z), torch.from_numpy(b / b.sum()), rho)
    want = worst_case(z, rho, divergence, b)
    assert abs(result.value.item() - want.value) <= 1e-10 * np.abs(z).max()
    np.testing.assert_allclose(result.weights.numpy(), want.weights, atol=1e-10)
    assert result.gap.item() <= 1e-9 * np.abs(z).max()
    assert result.achieved.item() <= rho * (1.0 + 1e-9) + 1e-14
