"""Counting elements in bins, composed of a search in the edges and of a scatter.

Counts are piecewise constant in the elements; sums of weights are differentiable in the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import Dim, Size
from unspool._dtypes import COMPLEX, INT64, INTEGERS, UNSIGNED
from unspool._graph import Node
from unspool._ops import elementwise, layout, reduction
from unspool._ops.checks import as_integer
from unspool._ops.creation import linspace, zeros
from unspool._ops.indexing import searchsorted
from unspool._ops.leaf import as_tensor
from unspool.errors import ArgumentError, DTypeError, ShapeError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- integers --------------------------------------------------------------------------------------------------------


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: Size | None = None) -> Tensor:
    """Count how often each integer from 0 on occurs, or add up the weights of its occurrences.

    Parameters
    ----------
    x : array_like of int
        One axis, integers that are not negative.
    weights : array_like, optional
        One for each element.
    minlength : int
        How many counts there are at least.
    length : int or Dim, optional
        How many counts there are. Without it that depends on values, and ``x`` is evaluated.

    Examples
    --------
    >>> import unspool as us
    >>> us.bincount([0, 2, 2]).eval()
    array([1, 0, 2])
    >>> us.bincount([0, 2, 2], weights=[0.5, 1.0, 2.0]).eval()
    array([0.5, 0. , 3. ])
    """
    x = as_tensor(x)
    if x.ndim != 1 or x.dtype not in INTEGERS:
        raise ArgumentError(f"bincount takes integers along one axis, got shape {x.shape} and dtype {x.dtype}")
    least = as_integer(minlength, "minlength", least=0)
    if length is None:
        values = x.eval()
        if values.size and values.min() < 0:
            raise ArgumentError(f"bincount takes integers that are not negative, got {values.min()}")
        length = max(int(values.max()) + 1 if values.size else 0, least)
    return _add_up(elementwise.astype(x, INT64), weights, length, x.shape)


def _add_up(places: Tensor, weights: Any, length: Size, shape: Any, keep: Tensor | None = None) -> Tensor:
    """Return the sums of weights, or counts, by place; where ``keep`` is false, an element does not count."""
    if weights is None:
        amounts: Any = layout.broadcast_to(1, shape)
    else:
        amounts = as_tensor(weights)
        if amounts.dtype not in COMPLEX:
            amounts = elementwise.astype(amounts, "float64")
        if amounts.shape != shape:
            raise ShapeError(f"weights are one for each element, expected shape {shape}, got {amounts.shape}")
    if keep is not None:
        amounts = elementwise.where(keep, amounts, 0)
    return zeros((length,), amounts.dtype).at[places].add(amounts)


def digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    """Return the number of the bin that each element is in; 0 and ``len(bins)`` are before the first and after all.

    Parameters
    ----------
    x : array_like
        The elements.
    bins : array_like
        The edges, rising or falling: to see which, they are evaluated.
    right : bool
        Whether a bin includes its upper edge instead of its lower one.

    Examples
    --------
    >>> import unspool as us
    >>> us.digitize([0.2, 6.4, 3.0], [0.0, 1.0, 2.5, 4.0]).eval()
    array([1, 4, 3])
    """
    bins = as_tensor(bins)
    if bins.ndim != 1:
        raise ShapeError(f"the edges of bins are along one axis, got shape {bins.shape}")
    if not COMPLEX.isdisjoint((as_tensor(x).dtype, bins.dtype)):
        raise DTypeError(f"digitize needs numbers with an order, got {as_tensor(x).dtype} and edges {bins.dtype}")
    edges = bins.eval()
    # Not by differences, which of unsigned numbers are never negative.
    if np.all(edges[:-1] <= edges[1:]):
        return searchsorted(bins, x, side="left" if right else "right")
    if not np.all(edges[:-1] >= edges[1:]):
        raise ArgumentError("the edges of bins rise or fall, these do neither")
    return elementwise.subtract(len(edges), searchsorted(layout.flip(bins), x, side="left" if right else "right"))


# --- histograms ------------------------------------------------------------------------------------------------------


def histogram_bin_edges(x: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Tensor:
    """Return the edges of the bins of a histogram: see `histogram`.

    Examples
    --------
    >>> import unspool as us
    >>> us.histogram_bin_edges([0.0, 1.0, 2.0], bins=2).eval()
    array([0., 1., 2.])
    """
    return _edges(layout.ravel(_real(x)), bins, range)


def histogram(
    x: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """Count elements in bins.

    Parameters
    ----------
    x : array_like
        The elements, of any shape.
    bins : int or array_like
        How many bins of one width, or their edges, in rising order.
    range : tuple of float, optional
        The first and the last edge, if ``bins`` is a number; by default the smallest and the largest element.
    density : bool
        Divide by the number of elements and the widths of the bins.
    weights : array_like, optional
        One for each element: they are added up in place of counting.

    Returns
    -------
    counts, edges : Tensor
        All bins but the last include their lower edge alone.

    Examples
    --------
    >>> import unspool as us
    >>> counts, edges = us.histogram([1.0, 2.0, 1.0], bins=[0.0, 1.0, 2.0, 3.0])
    >>> counts.eval()
    array([0, 2, 1])
    """
    counts, edges = histogramdd([layout.ravel(_real(x))], [bins], [range], density, _flat(weights, x))
    wanted = INT64 if weights is None else as_tensor(weights).dtype
    return counts if density else elementwise.astype(counts, wanted), edges[0]


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Count pairs in rectangular bins; see `histogram`. One number or one set of edges of bins is for both directions.

    Examples
    --------
    >>> import unspool as us
    >>> counts, *edges = us.histogram2d([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], bins=2)
    >>> counts.eval()
    array([[1., 0.],
           [1., 1.]])
    """
    pairs = [layout.ravel(_real(x)), layout.ravel(_real(y))]
    is_pair = isinstance(bins, (list, tuple)) and len(bins) == 2
    counts, edges = histogramdd(pairs, list(bins) if is_pair else [bins, bins], range, density, weights)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, list[Tensor]]:
    """Count points in boxes; see `histogram`.

    Parameters
    ----------
    sample : array_like, shape (m, d), or sequence of d array_like
        The points, or their coordinates in each direction.
    bins : int or sequence
        For all directions, or for each: how many bins, or their edges.
    range : sequence of tuple, optional
        For each direction the first and the last edge, or ``None``.
    density : bool
        Divide by the number of points and the volumes of the boxes.
    weights : array_like, optional
        One for each point.

    Examples
    --------
    >>> import unspool as us
    >>> counts, edges = us.histogramdd([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], bins=2)
    >>> counts.eval()
    array([[1., 0.],
           [1., 1.]])
    """
    directions = _directions(sample)
    rank = len(directions)
    each = list(bins) if isinstance(bins, (list, tuple)) else [bins] * rank
    ranges = list(range) if isinstance(range, (list, tuple)) else [None] * rank
    if len(each) != rank or len(ranges) != rank or (range is not None and not isinstance(range, (list, tuple))):
        raise ArgumentError(f"a histogram in {rank} directions takes bins and ranges for each, got {bins!r}, {range!r}")
    edges = [_edges(x, b, r) for x, b, r in zip(directions, each, ranges, strict=True)]
    place, keep = as_tensor(0), as_tensor(True)
    shape = tuple(_length(e) - 1 for e in edges)
    for x, edge, count in zip(directions, edges, shape, strict=True):
        found = elementwise.minimum(searchsorted(edge, x, side="right") - 1, count - 1)
        keep = elementwise.logical_and(keep, (x >= edge[0]) & (x <= edge[-1]))
        place = place * count + elementwise.maximum(found, 0)
    total = int(np.prod(shape))
    amounts = 1.0 if weights is None else weights
    flat = _add_up(place, layout.broadcast_to(amounts, directions[0].shape), total, directions[0].shape, keep)
    counts = layout.reshape(flat, shape)
    return (_per_volume(counts, edges) if density else counts), edges


