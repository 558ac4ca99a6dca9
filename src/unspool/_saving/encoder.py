"""Values as bytes, with an entry for each thing that many of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import EllipsisType, MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from unspool._dims import Dim
from unspool._saving import codec
from unspool._saving.codec import Word, dtype_name, memory_order
from unspool._saving.wire import put_bytes, put_count, put_float, put_text, put_whole
from unspool.errors import SaveError


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
            out = bytearray((codec.OBJECT,))
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
                out.append(codec.ENTRY)
                entry, start = self.entry_of(value), len(out)
                put_count(out, entry)
                if self._references is not None:
                    self._references.append((out, start, len(out), value))
            else:
                if not word.is_fixed:
                    self._references = None
                out.append(codec.OBJECT)
                put_text(out, word.name)
                self._put_items(out, word.split(value))
        elif isinstance(value, np.dtype):
            out.append(codec.DTYPE)
            put_text(out, dtype_name(value))
        elif isinstance(value, np.generic):
            out.append(codec.NUMBER)
            put_text(out, dtype_name(value.dtype))
            out += value.tobytes()
        elif isinstance(value, np.ndarray):
            _put_array(out, value)
        else:
            number = None if self._number_of is None else self._number_of(value)
            if number is None:
                raise SaveError(f"{value!r} of type {kind.__module__}.{kind.__qualname__} cannot be saved")
            out.append(codec.NODE)
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
    out.append(codec.INT)
    put_whole(out, value)


def _put_float(encoder: Encoder, out: bytearray, value: float) -> None:
    out.append(codec.FLOAT)
    put_float(out, value)


def _put_complex(encoder: Encoder, out: bytearray, value: complex) -> None:
    out.append(codec.COMPLEX)
    put_float(out, value.real)
    put_float(out, value.imag)


def _put_text(encoder: Encoder, out: bytearray, value: str) -> None:
    out.append(codec.TEXT)
    put_text(out, value)


def _put_bytes(encoder: Encoder, out: bytearray, value: bytes) -> None:
    out.append(codec.BYTES)
    put_bytes(out, value)


def _put_dict(encoder: Encoder, out: bytearray, value: Any) -> None:
    out.append(codec.DICT)
    put_count(out, len(value))
    for key, item in value.items():
        encoder.put(out, key)
        encoder.put(out, item)


def _put_set(encoder: Encoder, out: bytearray, value: frozenset[Any]) -> None:
    out.append(codec.SET)
    put_count(out, len(value))
    for item in sorted(map(encoder.encode, value)):
        out += item


def _put_slice(encoder: Encoder, out: bytearray, value: slice) -> None:
    out.append(codec.SLICE)
    for part in (value.start, value.stop, value.step):
        encoder.put(out, part)


def _put_dim(encoder: Encoder, out: bytearray, value: Dim) -> None:
    known = encoder._sizes.get(value)
    if known is None:
        known = encoder._sizes[value] = encoder.encode(value._terms)
    out.append(codec.DIM)
    out += known


def _put_tag(tag: int) -> Callable[[Encoder, bytearray, Any], None]:
    return lambda encoder, out, value: out.append(tag)


_PLAIN: dict[type, Callable[[Encoder, bytearray, Any], None]] = {
    type(None): _put_tag(codec.NONE),
    bool: lambda encoder, out, value: out.append(codec.TRUE if value else codec.FALSE),
    int: _put_whole,
    float: _put_float,
    complex: _put_complex,
    str: _put_text,
    bytes: _put_bytes,
    tuple: _put_sequence(codec.TUPLE),
    list: _put_sequence(codec.LIST),
    dict: _put_dict,
    MappingProxyType: _put_dict,
    frozenset: _put_set,
    EllipsisType: _put_tag(codec.ELLIPSIS),
    slice: _put_slice,
    Dim: _put_dim,
}


def _put_array(out: bytearray, value: Any) -> None:
    """Append an array with its axes in the order they have in memory."""
    axes = memory_order(value)
    out.append(codec.ARRAY)
    put_text(out, dtype_name(value.dtype))
    put_count(out, value.ndim)
    for axis, size in zip(axes, value.shape, strict=True):
        put_count(out, axis)
        put_count(out, size)
    put_bytes(out, value.transpose(axes).tobytes())
