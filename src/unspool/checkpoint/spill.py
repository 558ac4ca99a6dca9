"""The disk tier: arrays that leave memory and come back with the same bits, or not at all.

A spilled file is a value only for the process that wrote it. So nothing here is ever found by name: a handle, which
lives in memory, knows the file and the checksum of what was written, and reading compares. A file that is missing, cut,
changed or exchanged is a `SpillError`; it is never a wrong number.

Each store has a subdirectory of its own. `_own_directory` makes and removes it, and removes what killed processes left.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from unspool._dtypes import COMPLEX, SUPPORTED, DType, real_dtype
from unspool.checkpoint._own_directory import discard, dispose, make_own_directory, remove_leftovers
from unspool.errors import ArgumentError, DTypeError, SpillError

__all__ = ["SpillHandle", "SpillStore"]

Array: TypeAlias = np.ndarray[Any, DType]


class _Layout(NamedTuple):
    """What an array was: the file holds its axes in the order they have in memory, and complex numbers as pairs."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Its shape in the file."""
        return (*(self.shape[axis] for axis in self.axes), *((2,) if self.dtype in COMPLEX else ()))


@dataclass(frozen=True, slots=True, eq=False)
class SpillHandle:
    """What `SpillStore.put` returns and `SpillStore.get` takes.

    Attributes
    ----------
    file : Path
        Where the arrays are.
    nbytes : int
        The size of the file.
    checksum : str
        SHA-256 of the contents, in hexadecimal.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from unspool.checkpoint.spill import SpillStore
    >>> with tempfile.TemporaryDirectory() as directory, SpillStore(directory) as store:
    ...     handle = store.put({"x": np.zeros(1000)})
    ...     print(handle.file.suffix, handle.nbytes >= 8000, len(handle.checksum))
    .safetensors True 64
    """

    file: Path
    nbytes: int
    checksum: str
    _layouts: tuple[_Layout, ...] = field(repr=False)


