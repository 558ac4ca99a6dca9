"""Memory over time, as blocks: what each step leaves behind, from the step that makes it to the one that needs it last.

Time is counted in steps: forth through the loop, then back through it. What is kept of step k lives from k on the way
forth to k in the backward pass. What was evicted lives while the next step reads it, and again in the backward pass,
from when it is run again. So blocks lie on each other like a stack: the last to come is the first to go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from unspool._core import Piece
from unspool._engine.costs import nbytes
from unspool._engine.default import default_engine
from unspool._fragments.call import Call
from unspool._graph import Node
from unspool._report.iterated import Iterated
from unspool._report.places import Lines, Origin
from unspool._report.steps import Steps
from unspool._report.units import Program, Unit

KEPT, RECOMPUTED, DISK = "kept", "recomputed", "disk"

# Groups of steps that are drawn, and lines that are named of each.
_MOST, _NAMED = 96, 6

# The part of what steps leave behind from which on a state is kept of them.
_STATE = 0.1


class Value(NamedTuple):
    """What a step leaves behind: where it was made, by which op, how large it is, and what became of it."""

    origin: Origin
    op: str
    nbytes: int
    fate: str


def values_of(unit: Unit) -> list[Value]:
    """Return the values of a unit that later steps or derivatives read, each once."""
    if unit.plan is None:
        node: Any = unit.source
        if type(node.dtype) is tuple:
            return []
        return [Value(unit.origin, node.op.name, nbytes(node.shape, node.dtype), _fate(node, node.value is not None))]
    plan, first = unit.plan, len(unit.inputs)
    fragment = plan.fragment
    found: dict[int, Value] = {}
    residual = set(fragment.outputs[fragment.results :])
    for index, slot in enumerate(fragment.outputs):
        position = slot - first
        node = unit.outputs.get(index)
        if position < 0 or (node is None and slot not in residual):
            continue
        is_held = _is_held(unit, index, slot) or (node is not None and node.value is not None)
        if slot in found and not is_held:
            continue
        size = nbytes(plan.output_shapes[index], plan.output_dtypes[index])
        found[slot] = Value(unit.origins[position], fragment.body[position].op.name, size, _fate(node, is_held))
    return list(found.values())


def _is_held(unit: Unit, index: int, slot: int) -> bool:
    source = unit.source
    if isinstance(source, Call):
        place = _slab_place(unit, slot)
        return bool(source.value) and place is not None and source.value[place] is not None
    if isinstance(source, Piece):
        # What a factorisation gives beside what is used has no node.
        node = source.outputs[index]() if index < len(source.outputs) else None
        if node is not None and node.value is not None:
            return True
        at = index - source.site.results
        return bool(source.residuals) and 0 <= at < len(source.residuals) and source.residuals[at] is not None
    return False


def _slab_place(unit: Unit, slot: int) -> int | None:
    fragment = unit.plan.fragment  # type: ignore[union-attr]
    return next((place for index, place in fragment.slab.items() if fragment.outputs[index] == slot), None)


def _fate(node: Node | None, is_held: bool) -> str:
    if is_held:
        return KEPT
    guard = default_engine().ledger.guard
    return DISK if node is not None and guard is not None and guard.has_file(node) else RECOMPUTED


# --- blocks ----------------------------------------------------------------------------------------------------------


# Steps from one to before another, and what they leave behind.
Group = tuple[int, int, list[Value]]


def groups_of(program: Program, steps: Steps) -> list[Group]:
    """Return what the steps of a plain loop leave behind; of many steps, several at a time."""
    found = []
    for first, last in _ranges(len(steps)):
        units = [program.units[number] for k in range(first, last) for number in steps.units[k]]
        found.append((first, last, [value for unit in units for value in values_of(unit)]))
    return found


def groups_of_iterated(found: Iterated) -> list[Group]:
    """Return what the steps of a loop that is one node leave behind: its record."""
    fate = KEPT if found.keeps_all else RECOMPUTED
    record = found.record()
    return [
        (a, b, [Value(found.origin, "record of a step", (b - a) * nbytes(s, d), fate) for s, d in record])
        for a, b in _ranges(found.loop.steps)
    ]


def _ranges(count: int) -> list[tuple[int, int]]:
    size = max(1, -(-count // _MOST))
    return [(first, min(count, first + size)) for first in range(0, count, size)]


def blocks_of(
    groups: Sequence[Group], count: int, room: int | None, lines: Lines, budget: int | None = None
) -> list[dict[str, Any]]:
    """Place blocks on each other: kept ones in the order of the steps, others on top of those that are held then.

    ``room`` is for what is run again at once in the backward pass, in bytes; if there is none, that is what lies
    between kept states. It is no more than a budget has left beside what is kept at that time.
    """
    sizes = [
        {fate: sum(v.nbytes for v in values if v.fate == fate) for fate in (KEPT, DISK, RECOMPUTED)}
        for _, _, values in groups
    ]
    # How high the kept ones are before each group, and after all of them.
    heights = list(accumulate((size[KEPT] for size in sizes), initial=0))
    found = []
    for i, (first, last, values) in enumerate(groups):
        if sizes[i][KEPT]:
            named = _named(values, KEPT, lines)
            found.append(_block(first, last, KEPT, first, 2 * count - first, heights[i], sizes[i][KEPT], named))
    for start, stop in _stretches(sizes, room, heights, budget):
        # In the backward pass a stretch is run again, on top of all that is kept by then, and goes step by step.
        begin, base = 2 * count - groups[stop - 1][1], heights[stop]
        for i in range(start, stop):
            first, last, values = groups[i]
            there = heights[i + 1]
            for fate in (DISK, RECOMPUTED):
                size = sizes[i][fate]
                if size:
                    named = _named(values, fate, lines)
                    found.append(_block(first, last, fate, first, last, there, size, named))
                    found.append(_block(first, last, fate, begin, 2 * count - first, base, size, named))
                    there, base = there + size, base + size
    return found


def _stretches(
    sizes: Sequence[dict[str, int]], room: int | None, heights: Sequence[int], budget: int | None
) -> Iterator[tuple[int, int]]:
    """Yield the groups that are run again together, as ranges, from the end: what there is room for, at least one."""
    again = [size[DISK] + size[RECOMPUTED] for size in sizes]
    stop = len(sizes)
    while stop:
        start = stop - 1
        if room is None:
            while start and not _has_state(sizes[start]):
                start -= 1
        else:
            most = room if budget is None else min(room, budget - heights[stop])
            while start and sum(again[start - 1 : stop]) <= most:
                start -= 1
        yield start, stop
        stop = start


def _has_state(size: dict[str, int]) -> bool:
    """Whether more is kept of steps than the small values that are never evicted."""
    return size[KEPT] >= _STATE * sum(size.values())


def _block(
    first: int, last: int, fate: str, begin: int, end: int, base: int, size: int, named: list[list[Any]]
) -> dict[str, Any]:
    return {
        "steps": [first, last - 1],
        "fate": fate,
        "begin": begin,
        "end": max(end, begin + 1),
        "base": base,
        "bytes": size,
        "lines": named,
    }


def _named(values: Iterable[Value], fate: str, lines: Lines) -> list[list[Any]]:
    """Return the lines that the largest part of some values is from: line, op and bytes."""
    total: dict[tuple[str, str], int] = {}
    for value in values:
        if value.fate == fate:
            key = (lines.name(value.origin), value.op)
            total[key] = total.get(key, 0) + value.nbytes
    largest = sorted(total.items(), key=lambda item: -item[1])[:_NAMED]
    return [[line, op, size] for (line, op), size in largest]
