"""What running a loop takes that does not depend on values: plans of its bodies, and where results are found."""

from __future__ import annotations

from typing import Any, NamedTuple

from unspool._autodiff.loop import Body, Loop, Signature, found_once, signature_of
from unspool._autodiff.loop_drive import compiled_drive, simple_drive
from unspool._autodiff.loop_kept import Kept, kept_of
from unspool._engine.backend import Drive, Layout
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
