"""Parts of a table that many selections read, put back together.

The cotangent of a table is, for each selection, a tensor as large as the table with little in it. A *selection* says
what of it is the same for all: then the elements and the operands of the index can be stacked, and added in one go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool._dims import Shape, product
from unspool._graph import Node
from unspool._ops.creation import full
from unspool._ops.elementwise import logical_or, mask
from unspool._ops.indexing import selection
from unspool._ops.indexing.parse import Where
from unspool._ops.indexing.repeated import POSITIONS
from unspool._ops.indexing.template import Flat, Lengths
from unspool._ops.indexing.update_ops import SCATTER_ADD
from unspool._ops.layout import reshape
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Selection(NamedTuple):
    """Which part of a tensor of some shape is selected, but for the operands of the index."""

    template: Flat
    lengths: Lengths
    shape: Shape

    def put_present(self, values: Tensor, *at: Tensor) -> Tensor:
        """Return the elements in their places; all others are absent."""
        return selection.put_present(values, self.shape, Where(self.template, self.lengths, at))


def selection_of(placed: Node, keep: Node) -> Selection | None:
    """Return the selection that a masked tensor is from, if it is what `put_present` makes of plain elements.

    Only one whose index has operands: others read the same elements each time.
    """
    if keep.op is not selection.CHOSEN or placed.op not in (selection.UNSLICE, selection.SCATTER):
        return None
    params = placed.attributes
    at, other = placed.inputs[1:], keep.inputs
    if (
        not at
        or keep.attributes != params
        or len(at) != len(other)
        or any(a is not b for a, b in zip(at, other, strict=True))
    ):
        return None
    return Selection(params["index"], params["lengths"], params["shape"])


class RowSum:
    """The sum of elements that are put back into one tensor, stack by stack.

    They are added one after the other, whichever way they are divided into stacks: so are the bits of the sum.

    Parameters
    ----------
    shape : Shape
    dtype : dtype
        Of the tensor; floating-point or complex.
    """

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self._shape, self._size = shape, product(shape)
        # What is added to -0.0 is as if it were assigned.
        self._sum = full((self._size,), dtype.type(complex(-0.0, -0.0) if dtype.kind == "c" else -0.0))
        self._touched: Tensor | None = None

    def add(self, chosen: Selection, values: Tensor, *at: Tensor) -> None:
        """Add what `Selection.put_present` makes of each row of the operands, from the first to the last."""
        count = product(values.shape)
        index, lengths, shape = chosen
        positions = _graph.apply(POSITIONS, *at, index=index, lengths=lengths, shape=shape, stack=1)
        where = Where(("array",), (), (reshape(positions, (count,)),))
        params = {"index": where.template, "lengths": where.lengths}
        self._sum = _graph.apply(SCATTER_ADD, self._sum, reshape(values, (count,)), *where.at, **params)
        touched = selection.chosen((self._size,), where)
        self._touched = touched if self._touched is None else logical_or(self._touched, touched)

    def total(self) -> Tensor:
        """Return the sum; elements that nothing was added to are absent."""
        assert self._touched is not None
        return mask(reshape(self._sum, self._shape), reshape(self._touched, self._shape))
