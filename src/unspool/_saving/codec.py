"""The closed vocabulary of what may stand in a file beside arrays: parameters of ops, sizes, fragments, plans, loops.

A value is a tag and what it needs. Things that many nodes have in common, such as fragments and lines of source, are
*entries*: written once, in the order in which they are first needed, and referred to by number. What an entry says is
its key, so equal things are one entry, and who goes on with a file needs no more than the entries in it.

A class is in the vocabulary if it is in the table of `vocabulary`: a name, what it is made of, and how to make it.
Nothing else is ever made, and nothing is looked up by a name that a file gives but ops and functions of users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import EllipsisType, MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from unspool._dims import Dim
from unspool._dtypes import SUPPORTED
from unspool._saving.wire import Bytes, put_bytes, put_count, put_float, put_text, put_whole
from unspool.errors import SaveError, SaveFileError

(
    NONE,
    TRUE,
    FALSE,
    INT,
    FLOAT,
    COMPLEX,
    TEXT,
    BYTES,
    TUPLE,
    LIST,
    DICT,
    SET,
    ELLIPSIS,
    SLICE,
    DTYPE,
    DIM,
    ARRAY,
    NUMBER,
    OBJECT,
    ENTRY,
    NODE,
) = range(21)

# Values nest by a few levels; what nests deeper than this is no file of ours.
_DEEPEST = 40


class Word(NamedTuple):
    """A class of the vocabulary.

    Attributes
    ----------
    name : str
        What it is called in files.
    type : type
    split : callable
        ``split(value)`` returns a tuple of values of the vocabulary.
    join : callable
        ``join(*parts)`` makes it again. It runs nothing but our own code, and raises if the parts do not fit.
    is_entry : bool
        Whether many values refer to one, so that it is an entry.
    key : callable
        ``key(value)`` is the same for entries that are, as long as one of them lives; by default its identity.
    is_fixed : bool
        Whether what it is split into never changes, as long as it lives.
    has_form : bool
        Whether entries of this class take long to write and are written again, into other files: then their form is
        kept.
    """

    name: str
    type: type
    split: Callable[[Any], tuple[Any, ...]]
    join: Callable[..., Any]
    is_entry: bool = False
    key: Callable[[Any], Any] = id
    is_fixed: bool = False
    has_form: bool = False


class _Form(NamedTuple):
    """What an entry is in every file: bytes, and between them numbers of other entries, which each file has its own."""

    pieces: tuple[bytes, ...]
    entries: tuple[Any, ...]


# Forms of what is alive; longer ones are not kept.
_FORMS: WeakKeyDictionary[Any, _Form] = WeakKeyDictionary()
_LONGEST_FORM = 1 << 16


class Encoder:
    """Writes values; new entries go to the stream of records first.

    Parameters
    ----------
    words : mapping of type to Word
    write_entry : callable
        Takes the bytes of an entry, whose number is one more than that of the last.
    number_of : callable
        Returns the number of a node in the file.
    """

    def __init__(
        self,
        words: Mapping[type, Word],
        write_entry: Callable[[bytes], None],
        number_of: Callable[[Any], int | None] | None = None,
    ) -> None:
        self._words = words
        self._write_entry = write_entry
        self._number_of = number_of
        self._entries: dict[bytes, int] = {}
        # By what tells them apart, which lasts as long as the value is held here too.
        self._known: dict[Any, tuple[int, Any]] = {}
        self._sizes: dict[Dim, bytes] = {}
        # Where the entry that is being written refers to others: (bytes, start, end, entry); None if it has no form.
        self._references: list[tuple[bytearray, int, int, Any]] | None = None

    def adopt(self, payload: bytes) -> None:
        """Take note of an entry that is in the file already."""
        self._entries.setdefault(payload, len(self._entries))

    def entry_of(self, value: Any) -> int:
        """Return the number of the entry of a value; it is written if there is none."""
        word = self._words[type(value)]
        key = word.key(value)
        known = self._known.get(key)
        if known is None:
            form = _FORMS.get(value) if word.has_form else None
            payload = self._payload(word, value) if form is None else self._filled(form)
            known = self._known[key] = self.entry_of_bytes(payload), value
        return known[0]

    def _payload(self, word: Word, value: Any) -> bytes:
        """Return the bytes of an entry, and keep its form if it is to have one."""
        around, self._references = self._references, [] if word.has_form else None
        try:
            out = bytearray((OBJECT,))
            put_text(out, word.name)
            self._put_items(out, word.split(value))
            references = self._references
        finally:
            self._references = around
        if references is not None and len(out) <= _LONGEST_FORM and all(where is out for where, *_ in references):
            ends = [0, *[end for _, _, end, _ in references]]
            starts = [*[start for _, start, _, _ in references], len(out)]
            pieces = tuple([bytes(out[i:j]) for i, j in zip(ends, starts, strict=True)])
            _FORMS[value] = _Form(pieces, tuple([entry for *_, entry in references]))
        return bytes(out)

    def _filled(self, form: _Form) -> bytes:
        """Return the bytes of an entry in this file."""
        out = bytearray()
        for piece, entry in zip(form.pieces, form.entries, strict=False):
            out += piece
            put_count(out, self.entry_of(entry))
        return bytes(out + form.pieces[-1])

    def entry_of_bytes(self, payload: bytes) -> int:
        """Return the number of the entry with these bytes."""
        number = self._entries.get(payload)
        if number is None:
            number = self._entries[payload] = len(self._entries)
            self._write_entry(payload)
        return number

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        out = bytearray()
        self.put(out, value)
        return bytes(out)

    def put(self, out: bytearray, value: Any) -> None:
        """Append a value.

        Raises
        ------
        SaveError
            If it is of a class that is not in the vocabulary.
        """
        kind = type(value)
        plain = _PLAIN.get(kind)
        if plain is not None:
            plain(self, out, value)
        elif kind in self._words:
            word = self._words[kind]
            if word.is_entry:
                out.append(ENTRY)
                entry, start = self.entry_of(value), len(out)
                put_count(out, entry)
                if self._references is not None:
                    self._references.append((out, start, len(out), value))
            else:
                if not word.is_fixed:
                    self._references = None
                out.append(OBJECT)
                put_text(out, word.name)
                self._put_items(out, word.split(value))
        elif isinstance(value, np.dtype):
            out.append(DTYPE)
            put_text(out, dtype_name(value))
        elif isinstance(value, np.generic):
            out.append(NUMBER)
            put_text(out, dtype_name(value.dtype))
            out += value.tobytes()
        elif isinstance(value, np.ndarray):
            _put_array(out, value)
        else:
            number = None if self._number_of is None else self._number_of(value)
            if number is None:
                raise SaveError(f"{value!r} of type {kind.__module__}.{kind.__qualname__} cannot be saved")
            out.append(NODE)
            put_count(out, number)

    def _put_items(self, out: bytearray, items: Any) -> None:
        put_count(out, len(items))
        for item in items:
            self.put(out, item)


def _put_sequence(tag: int) -> Callable[[Encoder, bytearray, Any], None]:
    def put(encoder: Encoder, out: bytearray, value: Any) -> None:
        out.append(tag)
        encoder._put_items(out, value)

    return put


def _put_whole(encoder: Encoder, out: bytearray, value: int) -> None:
    out.append(INT)
    put_whole(out, value)


def _put_float(encoder: Encoder, out: bytearray, value: float) -> None:
    out.append(FLOAT)
    put_float(out, value)


def _put_complex(encoder: Encoder, out: bytearray, value: complex) -> None:
    out.append(COMPLEX)
    put_float(out, value.real)
    put_float(out, value.imag)


def _put_text(encoder: Encoder, out: bytearray, value: str) -> None:
    out.append(TEXT)
    put_text(out, value)


def _put_bytes(encoder: Encoder, out: bytearray, value: bytes) -> None:
    out.append(BYTES)
    put_bytes(out, value)


def _put_dict(encoder: Encoder, out: bytearray, value: Any) -> None:
    out.append(DICT)
    put_count(out, len(value))
    for key, item in value.items():
        encoder.put(out, key)
        encoder.put(out, item)


def _put_set(encoder: Encoder, out: bytearray, value: frozenset[Any]) -> None:
    out.append(SET)
    put_count(out, len(value))
    for item in sorted(map(encoder.encode, value)):
        out += item


def _put_slice(encoder: Encoder, out: bytearray, value: slice) -> None:
    out.append(SLICE)
    for part in (value.start, value.stop, value.step):
        encoder.put(out, part)


def _put_dim(encoder: Encoder, out: bytearray, value: Dim) -> None:
    known = encoder._sizes.get(value)
    if known is None:
        known = encoder._sizes[value] = encoder.encode(value._terms)
    out.append(DIM)
    out += known


def _put_tag(tag: int) -> Callable[[Encoder, bytearray, Any], None]:
    return lambda encoder, out, value: out.append(tag)


_PLAIN: dict[type, Callable[[Encoder, bytearray, Any], None]] = {
    type(None): _put_tag(NONE),
    bool: lambda encoder, out, value: out.append(TRUE if value else FALSE),
    int: _put_whole,
    float: _put_float,
    complex: _put_complex,
    str: _put_text,
    bytes: _put_bytes,
    tuple: _put_sequence(TUPLE),
    list: _put_sequence(LIST),
    dict: _put_dict,
    MappingProxyType: _put_dict,
    frozenset: _put_set,
    EllipsisType: _put_tag(ELLIPSIS),
    slice: _put_slice,
    Dim: _put_dim,
}


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return what a dtype is called in files."""
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        raise SaveError(f"a number or array of dtype {dtype} cannot be saved; unspool does not have it")
    return name


