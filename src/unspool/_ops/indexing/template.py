"""Index templates: what an index expression selects, apart from where that is.

A template has two parts. ``index`` is its structure, a sequence of entries written one after the other without nesting:

``"int"``
    one position, which is an operand;
``"whole"``
    an axis as it is;
``"slice", step``
    a slice that begins at an end of the axis;
``"from", step``
    a slice from a position, which is an operand;
``"new"``
    a new axis of size 1;
``"array"``
    an integer array, which is an operand;
``"along", d, rank``
    the positions 0, 1, … of the axis itself, laid along axis ``d`` of ``rank`` broadcast axes (`take_along_axis`);
``"gap"``
    an ellipsis that stands for no axis but, as in NumPy, keeps the arrays on its two sides from being adjacent.

``lengths`` are sizes: how many elements each slice has. Operands are inputs of the node, in the order of their entries
(``at``): so the steps of a loop that read other positions are one program. Axes after the last entry are taken whole.
This module knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from unspool._dims import Dim, Shape, Size
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.indexing.slices import as_numpy
from unspool.errors import IndexRangeError

Flat = tuple[Any, ...]
Lengths = tuple[Size, ...]

_WIDTH = {"int": 1, "whole": 1, "slice": 2, "from": 2, "new": 1, "array": 1, "along": 3, "gap": 1}
_OPERANDS = frozenset({"int", "from", "array"})


class Template:
    """A decoded template.

    ``entries`` have their lengths with them. ``items`` is what NumPy takes, with ``None`` also where operands go;
    ``slots`` are those places, each with its axis and its entry. ``lead`` is how many axes of the result come before
    the broadcast axes of the index arrays.
    """

    __slots__ = ("entries", "items", "lead", "slots")

    def __init__(
        self, entries: tuple[Flat, ...], items: tuple[Any, ...], slots: tuple[tuple[int, int, Flat], ...], lead: int
    ) -> None:
        self.entries, self.items, self.slots, self.lead = entries, items, slots, lead


@lru_cache(maxsize=4096)
def decode(index: Flat, lengths: Lengths) -> Template:
    """Return the template that structure and lengths stand for."""
    entries = _split(index, lengths)
    items: list[Any] = []
    slots: list[tuple[int, int, Flat]] = []
    axis = 0
    for entry in entries:
        kind = entry[0]
        if kind in _OPERANDS or kind == "along":
            slots.append((len(items), axis, entry))
        items.append(_item(entry))
        axis += kind not in ("new", "gap")
    if "gap" not in index:
        # With an ellipsis NumPy returns an array even where a single element is left.
        items.append(Ellipsis)
    return Template(entries, tuple(items), tuple(slots), _lead(entries))


def _split(index: Flat, lengths: Lengths) -> tuple[Flat, ...]:
    entries = []
    waiting = iter(lengths)
    at = 0
    while at < len(index):
        width = _WIDTH[index[at]]
        entry = index[at : at + width]
        entries.append((*entry, next(waiting)) if entry[0] in ("slice", "from") else entry)
        at += width
    return tuple(entries)


def _item(entry: Flat) -> Any:
    if entry[0] == "whole":
        return slice(None)
    if entry[0] == "slice" and not isinstance(entry[2], Dim):
        return as_numpy(None, entry[2], entry[1])
    return Ellipsis if entry[0] == "gap" else None


def _lead(entries: Sequence[Flat]) -> int:
    """Return where the broadcast axes go: to the first index array if all stand side by side, else to the front.

    NumPy counts an integer beside an index array as an array.
    """
    advanced = [i for i, entry in enumerate(entries) if entry[0] in ("int", "array", "along")]
    if not advanced or advanced[-1] - advanced[0] + 1 != len(advanced):
        return 0
    return sum(1 for entry in entries[: advanced[0]] if entry[0] in ("whole", "slice", "from", "new"))


def has_arrays(index: Flat) -> bool:
    """Whether index arrays are among the operands of a template."""
    return "array" in index


# --- shapes ----------------------------------------------------------------------------------------------------------


def indexed_shape(shape: Shape, index: Flat, lengths: Lengths, at: Sequence[Shape] = ()) -> Shape:
    """Return the shape of what a template selects from a tensor, given the shapes of its operands."""
    template = decode(index, lengths)
    plain: list[Size] = []
    block: list[Shape] = []
    waiting = iter(at)
    axis = 0
    for entry in template.entries:
        kind = entry[0]
        operand = next(waiting) if kind in _OPERANDS else ()
        if kind == "new":
            plain.append(1)
        if kind in ("new", "gap"):
            continue
        if kind == "whole":
            plain.append(shape[axis])
        elif kind in ("slice", "from"):
            plain.append(entry[2])
        elif kind == "array":
            block.append(operand)
        elif kind == "along":
            block.append(_along_shape(shape[axis], *entry[1:]))
        axis += 1
    plain.extend(shape[axis:])
    if not block:
        return tuple(plain)
    return (*plain[: template.lead], *broadcast_shapes(*block), *plain[template.lead :])


def _along_shape(size: Size, place: int, rank: int) -> Shape:
    return (*[1] * place, size, *[1] * (rank - place - 1))


@lru_cache(maxsize=4096)
def sliced_shape(shape: Shape, index: Flat, lengths: Lengths) -> Shape:
    """Return the same for a template without arrays, remembered: loops take the same slice again and again."""
    return indexed_shape(shape, index, lengths, [()] * sum(part in _OPERANDS for part in index))


@lru_cache(maxsize=4096)
def covers(shape: Shape, index: Flat, lengths: Lengths) -> bool:
    """Whether a template without arrays is known to select every element."""
    axis = 0
    for entry in decode(index, lengths).entries:
        kind = entry[0]
        if kind == "new":
            continue
        if (kind == "int" and shape[axis] != 1) or (kind in ("slice", "from") and entry[2] != shape[axis]):
            return False
        axis += 1
    return True


def keeps_order(index: Flat) -> bool:
    """Whether a template that covers its tensor leaves all elements in their order, so that it is a reshape."""
    return all(part > 0 for part in index if type(part) is int)


# --- values ----------------------------------------------------------------------------------------------------------


def numpy_index(index: Flat, lengths: Lengths, at: Sequence[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return what NumPy takes for a template and the values of its operands."""
    template = decode(index, lengths)
    if not template.slots:
        return template.items
    items = list(template.items)
    waiting = iter(at)
    for place, axis, entry in template.slots:
        kind = entry[0]
        if kind == "int":
            # A number, not an array without axes: for that NumPy would copy.
            items[place] = int(next(waiting))
        elif kind == "from":
            items[place] = as_numpy(int(next(waiting)), entry[2], entry[1])
        elif kind == "array":
            items[place] = next(waiting)
        else:
            items[place] = positions_along(shape[axis], *entry[1:])
    return tuple(items)


