"""Derivatives of the robust loss: the first one is exact, a second one is refused.

R(z) = Σ wₙ zₙ with the worst-case weights w(z), and by Danskin's theorem ∇R = w.  Autograd treats
w as a constant, so its second derivative would lack ∂w/∂z.  A sum that raises an error
instead of returning this wrong result is needed in three forms: with a hook for ordinary calls,
where it must be fast; as an autograd function for `torch.func` and forward mode; and as an
operation for the graphs of `torch.compile`, which traces neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.forward_ad import unpack_dual

__all__ = ["in_transform", "refuse_transform", "solve_as_constants", "sum_once", "weighted_sum"]

_DIFFERENTIATED_TWICE = (
    "RobustLoss can be differentiated only once, as its weights are constants for autograd and a "
    "second derivative would be wrong: for second derivatives with fixed weights, call the "
    "criterion first and then differentiate (criterion.weights * losses).sum()."
)
_VECTORISED = (
    "RobustLoss cannot be vectorised by torch.func.vmap: compute the losses inside vmap, and call "
    "the criterion outside of it, once for each batch."
)
_FUNCTIONALISED = (
    "RobustLoss cannot be functionalised by torch.func.functionalize: call the criterion outside "
    "of it, or use torch.compile."
)
#: Excludes a function from the graphs of torch.compile.
_eager: Any = torch.compiler.disable
#: The test that torch.autograd.Function makes itself; there is no public name for it.
_transforms_active: Callable[[], bool] | None = getattr(
    torch._C, "_are_functorch_transforms_active", None
)
#: Whether torch.func.functionalize has wrapped a tensor; there is no public name either.
_is_functional: Callable[[Tensor], bool] = getattr(
    torch, "_is_functional_tensor", lambda tensor: False
)


def weighted_sum(weights: Tensor, losses: Tensor) -> Tensor:
    """Compute Σ weight × loss; torch.dot is faster, but autocast may narrow it on accelerators."""
    w = weights.to(losses.dtype)
    return torch.dot(w, losses) if losses.is_cpu else (w * losses).sum()


def sum_once(weights: Tensor, losses: Tensor) -> Tensor:
    """Compute Σ weight × loss, with an error for second derivatives."""
    w = weights.to(losses.dtype)
    if torch.compiler.is_compiling():
        return _sum_in_graph(w, losses) if losses.requires_grad else weighted_sum(w, losses)
    if torch.jit.is_tracing():  # pyright: ignore  # traces hold neither functions nor hooks
        return weighted_sum(w, losses)
    if in_transform(unknown=True) or unpack_dual(losses).tangent is not None:
        return _Sum.apply(w, losses)  # type: ignore[no-any-return]
    return _sum_with_hook(w, losses)


def in_transform(*, unknown: bool) -> bool:
    """Whether a transform of `torch.func` is active; `unknown` if PyTorch does not tell."""
    return unknown if _transforms_active is None else _transforms_active()


def refuse_transform(message: str) -> None:
    """Raise an error inside transforms of `torch.func`."""
    if in_transform(unknown=False):
        raise RuntimeError(message)


def solve_as_constants(solve: Callable[..., tuple[Any, ...]], *args: Any) -> tuple[Any, ...]:
    """Call `solve(*args)` on ordinary tensors; no derivative passes through its results.

    Transforms of `torch.func` wrap tensors, and values of wrapped tensors cannot be read.
    """
    if torch.compiler.is_compiling() or not in_transform(unknown=True):
        return solve(*args)
    if any(isinstance(arg, Tensor) and _is_functional(arg) for arg in args):
        raise RuntimeError(_FUNCTIONALISED)
    return _Constants.apply(solve, *args)  # type: ignore[no-any-return]


class _Constants(Function):
    """The results of a function of ordinary tensors, as constants of all transforms."""

    @staticmethod
    def forward(solve: Callable[..., tuple[Any, ...]], *args: Any) -> tuple[Any, ...]:
        return solve(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.mark_non_differentiable(*(each for each in output if isinstance(each, Tensor)))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise RuntimeError(_VECTORISED)


class _Fixed(Function):
    """Weights that must not be differentiated with respect to the losses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weights: Tensor, losses: Tensor) -> Tensor:
        return weights.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(_DIFFERENTIATED_TWICE)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(_DIFFERENTIATED_TWICE)


class _Sum(Function):
    """Σ weight × loss, for transforms and forward mode; torch.compile must not trace it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weights: Tensor, losses: Tensor) -> Tensor:
        return weighted_sum(weights, losses)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    @_eager
    def backward(ctx: Any, *gradients: Any) -> tuple[None, Tensor]:
        return None, gradients[0] * _Fixed.apply(*ctx.saved_tensors)

    @staticmethod
    @_eager
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return weighted_sum(_Fixed.apply(*ctx.saved_tensors), tangents[1])


def _sum_with_hook(weights: Tensor, losses: Tensor) -> Tensor:
    """Compute Σ weight × loss; a hook on its gradient sees whether that is differentiated."""
    product = torch.dot(weights, losses) if losses.is_cpu else weights * losses
    if product.grad_fn is not None:

        def refuse_later(gradients: Any, outputs: Any) -> tuple[None, Tensor] | None:
            # Gradients are recorded (create_graph=True) only to differentiate them.
            if torch.is_grad_enabled():
                return None, outputs[0] * _Fixed.apply(weights, losses)
            return None

        product.grad_fn.register_hook(refuse_later)
    return product if losses.is_cpu else product.sum()


# -- in the graphs of torch.compile ----------------------------------------------------


@torch.library.custom_op(
    "drolearn::weighted_sum",
    mutates_args=(),
    schema="(Tensor weights, Tensor losses) -> Tensor",
)
def _sum_in_graph(weights, losses):  # type: ignore[no-untyped-def]
    """Compute Σ weight × loss."""
    return weighted_sum(weights, losses)


@_sum_in_graph.register_fake
def _(weights, losses):  # type: ignore[no-untyped-def]
    return losses.new_empty(())


@torch.library.custom_op(
    "drolearn::weighted_sum_gradient",
    mutates_args=(),
    schema="(Tensor gradient, Tensor weights, Tensor losses) -> Tensor",
)
def _gradient_in_graph(gradient, weights, losses):  # type: ignore[no-untyped-def]
    """Multiply weights by a gradient; `losses` connects the result to what was differentiated.

    One operation with `gradient` as an argument: compilers could move one of the weights and
    losses alone to the forward pass, where a second derivative does not find it.
    """
    return gradient * weights


@_gradient_in_graph.register_fake
def _(gradient, weights, losses):  # type: ignore[no-untyped-def]
    return torch.empty_like(weights)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
    return None, _gradient_in_graph(gradient, *ctx.saved_tensors)


def _refuse(ctx: Any, gradient: Tensor) -> Any:
    raise RuntimeError(_DIFFERENTIATED_TWICE)


_sum_in_graph.register_autograd(_backward, setup_context=_save)
_gradient_in_graph.register_autograd(_refuse)
