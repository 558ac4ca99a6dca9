"""The three ways to look at the same elements: another shape, another order of axes, repeated by broadcasting.

Everything else that names axes (`unspool._ops.layout.axes`) is made of these. All three are views in NumPy, and their
derivative rules move cotangents and tangents with `rearrange`, so that absent elements (see
`unspool._ops.elementwise`) stay absent wherever they go.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core, _graph
from unspool._dims import Dim, Shape, Size, equal, is_concrete, product
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.broadcasting import broadcast_shapes, ensure_shape
from unspool._ops.elementwise import MASK, fold_to_shape, mask
from unspool._ops.late import ops
from unspool._ops.leaf import as_shape, as_tensor, constant
from unspool._ops.op import FOR_ITS_OWN, SIZE, STRUCTURE, Op, register
from unspool.errors import ArgumentError, AxisError, ShapeError, SizeContradictionError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Axis = int | Sequence[int] | None


# --- axes ------------------------------------------------------------------------------------------------------------


def normalize_axis(axis: int, rank: int) -> int:
    """Return a non-negative axis, or raise `AxisError` naming axis and rank."""
    try:
        index = operator.index(axis)
    except TypeError:
        raise ShapeError(f"an axis is an integer, got {axis!r}") from None
    if not -rank <= index < rank:
        raise AxisError(f"axis {axis} is out of range for a tensor with {rank} axes")
    return index % rank


@lru_cache(maxsize=64)
def all_axes(rank: int) -> tuple[int, ...]:
    """Return all axes of a tensor."""
    return tuple(range(rank))


def normalize_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """Return sorted non-negative axes; ``None`` means all; duplicates raise `ShapeError`."""
    if axis is None:
        return all_axes(rank)
    if type(axis) is int:
        return (normalize_axis(axis, rank),)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    found = tuple(sorted(normalize_axis(a, rank) for a in axes))
    if len(set(found)) != len(found):
        raise ShapeError(f"duplicate axis in {axis}")
    return found


def replaced(shape: Shape, axis: int, size: Size) -> Shape:
    """Return a shape with the size of one axis replaced."""
    return (*shape[:axis], size, *shape[axis + 1 :])


# --- views of views --------------------------------------------------------------------------------------------------


def source_to_read(x: Tensor) -> Tensor | None:
    """Return what a view was made from, to be read in its place; ``None`` if the view is what has been computed.

    A view of a view is recorded as one of the source, and then nobody may hold the source: it would be computed again
    although the view is there. What was computed and evicted since, for want of memory, counts as computed: a budget
    must not change what is recorded. And where the other form has been recorded before, its node has kept the source.
    """
    source: Any = x.inputs[0]
    return source if _was_computed(source) or not _was_computed(x) else None


def _was_computed(x: Node) -> bool:
    return x.value is not None or getattr(x, "piece", None) is not None


# --- absent elements that move ---------------------------------------------------------------------------------------


def rearrange(ct: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function that moves or copies elements to a cotangent or tangent; its absent elements move along.

    Not for functions that add elements up: the values behind the mask would be added, too.
    """
    if ct.op is not MASK:
        return function(ct)
    inner, keep = (broadcast_to(part, ct.shape) for part in ct.inputs)
    return mask(function(inner), function(keep))


def embed(ct: Tensor, function: Callable[[Tensor], Tensor], axes: Iterable[int]) -> Tensor:
    """Apply a function that moves elements into a larger tensor of zeros; the places it does not fill are absent.

    ``axes`` are those the function works along: the mask says nothing about the others, and has size 1 there.
    """
    if ct.op is MASK:
        return rearrange(ct, function)
    along = set(axes)
    shape = tuple(size if axis in along else 1 for axis, size in enumerate(ct.shape))
    return mask(function(ct), function(broadcast_to(constant(True), shape)))


# --- reshape ---------------------------------------------------------------------------------------------------------


def _infer_reshape(x: Node, *, shape: Shape) -> tuple[Shape, Any]:
    if equal(product(x.shape), product(shape)) is False:
        raise ShapeError(f"cannot reshape {x.shape} into {shape}: {product(x.shape)} elements are not {product(shape)}")
    return shape, x.dtype


