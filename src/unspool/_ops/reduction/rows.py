"""Absence through linear functions that mix the elements of a row: what a row of absent elements becomes is absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool._ops import elementwise, layout
from unspool._ops.reduction.logic import any

if TYPE_CHECKING:
    from collections.abc import Callable

    from unspool._tensor import Tensor


def through_rows(ct: Tensor, axis: tuple[int, ...], function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a linear function that mixes elements along axes to a cotangent; a row is absent if all its elements are.

    The function may change the size of these axes.
    """
    result = function(ct)
    if ct.op is not elementwise.MASK:
        return result
    keep = layout.broadcast_to(ct.inputs[1], ct.shape)
    return elementwise.mask(result, layout.broadcast_to(any(keep, axis=axis, keepdims=True), result.shape))
