"""Locks, and what each thread has of its own, without the module `threading`.

A first gradient would wait for that module, of which the library uses these alone, and which gives them from the same
place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Lock", "RLock", "get_ident", "local"]

if TYPE_CHECKING:
    from threading import Lock, RLock, get_ident, local
else:
    import _thread

    Lock, RLock, get_ident, local = _thread.allocate_lock, _thread.RLock, _thread.get_ident, _thread._local
