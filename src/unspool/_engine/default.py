"""The engine that ``eval()`` uses, made when the first value is asked for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unspool._engine.engine import Engine


@cache
def default_engine() -> Engine:
    """Return the engine that ``eval()`` uses."""
    # Imported here: the engine knows tensors, and tensors ask the engine for their values.
    from unspool._engine.engine import Engine

    return Engine()
