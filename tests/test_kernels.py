"""Compiled code: its elementary functions, its callers, and itself without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from drolearn import ChiSquare, worst_case
from drolearn import _kernels as kernels
from tests.examples import ALL, name


@njit
def _tabulate(x):
    out = np.empty((3, x.size))
    for i in range(x.size):
        out[0, i] = kernels.fast_exp(x[i])
        out[1, i] = kernels.fast_expm1(x[i])
        out[2, i] = kernels.fast_log(abs(x[i]))
    return out


def test_elementary_functions_are_good_to_the_last_digits():
    x = np.concatenate(
        [-np.logspace(-300, np.log10(708.0), 20_001), np.logspace(-12, 2.84, 20_001)]
    )
    expected = [np.exp(x), np.expm1(x), np.log(np.abs(x))]
    for found, right in zip(_tabulate(x), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=5e-16)
    assert _tabulate(np.array([-708.5, -1e300, -np.inf]))[0].tolist() == [0.0, 0.0, 0.0]


@njit
def _blocks(spec, z, rho, sizes, work, out):
    """What the stochastic methods do: many blocks of different size, nothing allocated."""
    none = np.empty(0)
    total, start = 0.0, 0
    for size in sizes:
        found = kernels.solve(spec, z[start : start + size], none, rho, work, out[:size])
        total += kernels.Answer(*found).value
        start += size
    return total


@pytest.mark.parametrize("divergence", ALL, ids=name)
def test_callable_from_compiled_code(divergence):
    z = np.random.default_rng(0).exponential(size=300)
    sizes = np.array([1, 2, 4, 8, 16, 100])
    work, out = np.empty(kernels.WORK), np.empty(100)
    total = _blocks(divergence.spec, z, 0.1, sizes, work, out)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    blocks = [z[a : a + n] for a, n in zip(starts, sizes, strict=True)]
    assert total == pytest.approx(sum(worst_case(b, 0.1, divergence).value for b in blocks))


def test_without_the_compiler_the_numbers_are_the_same():
    """The kernels as plain Python: no meaning may hide in the compiler."""
    program = (
        "import json, numpy as np\n"
        "from drolearn import worst_case, CressieRead, CVaR\n"
        "z = np.random.default_rng(0).exponential(size=12)\n"
        "names = ['chi2', 'kl', 'reverse-kl', 'hellinger', 'jensen-shannon', 'total-variation',\n"
        "         'cvar', CressieRead(0.9), CressieRead(3.0), CressieRead(-1.0)]\n"
        "rows = [worst_case(z, r, d, b).weights.tolist() for d in names for r in (0.05, 0.8)\n"
        "        for b in (None, np.arange(12.0))]\n"
        "print(json.dumps(rows))\n"
    )
    rows = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        rows.append(np.array(json.loads(run.stdout)))
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-9, atol=1e-15)


def test_the_chunks_do_not_show():
    """One loss more or less than a chunk, or than what is sampled, is nothing special."""
    rng = np.random.default_rng(0)
    for edge in (kernels.CHUNK, 2 * kernels.CHUNK, kernels.SAMPLE_FROM):
        z = rng.standard_normal(edge + 1)
        for size in (edge - 1, edge, edge + 1):
            wc = worst_case(z[:size], 0.2)
            eta = wc.lam - 2.0 * wc.alpha
            expected = np.maximum(z[:size] - eta, 0.0)
            np.testing.assert_allclose(
                wc.weights, expected / expected.sum(), rtol=1e-12, atol=1e-18
            )
            assert wc.achieved == pytest.approx(0.2, rel=1e-12)


def test_a_sample_that_misleads_is_recovered_from():
    """Every n-th loss is sampled: make just these unlike all others."""
    size = 1 << 16
    stride = kernels.sample_stride(ChiSquare().spec, size)
    for divergence in ALL[:6]:
        z = np.random.default_rng(1).standard_normal(size)
        for lie in (100.0, -100.0, np.random.default_rng(2).standard_normal(size)[::stride] * 50.0):
            z[::stride] = lie
            wc = worst_case(z, 0.1, divergence)
            assert wc.gap <= 1e-10 * 300.0
            assert wc.achieved <= 0.1 * (1.0 + 1e-9)
        only = np.zeros(size)
        only[1::stride] = 1.0
        assert worst_case(z, 0.1, divergence, only).gap <= 1e-10 * 300.0
