"""The kernel of binary contractions: a plan per subscripts, made once, that ends in one BLAS call where there is one.

The one idea: the labels of a contraction fall into four groups (batch, free in the first operand, contracted, free in
the second), and with each group seen as one axis the contraction is a matrix product. Operands whose groups stand
together already are only viewed, transposed if need be, since BLAS takes transposed matrices as they are; others are
copied once.

Works on any array NumPy can multiply, rationals included. This module knows nothing of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

Plan = Callable[[Any, Any], Any]
View = Callable[[Any], Any]


def contract_arrays(x1: Any, x2: Any, *, subscripts: str) -> Any:
    """Contract two arrays as ``subscripts`` says; no label may occur twice in one operand."""
    return plan(subscripts)(x1, x2)


@lru_cache(maxsize=4096)
def plan(subscripts: str) -> Plan:
    """Return the function that contracts two arrays as ``subscripts`` says."""
    operands, out = subscripts.split("->")
    s1, s2 = operands.split(",")
    contracted = [label for label in s1 if label in s2 and label not in out]
    if not contracted:
        return _multiplication(s1, s2, out)
    if len(s1) <= 2 and len(s2) <= 2 and len(contracted) == 1 and len(out) == len(s1) + len(s2) - 2:
        return _matrix_product(s1, s2, out, contracted[0])
    return _grouped_product(s1, s2, out)


# --- nothing is summed: a product with broadcasting ------------------------------------------------------------------


def _multiplication(s1: str, s2: str, out: str) -> Plan:
    first, second = _spread(s1, out), _spread(s2, out)
    return lambda x1, x2: np.multiply(first(x1), second(x2))


def _spread(labels: str, out: str) -> View:
    """Return the view that lines an operand's axes up with those of the result."""
    if not labels or out.endswith(labels):
        return _as_it_is
    order = [labels.index(label) for label in out if label in labels]
    index = tuple(slice(None) if label in labels else None for label in out)
    if order == sorted(order):
        return lambda x: x[index]
    return lambda x: x.transpose(order)[index]


# --- matrices and vectors as they are --------------------------------------------------------------------------------


def _matrix_product(s1: str, s2: str, out: str, contracted: str) -> Plan:
    left = _transposed if len(s1) == 2 and s1[0] == contracted else None
    right = _transposed if len(s2) == 2 and s2[1] == contracted else None
    if len(s1) == 1 or len(s2) == 1:
        return _composed(np.dot, left, right)
    free = s1.replace(contracted, "")
    if out[0] == free:
        return _composed(_matmul, left, right)
    # The result is wanted transposed: B'A' = (AB)', with every transpose a view.
    return _composed(lambda x1, x2: np.matmul(x2, x1), _flipped(left), _flipped(right))


def _composed(product: Plan, left: View | None, right: View | None) -> Plan:
    if left is None:
        return product if right is None else lambda x1, x2: product(x1, right(x2))
    return (lambda x1, x2: product(left(x1), x2)) if right is None else lambda x1, x2: product(left(x1), right(x2))


def _matmul(x1: Any, x2: Any) -> Any:
    return np.matmul(x1, x2)


def _transposed(x: Any) -> Any:
    return x.T


def _as_it_is(x: Any) -> Any:
    return x


def _flipped(view: View | None) -> View | None:
    return _transposed if view is None else None


# --- the general case ------------------------------------------------------------------------------------------------


