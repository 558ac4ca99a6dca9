"""Parsing an index expression, whatever NumPy accepts in ``x[...]``, into a template and its operands.

What kinds of items there are, and how long slices are, is static: the template. Where they are is not: positions,
starts of slices and index arrays become inputs of the node, numbers among them as constants. So is an integer tensor,
which stays part of the graph. A boolean mask is looked at when the index is built and becomes the positions where it is
true. What can be out of range is checked here where position and size are numbers, else when the node runs.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core
from unspool._dims import Dim, Shape, Size, equal
from unspool._dtypes import INT64, INTEGERS, UNSIGNED
from unspool._graph import Node
from unspool._ops import layout
from unspool._ops.broadcasting import align, ensure_shape
from unspool._ops.creation import size_tensor
from unspool._ops.elementwise import astype
from unspool._ops.indexing.slices import normalize_slice
from unspool._ops.indexing.template import (
    Flat,
    Lengths,
    check_range,
    flat_positions,
    has_arrays,
    has_dims,
    indexed_shape,
    out_of_range,
    sliced_shape,
)
from unspool._ops.leaf import CONSTANT, constant, scalar
from unspool._records import NamedTuple
from unspool.errors import DTypeError, IndexRangeError, MaskShapeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Where(NamedTuple):
    """Where the elements of a selection are: a template and its operands (see `template`)."""

    template: Flat
    lengths: Lengths
    at: tuple[Tensor, ...]

    @property
    def has_arrays(self) -> bool:
        """Whether index arrays are among the operands: then an element may be selected more than once."""
        return has_arrays(self.template)


class ParsedIndex(NamedTuple):
    """What an index expression selects from a tensor.

    ``base`` is the tensor to select from: the one that was indexed, except that sizes a mask has to agree with are
    ensured, and that a 0-d mask gives it an axis.
    """

    base: Tensor
    where: Where

    @property
    def shape(self) -> Shape:
        """The shape of the selection."""
        index, lengths, at = self.where
        if not has_arrays(index):
            return sliced_shape(self.base.shape, index, lengths)
        return indexed_shape(self.base.shape, index, lengths, [operand.shape for operand in at])

    def is_repetitive(self) -> bool:
        """Whether an element may be selected more than once (known only for index arrays that are constants)."""
        index, lengths, at = self.where
        if not has_arrays(index):
            return False
        shape = self.base.shape
        if has_dims(lengths) or has_dims(shape) or any(operand.op is not CONSTANT for operand in at):
            return True
        positions = flat_positions(index, lengths, [operand.value for operand in at], shape)  # type: ignore[arg-type]
        return bool(np.unique(positions).size < positions.size)


class _Template:
    """A template in the making: its entries one after the other, and what they stand on."""

    def __init__(self) -> None:
        self.index: list[Any] = []
        self.lengths: list[Size] = []
        self.at: list[Tensor] = []

    def add_plain(self, item: slice | int | Dim | Tensor, size: Size, axis: int) -> None:
        """Add a slice or a position."""
        if not isinstance(item, slice):
            self.index.append("int")
            self.at.append(_position(item, size, axis))
            return
        part = normalize_slice(item, size)
        if part is None:
            self.index.append("whole")
            return
        self.lengths.append(part.length)
        if part.start is None:
            self.index += ("slice", part.step)
        else:
            self.index += ("from", part.step)
            self.at.append(_as_input(part.start))

    def finish(self) -> Where:
        """Return the template and its operands."""
        # A gap is an ellipsis to NumPy, and would stand for the axes that are left out.
        while self.index and self.index[-1] == "whole" and "gap" not in self.index:
            self.index.pop()
        return Where(tuple(self.index), tuple(self.lengths), tuple(self.at))


class _Part(NamedTuple):
    """One item of an index expression: its kind, what it holds and how many axes it takes up."""

    kind: str
    content: Any
    axes: int


def parse_index(x: Tensor, index: Any) -> ParsedIndex:
    """Return what an index expression selects from a tensor, or raise what is wrong with it."""
    plain = _core.plain_index(x, index)
    return parse_any(x, index) if plain is None else ParsedIndex(x, Where(*plain))


def parse_any(x: Tensor, index: Any) -> ParsedIndex:
    """Return the same without the short way of the core, which has no symbolic sizes, masks, lists and errors."""
    items = index if type(index) is tuple else (index,)
    template = _Template()
    parts = [_classify(item) for item in items]
    parts = _without_ellipsis(parts, x.shape)
    x, parts = _without_scalar_masks(x, parts)
    arrays: list[int] = []
    sizes: list[Size] = list(x.shape)
    axis = 0
    for kind, content, axes in parts:
        if kind in ("slice", "int"):
            template.add_plain(content, sizes[axis], axis)
        elif kind in ("array", "mask"):
            if kind == "mask":
                given = [constant(positions) for positions in _mask_positions(content, sizes, axis)]
                known = zip(content.shape, sizes[axis : axis + axes], strict=True)
                sizes[axis : axis + axes] = [length or size for length, size in known]
            else:
                given = [_index_tensor(content, sizes[axis], axis)]
            template.index += ["array"] * len(given)
            arrays += range(len(template.at), len(template.at) + len(given))
            template.at += given
        else:
            template.index.append(kind)
        axis += axes
    if len(arrays) > 1:
        for place, array in zip(arrays, _aligned([template.at[place] for place in arrays]), strict=True):
            template.at[place] = array
    return ParsedIndex(ensure_shape(x, tuple(sizes)), template.finish())


# --- items -----------------------------------------------------------------------------------------------------------


def _classify(item: Any) -> _Part:
    if type(item) is int:
        return _Part("int", item, 1)
    if type(item) is slice:
        return _Part("slice", item, 1)
    if item is None:
        return _Part("new", None, 0)
    if item is Ellipsis:
        return _Part("ellipsis", None, 0)
    if isinstance(item, Dim):
        return _Part("int", item, 1)
    if isinstance(item, Node):
        return _classify_tensor(item)
    if isinstance(item, list) and any(isinstance(element, Node) for element in item):
        return _classify_tensor(layout.stack(item))
    return _classify_array(_as_array(item))


def _classify_tensor(x: Node) -> _Part:
    if x.dtype.kind == "b":
        return _classify_array(x.eval())  # type: ignore[attr-defined]
    if x.dtype not in INTEGERS:
        raise DTypeError(f"an index has integers or bools, got a tensor of dtype {x.dtype}")
    if x.op is CONSTANT:
        return _classify_array(x.value)
    if x.dtype in UNSIGNED:
        x = astype(x, INT64)
    return _Part("array" if x.shape else "int", x, 1)


def _classify_array(array: Any) -> _Part:
    if array.dtype.kind == "b":
        return _Part("mask", array, array.ndim)
    if array.dtype.kind not in "iu":
        raise DTypeError(
            f"an index is made of integers, bools, slices, None and ..., got {array.dtype} {_short(array)}"
        )
    if array.ndim == 0:
        return _Part("int", int(array), 1)
    return _Part("array", array.astype(INT64, copy=False), 1)


def _as_array(item: Any) -> Any:
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise ShapeError(f"an index array has to be rectangular, got {item!r}: {error}") from None
    if array.size == 0 and isinstance(item, (list, tuple)):
        return array.astype(INT64)
    if array.dtype == object:
        try:
            return np.asarray(operator.index(item))
        except TypeError:
            raise DTypeError(
                f"an index is made of integers, bools, slices, None and ..., got {type(item).__name__}"
            ) from None
    return array


def _short(array: Any) -> str:
    return str(array) if array.ndim == 0 else f"of shape {array.shape}"


# --- the whole expression --------------------------------------------------------------------------------------------


def _without_ellipsis(parts: list[_Part], shape: Shape) -> list[_Part]:
    """Write an ellipsis out as whole slices; check that there are enough axes."""
    taken = sum(part.axes for part in parts)
    if taken > len(shape):
        raise IndexRangeError(f"too many indices: {taken} for a tensor with {len(shape)} axes, of shape {shape}")
    places = [i for i, part in enumerate(parts) if part.kind == "ellipsis"]
    if not places:
        return parts
    if len(places) > 1:
        raise IndexRangeError(f"an index can have one ellipsis (...), got {len(places)}")
    before, after = parts[: places[0]], parts[places[0] + 1 :]
    left = len(shape) - taken
    between = [_Part("slice", slice(None), 1)] * left
    if not left and _has_array(before) and _has_array(after) and _has_array(before + after, strictly=True):
        between = [_Part("gap", None, 0)]
    return before + between + after


def _has_array(parts: list[_Part], strictly: bool = False) -> bool:
    kinds = ("array", "mask") if strictly else ("array", "mask", "int")
    return any(part.kind in kinds for part in parts)


def _without_scalar_masks(x: Tensor, parts: list[_Part]) -> tuple[Tensor, list[_Part]]:
    """Replace a 0-d mask, which selects all or nothing along a new axis, by an index array for such an axis."""
    if not any(part.kind == "mask" and part.axes == 0 for part in parts):
        return x, parts
    shape: list[Size] = []
    made: list[_Part] = []
    left = list(x.shape)
    for part in parts:
        if part.kind == "mask" and part.axes == 0:
            shape.append(1)
            made.append(_Part("array", np.zeros(int(bool(part.content)), INT64), 1))
        else:
            shape.extend(left[: part.axes])
            del left[: part.axes]
            made.append(part)
    return layout.reshape(x, (*shape, *left)), made


def _mask_positions(mask: Any, sizes: list[Size], axis: int) -> tuple[Any, ...]:
    for offset, length in enumerate(mask.shape):
        # As in NumPy, what has no elements selects none, wherever.
        if length and equal(sizes[axis + offset], length) is False:
            raise MaskShapeError(
                f"a mask of shape {mask.shape} does not fit: axis {axis + offset} has size {sizes[axis + offset]}, "
                f"not {length}"
            )
    positions: tuple[Any, ...] = mask.nonzero()
    return positions


def _index_tensor(content: Any, size: Size, axis: int) -> Tensor:
    """Return the input for an index array; constants are checked, and counted from the left, where that is possible."""
    if isinstance(content, Node):
        return content  # type: ignore[return-value]
    if isinstance(size, int):
        check_range(content, axis, size)
        content = np.where(content < 0, content + size, content)
    return constant(content)


def _position(content: int | Dim | Tensor, size: Size, axis: int) -> Tensor:
    """Return the input for one position; a number is checked, and counted from the left, where that is possible."""
    if isinstance(content, Node):
        return content
    if isinstance(content, int) and isinstance(size, int):
        if not -size <= content < size:
            raise out_of_range(content, axis, size)
        content = content + size if content < 0 else content
    elif isinstance(content, Dim) and content == size - 1:
        content = -1  # as it is for every size, also for 0
    return _as_input(content)


def _as_input(position: Size) -> Tensor:
    return scalar(position, INT64) if isinstance(position, int) else size_tensor(position, INT64)


def _aligned(arrays: list[Tensor]) -> tuple[Tensor, ...]:
    try:
        return align(*arrays)[0]
    except ShapeError as error:
        raise ShapeError(f"index arrays have to broadcast together: {error}") from None
