"""How much memory the process may use, and how much it uses.

A process can be limited in several ways at once: by the machine, by the control group it is in and every group above
that one, and by its own limit on address space. The smallest of these is what a budget is a share of.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

try:
    import resource
except ImportError:  # there is none on Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pathlib import Path

# Plain text: this is read by the first value of a process, and paths as objects take longer to load than to read.
_PROCESS = "/proc/self"
_GROUPS = "/sys/fs/cgroup"

# Where the two versions of control groups are mounted, below the root, and the files that hold a limit. Above "high" a
# process is not killed but slowed down until it gives memory back, so it is a limit as well.
_V2_MOUNTS, _V2_LIMITS = ("", "unified"), ("memory.max", "memory.high")
_V1_MOUNTS, _V1_LIMITS = ("memory",), ("memory.limit_in_bytes",)

# What to assume where the system does not say.
_ASSUMED = 4 << 30


def available_bytes(process: str | Path = _PROCESS, groups: str | Path = _GROUPS) -> int:
    """Return the memory of the machine, or the smallest limit set on the process if that is less.

    It is what the process may have in all, not what happens to be free: a budget should not depend on the moment.

    Parameters
    ----------
    process, groups : str or Path, optional
        Where the system describes the process, and where it has control groups.

    Examples
    --------
    >>> available_bytes() > 0
    True
    """
    return min([_physical_bytes(), *_address_space_limit(), *_group_limits(process, groups)])


def resident_bytes(process: str | Path = _PROCESS) -> int:
    """Return the bytes of the process that are in memory now.

    Where the system does not tell, it is the most there ever were, and 0 if not even that is known.

    Examples
    --------
    >>> resident_bytes() > 0
    True
    """
    try:
        pages = int(_text(process, "statm").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError, AttributeError):
        return _peak_resident_bytes()


def _peak_resident_bytes() -> int:
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _physical_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return _ASSUMED


def _address_space_limit() -> Iterator[int]:
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield soft


def _group_limits(process: str | Path, groups: str | Path) -> Iterator[int]:
    """Yield the limits of the control groups that the process is in, and of all above them."""
    try:
        memberships = _text(process, "cgroup").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for membership in memberships:
        # A line is "number:controllers:group"; version 2 has the number 0 and names no controllers.
        number, _, rest = membership.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            yield from _limits_along(groups, _V2_MOUNTS, group, _V2_LIMITS)
        elif "memory" in controllers.split(","):
            yield from _limits_along(groups, _V1_MOUNTS, group, _V1_LIMITS)


def _limits_along(groups: str | Path, mounts: tuple[str, ...], group: str, names: tuple[str, ...]) -> Iterator[int]:
    """Yield the limits found from the root of each mount down to the group.

    A container may see its own group as the root of the mount while the process is listed under the name that the
    machine knows it by. Then only the root exists, and holds the limit; so what does not exist is passed over.
    """
    parts = [part for part in group.split("/") if part not in ("", ".", "..")]
    for mount in mounts:
        for depth in range(len(parts) + 1):
            for name in names:
                limit = _read_limit(groups, mount, *parts[:depth], name)
                if limit is not None:
                    yield limit


def _text(*path: str | Path) -> str:
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def _read_limit(*path: str | Path) -> int | None:
    """Return the limit in a file; None if there is no file, or if it sets none ("max")."""
    try:
        text = _text(*path).strip()
    except (OSError, UnicodeDecodeError):
        return None
    # No process runs within zero bytes: that is a group which was never set up.
    return (int(text) or None) if text.isascii() and text.isdigit() else None
