"""What a program records, and what a loop is: events, windows of them, bodies, loops; data alone.

An event is an operation that was recorded, with a token that says what it is (op, structure, place in the user's
program) and numbers for the values that it reads and gives. A body says where each operand of a step comes from.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# Where an operand comes from.
SLOT, REGISTER, INVARIANT, STREAM = "slot", "register", "invariant", "stream"


class Unread(NamedTuple):
    """What a register had in it when the loop began, as long as nobody has read it."""

    register: int


# The number of the value in each register.
Registers = dict[int, int | Unread]


class Source(NamedTuple):
    """Where an operand of a step comes from.

    ``SLOT``: output ``output`` of instruction ``at`` of the same step. ``REGISTER``: register ``at``, which an earlier
    step filled. ``INVARIANT``: value ``at`` in all steps. ``STREAM``: another value from outside in each step.
    """

    kind: str
    at: int = 0
    output: int = 0


class Event(NamedTuple):
    """An operation that was recorded, or found: a token, and the values it reads and gives, by number."""

    token: Hashable
    operands: tuple[int, ...]
    results: tuple[int, ...]


class Instruction(NamedTuple):
    """One operation of a body: its token, and where each operand comes from."""

    token: Hashable
    sources: tuple[Source, ...]


class Body(NamedTuple):
    """What a step does: instructions, and which registers it assigns: from a slot, or from another register."""

    instructions: tuple[Instruction, ...]
    assigned: tuple[tuple[int, Source], ...]

    def __repr__(self) -> str:
        return f"<body of {len(self.instructions)} instructions>"


@dataclass
class Loop:
    """Steps that were folded.

    ``which`` has the body of each step and ``columns`` its streamed values, in the order of the instructions;
    ``initial`` has the registers before the first step. ``last`` tells where the newest steps of each body
    made a value: the body and the slot.
    """

    bodies: list[Body]
    initial: Registers
    which: list[int] = field(default_factory=list)
    columns: list[tuple[int, ...]] = field(default_factory=list)
    last: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.which)


class Window:
    """Events of one step, in order; which value each of them gives, and which values come from before it."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = []
        self.made: dict[int, tuple[int, int]] = {}
        # How often the token is there that is there most often.
        self.repeats = 0
        self._count: dict[Hashable, int] = {}
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Append an event; one that gives what the step has already is left out."""
        if event.results and all(result in self.made for result in event.results):
            return
        position = len(self.events)
        self.events.append(event)
        count = self._count[event.token] = self._count.get(event.token, 0) + 1
        self.repeats = max(self.repeats, count)
        for output, result in enumerate(event.results):
            self.made.setdefault(result, (position, output))

    def before(self, position: int) -> Window:
        """Return the events up to a position, which is included."""
        return Window(self.events[: position + 1])

    def after(self, position: int) -> Window:
        """Return the events after a position."""
        return Window(self.events[position + 1 :])

    def ancestors(self, values: Iterable[int]) -> list[int]:
        """Return the positions of events that values depend on, in order."""
        found: set[int] = set()
        stack = [value for value in values if value in self.made]
        while stack:
            position = self.made[stack.pop()][0]
            if position not in found:
                found.add(position)
                stack += [operand for operand in self.events[position].operands if operand in self.made]
        return sorted(found)