def positions_along(size: int, place: int, rank: int) -> Any:
    """Return the positions of an axis, laid along one of a number of broadcast axes."""
    return np.arange(size).reshape(_along_shape(size, place, rank))


def flat_positions(index: Flat, lengths: Lengths, at: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Return the positions, in row-major order of a tensor of this shape, of the elements that a template selects.

    Checks the range of every index. The result has the shape of the selection.
    """
    template = decode(index, lengths)
    strides = _strides(shape)
    items = numpy_index(index, lengths, at, shape)
    plain: list[Any] = []
    block: Any = 0
    axis = 0
    for entry, item in zip(template.entries, items, strict=False):
        kind = entry[0]
        if kind == "new":
            plain.append(np.zeros(1, np.int64))
        if kind in ("new", "gap"):
            continue
        size, stride = shape[axis], strides[axis]
        if type(item) is slice:
            plain.append(np.arange(*item.indices(size)) * stride)
        else:
            block = block + _wrapped(np.asarray(item), axis, size) * stride
        axis += 1
    plain.extend(np.arange(shape[a]) * strides[a] for a in range(axis, len(shape)))
    return _outer_sum(plain, np.asarray(block), template.lead)


def stacked_positions(index: Flat, lengths: Lengths, at: Sequence[Any], shape: tuple[int, ...], stack: int) -> Any:
    """Return the same for a stack of operands, whose first ``stack`` axes tell selections of one tensor apart.

    Operands may have size 1 there. Those axes come first in the result.
    """
    if not stack:
        return flat_positions(index, lengths, at, shape)
    template, strides = decode(index, lengths), _strides(shape)
    ranks = [np.ndim(operand) - stack for operand in at]
    rank = max([*ranks, *[entry[2] for entry in template.entries if entry[0] == "along"]], default=0)
    waiting = iter(at)
    plain: list[Any] = []
    block: Any = np.zeros((1,) * (stack + rank), np.int64)
    axis = 0
    for entry in template.entries:
        kind = entry[0]
        if kind == "new":
            plain.append(np.zeros(1, np.int64))
        if kind in ("new", "gap"):
            continue
        size, stride = shape[axis], strides[axis]
        if kind in ("whole", "slice"):
            plain.append(np.arange(*_item(entry).indices(size)) * stride)
        elif kind == "from":
            start = _wrapped(next(waiting), axis, size) if entry[2] else np.asarray(next(waiting))
            positions = start[..., None] + np.arange(entry[2]) * entry[1]
            check_range(positions, axis, size)
            plain.append(positions * stride)
        else:
            item = positions_along(size, *entry[1:])[(None,) * stack] if kind == "along" else np.asarray(next(waiting))
            lifted = item.reshape(*item.shape[:stack], *[1] * (rank + stack - item.ndim), *item.shape[stack:])
            block = block + _wrapped(lifted, axis, size) * stride
        axis += 1
    plain.extend(np.arange(shape[a]) * strides[a] for a in range(axis, len(shape)))
    return _outer_sum(plain, block, template.lead, stack)


def _strides(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def _outer_sum(plain: list[Any], block: Any, lead: int, stack: int = 0) -> Any:
    """Add offsets that each have result axes of their own: one per plain axis, and the axes of the block.

    The first ``stack`` axes of the block, and of plain offsets that have several, are common to all.
    """
    own = block.shape[stack:]
    rank = len(plain) + len(own)
    total = block.reshape(block.shape[:stack] + (1,) * lead + own + (1,) * (len(plain) - lead))
    for place, offsets in enumerate(plain):
        at = place if place < lead else place + len(own)
        total = total + offsets.reshape(offsets.shape[:-1] + (1,) * at + offsets.shape[-1:] + (1,) * (rank - at - 1))
    return total


def _wrapped(positions: Any, axis: int, size: int) -> Any:
    check_range(positions, axis, size)
    return np.where(positions < 0, positions + size, positions)


def check_range(positions: Any, axis: int, size: int) -> None:
    """Raise `IndexRangeError` with axis, index and size if a position is outside its axis."""
    if positions.size == 0:
        return
    if positions.ndim == 0:
        low = high = int(positions)
    else:
        low, high = int(positions.min()), int(positions.max())
    if low < -size or high >= size:
        raise out_of_range(low if low < -size else high, axis, size)


def out_of_range(position: Size, axis: int, size: Size) -> IndexRangeError:
    """Return the error for a position outside its axis."""
    return IndexRangeError(f"index {position} is out of range for axis {axis} with size {size}")


def explain_range(index: Flat, lengths: Lengths, at: Sequence[Any], shape: tuple[int, ...]) -> IndexRangeError:
    """Return the error for an index that NumPy found to be out of range."""
    items = numpy_index(index, lengths, at, shape)
    axis = 0
    for entry, item in zip(decode(index, lengths).entries, items, strict=False):
        if entry[0] in ("int", "array"):
            try:
                check_range(np.asarray(item), axis, shape[axis])
            except IndexRangeError as error:
                return error
        axis += entry[0] not in ("new", "gap")
    shapes = ", ".join(str(np.shape(array)) for array in at)
    return IndexRangeError(f"index arrays of shapes {shapes} do not fit a tensor of shape {shape}")


def has_dims(sizes: Shape) -> bool:
    """Whether some of the sizes are symbolic."""
    return any(type(size) is Dim for size in sizes)
