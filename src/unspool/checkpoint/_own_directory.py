"""A directory of one's own, and the removal of those whose owners are dead.

Whoever makes a directory holds a lock on a file in it for as long as it lives. The system drops the lock when the
process dies, however it dies. That is how a later one knows leftovers from the files of a neighbour. A process id alone
would not do: ids are used again, and containers that share a directory do not see each other's.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from unspool.errors import ArgumentError, SpillError

if sys.platform != "win32":
    import fcntl

LOCK: Final = "owner.lock"
_NAME: Final = re.compile(r"unspool-spill-(?P<host>[0-9a-f]{8})-[0-9]+-[0-9a-f]{16}")


def _host() -> str:
    return hashlib.sha256(platform.node().encode(), usedforsecurity=False).hexdigest()[:8]


def make_own_directory(parent: Path) -> tuple[Path, int]:
    """Make a directory, and hold the lock that says that its owner lives; return both."""
    try:
        for _ in range(100):
            path = parent / f"unspool-spill-{_host()}-{os.getpid()}-{secrets.token_hex(8)}"
            path.mkdir(mode=0o700)
            # Until the lock is held this looks like a leftover. A store that starts just then removes it: try again.
            with suppress(FileNotFoundError):
                lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
                if _try_lock(lock) is not False and (path / LOCK).exists():
                    return path, lock
                os.close(lock)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ArgumentError(f"the spill directory {parent} is not writable") from error
        raise SpillError(f"no directory can be made in the spill directory {parent}: {error}") from error
    raise SpillError(f"directories made in the spill directory {parent} vanish at once")


def _try_lock(descriptor: int) -> bool | None:
    """Lock an open file for as long as it is open: True, or False if another has it; None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def remove_leftovers(parent: Path) -> None:
    """Remove what dead processes of this user left on this machine, and nothing else.

    Locks of other machines cannot be trusted on every network file system, so their directories are theirs.
    """
    found: list[os.DirEntry[str]] = []
    with suppress(OSError), os.scandir(parent) as entries:
        found.extend(entries)
    for entry in found:
        name = _NAME.fullmatch(entry.name)
        if name is not None and name["host"] == _host() and entry.is_dir(follow_symlinks=False):
            _remove_if_dead(Path(entry.path))


def _remove_if_dead(path: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        # The owner was killed before it had made its lock, or is about to. Only an empty directory is removed by this.
        with suppress(OSError):
            path.rmdir()
        return
    except OSError:
        return
    try:
        if os.fstat(lock).st_uid == os.geteuid() and _try_lock(lock):
            _remove(path)
    finally:
        os.close(lock)


def _remove(path: Path) -> None:
    """Remove a directory of ours; the lock goes last, so that what is left if this is cut short is still recognised."""
    with suppress(OSError):
        for entry in tuple(os.scandir(path)):
            if entry.name != LOCK:
                discard(Path(entry.path))
        discard(path / LOCK)
        path.rmdir()


def dispose(path: Path, lock: int, owner: int) -> None:
    """Let the lock go, and remove the directory if this is the process that made it."""
    os.close(lock)
    if os.getpid() == owner:  # a forked process has a copy of the store, but the files are not its own
        _remove(path)


def discard(path: Path) -> None:
    """Remove a file if it is there and can be removed."""
    with suppress(OSError):
        path.unlink()
