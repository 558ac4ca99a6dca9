"""The adjoint of a loop whose record comes in pieces, the last steps first.

The bodies are those of the adjoint loop that goes through a whole record (`loop_rules`), with the same code, and sums
go on from piece to piece in the same order. So the bits of a gradient do not depend on the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._autodiff.loop import Loop
from unspool._autodiff.loop_drive import run_body
from unspool._autodiff.loop_gather import Gatherer
from unspool._autodiff.loop_run import Runner
from unspool._engine.buffers import aligned
from unspool._engine.default import default_engine
from unspool._fragments.fragment import Fragment


class AdjointStretch(NamedTuple):
    """Consecutive steps of an adjoint that have one body.

    Attributes
    ----------
    body : Fragment
        Inputs: constants, carry, rows. Results: carry, rows, terms of sums.
    entering : Fragment or None
        Makes the carry in the forms that the body takes from the one that the stretch before left, if they differ.
    constants : int
    rows : tuple of (kind, position)
        Where rows come from: the "record" of the primal loop, or what is "arriving" at its outputs.
    counts : (int, int, int)
        Numbers of carried values, rows and sums that leave.
    outer : tuple of (subscripts, left, right)
        Outer products to sum, each factor ("in", i) or ("out", i): a row input or output of the body.
    steps : int
    peeled : bool
        Whether it is one step that adds to nothing; a loop adds to zeros.
    """

    body: Fragment
    entering: Fragment | None
    constants: int
    rows: tuple[tuple[str, int], ...]
    counts: tuple[int, int, int]
    outer: tuple[tuple[str, tuple[str, int], tuple[str, int]], ...]
    steps: int
    peeled: bool

    @property
    def is_idle(self) -> bool:
        """Whether nothing leaves it."""
        return not any(self.counts) and not self.outer


class Reverser:
    """An adjoint sweep in progress.

    Parameters
    ----------
    stretches : sequence of AdjointStretch
        In the order in which they run.
    constants : sequence of list of ndarray
        The constants of each.
    carry : list of ndarray
        What arrives at the final state.
    arriving : list of ndarray
        What arrives at the stacked outputs.
    """

    def __init__(
        self,
        stretches: Sequence[AdjointStretch],
        constants: Sequence[Sequence[Any]],
        carry: Sequence[Any],
        arriving: Sequence[Any],
    ) -> None:
        self._waiting = list(zip(stretches, constants, strict=True))[::-1]
        self.carry = list(carry)
        self._arriving = arriving
        self._left = sum(stretch.steps for stretch in stretches)
        self._running: _RunningLoop | None = None
        self.terms: list[Any] = []

    def take(self, record: Sequence[Any], steps: int) -> bool:
        """Reverse the last steps that are left, whose record is given; tell whether steps before them matter."""
        while steps:
            if not self._waiting:
                return False
            stretch, constants = self._waiting[-1]
            count = min(steps, self._left - self._after())
            rows = [self._source(source, record, steps - count, count) for source in stretch.rows]
            if stretch.peeled:
                self._peel(stretch, constants, rows)
            else:
                self._loop(stretch, constants, rows, count)
            steps -= count
            self._left -= count
            if self._left == self._after():
                self._leave()
        return bool(self._waiting) and not self._waiting[-1][0].is_idle

    def _after(self) -> int:
        """Return how many steps the stretches after the current one have."""
        return sum(stretch.steps for stretch, _ in self._waiting[:-1])

    def _source(self, source: tuple[str, int], record: Sequence[Any], start: int, count: int) -> Any:
        kind, at = source
        if kind == "record":
            return record[at][start : start + count]
        return self._arriving[at][self._left - count : self._left]

    def _peel(self, stretch: AdjointStretch, constants: Sequence[Any], rows: Sequence[Any]) -> None:
        carry = run_fragment(stretch.entering, self.carry)
        found = _run(stretch.body, [*constants, *carry, *[aligned(stack[0]) for stack in rows]], self._left - 1)
        carries, leaving, _ = stretch.counts
        stacked = [np.asarray(row)[np.newaxis] for row in found[carries : carries + leaving]]
        self.carry = found[:carries]
        self.terms += found[carries + leaving :]
        for subscripts, left, right in stretch.outer:
            gatherer = Gatherer(subscripts, 1)
            gatherer.add(_factor(left, rows, stacked), _factor(right, rows, stacked))
            self.terms.append(gatherer.total())

    def _loop(self, stretch: AdjointStretch, constants: Sequence[Any], rows: Sequence[Any], count: int) -> None:
        if stretch.is_idle:
            return
        if self._running is None:
            self._running = _RunningLoop(stretch, constants, run_fragment(stretch.entering, self.carry), rows)
        self._running.take(rows, count)

    def _leave(self) -> None:
        stretch, _ = self._waiting.pop()
        if stretch.peeled:
            return
        if self._running is None:
            self.carry = []
            return
        self.carry = self._running.carry
        self.terms += self._running.terms()
        self._running = None


class _RunningLoop:
    """A stretch of many steps, between pieces."""

    def __init__(
        self, stretch: AdjointStretch, constants: Sequence[Any], carry: Sequence[Any], rows: Sequence[Any]
    ) -> None:
        loop = Loop(stretch.body, stretch.constants, len(carry), len(rows), *stretch.counts[1:], stretch.steps, True)
        self._stretch = stretch
        self.carry = list(carry)
        self._runner = Runner(loop, loop.body, [*constants, *carry, *rows])
        self._gatherers = [Gatherer(subscripts, stretch.steps) for subscripts, _, _ in stretch.outer]

    def take(self, rows: Sequence[Any], steps: int) -> None:
        runner = self._runner
        runner.restart(self.carry, steps, rows)
        runner.advance(steps)
        self.carry, stacked = runner.carry, runner.stacked()
        # Rows are a large part of what is kept of a loop, and are about to be replaced.
        runner.release()
        for gatherer, (_, left, right) in zip(self._gatherers, self._stretch.outer, strict=True):
            gatherer.add(_factor(left, rows, stacked), _factor(right, rows, stacked))

    def terms(self) -> list[Any]:
        """Return the sums over all steps, then the sums of outer products."""
        return [*self._runner.totals(), *[gatherer.total() for gatherer in self._gatherers]]


def _factor(place: tuple[str, int], rows: Sequence[Any], stacked: Sequence[Any]) -> Any:
    side, at = place
    return rows[at] if side == "in" else stacked[at]


def run_fragment(fragment: Fragment | None, arrays: list[Any]) -> list[Any]:
    """Return what a fragment makes of arrays; the arrays themselves without one."""
    return arrays if fragment is None else _run(fragment, arrays, 0)


def _run(fragment: Fragment, arrays: Sequence[Any], k: int) -> list[Any]:
    """Run a fragment op by op: it runs once."""
    engine = default_engine()
    plan = engine.plans.plan_for(fragment, tuple([np.shape(array) for array in arrays]))
    engine.statistics.kernel_calls += plan.kernels
    return run_body(plan, list(arrays), k)
