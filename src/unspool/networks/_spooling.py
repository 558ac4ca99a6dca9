"""Loops that may be written as they run: one form for those that are and those that are not.

A loop says where it begins (``start``), and after each step what it goes on with (``checkpoint``) and what it read of
the step. Whether that is written is not its business.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import unspool as us
from unspool.errors import ArgumentError

__all__ = ["Run", "Spool", "run_of"]

Spool: TypeAlias = "str | os.PathLike[str] | us.SpooledRun"


class Unwritten:
    """A run that is not written: it remembers what was read of each step."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []

    def start(self, state: Any, inputs: Any = ()) -> Any:
        """Return the state to begin with."""
        return state

    def checkpoint(self, state: Any, values: dict[str, Any]) -> None:
        """Note what was read of a step."""
        self.history.append(values)

    def __enter__(self) -> Unwritten:
        return self

    def __exit__(self, *_: object) -> None:
        pass


Run: TypeAlias = "Unwritten | us.SpooledRun"


def run_of(spool: Spool | None, most: int) -> Run:
    """Return the run that a loop of at most so many steps is to be: written, as ``us.spool`` says, or not at all."""
    if spool is None:
        return Unwritten()
    if isinstance(spool, str | os.PathLike):
        spool = us.spool(spool)
    if isinstance(spool, us.SpooledRun):
        spool.total = most
        return spool
    raise ArgumentError(f"spool must be the folder of a run, or us.spool(folder, ...), but is {spool!r}")
