"""Where the temporaries of a native program lie: each has its place for as long as an instruction needs it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from unspool._engine.backends.native_fusing import slots_of
from unspool._engine.backends.native_program import ALIGNMENT, FUSE, IN_FRAME, PICK, VIEW, Builder

# Temporaries that take no more than this in all have a place of their own each.
LITTLE = 1 << 13


def place_temporaries(builder: Builder, sizes: Mapping[int, int]) -> None:
    """Give the temporaries of a program their places; ``sizes`` has those of which not all is there at once."""
    if builder.frame <= LITTLE:
        return
    spans = _spans(builder)
    free: list[tuple[int, int]] = []
    ending: dict[int, list[tuple[int, int]]] = {}
    end, position = 0, 0
    for slot in sorted(spans, key=lambda s: spans[s][0]):
        first, last = spans[slot]
        while position < first:
            free += ending.pop(position, ())
            position += 1
        _, _, array, dtype, shape, strides, order = builder.slots[slot]
        size = sizes.get(slot, prod(shape) * dtype.itemsize)
        size = -(-size // ALIGNMENT) * ALIGNMENT
        free = _joined(free)
        fitting = min([gap for gap in free if gap[1] >= size], key=lambda gap: gap[1], default=None)
        if fitting is None:
            at, end = end, end + size
        else:
            free.remove(fitting)
            at = fitting[0]
            if fitting[1] > size:
                free.append((at + size, fitting[1] - size))
        ending.setdefault(last, []).append((at, size))
        builder.slots[slot] = (IN_FRAME, at, array, dtype, shape, strides, order)
    builder.frame = end


def _spans(builder: Builder) -> dict[int, tuple[int, int]]:
    """Return the first and the last instruction that has to do with each temporary."""
    base: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    begin = end = -1
    for position, instruction in enumerate(builder.instructions):
        opcode, slots, *_, numbers, _ = instruction
        if opcode == FUSE:
            # What runs block by block runs all at once.
            begin, end = position, position + numbers[0]
        if opcode in (VIEW, PICK):
            base[slots[-1]] = base.get(slots[0], slots[0])
        first, last = (begin, end) if position <= end else (position, position)
        for mentioned in slots_of(instruction):
            slot = base.get(mentioned, mentioned)
            if builder.slots[slot][0] == IN_FRAME:
                spans[slot] = spans.get(slot, (first, first))[0], last
    return spans


def _joined(free: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return gaps with those made one that lie side by side."""
    made: list[tuple[int, int]] = []
    for at, size in sorted(free):
        if made and made[-1][0] + made[-1][1] == at:
            made[-1] = (made[-1][0], made[-1][1] + size)
        else:
            made.append((at, size))
    return made
