"""Reversing a loop whose length nobody knows while it runs: which saved state to drop when there is no room.

The one idea: what the backward pass costs from any set of saved states is known exactly. It is the sum over the gaps
between them of the binomial cost of a gap, where the gap behind the i-th state has i slots fewer, because the states
before it are still needed then. So when a state has to go, the one goes without which this sum is least, as if the loop
ended now. Removing a state joins two gaps and gives every later gap one more slot; with sums from both ends all
removals are scored in one pass.

No bound is proved for this rule. Measured against the optimum for a length known beforehand it takes at most 1.07 times
the evaluations with 5 slots, 1.04 with 10 and 1.03 from 20 on. The rule of Wang, Moin and Iaccarino (2009) bounds how
often any step is repeated, which is proved, and takes up to 1.3 times the evaluations; it is here for comparison.

Steps and states are counted as in `binomial`. This module knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from unspool.checkpoint._counting import at_least, least_advances, least_advances_of_many, paced
from unspool.checkpoint.actions import Action, Free, Reverse
from unspool.checkpoint.binomial import reverse_gap
from unspool.errors import ArgumentError

__all__ = ["OnlineSchedule", "Rule", "choose_removal", "removal_costs", "sweep_cost"]

Rule: TypeAlias = Literal["cost", "wang-moin"]

# Above this many positions, NumPy saves more than its calls cost.
_MANY = 64


# --- the cost of a backward pass, and the best removal ---------------------------------------------------------------


def sweep_cost(
    positions: Sequence[int], end: int, *, slots: int | None = None, times: Sequence[float] | None = None
) -> float:
    """Return what a backward pass from saved states advances, if the loop ends now.

    What it takes to reverse the last step is there already, because that step has just run. So the last gap is one step
    shorter than it looks.

    Parameters
    ----------
    positions : sequence of int
        The saved states, rising; the first is the start.
    end : int
        How many steps have run; at least the last position.
    slots : int, optional
        How many states there is room for; as many as there are positions unless given.
    times : sequence of float, optional
        The time that the steps before a position took in all, by position. A gap then counts by the mean of its steps.

    Returns
    -------
    float
        How many steps are advanced or, with ``times``, how long that takes. The first sweep is not counted, nor is the
        run of each step just before it is reversed.

    Examples
    --------
    >>> sweep_cost([0, 4, 7], 9)
    5.0
    """
    slots = len(positions) if slots is None else slots
    if slots < len(positions):
        raise ArgumentError(f"{len(positions)} saved states do not fit into {slots} slots")
    sizes, clock = _gaps(positions, end, times)
    work: list[float] = [least_advances(size, slots - i) for i, size in enumerate(sizes)]
    if clock is not None:
        work = paced(work, sizes, clock, 1)
    return float(sum(work))


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
        The `sweep_cost` without each state. The start is never removed: its cost is infinite.

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


# --- the model of a loop ---------------------------------------------------------------------------------------------


class OnlineSchedule:
    """The states that a loop of unknown length keeps while it runs, and how it is reversed from them.

    Parameters
    ----------
    slots : int
        How many states there is room for, the start included; at least 1.
    rule : {"cost", "wang-moin"}
        Which state is dropped when there is no room: the one that the backward pass misses least, or the one that the
        rule of Wang, Moin and Iaccarino names.

    Examples
    --------
    >>> loop = OnlineSchedule(slots=3)
    >>> for _ in range(9):
    ...     dropped = loop.advance()
    >>> loop.steps, loop.positions
    (9, (0, 2, 5))
    >>> [action.step for action in loop.finish() if isinstance(action, Reverse)]
    [8, 7, 6, 5, 4, 3, 2, 1, 0]
    """

    def __init__(self, slots: int, rule: Rule = "cost") -> None:
        if rule not in get_args(Rule):
            raise ArgumentError(f"rule is one of {', '.join(map(repr, get_args(Rule)))}, got {rule!r}")
        self.slots = at_least(slots, 1, "slots")
        self.rule = rule
        self.steps = 0
        self._positions: list[int] = []
        self._levels: list[float] = []

    @property
    def positions(self) -> tuple[int, ...]:
        """The saved states, in order."""
        return tuple(self._positions)

    def advance(self) -> int | None:
        """Save the current state, drop one if there is no room for it, and run a step.

        Returns
        -------
        int or None
            The state that was dropped, which may be the current one.
        """
        positions = self._positions
        positions.append(self.steps)
        self._levels.append(0.0 if self.steps else float("inf"))
        self.steps += 1
        if len(positions) <= self.slots:
            return None
        index = choose_removal(positions, self.steps) if self.rule == "cost" else self._dispensable()
        del self._levels[index]
        return positions.pop(index)

    def _dispensable(self) -> int:
        """Return the last state with a later one of a higher level; if there is none, lift the new state over the last.

        Then the new state takes the place of the last one, one level higher.
        """
        levels = self._levels
        highest = levels[-1]
        for index in range(len(levels) - 2, 0, -1):
            if levels[index] < highest:
                return index
            highest = levels[index]
        if len(levels) == 2:
            return 1
        levels[-1] = levels[-2] + 1
        return len(levels) - 2

    def finish(self) -> Iterator[Action]:
        """Yield what to do, in order, to reverse the loop as if it ended now; the model itself stays as it is.

        The first action reverses the last step, which has just run. Then each gap is split binomially over the slots
        that are free by then.

        Yields
        ------
        Action
            As in `binomial.schedule`. At the end every step was reversed once, and all slots are free.
        """
        stop = self.steps - 1
        if stop >= 0:
            yield Reverse(stop)
        for index in range(len(self._positions) - 1, -1, -1):
            start = self._positions[index]
            if start < stop:
                yield from reverse_gap(start, stop, self.slots - index)
            else:
                yield Free(start)
            stop = start
