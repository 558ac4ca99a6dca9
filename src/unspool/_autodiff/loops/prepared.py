"""What running a loop takes that does not depend on values: plans of its bodies, and where results are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from unspool._autodiff.loops.drive import compiled_drive, simple_drive
from unspool._autodiff.loops.loop import Body, Loop, Signature, found_once, signature_of
from unspool._engine.backends.base import Drive, Layout
from unspool._engine.default import default_engine
from unspool._engine.plan import Plan
from unspool._fragments.fragment import Fragment


class Prepared(NamedTuple):
    """What running a loop takes that does not depend on values."""

    signature: Signature
    kept: Kept
    steppers: list[Stepper]


def prepared(loop: Loop, shapes: tuple[Any, ...], watched: Fragment | None = None) -> Prepared:
    """Return it, found once for given sizes; ``watched`` is its one body with a condition as its last output."""

    def prepare() -> Prepared:
        signature, kept, plans = signature_of(loop, shapes), kept_of(loop), default_engine().plans
        steppers = [
            Stepper(loop, kept, body, plans.plan_for(watched or body.fragment, given))
            for body, given in zip(loop.bodies, signature.bodies, strict=True)
        ]
        return Prepared(signature, kept, steppers)

    found: Prepared = found_once(loop, shapes, ("prepared", watched), prepare)
    return found


class Stepper:
    """One body of a loop with what it takes to run it."""

    def __init__(self, loop: Loop, kept: Kept, body: Body, plan: Plan) -> None:
        self.body, self.plan = body, plan
        # Registers that have a history, and stacks that are written.
        self.histories = [r for r in body.assigns if r in kept.histories]
        self.written = [i for i in body.stacked if kept.places[i] is None]
        # Whether it reads and assigns all registers in order, and whether its stacks have rows for all steps.
        self.has_all = body.reads == body.assigns == tuple(range(loop.registers))
        self.is_even = not any([*[loop.rows[i] for i in body.rows], *[loop.stacked[i] for i in self.written]])
        first = len(body.assigns)
        sums = range(first + len(body.stacked), first + len(body.stacked) + len(body.sums))
        self.layout = Layout(
            len(body.constants),
            body.reads,
            len(body.rows),
            body.assigns,
            tuple([body.assigns.index(r) for r in self.histories]),
            tuple([first + body.stacked.index(i) for i in self.written]),
            tuple(sums),
            plan.fragment is not body.fragment,
            loop.reverse,
        )

        self._drive: Drive | None = None

    def drive(self, *, exact: bool) -> Drive:
        """Return what makes steps; of exact numbers, op by op."""
        if exact:
            return simple_drive(self.plan, self.layout)
        self._drive = self._drive or compiled_drive(self.plan, self.layout)
        return self._drive


# --- where results are found ------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """Where stacked outputs are found.

    Attributes
    ----------
    histories : tuple of int
        The registers of which all states are kept, in one array with a row more than there are steps.
    places : tuple of (register, is_after) or None
        For each stacked output the register whose state before or after the steps it is, or ``None`` if it is written.
    written : tuple of int
        The outputs that are written.
    partial : tuple of int
        Those of them that some step writes no row of.
    is_even : bool
        Whether all outputs have a row for each step.
    """

    histories: tuple[int, ...]
    places: tuple[tuple[int, bool] | None, ...]
    written: tuple[int, ...]
    partial: tuple[int, ...]
    is_even: bool


def kept_of(loop: Loop) -> Kept:
    """Tell where each stacked output is found.

    What a step starts from is in the history of a register, and so is what it ends with, one row further. There is a
    history only of registers that every step assigns, and only for outputs that have all their rows.
    """
    everywhere = set.intersection(*[set(body.assigns) for body in loop.bodies])
    writers = [[n for n, body in enumerate(loop.bodies) if i in body.stacked] for i in range(len(loop.stacked))]
    partial = {i for i, numbers in enumerate(writers) if not _is_complete(loop, i, numbers)}
    places: list[tuple[int, bool] | None] = []
    for i, numbers in enumerate(writers):
        found = {_register_before(loop.bodies[n], i) for n in numbers}
        r = found.pop() if len(found) == 1 and i not in partial else None
        places.append(None if r not in everywhere or r is None else (r, False))
    histories = {place[0]: None for place in places if place is not None}
    for i, numbers in enumerate(writers):
        if places[i] is None and i not in partial:
            after = [r for r in histories if all(_is_after(loop.bodies[n], i, r) for n in numbers)]
            places[i] = (after[0], True) if after else None
    written = tuple([i for i, place in enumerate(places) if place is None])
    is_even = all(declared is None for declared in loop.stacked)
    return Kept(tuple(histories), tuple(places), written, tuple(sorted(partial)), is_even)


def _is_complete(loop: Loop, stack: int, writers: Sequence[int]) -> bool:
    start, stop = loop.extent(loop.stacked[stack])
    return not loop.which or loop.marks(writers).count(1, start, stop) == stop - start


def _slot(body: Body, stack: int) -> int:
    return body.fragment.outputs[len(body.assigns) + body.stacked.index(stack)]


def _register_before(body: Body, stack: int) -> int | None:
    """Return the register that a body hands on to a stack as it read it."""
    at = _slot(body, stack) - len(body.constants)
    return body.reads[at] if 0 <= at < len(body.reads) else None


def _is_after(body: Body, stack: int, register: int) -> bool:
    return body.fragment.outputs[body.assigns.index(register)] == _slot(body, stack)