def _canonical_reshape(x: Tensor, *, shape: Shape) -> Tensor | None:
    if x.shape == shape:
        return x
    if x.op is not RESHAPE:
        return None
    _infer_reshape(x, shape=shape)
    inner = source_to_read(x)
    if inner is None:
        return None
    # A reshape whose sizes are not known to fit is a claim that is checked when it runs: it must not vanish.
    proven = equal(product(inner.shape), product(x.shape)) is True
    return _graph.apply(RESHAPE, inner, shape=shape) if proven else None


def _reshape_kernel(x: Any, *, shape: tuple[int, ...]) -> Any:
    try:
        return x.reshape(shape)
    except ValueError:
        raise SizeContradictionError(f"cannot reshape {x.shape} into {shape}: the numbers of elements differ") from None


RESHAPE = register(
    Op(
        "reshape",
        infer=_infer_reshape,
        kernel=_reshape_kernel,
        vjp=(lambda ct, out, x, *, shape: rearrange(ct, lambda inner: reshape(inner, x.shape)),),
        jvp=(lambda t, out, x, *, shape: rearrange(t, lambda inner: reshape(inner, shape)),),
        params={"shape": SIZE},
        canonical=_canonical_reshape,
        canonical_for=FOR_ITS_OWN,
        cheap=True,
        view=True,
        batch=batching.prefixed(shape=None),
    )
)


def reshape(x: Any, shape: Size | Sequence[Size], order: str = "C", *, copy: bool | None = None) -> Tensor:
    """Give a tensor a new shape with the same elements; one size may be -1.

    Parameters
    ----------
    x : array_like
        The tensor.
    shape : int or tuple of int or Dim
        The new shape.
    order : {"C", "F", "A"}
        In which order elements are read and placed: row-major, or with ``"F"`` column-major. Tensors have no order in
        memory that could be asked for, so ``"A"`` is row-major.
    copy : bool, optional
        Changes nothing, since tensors are never written into.

    Examples
    --------
    >>> import unspool as us
    >>> us.reshape([1, 2, 3, 4], (2, -1)).eval()
    array([[1, 2],
           [3, 4]])
    >>> us.reshape([1, 2, 3, 4], (2, 2), order="F").eval()
    array([[1, 3],
           [2, 4]])
    """
    if order != "C" and is_column_major(order):
        backwards = tuple(shape)[::-1] if isinstance(shape, (tuple, list)) else shape
        return _reversed_axes(reshape(_reversed_axes(as_tensor(x)), backwards))
    found = _core.reshape(x, shape)
    if found is not None:
        return found
    x = as_tensor(x)
    sizes: list[Any] = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    unknown = [axis for axis, size in enumerate(sizes) if not isinstance(size, Dim) and size == -1]
    if len(unknown) > 1:
        raise ShapeError(f"only one size of {tuple(sizes)} can be -1")
    if unknown:
        known = as_shape([size for axis, size in enumerate(sizes) if axis != unknown[0]])
        rest, total = product(known), product(x.shape)
        if equal(rest, 0) is True or equal(total % rest, 0) is False:
            raise ShapeError(f"cannot reshape {x.shape} into {tuple(sizes)}: {total} elements do not divide by {rest}")
        sizes[unknown[0]] = total // rest
    return _graph.apply(RESHAPE, x, shape=as_shape(sizes))


def is_column_major(order: Any) -> bool:
    """Whether one of NumPy's names for an order of elements means column-major."""
    if order not in ("C", "F", "A", "K"):
        raise ArgumentError(f"order is 'C', 'F', 'A' or 'K', got {order!r}")
    return bool(order == "F")


def _reversed_axes(x: Tensor) -> Tensor:
    return permute_dims(x, tuple(range(x.ndim))[::-1])


# --- permute ---------------------------------------------------------------------------------------------------------


def _canonical_permute(x: Tensor, *, axes: tuple[int, ...]) -> Tensor | None:
    if axes == tuple(range(len(axes))):
        return x
    if x.op is PERMUTE and (source := source_to_read(x)) is not None:
        inner = x.attributes["axes"]
        return _graph.apply(PERMUTE, source, axes=tuple(inner[a] for a in axes))
    return None


def _permute_members(op: Op, members: batching.Members, x: Tensor, *, axes: tuple[int, ...]) -> Tensor:
    return permute_dims(x, (0, *[axis + 1 for axis in axes]))


