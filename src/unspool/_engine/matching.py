"""Recognising a piece that was evaluated before, without describing it anew.

The one idea: the iterations of a loop ask for the same node, made by the same line of the user's program, with the same
nodes behind it. So for each piece that was seen a second time a *matcher* is made (`matching.c`): it walks back from
the target, compares each node with a table of those that stood there, and returns the nodes at the inputs and outputs,
or ``None`` at the first difference. It is kept with the line that made the target. A line is a guess, the matcher
decides.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool._engine.interpreter import part_if_alive
from unspool._engine.references import IN_A_VARIABLE, count_references
from unspool._engine.structure import Apart
from unspool._graph import Node
from unspool._ops.leaf import PLACEHOLDER, TENSOR

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Fragment, Origin

# The nodes at the inputs, those at the outputs, and the values of the inputs.
Match = Callable[..., tuple[tuple[Node, ...], tuple[Node, ...], tuple[Any, ...]] | None]

# A piece whose values take at least so many bytes is timed, and noted even if it is not folded.
LARGE = 1 << 12

# Branches of one line that are told apart; the one that matched last is tried first.
MOST_BRANCHES = 32

# Lines that are remembered.
MOST_LINES = 4096

# What a check for references from outside gives if there are none; and why a piece stays as it is if there are none:
# its outputs are older than what it reads, or the same was recorded before.
PRIVATE, TOO_OLD, RECORDED_BEFORE = -1, -2, -3


class Site:
    """A piece that the user's program asked for: its structure and, when it is asked for again, what runs it.

    Attributes
    ----------
    fragment : Fragment
        Its structure.
    results : int
        How many outputs were kept because somebody could ask for them; residuals follow.
    positions : list of int
        Where among the nodes of the piece its outputs are.
    origins : tuple
        Where the user's program recorded each instruction.
    has_bundles : bool
        Whether ops with several outputs are inside: factorisations, whose results are dear.
    apart : Apart
        What is made of constants alone, and so no part of it.
    is_known : bool
        Whether it was asked for more than once.
    plan, nbytes, peak, is_large
        What runs it, the bytes of its outputs, the most bytes it takes, whether they are many; when ``is_ready``.
    match : callable or None
        What recognises it.
    checks : dict
        What `make_check` made.
    stays : dict of int to int
        Why pieces could not be folded, and how many: because of the node at a slot, which something outside has come to
        use, or for `TOO_OLD` or `RECORDED_BEFORE`.
    """

    __slots__ = (
        "_make",
        "apart",
        "checks",
        "fragment",
        "has_bundles",
        "is_known",
        "is_large",
        "is_ready",
        "match",
        "nbytes",
        "origins",
        "peak",
        "plan",
        "positions",
        "results",
        "stays",
    )

    plan: Plan
    nbytes: int
    peak: int
    is_large: bool

    def __init__(
        self,
        make: Callable[[], Plan],
        fragment: Fragment,
        results: int,
        positions: list[int],
        origins: tuple[Origin, ...],
        *,
        has_bundles: bool,
        apart: Apart,
    ) -> None:
        self._make = make
        self.fragment = fragment
        self.results = results
        self.positions = positions
        self.origins = origins
        self.has_bundles = has_bundles
        self.apart = apart
        self.is_known = False
        self.is_ready = False
        self.match: Match | None = None
        self.checks: dict[tuple[int, ...], Callable[..., int]] = {}
        self.stays: dict[int, int] = {}

    def make_plan(self) -> None:
        """Make the plan, if there is none: the piece runs again, or is folded."""
        if not self.is_ready:
            self.plan = self._make()
            self.nbytes = self.plan.output_bytes
            self.is_large = self.nbytes >= LARGE
            self.peak = self.plan.peak_bytes
            self.is_ready = True

    def note_stay(self, why: int) -> None:
        """Note that a piece could not be folded."""
        self.stays[why] = self.stays.get(why, 0) + 1

    def make_check(self, indices: tuple[int, ...]) -> Callable[..., int]:
        """Make what tells which node inside a piece something outside has come to use since the piece was evaluated.

        Such a node (what all iterations have in common, met in the first one) would be computed, and differentiated,
        twice if the piece was folded. It is called with the outputs that are alive, ``indices`` are which ones, and
        returns the slot, or `PRIVATE` if there is no such node. What stands apart may be used by anybody.
        """
        check = self.checks[indices] = make_privacy_check(self.plan.fragment, indices, self.apart.slots)
        return check


class Sites:
    """The sites by the line that asks: a bounded table, the least recently used lines leave first."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[int, int, int], list[Site]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, targets: Sequence[Node]) -> tuple[Site, tuple[Node, ...], tuple[Node, ...], tuple[Any, ...]] | None:
        """Return the site that matches targets without values, with its nodes as the matcher found them."""
        first = targets[0]
        key = (id(first.code), first.line, len(targets))
        line = self._lines.get(key)
        if line is None:
            return None
        for site in line:
            found = site.match(*targets)  # type: ignore[misc]  # those that are here have one
            if found is not None:
                if line[0] is not site:
                    # A new list: other threads may be going through this one.
                    self._lines[key] = [site, *[other for other in line if other is not site]]
                return site, *found
        return None

    def add(self, targets: Sequence[Node], site: Site) -> None:
        """Remember a site under the line that made the first target; a site may stand under several."""
        first = targets[0]
        key = (id(first.code), first.line, len(targets))
        with self._lock:
            line = self._lines.setdefault(key, [])
            if site not in line:
                line.insert(0, site)
                del line[MOST_BRANCHES:]
            self._lines.move_to_end(key)
            while len(self._lines) > MOST_LINES:
                self._lines.popitem(last=False)

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def clear(self) -> None:
        """Forget all sites."""
        with self._lock:
            self._lines.clear()


