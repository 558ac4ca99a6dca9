"""Matrices with a pattern, made from the few numbers that it repeats, under the names of ``scipy.linalg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._ops import layout
from unspool._ops.creation import arange
from unspool._ops.elementwise import add, astype, divide
from unspool._ops.elementwise.complex_numbers import conj
from unspool._ops.indexing import take
from unspool._ops.layout.cropping import zero_pad
from unspool._ops.leaf import as_operands, as_shape, as_tensor
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._dims import Size
    from unspool._tensor import Tensor


def block_diag(*arrays: Any) -> Tensor:
    """Put matrices along the diagonal of a larger one, with zeros beside them; a vector is a row.

    Leading axes have to be the same.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.block_diag([[1.0, 2.0]], 3.0).eval()
    array([[1., 2., 0.],
           [0., 0., 3.]])
    """
    if not arrays:
        arrays = ([[]],)
    blocks = [layout.atleast_2d(block) for block in as_operands(*arrays)]
    columns = [block.shape[-1] for block in blocks]
    rows = []
    before: Size = 0
    total: Size = sum(columns)
    for block, width in zip(blocks, columns, strict=True):
        left, right = [[0] * (block.ndim - 1) + [size] for size in (before, total - before - width)]
        rows.append(zero_pad(block, tuple(left), tuple(right)))
        before = before + width
    return layout.concat(rows, axis=-2)


def toeplitz(c: Any, r: Any = None) -> Tensor:
    """Make the matrix with constant diagonals from its first column and row.

    Parameters
    ----------
    c : array_like
        The first column.
    r : array_like, optional
        The first row, whose first element is not looked at. By default the conjugate of ``c``.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.toeplitz([1.0, 2.0, 3.0], [1.0, 4.0]).eval()
    array([[1., 4.],
           [2., 1.],
           [3., 2.]])
    """
    column = _vector(c, "toeplitz")
    row = conj(column) if r is None else _vector(r, "toeplitz")
    column, row = as_operands(column, row)
    diagonals = layout.concat([layout.flip(row[1:]), column], axis=0)
    # Diagonals are counted from the upper right corner.
    steps = layout.flip(arange(row.shape[0]))
    return take(diagonals, add(layout.expand_dims(arange(column.shape[0]), 1), steps), axis=0)


def hankel(c: Any, r: Any = None) -> Tensor:
    """Make the matrix with constant antidiagonals from its first column and last row.

    Parameters
    ----------
    c : array_like
        The first column.
    r : array_like, optional
        The last row, whose first element is not looked at. By default zeros, as many as the column has.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.hankel([1.0, 2.0], [2.0, 3.0, 4.0]).eval()
    array([[1., 2., 3.],
           [2., 3., 4.]])
    """
    column = _vector(c, "hankel")
    row = column * 0 if r is None else _vector(r, "hankel")
    column, row = as_operands(column, row)
    antidiagonals = layout.concat([column, row[1:]], axis=0)
    places = add(layout.expand_dims(arange(column.shape[0]), 1), arange(row.shape[0]))
    return take(antidiagonals, places, axis=0)


def circulant(c: Any) -> Tensor:
    """Make the matrix whose columns are a vector, turned by one place each.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.circulant([1.0, 2.0, 3.0]).eval()
    array([[1., 3., 2.],
           [2., 1., 3.],
           [3., 2., 1.]])
    """
    column = _vector(c, "circulant")
    return toeplitz(column, layout.concat([column[:1], layout.flip(column[1:])], axis=0))


def hilbert(n: Size) -> Tensor:
    """Make Hilbert's matrix, with the elements ``1 / (i + j + 1)``.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.hilbert(2).eval()
    array([[1.        , 0.5       ],
           [0.5       , 0.33333333]])
    """
    if isinstance(n, (tuple, list)):
        raise ShapeError(f"hilbert takes one size, got {n!r}")
    (size,) = as_shape(n)
    numbers = astype(arange(size), "float64")
    return divide(1.0, add(add(layout.expand_dims(numbers, 1), numbers), 1.0))


def _vector(x: Any, function: str) -> Tensor:
    vector = as_tensor(x)
    if vector.ndim != 1:
        raise ShapeError(f"{function} takes vectors: tensors with one axis, got shape {vector.shape}")
    return vector
