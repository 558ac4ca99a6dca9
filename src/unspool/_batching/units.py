"""Sweeps along every element of a tensor, as one batch: what whole Jacobians are made of.

A sweep is linear in what it starts from. It is recorded once, on a stand-in, and batched over the unit vectors, so what
does not depend on the direction is computed once. How many directions there are at a time follows from sizes alone, so
a memory budget does not change the bits, but for one in which the largest array of such a block has no place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._batching.images import Image, Images, batch_graph, spread_image
from unspool._batching.widths import array_sizes, width_of
from unspool._dims import product
from unspool._dtypes import COMPLEX
from unspool._engine.default import default_engine
from unspool._graph import ancestors
from unspool._ops.creation import eye
from unspool._ops.layout import concat, reshape
from unspool._ops.leaf import constant, placeholder

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Sweep = Callable[["Tensor"], Sequence[Any]]

# The share of a budget that the largest array of a block may take. What cannot be evicted within a budget is a state, a
# few such arrays, and what is differentiated is held as well.
_SHARE = 16


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
    """Return how many directions there are at a time.

    A product of fewer rows may round in another way, so the width is the same with and without a budget. It is halved
    for a budget that could not have one of its arrays, such as the states of all steps of a loop.
    """
    made = ancestors([r for r in swept if r is not None], newer_than=arriving.id)
    arrays = array_sizes(made)
    width = min(count, width_of(arrays))
    ledger = default_engine().ledger
    if ledger.is_strict:
        while width > 1 and width * max(arrays, default=0) > ledger.limit // _SHARE:
            width = -(-width // 2)
    return width