PERMUTE = register(
    Op(
        "permute_dims",
        infer=lambda x, *, axes: (tuple(x.shape[a] for a in axes), x.dtype),
        kernel=lambda x, *, axes: x.transpose(axes),
        vjp=(lambda ct, out, x, *, axes: rearrange(ct, lambda inner: permute_dims(inner, _inverse(axes))),),
        jvp=(lambda t, out, x, *, axes: rearrange(t, lambda inner: permute_dims(inner, axes)),),
        params={"axes": STRUCTURE},
        canonical=_canonical_permute,
        canonical_for=FOR_ITS_OWN,
        cheap=True,
        view=True,
        batch=_permute_members,
    )
)


def permute_dims(x: Any, axes: Sequence[int]) -> Tensor:
    """Reorder the axes of a tensor: axis ``i`` of the result is axis ``axes[i]`` of ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.permute_dims(us.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = as_tensor(x)
    given: Any = axes
    axes = tuple(given) if isinstance(given, Iterable) else (given,)
    order = tuple(normalize_axis(a, x.ndim) for a in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"axes {axes} are not a permutation of the {x.ndim} axes of a tensor of shape {x.shape}")
    return _graph.apply(PERMUTE, x, axes=order)


def reverse_axes(x: Tensor) -> Tensor:
    """Return a tensor with its axes in reverse order."""
    return _graph.apply(PERMUTE, x, axes=all_axes(len(x.shape))[::-1])


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axes.index(a) for a in range(len(axes)))


# --- broadcast -------------------------------------------------------------------------------------------------------


def _infer_broadcast(x: Node, *, shape: Shape) -> tuple[Shape, Any]:
    if len(x.shape) > len(shape) or broadcast_shapes(x.shape, shape) != shape:
        raise ShapeError(f"a tensor of shape {x.shape} cannot be broadcast to {shape}")
    return shape, x.dtype


def _canonical_broadcast(x: Tensor, *, shape: Shape) -> Tensor | None:
    if x.shape == shape:
        return x
    if x.op is not BROADCAST_TO:
        return None
    _infer_broadcast(x, shape=shape)
    # Whatever has been computed: the cotangents of copies of copies would be summed in another order.
    return _graph.apply(BROADCAST_TO, x.inputs[0], shape=shape)


def _broadcast_members(op: Op, members: batching.Members, x: Tensor, *, shape: Shape) -> Tensor:
    return broadcast_to(members.lifted(0, x, len(shape)), (members.count, *shape))


BROADCAST_TO = register(
    Op(
        "broadcast_to",
        infer=_infer_broadcast,
        kernel=lambda x, *, shape: np.broadcast_to(x, shape),
        vjp=(lambda ct, out, x, *, shape: fold_to_shape(ct, x.shape),),
        jvp=(lambda t, out, x, *, shape: rearrange(t, lambda inner: broadcast_to(inner, shape)),),
        params={"shape": SIZE},
        canonical=_canonical_broadcast,
        canonical_for=FOR_ITS_OWN,
        cheap=True,
        view=True,
        batch=_broadcast_members,
    )
)


_core.bind(reshape=RESHAPE, broadcast_to=BROADCAST_TO)


def broadcast_to(x: Any, shape: Size | Sequence[Size]) -> Tensor:
    """Repeat a tensor along axes of size 1, and new leading axes, until it has the given shape.

    Examples
    --------
    >>> import unspool as us
    >>> us.broadcast_to([1.0, 2.0], (2, 2)).eval()
    array([[1., 2.],
           [1., 2.]])
    """
    x = as_tensor(x)
    sizes = as_shape(shape)  # type: ignore[arg-type]
    if len(x.shape) <= len(sizes) and not (is_concrete(x.shape) and is_concrete(sizes)):
        tail = sizes[len(sizes) - x.ndim :]
        x = ensure_shape(x, tuple(1 if a == 1 else b for a, b in zip(x.shape, tail, strict=True)))
    return _graph.apply(BROADCAST_TO, x, shape=sizes)


def unrepeated(x: Tensor) -> Tensor:
    """Return what a tensor was broadcast from, to be read in its place; itself, if it was not."""
    source = source_to_read(x) if x.op is BROADCAST_TO else None
    return x if source is None else source


ops.provide(broadcast_to=broadcast_to, rearrange=rearrange, reshape=reshape, unrepeated=unrepeated)
