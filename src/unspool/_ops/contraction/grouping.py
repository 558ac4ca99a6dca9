"""A contraction of two arrays as one product of matrices, as data.

The one idea: the labels of a contraction fall into four groups (batch, free in the first operand, contracted, free in
the second), and with each group seen as one axis the contraction is a matrix product. Operands whose groups stand
together already are only viewed, transposed if need be, since BLAS takes transposed matrices as they are; others are
copied once.

A copy can be spared where the labels that are summed stand between others, as in ``abc,bd->adc``: that is a stack of
products with one matrix, whose results lie as they are wanted. Unless each of them is so small that calling BLAS for it
takes longer than the copy.

What it comes to is known from the labels, but for the sizes. So it is written down, for a kernel that learns the sizes
from its arrays, and for generated code that has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from unspool._records import NamedTuple

Sizes = tuple[int, ...]

# A stack of products with one matrix is computed as such if each of them has as many multiplications as this.
WORTH_A_CALL = 1024


def product_for(subscripts: str, shape1: Sizes, shape2: Sizes) -> GroupedProduct:
    """Return the product of matrices by which arrays of some shapes are contracted."""
    stacked = stacked_product(subscripts)
    return grouped_product(subscripts) if stacked is None or not stacked.is_worth(shape1, shape2) else stacked.product


def product_function(subscripts: str) -> Callable[[Any, Any], Any]:
    """Return the function of two arrays that contracts them by a product of matrices."""
    together, stacked = grouped_product(subscripts).function(), stacked_product(subscripts)
    if stacked is None:
        return together
    apart, is_worth = stacked.product.function(), stacked.is_worth
    return lambda x1, x2: (apart if is_worth(x1.shape, x2.shape) else together)(x1, x2)


# --- what is written down --------------------------------------------------------------------------------------------


class MatrixView(NamedTuple):
    """How an array is seen as a stack of matrices: its axes are put in order, then grouped or given new ones.

    Attributes
    ----------
    order : tuple of int or None
        The axes as they are to follow each other; ``None``: as they do.
    groups : tuple of tuple of int or None
        The axes, by their place in the array, that become one each time; ``None``: every axis stays one.
    widened : tuple or None
        An index that puts an axis of size 1 among the others.
    flipped : bool
        Whether the last two axes are exchanged in the end.
    """

    order: tuple[int, ...] | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    widened: tuple[Any, ...] | None = None
    flipped: bool = False

    def shape(self, shape: Sizes) -> Sizes | None:
        """Return the shape that an array of some shape is given, before a flip; ``None`` if it keeps its own."""
        if self.groups is None:
            return None
        return tuple([prod([shape[axis] for axis in group]) for group in self.groups])

    def function(self) -> Callable[[Any], Any]:
        """Return the view as a function of an array."""
        order, groups, widened, flipped = self
        if groups is None:
            if widened is None:
                return (lambda x: x) if order is None else lambda x: x.transpose(order)
            return (lambda x: x[widened]) if order is None else lambda x: x.transpose(order)[widened]

        def view(x: Any) -> Any:
            matrix = (x if order is None else x.transpose(order)).reshape(self.shape(x.shape))
            return matrix.swapaxes(-1, -2) if flipped else matrix

        return view


class GroupedProduct(NamedTuple):
    """A contraction as a product of stacks of matrices.

    Attributes
    ----------
    swap : bool
        Whether the second operand is on the left.
    left, right : MatrixView
    flat : bool
        Whether one of them is seen as a vector, and the product is `numpy.dot`; else it is `numpy.matmul`.
    picks : tuple of (int, int) or None
        The axes that the product is given: of the left (0) or the right (1) operand, and which. ``None``: it keeps its
        own.
    groups : tuple of int
        How many of these are the rows and the columns of its matrices.
    narrowed : tuple or None
        An index that takes axes of size 1 out of the product.
    order : tuple of int or None
        How its axes follow each other in the result; ``None``: as they do.
    """

    swap: bool
    left: MatrixView
    right: MatrixView
    flat: bool
    picks: tuple[tuple[int, int], ...] | None
    groups: tuple[int, int]
    narrowed: tuple[Any, ...] | None
    order: tuple[int, ...] | None

    def shape(self, left: Sizes, right: Sizes) -> Sizes | None:
        """Return the shape that the product of arrays of some shapes is given; ``None`` if it keeps its own."""
        return None if self.picks is None else tuple([(left, right)[which][axis] for which, axis in self.picks])

    def grouped_shape(self, shape: Sizes) -> Sizes:
        """Return the shape in which the product that is given a shape comes."""
        rows, columns = self.groups
        stack, split = len(shape) - rows - columns, len(shape) - columns
        return (*shape[:stack], prod(shape[stack:split]), prod(shape[split:]))

    def function(self) -> Callable[[Any, Any], Any]:
        """Return the product as a function of the two operands."""
        product = self._of_left_and_right()
        return (lambda x1, x2: product(x2, x1)) if self.swap else product

    def _of_left_and_right(self) -> Callable[[Any, Any], Any]:
        left, right = self.left.function(), self.right.function()
        narrowed, order = self.narrowed, self.order
        if not self.flat and self.picks is None and narrowed is None and order is None:
            return lambda x1, x2: np.matmul(left(x1), right(x2))

        def run(x1: Any, x2: Any) -> Any:
            result = np.dot(left(x1), right(x2)) if self.flat else np.matmul(left(x1), right(x2))
            if self.picks is not None:
                result = np.reshape(result, self.shape(x1.shape, x2.shape))
            elif narrowed is not None:
                result = result[narrowed]
            return result if order is None else result.transpose(order)

        return run


class StackedProduct(NamedTuple):
    """A stack of products with one matrix.

    Attributes
    ----------
    product : GroupedProduct
    matrix : int
        Which operand is the matrix: 0 or 1.
    columns : tuple of int
        The axes of the other one that belong to each matrix of the stack and are not summed over.
    """

    product: GroupedProduct
    matrix: int
    columns: tuple[int, ...]

    def is_worth(self, shape1: Sizes, shape2: Sizes) -> bool:
        """Whether each of the products is worth a call."""
        matrix, other = (shape2, shape1) if self.matrix else (shape1, shape2)
        return prod(matrix) * prod([other[axis] for axis in self.columns]) >= WORTH_A_CALL


# --- from labels -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def grouped_product(subscripts: str) -> GroupedProduct:
    """Return the product of matrices that a contraction is; at least one label is summed over."""
    operands, out = subscripts.split("->")
    s1, s2 = operands.split(",")
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
    rows, columns = (free2, free1) if swap else (free1, free2)
    made = batch + rows + columns
    flat = not batch and not (rows and columns)
    # With one label each, rows and columns are the axes of the product already, or superfluous.
    fits = len(rows) <= 1 and len(columns) <= 1
    return GroupedProduct(
        swap,
        _as_matrix(first, batch, rows, contracted),
        _as_matrix(second, batch, contracted, columns),
        flat,
        None if fits else tuple([_pick(first, second, label) for label in made]),
        (len(rows), len(columns)),
        _VECTORS[bool(rows), bool(columns)] if fits and not flat else None,
        None if made == out else tuple([made.index(label) for label in out]),
    )


@lru_cache(maxsize=4096)
def stacked_product(subscripts: str) -> StackedProduct | None:
    """Return the stack of products with one matrix that a contraction is, if it is one."""
    operands, out = subscripts.split("->")
    s1, s2 = operands.split(",")
    if any(label in s1 and label in s2 for label in out):
        return None
    for first, labels, matrix in ((True, s1, s2), (False, s2, s1)):
        summed = "".join(label for label in labels if label not in out)
        stack, _, columns = labels.partition(summed)
        free = "".join(label for label in matrix if label in out)
        if not (stack and columns and free) or matrix not in (free + summed, summed + free):
            continue
        if out == stack + free + columns:
            swap, sides, groups = first, (matrix, labels), (len(free), len(columns))
            views = _as_matrix(matrix, "", free, summed), _as_matrix(labels, stack, summed, columns)
        elif out == stack + columns + free:
            swap, sides, groups = not first, (labels, matrix), (len(columns), len(free))
            views = _as_matrix(labels, stack, columns, summed), _as_matrix(matrix, "", summed, free)
        else:
            continue
        picks = None if groups == (1, 1) else tuple([_pick(*sides, label) for label in out])
        product = GroupedProduct(swap, *views, False, picks, groups, None, None)
        return StackedProduct(product, int(first), tuple([labels.index(label) for label in columns]))
    return None


# What takes the axes of stacks of vectors, which have no rows or no columns, out of a product of matrices.
_VECTORS: dict[tuple[bool, bool], tuple[Any, ...] | None] = {
    (True, True): None,
    (True, False): (..., 0),
    (False, True): (..., 0, slice(None)),
    (False, False): (..., 0, 0),
}


def _pick(first: str, second: str, label: str) -> tuple[int, int]:
    return (1, second.index(label)) if label in second else (0, first.index(label))


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


def _as_matrix(labels: str, batch: str, rows: str, columns: str) -> MatrixView:
    """Return the view (or copy) of an operand as a stack of matrices, or as a vector if there is nothing to stack.

    Batch axes stay separate axes: `numpy.matmul` loops over them whatever their strides.
    """
    moved = _order(labels, batch + rows + columns)
    if len(labels) == len(batch) + 2 and len(rows) == 1:
        return MatrixView(moved)
    if batch and len(labels) == len(batch) + 1:
        return MatrixView(moved, widened=(..., np.newaxis) if rows else (..., np.newaxis, slice(None)))
    vector = not batch and not (rows and columns)
    flipped = not vector and labels == batch + columns + rows
    tail = [tuple([labels.index(label) for label in group]) for group in (rows, columns)]
    groups = [tail[0] + tail[1]] if vector else tail[::-1] if flipped else tail
    stack = [(labels.index(label),) for label in batch]
    return MatrixView(None if flipped else moved, tuple(stack + groups), None, flipped)


def _order(labels: str, wanted: str) -> tuple[int, ...] | None:
    return None if labels == wanted else tuple([labels.index(label) for label in wanted])
