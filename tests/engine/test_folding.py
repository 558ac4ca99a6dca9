"""Folding changes what is stored, never what anything means: the traps of doing so, one test each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from unspool._engine.default import default_engine
from unspool._engine.engine import Engine

NEVER = 10**9


@contextmanager
def folding(after: int) -> Iterator[Engine]:
    """Fold pieces so many evaluations after they ran: 0 is at once."""
    engine = default_engine()
    before = engine.queue.after
    engine.queue.after = after
    try:
        yield engine
    finally:
        engine.queue.after = before
