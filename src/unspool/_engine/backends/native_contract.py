"""How contractions are written in native programs: as the product of matrices that the kernel makes of them.

Matrices and vectors are taken as they are; all else is grouped into stacks of matrices first (`grouping`), by views
where NumPy has views and by copies where it copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._engine.backends.native_layout import Unsupported, Value, c_strides, strides_in_shape
from unspool._engine.backends.native_program import CHECK, GUFUNC, loop_of
from unspool._engine.backends.native_rules import Writing
from unspool._ops.contraction.grouping import MatrixView, product_for
from unspool._ops.contraction.kernel import is_thin


def contract(to: Writing, x1: Value, x2: Value) -> Value:
    subscripts = to.step.params["subscripts"]
    operands, out = subscripts.split("->")
    s1, s2 = operands.split(",")
    contracted = [label for label in s1 if label in s2 and label not in out]
    if not contracted:
        return to.apply(np.multiply, _spread(x1, s1, out), _spread(x2, s2, out))
    is_plain = len(s1) <= 2 and len(s2) <= 2 and len(contracted) == 1 and len(out) == len(s1) + len(s2) - 2
    if to.dtype.char not in "fdFD" or 0 in (*x1.shape, *x2.shape):
        return to.call(x1, x2)
    if is_plain and min(len(s1), len(s2)) == 1 and x1.dtype != x2.dtype and None not in (x1.order, x2.order):
        x1, x2 = to.builder.cast(x1, to.dtype), to.builder.cast(x2, to.dtype)
    if x1.dtype != x2.dtype or x1.dtype != to.dtype:
        return to.call(x1, x2)
    if not is_plain:
        return _product(to, x1, x2)
    left = x1.transposed((1, 0)) if len(s1) == 2 and s1[0] == contracted[0] else x1
    right = x2.transposed((1, 0)) if len(s2) == 2 and s2[1] == contracted[0] else x2
    if len(s1) == 1 or len(s2) == 1:
        return _dot(to, left, right, to.step.slot)
    if out[0] not in s1:
        left, right = right.transposed((1, 0)), left.transposed((1, 0))
    if is_thin(left.shape[0], left.shape[1], right.shape[1]):
        result = to.new("F")
        to.builder.matmul(result.transposed((1, 0)), right.transposed((1, 0)), left.transposed((1, 0)))
    else:
        result = to.new()
        to.builder.matmul(result, left, right)
    return result


# --- `numpy.dot` of a vector with a vector or a matrix ----------------------------------------------------------------


def _dot(to: Writing, left: Value, right: Value, slot: int | None) -> Value:
    """Write `numpy.dot`, which has ways of its own where an axis has one element."""
    shape = (*left.shape[:-1], *right.shape[1:])
    summed, free = right.shape[0], shape[0] if shape else 1
    result = to.builder.new(slot, shape, to.dtype)
    if summed == 1:
        _scaled(to, left, right, result)
    elif free == 1:
        to.builder.dot_into(_as_blas_takes_it(to, _row(left)), _as_blas_takes_it(to, _column(right)), result)
    else:
        _vector_product(to, _as_blas_takes_it(to, left), _as_blas_takes_it(to, right), result)
    return result


def _row(x: Value) -> Value:
    """Return a matrix with one row as a vector."""
    return x.viewed(x.shape[-1:], x.strides[-1:])


def _column(x: Value) -> Value:
    """Return a matrix with one column as a vector."""
    return x.viewed(x.shape[:1], x.strides[:1])


def _scaled(to: Writing, left: Value, right: Value, result: Value) -> None:
    """Write the product of a number with a vector, which NumPy adds to zeros.

    BLAS may round product and sum at once, and does nothing for the number zero. Both make a difference for zeros that
    come about by rounding, or of infinities, and are left to the kernel.
    """
    if to.dtype != np.float64:
        raise Unsupported("rounding depends on the processor")
    vector, number = (_column(left), right) if len(left.shape) == 2 else (_row(right), left)
    builder, count = to.builder, vector.size
    number, multiply = number.viewed((), ()), loop_of(np.multiply, *[to.dtype] * 3)
    if count == 1:
        builder.loop(multiply, [vector.viewed((), ()), number, result.viewed((), ())])
        return
    product = builder.new(None, vector.shape, to.dtype)
    builder.loop(multiply, [vector, number, product])
    slots, sizes = [product.slot, vector.slot, number.slot], (ord("u"), count, vector.strides[0])
    test = builder.test(CHECK, slots, sizes, 0.0)
    builder.loop(loop_of(np.add, *[to.dtype] * 3), [product, builder.constant(np.array(0.0)), result])
    builder.unless([test], np.dot, [left, right], [result])


def _as_blas_takes_it(to: Writing, x: Value) -> Value:
    """Return an operand of `numpy.dot`: it copies arrays that BLAS cannot read, and matrices with gaps."""
    if any(s <= 0 or s % x.dtype.itemsize for s in x.strides) or (len(x.shape) == 2 and x.order is None):
        return to.builder.copied(None, x)
    return x


def _vector_product(to: Writing, left: Value, right: Value, result: Value) -> None:
    size = to.dtype.itemsize
    if len(left.shape) == 2:
        column = right.viewed((right.shape[0], 1), (right.strides[0], size))
        to.builder.matmul(result.viewed((*result.shape, 1), (*result.strides, size)), left, column)
    else:
        row = left.viewed((1, left.shape[0]), (left.strides[0] * left.shape[0], left.strides[0]))
        to.builder.matmul(result.viewed((1, *result.shape), (size * result.size, *result.strides)), row, right)


def _spread(x: Value, labels: str, out: str) -> Value:
    """Return the view that lines an operand's axes up with those of the result."""
    if not labels or out.endswith(labels):
        return x
    shape = [x.shape[labels.index(label)] if label in labels else 1 for label in out]
    strides = [x.strides[labels.index(label)] if label in labels else 0 for label in out]
    return x.viewed(shape, strides)


