"""Positions as tensors: grids of coordinates, diagonals and triangles by their indices, and flat positions.

What these return goes into an index. Sizes may be symbolic wherever the number of positions follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from unspool import _graph
from unspool._dims import Dim, Shape, Size, equal, product
from unspool._dtypes import BOOL, INT64, INTEGERS, as_dtype
from unspool._ops import elementwise, layout
from unspool._ops.checks import as_integer, one_of
from unspool._ops.creation import arange, linspace, ones, size_tensor
from unspool._ops.indexing import nonzero, take
from unspool._ops.layout import TRI_MASK
from unspool._ops.leaf import as_operands, as_shape, as_tensor, constant
from unspool.errors import ArgumentError, DTypeError, ShapeError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- coordinates -----------------------------------------------------------------------------------------------------


def indices(dimensions: Size | Sequence[Size], dtype: DTypeLike | None = int, sparse: bool = False) -> Any:
    """Return the coordinates of all elements of a shape, one tensor per axis, stacked along a new first axis.

    Parameters
    ----------
    dimensions : tuple of int or Dim
        The shape.
    dtype : dtype_like
        The data type of the coordinates.
    sparse : bool
        Return a tuple of tensors that broadcast to the shape instead.

    Examples
    --------
    >>> import unspool as us
    >>> us.indices((2, 2)).eval().tolist()
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    shape = as_shape(dimensions)  # type: ignore[arg-type]
    axes = [arange(size, dtype=as_dtype(dtype)) for size in shape]
    if sparse:
        return _open_grid(axes)
    if not axes:
        return constant(np.zeros((0,), as_dtype(dtype)))
    return layout.stack([layout.broadcast_to(axis, shape) for axis in _open_grid(axes)])


def fromfunction(function: Callable[..., Any], shape: Sequence[Size], *, dtype: DTypeLike | None = float) -> Any:
    """Return what a function makes of the coordinates of all elements of a shape.

    Examples
    --------
    >>> import unspool as us
    >>> us.fromfunction(lambda i, j: i == j, (2, 2)).eval()
    array([[ True, False],
           [False,  True]])
    """
    if not callable(function):
        raise ArgumentError(f"fromfunction takes a function of coordinates, got {function!r}")
    return function(*layout.unstack(indices(shape, dtype))) if len(as_shape(shape)) else function()  # type: ignore[arg-type]


def ix_(*args: Any) -> tuple[Tensor, ...]:
    """Return sequences of positions as an index that selects all their combinations; of bools, where they are true.

    Examples
    --------
    >>> import unspool as us
    >>> us.arange(6).reshape(2, 3)[us.ix_([0, 1], [2, 0])].eval()
    array([[2, 0],
           [5, 3]])
    """
    vectors = []
    for sequence in args:
        vector = as_tensor(np.zeros(0, np.int64) if isinstance(sequence, (list, tuple)) and not sequence else sequence)
        if vector.ndim != 1:
            raise ShapeError(f"ix_ takes sequences with one axis, got shape {vector.shape}")
        vectors.append(nonzero(vector)[0] if vector.dtype == BOOL else vector)
    return _open_grid(vectors)


