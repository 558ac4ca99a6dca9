"""Arrays that get more rows or fewer in place."""

import gc
import tracemalloc

import numpy as np
import pytest

from unspool._core import Storage
from unspool._engine.backends.resizable import ResizableArray


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64, np.bool_, object])
def test_the_first_rows_stay(dtype):
    stack = ResizableArray((3, 2), np.dtype(dtype))
    rows = np.arange(6).reshape(3, 2).astype(dtype)
    stack.array[...] = rows
    for count in (5, 100, 4, 2, 3, 1):
        stack.resize(count)
        assert stack.array.shape == (count, 2) and stack.array.dtype == dtype
        kept = min(count, 2)
        np.testing.assert_array_equal(stack.array[:kept], rows[:kept])


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (2, 0, 3)])
def test_an_array_without_elements_can_grow(shape):
    stack = ResizableArray(shape, np.dtype(float))
    stack.resize(7)
    assert stack.array.shape == (7, *shape[1:])
    stack.array[...] = 1
    stack.resize(0)
    stack.resize(2)
    assert stack.array.shape == (2, *shape[1:])


def test_what_somebody_looks_at_stays_as_it_is():
    stack = ResizableArray((4, 2), np.dtype(float))
    stack.array[...] = [[1, 2], [3, 4], [5, 6], [7, 8]]
    view = stack.array[1:3]
    stack.resize(1000)
    stack.array[1:3] = 0
    np.testing.assert_array_equal(view, [[3, 4], [5, 6]])
    np.testing.assert_array_equal(stack.array[0], [1, 2])


def test_while_it_gets_another_size_it_is_there_once():
    row = 1 << 16
    stack = ResizableArray((20, row), np.dtype(np.uint8))
    stack.array[...] = 1
    gc.collect()
    tracemalloc.start()
    try:
        grown = ResizableArray((20, row), np.dtype(np.uint8))
        grown.array[...] = 1
        for rows in (40, 60, 30, 20):
            tracemalloc.reset_peak()
            grown.resize(rows)
        # What it was and what it is: 50 rows, if one were made from the other.
        assert tracemalloc.get_traced_memory()[1] < 30.5 * row
        assert tracemalloc.get_traced_memory()[0] < 20.5 * row
    finally:
        tracemalloc.stop()


def test_memory_that_is_looked_at_keeps_its_size():
    storage = Storage(16)
    view = memoryview(storage)
    with pytest.raises(BufferError, match="looks at"):
        storage.resize(8)
    assert view.nbytes == 16 and not view.readonly
    view.release()
    storage.resize(8)
    assert memoryview(storage).nbytes == 8


@pytest.mark.parametrize("size", [-1, 2**62])
def test_memory_that_is_not_to_be_had_is_refused(size):
    storage = Storage(16)
    memoryview(storage)[:] = bytes(range(16))
    with pytest.raises((ValueError, MemoryError)):
        storage.resize(size)
    assert bytes(storage) == bytes(range(16))
    with pytest.raises((ValueError, MemoryError)):
        Storage(size)
    with pytest.raises(TypeError):
        Storage(size=3)
    with pytest.raises(TypeError):
        storage.resize("4")


def test_an_array_that_cannot_grow_is_as_it_was():
    stack = ResizableArray((2, 4), np.dtype(float))
    stack.array[...] = 3
    with pytest.raises(MemoryError):
        stack.resize(2**56)
    np.testing.assert_array_equal(stack.array, np.full((2, 4), 3.0))
