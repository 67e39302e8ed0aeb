"""The robust loss of a batch, as a criterion for PyTorch.

The weights are those of :func:`drolearn.worst_case`; by Danskin's theorem the gradient of the
robust loss is the weighted sum of the gradients of the losses, with the weights held fixed.
"""

from __future__ import annotations

from typing import Any, Literal
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drolearn._inner.groups import Groups
from drolearn._inner.worst_case import WorstCase, not_finite, worst_case
from drolearn._solvers.draws import Draw
from drolearn._validation import as_groups, as_weights
from drolearn.divergence import Divergence, as_divergence
from drolearn.nn.checks import (
    as_base_weights,
    as_group_numbers,
    as_process_group,
    check_ball_of_draw,
    check_losses,
    check_values,
    radius_of,
    to_host,
)
from drolearn.nn.derivatives import in_transform, solve_as_constants, sum_once, weighted_sum
from drolearn.nn.device import SMALLEST_RADIUS, DeviceWorstCase, solve_chi2, solve_kl
from drolearn.nn.masks import as_mask, kept_rows, spread, take, take_groups
from drolearn.nn.processes import gather
from drolearn.nn.settings import Settings

__all__ = ["RobustLoss"]

_ON_DEVICE = {"chi2": solve_chi2, "kl": solve_kl}
#: The weights of these change only where the order of the losses does.
_PIECEWISE_LINEAR = {"cvar", "spectral", "total-variation"}
#: Excludes a function from the graphs of torch.compile; they break there.
_eager: Any = torch.compiler.disable
#: Types of devices whose memory the compiled core can read.
_HOSTS = {"cpu"}


@torch.library.custom_op(
    "drolearn::worst_case",
    mutates_args=(),
    schema=(
        "(Tensor z, Tensor? sample_weight, Tensor? skipped, float rho, str divergence) "
        "-> (Tensor, Tensor)"
    ),
)
def _weigh_by_name(z, sample_weight, skipped, rho, divergence):  # type: ignore[no-untyped-def]
    """Solve in the compiled core, as an operation of a graph: weights; value, D, α, λ and gap."""
    host, b = to_host(z), None if sample_weight is None else to_host(sample_weight)
    ball = rho, as_divergence(divergence)
    if skipped is None:
        solved = _solve_on_host(host, *ball, b)
        weights = solved.weights
    else:
        kept, weights = ~skipped.cpu().numpy(), np.zeros_like(host)
        if not kept.any():
            raise ValueError(
                f"The 'losses' parameter must hold a finite number that is not masked. "
                f"Got none of {host.size}."
            )
        solved = _solve_on_host(host[kept], *ball, None if b is None else b[kept])
        weights[kept] = solved.weights
    scalars = [solved.value, solved.achieved, solved.alpha, solved.lam, solved.gap]
    return torch.from_numpy(weights).to(z), z.new_tensor(scalars)


@_weigh_by_name.register_fake
def _(z, sample_weight, skipped, rho, divergence):  # type: ignore[no-untyped-def]
    return torch.empty_like(z), z.new_empty(5)


def _solve_on_host(
    z: NDArray[np.float64],
    rho: float,
    divergence: Divergence,
    b: NDArray[np.float64] | None,
    tau: float | None = None,
) -> WorstCase:
    """Call `worst_case`, without the radius if there is none."""
    radius = rho if tau is None and divergence.has_radius else None
    return worst_case(z, radius, divergence, b, tau=tau)