# --- stacks of matrices -----------------------------------------------------------------------------------------------


def _product(to: Writing, x1: Value, x2: Value) -> Value:
    """Write a contraction as the product of matrices that it is."""
    builder, product = to.builder, product_for(to.step.params["subscripts"], x1.shape, x2.shape)
    given = (x2, x1) if product.swap else (x1, x2)
    left, right = [_grouped(to, x, view) for x, view in zip(given, (product.left, product.right), strict=True)]
    is_turned = product.narrowed is not None or product.order is not None
    if product.flat:
        whole = (*left.shape[:-1], *right.shape[1:])
        result = _dot(to, left, right, None if is_turned else to.step.slot)
    else:
        stack = max(left.shape[:-2], right.shape[:-2], key=len)
        if len(stack) > 1:
            raise Unsupported("NumPy lays out such a stack in an order of its own")
        whole = (*stack, left.shape[-2], right.shape[-1])
        result = builder.new(None, whole, to.dtype) if is_turned else to.new()
        _write_products(to, left, right, result.viewed(whole, c_strides(whole, to.dtype)))
    shape = product.shape(given[0].shape, given[1].shape)
    if shape is None and product.narrowed is not None:
        shape = _narrowed(whole, product.narrowed)
    if shape is not None:
        result = result.viewed(shape, c_strides(shape, to.dtype))
    return result if product.order is None else result.transposed(product.order)


def _narrowed(shape: Sequence[int], index: Sequence[Any]) -> tuple[int, ...]:
    """Return a shape without those of its last axes of which an index takes the one element."""
    taken = index[1:]
    first = len(shape) - len(taken)
    return (*shape[:first], *[n for n, item in zip(shape[first:], taken, strict=True) if item != 0])


def _grouped(to: Writing, x: Value, view: MatrixView) -> Value:
    """Return an operand as the stack of matrices that a product takes."""
    shape = view.shape(x.shape)
    if view.order is not None:
        x = x.transposed(view.order)
    if view.widened is not None:
        # A new axis, last or before the last one.
        at = len(x.shape) if view.widened[-1] is np.newaxis else len(x.shape) - 1
        return x.viewed((*x.shape[:at], 1, *x.shape[at:]), (*x.strides[:at], 0, *x.strides[at:]))
    if shape is not None:
        strides = strides_in_shape(x, shape)
        if strides is None:
            x, strides = to.builder.copied(None, x), c_strides(shape, x.dtype)
        x = x.viewed(shape, strides)
    if view.flipped:
        x = x.transposed((*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2))
    return x


def _write_products(to: Writing, left: Value, right: Value, result: Value) -> None:
    """Append the products of a stack of matrices, or of one."""
    (m, n), p = left.shape[-2:], right.shape[-1]
    count = result.shape[0] if len(result.shape) == 3 else 1
    steps = [v.strides[0] if len(v.shape) == 3 and v.shape[0] > 1 else 0 for v in (left, right, result)]
    numbers = (count, m, n, p, *steps, *left.strides[-2:], *right.strides[-2:], *result.strides[-2:])
    slots = (left.slot, right.slot, result.slot)
    to.builder.emit(GUFUNC, slots, count=4, numbers=numbers, what=loop_of(np.matmul, *[to.dtype] * 3))
