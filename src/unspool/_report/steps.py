"""The steps of a plain loop: which units belong to each, what it hands on, and what was read of it.

Nobody has counted while the loop ran. But a loop reads the same number again and again, made by the same line: each
reading ends a step. If no number was read, the step begins with what is made most often by one line. Set-up before the
first step is told from it by length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from unspool._dtypes import INEXACT
from unspool._fragments.call import was_evaluated
from unspool._fragments.fragment import Origin
from unspool._graph import Bundle, Node
from unspool._report.places import line_of, made_at
from unspool._report.units import Program, Unit

# Fewer repetitions are no loop.
FEWEST = 3


@dataclass
class Reading:
    """A number that a program asked for, or had a name for, each time it came to a line.

    Attributes
    ----------
    line, op : str
        What made it.
    origin : (code, offset)
    at : list of (int, int)
        The units that it is an output of, and which output.
    """

    line: str
    op: str
    origin: Origin
    at: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Steps:
    """How a program divides into steps.

    Attributes
    ----------
    mark : str
        What a step ends with, in words.
    units : list of list of int
        The units of each step.
    before, after : list of int
        Other units.
    """

    mark: str
    units: list[list[int]]
    before: list[int]
    after: list[int]

    def __len__(self) -> int:
        return len(self.units)

    def of_unit(self) -> dict[int, int]:
        """Return the step that each unit belongs to; what comes after the last one is a step of its own."""
        found = {unit: k for k, units in enumerate(self.units) for unit in units}
        found.update(dict.fromkeys(self.before, -1))
        found.update(dict.fromkeys(self.after, len(self.units)))
        return found


def readings_of(program: Program) -> list[Reading]:
    """Return the scalars that each line of a program read, those that were read most often first."""
    found: dict[Any, Reading] = {}
    for number, unit in enumerate(program.units):
        seen: Counter[Any] = Counter()
        for index, op, origin in _scalars(unit):
            line = line_of(*origin)
            seen[line, op] += 1
            key = (line, op, seen[line, op])
            found.setdefault(key, Reading(line, op, origin)).at.append((number, index))
    return sorted(found.values(), key=lambda reading: -len(reading.at))


def _scalars(unit: Unit) -> Iterator[tuple[int, str, Origin]]:
    """Yield the scalars that a unit was asked for: which output, by which op, and where that was recorded."""
    if unit.plan is None:
        node: Any = unit.source
        was_kept = not isinstance(node, Bundle) and (node.value is not None or was_evaluated(node))
        if was_kept and node.shape == () and node.dtype in INEXACT:
            yield 0, node.op.name, unit.origin
        return
    shapes, dtypes = unit.plan.output_shapes, unit.plan.output_dtypes
    for index, position in unit.results():
        if shapes[index] == () and dtypes[index] in INEXACT:
            yield index, unit.plan.fragment.body[position].op.name, unit.origins[position]


def steps_of(program: Program, readings: Sequence[Reading]) -> Steps:
    """Return the steps of a program; none if nothing repeats."""
    if readings and len(readings[0].at) >= FEWEST:
        main = readings[0]
        ends = sorted({unit for unit, _ in main.at})
        if len(ends) >= FEWEST:
            return _ending_at(ends, len(program.units), f"reading {made_at(main.op, main.line)}")
    tokens = [_token(program, number) for number in range(len(program.units))]
    counts = Counter(token for token in tokens if token is not None)
    repeated = Counter(count for count in counts.values() if count >= FEWEST)
    if not repeated:
        return Steps("", [], [], list(range(len(program.units))))
    # What most ops have in common is how often the loop ran; an op that stands twice in a line runs twice as often.
    count = max(repeated, key=lambda count: (repeated[count], count))
    anchor = next(token for token, found in counts.items() if found == count)
    begins = [number for number, token in enumerate(tokens) if token == anchor]
    return _beginning_at(begins, tokens, made_at(anchor[0], anchor[1]))


def _token(program: Program, number: int) -> tuple[str, str, Any] | None:
    """Return what tells apart units that are alike from others; ``None`` for those that do not mark steps."""
    unit = program.units[number]
    if unit.plan is not None:
        return unit.plan.fragment.body[-1].op.name, line_of(*unit.origin), unit.plan.fragment.id
    if not program.is_opened:
        return None
    node: Any = unit.source
    return node.op.name, line_of(*unit.origin), node.op.code


def _ending_at(ends: Sequence[int], count: int, mark: str) -> Steps:
    steps = [list(range(a + 1, b + 1)) for a, b in zip((-1, *ends), ends, strict=False)]
    usual = median_low([len(step) for step in steps[1:]])
    first = steps[0]
    before, steps[0] = first[:-usual], first[-usual:]
    return Steps(mark, steps, before, list(range(ends[-1] + 1, count)))


def _beginning_at(begins: Sequence[int], tokens: Sequence[Any], mark: str) -> Steps:
    ends = [*begins[1:], len(tokens)]
    steps = [list(range(a, b)) for a, b in zip(begins, ends, strict=True)]
    usual = median_low([len(step) for step in steps[:-1]])
    last = steps[-1]
    steps[-1], after = last[:usual], last[usual:]
    while steps[-1] and len(steps) > 1 and tokens[steps[-1][-1]] != tokens[steps[-2][len(steps[-1]) - 1]]:
        after.insert(0, steps[-1].pop())
    return Steps(mark, steps, list(range(begins[0])), after)


# --- what passes from step to step -----------------------------------------------------------------------------------


def states_of(program: Program, steps: Steps) -> list[list[Node]]:
    """Return what each step makes and a later one, or what comes after, reads: floating-point tensors."""
    step_of = steps.of_unit()
    targets = {target.id for target in program.targets}
    states: list[list[Node]] = [[] for _ in steps.units]
    for k, units in enumerate(steps.units):
        for number in units:
            unit = program.units[number]
            for index, node in unit.outputs.items():
                if isinstance(node, Bundle) or node.dtype not in INEXACT:
                    continue
                later = any(step_of[reader] > k for reader in program.readers.get(node.id, ()))
                if later or node.id in targets:
                    states[k].append(unit.tensor(index) if unit.plan is not None else node)
    return states


@dataclass
class Passing:
    """What a step reads from outside of it.

    Attributes
    ----------
    carried : list of Node
        Made by the step before, or by an earlier one.
    streamed : list of Node
        Another one in each step.
    fixed : list of Node
        The same in all steps.
    """

    carried: list[Node]
    streamed: list[Node]
    fixed: list[Node]


def passing_of(program: Program, steps: Steps, k: int) -> Passing:
    """Tell what a step reads; whether that changes is seen from the next step."""
    step_of = steps.of_unit()
    mine = _reads(program, steps.units[k])
    neighbour = _reads(program, steps.units[k + 1 if k + 1 < len(steps) else k - 1]) if len(steps) > 1 else {}
    found = Passing([], [], [])
    for key, node in mine.items():
        made = program.made_by.get(key)
        step = -1 if made is None else step_of[made[0]]
        if step == k:
            continue
        if step >= 0:
            found.carried.append(node)
        elif key in neighbour:
            found.fixed.append(node)
        elif k == 0 and made is not None:
            found.carried.append(node)
        else:
            found.streamed.append(node)
    return found


def _reads(program: Program, units: Sequence[int]) -> dict[int, Node]:
    return {node.id: node for number in units for node in program.units[number].inputs}
