"""What a schedule of checkpoints is made of: five kinds of actions on numbered steps and states.

Steps are counted from 0. *State k* is what step k starts from. There is one current state, and a number of slots for
saved ones. Actions are plain data: they compare by kind and contents, and ``match`` takes them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Action", "Advance", "Free", "Restore", "Reverse", "Save"]


@dataclass(frozen=True, slots=True)
class Advance:
    """Run the steps from ``start`` up to, not including, ``stop``, only for the state that comes out.

    Examples
    --------
    >>> Advance(3, 7)
    Advance(start=3, stop=7)
    """

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Save:
    """Put the current state, which is state ``step``, into a free slot.

    Examples
    --------
    >>> Save(3) == Restore(3)
    False
    """

    step: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Make the saved state ``step`` the current one; its slot keeps it.

    Examples
    --------
    >>> Restore(3)
    Restore(step=3)
    """

    step: int


@dataclass(frozen=True, slots=True)
class Reverse:
    """Run step ``step`` from the current state, keep what reversing it needs, and reverse it; no state is current then.

    Examples
    --------
    >>> Reverse(3)
    Reverse(step=3)
    """

    step: int


@dataclass(frozen=True, slots=True)
class Free:
    """Forget the saved state ``step``; its slot is free.

    Examples
    --------
    >>> Free(3)
    Free(step=3)
    """

    step: int


Action: TypeAlias = Advance | Save | Restore | Reverse | Free
