"""How single ops are written in native programs: what `numpy_rules` is for generated code.

A rule appends instructions to a `Builder` and returns the value of the step. An op whose kernel is a ufunc needs none,
and one without a rule is a call-back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from unspool._engine.native_layout import Unsupported, Value, c_strides, result_order
from unspool._engine.native_program import IF_OUTSIDE, IF_ZERO, SELECT, SKIP, TAKE, Builder, loop_of
from unspool._engine.planning import Step
from unspool._ops.contraction.kernel import is_thin
from unspool._ops.indexing.slices import extent
from unspool._ops.indexing.template import decode

Rule = Callable[..., Value]


class Writing:
    """A step that is being written: the builder, the step, and shape and dtype of what it gives."""

    def __init__(self, builder: Builder, step: Step, shape: Any, dtype: Any) -> None:
        self.builder, self.step, self.shape, self.dtype = builder, step, shape, dtype

    def apply(self, ufunc: Any, *operands: Value) -> Value:
        return self.builder.apply(ufunc, self.step.slot, operands, self.shape, self.dtype)

    def temporary(self, ufunc: Any, *operands: Value) -> Value:
        """Write a ufunc on operands of the shape and dtype of the result."""
        return self.builder.apply(ufunc, None, operands, self.shape, self.dtype)

    def new(self, order: str = "C") -> Value:
        return self.builder.new(self.step.slot, self.shape, self.dtype, order)

    def constant(self, number: Any) -> Value:
        return self.builder.constant(np.array(number, self.dtype))

    def call(self, *operands: Value) -> Value:
        """Write a call-back; its result has to lie in C order."""
        result = self.new()
        self.call_into(result, *operands)
        return result

    def call_into(self, result: Value, *operands: Value) -> None:
        kernel, params = self.step.op.kernel, self.step.params
        self.builder.call(partial(kernel, **params) if params else kernel, operands, [result])


# --- elementwise -----------------------------------------------------------------------------------------------------


def _where(to: Writing, keep: Value, x1: Value, x2: Value) -> Value:
    if keep.dtype != np.bool_ or x1.dtype != to.dtype or x2.dtype != to.dtype:
        raise Unsupported("dtypes differ")
    result = to.new(result_order((keep, x1, x2), to.shape))
    to.builder.over_elements(SELECT, [keep, x1, x2, result], (to.dtype.itemsize,))
    return result


def _mask(to: Writing, x: Value, keep: Value) -> Value:
    return _where(to, keep, x, to.constant(0))


def _relu(to: Writing, x: Value) -> Value:
    return to.apply(np.maximum, x, to.constant(0))


def _divide_or_zero(to: Writing, x1: Value, x2: Value) -> Value:
    if x2.shape:
        return to.call(x1, x2)
    # The kernel is for a divisor that is zero.
    builder = to.builder
    result = to.apply(np.divide, x1, x2)
    if result.order != "C":
        raise Unsupported("the kernel lays its result out in its own way")
    divide = builder.instructions.pop()
    builder.emit(IF_ZERO, [x2.slot], numbers=(0, x2.dtype.num))
    test = len(builder.instructions) - 1
    to.call_into(result, x1, x2)
    builder.emit(SKIP, [], numbers=(1,))
    _set_skip(builder, test)
    builder.instructions.append(divide)
    return result


def _set_skip(builder: Builder, test: int) -> None:
    """Let a test skip all that was written after it."""
    opcode, slots, shape, count, outer, inner, numbers, what = builder.instructions[test]
    skipped = len(builder.instructions) - test - 1
    builder.instructions[test] = (opcode, slots, shape, count, outer, inner, (skipped, *numbers[1:]), what)


def _astype(to: Writing, x: Value) -> Value:
    if x.order is None or x.dtype == to.dtype:
        return to.call(x)
    return to.builder.cast(x, to.dtype)


def _sigmoid(to: Writing, x: Value) -> Value:
    """Write the kernel of the op, function by function."""
    one = to.constant(1)
    small = to.temporary(np.absolute, x)
    small = to.temporary(np.exp, to.temporary(np.negative, small))
    below = to.builder.apply(np.less, None, [x, to.constant(0)], to.shape, np.dtype(bool))
    above = to.builder.new(None, to.shape, to.dtype, small.order or "C")
    to.builder.over_elements(SELECT, [below, small, one, above], (to.dtype.itemsize,))
    return to.apply(np.divide, above, to.temporary(np.add, one, small))


def _real(to: Writing, x: Value) -> Value:
    return x._replace(dtype=to.dtype) if x.dtype.kind == "c" else x


def _imag(to: Writing, x: Value) -> Value:
    if x.dtype.kind != "c":
        return to.call(x)
    return to.builder.moved(x._replace(dtype=to.dtype), to.dtype.itemsize)


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduction(ufunc: Any) -> Rule:
    def rule(to: Writing, x: Value) -> Value:
        axes = to.step.params["axis"]
        if x.dtype != to.dtype or not x.shape:
            return to.call(x)
        return to.builder.reduce(ufunc, to.step.slot, x, [a % len(x.shape) for a in axes], to.shape)

    return rule


# As `numpy_rules` has them.
_SAFE_SQUARES = (1e-290, math.inf)


def _norm2(to: Writing, x: Value) -> Value:
    params, builder = to.step.params, to.builder
    if len(x.shape) != 1 or x.dtype != np.float64 or params["keepdims"] or params["axis"] != (0,):
        return to.call(x)
    result = to.new()
    square = builder.dot(None, x, x)
    builder.emit(IF_OUTSIDE, [square.slot], numbers=(0,), what=_SAFE_SQUARES)
    test = len(builder.instructions) - 1
    to.call_into(result, x)
    builder.emit(SKIP, [], numbers=(1,))
    _set_skip(builder, test)
    builder.loop(loop_of(np.sqrt, to.dtype, to.dtype), [square, result])
    return result


# --- moving and picking ----------------------------------------------------------------------------------------------


def _reshape(to: Writing, x: Value) -> Value:
    if x.order != "C":
        raise Unsupported("such an array is copied")
    return x.viewed(to.shape, c_strides(to.shape, to.dtype))


def _permute_dims(to: Writing, x: Value) -> Value:
    return x.transposed(to.step.params["axes"])


def _broadcast_to(to: Writing, x: Value) -> Value:
    missing = len(to.shape) - len(x.shape)
    pairs = zip(x.shape, x.strides, to.shape[missing:], strict=True)
    return x.viewed(to.shape, [0] * missing + [0 if n == 1 and size != 1 else s for n, s, size in pairs])


def _flip(to: Writing, x: Value) -> Value:
    raise Unsupported("strides below zero")


def _crop(to: Writing, x: Value) -> Value:
    start, shape = to.step.params["start"], to.step.params["shape"]
    if any(not 0 <= a <= a + n <= size for a, n, size in zip(start, shape, x.shape, strict=True)):
        return to.call(x)
    offset = sum(a * s for a, s in zip(start, x.strides, strict=True))
    return to.builder.moved(x.viewed(shape, x.strides), offset)


def _diagonal(to: Writing, x: Value) -> Value:
    return _on_diagonal(to, x, to.shape[-1])


def _embed_diagonal(to: Writing, x: Value) -> Value:
    result = to.new()
    to.builder.fill(result, 0)
    to.builder.copy(x, _on_diagonal(to, result, x.shape[-1]))
    return result


def _on_diagonal(to: Writing, x: Value, length: int) -> Value:
    """Return the view of a diagonal of the last two axes."""
    offset = to.step.params["offset"]
    row, column = x.strides[-2:]
    first = -offset * row if offset < 0 else offset * column
    return to.builder.moved(x.viewed((*x.shape[:-2], length), (*x.strides[:-2], row + column)), first)


def _zero_pad(to: Writing, x: Value) -> Value:
    before, after = to.step.params["before"], to.step.params["after"]
    if min((*before, *after), default=0) < 0:
        return to.call(x)
    result = to.new()
    to.builder.fill(result, 0)
    first = sum(n * s for n, s in zip(before, result.strides, strict=True))
    to.builder.copy(x, to.builder.moved(result.viewed(x.shape, result.strides), first))
    return result


def _concat(to: Writing, *xs: Value) -> Value:
    axis = to.step.params["axis"] % len(to.shape)
    if any(x.dtype != to.dtype or x.order != "C" for x in xs):
        return to.call(*xs)
    result = to.new()
    at = 0
    for x in xs:
        part = result.viewed(x.shape, result.strides)
        to.builder.copy(x, to.builder.moved(part, at * result.strides[axis]))
        at += x.shape[axis]
    return result


def _pick(to: Writing, x: Value, *at: Value) -> Value:
    if "array" in to.step.params["index"]:
        return _gather(to, x, *at)
    return _place(to, x, at)


def _gather(to: Writing, x: Value, *at: Value) -> Value:
    template = decode(to.step.params["index"], to.step.params["lengths"])
    kinds = [entry[0] for entry in template.entries]
    if kinds[0] != "array" or any(k != "whole" for k in kinds[1:]) or len(at) != 1:
        return to.call(x, *at)
    (which,) = at
    if which.dtype != np.int64 or which.order != "C" or x.order != "C":
        return to.call(x, *at)
    result = to.new()
    row = math.prod(x.shape[1:]) * x.dtype.itemsize
    slots = (x.slot, which.slot, result.slot)
    to.builder.emit(TAKE, slots, count=which.size, numbers=(row, x.shape[0]))
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
    if "array" in to.step.params["index"]:
        return to.call(*at)
    result = to.new()
    to.builder.fill(result, False)
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
    if values.dtype != part.dtype:
        raise Unsupported("dtypes differ")
    to.builder.copy(values, part)


# --- contractions ----------------------------------------------------------------------------------------------------


def _contract(to: Writing, x1: Value, x2: Value) -> Value:
    subscripts = to.step.params["subscripts"]
    operands, out = subscripts.split("->")
    s1, s2 = operands.split(",")
    contracted = [label for label in s1 if label in s2 and label not in out]
    if not contracted:
        return to.apply(np.multiply, _spread(x1, s1, out), _spread(x2, s2, out))
    is_plain = len(s1) <= 2 and len(s2) <= 2 and len(contracted) == 1 and len(out) == len(s1) + len(s2) - 2
    if not is_plain or x1.dtype != x2.dtype or x1.dtype != to.dtype or to.dtype.char not in "fdFD":
        return to.call(x1, x2)
    left = x1.transposed((1, 0)) if len(s1) == 2 and s1[0] == contracted[0] else x1
    right = x2.transposed((1, 0)) if len(s2) == 2 and s2[1] == contracted[0] else x2
    if len(s1) == 1 or len(s2) == 1:
        # `numpy.dot`, which has ways of its own where an axis has one element or none.
        if min(*left.shape, *right.shape) < 2:
            return to.call(x1, x2)
        left, right = _as_blas_takes_it(to, left), _as_blas_takes_it(to, right)
        if len(left.shape) == len(right.shape):
            return to.builder.dot(to.step.slot, left, right)
        return _vector_product(to, left, right)
    if out[0] not in s1:
        left, right = right.transposed((1, 0)), left.transposed((1, 0))
    if is_thin(left.shape[0], left.shape[1], right.shape[1]):
        result = to.new("F")
        to.builder.matmul(result.transposed((1, 0)), right.transposed((1, 0)), left.transposed((1, 0)))
    else:
        result = to.new()
        to.builder.matmul(result, left, right)
    return result


def _as_blas_takes_it(to: Writing, x: Value) -> Value:
    """Return an operand of `numpy.dot`: it copies arrays that BLAS cannot read, and matrices with gaps."""
    if any(s <= 0 or s % x.dtype.itemsize for s in x.strides) or (len(x.shape) == 2 and x.order is None):
        return to.builder.copied(None, x)
    return x


def _vector_product(to: Writing, left: Value, right: Value) -> Value:
    result = to.new()
    if len(left.shape) == 2:
        column = right.viewed((right.shape[0], 1), (right.strides[0], right.dtype.itemsize))
        to.builder.matmul(result.viewed((*result.shape, 1), (*result.strides, to.dtype.itemsize)), left, column)
    else:
        row = left.viewed((1, left.shape[0]), (left.strides[0] * left.shape[0], left.strides[0]))
        to.builder.matmul(
            result.viewed((1, *result.shape), (to.dtype.itemsize * result.size, *result.strides)), row, right
        )
    return result


def _spread(x: Value, labels: str, out: str) -> Value:
    """Return the view that lines an operand's axes up with those of the result."""
    if not labels or out.endswith(labels):
        return x
    shape = [x.shape[labels.index(label)] if label in labels else 1 for label in out]
    strides = [x.strides[labels.index(label)] if label in labels else 0 for label in out]
    return x.viewed(shape, strides)


# By name, so that ops which no program uses need not be loaded.
RULES: dict[str, Rule] = {
    "astype": _astype,
    "broadcast_to": _broadcast_to,
    "chosen": _chosen,
    "concat": _concat,
    "contract": _contract,
    "crop": _crop,
    "diagonal": _diagonal,
    "divide_or_zero": _divide_or_zero,
    "embed_diagonal": _embed_diagonal,
    "flip": _flip,
    "gather": _pick,
    "imag": _imag,
    "mask": _mask,
    "max": _reduction(np.maximum),
    "min": _reduction(np.minimum),
    "norm2": _norm2,
    "permute_dims": _permute_dims,
    "prod": _reduction(np.multiply),
    "real": _real,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "reshape": _reshape,
    "slice": _pick,
    "slice_add": _slice_add,
    "slice_set": _slice_set,
    "sum": _reduction(np.add),
    "unslice": _unslice,
    "where": _where,
    "zero_pad": _zero_pad,
}
