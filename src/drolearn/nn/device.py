"""The worst case of losses on an accelerator, for χ² and KL, with tensor operations only.

The results are those of :func:`drolearn.worst_case`.  Nothing is copied to the host or waits for
it: every branch is a `torch.where` and every loop has a fixed number of rounds, so this runs
asynchronously on accelerators and without a graph break under `torch.compile`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SMALLEST_RADIUS", "DeviceWorstCase", "solve_chi2", "solve_kl"]

#: Radii below this count as zero, as in the compiled core.
SMALLEST_RADIUS = 1e-15
#: For the multiplier of KL: 5 rounds that divide its bracket by 16, then 5 Newton steps.
_BRACKET_ROUNDS, _PARTS, _NEWTON_STEPS = 5, 16, 5
#: Most numbers in one operation, to bound memory.
_MOST_NUMBERS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWorstCase:
    """The results of :class:`drolearn.WorstCase`, as tensors on the device of the losses.

    Attributes
    ----------
    weights : Tensor of shape (n,)
        The worst-case weights p*.
    value : Tensor of shape ()
        The robust loss Σ p* z.
    achieved : Tensor of shape ()
        The divergence of p*, at most the radius.
    alpha : Tensor of shape ()
        The multiplier of the ball.
    lam : Tensor of shape ()
        The multiplier of Σ p = 1.
    gap : Tensor of shape ()
        Duality gap: no weights in the ball have a loss above value + gap.
    """

    weights: Tensor
    value: Tensor
    achieved: Tensor
    alpha: Tensor
    lam: Tensor
    gap: Tensor


def solve_chi2(z: Tensor, b: Tensor, rho: float) -> DeviceWorstCase:
    """Maximise Σ p z over Σ b (p/b − 1)² ≤ ρ, for base weights b of sum 1.

    The solution is p = b (z − η)₊/s.  Let S₁ = Σ b (z − η)₊ and S₂ = Σ b (z − η)₊².  A loss z is
    active if S₂ > (1 + ρ) S₁² at η = z; both are sums of differences of neighbours in decreasing
    order, without cancellation.  Let B be the base weight of the active losses, and m and v mean
    and variance of their distances from the smallest active loss.  With k = ρ B − (1 − B),
    η = smallest − h and

        h = (v − k m²) / (k m + √(k v)),   s = B (m + h).

    Multipliers: α = s/2, λ = η + s.
    """
    # p² ≤ (1 + ρ) b: for weights this small, p is below the precision of the sum.
    negligible = torch.finfo(z.dtype).eps ** 2 / 400.0
    b = torch.where(b < negligible, torch.zeros_like(b), b)

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
        least = sorted_d.gather(0, last.reshape(1))  # an index would wait for the host
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

    return _solve_scaled(z, b, rho, search, divergence)


def solve_kl(z: Tensor, b: Tensor, rho: float) -> DeviceWorstCase:
    """Maximise Σ p z over Σ p log(p/b) ≤ ρ, for base weights b of sum 1.

    The solution is p ∝ b exp(t z).  With L(t) = log Σ b exp(t z) and y = t z − L, the divergence
    D = Σ b (y eʸ − eʸ + 1) grows with t.  If max z = 0, D ≤ −t Σ b z, and D has reached its limit
    when the weight of the second largest loss underflows: this gives a bracket for t.
    Multipliers: α = 1/t, λ = L/t.
    """
    goal = math.log(rho) if rho >= SMALLEST_RADIUS else -math.inf

    def at(t: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log D − log ρ, L and p for a column of t."""
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
        each = 1 if d.numel() * (_PARTS - 1) > _MOST_NUMBERS else _PARTS - 1
        for _ in range(_BRACKET_ROUNDS):
            x = low + (high - low) * part
            above = torch.cat([at(points[:, None].exp(), d)[0] for points in x.split(each)])[:, 0]
            low, high = (
                torch.cat([low.reshape(1), torch.where(above <= 0.0, x, low)]).max(),
                torch.cat([high.reshape(1), torch.where(above > 0.0, x, high)]).min(),
            )
        x = 0.5 * (low + high)
        for _ in range(_NEWTON_STEPS):
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

    return _solve_scaled(z, b, rho, search, divergence)


def _solve_scaled(
    z: Tensor,
    b: Tensor,
    rho: float,
    search: Callable[[Tensor], tuple[Tensor, ...]],
    divergence: Callable[[Tensor], Tensor],
) -> DeviceWorstCase:
    """Solve with `search`, which gets scaled losses d = (z − top)/range between −1 and 0.

    Rows without weight do not count.  The smallest balls contain only the base weights; the
    largest ones allow all weight on the largest losses.
    """
    infinity = torch.full_like(z, math.inf)
    top = torch.where(b > 0.0, z, -infinity).max()
    bottom = torch.where(b > 0.0, z, infinity).min()
    half = (0.5 * top - 0.5 * bottom).clamp_min(torch.finfo(z.dtype).tiny)  # cannot overflow
    d = ((0.5 * z - 0.5 * top) / half).clamp(-1.0, 0.0)
    zero = torch.zeros_like(half)
    if rho < SMALLEST_RADIUS:
        mean = top + 2.0 * (half * (b * d).sum())
        return DeviceWorstCase(b, mean, zero, zero + math.inf, mean, zero)
    ties = torch.where(d >= 0.0, b, torch.zeros_like(b))
    peak = ties / ties.sum()
    p, alpha, lam, dual, degenerate = search(d)
    at_peak = degenerate | (divergence(peak) <= rho) | (bottom >= top)
    p = torch.where(at_peak, peak, p / p.sum())
    alpha, lam, dual = (torch.where(at_peak, zero, each) for each in (alpha, lam, dual))
    value, achieved = (p * d).sum(), divergence(p)
    # A violation of the ball counts as part of the gap.
    gap = (dual - value).clamp_min(0.0) + alpha * (achieved - rho * (1.0 + 1e-9)).clamp_min(0.0)
    return DeviceWorstCase(
        p,
        top + 2.0 * (half * value),
        achieved,
        2.0 * (half * alpha),
        top + 2.0 * (half * lam),
        2.0 * (half * gap),
    )
