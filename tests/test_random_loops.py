"""Random loops as people write them, in which steps differ: read here and there, fed, rejected, logged, ended early.

`tests.random_loops` draws what a step does and has the forms in which it runs. Around that there is a loop in Python
whose steps get something new each time, such as a row, a gather, a batch of its own size, or random numbers. They may
take a gradient inside, update an entry, run an inner loop of changing length, be rejected, keep the best so far, hold
values beyond the loop, log a norm, and end the loop early. NumPy runs a program first, with the gradient inside in
closed form; central differences of it and the tape give the derivatives.

``UNSPOOL_RANDOM_PROGRAMS=20`` tries twenty times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import unspool as us
from tests.engine.budgets import least_working, same_bits, without_thresholds
from tests.random_loops import Body, Form, Loop, by_iterate, by_steps, compute, every, go_on, loops, loss_of, plain
from tests.test_random_forms import check
from tests.test_random_programs import LARGEST, by_tape, close, curved, fixed_at

# How many of each kind of program run in the suite, and how many at night.
PROGRAMS, AT_NIGHT = 120, 1000
BUDGETED, BUDGETED_AT_NIGHT = 80, 400

KINDS = ("smooth", "layout", "linalg", "complex")

# Sums over some twenty steps are gathered.
TIMES = (2, 4, 5, 7, 9, 24)

# Programs of at most so many steps are differentiated twice.
SHORT = 4

# --- what a step gets beside the state --------------------------------------------------------------------------------

ROWS = max(TIMES) + 3
_draw = np.random.default_rng(0)
TABLE = 0.5 * _draw.normal(size=(ROWS, 3))
ARRAYS = 0.5 * _draw.normal(size=(ROWS, 3))
INDICES = _draw.integers(0, ROWS, size=(ROWS, 3))
BATCHES = [0.5 * _draw.normal(size=(int(n), 3)) for n in _draw.integers(1, 6, ROWS)]


def drawn(k: int) -> us.Tensor:
    return us.random.normal(us.random.fold_in(us.random.key(1), k), (3,))


@lru_cache
def drawn_by_numpy(k: int) -> np.ndarray:
    return drawn(k).numpy()


Feed = Callable[[Any, int, Any], Any]

# Each takes NumPy or unspool, the step, and the table, which is differentiated.
FEEDS: dict[str, Feed] = {
    "row": lambda xp, k, t: t[k],
    "entry": lambda xp, k, t: t[k, k % 3],
    "column": lambda xp, k, t: t[:3, k % 3],
    "window": lambda xp, k, t: t[k : k + 3],
    "gather": lambda xp, k, t: t[INDICES[k]],
    "number": lambda xp, k, t: (1.0 / (k + 1)) * t[0],
    "NumPy number": lambda xp, k, t: np.cos(0.1 * k) * t[1],
    "array": lambda xp, k, t: ARRAYS[k] * t[2],
    "leaf": lambda xp, k, t: us.tensor(ARRAYS[k]) if xp is us else ARRAYS[k],
    "batch": lambda xp, k, t: xp.tanh(BATCHES[k] @ t[k]) @ BATCHES[k] * (1.0 / len(BATCHES[k])),
    "key": lambda xp, k, t: drawn(k) if xp is us else drawn_by_numpy(k),
}

# --- what runs the body -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def fragment(body: Body) -> Callable[..., Any]:
    return us.fragment(plain(body))


@lru_cache(maxsize=1024)
def remat(body: Body) -> Callable[..., Any]:
    return us.remat(plain(body))


FORMS: dict[str, Form] = {
    "plain": by_steps(plain),
    "plain, read": by_steps(plain, every),
    "fragment": by_steps(fragment),
    "fragment, read": by_steps(fragment, every),
    "remat": by_steps(remat),
    "iterate": by_iterate(),
    "iterate of a fragment": by_iterate(make=fragment),
    "few states": by_iterate(us.Checkpointed(slots=2)),
}

# --- programs ---------------------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """A loop, and what is particular about its steps.

    ``form`` says how the body runs, ``feeds`` what a step gets, ``inner`` how often the body runs in a step, over and
    over, ``reads`` after which steps out of eight all is read, as bits, and ``habits`` what else a step does.
    """

    loop: Loop
    form: str
    feeds: tuple[str, ...]
    inner: tuple[int, ...]
    reads: int
    habits: frozenset[str]

    @property
    def arrays(self) -> tuple[Any, ...]:
        return (*self.loop.arrays, TABLE)


HABITS = ("slope", "set", "reject", "best", "log", "hold", "stop")


def programs(kind: str) -> st.SearchStrategy[Program]:
    return st.builds(
        Program,
        loops(kind, TIMES),
        st.sampled_from(["plain", "plain", "fragment", *FORMS]),
        st.lists(st.sampled_from(list(FEEDS)), max_size=2).map(tuple),
        st.sampled_from([(1,), (1,), (1, 3), (2, 1, 4)]),
        st.sampled_from([0, 0, 255, 0b10010010]) | st.integers(0, 255),
        st.frozensets(st.sampled_from(HABITS), max_size=3),
    )


class Values:
    """What a program reads: noted when NumPy runs it, compared when the engine does.

    Decisions are noted too. One that is near to going the other way is none to compare with.
    """

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.is_clear = True

    def number(self, value: Any) -> float:
        found = float(np.real(value))
        self.noted.append(found)
        return found

    def arrays(self, values: Sequence[Any]) -> None:
        self.noted.append(values)

    def is_less(self, first: float, second: float) -> bool:
        self.is_clear &= abs(first - second) > 1e-6
        return first < second


class Compared(Values):
    """Reads what a program reads, and compares it with what NumPy noted."""

    def __init__(self, expected: Values) -> None:
        super().__init__()
        self.left = iter(expected.noted)

    def number(self, value: us.Tensor) -> float:
        found = float(value)
        close(found, next(self.left), 1e-10)
        return found

    def arrays(self, values: Sequence[us.Tensor]) -> None:
        for found, expected in zip(values, next(self.left), strict=True):
            close(found.eval(), expected, 1e-10)


class TooLargeError(Exception):
    """A value is too large to go on with."""


def run(xp: Any, program: Program, arrays: Sequence[Any], values: Values) -> tuple[Any, list[Any]]:
    """Run a program by NumPy or by unspool and return its loss, and the states that it holds."""
    *given, table = arrays
    state: Sequence[Any] = tuple(given[: len(program.loop.state)])
    fixed = tuple(given[len(program.loop.state) :])
    habits, best, lowest, held, log = program.habits, state[0], None, [], []
    for k in range(program.loop.times):
        fed = tuple(FEEDS[name](xp, k, table) for name in program.feeds)
        new = advanced(xp, program, k, state, (*fixed, *fed))
        if "slope" in habits:
            new = (new[0] - 0.2 * slope(xp, new[0]), *new[1:])
        if "set" in habits:
            new = (with_entry(xp, new[0], k % 3), *new[1:])
        if habits & {"reject", "best", "stop"}:
            height = values.number(xp.mean(xp.real(new[0])))
            if "stop" in habits and k > 1 and values.is_less(height, -0.1):
                break
            if "best" in habits and (lowest is None or values.is_less(height, lowest)):
                best, lowest = new[0], height
            if "reject" in habits and values.is_less(height, 0.1 * np.cos(3.0 * k)):
                continue
        state = new
        if program.reads >> k % 8 & 1:
            values.arrays(state)
        if "hold" in habits and k % 3 == 0:
            held.append(state[-1])
        if "log" in habits and k % 2 == 0:
            log.append(xp.linalg.norm(xp.reshape(state[0], (-1,))))
    loss = loss_of(xp, [*state, best, *held])
    for norm in log:
        values.number(norm)
    return loss, held


def advanced(xp: Any, program: Program, k: int, state: Sequence[Any], fixed: Sequence[Any]) -> tuple[Any, ...]:
    """Return the state after the body ran as often as it does in this step, in its form if the engine runs it."""
    body, times = program.loop.body, program.inner[k % len(program.inner)]
    if xp is us:
        return tuple(FORMS[program.form](Loop(body, times, (), ()), state, fixed))
    for _ in range(times):
        values = compute(np, body.parts, [*fixed, *state])
        state = go_on(np, body.ends, state, values)
        if any(not np.all(np.isfinite(v)) or np.max(np.abs(v)) > LARGEST for v in (*values, *state)):
            raise TooLargeError
    return tuple(state)


def slope(xp: Any, x: Any) -> Any:
    """Return the gradient of the sum of sin(x)² / 2 of the real part: by the engine, or in closed form."""
    if xp is us:
        real = us.real(x)
        return (0.5 * us.sum(us.sin(real) ** 2)).grad(real)
    return np.sin(x.real) * np.cos(x.real)


def with_entry(xp: Any, x: Any, i: int) -> Any:
    """Return a copy with an entry in place of which there is the mean."""
    value = xp.mean(x)

    def change(new: Any) -> None:
        new[i] = value

    return fixed_at(x, change, lambda t: t.at[i].set(value))


# --- comparing --------------------------------------------------------------------------------------------------------


def by_numpy(program: Program, arrays: Sequence[Any]) -> tuple[float, Values]:
    """Return the loss of a program and what it reads; a program that gets too large or is undecided is left out."""
    values = Values()
    try:
        with np.errstate(all="ignore"):
            loss = float(run(np, program, arrays, values)[0])
    except TooLargeError:
        assume(False)
    assume(values.is_clear and np.isfinite(loss))
    return loss, values


def check_program(program: Program) -> None:
    """Compare the loss with NumPy, the gradient with differences of that, and all derivatives with the tape."""
    expected, values = by_numpy(program, program.arrays)
    leaves = [us.tensor(array) for array in program.arrays]
    loss, held = run(us, program, leaves, Compared(values))
    variables = list(dict.fromkeys([*leaves, *held]))  # states in the middle of the loop, too
    gradients = loss.grad(variables, unconnected="zeros")
    found, *slopes = us.eval([loss, *gradients])
    close(found, expected, 1e-10)
    losses, derivatives = [loss], list(slopes)
    if program.loop.times * max(program.inner) <= SHORT:
        losses.append(curved(gradients))
        derivatives += us.eval(losses[1].grad(variables, unconnected="zeros"))
    for derivative, by_the_tape in zip(derivatives, by_tape(variables, *losses), strict=True):
        close(derivative, by_the_tape, 1e-9)
    directions = [np.cos(np.arange(array.size).reshape(array.shape) + array.real) for array in program.arrays]
    step = 1e-6
    ends = [
        by_numpy(program, [a + sign * step * d for a, d in zip(program.arrays, directions, strict=True)])[0]
        for sign in (1.0, -1.0)
    ]
    along = sum(np.sum(g.real * d) for g, d in zip(slopes[: len(leaves)], directions, strict=True))
    close((ends[0] - ends[1]) / (2 * step), along, 1e-5)


@pytest.mark.parametrize("count", [PROGRAMS, pytest.param(AT_NIGHT, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_loops_as_people_write_them_are_right(kind: str, count: int) -> None:
    @check(count // 2 if kind == "linalg" else count, programs(kind))
    def _(program: Program) -> None:
        check_program(program)


# --- budgets ----------------------------------------------------------------------------------------------------------


def answer(program: Program, values: Values) -> list[Any]:
    leaves = [us.tensor(array) for array in program.arrays]
    loss, held = run(us, program, leaves, Compared(values))
    variables = list(dict.fromkeys([*leaves, *held]))
    return us.eval([loss, *loss.grad(variables, unconnected="zeros")])


@pytest.mark.parametrize("count", [BUDGETED, pytest.param(BUDGETED_AT_NIGHT, marks=pytest.mark.nightly)])
def test_a_budget_changes_no_bit_or_is_refused_with_one_that_works(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without_thresholds(monkeypatch)

    @check(count, st.sampled_from(KINDS).flatmap(programs), st.floats(0.1, 1.0))
    def _(program: Program, share: float) -> None:
        _, values = by_numpy(program, program.arrays)
        with us.memory("64GB") as memory:
            free = answer(program, values)
            everything = memory.report().peak
        found: list[Any] = []

        def limited(budget: int) -> None:
            with us.memory(budget) as scope:
                found.append((answer(program, values), scope.report().peak, budget))

        least_working(limited, max(1, int(share * everything)))
        values_found, peak, budget = found[-1]
        same_bits(values_found, free)
        assert peak <= budget
