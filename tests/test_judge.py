"""An independent judge: the same problems, stated in cvxpy and solved by Clarabel."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from drolearn import (
    KL,
    ChiSquare,
    CressieRead,
    CVaR,
    Divergence,
    Hellinger,
    JensenShannon,
    ReverseKL,
    TotalVariation,
    worst_case,
)
from tests.examples import CUSTOM_BENT, name

cp = pytest.importorskip("cvxpy")

JUDGED = [
    ChiSquare(),
    KL(),
    ReverseKL(),
    Hellinger(),
    JensenShannon(),
    TotalVariation(),
    CVaR(0.2),
    CressieRead(-1.0),
    CressieRead(0.5),
    CressieRead(1.5),
    CressieRead(3.0),
    CUSTOM_BENT,
]


def divergence_of(divergence: Divergence, p, b):
    """Σ b φ(p/b) as cvxpy sees it, written from the definitions and not from the library."""
    s = cp.multiply(p, 1.0 / b)
    match divergence:
        case ChiSquare():
            return cp.sum(cp.multiply(b, cp.square(s - 1.0)))
        case KL():
            return cp.sum(cp.kl_div(p, b))
        case ReverseKL():
            return cp.sum(cp.kl_div(b, p))
        case Hellinger():
            return 1.0 - cp.sum(cp.multiply(b, cp.sqrt(s)))
        case JensenShannon():
            middle = 0.5 * (p + b)
            return 0.5 * cp.sum(cp.rel_entr(p, middle)) + 0.5 * cp.sum(cp.rel_entr(b, middle))
        case TotalVariation():
            return 0.5 * cp.norm1(p - b)
        case CressieRead(k=k):
            power = cp.sum(cp.multiply(b, cp.power(s, k)))
            return (power - 1.0) / (k * (k - 1.0))
    # A square on [½, 2] and its tangents outside: s is split into three parts.
    inner, below, above = (cp.Variable(p.shape, nonneg=True) for _ in range(3))
    terms = cp.square(inner - 1.0) + below + 2.0 * above
    return cp.sum(cp.multiply(b, terms)), [s == inner - below + above, inner >= 0.5, inner <= 2.0]


def judged_value(z, b, rho, divergence) -> float:
    p = cp.Variable(z.size, nonneg=True)
    constraints = [cp.sum(p) == 1.0]
    if isinstance(divergence, CVaR):
        constraints.append(p <= b / divergence.level)
    else:
        stated = divergence_of(divergence, p, b)
        if isinstance(stated, tuple):
            constraints += stated[1]
            stated = stated[0]
        constraints.append(stated <= rho)
    problem = cp.Problem(cp.Maximize(z @ p), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10)


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("divergence", JUDGED, ids=name)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_the_judge_agrees(divergence, rho, weighted):
    rng = np.random.default_rng(7)
    z = rng.exponential(size=30)
    base = rng.uniform(0.5, 2.0, size=30) if weighted else None
    b = np.full(30, 1.0 / 30.0) if base is None else base / base.sum()
    expected = judged_value(z, b, rho, divergence)
    wc = worst_case(z, rho, divergence, base)
    # The judge's tolerance is the larger one: ours is certified by the gap.
    assert wc.gap <= 1e-10
    assert wc.value == pytest.approx(expected, abs=2e-6)
