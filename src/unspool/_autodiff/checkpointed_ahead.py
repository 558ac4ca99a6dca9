"""One item ahead: while a consumer works on what it was given, a thread of a pool makes the next.

The items are those of one generator, made one after the other, so nothing about them changes but when.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from unspool._engine.meanwhile import Meanwhile
from unspool._engine.quiet import run_quietly

Item = TypeVar("Item")

_END: Any = object()


def ahead(pool: Any, source: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield what a generator yields, the next item of which a pool of threads makes meanwhile.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as pool:
    ...     list(ahead(pool, (k * k for k in range(4))))
    [0, 1, 4, 9]
    """
    make: Callable[[], Item] = partial(run_quietly, next, source, _END)
    item = make()
    while item is not _END:
        following = Meanwhile(pool, make)
        try:
            yield item
        except BaseException:
            following.leave()  # nobody else may have the generator when this one ends
            raise
        item = following.result()
