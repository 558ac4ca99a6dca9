"""Parsing an index expression, whatever NumPy accepts in ``x[...]``, into a template and index tensors.

Integers and slices become the static template. Integer arrays become constants and integer tensors stay part of the
graph: both are inputs of the node. A boolean mask is looked at when the index is built and becomes the positions where
it is true. What can be out of range is checked here where position and size are numbers, else when the node runs.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool._dims import Dim, Shape, Size, equal
from unspool._dtypes import INT64
from unspool._graph import Node
from unspool._ops import layout
from unspool._ops.broadcasting import align, ensure_shape
from unspool._ops.indexing.slices import WHOLE, normalize_slice
from unspool._ops.indexing.template import Flat, check_range, flat_positions, has_dims, indexed_shape, out_of_range
from unspool._ops.leaf import CONSTANT, constant
from unspool.errors import DTypeError, IndexRangeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_WHOLE_ENTRY = ("slice", *WHOLE)
_PLAIN = frozenset({int, slice})


class ParsedIndex(NamedTuple):
    """What an index expression selects from a tensor.

    ``base`` is the tensor to select from: the one that was indexed, except that sizes a mask has to agree with are
    ensured, and that a 0-d mask gives it an axis.
    """

    base: Tensor
    template: Flat
    arrays: tuple[Tensor, ...]

    @property
    def shape(self) -> Shape:
        """The shape of the selection."""
        return indexed_shape(self.base.shape, self.template, [array.shape for array in self.arrays])

    def is_repetitive(self) -> bool:
        """Whether an element may be selected more than once (known only for index arrays that are constants)."""
        if not self.arrays and "along" not in self.template:
            return False
        shape = self.base.shape
        if has_dims(self.template) or has_dims(shape) or any(array.op is not CONSTANT for array in self.arrays):
            return True
        positions = flat_positions(self.template, [array.value for array in self.arrays], shape)  # type: ignore[arg-type]
        return bool(np.unique(positions).size < positions.size)


class _Part(NamedTuple):
    """One item of an index expression: its kind, what it holds and how many axes it takes up."""

    kind: str
    content: Any
    axes: int


def parse_index(x: Tensor, index: Any) -> ParsedIndex:
    """Return what an index expression selects from a tensor, or raise what is wrong with it."""
    items = index if type(index) is tuple else (index,)
    if len(items) <= len(x.shape) and _PLAIN.issuperset(map(type, items)):
        plain = [_plain_entry(item, x.shape[axis], axis) for axis, item in enumerate(items)]
        return ParsedIndex(x, _flatten(plain), ())
    parts = [_classify(item) for item in items]
    parts = _without_ellipsis(parts, x.shape)
    x, parts = _without_scalar_masks(x, parts)
    entries: list[Flat] = []
    arrays: list[Tensor] = []
    sizes: list[Size] = list(x.shape)
    axis = 0
    for kind, content, axes in parts:
        if kind == "mask":
            for offset, positions in enumerate(_mask_positions(content, sizes, axis)):
                arrays.append(constant(positions))
                entries.append(("array",))
                sizes[axis + offset] = content.shape[offset]
        elif kind == "array":
            arrays.append(_index_tensor(content, sizes[axis], axis))
            entries.append(("array",))
        elif kind in ("slice", "int"):
            entries.append(_plain_entry(content, sizes[axis], axis))
        else:
            entries.append((kind,))
        axis += axes
    if len(arrays) > 1:
        arrays = list(_aligned(arrays))
    return ParsedIndex(ensure_shape(x, tuple(sizes)), _flatten(entries), tuple(arrays))


def _plain_entry(item: slice | int | Dim, size: Size, axis: int) -> Flat:
    if isinstance(item, slice):
        return ("slice", *normalize_slice(item, size))
    return ("int", _position(item, size, axis))


def _flatten(entries: list[Flat]) -> Flat:
    # A gap is an ellipsis to NumPy, and would stand for the axes that are left out.
    while entries and entries[-1] == _WHOLE_ENTRY and ("gap",) not in entries:
        entries.pop()
    return tuple(item for entry in entries for item in entry)


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
    if x.dtype.kind != "i":
        raise DTypeError(f"an index has integers or bools, got a tensor of dtype {x.dtype}")
    return _classify_array(x.value) if x.op is CONSTANT else _Part("array", x, 1)


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
        if equal(sizes[axis + offset], length) is False:
            raise ShapeError(
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


def _position(content: int | Dim, size: Size, axis: int) -> int | Dim:
    if isinstance(content, int) and isinstance(size, int):
        if not -size <= content < size:
            raise out_of_range(content, axis, size)
        return content + size if content < 0 else content
    if isinstance(content, Dim) and content == size - 1:
        return -1
    return content


def _aligned(arrays: list[Tensor]) -> tuple[Tensor, ...]:
    try:
        return align(*arrays)[0]
    except ShapeError as error:
        raise ShapeError(f"index arrays have to broadcast together: {error}") from None
