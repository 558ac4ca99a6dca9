"""What is in a frame of a run: a summary for lists of runs, as text, and the records of what was new."""

from __future__ import annotations

import json
import zlib
from typing import Any

from unspool.errors import SaveFileError

# Records of fewer bytes are not compressed, and no frame has more: the length of what is in it has four bytes.
_FEWEST_COMPRESSED, _MOST_RECORDS = 1 << 12, 1 << 32


def framed(summary: dict[str, Any], records: bytes) -> bytes:
    """Return a frame. Records of many steps are compressed: they look alike, and so do the bodies of short runs."""
    if len(records) >= _FEWEST_COMPRESSED:
        summary = {**summary, "records": len(records)}
        records = zlib.compress(records, 1)
    text = json.dumps(summary).encode()
    return len(text).to_bytes(4, "little") + text + records


def split_frame(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Return what a list of runs shows of a frame, and its records as they are in it."""
    length = int.from_bytes(frame[:4], "little")
    try:
        summary = json.loads(frame[4 : 4 + length])
    except (ValueError, RecursionError):
        summary = None
    if not isinstance(summary, dict):
        raise SaveFileError("a frame of the run has no summary")
    return summary, frame[4 + length :]


def records_of(frame: bytes) -> bytes:
    """Return the records of a frame."""
    summary, data = split_frame(frame)
    size = summary.get("records")
    if size is None:
        return data
    if type(size) is not int or not 0 < size < _MOST_RECORDS:
        raise SaveFileError(f"a frame of the run announces {size!r:.40} bytes")
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(data, size + 1)
    except zlib.error as error:
        raise SaveFileError(f"a frame of the run is damaged: {error}") from None
    if len(found) != size or not unpacking.eof or unpacking.unused_data:
        raise SaveFileError("a frame of the run has not the bytes that it announces")
    return found
