"""Reversing a loop of known length with few saved states: the binomial schedule (Revolve), in closed form.

The backward pass needs the states of a loop from the last to the first, and there is room for a few of them, the start
included. What is missing is computed again from the nearest saved state. The one idea: a loop that is reversed with
``slots`` states and no step advanced more than ``repeats`` times has at most C(slots + repeats, repeats) steps. From
this number follow the least work and where to save the next state. Neighbouring binomials differ by one multiplication
and one division. The rows that carry it out are those of `_schedule`, where tapes share the room with states.

Steps are counted from 0. *State k* is what step k starts from. An *advance* runs a step only for its result; what is
needed to reverse it is not kept. To be reversed a step runs once more. So a loop of K steps takes K + advances
evaluations of a step in all.

The schedule is that of Griewank (1992) and Griewank and Walther (2000). This module knows nothing of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from unspool.checkpoint._counting import at_least, least_advances, least_repeats

__all__ = [
    "advances",
    "checkpoints",
    "factor",
    "reach",
    "repeats",
    "split",
]


# --- numbers ---------------------------------------------------------------------------------------------------------


def reach(slots: int, repeats: int) -> int:
    """Return the most steps that ``slots`` states reverse if no step is advanced more than ``repeats`` times.

    Parameters
    ----------
    slots : int
        How many states there is room for, the start included; at least 1.
    repeats : int
        How often a step may be advanced, the first sweep included; at least 0.

    Returns
    -------
    int
        The binomial coefficient C(slots + repeats, repeats), exact.

    Examples
    --------
    >>> reach(5, 3)
    56
    """
    slots, repeats = at_least(slots, 1, "slots"), at_least(repeats, 0, "repeats")
    return math.comb(slots + repeats, repeats)


def repeats(steps: int, slots: int) -> int:
    """Return how often some step has to be advanced: the least r with ``reach(slots, r) >= steps``.

    Parameters
    ----------
    steps : int
        The length of the loop; at least 1.
    slots : int
        How many states there is room for, the start included; at least 1.

    Examples
    --------
    >>> repeats(56, 5), repeats(57, 5)
    (3, 4)
    """
    steps, slots = at_least(steps, 1, "steps"), at_least(slots, 1, "slots")
    return least_repeats(steps, slots)[0]


def advances(steps: int, slots: int) -> int:
    """Return the least number of advances that reverse a loop, the first sweep included.

    With r repeats it is r·steps − C(slots + r, r − 1). Slots beyond ``steps - 1`` do not help: every step but the last
    is advanced once.

    Parameters
    ----------
    steps : int
        The length of the loop; at least 1.
    slots : int
        How many states there is room for, the start included; at least 1.

    Returns
    -------
    int
        The number of steps advanced. The run of each step just before it is reversed is not counted.

    Examples
    --------
    >>> advances(50, 7)
    105
    >>> advances(10, 1)
    45
    """
    steps, slots = at_least(steps, 1, "steps"), at_least(slots, 1, "slots")
    return least_advances(steps, slots)


def factor(steps: int, slots: int) -> float:
    """Return the recompute factor: all evaluations of a step, first sweep and reversal included, by step.

    Parameters
    ----------
    steps : int
        The length of the loop; at least 1.
    slots : int
        How many states there is room for, the start included; at least 1.

    Examples
    --------
    >>> factor(1000, 10)
    4.636
    """
    return 1 + advances(steps, slots) / steps


def split(steps: int, slots: int) -> int:
    """Return how many steps to advance from a saved state before the next state is saved.

    The best choices are an interval. The one taken is that of Griewank and Walther, with which the fewest states are
    saved in all.

    Parameters
    ----------
    steps : int
        How many steps there are to the end of what is reversed; at least 2.
    slots : int
        How many slots there are, that of the saved state included; at least 2.

    Returns
    -------
    int
        More than 0 and less than ``steps``.

    Examples
    --------
    >>> split(20, 3)
    10
    >>> advances(20, 3) == 10 + advances(10, 3) + advances(10, 2)
    True
    """
    steps, slots = at_least(steps, 2, "steps"), at_least(slots, 2, "slots")
    r, reached = least_repeats(steps, slots)
    return _cut(steps, slots, r, reached * r // (slots + r))[0]


def _cut(steps: int, slots: int, r: int, low: int) -> tuple[int, int]:
    """Return how far to advance and reach(slots − 1, r − 1), for low = reach(slots, r − 1) ≤ steps ≤ reach(slots, r).

    Both parts are then again between two reaches: the left one with r − 1, the right one with slots − 1.
    """
    right = low * slots // (slots + r - 1)
    rest = right * (slots - 1) // (slots + r - 2)
    return min(low, max(low - right, steps - right - rest, 1)), right


# --- states -------------------------------------------------------------------------------------------------------


def checkpoints(steps: int, slots: int) -> Iterator[int]:
    """Yield the states to save on the way to the last step, in order, without the start.

    The last step is reversed as soon as it has run, so the state it starts from is not among them.

    Parameters
    ----------
    steps : int
        The length of the loop; at least 1.
    slots : int
        How many states there is room for, the start included; at least 1.

    Yields
    ------
    int
        A position: the number of steps that lead from the start to the state.

    Examples
    --------
    >>> list(checkpoints(20, 3))
    [10, 16]
    """
    steps, slots = at_least(steps, 1, "steps"), at_least(slots, 1, "slots")
    return _checkpoints(steps, slots)


def _checkpoints(steps: int, slots: int) -> Iterator[int]:
    r, reached = least_repeats(steps, slots)
    low = reached * r // (slots + r)
    position = 0
    while slots > 1 and steps - position > 1:
        distance, low = _cut(steps - position, slots, r, low)
        position, slots = position + distance, slots - 1
        if steps - position > 1:
            yield position
