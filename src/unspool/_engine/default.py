"""The engine that ``eval()`` uses, made when the first value is asked for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unspool._engine.engine import Evaluator


@cache
def default_engine() -> Evaluator:
    """Return the engine that ``eval()`` uses."""
    # Imported here: the engine knows tensors, and tensors ask the engine for their values.
    from unspool._engine.engine import Evaluator

    return Evaluator()