def _per_volume(counts: Tensor, edges: list[Tensor]) -> Tensor:
    total = reduction.sum(counts)
    for axis, edge in enumerate(edges):
        widths = edge[1:] - edge[:-1]
        counts = counts / layout.reshape(widths, layout.replaced((1,) * len(edges), axis, widths.shape[0]))
    return counts / total


def _directions(sample: Any) -> list[Tensor]:
    if isinstance(sample, (list, tuple)) and sample and isinstance(sample[0], Node):
        found = [_real(x) for x in sample]
    else:
        points = _real(sample)
        if points.ndim == 1:
            points = layout.reshape(points, (points.shape[0], 1))
        if points.ndim != 2:
            raise ShapeError(f"points are a matrix with one row each, got shape {points.shape}")
        found = list(layout.unstack(points, axis=1))
    if not found or any(x.ndim != 1 or x.shape != found[0].shape for x in found):
        raise ShapeError(f"points have as many coordinates in each direction, got {[x.shape for x in found]}")
    return found


def _real(x: Any) -> Tensor:
    tensor = as_tensor(x)
    if tensor.dtype in COMPLEX:
        raise DTypeError(f"a histogram needs numbers with an order, got {tensor.dtype}")
    return elementwise.astype(tensor, INT64) if tensor.dtype in UNSIGNED or tensor.dtype.kind == "b" else tensor


def _flat(weights: Any, x: Any) -> Any:
    return None if weights is None else layout.ravel(layout.broadcast_to(weights, as_tensor(x).shape))


def _length(edges: Tensor) -> int:
    size = edges.shape[0]
    if isinstance(size, Dim):
        raise UnknownSizeError(f"how many bins a histogram has must be known when it is built, got {size} edges")
    return size


def _edges(x: Tensor, bins: Any, range: Any) -> Tensor:
    if isinstance(bins, str):
        raise ArgumentError(f"bins are a number or edges, got {bins!r}: np.histogram_bin_edges(x.eval(), {bins!r})")
    if isinstance(bins, (list, tuple, Node, np.ndarray)) and np.ndim(bins):  # type: ignore[arg-type]
        edges = as_tensor(bins)
        if edges.ndim != 1 or edges.shape[0] == 0 or edges.dtype in COMPLEX:
            raise ArgumentError(f"the edges of bins are real numbers along one axis, got {edges.shape} {edges.dtype}")
        return edges
    count = as_integer(bins, "bins", least=1)
    if range is None:
        if x.size == 0:
            return linspace(0.0, 1.0, count + 1)
        x = elementwise.as_inexact(x)
        first, last = reduction.min(x), reduction.max(x)
    else:
        if not isinstance(range, (list, tuple)) or len(range) != 2:
            raise ArgumentError(f"a range of bins is two numbers, got {range!r}")
        first, last = (elementwise.as_inexact(end) for end in range)
    # A bin of no width would count nothing.
    same = elementwise.equal(first, last)
    return linspace(elementwise.where(same, first - 0.5, first), elementwise.where(same, last + 0.5, last), count + 1)
