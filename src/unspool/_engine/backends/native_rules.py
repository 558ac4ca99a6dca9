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

from unspool._engine.backends.native_layout import (
    Order,
    Unsupported,
    Value,
    c_strides,
    joined_order,
    result_order,
    strides_in_shape,
)
from unspool._engine.backends.native_program import IF_OUTSIDE, IF_ZERO, SELECT, Builder, loop_of
from unspool._engine.planning import Step

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

    def new(self, order: Order = "C") -> Value:
        return self.builder.new(self.step.slot, self.shape, self.dtype, order)

    def constant(self, number: Any) -> Value:
        return self.builder.constant(np.array(number, self.dtype))

    def call(self, *operands: Value) -> Value:
        """Write a call-back; its result has to lie in C order."""
        result = self.new()
        self.call_into(result, *operands)
        return result

    def call_all(self, *operands: Value, orders: Sequence[str] | None = None) -> list[Value]:
        """Write a call-back of an op with several results, which have to lie in the orders given, or in C order."""
        types = zip(self.shape, self.dtype, orders or "C" * len(self.shape), strict=True)
        results = [self.builder.new(None, *t) for t in types]
        self.builder.call(self.kernel, operands, results)
        return results

    def call_into(self, result: Value, *operands: Value) -> None:
        self.builder.call(self.kernel, operands, [result])

    def call_unless(self, tests: Sequence[int], result: Value | None, *operands: Value) -> None:
        """Write a call-back to which tests jump; without a result, which is then an operand, it only looks."""
        self.builder.unless(tests, self.kernel, operands, [] if result is None else [result])

    @property
    def kernel(self) -> Any:
        kernel, params = self.step.op.kernel, self.step.params
        return partial(kernel, **params) if params else kernel


def or_call(rule: Rule) -> Rule:
    """Return a rule that writes a call-back where it would have to give up."""

    def written(to: Writing, *operands: Value) -> Value:
        mark = to.builder.mark()
        try:
            return rule(to, *operands)
        except Unsupported:
            to.builder.return_to(mark)
            return to.call(*operands)

    return written


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
    divide = builder.instructions.pop()
    test = builder.test(IF_ZERO, [x2.slot], (x2.dtype.num,))
    builder.instructions.append(divide)
    to.call_unless([test], result, x1, x2)
    return result


def _astype(to: Writing, x: Value) -> Value:
    if x.layout is None or x.dtype == to.dtype:
        return to.call(x)
    return to.builder.cast(x, to.dtype)


def _sigmoid(to: Writing, x: Value) -> Value:
    """Write the kernel of the op, function by function."""
    one = to.constant(1)
    small = to.temporary(np.absolute, x)
    small = to.temporary(np.exp, to.temporary(np.negative, small))
    below = to.builder.apply(np.less, None, [x, to.constant(0)], to.shape, np.dtype(bool))
    above = to.builder.new(None, to.shape, to.dtype, result_order((below, small), to.shape))
    to.builder.over_elements(SELECT, [below, small, one, above], (to.dtype.itemsize,))
    return to.apply(np.divide, above, to.temporary(np.add, one, small))


def _rsqrt(to: Writing, x: Value) -> Value:
    return to.apply(np.reciprocal, to.temporary(np.sqrt, x))


def _softplus(to: Writing, x: Value) -> Value:
    return to.apply(np.logaddexp, x, to.constant(0))


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


