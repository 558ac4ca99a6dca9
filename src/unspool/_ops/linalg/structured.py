"""Matrices with a pattern, made from the few numbers that it repeats, under the names of ``scipy.linalg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._ops import layout
from unspool._ops.checks import as_integer, one_of
from unspool._ops.creation import arange, eye, zeros
from unspool._ops.elementwise import absolute, add, astype, divide, negative, subtract
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.elementwise.complex_numbers import conj
from unspool._ops.indexing import take
from unspool._ops.layout.cropping import zero_pad
from unspool._ops.leaf import as_operands, as_shape, as_tensor
from unspool.errors import ShapeError, UnknownSizeError

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


def companion(a: Any) -> Tensor:
    """Make the matrix whose eigenvalues are the roots of a polynomial, given by its coefficients, the highest first.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.companion([1.0, -3.0, 2.0]).eval()
    array([[ 3., -2.],
           [ 1.,  0.]])
    """
    coefficients = _polynomial(a, "companion")
    size = coefficients.shape[0] - 1
    first = negative(divide(coefficients[1:], coefficients[0]))
    return layout.concat([layout.expand_dims(first, 0), eye(size, dtype=first.dtype)[: size - 1]], axis=0)


def fiedler(a: Any) -> Tensor:
    """Make the matrix of the distances ``abs(a[i] - a[j])``.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.fiedler([1.0, 4.0]).eval()
    array([[0., 3.],
           [3., 0.]])
    """
    vector = layout.atleast_1d(as_tensor(a))
    return absolute(subtract(layout.expand_dims(vector, -1), layout.expand_dims(vector, -2)))


def fiedler_companion(a: Any) -> Tensor:
    """Make the matrix with five diagonals whose eigenvalues are the roots of a polynomial.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.fiedler_companion([1.0, -6.0, 11.0, -6.0]).eval()
    array([[  6., -11.,   1.],
           [  1.,   0.,   0.],
           [  0.,   6.,   0.]])
    """
    coefficients = _polynomial(a, "fiedler_companion")
    scaled = negative(divide(coefficients[1:], coefficients[0]))
    size = scaled.shape[0]
    if not isinstance(size, int):
        raise UnknownSizeError(f"fiedler_companion needs to know how many coefficients there are, got {size} + 1")
    if size == 1:
        return layout.reshape(scaled, (1, 1))
    found = zeros((size, size), scaled.dtype)
    for number in range(size):
        # Coefficients go along the diagonals beside the main one, in turns; ones stand two places from it.
        row, column = (number, number - 1) if number % 2 == 0 else (number - 1, number)
        found = found.at[row, max(column, 0)].set(scaled[number])
    for row in range(size):
        column = row + 2 if row % 2 == 0 else row - 2
        if row == 1:
            found = found.at[1, 0].set(1)
        elif 0 <= column < size:
            found = found.at[row, column].set(1)
    return found


def leslie(f: Any, s: Any) -> Tensor:
    """Make the matrix of a population by age: the rates of birth in its first row, those of survival below.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.leslie([0.1, 2.0], [0.5]).eval()
    array([[0.1, 2. ],
           [0.5, 0. ]])
    """
    births, survival = (_vector(x, "leslie") for x in as_operands(f, s))
    return add(zero_pad(layout.expand_dims(births, 0), (0, 0), (births.shape[0] - 1, 0)), layout.diag(survival, -1))


def convolution_matrix(a: Any, n: Size, mode: str = "full") -> Tensor:
    """Make the matrix by which a vector of ``n`` elements is convolved with ``a``.

    Parameters
    ----------
    a : array_like
        One axis.
    n : int
        How many columns there are.
    mode : {"full", "same", "valid"}
        As for `unspool.convolve`.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.convolution_matrix([1.0, 2.0], 2).eval()
    array([[1., 0.],
           [2., 1.],
           [0., 2.]])
    """
    vector = _vector(a, "convolution_matrix")
    length, count = vector.shape[0], as_integer(n, "n", least=1)
    one_of(mode, ("full", "same", "valid"), "mode")
    if not isinstance(length, int) or length < 1:
        raise ShapeError(f"convolution_matrix takes a vector of a known size, at least 1, got {length}")
    whole = toeplitz(zero_pad(vector, (0,), (count - 1,)), zero_pad(vector[:1], (0,), (count - 1,)))
    if mode == "full":
        return whole
    rows = max(length, count) if mode == "same" else max(length, count) - min(length, count) + 1
    before = (length + count - 1 - rows) // 2
    return whole[before : before + rows]


def _polynomial(a: Any, function: str) -> Tensor:
    coefficients = as_inexact(_vector(a, function))
    if isinstance(coefficients.shape[0], int) and coefficients.shape[0] < 2:
        raise ShapeError(f"{function} takes two coefficients or more, got {coefficients.shape[0]}")
    return coefficients


def _vector(x: Any, function: str) -> Tensor:
    vector = as_tensor(x)
    if vector.ndim != 1:
        raise ShapeError(f"{function} takes vectors: tensors with one axis, got shape {vector.shape}")
    return vector
