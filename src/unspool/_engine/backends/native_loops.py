"""Loops over native programs: steps as `Backend.compile_loop` wants them, and whole loops as one call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from unspool._engine.backends.base import Drive, Layout, WholeRun
from unspool._engine.backends.buffers import LARGE
from unspool._engine.backends.native_layout import Unsupported
from unspool._engine.backends.native_program import loop_of
from unspool._engine.backends.running_sums import RunningSum, nothing
from unspool._engine.backends.whole_loop import Ends
from unspool._engine.costs import nbytes
from unspool._native import Program


def native_drive(program: Program, layout: Layout, types: Sequence[tuple[Any, Any]], fallback: Drive) -> Drive:
    """Return the function that makes the steps of a loop whose body is a program (see `unspool._autodiff.loops.drive`).

    ``types`` are shape and dtype of the outputs. Where the program was not made for what it is given, the fallback is
    called. No term of a sum is a product that waits for others.
    """
    targets = tuple([layout.reads.index(r) if r in layout.reads else -1 for r in layout.assigns])
    try:
        adders = tuple([loop_of(np.add, *[types[j][1]] * 3) for j in layout.sums])
    except Unsupported:
        return fallback
    described = targets, layout.histories, layout.written, layout.sums, adders, layout.watched, layout.reverse
    return NativeDrive(program, described, fallback)


class NativeDrive:
    """The steps of a loop over a native program; to call it makes some of them."""

    __slots__ = ("_described", "_fallback", "_program")

    def __init__(self, program: Program, described: tuple[Any, ...], fallback: Drive) -> None:
        self._program, self._described, self._fallback = program, described, fallback

    def __call__(
        self, indices: range, constants: Any, carry: Any, rows: Any, histories: Any, written: Any, sums: Any
    ) -> tuple[int, bool, list[Any], list[Any], list[Any]]:
        given = constants, carry, rows, histories, written
        totals = [total.array if type(total) is RunningSum else total for total in sums] if sums else sums
        counter = getattr(indices, "counter", None)
        found = self._program.drive(self._described, indices.start, indices.step, len(indices), *given, totals, counter)
        if found is None:
            return self._fallback(indices, *given, list(sums))
        for i, total in enumerate(sums):
            if type(total) is RunningSum:
                total.array = found[4][i]
                found[4][i] = total
        return found

    def whole(self, ends: Ends) -> WholeRun | None:
        """Return all steps as one call (see `Backend.compile_whole`); ``None`` for large sums, which it would copy."""
        if sum(nbytes(*kind) for kind in ends.sums) >= LARGE:
            return None
        described = (*ends[:5], [nothing(*kind) for kind in ends.sums], *ends[6:], LARGE)
        return partial(self._program.whole, self._described, described)
