"""Products into elements that are selected several times, with derivatives that are exact, also at zeros.

Dividing the product by a factor to get the others fails at a zero. Instead the factors are sorted by the element they
go to, and the products before each factor are a first-order recurrence along each group of equal positions,

    y[j] = b[j] + c[j-1] * y[j-1]        (the second term only within a group),

whose adjoint is the same recurrence run backwards. So derivatives of any order need nothing but this op.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, product
from unspool._dtypes import BOOL, INT64
from unspool._graph import Node
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.elementwise import conj, logical_not, mask, multiply
from unspool._ops.indexing import batching
from unspool._ops.indexing.parse import ParsedIndex, Where, parse_index
from unspool._ops.indexing.selection import pick, put
from unspool._ops.indexing.sorting import argsort
from unspool._ops.indexing.template import Flat, Lengths, indexed_shape, stacked_positions
from unspool._ops.layout import reshape
from unspool._ops.op import INPUTS, OUTPUT, SIZE, STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def multiply_repeatedly(parsed: ParsedIndex, values: Tensor) -> tuple[ParsedIndex, Tensor]:
    """Return the flattened tensor with positions in rising order, and what to set there one after the other.

    The last value for a position is the element times all factors that go to it.
    """
    x, (index, lengths, at) = parsed
    count = product(values.shape)
    positions = _graph.apply(POSITIONS, *at, index=index, lengths=lengths, shape=x.shape, stack=0)
    order = _by_array(argsort(reshape(positions, (count,))))
    groups = pick(reshape(positions, (count,)), order)
    factors = pick(reshape(values, (count,)), order)
    flat = reshape(x, (product(x.shape),))
    begin = mask(pick(flat, _by_array(groups)), _is_edge(groups, last=False))
    before = _graph.apply(RECURRENCE, begin, factors, groups, reverse=False)
    return ParsedIndex(flat, _by_array(groups)), multiply(before, factors)


def _by_array(positions: Tensor) -> Where:
    return Where(("array",), (), (positions,))


# --- positions and groups of equal ones ------------------------------------------------------------------------------


def _infer_positions(*at: Node, index: Flat, lengths: Lengths, shape: Shape, stack: int) -> tuple[Shape, Any]:
    around = broadcast_shapes(*[x.shape[:stack] for x in at]) if stack else ()
    return (*around, *indexed_shape(shape, index, lengths, [x.shape[stack:] for x in at])), INT64


def _positions_kernel(*at: Any, index: Flat, lengths: Lengths, shape: Any, stack: int) -> Any:
    # In order: they are read as a flat array, which would be a copy else.
    return np.ascontiguousarray(stacked_positions(index, lengths, at, shape, stack))


POSITIONS = register(
    Op(
        "positions",
        infer=_infer_positions,
        kernel=_positions_kernel,
        params={"index": STRUCTURE, "lengths": SIZE, "shape": SIZE, "stack": STRUCTURE},
        batch=batching.positions,
    )
)


def _edges(groups: Any, *, last: bool) -> Any:
    edges = np.ones(groups.shape, np.bool_)
    changes = groups[1:] != groups[:-1]
    if last:
        edges[:-1] = changes
    else:
        edges[1:] = changes
    return edges


IS_EDGE = register(
    Op(
        "is_edge",
        infer=lambda groups, *, last: (groups.shape, BOOL),
        kernel=_edges,
        params={"last": STRUCTURE},
        batch=batching.edges,
    )
)


def _is_edge(groups: Tensor, *, last: bool) -> Tensor:
    """Return which elements are the first, or the last, of their group."""
    return _graph.apply(IS_EDGE, groups, last=last)


def _following(x: Tensor, groups: Tensor) -> Tensor:
    """Return, for each element, the next one of its group, 0 for the last."""
    but_first, but_last = _all_but_one(x)
    return mask(put(pick(x, but_first), x.shape, but_last), logical_not(_is_edge(groups, last=True)))


def _preceding(x: Tensor, groups: Tensor) -> Tensor:
    """Return, for each element, the one before it in its group, 0 for the first."""
    but_first, but_last = _all_but_one(x)
    return mask(put(pick(x, but_last), x.shape, but_first), logical_not(_is_edge(groups, last=False)))


def _all_but_one(x: Tensor) -> tuple[Where, Where]:
    """Return what selects all but the first, and all but the last element of a vector."""
    return parse_index(x, slice(1, None)).where, parse_index(x, slice(None, -1)).where


# --- the recurrence --------------------------------------------------------------------------------------------------


def _recurrence_kernel(b: Any, c: Any, groups: Any, *, reverse: bool) -> Any:
    """Run the recurrence, or its transpose ``y[j] = b[j] + c[j] * y[j+1]``, for all groups side by side."""
    if reverse:
        b, c, groups = b[::-1], c[::-1], groups[::-1]
    lag = 0 if reverse else 1
    y = b.copy()
    for members in _generations(groups):
        y[members] += c[members - lag] * y[members - 1]
    return y[::-1] if reverse else y


def _generations(groups: Any) -> Iterator[Any]:
    """Yield the places of the second elements of all groups, then of the third ones, and so on."""
    places = np.arange(groups.size)
    first = np.maximum.accumulate(np.where(_edges(groups, last=False), places, 0))
    rank = places - first
    order = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    for begin, end in pairwise(ends):
        yield order[begin:end]


def _by_term(ct: Tensor, out: Tensor, b: Tensor, c: Tensor, groups: Tensor, *, reverse: bool) -> Tensor:
    return _graph.apply(RECURRENCE, ct, conj(c), groups, reverse=not reverse)


def _by_factor(ct: Tensor, out: Tensor, b: Tensor, c: Tensor, groups: Tensor, *, reverse: bool) -> Tensor:
    adjoint = _by_term(ct, out, b, c, groups, reverse=reverse)
    if reverse:
        return multiply(conj(_following(out, groups)), adjoint)
    return multiply(conj(out), _following(adjoint, groups))


def _from_term(t: Tensor, out: Tensor, b: Tensor, c: Tensor, groups: Tensor, *, reverse: bool) -> Tensor:
    return _graph.apply(RECURRENCE, t, c, groups, reverse=reverse)


def _from_factor(t: Tensor, out: Tensor, b: Tensor, c: Tensor, groups: Tensor, *, reverse: bool) -> Tensor:
    terms = multiply(t, _following(out, groups)) if reverse else _preceding(multiply(t, out), groups)
    return _graph.apply(RECURRENCE, terms, c, groups, reverse=reverse)


RECURRENCE = register(
    Op(
        "recurrence",
        infer=lambda b, c, groups, *, reverse: (b.shape, b.dtype),
        kernel=_recurrence_kernel,
        vjp=(_by_term, _by_factor, None),
        jvp=(_from_term, _from_factor, None),
        params={"reverse": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=batching.recurrence,
    )
)
