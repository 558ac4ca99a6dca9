"""How index expressions are written in native programs: as views, or by the numbers of the elements they select.

Without index arrays a selection is a view, at positions that slots hold. With them, the numbers of all elements in C
order are computed first, and what is put there is put one after the other, as NumPy does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._engine.backends.native_layout import Unsupported, Value, c_strides, merged_axes
from unspool._engine.backends.native_program import MOST_OPERANDS, POSITIONS, PUT, TAKE, loop_of
from unspool._engine.backends.native_rules import Rule, Writing, or_call
from unspool._ops.indexing.slices import extent
from unspool._ops.indexing.template import decode

_INT64 = np.dtype(np.int64)

# --- views, and rows --------------------------------------------------------------------------------------------------


def _slice(to: Writing, x: Value, *at: Value) -> Value:
    return _place(to, x, at)


def _gather(to: Writing, x: Value, *at: Value) -> Value:
    template = decode(to.step.params["index"], to.step.params["lengths"])
    kinds = [entry[0] for entry in template.entries]
    if x.order != "C":
        raise Unsupported("NumPy may lay out what it takes of such an array in another order")
    if kinds[0] != "array" or any(k != "whole" for k in kinds[1:]) or len(at) != 1:
        return _taken_one_by_one(to, x, at, template.lead)
    (which,) = at
    if which.dtype != np.int64 or which.order != "C":
        raise Unsupported("positions are integers")
    result = to.new()
    row = math.prod(x.shape[1:]) * x.dtype.itemsize
    slots = (x.slot, which.slot, result.slot)
    to.builder.emit(TAKE, slots, count=which.size, numbers=(row, x.shape[0]))
    return result


def _taken_one_by_one(to: Writing, x: Value, at: Sequence[Value], lead: int) -> Value:
    """Write elements by number. NumPy goes through the arrays first, and so lies what it takes."""
    which = _numbers(to, at, x.shape)
    rank = max([len(a.shape) for a in at])
    block = tuple(range(lead, lead + rank))
    axes = (*block, *[a for a in range(len(to.shape)) if a not in block])
    if lead:
        which = to.builder.copied(None, which, axes)
    result = to.new(axes if lead else "C")
    size = x.dtype.itemsize
    to.builder.emit(TAKE, (x.slot, which.slot, result.slot), count=which.size, numbers=(size, x.size))
    return result


def _place(to: Writing, x: Value, at: Sequence[Value]) -> Value:
    """Return the part of a value that a template without arrays selects."""
    template = decode(to.step.params["index"], to.step.params["lengths"])
    waiting = iter(at)
    shape: list[int] = []
    strides: list[int] = []
    positions: list[tuple[Value, int, int]] = []
    offset = axis = 0
    for kind, *rest in template.entries:
        if kind == "new":
            shape.append(1)
            strides.append(0)
        if kind in ("new", "gap"):
            continue
        size, stride = x.shape[axis], x.strides[axis]
        axis += 1
        if kind == "int":
            positions.append((next(waiting), stride, size))
            continue
        step, length = (1, size) if kind == "whole" else rest
        if kind == "along" or step < 0 or length == 0:
            raise Unsupported("strides below zero, or nothing at all")
        if kind == "from":
            positions.append((next(waiting), stride, size - extent(length, step) + 1))
        shape.append(length)
        strides.append(stride * step)
    shape += x.shape[axis:]
    strides += x.strides[axis:]
    return to.builder.picked(x.viewed(shape, strides), offset, positions)


# --- copies with something written into them -------------------------------------------------------------------------


def _unslice(to: Writing, values: Value, *at: Value) -> Value:
    result = to.new()
    to.builder.fill(result, 0)
    _write(to, values, _place(to, result, at))
    return result


def _chosen(to: Writing, *at: Value) -> Value:
    result = to.new()
    to.builder.fill(result, False)
    if "array" in to.step.params["index"]:
        _put(to, _numbers(to, at, to.shape), to.constant(True), result)
        return result
    _write(to, to.constant(True), _place(to, result, at))
    return result


def _slice_set(to: Writing, x: Value, values: Value, *at: Value) -> Value:
    result = _copied(to, x)
    _write(to, values, _place(to, result, at))
    return result


def _slice_add(to: Writing, x: Value, values: Value, *at: Value) -> Value:
    result = _copied(to, x)
    part = _place(to, result, at)
    if values.dtype != to.dtype:
        raise Unsupported("dtypes differ")
    to.builder.loop(loop_of(np.add, to.dtype, to.dtype, to.dtype), [part, values, part])
    return result


def _copied(to: Writing, x: Value) -> Value:
    if x.order != "C":
        raise Unsupported("`numpy.array` copies such an array in its own order")
    return to.builder.copied(to.step.slot, x)


def _write(to: Writing, values: Value, part: Value) -> None:
    if values.dtype != part.dtype or len(values.shape) > len(part.shape):
        raise Unsupported("dtypes or axes differ")
    to.builder.copy(values, part)


# --- elements by number -----------------------------------------------------------------------------------------------


class _Term(NamedTuple):
    """An array of positions on an axis: the axis' size, the first position that is too large, what one counts."""

    array: Value
    size: int
    end: int
    counts: int
    axes: tuple[int, ...]  # of the result, that the axes of the array are laid along


