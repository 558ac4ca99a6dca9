"""Following a loop: each window is a step of a body that is known, of a new one, or the end.

A window is committed when the one after it is complete: what that one reads tells which registers the first assigned.
A step may be one of several bodies: a branch, a step that leaves a register as it was, the step of an outer loop
between those of an inner one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from unspool._ir.align import Alignment, align, registers_after
from unspool._ir.trace import (
    INVARIANT,
    REGISTER,
    SLOT,
    STREAM,
    Body,
    Event,
    Instruction,
    Loop,
    Registers,
    Source,
    Unread,
    Window,
)

# How often a token has to be there before a loop is looked for.
REPEATS = 6

# The most bodies of one loop, and the most events of a window.
MOST_BODIES = 8
LONGEST = 1 << 14


class Follower:
    """A loop that goes on: bodies that are known, the registers, and a window that waits for the next."""

    def __init__(self, bodies: Sequence[Body], registers: Registers, belongs: Callable[[int], bool]) -> None:
        self.loop = Loop(list(bodies), dict(registers))
        self.registers = dict(registers)
        self.waiting: Window | None = None
        self.window = Window()
        self.satellites: list[Event] = []
        self._belongs = belongs
        # In which steps each body ran, and the last one in which each register was read or filled.
        self._runs: dict[int, list[int]] = {}
        self._used: dict[int, int] = {}
        self._firsts = {body.instructions[0].token for body in bodies if body.instructions}

    # -- windows --

    def add(self, event: Event) -> bool:
        """Take an event; tell whether the loop goes on."""
        if self.window.events and self._is_boundary(event):
            if self.waiting is None:
                self.waiting = self.window
            elif self._match(self.window, None) is None and not self._promote(self.window):
                # It is no step that is known: what hangs off the one before, or another step, which the next will tell.
                self.waiting = Window([*self.waiting.events, *self.window.events])
            elif self._commit(self.waiting, self.window):
                self.waiting = self.window
            else:
                return False
            self.window = Window()
        self.window.add(event)
        return all(w is None or self._is_short(w) for w in (self.waiting, self.window))

    def _is_short(self, window: Window) -> bool:
        """Whether a window is no longer than a step: a token that comes back in it again and again is a loop itself."""
        return len(window.events) < LONGEST and window.repeats < REPEATS

    def _is_boundary(self, event: Event) -> bool:
        """Whether an event begins a step: it is the first of a body that is known, or of this window once more."""
        if event.token not in self._firsts and event.token != self.window.events[0].token:
            return False
        if not all(result in self.window.made for result in event.results):
            return True
        return self._match(self.window, None) is not None  # made again, by the next step and not by this one

    def close(self) -> list[Event]:
        """End the loop with the last whole step; return the events that are left over."""
        windows = [window for window in (self.waiting, self.window) if window is not None and window.events]
        self.waiting, self.window = None, Window()
        left: list[Event] = []
        for window in windows:
            while not left and window.events:
                match = self._match(window, self.registers)
                if match is None:
                    break
                rest = window.after(match[1].positions[-1])
                if self._match(rest, self._next(match[0], window, match[1])) is None:
                    rest = Window()  # what follows hangs off this step
                self._append(*match, window if not rest.events else window.before(match[1].positions[-1]))
                window = rest
            left += window.events
        return left

    # -- steps --

    def _match(self, window: Window, known: Registers | None) -> tuple[int, Alignment] | None:
        """Find a body that a window may be a step of; the one of the last step first."""
        order = [self.loop.which[-1]] if self.loop.which else []
        order += [i for i in range(len(self.loop.bodies)) if i not in order]
        for may_change in (False, True):
            for i in order:
                if not self.loop.bodies[i].instructions:
                    continue  # it fits everywhere
                found = align(window, self.loop.bodies[i], known, may_change=may_change)
                if found is not None and self._is_possible(found, known):
                    return i, found
        return None

    def _promote(self, window: Window) -> bool:
        """Let values that were the same in all steps, and in this one are the loop's own, be registers."""
        for body in self.loop.bodies:
            found = align(window, body, None, may_change=True) if body.instructions else None
            if found is None or any(map(self._belongs, found.columns)):
                continue
            for at in [at for at, value in found.changed.items() if self._belongs(value)]:
                register = max(self.registers) + 1
                self.registers[register] = self.loop.initial[register] = at
                self._used[register] = len(self.loop.which)
                self._replace(Source(INVARIANT, at), Source(REGISTER, register))
            return self._match(window, None) is not None
        return False

    def _replace(self, old: Source, new: Source) -> None:
        for i, body in enumerate(self.loop.bodies):
            instructions = [
                instruction._replace(
                    sources=tuple([new if source == old else source for source in instruction.sources])
                )
                for instruction in body.instructions
            ]
            self.loop.bodies[i] = body._replace(instructions=tuple(instructions))

    def _is_possible(self, found: Alignment, known: Registers | None) -> bool:
        """Whether what comes from outside is no value of the loop, and what began as one value is one."""
        if any(map(self._belongs, (*found.columns, *found.changed.values()))):
            return False
        unread: dict[Unread, int] = {}
        for register, value in found.registers.items():
            there = None if known is None else known[register]
            if isinstance(there, Unread) and unread.setdefault(there, value) != value:
                return False
        return True

    def _commit(self, window: Window, following: Window) -> bool:
        """Append a window as a step, or several, given the one after it."""
        match = self._match(window, self.registers) or self._match_filled(window, self.registers)
        if match is not None:
            registers = self._next(match[0], window, match[1])
            if (
                self._match(following, registers) or self._match_filled(following, registers, match[1].registers)
            ) is not None:
                self._append(*match, window)
                return True
        after = self._match(following, None)
        if after is None:
            return False
        wanted = after[1].registers
        new = [value for register, value in wanted.items() if value != self.registers[register]]
        if match is not None:
            rest = window.after(match[1].positions[-1])
            if any(value in rest.made for value in new):
                self._append(*match, window.before(match[1].positions[-1]))
                self.waiting = rest
                return self._commit(rest, following)
        return self._append_variant(window, wanted)

    def _match_filled(
        self, window: Window, registers: Registers, read: Container[int] = ()
    ) -> tuple[int, Alignment] | None:
        """Find a body that fits if another, which ran once so far, filled registers that nobody has looked at since.

        ``read`` are those that a step looks at which is not appended yet.
        """
        match = self._match(window, None)
        if match is None:
            return None
        wrong = {
            r: v for r, v in match[1].registers.items() if registers[r] != v and not isinstance(registers[r], Unread)
        }
        for register, value in wrong.items():
            which, *_ = self.loop.last.get(value, (-1, -1, -1))
            runs = self._runs.get(which, [])
            is_kept = self.registers[register] == registers[register]
            if len(runs) != 1 or not is_kept or self._used.get(register, -1) > runs[0]:
                return None
            if register in read or register in dict(self.loop.bodies[which].assigned):
                return None
        found = self._match(window, {**registers, **wrong})
        if found is not None:
            for register, value in wrong.items():
                which, *slot = self.loop.last[value]
                self._assign(which, register, slot)
                self.registers[register] = value
        return found

    def _assign(self, which: int, register: int, slot: Sequence[int]) -> None:
        body = self.loop.bodies[which]
        assigned = {**dict(body.assigned), register: Source(SLOT, *slot)}
        self.loop.bodies[which] = body._replace(assigned=tuple(sorted(assigned.items())))

    def _new_register(self, value: int) -> int | None:
        """Return a new register for a value that the newest step of some body made; None if there is no such."""
        if value not in self.loop.last:
            return None
        which, *slot = self.loop.last[value]
        register = max(self.registers) + 1
        self._assign(which, register, slot)
        self.registers[register] = value
        self.loop.initial[register] = Unread(register)
        return register

    def _next(self, which: int, window: Window, found: Alignment) -> Registers:
        """Return the registers after a step."""
        read = {self.registers[register]: value for register, value in found.registers.items()}
        before = {register: read.get(value, value) for register, value in self.registers.items()}
        return registers_after(self.loop.bodies[which], before, window, found)

    def _append(self, which: int, found: Alignment, window: Window) -> None:
        """Append a window as a step of a body."""
        if found.changed:
            found = self._stream(which, found, window)
        taken = set(found.positions)
        self.satellites += [event for i, event in enumerate(window.events) if i not in taken]
        for register, value in found.registers.items():
            unread = self.registers[register]
            if isinstance(unread, Unread):
                self.loop.initial[unread.register] = value
                self.registers = {r: value if v == unread else v for r, v in self.registers.items()}
        self.registers = self._next(which, window, found)
        filled = dict(self.loop.bodies[which].assigned)
        self._used |= dict.fromkeys([*found.registers, *filled], len(self.loop.which))
        self._runs.setdefault(which, []).append(len(self.loop.which))
        self.loop.which.append(which)
        self.loop.columns.append(found.columns)
        self.loop.last = {value: place for value, place in self.loop.last.items() if place[0] != which}
        for i, position in enumerate(found.positions):
            for output, value in enumerate(window.events[position].results):
                self.loop.last[value] = (which, i, output)

    def _stream(self, which: int, found: Alignment, window: Window) -> Alignment:
        """Let values that were the same in all steps so far come from outside in each step."""
        changed = set(found.changed)
        for i, body in enumerate(self.loop.bodies):
            columns: list[tuple[bool, int]] = []
            instructions = []
            for instruction in body.instructions:
                sources: list[Source] = []
                for source in instruction.sources:
                    if source.kind == STREAM:
                        columns.append((True, 0))
                    elif source.kind == INVARIANT and source.at in changed:
                        columns.append((False, source.at))
                        source = Source(STREAM)
                    sources.append(source)
                instructions.append(Instruction(instruction.token, tuple(sources)))
            self.loop.bodies[i] = Body(tuple(instructions), body.assigned)
            for k, used in enumerate(self.loop.which):
                if used == i:
                    old = iter(self.loop.columns[k])
                    self.loop.columns[k] = tuple([next(old) if streamed else at for streamed, at in columns])
        again = align(window, self.loop.bodies[which], self.registers)
        assert again is not None
        return again

    # -- other bodies --

    def _append_variant(self, window: Window, wanted: dict[int, int]) -> bool:
        """Append a window that does something else than the bodies that are known, but fills their registers."""
        filled = self._filled(window, wanted)
        if filled is None:
            return False
        if not filled:  # a step that changes nothing, such as one that was rejected, is none
            self.satellites += window.events
            return True
        positions = window.ancestors([value for value in filled.values() if value in window.made])
        if positions:
            first = window.events[positions[0]].token
            again = next((p for p in positions[1:] if window.events[p].token == first), None)
            if again is not None:
                parts = window.before(again - 1), window.after(again - 1)
                return self._append_parts(*parts, wanted)
        body = self._describe(window, filled)
        if body is None:
            return False
        if body not in self.loop.bodies:
            if len(self.loop.bodies) == MOST_BODIES:
                return False
            self.loop.bodies.append(body)
            if body.instructions:
                self._firsts.add(body.instructions[0].token)
        which = self.loop.bodies.index(body)
        found = align(window, body, self.registers)
        if found is None:
            return False
        self._append(which, found, window)
        return True

    def _append_parts(self, window: Window, rest: Window, wanted: dict[int, int]) -> bool:
        """Append a window that is two steps or more, the second of which begins as the first does."""
        read = {value for event in rest.events for value in event.operands if value in window.made}
        body = self._describe(window, dict(enumerate(read, start=-len(read))))
        found = None if body is None else align(rest, body)
        if found is None:
            return False
        between = {register: value for register, value in found.registers.items() if register >= 0}
        if not self._append_variant(window, between):
            return False
        self.waiting = rest
        return self._append_variant(rest, wanted)

    def _filled(self, window: Window, wanted: dict[int, int]) -> dict[int, int] | None:
        """Return which registers a window has to fill, and with what; None if it cannot."""
        filled = {register: value for register, value in wanted.items() if value != self.registers[register]}
        there = set(self.registers.values())
        return filled if all(value in window.made or value in there for value in filled.values()) else None

    def _describe(self, window: Window, filled: dict[int, int]) -> Body | None:
        """Return the body that makes of a window what registers are filled with."""
        positions = window.ancestors([value for value in filled.values() if value in window.made])
        place = {position: i for i, position in enumerate(positions)}
        held: dict[int | Unread, int] = {}
        for register, value in self.registers.items():
            held.setdefault(value, register)
        invariants = {
            source.at
            for body in self.loop.bodies
            for i in body.instructions
            for source in i.sources
            if source.kind == INVARIANT
        }
        instructions = []
        for position in positions:
            sources: list[Source] = []
            for value in window.events[position].operands:
                if value in window.made and window.made[value][0] < position:
                    index, output = window.made[value]
                    sources.append(Source(SLOT, place[index], output))
                elif value in held:
                    sources.append(Source(REGISTER, held[value]))
                elif value in invariants:
                    sources.append(Source(INVARIANT, value))
                elif not self._belongs(value):
                    sources.append(Source(STREAM))
                else:  # something of an earlier step that nobody has read so far
                    added = self._new_register(value)
                    if added is None:
                        return None
                    held[value] = added
                    sources.append(Source(REGISTER, added))
            instructions.append(Instruction(window.events[position].token, tuple(sources)))
        assigned: list[tuple[int, Source]] = []
        for register, value in sorted(filled.items()):
            if value in window.made:
                index, output = window.made[value]
                assigned.append((register, Source(SLOT, place[index], output)))
            else:
                assigned.append((register, Source(REGISTER, held[value])))
        return Body(tuple(instructions), tuple(assigned))
