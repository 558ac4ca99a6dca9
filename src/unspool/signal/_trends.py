"""Removing a constant or a line from numbers: what is left is a fixed linear function of them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops import layout
from unspool._ops.checks import as_integer, one_of
from unspool._ops.contraction import matmul
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.layout.reshaping import normalize_axis
from unspool._ops.leaf import constant
from unspool._ops.reduction import mean
from unspool.errors import ArgumentError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0) -> Tensor:
    """Subtract the mean, or the line that fits best, along an axis.

    Parameters
    ----------
    data : array_like
    axis : int
    type : {"linear", "constant"}
    bp : int or sequence of int
        Where a line ends and the next one begins.

    Examples
    --------
    >>> import unspool as us
    >>> us.signal.detrend([1.0, 3.0, 5.0, 8.0]).eval().round(6)
    array([ 0.2, -0.1, -0.4,  0.3])
    """
    one_of(type, ("linear", "constant", "l", "c"), "type")
    x = as_inexact(data)
    along = normalize_axis(axis, x.ndim)
    if type.startswith("c"):
        return x - mean(x, axis=along, keepdims=True)
    size = x.shape[along]
    if not isinstance(size, int):
        raise UnknownSizeError(f"detrend needs to know how many numbers there are, got {size}")
    places = [as_integer(place, "bp") for place in (bp if isinstance(bp, (list, tuple, np.ndarray)) else [bp])]
    breaks = np.unique([0, size, *places])
    if breaks[0] < 0 or breaks[-1] > size:
        raise ArgumentError(f"lines break between 0 and {size}, got {bp!r}")
    trend = constant(_projection(size, breaks).astype(x.dtype))
    moved = layout.moveaxis(x, along, -1)
    return layout.moveaxis(moved - matmul(layout.expand_dims(moved, -2), trend)[..., 0, :], -1, along)


def _projection(size: int, breaks: Any) -> Any:
    """Return the matrix that makes of numbers the lines that fit best, one between any two breaks."""
    found = np.zeros((size, size))
    for first, last in pairwise(breaks):
        steps = np.arange(1, last - first + 1) / (last - first)
        basis, _ = np.linalg.qr(np.stack([steps, np.ones_like(steps)], axis=1))
        basis = basis[:, : last - first]
        found[first:last, first:last] = basis @ basis.T
    return found
