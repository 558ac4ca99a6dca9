"""Where values live: there is one place, the memory of the processor, with the name the array API standard gives it."""

from __future__ import annotations

from typing import Any, Final

from unspool.errors import ArgumentError

CPU: Final = "cpu"

# What DLPack calls the memory of the processor: the kind of device, and which one of them.
DLPACK_CPU: Final = (1, 0)


def check_device(device: Any) -> None:
    """Raise `ArgumentError` for a device other than the one there is; ``None`` is that one."""
    if device is not None and device != CPU:
        raise ArgumentError(f"device is {CPU!r}, the only one that unspool has, got {device!r}")
