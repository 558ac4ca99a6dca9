"""How to spend a budget of memory on a loop: blocks of steps, a period for the disk, and the least that works.

The one idea: everything that recomputing can cost has a closed form, so the best plan is found by trying the few that
differ. Room that is left when all states fit is best spent on what reversing needs (the *tape* of a step), because
states alone leave every step to be run twice. So steps are taken in blocks that are taped at once, and the binomial
schedule runs over blocks.

Steps, states and slots are counted as in `binomial`. This module knows nothing of tensors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from unspool.checkpoint._counting import at_least, least_advances, least_advances_of_many
from unspool.checkpoint._schedule.disk import best_tail, check_times
from unspool.checkpoint.binomial import reach, repeats, split
from unspool.errors import ArgumentError, BudgetError

__all__ = [
    "BlockPlan",
    "block_plan",
    "disk_cost",
    "disk_period",
    "disk_tail",
    "least_budget",
    "mixed_evaluations",
    "online_block",
]

# The exact table takes time in steps² and memory in steps.
_MOST_MIXED = 400


# --- blocks of steps -------------------------------------------------------------------------------------------------


class BlockPlan(NamedTuple):
    """How a loop is cut into blocks, and what that costs.

    Attributes
    ----------
    block : int
        How many steps are taped and reversed at once; one block may be shorter, see `bounds`.
    slots : int
        How many states are saved at most, the start included; never more than are of use.
    factor : float
        The recompute factor: all evaluations of a step by step.

    Examples
    --------
    >>> plan = block_plan(50, room=200, state=1, tape=5)
    >>> plan
    BlockPlan(block=40, slots=1, factor=1.2)
    >>> plan.bounds(50)
    [0, 10, 50]
    """

    block: int
    slots: int
    factor: float

    def bounds(self, steps: int) -> list[int]:
        """Return where the blocks of a loop of ``steps`` steps begin, and where the last one ends.

        If the blocks do not divide the loop, one is shorter: the one that the binomial schedule over the blocks
        advances most often. The factor of the plan is reached with these blocks.
        """
        count = -(-at_least(steps, 1, "steps") // self.block)
        cut = count * self.block - steps
        short = _most_advanced(count, self.slots)
        return [self.block * index - (cut if index > short else 0) for index in range(count + 1)]


def block_plan(steps: int, room: int, state: int, tape: int) -> BlockPlan:
    """Return the best way to cut a loop into blocks that are taped at once.

    With blocks of q steps, q − 1 tapes more than one are alive at a time, and ⌈steps / q⌉ blocks are reversed by the
    binomial schedule over the slots that remain.

    Parameters
    ----------
    steps : int
        The length of the loop; at least 1.
    room : int
        The bytes for saved states and for tapes. What must be there anyway is apart: the tape of the one step that is
        being reversed, and the workspace of an operation.
    state, tape : int
        The bytes of a state, at least 1, and of the tape of a step, at least 0.

    Returns
    -------
    BlockPlan
        The plan with the least recompute factor; of equally good ones that with the smallest blocks. Blocks of one step
        are among the candidates, so it is never worse than the binomial schedule of single steps.

    Raises
    ------
    BudgetError
        If there is no room for one state.

    Notes
    -----
    Blocks of one size are simple to carry out but not the optimum, which is `mixed_evaluations`: where room for a dozen
    tapes has to serve hundreds of steps, that takes up to a fifth fewer evaluations.

    Examples
    --------
    >>> block_plan(10_000, room=1000, state=1, tape=20)
    BlockPlan(block=37, slots=270, factor=1.9963)
    """
    steps, room = at_least(steps, 1, "steps"), at_least(room, 0, "room")
    state, tape = at_least(state, 1, "state"), at_least(tape, 0, "tape")
    if room < state:
        error = BudgetError(f"there is room for {room} bytes, and the one state that is always kept takes {state}")
        error.least = state
        raise error
    most = steps if not tape else min(steps, 1 + (room - state) // tape)
    block = np.arange(1.0, most + 1)
    slots = np.maximum((room - (block - 1) * tape) // state, 1.0)
    count = np.ceil(steps / block)
    # The cost is linear in the size of the one block that is shorter, between none of it and all of it.
    full = steps - (count - 1) * block
    work = full * least_advances_of_many(count, slots) + (block - full) * least_advances_of_many(count - 1, slots)
    best = int(work.argmin())
    return BlockPlan(best + 1, int(max(1, min(slots[best], count[best] - 1))), 1 + float(work[best]) / steps)


def _most_advanced(count: int, slots: int) -> int:
    """Return the step that the binomial schedule advances as often as it advances any."""
    first = 0
    while count > 1 and slots > 1:
        distance = split(count, slots)
        r = repeats(count, slots)
        if r < 2 or distance > reach(slots, r - 2):
            count = distance
        else:
            first, count, slots = first + distance, count - distance, slots - 1
    return first


def online_block(steps: int, room: int, state: int, tape: int) -> int:
    """Return how many of the newest steps of a running loop to keep the tapes of, states being kept of the others.

    As long as blocks of that length fit beside a state for each block of all steps, every step is run again no more
    than once, and those of the newest block not at all; so the longest such block is best. The loop will go on, and
    states that were dropped do not come back: it is looked at as if it had twice as many steps already, if that can be.
    Where steps have to run more often, it is the block of `block_plan`.

    Parameters
    ----------
    steps, room, state, tape : int
        As in `block_plan`.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> online_block(100, room=1000, state=1, tape=20)
    49
    >>> online_block(10_000, room=1000, state=1, tape=20)
    36
    """
    for horizon in (2 * steps, steps):
        rest = room * room - 4 * tape * state * horizon
        if rest >= 0:
            return max(1, int((room + math.sqrt(rest)) / (2 * tape)))
    return block_plan(steps, max(room, state), state, tape).block


def mixed_evaluations(steps: int, units: int, tape_units: int) -> int:
    """Return the least evaluations of a step that reverse a loop if saved states and tapes share the room.

    This is the exact optimum that `block_plan` approximates: at any time any set of states and tapes may be kept. The
    last step of what is being reversed is taped in place and takes no room, as in `block_plan`.

    Parameters
    ----------
    steps : int
        The length of the loop; from 1 to 400, because time grows with its square.
    units : int
        The room, counted in states; at least 1.
    tape_units : int
        What the tape of a step takes, counted in states; at least 1.

    Returns
    -------
    int
        All evaluations of a step, the first sweep included.

    Notes
    -----
    With f(l, c) for l steps and c free units: a tape of the first step leaves f(l − 1, c − tape_units), and one more
    evaluation; saving the start and advancing i steps leaves f(l − i, c − 1) and then f(i, c), and i evaluations. For
    ``tape_units=1`` this is the mixed schedule of Maddison (2024).

    Examples
    --------
    >>> mixed_evaluations(100, 10, 1)
    237
    """
    steps, units = at_least(steps, 1, "steps"), at_least(units, 1, "units")
    tape_units = at_least(tape_units, 1, "tape_units")
    if steps > _MOST_MIXED:
        raise ArgumentError(f"the exact table is for at most {_MOST_MIXED} steps, got {steps}")
    units = min(units, max(1, (steps - 1) * tape_units))
    # Every real cost is below this, and two of them can be added.
    impossible = 2**29
    table = np.full((steps + 1, units + 1), impossible, np.int32)
    table[1] = 1
    lengths = np.arange(steps + 1, dtype=np.int32)[:, np.newaxis]
    for length in range(2, steps + 1):
        # Row i of the first factor has i + f(i, c); row i of the second has f(length − i, c − 1).
        sums = (table[1:length] + lengths[1:length])[:, 1:] + table[length - 1 : 0 : -1, :-1]
        table[length, 1:] = sums.min(axis=0)
        if tape_units <= units:
            taped = table[length - 1, : units + 1 - tape_units] + 1
            np.minimum(table[length, tape_units:], taped, out=table[length, tape_units:])
    return int(table[steps, units])


# --- the disk --------------------------------------------------------------------------------------------------------


def disk_cost(steps: int, slots: int, period: int, write: float, read: float) -> float:
    """Return what it costs to run and reverse a loop if every ``period``-th state goes to disk.

    The tail of the loop, see `disk_tail`, is reversed straight from memory. Each period before it is read once and
    reversed binomially; its first state takes one of the slots then.

    Parameters
    ----------
    steps : int
        The length of the loop; at least 1.
    slots : int
        How many states there is room for in memory; at least 1.
    period : int
        How many steps lie between states on disk; at least 1.
    write, read : float
        The time to write and to read a state, in units of a step.

    Returns
    -------
    float
        The time of all evaluations, writes and reads, in units of a step.

    Examples
    --------
    >>> disk_cost(1000, slots=5, period=6, write=2, read=2)
    3483.0
    """
    tail = disk_tail(steps, slots, period, write, read)
    through_disk = 2 * period + least_advances(period, slots) + write + read
    return float((steps - tail) // period * through_disk + tail + least_advances(tail, slots))


def disk_tail(steps: int, slots: int, period: int, write: float, read: float) -> int:
    """Return how many steps at the end of a loop are best reversed from memory, with no state on disk.

    It is the remainder after whole periods, and as many periods more as cost less to recompute than to write and read.

    Parameters
    ----------
    steps : int
        The length of the loop; at least 1.
    slots : int
        How many states there is room for in memory; at least 1.
    period : int
        How many steps lie between states on disk; at least 1.
    write, read : float
        The time to write and to read a state, in units of a step.

    Returns
    -------
    int
        At least 1 and at most ``steps``.

    Examples
    --------
    >>> disk_tail(1000, slots=5, period=6, write=2, read=2)
    22
    """
    steps, slots, period = at_least(steps, 1, "steps"), at_least(slots, 1, "slots"), at_least(period, 1, "period")
    check_times(write, read)
    through_disk = period + least_advances(period, slots) + write + read
    return best_tail(steps, period, through_disk, lambda count: least_advances(count, slots))


def disk_period(slots: int, write: float, read: float, *, limit: int | None = None) -> int:
    """Return how many steps should lie between states on disk.

    The cost of a step falls with the period as long as a period's recomputation is below what its write and read cost,
    and this changes only where the number of repeats does. So the best period is a reach.

    Parameters
    ----------
    slots : int
        How many states there is room for in memory; at least 1.
    write, read : float
        The time to write and to read a state, in units of a step.
    limit : int, optional
        The longest period that is of use, for instance the length of the loop.

    Returns
    -------
    int
        The period with the least cost of a step in a long loop, and no more than ``limit``.

    Examples
    --------
    >>> disk_period(slots=5, write=2, read=2)
    6
    """
    slots = at_least(slots, 1, "slots")
    check_times(write, read)
    if limit is not None:
        limit = at_least(limit, 1, "limit")
    r, period = 0, 1
    while math.comb(slots + r + 1, r) < write + read and (limit is None or period < limit):
        r += 1
        period = math.comb(slots + r, r)
    return period if limit is None else min(period, limit)


# --- the least that works --------------------------------------------------------------------------------------------


def least_budget(state: int, tape: int, workspace: int, fixed: int) -> int:
    """Return the smallest budget with which a loop can be reversed.

    Parameters
    ----------
    state : int
        The bytes of a state: the start is always kept.
    tape : int
        The bytes of the tape of a step: that of the step being reversed is alive.
    workspace : int
        The bytes that the widest single operation needs beside its operands and results.
    fixed : int
        The bytes that are there in any case: leaves, sums of cotangents, values that are pinned.

    Returns
    -------
    int
        The sum, in bytes.

    Examples
    --------
    >>> least_budget(state=100, tape=2000, workspace=50, fixed=300)
    2450
    """
    return sum(
        at_least(size, 0, name)
        for size, name in ((state, "state"), (tape, "tape"), (workspace, "workspace"), (fixed, "fixed"))
    )