class SpillStore:
    """Arrays on disk, in a subdirectory that nobody else uses and that is gone afterwards.

    The subdirectory goes when the store is closed or freed and when the program ends, by an exception or an interrupt
    too. What a killed process left is removed by the next store in the same directory; on Windows it stays.

    Parameters
    ----------
    directory : path
        An existing directory to make the subdirectory in.
    limit : int, optional
        The most bytes to have on disk at a time.

    Attributes
    ----------
    path : Path
        The store's own subdirectory.
    limit : int or None
        As given.
    nbytes : int
        Bytes on disk now.
    written, read : int
        Bytes of all files written and read so far.
    seconds_writing, seconds_reading : float
        The time that took, with checksums and with waiting for the disk.

    Raises
    ------
    ArgumentError
        If the directory does not exist or cannot be written to, or the limit is not a number of bytes.

    Notes
    -----
    All methods may be called from several threads. They take turns: it is one disk. A process forked from the owner's
    cannot use the store.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from unspool.checkpoint.spill import SpillStore
    >>> with tempfile.TemporaryDirectory() as directory, SpillStore(directory, limit=10**6) as store:
    ...     handle = store.put({"x": np.arange(3.0), "z": np.array(1 + 2j)})
    ...     print(store.get(handle))
    ...     store.free(handle)
    ...     print(store.nbytes, store.written == store.read)
    {'x': array([0., 1., 2.]), 'z': array(1.+2.j)}
    0 True
    """

    def __init__(self, directory: str | os.PathLike[str], limit: int | None = None) -> None:
        _require_safetensors()
        self.limit = _as_limit(limit)
        parent = Path(directory).absolute()
        if not parent.is_dir():
            raise ArgumentError(
                f"the spill directory {parent} {'is not a directory' if parent.exists() else 'does not exist'}"
            )
        remove_leftovers(parent)
        self._owner = os.getpid()
        self.path, lock = make_own_directory(parent)
        self._dispose = weakref.finalize(self, dispose, self.path, lock, self._owner)
        self.written = 0
        self.read = 0
        self.seconds_writing = 0.0
        self.seconds_reading = 0.0
        self._live: set[SpillHandle] = set()
        self._numbers = itertools.count()
        # Reentrant, because the garbage collector may run a finalizer that frees a handle while this thread is inside.
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        """Bytes on disk now."""
        # Summed, not kept: a finalizer that frees a handle may run between any two steps of ours.
        return sum(handle.nbytes for handle in tuple(self._live))

    @property
    def closed(self) -> bool:
        """Whether the store was closed."""
        return not self._dispose.alive

    def put(self, arrays: Mapping[str, Array]) -> SpillHandle:
        """Write arrays, of any data type unspool has, to one new file; when this returns, they are on the disk.

        Raises
        ------
        SpillError
            If the limit would be exceeded (nothing is written then) or the disk is full or fails (nothing is left).
        DTypeError
            If an array is of another data type.
        """
        self._require_usable()
        with self._lock:
            started = time.perf_counter()
            layouts, tensors = _to_stored(arrays)
            checksum = _checksum(layouts, tensors)
            metadata = _metadata(layouts, checksum)
            self._require_room(_size_bound(layouts, tensors, metadata))
            file = self.path / f"{next(self._numbers):08d}.safetensors"
            try:
                handle = SpillHandle(file, _write(file, tensors, metadata), checksum, layouts)
                self._live.add(handle)
            except BaseException:
                discard(file)
                raise
            self.written += handle.nbytes
            self.seconds_writing += time.perf_counter() - started
            return handle

    def get(self, handle: SpillHandle) -> dict[str, Array]:
        """Read arrays back, into new memory, and make sure that they are what was written.

        Values have the same bits. Axes lie in memory in the same order, as NumPy has it with ``order="K"``, so products
        of the arrays take the same path through BLAS and round as before. Gaps between elements are not restored.

        Raises
        ------
        SpillError
            If the file is missing, cut, changed, exchanged or unreadable, or the handle was freed.
        ArgumentError
            If the handle is of another store.
        """
        self._require_own(handle)
        self._require_usable()
        with self._lock:
            if handle not in self._live:
                raise SpillError(f"the spilled file {handle.file} was freed")
            started = time.perf_counter()
            arrays = _read(handle)
            self.read += handle.nbytes
            self.seconds_reading += time.perf_counter() - started
            return arrays

    def free(self, handle: SpillHandle) -> None:
        """Remove what `put` wrote; a handle that is freed already, or whose store is closed, is left alone."""
        self._require_own(handle)
        if os.getpid() != self._owner:
            return
        with self._lock:
            if handle in self._live:
                self._live.discard(handle)
                discard(handle.file)

    def close(self) -> None:
        """Remove all files and the subdirectory; a second call does nothing."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._live.clear()
            self._dispose()

    def __enter__(self) -> SpillStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._live)} files, {self.nbytes} bytes"
        return f"<SpillStore {self.path}: {state}>"

    def _require_own(self, handle: SpillHandle) -> None:
        if handle.file.parent != self.path:
            raise ArgumentError(f"{handle.file} is not of this store, whose files are in {self.path}")

    def _require_usable(self) -> None:
        # Before the lock is taken: in a forked process it may be held by a thread that does not exist there.
        if os.getpid() != self._owner:
            raise SpillError(f"the store {self.path} belongs to process {self._owner}, not to {os.getpid()}")
        if self.closed:
            raise SpillError(f"the store {self.path} is closed")

    def _require_room(self, size: int) -> None:
        held = self.nbytes
        if self.limit is not None and held + size > self.limit:
            raise SpillError(
                f"spilling {size} bytes beside {held} would exceed the limit of {self.limit} bytes in {self.path}"
            )


# --- arrays to tensors of a file, and back ---------------------------------------------------------------------------


def _to_stored(arrays: Mapping[str, Array]) -> tuple[tuple[_Layout, ...], list[Array]]:
    layouts, tensors = [], []
    for name, given in arrays.items():
        array = np.asarray(given)
        if array.dtype not in SUPPORTED:
            names = ", ".join(sorted(map(str, SUPPORTED)))
            raise DTypeError(f"array {name!r} has dtype {array.dtype}; what can be spilled is {names}")
        # Outermost axis first, as the array lies in memory: whatever is dense is written without a copy.
        axes = tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))
        layout = _Layout(name, array.dtype, array.shape, axes)
        dense = np.asarray(array.transpose(axes), order="C")
        layouts.append(layout)
        tensors.append(dense.reshape(-1).view(real_dtype(array.dtype)).reshape(layout.stored_shape))
    return tuple(layouts), tensors


def _from_stored(layout: _Layout, tensor: Array) -> Array:
    dense = tensor.reshape(-1).view(layout.dtype).reshape([layout.shape[axis] for axis in layout.axes])
    return dense.transpose(np.argsort(layout.axes).tolist())


def _describe(layouts: Sequence[_Layout]) -> str:
    return json.dumps([(name, str(dtype), shape, axes) for name, dtype, shape, axes in layouts])


def _checksum(layouts: Sequence[_Layout], tensors: Iterable[Array]) -> str:
    digest = hashlib.sha256(_describe(layouts).encode(), usedforsecurity=False)
    for tensor in tensors:
        digest.update(tensor.reshape(-1).data)
    return digest.hexdigest()


def _metadata(layouts: Sequence[_Layout], checksum: str) -> dict[str, str]:
    return {"format": "unspool-spill-1", "sha256": checksum, "layout": _describe(layouts)}


def _size_bound(layouts: Sequence[_Layout], tensors: Iterable[Array], metadata: dict[str, str]) -> int:
    """At least the size of the file: its header with the widest entries. It is a few bytes too much for each array."""
    total = sum(tensor.nbytes for tensor in tensors)
    header: dict[str, object] = {"__metadata__": metadata}
    for number, layout in enumerate(layouts):
        header[str(number)] = {"dtype": "BOOL", "shape": layout.stored_shape, "data_offsets": [total, total]}
    length_and_padding = 8 + 7
    return length_and_padding + len(json.dumps(header, separators=(",", ":"))) + total


# --- files -----------------------------------------------------------------------------------------------------------


def _write(file: Path, tensors: Sequence[Array], metadata: dict[str, str]) -> int:
    """Write a file that appears complete or not at all; return its size."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    partial = file.with_suffix(".partial")
    try:
        # Numbers for names: names of users may be anything, and one is taken by the format.
        save_file({str(number): tensor for number, tensor in enumerate(tensors)}, partial, metadata)
        # The caller is about to drop the arrays. A full disk that shows only when the cache is written back has to
        # show now.
        _sync(partial)
        partial.replace(file)
        _sync(file.parent)
        return file.stat().st_size
    except BaseException as error:
        discard(partial)
        discard(file)
        if isinstance(error, OSError | SafetensorError):
            raise SpillError(f"writing the spilled file {file} failed: {error}") from error
        raise


