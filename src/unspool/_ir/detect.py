"""Detection: whether windows of events are steps of a loop.

Of a window only those events count that later windows depend on; the others (values that are looked at, logging) hang
off the loop and are no part of it. If the windows that are left agree, with operands that are slots of the step,
registers that the step before filled, the same for all steps, or from outside, they are steps of a loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from unspool._ir.trace import (
    INVARIANT,
    REGISTER,
    SLOT,
    STREAM,
    Body,
    Event,
    Instruction,
    Registers,
    Source,
    Unread,
    Window,
)


def detect(windows: Sequence[Window]) -> tuple[Body, Registers] | None:
    """Return the body that the first windows have in common, and the registers before the first of them.

    What the last windows make may be read by those to come: they show what is read of others, and are not compared.
    """
    for unknown in (1, 2):
        found = _compare(windows, live_positions(windows, unknown)[:-2])
        if found is not None:
            return found
    return None


def _compare(windows: Sequence[Window], live: list[list[int]]) -> tuple[Body, Registers] | None:
    tested = len(live)
    if any(positions[:1] != [0] for positions in live):
        return None  # what hangs off a loop must not decide where its steps begin
    steps = [[windows[k].events[i] for i in live[k]] for k in range(tested)]
    if any([e.token for e in step] != [e.token for e in steps[0]] for step in steps):
        return None
    places = [
        {result: (i, output) for i, event in enumerate(step) for output, result in enumerate(event.results)}
        for step in steps
    ]
    read: dict[tuple[int, ...], int] = {}
    instructions: list[list[Source]] = []
    for position in range(len(steps[0])):
        sources: list[Source] = []
        for operand in range(len(steps[0][position].operands)):
            if any(len(step[position].operands) <= operand for step in steps):
                return None
            values = tuple([step[position].operands[operand] for step in steps])
            inside = [places[k].get(value) for k, value in enumerate(values)]
            if inside[0] is not None and inside[0][0] < position and len(set(inside)) == 1:
                sources.append(Source(SLOT, *inside[0]))
            elif len(set(values)) == 1 and not any(values[0] in window.made for window in windows):
                sources.append(Source(INVARIANT, values[0]))
            else:
                sources.append(Source(REGISTER, read.setdefault(values, len(read))))
        instructions.append(sources)
    return _with_registers(windows, steps, places, read, instructions)


def _with_registers(
    windows: Sequence[Window],
    steps: list[list[Event]],
    places: list[dict[int, tuple[int, int]]],
    read: dict[tuple[int, ...], int],
    instructions: list[list[Source]],
) -> tuple[Body, Registers] | None:
    """Tell registers from streams by what fills them: a slot of the step before, or another register of it."""
    made_before = {result for window in windows for event in window.events for result in event.results}
    sources: dict[int, Source] = {}
    hidden: dict[tuple[int, int], int] = {}
    initial: Registers = {register: values[0] for values, register in read.items()}
    for values, register in read.items():
        filled = {places[k].get(values[k + 1]) for k in range(len(values) - 1)}
        slot = filled.pop() if len(filled) == 1 else None
        if slot is not None:
            sources[register] = Source(SLOT, *slot)
    direct = {(source.at, source.output) for source in sources.values()}
    for values, register in read.items():
        skipped = {places[k].get(values[k + 2]) for k in range(len(values) - 2)}
        slot = skipped.pop() if len(skipped) == 1 else None
        if register in sources or slot is None or slot in direct or slot in hidden:
            continue
        # It is read two steps later and not one: in between it waits in a register that nobody reads.
        hidden[slot] = len(read) + len(hidden)
        sources[hidden[slot]] = Source(SLOT, *slot)
        initial[hidden[slot]] = values[1]
    filled_ones: dict[tuple[int | Unread, ...], int] = {
        values: register for values, register in read.items() if register in sources
    }
    filled_ones |= {(initial[r],): r for r in hidden.values()}
    grown = True
    while grown:
        grown = False
        for values, register in read.items():
            if register in sources:
                continue
            other = next((r for v, r in filled_ones.items() if v[: len(values) - 1] == values[1 : len(v) + 1]), None)
            if other is not None:
                sources[register] = Source(REGISTER, other)
                filled_ones[values] = register
                grown = True
    for values, register in read.items():
        if register not in sources and made_before.intersection(values):
            return None  # it comes from the loop, but not in the same way in each step
    streams = {register for register in initial if register not in sources}
    if not sources:
        return None  # nothing is carried
    body = tuple(
        Instruction(
            steps[0][i].token,
            tuple([Source(STREAM) if s.kind == REGISTER and s.at in streams else s for s in row]),
        )
        for i, row in enumerate(instructions)
    )
    kept = {register: value for register, value in initial.items() if register not in streams}
    return Body(body, tuple(sorted(sources.items()))), kept


def live_positions(windows: Sequence[Window], unknown: int) -> list[list[int]]:
    """Return, for each window, the events that something in later windows depends on; all of the last ``unknown``."""
    wanted: set[int] = set()
    found: list[list[int]] = []
    for window in reversed(windows):
        positions = window.ancestors(wanted) if len(found) >= unknown else list(range(len(window.events)))
        found.append(positions)
        for position in positions:
            wanted.update(window.events[position].operands)
    return found[::-1]