def _put_array(out: bytearray, value: Any) -> None:
    """Append an array with its axes in the order they have in memory."""
    axes = memory_order(value)
    out.append(ARRAY)
    put_text(out, dtype_name(value.dtype))
    put_count(out, value.ndim)
    for axis, size in zip(axes, value.shape, strict=True):
        put_count(out, axis)
        put_count(out, size)
    put_bytes(out, value.transpose(axes).tobytes())


def memory_order(array: Any) -> tuple[int, ...]:
    """Return the axes of an array, outermost in memory first."""
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


# --- reading ---------------------------------------------------------------------------------------------------------


class Decoder:
    """Reads values; ``entries`` are those of the file so far, ``nodes`` what numbers of nodes stand for."""

    def __init__(self, words: Mapping[str, Word]) -> None:
        self._words = words
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
        if depth > _DEEPEST:
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
    found = _DTYPES.get(name)
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


_DTYPES = {str(dtype): np.dtype(dtype) for dtype in SUPPORTED}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

_READERS: dict[int, Callable[[Decoder, Bytes, int], Any]] = {
    NONE: lambda decoder, source, depth: None,
    TRUE: lambda decoder, source, depth: True,
    FALSE: lambda decoder, source, depth: False,
    INT: lambda decoder, source, depth: source.whole(),
    FLOAT: lambda decoder, source, depth: source.float(),
    COMPLEX: lambda decoder, source, depth: complex(source.float(), source.float()),
    TEXT: lambda decoder, source, depth: source.text(),
    BYTES: lambda decoder, source, depth: source.bytes(),
    TUPLE: lambda decoder, source, depth: tuple(decoder.items(source, depth)),
    LIST: lambda decoder, source, depth: decoder.items(source, depth),
    DICT: _get_dict,
    SET: _get_set,
    ELLIPSIS: lambda decoder, source, depth: ...,
    SLICE: _get_slice,
    DTYPE: _get_dtype,
    DIM: _get_dim,
    ARRAY: _get_array,
    NUMBER: _get_number,
    OBJECT: lambda decoder, source, depth: decoder.object(source, depth),
    ENTRY: lambda decoder, source, depth: decoder.reference(source, depth),
    NODE: lambda decoder, source, depth: decoder.node(source, depth),
}
