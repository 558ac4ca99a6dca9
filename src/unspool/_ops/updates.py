"""Functional updates: ``t.at[index].set(values)`` and its kin return an updated tensor and leave ``t`` as it is.

An element that an index selects several times is updated several times, in row-major order of the selection: sums and
products accumulate, and the last value that is set stays. Derivatives say the same: the cotangent of an element that
was set goes to the value that stayed, that of a minimum or maximum in equal parts to all that attain it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import COMPLEX, INEXACT
from unspool._graph import Node
from unspool._ops import elementwise
from unspool._ops.elementwise import add_cotangents, astype, logical_not, logical_or, mask, unscale
from unspool._ops.index_parse import ParsedIndex, parse_index
from unspool._ops.index_template import Flat, decode, flat_positions
from unspool._ops.layout import broadcast_to, reshape
from unspool._ops.leaf import as_tensor, scalar
from unspool._ops.op import INPUTS, OUTPUT, Op, register
from unspool._ops.repeated import multiply_repeatedly
from unspool._ops.selection import chosen, is_last, pick, pick_present, put, put_present, scatter_with, select
from unspool.errors import DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class IndexUpdater:
    """What ``t.at`` is: index it to say which elements to update.

    Examples
    --------
    >>> import unspool as us
    >>> us.tensor([1.0, 2.0, 3.0]).at[1:].multiply(10.0).eval()
    array([ 1., 20., 30.])
    """

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __getitem__(self, index: Any) -> IndexedUpdate:
        return IndexedUpdate(self._tensor, parse_index(self._tensor, index))


class IndexedUpdate:
    """Updates of the elements that an index selects; every method returns a new tensor.

    Values broadcast to the shape of the selection and take the dtype of the tensor; those that do not fit (complex into
    real, fractions into integers) are refused with `DTypeError`.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0, 3.0])
    >>> x.at[[0, 0]].add([10.0, 20.0]).eval()
    array([31.,  2.,  3.])
    """

    __slots__ = ("_parsed", "_tensor")

    def __init__(self, tensor: Tensor, parsed: ParsedIndex) -> None:
        self._tensor = tensor
        self._parsed = parsed

    def get(self) -> Tensor:
        """Return the selected elements: ``t[index]``."""
        return select(self._parsed)

    def set(self, values: Any) -> Tensor:
        """Replace the selected elements; of values for one element the last stays."""
        return self._update(set_at, values)

    def add(self, values: Any) -> Tensor:
        """Add to the selected elements; values for one element add up."""
        return self._update(add_at, values)

    def subtract(self, values: Any) -> Tensor:
        """Subtract from the selected elements; values for one element add up."""
        return self._update(lambda parsed, v: add_at(parsed, elementwise.negative(v)), values)

    def multiply(self, values: Any) -> Tensor:
        """Multiply the selected elements; values for one element all multiply it."""
        return self._update(multiply_at, values)

    def divide(self, values: Any) -> Tensor:
        """Divide the selected elements; values for one element all divide it.

        Where elements may be selected several times, this multiplies by the reciprocals.
        """
        if self._tensor.dtype not in INEXACT:
            raise DTypeError(f"division gives fractions, which do not fit a tensor of dtype {self._tensor.dtype}")
        return self._update(_divide_at, values)

    def min(self, values: Any) -> Tensor:
        """Take the smaller of the selected elements and the values."""
        return self._extremum(SCATTER_MIN, elementwise.minimum, values)

    def max(self, values: Any) -> Tensor:
        """Take the larger of the selected elements and the values."""
        return self._extremum(SCATTER_MAX, elementwise.maximum, values)

    def _extremum(self, op: Op, function: Callable[[Any, Any], Tensor], values: Any) -> Tensor:
        if self._tensor.dtype in COMPLEX:
            raise DTypeError(f"there is no smaller or larger among numbers of dtype {self._tensor.dtype}")
        return self._update(lambda parsed, v: _extremum_at(op, function, parsed, v), values)

    def _update(self, rule: Callable[[ParsedIndex, Tensor], Tensor], values: Any) -> Tensor:
        parsed = self._parsed
        updated = rule(parsed, _fitted(values, select(parsed)))
        # A mask without axes gave the tensor one (see `index_parse`).
        return updated if updated.ndim == self._tensor.ndim else reshape(updated, self._tensor.shape)


def _fitted(values: Any, selection: Tensor) -> Tensor:
    """Return the values in the dtype and shape of a selection."""
    dtype = selection.dtype
    fitted = scalar(values, dtype) if type(values) in (bool, int, float, complex) else as_tensor(values)
    if not np.can_cast(fitted.dtype, dtype, "same_kind"):
        raise DTypeError(f"values of dtype {fitted.dtype} do not fit a tensor of dtype {dtype}; convert them first")
    extra = fitted.ndim - selection.ndim
    try:
        if extra > 0 and fitted.shape[:extra] == (1,) * extra:  # NumPy lets leading axes of size 1 go
            fitted = reshape(fitted, fitted.shape[extra:])
        return broadcast_to(astype(fitted, dtype), selection.shape)
    except ShapeError:
        raise ShapeError(
            f"values of shape {fitted.shape} cannot be broadcast to the selected elements, of shape {selection.shape}"
        ) from None


# --- the updates -----------------------------------------------------------------------------------------------------


def set_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    """Return the indexed tensor with its selected elements replaced."""
    x, index, arrays = parsed
    return _graph.apply(SCATTER_SET if arrays else SLICE_SET, x, values, *arrays, index=index)


def add_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    """Return the indexed tensor with values added to its selected elements."""
    x, index, arrays = parsed
    return _graph.apply(SCATTER_ADD if arrays else SLICE_ADD, x, values, *arrays, index=index)


def multiply_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    """Return the indexed tensor with its selected elements multiplied."""
    if parsed.is_repetitive():
        return reshape(set_at(*multiply_repeatedly(parsed, values)), parsed.base.shape)
    return set_at(parsed, elementwise.multiply(select(parsed), values))


def _divide_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    if parsed.is_repetitive():
        return multiply_at(parsed, elementwise.divide(1, values))
    return set_at(parsed, elementwise.divide(select(parsed), values))


def _extremum_at(op: Op, function: Callable[[Any, Any], Tensor], parsed: ParsedIndex, values: Tensor) -> Tensor:
    if parsed.is_repetitive():
        return _graph.apply(op, parsed.base, values, *parsed.arrays, index=parsed.template)
    return set_at(parsed, function(select(parsed), values))


# --- without index arrays --------------------------------------------------------------------------------------------


def _infer_update(x: Node, values: Node, *arrays: Node, index: Flat) -> tuple[Shape, Any]:
    return x.shape, x.dtype


def _slice_set_kernel(x: Any, values: Any, *, index: Flat) -> Any:
    out = np.array(x)
    out[decode(index).items] = values
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
    )
)


def _slice_add_kernel(x: Any, values: Any, *, index: Flat) -> Any:
    out = np.array(x)
    view = out[decode(index).items]
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


def _attained(
    out: Tensor, x: Tensor, values: Tensor, arrays: tuple[Tensor, ...], index: Flat
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which elements and which values attain the result, and how many of them share each element."""
    untouched = logical_not(chosen(x.shape, index, arrays))
    by_element = logical_or(untouched, elementwise.equal(out, x))
    by_value = elementwise.equal(pick(out, index, arrays), values)
    shares = elementwise.add(astype(by_element, x.dtype), put(astype(by_value, x.dtype), x.shape, index, arrays))
    return by_element, by_value, shares


