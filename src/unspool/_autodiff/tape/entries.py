"""Cotangents as users hand them to a tape and as a tape hands them back: seeds, arrays of cotangents, zeros.

Everything that comes in is checked against the node it is for, and a misfit raises an error that names the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._autodiff.sweeps.walk import is_differentiable
from unspool._autodiff.tape.arithmetic import Arithmetic
from unspool._autodiff.tape.interpreter import Cotangent, Slots
from unspool._dtypes import INEXACT
from unspool._graph import Bundle, Node, source_of
from unspool.errors import (
    AccumulatorLengthError,
    AccumulatorShapeError,
    DTypeError,
    SeedShapeError,
    UnspoolError,
)


class Entries:
    """Makes cotangents for the nodes of one tape, from their shapes and in its arithmetic."""

    def __init__(self, nodes: Sequence[Node], shapes: Sequence[tuple[Any, ...]], arithmetic: Arithmetic) -> None:
        self._nodes = nodes
        self._shapes = shapes
        self._arithmetic = arithmetic

    def seed(self, position: int, given: Any) -> Cotangent | Slots:
        """Return the cotangent to start from at a node."""
        entry = self._entry(position, given, "the seed", SeedShapeError)
        if not is_differentiable(self._nodes[position]):
            raise DTypeError(f"{self.label(position)} holds no floating-point numbers, so it carries no cotangents")
        return entry

    def accumulator(self, entries: Sequence[Any], total: bool) -> list[Any]:
        """Return a cotangent for each node; ``None`` means not reached, unless the array has to be total."""
        if len(entries) != len(self._nodes):
            raise AccumulatorLengthError(
                f"expected a cotangent for each of the {len(self._nodes)} nodes of the tape, got {len(entries)}"
            )
        made: list[Any] = []
        for position, entry in enumerate(entries):
            if entry is None and total:
                raise AccumulatorShapeError(
                    f"entry {position} is None, but every node needs a cotangent of its shape here: "
                    f"{self.label(position)} has shape {self._shapes[position]}"
                )
            made.append(None if entry is None else self._entry(position, entry, "the entry", AccumulatorShapeError))
        return made

    def filled(self, position: int, ct: Any) -> Any:
        """Return a cotangent as users see it, with zeros for what was not reached."""
        node, shape = self._nodes[position], self._shapes[position]
        if type(node) is not Bundle:
            return self._arithmetic.zeros(shape, node.dtype) if ct is None else ct
        slots = ct or (None,) * len(shape)
        return tuple(
            self._arithmetic.zeros(size, dtype) if slot is None else slot
            for slot, size, dtype in zip(slots, shape, node.dtype, strict=True)  # type: ignore[call-overload]
        )

    def label(self, position: int) -> str:
        """Return how messages call a node."""
        node = self._nodes[position]
        return f"node {position} (op {node.op.name!r}, made at {source_of(node)})"

    def _entry(self, position: int, given: Any, what: str, error: type[UnspoolError]) -> Cotangent | Slots:
        """Return a cotangent that a user gives for a node, or raise if it does not fit."""
        node, shape = self._nodes[position], self._shapes[position]
        if type(node) is not Bundle:
            return self._numbers(position, given, shape, node.dtype, what, error)
        if not isinstance(given, (tuple, list)) or len(given) != len(shape):
            raise error(f"{what} for {self.label(position)} has to be a tuple of shapes {shape}, got {given!r}")
        return tuple(
            None if part is None else self._numbers(position, part, size, dtype, what, error)
            for part, size, dtype in zip(given, shape, node.dtype, strict=True)  # type: ignore[call-overload]
        )

    def _numbers(
        self, position: int, given: Any, shape: tuple[int, ...], dtype: Any, what: str, error: type[UnspoolError]
    ) -> Cotangent:
        try:
            array = np.array(given)
        except ValueError as problem:
            raise error(f"{what} for {self.label(position)} has to have shape {shape}: {problem}") from None
        if array.shape != shape:
            raise error(f"{what} for {self.label(position)} has to have shape {shape}, got {array.shape}")
        if dtype not in INEXACT:
            return Cotangent(self._arithmetic.zeros(shape, dtype))
        if array.dtype.kind == "c" and dtype.kind != "c":
            raise DTypeError(f"{what} for {self.label(position)} is complex, and its dtype is {dtype}")
        try:
            return Cotangent(self._arithmetic.cotangent(dtype, array))
        except (TypeError, ValueError, OverflowError) as problem:
            raise DTypeError(f"{what} for {self.label(position)} does not fit {dtype}: {problem}") from problem


def numbers(ct: Any) -> Any:
    """Return a cotangent as users see it: an array, a tuple of them, or ``None``."""
    if isinstance(ct, tuple):
        return tuple(numbers(slot) for slot in ct)
    return None if ct is None else ct.value
