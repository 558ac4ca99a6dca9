"""Writing programs for the native backend: slots with their layouts, and instructions on them.

The one idea: shapes and layouts are known beforehand, so everything that NumPy works out in each call (which inner
loop, over which axes, with which strides) is worked out once. What a program calls is what NumPy would call, on
operands of the same layout; so it has NumPy's bits. What cannot be written in this way raises `Unsupported`, and then
the plan runs in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from unspool._engine.backends.buffers import LARGE
from unspool._engine.backends.native_layout import (
    Order,
    Unsupported,
    Value,
    broadcast_strides,
    c_strides,
    in_memory_order,
    is_in_c_order,
    merged_axes,
    ordered_strides,
    result_order,
    straight_strides,
)

# As `native.h` has them.
(LOOP, FEW_DOUBLES, REDUCE, GUFUNC, DOT, COPY, CAST, FILL, SELECT, TAKE, VIEW, PICK, CALL) = range(13)
(IF_ZERO, IF_OUTSIDE, SKIP, FORTRAN, CHECK, TRIANGLE, SHIFT, PARITY, FUSE, POSITIONS, PUT, DRAW) = range(13, 25)
(IN_INPUT, IN_CONSTANT, IN_FRAME, IN_OUTPUT, IN_VIEW) = range(5)

# Slots that an instruction reads and fills, at most.
MOST_OPERANDS = 6

# Slots that a call-back reads, at most.
MOST_READ = 64

# Temporaries begin at multiples of this, and take no more than this in all, unless steps of a loop share them: what a
# thread keeps for them (`frame.c`).
ALIGNMENT = 64
MOST_IN_FRAME = 1 << 20


# What is computed without a call of NumPy's loops, on at most so many elements.
_SYMBOLS: dict[Any, str] = {
    np.add: "+",
    np.subtract: "-",
    np.multiply: "*",
    np.divide: "/",
    np.negative: "n",
    np.absolute: "a",
    np.square: "q",
    np.sqrt: "r",
}
FEW = 16

# The longest row that NumPy's pairwise sum does not divide.
BLOCK = 128

# Conversions that there are, by the characters of the dtypes.
CASTS = {
    (a, b) for a, others in {"?": "lfdD", "l": "dD", "f": "dFD", "d": "fD", "F": "D", "D": "F"}.items() for b in others
}


@lru_cache(maxsize=4096)
def loop_of(ufunc: Any, *dtypes: Any) -> tuple[Any, int]:
    """Return the inner loop of a ufunc for dtypes of its operands and its result, without any conversion."""
    wanted = f"{''.join(d.char for d in dtypes[: ufunc.nin])}->{''.join(d.char for d in dtypes[ufunc.nin :])}"
    if wanted not in ufunc.types:
        raise Unsupported(f"{ufunc.__name__} has no loop {wanted}")
    return ufunc, ufunc.types.index(wanted)


@lru_cache(maxsize=4096)
def _dtypes_of(ufunc: Any, *dtypes: Any) -> tuple[Any, ...]:
    """Return the dtypes that NumPy converts operands to, and that of the result."""
    try:
        found: tuple[Any, ...] = ufunc.resolve_dtypes((*dtypes, None))
    except TypeError:
        raise Unsupported(f"{ufunc.__name__} takes other dtypes") from None
    return found


class Builder:
    """A program that is being written, of results with fewer bytes than ``most``.

    Attributes
    ----------
    slots, instructions : list of tuple
        As the C part reads them.
    values : dict
        Of each slot of the plan, what it holds; of one with several results, a list.
    """

    def __init__(self, outputs: Sequence[int], most: int = LARGE) -> None:
        self.slots: list[tuple[Any, ...]] = []
        self.instructions: list[tuple[Any, ...]] = []
        self.values: dict[int, Any] = {}
        self.frame = 0
        self._most = most
        self._arrays = len(outputs)
        self._first_output = {slot: position for position, slot in reversed(list(enumerate(outputs)))}

    # -- slots --

    def _slot(
        self, home: int, at: int, shape: Sequence[int], dtype: Any, strides: Any = None, array: Any = None
    ) -> Value:
        shape = tuple(shape)
        strides = c_strides(shape, dtype) if strides is None else tuple(strides)
        value = Value(len(self.slots), shape, strides, dtype)
        self.slots.append((home, at, array, dtype, shape, strides, ord(_letter(value))))
        return value

    def input(self, position: int, shape: Sequence[int], dtype: Any, strides: Any = None) -> Value:
        return self._slot(IN_INPUT, position, shape, dtype, strides)

    def constant(self, array: Any) -> Value:
        return self._slot(IN_CONSTANT, 0, array.shape, array.dtype, array.strides, array)

    def new(self, plan_slot: int | None, shape: Sequence[int], dtype: Any, order: Order = "C") -> Value:
        """Return memory for a result: an array of its own if it is an output, else a temporary."""
        shape = tuple(shape)
        strides = ordered_strides(shape, dtype, order)
        size = prod(shape) * dtype.itemsize
        output = None if plan_slot is None else self._first_output.get(plan_slot)
        if size >= (max(self._most, MOST_IN_FRAME) if output is None else self._most) or dtype.hasobject:
            raise Unsupported("results that are this large take over the memory of others in Python")
        if output is not None:
            return self._slot(IN_OUTPUT, output, shape, dtype, strides)
        at = self.frame
        self.frame += -(-size // ALIGNMENT) * ALIGNMENT
        return self._slot(IN_FRAME, at, shape, dtype, strides)

    def moved(self, value: Value, offset: int) -> Value:
        """Return a view that begins some bytes later."""
        if not offset:
            return value
        made = self._slot(IN_VIEW, 0, value.shape, value.dtype, value.strides)
        self.emit(VIEW, (value.slot, made.slot), numbers=(offset,))
        return made

    def picked(self, value: Value, offset: int, positions: Sequence[tuple[Value, int, int]]) -> Value:
        """Return a view that begins at positions (where they are, stride, size) which other slots hold."""
        if not positions:
            return self.moved(value, offset)
        if any(p.shape or p.dtype != np.int64 for p, _, _ in positions) or len(positions) > MOST_OPERANDS - 2:
            raise Unsupported("positions are integers")
        made = self._slot(IN_VIEW, 0, value.shape, value.dtype, value.strides)
        numbers = [number for _, stride, size in positions for number in (stride, size)]
        slots = (value.slot, *[p.slot for p, _, _ in positions], made.slot)
        self.emit(PICK, slots, numbers=(offset, *numbers))
        return made

    def owned(self, plan_slot: int, value: Value) -> Value:
        """Return an output with gaps as other steps read it: a copy, if much less than what it is a view of."""
        base = bases_of(self.instructions).get(value.slot, value.slot)
        home, at, _, dtype, shape, *rest = self.slots[base]
        if _repeats(value.shape, value.strides) or _repeats(shape, rest[0]):
            raise Unsupported("elements that repeat")
        if home == IN_INPUT:
            # An input that is itself a view of more may have to be copied where this one is not.
            self.slots[base] = (home, at, True, dtype, shape, *rest)
        if prod(shape) * dtype.itemsize > 2 * value.size * value.dtype.itemsize:
            return self.copied(plan_slot, value, result_order([value], value.shape))
        return value

    def shown(self, value: Value) -> int:
        """Return the slot of an output with gaps: a view of an array, if need be one that is made for it."""
        if _repeats(value.shape, value.strides):
            raise Unsupported("elements that repeat")
        slot = self._described(value).slot
        base = bases_of(self.instructions).get(slot, slot)
        home, _, array, dtype, shape, strides, order = self.slots[base]
        if home == IN_FRAME:
            if prod(shape) * dtype.itemsize >= self._most:
                raise Unsupported("a view of an array that is this large")
            self.slots[base] = (IN_OUTPUT, self._arrays, array, dtype, shape, strides, order)
            self._arrays += 1
        if base == slot:
            raise Unsupported("an array with gaps of its own")
        self.slots[slot] = (IN_VIEW, base, *self.slots[slot][2:])
        return slot

    # -- instructions --

    def mark(self) -> tuple[int, int, int]:
        """Return how far the program is written, for `return_to`."""
        return len(self.slots), len(self.instructions), self.frame

    def return_to(self, mark: tuple[int, int, int]) -> None:
        """Take back all that was written since."""
        slots, instructions, self.frame = mark
        del self.slots[slots:], self.instructions[instructions:]

    def emit(
        self,
        opcode: int,
        slots: Sequence[int],
        shape: Sequence[int] = (),
        count: int = 0,
        outer: Sequence[Any] = (),
        inner: Sequence[int] = (),
        numbers: Sequence[int] = (),
        what: Any = None,
    ) -> None:
        """Append an instruction."""
        if len(slots) > MOST_OPERANDS:
            raise Unsupported("there are too many operands")
        self.instructions.append(
            (opcode, tuple(slots), tuple(shape), count, tuple(outer), tuple(inner), tuple(numbers), what)
        )

    def over_elements(
        self, opcode: int, values: Sequence[Value], numbers: Sequence[int] = (), what: Any = None
    ) -> None:
        """Append an instruction that goes through the elements of its operands, the last of which it fills."""
        if 0 not in values[-1].shape:
            shape, strides = _walk(values)
            outer = [tuple(s[:-1]) for s in strides]
            inner = [s[-1] for s in strides]
            self.emit(opcode, [v.slot for v in values], shape[:-1], shape[-1], outer, inner, numbers, what)

    def apply(self, ufunc: Any, plan_slot: int | None, operands: Sequence[Value], shape: Any, dtype: Any) -> Value:
        """Append a ufunc on operands that broadcast, and return the result, laid out as NumPy lays it out."""
        wanted = _dtypes_of(ufunc, *[v.dtype for v in operands])
        loop = loop_of(ufunc, *wanted[:-1], dtype)
        result = self.new(plan_slot, shape, dtype, result_order(operands, shape))
        operands = [self.cast(v, d) for v, d in zip(operands, wanted, strict=False)]
        self.loop(loop, [*operands, result])
        return result

    def loop(self, loop: tuple[Any, int], values: Sequence[Value]) -> None:
        """Append an inner loop of a ufunc, over the axes that NumPy would go through.

        Loops look at strides to choose their instructions, also where there is a single element.
        """
        result, slots = values[-1], [v.slot for v in values]
        if 0 in result.shape:
            return
        straight = straight_strides(values)
        shape, strides = _walk(values) if straight is None else ([result.size], [[step] for step in straight])
        outer, inner = [tuple(s[:-1]) for s in strides], [s[-1] for s in strides]
        symbol = _SYMBOLS.get(loop[0])
        if symbol is not None and all(v.dtype == np.float64 for v in values) and _is_own(shape, inner):
            self.emit(FEW_DOUBLES, slots, shape[:-1], shape[-1], outer, inner, (ord(symbol),))
        else:
            self.emit(LOOP, slots, shape[:-1], shape[-1], outer, inner, what=loop)

    def cast(self, value: Value, dtype: Any) -> Value:
        """Return a value in another dtype."""
        if value.dtype == dtype:
            return value
        if (value.dtype.char, dtype.char) not in CASTS:
            raise Unsupported(f"from {value.dtype} to {dtype}")
        order = value.layout
        if order is None:
            raise Unsupported("NumPy converts such an array in its own order")
        result = self.new(None, value.shape, dtype, order)
        self.over_elements(CAST, [value, result], (value.dtype.num, dtype.num))
        return result

    def copied(self, plan_slot: int | None, value: Value, order: Order = "C") -> Value:
        """Append a copy."""
        result = self.new(plan_slot, value.shape, value.dtype, order)
        self.copy(value, result)
        return result

    def copy(self, value: Value, to: Value) -> None:
        self.over_elements(COPY, [value, to], (value.dtype.itemsize,))

    def fill(self, value: Value, number: Any) -> None:
        """Fill a dense slot with one number."""
        contents = np.array(number, value.dtype).tobytes()
        numbers = (value.dtype.itemsize, not any(contents))
        self.emit(FILL, [value.slot], count=value.size, numbers=numbers, what=contents)

    def dot(self, plan_slot: int | None, left: Value, right: Value) -> Value:
        """Append the product of two vectors."""
        result = self.new(plan_slot, (), left.dtype)
        self.dot_into(left, right, result)
        return result

    def dot_into(self, left: Value, right: Value, result: Value) -> None:
        """Append the product of two vectors, into the one element of a value."""
        slots = (left.slot, right.slot, result.slot)
        strides = (left.strides[0], right.strides[0], 0)
        self.emit(DOT, slots, (), left.shape[0], ((), (), ()), strides, what=left.dtype)

    def matmul(self, result: Value, left: Value, right: Value) -> None:
        """Append the product of two matrices."""
        (m, n), p = left.shape, right.shape[1]
        if left.dtype != right.dtype or 0 in (m, n, p):
            raise Unsupported("a product without elements, or of several dtypes")
        numbers = (1, m, n, p, 0, 0, 0, *left.strides, *right.strides, *result.strides)
        loop = loop_of(np.matmul, left.dtype, right.dtype, result.dtype)
        self.emit(GUFUNC, (left.slot, right.slot, result.slot), count=4, numbers=numbers, what=loop)

    def reduce(
        self,
        ufunc: Any,
        plan_slot: int | None,
        value: Value,
        axes: Sequence[int],
        shape: Any,
        initial: float | None = None,
    ) -> Value:
        """Append the sum (or product, ...) over axes of a value; ``shape`` is the result's."""
        loop = loop_of(ufunc, value.dtype, value.dtype, value.dtype)
        if len(axes) == len(value.shape) > 1 and value.layout is not None:
            # Where nothing is kept, NumPy goes through memory as it lies.
            value, axes = value.viewed((value.size,), (value.dtype.itemsize,)), [0]
        if 0 not in value.shape and not is_in_c_order(value):
            value, axes = _as_it_lies(value, axes)
        if 0 in value.shape or not is_in_c_order(value):
            raise Unsupported("NumPy goes through such an array in another order")
        result = self.new(plan_slot, shape, value.dtype)
        kept = iter(c_strides([n for a, n in enumerate(value.shape) if a not in axes], value.dtype))
        strides = [0 if a in axes else next(kept) for a in range(len(value.shape))]
        sizes, (read, written) = merged_axes(list(value.shape), [list(value.strides), strides])
        if value.order != "C" and (len(sizes) > 2 or (len(sizes) == 2 and bool(written[0]) == bool(written[1]))):
            raise Unsupported("NumPy may go through axes with gaps in parts")
        count, start = sizes[-1], value
        is_block = not written[-1] and all(written[:-1]) and count <= BLOCK and (read[-1] == 8 or count == 1)
        if ufunc is np.add and value.dtype == np.float64 and is_block:
            outer = (tuple(read[:-1]), tuple(written[:-1]))
            self.emit(FEW_DOUBLES, (value.slot, result.slot), sizes[:-1], count, outer, (8, 0), (ord("S"),))
            return result
        if initial is not None:
            self.fill(result, initial)
        elif ufunc.identity is None or ufunc in (np.maximum, np.minimum):
            start = self._after_first(value, result, sizes, read, written)
            if not all(sizes):
                return result
        else:
            self.fill(result, ufunc.identity)
        self.emit(
            REDUCE,
            (start.slot, result.slot),
            sizes[:-1],
            sizes[-1],
            (tuple(read[:-1]), tuple(written[:-1])),
            (read[-1], written[-1]),
            what=loop,
        )
        return result

    def _after_first(self, value: Value, result: Value, sizes: list[int], read: Any, written: Any) -> Value:
        """Begin a reduction with what comes first along its axis, and return the rest; ``sizes`` become its own."""
        reduced = [a for a, step in enumerate(written) if not step]
        if len(reduced) > 1:
            raise Unsupported("it begins with the first element of several axes")
        if not reduced:
            self.copy(value.viewed(sizes, read), result.viewed(sizes, written))
            sizes[0] = 0
            return value
        (axis,) = reduced
        shape, *steps = [[*numbers[:axis], *numbers[axis + 1 :]] for numbers in (sizes, read, written)]
        self.copy(value.viewed(shape, steps[0]), result.viewed(shape, steps[1]))
        sizes[axis] -= 1
        return self.moved(value, read[axis]) if sizes[axis] else value

    def accumulate(self, loop: tuple[Any, int], value: Value, result: Value) -> None:
        """Append the reduction of a vector into a number that is there already, in an order that does not matter."""
        strides = (value.strides[0], 0)
        self.emit(REDUCE, (value.slot, result.slot), (), value.size, ((), ()), strides, what=loop)

    def call(
        self, function: Callable[..., Any], operands: Sequence[Value], results: Sequence[Value], *, rarely: bool = False
    ) -> None:
        """Append a call-back; without results it only looks. ``rarely``: other instructions skip it most often."""
        if len(operands) > MOST_READ:
            raise Unsupported("it reads too many values")
        slots = [self._described(value).slot for value in operands]
        self.emit(CALL, (), numbers=(len(operands), rarely, *slots, *[r.slot for r in results]), what=function)

    def unless(self, tests: Sequence[int], function: Any, operands: Sequence[Value], results: Sequence[Value]) -> None:
        """Append a call-back that tests, instructions by position, jump to, and that is skipped otherwise."""
        end = len(self.instructions)
        self.emit(SKIP, (), numbers=(0,))
        for test in tests:
            self._set_skip(test)
        self.call(function, operands, results, rarely=True)
        self._set_skip(end)

    def _set_skip(self, position: int) -> None:
        """Let an instruction skip all that was written after it."""
        opcode, slots, shape, count, outer, inner, numbers, what = self.instructions[position]
        skipped = len(self.instructions) - position - 1
        self.instructions[position] = (opcode, slots, shape, count, outer, inner, (skipped, *numbers[1:]), what)

    def test(self, opcode: int, slots: Sequence[int], numbers: Sequence[int] = (), what: Any = None) -> int:
        """Append an instruction that may jump, and return its position; where to is said by `unless`."""
        self.emit(opcode, slots, numbers=(0, *numbers), what=what)
        return len(self.instructions) - 1

    def _described(self, value: Value) -> Value:
        """Return a value whose slot has its shape and strides."""
        _, _, _, dtype, shape, strides, _ = self.slots[value.slot]
        if (dtype, shape, strides) == (value.dtype, value.shape, value.strides):
            return value
        made = self._slot(IN_VIEW, 0, value.shape, value.dtype, value.strides)
        self.emit(VIEW, (value.slot, made.slot), numbers=(0,))
        return made


