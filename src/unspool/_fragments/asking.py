"""Functions that are run on stand-ins: what they must be, and what to say when they ask for a value."""

from __future__ import annotations

import linecache
import os
from types import TracebackType
from typing import Any

from unspool import _graph
from unspool.errors import ArgumentError, UnboundPlaceholderError


def check_callable(function: Any, what: str) -> None:
    """Raise `ArgumentError` if what should be a function is none; ``what`` says who takes it as what."""
    if not callable(function):
        raise ArgumentError(f"{what} takes a function, got {function!r} of type {type(function).__name__}")


def asks_for_a_value(error: UnboundPlaceholderError, what: str, instead: str) -> UnboundPlaceholderError:
    """Return the error of a function that looked at a value while it was traced, with the line that did."""
    line = users_line(error.__traceback__)
    return UnboundPlaceholderError(
        f"{what} is traced without values, but it asks for one at {line}; choose with us.where instead of if, "
        f"{instead} ({error})"
    )


def users_line(traceback: TracebackType | None) -> str:
    """Return the innermost line of the user's in a traceback, as `source_of` writes it."""
    found = None
    while traceback is not None:
        if not _graph._is_internal[traceback.tb_frame.f_code.co_filename]:
            found = traceback
        traceback = traceback.tb_next
    if found is None:
        return "what it returns"
    filename, number = found.tb_frame.f_code.co_filename, found.tb_lineno
    text = linecache.getline(filename, number).strip()
    return f"{os.path.basename(filename)}:{number}: {text}".removesuffix(": ")
