"""Values as bytes, with an entry for each thing that many of them have in common.

Plain values, classes of the vocabulary and references to nodes and entries are written in C (`_core.EncoderBase`): most
of what a short run writes are these. Here are entries that have forms, and values of all other kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unspool._core import EncoderBase, Journal
from unspool._dims import Dim
from unspool._saving import codec
from unspool._saving.codec import DTYPES, Word, dtype_name, memory_order
from unspool._saving.wire import put_bytes, put_count, put_float, put_text, put_whole
from unspool.errors import SaveError

# Longer forms are not kept.
_LONGEST_FORM = 1 << 16


class Encoder(EncoderBase):
    """Writes values; new entries go to the stream of records first.

    Parameters
    ----------
    words : dict of type to Word
    write_entry : callable
        Takes the bytes of an entry, whose number is one more than that of the last.
    journal : Journal, optional
        Which nodes are in the file, if any are.
    more : callable, optional
        Returns the words for values of other classes; they are added to ``words`` when the first is met.
    """

    def __init__(
        self,
        words: dict[type, Word],
        write_entry: Callable[[bytes], None],
        journal: Journal | None = None,
        more: Callable[[], list[Word]] | None = None,
    ) -> None:
        self.words = words
        self._more = more
        self.write = write_entry
        self.journal = journal
        self._sizes: dict[Dim, bytes] = {}

    def put_form(self, word: Word, value: Any) -> bytes:
        """Return the bytes of an entry that is to have a form, and let the value keep it.

        A form is what an entry is in every file: bytes, between them entries, as ``(word, key, value)``, of which each
        file has numbers of its own, and which of them stands where. The values are held, so their keys last.
        """
        around, self.references = self.references, []
        try:
            out = bytearray()
            self.put_parts(out, word, value)
            references: Any = self.references  # None if something in it may become something else
        finally:
            self.references = around
        if references is not None and len(out) <= _LONGEST_FORM and all(where is out for where, *_ in references):
            ends = [0, *[end for _, _, end, _ in references]]
            starts = [*[start for _, start, _, _ in references], len(out)]
            pieces = tuple([bytes(out[i:j]) for i, j in zip(ends, starts, strict=True)])
            found: dict[Any, tuple[int, Any]] = {}
            order = [found.setdefault((e[0].name, e[1]), (len(found), e))[0] for *_, e in references]
            value.form = pieces, tuple([entry for _, entry in found.values()]), tuple(order)
        return bytes(out)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        out = bytearray()
        self.put(out, value)
        return bytes(out)

    def put_other(self, out: bytearray, value: Any) -> None:
        """Append a value that is neither plain nor of a class of the vocabulary.

        Raises
        ------
        SaveError
            If it is of no kind that files have.
        """
        kind = type(value)
        put = _OTHERS.get(kind)
        if put is not None:
            put(self, out, value)
        elif isinstance(value, np.dtype):
            out.append(codec.DTYPE)
            put_text(out, dtype_name(value))
        elif isinstance(value, np.generic):
            out.append(codec.NUMBER)
            put_text(out, dtype_name(value.dtype))
            out += value.tobytes()
        elif isinstance(value, np.ndarray):
            _put_array(out, value)
        elif self._more is not None:
            self.words.update({word.type: word for word in self._more()})
            self._more = None
            self.put(out, value)
        else:
            raise SaveError(f"{value!r} of type {kind.__module__}.{kind.__qualname__} cannot be saved")


def _put_whole(encoder: Encoder, out: bytearray, value: int) -> None:
    """Append a number of more than 64 bits."""
    out.append(codec.INT)
    put_whole(out, value)


def _put_complex(encoder: Encoder, out: bytearray, value: complex) -> None:
    out.append(codec.COMPLEX)
    put_float(out, value.real)
    put_float(out, value.imag)


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


def _encoded_dtype(name: str) -> bytes:
    out = bytearray((codec.DTYPE,))
    put_text(out, name)
    return bytes(out)


# Nearly every entry has one.
_ENCODED_DTYPES = {dtype: _encoded_dtype(name) for name, dtype in DTYPES.items()}


def _put_dtype(encoder: Encoder, out: bytearray, value: np.dtype[Any]) -> None:
    out += _ENCODED_DTYPES.get(value) or _encoded_dtype(dtype_name(value))


_OTHERS: dict[type, Callable[[Encoder, bytearray, Any], None]] = {
    int: _put_whole,
    complex: _put_complex,
    frozenset: _put_set,
    slice: _put_slice,
    Dim: _put_dim,
    **{type(dtype): _put_dtype for dtype in DTYPES.values()},
}
