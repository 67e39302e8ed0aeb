"""The worst case of losses that live on a device, for χ² and KL: tensors in, tensors out.

The numbers are those of :func:`drolearn.worst_case`.  Nothing is copied to the host and nothing
waits for it: every branch is a `torch.where`, every loop has a fixed number of rounds, so that
this runs asynchronously on accelerators and without a break under `torch.compile`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["DeviceWorstCase", "solve_chi2", "solve_kl"]

#: Radii below this count as zero, as in compiled code.
_TINY = 1e-15
#: KL's multiplier: so many rounds that cut its bracket into so many parts, then Newton's method.
_CUTS, _PARTS, _NEWTON = 5, 16, 5
#: Numbers that are looked at in one operation, to bound memory.
_AT_ONCE = 1 << 22


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

    p = b (z − η)₊/s.  In falling order, with S₁ = Σ b (z − η)₊ and S₂ = Σ b (z − η)₊², a loss is
    active if S₂ > (1 + ρ) S₁² at η = z: both are sums of gaps between neighbours, without
    cancellation.  Seen from the least active loss, η = least − h, with B, m, v the base weight,
    mean and variance of the active losses and k = ρ B − (1 − B),

        h = (v − k m²) / (k m + √(k v)),   s = B (m + h).

    Multipliers: α = s/2, λ = η + s.
    """
    # p² ≤ (1 + ρ) b: weights this small hold no mass that shows.
    dust = torch.finfo(z.dtype).eps ** 2 / 400.0
    b = torch.where(b < dust, torch.zeros_like(b), b)

    def search(d: Tensor) -> tuple[Tensor, ...]:
        tiny = torch.finfo(d.dtype).tiny
        order = torch.argsort(d, descending=True)
        sorted_d, sorted_b = d[order], b[order]
        gap = sorted_d[:-1] - sorted_d[1:]
        mass = sorted_b.cumsum(0)[:-1]
        first = (mass * gap).cumsum(0)
        second = (gap * (2.0 * first - mass * gap)).cumsum(0)
        inside = (second > (1.0 + rho) * first.square()) | (first <= 0.0)
        place = torch.arange(1, d.numel(), device=d.device)
        last = torch.cat([place.new_zeros(1), inside * place]).max()
        least = sorted_d.gather(0, last.reshape(1))  # an index would ask the host
        active = torch.where(d >= least, b, torch.zeros_like(b))
        total = active.sum()
        e = d - least
        m = (active * e).sum() / total.clamp_min(tiny)
        v = (active * (e - m).square()).sum() / total.clamp_min(tiny)
        k = rho * total - (b - active).sum()
        full, k = k <= 0.0, k.clamp_min(tiny)
        h = (v - k * m.square()).clamp_min(0.0) / (k * m + (k * v).sqrt()).clamp_min(tiny)
        s = total * (m + h)
        p = b * (e + h).clamp_min(0.0) / s.clamp_min(tiny)
        alpha, lam = s / 2.0, least[0] - h + s
        t = (d - lam) / alpha.clamp_min(tiny)
        conjugate = torch.where(t >= -2.0, t + t.square() / 4.0, torch.full_like(t, -1.0))
        dual = lam + alpha * rho + alpha * (b * conjugate).sum()
        return p, alpha, lam, dual, full | (s <= 0.0)

    def divergence(p: Tensor) -> Tensor:
        return (b * (p / torch.where(b > 0.0, b, torch.ones_like(b)) - 1.0).square()).sum()

    return _framed(z, b, rho, search, divergence)


