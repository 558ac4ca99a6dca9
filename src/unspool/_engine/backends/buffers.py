"""Memory of a plan: what a run needs, worked out beforehand, and a pool from which it takes large arrays.

Fresh memory for a large array comes from the system page by page, which costs more than most elementwise ops; so large
results go into arrays that are no longer needed. Which ones those are is decided twice. `assign` decides it from the
steps, as data: which buffer holds which slot, how many bytes there are, how many are in use at once. While a plan runs
on NumPy, whose kernels may return views and operands as they please, reference counts have the last word: an array is
overwritten only if nobody else can see it (`references`). What a loop fills outlives it; the memory of such an array is
taken back when it dies (`new_array`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _native
from unspool._engine.costs import nbytes
from unspool._engine.planning import Step
from unspool._engine.references import AS_AN_ARGUMENT, AS_ONE_OF_SEVERAL, count_references
from unspool._locks import RLock
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._engine.planning import Bound

# Smaller arrays are cheap to allocate: the C library keeps them. From here on it may give them back to the system.
LARGE = 1 << 17

# What the pool holds at most.
POOL_LIMIT = 1 << 26

# NumPy's arrays begin at multiples of so many bytes. Where one does not, as a row of a stack may, some kernels of BLAS
# add up in another order. So what is computed twice is computed from arrays that begin there, and has the same bits.
ALIGNMENT = 16


def aligned(array: Any) -> Any:
    """Return an array that begins where NumPy's do: itself, or a copy of the same order of axes."""
    if type(array) is not np.ndarray or array.__array_interface__["data"][0] % ALIGNMENT == 0:
        return array
    return array.copy(order="K")


def copied(array: Any) -> Any:
    """Return a copy with the same order of axes in memory; C order, if the array repeats elements along an axis."""
    return array.copy(order="C" if repeats(array.shape, array.strides) else "K")


