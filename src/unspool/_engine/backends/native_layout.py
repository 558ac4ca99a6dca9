"""How values lie in memory, and how NumPy goes through them: which axes, in which order, with which strides.

NumPy's inner loops look at strides to choose their instructions, and sums depend on the order of their terms. So a
program that is to have NumPy's bits has to go through its operands as NumPy does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

# How an array lies in memory: rows first ("C"), columns first ("F", matrices alone), or the axes from the outermost on.
Order = str | tuple[int, ...]


class Unsupported(Exception):  # noqa: N818 - nothing went wrong
    """A plan that has no native program."""


class Value(NamedTuple):
    """What a slot holds, or a view of it: elements at the pointer of the slot, as shape and strides say."""

    slot: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def order(self) -> str | None:
        """How the elements lie if there are no gaps: rows first ("C"), columns first ("F", matrices alone), or None."""
        if _same_strides(self, c_strides(self.shape, self.dtype)):
            return "C"
        if len(self.shape) == 2 and _same_strides(self, c_strides(self.shape[::-1], self.dtype)[::-1]):
            return "F"
        return None

    @property
    def layout(self) -> Order | None:
        """How the elements lie if there are no gaps, whatever the order of the axes; None if there are some."""
        if self.order is not None:
            return self.order
        axes = tuple(sorted(range(len(self.shape)), key=lambda a: (-self.strides[a], a)))
        return axes if _same_strides(self, ordered_strides(self.shape, self.dtype, axes)) else None

    def viewed(self, shape: Sequence[int], strides: Sequence[int]) -> Value:
        """Return another view that begins at the same place."""
        return self._replace(shape=tuple(shape), strides=tuple(strides))

    def transposed(self, axes: Sequence[int]) -> Value:
        return self.viewed([self.shape[a] for a in axes], [self.strides[a] for a in axes])


def c_strides(shape: Sequence[int], dtype: Any) -> tuple[int, ...]:
    """Return the strides of an array in C order."""
    strides = []
    step = dtype.itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def ordered_strides(shape: Sequence[int], dtype: Any, order: Order) -> tuple[int, ...]:
    """Return the strides of an array without gaps whose axes lie in some order."""
    if order == "C":
        return c_strides(shape, dtype)
    axes = tuple(range(len(shape)))[::-1] if order == "F" else order
    steps = c_strides([shape[int(a)] for a in axes], dtype)
    found = dict(zip(axes, steps, strict=True))
    return tuple([found[a] for a in range(len(shape))])


def reshaped_strides(value: Value, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of a value in another shape, without axes of one element; ``None`` if NumPy copies."""
    old = [(n, s) for n, s in zip(value.shape, value.strides, strict=True) if n != 1]
    strides: list[int] = []
    first = 0
    for begin, end, taken in _groups([n for n, _ in old], shape):
        # Axes of the value that lie behind each other become axes of the shape.
        if any(s != m * t for (_, s), (m, t) in pairwise(old[first : first + taken])):
            return None
        first += taken
        step = old[first - 1][1]
        made = []
        for size in reversed(shape[begin:end]):
            made.append(step)
            step *= size
        strides += reversed(made)
    return tuple(strides)


