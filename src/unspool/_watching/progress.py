"""`unspool.progress`: a line that tells how far a program is, while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar

from unspool._activity import ACTIVITY
from unspool._watching.line import Line, make_line
from unspool._watching.seen import Eye, clock
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["progress"]

T = TypeVar("T")

# Those that are open, the outermost first: it draws, and the innermost that has told something is shown.
_OPEN: list[progress[Any]] = []


class progress(Generic[T]):  # noqa: N801 - used like a function, in a with statement or around what is gone through
    """Show how far a program is, in a line that lives on a terminal or in a notebook.

    The line tells steps, how many there are in a second, the time left where the number of steps is known, memory
    beside the budget of `memory`, and how often a step ran on average where values are recomputed. It does so for plain
    loops, for `iterate` and `fixed_point`, and for the backward pass of a gradient. In a pipe or a file nothing is
    written. It takes less than 1 % of the time.

    Parameters
    ----------
    steps : iterable, optional
        What a loop goes through: ``for k in us.progress(range(100)):`` shows its steps and ends with it.
    total : int, optional
        How many steps there are, where ``steps`` is not given or has no length.
    unit : str
        What a step is called.
    file : text file, optional
        Where to write; the standard error by default.

    Examples
    --------
    Around a loop and its gradient, whatever they are made of:

    >>> import unspool as us
    >>> with us.progress():
    ...     x, steps = us.iterate(us.cos, us.tensor(1.0), max_steps=1000)
    ...     slope = x.eval()

    Around what a loop goes through:

    >>> x = us.tensor(1.0)
    >>> for k in us.progress(range(100)):
    ...     x = us.cos(x)
    ...     float(x) > 0.99
    False
    ...
    """

    def __init__(
        self,
        steps: Iterable[T] | None = None,
        *,
        total: int | None = None,
        unit: str = "steps",
        file: TextIO | None = None,
    ) -> None:
        _check(steps, total)
        self._steps = steps
        counted: Any = steps
        self._total = len(counted) if total is None and isinstance(counted, Sized) else total
        self._unit, self._file = unit, file
        self._done = 0
        self._has_told = False
        self._values: Mapping[str, float] = {}
        self._line: Line | None = None
        self._stack = ExitStack()
        self._eye: Eye | None = None
        self._begin = 0.0

    def __enter__(self) -> progress[T]:
        if self in _OPEN:
            raise ArgumentError("this line of progress is shown already; make another one for a block inside")
        self._begin = perf_counter()
        if not _OPEN:
            self._line = make_line(self._file, self._text)
        _OPEN.append(self)
        if self._line is not None:
            self._eye = Eye()
            self._stack.enter_context(ACTIVITY.looked_at())
            self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _OPEN.remove(self)
        self._stack.close()
        line, self._line = self._line, None
        if line is not None:
            line.stop(f"{self._text()}, {clock(perf_counter() - self._begin)}")

    def __iter__(self) -> Iterator[T]:
        if self._steps is None:
            raise ArgumentError("us.progress() has nothing to go through: give it what the loop goes through")
        self._has_told = True
        with self:
            for item in self._steps:
                yield item
                self._done += 1

    def show(self, done: int, values: Mapping[str, float] | None = None) -> None:
        """Tell how many steps are done, and numbers to show beside that, by name.

        Examples
        --------
        >>> import unspool as us
        >>> with us.progress(total=3, unit="sweeps") as line:
        ...     for sweep in range(3):
        ...         line.show(sweep + 1, {"energy": -1.0 / (sweep + 1)})
        """
        self._done, self._has_told = done, True
        if values is not None:
            self._values = values

    def _text(self) -> str:
        if self._eye is None:
            return ""
        inner = next((p for p in reversed(_OPEN) if p._has_told), self)
        told = (inner._done, inner._total, inner._unit, inner._values) if inner._has_told else None
        return str(self._eye.look(told))


def _check(steps: Any, total: Any) -> None:
    """Raise if an argument makes no sense."""
    if steps is not None and not isinstance(steps, Iterable):
        raise ArgumentError(f"us.progress takes what a loop goes through, got {steps!r}")
    if total is not None and (not isinstance(total, int) or total < 0):
        raise ArgumentError(f"total is the number of steps, got {total!r}")
