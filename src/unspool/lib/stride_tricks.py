"""Windows over a tensor, under the name NumPy has for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops import indexing, layout
from unspool._ops.leaf import as_tensor
from unspool.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["sliding_window_view"]


def __dir__() -> list[str]:
    return sorted(__all__)


def sliding_window_view(
    x: Any,
    window_shape: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Tensor:
    """Return all windows of some length along axes; each such axis is followed by one for the window, at the end.

    Parameters
    ----------
    x : array_like
    window_shape : int or sequence of int
        The lengths of the windows.
    axis : int or sequence of int, optional
        The axes that they move along; all by default.
    subok, writeable : bool
        As in NumPy; a tensor cannot be written into.

    Examples
    --------
    >>> import unspool as us
    >>> us.lib.stride_tricks.sliding_window_view(us.tensor([1.0, 2.0, 3.0, 4.0]), 2).eval()
    array([[1., 2.],
           [2., 3.],
           [3., 4.]])
    """
    if writeable:
        raise UnsupportedError("windows over a tensor cannot be written into")
    windowed: Tensor = as_tensor(x)
    lengths = [window_shape] if isinstance(window_shape, int) else list(window_shape)
    axes = list(range(windowed.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if len(lengths) != len(axes):
        raise ArgumentError(f"there must be a length for each axis, but window_shape is {lengths} and axis {axes}")
    places = [range(windowed.ndim)[moving] for moving in axes]
    for length, place in zip(lengths, places, strict=True):
        size = windowed.shape[place].__index__()
        if not 0 <= length <= size:
            raise ArgumentError(f"a window of length {length} does not fit axis {place} of size {size}")
        windows = np.arange(size - length + 1)[:, None] + np.arange(length)
        windowed = layout.moveaxis(indexing.take(windowed, windows, axis=place), place + 1, -1)
    return windowed
