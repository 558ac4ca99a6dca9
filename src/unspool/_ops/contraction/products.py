"""Products of vectors, matrices and tensors: `matmul`, `tensordot` and their kin.

Each function here only says which axes go together; `contract` records the node. `einsum` has a module of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool._dims import Shape
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.contraction.contract import (
    CONTRACT,
    Form,
    common_size,
    contract,
    fits,
    form_from,
    form_of,
    record_of_shape,
    result_shape,
)
from unspool._ops.leaf import as_operands
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- matrices --------------------------------------------------------------------------------------------------------


def matmul(x1: Any, x2: Any) -> Tensor:
    """Multiply matrices, or stacks of them; a 1-D operand is a row on the left and a column on the right.

    Leading axes broadcast against each other. Scalars are refused: use ``*``.

    Examples
    --------
    >>> import unspool as us
    >>> us.matmul([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).eval()
    array([3., 7.])
    >>> us.matmul(us.zeros((5, 1, 2, 3)), us.zeros((4, 3, 6))).shape
    (5, 4, 2, 6)
    """
    if not (isinstance(x1, Node) and isinstance(x2, Node)):
        x1, x2 = as_operands(x1, x2)
    shape1, shape2 = x1.shape, x2.shape
    form, shape = _matmul_form(shape1, shape2)
    if form is not None:
        return record_of_shape(form, x1, x2, shape)
    if not shape1 or not shape2:
        raise ShapeError(
            f"matmul needs operands with at least one axis, got shapes {shape1} and {shape2}; use * to scale"
        )
    if len(shape1) == 1 and len(shape2) == 1:
        return _contract_stacks("matmul", x1, ("k",), x2, ("k",), ())
    if len(shape1) == 1:
        return _contract_stacks("matmul", x1, ("k",), x2, ("k", "j"), ("j",))
    if len(shape2) == 1:
        return _contract_stacks("matmul", x1, ("i", "k"), x2, ("k",), ("i",))
    return _contract_stacks("matmul", x1, ("i", "k"), x2, ("k", "j"), ("i", "j"))


@lru_cache(maxsize=1024)
def _matmul_form(shape1: Shape, shape2: Shape) -> tuple[Form | None, Shape]:
    """Return the form of a product in which no axis broadcasts, and the shape of its result.

    The form is ``None`` if there is no such product of these shapes.
    """
    rank1, rank2 = len(shape1), len(shape2)
    if rank1 == 0 or rank2 == 0 or (rank1 > 2 and rank2 > 2 and rank1 != rank2):
        return None, ()
    first = (*_stack(rank1 - 2), "i", "k") if rank1 > 1 else ("k",)
    second = (*_stack(rank2 - 2), "k", "j") if rank2 > 1 else ("k",)
    form = form_of(first, second, _stacked_result(first, second, tuple("ij")))
    return (form, result_shape(form, shape1, shape2)) if fits(form, shape1, shape2) else (None, ())


# What the short way of the operator (`products.c`) records products of vectors and matrices with.
_PLAIN_PRODUCTS = [form_from(subscripts) for subscripts in ("a,a->", "a,ab->b", "ab,b->a", "ab,bc->ac")]
_core.bind_products([(form.params, form.items) for form in _PLAIN_PRODUCTS])
_core.bind_operator("matmul", CONTRACT, None)


def matvec(x1: Any, x2: Any) -> Tensor:
    """Multiply stacks of matrices by stacks of vectors; leading axes broadcast.

    Examples
    --------
    >>> import unspool as us
    >>> us.matvec(us.zeros((5, 2, 3)), us.zeros((5, 3))).shape
    (5, 2)
    """
    x1, x2 = _with_axes("matvec", x1, 2, x2, 1)
    return _contract_stacks("matvec", x1, ("i", "k"), x2, ("k",), ("i",))


def vecmat(x1: Any, x2: Any) -> Tensor:
    """Multiply stacks of vectors, conjugated, by stacks of matrices; leading axes broadcast.

    Examples
    --------
    >>> import unspool as us
    >>> us.vecmat(us.zeros((5, 2)), us.zeros((5, 2, 3))).shape
    (5, 3)
    """
    x1, x2 = _with_axes("vecmat", x1, 1, x2, 2)
    return _contract_stacks("vecmat", elementwise.conj(x1), ("k",), x2, ("k", "j"), ("j",))


# --- vectors ---------------------------------------------------------------------------------------------------------


def vecdot(x1: Any, x2: Any, *, axis: int = -1) -> Tensor:
    """Sum the products of two stacks of vectors along an axis, the first conjugated; other axes broadcast.

    Examples
    --------
    >>> import unspool as us
    >>> us.vecdot([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).eval()
    array([3., 7.])
    """
    x1, x2 = _with_axes("vecdot", x1, 1, x2, 1)
    x1, x2 = _axis_last(x1, axis), _axis_last(x2, axis)
    return _contract_stacks("vecdot", elementwise.conj(x1), ("k",), x2, ("k",), ())


def vdot(x1: Any, x2: Any) -> Tensor:
    """Sum the products of all elements of two tensors, the first conjugated.

    Examples
    --------
    >>> import unspool as us
    >>> us.vdot([1j, 2.0], [1j, 1.0]).eval()
    array(3.+0.j)
    """
    x1, x2 = as_operands(x1, x2)
    return contract(elementwise.conj(_flat(x1)), "k", _flat(x2), "k", (), "vdot")


def inner(x1: Any, x2: Any) -> Tensor:
    """Sum products over the last axes of two tensors; scalars multiply.

    Examples
    --------
    >>> import unspool as us
    >>> us.inner([[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]).eval()
    array([[1., 2.],
           [3., 4.]])
    """
    x1, x2 = as_operands(x1, x2)
    if not x1.shape or not x2.shape:
        return elementwise.multiply(x1, x2)
    return _contract_axes("inner", x1, (x1.ndim - 1,), x2, (x2.ndim - 1,))


def outer(x1: Any, x2: Any) -> Tensor:
    """Multiply each element of one tensor with each of the other; both are flattened first.

    Examples
    --------
    >>> import unspool as us
    >>> us.outer([1.0, 2.0], [3.0, 4.0]).eval()
    array([[3., 4.],
           [6., 8.]])
    """
    x1, x2 = as_operands(x1, x2)
    return contract(_flat(x1), "i", _flat(x2), "j", "ij", "outer")


# --- tensors ---------------------------------------------------------------------------------------------------------


def dot(x1: Any, x2: Any) -> Tensor:
    """Sum products over the last axis of one tensor and the last but one of the other, as ``numpy.dot``.

    The inner product of vectors, the product of matrices; a scalar multiplies.

    Examples
    --------
    >>> import unspool as us
    >>> us.dot([1.0, 2.0], [3.0, 4.0]).eval()
    array(11.)
    """
    x1, x2 = as_operands(x1, x2)
    if not x1.shape or not x2.shape:
        return elementwise.multiply(x1, x2)
    return _contract_axes("dot", x1, (x1.ndim - 1,), x2, (max(x2.ndim - 2, 0),))


def tensordot(x1: Any, x2: Any, axes: int | Sequence[Any] = 2) -> Tensor:
    """Sum products over pairs of axes of two tensors.

    Parameters
    ----------
    x1, x2 : array_like
        The tensors.
    axes : int or pair of (sequences of) int
        How many of the last axes of ``x1`` go with the first of ``x2``, or the axes of each.

    Examples
    --------
    >>> import unspool as us
    >>> us.tensordot(us.zeros((2, 3, 4)), us.zeros((4, 3, 5)), axes=([1, 2], [1, 0])).shape
    (2, 5)
    """
    x1, x2 = as_operands(x1, x2)
    first, second = _axis_pairs(x1, x2, axes)
    return _contract_axes("tensordot", x1, first, x2, second)


def _axis_pairs(x1: Tensor, x2: Tensor, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if hasattr(axes, "__index__") and not getattr(axes, "ndim", 0):
        count = axes.__index__()
        if not 0 <= count <= min(x1.ndim, x2.ndim):
            raise ShapeError(f"tensordot over {count} axes of tensors of shapes {x1.shape} and {x2.shape}")
        return tuple(range(x1.ndim - count, x1.ndim)), tuple(range(count))
    try:
        first, second = (
            tuple(group) if isinstance(group, (tuple, list, range)) or hasattr(group, "__len__") else (group,)
            for group in axes
        )
    except (TypeError, ValueError):
        raise ShapeError(f"tensordot takes a number of axes or the axes of each tensor, got axes={axes!r}") from None
    if len(first) != len(second):
        raise ShapeError(f"tensordot needs as many axes of the first tensor as of the second, got axes={axes!r}")
    found = tuple(
        tuple(layout.normalize_axis(axis, x.ndim) for axis in group) for x, group in ((x1, first), (x2, second))
    )
    for group in found:
        if len(set(group)) != len(group):
            raise ShapeError(f"tensordot takes each axis once, got axes={axes!r}")
    return found[0], found[1]


def _contract_axes(what: str, x1: Tensor, axes1: tuple[int, ...], x2: Tensor, axes2: tuple[int, ...]) -> Tensor:
    """Contract pairs of axes; the others of both tensors follow each other in the result."""
    first: list[Hashable] = [("first", axis) for axis in range(x1.ndim)]
    second: list[Hashable] = [("second", axis) for axis in range(x2.ndim)]
    for axis1, axis2 in zip(axes1, axes2, strict=True):
        second[axis2] = first[axis1]
    common = {first[axis] for axis in axes1}
    out = [label for label in (*first, *second) if label not in common]
    return contract(x1, first, x2, second, out, what)


# --- stacks of vectors and matrices ----------------------------------------------------------------------------------


def _contract_stacks(
    what: str, x1: Tensor, core1: tuple[str, ...], x2: Tensor, core2: tuple[str, ...], out: tuple[str, ...]
) -> Tensor:
    """Contract the last axes, labelled by the cores; the axes before them are stacks that broadcast."""
    first = (*_stack(x1.ndim - len(core1)), *core1)
    second = (*_stack(x2.ndim - len(core2)), *core2)
    result = _stacked_result(first, second, out)
    sizes1, sizes2 = dict(zip(first, x1.shape, strict=True)), dict(zip(second, x2.shape, strict=True))
    ones1: set[Hashable] = set()
    ones2: set[Hashable] = set()
    for label in (label for label in first if label in sizes2):
        size1, size2 = sizes1[label], sizes2[label]
        if isinstance(label, int) and size1 != size2 and (size1 == 1 or size2 == 1):
            (ones1 if size1 == 1 else ones2).add(label)
        elif common_size(size1, size2) is None:
            which = "stacks have" if isinstance(label, int) else "axes to sum over have"
            raise ShapeError(f"{what} of shapes {x1.shape} and {x2.shape}: the {which} sizes {size1} and {size2}")
    x1, first = _drop(x1, first, ones1)
    x2, second = _drop(x2, second, ones2)
    return contract(x1, first, x2, second, result, what)


def _stack(rank: int) -> tuple[Hashable, ...]:
    """Return labels for leading axes: integers that count from the right, so that they line up when broadcast."""
    return tuple(range(-rank, 0))


def _stacked_result(
    first: tuple[Hashable, ...], second: tuple[Hashable, ...], core: tuple[Hashable, ...]
) -> tuple[Hashable, ...]:
    stack = max(len([label for label in labels if isinstance(label, int)]) for labels in (first, second))
    return (*_stack(stack), *[label for label in core if label in first or label in second])


def _drop(x: Tensor, labels: tuple[Hashable, ...], ones: set[Hashable]) -> tuple[Tensor, tuple[Hashable, ...]]:
    """Remove axes of size 1 by label: a size that broadcasts is a label that the operand does not have."""
    if not ones:
        return x, labels
    shape: Shape = tuple(size for label, size in zip(labels, x.shape, strict=True) if label not in ones)
    return layout.reshape(x, shape), tuple(label for label in labels if label not in ones)


def _with_axes(what: str, x1: Any, rank1: int, x2: Any, rank2: int) -> tuple[Tensor, ...]:
    x1, x2 = as_operands(x1, x2)
    if x1.ndim < rank1 or x2.ndim < rank2:
        raise ShapeError(f"{what} needs operands with at least {rank1} and {rank2} axes, got {x1.shape} and {x2.shape}")
    return x1, x2


def _axis_last(x: Tensor, axis: int) -> Tensor:
    last = layout.normalize_axis(axis, x.ndim)
    return layout.permute_dims(x, [a for a in range(x.ndim) if a != last] + [last])


def _flat(x: Tensor) -> Tensor:
    return x if x.ndim == 1 else layout.reshape(x, (x.size,))
