"""Values that leave the graph: while a derivative is taken, a tensor that depends on a variable must be asked for.

Outside of derivatives every conversion gives the value. While `unspool.grad` or one of its kin runs a function, there
is a `Watch`: what becomes a plain array in there has no derivative any more, so whoever converts must have said so. The
line that converts decides whether it has; `unspool._lines` reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FrameType
from typing import Any

from unspool._graph import Node, describe, is_internal, source_at, source_of
from unspool.errors import DTypeError, LeftGraphError


class Watch:
    """What is known about a derivative that is being taken, while its function runs.

    Attributes
    ----------
    outer : Watch or None
        The derivative inside whose function this one is taken.
    derivatives : set of id
        Results of derivatives that the function took itself. What is made of them may be constant: the second
        derivative of a linear function is.
    """

    __slots__ = ("_depends", "_refusal", "derivatives", "outer")

    def __init__(self, depends: Callable[[Node], bool], outer: Watch | None) -> None:
        self.outer = outer
        self.derivatives: set[int] = set()
        self._depends = depends
        self._refusal: LeftGraphError | None = None

    def refuse(self, node: Node, frame: FrameType) -> None:
        """Raise `LeftGraphError` if the tensor depends on a variable of a derivative that is being taken."""
        watch: Watch | None = self
        while watch is not None:
            if watch._depends(node):
                self._refusal = LeftGraphError(_message(node, frame))
                raise self._refusal
            watch = watch.outer

    def refusal_behind(self, error: BaseException) -> LeftGraphError | None:
        """Return what was refused if that is why an error came. NumPy puts an error of its own in front of some."""
        cause: BaseException | None = error.__cause__
        while cause is not None and cause is not self._refusal:
            cause = cause.__cause__
        return None if cause is None else self._refusal


# Libraries whose code computes with arrays: it writes into them and hands them to C. What NumPy is asked there to do
# with tensors, it does with their values.
_ON_ARRAYS = frozenset({"matplotlib", "pandas", "scipy", "sklearn"})

watched: ContextVar[Watch | None] = ContextVar("unspool_watched", default=None)


class _Watching:
    __slots__ = ("_token", "_watch")

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __enter__(self) -> Watch:
        self._token = watched.set(self._watch)
        return self._watch

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        watched.reset(self._token)
        if isinstance(error, Exception):
            refusal = self._watch.refusal_behind(error)
            if refusal is not None:
                raise refusal from None


def watching(depends: Callable[[Node], bool]) -> AbstractContextManager[Watch]:
    """Watch for tensors that leave the graph during a block; ``depends`` tells which ones depend on a variable."""
    return _Watching(Watch(depends, watched.get()))


def note_derivatives(tensors: Iterable[Any]) -> None:
    """Note results of a derivative for the derivatives inside whose functions it was taken."""
    watch = watched.get()
    if watch is None:
        return
    found = [t.id for t in tensors if isinstance(t, Node)]
    while watch is not None:
        watch.derivatives.update(found)
        watch = watch.outer


def refuse_masked_operand(node: Node, frame: FrameType) -> None:
    """Raise `DTypeError` if a masked array asks for a tensor as its other operand: it would go without the tensor.

    NumPy's masked arrays do not hand operators over as other arrays do; their function ``getdata``, whose frame this
    is, converts what they meet.
    """
    asking = frame.f_back
    if (
        frame.f_globals.get("__name__") == "numpy.ma.core"
        and asking is not None
        and asking.f_code.co_name.startswith(("__call__", "__i", "power"))
    ):
        raise DTypeError(
            f"a masked array meets {describe(node)}, made at {source_of(node)}: tensors have no masks. "
            "masked.filled(value) puts a value there, us.where chooses between two"
        )


def computes_with_values(frame: FrameType) -> bool:
    """Whether it is a library that computes with arrays that asks NumPy for something, in a frame."""
    name: str = frame.f_globals.get("__name__") or ""
    return name.partition(".")[0] in _ON_ARRAYS


def with_values(function: Callable[..., Any], args: Any, kwargs: Any, frame: FrameType) -> Any:
    """Call one of NumPy's functions with values in place of tensors, none of which may depend on a variable."""
    watch = watched.get()

    def value(x: Any) -> Any:
        if isinstance(x, Node):
            if watch is not None:
                watch.refuse(x, frame)
            return x.eval()  # type: ignore[attr-defined]
        return type(x)(map(value, x)) if type(x) in (list, tuple) else x

    return function(*map(value, args), **{key: value(x) for key, x in kwargs.items()})


def watch_array(watch: Watch, node: Node, copy: bool | None) -> None:
    """Judge a conversion to an array that was asked of a tensor's ``__array__``."""
    frame = sys._getframe(2)
    # Imported here: few programs convert inside of derivatives, and it loads the modules that read bytecode.
    from unspool._lines import asks_for_array

    if not asks_for_array(frame, copy):
        watch.refuse(node, frame)


def watch_number(watch: Watch, node: Node) -> None:
    """Judge a conversion to a Python number that was asked of a tensor's ``__float__`` or ``__complex__``."""
    frame = sys._getframe(2)
    from unspool._lines import asks_for_number

    if not asks_for_number(frame):
        watch.refuse(node, frame)


def _message(node: Node, frame: FrameType) -> str:
    from unspool._lines import is_library

    here: FrameType | None = frame
    while here is not None and (is_internal(here.f_code.co_filename) or is_library(here.f_code.co_filename)):
        here = here.f_back
    line = source_at(frame.f_code, frame.f_lasti) if here is None else source_at(here.f_code, here.f_lasti)
    through = "" if here is frame or here is None else f" (through {source_at(frame.f_code, frame.f_lasti)})"
    return (
        f"a tensor left the graph at {line}{through}: {describe(node)}, made at {source_of(node)}, depends on a "
        "variable of the derivative that is being taken here, and became a plain array or number, which has no "
        "derivative. Use unspool's functions (us.stack or us.asarray for a list of tensors), or ask for the value by "
        "t.eval(), t.item(), float(t) or np.asarray(t) if a constant is meant"
    )