class _Selection:
    """The elements that a template selects: the shape of the selection, and how their numbers come about."""

    def __init__(self, to: Writing, at: Sequence[Value], shape: Sequence[int], stack: int) -> None:
        params = to.step.params
        self._template = decode(params["index"], params["lengths"])
        self._given, self._of, self._stack = shape, c_strides(shape, np.dtype(np.int8)), stack
        along = [entry[2] for entry in self._template.entries if entry[0] == "along"]
        self._rank = max([len(x.shape) - stack for x in at] + along, default=0)
        self.terms: list[_Term] = []
        self._plain: list[tuple[int, int]] = []
        self._block = [1] * self._rank
        self._counts = [0] * self._rank
        self._walk(iter(at))
        lead = self._template.lead
        around = [max([t.array.shape[a] for t in self.terms], default=1) for a in range(stack)]
        before, after = self._plain[:lead], self._plain[lead:]
        self.shape = (*around, *[n for n, _ in before], *self._block, *[n for n, _ in after])
        self.counts = [0] * stack + [c for _, c in before] + self._counts + [c for _, c in after]

    def _walk(self, waiting: Any) -> None:
        axis = 0
        for kind, *rest in self._template.entries:
            if kind == "new":
                self._plain.append((1, 0))
            if kind in ("new", "gap"):
                continue
            self._take(kind, rest, waiting, self._given[axis], self._of[axis])
            axis += 1
        self._plain += zip(self._given[axis:], self._of[axis:], strict=True)

    def _take(self, kind: str, rest: Sequence[Any], waiting: Any, size: int, counts: int) -> None:
        """Take in an entry of the template, for an axis of some size whose places count so much."""
        around = tuple(range(self._stack))
        if kind == "whole":
            self._plain.append((size, counts))
        elif kind in ("slice", "from"):
            step, length = rest
            if step < 0 or length == 0:
                raise Unsupported("strides below zero, or nothing at all")
            self._plain.append((length, counts * step))
            if kind == "from":
                self.terms.append(_Term(next(waiting), size, size - extent(length, step) + 1, counts, around))
        elif kind == "along":
            place = self._rank - rest[1] + rest[0]
            self._block[place] = max(self._block[place], size)
            self._counts[place] += counts if size > 1 else 0
        else:
            array = next(waiting)
            own = len(array.shape) - self._stack
            lead = self._stack + min(self._template.lead, len(self._plain))
            axes = range(lead + self._rank - own, lead + self._rank)
            for place, n in enumerate(array.shape[self._stack :], self._rank - own):
                self._block[place] = max(self._block[place], n)
            self.terms.append(_Term(array, size, size, counts, (*around, *axes)))

    def strides(self, term: _Term) -> list[int]:
        """Return the strides with which an array of positions is read along the axes of the selection."""
        strides = [0] * len(self.shape)
        for axis, n, stride in zip(term.axes, term.array.shape, term.array.strides, strict=True):
            strides[axis] = 0 if n == 1 else stride
        return strides


