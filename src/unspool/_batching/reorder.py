"""The op ``reorder``: the rows of a tensor in another order.

An index array would do; but its rule has to allow for rows that are read twice, or never, and marks what was not read
as absent. An order reads every row once, so its adjoint is the inverse order and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._ops import batching
from unspool._ops.batching import Members
from unspool._ops.layout import moveaxis, rearrange
from unspool._ops.leaf import constant
from unspool._ops.op import POSITIONS, Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def reorder(x: Tensor, order: Any) -> Tensor:
    """Return the rows of a tensor in an order, which is an array of their numbers."""
    if (order == np.arange(len(order))).all():
        return x
    return _graph.apply(REORDER, x, constant(order), constant(np.argsort(order)))


def _backwards(ct: Tensor, out: Tensor, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    return rearrange(ct, lambda inner: _graph.apply(REORDER, inner, inverse, order))


def _forwards(t: Tensor, out: Tensor, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    return rearrange(t, lambda inner: _graph.apply(REORDER, inner, order, inverse))


def _batch(op: Op, members: Members, x: Any, order: Any, inverse: Any) -> Any:
    """Reorder the rows of every member of another batch: an order follows from lengths, which all have in common."""
    return moveaxis(batching.place(op, [moveaxis(x, 1, 0), order, inverse], {}), 0, 1)


# Not registered: batches are made of it, and nobody applies it by name.
REORDER = Op(
    "reorder",
    infer=lambda x, order, inverse: (x.shape, x.dtype),
    kernel=lambda x, order, inverse: x[order],
    vjp=(_backwards, None, None),
    jvp=(_forwards, None, None),
    needs=(POSITIONS,),
    fresh=True,
    batch=_batch,
)
