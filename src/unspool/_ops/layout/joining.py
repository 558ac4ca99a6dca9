"""Joining tensors along an axis, and cutting one into pieces along an axis.

`concat` and `split` are inverse to each other, and so are their derivative rules: the cotangent of a joined tensor is
cut into pieces, the cotangents of the pieces are joined. A piece that no cotangent reached is absent, not zero.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core, _graph
from unspool._dims import Dim, Shape, Size, equal, maximum, minimum
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.elementwise import MASK, mask
from unspool._ops.late import ops
from unspool._ops.layout.axes import atleast_1d, atleast_2d, atleast_3d, ravel, squeeze
from unspool._ops.layout.cropping import crop_axis
from unspool._ops.layout.reshaping import RESHAPE, broadcast_to, normalize_axis, rearrange, replaced, reshape
from unspool._ops.leaf import as_operands, as_tensor, constant
from unspool._ops.op import FOR_ITS_OWN, SIZE, STRUCTURE, JointRule, Op, parts, register
from unspool.errors import ArgumentError, ShapeError, SizeContradictionError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- concat ----------------------------------------------------------------------------------------------------------


def _infer_concat(*inputs: Node, axis: int) -> tuple[Shape, Any]:
    _common_shape("concat", [x.shape for x in inputs], axis)
    dtype = promote(*dict.fromkeys(x.dtype for x in inputs))
    return replaced(inputs[0].shape, axis, sum([x.shape[axis] for x in inputs])), dtype


def _concat_vjp(needed: Sequence[bool], ct: Tensor, out: Tensor, *inputs: Tensor, axis: int) -> list[Tensor | None]:
    contributions: list[Tensor | None] = []
    start: Size = 0
    for x, wanted in zip(inputs, needed, strict=True):
        contributions.append(_piece(ct, axis, start, x.shape[axis]) if wanted else None)
        start = start + x.shape[axis]
    return contributions


def _piece(ct: Tensor, axis: int, start: Size, size: Size) -> Tensor:
    return rearrange(ct, lambda inner: crop_axis(inner, axis, start, size))


def _concat_jvp(tangents: tuple[Tensor | None, ...], out: Tensor, *inputs: Tensor, axis: int) -> Tensor:
    return _join_present(tangents, tuple(x.shape[axis] for x in inputs), axis, out)


CONCAT: Op = register(
    Op(
        "concat",
        infer=_infer_concat,
        kernel=lambda *arrays, axis: np.concatenate(arrays, axis),
        vjp=JointRule(_concat_vjp),
        jvp=_concat_jvp,
        params={"axis": STRUCTURE},
        canonical=lambda *inputs, axis: inputs[0] if len(inputs) == 1 else None,
        canonical_for=FOR_ITS_OWN,
        fresh=True,
    )
)


_core.bind(concat=CONCAT)


def concat(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Join tensors along an axis they have; all other sizes must be equal.

    Parameters
    ----------
    arrays : sequence of array_like
        What to join. Different data types are promoted.
    axis : int or None
        Along which axis; ``None`` joins the flattened tensors.

    Examples
    --------
    >>> import unspool as us
    >>> us.concat([[1, 2], [3]]).eval()
    array([1, 2, 3])
    """
    found = _core.concat(arrays, axis)
    if found is not None:
        return found
    tensors = _operands("concat", arrays)
    if axis is None:
        return _graph.apply(CONCAT, *map(ravel, tensors), axis=0)
    rank = tensors[0].ndim
    if not rank:
        raise ShapeError("tensors with no axes cannot be joined along one; use stack")
    position = normalize_axis(axis, rank)
    return _graph.apply(CONCAT, *_agreeing("concat", tensors, position), axis=position)


concatenate = concat


