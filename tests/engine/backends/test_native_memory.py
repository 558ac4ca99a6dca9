"""Memory of large arrays that is kept for others when they die."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool import _native
from unspool._engine.backends.buffers import LARGE, POOL_LIMIT, new_array, pooled_bytes

FLOAT = np.dtype(np.float64)
ROWS = LARGE // 64


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    us.clear_caches()
    yield
    _native.limit_kept(POOL_LIMIT)
    us.clear_caches()


def where(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_an_array_gets_the_memory_of_one_of_its_size_that_died() -> None:
    first = new_array((ROWS, 8), FLOAT)
    at = where(first)
    del first
    assert pooled_bytes() == 64 * ROWS
    second = new_array((4, 2 * ROWS), FLOAT)
    assert where(second) == at
    assert pooled_bytes() == 0


def test_an_array_of_another_size_gets_memory_of_its_own() -> None:
    new_array((ROWS, 8), FLOAT)
    other = new_array((2 * ROWS, 8), FLOAT)
    other[...] = 1.0
    assert pooled_bytes() == 64 * ROWS


def test_memory_is_not_used_again_while_a_view_of_it_lives() -> None:
    first = new_array((ROWS, 8), FLOAT)
    first[...] = 3.0
    view = first[5:7]
    del first
    new_array((ROWS, 8), FLOAT)[...] = 4.0
    np.testing.assert_array_equal(view, np.full((2, 8), 3.0))


def test_no_more_is_kept_than_the_limit_and_the_oldest_goes_first() -> None:
    size = 64 * ROWS
    assert _native.limit_kept(2 * size + 64) == POOL_LIMIT
    arrays = [new_array((ROWS + i % 2, 8), FLOAT) for i in range(3)]
    places = [where(a) for a in arrays]
    while arrays:
        del arrays[0]
    assert _native.kept_bytes() == 2 * size + 64
    assert where(new_array((ROWS + 1, 8), FLOAT)) == places[1]
    assert _native.limit_kept(0) == 2 * size + 64
    assert _native.kept_bytes() == 0
    new_array((ROWS, 8), FLOAT)
    assert _native.kept_bytes() == 0


def test_many_blocks_are_kept_and_no_more_than_there_is_room_for() -> None:
    arrays = [new_array((ROWS, 8), FLOAT) for _ in range(70)]
    arrays.clear()
    assert _native.kept_bytes() == 64 * 64 * ROWS


def test_an_array_that_was_resized_gives_back_what_it_has() -> None:
    array = new_array((ROWS, 8), FLOAT)
    array[...] = np.arange(8.0)
    array.resize((3 * ROWS, 8), refcheck=False)
    np.testing.assert_array_equal(array[:ROWS], np.tile(np.arange(8.0), (ROWS, 1)))
    del array
    assert _native.kept_bytes() == 3 * 64 * ROWS
    new_array((3 * ROWS, 8), FLOAT)[...] = 1.0


def test_arrays_are_as_numpys_are() -> None:
    array = new_array((ROWS, 8), np.dtype(np.complex64))
    assert array.flags.owndata and array.flags.c_contiguous and array.base is None
    assert (array.shape, array.dtype) == ((ROWS, 8), np.dtype(np.complex64))
    array[...] = 2.0
    assert np.sum(array) == 16 * ROWS
    # What others make meanwhile is made as ever.
    ordinary = np.empty((ROWS, 8))
    assert np._core.multiarray.get_handler_name(array) == "unspool"
    assert np._core.multiarray.get_handler_name(ordinary) == "default_allocator"


def test_what_cannot_be_made_is_an_error() -> None:
    with pytest.raises(ValueError, match="too big"):
        _native.empty((1 << 60,), FLOAT)
    with pytest.raises(ValueError, match="negative"):
        _native.empty((-1,), FLOAT)
    with pytest.raises(TypeError):
        _native.empty((3,), "no dtype")
    with pytest.raises(OverflowError):
        _native.limit_kept(-1)
    assert np._core.multiarray.get_handler_name(np.empty(3)) == "default_allocator"


def test_the_stacks_of_a_loop_are_memory_of_the_loop_before() -> None:
    a = us.tensor(0.5 * np.eye(8))

    def gradient() -> Any:
        x = us.tensor(np.linspace(0.0, 1.0, 8))
        y, _ = us.iterate(lambda s: us.tanh(a @ s) + 0.1 * x, x, max_steps=5000)
        return us.sum(y * y).grad(x).eval()

    first = gradient()
    gc.collect()
    kept = _native.kept_bytes()
    assert kept >= 5000 * 64
    for _ in range(3):
        np.testing.assert_array_equal(gradient(), first)
        gc.collect()
        assert _native.kept_bytes() == kept


def test_within_a_budget_nothing_is_kept() -> None:
    new_array((ROWS, 8), FLOAT)
    with us.memory("100MB"):
        assert _native.kept_bytes() == 0
        new_array((ROWS, 8), FLOAT)
        assert _native.kept_bytes() == 0
    new_array((ROWS, 8), FLOAT)
    assert _native.kept_bytes() == 64 * ROWS


def test_threads_never_share_memory() -> None:
    wrong = []

    def work(number: int) -> None:
        for _ in range(200):
            array = new_array((ROWS, 8), FLOAT)
            array[...] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
