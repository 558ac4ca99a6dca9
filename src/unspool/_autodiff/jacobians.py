"""Whole Jacobians and Hessians: one sweep per row in reverse mode, or per column in forward mode.

Of complex values: the Jacobian of a real result with respect to complex arguments holds gradients (d/dx + i d/dy),
that of a complex result with respect to real arguments holds ordinary derivatives. Between complex values there is a
Jacobian only if the function is holomorphic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unspool._autodiff.arguments import Outputs, Variables, as_argnums, call, name_of, split_aux
from unspool._autodiff.connected import OrZeros, check_unconnected, require_connection
from unspool._autodiff.forward import pushforward
from unspool._autodiff.reverse import pullback
from unspool._dims import is_concrete, product
from unspool._dtypes import COMPLEX, INEXACT, DType, complex_dtype
from unspool._fragments.asking import check_callable
from unspool._leaving import note_derivatives
from unspool._ops.elementwise import add, astype, conj, multiply
from unspool._ops.identity import zeros
from unspool._ops.layout import reshape, stack
from unspool._ops.leaf import constant
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
        rows: list[list[Tensor | None]] = []
        for units in _units(out, holomorphic):
            swept = [pullback([out], [unit], variables) for unit in units]
            rows.append([_combine([s[i] for s in swept], holomorphic, conjugated=True) for i in range(len(variables))])
        blocks.append([_assemble([row[i] for row in rows], out, x, axis=0) for i, x in enumerate(variables)])
    return blocks


def _by_columns(outputs: Sequence[Tensor], variables: Sequence[Tensor], holomorphic: bool) -> list[list[Tensor | None]]:
    blocks: list[list[Tensor | None]] = [[] for _ in outputs]
    for x in variables:
        columns: list[list[Tensor | None]] = []
        for units in _units(x, holomorphic):
            swept = [pushforward(outputs, [x], [unit]) for unit in units]
            columns.append(
                [_combine([s[i] for s in swept], holomorphic, conjugated=False) for i in range(len(outputs))]
            )
        for i, out in enumerate(outputs):
            blocks[i].append(_assemble([column[i] for column in columns], out, x, axis=-1))
    return blocks


def _units(x: Tensor, holomorphic: bool) -> Iterator[list[Tensor]]:
    """Yield, for each element, the tensors that move it: along 1, and along i if it is complex."""
    shape: Any = x.shape
    for index in np.ndindex(*shape):
        units = []
        for value in (1, 1j) if x.dtype in COMPLEX and not holomorphic else (1,):
            unit = np.zeros(shape, x.dtype)
            unit[index] = value
            units.append(constant(unit))
        yield units


def _combine(parts: Sequence[Tensor | None], holomorphic: bool, *, conjugated: bool) -> Tensor | None:
    first = parts[0]
    if first is None or len(parts) == 1:
        return conj(first) if first is not None and holomorphic and conjugated else first
    along_i = parts[1]
    return first if along_i is None else add(first, multiply(along_i, 1j))


def _assemble(slices: Sequence[Tensor | None], out: Tensor, x: Tensor, axis: int) -> Tensor | None:
    """Put rows (``axis=0``) or columns (``axis=-1``) together to one block of the Jacobian; ``None`` if all are."""
    if all(s is None for s in slices):
        return None
    dtype = _block_dtype(out, x)
    template = x if axis == 0 else out
    filled = [zeros(template.shape, dtype) if s is None else astype(s, dtype) for s in slices]
    return reshape(stack(filled, axis=axis), out.shape + x.shape)


def _or_zeros(block: Tensor | None, out: Tensor, x: Tensor) -> Tensor:
    return zeros(out.shape + x.shape, _block_dtype(out, x)) if block is None else block


def _block_dtype(out: Tensor, x: Tensor) -> DType:
    return complex_dtype(x.dtype) if out.dtype in COMPLEX else x.dtype
