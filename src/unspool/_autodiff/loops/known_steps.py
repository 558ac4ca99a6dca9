"""Steps of loops that were traced before: nodes that look alike are the same step, on constants of their own.

The user's functions run in every call of `unspool.iterate`, so whatever they read is read again; that takes a few
microseconds. What they recorded is then compared with what was recorded before (`compared`), and if it looks alike its
description is there already. Code that ran is a guess where to look, the comparison decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool import _trees as trees
from unspool._autodiff.sweeps.compared import Compared
from unspool._engine.default import default_engine
from unspool._ops.identity import ALIAS
from unspool._ops.leaf import CONSTANT

if TYPE_CHECKING:
    from unspool._core import SweepRecord
    from unspool._tensor import Tensor

# Tables of one place that are kept, and how often one is made: what always looks different is always described.
_MOST_TABLES = 8
_MOST_MADE = 64


class KnownSteps:
    """What is known of the steps that some code records.

    Parameters
    ----------
    code : object
        Not looked at. It is held so that its address stays its own.
    """

    __slots__ = ("_code", "_made", "_tables", "_visits")

    def __init__(self, code: Any) -> None:
        self._code = code
        self._tables: list[tuple[SweepRecord, Any]] = []
        self._visits = self._made = 0

    def find(self, outputs: Sequence[Tensor], stand_ins: Sequence[Tensor]) -> tuple[Any, list[Tensor]] | None:
        """Return what is known of outputs that look like others, and the constants that they read; else ``None``."""
        given = (*outputs, *stand_ins)
        for entry in self._tables:
            # No call matters: a stand-in is newer than all that does not depend on it.
            constants: Any = entry[0].repeat(given, 0, -1, _nothing)
            if constants is not None:
                if self._tables[0] is not entry:
                    # A new list: other threads may be going through this one.
                    self._tables = [entry, *[other for other in self._tables if other is not entry]]
                return entry[1], constants
        return None

    def add(
        self, outputs: Sequence[Tensor], stand_ins: Sequence[Tensor], constants: Sequence[Tensor], known: Any
    ) -> None:
        """Remember what is known of outputs, from the second time on that it was not found."""
        self._visits += 1
        if self._visits == 1 or self._made == _MOST_MADE:
            return
        self._made += 1
        first = min([x.id for x in stand_ins], default=-1)
        found = Compared(outputs, stand_ins, first, all_bundles=True)
        if not found.is_fit or any(x.id not in found.slots for x in constants):
            return
        # What is made of constants alone is part of the step, with its values; nodes that look like it may be others.
        read = {found.slots[x.id] for x in (*stand_ins, *constants)}
        if any(slot not in read and op is not CONSTANT for slot, op, *_ in found.boundary):
            return
        table = _core.sweep_record(
            len(found.slots),
            tuple([found.slots[x.id] for x in outputs]),
            tuple([found.slots[x.id] for x in stand_ins]),
            found.compared,
            [(*entry[:-2], entry[-1]) for entry in found.boundary],
            (),
            [],
            tuple([found.slots[x.id] for x in constants]),
            ALIAS,
        )
        self._tables = [(table, known), *self._tables[: _MOST_TABLES - 1]]


def steps_at(functions: Sequence[Any], structure: Any, results: int, stand_ins: Sequence[Tensor]) -> KnownSteps:
    """Return what is known of the steps that functions record, for arguments and results of some kind."""
    codes = [getattr(function, "__code__", None) or type(function) for function in functions]
    # Most states are single tensors, and the structure of these takes long to hash.
    key: list[Any] = ["steps", None if structure is trees.leaf() else structure, results, *map(id, codes)]
    for x in stand_ins:
        key.append(x.shape)
        key.append(x.dtype)
    known = default_engine().plans.known_of(tuple(key))
    found: KnownSteps | None = known.get("steps")
    if found is None:
        found = known.setdefault("steps", KnownSteps(codes))
    return found


def _nothing() -> None:
    pass
