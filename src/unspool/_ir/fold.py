"""Folding: finding the loops in a stream of recorded operations.

The one idea: a step of a loop is known by what it *carries*. Events are what a program records, in order. A token says
what an event is (op, structure, line), without its operands. Where a token comes back again and again, the events
between two occurrences are a *window*. Of a window only those events count that later windows depend on; the others
(values that are looked at, logging) hang off the loop and are no part of it. If the windows that are left agree, with
operands that are slots of the step, registers that the step before filled, the same for all steps, or from outside,
they are steps of a loop.

Nothing here looks at who holds a tensor and what is evaluated, so a program folds the same way however it is watched.

A window is committed when the one after it is complete: what that one reads tells which registers the first assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise

from unspool._ir.align import align, registers_after
from unspool._ir.detect import detect
from unspool._ir.follow import LONGEST, REPEATS, Follower
from unspool._ir.trace import Body, Event, Loop, Registers, Unread, Window

__all__ = ["Event", "Folder", "Loop"]


class Folder:
    """Finds loops in a stream of events.

    Attributes
    ----------
    loops : list of Loop
        Those that have ended.
    events : list of Event
        What belongs to no loop: what hangs off the steps of loops too.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.loops: list[Loop] = []
        self._follower: Follower | None = None
        # After how many events each value was made, where each token stands, and how often it has to before a look.
        self._made: dict[int, int] = {}
        self._where: dict[Hashable, list[int]] = {}
        self._wait: dict[Hashable, int] = {}
        # Loops that have ended, by the tokens that their steps begin with.
        self._known: dict[Hashable, Loop] = {}

    def add(self, event: Event) -> None:
        """Take the next event of a program."""
        waiting = [event]
        while waiting:
            event = waiting.pop()
            if self._follower is None:
                self._begin(event)
            elif self._follower.add(event):
                for result in event.results:
                    self._made.setdefault(result, len(self.events))
            else:
                waiting += [event, *reversed(self._close())]

    def end(self) -> None:
        """Say that no event will follow."""
        while self._follower is not None:
            for event in self._close():
                self.add(event)

    def _begin(self, event: Event) -> None:
        """Take an event outside of a loop: one may begin with it, or be found."""
        loop = self._known.get(event.token)
        if loop is not None:
            self._made |= dict.fromkeys(event.results, len(self.events))
            self._follower = Follower(loop.bodies, unread(loop.initial), self._is_newer(len(self.events)))
            self._follower.add(event)
            return
        self._enter(event)
        where = self._where[event.token]
        if len(where) >= self._wait.get(event.token, REPEATS):
            self._wait[event.token] = len(where) * 3 // 2
            self._look(where)

    def _is_newer(self, first: int) -> Callable[[int], bool]:
        return lambda value: self._made.get(value, -1) >= first

    def _enter(self, event: Event) -> None:
        where = self._where.setdefault(event.token, [])
        # What is made once more, in a step that was rejected for instance, is no new step.
        if not where or self.events[where[-1]].results != event.results:
            where.append(len(self.events))
        for result in event.results:
            self._made[result] = len(self.events)
        self.events.append(event)

    def _look(self, where: list[int]) -> None:
        """Look for a loop whose steps begin at some events, the last of which is the newest of all."""
        last = where[-REPEATS:]
        if last[-1] - last[0] > LONGEST:
            return
        found = detect([Window(self.events[a:b]) for a, b in pairwise(last)])
        if found is None:
            return
        body, registers = found
        # From the first time on, if it was a loop then already; else from the first step that is just like these.
        for first, initial in ((where[0], unread(registers)), self._extended(body, registers, where)):
            events = self.events[first:]
            follower = Follower([body], initial, self._is_newer(first))
            if all(map(follower.add, events)):
                self._take_back(events, first)
                self._follower = follower
                return

    def _take_back(self, events: Sequence[Event], first: int) -> None:
        """Let events, the newest, belong to a loop from now on."""
        del self.events[first:]
        for event in events:
            where = self._where[event.token]
            while where and where[-1] >= first:
                where.pop()
            self._made |= dict.fromkeys(event.results, first)

    def _extended(self, body: Body, registers: Registers, where: list[int]) -> tuple[int, Registers]:
        """Return where the first step begins that is one of this loop, and the registers before it."""
        first = len(where) - REPEATS
        while first:
            window = Window(self.events[where[first - 1] : where[first]])
            found = align(window, body)
            if found is None:
                break
            before: Registers = {**unread(registers), **found.registers}
            after = registers_after(body, before, window, found)
            if any(value != after[r] and not isinstance(value, Unread) for r, value in registers.items()):
                break
            first, registers = first - 1, before
        return where[first], registers

    def _close(self) -> list[Event]:
        """End the loop that goes on; return the events that are to be looked at again."""
        follower = self._follower
        assert follower is not None
        self._follower = None
        left = follower.close()
        loop = follower.loop
        for event in follower.satellites:
            self._enter(event)
        if not loop.which:  # it only began like a loop that there was
            for event in left:
                self._enter(event)
            return []
        self.loops.append(loop)
        self._known |= {body.instructions[0].token: loop for body in loop.bodies if body.instructions}
        for event in left:  # they may be the beginning of another loop
            for result in event.results:
                self._made.pop(result, None)
        return left


def unread(registers: Iterable[int]) -> Registers:
    """Return registers of which nobody knows what is in them."""
    return {register: Unread(register) for register in registers}