def strides_in_shape(value: Value, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of a value in another shape; ``None`` if NumPy copies. Axes of one element have stride 0."""
    strides = reshaped_strides(value, [n for n in shape if n != 1])
    if strides is None:
        return None
    left = iter(strides)
    return tuple([0 if n == 1 else next(left) for n in shape])


def _groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the fewest sizes of one shape that make up some of another: from where to where, and how many of those."""
    begin = first = 0
    while begin < len(new):
        end, last = begin + 1, first + 1
        ours, theirs = new[begin], old[first]
        while ours != theirs:
            if ours < theirs:
                ours *= new[end]
                end += 1
            else:
                theirs *= old[last]
                last += 1
        yield begin, end, last - first
        begin, first = end, last


def _same_strides(value: Value, strides: Sequence[int]) -> bool:
    if 0 in value.shape:
        return True
    return all(a == b or n == 1 for a, b, n in zip(value.strides, strides, value.shape, strict=True))


def broadcast_strides(value: Value, shape: Sequence[int]) -> list[int]:
    """Return the strides with which a value is read as one of a shape that it broadcasts to."""
    missing = len(shape) - len(value.shape)
    own = zip(value.shape, value.strides, shape[missing:], strict=True)
    return [0] * missing + [0 if n == 1 and size != 1 else stride for n, stride, size in own]


def is_in_c_order(value: Value) -> bool:
    steps = [abs(s) for n, s in zip(value.shape, value.strides, strict=True) if n != 1 and s]
    return steps == sorted(steps, reverse=True) and all(s >= 0 for s in value.strides)


def result_order(operands: Sequence[Value], shape: Sequence[int]) -> Order:
    """Return in which order NumPy lays out the result of a ufunc: that of its operands; where these differ, C wins.

    Axes are sorted as NumPy sorts them, by insertion from the last one on.
    """
    strides = [broadcast_strides(value, shape) for value in operands]
    if any(s < 0 for steps in strides for s in steps):
        raise Unsupported("NumPy turns such axes round")
    inner_first: list[int] = []
    for axis in reversed([a for a, n in enumerate(shape) if n != 1]):
        at = place = len(inner_first)
        while at:
            at -= 1
            is_inside = _lies_inside(strides, axis, inner_first[at])
            if is_inside is False:
                break
            place = at if is_inside else place
        inner_first.insert(place, axis)
    axes = inner_first[::-1]
    if axes == sorted(axes):
        return "C"
    return "F" if len(shape) == 2 else (*[a for a, n in enumerate(shape) if n == 1], *axes)


def joined_order(operands: Sequence[Value]) -> Order:
    """Return in which order NumPy lays out arrays that it joins.

    It sorts axes as for a ufunc, but from the first one on, and an axis along which elements repeat has stride 0.
    """
    axes = list(range(len(operands[0].shape)))
    for i, axis in enumerate(axes[1:], 1):
        place = i
        for at in range(i - 1, -1, -1):
            other = axes[at]
            lie = [x for x in operands if x.shape[axis] != 1 and x.shape[other] != 1]
            if lie and not all(abs(x.strides[axis]) > abs(x.strides[other]) for x in lie):
                break
            place = at if lie else place
        axes.insert(place, axes.pop(i))
    if axes == sorted(axes):
        return "C"
    return "F" if len(axes) == 2 else tuple(axes)


def _lies_inside(strides: Sequence[Sequence[int]], axis: int, other: int) -> bool | None:
    """Whether operands agree that an axis lies inside of one that follows it; None if none of them tells."""
    told = [s[axis] < s[other] for s in strides if s[axis] and s[other]]
    return all(told) if told else None


def straight_strides(values: Sequence[Value]) -> list[int] | None:
    """Return the strides with which NumPy goes straight through operands and result, if it does.

    They have one shape and order without gaps, or one axis each, or are single numbers.
    """
    result = values[-1]
    steps = []
    orders = set()
    for value in values[:-1]:
        if not value.shape:
            steps.append(0)
        elif value.shape != result.shape:
            return None
        elif len(value.shape) == 1:
            steps.append(value.strides[0])
        else:
            orders.add(value.order)
            steps.append(value.dtype.itemsize)
    if len(orders) > 1 or None in orders or (orders and result.order not in orders):
        return None
    return [*steps, result.strides[0] if len(result.shape) == 1 else result.dtype.itemsize]


def in_memory_order(result: Value, strides: Sequence[Sequence[int]]) -> list[int]:
    """Return the axes of a result as they lie in memory, without those of size 1."""
    axes = [a for a, n in enumerate(result.shape) if n != 1]
    return sorted(axes, key=lambda a: (-abs(result.strides[a]), a))


def merged_axes(shape: list[int], strides: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Return axes with those made one that all operands go through as if they were one; at least one axis."""
    axes = [a for a, n in enumerate(shape) if n != 1]
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for a in axes:
        if sizes and all(s[-1] == given[a] * shape[a] for s, given in zip(steps, strides, strict=True)):
            sizes[-1] *= shape[a]
            for s, given in zip(steps, strides, strict=True):
                s[-1] = given[a]
        else:
            sizes.append(shape[a])
            for s, given in zip(steps, strides, strict=True):
                s.append(given[a])
    if not sizes:
        return [1], [[0] for _ in strides]
    return sizes, steps
