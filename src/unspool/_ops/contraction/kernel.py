"""The kernel of binary contractions: a plan per subscripts, made once, that ends in one BLAS call where there is one.

Matrices, vectors and products without a sum are taken as they are; everything else is grouped into matrices first
(`grouping`). Works on any array NumPy can multiply, rationals included. This module knows nothing of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from unspool._ops.contraction.grouping import product_function

# Elements of a matrix from which on it matters in what order a product goes through it.
_LARGE = 1 << 15

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
    return product_function(subscripts)


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
    return _composed(lambda x1, x2: _matmul(x2, x1), _flipped(left), _flipped(right))


def _composed(product: Plan, left: View | None, right: View | None) -> Plan:
    if left is None:
        return product if right is None else lambda x1, x2: product(x1, right(x2))
    return (lambda x1, x2: product(left(x1), x2)) if right is None else lambda x1, x2: product(left(x1), right(x2))


def is_thin(rows: int, summed: int, columns: int) -> bool:
    """Whether a product of matrices is computed faster as that of their transposes, the result of which is flat.

    That is so if the result has few columns, but not next to none, and the operand on the left is large. Each column
    then lies in one piece, which is how those who read such a matrix go through it most often.
    """
    return 4 < columns <= 16 and 4 * columns <= rows and rows * summed >= _LARGE


def _matmul(x1: Any, x2: Any) -> Any:
    if x1.size >= _LARGE and is_thin(x1.shape[0], x1.shape[1], x2.shape[1]):  # the size alone is looked up fastest
        return np.matmul(x2.T, x1.T).T
    return np.matmul(x1, x2)


def _transposed(x: Any) -> Any:
    return x.T


def _as_it_is(x: Any) -> Any:
    return x


def _flipped(view: View | None) -> View | None:
    return _transposed if view is None else None
