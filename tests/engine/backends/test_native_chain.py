"""Chains in C: which step reads what, where its outputs go, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unspool._native import run_chain

# Of a step: reads, constant, varying, writes, last, stacked.
STEP = (((0, 0),), (1,), (2,), ((0, 0),), (1,), (1,))


def step(state: Any, constant: Any, given: Any) -> tuple[Any, Any]:
    return state * constant + given, state - given


def chain(**changed: Any) -> tuple[list[Any], Any]:
    """Run a chain of five steps, or another one."""
    stack = np.full((5, 2), np.nan)
    given = tuple([np.full(2, float(k)) for k in range(5)])
    arguments = {
        "indices": range(5),
        "registers": 1,
        "kinds": (STEP,),
        "runs": (step,),
        "which": b"",
        "state": [np.array([1.0, 2.0]), None],
        "constants": (np.array(2.0),),
        "varying": given,
        "rows": (0,),
        "stacks": (stack,),
    } | changed
    run_chain(*arguments.values())
    return arguments["state"], arguments["stacks"][0]  # type: ignore[return-value, index]


def expected(count: int = 5) -> tuple[list[Any], list[Any]]:
    state, last, rows = np.array([1.0, 2.0]), None, []
    for k in range(count):
        state, last = step(state, 2.0, float(k))
        rows.append(last)
    return [state, last], rows


def test_steps_read_registers_constants_and_what_is_given_to_each() -> None:
    state, stack = chain()
    wanted, rows = expected()
    for array, other in zip(state, wanted, strict=True):
        assert_array_equal(array, other)
    assert_array_equal(stack, rows)


def test_a_chain_that_runs_in_parts_gives_the_same() -> None:
    state: list[Any] = [np.array([1.0, 2.0]), None]
    stack = np.full((5, 2), np.nan)
    given = tuple([np.full(2, float(k)) for k in range(5)])
    chain(indices=range(2), state=state, stacks=(stack,), varying=given[:2])
    chain(indices=range(2, 5), state=state, stacks=(stack,), varying=given[2:], rows=(2,))
    wanted, rows = expected()
    for array, other in zip(state, wanted, strict=True):
        assert_array_equal(array, other)
    assert_array_equal(stack, rows)


def test_each_step_is_of_its_kind_and_writes_into_the_stack_of_that() -> None:
    def other(state: Any, given: Any) -> tuple[Any]:
        return (state + given,)

    kinds = (STEP, (((0, 0),), (), (1,), ((0, 0),), (), (0,)))
    stacks = (np.zeros((3, 2)), np.zeros((2, 2)))
    state, _ = chain(kinds=kinds, runs=(step, other), which=b"\0\1\0\1\0", rows=(0, 0), stacks=stacks)
    value, rows, others = np.array([1.0, 2.0]), [], []
    for k in range(5):
        if k % 2:
            (value,) = other(value, float(k))
            others.append(value)
        else:
            value, last = step(value, 2.0, float(k))
            rows.append(last)
    assert_array_equal(state[0], value)
    assert_array_equal(state[1], rows[-1])
    assert_array_equal(stacks[0], rows)
    assert_array_equal(stacks[1], others)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_rows_in_another_order_or_dtype_are_written_by_numpy(dtype: Any) -> None:
    def turned(state: Any, given: Any) -> tuple[Any, Any]:
        return state, (np.arange(6.0).reshape(2, 3).T + given)

    kind = (((0, 0),), (), (1,), ((0, 0),), (), (1,))
    stack = np.zeros((5, 3, 2), dtype)
    chain(kinds=(kind,), runs=(turned,), state=[np.ones(2)], constants=(), stacks=(stack,), varying=tuple(range(5)))
    assert_array_equal(stack, [np.arange(6.0).reshape(2, 3).T + k for k in range(5)])


def test_a_step_that_fails_says_so_and_what_is_held_is_released() -> None:
    def failing(state: Any, constant: Any, given: Any) -> tuple[Any, Any]:
        if given[0] == 3.0:
            raise ArithmeticError("three")
        return step(state, constant, given)

    with pytest.raises(ArithmeticError, match="three"):
        chain(runs=(failing,))


@pytest.mark.parametrize(
    "changed",
    [
        {"varying": (np.ones(2),)},
        {"state": [np.ones(2)]},
        {"state": [None, None]},
        {"constants": ()},
        {"stacks": ()},
        {"rows": ()},
        {"runs": ()},
        {"registers": 0, "state": [None]},
        {"registers": -1},
        {"kinds": ()},
        {"kinds": ((*STEP[:5], (7,)),)},
        {"kinds": ((((0, 0),), (1,), (1,), *STEP[3:]),)},
        {"kinds": ((((0, -1),), *STEP[1:]),)},
        {"which": b"\0\0"},
        {"which": b"\0\0\7\0\0"},
        {"runs": (lambda *values: list(values),)},
        {"indices": range(-1, 4), "which": b"\0\0\0\0\0"},
        {"stacks": (np.zeros((2, 2)),)},
    ],
)
def test_a_chain_that_does_not_fit_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)):
        chain(**changed)