def _from_largest(to: Writing, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Write what the kernels of sums of exponentials begin with: x less the largest over axes, and that, if finite."""
    builder = to.builder
    kept = tuple([1 if a in axes else n for a, n in enumerate(x.shape)])
    largest = builder.reduce(np.maximum, None, x, axes, kept, initial=-np.inf)
    finite = builder.apply(np.isfinite, None, [largest], kept, np.dtype(bool))
    level = builder.new(None, kept, to.dtype)
    builder.over_elements(SELECT, [finite, largest, to.constant(0), level], (to.dtype.itemsize,))
    return builder.apply(np.subtract, None, [x, level], x.shape, to.dtype), level


def _exponentials(end: Callable[..., Value]) -> Rule:
    """Return the rule of an op that takes exponentials of x less the largest, and then does something with them."""

    def rule(to: Writing, x: Value) -> Value:
        if x.dtype.char not in "fd" or x.dtype != to.dtype or x.order != "C" or not x.size or not x.shape:
            return to.call(x)
        axes = [a % len(x.shape) for a in to.step.params["axis"]]
        apart, level = _from_largest(to, x, axes)
        return end(to, axes, apart, to.builder.apply(np.exp, None, [apart], x.shape, to.dtype), level)

    return rule


def _logsumexp(to: Writing, axes: Sequence[int], apart: Value, powers: Value, level: Value) -> Value:
    total = to.builder.reduce(np.add, None, powers, axes, to.shape)
    logarithm = to.builder.apply(np.log, None, [total], to.shape, to.dtype)
    return to.apply(np.add, logarithm, level.viewed(to.shape, c_strides(to.shape, to.dtype)))


def _softmax(to: Writing, axes: Sequence[int], apart: Value, powers: Value, level: Value) -> Value:
    return to.apply(np.divide, powers, to.builder.reduce(np.add, None, powers, axes, level.shape))


def _log_softmax(to: Writing, axes: Sequence[int], apart: Value, powers: Value, level: Value) -> Value:
    total = to.builder.reduce(np.add, None, powers, axes, level.shape)
    return to.apply(np.subtract, apart, to.builder.apply(np.log, None, [total], level.shape, to.dtype))


# As `numpy_rules` has them.
_SAFE_SQUARES = (1e-290, math.inf)


def _norm2(to: Writing, x: Value) -> Value:
    params, builder = to.step.params, to.builder
    is_whole = x.shape and len(params["axis"]) == len(x.shape) and (len(x.shape) == 1 or x.layout is not None)
    if not is_whole or x.dtype != np.float64 or params["keepdims"]:
        return to.call(x)
    result = to.new()
    # Elements as they lie in memory.
    flat = x if len(x.shape) == 1 else x.viewed((x.size,), (x.dtype.itemsize,))
    square = builder.dot(None, flat, flat)
    test = builder.test(IF_OUTSIDE, [square.slot], what=_SAFE_SQUARES)
    builder.loop(loop_of(np.sqrt, to.dtype, to.dtype), [square, result])
    to.call_unless([test], result, x)
    return result


# --- moving and picking ----------------------------------------------------------------------------------------------


def _reshape(to: Writing, x: Value) -> Value:
    if x.order == "C":
        return x.viewed(to.shape, c_strides(to.shape, to.dtype))
    if 0 in x.shape or min(x.strides) < 0:
        raise Unsupported("axes that are turned round, or no elements at all")
    strides = strides_in_shape(x, to.shape)
    if strides is not None:
        return x.viewed(to.shape, strides)
    # NumPy copies it.
    result = to.new()
    to.builder.copy(x, result.viewed(x.shape, c_strides(x.shape, to.dtype)))
    return result


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


def _split(to: Writing, x: Value) -> Any:
    axis, at = to.step.params["axis"], 0
    pieces = []
    for shape in to.shape:
        pieces.append(to.builder.moved(x.viewed(shape, x.strides), at * x.strides[axis]))
        at += shape[axis]
    if at != x.shape[axis]:
        raise Unsupported("the sizes do not fit")
    return pieces


def _concat(to: Writing, *xs: Value) -> Value:
    axis = to.step.params["axis"] % len(to.shape)
    if any(x.dtype != to.dtype for x in xs):
        return to.call(*xs)
    result = to.new(joined_order(xs))
    at = 0
    for x in xs:
        part = result.viewed(x.shape, result.strides)
        to.builder.copy(x, to.builder.moved(part, at * result.strides[axis]))
        at += x.shape[axis]
    return result


# By name, so that ops which no program uses need not be loaded.
RULES: dict[str, Rule] = {
    "all": _reduction(np.logical_and),
    "any": _reduction(np.logical_or),
    "astype": _astype,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "crop": _crop,
    "diagonal": _diagonal,
    "divide_or_zero": _divide_or_zero,
    "embed_diagonal": _embed_diagonal,
    "flip": _flip,
    "imag": _imag,
    "log_softmax": _exponentials(_log_softmax),
    "logsumexp": _exponentials(_logsumexp),
    "mask": _mask,
    "max": _reduction(np.maximum),
    "min": _reduction(np.minimum),
    "norm2": _norm2,
    "permute_dims": _permute_dims,
    "prod": _reduction(np.multiply),
    "real": _real,
    "relu": _relu,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "softmax": _exponentials(_softmax),
    "softplus": _softplus,
    "reshape": _reshape,
    "split": _split,
    "sum": _reduction(np.add),
    "where": _where,
    "zero_pad": _zero_pad,
}
