"""The ops behind indexing: selecting elements, and its adjoint, putting elements where they were selected from.

Two pairs, each the transpose of the other. ``slice`` and ``unslice`` are for templates without index arrays: views and
assignments, whose rules look at no value. ``gather`` and ``scatter`` take index tensors as further inputs; an element
that is selected several times gets the sum. Elements that were not selected are absent from a cotangent (see
`elementwise`); which ones were, ``chosen`` tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import BOOL
from unspool._graph import Node
from unspool._ops.elementwise import MASK, mask
from unspool._ops.indexing.parse import ParsedIndex
from unspool._ops.indexing.template import (
    Flat,
    covers,
    decode,
    explain_range,
    flat_positions,
    indexed_shape,
    keeps_order,
    numpy_index,
    sliced_shape,
)
from unspool._ops.layout import broadcast_to, rearrange, reshape
from unspool._ops.op import INPUTS, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def select(parsed: ParsedIndex) -> Tensor:
    """Return the elements that a parsed index selects from its tensor."""
    return pick(parsed.base, parsed.template, parsed.arrays)


def pick(x: Tensor, index: Flat, arrays: tuple[Tensor, ...] = ()) -> Tensor:
    """Return the elements that a template and its index tensors select."""
    if arrays:
        return _graph.apply(GATHER, x, *arrays, index=index)
    return _graph.apply(SLICE, x, index=index)


def put(values: Tensor, shape: Shape, index: Flat, arrays: tuple[Tensor, ...] = ()) -> Tensor:
    """Return zeros of a shape with values added where a template and its index tensors select (`pick`, transposed)."""
    if arrays:
        return _graph.apply(SCATTER, values, *arrays, index=index, shape=shape)
    return _graph.apply(UNSLICE, values, index=index, shape=shape)


def chosen(shape: Shape, index: Flat, arrays: tuple[Tensor, ...] = ()) -> Tensor:
    """Return which elements of a tensor of this shape a template and its index tensors select."""
    return _graph.apply(CHOSEN, *arrays, index=index, shape=shape)


def put_present(ct: Tensor, shape: Shape, index: Flat, arrays: tuple[Tensor, ...] = ()) -> Tensor:
    """Do the same as `put` to a cotangent or a tangent: what is absent from it, or not selected, is absent."""
    if ct.op is MASK:
        # Not the values behind the mask: what is absent must not be added to what is there.
        keep = broadcast_to(ct.inputs[1], ct.shape)
        return mask(put(ct, shape, index, arrays), put(keep, shape, index, arrays))
    placed = put(ct, shape, index, arrays)
    if not arrays and covers(shape, index):
        return placed
    return mask(placed, chosen(shape, index, arrays))


def pick_present(ct: Tensor, index: Flat, arrays: tuple[Tensor, ...] = ()) -> Tensor:
    """Do the same as `pick` to a cotangent or a tangent: absent elements stay absent."""
    return rearrange(ct, lambda inner: pick(inner, index, arrays))


# --- without index arrays --------------------------------------------------------------------------------------------


def _canonical_slice(x: Tensor, *, index: Flat) -> Tensor | None:
    if not index:
        return x
    if covers(x.shape, index) and keeps_order(index):
        return reshape(x, sliced_shape(x.shape, index))
    return None


def view_of(x: Any, index: Flat) -> Any:
    """Return the elements of an array that a template without arrays selects, as a view."""
    try:
        return x[decode(index).items]
    except IndexError:
        raise explain_range(index, (), x.shape) from None


SLICE = register(
    Op(
        "slice",
        infer=lambda x, *, index: (sliced_shape(x.shape, index), x.dtype),
        kernel=lambda x, *, index: view_of(x, index),
        vjp=(lambda ct, out, x, *, index: put_present(ct, x.shape, index),),
        jvp=(lambda t, out, x, *, index: pick_present(t, index),),
        sized=("index",),
        canonical=_canonical_slice,
        cheap=True,
        view=True,
    )
)


def _unslice_kernel(values: Any, *, index: Flat, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, values.dtype)
    view_of(out, index)[...] = values
    return out


UNSLICE = register(
    Op(
        "unslice",
        infer=lambda values, *, index, shape: (shape, values.dtype),
        kernel=_unslice_kernel,
        vjp=(lambda ct, out, values, *, index, shape: pick_present(ct, index),),
        jvp=(lambda t, out, values, *, index, shape: put_present(t, shape, index),),
        sized=("index", "shape"),
        fresh=True,
    )
)


# --- with index arrays -----------------------------------------------------------------------------------------------


def _infer_gather(x: Node, *arrays: Node, index: Flat) -> tuple[Shape, Any]:
    return indexed_shape(x.shape, index, [array.shape for array in arrays]), x.dtype


def _gather_kernel(x: Any, *arrays: Any, index: Flat) -> Any:
    try:
        return x[numpy_index(index, arrays, x.shape)]
    except IndexError:
        raise explain_range(index, arrays, x.shape) from None


def _gather_vjp(i: int, ct: Tensor, out: Tensor, x: Tensor, *arrays: Tensor, index: Flat) -> Tensor | None:
    return None if i else put_present(ct, x.shape, index, arrays)


def _gather_jvp(tangents: tuple[Any, ...], out: Tensor, x: Tensor, *arrays: Tensor, index: Flat) -> Tensor | None:
    return None if tangents[0] is None else pick_present(tangents[0], index, arrays)


GATHER = register(
    Op(
        "gather",
        infer=_infer_gather,
        kernel=_gather_kernel,
        vjp=_gather_vjp,
        jvp=_gather_jvp,
        needs=(INPUTS,),
        sized=("index",),
    )
)


def scatter_with(ufunc: Any, base: Any, values: Any, arrays: tuple[Any, ...], index: Flat) -> Any:
    """Combine values into a private array, one after the other in row-major order, as ``ufunc.at`` does."""
    positions = flat_positions(index, arrays, base.shape)
    # One flat axis: ``ufunc.at`` has a fast loop for that, and the order is the same for every memory layout.
    ufunc.at(base.reshape(-1), positions.reshape(-1), np.reshape(values, -1))
    return base


def _scatter_kernel(values: Any, *arrays: Any, index: Flat, shape: tuple[int, ...]) -> Any:
    return scatter_with(np.add, np.zeros(shape, values.dtype), values, arrays, index)


def _scatter_vjp(
    i: int, ct: Tensor, out: Tensor, values: Tensor, *arrays: Tensor, index: Flat, shape: Shape
) -> Tensor | None:
    return None if i else pick_present(ct, index, arrays)


def _scatter_jvp(
    tangents: tuple[Any, ...], out: Tensor, values: Tensor, *arrays: Tensor, index: Flat, shape: Shape
) -> Tensor | None:
    return None if tangents[0] is None else put_present(tangents[0], shape, index, arrays)


SCATTER = register(
    Op(
        "scatter",
        infer=lambda values, *arrays, index, shape: (shape, values.dtype),
        kernel=_scatter_kernel,
        vjp=_scatter_vjp,
        jvp=_scatter_jvp,
        needs=(INPUTS,),
        sized=("index", "shape"),
    )
)


# --- what a selection is ---------------------------------------------------------------------------------------------


def _chosen_kernel(*arrays: Any, index: Flat, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape, np.bool_)
    try:
        out[numpy_index(index, arrays, shape)] = True
    except IndexError:
        raise explain_range(index, arrays, shape) from None
    return out


CHOSEN = register(
    Op(
        "chosen",
        infer=lambda *arrays, index, shape: (shape, BOOL),
        kernel=_chosen_kernel,
        sized=("index", "shape"),
    )
)


def infer_selection(dtype: Any) -> Callable[..., tuple[Shape, Any]]:
    """Return the rule of an op that says something about each selected element."""

    def infer(*arrays: Node, index: Flat, shape: Shape) -> tuple[Shape, Any]:
        return indexed_shape(shape, index, [array.shape for array in arrays]), dtype

    return infer


def _last_kernel(*arrays: Any, index: Flat, shape: tuple[int, ...]) -> Any:
    positions = flat_positions(index, arrays, shape)
    turns = np.arange(positions.size)
    latest = np.zeros(math.prod(shape), np.int64)
    latest[positions.reshape(-1)] = turns
    return latest[positions] == turns.reshape(positions.shape)


IS_LAST = register(Op("is_last", infer=infer_selection(BOOL), kernel=_last_kernel, sized=("index", "shape")))


def is_last(shape: Shape, index: Flat, arrays: tuple[Tensor, ...]) -> Tensor:
    """Return which selected elements are not selected again later, in row-major order of the selection."""
    return _graph.apply(IS_LAST, *arrays, index=index, shape=shape)