def _read(handle: SpillHandle) -> dict[str, Array]:
    """Read a file, compare it with what was written, and return the arrays."""
    from safetensors import SafetensorError, safe_open

    opened: Any = safe_open
    try:
        size = handle.file.stat().st_size
        if size != handle.nbytes:
            raise SpillError(f"the spilled file {handle.file} has {size} bytes, but {handle.nbytes} were written")
        # Not mapped into memory: there a failing disk is not an error but the end of the process.
        with opened(handle.file, framework="np", backend="pread") as tensors:
            metadata = tensors.metadata()
            found = [tensors.get_tensor(str(number)) for number in range(len(handle._layouts))]
    except FileNotFoundError as error:
        raise SpillError(f"the spilled file {handle.file} is missing") from error
    except SpillError:
        raise
    except (OSError, SafetensorError) as error:
        raise SpillError(f"the spilled file {handle.file} cannot be read: {error}") from error
    same_shapes = [tensor.shape for tensor in found] == [layout.stored_shape for layout in handle._layouts]
    if metadata != _metadata(handle._layouts, handle.checksum) or not same_shapes:
        raise SpillError(f"the spilled file {handle.file} was replaced or damaged: its header is another one")
    checksum = _checksum(handle._layouts, found)
    if checksum != handle.checksum:
        raise SpillError(f"the spilled file {handle.file} is damaged: its SHA-256 is {checksum}, not {handle.checksum}")
    return {layout.name: _from_stored(layout, tensor) for layout, tensor in zip(handle._layouts, found, strict=True)}


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():  # directories cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- arguments -------------------------------------------------------------------------------------------------------


def _require_safetensors() -> None:
    try:
        import safetensors.numpy  # noqa: F401
    except ImportError as error:
        raise ArgumentError("spilling to disk needs the package safetensors, which is not installed") from error


def _as_limit(limit: object) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 0:
        raise ArgumentError(f"limit has to be a number of bytes or None, not {limit!r}")
    return int(limit)
