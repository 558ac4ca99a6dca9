"""Elementwise instructions on large arrays, run together, block by block of rows, so that a block stays in the cache.

A chain is a sequence of instructions that all go through the same number of rows. Whatever one of them writes, the
others read at the same rows; so they may all treat some rows before any treats the next ones. Each calls the same inner
loops on the same elements as it would alone, and what is added up over rows is added in the same order: the bits do not
change. What nobody reads after the chain needs memory for one block only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from unspool._engine.backends.native_program import (
    CALL,
    CAST,
    COPY,
    DRAW,
    FEW_DOUBLES,
    FILL,
    FORTRAN,
    FUSE,
    IN_FRAME,
    LOOP,
    MOST_OPERANDS,
    PICK,
    POSITIONS,
    PUT,
    REDUCE,
    SELECT,
    VIEW,
    Builder,
    bases_of,
)

# What a block of the widest operand has, about, and how many bytes make a chain worth it. Operands of an instruction
# and of the next one stay in the first level of the cache together.
BLOCK_BYTES = 1 << 12
WORTH_BLOCKS = 1 << 14

_BY_ROWS = frozenset({FEW_DOUBLES, LOOP, COPY, CAST, SELECT, REDUCE})

Instruction = tuple[Any, ...]


class _Member(NamedTuple):
    """An instruction by rows: over its first axis, or ``width`` elements a row; bytes from row to row of operands."""

    is_outer: bool
    width: int
    steps: list[int]


def slots_of(instruction: Instruction) -> Iterable[int]:
    """Return the slots that an instruction reads or fills."""
    opcode, numbers = instruction[0], instruction[6]
    if opcode == FORTRAN:
        return [n for n in numbers[1:] if n >= 0]
    found: Iterable[int] = numbers[2:] if opcode == CALL else instruction[1]
    return found


def fuse(builder: Builder) -> dict[int, int]:
    """Put instructions together, and return how many bytes temporaries need that are used by one block at a time."""
    instructions = builder.instructions
    if not any(_bytes(i) >= WORTH_BLOCKS for i in instructions if i[0] in _BY_ROWS):
        return {}
    if any(i[0] not in _KNOWN for i in instructions):
        return {}
    base = bases_of(instructions)
    uses: dict[int, int] = {}
    for instruction in instructions:
        for slot in {base.get(s, s) for s in slots_of(instruction)}:
            uses[slot] = uses.get(slot, 0) + 1
    made: list[Instruction] = []
    sizes: dict[int, int] = {}
    at = 0
    while at < len(instructions):
        chain = _Chain(builder, base)
        end = chain.take(instructions, at)
        made += chain.written(uses, sizes)
        if end == at:
            made.append(instructions[at])
            end += 1
        at = end
    instructions[:] = made
    return sizes


# Instructions after which the next one always comes: programs that jump are left as they are.
_KNOWN = frozenset({*range(13), POSITIONS, PUT, DRAW})


def _bytes(instruction: Instruction) -> int:
    """Return about how many bytes an instruction goes through."""
    _, _, shape, count, *_ = instruction
    size: int = prod(shape) * count
    return 8 * size


class _Chain:
    """Instructions that run block by block."""

    def __init__(self, builder: Builder, base: dict[int, int]) -> None:
        self._builder, self._base = builder, base
        self._rows = 0
        self._members: list[tuple[Instruction, _Member]] = []
        self._before: list[Instruction] = []
        self._steps: dict[int, set[int]] = {}
        self._filled: set[int] = set()
        self._summed: set[int] = set()

    def take(self, instructions: Sequence[Instruction], start: int) -> int:
        """Take as many instructions as belong together, and return where the others begin."""
        self._rows = _rows_of(self._builder, instructions, start)
        at = start
        while self._rows > 1 and at < len(instructions) and self._accept(instructions[at]):
            at += 1
        if len(self._members) < 2 or max(_bytes(i) for i, _ in self._members) < WORTH_BLOCKS:
            self._members, self._before = [], []
            return start
        return at

    def _accept(self, instruction: Instruction) -> bool:
        opcode, slots = instruction[:2]
        met = {self._base.get(s, s) for s in slots_of(instruction)}
        if opcode in (FILL, VIEW, PICK):
            # They are made before the chain if it has not met what they are about.
            is_apart = not met & (self._steps.keys() if opcode == FILL else self._filled | self._summed)
            if is_apart:
                self._before.append(instruction)
            return is_apart
        member = _member(instruction, self._rows) if opcode in _BY_ROWS else None
        if member is None:
            return False
        *read, result = [self._base.get(s, s) for s in slots]
        sums = opcode == REDUCE and member.steps[-1] == 0
        for slot, step in zip(read, member.steps, strict=False):
            if slot in self._summed or (slot in self._filled and self._steps[slot] != {step}):
                return False
        if result in self._summed or (result in self._steps and (sums or self._steps[result] != {member.steps[-1]})):
            return False
        if member.steps[-1] == 0 and not sums:
            return False
        if slots[-1] in self._base:
            return False
        for slot, step in zip((*read, result), member.steps, strict=True):
            self._steps.setdefault(slot, set()).add(step)
        (self._summed if sums else self._filled).add(result)
        self._members.append((instruction, member))
        return True

    def written(self, uses: dict[int, int], sizes: dict[int, int]) -> list[Instruction]:
        """Return the instructions of the chain after the one that runs them, and note what temporaries need."""
        if not self._members:
            return self._before
        width = max(step for _, member in self._members for step in member.steps)
        block = max(1, min(self._rows, BLOCK_BYTES // max(1, width)))
        mentioned: dict[int, int] = {}
        for instruction, _ in self._members:
            for slot in {self._base.get(s, s) for s in slots_of(instruction)}:
                mentioned[slot] = mentioned.get(slot, 0) + 1
        viewed = set(self._base.values())
        # What is filled before the chain, with zeros that others are added to, is all there, and counts as used there.
        local = {
            slot
            for slot in self._filled
            if self._builder.slots[slot][0] == IN_FRAME and mentioned[slot] == uses[slot] and slot not in viewed
        }
        numbers: list[int] = [len(self._members), self._rows, block]
        for (_, slots, *_), member in self._members:
            steps = [0 if s in local else step for s, step in zip(slots, member.steps, strict=True)]
            numbers += [member.is_outer, member.width, *steps, *[0] * (MOST_OPERANDS - len(steps))]
        for slot in local:
            (step,) = self._steps[slot]
            sizes[slot] = block * step
        first: Instruction = (FUSE, (), (), 0, (), (), tuple(numbers), None)
        return [*self._before, first, *[instruction for instruction, _ in self._members]]


def _rows_of(builder: Builder, instructions: Sequence[Instruction], start: int) -> int:
    """Return over how many rows a chain that begins at an instruction would go; 0 for none."""
    found = 0
    for opcode, slots, shape, *_ in instructions[start:]:
        if opcode in (FILL, VIEW, PICK):
            continue
        if opcode not in _BY_ROWS:
            break
        if shape:
            return int(shape[0])
        whole = builder.slots[slots[-1]][4]
        if not found and whole:
            found = whole[0]
    return found


def _member(instruction: Instruction, rows: int) -> _Member | None:
    """Return how an instruction goes through a number of rows, if it does."""
    opcode, _, shape, count, outer, inner, _, _ = instruction
    if shape:
        steps = [s[0] for s in outer]
        return _Member(True, 0, steps) if shape[0] == rows and min(steps) >= 0 else None
    if opcode == REDUCE or count % rows or min(inner) < 0 or (opcode == FEW_DOUBLES and instruction[6][0] == ord("S")):
        return None
    width = count // rows
    return _Member(False, width, [s * width for s in inner])