def _extremum_vjp(
    i: int, ct: Tensor, out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat
) -> Tensor | None:
    if i > 1:
        return None
    by_element, by_value, shares = _attained(out, x, values, arrays, index)
    share = unscale(ct, shares)
    return mask(share, by_element) if i == 0 else mask(pick_present(share, index, arrays), by_value)


def _extremum_jvp(
    tangents: tuple[Any, ...], out: Tensor, x: Tensor, values: Tensor, *arrays: Tensor, index: Flat
) -> Tensor | None:
    t, dv, *_ = tangents
    by_element, by_value, shares = _attained(out, x, values, arrays, index)
    moved = [] if t is None else [mask(t, by_element)]
    if dv is not None:
        moved.append(put_present(mask(dv, by_value), x.shape, index, arrays))
    return unscale(moved[0] if len(moved) == 1 else add_cotangents(*moved), shares)


def _scatter_extremum(name: str, ufunc: Any) -> Op:
    def kernel(x: Any, values: Any, *arrays: Any, index: Flat) -> Any:
        return scatter_with(ufunc, np.array(x, order="C"), values, arrays, index)

    return register(
        Op(
            name,
            infer=_infer_update,
            kernel=kernel,
            vjp=_extremum_vjp,
            jvp=_extremum_jvp,
            needs=(INPUTS, OUTPUT),
            sized=("index",),
        )
    )


SCATTER_MIN = _scatter_extremum("scatter_min", np.minimum)
SCATTER_MAX = _scatter_extremum("scatter_max", np.maximum)
