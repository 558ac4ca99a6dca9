"""What the inputs of the runs of a loop are to it: carried, streamed, or the same in all steps.

A value that is made and used in one step, with a read in between, is handed from one run to the next as well. It is
told from what is carried by the order of the program: it is used after it was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._engine.step_number import place_of
from unspool._fragments.fragment import Fragment
from unspool._graph import Node
from unspool._inspect.explanation import Value
from unspool._inspect.places import Places
from unspool._inspect.units import Unit, Units
from unspool._ops.leaf import CONSTANT, PLACEHOLDER, TENSOR
from unspool._ops.op import PART

# Nodes behind a value that are looked at to find whether it is a constant.
_MOST_LOOKED_AT = 32


class Roles:
    """What a loop reads, by role.

    Attributes
    ----------
    carried, across, streams, invariants : dict
        Values, by what tells them apart.
    makers, across_makers : dict
        The places that make what is carried, and what is handed across a read.
    """

    def __init__(self, units: Units, members: Sequence[int], places: Places) -> None:
        self.carried: dict[Any, Value] = {}
        self.across: dict[Any, Value] = {}
        self.streams: dict[Any, Value] = {}
        self.invariants: dict[Any, Value] = {}
        self.makers: dict[tuple[Any, Any], None] = {}
        self.across_makers: dict[tuple[Any, Any], None] = {}
        self._units = units
        self._members = members
        self._places = places
        self._latest = _LatestInside(units, {position: number for number, position in enumerate(members)})

    def add(self, numbers: Sequence[int]) -> None:
        """Sort the inputs of the runs of one body, given by their numbers in the loop."""
        runs = [self._units.order[self._members[number]] for number in numbers]
        self._add_inner(runs[0])
        for position in range(len(runs[0].inputs)):
            nodes = [run.inputs[position] for run in runs]
            sources = [self._latest.of(node) for node in nodes]
            lags = {number - source for number, source in zip(numbers, sources, strict=True) if source is not None}
            if lags:
                self._add_carried(
                    [n for n, source in zip(nodes, sources, strict=True) if source is not None], runs[0], position, lags
                )
            elif len({node.id for node in nodes}) > 1:
                self._add_stream(nodes, runs[0], position)
            elif len(runs) > 1 or len(self._members) == 1:
                self._add_invariant(nodes[0], runs[0], position)

    def _add_inner(self, run: Unit) -> None:
        """Note what is carried inside of a run: it goes from one step to the next if the read is in the middle."""
        fragment: Any = run.fragment
        first = len(run.inputs)
        places = [place_of(*origin) for origin in run.origins[: len(fragment.body)]]
        ops = zip(places, fragment.body, strict=False)
        often = Counter([(place, instruction.op) for place, instruction in ops])
        avals: dict[int, Any] | None = None
        for slot, instruction in enumerate(fragment.body, first):
            for operand in instruction.operands:
                if operand < first or not _goes_back(places[operand - first], places[slot - first]):
                    continue
                if often[places[operand - first], fragment.body[operand - first].op] > 1:
                    continue  # a function that is called several times in a step goes back as well
                avals = run.avals() if avals is None else avals
                shape, dtype = avals.get(operand, ((), ""))
                name = self._places.name(*run.place_of(operand))
                self.carried.setdefault(name, Value(name, tuple(shape), str(dtype)))

    def _add_carried(self, nodes: Sequence[Node], run: Unit, position: int, lags: set[int]) -> None:
        """Note what is read of earlier runs: one node for each way in which it is made."""
        ways: dict[Any, tuple[Node, Unit, int]] = {}
        for node in nodes:
            number, slot = self._units.maker[node.id]
            unit = self._units.order[number]
            ways.setdefault((id(unit.fragment), slot) if unit.is_step else unit.origins, (node, unit, slot))
        note = f"from {next(iter(lags))} runs before" if len(lags) == 1 and lags != {1} else ""
        for node, unit, slot in ways.values():
            name = self._name(node)
            value = Value(name, tuple(node.shape), str(node.dtype), note)
            maker = place_of(*unit.place_of(slot)), _op_of(unit, slot)
            if lags == {1} and _is_cut(run, position, unit, slot):
                self.across.setdefault(name, value)
                self.across_makers[maker] = None
                continue
            self.makers[maker] = None
            before = self.carried.get(name)
            if before is None or (before.note and not note):
                self.carried[name] = value

    def _add_invariant(self, node: Node, run: Unit, position: int) -> None:
        shape, dtype = tuple(node.shape), str(node.dtype)
        if node.op is not CONSTANT:
            name = "a constant" if _is_constant(node) else self._name(node)
            self.invariants.setdefault(node.id, Value(name, shape, dtype))
        elif not shape:
            self.invariants.setdefault(node.id, Value(_number(node.value), shape, dtype))
        else:
            self.invariants.setdefault(node.id, Value(f"a constant in `{self._reader(run, position)}`", shape, dtype))

    def _add_stream(self, nodes: Sequence[Node], run: Unit, position: int) -> None:
        node = nodes[0]
        shapes = {tuple(each.shape) for each in nodes}
        shape = tuple(node.shape) if len(shapes) == 1 else _spread(shapes)
        if all(each.op is CONSTANT for each in nodes):
            name = f"{'arrays' if shape else 'numbers'} in `{self._reader(run, position)}`"
            note = "" if shape else ", ".join(_number(each.value) for each in nodes[:3]) + ", …"
        else:
            name = self._name(node)
            note = "made outside of the loop" if node.inputs else "a new leaf in each step"
        self.streams.setdefault(name, Value(name, shape, str(node.dtype), note))

    def _name(self, node: Node) -> str:
        unit, slot = self._units.maker[node.id]
        return getattr(node, "_name", None) or self._places.name(*self._units.order[unit].place_of(slot))

    def _reader(self, run: Unit, position: int) -> str:
        """Return what the first instruction that reads an input makes."""
        fragment: Any = run.fragment
        readers = _readers(fragment, position)
        return self._places.text(*run.place_of(readers[0])) if readers else "what it gives"


def _is_constant(node: Node) -> bool:
    """Whether a node is made of constants alone, as what a derivative starts from."""
    stack = [node]
    for _ in range(_MOST_LOOKED_AT):
        if not stack:
            return True
        current = stack.pop()
        if current.op in (TENSOR, PLACEHOLDER):
            return False
        stack += current.inputs
    return False


def _goes_back(made: Any, used: Any) -> bool:
    """Whether a value is used on an earlier line than the one that made it, in the same function: in the next step."""
    (code, span), (other, where) = made, used
    if code is not other or span is None or where is None or span[0] is None or where[0] is None:
        return False
    return bool(where[0] < span[0])


def _op_of(unit: Unit, slot: int) -> Any:
    """Return the op that made what a slot holds; of a part, that of the whole."""
    if unit.fragment is None:
        node = unit.source
        return node.inputs[0].op if node.op is PART else node.op
    first = len(unit.inputs)
    instruction = unit.fragment.body[slot - first] if slot >= first else None
    if instruction is not None and instruction.op is PART and instruction.operands[0] >= first:
        instruction = unit.fragment.body[instruction.operands[0] - first]
    return None if instruction is None else instruction.op


def _readers(fragment: Fragment, position: int) -> list[int]:
    """Return the slots of the instructions that read an input."""
    first = len(fragment.dtypes)
    return [first + i for i, instruction in enumerate(fragment.body) if position in instruction.operands]


def _is_cut(run: Unit, position: int, maker: Unit, slot: int) -> bool:
    """Whether an input was made earlier in the same step of the program, with a read in between.

    All that reads it stands on a later line, in the same function, and the run that made it did not get there.
    """
    fragment: Any = run.fragment
    code, span = place_of(*maker.place_of(slot))
    readers = [place_of(*run.place_of(reader)) for reader in _readers(fragment, position)]
    if not readers or span is None or any(other is not code or where is None for other, where in readers):
        return False
    if any(span[1] is None or where[0] is None or where[0] <= span[1] for _, where in readers):
        return False
    rest = maker.origins[slot - len(maker.inputs) + 1 :] if maker.fragment is not None else ()
    return not any(place_of(*origin) in readers for origin in rest)


class _LatestInside:
    """Tells which run of a loop a node is made by, directly or by nodes in between that are part of no step."""

    def __init__(self, units: Units, order: dict[int, int]) -> None:
        self._units = units
        self._order = order
        self._known: dict[int, int | None] = {}

    def of(self, node: Node) -> int | None:
        """Return the number of the run; None for what comes from outside of the loop."""
        first = self._units.maker[node.id][0]
        stack = [first]
        while stack:
            position = stack[-1]
            unit = self._units.order[position]
            if position in self._known:
                stack.pop()
            elif unit.is_step:
                self._known[position] = self._order.get(position)
            else:
                before = [j for each in unit.inputs if (j := self._units.maker[each.id][0]) < position]
                unknown = [j for j in before if j not in self._known]
                if unknown:
                    stack += unknown
                    continue
                found = [number for j in before if (number := self._known[j]) is not None]
                self._known[position] = max(found, default=None)
        return self._known[first]


def _spread(shapes: set[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return shapes as one: sizes that differ as a range."""
    if len({len(shape) for shape in shapes}) > 1:
        return ("…",)
    sizes = [sorted(set(column)) for column in zip(*shapes, strict=True)]
    return tuple(column[0] if len(column) == 1 else f"{column[0]}…{column[-1]}" for column in sizes)


def _number(value: Any) -> str:
    number = np.asarray(value).item()
    return f"{number:.6g}" if isinstance(number, float) else str(number)