def make_matcher(
    targets: Sequence[Node],
    order: Sequence[Node],
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    uses: dict[int, int],
    results: int,
    constants: Container[int] = (),
) -> Match:
    """Return the matcher for a piece: its targets, its nodes in order, and the nodes at its inputs and outputs.

    The first ``results`` outputs were kept because somebody could ask for them. That must be so again, or what every
    iteration has in common would be folded into the first one, and be recorded anew. The inputs ``constants`` have to
    be constants again.
    """
    slots = {node.id: slot for slot, node in enumerate((*order, *inputs))}
    kept = {node.id for node in outputs}
    asked = {node.id for node in outputs[:results]}
    wanted = {target.id for target in targets}
    met = set(wanted)
    reachable = {operand.id for node in order for operand in node.inputs} | met
    adopted = [node for node in order if node.id not in reachable]
    can_count = count_references is sys.getrefcount
    steps = []
    for node in reversed(order):
        if node.id not in reachable:
            continue  # a part that was adopted; found through its bundle
        outside = ANY_NUMBER
        if node.id not in kept:
            outside = NONE_OUTSIDE if can_count else NEVER
        elif node.id in asked and node.id not in wanted and can_count:
            outside = SOME_OUTSIDE
        parts = tuple([(slots[p.id], p.attributes["index"]) for p in adopted if p.inputs[0] is node])
        sources = []
        for operand in node.inputs:
            slot = slots[operand.id]
            sources.append(slot if operand.id in met else ~slot)
            met.add(operand.id)
        steps.append(
            (
                slots[node.id],
                node.op,
                type(node),
                node.attributes or None,
                outside,
                uses[node.id],
                tuple(sources),
                parts or None,
            )
        )
    read = [(slots[node.id], node.shape, node.dtype, i in constants) for i, node in enumerate(inputs)]
    shown = tuple([slots[node.id] for node in outputs])
    asking = tuple([slots[target.id] for target in targets])
    return _core.matcher(len(slots), asking, steps, read, shown, part_if_alive, _LEAVES)


# What the references from outside to a node have to be: see `matching.c`. Where they cannot be counted, it is as if
# there were always some.
ANY_NUMBER, NONE_OUTSIDE, SOME_OUTSIDE, NEVER = range(4)

# Leaves that are no literals.
_LEAVES = (TENSOR, PLACEHOLDER)


def make_privacy_check(fragment: Fragment, indices: Sequence[int], apart: frozenset[int]) -> Callable[..., int]:
    """Generate the function that counts the references to each node behind some outputs of a piece, except some."""
    from unspool._engine.generated import FunctionWriter

    first = len(fragment.dtypes)
    shown = [fragment.outputs[index] for index in indices]
    behind = set(shown)
    uses: dict[int, int] = {}
    for slot in range(first + len(fragment.body) - 1, first - 1, -1):
        if slot in behind:
            for operand in fragment.body[slot - first].operands:
                uses[operand] = uses.get(operand, 0) + 1
                behind.add(operand)
    lines: list[str] = []
    met = set(shown) | apart
    for slot in range(first + len(fragment.body) - 1, first - 1, -1):
        if slot not in behind or slot in apart:
            continue
        if slot not in shown:
            lines.append(f"if references(n{slot}) != {IN_A_VARIABLE + uses[slot]}: return {slot}")
        fresh = [(i, o) for i, o in enumerate(fragment.body[slot - first].operands) if o >= first and o not in met]
        if fresh:
            # The tuple is not unpacked: a second name for a node would count as a reference from outside.
            lines.append(f"inputs = n{slot}.inputs")
        for position, operand in fresh:
            if operand not in met:
                met.add(operand)
                lines.append(f"n{operand} = inputs[{position}]")
    writer = FunctionWriter("check", [f"n{slot}" for slot in shown])
    writer.bind(references=count_references)
    writer.write(*lines, f"return {PRIVATE}")
    check: Callable[..., int] = writer.compile("check", fragment.origins)
    return check
