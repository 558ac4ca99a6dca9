"""The ops behind indexing: selecting elements, and its adjoint, putting elements where they were selected from.

Two pairs, each the transpose of the other. ``slice`` and ``unslice`` are for templates without index arrays: views and
assignments. ``gather`` and ``scatter`` are for those with; an element that is selected several times gets the sum. All
take the operands of the template, positions and starts and arrays, as inputs after the tensor: so the steps of a loop
are one program wherever they read. No derivative goes through those inputs, and no rule looks at the tensor. Elements
that were not selected are absent from a cotangent (see `elementwise`); which ones were, ``chosen`` tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core, _graph
from unspool._dims import Shape
from unspool._dtypes import BOOL
from unspool._graph import Node
from unspool._ops.elementwise import MASK, mask
from unspool._ops.indexing import batching
from unspool._ops.indexing.parse import ParsedIndex, Where
from unspool._ops.indexing.template import (
    Flat,
    Lengths,
    covers,
    explain_range,
    flat_positions,
    indexed_shape,
    keeps_order,
    numpy_index,
    sliced_shape,
)
from unspool._ops.layout import broadcast_to, rearrange, reshape
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import POSITIONS, SIZE, STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def select(parsed: ParsedIndex) -> Tensor:
    """Return the elements that a parsed index selects from its tensor."""
    return pick(parsed.base, parsed.where)


def pick(x: Tensor, where: Where) -> Tensor:
    """Return the elements that a template and its operands select."""
    index, lengths, at = where
    if not index:
        return x
    # A position that is not known is looked at when the node runs, also on an axis of size 1.
    if (
        not where.has_arrays
        and covers(x.shape, index, lengths)
        and keeps_order(index)
        and all(operand.op is CONSTANT for operand in at)
    ):
        return reshape(x, sliced_shape(x.shape, index, lengths))
    return _graph.apply(GATHER if where.has_arrays else SLICE, x, *at, index=index, lengths=lengths)


def put(values: Tensor, shape: Shape, where: Where) -> Tensor:
    """Return zeros of a shape with values added where a template and its operands select (`pick`, transposed)."""
    index, lengths, at = where
    op = SCATTER if where.has_arrays else UNSLICE
    return _graph.apply(op, values, *at, index=index, lengths=lengths, shape=shape)


def chosen(shape: Shape, where: Where) -> Tensor:
    """Return which elements of a tensor of this shape a template and its operands select."""
    index, lengths, at = where
    return _graph.apply(CHOSEN, *at, index=index, lengths=lengths, shape=shape)


def put_present(ct: Tensor, shape: Shape, where: Where) -> Tensor:
    """Do the same as `put` to a cotangent or a tangent: what is absent from it, or not selected, is absent."""
    if ct.op is MASK:
        # Not the values behind the mask: what is absent must not be added to what is present.
        keep = broadcast_to(ct.inputs[1], ct.shape)
        return mask(put(ct, shape, where), put(keep, shape, where))
    placed = put(ct, shape, where)
    if not where.has_arrays and covers(shape, where.template, where.lengths):
        return placed
    return mask(placed, chosen(shape, where))


def pick_present(ct: Tensor, where: Where) -> Tensor:
    """Do the same as `pick` to a cotangent or a tangent: absent elements stay absent."""
    return rearrange(ct, lambda inner: pick(inner, where))


# --- derivatives -----------------------------------------------------------------------------------------------------


def _pick_vjp(i: int, ct: Tensor, out: Tensor, x: Tensor, *at: Tensor, index: Flat, lengths: Lengths) -> Tensor | None:
    return None if i else put_present(ct, x.shape, Where(index, lengths, at))


def _pick_jvp(
    tangents: tuple[Any, ...], out: Tensor, x: Tensor, *at: Tensor, index: Flat, lengths: Lengths
) -> Tensor | None:
    return None if tangents[0] is None else pick_present(tangents[0], Where(index, lengths, at))


def _put_vjp(
    i: int, ct: Tensor, out: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths, shape: Shape
) -> Tensor | None:
    return None if i else pick_present(ct, Where(index, lengths, at))


def _put_jvp(
    tangents: tuple[Any, ...],
    out: Tensor,
    values: Tensor,
    *at: Tensor,
    index: Flat,
    lengths: Lengths,
    shape: Shape,
) -> Tensor | None:
    return None if tangents[0] is None else put_present(tangents[0], shape, Where(index, lengths, at))


# --- without index arrays --------------------------------------------------------------------------------------------


# One position on the first axis: what loops select most.
_ROW = ("int",)


def view_of(x: Any, index: Flat, lengths: Lengths, at: tuple[Any, ...]) -> Any:
    """Return the elements of an array that a template without arrays selects, as a view."""
    try:
        if index == _ROW:
            return x[int(at[0]), ...]
        return x[numpy_index(index, lengths, at, x.shape)]
    except IndexError:
        raise explain_range(index, lengths, at, x.shape) from None


SLICE = register(
    Op(
        "slice",
        infer=lambda x, *at, index, lengths: (sliced_shape(x.shape, index, lengths), x.dtype),
        kernel=lambda x, *at, index, lengths: view_of(x, index, lengths, at),
        vjp=_pick_vjp,
        jvp=_pick_jvp,
        needs=(POSITIONS,),
        params={"index": STRUCTURE, "lengths": SIZE},
        cheap=True,
        view=True,
        batch=batching.pick,
    )
)


def _unslice_kernel(values: Any, *at: Any, index: Flat, lengths: Lengths, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, values.dtype)
    view_of(out, index, lengths, at)[...] = values
    return out


UNSLICE = register(
    Op(
        "unslice",
        infer=lambda values, *at, index, lengths, shape: (shape, values.dtype),
        kernel=_unslice_kernel,
        vjp=_put_vjp,
        jvp=_put_jvp,
        needs=(POSITIONS,),
        params={"index": STRUCTURE, "lengths": SIZE, "shape": SIZE},
        fresh=True,
        batch=batching.put,
    )
)


# --- with index arrays -----------------------------------------------------------------------------------------------


def _infer_gather(x: Node, *at: Node, index: Flat, lengths: Lengths) -> tuple[Shape, Any]:
    return indexed_shape(x.shape, index, lengths, [operand.shape for operand in at]), x.dtype


GATHER = register(
    Op(
        "gather",
        infer=_infer_gather,
        kernel=lambda x, *at, index, lengths: view_of(x, index, lengths, at),
        vjp=_pick_vjp,
        jvp=_pick_jvp,
        needs=(POSITIONS,),
        params={"index": STRUCTURE, "lengths": SIZE},
        batch=batching.pick,
    )
)


_core.bind(slice=SLICE, gather=GATHER)


def scatter_with(ufunc: Any, base: Any, values: Any, at: tuple[Any, ...], index: Flat, lengths: Lengths) -> Any:
    """Combine values into a private array, one after the other in row-major order, as ``ufunc.at`` does."""
    positions = flat_positions(index, lengths, at, base.shape)
    # One flat axis: ``ufunc.at`` has a fast loop for that, and the order is the same for every memory layout.
    ufunc.at(base.reshape(-1), positions.reshape(-1), np.reshape(values, -1))
    return base


def _scatter_kernel(values: Any, *at: Any, index: Flat, lengths: Lengths, shape: tuple[int, ...]) -> Any:
    return scatter_with(np.add, np.zeros(shape, values.dtype), values, at, index, lengths)


SCATTER = register(
    Op(
        "scatter",
        infer=lambda values, *at, index, lengths, shape: (shape, values.dtype),
        kernel=_scatter_kernel,
        vjp=_put_vjp,
        jvp=_put_jvp,
        needs=(POSITIONS,),
        params={"index": STRUCTURE, "lengths": SIZE, "shape": SIZE},
        batch=batching.put,
    )
)


# --- what a selection is ---------------------------------------------------------------------------------------------


def _chosen_kernel(*at: Any, index: Flat, lengths: Lengths, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, np.bool_)
    try:
        out[numpy_index(index, lengths, at, shape)] = True
    except IndexError:
        raise explain_range(index, lengths, at, shape) from None
    return out


CHOSEN = register(
    Op(
        "chosen",
        infer=lambda *at, index, lengths, shape: (shape, BOOL),
        kernel=_chosen_kernel,
        params={"index": STRUCTURE, "lengths": SIZE, "shape": SIZE},
        fresh=True,
        batch=batching.tell,
    )
)


def infer_selection(dtype: Any) -> Callable[..., tuple[Shape, Any]]:
    """Return the rule of an op that says something about each selected element."""

    def infer(*at: Node, index: Flat, lengths: Lengths, shape: Shape) -> tuple[Shape, Any]:
        return indexed_shape(shape, index, lengths, [operand.shape for operand in at]), dtype

    return infer


def _last_kernel(*at: Any, index: Flat, lengths: Lengths, shape: tuple[int, ...]) -> Any:
    positions = flat_positions(index, lengths, at, shape)
    turns = np.arange(positions.size)
    latest = np.zeros(math.prod(shape), np.int64)
    latest[positions.reshape(-1)] = turns
    return latest[positions] == turns.reshape(positions.shape)


IS_LAST = register(
    Op(
        "is_last",
        infer=infer_selection(BOOL),
        kernel=_last_kernel,
        params={"index": STRUCTURE, "lengths": SIZE, "shape": SIZE},
        batch=batching.tell,
    )
)


def is_last(shape: Shape, where: Where) -> Tensor:
    """Return which selected elements are not selected again later, in row-major order of the selection."""
    index, lengths, at = where
    return _graph.apply(IS_LAST, *at, index=index, lengths=lengths, shape=shape)
