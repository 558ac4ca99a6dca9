"""JAX: functions of ours as differentiable functions of theirs, and the other way round.

`wrap` makes a ``jax.custom_vjp`` that runs our function forwards and our pullback backwards; under ``jit`` and ``vmap``
both are callbacks. `lift` makes an operation of ours whose kernel runs their function, and whose rule runs their
pullback. The rule of each is a function of the same kind, wrapped or lifted again, so that derivatives of any order
work. JAX takes the conjugate of what we take for the cotangent of a complex array, so cotangents are conjugated on
their way in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, wraps
from typing import Any

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, UnboundPlaceholderError
from unspool.interop._flat import Flat, lifted

__all__ = ["lift", "wrap"]


def __dir__() -> list[str]:
    return sorted(__all__)


# --- ours as theirs --------------------------------------------------------------------------------------------------


def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make a differentiable function of JAX arrays from a function of unspool tensors.

    Parameters
    ----------
    f : callable
        Takes and returns nested structures of tensors. It may look at values, stop on them, and contain any loop;
        under ``jit`` and ``vmap``, where JAX needs to know shapes before there are values, it must not.

    Returns
    -------
    callable
        Takes JAX arrays where ``f`` takes tensors, and returns them. ``jax.grad`` and ``jax.vjp`` go through it, any
        number of times; forward mode does not, because JAX has none for a ``custom_vjp``.

    Examples
    --------
    >>> import jax
    >>> import unspool as us
    >>> def root(a):                                     # Newton's iteration, until it stands still
    ...     x = a
    ...     while abs(float(x * x - a)) > 1e-5:
    ...         x = (x + a / x) / 2.0
    ...     return x
    >>> value, slope = jax.value_and_grad(us.interop.jax.wrap(root))(2.0)
    >>> round(float(value), 4), round(float(slope), 4)   # 1 / (2 √2)
    (1.4142, 0.3536)
    """

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        import jax

        flat = Flat(f, _with_arrays((args, kwargs)), jax.Array)
        return flat.nest(_wrapped(flat)(*flat.given))

    return wrapped


