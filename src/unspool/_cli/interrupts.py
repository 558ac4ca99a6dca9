"""Ctrl-C that is never lost.

Python raises `KeyboardInterrupt` wherever the program happens to be. If that is inside a method that runs when an
object dies, the exception is printed and dropped, and the program goes on. A loop that makes and drops many small
objects spends some of its time there. So the signal is remembered, too, and looked at between steps.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """Whether Ctrl-C was pressed, inside a ``with`` block."""

    def __init__(self) -> None:
        self._came = False
        self._handler: Any = None
        self._hook: Any = None

    def __enter__(self) -> Interrupts:
        # Only the main thread may set handlers, and only there interrupts are raised.
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._ignore
        return self

    def __exit__(self, *error: object) -> None:
        if self._hook is not None:
            sys.unraisablehook = self._hook
            signal.signal(signal.SIGINT, self._handler)

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if the one that came was lost."""
        if self._came:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: object) -> None:
        self._came = True
        raise KeyboardInterrupt

    def _ignore(self, unraisable: Any) -> None:
        # What an interrupt left half made may fail when it is deleted: that is no news once the run has been stopped.
        if not self._came:
            self._hook(unraisable)
