"""What is told of a NaN that was found: which operation made it, where, in which step, and from what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from unspool._graph import Node, describe, source_of
from unspool._ops.leaf import LEAF_OPS, PLACEHOLDER


class Operand(NamedTuple):
    """What an operation got, with the range of its values.

    Attributes
    ----------
    description : str
        The operation that made it, its shape, dtype and name.
    source : str
        The line that made it; empty if it entered the step of a loop from outside.
    low, high : float
        The least and the largest of its finite values; of the moduli if they are complex. ``nan`` if there are none.
    zeros, nonfinite, size : int
        How many values are zero, how many are infinite or NaN, and how many there are.
    modulus : bool
        Whether ``low`` and ``high`` are moduli.
    """

    description: str
    source: str
    low: float
    high: float
    zeros: int
    nonfinite: int
    size: int
    modulus: bool = False

    def __str__(self) -> str:
        return f"{self.description}: {self.values}{', made at ' if self.source else ''}{self.source}"

    @property
    def values(self) -> str:
        """The range of its values, as text."""
        if not self.size:
            return "no values"
        parts = [f"{self.zeros} of {self.size} zero"]
        if self.nonfinite < self.size:
            parts.insert(0, f"min {self.low:.6g}, max {self.high:.6g}{' of the modulus' if self.modulus else ''}")
        if self.nonfinite:
            parts.append(f"{self.nonfinite} not finite")
        return ", ".join(parts)


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
            Operand(_described(n), _made_at(n), *_range_of(a))
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


def _range_of(value: Any) -> tuple[float, float, int, int, int, bool]:
    """Return the range of the finite values of an input, and how many are zero, not finite, and there at all."""
    arrays = [np.asarray(part).ravel() for part in _parts(value)]
    modulus = any(array.dtype.kind == "c" for array in arrays)
    numbers = np.concatenate([np.abs(array) if modulus else array for array in arrays])
    is_finite = np.isfinite(numbers)
    finite = numbers[is_finite]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)
    zeros, nonfinite = numbers.size - np.count_nonzero(numbers), numbers.size - np.count_nonzero(is_finite)
    return low, high, int(zeros), int(nonfinite), numbers.size, modulus