def _as_it_lies(value: Value, axes: Sequence[int]) -> tuple[Value, Sequence[int]]:
    """Return a value that is reduced with its axes as they lie in memory, where what is left of it has one axis.

    NumPy goes through memory in this way; a result with more axes would lie like the value.
    """
    kept = [n for a, n in enumerate(value.shape) if a not in axes and n != 1]
    if len(kept) > 1 or any(s <= 0 for n, s in zip(value.shape, value.strides, strict=True) if n != 1):
        return value, axes
    order = sorted(range(len(value.shape)), key=lambda a: -value.strides[a])
    return value.transposed(order), [at for at, a in enumerate(order) if a in axes]


def _repeats(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an axis goes through one element again and again, or backwards."""
    return any(n > 1 and s <= 0 for n, s in zip(shape, strides, strict=True))


def bases_of(instructions: Sequence[tuple[Any, ...]]) -> dict[int, int]:
    """Return of each slot that is a view which slot it is a view of."""
    base: dict[int, int] = {}
    for opcode, slots, *_ in instructions:
        if opcode in (VIEW, PICK):
            base[slots[-1]] = base.get(slots[0], slots[0])
    return base


def _letter(value: Value) -> str:
    """Return how the C part knows the layout of a value: "K" is for axes in another order, without gaps."""
    return value.order or ("\0" if value.layout is None else "K")


def _walk(values: Sequence[Value]) -> tuple[list[int], list[list[int]]]:
    """Return the axes on which NumPy goes through operands and a result, and the strides of each operand on them."""
    result = values[-1]
    strides = [broadcast_strides(value, result.shape) for value in values]
    axes = in_memory_order(result, strides)
    return merged_axes([result.shape[a] for a in axes], [[s[a] for a in axes] for s in strides])


def _is_own(shape: Sequence[int], inner: Sequence[int]) -> bool:
    """Whether arithmetic on doubles has a function of its own: on few of them, or where they follow each other."""
    return (len(shape) == 1 and shape[0] <= FEW) or (inner[-1] == 8 and all(step in (0, 8) for step in inner))