def _operands(name: str, arrays: Sequence[Any]) -> tuple[Tensor, ...]:
    if not isinstance(arrays, (Node, Iterable)):
        raise ArgumentError(f"{name} takes a sequence of tensors, got {arrays!r}")
    # A tensor stands for its slices; iterating over it would compute it.
    tensors = unstack(arrays) if isinstance(arrays, Node) else as_operands(*arrays)
    if not tensors:
        raise ShapeError(f"{name} takes at least one tensor, got none")
    return tensors


def _agreeing(name: str, tensors: Sequence[Tensor], free: int | None = None) -> list[Tensor]:
    """Return the tensors with all sizes but those of axis ``free`` ensured to be the same."""
    shape = tensors[0].shape
    if any(x.shape != shape for x in tensors):
        shape = _common_shape(name, [x.shape for x in tensors], free)
    return [ensure_shape(x, shape if free is None else replaced(shape, free, x.shape[free])) for x in tensors]


def _common_shape(name: str, shapes: list[Shape], free: int | None) -> Shape:
    common = list(shapes[0])
    for shape in shapes:
        if len(shape) != len(common):
            raise ShapeError(f"{name} of shapes {shapes[0]} and {shape}: they have {len(common)} and {len(shape)} axes")
        for axis, size in enumerate(shape):
            if axis == free or size == common[axis]:
                continue
            if equal(size, common[axis]) is False:
                raise ShapeError(f"{name} of shapes {shapes[0]} and {shape}: axis {axis} has {common[axis]} and {size}")
            # A number is the better name for a size than a symbol that has to be equal to it.
            common[axis] = size if isinstance(size, int) else common[axis]
    return tuple(common)


# --- stack -----------------------------------------------------------------------------------------------------------


