"""Reversing a loop whose length nobody knows while it runs: which saved state to drop when there is no room.

The one idea: what the backward pass costs from any set of saved states is known exactly. It is the sum over the gaps
between them of the binomial cost of a gap, where the gap behind the i-th state has i slots fewer, because the states
before it are still needed then. So when a state has to go, the one goes without which this sum is least, as if the loop
ended now. Removing a state joins two gaps and gives every later gap one more slot; with sums from both ends all
removals are scored in one pass.

No bound is proved for this rule. Measured against the optimum for a length known beforehand it takes at most 1.07 times
the evaluations with 5 slots, 1.04 with 10 and 1.03 from 20 on. Where states and tapes share room, the rule is the same
(`_schedule.loops`).

Steps and states are counted as in `binomial`. This module knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unspool.checkpoint._counting import least_advances, least_advances_of_many, paced
from unspool.errors import ArgumentError

__all__ = ["choose_removal", "removal_costs"]

# Above this many positions, NumPy saves more than its calls cost.
_MANY = 64


# --- the cost of a backward pass, and the best removal ---------------------------------------------------------------


def removal_costs(positions: Sequence[int], end: int, *, times: Sequence[float] | None = None) -> list[float]:
    """Return, for every saved state, what the backward pass would advance without it if the loop ended now.

    There are as many slots then as there are states left.

    Parameters
    ----------
    positions : sequence of int
        The saved states, rising; the first is the start.
    end : int
        How many steps have run; at least the last position.
    times : sequence of float, optional
        The time that the steps before a position took in all, by position. A gap then counts by the mean of its steps.

    Returns
    -------
    list of float
        The cost without each state. The start is never removed: its cost is infinite.

    Examples
    --------
    >>> removal_costs([0, 4, 7, 8], 9)
    [inf, 9.0, 7.0, 5.0]
    """
    costs, _ = _score(positions, end, times)
    return costs if isinstance(costs, list) else costs.tolist()


def choose_removal(
    positions: Sequence[int],
    end: int,
    *,
    freed: Sequence[float] | None = None,
    times: Sequence[float] | None = None,
) -> int:
    """Return which saved state to drop: the one that the backward pass misses least.

    Parameters
    ----------
    positions : sequence of int
        The saved states, rising; at least two. The first is the start and is never dropped.
    end : int
        How many steps have run; at least the last position.
    freed : sequence of float, optional
        The bytes that dropping each state would free. The state with the least added cost for a byte goes. One that
        frees nothing goes only if no other frees anything.
    times : sequence of float, optional
        The time that the steps before a position took in all, by position. A gap then counts by the mean of its steps.

    Returns
    -------
    int
        An index into ``positions``; of equally good ones the first.

    Examples
    --------
    >>> choose_removal([0, 4, 7, 8], 9)
    3
    >>> choose_removal([0, 4, 7, 8], 9, freed=[100, 100, 100, 0])
    2
    """
    if len(positions) < 2:
        raise ArgumentError(f"the start is always kept, so none of the saved states {list(positions)} can be dropped")
    costs, base = _score(positions, end, times)
    if freed is not None:
        costs = _by_byte(costs, base, freed)
    return costs.index(min(costs)) if isinstance(costs, list) else int(costs.argmin())


_Costs: TypeAlias = list[float] | NDArray[np.float64]


def _score(positions: Sequence[int], end: int, times: Sequence[float] | None) -> tuple[_Costs, float]:
    """Return the cost without each state, and the cost with all of them."""
    if len(positions) > _MANY:
        return _score_many(positions, end, times)
    count = len(positions)
    sizes, clock = _gaps(positions, end, times)
    # Each gap with the slots it has now, with one fewer, and joined with the next one.
    kept: list[float] = [least_advances(size, count - i) for i, size in enumerate(sizes)]
    fewer: list[float] = [least_advances(size, count - 1 - i) for i, size in enumerate(sizes[:-1])]
    joined: list[float] = [least_advances(a + b, count - 1 - i) for i, (a, b) in enumerate(pairwise(sizes))]
    if clock is not None:
        kept, fewer = paced(kept, sizes, clock, 1), paced(fewer, sizes[:-1], clock, 1)
        joined = paced(joined, [a + b for a, b in pairwise(sizes)], clock, 2)
    before = list(accumulate(fewer, initial=0.0))
    after = list(accumulate(reversed(kept), initial=0.0))
    costs = [before[i] + work + after[-3 - i] for i, work in enumerate(joined)]
    return [float("inf"), *costs], after[-1]


def _gaps(positions: Sequence[int], end: int, times: Sequence[float] | None) -> tuple[list[int], list[float] | None]:
    """Return the sizes of the gaps, and the times where they begin and end."""
    if not len(positions) or end < positions[-1]:
        raise _misplaced(positions, end)
    bounds = [*positions, end - 1]
    sizes = [right - left for left, right in pairwise(bounds)]
    if min(sizes[:-1], default=1) <= 0:
        raise _unordered(positions)
    return sizes, None if times is None else [times[bound] for bound in bounds]


def _by_byte(costs: _Costs, base: float, freed: Sequence[float]) -> _Costs:
    sizes = np.asarray(freed, np.float64)
    if sizes.shape != (len(costs),):
        raise ArgumentError(f"freed has a number for each of {len(costs)} saved states, got {len(freed)}")
    if not (sizes[1:] > 0).any():
        return costs
    scores = np.full(len(costs), np.inf)
    np.divide(np.subtract(costs, base), sizes, out=scores, where=sizes > 0)
    return scores


def _unordered(positions: Sequence[int]) -> ArgumentError:
    return ArgumentError(f"saved states are in rising order, got {list(positions)}")


def _misplaced(positions: Sequence[int], end: int) -> ArgumentError:
    return ArgumentError(f"there is a saved state, and none after the end {end}, got {list(positions)}")


# --- the same for many positions -------------------------------------------------------------------------------------


def _score_many(positions: Sequence[int], end: int, times: Sequence[float] | None) -> tuple[NDArray[np.float64], float]:
    count = len(positions)
    bounds = np.append(np.asarray(positions, np.int64), end - 1).astype(np.float64)
    gaps = np.diff(bounds)
    if gaps[:-1].min() <= 0:
        raise _unordered(positions)
    if end < positions[-1]:
        raise _misplaced(positions, end)
    slots = np.arange(count, 0.0, -1.0)
    joined = gaps[:-1] + gaps[1:]
    work = least_advances_of_many(
        np.concatenate((gaps, gaps[:-1], joined)), np.concatenate((slots, slots[1:], slots[1:]))
    )
    kept, fewer, merged = np.split(work, (count, 2 * count - 1))
    if times is not None:
        clock = _clock(bounds, times)
        pace = np.diff(clock) / np.maximum(gaps, 1.0)
        kept *= pace
        fewer *= pace[:-1]
        merged *= (clock[2:] - clock[:-2]) / np.maximum(joined, 1.0)
    after = np.cumsum(kept[::-1])[::-1]
    costs = np.empty(count)
    costs[0] = np.inf
    costs[1:] = merged
    costs[2:] += np.cumsum(fewer[:-1])
    costs[1:-1] += after[2:]
    return costs, float(after[0])


def _clock(bounds: NDArray[np.float64], times: Sequence[float]) -> NDArray[np.float64]:
    places = bounds.astype(np.intp)
    if isinstance(times, np.ndarray):
        return np.asarray(times[places], np.float64)
    return np.array([times[place] for place in places.tolist()], np.float64)
