"""Batching rules of the ops behind indexing.

Where all members are indexed alike, the axis of the members is one more that is taken whole. Where positions differ
from member to member, they become flat positions in what lies behind each other in one row, that of all members
(``positions`` computes and checks them); so reading and writing at them is one op with one index array.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool._dims import Shape, product
from unspool._dtypes import INT64
from unspool._ops.batching import BatchRule, Members, place, spread
from unspool._ops.creation import arange
from unspool._ops.elementwise import (
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
)
from unspool._ops.indexing.template import Flat, Lengths, decode
from unspool._ops.late import ops
from unspool._ops.layout import broadcast_to, concat, reshape
from unspool._ops.leaf import constant
from unspool._ops.op import Op, lookup
from unspool._ops.reduction import sum as sum_

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_ROW: Flat = ("array",)
_ROWS: Flat = ("whole", "array")


class _Places:
    """Where the members read or write in tensors of a shape.

    Attributes
    ----------
    shape : Shape
        What is selected, for one member.
    is_common : bool
        Whether it is the same for all members.
    """

    def __init__(
        self, members: Members, first: int, at: tuple[Tensor, ...], index: Flat, lengths: Lengths, shape: Shape
    ) -> None:
        batched = members.batched[first:]
        self._count, self._size = members.count, product(shape)
        self.is_common = not any(batched)
        stack = int(not self.is_common)
        given = [x if flag or not stack else reshape(x, (1, *x.shape)) for x, flag in zip(at, batched, strict=True)]
        self._positions = _positions(given, index, lengths, shape, stack)
        self.shape: Shape = self._positions.shape[stack:]

    def in_one(self) -> Tensor:
        """Return the positions, of all members, in a tensor that is the same for all."""
        return self._positions

    def in_row(self) -> Tensor:
        """Return the positions in the row of the tensors of all members."""
        offsets = arange(self._count, dtype=INT64) * self._size
        whole = self._positions + reshape(offsets, (self._count, *[1] * len(self.shape)))
        return reshape(whole, (self._count * product(self.shape),))

    def in_rows(self) -> Tensor:
        """Return the common positions in the row of each tensor."""
        return reshape(self._positions, (product(self.shape),))


def _positions(at: Any, index: Flat, lengths: Lengths, shape: Shape, stack: int) -> Tensor:
    return _graph.apply(lookup("positions"), *at, index=index, lengths=lengths, shape=shape, stack=stack)


def _is_plain(members: Members, first: int, index: Flat, lengths: Lengths) -> bool:
    """Whether the axis of the members can be taken whole: all are indexed alike, and it comes first in the result."""
    whole = decode(("whole", *index), lengths)
    has_block = any(entry[0] in ("array", "along") for entry in whole.entries)
    return not any(members.batched[first:]) and (not has_block or whole.lead > 0)


def pick(op: Op, members: Members, x: Tensor, *at: Tensor, index: Flat, lengths: Lengths) -> Tensor:
    """Select from the tensor of each member."""
    if _is_plain(members, 1, index, lengths):
        return place(op, [x, *at], {"index": ("whole", *index), "lengths": lengths})  # type: ignore[no-any-return]
    shape = x.shape[1:] if members.batched[0] else x.shape
    places, size = _Places(members, 1, at, index, lengths, shape), product(shape)
    gather = partial(_graph.apply, lookup("gather"), lengths=())
    if not members.batched[0]:
        return gather(reshape(x, (size,)), places.in_one(), index=_ROW)
    if places.is_common:
        found = gather(reshape(x, (members.count, size)), places.in_rows(), index=_ROWS)
    else:
        found = gather(reshape(x, (members.count * size,)), places.in_row(), index=_ROW)
    return reshape(found, (members.count, *places.shape))


def put(op: Op, members: Members, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths, shape: Shape) -> Tensor:
    """Put the values of each member into zeros."""
    values, whole = members.spread(0, values), (members.count, *shape)
    if _is_plain(members, 1, index, lengths):
        params = {"index": ("whole", *index), "lengths": lengths, "shape": whole}
        return place(op, [values, *at], params)  # type: ignore[no-any-return]
    places, size = _Places(members, 1, at, index, lengths, shape), product(shape)
    scatter, count = partial(_graph.apply, lookup("scatter"), lengths=()), product(values.shape[1:])
    if places.is_common:
        rows = reshape(values, (members.count, count))
        found = scatter(rows, places.in_rows(), index=_ROWS, shape=(members.count, size))
    else:
        row = reshape(values, (members.count * count,))
        found = scatter(row, places.in_row(), index=_ROW, shape=(members.count * size,))
    return reshape(found, whole)


def tell(op: Op, members: Members, *at: Tensor, index: Flat, lengths: Lengths, shape: Shape) -> Tensor:
    """Tell which elements are chosen, or which choices are the last; some positions differ among members."""
    places = _Places(members, 0, at, index, lengths, shape)
    row = (members.count * product(shape),)
    found = _graph.apply(op, places.in_row(), index=_ROW, lengths=(), shape=row)
    return reshape(found, (members.count, *(shape if op.name == "chosen" else places.shape)))


def positions(op: Op, members: Members, *at: Tensor, index: Flat, lengths: Lengths, shape: Shape, stack: int) -> Tensor:
    """Compute flat positions for one more axis of operands."""
    given = [x if batched else reshape(x, (1, *x.shape)) for x, batched in zip(at, members.batched, strict=True)]
    return _positions(given, index, lengths, shape, stack + 1)


def update(scattering: str) -> BatchRule:
    """Return the rule of an update; ``scattering`` names the op that does the same at the positions of an array."""

    def rule(op: Op, members: Members, x: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths) -> Tensor:
        x, values = members.spread(0, x), members.spread(1, values)
        if _is_plain(members, 2, index, lengths):
            whole = {"index": ("whole", *index), "lengths": lengths}
            return place(op, [x, values, *at], whole)  # type: ignore[no-any-return]
        places, size = _Places(members, 2, at, index, lengths, x.shape[1:]), product(x.shape[1:])
        values = broadcast_to(values, (members.count, *places.shape))
        apply, count = partial(_graph.apply, lookup(scattering), lengths=()), product(places.shape)
        if places.is_common:
            base, rows = reshape(x, (members.count, size)), reshape(values, (members.count, count))
            found = apply(base, rows, places.in_rows(), index=_ROWS)
        else:
            base, row = reshape(x, (members.count * size,)), reshape(values, (members.count * count,))
            found = apply(base, row, places.in_row(), index=_ROW)
        return reshape(found, x.shape)

    return rule


# --- groups of equal positions ---------------------------------------------------------------------------------------


def edges(op: Op, members: Members, groups: Tensor, *, last: bool) -> Tensor:
    """Tell the edges of groups, which begin and end with the row of a member."""
    count, size = groups.shape
    if size == 0:
        return broadcast_to(constant(True), groups.shape)
    end = broadcast_to(constant(True), (count, 1))
    changes = not_equal(groups[:, 1:], groups[:, :-1])
    return concat([changes, end] if last else [end, changes], axis=1)


def recurrence(op: Op, members: Members, b: Tensor, c: Tensor, groups: Tensor, *, reverse: bool) -> Tensor:
    """Run the recurrence along one row of all members, with other numbers for the groups of each."""
    b, c, groups = (
        x if flag else spread(x, members.count) for x, flag in zip((b, c, groups), members.batched, strict=True)
    )
    row = (product(b.shape),)
    begins = reshape(edges(op, members, groups, last=False), row)
    numbers = ops.cumsum(begins.astype(INT64), axis=0)
    found = _graph.apply(op, reshape(b, row), reshape(c, row), numbers, reverse=reverse)
    return reshape(found, b.shape)


def search(op: Op, members: Members, x1: Tensor, x2: Tensor, *, side: str) -> Tensor:
    """Look into the sorted row of each member: count what goes before. NaN comes last, as in a sort."""
    if not members.batched[0]:
        return place(op, [x1, x2], {"side": side})  # type: ignore[no-any-return]
    x2 = members.spread(1, x2)
    row = reshape(x1, (members.count, *[1] * (x2.ndim - 1), x1.shape[1]))
    wanted = reshape(x2, (*x2.shape, 1))
    before = (less if side == "left" else less_equal)(row, wanted)
    if x1.dtype.kind in "fc" or x2.dtype.kind in "fc":
        after_all = isnan(wanted) if side == "right" else logical_and(isnan(wanted), logical_not(isnan(row)))
        before = logical_or(before, after_all)
    return sum_(before.astype(INT64), axis=-1)
