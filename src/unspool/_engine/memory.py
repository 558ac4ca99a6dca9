"""How much memory the process may use."""

from __future__ import annotations

import os

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

# What to assume where the system does not say.
_ASSUMED = 4 << 30


def available_bytes() -> int:
    """Return the memory of the machine, or the limit set on the process if that is smaller."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        total = _ASSUMED
    for path in _CGROUP_LIMITS:
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total
