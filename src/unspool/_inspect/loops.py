"""The loops among the units of a graph: runs of programs that were made by the same lines and read each other.

Programs whose lines are mostly the same, or that take turns, are bodies of one loop. Runs of them that read each other
are one loop; those that do not are others. What a run reads of earlier ones is carried, what is the same in all is
invariant, the rest comes from outside in each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from unspool._core import Piece
from unspool._engine.folding.matching import Site
from unspool._engine.plan import Plan
from unspool._engine.step_number import place_of
from unspool._fragments.call import LOST, Call
from unspool._graph import Node
from unspool._inspect.explanation import Body, FoundLoop, Value
from unspool._inspect.places import Places
from unspool._inspect.roles import Roles
from unspool._inspect.units import Unit, Units

# A place in a program that makes values: the source text and the op.
Maker = tuple[Any, Any]


class Placed(NamedTuple):
    """A loop, where in the order of units it begins, the positions of its units, and what runs them."""

    first: int
    loop: FoundLoop
    members: Sequence[int]
    runners: Sequence[Plan | Site]


class _Sets:
    """Sets of things that are joined one after the other."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}

    def find(self, item: Hashable) -> Hashable:
        """Return what stands for the set of an item."""
        parent = self._parent.setdefault(item, item)
        while parent != item:
            above = self._parent[parent]
            self._parent[item] = above
            item, parent = parent, above
        return item

    def join(self, one: Hashable, other: Hashable) -> None:
        """Make one set of those of two items."""
        self._parent[self.find(other)] = self.find(one)


def find_loops(units: Units, waiting: Container[int], places: Places) -> list[Placed]:
    """Return the loops of plain programs and of calls of fragments.

    ``waiting`` are the identities of pieces that wait to be folded.
    """
    steps = [i for i, unit in enumerate(units.order) if unit.is_step]
    groups = _connected(units, steps, _families(units, steps))
    tails = _loose_makers(units)
    found = []
    for members in sorted(groups, key=lambda group: group[0]):
        work = _Members(units, members, places)
        if work.is_loop:
            heads = _loose_makers(units, members[0])
            found.append(Placed(members[0], work.describe(waiting, heads, tails), members, work.runners()))
    return found


