"""Whole Jacobians and Hessians: one sweep for all rows in reverse mode, or for all columns in forward mode.

Of complex values: the Jacobian of a real result with respect to complex arguments holds gradients (d/dx + i d/dy),
that of a complex result with respect to real arguments holds ordinary derivatives. Between complex values there is a
Jacobian only if the function is holomorphic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal

from unspool._autodiff.arguments import Outputs, Variables, as_argnums, call, name_of, split_aux
from unspool._autodiff.sweeps.connected import OrZeros, check_unconnected, require_connection
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._batching.units import swept_units
from unspool._dims import is_concrete, product
from unspool._dtypes import COMPLEX, INEXACT, DType, complex_dtype
from unspool._fragments.asking import check_callable
from unspool._leaving import note_derivatives
from unspool._ops.elementwise import add, astype, conj, multiply
from unspool._ops.identity import zeros
from unspool._ops.layout import moveaxis, reshape
from unspool.errors import ArgumentError, ComplexLossError, DTypeError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def jacobian(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    mode: Literal["auto", "reverse", "forward"] = "auto",
    unconnected: OrZeros = "auto",
) -> Callable[..., Any]:
    """Make the function that computes a Jacobian.

    Parameters
    ----------
    f : callable
        Any function of nested arguments; returns ``(output, aux)`` with ``has_aux=True``.
    argnums : int or tuple of int
        Which positional arguments to differentiate with respect to.
    has_aux : bool
        Whether ``f`` also returns something that is passed through without being differentiated.
    holomorphic : bool
        For a holomorphic function of complex arguments: compute complex derivatives.
    mode : {"auto", "reverse", "forward"}
        Row by row, column by column, or whichever is fewer.
    unconnected : {"auto", "zeros"}
        What outputs of which none depends on an argument give: an error, or zeros; see `grad`.

    Returns
    -------
    callable
        Returns the Jacobian: nested like the output, then like the argument, each leaf of shape
        ``output.shape + argument.shape``. With ``has_aux=True``, ``(jacobian, aux)``.

    Examples
    --------
    >>> import unspool as us
    >>> us.jacobian(lambda x: x * x)(us.tensor([1.0, 2.0])).eval()
    array([[2., 0.],
           [0., 4.]])
    """
    if mode not in ("auto", "reverse", "forward"):
        raise ArgumentError(f"mode is 'auto', 'reverse' or 'forward', got {mode!r}")
    check_callable(f, "a Jacobian or Hessian")
    check_unconnected(unconnected, ("auto", "zeros"))
    positions, single = as_argnums(argnums)

    @wraps(f)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        variables, returned = call(f, args, kwargs, positions)
        output, aux = split_aux(f, returned, has_aux)
        outputs = Outputs(output)
        _check(name_of(f), outputs.tensors, variables.tensors, holomorphic)
        by_rows = mode == "reverse" or (mode == "auto" and _rows_are_fewer(outputs, variables, holomorphic))
        blocks = (_by_rows if by_rows else _by_columns)(outputs.tensors, variables.tensors, holomorphic)
        if unconnected == "auto" and all(block is None for row in blocks for block in row):
            require_connection(outputs, variables, name_of(f))
        whole = [
            [_or_zeros(block, out, x) for block, x in zip(row, variables.tensors, strict=True)]
            for row, out in zip(blocks, outputs.tensors, strict=True)
        ]
        placed, aux = variables.substitute([block for row in whole for block in row], aux)
        note_derivatives(placed)
        width = len(variables.tensors)
        nested = [variables.restore(placed[i * width : (i + 1) * width]) for i in range(len(whole))]
        found = outputs.restore([row[0] if single else row for row in nested])
        return (found, aux) if has_aux else found

    return jacobian_of


def jacrev(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    unconnected: OrZeros = "auto",
) -> Callable[..., Any]:
    """Make the function that computes a Jacobian row by row, in reverse mode; see `jacobian`.

    Examples
    --------
    >>> import unspool as us
    >>> us.jacrev(lambda x: us.sum(x * x))(us.tensor([1.0, 2.0])).eval()
    array([2., 4.])
    """
    return jacobian(f, argnums, has_aux, holomorphic, "reverse", unconnected)


def jacfwd(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    unconnected: OrZeros = "auto",
) -> Callable[..., Any]:
    """Make the function that computes a Jacobian column by column, in forward mode; see `jacobian`.

    Examples
    --------
    >>> import unspool as us
    >>> us.jacfwd(lambda x: us.sum(x * x))(us.tensor([1.0, 2.0])).eval()
    array([2., 4.])
    """
    return jacobian(f, argnums, has_aux, holomorphic, "forward", unconnected)


def hessian(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    unconnected: OrZeros = "auto",
) -> Callable[..., Any]:
    """Make the function that computes a matrix of second derivatives, forward over reverse.

    The parameters are those of `jacobian`. The result is nested like the output, then twice like the argument.

    Examples
    --------
    >>> import unspool as us
    >>> us.hessian(lambda x: x[0] * x[0] * x[1])(us.tensor([1.0, 2.0])).eval()
    array([[4., 2.],
           [2., 0.]])
    """
    return jacfwd(jacrev(f, argnums, has_aux, holomorphic, unconnected), argnums, has_aux, holomorphic, unconnected)


def _check(name: str, outputs: Sequence[Tensor], variables: Sequence[Tensor], holomorphic: bool) -> None:
    for x in (*outputs, *variables):
        if not is_concrete(x.shape):
            raise UnknownSizeError(
                f"the Jacobian of {name} needs a sweep per row or column, but shape {x.shape} has symbolic sizes; "
                "use us.vjp or us.jvp for products with it"
            )
        if x.dtype not in INEXACT:
            raise DTypeError(f"{name} returned a result of dtype {x.dtype}, which has no derivative")
        if holomorphic and x.dtype not in COMPLEX:
            raise DTypeError(f"holomorphic=True needs complex arguments and results, {name} has one of dtype {x.dtype}")
    if not holomorphic and any(x.dtype in COMPLEX for x in variables) and any(y.dtype in COMPLEX for y in outputs):
        raise ComplexLossError(
            f"{name} maps complex to complex, where a Jacobian is defined only for holomorphic functions; pass "
            "holomorphic=True if it is one, or differentiate the real and the imaginary part of its result"
        )


def _rows_are_fewer(outputs: Outputs, variables: Variables, holomorphic: bool) -> bool:
    return _sweeps(outputs.tensors, holomorphic) <= _sweeps(variables.tensors, holomorphic)


def _sweeps(tensors: Sequence[Tensor], holomorphic: bool) -> int:
    return sum(int(product(x.shape)) * (2 if x.dtype in COMPLEX and not holomorphic else 1) for x in tensors)


# A complex value has two real parts to move. With g(1) and g(i) what moving them gives, linear in the parts, the entry
# is g(1) + i·g(i) in all cases: a gradient for a complex argument, a derivative for a complex result.


def _by_rows(outputs: Sequence[Tensor], variables: Sequence[Tensor], holomorphic: bool) -> list[list[Tensor | None]]:
    blocks = []
    for out in outputs:
        rows = swept_units(out, partial(_pulled, out, variables), holomorphic)
        joined = [_combine(row, holomorphic, conjugated=True) for row in rows]
        blocks.append([_assemble(row, out, x, axis=0) for row, x in zip(joined, variables, strict=True)])
    return blocks


def _by_columns(outputs: Sequence[Tensor], variables: Sequence[Tensor], holomorphic: bool) -> list[list[Tensor | None]]:
    blocks: list[list[Tensor | None]] = [[] for _ in outputs]
    for x in variables:
        columns = swept_units(x, partial(_pushed, outputs, x), holomorphic)
        for block, column, out in zip(blocks, columns, outputs, strict=True):
            block.append(_assemble(_combine(column, holomorphic, conjugated=False), out, x, axis=-1))
    return blocks


def _pulled(out: Tensor, variables: Sequence[Tensor], ct: Tensor) -> list[Tensor | None]:
    return pullback([out], [ct], variables)


def _pushed(outputs: Sequence[Tensor], x: Tensor, t: Tensor) -> list[Tensor | None]:
    return pushforward(outputs, [x], [t])


def _combine(parts: Sequence[Tensor] | None, holomorphic: bool, *, conjugated: bool) -> Tensor | None:
    """Return the derivatives along each element, along a first axis, from those along 1 and, if it is complex, i."""
    if parts is None:
        return None
    if len(parts) == 1:
        return conj(parts[0]) if holomorphic and conjugated else parts[0]
    return add(parts[0], multiply(parts[1], 1j))


def _assemble(slices: Tensor | None, out: Tensor, x: Tensor, axis: int) -> Tensor | None:
    """Put rows (``axis=0``) or columns (``axis=-1``), along a first axis, together to one block of the Jacobian."""
    if slices is None:
        return None
    return reshape(moveaxis(astype(slices, _block_dtype(out, x)), 0, axis), out.shape + x.shape)


def _or_zeros(block: Tensor | None, out: Tensor, x: Tensor) -> Tensor:
    return zeros(out.shape + x.shape, _block_dtype(out, x)) if block is None else block


def _block_dtype(out: Tensor, x: Tensor) -> DType:
    return complex_dtype(x.dtype) if out.dtype in COMPLEX else x.dtype
