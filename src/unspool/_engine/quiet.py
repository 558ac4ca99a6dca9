"""Running where NumPy does not warn."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import numpy as np

from unspool._locks import local

# Whether the current context is such a one.
IS_QUIET: contextvars.ContextVar[bool] = contextvars.ContextVar("unspool_is_quiet", default=False)


class _QuietContext(local):
    """A context per thread in which NumPy does not warn: infinities of branches not taken are no news.

    Entering ``numpy.errstate`` costs more than a small kernel; running in a context where it was entered does not.
    """

    def __init__(self) -> None:
        self.context = contextvars.Context()
        self.context.run(np.seterr, all="ignore")
        self.context.run(IS_QUIET.set, True)


_quiet = _QuietContext()


def quiet_context() -> contextvars.Context:
    """Return the context of this thread in which NumPy does not warn."""
    return _quiet.context


def run_quietly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function where NumPy does not warn."""
    if IS_QUIET.get():  # a kernel of the user's evaluates tensors itself
        return function(*arguments)
    return _quiet.context.run(function, *arguments)
