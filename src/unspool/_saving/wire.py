"""Bytes: whole numbers, floats and texts, written one after the other and read back with every step checked.

What is read comes from a file that anybody may have changed. So a reader never goes beyond its end and never believes a
length before it has seen that so many bytes are there; whatever does not fit is a `SaveFileError`.
"""

from __future__ import annotations

import struct

from unspool.errors import SaveFileError

_DOUBLE = struct.Struct("<d")

# Whole numbers with more bits than this are in no file of ours: ids, sizes and counts have 64.
_MOST_BITS = 4096


def put_count(out: bytearray, number: int) -> None:
    """Append a number from 0 on: seven bits in a byte, the lowest first."""
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def put_whole(out: bytearray, number: int) -> None:
    """Append a whole number; small ones of either sign are short."""
    put_count(out, number << 1 if number >= 0 else ~number << 1 | 1)


def put_bytes(out: bytearray, data: bytes) -> None:
    """Append bytes behind their length."""
    put_count(out, len(data))
    out += data


def put_text(out: bytearray, text: str) -> None:
    """Append a text; lone surrogates, which names of files may have, pass as they are."""
    put_bytes(out, text.encode("utf-8", "surrogatepass"))


def put_float(out: bytearray, number: float) -> None:
    """Append a float, bit by bit."""
    out += _DOUBLE.pack(number)


class Bytes:
    """Reads what the functions of this module wrote."""

    __slots__ = ("_data", "_end", "at")

    def __init__(self, data: bytes | memoryview, start: int = 0) -> None:
        self._data = memoryview(data)
        self._end = len(self._data)
        self.at = start

    @property
    def left(self) -> int:
        """How many bytes there are still."""
        return self._end - self.at

    def byte(self) -> int:
        """Read one byte."""
        if self.at >= self._end:
            raise SaveFileError("the file ends in the middle of a record")
        found = self._data[self.at]
        self.at += 1
        return found

    def count(self) -> int:
        """Read a number from 0 on."""
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > _MOST_BITS:
                raise SaveFileError("a number in the file has no end")

    def count_of_items(self) -> int:
        """Read how many items follow; each takes at least a byte, so more than there are bytes cannot be meant."""
        found = self.count()
        if found > self.left:
            raise SaveFileError(f"the file announces {found} items and has {self.left} bytes left")
        return found

    def whole(self) -> int:
        """Read a whole number."""
        found = self.count()
        return ~(found >> 1) if found & 1 else found >> 1

    def take(self, length: int) -> bytes:
        """Read so many bytes."""
        if length > self.left:
            raise SaveFileError(f"the file announces {length} bytes and has {self.left}")
        found = bytes(self._data[self.at : self.at + length])
        self.at += length
        return found

    def bytes(self) -> bytes:
        """Read bytes behind their length."""
        return self.take(self.count())

    def text(self) -> str:
        """Read a text."""
        try:
            return self.bytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise SaveFileError(f"a text in the file is none: {error}") from None

    def float(self) -> float:
        """Read a float."""
        found: float = _DOUBLE.unpack(self.take(8))[0]
        return found
