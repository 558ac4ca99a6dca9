"""Finding loops in what a program records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ir.recording import Recorder, fold, values_of
from unspool._ir.fold import Folder

Program = Callable[[Recorder], Any]


def shape_of(program: Program, *, holds: bool = True) -> list[tuple[int, list[int], int]]:
    """Return, for each loop, its steps, the sizes of its bodies, and how many registers it has."""
    loops, _, events = fold(program, holds=holds)
    for loop in loops:
        values_of(loop, events)
    return [(len(loop), [len(body.instructions) for body in loop.bodies], len(loop.initial)) for loop in loops]


def iteration(steps: int, look: Callable[[Recorder, int, int], Any] = lambda op, k, x: None) -> Program:
    """Return a program that applies a matrix again and again; ``look`` may look at the state after each step."""

    def program(op: Recorder) -> None:
        A, x = op.leaf(), op.leaf()
        for k in range(steps):
            y = op("matmul", A, x)
            x = op("divide", y, op("norm", y))
            look(op, k, x)

    return program


# --- one body --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("holds", [True, False])
def test_all_steps_of_a_loop_are_one_body(holds: bool) -> None:
    assert shape_of(iteration(50), holds=holds) == [(50, [3], 1)]


def test_a_few_repetitions_are_no_loop() -> None:
    assert shape_of(iteration(5)) == []


def looked_at_always(op: Recorder, k: int, x: int) -> None:
    op("sum", x)


def looked_at_every_third_step(op: Recorder, k: int, x: int) -> None:
    if k % 3 == 2:
        op("square", op("sum", x))


def logged_from_the_middle_on(op: Recorder, k: int, x: int) -> None:
    if k > 20:
        op("log", op("norm of the log", x), op.number(k))


@pytest.mark.parametrize("look", [looked_at_always, looked_at_every_third_step, logged_from_the_middle_on])
def test_looking_at_values_changes_nothing_about_a_loop(look: Any) -> None:
    watched, _, _ = fold(iteration(50, look))
    alone, _, _ = fold(iteration(50))
    assert [loop.bodies for loop in watched] == [loop.bodies for loop in alone]
    assert [loop.which for loop in watched] == [loop.which for loop in alone]


def test_numbers_and_leaves_of_each_step_are_streams() -> None:
    def program(op: Recorder) -> None:
        A, x = op.leaf(), op.leaf()
        for k in range(40):
            x = op("add", op("scale", op("matmul", A, x), op.number(1 / (k + 1))), op.leaf())

    loops, _, _ = fold(program)
    assert [len(column) for column in loops[0].columns] == [2] * 40


def test_a_number_that_comes_back_is_a_stream_like_any_other() -> None:
    def program(op: Recorder) -> None:
        table, x = op.leaf(), op.leaf()
        for k in range(60):
            x = op("add", x, op("row", table, op.number(k % 4)))

    assert shape_of(program) == [(60, [2], 1)]


def test_what_was_the_same_in_all_steps_may_change_later() -> None:
    def program(op: Recorder) -> None:
        x, rate = op.leaf(), 0.1
        for k in range(60):
            if k == 30:
                rate = 0.01
            x = op("step", x, op.number(rate))

    loops, _, events = fold(program)
    assert [len(loop) for loop in loops] == [60]
    assert len(set(loops[0].columns)) == 2
    values_of(loops[0], events)


def test_what_depends_on_nothing_that_is_carried_belongs_to_the_step_that_reads_it() -> None:
    def program(op: Recorder) -> None:
        A, x = op.leaf(), op.leaf()
        for _ in range(30):
            x = op("matmul", op("exp", A), x)

    ((steps, bodies, _),) = shape_of(program)
    assert (steps >= 29, bodies) == (True, [2])


# --- registers -------------------------------------------------------------------------------------------------------


def test_a_recurrence_of_three_terms_has_two_registers() -> None:
    def program(op: Recorder) -> None:
        A, x, before = op.leaf(), op.leaf(), op.leaf()
        for _ in range(40):
            x, before = op("subtract", op("matmul", A, x), before), x

    assert shape_of(program) == [(40, [2], 2)]


def test_a_state_that_is_read_two_steps_later_alone_waits_in_between() -> None:
    def program(op: Recorder) -> None:
        states = [op.leaf(), op.leaf()]
        for _ in range(40):
            states.append(op("next", states[-2]))

    loops, _, events = fold(program)
    assert sum(len(values_of(loop, events)) for loop in loops) >= 36


def test_a_history_that_grows_and_then_rolls_is_a_loop_from_there_on() -> None:
    def program(op: Recorder) -> None:
        x, history = op.leaf(), []
        for _ in range(60):
            history = [*history, x][-4:]
            x = op(f"mix {len(history)}", *history)

    ((steps, bodies, registers),) = shape_of(program)
    assert (steps >= 54, bodies, registers) == (True, [1], 4)


def test_several_states_are_carried_by_one_loop() -> None:
    def program(op: Recorder) -> None:
        p, m, v, total = (op.leaf() for _ in range(4))
        for _ in range(40):
            g = op("gradient", p)
            m, v = op("mix m", m, g), op("mix v", v, op("square", g))
            p = op("update", p, m, v)
            total = op("add", total, op("loss", p))

    assert shape_of(program) == [(40, [7], 4)]


# --- several bodies --------------------------------------------------------------------------------------------------


def test_one_of_two_ways_is_one_of_two_bodies() -> None:
    ways = np.random.default_rng(0).integers(0, 2, 80)

    def program(op: Recorder) -> None:
        A, B, x = op.leaf(), op.leaf(), op.leaf()
        for way in ways:
            op("sum", x)
            x = op("tanh", op("A @ x", A, x)) if way else op("add", op("sin", op("B @ x", B, x)), op.number(0.1))

    found = shape_of(program)
    # It starts with three steps of one way and six of the other.
    assert sum(steps for steps, _, _ in found) >= 77
    assert found[-1][0] > 70 and sorted(found[-1][1]) == [2, 3]


def test_a_step_that_is_rejected_is_none() -> None:
    accepted = np.random.default_rng(1).integers(0, 3, 80) > 0

    def program(op: Recorder) -> None:
        y = op.leaf()
        for k, good in enumerate(accepted):
            h = op.number(1.0 / (k + 1))
            new = op("add", y, op("scale", op("f", y), h))
            op("error", op("f", new), h)
            if good:
                y = new

    ((steps, bodies, _),) = shape_of(program)
    assert bodies == [3]
    assert abs(steps - int(accepted.sum())) <= 6


def test_a_step_may_leave_a_register_as_it_was() -> None:
    def program(op: Recorder) -> None:
        x, radius = op.leaf(), op.leaf()
        for k in range(80):
            trial = op("add", x, op("scale", op("gradient", x), radius))
            if k % 5 == 4:
                radius = op("shrink", radius)
            else:
                x, radius = trial, op("grow", radius)

    loops, left, events = fold(program)
    assert [len(loop.bodies) for loop in loops] == [2]
    values_of(loops[0], events)
    assert {event.token for event in left} <= {"gradient", "scale", "add"}  # of trials that were not taken


def test_a_value_that_is_renewed_now_and_then_becomes_a_register() -> None:
    def program(op: Recorder) -> None:
        x, scale = op.leaf(), op.leaf()
        for k in range(100):
            if k % 20 == 19:
                scale = op("norm", x)
            x = op("step", x, scale)

    loops, _, events = fold(program)
    made = {value for loop in loops for value in values_of(loop, events)}
    assert len(made) >= 90


def test_an_inner_loop_and_the_outer_one_around_it_are_one_loop_with_two_kinds_of_steps() -> None:
    def program(op: Recorder) -> None:
        A, z = op.leaf(), op.leaf()
        for outer in range(12):
            x = z
            for _ in range(6 + outer % 3):
                x = op("tanh", op("matmul", A, x))
                op("norm", x)
            z = op("mix", z, x)

    loops, left, events = fold(program)
    assert len(loops) == 1
    assert sorted(len(body.instructions) for body in loops[0].bodies)[-1] == 2
    assert len(values_of(loops[0], events)) == len({e.results for e in events if e.token != "norm"})
    assert {event.token for event in left} == {"norm"}


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_loop_that_breaks_off_keeps_its_whole_steps() -> None:
    def program(op: Recorder) -> None:
        A, x = op.leaf(), op.leaf()
        for k in range(40):
            y = op("matmul", A, x)
            if k == 37:
                break
            x = op("divide", y, op("norm", y))
        op("sum", x)

    assert shape_of(program) == [(37, [3], 1)]


def test_two_loops_after_each_other_are_two_loops() -> None:
    def program(op: Recorder) -> None:
        x = op.leaf()
        for _ in range(30):
            x = op("tanh", x)
        y = op.leaf()
        for _ in range(30):
            y = op("sin", op("add", y, x))

    assert shape_of(program) == [(30, [1], 1), (30, [2], 1)]


def test_a_loop_that_runs_again_is_known_from_its_first_step_on() -> None:
    def program(op: Recorder) -> None:
        A = op.leaf()
        for _ in range(3):
            x = op.leaf()
            for _ in range(20):
                x = op("tanh", op("matmul", A, x))
            op("report", x)

    loops, _, events = fold(program)
    assert sum(map(len, loops)) == 60
    for loop in loops:
        values_of(loop, events)


def test_a_loop_that_reads_other_values_of_its_own_than_the_last_ends() -> None:
    def program(op: Recorder) -> None:
        states = [op.leaf()]
        for k in range(60):
            states.append(op("next", states[k // 2]))

    loops, _, events = fold(program)
    for loop in loops:
        values_of(loop, events)


# --- random programs -------------------------------------------------------------------------------------------------


def random_program(seed: int) -> Program:
    """Return a loop with random states, ways, histories, inner loops, rejected steps, logging and an early end."""
    rng = np.random.default_rng(seed)
    states, ways = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    depth = [int(rng.integers(1, 5)) for _ in range(ways)]
    wiring = [[rng.integers(0, 100, 3) for _ in range(n)] for n in depth]
    rejects, logs, inner = rng.random() < 0.3, rng.random() < 0.5, rng.random() < 0.3
    steps, stop = int(rng.integers(20, 60)), rng.random() < 0.3

    def program(op: Recorder) -> None:
        choose = np.random.default_rng(seed + 1)
        constants = [op.leaf(), op.leaf()]
        now = [op.leaf() for _ in range(states)]
        before = list(now)
        for k in range(steps):
            for _ in range(int(choose.integers(1, 4)) if inner else 1):
                way = int(choose.integers(0, ways)) if choose.random() < 0.4 else 0
                made: list[int] = []
                for i, row in enumerate(wiring[way]):
                    # Mostly what was made last, else another state, a constant, what was there before, or a number.
                    around = [*made[-1:], *now, *made, *constants, *before[:1], op.number(k % 7)]
                    made.append(op(f"op {way} {i}", now[i % states], *[around[j % len(around)] for j in row[:2]]))
                if logs and choose.random() < 0.2:
                    op("log", made[-1], op.number(k))
                if rejects and choose.random() < 0.2:
                    continue
                old = list(now)
                for i in range(states):
                    now[i] = made[-1 - i % len(made)]
                before = old
            if stop and k == steps - 3:
                break
        op("result", *now)

    return program


@pytest.mark.parametrize("seed", range(300))
def test_loops_of_random_programs_are_what_the_programs_did(seed: int) -> None:
    loops, left, events = fold(random_program(seed))
    there = {event.results for event in left}
    for loop in loops:
        there |= {(value,) for value in values_of(loop, events)}
    assert there == {event.results for event in events}


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_fold_the_same_way_whatever_is_looked_at(seed: int) -> None:
    program = random_program(seed)

    class Watching(Recorder):
        def __call__(self, token: str, *operands: int) -> int:
            made = super().__call__(token, *operands)
            if len(self.events) % 5 == 0 and token.startswith("op"):
                super().__call__(f"look at {token}", made)
            return made

    recorder, watching = Recorder(), Watching()
    program(recorder)
    program(watching)
    found = []
    for one in (recorder, watching):
        folder = Folder()
        for event in one.events:
            folder.add(event)
        folder.end()
        found.append([(loop.which, [[i.token for i in b.instructions] for b in loop.bodies]) for loop in folder.loops])
    assert found[0] == found[1]
