"""The engine that ``eval()`` uses, made when the first value is asked for."""

from __future__ import annotations

from functools import cache

from unspool._engine.engine import Evaluator


@cache
def default_engine() -> Evaluator:
    """Return the engine that ``eval()`` uses."""
    return Evaluator()
