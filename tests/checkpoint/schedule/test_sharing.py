"""Several loops in one room: evictions one by one, chains, nesting and segments, beside all alternatives tried out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from unspool.checkpoint._schedule.loops import ClosedLoop, OpenLoop, costs_without
from unspool.checkpoint._schedule.reach import Reach
from unspool.checkpoint._schedule.sharing import (
    Chain,
    Held,
    aligned_segments,
    chain_cost,
    evict,
    held_states,
    nesting,
)
from unspool.errors import BudgetError


def held_by(room: int, state: int, residual: int, steps: int, seconds: float = 1.0) -> Held:
    """What an open loop holds after so many steps."""
    reach = Reach(room, state, residual)
    loop = OpenLoop(reach)
    loop.run_to(steps)
    return Held(reach, loop.positions, loop.edge, steps, seconds)


def held_bytes(loop: Held) -> int:
    states = {*loop.positions, *range(loop.edge, loop.end)}
    return len(states) * loop.reach.state + (loop.end - loop.edge) * loop.reach.residual


@pytest.mark.parametrize("count", [5, 80])
def test_the_cost_without_a_state_is_that_of_the_states_left(count: int) -> None:
    reach = Reach(100, 1, 3)
    positions = tuple(7 * i + i % 3 for i in range(count))
    edge = positions[-1] + 9
    expected = [Held(reach, positions[:j] + positions[j + 1 :], edge, edge).cost for j in range(1, len(positions))]
    assert costs_without(reach, positions, edge) == expected


def test_states_behind_dear_steps_are_missed_more() -> None:
    """Gaps of equal length, and steps that take twice as long from the middle on."""
    reach = Reach(5, 1, 10)
    positions, edge = (0, 10, 20, 30), 40
    plain = costs_without(reach, positions, edge)
    assert costs_without(reach, positions, edge, clock=lambda state: 3.0 * state) == pytest.approx(
        [3 * cost for cost in plain]
    )
    dear_at_last = costs_without(reach, positions, edge, clock=lambda state: max(state, 2 * state - 20))
    assert dear_at_last.index(min(dear_at_last)) < dear_at_last.index(max(dear_at_last)) == 2


# --- one after another -----------------------------------------------------------------------------------------------


def test_older_loops_free_what_is_wanted_and_no_more_than_a_piece_above() -> None:
    loops = [held_by(60, 2, 5, 100), held_by(80, 10, 1, 50)]
    total = sum(map(held_bytes, loops))
    for wanted in (1, 7, 20, 55):
        gone, left = evict(loops, wanted)
        freed = total - sum(map(held_bytes, left))
        assert freed == sum(eviction.freed for eviction in gone)
        assert wanted <= freed < wanted + 11
        assert all(loop.positions[0] == 0 for loop in left)


def test_loops_give_up_all_but_their_starts_and_not_that() -> None:
    loops = [held_by(60, 2, 5, 100), held_by(80, 10, 1, 50)]
    _, left = evict(loops, 10**6)
    assert [loop.positions for loop in left] == [(0,), (0,)]
    assert all(loop.edge == loop.end for loop in left)


def test_the_loop_whose_steps_are_cheap_gives_up_first() -> None:
    cheap, dear = held_by(60, 2, 5, 100, seconds=0.01), held_by(60, 2, 5, 100)
    assert {eviction.loop for eviction in evict([cheap, dear], 20)[0]} == {0}
    assert {eviction.loop for eviction in evict([dear, cheap], 20)[0]} == {1}


def test_each_eviction_adds_the_least_for_its_bytes() -> None:
    loop = held_by(60, 2, 5, 100)
    gone, left = evict([loop], 1)
    added = (left[0].cost - loop.cost) / gone[0].freed
    for j in range(1, len(loop.positions)):
        without = Held(loop.reach, loop.positions[:j] + loop.positions[j + 1 :], loop.edge, loop.end)
        assert added <= (without.cost - loop.cost) / loop.reach.state
    assert added <= (Held(loop.reach, loop.positions, loop.edge + 1, loop.end).cost - loop.cost) / loop.reach.tape


# --- chains ----------------------------------------------------------------------------------------------------------


def best_from_held(reach: Reach, steps: int, held: int) -> int:
    """The least cost over all places of the held states, without residuals, where the cost of a gap is exact."""
    if held == 1:
        return reach.cost(steps, reach.slots - 1)
    best = {(length, 1): reach.cost(length, reach.slots - 1) for length in range(steps + 1)}
    for count in range(2, held + 1):
        for length in range(count, steps + 1):
            best[length, count] = min(
                best[length - last, count - 1] + reach.cost(last, reach.slots - count)
                for last in range(1, length - count + 2)
            )
    return best[steps, held]


@pytest.mark.parametrize("slots", [3, 5, 8])
def test_a_chain_from_held_states_costs_what_the_best_places_give(slots: int) -> None:
    reach = Reach(slots, 1, 0)
    for held in (1, 2, 3):
        for steps in (20, 57):
            assert chain_cost(reach, steps, held) == best_from_held(reach, steps, held)


def test_chains_are_nearly_as_cheap_as_each_alone_with_all_room_and_never_halve_it() -> None:
    """Two chains of 1000 steps, states of 1 and 10: published 1.05 at 12 % and 1.02 at 2 % of keeping everything."""
    for percent, published in ((12, 1.05), (2, 1.02)):
        room = 1000 * (2 + 20) * percent // 100
        chains = [Chain(1000, 10, 10), Chain(1000, 1, 1)]
        held = held_states(chains, room)
        later = chains[1].held(held[1])
        costs = [
            chain_cost(Reach(room - later + 10, 10, 10), 1000, held[0]),
            chain_cost(Reach(room + 1, 1, 1), 1000, held[1]),
        ]
        alone = sum(chain_cost(Reach(room + c.state, c.state, c.residual), 1000, 1) for c in chains)
        halved = sum(chain_cost(Reach(room // 2 + c.state, c.state, c.residual), 1000, 1) for c in chains)
        # The chains have run once before, and only their ends were kept.
        assert 2000 + sum(costs) <= published * (2000 + alone)
        assert sum(costs) < halved


def test_chains_without_room_hold_their_starts_alone() -> None:
    assert held_states([Chain(10, 5, 5), Chain(10, 5, 5)], 4) == [1, 1]
    assert held_states([Chain(10, 5, 5, given=False), Chain(10, 5, 5, given=False)], 10) == [1, 1]


# --- nesting ---------------------------------------------------------------------------------------------------------


def test_a_loop_in_a_loop_is_near_the_same_steps_in_one_loop() -> None:
    """A hundred times a hundred steps: published 1.00 to 1.25 of one loop of 10⁴."""
    for room in (40, 100, 400, 1000, 4000):
        nested = nesting(100, 1, Chain(100, 1, 1), room)
        flat = Reach(room, 1, 1).runs(10_000, room - 1)
        assert 0.99 * flat <= nested.runs <= 1.26 * flat, room


def test_whole_outer_steps_are_taped_where_they_fit() -> None:
    everything = nesting(10, 1, Chain(20, 1, 1), 10 * 40 + 10)
    assert everything.taped == 10
    assert everything.runs == 200
    assert nesting(10, 1, Chain(20, 1, 1), 30).taped == 0


def test_more_room_is_never_worse_for_a_loop_in_a_loop() -> None:
    runs = [nesting(30, 2, Chain(40, 1, 3), room).runs for room in range(3, 400, 10)]
    assert all(more <= 1.03 * less for less, more in pairwise(runs))


def test_a_loop_in_a_loop_has_room_for_a_state_of_each() -> None:
    with pytest.raises(BudgetError, match="the least that works is 7") as caught:
        nesting(10, 4, Chain(10, 3, 5), 6)
    assert nesting(10, 4, Chain(10, 3, 5), caught.value.least).outer_states == 1


# --- second order ----------------------------------------------------------------------------------------------------


def reversed_twice(steps: int, length: int) -> tuple[int, int, int]:
    """Carry out the four loops on segments, the short one second; return runs, and the most states and tapes held.

    Loops 1 and 3 go forward, 2 and 4 backward. Loop n reads the tapes of all before it, which are made again for each
    segment but that which the loop before ended with. A boundary has a state of each of the loops 1 to 3; what a loop
    starts from is among them.
    """
    count = -(-steps // length)
    sizes = [length] * count
    sizes[1 if count > 2 else 0] -= count * length - steps
    runs = most_states = most_tapes = 0
    saved: set[tuple[int, int]] = set()
    taped: tuple[int, int] | None = None  # the segment, and how many loops have their tapes of it
    for loop in (1, 2, 3, 4):
        order = range(count) if loop % 2 else range(count - 1, -1, -1)
        for segment in order:
            if loop < 4:
                saved.add((loop, segment))
            if taped is None or taped[0] != segment:
                assert all((before, segment) in saved for before in range(1, loop))
                runs += (loop - 1) * sizes[segment]
            else:
                assert taped[1] == loop - 1
            runs += sizes[segment]
            taped = segment, loop
            most_states = max(most_states, len(saved))
            most_tapes = max(most_tapes, sizes[segment])
    return runs, most_states, most_tapes


@pytest.mark.parametrize(("states", "tapes"), [(3, 6), (30, 4), (1, 100), (3, 0)])
def test_segments_are_the_longest_that_fit(states: int, tapes: int) -> None:
    for steps in (1, 2, 7, 100, 997):
        peak = {q: -(-steps // q) * states + q * tapes for q in range(1, steps + 1)}
        least = min(peak.values())
        for room in (least, least + 1, 3 * least // 2, 2 * least, peak[steps]):
            found = aligned_segments(steps, states, tapes, room)
            assert found.length == max(q for q in peak if peak[q] <= room)
            assert found.peak == peak[found.length]
        with pytest.raises(BudgetError) as caught:
            aligned_segments(steps, states, tapes, least - 1)
        assert caught.value.least == least


def test_runs_and_peak_of_second_order_are_those_of_four_loops_carried_out() -> None:
    for steps in (1, 2, 3, 10, 57, 100):
        for length in range(1, steps + 1):
            runs, states, tapes = reversed_twice(steps, length)
            room = -(-steps // length) * 3 + length * 7
            found = aligned_segments(steps, 3, 7, room)
            if found.length == length:
                assert found.runs == runs
                # A third of the three states of a boundary for each of the loops.
                assert found.peak == states + tapes * 7
    assert reversed_twice(100, 100)[0] == 4 * 100


def test_a_closed_loop_offers_what_an_open_one_does() -> None:
    loop = ClosedLoop(Reach(20, 1, 1), 300)
    held = Held(loop.reach, loop.positions, loop.edge, 300)
    gone, _ = evict([held], 3)
    assert sum(eviction.freed for eviction in gone) >= 3
