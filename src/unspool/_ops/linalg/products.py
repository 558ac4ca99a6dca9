"""Products of vectors and matrices that `numpy.linalg` has, and diagonals as it takes them, of the last two axes.

`multi_dot` multiplies a chain in the order that costs least; for sizes that are not known yet a nominal size decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from unspool import _dims
from unspool._dims import Dim, Size
from unspool._ops import elementwise, layout
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.contraction import matmul, outer, vecdot
from unspool._ops.contraction.path import NOMINAL_SIZE
from unspool._ops.layout import kron
from unspool._ops.leaf import as_operands, as_tensor
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["cross", "diagonal", "kron", "multi_dot", "outer", "trace", "vecdot"]


# --- chains ----------------------------------------------------------------------------------------------------------


def multi_dot(arrays: Sequence[Any]) -> Tensor:
    """Multiply a chain of matrices in the order that takes the fewest multiplications.

    Parameters
    ----------
    arrays : sequence of array_like
        Two or more. The first may be 1-D, a row, and the last may be 1-D, a column; those between are matrices, or
        stacks of them, whose leading axes broadcast.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.multi_dot([us.ones((2, 100)), us.ones((100, 3)), us.ones(3)]).eval()
    array([300., 300.])
    """
    if not isinstance(arrays, Iterable):
        raise ArgumentError(f"multi_dot takes a sequence of arrays, got {arrays!r}")
    chain = [as_tensor(a) for a in arrays]
    if len(chain) < 2:
        raise ArgumentError(f"multi_dot takes at least two arrays, got {len(chain)}")
    for position, x in enumerate(chain):
        if x.ndim < (1 if position in (0, len(chain) - 1) else 2):
            raise ShapeError(
                f"multi_dot takes matrices, of which the first and the last may be vectors, got shape {x.shape} at "
                f"position {position}"
            )
    return _multiply_chain(chain, _best_splits(_chain_sizes(chain)))


def _chain_sizes(chain: list[Tensor]) -> list[int]:
    """Return the sizes p0, p1, … such that factor i is a matrix of p(i) rows and p(i+1) columns."""
    rows = [
        _nominal(x.shape[-2]) if x.ndim > 1 else (1 if i == 0 else _nominal(x.shape[0])) for i, x in enumerate(chain)
    ]
    last = chain[-1]
    return [*rows, _nominal(last.shape[-1]) if last.ndim > 1 else 1]


def _nominal(size: Size) -> int:
    """Return a number that stands for a size, the same for the same size."""
    if not isinstance(size, Dim):
        return size
    try:
        return max(size.bind(dict.fromkeys(size.names(), NOMINAL_SIZE)), 1)
    except ShapeError:
        return NOMINAL_SIZE


def _best_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Return after which factor to split each part (first, last) of a chain, by dynamic programming."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            # Ties go to the later split: from left to right.
            cost[i, j], negative = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], -k) for k in range(i, j)
            )
            split[i, j] = -negative
    return split


def _multiply_chain(chain: list[Tensor], split: dict[tuple[int, int], int]) -> Tensor:
    # Parts in the order in which they are split: those a product needs come after it.
    order = [(0, len(chain) - 1)]
    for i, j in order:
        if i < j:
            k = split[i, j]
            order += [(i, k), (k + 1, j)]
    made: dict[tuple[int, int], Tensor] = {}
    for i, j in reversed(order):
        made[i, j] = chain[i] if i == j else matmul(made.pop((i, split[i, j])), made.pop((split[i, j] + 1, j)))
    return made[0, len(chain) - 1]


# --- the cross product -----------------------------------------------------------------------------------------------


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Return the cross product of vectors with three elements; other axes broadcast.

    Parameters
    ----------
    x1, x2 : array_like
        Tensors of size 3 along the axis.
    axis : int
        The axis of the vectors, in each operand and in the result.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).eval()
    array([0., 0., 1.])
    """
    x1, x2 = (_vectors_last(x, axis) for x in as_operands(x1, x2))
    # Component i is made of the components after it, in a circle.
    forward = elementwise.multiply(layout.roll(x1, -1, axis=-1), layout.roll(x2, -2, axis=-1))
    backward = elementwise.multiply(layout.roll(x1, -2, axis=-1), layout.roll(x2, -1, axis=-1))
    result = elementwise.subtract(forward, backward)
    return layout.moveaxis(result, -1, layout.normalize_axis(axis, result.ndim))


def _vectors_last(x: Tensor, axis: int) -> Tensor:
    """Return a tensor with the axis of its vectors moved to the end, where it has the size 3."""
    if x.ndim == 0:
        raise ShapeError("cross takes vectors of three elements, got a scalar")
    moved = layout.moveaxis(x, layout.normalize_axis(axis, x.ndim), -1)
    if _dims.equal(moved.shape[-1], 3) is False:
        raise ShapeError(
            f"cross takes vectors of three elements, got shape {x.shape}, of size {moved.shape[-1]} along axis {axis}"
        )
    return ensure_shape(moved, (*moved.shape[:-1], 3))


# --- diagonals -------------------------------------------------------------------------------------------------------


def diagonal(x: Any, *, offset: int = 0) -> Tensor:
    """Return a diagonal of matrices, which are the last two axes.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.diagonal(us.zeros((5, 2, 3))).shape
    (5, 2)
    """
    return layout.diagonal(x, offset, -2, -1)


def trace(x: Any, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Return the sum of a diagonal of matrices, which are the last two axes.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.trace(us.eye(3), dtype="float32").eval()
    array(3., dtype=float32)
    """
    return layout.trace(x, offset, -2, -1, dtype=dtype)
