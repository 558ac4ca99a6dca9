"""The ops behind functional updates: elements replaced by values, or combined with them.

As in `selection` there is a pair for templates without index arrays, which writes to views and whose rules look at no
value, and ops with index tensors as further inputs, which update elements one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import Shape
from unspool._graph import Node
from unspool._ops import elementwise
from unspool._ops.elementwise import add_cotangents, astype, logical_not, mask, unscale
from unspool._ops.indexing.selection import chosen, is_last, pick, pick_present, put, put_present, scatter_with, view_of
from unspool._ops.indexing.template import Flat, flat_positions
from unspool._ops.op import INPUTS, OUTPUT, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- without index arrays --------------------------------------------------------------------------------------------


def _infer_update(x: Node, values: Node, *arrays: Node, index: Flat) -> tuple[Shape, Any]:
    return x.shape, x.dtype


def _slice_set_kernel(x: Any, values: Any, *, index: Flat) -> Any:
    out = np.array(x)
    view_of(out, index)[...] = values
    return out


SLICE_SET = register(
    Op(
        "slice_set",
        infer=_infer_update,
        kernel=_slice_set_kernel,
        vjp=(
            lambda ct, out, x, values, *, index: mask(ct, logical_not(chosen(x.shape, index))),
            lambda ct, out, x, values, *, index: pick_present(ct, index),
        ),
        jvp=(
            lambda t, out, x, values, *, index: mask(t, logical_not(chosen(x.shape, index))),
            lambda t, out, x, values, *, index: put_present(t, x.shape, index),
        ),
        sized=("index",),
        fresh=True,
    )
)


def _slice_add_kernel(x: Any, values: Any, *, index: Flat) -> Any:
    out = np.array(x)
    view = view_of(out, index)
    np.add(view, values, out=view)
    return out


SLICE_ADD = register(
    Op(
        "slice_add",
        infer=_infer_update,
        kernel=_slice_add_kernel,
        vjp=(
            lambda ct, out, x, values, *, index: ct,
            lambda ct, out, x, values, *, index: pick_present(ct, index),
        ),
        jvp=(
            lambda t, out, x, values, *, index: t,
            lambda t, out, x, values, *, index: put_present(t, x.shape, index),
        ),
        sized=("index",),
        fresh=True,
    )
)


# --- with index arrays -----------------------------------------------------------------------------------------------


def _scatter_set_kernel(x: Any, values: Any, *arrays: Any, index: Flat) -> Any:
    out = np.array(x, order="C")
    out.reshape(-1)[flat_positions(index, arrays, x.shape).reshape(-1)] = np.reshape(values, -1)
    return out


def _scatter_set_vjp(
    i: int, ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat
) -> Tensor | None:
    if i == 0:
        return mask(ct, logical_not(chosen(x.shape, index, arrays)))
    return mask(pick_present(ct, index, arrays), is_last(x.shape, index, arrays)) if i == 1 else None


def _scatter_set_jvp(
    tangents: tuple[Any, ...], out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat
) -> Tensor | None:
    t, dv, *_ = tangents
    kept = None if t is None else mask(t, logical_not(chosen(x.shape, index, arrays)))
    if dv is None:
        return kept
    stays = put_present(mask(dv, is_last(x.shape, index, arrays)), x.shape, index, arrays)
    return stays if kept is None else add_cotangents(kept, stays)


SCATTER_SET = register(
    Op(
        "scatter_set",
        infer=_infer_update,
        kernel=_scatter_set_kernel,
        vjp=_scatter_set_vjp,
        jvp=_scatter_set_jvp,
        needs=(INPUTS,),
        sized=("index",),
    )
)


def _scatter_add_vjp(
    i: int, ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat
) -> Tensor | None:
    if i == 0:
        return ct
    return pick_present(ct, index, arrays) if i == 1 else None


def _scatter_add_jvp(
    tangents: tuple[Any, ...], out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat
) -> Tensor | None:
    t, dv, *_ = tangents
    if dv is None:
        return t  # type: ignore[no-any-return]
    moved = put_present(dv, x.shape, index, arrays)
    return moved if t is None else add_cotangents(t, moved)


SCATTER_ADD = register(
    Op(
        "scatter_add",
        infer=_infer_update,
        kernel=lambda x, values, *arrays, index: scatter_with(np.add, np.array(x, order="C"), values, arrays, index),
        vjp=_scatter_add_vjp,
        jvp=_scatter_add_jvp,
        needs=(INPUTS,),
        sized=("index",),
    )
)


# --- minimum and maximum ---------------------------------------------------------------------------------------------


def _scatter_extremum(name: str, ufunc: Any, beaten: Callable[[Any, Any], Tensor]) -> Op:
    """Declare a minimum or maximum; ``beaten(candidate, out)`` says that another one is the result.

    Comparisons with NaN are false: a result that is NaN depends on all candidates, as for `maximum` and `minimum`.
    """

    def attained(
        out: Tensor, x: Tensor, values: Tensor, arrays: tuple[Tensor, ...], index: Flat
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return which elements and which values attain the result, and how many of them share it."""
        by_element = logical_not(beaten(x, out))
        by_value = logical_not(beaten(values, pick(out, index, arrays)))
        shares = elementwise.add(astype(by_element, x.dtype), put(astype(by_value, x.dtype), x.shape, index, arrays))
        return by_element, by_value, shares

    def vjp(i: int, ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat) -> Tensor | None:
        if i > 1:
            return None
        by_element, by_value, shares = attained(out, x, values, arrays, index)
        share = unscale(ct, shares)
        return mask(share, by_element) if i == 0 else mask(pick_present(share, index, arrays), by_value)

    def jvp(
        tangents: tuple[Any, ...], out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat
    ) -> Tensor | None:
        t, dv, *_ = tangents
        by_element, by_value, shares = attained(out, x, values, arrays, index)
        moved = [] if t is None else [mask(t, by_element)]
        if dv is not None:
            moved.append(put_present(mask(dv, by_value), x.shape, index, arrays))
        return unscale(moved[0] if len(moved) == 1 else add_cotangents(*moved), shares)

    def kernel(x: Any, values: Any, *arrays: Any, index: Flat) -> Any:
        return scatter_with(ufunc, np.array(x, order="C"), values, arrays, index)

    needs = (INPUTS, OUTPUT)
    return register(Op(name, infer=_infer_update, kernel=kernel, vjp=vjp, jvp=jvp, needs=needs, sized=("index",)))


SCATTER_MIN = _scatter_extremum("scatter_min", np.minimum, elementwise.greater)
SCATTER_MAX = _scatter_extremum("scatter_max", np.maximum, elementwise.less)
