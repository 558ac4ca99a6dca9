"""The batching rule of solvers: a matrix that all members share is factored once.

Right-hand sides of members go side by side, as the columns of one. Matrices of members are stacked as others are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._dims import product
from unspool._ops.batching import Members, place
from unspool._ops.layout import permute_dims, reshape
from unspool._ops.op import Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def side_by_side(op: Op, members: Members, *inputs: Tensor, **params: Any) -> Tensor:
    """Solve for all members; the right-hand side is the last input, a vector or a stack of columns."""
    *matrix, b = inputs
    is_vector = members.rank(len(matrix), b) == 1
    if any(members.batched[:-1]):
        *matrix, b = members.all(inputs)
        x = place(op, [*matrix, reshape(b, (*b.shape, 1)) if is_vector else b], params)
        return reshape(x, b.shape)
    if is_vector:
        return permute_dims(place(op, [*matrix, permute_dims(b, (1, 0))], params), (1, 0))
    last = b.ndim - 1
    order = (*range(1, last), 0, last)
    columns = permute_dims(b, order)
    x = place(op, [*matrix, reshape(columns, (*columns.shape[:-2], product(columns.shape[-2:])))], params)
    return permute_dims(reshape(x, columns.shape), [order.index(axis) for axis in range(b.ndim)])
