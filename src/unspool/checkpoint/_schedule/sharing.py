"""Several loops in one room: what an older loop gives up, unread chains, a loop in a loop, second order.

The loop that is being reversed has all room but for what older ones keep meanwhile. So nothing is divided beforehand:

- *One after another*: when room is wanted, every older loop offers what it misses least, by the time that this adds to
  its backward pass for each byte that is freed, and the least of all goes.
- *Chains that nobody reads* are run one by one and reversed one by one, and h states of each are held meanwhile. From h
  held states a chain of K steps takes Σ_ρ max(0, K − Σ_{i<h} b(c − i, ρ)) runs, if they lie where that is least.
- *A loop in a loop*: whole outer steps are taped if that fits; else each is reversed by the inner loop's schedule, and
  of all divisions into states outside and room inside the best is taken.
- *Reverse over reverse* is four loops, of x, λ, μ and ν, on the same segments of q steps. States of x, λ and μ are kept
  at their ends, and tapes of one segment: 4 + 3 + 2 + 1 runs of a step where keeping everything has four. Each loop
  begins with the segment that the one before ends with, whose tapes are still there; so the longest segments are best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from unspool.checkpoint._counting import at_least
from unspool.checkpoint._schedule.loops import costs_without
from unspool.checkpoint._schedule.reach import Reach
from unspool.errors import BudgetError

__all__ = [
    "Chain",
    "Eviction",
    "Held",
    "Nesting",
    "Segments",
    "aligned_segments",
    "chain_cost",
    "evict",
    "held_states",
    "nesting",
]


# --- loops one after another -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """What a loop that has run holds, until it is reversed with all room.

    Attributes
    ----------
    reach : Reach
        The room it will have then, and what that can do.
    positions : tuple of int
        Its saved states, rising from state 0, which is never given up.
    edge, end : int
        Its taped steps are those from ``edge`` up to ``end``.
    seconds : float
        What a run of its step takes.
    """

    reach: Reach
    positions: tuple[int, ...]
    edge: int
    end: int
    seconds: float = 1.0

    @property
    def cost(self) -> int:
        """About how many runs of a step its backward pass takes."""
        bounds = pairwise((*self.positions, self.edge))
        return sum(self.reach.cost(stop - start, self.reach.slots - 1 - i) for i, (start, stop) in enumerate(bounds))


class Eviction(NamedTuple):
    """What one of several loops gives up.

    Attributes
    ----------
    loop : int
        Which loop.
    state : int or None
        The state that goes; None if it is tape.
    edge : int
        The loop's tape begins here afterwards.
    freed : int
        The bytes that this frees.
    """

    loop: int
    state: int | None
    edge: int
    freed: int


def evict(loops: Sequence[Held], wanted: int) -> tuple[list[Eviction], list[Held]]:
    """Return what loops give up until so many bytes are free, and what they hold then.

    If all of it is not enough, all of it goes; then less than ``wanted`` is freed.
    """
    held, gone = list(loops), list[Eviction]()
    while wanted > 0:
        offers = [offer for index, loop in enumerate(held) for offer in _offers(index, loop, wanted)]
        if not offers:
            break
        _, best, left = min(offers, key=lambda offer: offer[0])
        held[best.loop] = left
        gone.append(best)
        wanted -= best.freed
    return gone, held


def _offers(index: int, loop: Held, wanted: int) -> list[tuple[float, Eviction, Held]]:
    """Return what a loop may give up, by seconds a byte, and what it holds then: old tape, or its cheapest state."""
    reach, base = loop.reach, loop.cost
    found = []
    if loop.edge < loop.end:
        # The state that the tape begins with may be a saved one, and is not freed then.
        shared = reach.state if loop.edge == loop.positions[-1] else 0
        count = min(loop.end - loop.edge, -(-(wanted + shared) // max(1, reach.tape)))
        left = replace(loop, edge=loop.edge + count)
        found.append((left, Eviction(index, None, left.edge, count * reach.tape - shared)))
    if len(loop.positions) > 1 and loop.edge > loop.positions[-1]:
        costs = costs_without(reach, loop.positions, loop.edge)
        best = 1 + costs.index(min(costs))
        left = replace(loop, positions=loop.positions[:best] + loop.positions[best + 1 :])
        found.append((left, Eviction(index, loop.positions[best], loop.edge, reach.state)))
    return [
        ((left.cost - base) * loop.seconds / eviction.freed, eviction, left)
        for left, eviction in found
        if eviction.freed > 0
    ]


# --- chains that nobody reads ----------------------------------------------------------------------------------------


class Chain(NamedTuple):
    """A loop that nobody reads before it is reversed.

    Attributes
    ----------
    steps, state, residual : int
        Its length, and the bytes of a state and of a step's residuals.
    given : bool
        Whether its start is a leaf of the user, which takes no room.
    seconds : float
        What a run of its step takes.
    """

    steps: int
    state: int
    residual: int
    given: bool = True
    seconds: float = 1.0

    def held(self, states: int) -> int:
        """Return the bytes of so many saved states, the start included."""
        return (states - self.given) * self.state


def chain_cost(reach: Reach, steps: int, held: int) -> int:
    """Return about how many runs of a step reverse a chain from ``held`` saved states, the start included."""
    if held == 1:
        return reach.cost(steps, reach.slots - 1)
    total, runs = 0, 0
    reach.cost(steps, reach.slots - 1)
    while (served := sum(reach.reach(reach.slots - 1 - i, runs) for i in range(held))) < steps:
        total += steps - served
        runs += 1
    return total


def held_states(chains: Sequence[Chain], room: int) -> list[int]:
    """Return how many states each chain holds while those before it in the list are reversed, one after another.

    One state more is held as long as that is less work in all; a state of one chain is room that the others miss.
    """
    held = [1] * len(chains)
    best = _chains_cost(chains, room, held)
    improved = True
    while improved:
        improved = False
        for index in range(1, len(chains)):
            trial = held.copy()
            trial[index] += 1
            cost = _chains_cost(chains, room, trial)
            if cost < best:
                held, best, improved = trial, cost, True
    return held


def _chains_cost(chains: Sequence[Chain], room: int, held: Sequence[int]) -> float:
    """Return the seconds that reversing the chains takes; infinite if they do not fit."""
    later = sum(chain.held(count) for chain, count in zip(chains, held, strict=True))
    total = 0.0
    for chain, count in zip(chains, held, strict=True):
        later -= chain.held(count)
        own = room - later + (chain.state if chain.given else 0)
        if own < count * chain.state:
            return float("inf")
        total += chain.seconds * chain_cost(Reach(own, chain.state, chain.residual), chain.steps, count)
    return total


# --- a loop in a loop ------------------------------------------------------------------------------------------------


class Nesting(NamedTuple):
    """How a loop in a loop is reversed.

    Attributes
    ----------
    outer_states : int
        How many states of the outer loop are saved at most, its start included.
    taped : int
        How many whole outer steps are taped at once; 0 if each is reversed by the inner loop's own schedule.
    runs : int
        All runs of an inner step.
    """

    outer_states: int
    taped: int
    runs: int


def nesting(outer_steps: int, outer_state: int, inner: Chain, room: int) -> Nesting:
    """Return the best division of room between the states of an outer loop and what each of its steps does inside.

    Parameters
    ----------
    outer_steps, outer_state : int
        The length of the outer loop, and the bytes of its state.
    inner : Chain
        The loop that is its step; its start is the outer state, or made of it.
    room : int
        The bytes for states and tapes of both.
    """
    whole = inner.steps * (inner.state + inner.residual)
    found = list[Nesting]()
    if room - whole >= outer_state:
        # As in a single loop, the last outer step of a leaf has its tape in the workspace, which is taken off here.
        outer = Reach(room - whole, outer_state, whole)
        free = outer.slots - 1
        found.append(Nesting(outer.slots, outer.leaf(free), outer.runs(outer_steps, free) * inner.steps))
    states = 1
    while room - states * outer_state >= inner.state and states <= outer_steps:
        outside = Reach(states * outer_state, outer_state, room + 1)
        inside = Reach(room - states * outer_state, inner.state, inner.residual)
        advances = outside.runs(outer_steps, outside.slots - 1) - outer_steps
        runs = advances * inner.steps + outer_steps * inside.runs(inner.steps, inside.slots - 1)
        found.append(Nesting(states, 0, runs))
        states += max(1, states // 16)
    if not found:
        raise _too_little(room, outer_state + inner.state)
    return min(found, key=lambda plan: plan.runs)


# --- second order ----------------------------------------------------------------------------------------------------


class Segments(NamedTuple):
    """How the four loops of reverse over reverse are cut.

    Attributes
    ----------
    length : int
        The steps of a segment; the whole loop if everything is kept.
    runs : int
        All runs of a step of any of the four loops.
    peak : int
        The bytes of saved states and tapes.
    """

    length: int
    runs: int
    peak: int


def aligned_segments(steps: int, states: int, tapes: int, room: int) -> Segments:
    """Return the longest segments that fit: the first and the last of them are not run again where a loop turns.

    All have that length but one, which is shorter and neither the last nor, unless there are two, the first.

    Parameters
    ----------
    steps : int
        The length of the loop.
    states, tapes : int
        The bytes of the states of x, λ and μ together, and of the tapes of a step of them.
    room : int
        The bytes for both.

    Raises
    ------
    BudgetError
        If no length fits; it names the least room that one does. With less, segments would be steps of an outer chain.
    """
    steps = at_least(steps, 1, "steps")

    def peak(length: int) -> int:
        return -(-steps // length) * states + length * tapes

    fitting = [length for length in _lengths(steps) if peak(length) <= room]
    if not fitting:
        raise _too_little(room, min(map(peak, _lengths(steps))))
    fewest = max(fitting)
    # Of the lengths that make as many segments the longest that still fits.
    spare = (room - peak(fewest)) // tapes if tapes else steps
    length = min(fewest + spare, _longest(steps, -(-steps // fewest)))
    first = length if length == steps or -(-steps // length) > 2 else steps - length
    return Segments(length, 10 * steps - 4 * length - 2 * first, peak(length))


def _longest(steps: int, count: int) -> int:
    """Return the most steps of a segment if there are so many segments."""
    return steps if count == 1 else (steps - 1) // (count - 1)


def _lengths(steps: int) -> list[int]:
    """Return the shortest length for each number of segments, longest first."""
    found, count = list[int](), 1
    while count <= steps:
        length = -(-steps // count)
        found.append(length)
        # The next count of segments that a shorter length makes a difference for.
        count = -(-steps // (length - 1)) if length > 1 else steps + 1
    return found


def _too_little(room: int, least: int) -> BudgetError:
    error = BudgetError(f"there is room for {room} bytes, and the least that works is {least}")
    error.least = least
    return error