def _numbers(to: Writing, at: Sequence[Value], shape: Sequence[int], stack: int = 0, slot: int | None = None) -> Value:
    """Write the numbers, in C order, of the elements of a shape that the template of a step selects."""
    if any(x.dtype != _INT64 or x.order != "C" or not x.size for x in at) or len(at) >= MOST_OPERANDS or 0 in shape:
        raise Unsupported("positions are integers, and there are some")
    found = _Selection(to, at, shape, stack)
    if 0 in found.shape:
        raise Unsupported("nothing is selected")
    result = to.builder.new(slot, found.shape, _INT64)
    strides = [*[found.strides(term) for term in found.terms], list(result.strides), list(found.counts)]
    sizes, (*steps, counts) = merged_axes(list(found.shape), strides)
    to.builder.emit(
        POSITIONS,
        [*[term.array.slot for term in found.terms], result.slot],
        sizes[:-1],
        sizes[-1],
        [tuple(s[:-1]) for s in steps],
        [s[-1] for s in steps],
        [*[n for term in found.terms for n in (term.size, term.end, term.counts)], *counts],
    )
    return result


def _put(to: Writing, which: Value, values: Value, result: Value, *, adds: bool = False) -> None:
    """Write values, or one for all, to elements by number."""
    if values.dtype != result.dtype or values.size not in (1, which.size):
        raise Unsupported("dtypes or sizes differ")
    if values.order != "C":
        values = to.builder.copied(None, values)
    step = values.dtype.itemsize if values.size == which.size else 0
    numbers = (result.size, result.dtype.itemsize, result.dtype.num if adds else -1)
    slots = (which.slot, values.slot, result.slot)
    to.builder.emit(PUT, slots, (), which.size, ((), (), ()), (8, step, 0), numbers)


def _combined(to: Writing, result: Value, values: Value, at: Sequence[Value], *, adds: bool) -> Value:
    which = _numbers(to, at, result.shape)
    if which.size != values.size or (adds and to.dtype.char not in "fdFD"):
        raise Unsupported("values that are spread over a selection, or integers")
    _put(to, which, values, result, adds=adds)
    return result


def _scatter(to: Writing, values: Value, *at: Value) -> Value:
    result = to.new()
    to.builder.fill(result, 0)
    return _combined(to, result, values, at, adds=True)


def _scatter_add(to: Writing, x: Value, values: Value, *at: Value) -> Value:
    return _combined(to, to.builder.copied(to.step.slot, x), values, at, adds=True)


def _scatter_set(to: Writing, x: Value, values: Value, *at: Value) -> Value:
    return _combined(to, to.builder.copied(to.step.slot, x), values, at, adds=False)


def _positions(to: Writing, *at: Value) -> Value:
    return _numbers(to, at, to.step.params["shape"], to.step.params["stack"], to.step.slot)


def _is_last(to: Writing, *at: Value) -> Value:
    builder, shape = to.builder, to.step.params["shape"]
    which = _numbers(to, at, shape)
    turns = builder.constant(np.arange(which.size).reshape(which.shape))
    latest = builder.new(None, (math.prod(shape),), _INT64)
    builder.fill(latest, 0)
    _put(to, which, turns, latest)
    found = builder.new(None, which.shape, _INT64)
    builder.emit(TAKE, (latest.slot, which.slot, found.slot), count=which.size, numbers=(8, latest.size))
    return to.apply(np.equal, found, turns)


# By name, so that ops which no program uses need not be loaded.
RULES: dict[str, Rule] = {
    "chosen": or_call(_chosen),
    "gather": or_call(_gather),
    "is_last": or_call(_is_last),
    "positions": or_call(_positions),
    "scatter": or_call(_scatter),
    "scatter_add": or_call(_scatter_add),
    "scatter_set": or_call(_scatter_set),
    "slice": _slice,
    "slice_add": _slice_add,
    "slice_set": _slice_set,
    "unslice": _unslice,
}
