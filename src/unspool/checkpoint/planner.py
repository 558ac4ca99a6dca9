"""How to spend a budget of memory on a plain loop: blocks of steps, and a period for the disk.

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

from unspool.checkpoint._counting import at_least, least_advances_of_many
from unspool.checkpoint.binomial import reach, repeats, split
from unspool.errors import ArgumentError, BudgetError

__all__ = [
    "BlockPlan",
    "block_plan",
    "disk_period",
    "online_block",
]

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
    Blocks of one size are simple to carry out but not the optimum, which `_schedule` is near: where room for a dozen
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


# --- the disk --------------------------------------------------------------------------------------------------------


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
    if not (0 <= write < math.inf and 0 <= read < math.inf):
        raise ArgumentError(f"the times to write and to read are finite and not negative, got {write!r} and {read!r}")
    if limit is not None:
        limit = at_least(limit, 1, "limit")
    r, period = 0, 1
    while math.comb(slots + r + 1, r) < write + read and (limit is None or period < limit):
        r += 1
        period = math.comb(slots + r, r)
    return period if limit is None else min(period, limit)