def _families(units: Units, steps: Sequence[int]) -> _Sets:
    """Join programs that are bodies of one loop, by the identities of their fragments."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    count: Counter[int] = Counter()
    lines: dict[int, frozenset[Any]] = {}
    for i in steps:
        unit = units.order[i]
        key = id(unit.fragment)
        if key not in first:
            first[key] = i
            lines[key] = frozenset(place_of(*origin) for origin in unit.origins)
        last[key] = i
        count[key] += 1
    families = _Sets()
    keys = sorted(first, key=first.__getitem__)
    for position, one in enumerate(keys):
        for other in keys[position + 1 :]:
            turns = count[one] > 1 and count[other] > 1 and first[other] < last[one] and first[one] < last[other]
            shared = len(lines[one] & lines[other])
            if turns or 2 * shared >= max(1, min(len(lines[one]), len(lines[other]))):
                families.join(one, other)
    return families


def _connected(units: Units, steps: Sequence[int], families: _Sets) -> list[list[int]]:
    """Return the runs of each family that read each other; those that read none are one group of their own."""
    latest = _latest_steps(units)
    chains = _Sets()
    family = {i: families.find(id(units.order[i].fragment)) for i in steps}
    joined: set[int] = set()
    for i in steps:
        for node in units.order[i].inputs:
            before = latest[units.maker[node.id][0]]
            if before is not None and family[before] == family[i]:
                chains.join(before, i)
                joined |= {before, i}
    groups: dict[Hashable, list[int]] = {}
    for i in steps:
        key = ("chain", chains.find(i)) if i in joined else ("alone", family[i])
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _latest_steps(units: Units) -> list[int | None]:
    """Return for each unit the step that it is, or the latest one that a node on its own is made from."""
    latest: list[int | None] = []
    for i, unit in enumerate(units.order):
        if unit.is_step:
            latest.append(i)
            continue
        before = [units.maker[node.id][0] for node in unit.inputs]
        found = [step for j in before if j < i and (step := latest[j]) is not None]
        latest.append(max(found, default=None))
    return latest


def _loose_makers(units: Units, before: int | None = None) -> Counter[Maker]:
    """Count the places that made nodes which are part of no call and no piece.

    Those that were not evaluated; or, ``before`` a position, those that were: the first steps of a loop.
    """
    loose = [u for u in units.order[:before] if not u.is_step and u.inputs]
    loose = [u for u in loose if (u.source.value is None) is (before is None)]
    return Counter((place_of(*unit.origins[0]), unit.source.op) for unit in loose)


# --- one loop --------------------------------------------------------------------------------------------------------


class _Members:
    """The runs of bodies that are one loop."""

    def __init__(self, units: Units, members: Sequence[int], places: Places) -> None:
        self._units = [units.order[position] for position in members]
        self._places = places
        self._bodies: dict[int, list[int]] = {}
        for number, unit in enumerate(self._units):
            self._bodies.setdefault(id(unit.fragment), []).append(number)
        self._often = max(self._bodies, key=lambda key: len(self._bodies[key]))
        self._made = {key: _makers_of(self._units[numbers[0]]) for key, numbers in self._bodies.items()}
        self._roles = Roles(units, members, places)
        for numbers in self._bodies.values():
            self._roles.add(numbers)
        self.is_loop = len(members) > 2 or self._steps() > 2

    def _steps(self, tails: Counter[Maker] | None = None) -> int:
        """Return how often what is carried was made; with what was recorded after the last read, if that is given."""
        tails = tails or Counter()
        makers = self._roles.makers or self._roles.across_makers
        often = [key for key, numbers in self._bodies.items() if len(numbers) > 2] or [self._often]
        common = [maker for maker in makers if all(self._made[key][maker] for key in often)]
        if common:
            main = self._made[self._often]
            made = {m: sum(len(n) * self._made[key][m] for key, n in self._bodies.items()) for m in common}
            # A list of arrays is carried by one place that runs several times in a step.
            repeated = min(main[m] for m in common)
            return min(repeated * (made[m] + tails[m]) // main[m] for m in common)
        if not makers:
            return len(self._units)
        each = {key: min((n for m in makers if (n := made[m])), default=0) for key, made in self._made.items()}
        pending = max(min((tails[m] // made[m] for m in makers if made[m]), default=0) for made in self._made.values())
        return sum(len(numbers) * each[key] for key, numbers in self._bodies.items()) + pending

    def runners(self) -> list[Plan | Site]:
        """Return what runs the bodies."""
        found = {
            id(runner): runner
            for unit in self._units
            for runner in [unit.source.plan if type(unit.source) is Call else unit.source.site]
        }
        return list(found.values())

    def describe(self, waiting: Container[int], heads: Counter[Maker], tails: Counter[Maker]) -> FoundLoop:
        """Return what is known of the loop, given what was made before its first run and after its last."""
        calls = [unit.source for unit in self._units if type(unit.source) is Call]
        pieces = [unit.source for unit in self._units if type(unit.source) is Piece]
        waits = sum(id(piece) in waiting for piece in pieces)
        steps = self._steps(heads + tails)
        is_traced = bool(calls) and not pieces and not any(call.depth for call in calls)
        held = _Holdings(self._units)
        roles = self._roles
        return FoundLoop(
            kind="fragment" if is_traced else "plain",
            steps=steps,
            bodies=self._describe_bodies(),
            folded=len(calls),
            waiting=waits,
            unfolded=len(pieces) - waits,
            pending=steps - self._steps(heads),
            order=self._describe_order(),
            carried=_shown(roles.carried),
            streams=_shown(roles.streams),
            invariants=_shown(roles.invariants),
            across=tuple(value for name, value in roles.across.items() if name not in roles.carried),
            held=held.values,
            held_bytes=held.nbytes,
            residual_bytes=held.residuals,
            evicted=held.evicted,
        )

    def _describe_bodies(self) -> tuple[Body, ...]:
        bodies = []
        for numbers in self._bodies.values():
            runs = [self._units[number] for number in numbers]
            fragment: Any = runs[0].fragment
            sizes = {tuple([tuple(node.shape) for node in run.inputs]) for run in runs}
            lines = tuple(sorted({self._places.line(*origin) for origin in runs[0].origins}))
            bodies.append(Body(len(fragment.body), len(runs), len(sizes), lines))
        return tuple(sorted(bodies, key=lambda body: -body.runs))

    def _describe_order(self) -> str:
        """Return in plain words how bodies follow each other."""
        often = [numbers for numbers in self._bodies.values() if len(numbers) > 2]
        rare = [numbers for numbers in self._bodies.values() if len(numbers) <= 2]
        words = []
        if len(often) > 1:
            regular = [n for n in often if len(gaps := {b - a for a, b in pairwise(n)}) == 1 and gaps != {1}]
            turns = f"every {regular[0][1] - regular[0][0]} runs" if regular else "as values or structure decide"
            words.append(f"The bodies take turns {turns}")
        if rare and often:
            firsts = {number for numbers in rare for number in numbers}
            start = next(number for number in range(len(self._units) + 1) if number not in firsts)
            rest = len([number for number in firsts if number >= start])
            if start:
                words.append(f"The first {'run is' if start == 1 else f'{start} runs are'} different")
            if rest:
                words.append(
                    f"{rest} {'run' if rest == 1 else 'runs'} later on {'is' if rest == 1 else 'are'} different"
                )
        return ". ".join(words)


def _shown(values: dict[Any, Value]) -> tuple[Value, ...]:
    return tuple(values.values())


class _Holdings:
    """What is in memory of the runs of a loop."""

    def __init__(self, members: Sequence[Unit]) -> None:
        self.values = self.nbytes = self.residuals = self.evicted = 0
        for unit in members:
            source = unit.source
            if type(source) is Call:
                outputs: list[Node | None] = list(source.handles)
                self.residuals += sum(array.nbytes for array in source.value or () if array is not None)
            else:
                outputs = list({id(node): node for node in [reference() for reference in source.outputs]}.values())
            for node in outputs:
                if node is not None and node.value is not None:
                    self.values += 1
                    self.nbytes += node.value.nbytes if type(node.value) is not tuple else 0
                elif node is not None and (_has_run(source) or getattr(node, "piece", None) is LOST):
                    self.evicted += 1


def _has_run(source: Any) -> bool:
    """Whether what gives values has had them: a piece, or a call that is a folded one."""
    return type(source) is Piece or bool(source.depth)


def _makers_of(run: Unit) -> Counter[Maker]:
    """Count the places that make values in a run."""
    fragment: Any = run.fragment
    pairs = zip(fragment.body, run.origins, strict=False)
    return Counter((place_of(*origin), instruction.op) for instruction, origin in pairs)
