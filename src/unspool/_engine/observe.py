"""Observers: what debugging tools see of an evaluation.

Without an observer the engine pays a single look-up a pass. An observer belongs to the context that set it, so other
threads are not watched. It must not keep the nodes it is shown: the engine would take them for nodes that somebody may
still ask for, and hold their values.

To an observer a loop is one kernel. One that wants to see the steps has *watchers*: while a kernel is shown, whoever
makes steps of a loop in it lets the watchers look at each of them first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from unspool._graph import Node
from unspool._records import Protocol

if TYPE_CHECKING:
    from unspool._engine.plan import Plan


class Watcher(Protocol):
    """Something that looks at the steps of loops before they are made."""

    def run_step(self, plan: Plan, values: Sequence[Any], k: int) -> Sequence[Any]:
        """Return the outputs of step ``k`` from the arrays that it reads, or raise `Stop`."""


class Observer(Protocol):
    """Something that is told of every kernel call."""

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """Who looks at the steps of loops; none if a loop is one kernel."""

    def after(self, node: Node, arguments: Any, value: Any, call: Node | None = None) -> None:
        """Called with a node, the arrays its kernel got and what it returned, and the call that it is inside of."""


class Stop(BaseException):
    """Carries the error of a watcher past those who would take it for the failure of a kernel."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Both:
    """Two observers as one: the one that was there first is told first."""

    __slots__ = ("_first", "_second", "watchers")

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first, self._second = first, second
        self.watchers = (*first.watchers, *second.watchers)

    def after(self, node: Node, arguments: Any, value: Any, call: Node | None = None) -> None:
        self._first.after(node, arguments, value, call)
        self._second.after(node, arguments, value, call)


OBSERVER: ContextVar[Observer | None] = ContextVar("unspool_observer", default=None)
_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("unspool_watchers", default=())


# Returns the observer of the current context, if any. Every evaluation asks, so there is no function around it.
current_observer = OBSERVER.get

# Returns who looks at the steps of a loop that is about to run.
current_watchers = _watchers.get


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show every kernel call of the block to an observer, beside those that watch already."""
    before = OBSERVER.get()
    token = OBSERVER.set(observer if before is None else _Both(before, observer))
    try:
        yield
    finally:
        OBSERVER.reset(token)


def shown(observer: Observer | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that runs kernels, and let the watchers of an observer see the steps of loops in them."""
    if observer is None or not observer.watchers:
        return function(*arguments)
    return watched(observer.watchers, function, *arguments)


def watched(watchers: tuple[Watcher, ...], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function and let watchers see the steps of loops in it; what they raise is raised."""
    token = _watchers.set(watchers)
    try:
        return function(*arguments)
    except Stop as stop:
        raise stop.error from None
    finally:
        _watchers.reset(token)
