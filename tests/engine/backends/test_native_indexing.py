"""Index expressions in native programs: the bits of NumPy, whatever is selected, and however often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.backends.test_native import assert_same, both_ways, fragment_of
from unspool._engine.backends import native
from unspool._engine.backends.native_program import CALL, IN_INPUT, POSITIONS, PUT
from unspool._native import Program
from unspool.errors import IndexRangeError

pytestmark = pytest.mark.skipif(native.WHY_NOT is not None, reason=f"the native backend does not run: {native.WHY_NOT}")

ROWS = np.array([3, 0, 3, -1, 2, 3, -5])
GRID = np.array([[1, -2, 1], [0, 1, 3]])

# What is selected of an array of shape (5, 4, 6).
INDICES: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda i, j: i,
    "a grid of rows": lambda i, j: j,
    "pairs": lambda i, j: (j, j - 1),
    "pairs that are spread": lambda i, j: (j[0], j),
    "columns": lambda i, j: (slice(None), j),
    "the last axis": lambda i, j: (Ellipsis, i[:3]),
    "apart": lambda i, j: (j, slice(None), j),
    "beside a slice": lambda i, j: (i, slice(1, 3)),
    "every second": lambda i, j: (i, slice(None), slice(0, 6, 2)),
    "beside a number": lambda i, j: (i, 2),
    "with a new axis": lambda i, j: (i, None, slice(None, 2)),
}


def selections(update: str) -> Callable[..., Any]:
    def function(x: Any, y: Any, i: Any, j: Any, index: Any) -> Any:
        at = index(i, j)
        if update == "get":
            return us.sum(x[at] * x[at])
        values = us.broadcast_to(y, x[at].shape) * us.cos(x[at])
        return getattr(x.at[at], update)(values)

    return function


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("update", ["get", "set", "add"])
@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("dtype", [np.float32, float, complex])
def test_selections_have_the_bits_of_numpy(name: str, update: str, adjoint: bool, dtype: Any) -> None:
    random = np.random.default_rng(len(name))
    x, y = random.normal(size=(5, 4, 6)), random.normal(size=())
    given = [x.astype(dtype), y.astype(dtype), ROWS, GRID]
    function = selections(update)
    fragment, values = fragment_of(lambda *a: function(*a, INDICES[name]), given, adjoint=adjoint)
    made = both_ways(fragment, values)
    assert made is not None
    program, run, calls = made
    assert_same(program(*values), run(*values))
    assert calls.count == 0


@pytest.mark.parametrize("name", ["rows", "pairs", "columns", "apart", "beside a slice"])
def test_what_is_put_back_needs_no_call_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(native, "Program", lambda slots, instructions, *rest: written.extend(instructions))
    x, values = np.ones((5, 4, 6)), np.ones(())
    function = selections("add")
    fragment, arrays = fragment_of(lambda *a: function(*a, INDICES[name]), [x, values, ROWS, GRID], adjoint=False)
    with pytest.raises(AttributeError):
        both_ways(fragment, arrays)  # there is no program to tell what it is about
    opcodes = [i[0] for i in written]
    assert PUT in opcodes
    assert POSITIONS in opcodes
    assert not any(i[0] == CALL and i[7].func.__name__.startswith("_scatter") for i in written)


def test_terms_are_added_one_after_the_other() -> None:
    # In any other order the large terms would swallow the small ones, or not.
    terms = np.array([1.0, 1e16, 1.0, -1e16, 1.0, 1.0])
    where = np.array([0, 0, 0, 0, 0, 1])
    fragment, values = fragment_of(lambda t, i: us.zeros(2).at[i].add(t), [terms, where], adjoint=False)
    made = both_ways(fragment, values)
    assert made is not None
    total = 0.0
    for term in terms[:5]:
        total += term
    (found,) = made[0](*values)
    np.testing.assert_array_equal(found, [total, 1.0])


def test_the_last_value_stays_where_several_are_set() -> None:
    fragment, values = fragment_of(
        lambda v, i: us.zeros(3).at[i].set(v), [np.arange(1.0, 6.0), np.array([0, 2, 0, 2, -3])], adjoint=False
    )
    made = both_ways(fragment, values)
    assert made is not None
    (found,) = made[0](*values)
    np.testing.assert_array_equal(found, [5.0, 0.0, 4.0])


@pytest.mark.parametrize("update", ["set", "add"])
def test_nothing_is_selected_by_no_positions(update: str) -> None:
    none = np.zeros((0,), np.int64)
    function = selections(update)
    fragment, values = fragment_of(
        lambda x, y, i: function(x, y, i, i, lambda i, j: i), [np.ones((3, 2)), np.ones(()), none], adjoint=False
    )
    made = both_ways(fragment, values)
    assert made is not None
    assert_same(made[0](*values), made[1](*values))


@pytest.mark.parametrize("position", [4, -5])
def test_a_position_that_does_not_exist_is_the_error_it_always_was(position: int) -> None:
    def step(x: Any, i: Any) -> Any:
        return x.at[i].add(x[:2]) * 0.5

    where = us.tensor(np.array([0, position]))
    with pytest.raises(IndexRangeError, match=f"index {position} is out of range for axis 0 with size 4"):
        us.iterate(lambda x: step(x, where), us.ones(4), max_steps=3)[0].eval()


def test_tables_of_positions_are_checked() -> None:
    slot = (IN_INPUT, 0, None, np.dtype(np.int64), (2,), (8,), ord("C"))
    for opcode, numbers in ((POSITIONS, (2, 2)), (PUT, (2, 8))):
        entry = (opcode, (0, 0, 0), (), 2, ((), (), ()), (8, 8, 8), numbers, None)
        with pytest.raises(ValueError, match="positions come with what they count"):
            Program([slot], [entry], (0,), (0,), 0, None)


def test_rows_read_in_a_loop_are_put_back_as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    table, weights = us.tensor(random.normal(size=(9, 4))), us.tensor(random.normal(size=4))
    order = us.tensor(random.integers(-9, 9, size=(30, 3)))

    def step(state: Any) -> Any:
        s, k = state
        return us.tanh(s + us.sum(table[order[k]], 0) * weights), k + 1

    def gradients() -> list[Any]:
        us.clear_caches()
        (y, _), _ = us.iterate(step, (us.zeros(4), us.tensor(0)), max_steps=30)
        return us.eval(us.sum(y * y).grad([table, weights]))

    ours = gradients()
    monkeypatch.setattr(native, "WHY_NOT", "a test")
    for a, b in zip(ours, gradients(), strict=True):
        assert a.tobytes() == b.tobytes()
