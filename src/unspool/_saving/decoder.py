"""Values from bytes that anybody may have changed: nothing is made that does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unspool._dims import Dim
from unspool._saving import codec
from unspool._saving.codec import DEEPEST, DTYPES, Word
from unspool._saving.wire import Bytes
from unspool.errors import SaveFileError


class Decoder:
    """Reads values; ``entries`` are those of the file so far, ``nodes`` what numbers of nodes stand for.

    ``more`` returns the words that are needed for names that are not among ``words``.
    """

    def __init__(self, words: Mapping[str, Word], more: Callable[[], list[Word]] | None = None) -> None:
        self._words, self._more = words, more
        self.entries: list[Any] = []
        self.nodes: Any = ()

    def add_entry(self, payload: bytes) -> None:
        """Take the next entry."""
        source = Bytes(payload)
        self.entries.append(self.get(source))
        if source.left:
            raise SaveFileError("an entry of the file is longer than what it says")

    def entry(self, number: int, kind: type) -> Any:
        """Return an entry that has to be of a class."""
        if number >= len(self.entries) or not isinstance(self.entries[number], kind):
            raise SaveFileError(f"the file refers to a {kind.__name__} that is not there")
        return self.entries[number]

    def decode(self, payload: bytes) -> Any:
        """Return the value of some bytes."""
        source = Bytes(payload)
        found = self.get(source)
        if source.left:
            raise SaveFileError("a value of the file is longer than what it says")
        return found

    def get(self, source: Bytes, depth: int = 0) -> Any:
        """Read a value."""
        if depth > DEEPEST:
            raise SaveFileError("values of the file nest too deeply")
        tag = source.byte()
        read = _READERS.get(tag)
        if read is None:
            raise SaveFileError(f"the file has a value of the unknown kind {tag}")
        return read(self, source, depth + 1)

    def items(self, source: Bytes, depth: int) -> list[Any]:
        """Read how many values follow, and these."""
        return [self.get(source, depth) for _ in range(source.count_of_items())]

    def object(self, source: Bytes, depth: int) -> Any:
        """Read a value of a class of the vocabulary."""
        name = source.text()
        word = self._words.get(name)
        if word is None and self._more is not None:
            self._words = {**self._words, **{other.name: other for other in self._more()}}
            self._more = None
            word = self._words.get(name)
        if word is None:
            raise SaveFileError(f"the file has something called {name!r:.80}, which is not known here")
        return word.join(*self.items(source, depth))

    def reference(self, source: Bytes, depth: int) -> Any:
        """Read a reference to an entry."""
        number = source.count()
        if number >= len(self.entries):
            raise SaveFileError(f"the file refers to entry {number} of {len(self.entries)}")
        return self.entries[number]

    def node(self, source: Bytes, depth: int) -> Any:
        """Read a reference to a node."""
        number = source.count()
        if number >= len(self.nodes) or self.nodes[number] is None:
            raise SaveFileError(f"the file refers to node {number}, which it does not have")
        return self.nodes[number]


def _get_dict(decoder: Decoder, source: Bytes, depth: int) -> dict[Any, Any]:
    found = {}
    for _ in range(source.count_of_items()):
        key = decoder.get(source, depth)
        found[_hashable(key)] = decoder.get(source, depth)
    return found


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        raise SaveFileError("a key in the file cannot be one") from None
    return key


def _get_dtype(decoder: Decoder, source: Bytes, depth: int) -> np.dtype[Any]:
    name = source.text()
    found = DTYPES.get(name)
    if found is None:
        raise SaveFileError(f"the file has the dtype {name!r:.40}, which unspool does not have")
    return found


def _get_dim(decoder: Decoder, source: Bytes, depth: int) -> Dim:
    terms = decoder.get(source, depth)
    try:
        pairs = [(tuple(map(_as_atom, monomial)), _as_int(coefficient)) for monomial, coefficient in terms]
        found = Dim(pairs)
    except (TypeError, ValueError) as error:
        raise SaveFileError(f"a size in the file is none: {error}") from None
    return found


def _as_atom(atom: Any) -> tuple[object, ...]:
    match atom:
        case ("size", str()):
            return atom  # type: ignore[no-any-return]
        case ("//" | "max" | "min", int() | Dim(), int() | Dim()):
            return atom  # type: ignore[no-any-return]
    raise ValueError(f"{atom!r:.80}")


def _as_int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.80} is no whole number")
    return value


def _get_array(decoder: Decoder, source: Bytes, depth: int) -> Any:
    dtype = _get_dtype(decoder, source, depth)
    ndim = source.count_of_items()
    if ndim > 64:
        raise SaveFileError(f"an array in the file has {ndim} axes")
    axes, shape = [], []
    for _ in range(ndim):
        axes.append(source.count())
        shape.append(source.count())
    return array_from(dtype, tuple(shape), tuple(axes), source.bytes())


def array_from(dtype: np.dtype[Any], shape: tuple[int, ...], axes: tuple[int, ...], data: Any) -> Any:
    """Return an array from its bytes, with its axes in the order of memory that they had."""
    if sorted(axes) != list(range(len(shape))):
        raise SaveFileError(f"the axes {axes} of an array in the file are no order")
    stored = [shape[axis] for axis in axes]
    size = math.prod(stored) * dtype.itemsize
    if size != len(data):
        raise SaveFileError(f"an array of shape {shape} and dtype {dtype} takes {size} bytes; the file has {len(data)}")
    try:
        found = np.empty(stored, dtype)
    except ValueError as error:
        raise SaveFileError(f"an array in the file cannot be made: {error}") from None
    if size:
        found.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    made = found.transpose(np.argsort(axes).tolist()) if axes else found
    made.setflags(write=False)
    return made


def _get_number(decoder: Decoder, source: Bytes, depth: int) -> Any:
    dtype = _get_dtype(decoder, source, depth)
    return np.frombuffer(source.take(dtype.itemsize), dtype)[0]


def _get_set(decoder: Decoder, source: Bytes, depth: int) -> frozenset[Any]:
    return frozenset(map(_hashable, decoder.items(source, depth)))


def _get_slice(decoder: Decoder, source: Bytes, depth: int) -> slice:
    return slice(*[decoder.get(source, depth) for _ in range(3)])


_READERS: dict[int, Callable[[Decoder, Bytes, int], Any]] = {
    codec.NONE: lambda decoder, source, depth: None,
    codec.TRUE: lambda decoder, source, depth: True,
    codec.FALSE: lambda decoder, source, depth: False,
    codec.INT: lambda decoder, source, depth: source.whole(),
    codec.FLOAT: lambda decoder, source, depth: source.float(),
    codec.COMPLEX: lambda decoder, source, depth: complex(source.float(), source.float()),
    codec.TEXT: lambda decoder, source, depth: source.text(),
    codec.BYTES: lambda decoder, source, depth: source.bytes(),
    codec.TUPLE: lambda decoder, source, depth: tuple(decoder.items(source, depth)),
    codec.LIST: lambda decoder, source, depth: decoder.items(source, depth),
    codec.DICT: _get_dict,
    codec.SET: _get_set,
    codec.ELLIPSIS: lambda decoder, source, depth: ...,
    codec.SLICE: _get_slice,
    codec.DTYPE: _get_dtype,
    codec.DIM: _get_dim,
    codec.ARRAY: _get_array,
    codec.NUMBER: _get_number,
    codec.OBJECT: lambda decoder, source, depth: decoder.object(source, depth),
    codec.ENTRY: lambda decoder, source, depth: decoder.reference(source, depth),
    codec.NODE: lambda decoder, source, depth: decoder.node(source, depth),
}
