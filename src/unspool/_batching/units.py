"""Sweeps along every element of a tensor, as one batch: what whole Jacobians are made of.

A sweep is linear in what it starts from. It is recorded once, on a stand-in, and batched over the unit vectors, so what
does not depend on the direction is computed once. Within a memory budget there are as many directions at a time as it
has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._batching.images import Image, Images, batch_graph, spread_image
from unspool._dims import product
from unspool._dtypes import COMPLEX
from unspool._engine.default import default_engine
from unspool._engine.planning import nbytes
from unspool._fragments.call import Call
from unspool._graph import Bundle, ancestors
from unspool._ops.creation import eye
from unspool._ops.layout import concat, reshape
from unspool._ops.leaf import constant, placeholder

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Sweep = Callable[["Tensor"], Sequence[Any]]

# The share of a budget that a batch of sweeps may take: what it differentiates is held as well.
_SHARE = 4


def swept_units(x: Tensor, sweep: Sweep, holomorphic: bool) -> list[list[Tensor] | None]:
    """Return what a sweep gives along the elements of a tensor, which are a first axis.

    For each result one tensor with what moving elements along 1 gives, and one for i if they are complex and the
    function is not holomorphic; ``None`` for a result that does not move.
    """
    units = (1, 1j) if x.dtype in COMPLEX and not holomorphic else (1,)
    count = int(product(x.shape))
    if count == 1:
        alone = [sweep(constant(np.full(x.shape, unit, x.dtype))) for unit in units]
        return [
            None if any(r is None for r in parts) else [reshape(r, (1, *r.shape)) for r in parts]
            for parts in zip(*alone, strict=True)
        ]
    arriving = placeholder(x.shape, x.dtype)
    swept = sweep(arriving)
    if count == 0:
        return [None] * len(swept)
    width = _width(swept, arriving, count)
    found: list[list[Tensor] | None] = [None if r is None else [] for r in swept]
    for unit in units:
        pieces = [_batch(swept, arriving, unit, start, min(start + width, count)) for start in range(0, count, width)]
        for place, parts in zip(found, zip(*pieces, strict=True), strict=True):
            if place is not None:
                place.append(parts[0] if len(parts) == 1 else concat(list(parts)))
    return found


def _batch(swept: Sequence[Any], arriving: Tensor, unit: complex, start: int, stop: int) -> list[Any]:
    """Return the results of a sweep along some of the elements, in row-major order."""
    count = int(product(arriving.shape))
    rows = eye(count, dtype=arriving.dtype)
    rows = rows if (start, stop) == (0, count) else rows[start:stop]
    whole = reshape(rows if unit == 1 else rows * unit, (stop - start, *arriving.shape))
    images: Images = {arriving.id: Image(whole, True)}
    found = iter(batch_graph([r for r in swept if r is not None], images, stop - start))
    return [None if r is None else spread_image(next(found), stop - start) for r in swept]


def _width(swept: Sequence[Any], arriving: Tensor, count: int) -> int:
    """Return how many directions there are at a time: all of them, but for a budget that has no room for that."""
    ledger = default_engine().ledger
    if not ledger.is_strict:
        return count
    made = ancestors([r for r in swept if r is not None], newer_than=arriving.id)
    one = sum(nbytes(shape, dtype) for node in made for shape, dtype in _outputs(node))
    return max(1, min(count, ledger.limit // _SHARE // max(1, one)))


def _outputs(node: Any) -> list[tuple[Any, Any]]:
    """Return shapes and dtypes of what a node gives."""
    several = type(node) is Bundle or type(node) is Call
    return list(zip(node.shape, node.dtype, strict=True)) if several else [(node.shape, node.dtype)]
