"""Loops as those who look for NaN see them: bodies, what each of them reads, and where its outputs go.

The op ``loop`` of `unspool.iterate` and the chains of a backward pass keep this in their own ways; here it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._autodiff.loops.loop import Loop, signature_of
from unspool._autodiff.loops.prepared import kept_of
from unspool._autodiff.sweeps.chain import Chain
from unspool._engine.default import default_engine

if TYPE_CHECKING:
    from unspool._engine.plan import Plan


@dataclass(frozen=True, slots=True)
class StepBody:
    """What a step does.

    Attributes
    ----------
    plan : Plan
    carried : dict of int to int
        The inputs that are registers.
    assigned : sequence of (int, int)
        Outputs, and the registers that they become.
    given : dict of int to (int, int, int)
        Other inputs of the plan: which input of the loop has them, and at which step it has its first row. Of those
        that have no rows the latter is -1. The last number is 1 if there is one such input for each step: then the
        first counts from where those of the step begin.
    shown : dict of int to int
        The outputs that become outputs of the loop, or are added to them.
    """

    plan: Plan
    carried: dict[int, int]
    assigned: Sequence[tuple[int, int]]
    given: dict[int, tuple[int, int, int]]
    shown: dict[int, int]


class Repetition:
    """The steps of a loop, on arrays.

    Attributes
    ----------
    order : range
        The numbers of the steps, as they are made.
    entering : dict of int to int
        The registers that are inputs of the loop.
    leaving : dict of int to int
        The outputs of the loop that are registers after the last step.
    """

    def __init__(
        self,
        arrays: Sequence[Any],
        order: range,
        bodies: Sequence[StepBody],
        which: bytes,
        entering: dict[int, int],
        leaving: dict[int, int],
        begin: Callable[[int], int] = lambda k: 0,
    ) -> None:
        self.order, self.entering, self.leaving = order, entering, leaving
        self._arrays, self._bodies, self._which, self._begin = arrays, bodies, which, begin

    def body(self, k: int) -> StepBody:
        """Return what a step does."""
        return self._bodies[self._which[k] if self._which else 0]

    def start(self) -> dict[int, Any]:
        """Return the registers before the first step."""
        return {r: self._arrays[i] for r, i in self.entering.items()}

    def source(self, k: int, slot: int) -> int:
        """Return the input of the loop that an input of a step is, or is a row of."""
        at, _, is_of_step = self.body(k).given[slot]
        return at + self._begin(k) if is_of_step else at

    def values(self, k: int, state: dict[int, Any]) -> list[Any]:
        """Return what a step reads."""
        body = self.body(k)
        found = []
        for slot in range(len(body.plan.input_shapes)):
            if slot in body.carried:
                found.append(state[body.carried[slot]])
            else:
                array, first = self._arrays[self.source(k, slot)], body.given[slot][1]
                found.append(array if first < 0 else array[k - first])
        return found

    def assign(self, k: int, state: dict[int, Any], outputs: Sequence[Any]) -> None:
        """Let a step assign registers."""
        state.update([(r, outputs[i]) for i, r in self.body(k).assigned])


def repetition_of_loop(loop: Loop, arrays: Sequence[Any]) -> Repetition:
    """Return the steps of a loop."""
    shapes = tuple([np.shape(array) for array in arrays])
    first, last = loop.constants, loop.constants + len(loop.entering)
    plan_for, signature = default_engine().plans.plan_for, signature_of(loop, shapes)
    bodies = []
    for body, given in zip(loop.bodies, signature.bodies, strict=True):
        constants, reads, assigns = len(body.constants), len(body.reads), len(body.assigns)
        rows = [(last + i, loop.extent(loop.rows[i])[0], 0) for i in body.rows]
        fixed = [(i, -1, 0) for i in body.constants]
        shown = [len(loop.leaving) + i for i in (*body.stacked, *[len(loop.stacked) + j for j in body.sums])]
        bodies.append(
            StepBody(
                plan_for(body.fragment, given),
                dict(enumerate(body.reads, constants)),
                list(enumerate(body.assigns)),
                dict(enumerate(fixed)) | dict(enumerate(rows, constants + reads)),
                dict(enumerate(shown, assigns)),
            )
        )
    order = range(loop.steps)
    return Repetition(
        arrays,
        order[::-1] if loop.reverse else order,
        bodies,
        loop.which,
        {r: first + i for i, r in enumerate(loop.entering)},
        dict(enumerate(loop.leaving)),
    )


def repetition_of_chain(chain: Chain, arrays: Sequence[Any]) -> Repetition:
    """Return the steps of a chain; what leaves of the last step of each kind is in registers of its own."""
    bodies, last, shown = [], chain.registers, sum([len(kind.last) for kind in chain.kinds])
    for kind, constants in zip(chain.kinds, chain.constants(), strict=True):
        given = {position: (constants.start + i, -1, 0) for i, position in enumerate(kind.constant)}
        given |= {position: (i, -1, 1) for i, position in enumerate(kind.varying)}
        assigned = [*kind.writes, *[(output, last + i) for i, output in enumerate(kind.last)]]
        stacked = {output: shown + i for i, output in enumerate(kind.stacked)}
        bodies.append(StepBody(kind.plan, dict(kind.reads), assigned, given, stacked))
        last += len(kind.last)
        shown += len(kind.stacked)
    entering = {r: i for i, r in enumerate(chain.entering)}
    leaving = {i: chain.registers + i for i in range(last - chain.registers)}
    order = range(chain.steps)
    return Repetition(arrays, order, bodies, chain.which, entering, leaving, lambda k: chain.varying(k).start)


class History:
    """The registers before each step, where a loop has kept them among its outputs."""

    def __init__(self, loop: Loop, outputs: Sequence[Any]) -> None:
        self._first, self._extents = len(loop.leaving), [loop.extent(declared) for declared in loop.stacked]
        self._outputs = outputs
        places = enumerate(kept_of(loop).places, self._first)
        self._stacks = {place[0]: i for i, place in places if place is not None and not place[1]}
        read = {r for body in loop.bodies for r in body.reads}
        # Whether all registers are there that steps read, and all outputs have rows that tell which step made them.
        self.is_complete = not loop.sums and not loop.which and read <= set(self._stacks)

    def before(self, k: int) -> dict[int, Any]:
        """Return the registers that steps read, before a step."""
        return {r: self.row(k, i) for r, i in self._stacks.items()}

    def row(self, k: int, output: int) -> Any:
        """Return what a step wrote to an output."""
        return self._outputs[output][k - self._extents[output - self._first][0]]
