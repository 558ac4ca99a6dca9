"""What of a graph was not folded, why, and what to change: read from what the engine noted, not guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from unspool._core import Piece
from unspool._engine.default import default_engine
from unspool._engine.engine import LARGEST_PIECE, MOST_OF_A_LINE, SMALLEST_LOOP, Evaluator
from unspool._engine.folding.fold_queue import FEWEST_LONG, MANY_NODES
from unspool._engine.folding.matching import OF_OTHERS, RECORDED_BEFORE, TOO_OLD
from unspool._engine.folding.outcomes import Why
from unspool._engine.step_number import place_of
from unspool._engine.structure import MOST_INPUTS
from unspool._fragments.repeats import find_repeats, wiring_of
from unspool._graph import Node
from unspool._inspect.explanation import Line, Unfolded
from unspool._inspect.places import Places
from unspool._inspect.units import Unit, Units


class Reason(NamedTuple):
    """Why something was not folded: a short name, what happened, and what to change."""

    name: str
    why: str
    change: str = ""


_NOT_READ = Reason("not evaluated", "Nobody has read a value of it yet, so nothing has run.")
_EVALUATED = Reason("alone", "It was evaluated, and is not part of a loop.")

_NOTED = {
    Why.ONE_OPERATION: Reason("one operation", "There is one operation between two reads, which needs no folding."),
    Why.READS_CALLS: Reason(
        "reads calls",
        "It was evaluated together with calls that had no value. Those ran by plan, what is between them node by node.",
    ),
    Why.TOO_LARGE: Reason(
        "too large",
        f"There were more than {LARGEST_PIECE} operations, and fewer than {SMALLEST_LOOP}, between two reads. They ran "
        "node by node and are not folded.",
        "Read a value in each step, or make the step a @us.fragment, or write the loop as us.iterate.",
    ),
    Why.NOT_REPEATED: Reason(
        "no repetition",
        f"There were {SMALLEST_LOOP} operations or more between two reads, and no body among them that repeats at a "
        "fixed distance. They ran node by node.",
        "Read a value in each step, or make the step a @us.fragment.",
    ),
    Why.STAND_INS: Reason(
        "stand-ins",
        "It was evaluated while a function was being differentiated, on stand-ins for the arguments.",
        "Take the gradient of the tensor, as in loss.grad(w), or read no values inside of the function.",
    ),
    Why.MANY_INPUTS: Reason(
        "gathers",
        f"It was evaluated together with an operation that has more than {MOST_INPUTS} inputs, such as a stack of all "
        "states: that gathers steps, and is none.",
    ),
    Why.HELD_FACTORS: Reason(
        "factorisation across a read", "A factorisation is made in one evaluation and used in another one."
    ),
    Why.MANY_STRUCTURES: Reason(
        "always another structure",
        f"The line that reads has asked for more than {MOST_OF_A_LINE} different programs: a list that grows, a number "
        "of terms or sizes that change with the step. It is not looked at any more, and runs node by node.",
        "Let each step do the same: carry a sum instead of a list that grows, pad to fixed sizes.",
    ),
}


def find_unfolded(
    units: Units,
    members: Mapping[int, int],
    lines: Mapping[Line, int],
    bodies: Mapping[int, int],
    waiting: Container[int],
    places: Places,
) -> list[Unfolded]:
    """Return what was not folded, by loop and reason, largest first.

    Parameters
    ----------
    units : Units
    members : mapping of int to int
        The number of the loop that a unit is in, by its position; nodes that are loops have 0.
    lines : mapping of line to int
        The number of the loop that a line belongs to.
    bodies : mapping of int to int
        How many operations the longest body of a loop has.
    waiting : container of int
        The identities of pieces that wait to be folded.
    places : Places
    """
    engine = default_engine()
    engine.queue.find_families()
    groups: dict[tuple[int | None, Reason], list[Unit]] = {}
    computed = _computed(units)
    inherited: dict[int, Reason] = {}
    for position in range(len(units.order) - 1, -1, -1):
        unit = units.order[position]
        if unit.is_step:
            reason = _of_piece(unit, waiting, position in members, engine, places)
            number = members.get(position)
        elif not unit.inputs or position in members:
            continue
        else:
            number = lines.get(places.line(*unit.origins[0]))
            reason = _NOT_READ
            if position in computed:
                reason = _of_node(unit.source, engine) or inherited.get(position) or _beside(unit.source, engine)
                for node in unit.inputs:
                    inherited.setdefault(units.maker[node.id][0], reason)
        if reason is not None:
            groups.setdefault((number, reason), []).append(unit)
    found = []
    explained = {number for number, reason in groups if reason is not _EVALUATED}
    for (number, reason), parts in groups.items():
        if reason is _EVALUATED and number in explained and number is not None:
            continue  # what kept steps from being folded is the same for what hangs off them
        one = _describe(reason, parts[::-1], places, number, bodies.get(number or 0, 0))
        if one is not None:
            found.append(one)
    return sorted(found, key=lambda one: -one.operations)


def _computed(units: Units) -> set[int]:
    """Return the positions of units that have run: they have a value, or something that was made from them has."""
    found: set[int] = set()
    for position in range(len(units.order) - 1, -1, -1):
        unit = units.order[position]
        if unit.is_step or position in found or unit.source.value is not None:
            found.add(position)
            found.update(units.maker[node.id][0] for node in unit.inputs)
    return found


def _of_node(node: Node, engine: Evaluator) -> Reason | None:
    """Return why a node that has a value is not part of a piece; None if nothing was noted for its line."""
    if node.value is None:
        return None
    why = engine.outcomes.asked(node)
    return None if why is None else _NOTED[why]


def _beside(node: Node, engine: Evaluator) -> Reason:
    """Return why a node was not part of a piece if another line asked for it."""
    why = engine.outcomes.beside(node)
    return _EVALUATED if why is None else _NOTED[why]


def _of_piece(unit: Unit, waiting: Container[int], in_loop: bool, engine: Evaluator, places: Places) -> Reason | None:
    """Return why a piece is not folded; None if it is, or will be before a gradient is taken."""
    piece: Any = unit.source
    if type(piece) is not Piece:
        return None
    if id(piece) not in waiting:
        return _stayed(unit, places)
    if engine.queue.will_fold(piece):
        return None
    if not in_loop:
        return _EVALUATED
    depth, most = 0 if piece.row is None else piece.row.whole().depth, engine.queue.most
    return Reason(
        "few reads",
        f"There were {depth} reads in a row, and from {most + 1} on they are folded, or from {FEWEST_LONG} on with "
        f"{MANY_NODES} operations. A short program has little to gain; its gradient has as many nodes as it has.",
        "For a gradient that is a loop, read a value in each step, or write the loop as us.iterate.",
    )


def _stayed(unit: Unit, places: Places) -> Reason:
    """Return why a piece that was to be folded was not."""
    site = unit.source.site
    if not site.stays:
        return _EVALUATED
    why = max(site.stays, key=site.stays.__getitem__)
    if why == TOO_OLD:
        return Reason(
            "older than what it reads",
            "It was recorded before what it reads: it computes again what an earlier evaluation did not keep.",
        )
    if why == RECORDED_BEFORE:
        return Reason(
            "recorded before",
            "The same was recorded and evaluated before, and the tensors of that time are alive.",
        )
    if why == OF_OTHERS:
        return Reason(
            "of other steps",
            "What it computed was recorded in the time of other steps, or so many of these record it again that the "
            "next ones have to find it as it is.",
        )
    name, line = places.name(*unit.place_of(why)), places.line(*unit.place_of(why))[1]
    if _is_made_of_leaves(unit, why):
        return Reason(
            "shared by steps",
            f"`{name}` (line {line}) is made of leaves and constants alone. The steps that met it first made it for "
            "all others, and stay as they are.",
            "It can be computed before the loop.",
        )
    return Reason(
        "used again",
        f"`{name}` (line {line}) is used outside of the step after the step was evaluated: it is recorded again by a "
        "later step, or held. What others use cannot be folded away.",
        f"Compute `{name}` once and hand it on in a variable; or make it part of what the step ends with.",
    )


def _is_made_of_leaves(unit: Unit, slot: int) -> bool:
    """Whether what a slot holds is made of leaves and constants, and of nothing that the loop carries."""
    fragment: Any = unit.fragment
    first = len(unit.inputs)
    stack, seen = [slot], {slot}
    while stack:
        current = stack.pop()
        if current < first:
            if unit.inputs[current].inputs:
                return False
            continue
        for operand in fragment.body[current - first].operands:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return True


# --- groups ----------------------------------------------------------------------------------------------------------


def _describe(
    reason: Reason, parts: Sequence[Unit], places: Places, number: int | None, longest: int
) -> Unfolded | None:
    """Return what is told of units with one reason; None for what needs no explanation."""
    makers: Counter[Any] = Counter()
    where: dict[Line, None] = {}
    operations = 0
    for unit in parts:
        body: Any = [unit.source] if unit.fragment is None else unit.fragment.body
        operations += len(body)
        for one, origin in zip(body, unit.origins, strict=False):
            makers[place_of(*origin), one.op] += 1
            where[places.line(*origin)] = None
    times = _times(makers)
    if reason in (_NOT_READ, _EVALUATED) and (times == 1 or operations <= 3 * longest):
        return None  # what does not repeat, or is left of a loop after its last read
    if reason is _NOT_READ:
        reason = _before_running(parts)
    return Unfolded(reason.name, reason.why, reason.change, operations, times, tuple(sorted(where)), number)


def _times(makers: Counter[Any]) -> int:
    """Return how often the places ran that made most operations."""
    least: dict[Any, int] = {}
    weight: Counter[int] = Counter()
    for (place, _), count in makers.items():
        least[place] = min(count, least.get(place, count))
    for (place, _), count in makers.items():
        weight[least[place]] += count
    return weight.most_common(1)[0][0] if weight else 1


def _before_running(parts: Sequence[Unit]) -> Reason:
    """Return what will happen to operations that repeat and were never read."""
    count = len(parts)
    if count <= LARGEST_PIECE:
        will = f"When it is read it runs as one piece, as up to {LARGEST_PIECE} operations do."
    elif count < SMALLEST_LOOP:
        will = f"When it is read it runs node by node: below {SMALLEST_LOOP} operations no repetition is looked for."
    else:
        repeats = find_repeats(wiring_of([unit.source for unit in parts]))
        covered = sum(repeat.period * repeat.count for repeat in repeats)
        bodies = "body" if len(repeats) == 1 else "bodies"
        will = "No body in it repeats at a fixed distance: it will run node by node."
        if repeats:
            part = f"{covered:,} of its {count:,} operations"
            will = f"When it is read or differentiated, {part} are folded into calls of {len(repeats)} {bodies}."
            return _NOT_READ._replace(why=f"{_NOT_READ.why} {will}", change="")
    return _NOT_READ._replace(
        why=f"{_NOT_READ.why} {will} Its gradient has as many nodes as it has.",
        change="Read a value in each step, or write the loop as us.iterate, and the gradient is a loop as well.",
    )
