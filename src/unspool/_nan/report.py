"""What is told of a NaN that was found: which operation made it, where, in which step, and from what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from unspool._graph import Node, describe, source_of
from unspool._ops.leaf import LEAF_OPS, PLACEHOLDER


class Operand(NamedTuple):
    """What an operation got.

    Attributes
    ----------
    description : str
        The operation that made it, its shape, dtype and name.
    values : str
        The range of its values.
    source : str
        The line that made it; empty if it entered the step of a loop from outside.
    """

    description: str
    values: str
    source: str

    def __str__(self) -> str:
        return f"{self.description}: {self.values}{', made at ' if self.source else ''}{self.source}"


@dataclass(frozen=True, slots=True)
class NaNReport:
    """Where a NaN came from; ``str(report)`` is a text about it.

    Attributes
    ----------
    op : str
        The operation that made it, or ``"tensor"`` or ``"constant"`` for data that was given.
    source : str
        The user's line, as ``file.py:12: the source line``. For an operation of a derivative it is the line of what was
        differentiated.
    steps : tuple of int
        The step of each loop that this line is in, the outer loop first, counted from 0. Empty if it is in none, or if
        that could not be told.
    count, size : int
        How many values are NaN, and how many there are.
    operands : tuple of Operand
        What the operation got; none of it came with a NaN.
    description : str
        The operation with shape, dtype and name.
    infinities : bool
        Whether infinities count as NaN.
    """

    op: str
    source: str
    steps: tuple[int, ...]
    count: int
    size: int
    operands: tuple[Operand, ...]
    description: str
    infinities: bool

    def __str__(self) -> str:
        what = "infinite or NaN value" if self.infinities else "NaN"
        verb = "made" if self.operands else "has"
        steps = " of a loop, in step ".join(map(str, reversed(self.steps)))
        return "\n".join(
            [
                f"{self.description} {verb} {self.count} {what}{'s' if self.count > 1 else ''} of {self.size} values, "
                f"at {self.source}{f', in step {steps} of a loop' if steps else ''}",
                *[f"  input {position}: {operand}" for position, operand in enumerate(self.operands)],
            ]
        )

    def inside(self, *steps: int) -> NaNReport:
        """Return the report with the steps of the loops around."""
        return replace(self, steps=(*steps, *self.steps)) if steps else self


class Bad:
    """Which values are looked for: NaN, and infinities if asked to."""

    __slots__ = ("_test", "infinities")

    def __init__(self, infinities: bool) -> None:
        self.infinities = infinities
        self._test = _not_finite if infinities else np.isnan

    def where(self, value: Any) -> list[Any]:
        """Return for each array of a value where it is bad."""
        return [self._test(part) for part in _parts(value) if np.asarray(part).dtype.kind in "fc"]

    def count(self, value: Any) -> int:
        """Return how many bad entries a value has."""
        return sum([int(np.count_nonzero(where)) for where in self.where(value)])

    def is_in(self, value: Any) -> bool:
        """Whether a value has a bad entry."""
        return any(bool(np.any(where)) for where in self.where(value))

    def among(self, values: Sequence[Any]) -> tuple[int, ...]:
        """Return the positions of the values that have a bad entry."""
        return tuple([i for i, value in enumerate(values) if self.is_in(value)])

    def cured(self, value: Any) -> Any:
        """Return a value with ones in place of bad entries."""
        parts = []
        for part in _parts(value):
            array = np.asarray(part)
            parts.append(np.where(self._test(array), array.dtype.type(1), array) if array.dtype.kind in "fc" else part)
        return tuple(parts) if isinstance(value, tuple) else parts[0]

    def report(
        self, node: Node, arguments: Sequence[Any], value: Any, inputs: Sequence[Node] | None = None
    ) -> NaNReport:
        """Return the report on a node that has bad entries; ``inputs`` are named instead of its own, if given."""
        operands = [
            Operand(_described(n), _statistics(a), _made_at(n))
            for n, a in zip(node.inputs if inputs is None else inputs, arguments, strict=True)
        ]
        size = sum([np.size(part) for part in _parts(value)])
        return NaNReport(
            node.op.name,
            source_of(node),
            (),
            self.count(value),
            size,
            () if node.op in LEAF_OPS else tuple(operands),
            describe(node),
            self.infinities,
        )


def _not_finite(array: Any) -> Any:
    return ~np.isfinite(array)


def _parts(value: Any) -> tuple[Any, ...]:
    """Return the arrays of a value: several for an op with several outputs."""
    return value if isinstance(value, tuple) else (value,)


def _described(node: Node) -> str:
    if node.op is PLACEHOLDER:
        return f"what entered the step, of shape {node.shape} and dtype {node.dtype}"
    return describe(node)


def _made_at(node: Node) -> str:
    return "" if node.op is PLACEHOLDER else source_of(node)


def _statistics(value: Any) -> str:
    """Return the range of an input's values, for the message."""
    if isinstance(value, tuple):
        return "; ".join(_statistics(part) for part in value)
    array = np.asarray(value)
    if not array.size:
        return "no values"
    kind = ""
    if array.dtype.kind == "c":
        array, kind = np.abs(array), " of the modulus"
    zeros = array.size - np.count_nonzero(array)
    return f"min {array.min():.6g}, max {array.max():.6g}{kind}, {zeros} of {array.size} zero"
