"""Arrays in a safetensors file, and back with the same bits and the same order of axes in memory.

Arrays of one dtype, shape and order of axes lie in one tensor, one after the other: the state of a loop at each of many
steps costs its bytes and nothing else. The header has a SHA-256 of all that follows and of the layout, and has to be
what this module would write for that layout, byte for byte. So a file that was cut, changed or made by others is
refused as a whole, before anything of it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from unspool._core import memory_of
from unspool._saving.codec import DTYPES, dtype_name
from unspool._saving.decoder import array_from
from unspool.errors import SaveFileError

FORMAT = "unspool-arrays-1"

# Safetensors' names of what we have; complex numbers are pairs there.
_NAMES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "F32",
    "complex128": "F64",
}

_LARGEST_HEADER = 1 << 26
_CHUNK = 1 << 20

# So many blocks go to the system in one call: POSIX lets it take no more than 1024.
_MOST_AT_ONCE = 512


class Group(NamedTuple):
    """Arrays that lie in one tensor."""

    dtype: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    rows: int

    @property
    def nbytes(self) -> int:
        """Bytes of one of them."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class Arrays:
    """Arrays that are to be written, by group and row; the same array twice is one."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, tuple[int, ...], tuple[int, ...]], int] = {}
        self._rows: list[list[Any]] = []
        self._known: dict[tuple[Any, ...], tuple[int, int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(array.nbytes for rows in self._rows for array in rows)

    def add(self, array: Any) -> tuple[int, int]:
        """Take an array, and return where it is."""
        address, axes = memory_of(array)
        memory = (address, array.shape, array.strides, array.dtype)
        where = self._known.get(memory)
        if where is None:
            key = (dtype_name(array.dtype), array.shape, axes)
            group = self._groups.setdefault(key, len(self._rows))
            if group == len(self._rows):
                self._rows.append([])
            self._rows[group].append(array)
            where = self._known[memory] = group, len(self._rows[group]) - 1
        return where

    def groups(self) -> list[Group]:
        """Return the layout."""
        return [Group(*key, len(rows)) for key, rows in zip(self._groups, self._rows, strict=True)]

    def blocks(self) -> Iterator[Any]:
        """Yield the bytes of all arrays in order."""
        for (_, _, axes), rows in zip(self._groups, self._rows, strict=True):
            for array in rows:
                yield np.ascontiguousarray(array.transpose(axes)).reshape(-1).view(np.uint8)


# --- writing ---------------------------------------------------------------------------------------------------------


def write(path: Path, arrays: Arrays, structure: bytes = b"", kind: str = FORMAT, *, is_named: bool = False) -> bytes:
    """Write a file that is on the disk when this returns; return its digest.

    It appears complete or not at all. One that ``is_named`` somewhere else when it is complete, and is none before, is
    written where it stays, and its name is on the disk after `sync_directory`.
    """
    groups = arrays.groups()
    layout = _layout(groups)
    digest = hashlib.sha256(_described(kind, layout, len(structure)), usedforsecurity=False)
    digest.update(structure)
    blocks = list(arrays.blocks())
    for block in blocks:
        digest.update(block)
    partial = path if is_named else path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        with open(partial, "wb", buffering=0) as file:
            _write_all(file, [_header(kind, groups, layout, len(structure), digest.hexdigest()), structure, *blocks])
            os.fsync(file.fileno())
        if not is_named:
            partial.replace(path)
            sync_directory(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SaveFileError(f"writing {path} failed: {error}") from error
    return digest.digest()


def _write_all(file: FileIO, blocks: Sequence[Any]) -> None:
    """Write blocks of bytes one after the other, many at a time: a buffer between takes longer than short files do."""
    for at in range(0, len(blocks), _MOST_AT_ONCE):
        some = blocks[at : at + _MOST_AT_ONCE]
        written = os.writev(file.fileno(), some) if hasattr(os, "writev") else 0
        for block in some:
            rest = memoryview(block)[written:]
            while len(rest):  # the system took a part of them
                rest = rest[file.write(rest) :]
            written = max(0, written - len(block))


def sync_directory(path: Path) -> None:
    """Let names of files in a directory reach the disk."""
    if sys.platform == "win32":  # directories cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_as_json = json.JSONEncoder(separators=(",", ":")).encode


def _layout(groups: Sequence[Group]) -> str:
    return _as_json(groups)


def _described(kind: str, layout: str, structure: int) -> bytes:
    return f"{kind} {structure} {layout}".encode()


def _header(kind: str, groups: Sequence[Group], layout: str, structure: int, digest: str) -> bytes:
    """Return the header of a safetensors file, its length before it."""
    metadata = {"format": kind, "sha256": digest, "layout": layout}
    entries: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    if structure:
        entries["structure"] = {"dtype": "U8", "shape": [structure], "data_offsets": [0, structure]}
        at = structure
    for number, group in enumerate(groups):
        stored = [group.rows, *[group.shape[axis] for axis in group.axes]]
        stored += [2] if group.dtype.startswith("complex") else []
        end = at + group.rows * group.nbytes
        entries[str(number)] = {"dtype": _NAMES[group.dtype], "shape": stored, "data_offsets": [at, end]}
        at = end
    text = _as_json(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


# --- reading ---------------------------------------------------------------------------------------------------------


class ArrayFile:
    """A file that was read through and found to be whole; ``get`` reads one array of it.

    Raises
    ------
    SaveFileError
        If it is missing, cut, changed, or of another format.
    """

    def __init__(self, path: Path, kind: str = FORMAT) -> None:
        self.path = path
        self._kind = kind
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed with this
        except FileNotFoundError:
            raise SaveFileError(f"there is no file {path}") from None
        except IsADirectoryError:
            raise SaveFileError(
                f"{path} is a folder; us.load reads a file, and us.resume the folder of a run"
            ) from None
        except OSError as error:
            raise SaveFileError(f"{path} cannot be read: {error}") from error
        try:
            self._read(self._file)
        except BaseException as error:
            self._file.close()
            if isinstance(error, OSError) and not isinstance(error, SaveFileError):
                raise SaveFileError(f"{path} cannot be read: {error}") from error
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, file: BinaryIO) -> None:
        length = int.from_bytes(file.read(8), "little")
        size = os.fstat(file.fileno()).st_size
        if not 2 <= length <= min(size - 8, _LARGEST_HEADER):
            raise SaveFileError(f"{self.path} is not a file of unspool's, or was cut")
        header = file.read(length)
        try:
            found = json.loads(header)
            metadata = found["__metadata__"]
            kind, checksum = metadata["format"], metadata["sha256"]
            structure = found["structure"]["shape"][0] if "structure" in found else 0
            groups = [_as_group(*entry) for entry in json.loads(metadata["layout"])]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise SaveFileError(f"{self.path} is not a file of unspool's, or was damaged: {error!r:.100}") from None
        if kind != self._kind:
            raise SaveFileError(
                f"{self.path} has the format {kind!r:.60}; this version of unspool reads {self._kind!r}"
            )
        if type(structure) is not int or structure < 0 or type(checksum) is not str:
            raise SaveFileError(f"{self.path} was damaged: its header is no header")
        whole = 8 + length + structure + sum(group.rows * group.nbytes for group in groups)
        if whole != size:
            raise SaveFileError(f"{self.path} was cut or damaged: it has {size} bytes, and should have {whole}")
        layout = _layout(groups)
        if _header(kind, groups, layout, structure, checksum) != length.to_bytes(8, "little") + header:
            raise SaveFileError(f"{self.path} was damaged: its header does not describe it")
        digest = hashlib.sha256(_described(kind, layout, structure), usedforsecurity=False)
        self.structure = file.read(structure)
        digest.update(self.structure)
        while block := file.read(_CHUNK):
            digest.update(block)
        if digest.hexdigest() != checksum:
            raise SaveFileError(f"{self.path} was damaged: its SHA-256 is {digest.hexdigest()}, not {checksum}")
        self.digest = digest.digest()
        self.groups = groups
        at = 8 + length + structure
        self._starts = []
        for group in groups:
            self._starts.append(at)
            at += group.rows * group.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(group.rows * group.nbytes for group in self.groups)

    def get(self, group: int, row: int) -> Any:
        """Return an array, in memory of its own."""
        if group >= len(self.groups) or row >= self.groups[group].rows:
            raise SaveFileError(f"{self.path} has no array at {group}, {row}")
        dtype, shape, axes, _ = found = self.groups[group]
        try:
            self._file.seek(self._starts[group] + row * found.nbytes)
            data = self._file.read(found.nbytes)
        except OSError as error:
            raise SaveFileError(f"{self.path} cannot be read: {error}") from error
        return array_from(DTYPES[dtype], shape, axes, data)


def _as_group(dtype: Any, shape: Any, axes: Any, rows: Any) -> Group:
    sizes = [*shape, *axes, rows]
    if dtype not in DTYPES or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"a layout of {dtype!r:.40}, {sizes!r:.80}")
    if sorted(axes) != list(range(len(shape))):
        raise ValueError(f"axes {axes!r:.80}")
    return Group(dtype, tuple(shape), tuple(axes), rows)
