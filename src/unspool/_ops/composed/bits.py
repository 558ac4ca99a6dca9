"""Bits as bytes and bytes as bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import EXACT, UINT8
from unspool._ops import elementwise, layout, reduction
from unspool._ops.checks import as_integer, one_of
from unspool._ops.indexing.access import getitem
from unspool._ops.layout.padding import pad
from unspool._ops.leaf import as_tensor, constant
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def packbits(x: Any, axis: int | None = None, bitorder: str = "big") -> Tensor:
    """Return eight elements each along an axis as the bits of a byte: 1 where they are not 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.packbits([1, 0, 1, 0, 0, 0, 0, 0, 1]).eval()
    array([160, 128], dtype=uint8)
    """
    x = as_tensor(x)
    if x.dtype not in EXACT:
        raise DTypeError(f"packbits takes bools or integers, got dtype {x.dtype}")
    rows = _axis_last(x, axis)
    size = rows.shape[-1]
    count = (size + 7) // 8
    padded = pad(elementwise.not_equal(rows, 0), [(0, 0)] * (rows.ndim - 1) + [(0, count * 8 - size)])
    bits = elementwise.astype(layout.reshape(padded, (*rows.shape[:-1], count, 8)), UINT8)
    packed = reduction.sum(elementwise.bitwise_left_shift(bits, _shifts(bitorder)), axis=-1, dtype=UINT8)
    return packed if axis is None else layout.moveaxis(packed, -1, axis)


def unpackbits(x: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Tensor:
    """Return the bits of bytes along an axis.

    Parameters
    ----------
    x : array_like of uint8
        The bytes.
    axis : int, optional
        Along which axis; ``None`` means the flattened tensor.
    count : int, optional
        How many bits; if there are fewer, zeros follow, and a negative number leaves as many out at the end.
    bitorder : {"big", "little"}
        Whether the highest bit of a byte is the first or the last.

    Examples
    --------
    >>> import unspool as us
    >>> us.unpackbits(us.asarray([160], dtype="uint8")).eval()
    array([1, 0, 1, 0, 0, 0, 0, 0], dtype=uint8)
    """
    x = as_tensor(x)
    if x.dtype != UINT8:
        raise DTypeError(f"unpackbits takes uint8, got dtype {x.dtype}")
    rows = _axis_last(x, axis)
    wide = layout.reshape(rows, (*rows.shape, 1))
    bits = elementwise.bitwise_and(elementwise.bitwise_right_shift(wide, _shifts(bitorder)), constant(1, UINT8))
    flat = layout.reshape(bits, (*rows.shape[:-1], rows.shape[-1] * 8))
    if count is not None:
        wanted = as_integer(count, "count")
        missing = wanted - flat.shape[-1] if wanted > 0 else 0
        if isinstance(missing, int) and missing > 0:
            flat = pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, missing)])
        flat = getitem(flat, (..., slice(None, wanted)))
    return flat if axis is None else layout.moveaxis(flat, -1, axis)


def _axis_last(x: Tensor, axis: int | None) -> Tensor:
    return layout.ravel(x) if axis is None else layout.moveaxis(x, layout.normalize_axis(axis, x.ndim), -1)


def _shifts(bitorder: Any) -> Tensor:
    rising = np.arange(8, dtype=UINT8)
    return constant(rising if one_of(bitorder, ("big", "little"), "bitorder") == "little" else rising[::-1])
