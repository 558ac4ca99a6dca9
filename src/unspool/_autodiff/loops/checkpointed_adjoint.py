"""The adjoint of a loop whose record comes in pieces, the last steps first.

The loop is the one that goes through a whole record (`rules`), run in ranges of steps, and sums go on from
piece to piece in the same order. So the bits of a gradient do not depend on the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._autodiff.loops.drive import run_body
from unspool._autodiff.loops.gather import Gatherer
from unspool._autodiff.loops.loop import Loop
from unspool._autodiff.loops.run import Runner
from unspool._autodiff.loops.structure import Outer
from unspool._engine.default import default_engine
from unspool._fragments.fragment import Fragment


class AdjointLoop(NamedTuple):
    """An adjoint that is run in pieces.

    Attributes
    ----------
    loop : Loop
    rows : tuple of (kind, position)
        Where its stacked inputs come from: the "record" of the primal loop, or what is "arriving" at its outputs.
    outers : tuple of Outer
        Sums of outer products of its stacks.
    """

    loop: Loop
    rows: tuple[tuple[str, int], ...]
    outers: tuple[Outer, ...]

    def first_step(self) -> int:
        """Return the first step that gives anything, or factors of an outer product."""
        busy = [n for n, body in enumerate(self.loop.bodies) if not body.is_idle]
        starts = [outer.extent[0] for outer in self.outers]
        return min([*starts, self.loop.presence(busy)[0][0]] if busy else starts)


class Reverser:
    """An adjoint sweep in progress.

    Parameters
    ----------
    adjoint : AdjointLoop
    constants, carry : sequence of ndarray
        What it stands on; the carry is what arrives at the final state.
    arriving : sequence of ndarray
        What arrives at the stacked outputs.
    """

    def __init__(
        self, adjoint: AdjointLoop, constants: Sequence[Any], carry: Sequence[Any], arriving: Sequence[Any]
    ) -> None:
        self._adjoint = adjoint
        self._entering = [*constants, *carry]
        self._arriving = arriving
        self._first = adjoint.first_step()
        self._runner: Runner | None = None
        self._state: list[Any] = []
        self._gatherers = [Gatherer(outer.subscripts, *outer.extent) for outer in adjoint.outers]

    def take(self, record: Sequence[Any], start: int, stop: int) -> bool:
        """Reverse the last steps that are left, whose record is given; tell whether steps before them matter."""
        loop = self._adjoint.loop
        rows = []
        for i, (kind, at) in enumerate(self._adjoint.rows):
            if kind == "record":
                rows.append(record[at])
                continue
            first, last = loop.extent(loop.rows[i])
            rows.append(self._arriving[at][max(start - first, 0) : max(min(stop, last) - first, 0)])
        if self._runner is None:
            self._runner = Runner(loop, [*self._entering, *rows])
            self._state = self._runner.state
        runner = self._runner
        runner.restart(self._state, start, stop, rows)
        runner.advance(stop - start)
        self._state, stacked = runner.state, runner.stacked()
        # Rows are a large part of what is kept of a loop, and are about to be replaced.
        runner.release()
        for gatherer, outer in zip(self._gatherers, self._adjoint.outers, strict=True):
            self._gather(gatherer, outer, (start, stop), rows, stacked)
        return start > self._first

    def _gather(self, gatherer: Gatherer, outer: Outer, steps: tuple[int, int], rows: Any, stacked: Any) -> None:
        """Hand the factors of some steps to a sum."""
        loop = self._adjoint.loop
        start, stop = max(steps[0], outer.extent[0]), min(steps[1], outer.extent[1])
        if start >= stop:
            return
        factors = []
        for side, at in (outer.left, outer.right):
            stack, declared = (rows[at], loop.rows[at]) if side == "in" else (stacked[at], loop.stacked[at])
            if stop - start != len(stack):
                first = max(steps[0], loop.extent(declared)[0])
                stack = stack[start - first : stop - first]
            factors.append(stack)
        gatherer.add(*factors)

    def outputs(self) -> list[Any]:
        """Return the registers that leave the loop, its sums, and the sums of outer products."""
        assert self._runner is not None
        leaving = [self._state[r] for r in self._adjoint.loop.leaving]
        return [*leaving, *self._runner.totals(), *[gatherer.total() for gatherer in self._gatherers]]


def run_fragment(fragment: Fragment, arrays: Sequence[Any]) -> list[Any]:
    """Return what a fragment makes of arrays, op by op: it runs once."""
    engine = default_engine()
    plan = engine.plans.plan_for(fragment, tuple([np.shape(array) for array in arrays]))
    engine.statistics.kernel_calls += plan.kernels
    return run_body(plan, list(arrays), 0)
