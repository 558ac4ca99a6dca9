"""Recognising a piece that was evaluated before, without describing it anew.

The one idea: the iterations of a loop ask for the same node, made by the same line of the user's program, with the same
nodes behind it. So for each piece that was seen a second time a *matcher* is made (`matching.c`): it walks back from
the target, compares each node with a table of those that stood there, and finds the nodes at the inputs and outputs.
It is kept with the line that made the target. A line is a guess, the matcher decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool._engine.interpreter import part_if_alive
from unspool._engine.references import MANY, count_references
from unspool._engine.structure import Apart
from unspool._graph import Node
from unspool._locks import Lock
from unspool._ops.leaf import PLACEHOLDER, TENSOR

if TYPE_CHECKING:
    from unspool._core import Matcher, Privacy
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Fragment, Origin

# A piece whose values take at least so many bytes is timed, and noted even if it is not folded.
LARGE = 1 << 12

# Branches of one line that are told apart; the one that matched last is tried first.
MOST_BRANCHES = 32

# Lines that are remembered.
MOST_LINES = 4096

# What a check for references from outside gives if there are none; and why a piece stays as it is if there are none:
# its outputs are older than what it reads, the same was recorded before, or what it computed belongs to other steps.
PRIVATE, TOO_OLD, RECORDED_BEFORE, OF_OTHERS = -1, -2, -3, -5


class Site(_core.SiteBase):
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
    again : set of int
        Which of its nodes later pieces have recorded again. One that is asked for from then on has them as results.
    ahead : frozenset of int
        Which of its nodes are results for that reason.
    plan, length, kernels, nbytes, peak, is_large
        What runs it, how many instructions and kernel calls that are, the bytes of its outputs, the most bytes that it
        takes, whether they are many; when ``is_ready``.
    match : Matcher or None
        What recognises it.
    checks : dict
        What `make_check` made.
    recipes : dict
        How pieces of this kind are cut, by the patterns in which they share nodes with others.
    stays : dict of int to int
        Why pieces could not be folded, and how many: because of the node at a slot, which something outside has come to
        use, or for `TOO_OLD`, `RECORDED_BEFORE` or `OF_OTHERS`.
    """

    __slots__ = ("_make", "_walks", "again", "ahead", "apart", "fragment", "is_known", "positions", "recipes", "stays")

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
        ahead: frozenset[int] = frozenset(),
    ) -> None:
        self.describe(results, origins, apart.results)
        self._make = make
        self.fragment = fragment
        self.positions = positions
        self.has_bundles = has_bundles
        self.apart = apart
        self.is_known = False
        self.again: set[int] = set()
        self.ahead = ahead
        self.stays: dict[int, int] = {}
        self.recipes: dict[bytes, Any] = {}
        self._walks: dict[tuple[int, ...], Privacy] = {}

    def make_plan(self) -> None:
        """Make the plan, if there is none: the piece runs again, or is folded."""
        if not self.is_ready:
            plan = self.plan = self._make()
            self.length = len(plan.fragment.body)
            self.kernels = plan.kernels
            self.nbytes = plan.output_bytes
            self.is_large = self.nbytes >= LARGE
            self.peak = plan.peak_bytes
            self.is_ready = True

    def note_stay(self, why: int) -> None:
        """Note that a piece could not be folded."""
        self.stays[why] = self.stays.get(why, 0) + 1

    def find_walk(self, indices: tuple[int, ...]) -> Privacy:
        """Return what finds all nodes behind some outputs of a piece."""
        walk = self._walks.get(indices)
        if walk is None:
            walk = self._walks[indices] = make_privacy_check(self.fragment, indices, frozenset())
        return walk

    def make_check(self, indices: tuple[int, ...]) -> Privacy:
        """Make what tells which node inside a piece something outside has come to use since the piece was evaluated.

        Such a node (what all iterations have in common, met in the first one) would be computed, and differentiated,
        twice if the piece was folded. ``indices`` are the outputs that are alive. What stands apart may be used by
        anybody.
        """
        check = self.checks[indices] = make_privacy_check(self.fragment, indices, self.apart.slots)
        return check


class Sites:
    """The sites by the line that asks: a bounded table, the lines that were added first leave first.

    Attributes
    ----------
    lines : dict of int to list of Site
        By `unspool._core.line_key`.
    """

    def __init__(self) -> None:
        self.lines: dict[int, list[Site]] = {}
        self._lock = Lock()

    def find(self, targets: Sequence[Node]) -> tuple[Site, tuple[Node, ...], tuple[Node, ...], tuple[Any, ...]] | None:
        """Return the site that matches targets without values, with its nodes and the values of its inputs."""
        return _core.find_site(self.lines, targets)

    def add(self, targets: Sequence[Node], site: Site) -> None:
        """Remember a site under the line that made the first target; a site may stand under several."""
        key = _core.line_key(targets)
        with self._lock:
            line = self.lines.pop(key, [])
            # A new list: other threads may be going through this one.
            self.lines[key] = line if site in line else [site, *line[: MOST_BRANCHES - 1]]
            while len(self.lines) > MOST_LINES:
                del self.lines[next(iter(self.lines))]

    def __len__(self) -> int:
        return sum(len(line) for line in self.lines.values())

    def clear(self) -> None:
        """Forget all sites."""
        with self._lock:
            self.lines.clear()


def make_matcher(
    targets: Sequence[Node],
    order: Sequence[Node],
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    uses: dict[int, int],
    results: int,
    constants: Container[int] = (),
    ahead: Container[int] = (),
) -> Matcher:
    """Return the matcher for a piece: its targets, its nodes in order, and the nodes at its inputs and outputs.

    The first ``results`` outputs were kept because somebody could ask for them. That must be so again, or what every
    iteration has in common would be folded into the first one, and be recorded anew; but for those that are ``ahead``,
    by their places in the order, which a later step asks for. The inputs ``constants`` have to be constants again.
    """
    slots = {node.id: slot for slot, node in enumerate((*order, *inputs))}
    kept = {node.id for node in outputs}
    asked = {node.id for node in outputs[:results]} - {node.id for i, node in enumerate(order) if i in ahead}
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


def make_privacy_check(fragment: Fragment, indices: Sequence[int], apart: frozenset[int]) -> Privacy:
    """Return what compares the references to each node behind some outputs of a piece, except some, with its uses."""
    first = len(fragment.dtypes)
    shown = [fragment.outputs[index] for index in indices]
    behind = set(shown)
    uses: dict[int, int] = {}
    for slot in range(first + len(fragment.body) - 1, first - 1, -1):
        if slot in behind:
            for operand in fragment.body[slot - first].operands:
                uses[operand] = uses.get(operand, 0) + 1
                behind.add(operand)
    can_count = count_references is sys.getrefcount
    steps: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = []
    met = set(shown) | apart
    for slot in range(first + len(fragment.body) - 1, first - 1, -1):
        if slot not in behind or slot in apart:
            continue
        fresh: list[int] = []
        for position, operand in enumerate(fragment.body[slot - first].operands):
            if operand >= first and operand not in met:
                met.add(operand)
                fresh += (position, operand)
        wanted = _BY_ANYBODY if slot in shown else uses[slot] if can_count else MANY
        steps.append((slot, wanted, tuple(fresh), tuple(fragment.body[slot - first].operands)))
    return _core.privacy(first, first + len(fragment.body), tuple(shown), steps)


# Instead of the uses of a node: others may use it.
_BY_ANYBODY = -1
