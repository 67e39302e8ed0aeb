"""The worst case of losses that live on a device, for χ² and KL: tensors in, tensors out.

The numbers are those of :func:`drolearn.worst_case`.  Nothing is copied to the host and nothing
waits for it: every branch is a `torch.where`, every loop has a fixed number of rounds, so that
this runs asynchronously on accelerators and without a break under `torch.compile`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["DeviceWorstCase", "solve_chi2", "solve_kl"]

#: Rounds of the search for KL's multiplier.  Newton's method needs about eight; from a bad start
#: bisection comes first.
_ROUNDS = 64
#: Radii below this count as zero, as in compiled code.
_TINY = 1e-15


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWorstCase:
    """What :class:`drolearn.WorstCase` has, as tensors on the device of the losses."""

    weights: Tensor
    value: Tensor
    achieved: Tensor
    alpha: Tensor
    lam: Tensor
    gap: Tensor


def solve_chi2(z: Tensor, b: Tensor, rho: float) -> DeviceWorstCase:
    """max Σ p z over Σ b (p/b − 1)² ≤ ρ, for base weights b of sum 1.

    p = b (z − η)₊/s: with B, m, v the base weight, mean and variance of the losses above η,

        u = m − η = √(v / (ρ B − (1 − B))),   s = B u.

    In falling order, the losses above η are the longest prefix whose own η lies below its last.
    Multipliers: α = s/2, λ = η + s.
    """
    if rho < _TINY:
        return _average(z, b)
    tiny = torch.finfo(z.dtype).tiny
    top = z.max()
    d = z - top
    order = torch.argsort(d, descending=True)
    sorted_d, sorted_b = d[order], b[order]
    mass = sorted_b.cumsum(0)
    # 1 − B is added up from the other end: small radii would drown in its rounding.
    rest = sorted_b.flip(0).cumsum(0).flip(0) - sorted_b
    mean = (sorted_b * sorted_d).cumsum(0) / mass.clamp_min(tiny)
    square = (sorted_b * sorted_d.square()).cumsum(0) / mass.clamp_min(tiny)
    excess = rho * mass - rest
    eta = mean - ((square - mean.square()).clamp_min(0.0) / excess.clamp_min(tiny)).sqrt()
    inside = (excess > 0.0) & (eta < sorted_d)
    last = (inside * torch.arange(1, z.numel() + 1, device=z.device)).max().clamp_min(1) - 1
    # Sums over a prefix lose digits; those over the active losses themselves do not.
    own = eta.gather(0, last.reshape(1))  # an index would ask the host
    active = torch.where(d > own, b, torch.zeros_like(b))
    total = active.sum()
    mean = (active * d).sum() / total.clamp_min(tiny)
    variance = (active * (d - mean).square()).sum() / total.clamp_min(tiny)
    u = (variance / (rho * total - (b - active).sum()).clamp_min(tiny)).sqrt()
    s, eta = total * u, mean - u
    p = b * (d - eta).clamp_min(0.0) / s.clamp_min(tiny)
    # A large ball holds the largest losses alone.
    ties = torch.where(d >= 0.0, b, torch.zeros_like(b))
    alone = ((1.0 + rho) * ties.sum() >= 1.0) | (s <= 0.0)
    p = torch.where(alone, ties, p)
    p = p / p.sum()
    zero = torch.zeros_like(s)
    alpha, lam = torch.where(alone, zero, s / 2.0), torch.where(alone, zero, eta + s)
    t = (d - lam) / alpha.clamp_min(tiny)
    conjugate = torch.where(t >= -2.0, t + t.square() / 4.0, torch.full_like(t, -1.0))
    dual = torch.where(alone, zero, lam + alpha * rho + alpha * (b * conjugate).sum())
    achieved = (b * (p / b.clamp_min(tiny) - 1.0).square()).sum()
    value = (p * d).sum()
    gap = (dual - value).clamp_min(0.0)
    return DeviceWorstCase(p, value + top, achieved, alpha, lam + top, gap)


def _average(z: Tensor, b: Tensor) -> DeviceWorstCase:
    """A ball without extent holds the base weights alone."""
    top = z.max()
    value, zero = top + (b * (z - top)).sum(), torch.zeros_like(top)
    return DeviceWorstCase(b, value, zero, zero + math.inf, value, zero)


def solve_kl(z: Tensor, b: Tensor, rho: float) -> DeviceWorstCase:
    """max Σ p z over Σ p log(p/b) ≤ ρ, for base weights b of sum 1.

    p ∝ b exp(t z).  With L(t) = log Σ b exp(t z) and y = t z − L, D = Σ b (y eʸ − eʸ + 1) grows
    with t, and log D is close to straight in x = log t: Newton's method there, inside a bracket.
    α = 1/t, λ = L/t.
    """
    if rho < _TINY:
        return _average(z, b)
    tiny = torch.finfo(z.dtype).tiny
    top = z.max()
    d = z - top
    ties = torch.where(d >= 0.0, b, torch.zeros_like(b))
    alone = rho >= -ties.sum().log()
    variance = (b * (d - (b * d).sum()).square()).sum()
    alone = alone | (variance <= 0.0)
    goal = math.log(rho)
    x = 0.5 * (math.log(2.0) + goal - variance.clamp_min(tiny).log())
    low, high = x - 5.0, x + 60.0
    t, L, mean, D = x.exp(), x, x, x
    p = b
    for _ in range(_ROUNDS):
        t = x.exp()
        mass = (b * (t * d).exp()).sum().clamp_min(tiny)
        L = mass.log()
        y = (t * d - L).clamp_min(-700.0)
        w = y.exp()
        p = b * w
        p = p / p.sum()
        mean = (p * d).sum()
        D = (b * (w * y - y.expm1())).sum().clamp_min(tiny)  # no term is negative
        above = D.log() - goal
        low, high = torch.where(above > 0.0, low, x), torch.where(above > 0.0, x, high)
        slope = t.square() * (p * (d - mean).square()).sum() / D
        step = x - above / slope.clamp_min(1e-12)
        x = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
    zero = torch.zeros_like(t)
    p = torch.where(alone, ties / ties.sum(), p)
    alpha = torch.where(alone, zero, 1.0 / t)
    lam = torch.where(alone, zero, L / t)
    value = (p * d).sum()
    achieved = torch.where(alone, -ties.sum().log(), D)
    gap = torch.where(alone, -value, alpha * rho + lam - value).clamp_min(0.0)
    return DeviceWorstCase(p, value + top, achieved, alpha, lam + top, gap)