class RobustLoss(Settings):
    """The worst weighted mean of the losses over all weights in a φ-divergence ball.

    The gradient is Σ p* ∇z with the worst-case weights p* as constants.  It is exact; a second
    derivative raises an error, except for CVaR, total variation and a radius of 0, whose weights
    do not change with small changes of the losses.  `grad`, `vjp`, `jvp`, `jacrev` and `jacfwd`
    of `torch.func` and forward-mode derivatives work; `vmap` raises an error.

    `state_dict` holds the settings but the process group.  `load_state_dict` restores them, also
    in a criterion that was made with others.  The functions of a custom divergence cannot be
    stored: make the criterion with the same divergence, then load the state.  States of
    earlier versions hold no settings; the criterion then keeps its own.

    Parameters
    ----------
    rho : float, default=None
        Radius ρ ≥ 0 of the ball; None is 0.1.  0 gives the mean, `math.inf` the largest loss.  CVaR
        has no radius: leave it None.
    divergence : str or Divergence, default="chi2"
        Divergence of the ball: a name or an object, see :mod:`drolearn.divergence`.  χ² and KL are
        solved on the device of the losses, others in the compiled core on the host.
    nan : {"raise", "skip"}, default="raise"
        What to do with losses that are not finite: raise an error that counts them, or give them
        weight zero.
    tau : float, default=None
        Price τ ≥ 0 of a soft ball, instead of `rho`: the result is the largest Σ p z − τ D(P, B)
        over all weights p, which for KL is the tilted loss τ log Σ b exp(z/τ).  It is computed on
        the host, and not for draws.
    process_group : ProcessGroup or bool, default=None
        A process group of `torch.distributed`, True for the default group, None for no group.
        With a group, the losses of all processes are solved together.  Each process returns the
        robust loss of all; its gradient is the part of its own losses, times the number of
        processes, so the mean that DistributedDataParallel computes is the gradient of all.

    Attributes
    ----------
    weights : Tensor of the shape of the losses or None
        Worst-case weights of the last losses; None before the first call.
    certificate : WorstCase, DeviceWorstCase or None
        Value, divergence and duality gap of the last solution; None for draws.  With a mask, its
        own weights may be those of the remaining losses only.

    Examples
    --------
    >>> import torch
    >>> from drolearn.nn import RobustLoss
    >>> criterion = RobustLoss(rho=0.5)
    >>> losses = torch.tensor([0.1, 0.2, 0.3, 4.0], requires_grad=True)
    >>> loss = criterion(losses)
    >>> loss.backward()
    >>> round(loss.item(), 4), losses.grad.numpy().round(3)
    (2.3146, array([0.137, 0.148, 0.159, 0.556], dtype=float32))
    """

    def __init__(
        self,
        rho: float | None = None,
        divergence: str | Divergence = "chi2",
        *,
        nan: Literal["raise", "skip"] = "raise",
        tau: float | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self._configure(rho, divergence, nan, tau)
        self.process_group = as_process_group(process_group)
        self.weights: Tensor | None = None
        self._price = torch.zeros(())  # Σ p z minus the value of the last soft ball
        self.certificate: WorstCase | DeviceWorstCase | None = None

    def extra_repr(self) -> str:
        """Return the settings, for the printed module.

        Returns
        -------
        str
            The settings as in a call of the constructor.

        Examples
        --------
        >>> from drolearn.nn import RobustLoss
        >>> RobustLoss(rho=0.5, nan="skip")
        RobustLoss(rho=0.5, divergence=ChiSquare(), nan='skip')
        """
        more = "" if self.nan == "raise" else f", nan={self.nan!r}"
        more += "" if self.process_group is None else f", process_group={self.process_group!r}"
        radius = f"rho={self.rho!r}, " if self.divergence.has_radius else ""
        if self.tau is not None:
            radius = f"tau={self.tau!r}, "
        return f"{radius}divergence={self.divergence!r}{more}"

    def forward(
        self,
        losses: Tensor,
        draw: Draw | None = None,
        *,
        sample_weight: Tensor | None = None,
        groups: Any = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Compute the robust loss of a batch.

        Parameters
        ----------
        losses : Tensor of shape (n,), or of any shape with a mask
            One loss for each example (`reduction="none"`), of any floating-point type.
        draw : Draw, default=None
            The draw of the batch, as :class:`MultilevelBatches` gives it.  The result is then an
            unbiased estimate of the robust loss of all rows, and so is its gradient.
        sample_weight : Tensor of the shape of the losses, default=None
            Weights b ≥ 0 of the examples; None for equal ones.  They are constants for autograd.
        groups : array-like or Tensor of the shape of the losses, default=None
            Name or number of the group of each example; with a process group, numbers only.  The
            ball then consists of weights of the groups, and examples keep their weights within a
            group.
        mask : Tensor of the shape of the losses, default=None
            True or 1 for each loss that counts, False or 0 for padding.  The result is that of
            `losses[mask]`; all other losses, also NaN, get weight and gradient zero.

        Returns
        -------
        Tensor of shape ()
            The robust loss, of the type of the losses, but at least float32.

        Raises
        ------
        ValueError
            If an argument is not of the form above, or a loss is not finite and `nan` is "raise".
        RuntimeError
            If the criterion is called inside `torch.func.vmap` or `torch.func.functionalize`; or
            in a later backward pass, if the result is differentiated twice.

        Examples
        --------
        >>> import torch
        >>> from drolearn.nn import RobustLoss
        >>> criterion = RobustLoss(rho=0.5, divergence="kl")
        >>> losses = torch.tensor([0.1, 0.2, 0.3, 4.0])
        >>> round(criterion(losses).item(), 4)
        2.9628
        >>> round(criterion(losses, sample_weight=torch.tensor([3.0, 3.0, 3.0, 1.0])).item(), 4)
        2.0822
        >>> round(criterion(losses, groups=["a", "a", "b", "b"]).item(), 4)
        2.0536
        >>> round(criterion(losses, mask=torch.tensor([True, True, True, False])).item(), 4)
        0.2762
        """
        if torch.compiler.is_compiling():
            breaks = mask is not None and (groups is not None or not self._named)
            if breaks or in_transform(unknown=False):
                return self._forward_eagerly(losses, draw, sample_weight, groups, mask)
        if self.process_group is not None:
            return self._forward_together(losses, draw, sample_weight, groups, mask)
        check_losses(losses, 1, mask is not None)
        if draw is not None:
            self._check_draw(draw, losses.numel(), groups, mask)
        x, z = _with_precision(losses)
        b, given = as_base_weights(sample_weight, z), as_mask(mask, z)
        weights, skipped, rows = solve_as_constants(self._solve, z, b, groups, draw, given)
        if given is not None:
            x = x.reshape(-1) if rows is None else take(x, rows)
        return self._value(weights, x if skipped is None else x.masked_fill(skipped, 0.0))

    @_eager
    def _forward_eagerly(
        self, losses: Tensor, draw: Draw | None, sample_weight: Any, groups: Any, mask: Any
    ) -> Tensor:
        """Call `forward` without a graph, where torch.compile cannot trace it."""
        return self.forward(losses, draw, sample_weight=sample_weight, groups=groups, mask=mask)

    def _value(self, weights: Tensor, x: Tensor) -> Tensor:
        """Compute Σ weight × loss, minus the price of a soft ball, with derivatives."""
        if self.tau is not None:
            return sum_once(weights, x) - self._price.to(x.dtype)
        fixed = self.rho < SMALLEST_RADIUS or self.divergence.family in _PIECEWISE_LINEAR
        return weighted_sum(weights, x) if fixed else sum_once(weights, x)

    def _solve(
        self,
        z: Tensor,
        sample_weight: Tensor | None,
        groups: Any,
        draw: Draw | None,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Compute and keep the weights; return them, a mask of losses to skip, and rows to take.

        Graphs have fixed shapes, so there a mask leads to losses that are skipped.
        """
        shape, rows, skipped = z.shape, None, None
        if mask is not None and torch.compiler.is_compiling():
            skipped, z = (mask == 0).reshape(-1), z.reshape(-1)
            sample_weight = None if sample_weight is None else sample_weight.reshape(-1)
        elif mask is not None:
            (rows,) = kept_rows(mask)
            if rows.numel() == 0:
                raise ValueError(
                    f"The 'mask' parameter must keep at least one loss. Got one that keeps none of "
                    f"{mask.numel()} instead."
                )
            z = take(z, rows)
            sample_weight = None if sample_weight is None else take(sample_weight, rows)
            groups = None if groups is None else take_groups(groups, rows, shape)
        skipped = self._skipped(z, skipped)
        if skipped is not None:
            z = z.masked_fill(skipped, 0.0)
        weights = self._weigh(z, draw, sample_weight, groups, skipped)
        self.weights = weights if mask is None else spread(weights, rows, shape)
        return weights, skipped, rows

    def _skipped(self, z: Tensor, masked: Tensor | None = None) -> Tensor | None:
        """Return a mask of the losses to skip; None if there are none."""
        if self.nan == "raise":
            return masked
        skipped = ~torch.isfinite(z) if masked is None else masked | ~torch.isfinite(z)
        if not torch.compiler.is_compiling():
            if not bool(skipped.any()):
                return None
            if bool(skipped.all()):
                raise ValueError(
                    f"The 'losses' parameter must hold a finite number. Got none of {z.numel()}."
                )
        return skipped

    def _weigh(
        self,
        z: Tensor,
        draw: Draw | None,
        sample_weight: Tensor | None,
        groups: Any,
        skipped: Tensor | None,
    ) -> Tensor:
        """Compute the weights of the losses; skipped losses get none."""
        if skipped is not None and draw is not None:
            raise ValueError(
                "Losses of a draw cannot be skipped without a bias: use nan='raise', and fix "
                "the examples whose losses are not finite."
            )
        if draw is not None:
            return self._weigh_draw(z, draw, sample_weight)
        compiling = torch.compiler.is_compiling()
        on_host = z.device.type in _HOSTS or self.tau is not None
        solve = None if on_host else _ON_DEVICE.get(self.divergence.family)
        if groups is None and solve is None and compiling and self._named:
            # The compiled core as one operation of the graph.
            name = self.divergence.name
            weights, scalars = _weigh_by_name(z, sample_weight, skipped, self.rho, name)
            self.certificate = DeviceWorstCase(weights, *scalars.unbind())
            return weights
        if skipped is not None:
            given = torch.ones_like(z) if sample_weight is None else sample_weight
            sample_weight = given.masked_fill(skipped, 0.0)
        if groups is not None or solve is None:
            return self._weigh_on_host(z, sample_weight, groups)
        given = torch.ones_like(z) if sample_weight is None else sample_weight
        mass = given.sum()
        b = given / mass
        # Wait for the device once; the host finds out what is wrong.
        valid = torch.isfinite(z + b) & (given >= 0.0) & torch.isfinite(mass)
        if not compiling and not bool(valid.all()):
            if not bool(torch.isfinite(z).all()):
                raise ValueError(not_finite(to_host(z)))
            valid_weights = as_weights(to_host(given), z.numel())  # only their sum has overflowed
            b = torch.from_numpy(valid_weights / valid_weights.sum()).to(z)
        solved = solve(z, b, self.rho)
        self.certificate = solved
        return solved.weights

    @_eager
    def _weigh_on_host(self, z: Tensor, sample_weight: Tensor | None, groups: Any) -> Tensor:
        """Compute the weights in the compiled core; graphs of torch.compile break here."""
        check_values("losses", z)
        host = to_host(z)
        b = None if sample_weight is None else to_host(sample_weight)
        ball = self.rho, self.divergence
        if groups is None:
            solved = _solve_on_host(host, *ball, b, self.tau)
        else:
            names = groups
            if isinstance(groups, Tensor):
                check_values("groups", groups)
                exact = groups.double() if groups.is_floating_point() else groups
                names = exact.detach().cpu().numpy()
            if not np.isfinite(host).all():  # means of groups do not show which losses are not
                raise ValueError(not_finite(host))
            grouped = Groups.make(as_groups(names, host.size)[1], b)
            means, shares = grouped.means(host), grouped.shares
            solved = grouped.spread(_solve_on_host(means, *ball, shares, self.tau))
        self.certificate = solved
        if self.tau is not None:
            self._price = z.new_tensor(float(solved.weights @ host) - solved.value)
        return torch.from_numpy(solved.weights).to(z)

    def _check_draw(self, draw: Draw, size: int, groups: Any, mask: Any) -> None:
        """Check that a draw fits the losses and the criterion."""
        if groups is not None:
            raise ValueError("A draw has no groups: pass either 'draw' or 'groups'.")
        if mask is not None:
            raise ValueError(
                "A draw needs one loss for each of its rows: pass either 'draw' or 'mask', and for "
                "losses of tokens take the mean over the tokens of each row."
            )
        check_ball_of_draw(self.divergence, self.tau)
        radius = radius_of(draw)
        if draw.indices.size != size:
            raise ValueError(
                f"The draw has {draw.indices.size} rows and there are {size} losses: pass the "
                f"losses of the batch that came with the draw."
            )
        if radius != self.rho and self.divergence.has_radius:
            raise ValueError(
                f"The draw was made for rho = {radius!r} and the criterion for {self.rho!r}: use "
                f"the same radius for both."
            )

    @_eager
    def _weigh_draw(self, z: Tensor, draw: Draw, sample_weight: Tensor | None) -> Tensor:
        """Compute the signed weights of the rows of a draw."""
        check_values("losses", z)
        self.certificate = None
        b = None if sample_weight is None else to_host(sample_weight)
        return torch.from_numpy(draw.weights(to_host(z), self.divergence, b)).to(z)

    # -- several processes ---------------------------------------------------------------

    @_eager
    def _forward_together(
        self, losses: Tensor, draw: Draw | None, sample_weight: Any, groups: Any, mask: Any
    ) -> Tensor:
        """Compute the robust loss of the losses of all processes."""
        error = rows = shape = None
        try:
            if draw is not None:
                raise ValueError(
                    "With a process group no 'draw' can be given: draws of different processes "
                    "are independent, so use a criterion without a group."
                )
            check_losses(losses, 0, mask is not None)
            x, z = _with_precision(losses)
            b, given = as_base_weights(sample_weight, z), as_mask(mask, z)
            columns = [z, torch.ones_like(z) if b is None else b]
            if groups is not None:
                columns.append(as_group_numbers(groups, z))
            if given is not None:
                (rows,), shape = solve_as_constants(kept_rows, given), z.shape
                x, columns = take(x, rows), [take(column, rows) for column in columns]
        except Exception as raised:  # the other processes wait for this one: tell them first
            error = raised
            device = getattr(losses, "device", torch.device("cpu"))
            device = "cpu" if device.type == "meta" else device
            x = z = torch.zeros(0, dtype=torch.float64, device=device)
            columns = [z, z]
        # The settings that all processes must share, as one number.
        common = (
            self.rho, self.tau, self.divergence.name, self.nan, sample_weight is None,
            groups is None,
        )  # fmt: skip
        settings = crc32(repr(common).encode())
        weights, skipped, value, processes = solve_as_constants(
            self._solve_together, torch.stack(columns), settings, error, rows, shape
        )
        if skipped is not None:
            x = x.masked_fill(skipped, 0.0)
        part = processes * self._value(weights, x)
        # The value of all losses, with the gradient of the losses of this process.
        return part + (value - part).detach().to(x.dtype)

    def _solve_together(
        self,
        columns: Tensor,
        settings: int,
        error: Exception | None,
        rows: Tensor | None,
        shape: torch.Size | None,
    ) -> tuple[Tensor, Tensor | None, Tensor, int]:
        """Gather the losses of all processes and compute the weights of those of this one."""
        parts, rank = gather(columns, settings, error, self.process_group)
        gathered = torch.cat(parts, dim=1)
        if gathered.shape[1] == 0:
            raise ValueError("The losses of all processes together must hold at least one number.")
        if self.nan == "raise":
            for k, part in enumerate(parts):
                if not bool(torch.isfinite(part[0]).all()):
                    raise ValueError(f"Process {k} of the group: {not_finite(to_host(part[0]))}")
        skipped = self._skipped(gathered[0])
        z = gathered[0] if skipped is None else gathered[0].masked_fill(skipped, 0.0)
        groups = gathered[2].contiguous().view(torch.int64) if len(gathered) > 2 else None
        weights = self._weigh(z, None, gathered[1], groups, skipped)
        first = sum(part.shape[1] for part in parts[:rank])
        here = slice(first, first + columns.shape[1])
        self.weights = weights[here] if shape is None else spread(weights[here], rows, shape)
        value = (weights * z).sum()
        if self.tau is not None:
            value -= self._price
        return weights[here], None if skipped is None else skipped[here], value, len(parts)


def _with_precision(losses: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses in the type of the result, and detached in the most precise type."""
    x = losses if losses.dtype.itemsize >= 4 else losses.float()
    return x, losses.detach().to(torch.float32 if losses.device.type == "mps" else torch.float64)
