"""The engine that ``eval()`` uses, made when the first value is asked for."""

from __future__ import annotations

from functools import cache

from unspool import _core
from unspool._engine.engine import Evaluator
from unspool._engine.levels import Numbering


@cache
def default_engine() -> Evaluator:
    """Return the engine that ``eval()`` uses."""
    engine = Evaluator()
    Numbering.levels = engine.levels
    _core.bind(runner=engine.runner)
    return engine
