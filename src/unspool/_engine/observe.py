"""Observers: what debugging tools see of an evaluation.

Without an observer the engine pays a single look-up a pass. An observer belongs to the context that set it, so other
threads are not watched. It must not keep the nodes it is shown: the engine would take them for nodes that somebody may
still ask for, and hold their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from unspool._graph import Node


class Observer(Protocol):
    """Something that is told of every kernel call."""

    def after(self, node: Node, arguments: Any, value: Any) -> None:
        """Called with a node, the arrays its kernel got and what it returned."""


class _Both:
    """Two observers as one: the one that was there first is told first."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first, self._second = first, second

    def after(self, node: Node, arguments: Any, value: Any) -> None:
        self._first.after(node, arguments, value)
        self._second.after(node, arguments, value)


_observer: ContextVar[Observer | None] = ContextVar("unspool_observer", default=None)


# Returns the observer of the current context, if any. Every evaluation asks, so there is no function around it.
current_observer = _observer.get


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show every kernel call of the block to an observer, beside those that watch already."""
    before = _observer.get()
    token = _observer.set(observer if before is None else _Both(before, observer))
    try:
        yield
    finally:
        _observer.reset(token)
