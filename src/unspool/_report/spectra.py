"""Spectra at truncations: the values that a decomposition found, where it was cut, and how far from a tie.

A derivative divides by gaps. That of a truncated space needs the gap at the cut, that of single vectors all gaps among
those that are kept. The *margin* is the least gap that matters beside the tolerance below which values count as equal:
at 1 the derivative begins to be refused unless the loss does not depend on the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._ops.linalg.eigh import EIGH_OP
from unspool._ops.linalg.spaces import SPACE
from unspool._ops.linalg.svd import SVD_OP
from unspool._report.places import Lines, Origin

# Truncations that are shown, and values of each.
_MOST, _LONGEST = 200, 96

# Arrays of values whose slices are looked for, at most.
_RECENT = 64


class Spectra:
    """Looks at ops while they run, and notes each truncation."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._stride = 1
        self._count = 0
        self.found: list[dict[str, Any]] = []
        self.whole = 0
        # Values by the identity of their array, which is held so that it stays the array that it is.
        self._recent: dict[int, tuple[Any, Any, Any, Any, int]] = {}

    def note(self, op: Any, params: Any, origin: Origin, inputs: Sequence[Any], value: Any, step: int) -> None:
        """Look at an op that ran."""
        if op is SPACE:
            self._add(op.name, origin, inputs[2], int(params["rank"]), float(params["degeneracy"]), step, False)
        elif op is SVD_OP or op is EIGH_OP:
            values = value[1] if op is SVD_OP else value[0]
            self.whole += 1
            self._recent[id(values)] = values, op.name, origin, float(params["degeneracy"]), step
            if len(self._recent) > _RECENT:
                self._recent.pop(next(iter(self._recent)))
        elif inputs and self._recent and id(inputs[0]) in self._recent and np.ndim(inputs[0]) >= 1:
            values, name, made, tolerance, at = self._recent[id(inputs[0])]
            rank = np.shape(value)[-1] if np.ndim(value) == np.ndim(values) else values.shape[-1]
            if rank < values.shape[-1]:
                del self._recent[id(inputs[0])]
                self.whole -= 1
                self._add(name, made, values, rank, tolerance, at, True)

    def _add(self, op: str, origin: Origin, values: Any, rank: int, tolerance: float, step: int, vectors: bool) -> None:
        if self._count % self._stride == 0:
            for one in np.reshape(values, (-1, np.shape(values)[-1]))[:1]:
                found = describe_cut(one, rank, tolerance, vectors)
                self.found.append({"line": self._lines.name(origin), "op": op, "step": step} | found)
        self._count += 1
        if len(self.found) > _MOST:
            self._stride *= 2
            self.found = self.found[::2]

    def data(self) -> dict[str, Any]:
        """Return what was found as plain data."""
        return {"truncations": self._count, "without_cut": self.whole, "every": self._stride, "shown": self.found}


def describe_cut(values: Any, rank: int, tolerance: float, vectors: bool) -> dict[str, Any]:
    """Return a spectrum as plain data: the largest values, the gaps relative to the largest, and the margin.

    Examples
    --------
    >>> cut = describe_cut(np.array([4.0, 3.0, 1.0, 0.5]), 2, 1e-8, vectors=False)
    >>> cut["rank"], cut["gap"], round(cut["margin"])
    (2, 0.5, 50000000)
    """
    sizes = np.sort(np.abs(np.asarray(values, float)))[::-1]
    largest = float(sizes[0]) if sizes.size and sizes[0] > 0 else 1.0
    rank = min(rank, len(sizes))
    gap = float(sizes[rank - 1] - sizes[rank]) / largest if 0 < rank < len(sizes) else None
    among = float(np.min(sizes[: rank - 1] - sizes[1:rank])) / largest if rank > 1 else None
    relevant = [g for g in (gap, among if vectors else None) if g is not None]
    lost = float(np.sum(sizes[rank:] ** 2) / np.sum(sizes**2)) if np.any(sizes) else 0.0
    return {
        "values": [float(s) for s in sizes[:_LONGEST]],
        "count": len(sizes),
        "rank": rank,
        "gap": gap,
        "gap_among_kept": among,
        "tolerance": tolerance,
        "margin": min(relevant) / tolerance if relevant and tolerance > 0 else None,
        "discarded_weight": lost,
    }