def stack(arrays: Sequence[Any], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.stack([[1, 2], [3, 4]], axis=1).eval()
    array([[1, 3],
           [2, 4]])
    """
    found = _core.stack(arrays, axis)
    if found is not None:
        return found
    tensors = _agreeing("stack", _operands("stack", arrays))
    shape = tensors[0].shape
    position = normalize_axis(axis, len(shape) + 1)
    wider = (*shape[:position], 1, *shape[position:])
    return _graph.apply(CONCAT, *[_graph.apply(RESHAPE, x, shape=wider) for x in tensors], axis=position)


def vstack(arrays: Sequence[Any]) -> Tensor:
    """Join tensors on top of each other, along the first axis; vectors are rows.

    Examples
    --------
    >>> import unspool as us
    >>> us.vstack([[1, 2], [3, 4]]).eval()
    array([[1, 2],
           [3, 4]])
    """
    return concat([atleast_2d(x) for x in _operands("vstack", arrays)], 0)


def hstack(arrays: Sequence[Any]) -> Tensor:
    """Join tensors side by side, along the second axis; vectors are joined along their only one.

    Examples
    --------
    >>> import unspool as us
    >>> us.hstack([[[1], [2]], [[3], [4]]]).eval()
    array([[1, 3],
           [2, 4]])
    """
    tensors = [atleast_1d(x) for x in _operands("hstack", arrays)]
    return concat(tensors, 0 if tensors[0].ndim == 1 else 1)


def dstack(arrays: Sequence[Any]) -> Tensor:
    """Join tensors along the third axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.dstack([[1, 2], [3, 4]]).shape
    (1, 2, 2)
    """
    return concat([atleast_3d(x) for x in _operands("dstack", arrays)], 2)


def column_stack(arrays: Sequence[Any]) -> Tensor:
    """Join vectors as the columns of a matrix; matrices are joined side by side.

    Examples
    --------
    >>> import unspool as us
    >>> us.column_stack([[1, 2], [3, 4]]).eval()
    array([[1, 3],
           [2, 4]])
    """
    tensors = _operands("column_stack", arrays)
    return concat([x if x.ndim > 1 else reshape(x, (*atleast_1d(x).shape, 1)) for x in tensors], 1)


# --- split -----------------------------------------------------------------------------------------------------------


def _infer_split(x: Node, *, sizes: Shape, axis: int) -> tuple[tuple[Shape, Any], ...]:
    if equal(sum(sizes), x.shape[axis]) is False:
        raise ShapeError(f"axis {axis} of size {x.shape[axis]} cannot be split into pieces of sizes {sizes}")
    return tuple((replaced(x.shape, axis, size), x.dtype) for size in sizes)


def _split_kernel(x: Any, *, sizes: tuple[int, ...], axis: int) -> tuple[Any, ...]:
    ends = tuple(accumulate(sizes, initial=0))
    if min(sizes) < 0 or ends[-1] != x.shape[axis]:
        raise SizeContradictionError(
            f"axis {axis} of size {x.shape[axis]} cannot be split into pieces of sizes {sizes}"
        )
    before = (slice(None),) * axis
    return tuple(x[(*before, slice(start, stop))] for start, stop in pairwise(ends))


def _split_vjp(
    cts: tuple[Tensor | None, ...], out: tuple[Tensor, ...], x: Tensor, *, sizes: Shape, axis: int
) -> Tensor:
    return _join_present(cts, sizes, axis, x)


def _split_jvp(
    tangents: tuple[Tensor], out: tuple[Tensor, ...], x: Tensor, *, sizes: Shape, axis: int
) -> tuple[Tensor, ...]:
    (t,) = tangents
    if t.op is not MASK:
        return _pieces(t, sizes, axis)
    contents, kept = (_pieces(broadcast_to(part, t.shape), sizes, axis) for part in t.inputs)
    return tuple(mask(content, keep) for content, keep in zip(contents, kept, strict=True))


SPLIT = register(
    Op(
        "split",
        infer=_infer_split,
        kernel=_split_kernel,
        vjp=(_split_vjp,),
        jvp=_split_jvp,  # type: ignore[arg-type]
        params={"sizes": SIZE, "axis": STRUCTURE},
        multi=True,
        view=True,
    )
)


def _pieces(x: Tensor, sizes: Shape, axis: int) -> tuple[Tensor, ...]:
    """Return consecutive pieces of the given sizes."""
    if len(sizes) == 1:
        return (ensure_shape(x, replaced(x.shape, axis, sizes[0])),)
    return parts(_graph.apply_multi(SPLIT, x, sizes=sizes, axis=axis))


def split(x: Any, indices_or_sections: int | Sequence[Size], axis: int = 0) -> list[Tensor]:
    """Cut a tensor into pieces along an axis.

    Parameters
    ----------
    x : array_like
        The tensor.
    indices_or_sections : int or sequence of int
        How many equal pieces, or the positions at which to cut.
    axis : int
        Along which axis.

    Examples
    --------
    >>> import unspool as us
    >>> [piece.eval() for piece in us.split([1, 2, 3, 4], 2)]
    [array([1, 2]), array([3, 4])]
    >>> [piece.eval() for piece in us.split([1, 2, 3, 4], [1])]
    [array([1]), array([2, 3, 4])]
    """
    x = as_tensor(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(indices_or_sections, (tuple, list, np.ndarray)):
        return list(_pieces(x, _sizes_between(indices_or_sections, size), axis))
    sections = _as_sections(indices_or_sections)
    each = size // sections
    if equal(each * sections, size) is False:
        raise ShapeError(f"axis {axis} of size {size} cannot be split into {sections} equal pieces; use array_split")
    return list(_pieces(ensure_shape(x, replaced(x.shape, axis, each * sections)), (each,) * sections, axis))


def array_split(x: Any, indices_or_sections: int | Sequence[Size], axis: int = 0) -> list[Tensor]:
    """Cut a tensor into pieces along an axis; where they cannot be equal, the first ones are longer by one.

    Examples
    --------
    >>> import unspool as us
    >>> [piece.eval() for piece in us.array_split([1, 2, 3], 2)]
    [array([1, 2]), array([3])]
    """
    if isinstance(indices_or_sections, (tuple, list, np.ndarray)):
        return split(x, indices_or_sections, axis)
    x = as_tensor(x)
    axis = normalize_axis(axis, x.ndim)
    sections = _as_sections(indices_or_sections)
    sizes = tuple((x.shape[axis] + (sections - 1 - i)) // sections for i in range(sections))
    return list(_pieces(x, sizes, axis))


def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the slices of a tensor along an axis, without that axis.

    Examples
    --------
    >>> import unspool as us
    >>> [row.eval() for row in us.unstack([[1, 2], [3, 4]])]
    [array([1, 2]), array([3, 4])]
    """
    x = as_tensor(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(size, Dim):
        raise UnknownSizeError(
            f"cannot unstack axis {axis} of a tensor of shape {x.shape}: how many slices there are depends on {size}, "
            "which is not bound yet"
        )
    return tuple(squeeze(piece, axis) for piece in _pieces(x, (1,) * size, axis)) if size else ()


def _as_sections(sections: Any) -> int:
    try:
        count = operator.index(sections)
    except TypeError:
        raise ShapeError(f"sections are an integer or a sequence of positions, got {sections!r}") from None
    if count < 1:
        raise ShapeError(f"a tensor is split into at least 1 piece, got {count}")
    return count


def _sizes_between(positions: Iterable[Any], size: Size) -> Shape:
    """Return the sizes of the pieces between cuts; cuts are positions as in a slice."""
    cuts: list[Size] = [0]
    for position in positions:
        if not isinstance(position, Dim):
            try:
                position = operator.index(position)
            except TypeError:
                raise ShapeError(f"a split position is an integer or a dim, got {position!r}") from None
        from_end = isinstance(position, int) and position < 0
        cuts.append(maximum(size + position, 0) if from_end else minimum(position, size))
    sizes = tuple(stop - start for start, stop in pairwise([*cuts, size]))
    if any(isinstance(piece, int) and piece < 0 for piece in sizes):
        raise ShapeError(f"split positions must not decrease, got {cuts[1:]}")
    return sizes


# --- joining what is present of a cotangent or tangent ----------------------------------------------------------------


def _join_present(cts: tuple[Tensor | None, ...], sizes: Shape, axis: int, like: Tensor) -> Tensor:
    """Join the cotangents (or tangents) of pieces to that of the whole; pieces that have none are absent from it."""
    runs = _merge_absent(cts, sizes)
    whole = concat([_content(ct, replaced(like.shape, axis, size), like.dtype) for ct, size in runs], axis)
    whole = ensure_shape(whole, like.shape)
    masked = any(ct is not None and ct.op is MASK for ct in cts)
    if not masked and all(ct is not None for ct in cts):
        return whole
    # Without masks inside the pieces, the mask of the whole varies along this axis only.
    shape = like.shape if masked else replaced((1,) * len(like.shape), axis, like.shape[axis])
    keep = concat([_presence(ct, replaced(shape, axis, size)) for ct, size in runs], axis)
    return mask(whole, ensure_shape(keep, shape))


def _merge_absent(cts: tuple[Tensor | None, ...], sizes: Shape) -> list[tuple[Tensor | None, Size]]:
    """Return cotangents with the sizes of their pieces; neighbouring pieces without cotangent become one."""
    merged: list[tuple[Tensor | None, Size]] = []
    for absent, run in groupby(zip(cts, sizes, strict=True), key=lambda piece: piece[0] is None):
        pieces = list(run)
        merged.extend([(None, sum(size for _, size in pieces))] if absent else pieces)
    return merged


def _content(ct: Tensor | None, shape: Shape, dtype: Any) -> Tensor:
    if ct is None:
        return broadcast_to(constant(0, dtype), shape)
    return broadcast_to(ct.inputs[0], shape) if ct.op is MASK else ct


def _presence(ct: Tensor | None, shape: Shape) -> Tensor:
    if ct is not None and ct.op is MASK:
        return broadcast_to(ct.inputs[1], shape)
    return broadcast_to(constant(ct is not None), shape)


ops.provide(stack=stack)
