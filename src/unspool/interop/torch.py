"""PyTorch: functions of ours as differentiable functions of theirs, and the other way round.

`wrap` makes a node of PyTorch's graph that runs our function forwards and our pullback backwards. `lift` makes an
operation of ours whose kernel runs their function, and whose rule runs their backward pass. The rule of each is a
function of the same kind, wrapped or lifted again, so that derivatives of any order work. Both libraries take the same
convention for complex gradients, so nothing is conjugated in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import numpy as np

import unspool as us
from unspool.errors import ArgumentError
from unspool.interop._flat import Flat, lifted

__all__ = ["lift", "wrap"]


def __dir__() -> list[str]:
    return sorted(__all__)


# --- ours as theirs --------------------------------------------------------------------------------------------------


def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make a differentiable function of PyTorch tensors from a function of unspool tensors.

    Parameters
    ----------
    f : callable
        Takes and returns nested structures of tensors. It may look at values, stop on them, and contain any loop.

    Returns
    -------
    callable
        Takes PyTorch tensors where ``f`` takes unspool's, and returns them. What is no PyTorch tensor is passed on.
        ``loss.backward()`` and ``torch.autograd.grad`` go through it, any number of times.

    Examples
    --------
    >>> import torch
    >>> import unspool as us
    >>> def root(a):                                     # Newton's iteration, until it stands still
    ...     x = a
    ...     while abs(float(x * x - a)) > 1e-12:
    ...         x = (x + a / x) / 2.0
    ...     return x
    >>> a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    >>> y = us.interop.torch.wrap(root)(a)
    >>> y.backward()
    >>> round(y.item(), 6), round(a.grad.item(), 6)      # 1 / (2 √2)
    (1.414214, 0.353553)
    """

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        import torch

        flat = Flat(f, (args, kwargs), torch.Tensor)
        return flat.nest(_function().apply(flat, *flat.given))

    return wrapped


@lru_cache(maxsize=1)
def _function() -> Any:
    """Return the class of PyTorch's graph nodes that run a function of ours; made when PyTorch is there."""
    import torch

    class Call(torch.autograd.Function):  # type: ignore[misc]
        """A node of PyTorch's graph that stands for a function of ours."""

        @staticmethod
        def forward(ctx: Any, flat: Any, *inputs: Any) -> Any:
            variables = [_to_unspool(x) for x in inputs]
            if any(ctx.needs_input_grad):
                outputs, ctx.pull = us.vjp(flat, *variables, unconnected="zeros")
            else:
                outputs = flat(*variables)
            ctx.flat = flat
            ctx.save_for_backward(*inputs)
            results = [_to_torch(value) for value in us.eval(list(outputs))]
            ctx.mark_non_differentiable(*[x for x in results if not (x.is_floating_point() or x.is_complex())])
            return tuple(results)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            if torch.is_grad_enabled():  # create_graph=True: the pullback is differentiated too
                found = Call.apply(ctx.flat.pullback(), *ctx.saved_tensors, *cotangents)
                places = iter(found)
                return None, *[next(places) if _is_inexact(x) else None for x in ctx.saved_tensors]
            pulled = ctx.pull([_to_unspool(ct) if _is_inexact(ct) else None for ct in cotangents])
            arrays = us.eval([ct for ct in pulled if ct is not None])
            places = iter(arrays)
            return None, *[None if ct is None else _to_torch(next(places)) for ct in pulled]

    return Call


# --- theirs as ours --------------------------------------------------------------------------------------------------


def lift(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make a differentiable function of unspool tensors from a function of PyTorch tensors.

    Parameters
    ----------
    f : callable
        Takes and returns nested structures of PyTorch tensors; a module is one. It computes the same from the same:
        within a memory budget it may be run again. Weights that it holds are constants of it; to train them, or to
        differentiate by them, make them arguments, as ``torch.func.functional_call`` does.

    Returns
    -------
    callable
        Takes unspool tensors where ``f`` takes PyTorch's, and returns them as a recipe: nothing runs until a value is
        asked for. Shapes are found by PyTorch's fake tensors, so sizes have to be known, and what ``f`` does must not
        depend on values.

    Examples
    --------
    >>> import torch
    >>> import unspool as us
    >>> gelu = us.interop.torch.lift(torch.nn.functional.gelu)
    >>> x = us.tensor([-1.0, 0.0, 1.0])
    >>> y = us.sum(gelu(x) * x)
    >>> us.check_grad(lambda x: us.sum(gelu(x) * x), x.eval()).ok
    True
    """
    return lifted("torch", f, _run, _describe, _pull)


def _run(flat: Flat, *arrays: Any) -> tuple[Any, ...]:
    """Return the values of a function of PyTorch tensors."""
    import torch

    with torch.no_grad():
        return tuple(x.detach().resolve_conj().resolve_neg().numpy() for x in flat(*map(_to_torch, arrays)))


def _describe(flat: Flat, *types: Any) -> list[tuple[Any, Any]]:
    """Return shapes and dtypes of what a function of PyTorch tensors returns, without computing it."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        given = [torch.empty(tuple(t.shape), dtype=getattr(torch, t.dtype.name)) for t in types]
        return [(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in flat(*given)]


def _pull(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return the pullback of a function of PyTorch tensors, as one: of its arguments and of cotangents."""
    import torch

    def pull(*given: Any) -> list[Any]:
        with torch.enable_grad():
            inputs = [
                x if x.requires_grad or not _is_inexact(x) else x.detach().requires_grad_() for x in given[:count]
            ]
            moving = [x for x in inputs if _is_inexact(x)]
            pairs = [pair for pair in zip(f(*inputs), given[count:], strict=True) if pair[0].requires_grad]
            if not pairs:
                return [torch.zeros_like(x) for x in moving]
            outputs, cotangents = zip(*pairs, strict=True)
            found = torch.autograd.grad(outputs, moving, cotangents, create_graph=True, allow_unused=True)
            return [torch.zeros_like(x) if ct is None else ct for x, ct in zip(moving, found, strict=True)]

    return pull


# --- arrays ----------------------------------------------------------------------------------------------------------


def _tracked(x: Any) -> Any:
    """Return a tensor by which one can differentiate: itself if it is part of a graph already."""
    return x if x.requires_grad or not _is_inexact(x) else x.detach().requires_grad_()


def _is_inexact(x: Any) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def _to_unspool(x: Any) -> us.Tensor:
    if x.device.type != "cpu":
        raise ArgumentError(f"unspool computes on the CPU, but a tensor is on {x.device}; x.cpu() copies it")
    # A copy: optimisers of PyTorch write into their parameters.
    return us.tensor(x.detach().resolve_conj().resolve_neg().numpy())


def _to_torch(value: Sequence[Any] | Any) -> Any:
    import torch

    # A copy: PyTorch has no tensors that cannot be written into, and ours must not be.
    return torch.from_numpy(np.array(value))