def _grouped_product(s1: str, s2: str, out: str) -> Plan:
    batch = "".join(label for label in out if label in s1 and label in s2)
    free1 = "".join(label for label in s1 if label not in s2)
    free2 = "".join(label for label in s2 if label not in s1)
    contracted = _contraction_order(s1, s2, batch, free1, free2, out)
    # An operand that has to be copied anyway is copied in the order in which the result wants its axes.
    if not _is_grouped(s1, batch, free1, contracted):
        free1 = "".join(label for label in out if label in free1)
    if not _is_grouped(s2, batch, free2, contracted):
        free2 = "".join(label for label in out if label in free2)
    swap = bool(free1 and free2) and out == batch + free2 + free1
    first, second = (s2, s1) if swap else (s1, s2)
    free_first, free_second = (free2, free1) if swap else (free1, free2)
    left = _as_matrix(first, batch, free_first, contracted)
    right = _as_matrix(second, batch, contracted, free_second)
    made = batch + free_first + free_second
    order = None if made == out else [made.index(label) for label in out]
    picks = [(label in second, (second if label in second else first).index(label)) for label in made]
    flat = not batch and not (free1 and free2)
    if not flat and max(len(free1), len(free2), len(contracted)) == 1:
        product = _stacked_product(left, right, bool(free_first), bool(free_second), order)
        return (lambda x1, x2: product(x2, x1)) if swap else product

    def run(x1: Any, x2: Any) -> Any:
        if swap:
            x1, x2 = x2, x1
        result = np.dot(left(x1), right(x2)) if flat else np.matmul(left(x1), right(x2))
        shapes = (x1.shape, x2.shape)
        result = np.reshape(result, [shapes[which][axis] for which, axis in picks])
        return result if order is None else result.transpose(order)

    return run


def _stacked_product(left: View, right: View, rows: bool, columns: bool, order: list[int] | None) -> Plan:
    """Return a product of stacks of matrices, or of vectors in place of those without rows or columns."""
    vectors = {
        (True, True): ...,
        (True, False): (..., 0),
        (False, True): (..., 0, slice(None)),
        (False, False): (..., 0, 0),
    }
    axes = vectors[rows, columns]
    if order is not None:
        return lambda x1, x2: np.matmul(left(x1), right(x2))[axes].transpose(order)
    if rows and columns:
        return lambda x1, x2: np.matmul(left(x1), right(x2))
    return lambda x1, x2: np.matmul(left(x1), right(x2))[axes]


def _contraction_order(s1: str, s2: str, batch: str, free1: str, free2: str, out: str) -> str:
    """Return the order of the contracted labels that makes the fewest operands be copied."""
    orders = ["".join(label for label in s if label not in out) for s in (s1, s2)]

    def copies(order: str) -> int:
        return (not _is_grouped(s1, batch, free1, order)) + (not _is_grouped(s2, batch, free2, order))

    return min(orders, key=copies)


def _is_grouped(labels: str, batch: str, free: str, contracted: str) -> bool:
    """Whether an operand can be seen as a (stack of) matrices without a copy."""
    if len(free) <= 1 and len(contracted) <= 1:
        return True
    return labels in (batch + free + contracted, batch + contracted + free)


def _as_matrix(labels: str, batch: str, rows: str, columns: str) -> View:
    """Return the view (or copy) of an operand as a stack of matrices, or as a vector if there is nothing to stack.

    Batch axes stay separate axes: ``numpy.matmul`` loops over them whatever their strides.
    """
    vector = not batch and not (rows and columns)
    if len(labels) == len(batch) + 2 and len(rows) == 1:
        order = [labels.index(label) for label in batch + rows + columns]
        return _as_it_is if order == sorted(order) else lambda x: x.transpose(order)
    if batch and len(labels) == len(batch) + 1:
        return _as_vectors(labels, batch, rows, columns)
    flipped = not vector and labels == batch + columns + rows
    sequence = labels if flipped else batch + rows + columns
    order = [labels.index(label) for label in sequence]
    groups = [[labels.index(label)] for label in batch]
    tail = [[labels.index(label) for label in group] for group in (rows, columns)]
    groups += [tail[0] + tail[1]] if vector else tail[::-1] if flipped else tail

    def view(x: Any) -> Any:
        shape = x.shape
        matrix = x.transpose(order).reshape([prod([shape[axis] for axis in group]) for group in groups])
        return matrix.swapaxes(-1, -2) if flipped else matrix

    return view


def _as_vectors(labels: str, batch: str, rows: str, columns: str) -> View:
    """Return the view of an operand as a stack of matrices with one column, or with one row."""
    index = (..., np.newaxis) if rows else (..., np.newaxis, slice(None))
    order = [labels.index(label) for label in batch + rows + columns]
    if order == sorted(order):
        return lambda x: x[index]
    return lambda x: x.transpose(order)[index]