def solve_kl(z: Tensor, b: Tensor, rho: float) -> DeviceWorstCase:
    """max Σ p z over Σ p log(p/b) ≤ ρ, for base weights b of sum 1.

    p ∝ b exp(t z).  With L(t) = log Σ b exp(t z) and y = t z − L, D = Σ b (y eʸ − eʸ + 1) grows
    with t, from below −t Σ b z to all that there is once the second largest loss has vanished.
    α = 1/t, λ = L/t.
    """
    goal = math.log(rho) if rho >= _TINY else -math.inf

    def at(t: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log D − log ρ, L, and p, for a column of t."""
        L = (b * (t * d).exp()).sum(-1, keepdim=True).log()
        y = (t * d - L).clamp_min(-700.0)
        w = y.exp()
        D = (b * (w * y - y.expm1())).sum(-1, keepdim=True)  # no term is negative
        return D.clamp_min(torch.finfo(d.dtype).tiny).log() - goal, L, b * w

    def search(d: Tensor) -> tuple[Tensor, ...]:
        tiny = torch.finfo(d.dtype).tiny
        second = torch.where((d < 0.0) & (b > 0.0), d, torch.full_like(d, -1.0)).max()
        low = goal - (-(b * d).sum()).clamp_min(tiny).log()
        high = (-800.0 / second).log()
        part = torch.arange(1, _PARTS, device=d.device, dtype=d.dtype) / _PARTS
        each = 1 if d.numel() * (_PARTS - 1) > _AT_ONCE else _PARTS - 1
        for _ in range(_CUTS):
            x = low + (high - low) * part
            above = torch.cat([at(some[:, None].exp(), d)[0] for some in x.split(each)])[:, 0]
            low, high = (
                torch.cat([low.reshape(1), torch.where(above <= 0.0, x, low)]).max(),
                torch.cat([high.reshape(1), torch.where(above > 0.0, x, high)]).min(),
            )
        x = 0.5 * (low + high)
        for _ in range(_NEWTON):
            t = x.exp()
            above, L, p = at(t, d)
            p = p / p.sum()
            variance = (p * (d - (p * d).sum()).square()).sum()
            slope = t.square() * variance / (above[0] + goal).exp()
            step = x - above[0] / slope.clamp_min(tiny)
            low, high = torch.where(above[0] > 0.0, low, x), torch.where(above[0] > 0.0, x, high)
            x = torch.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        t = x.exp()
        _, L, p = at(t, d)
        return p, 1.0 / t, L[0] / t, (rho + L[0]) / t, torch.zeros_like(t, dtype=torch.bool)

    def divergence(p: Tensor) -> Tensor:
        w = p / torch.where(b > 0.0, b, torch.ones_like(b))
        y = w.clamp_min(torch.finfo(w.dtype).tiny).log()
        return (b * (w * y - y.expm1())).sum()

    return _framed(z, b, rho, search, divergence)


def _framed(
    z: Tensor,
    b: Tensor,
    rho: float,
    search: Callable[[Tensor], tuple[Tensor, ...]],
    divergence: Callable[[Tensor], Tensor],
) -> DeviceWorstCase:
    """The worst case by a search that sees the losses as d = (z − top)/range, between −1 and 0.

    Rows without weight do not count.  Small balls hold the base weights alone, large ones all
    that lies on the largest losses.
    """
    infinity = torch.full_like(z, math.inf)
    top = torch.where(b > 0.0, z, -infinity).max()
    bottom = torch.where(b > 0.0, z, infinity).min()
    half = (0.5 * top - 0.5 * bottom).clamp_min(torch.finfo(z.dtype).tiny)  # cannot overflow
    d = ((0.5 * z - 0.5 * top) / half).clamp(-1.0, 0.0)
    zero = torch.zeros_like(half)
    if rho < _TINY:
        mean = top + 2.0 * (half * (b * d).sum())
        return DeviceWorstCase(b, mean, zero, zero + math.inf, mean, zero)
    ties = torch.where(d >= 0.0, b, torch.zeros_like(b))
    peak = ties / ties.sum()
    p, alpha, lam, dual, flat = search(d)
    alone = flat | (divergence(peak) <= rho) | (bottom >= top)
    p = torch.where(alone, peak, p / p.sum())
    alpha, lam, dual = (torch.where(alone, zero, each) for each in (alpha, lam, dual))
    value, achieved = (p * d).sum(), divergence(p)
    # Weights outside the ball are no better than those inside.
    gap = (dual - value).clamp_min(0.0) + alpha * (achieved - rho * (1.0 + 1e-9)).clamp_min(0.0)
    return DeviceWorstCase(
        p,
        top + 2.0 * (half * value),
        achieved,
        2.0 * (half * alpha),
        top + 2.0 * (half * lam),
        2.0 * (half * gap),
    )