def _open_grid(vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    alone = (1,) * len(vectors)
    return tuple(layout.reshape(v, layout.replaced(alone, axis, v.shape[0])) for axis, v in enumerate(vectors))


class Grid:
    """Coordinates written as slices: ``us.mgrid[0:3, 0:1:5j]``, and ``us.ogrid`` for ones that broadcast.

    A step that is imaginary is the number of points, the end included.

    Examples
    --------
    >>> import unspool as us
    >>> us.mgrid[0:2, 0:2].eval().tolist()
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    >>> [axis.shape for axis in us.ogrid[0:2, 0:1:3j]]
    [(2, 1), (1, 3)]
    """

    __slots__ = ("_is_sparse",)

    def __init__(self, *, sparse: bool) -> None:
        self._is_sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return span(key)
        axes = as_operands(*[span(part) for part in key])
        wanted = np.result_type(*[axis.dtype for axis in axes]) if axes else INT64
        grids = _open_grid([elementwise.astype(axis, wanted) for axis in axes])
        if self._is_sparse:
            return grids
        shape = tuple(axis.shape[0] for axis in axes)
        return layout.stack([layout.broadcast_to(grid, shape) for grid in grids])

    def __repr__(self) -> str:
        return "us.ogrid" if self._is_sparse else "us.mgrid"


mgrid = Grid(sparse=False)
ogrid = Grid(sparse=True)


def span(part: Any) -> Tensor:
    """Return the numbers that a slice stands for: a range, or with an imaginary step so many numbers up to the end."""
    if not isinstance(part, slice):
        raise ArgumentError(f"a grid is written with slices, got {part!r}")
    start, step = 0 if part.start is None else part.start, 1 if part.step is None else part.step
    if part.stop is None:
        raise ArgumentError(f"a slice that stands for numbers has an end, got {part!r}")
    if isinstance(step, complex):
        return linspace(elementwise.as_inexact(start), elementwise.as_inexact(part.stop), int(abs(step)))
    return arange(start, part.stop, step)


# --- diagonals and triangles -----------------------------------------------------------------------------------------


def diag_indices(n: Size, ndim: int = 2) -> tuple[Tensor, ...]:
    """Return the index of the main diagonal of a tensor with ``ndim`` axes of size ``n``.

    Examples
    --------
    >>> import unspool as us
    >>> us.eye(3)[us.diag_indices(3)].eval()
    array([1., 1., 1.])
    """
    return (arange(n),) * as_integer(ndim, "ndim", least=1)


def diag_indices_from(x: Any) -> tuple[Tensor, ...]:
    """Return the index of the main diagonal of a tensor, whose axes have one size.

    Examples
    --------
    >>> import unspool as us
    >>> len(us.diag_indices_from(us.zeros((2, 2, 2))))
    3
    """
    shape = as_tensor(x).shape
    if len(shape) < 2 or any(equal(size, shape[0]) is False for size in shape):
        raise ShapeError(f"a diagonal index needs at least two axes, all of one size, got shape {shape}")
    return diag_indices(shape[0], len(shape))


def tri(N: Size, M: Size | None = None, k: int = 0, dtype: DTypeLike | None = float) -> Tensor:
    """Return a matrix with ones on and below the ``k``-th diagonal and zeros above; sizes may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.tri(2, 3, k=1).eval()
    array([[1., 1., 0.],
           [1., 1., 1.]])
    """
    rows, columns = as_shape((N, N if M is None else M))
    inside = _graph.apply(TRI_MASK, rows=rows, columns=columns, k=as_integer(k, "the diagonal k"), upper=False)
    return elementwise.astype(inside, as_dtype(dtype))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the index of the lower triangle of a matrix of ``n`` rows and ``m`` columns, up to the ``k``-th diagonal.

    Examples
    --------
    >>> import unspool as us
    >>> [places.eval() for places in us.tril_indices(2)]
    [array([0, 1, 1]), array([0, 0, 1])]
    """
    rows, columns, offset = _numbers(n, m, k)
    first, second = np.tril_indices(rows, offset, columns)
    return constant(first), constant(second)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the index of the upper triangle of a matrix of ``n`` rows and ``m`` columns, from the ``k``-th diagonal.

    Examples
    --------
    >>> import unspool as us
    >>> [places.eval() for places in us.triu_indices(2)]
    [array([0, 0, 1]), array([0, 1, 1])]
    """
    rows, columns, offset = _numbers(n, m, k)
    first, second = np.triu_indices(rows, offset, columns)
    return constant(first), constant(second)


def tril_indices_from(x: Any, k: int = 0) -> tuple[Tensor, Tensor]:
    """Return the index of the lower triangle of a matrix; see `tril_indices`.

    Examples
    --------
    >>> import unspool as us
    >>> len(us.tril_indices_from(us.zeros((2, 3)))[0])
    3
    """
    return tril_indices(*_matrix_sizes("tril_indices_from", x, k))


def triu_indices_from(x: Any, k: int = 0) -> tuple[Tensor, Tensor]:
    """Return the index of the upper triangle of a matrix; see `triu_indices`.

    Examples
    --------
    >>> import unspool as us
    >>> len(us.triu_indices_from(us.zeros((2, 3)))[0])
    5
    """
    return triu_indices(*_matrix_sizes("triu_indices_from", x, k))


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[Tensor, ...]:
    """Return the index of what a function such as `unspool.triu` leaves of a matrix of ones.

    Examples
    --------
    >>> import unspool as us
    >>> len(us.mask_indices(3, us.triu)[0])
    6
    """
    if not callable(mask_func):
        raise ArgumentError(f"mask_func is a function of a matrix and k, got {mask_func!r}")
    return nonzero(elementwise.not_equal(mask_func(ones((as_integer(n, "n", least=0),) * 2), k), 0))


def _numbers(n: Any, m: Any, k: Any) -> tuple[int, int, int]:
    for size in (n, m):
        if isinstance(size, Dim):
            raise UnknownSizeError(f"how many elements a triangle has must be known for its indices, got size {size}")
    rows = as_integer(n, "n", least=0)
    return rows, rows if m is None else as_integer(m, "m", least=0), as_integer(k, "the diagonal k")


def _matrix_sizes(name: str, x: Any, k: Any) -> tuple[Any, Any, Any]:
    shape = as_tensor(x).shape
    if len(shape) != 2:
        raise ShapeError(f"{name} takes a matrix, got shape {shape}")
    return shape[0], k, shape[1]


# --- flat positions --------------------------------------------------------------------------------------------------


def unravel_index(positions: Any, shape: Any, order: str = "C") -> tuple[Tensor, ...]:
    """Return the index, one tensor per axis, of elements by their places in the flattened tensor.

    Examples
    --------
    >>> import unspool as us
    >>> [places.eval() for places in us.unravel_index([5, 0], (2, 3))]
    [array([1, 0]), array([2, 0])]
    """
    rest = _as_places(positions)
    sizes = _in_order(as_shape(shape), order)
    found: list[Tensor] = []
    for size in reversed(sizes):
        number = size_tensor(size, INT64)
        found.append(elementwise.remainder(rest, number))
        rest = elementwise.floor_divide(rest, number)
    return tuple(_in_order(tuple(reversed(found)), order))


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Tensor:
    """Return the places in the flattened tensor of elements by their index, one tensor per axis.

    Parameters
    ----------
    multi_index : sequence of array_like of int
        One tensor of positions per axis.
    dims : tuple of int or Dim
        The shape.
    mode : {"raise", "wrap", "clip"} or tuple of them
        What positions outside of an axis are: an error, for which they are evaluated, positions counted around, or the
        nearest end.
    order : {"C", "F"}
        Whether the last or the first axis counts fastest.

    Examples
    --------
    >>> import unspool as us
    >>> us.ravel_multi_index(([1, 0], [2, 0]), (2, 3)).eval()
    array([5, 0])
    """
    shape = as_shape(dims)
    places = list(multi_index) if isinstance(multi_index, (list, tuple)) else list(layout.unstack(multi_index))
    modes = mode if isinstance(mode, tuple) else (mode,) * len(shape)
    if len(places) != len(shape) or len(modes) != len(shape):
        raise ArgumentError(
            f"an index into shape {shape} has {len(shape)} parts and modes, got {len(places)} and {mode}"
        )
    parts = [_in_range(_as_places(p), size, m) for p, size, m in zip(places, shape, modes, strict=True)]
    flat = constant(0, INT64)
    for part, size in zip(_in_order(tuple(parts), order), _in_order(shape, order), strict=True):
        flat = elementwise.add(elementwise.multiply(flat, size_tensor(size, INT64)), part)
    return flat


def _as_places(positions: Any) -> Tensor:
    tensor = as_tensor(positions)
    if tensor.dtype not in INTEGERS:
        raise DTypeError(f"positions are integers, got dtype {tensor.dtype}")
    return elementwise.astype(tensor, INT64)


def _in_range(places: Tensor, size: Size, mode: Any) -> Tensor:
    one_of(mode, ("raise", "wrap", "clip"), "mode")
    number = size_tensor(size, INT64)
    if mode == "wrap":
        return elementwise.remainder(places, number)
    if mode == "clip":
        return elementwise.clip(places, 0, number - 1)
    values = places.eval()
    if isinstance(size, int) and values.size and not (0 <= values.min() and values.max() < size):
        raise ArgumentError(f"positions for an axis of size {size} are from {values.min()} to {values.max()}")
    return places


def _in_order(parts: tuple[Any, ...], order: Any) -> tuple[Any, ...]:
    return parts if one_of(order, ("C", "F"), "order") == "C" else parts[::-1]


def resize(x: Any, new_shape: Any) -> Tensor:
    """Return a tensor of another shape that repeats the elements in row-major order as often as that takes.

    Examples
    --------
    >>> import unspool as us
    >>> us.resize([1, 2, 3], (2, 2)).eval()
    array([[1, 2],
           [3, 1]])
    """
    shape: Shape = as_shape(new_shape)
    flat = layout.ravel(x)
    if equal(flat.shape[0], 0) is True:
        return layout.broadcast_to(constant(0, flat.dtype), shape)
    places = elementwise.remainder(arange(product(shape)), size_tensor(flat.shape[0], INT64))
    return layout.reshape(take(flat, places), shape)
