"""Aligning a window of events with a body: which events are its instructions, and what registers and streams are."""

from __future__ import annotations

from typing import NamedTuple

from unspool._ir.trace import REGISTER, SLOT, STREAM, Body, Instruction, Registers, Unread, Window


class Alignment(NamedTuple):
    """A window beside a body: the event of each instruction, the values of the registers, and those of the streams."""

    positions: list[int]
    registers: dict[int, int]
    columns: tuple[int, ...]
    changed: dict[int, int]


def align(window: Window, body: Body, known: Registers | None = None, *, may_change: bool = False) -> Alignment | None:
    """Find the instructions of a body among the events of a window.

    ``known`` are the values that registers have to have; ``None``: whatever they are, as long as it is the same
    wherever the step reads them. With ``may_change``, values that were the same in all steps may be others now.
    """
    positions: list[int] = []
    registers: dict[int, int] = {}
    columns: list[int] = []
    changed: dict[int, int] = {}
    position = 0
    for instruction in body.instructions:
        while position < len(window.events):
            if window.events[position].token == instruction.token:
                found = _fit(window, positions, position, instruction, registers, known)
                if found is not None and (may_change or not found[2]):
                    break
            position += 1
        else:
            return None
        registers.update(found[0])
        columns += found[1]
        changed.update(found[2])
        positions.append(position)
        position += 1
    return Alignment(positions, registers, tuple(columns), changed)


def _fit(
    window: Window,
    positions: list[int],
    position: int,
    instruction: Instruction,
    registers: dict[int, int],
    known: Registers | None,
) -> tuple[dict[int, int], list[int], dict[int, int]] | None:
    """Return what an event tells of registers, streams and changed values if it can be an instruction; else None."""
    event = window.events[position]
    if len(event.operands) != len(instruction.sources):
        return None
    found: dict[int, int] = {}
    streamed: list[int] = []
    changed: dict[int, int] = {}
    for value, (kind, at, output) in zip(event.operands, instruction.sources, strict=True):
        if kind == SLOT:
            if at >= len(positions) or window.events[positions[at]].results[output] != value:
                return None
        elif kind == REGISTER:
            expected = Unread(at) if known is None else known[at]
            if isinstance(expected, Unread):
                expected = registers.get(at, found.get(at, value))
            if expected != value:
                return None
            found[at] = value
        elif kind == STREAM:
            streamed.append(value)
        elif at != value:
            changed[at] = value
    return found, streamed, changed


def registers_after(body: Body, before: Registers, window: Window, found: Alignment) -> Registers:
    """Return the registers after a step."""
    registers = dict(before)
    for register, (kind, at, output) in body.assigned:
        if kind == SLOT:
            registers[register] = window.events[found.positions[at]].results[output]
        else:
            registers[register] = before[at]
    return registers
