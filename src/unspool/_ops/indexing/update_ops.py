"""The ops behind functional updates: elements replaced by values, or combined with them.

As in `selection` there is a pair for templates without index arrays, which writes to views, and ops for those with,
which update elements one after the other. The operands of the template are inputs after the tensor and the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import Shape
from unspool._graph import Node
from unspool._ops import elementwise
from unspool._ops.elementwise import add_cotangents, astype, logical_not, mask, unscale
from unspool._ops.indexing import batching
from unspool._ops.indexing.parse import Where
from unspool._ops.indexing.selection import chosen, is_last, pick, pick_present, put, put_present, scatter_with, view_of
from unspool._ops.indexing.template import Flat, Lengths, flat_positions
from unspool._ops.op import INPUTS, OUTPUT, POSITIONS, SIZE, STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _infer_update(x: Node, values: Node, *at: Node, index: Flat, lengths: Lengths) -> tuple[Shape, Any]:
    return x.shape, x.dtype


def _update(name: str, kernel: Any, vjp: Any, jvp: Any, needs: tuple[str, ...], **traits: Any) -> Op:
    """Declare an op that gives a tensor with other elements in some places."""
    params = {"index": STRUCTURE, "lengths": SIZE}
    made = Op(
        name,
        infer=_infer_update,
        kernel=kernel,
        vjp=vjp,
        jvp=jvp,
        params=params,
        needs=needs,
        batch=batching.update(name.replace("slice", "scatter")),
        **traits,
    )
    return register(made)


# --- elements that are replaced --------------------------------------------------------------------------------------


def _slice_set_kernel(x: Any, values: Any, *at: Any, index: Flat, lengths: Lengths) -> Any:
    out = np.array(x)
    view_of(out, index, lengths, at)[...] = values
    return out


def _scatter_set_kernel(x: Any, values: Any, *at: Any, index: Flat, lengths: Lengths) -> Any:
    out = np.array(x, order="C")
    out.reshape(-1)[flat_positions(index, lengths, at, x.shape).reshape(-1)] = np.reshape(values, -1)
    return out


def _stays(values: Tensor, shape: Shape, where: Where) -> Tensor:
    """Return a tangent or cotangent of values that were set, without those that others were set over."""
    return mask(values, is_last(shape, where)) if where.has_arrays else values


def _set_vjp(
    i: int, ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths
) -> Tensor | None:
    where = Where(index, lengths, at)
    if i == 0:
        return mask(ct, logical_not(chosen(x.shape, where)))
    return _stays(pick_present(ct, where), x.shape, where) if i == 1 else None


def _set_jvp(
    tangents: tuple[Any, ...], out: Tensor, x: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths
) -> Tensor | None:
    t, dv, *_ = tangents
    where = Where(index, lengths, at)
    kept = None if t is None else mask(t, logical_not(chosen(x.shape, where)))
    if dv is None:
        return kept
    moved = put_present(_stays(dv, x.shape, where), x.shape, where)
    return moved if kept is None else add_cotangents(kept, moved)


SLICE_SET = _update("slice_set", _slice_set_kernel, _set_vjp, _set_jvp, (POSITIONS,), fresh=True)
SCATTER_SET = _update("scatter_set", _scatter_set_kernel, _set_vjp, _set_jvp, (POSITIONS,))


# --- elements that are added to --------------------------------------------------------------------------------------


def _slice_add_kernel(x: Any, values: Any, *at: Any, index: Flat, lengths: Lengths) -> Any:
    out = np.array(x)
    view = view_of(out, index, lengths, at)
    np.add(view, values, out=view)
    return out


def _scatter_add_kernel(x: Any, values: Any, *at: Any, index: Flat, lengths: Lengths) -> Any:
    return scatter_with(np.add, np.array(x, order="C"), values, at, index, lengths)


def _add_vjp(
    i: int, ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths
) -> Tensor | None:
    if i == 0:
        return ct
    return pick_present(ct, Where(index, lengths, at)) if i == 1 else None


def _add_jvp(
    tangents: tuple[Any, ...], out: Tensor, x: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths
) -> Tensor | None:
    t, dv, *_ = tangents
    if dv is None:
        return t  # type: ignore[no-any-return]
    moved = put_present(dv, x.shape, Where(index, lengths, at))
    return moved if t is None else add_cotangents(t, moved)


def _slice_add_onto(x: Any, values: Any, *at: Any, index: Flat, lengths: Lengths) -> Any:
    view = view_of(x, index, lengths, at)
    np.add(view, values, out=view)
    return x


def _scatter_add_onto(x: Any, values: Any, *at: Any, index: Flat, lengths: Lengths) -> Any:
    return scatter_with(np.add, x, values, at, index, lengths)


SLICE_ADD = _update("slice_add", _slice_add_kernel, _add_vjp, _add_jvp, (POSITIONS,), fresh=True, onto=_slice_add_onto)
SCATTER_ADD = _update("scatter_add", _scatter_add_kernel, _add_vjp, _add_jvp, (POSITIONS,), onto=_scatter_add_onto)


# --- minimum and maximum ---------------------------------------------------------------------------------------------


def _scatter_extremum(name: str, ufunc: Any, beaten: Callable[[Any, Any], Tensor]) -> Op:
    """Declare a minimum or maximum; ``beaten(candidate, out)`` says that another one is the result.

    Comparisons with NaN are false: a result that is NaN depends on all candidates, as for `maximum` and `minimum`.
    """

    def attained(out: Tensor, x: Tensor, values: Tensor, where: Where) -> tuple[Tensor, Tensor, Tensor]:
        """Return which elements and which values attain the result, and how many of them share it."""
        by_element = logical_not(beaten(x, out))
        by_value = logical_not(beaten(values, pick(out, where)))
        shares = elementwise.add(astype(by_element, x.dtype), put(astype(by_value, x.dtype), x.shape, where))
        return by_element, by_value, shares

    def vjp(
        i: int, ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths
    ) -> Tensor | None:
        if i > 1:
            return None
        where = Where(index, lengths, at)
        by_element, by_value, shares = attained(out, x, values, where)
        share = unscale(ct, shares)
        return mask(share, by_element) if i == 0 else mask(pick_present(share, where), by_value)

    def jvp(
        tangents: tuple[Any, ...], out: Tensor, x: Tensor, values: Tensor, *at: Tensor, index: Flat, lengths: Lengths
    ) -> Tensor | None:
        t, dv, *_ = tangents
        where = Where(index, lengths, at)
        by_element, by_value, shares = attained(out, x, values, where)
        moved = [] if t is None else [mask(t, by_element)]
        if dv is not None:
            moved.append(put_present(mask(dv, by_value), x.shape, where))
        return unscale(moved[0] if len(moved) == 1 else add_cotangents(*moved), shares)

    def kernel(x: Any, values: Any, *at: Any, index: Flat, lengths: Lengths) -> Any:
        return scatter_with(ufunc, np.array(x, order="C"), values, at, index, lengths)

    return _update(name, kernel, vjp, jvp, (INPUTS, OUTPUT))


SCATTER_MIN = _scatter_extremum("scatter_min", np.minimum, elementwise.greater)
SCATTER_MAX = _scatter_extremum("scatter_max", np.maximum, elementwise.less)
