"""Declaring elementwise ops: one call each, with broadcasting and promotion as in NumPy.

Most derivatives are declared as *partials*: ``partial(out, *inputs)`` is the derivative of the result with respect to
one input, element by element. A cotangent is multiplied by its conjugate, a tangent by itself, and broadcasting is
undone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unspool._dims import Shape
from unspool._dtypes import COMPLEX, as_dtype
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.elementwise.absence import fold_to_shape, scale, unscale
from unspool._ops.late import ops
from unspool._ops.op import FOR_ANY, Op, Rule, register
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Over:
    """A partial derivative that is 1 over what the function returns: cotangents are divided by it."""

    __slots__ = ("denominator",)

    def __init__(self, denominator: Callable[..., Any]) -> None:
        self.denominator = denominator


Partial: TypeAlias = Callable[..., Any] | Over
DTypeRule: TypeAlias = Callable[..., Any]


def elementwise(
    name: str,
    kernel: Callable[..., Any],
    partials: Sequence[Partial | None] | None = None,
    *,
    vjp: tuple[Rule | None, ...] | None = None,
    jvp: tuple[Rule | None, ...] | None = None,
    needs: tuple[str, ...] = (),
    dtype: DTypeRule | None = None,
    params: Mapping[str, str] | None = None,
    commuting: frozenset[Any] = frozenset(),
    exact: frozenset[Any] = frozenset(),
    canonical: Callable[..., Any] | None = None,
    canonical_for: int = FOR_ANY,
    cheap: bool = True,
    view: bool = False,
    fresh: bool = False,
    by_value: bool = False,
) -> Op:
    """Declare and register an elementwise op.

    Either ``partials`` (of a function that is holomorphic where it takes complex input; ``None`` for an input through
    which nothing is differentiated) or ``vjp`` and ``jvp`` rules; the latter need not undo broadcasting. ``dtype`` maps
    input dtypes to the result's and raises `DTypeError` where there is none; by default NumPy's ufunc says.
    ``commuting`` lists the dtypes for which swapping the two operands changes no bit of the result. The results of
    ufuncs are ``fresh`` without saying so; other traits are those of `Op`.
    """
    pull: Any = _pull if partials is None else _pull_partial
    push: Any = _push if partials is None else _push_partial
    back: Any = vjp if partials is None else partials
    forth: Any = jvp if partials is None else partials
    dtypes = _ResultDTypes(name, dtype or ufunc_dtype(kernel))
    op = Op(
        name,
        infer=functools.partial(_infer, dtypes),
        kernel=kernel,
        params=params,
        vjp=None if back is None else tuple([r and functools.partial(pull, r, i) for i, r in enumerate(back)]),
        jvp=None if forth is None else tuple([r and functools.partial(push, r) for r in forth]),
        needs=needs,
        canonical=canonical,
        canonical_for=canonical_for,
        cheap=cheap,
        view=view,
        fresh=fresh or isinstance(kernel, np.ufunc | OfArrays),
        by_value=by_value,
        exact=exact,
        batch=batching.elementwise,
    )
    op.commuting = commuting
    op.result_dtypes = dtypes
    return register(op)


class OfArrays:
    """A ufunc as a kernel to which a number is an array without axes: `numpy.square` gives complex numbers other bits.

    Whoever has arrays may call the ``ufunc``.
    """

    __slots__ = ("ufunc",)

    def __init__(self, ufunc: Any) -> None:
        self.ufunc = ufunc

    def __call__(self, *xs: Any) -> Any:
        return self.ufunc(*map(np.asarray, xs))


# --- data types ------------------------------------------------------------------------------------------------------


class _ResultDTypes(dict[Any, Any]):
    """Result dtype by input dtypes, worked out once for each combination."""

    def __init__(self, name: str, rule: DTypeRule) -> None:
        super().__init__()
        self._name, self._rule = name, rule

    def __missing__(self, dtypes: tuple[Any, ...]) -> Any:
        try:
            result = self._rule(*dtypes)
        except DTypeError as error:
            raise DTypeError(f"{self._name} of {', '.join(map(str, dtypes))}: {error}") from None
        self[dtypes] = result
        return result


def ufunc_dtype(ufunc: Any) -> DTypeRule:
    """Return the dtype rule that a NumPy ufunc has."""
    return functools.partial(_dtype_of_ufunc, ufunc)


def _dtype_of_ufunc(ufunc: Any, *dtypes: Any) -> Any:
    try:
        resolved = ufunc.resolve_dtypes((*dtypes, None))
    except TypeError:
        raise DTypeError("there is no such operation on these data types") from None
    return as_dtype(resolved[-1])


def real_only(rule: DTypeRule) -> DTypeRule:
    """Return a dtype rule that refuses complex numbers and otherwise does as another one."""
    return functools.partial(_real_dtype, rule)


def _real_dtype(rule: DTypeRule, *dtypes: Any) -> Any:
    if not COMPLEX.isdisjoint(dtypes):
        raise DTypeError("it takes real numbers; take the real or imaginary part, or abs(), of complex ones first")
    return rule(*dtypes)


def _infer(dtypes: _ResultDTypes, *inputs: Node, **params: Any) -> tuple[Shape, Any]:
    if len(inputs) == 1:
        return inputs[0].shape, dtypes[(inputs[0].dtype,)]
    return broadcast_shapes(*[x.shape for x in inputs]), dtypes[tuple([x.dtype for x in inputs])]


# --- derivative rules ------------------------------------------------------------------------------------------------
# Functions that ops share, each completed by what is an op's own: a first gradient would wait for closures to be made.


def _pull(rule: Rule, position: int, ct: Tensor, out: Tensor, *inputs: Tensor, **params: Any) -> Tensor | None:
    """Return the cotangent of an input, by a rule that leaves it in the shape of the result."""
    contribution = rule(ct, out, *inputs, **params)
    return None if contribution is None else fold_to_shape(contribution, inputs[position].shape)


def _push(rule: Rule, t: Tensor, out: Tensor, *inputs: Tensor, **params: Any) -> Tensor | None:
    """Return the tangent of the result, by a rule that leaves it in the shape of an input."""
    contribution = rule(t, out, *inputs, **params)
    return None if contribution is None else _spread(contribution, out)


def _pull_partial(partial: Partial, position: int, ct: Tensor, out: Tensor, *inputs: Tensor, **params: Any) -> Tensor:
    """Return the cotangent of an input, by the partial derivative in it."""
    factor, combine = _evaluate(partial, out, *inputs, **params)
    contribution = combine(ct, ops.conj(factor) if out.dtype in COMPLEX else factor)
    return fold_to_shape(contribution, inputs[position].shape)


def _push_partial(partial: Partial, t: Tensor, out: Tensor, *inputs: Tensor, **params: Any) -> Tensor:
    """Return the tangent of the result, by the partial derivative in an input."""
    factor, combine = _evaluate(partial, out, *inputs, **params)
    return _spread(combine(t, factor), out)


def _evaluate(partial: Partial, *arguments: Any, **params: Any) -> tuple[Any, Callable[[Tensor, Any], Tensor]]:
    """Return what a partial derivative is made of, and what is done with it: others are multiplied by it or divided."""
    if isinstance(partial, Over):
        return partial.denominator(*arguments, **params), unscale
    return partial(*arguments, **params), scale


def _spread(contribution: Tensor, out: Tensor) -> Tensor:
    if contribution.shape == out.shape:
        return contribution
    return ops.rearrange(contribution, lambda inner: ops.broadcast_to(inner, out.shape))