def repeats(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an array has the same element at several places."""
    return any(n > 1 and s == 0 for n, s in zip(shape, strides, strict=True))


def dense(array: Any) -> Any:
    """Return an array as a copy of it would lie in memory, without gaps and aligned: itself, or a copy."""
    if type(array) is not np.ndarray:
        return array
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        return copied(array)
    # To look up where an array begins takes longer; one that owns its memory is as NumPy made it.
    return array if flags.owndata else aligned(array)


def new_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array with arbitrary contents; if it is large, its memory is used again when it dies."""
    if dtype.hasobject or nbytes(shape, dtype) < LARGE:
        return np.empty(shape, dtype)
    return _native.empty(shape, dtype)


# --- beforehand ------------------------------------------------------------------------------------------------------


class Assignment(NamedTuple):
    """Where the results of steps lie.

    Attributes
    ----------
    buffers : tuple of int or None
        One per step: the number of the buffer that holds its result; ``None`` for what lies in an input, is computed
        once, or is no array.
    sizes : tuple of int
        Bytes of every buffer.
    buffer_bytes : int
        Bytes of the buffers that hold temporaries, not outputs.
    peak_bytes : int
        The most bytes that are in use at once, outputs included, inputs and constants not.
    """

    buffers: tuple[int | None, ...]
    sizes: tuple[int, ...]
    buffer_bytes: int
    peak_bytes: int


def assign(steps: Sequence[Step], outputs: Sequence[int], bound: Bound) -> Assignment:
    """Give every step a buffer, used again as soon as everything that lies in it is dead."""
    home: dict[int, int] = {}
    owners: set[int] = set()
    inhabitants: list[int] = []
    sizes: list[int] = []
    free: dict[int, list[int]] = {}
    peak = used = 0
    for step in steps:
        if step.once:
            continue
        size = nbytes(bound.shapes[step.slot], bound.dtypes[step.slot])
        place = _taken_over(step, home, owners, inhabitants, bound)
        if place is None:
            spare = free.get(size)
            place = spare.pop() if spare else len(sizes)
            if place == len(sizes):
                sizes.append(size)
                inhabitants.append(0)
            used += size
        if place >= 0:
            home[step.slot] = place
            inhabitants[place] += 1
            if not step.op.view:
                owners.add(step.slot)
        peak = max(peak, used)
        for slot in step.dying:
            left = home.get(slot)
            if left is not None:
                inhabitants[left] -= 1
                if not inhabitants[left]:
                    free.setdefault(sizes[left], []).append(left)
                    used -= sizes[left]
    leaving = {home[slot] for slot in outputs if slot in home}
    temporary = sum(size for place, size in enumerate(sizes) if place not in leaving)
    return Assignment(tuple([home.get(step.slot) for step in steps]), tuple(sizes), temporary, peak)


_ELSEWHERE = -1


def _taken_over(step: Step, home: dict[int, int], owners: set[int], inhabitants: list[int], bound: Bound) -> int | None:
    """Return the buffer of an operand that the result lies in: a view, or written over it; ``None`` for a new one."""
    if step.op.view:
        return home.get(step.operands[0], _ELSEWHERE)
    for slot in overwritable(step, bound):
        if slot in owners and inhabitants[home[slot]] == 1:
            return home[slot]
    return None


def overwritable(step: Step, bound: Bound) -> tuple[int, ...]:
    """Return the dying operands over which an elementwise step may write its result, if they own their memory."""
    shape, dtype = bound.shapes[step.slot], bound.dtypes[step.slot]
    if dtype not in step.op.exact:
        return ()
    return tuple([s for s in step.dying if bound.shapes[s] == shape and bound.dtypes[s] == dtype])


# --- while running ---------------------------------------------------------------------------------------------------


class BufferPool:
    """Large arrays that nobody uses, by shape and dtype; the kind that was not used for longest leaves first."""

    def __init__(self, limit: int = POOL_LIMIT) -> None:
        self.limit = limit
        self.nbytes = 0
        self._free: OrderedDict[tuple[tuple[int, ...], Any], list[Any]] = OrderedDict()
        # Garbage collection may start while it is held and run finalizers that evaluate something.
        self._lock = RLock()

    def set_limit(self, limit: int) -> None:
        """Set how many bytes may be held."""
        with self._lock:
            self.limit = limit
            while self.nbytes > limit:
                self._drop_one()

    def take(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array with arbitrary contents that nobody else can see."""
        with self._lock:
            spare = self._free.get((shape, dtype))
            if spare:
                array = spare.pop()
                self.nbytes -= array.nbytes
                return array
        return np.empty(shape, dtype)

    def give(self, array: Any) -> None:
        """Keep an array for later if the caller's variable, which it must not use again, is all that refers to it."""
        if type(array) is not np.ndarray or count_references(array) != AS_AN_ARGUMENT or not _is_plain(array):
            return
        with self._lock:
            key = (array.shape, array.dtype)
            self._free.setdefault(key, []).append(array)
            self._free.move_to_end(key)
            self.nbytes += array.nbytes
            while self.nbytes > self.limit:
                self._drop_one()

    def _drop_one(self) -> None:
        key, oldest = next(iter(self._free.items()))
        if oldest:
            self.nbytes -= oldest.pop().nbytes
        if not oldest:
            del self._free[key]

    def clear(self) -> None:
        """Let all arrays go."""
        with self._lock:
            self._free.clear()
            self.nbytes = 0

    def fill(self, ufunc: Any, shape: tuple[int, ...], dtype: Any, dying: tuple[tuple[int, int], ...], *xs: Any) -> Any:
        """Return ``ufunc(*xs)``, written over an operand or into an array of the pool.

        ``dying`` has the operands, by position, that the caller will not read again, and how often each one is given.
        """
        for x in xs:
            # The result of operands in another order of memory has that order too, and sums would follow it.
            if not x.flags.c_contiguous:
                return ufunc(*xs)
        for position, times in dying:
            x = xs[position]
            if count_references(x) == AS_ONE_OF_SEVERAL + times and x.shape == shape and _is_plain(x):
                return ufunc(*xs, out=x)
        return ufunc(*xs, out=self.take(shape, dtype))


def _is_plain(array: Any) -> bool:
    flags = array.flags
    return bool(flags.owndata and flags.writeable and flags.c_contiguous)


# Shared by all plans: what one run no longer needs, the next one takes, whichever plan it belongs to.
POOL = BufferPool()


def pooled_bytes() -> int:
    """Return the bytes of arrays, and of memory of such, that are kept to be used again."""
    return POOL.nbytes + _native.kept_bytes()


def clear_pools() -> None:
    """Let all of them go."""
    POOL.clear()
    _native.limit_kept(_native.limit_kept(0))