def _wrapped(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of our tensors, which returns a list, as one of JAX's arrays."""
    import jax

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def call(*arrays: Any) -> Any:
        if _are_known(arrays):
            return [_to_jax(value) for value in us.eval(list(f(*map(_to_unspool, arrays))))]
        return jax.pure_callback(partial(_values_of, f), _types_of(f, arrays), *arrays, vmap_method="sequential")

    def forward(*arrays: Any) -> Any:
        if not _are_known(arrays):
            return call(*arrays), (_Held(None), arrays)
        outputs, pull = us.vjp(f, *map(_to_unspool, arrays), unconnected="zeros")
        return [_to_jax(value) for value in us.eval(list(outputs))], (_Held((outputs, pull)), arrays)

    def backward(residuals: Any, cotangents: Any) -> Any:
        held, arrays = residuals
        if held.what is not None and _are_known(cotangents):
            outputs, pull = held.what
            given = [_conjugated(ct, out) for ct, out in zip(cotangents, outputs, strict=True)]
            found = us.eval([us.conj(ct) for ct in pull(given) if ct is not None])
            places = iter(map(_to_jax, found))
        else:
            places = iter(_wrapped(_pullback(f, len(arrays)))(*arrays, *cotangents))
        return tuple(next(places).astype(x.dtype) if _is_inexact(x) else _no_cotangent(x) for x in arrays)

    call.defvjp(forward, backward)
    return call  # type: ignore[no-any-return]


def _pullback(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return the pullback of a function of our tensors in JAX's convention, as a function of our tensors."""

    def pull(*given: us.Tensor) -> list[us.Tensor]:
        outputs, back = us.vjp(f, *given[:count], unconnected="zeros")
        cotangents = [
            us.conj(us.astype(ct, out.dtype)) if out.dtype.kind in "fc" else None
            for ct, out in zip(given[count:], outputs, strict=True)
        ]
        return [us.conj(ct) for ct in back(cotangents) if ct is not None]

    return pull


def _values_of(f: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Return the values of a function of our tensors, for a callback."""
    return list(us.eval(list(f(*[us.tensor(np.asarray(x)) for x in arrays]))))


def _types_of(f: Callable[..., Any], arrays: Sequence[Any]) -> list[Any]:
    """Return what JAX has to know of the results before there are values: their shapes and dtypes."""
    import jax

    try:
        outputs = f(*[us.placeholder(x.shape, dtype=x.dtype) for x in arrays])
    except UnboundPlaceholderError as error:
        raise ArgumentError(
            "under jit and vmap, JAX needs shapes before there are values, but the function looks at one: call it "
            f"outside of them; {error}"
        ) from error
    return [jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype)) for x in outputs]


class _Held:
    """What a backward pass needs of a forward pass, hidden from JAX: a node of its trees without leaves."""

    def __init__(self, what: Any) -> None:
        self.what = what


# --- theirs as ours --------------------------------------------------------------------------------------------------


def lift(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make a differentiable function of unspool tensors from a function of JAX arrays.

    Parameters
    ----------
    f : callable
        Takes and returns nested structures of JAX arrays, and can be compiled by ``jax.jit``. It computes the same from
        the same: within a memory budget it may be run again.

    Returns
    -------
    callable
        Takes unspool tensors where ``f`` takes JAX's, and returns them as a recipe: nothing runs until a value is asked
        for. It runs in double precision if its arguments have it.

    Examples
    --------
    >>> import jax
    >>> import unspool as us
    >>> gelu = us.interop.jax.lift(jax.nn.gelu)
    >>> x = us.tensor([-1.0, 0.0, 1.0])
    >>> us.check_grad(lambda x: us.sum(gelu(x) * x), x.eval()).ok
    True
    """
    return lifted("jax", f, _run, _describe, _pull)


def _run(f: Callable[..., Any], *arrays: Any) -> tuple[Any, ...]:
    """Return the values of a function of JAX arrays."""
    import jax

    with jax.enable_x64(True):
        return tuple(map(np.asarray, _compiled(f)(*arrays)))


def _describe(f: Callable[..., Any], *types: Any) -> list[tuple[Any, Any]]:
    """Return shapes and dtypes of what a function of JAX arrays returns, without computing it."""
    import jax

    with jax.enable_x64(True):
        found = jax.eval_shape(f, *[jax.ShapeDtypeStruct(tuple(t.shape), t.dtype) for t in types])
    return [(x.shape, x.dtype) for x in found]


def _pull(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return the pullback of a function of JAX arrays in our convention, as one: of its arguments and of cotangents."""
    import jax

    def pull(*given: Any) -> list[Any]:
        outputs, back = jax.vjp(f, *given[:count])
        cotangents = [
            ct.conj() if _is_inexact(out) else _no_cotangent(out)
            for out, ct in zip(outputs, given[count:], strict=True)
        ]
        found = zip(back(cotangents), given[:count], strict=True)
        return [ct.conj() for ct, x in found if _is_inexact(x)]

    return pull


@lru_cache(maxsize=256)
def _compiled(f: Callable[..., Any]) -> Any:
    import jax

    return jax.jit(f)


# --- arrays ----------------------------------------------------------------------------------------------------------


def _are_known(arrays: Sequence[Any]) -> bool:
    import jax

    _register()
    return not any(isinstance(x, jax.core.Tracer) for x in arrays)


@lru_cache(maxsize=1)
def _register() -> None:
    import jax

    jax.tree_util.register_pytree_node(_Held, lambda held: ((), held.what), lambda what, _: _Held(what))


def _with_arrays(arguments: Any) -> Any:
    """Return arguments with numbers and NumPy arrays as JAX's: ``jax.grad`` takes both."""
    import jax

    return jax.tree_util.tree_map(
        lambda x: jax.numpy.asarray(x) if isinstance(x, (float, complex, np.ndarray)) else x, arguments
    )


def _is_inexact(x: Any) -> bool:
    return np.dtype(x.dtype).kind in "fc"


def _no_cotangent(x: Any) -> Any:
    import jax

    return np.zeros(x.shape, jax.dtypes.float0)


def _conjugated(ct: Any, out: us.Tensor) -> us.Tensor | None:
    return us.tensor(np.conj(np.asarray(ct)).astype(out.dtype)) if out.dtype.kind in "fc" else None


def _to_unspool(x: Any) -> us.Tensor:
    return us.tensor(np.asarray(x))


def _to_jax(value: Any) -> Any:
    import jax

    return jax.numpy.asarray(value)
