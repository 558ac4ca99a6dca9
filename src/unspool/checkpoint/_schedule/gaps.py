"""The backward pass: the rows that reverse the steps between saved states, from the newest gap to the oldest.

Each gap is a stretch of known length, reversed by the tree of splits that `reach` has, with all room that older states
do not hold. The one idea: the tree is made of few different parts. All parts but one at each level are full, so a part
of some steps and room occurs again and again, shifted: its rows are made once, as an array, and then added to. Parts of
one state a leaf, and the sweep from a single state, are arrays at once. So Python takes part once for some hundred
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from unspool.checkpoint._schedule.actions import ADVANCE, FREE, LOAD, REVERSE, SAVE, TAPE, Rows, chunks, rows
from unspool.checkpoint._schedule.reach import Reach

__all__ = ["backward_pass", "reverse_gap", "reverse_part"]

# Parts of up to so many steps are made once; so many steps of a sweep from one state are made at a time.
_SMALL = 256
_SWEEP = 256


def backward_pass(
    reach: Reach, positions: Sequence[int], edge: int, end: int, slots: Sequence[int] | None = None
) -> Iterator[Rows]:
    """Yield chunks of rows that reverse a loop that has run.

    Parameters
    ----------
    reach : Reach
        The room, and what it can do.
    positions : sequence of int
        The saved states, rising from state 0.
    edge, end : int
        The steps from ``edge`` up to ``end``, where the loop ended, are on the tape.
    slots : sequence of int, optional
        The slots of the saved states, some order of 0, 1, …; in the order of the states unless given.
    """
    return chunks(_gaps(reach, positions, edge, end, slots))


def _gaps(reach: Reach, positions: Sequence[int], edge: int, end: int, slots: Sequence[int] | None) -> Iterator[Rows]:
    if edge < end:
        yield rows((REVERSE, edge, end, 0))
    number = None if slots is None else np.array(slots, np.int64)
    parts: _Parts = {}
    stop = edge
    for index in range(len(positions) - 1, -1, -1):
        start = positions[index]
        for block in reverse_gap(reach, start, stop, reach.slots - 1 - index, parts):
            yield block if number is None else _renumbered(block, number)
        stop = start


def _renumbered(block: Rows, slots: Rows) -> Rows:
    """Return rows whose slots count the states by age as rows for the slots that states of that age have."""
    block = block.copy()
    kind, slot = block[:, 0], block[:, 3]
    named = ((kind == SAVE) | (kind == LOAD) | (kind == FREE)) & (slot < len(slots))
    slot[named] = slots[slot[named]]
    return block


# --- one gap ---------------------------------------------------------------------------------------------------------

_Parts = dict[tuple[int, int, bool], Rows]


def reverse_gap(reach: Reach, start: int, stop: int, free: int, parts: _Parts) -> Iterator[Rows]:
    """Yield blocks of rows that reverse the steps from a saved state up to, not including, ``stop``.

    Parameters
    ----------
    reach : Reach
        The room, and what it can do.
    start, stop : int
        The saved state, in the slot ``reach.slots - 1 - free``, and the end of the gap, which may be empty.
    free : int
        How many states there is room for beside it and all older ones.
    parts : dict
        The rows of small parts, kept from gap to gap.
    """
    slot = reach.slots - 1 - free
    if start == stop:
        yield rows((FREE, start, start, slot))
        return
    yield rows((LOAD, start, start, slot))
    yield from reverse_part(reach, start, stop - start, free, True, parts)


def reverse_part(reach: Reach, start: int, steps: int, free: int, saved: bool, parts: _Parts | None) -> Iterator[Rows]:
    """Yield blocks that reverse a part from its start, which is current, and saved or not.

    Without a dictionary of parts none is looked up or kept.
    """
    # Parts to the left of a split wait until that to its right is reversed.
    waiting: list[tuple[int, int, int]] = []
    while True:
        slot = reach.slots - 1 - free
        if steps <= reach.leaf(free):
            yield _leaf(start, steps, slot, saved)
        elif free == 0:
            yield from _sweep(start, steps, reach.leaf(0), slot, saved)
        elif reach.is_row_of_leaves(steps, free):
            yield _row_of_leaves(start, reach.leaves(steps, free), slot, saved)
        elif steps <= _SMALL and parts is not None:
            yield _small(reach, start, steps, free, saved, parts)
        else:
            middle = start + reach.split(steps, free)
            advance = (ADVANCE, start, middle, 0)
            yield rows(advance) if saved else rows((SAVE, start, start, slot), advance)
            waiting.append((start, middle - start, free))
            start, steps, free, saved = middle, start + steps - middle, free - 1, False
            continue
        if not waiting:
            return
        start, steps, free = waiting.pop()
        yield rows((LOAD, start, start, reach.slots - 1 - free))
        saved = True


def _leaf(start: int, steps: int, slot: int, saved: bool) -> Rows:
    both = (TAPE, start, start + steps, steps), (REVERSE, start, start + steps, 0)
    # No earlier step needs the state of a leaf, so the tape may take it over.
    return rows((FREE, start, start, slot), *both) if saved else rows(*both)


def _small(reach: Reach, start: int, steps: int, free: int, saved: bool, parts: _Parts) -> Rows:
    block = parts.get((steps, free, saved))
    if block is None:
        block = np.concatenate(list(reverse_part(reach, 0, steps, free, saved, None)))
        parts[steps, free, saved] = block
    return block + np.array((0, start, start, 0), np.int64)


def _sweep(start: int, steps: int, leaf: int, slot: int, saved: bool) -> Iterator[Rows]:
    """Yield what reverses a stretch from one state alone: to each step from the start again."""
    if not saved:
        yield rows((SAVE, start, start, slot))
    newest = start + steps - 1
    while newest >= start + leaf:
        step = np.arange(newest, max(newest - _SWEEP, start + leaf - 1), -1)
        block = np.empty((len(step), 4, 4), np.int64)
        block[:, 0] = ADVANCE, start, 0, 0
        block[:, 1] = TAPE, 0, 0, 1
        block[:, 2] = REVERSE, 0, 0, 0
        block[:, 3] = LOAD, start, start, slot
        block[:, 0, 2] = block[:, 1, 1] = block[:, 2, 1] = step
        block[:, 1, 2] = block[:, 2, 2] = step + 1
        yield block.reshape(-1, 4)
        newest -= len(step)
    yield _leaf(start, leaf, slot, True)


def _row_of_leaves(start: int, sizes: Rows, slot: int, saved: bool) -> Rows:
    """Return what saves the start of every leaf but the last, and then reverses leaf by leaf."""
    bounds = start + np.concatenate(([0], np.cumsum(sizes)))
    begin, stop = bounds[:-2], bounds[1:-1]
    count = len(begin)
    slots = slot + np.arange(count)
    forward = np.empty((count, 2, 4), np.int64)
    forward[:, 0, 0], forward[:, 0, 1], forward[:, 0, 2], forward[:, 0, 3] = SAVE, begin, begin, slots
    forward[:, 1, 0], forward[:, 1, 1], forward[:, 1, 2], forward[:, 1, 3] = ADVANCE, begin, stop, 0
    backward = np.empty((count, 4, 4), np.int64)
    backward[:, :2, 1] = backward[:, :2, 2] = begin[::-1, np.newaxis]
    backward[:, :2, 3] = slots[::-1, np.newaxis]
    backward[:, 2:, 1], backward[:, 2:, 2] = begin[::-1, np.newaxis], stop[::-1, np.newaxis]
    backward[:, 2, 3], backward[:, 3, 3] = sizes[-2::-1], 0
    backward[:, :, 0] = LOAD, FREE, TAPE, REVERSE
    newest = _leaf(int(bounds[-2]), int(sizes[-1]), 0, False)
    return np.concatenate((forward.reshape(-1, 4)[saved:], newest, backward.reshape(-1, 4)))
