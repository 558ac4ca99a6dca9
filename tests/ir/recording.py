"""A program as the folder sees it: operations are recorded as events, and nothing is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unspool._ir.fold import Event, Folder, Loop
from unspool._ir.trace import INVARIANT, REGISTER, SLOT


class Recorder:
    """Records operations on numbered values; one that is there already is found, unless nothing is held."""

    def __init__(self, *, holds: bool = True) -> None:
        self.events: list[Event] = []
        self._holds = holds
        self._made: dict[Any, int] = {}
        self._count = 0

    def leaf(self) -> int:
        """Return a new value that nothing is made from."""
        self._count += 1
        return self._count

    def number(self, value: float) -> int:
        """Return the value that a number of the program is: equal numbers are one."""
        if ("number", value) not in self._made:
            self._made["number", value] = self.leaf()
        return self._made["number", value]

    def __call__(self, token: str, *operands: int) -> int:
        """Record an operation; the token says which it is and where it stands."""
        recipe = (token, operands)
        if recipe not in self._made or not self._holds:
            self._made[recipe] = self.leaf()
        self.events.append(Event(token, operands, (self._made[recipe],)))
        return self._made[recipe]


def fold(program: Callable[[Recorder], Any], *, holds: bool = True) -> tuple[list[Loop], list[Event], list[Event]]:
    """Return the loops of a program, the events that belong to none, and all events."""
    recorder = Recorder(holds=holds)
    program(recorder)
    folder = Folder()
    for event in recorder.events:
        folder.add(event)
    folder.end()
    return folder.loops, folder.events, recorder.events


def values_of(loop: Loop, events: list[Event]) -> list[int]:
    """Run a loop over the numbers of values: each of its instructions has to be an event of the program.

    What comes from outside must not be made by the loop, unless it was there before.
    """
    first: dict[int, int] = {}
    for i, event in enumerate(events):
        for result in event.results:
            first.setdefault(result, i)
    start = len(events)
    recorded: dict[Any, tuple[int, ...]] = {}
    for event in events:
        recorded.setdefault((event.token, event.operands), event.results)
    made: dict[int, None] = {}
    registers = dict(loop.initial)
    for which, column in zip(loop.which, loop.columns, strict=True):
        body, streamed = loop.bodies[which], iter(column)
        slots: list[tuple[int, ...]] = []
        for instruction in body.instructions:
            operands = []
            for kind, at, output in instruction.sources:
                if kind == SLOT:
                    operands.append(slots[at][output])
                elif kind == REGISTER:
                    value = registers[at]
                    assert isinstance(value, int), f"register {at} is read and was never filled"
                    operands.append(value)
                else:
                    operands.append(at if kind == INVARIANT else next(streamed))
                    is_older = first.get(operands[-1], -1) < start
                    assert operands[-1] not in made or is_older, "what comes from outside was made by the loop"
            slots.append(recorded[instruction.token, tuple(operands)])
            made |= dict.fromkeys(slots[-1])
            start = min(start, first[slots[-1][0]])
        before = dict(registers)
        for register, (kind, at, output) in body.assigned:
            registers[register] = slots[at][output] if kind == SLOT else before[at]
    return list(made)
