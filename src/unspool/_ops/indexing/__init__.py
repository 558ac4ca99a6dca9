"""The indexing family: reading parts of tensors, making tensors with parts replaced, and sorting.

`parse` turns an index expression into a hashable `template` (with `slices` in normal form) and index tensors;
`selection` and `update_ops` are the ops; `access`, `updates` and `sorting` are what users call; `repeated` has the
products into elements that an index names more than once, `rows` the sum of what many selections send back. Each is
loaded when one of its names is asked for.
"""

from typing import TYPE_CHECKING

from unspool._ops.later import later

if TYPE_CHECKING:
    from unspool._ops.indexing.access import (
        argwhere,
        compress,
        extract,
        flatnonzero,
        getitem,
        nonzero,
        put_along_axis,
        take,
        take_along_axis,
    )
    from unspool._ops.indexing.rows import RowSum, Selection, selection_of
    from unspool._ops.indexing.sorting import argsort, searchsorted, sort
    from unspool._ops.indexing.updates import IndexedUpdate, IndexUpdater

__all__ = [
    "IndexUpdater",
    "IndexedUpdate",
    "RowSum",
    "Selection",
    "argsort",
    "argwhere",
    "compress",
    "extract",
    "flatnonzero",
    "getitem",
    "nonzero",
    "put_along_axis",
    "searchsorted",
    "selection_of",
    "sort",
    "take",
    "take_along_axis",
]

# Where to find what is loaded when it is first asked for.
_LATER = {
    "argwhere": "access",
    "compress": "access",
    "extract": "access",
    "flatnonzero": "access",
    "getitem": "access",
    "nonzero": "access",
    "put_along_axis": "access",
    "take": "access",
    "take_along_axis": "access",
    "RowSum": "rows",
    "Selection": "rows",
    "selection_of": "rows",
    "argsort": "sorting",
    "searchsorted": "sorting",
    "sort": "sorting",
    "IndexUpdater": "updates",
    "IndexedUpdate": "updates",
}

__getattr__ = later(__name__, _LATER)
