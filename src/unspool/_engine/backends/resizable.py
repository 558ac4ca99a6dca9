"""Arrays that get more rows or fewer in place, for records of which nobody knows how many there will be."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from unspool._core import Storage


class ResizableArray:
    """An array of which the number of rows can change, while it is there once.

    `numpy.ndarray.resize` makes a second array for a moment, from NumPy 2.5 on.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype

    Attributes
    ----------
    array : ndarray
        The present one; another one after each change.

    Examples
    --------
    >>> numbers = ResizableArray((2, 3), np.dtype(float))
    >>> numbers.array[...] = [[1, 2, 3], [4, 5, 6]]
    >>> numbers.resize(3)
    >>> numbers.array[2] = 0
    >>> numbers.array
    array([[1., 2., 3.],
           [4., 5., 6.],
           [0., 0., 0.]])
    """

    __slots__ = ("_storage", "array")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._storage: Storage | None = None
        self.array = self._new(shape, np.dtype(dtype))

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        size = prod(shape) * dtype.itemsize
        # Python's objects cannot be moved as bytes.
        self._storage = None if dtype.hasobject or not size else Storage(size)
        return np.empty(shape, dtype) if self._storage is None else _looking_at(self._storage, shape, dtype)

    def resize(self, rows: int) -> None:
        """Let there be another number of rows; the first ones stay, new ones are arbitrary."""
        shape, dtype = (rows, *self.array.shape[1:]), self.array.dtype
        if self._storage is not None and self._resized_in_place(prod(shape) * dtype.itemsize):
            self.array = _looking_at(self._storage, shape, dtype)
            return
        # Somebody has a view of the array, and keeps what is in it.
        before = self.array
        self.array = self._new(shape, dtype)
        least = min(rows, len(before))
        self.array[:least] = before[:least]

    def _resized_in_place(self, size: int) -> bool:
        """Give the storage another size; tell whether it was to be had."""
        assert self._storage is not None
        shape, dtype, self.array = self.array.shape, self.array.dtype, None
        try:
            self._storage.resize(size)
        except BaseException as error:
            self.array = _looking_at(self._storage, shape, dtype)
            if not isinstance(error, BufferError):
                raise
            return False
        return True


def _looking_at(storage: Storage, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    # Of what `frombuffer` makes, the memory knows that it is there; `ndarray` with a buffer does not tell it.
    return np.frombuffer(memoryview(storage), dtype, prod(shape)).reshape(shape)
