"""The log of a run: frames that are only ever appended, and what is left of them when a process was killed.

A frame has its length, a checksum of that, its contents, and a digest of these and of all frames before. It is on the
disk when `append` returns: that is what *acknowledged* means. Only the frame before the first step may be left to the
system, which has it then, so that it outlives the process; it is on the disk with the next frame, or when the system
writes it. A process that dies while it writes leaves a tail that is no frame. It is noticed and cut off, and the frames
before it are whole. Anything else that does not fit is damage, and refused: no frame that was acknowledged is ever
skipped.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zlib
from pathlib import Path

from unspool._saving.arrays import sync_directory
from unspool.errors import SaveFileError

if sys.platform != "win32":
    import fcntl

MAGIC = b"unspool-run-1\n"

_HEAD = struct.Struct("<II")
_DIGEST = 16


class Log:
    """A log that is open; others cannot open it to write at the same time."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self._has_name = False  # on the disk; a process that was killed may have left one that is not
        try:
            flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
            self._file = os.fdopen(os.open(path, flags, 0o644), "r+b")
        except FileNotFoundError:
            raise SaveFileError(f"there is no run in {path.parent}") from None
        except OSError as error:
            raise SaveFileError(f"the run in {path.parent} cannot be opened: {error}") from error
        try:
            self._lock()
            data = b"" if create else self._file.read()
            self.frames, self._end, self._digest = read_frames(path, data)
            if len(data) < len(MAGIC):  # it is new, or was killed before it began; synced with the first frame
                self._file.seek(0)
                self._file.write(MAGIC)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SaveFileError(
                f"the run in {self.path.parent} is in use, by another process or in another place of this one"
            ) from None
        except OSError:  # file systems without locks
            return

    def append(self, payload: bytes, *, waits: bool = True) -> None:
        """Add a frame; when this returns it is on the disk, with all before it. Else, the system has it."""
        length = len(payload).to_bytes(4, "little")
        digest = _digest(self._digest, payload)
        try:
            self._file.seek(self._end)
            self._file.truncate()
            self._file.write(_HEAD.pack(len(payload), zlib.crc32(length)) + payload + digest)
            self._file.flush()
            if waits:
                self._sync()
        except OSError as error:
            raise SaveFileError(f"writing {self.path} failed: {error}") from error
        self._end += _HEAD.size + len(payload) + _DIGEST
        self._digest = digest

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        if not self._has_name:  # after the contents, which takes the name of a new file along on many disks
            sync_directory(self.path.parent)
            self._has_name = True

    @property
    def nbytes(self) -> int:
        """How long the log is."""
        return self._end

    def close(self) -> None:
        """Close the log, and let others open it."""
        self._file.close()


def read_frames(path: Path, data: bytes) -> tuple[list[bytes], int, bytes]:
    """Return the frames of a log, where they end, and the digest of the last one.

    Raises
    ------
    SaveFileError
        If it is no log, or is damaged before its last frame.
    """
    if data[: len(MAGIC)] != MAGIC:
        if MAGIC.startswith(data):
            return [], len(MAGIC), b""
        raise SaveFileError(f"{path} is not the log of a run, or one of another version")
    frames: list[bytes] = []
    at, before = len(MAGIC), b""
    while at < len(data):
        if len(data) - at < _HEAD.size:
            break
        length, checksum = _HEAD.unpack_from(data, at)
        if zlib.crc32(data[at : at + 4]) != checksum:
            if any(data[at:]):
                raise SaveFileError(f"{path} is damaged: what follows frame {len(frames)} is none")
            break  # room that was taken on the disk and not written to
        end = at + _HEAD.size + length + _DIGEST
        if end > len(data):
            break
        payload = data[at + _HEAD.size : end - _DIGEST]
        digest = _digest(before, payload)
        if digest != data[end - _DIGEST : end]:
            if end < len(data):
                raise SaveFileError(f"{path} is damaged: frame {len(frames)} is not what was written")
            break
        frames.append(payload)
        at, before = end, digest
    return frames, at, before


def _digest(before: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(before + payload, digest_size=_DIGEST).digest()
